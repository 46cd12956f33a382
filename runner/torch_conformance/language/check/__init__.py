"""Semantic checks of specs: one module for each part of the language."""
