"""What is known of executions in shared workers, in the history: a table that older versions of this program do not read."""

import json
import sqlite3
from collections.abc import Mapping

from runner.core.sharing import Known

_TABLE = """
CREATE TABLE IF NOT EXISTS sharing (
    id TEXT NOT NULL, digest TEXT NOT NULL, state TEXT NOT NULL, own TEXT NOT NULL, confirmed INTEGER NOT NULL, forbidden TEXT NOT NULL,
    PRIMARY KEY (id, digest, state)
) STRICT, WITHOUT ROWID
"""

Key = tuple[str, str]
"""A case's id and digest."""


def read(connection: sqlite3.Connection, state: str) -> dict[Key, Known]:
    """Return what is known in a state: of torch and of the runner. Raise ``ValueError`` for values that no version writes."""
    if not connection.execute("SELECT count(*) FROM sqlite_master WHERE name = 'sharing'").fetchone()[0]:
        return {}
    rows = connection.execute("SELECT id, digest, own, confirmed, forbidden FROM sharing WHERE state = ?", (state,))
    return {(case_id, digest): Known(own=_print(own), confirmed=count, forbidden=why) for case_id, digest, own, count, why in rows}


def write(connection: sqlite3.Connection, state: str, found: Mapping[Key, Known]) -> None:
    """Record what a run found. What another run has forbidden meanwhile stays forbidden."""
    connection.execute(_TABLE)
    rows = [
        (_text(key[0]), key[1], state, json.dumps(dict(known.own)), known.confirmed, _text(known.forbidden)) for key, known in found.items()
    ]
    connection.executemany(
        "INSERT INTO sharing VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET own = excluded.own, confirmed = excluded.confirmed, "
        "forbidden = CASE WHEN sharing.forbidden != '' THEN sharing.forbidden ELSE excluded.forbidden END",
        rows,
    )


def _print(text: str) -> dict[str, str]:
    found = json.loads(text)
    if not isinstance(found, dict) or not all(isinstance(part, str) for part in found.values()):
        raise ValueError("a print is a map of texts")
    return found


def _text(text: str) -> str:
    return text.encode("utf-8", "backslashreplace").decode("utf-8")
