"""One module for each subcommand; its ``main`` takes the parsed arguments and returns an exit code."""
