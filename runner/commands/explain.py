"""``explain``: one case as expanded: its options and where each came from, its code, its steps, whether it can run here."""

import argparse
import json
from collections.abc import Iterator
from typing import Any

from runner import availability, output
from runner.availability import Verdict
from runner.commands.list import as_json
from runner.diagnostics import UsageError, did_you_mean
from runner.exits import ExitCode
from runner.language.load import load
from runner.language.options import SECTIONS
from runner.language.substitution import as_text
from runner.machine import installed_torch
from runner.model import Availability, Case
from runner.plan import digest_of, seed_of
from runner.protocol import encode
from runner.schedule import is_exclusive
from runner.selection import select
from runner.sharing import why_alone


def main(arguments: argparse.Namespace) -> ExitCode:
    """Print every case that the id or glob selects."""
    suite = load(arguments.paths, arguments.backends)
    cases = select(suite.cases, suite.backends, globs=[arguments.case])
    if not cases:
        hint = did_you_mean(arguments.case, [case.id for case in suite.cases], cutoff=0.5)
        raise UsageError(f"no case '{arguments.case}'" + (f" ({hint})" if hint else "; 'list' shows them"))
    machine = availability.glance(installed_torch())
    found = [(case, availability.of_case(case, machine)) for case in cases]
    if arguments.json:
        output.document(encode([{**as_json(case, verdict), **_details(case)} for case, verdict in found]))
    else:
        for number, (case, verdict) in enumerate(found):
            output.lines([""] if number else [])
            output.lines(_text(case, verdict, suite.backends.by_name[case.backend].summary))
    return ExitCode.OK


def _details(case: Case) -> dict[str, Any]:
    body = as_text(dict(case.body))
    steps = [{"kind": s.kind, "arguments": as_text(dict(s.arguments)), "expect": [e.kind for e in s.expectations]} for s in case.steps]
    return {
        "device": case.device,
        "seed": seed_of(case),
        "digest": digest_of(case),
        "body": body,
        "steps": steps,
        "origins": {f"{section}.{name}": option.origin for section, found in case.options.items() for name, option in found.items()},
    }


def _text(case: Case, verdict: Verdict, backend: str) -> Iterator[str]:
    yield case.id
    yield f"  claim      {case.summary}"
    yield f"  file       {case.position}"
    yield f"  backend    {case.backend} on {case.device}: {backend}"
    yield f"  runs here  {_WORDS[verdict.availability]}{': ' + verdict.reason if verdict.reason else ''}"
    alone = why_alone(case)
    yield f"  process    {'of its own: ' + alone if alone else 'shared with others under --isolation worker'}"
    yield f"  seed       {seed_of(case)}"
    if is_exclusive(case):
        yield "  alone      nothing runs beside it"
    yield from (f"  covers     {test}" for test in case.covers)
    body = as_text(dict(case.body))
    for section in SECTIONS:
        for name, value in body[section].items():
            yield f"  {section:<10} {name} = {value!r}    from {case.options[section][name].origin}"
    if body["context"]:
        yield f"  context    {body['context']}"
    for index, entry in enumerate(body["inputs"]):
        yield f"  input {index}    {json.dumps(entry, default=str)}"
    yield from _code(case)
    yield from _steps(case)


_WORDS = {Availability.YES: "yes", Availability.NO: "no", Availability.UNKNOWN: "perhaps"}


def _code(case: Case) -> Iterator[str]:
    blocks = [*case.body["preludes"], *(value["block"] for value in case.body["functions"].values() if "block" in value)]
    for block in blocks:
        yield f"  {block['name']}, {block['file']}:{block['line']}"
        yield from (f"  {number:>6} | {line}" for number, line in enumerate(block["text"].splitlines(), start=block["line"]))
    for name, value in case.body["functions"].items():
        if "block" not in value:
            yield f"  {name}   {json.dumps(as_text(value), default=str)}"


def _steps(case: Case) -> Iterator[str]:
    for number, step in enumerate(case.steps, start=1):
        arguments = json.dumps(as_text(dict(step.arguments)), default=str) if step.arguments else ""
        yield f"  step {number}     {step.kind} {arguments}".rstrip()
        for expected in step.expectations:
            yield f"    expect   {expected.check!r}    at line {expected.position.line}"
