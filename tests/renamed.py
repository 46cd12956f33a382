"""``python -m tests.renamed``: prints the id of each shipped case before and after the specs were renamed, and checks the map.

Without a file it takes all cases from before the renaming. OLD is a journal (``run.jsonl``), the output of ``list --json``, or a text with
one id a line. NEW is a journal from after the renaming: each case must have the same outcome in both.
"""

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from runner.language.load import load

DATA = Path(__file__).resolve().parent / "data" / "renamed_specs.json"


@dataclass(frozen=True)
class Renaming:
    """What ``renamed_specs.json`` holds."""

    names: Mapping[str, str]
    """``area/name`` of each spec, old to new."""
    points: Mapping[str, tuple[str, ...]]
    """By old name: what followed the name in the ids of the spec's cases, brackets included."""
    moved: Mapping[str, str] = field(default_factory=dict)
    """Cases that another spec has since, with another id: that of the renaming to that of today."""
    joined: Mapping[str, str] = field(default_factory=dict)
    """Cases whose claim another case of the spec makes since: their id to its id."""

    @property
    def old_ids(self) -> tuple[str, ...]:
        return tuple(name + point for name, points in self.points.items() for point in points)

    def new_id(self, old: str) -> str | None:
        """Return the id of the same case after the renaming; None for a spec that the map lacks."""
        name, bracket, point = old.partition("[")
        if name not in self.names:
            return None
        new = self.names[name] + bracket + point
        return self.joined.get(new) or self.moved.get(new, new)


@cache
def renaming() -> Renaming:
    """Read the map."""
    data = json.loads(DATA.read_text(encoding="utf-8"))
    points = {name: tuple(found) for name, found in data["points"].items()}
    return Renaming(names=data["names"], points=points, moved=data["moved"], joined=data["joined"])


@cache
def current_ids() -> frozenset[str]:
    """Return the ids of all shipped cases."""
    return frozenset(str(case.id) for case in load([]).cases)


def problems(renamed: Renaming, old_ids: Iterable[str], now: frozenset[str]) -> list[str]:
    """Return a line for each old id that does not lead to exactly one case of today."""
    found: list[str] = []
    taken: dict[str, str] = {}
    for old in old_ids:
        new = renamed.new_id(old)
        if new is None:
            found.append(f"{old}: no new name in {DATA.name}")
        elif new not in now:
            found.append(f"{old}: no case has the id {new}")
        elif new not in renamed.joined.values() and taken.setdefault(new, old) != old:
            found.append(f"{old}: {new} is already the new id of {taken[new]}")
    return found


def differences(renamed: Renaming, before: Mapping[str, str], after: Mapping[str, str]) -> list[str]:
    """Return a line for each case whose outcome differs between two journals, or that only one of them has."""
    expected = {new: outcome for old, outcome in before.items() if (new := renamed.new_id(old)) is not None}
    return [
        f"{case}: {expected.get(case, 'not run')} before, {after.get(case, 'not run')} after"
        for case in sorted({*expected, *after})
        if expected.get(case) != after.get(case)
    ]


def read_ids(text: str) -> list[str]:
    """Return the ids of a journal, of ``list --json``, or of a file with one id a line."""
    if text.startswith("["):
        return [case["id"] for case in json.loads(text)]
    if text.startswith("{"):
        return list(read_outcomes(text))
    return [line for line in text.split("\n") if line]


def read_outcomes(text: str) -> dict[str, str]:
    """Return the outcome of each case of a journal."""
    lines = [json.loads(line) for line in text.splitlines()]
    return {line["case_id"]: line["outcome"] for line in lines if line["kind"] == "case"}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print ``old -> new`` for each id; 1 when an id leads nowhere or an outcome differs."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.renamed", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("old", type=Path, nargs="?", metavar="OLD")
    parser.add_argument("new", type=Path, nargs="?", metavar="NEW")
    options = parser.parse_args(arguments)
    renamed = renaming()
    text = options.old.read_text(encoding="utf-8") if options.old else ""
    old_ids = read_ids(text) if options.old else list(renamed.old_ids)
    for old in old_ids:
        print(f"{old} -> {renamed.new_id(old) or '?'}")
    found = problems(renamed, old_ids, current_ids())
    if options.new:
        found += differences(renamed, read_outcomes(text), read_outcomes(options.new.read_text(encoding="utf-8")))
    for problem in found:
        print(problem, file=sys.stderr)
    added = len(current_ids() - {renamed.new_id(old) for old in renamed.old_ids})
    print(f"{len(old_ids)} ids, {len(found)} problems; {added} cases have been added since the renaming")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
