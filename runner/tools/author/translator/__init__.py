"""Writes new specs: from a template, or from the syntax tree of a Python test. Nothing of a test is executed."""
