"""The form of what the tools report: tables in Markdown."""

import re
from collections.abc import Iterable, Iterator, Sequence


def table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Yield the lines of a table; a cell has one line, in which vertical lines are escaped."""
    yield _row(columns)
    yield "|" + "---|" * len(columns)
    yield from map(_row, rows)


def _row(cells: Sequence[object]) -> str:
    return f"| {' | '.join(_cell(str(cell)) for cell in cells)} |"


def _cell(text: str) -> str:
    return re.sub(r"(?<!\\)\|", r"\\|", " ".join(text.split()))


def percent(part: int, whole: int) -> str:
    """Return a share; ``-`` where there is nothing to share."""
    return f"{100 * part / whole:.0f} %" if whole else "-"
