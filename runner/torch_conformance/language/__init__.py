"""Reads, checks and expands specs to cases. Specs are never executed here."""
