"""Specs of tests whose Python drives torch by itself: one step runs it, and each of its assertions is an expectation about what it saw."""
