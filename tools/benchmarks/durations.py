"""``python -m tools.benchmarks.durations [TABLE] JOURNAL...``: prints a table of durations
(``specs/durations.txt``) of recorded runs.

Of a case in several runs it takes the longest duration. A file named ``durations.txt`` is a table:
it gives the durations of cases that no journal has. The order of the cases depends on the table
where a machine has no run of its own.
"""

import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from torch_conformance.run.preparation import TABLE, seconds_of_run, seconds_of_tables

COMMENT = (
    "Seconds of cases, of runs on machines that are named in "
    "docs/guides/isolation-and-speed.md. A run without an earlier one starts the",
    "longest cases first by this table, and shards are equally long by it; nothing else "
    "depends on it. Printed by:",
    "python -m tools.benchmarks.durations specs/durations.txt JOURNAL",
)


def as_table(seconds: Mapping[str, float], comment: Iterable[str] = ()) -> str:
    """Return the text of a table, the longest cases first."""
    lines = [f"# {line}" for line in comment]
    ordered = sorted(seconds.items(), key=lambda item: (-round(item[1], 1), item[0]))
    return "".join(
        f"{line}\n"
        for line in [*lines, *(f"{max(value, 0.1):.1f} {case_id}" for case_id, value in ordered)]
    )


def main(files: list[str]) -> int:
    """Print the table of the journals, and of what earlier tables have besides."""
    slowest: dict[str, float] = {}
    tables = [file for file in map(Path, files) if file.name == TABLE]
    for journal in map(Path, files):
        if journal in tables:
            continue
        seconds = seconds_of_run(journal)
        if not seconds:
            print(f"{journal}: no duration of a case can be read", file=sys.stderr)
            return 2
        for case_id, value in seconds.items():
            slowest[case_id] = max(value, slowest.get(case_id, 0.0))
    print(as_table({**seconds_of_tables(tables), **slowest}, COMMENT), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
