"""``list``: the expanded cases, and whether each can run here."""

import argparse
import json
from collections.abc import Mapping
from typing import Any

from runner import availability
from runner.availability import Verdict
from runner.exits import ExitCode
from runner.language.load import load
from runner.machine import installed_torch
from runner.model import Availability, Case
from runner.protocol import encode
from runner.selection import Shard, select


def main(arguments: argparse.Namespace) -> ExitCode:
    """Print the selected cases; exit 4 when there are none."""
    suite = load(arguments.paths, arguments.backends)
    shard = Shard.parse(arguments.shard) if arguments.shard else None
    cases = select(suite.cases, suite.backends, names=arguments.backend, globs=arguments.select, shard=shard)
    machine = availability.glance(installed_torch())
    found = [(case, availability.of_case(case, machine)) for case in cases]
    if arguments.json:
        print(json.dumps(encode([as_json(case, verdict) for case, verdict in found]), indent=2, allow_nan=False))
    else:
        print("\n".join(_line(case, verdict) for case, verdict in found) or "no case is selected")
    return ExitCode.OK if cases else ExitCode.NOTHING


def as_json(case: Case, verdict: Verdict) -> Mapping[str, Any]:
    """Return a case as ``list --json`` says it."""
    return {
        "id": case.id,
        "spec": case.spec,
        "line": case.position.line,
        "summary": case.summary,
        "area": case.area,
        "name": case.name,
        "backend": case.backend,
        "params": case.params,
        "requires": list(dict.fromkeys(map(str, case.requires))),
        "covers": list(case.covers),
        "tags": list(case.tags),
        "available": verdict.availability.as_json(),
        "reason": verdict.reason,
    }


def _line(case: Case, verdict: Verdict) -> str:
    word = {Availability.YES: "", Availability.NO: "  unavailable: ", Availability.UNKNOWN: "  perhaps: "}[verdict.availability]
    return f"{case.id}{word}{verdict.reason if word else ''}"
