"""``watch``: runs specs again when their files change, with zygotes that stay warm between the runs."""
