"""Expands a spec and its matrix to cases."""
