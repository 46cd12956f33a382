"""Checks ``control`` and ``audit`` of a spec: kinds that it expects, and mutants of these kinds."""

from collections.abc import Iterator, Mapping

from runner.core.diagnostics import Diagnostic, unknown
from runner.language.backends import Backends
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath
from runner.vocabulary.expectations import EXPECTATIONS


def audit_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of kinds that the spec does not expect, and of unknown mutants and leaves."""
    leaves: dict[str, set[str]] = {}
    for step in anatomy.steps:
        for one in step.expectations:
            leaves.setdefault(one.kind, set()).update(_leaves(one.body))
    for index, kind in enumerate(anatomy.data.get("control", {}).get("fails", [])):
        yield from _kind_problems(anatomy, ("control", "fails", index), kind, leaves)
    for index, entry in enumerate(anatomy.data.get("audit", [])):
        yield from _entry_problems(anatomy, ("audit", index), entry, leaves)


def _leaves(body: object) -> Iterator[str]:
    """Yield what may be the name of a leaf: a counter's name, an object of a list, a cache with one of its counts."""
    if isinstance(body, list):
        yield from (name for name in body if isinstance(name, str))
    elif isinstance(body, dict):
        for name, value in body.items():
            yield name
            yield from (f"{name} {word}" for word in value) if isinstance(value, dict) else ()


def _kind_problems(anatomy: Anatomy, path: DataPath, kind: str, leaves: Mapping[str, set[str]]) -> Iterator[Diagnostic]:
    if kind not in EXPECTATIONS:
        yield anatomy.document.problem(path, *unknown("expectation", kind, EXPECTATIONS))
    elif kind not in leaves:
        yield anatomy.document.problem(path, f"the spec expects no '{kind}'", f"it expects {', '.join(sorted(leaves)) or 'nothing'}")


def _entry_problems(anatomy: Anatomy, path: DataPath, entry: Mapping[str, str], leaves: Mapping[str, set[str]]) -> Iterator[Diagnostic]:
    kind = entry["expectation"]
    wrong = list(_kind_problems(anatomy, (*path, "expectation"), kind, leaves))
    yield from wrong
    if wrong:
        return
    mutations = EXPECTATIONS[kind].mutations
    if entry["mutant"] not in mutations:
        yield anatomy.document.problem((*path, "mutant"), *unknown("mutant", entry["mutant"], mutations))
    if "leaf" in entry and entry["leaf"] not in leaves[kind]:
        yield anatomy.document.problem((*path, "leaf"), *unknown("leaf", entry["leaf"], leaves[kind]))
