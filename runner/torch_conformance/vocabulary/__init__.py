"""The words of the language that do something: one module for each kind of expectation."""
