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

REPORTS = ROOT / "reports" / "mutants"
CLAIMS = frozenset(outcome.label for outcome in RED)
"""The outcomes of a case that was judged; an unexpected exception of the compiled function is a FAIL too."""


@dataclass(frozen=True)
class Row:
    """A mutant of a record, and the outcome of each of its cases."""

    mutant: Named
    status: str
    outcomes: Mapping[str, str]

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
    """Read records, all of one torch and of the same cases; a mutant that was drawn twice counts once."""
    records = [json.loads(file.read_bytes()) for file in files]
    versions = {record["torch"] for record in records}
    if len(versions) != 1:
        raise ValueError(f"records of several versions of torch: {', '.join(sorted(versions))}")
    rows = {one["name"]: Row(named(one), one["status"], one["cases"]) for record in records for one in record["mutants"]}
    seeds = tuple(sorted({record["seed"] for record in records}))
    return Sample(versions.pop(), seeds, records[0]["reached"], tuple(rows[name] for name in sorted(rows)))


def named(one: Mapping[str, str]) -> Named:
    """Return the mutant of an entry of a record, whose name is ``module:line:kind:number``."""
    module, _, kind, _ = one["name"].split(":")
    return Named(module, one["function"], kind, one["difference"])


def as_json(sample: Sample) -> str:
    """Return the sample without anything of the machine: no times, paths or messages."""
    mutants = [
        {
            "module": row.mutant.module,
            "function": row.mutant.function,
            "kind": row.mutant.kind,
            "difference": row.mutant.difference.splitlines(),
            "status": row.status,
            "cases": row.outcomes,
        }
        for row in sample.rows
    ]
    head = json.dumps({"torch": minor(sample.torch), "seeds": sample.seeds, "reached": sample.reached}, indent=1)
    return head.removesuffix("\n}") + ',\n "mutants": [\n' + ",\n".join(f"  {json.dumps(one)}" for one in mutants) + "\n ]\n}\n"


def as_markdown(name: str, sample: Sample, classified: Iterable[Survivor]) -> str:
    """Return the rates, and each survivor with its difference and what was said of it."""
    known = {one.mutant: one for one in classified}
    lines = [f"# Mutants of torch: {name}", "", f"torch {minor(sample.torch)}, seeds {', '.join(map(str, sample.seeds))}.", ""]
    lines += _rates(sample, known)
    lines += ["", "## Survivors", ""]
    for row in sample.rows:
        if row.status == "survived":
            lines += _survivor(row, known.get(row.mutant))
    return "\n".join(lines).rstrip() + "\n"


def _rates(sample: Sample, known: Mapping[Named, Survivor]) -> list[str]:
    lines = [
        "| module | reached | tried | killed | by FAIL or FELL_BACK | survived | of these equivalent | killed, without equivalents |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for module in [*sorted({row.mutant.module for row in sample.rows}), "all"]:
        rows = [row for row in sample.rows if module in ("all", row.mutant.module)]
        count = Counter(row.status for row in rows)
        claims = sum(row.status == "killed" and row.by_claim for row in rows)
        same = sum(row.status == "survived" and row.mutant in known and known[row.mutant].classified == "equivalent" for row in rows)
        differ = count["killed"] + count["survived"] - same
        reached = sum(sample.reached.values()) if module == "all" else sample.reached.get(module, 0)
        rate = f"{100 * count['killed'] / differ:.0f} %" if differ else "-"
        cells = (module, reached, count["killed"] + count["survived"], count["killed"], claims, count["survived"], same, rate)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    kinds = Counter(known[row.mutant].classified for row in sample.rows if row.status == "survived" and row.mutant in known)
    unread = sum(row.status == "survived" and row.mutant not in known for row in sample.rows)
    told = [f"{kind}: {number}" for kind, number in kinds.most_common()] + ([f"not read yet: {unread}"] if unread else [])
    unplanted = sum(row.status == "not planted" for row in sample.rows)
    return [*lines, "", f"Survivors by class: {', '.join(told) or 'none'}. Not planted in any case: {unplanted}."]


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
    options = parser.parse_args(arguments)
    sample = read(options.records)
    REPORTS.mkdir(parents=True, exist_ok=True)
    (REPORTS / f"{options.name}.json").write_text(as_json(sample), "utf-8")
    (REPORTS / f"{options.name}.md").write_text(as_markdown(options.name, sample, survivors()), "utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
