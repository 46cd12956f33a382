"""What became of a spec's cases in the last run."""

from collections import Counter
from datetime import datetime
from pathlib import Path

from runner.core.diagnostics import InvalidSpecs, UsageError
from runner.core.escaping import line
from runner.run.last_run import last_results


def last_outcome(path: Path) -> str:
    """Return the outcomes of a file's cases in ``reports/latest`` as one line; empty without such a run."""
    try:
        found = last_results(path)
    except (InvalidSpecs, UsageError, OSError, ValueError):
        return ""
    if found is None:
        return ""
    outcomes, ended = found
    counts = Counter(outcomes)
    said = ", ".join(f"{count} {outcome}" for outcome, count in sorted(counts.items()))
    when = datetime.fromtimestamp(ended).strftime("%Y-%m-%d %H:%M")
    return line(f"last run: {said} ({when})")
