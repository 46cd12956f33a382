"""What a spec means: one module for each part of the language that can be wrong."""
