"""Optional parts: one folder each, which nothing else of the program imports."""
