"""``python -m runner`` is the same program as ``torch-conformance``."""

import sys

from runner.cli import main

if __name__ == "__main__":
    sys.exit(main())
