"""``python -m tools.mutants.table RECORD...``: prints the rates of some records, for
``reports/mutants.md``.
"""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.mutants.choosing import status
from tools.mutants.named import Named, Survivor, survivors
from tools.reports import percent, table
from tools.running import RED

CLAIMS = frozenset(outcome.label for outcome in RED)
"""The outcomes of a case that was judged; an unexpected exception of the compiled function is a
FAIL too.
"""


@dataclass(frozen=True)
class Row:
    """A mutant of a record, and the outcome of each of its cases."""

    mutant: Named
    outcomes: Mapping[str, str]

    @property
    def status(self) -> str:
        return status(self.outcomes.values())

    @property
    def by_claim(self) -> bool:
        return any(label in CLAIMS for label in self.outcomes.values())


@dataclass(frozen=True)
class Sample:
    """The number of mutants that were reached of each module, and those that were tried."""

    reached: Mapping[str, int]
    rows: tuple[Row, ...]


def read(records: Sequence[Mapping[str, Any]]) -> Sample:
    """Read records, all of one torch; a mutant of several records counts once, with the cases of
    all of them.
    """
    versions = {record["torch"] for record in records}
    if len(versions) != 1:
        raise ValueError(f"records of several versions of torch: {', '.join(sorted(versions))}")
    rows: dict[str, Row] = {}
    reached: dict[str, int] = {}
    for record in records:
        reached = {**record["reached"], **reached}
        for entry in record["mutants"]:
            before = rows[entry["name"]].outcomes if entry["name"] in rows else {}
            rows[entry["name"]] = Row(named(entry), {**before, **entry["cases"]})
    return Sample(reached, tuple(rows[name] for name in sorted(rows)))


def named(entry: Mapping[str, str]) -> Named:
    """Return the mutant of an entry of a record, whose name is ``module:line:kind:number``."""
    module, _, kind, _ = entry["name"].split(":")
    return Named(module, entry["function"], kind, entry["difference"])


COLUMNS = {
    "module": "",
    "reached": "mutants in lines that a case of the run executes",
    "tried": "mutants that were drawn and planted",
    "killed": "a case that passes without the mutant did not pass with it",
    "by a claim": "of these, with a FAIL or a FELL_BACK: an expectation "
    "failed, or an exception that the "
    "spec does not expect",
    "survived": "all cases that were tried passed",
    "no difference here": "of these, equivalent or for another platform, as "
    "somebody who read the code says",
    "rate": "killed, of those that can make a difference",
    "timed out": "a case ended at its deadline and no other failed; counted nowhere else",
}
SAME_HERE = ("equivalent", "other platform")


def rates(sample: Sample, classified: Iterable[Survivor]) -> list[str]:
    """Return the table of the rates of each module, and the classes of the survivors."""
    survivors = {survivor.mutant: survivor for survivor in classified}
    cells = []
    for module in [*sorted({row.mutant.module for row in sample.rows}), "all"]:
        rows = [row for row in sample.rows if module in ("all", row.mutant.module)]
        reached = sum(sample.reached.values()) if module == "all" else sample.reached.get(module, 0)
        cells.append((module, reached, *_cells(rows, survivors)))
    kinds = Counter(
        survivors[row.mutant].classified
        for row in sample.rows
        if row.status == "survived" and row.mutant in survivors
    )
    unread = sum(row.status == "survived" and row.mutant not in survivors for row in sample.rows)
    classes = [f"{kind}: {number}" for kind, number in kinds.most_common()] + (
        [f"not read yet: {unread}"] if unread else []
    )
    meant = "; ".join(f"*{column}*: {text}" for column, text in COLUMNS.items() if text)
    return [
        *table([*COLUMNS], cells),
        "",
        f"Survivors by class: {', '.join(classes) or 'none'}. Not planted in any case: "
        f"{sum(row.status == 'not planted' for row in sample.rows)}.",
        "",
        f"{meant}.",
    ]


def _cells(rows: Sequence[Row], survivors: Mapping[Named, Survivor]) -> tuple[object, ...]:
    count = Counter(row.status for row in rows)
    survived = [row.mutant for row in rows if row.status == "survived"]
    claims = sum(row.status == "killed" and row.by_claim for row in rows)
    same = sum(
        mutant in survivors and survivors[mutant].classified in SAME_HERE for mutant in survived
    )
    differ = count["killed"] + len(survived) - same
    tried = count["killed"] + len(survived)
    return (
        tried,
        count["killed"],
        claims,
        len(survived),
        same,
        percent(count["killed"], differ),
        count["timed out"],
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m tools.mutants.table", description=__doc__)
    parser.add_argument("records", nargs="+", type=Path, help="what --json of tools.mutants wrote")
    records = [json.loads(path.read_bytes()) for path in parser.parse_args(arguments).records]
    print("\n".join(rates(read(records), survivors())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
