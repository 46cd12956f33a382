"""The form of what the tools report: tables in Markdown, and records in JSON."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path


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


def write_record(file: Path | None, record: object) -> None:
    """Write a record as JSON, where a file is named."""
    if file is not None:
        file.write_text(json.dumps(record, indent=1) + "\n", "utf-8")
