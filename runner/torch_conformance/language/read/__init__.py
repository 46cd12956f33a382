"""Reads YAML into checked data: files, positions, schemas, templates, and the parts of a spec."""
