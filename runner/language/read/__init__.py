"""YAML to checked shapes: files, positions, schemas, templates, the anatomy of a spec."""
