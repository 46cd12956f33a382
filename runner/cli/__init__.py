"""The command line: the parser, and one module a subcommand."""
