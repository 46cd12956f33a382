"""Counts what ``new --from-python`` carries of the tests in a folder of Python files: whole (as calls, or driven), in part, not at all.

python benchmarks/from_python.py FOLDER
"""

import argparse
from collections import Counter
from pathlib import Path

from runner.language.authoring.from_python import draft
from runner.language.authoring.python_file import PythonFile, Test

STATES = ("whole", "driven", "part", "none")
"""``driven``: whole too, as one step that runs the Python of the test."""


def counts_of(path: Path) -> Counter[str]:
    """Return how many tests of a file are carried whole, in part and not at all; nothing for a file that is no Python."""
    try:
        file = PythonFile.parse(path.name, path.read_text("utf-8"))
    except (SyntaxError, ValueError):
        return Counter()
    return Counter(_state(file, test) for test in file.tests())


def _state(file: PythonFile, test: Test) -> str:
    made = draft(file, test)
    return "driven" if made.is_driven else made.state


def main() -> None:
    """Print the counts of each file and of all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    total: Counter[str] = Counter()
    for path in sorted(parser.parse_args().folder.glob("*.py")):
        found = counts_of(path)
        total += found
        print(f"{path.name}: {', '.join(f'{found[state]} {state}' for state in STATES)}")
    print(f"{total.total()} tests: {', '.join(f'{total[state]} {state}' for state in STATES)}")


if __name__ == "__main__":
    main()
