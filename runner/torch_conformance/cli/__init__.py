"""The command line: the parser, and one module for each subcommand."""
