"""``python -m tests.mutants.table RECORD... --name NAME``: merges records of samples into two files of ``reports/mutants``."""

import argparse
import json
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.fakes import ROOT
from tests.faults.running import RED
from tests.mutants.named import Named, Survivor, minor, survivors
from tests.mutants.running import status

REPORTS = ROOT / "reports" / "mutants"
CLAIMS = frozenset(outcome.label for outcome in RED)
"""The outcomes of a case that was judged; an unexpected exception of the compiled function is a FAIL too."""


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
    """What was drawn, from what, and what came of it."""

    torch: str
    seeds: tuple[int, ...]
    reached: Mapping[str, int]
    rows: tuple[Row, ...]


def read(files: Sequence[Path]) -> Sample:
    """Read records, all of one torch; a mutant of several records counts once, with the cases of all of them."""
    records = [json.loads(file.read_bytes()) for file in files]
    versions = {record["torch"] for record in records}
    if len(versions) != 1:
        raise ValueError(f"records of several versions of torch: {', '.join(sorted(versions))}")
    rows: dict[str, Row] = {}
    reached: dict[str, int] = {}
    for record in records:
        reached = {**record["reached"], **reached}
        for one in record["mutants"]:
            before = rows[one["name"]].outcomes if one["name"] in rows else {}
            rows[one["name"]] = Row(named(one), {**before, **one["cases"]})
    seeds = tuple(sorted({record["seed"] for record in records} - {None}))
    return Sample(versions.pop(), seeds, reached, tuple(rows[name] for name in sorted(rows)))


def named(one: Mapping[str, str]) -> Named:
    """Return the mutant of an entry of a record, whose name is ``module:line:kind:number``."""
    module, _, kind, _ = one["name"].split(":")
    return Named(module, one["function"], kind, one["difference"])


def as_json(sample: Sample, since: frozenset[Named] = frozenset()) -> str:
    """Return the sample without anything of the machine: no times, paths or messages."""
    mutants = [
        {
            "module": row.mutant.module,
            "function": row.mutant.function,
            "kind": row.mutant.kind,
            "difference": row.mutant.difference.splitlines(),
            "status": row.status,
            "cases": row.outcomes,
            **({"killed since": True} if row.mutant in since else {}),
        }
        for row in sample.rows
    ]
    head = json.dumps({"torch": minor(sample.torch), "seeds": sample.seeds, "reached": sample.reached}, indent=1)
    return head.removesuffix("\n}") + ',\n "mutants": [\n' + ",\n".join(f"  {json.dumps(one)}" for one in mutants) + "\n ]\n}\n"


COLUMNS = {
    "module": "",
    "reached": "mutants in lines that a case of the run executes",
    "tried": "mutants that were drawn and planted",
    "killed": "a case that passes without the mutant did not pass with it",
    "by a claim": "of these, with a FAIL or a FELL_BACK: an expectation failed, or an exception that the spec does not expect",
    "survived": "all cases that were tried passed",
    "no difference here": "of these, equivalent or for another platform, as somebody who read the code says",
    "rate": "killed, of those that can make a difference",
    "killed since": "survivors that specs detect which were written for them",
    "rate now": "the same rate with these",
    "timed out": "a case ended at its deadline and no other failed; counted nowhere else",
}
SAME_HERE = ("equivalent", "other platform")


def as_markdown(name: str, sample: Sample, classified: Iterable[Survivor], since: frozenset[Named] = frozenset()) -> str:
    """Return the rates, and each survivor with its difference and what was said of it."""
    known = {one.mutant: one for one in classified}
    lines = [f"# Mutants of torch: {name}", "", f"torch {minor(sample.torch)}, seeds {', '.join(map(str, sample.seeds))}.", ""]
    lines += _rates(sample, known, since)
    lines += ["", "## Survivors", ""]
    for row in sample.rows:
        if row.status == "survived":
            lines += _survivor(row, known.get(row.mutant))
    return "\n".join(lines).rstrip() + "\n"


def _rates(sample: Sample, known: Mapping[Named, Survivor], since: frozenset[Named]) -> list[str]:
    lines = [f"| {' | '.join(COLUMNS)} |", f"|{'---|' * len(COLUMNS)}"]
    for module in [*sorted({row.mutant.module for row in sample.rows}), "all"]:
        rows = [row for row in sample.rows if module in ("all", row.mutant.module)]
        reached = sum(sample.reached.values()) if module == "all" else sample.reached.get(module, 0)
        lines.append(f"| {' | '.join(map(str, (module, reached, *_cells(rows, known, since))))} |")
    kinds = Counter(known[row.mutant].classified for row in sample.rows if row.status == "survived" and row.mutant in known)
    unread = sum(row.status == "survived" and row.mutant not in known for row in sample.rows)
    told = [f"{kind}: {number}" for kind, number in kinds.most_common()] + ([f"not read yet: {unread}"] if unread else [])
    unplanted = sum(row.status == "not planted" for row in sample.rows)
    meant = "; ".join(f"*{column}*: {text}" for column, text in COLUMNS.items() if text)
    return [*lines, "", f"Survivors by class: {', '.join(told) or 'none'}. Not planted in any case: {unplanted}.", "", f"{meant}."]


def _cells(rows: Sequence[Row], known: Mapping[Named, Survivor], since: frozenset[Named]) -> tuple[object, ...]:
    count = Counter(row.status for row in rows)
    survived = [row.mutant for row in rows if row.status == "survived"]
    claims = sum(row.status == "killed" and row.by_claim for row in rows)
    same = sum(one in known and known[one].classified in SAME_HERE for one in survived)
    later = sum(one in since for one in survived)
    differ = count["killed"] + len(survived) - same
    rates = [f"{100 * number / differ:.0f} %" if differ else "-" for number in (count["killed"], count["killed"] + later)]
    tried = count["killed"] + len(survived)
    return tried, count["killed"], claims, len(survived), same, rates[0], later, rates[1], count["timed out"]


def _survivor(row: Row, known: Survivor | None) -> list[str]:
    said = f"{known.classified}. {known.reason}" if known is not None else "not read yet."
    claimed = f" Now claimed by `{known.claimed_by}`." if known is not None and known.claimed_by else ""
    head = f"`{row.mutant.module}`, `{row.mutant.function}`, {row.mutant.kind}; {len(row.outcomes)} cases: {said}{claimed}"
    return [head, "", "```diff", *row.mutant.difference.splitlines(), "```", ""]


def main(arguments: Sequence[str] | None = None) -> int:
    """Write both files of a name."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.table", description=__doc__)
    parser.add_argument("records", nargs="+", type=Path, metavar="RECORD", help="what --json of python -m tests.mutants wrote")
    parser.add_argument("--name", required=True, help="the name of the two files")
    help_of_since = "a record of survivors under specs that were written for them; may repeat"
    parser.add_argument("--since", action="append", default=[], type=Path, metavar="RECORD", help=help_of_since)
    options = parser.parse_args(arguments)
    sample = read(options.records)
    later = read(options.since).rows if options.since else ()
    since = frozenset(row.mutant for row in later if row.status == "killed")
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"{options.name}.json").write_text(as_json(sample, since), "utf-8")
    (REPORTS / f"{options.name}.md").write_text(as_markdown(options.name, sample, survivors(), since), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
