"""``bless``: `blessed_samples` reads the runs, `proposing` makes the changes of a spec; the command judges the runs again by them."""
