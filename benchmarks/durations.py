"""``python -m benchmarks.durations JOURNAL...``: prints a table of durations (``specs/durations.txt``) of recorded runs.

Of a case in several runs it takes the longest duration. The order of the cases depends on the table where a machine has no run of its own.
"""

import sys
from pathlib import Path

from runner.plan.durations import as_table, seconds_of_run

COMMENT = (
    "Seconds of cases, of runs on machines that are named in docs/guides/isolation-and-speed.md. A run without an earlier one starts the",
    "longest cases first by this table; nothing else depends on it. 'python -m benchmarks.durations JOURNAL...' prints it.",
)


def main(journals: list[str]) -> int:
    """Print the table of the journals."""
    found: dict[str, float] = {}
    for journal in map(Path, journals):
        seconds = seconds_of_run(journal.parent, journal.name)
        if not seconds:
            print(f"{journal}: no duration of a case can be read", file=sys.stderr)
            return 2
        for case_id, value in seconds.items():
            found[case_id] = max(value, found.get(case_id, 0.0))
    print(as_table(found, COMMENT), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
