"""``python -m torch_conformance`` is the same program as ``torch-conformance``."""

import gc
import sys

from torch_conformance.machine.child_python import leave_out_working_folder


def main() -> int:
    """Run the program without the working folder on the search path."""
    leave_out_working_folder()
    # cases live as long as the program: the scans of the usual threshold take a seventh of the time
    # of 'validate'
    gc.set_threshold(1_000_000)
    from torch_conformance.cli.parser import main as program

    return program()


if __name__ == "__main__":
    sys.exit(main())
