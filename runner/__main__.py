"""``python -m runner`` is the same program as ``torch-conformance``."""

import sys

from runner.system.search_path import leave_out_working_folder


def main() -> int:
    """Run the program without the working folder on the search path."""
    leave_out_working_folder()
    from runner.cli.parser import main as program

    return program()


if __name__ == "__main__":
    sys.exit(main())
