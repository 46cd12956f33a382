"""``explain``: one case as expanded: its options and where each came from, its code, its steps, whether it can run here."""

import argparse
from collections.abc import Iterator, Mapping
from typing import Any

from runner.cli.commands.list import as_json
from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.core.model import Availability, Case
from runner.core.protocol import encode
from runner.language.expand.options import SECTIONS
from runner.language.flow import block, flow
from runner.language.load import load
from runner.language.read.substitution import as_text
from runner.plan.isolation import needs_new_process, why_alone
from runner.plan.schedule import is_exclusive
from runner.plan.selection import select, unmatched, without_benches
from runner.plan.worker_plan import digest_of, seed_of
from runner.system import availability, output
from runner.system.availability import Verdict
from runner.system.installed_torch import installed_torch


def main(arguments: argparse.Namespace) -> ExitCode:
    """Print every case that the id or glob selects."""
    suite = load(arguments.paths, arguments.backends)
    cases = select(suite.cases, suite.backends, globs=[arguments.case])
    if not cases:
        raise UsageError(unmatched([arguments.case], suite.cases)[0])
    machine = availability.inspect_files(installed_torch())
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
    control = None if case.control is None else {"patch": case.control.patch, "fails": list(case.control.fails)}
    steps = [{"kind": s.kind, "arguments": as_text(dict(s.arguments)), "expect": [e.kind for e in s.expectations]} for s in case.steps]
    return {
        "device": case.device,
        "seed": seed_of(case),
        "digest": digest_of(case),
        "body": body,
        "steps": steps,
        "control": control,
        "origins": {f"{section}.{name}": option.origin for section, found in case.options.items() for name, option in found.items()},
    }


def _text(case: Case, verdict: Verdict, backend: str) -> Iterator[str]:
    yield case.id
    yield f"  claim      {case.summary}"
    yield f"  file       {case.position}"
    yield f"  backend    {case.backend} on {case.device}: {backend}"
    yield f"  runs here  {_WORDS[verdict.availability]}{': ' + verdict.reason if verdict.reason else ''}"
    usual = without_benches(case)
    alone = why_alone(usual)
    own = "a new Python" if needs_new_process(case) else "of its own"
    yield f"  process    {own + ': ' + alone if alone else 'shared with others under --isolation worker'}"
    yield f"  seed       {seed_of(case)}"
    if is_exclusive(case):
        yield f"  alone      nothing runs beside it{'' if is_exclusive(usual) else ' under --bench'}"
    yield from (f"  covers     {test}" for test in case.covers)
    body = as_text(dict(case.body))
    for section in SECTIONS:
        for name, value in body[section].items():
            yield f"  {section:<10} {name}: {flow(value)}    from {case.options[section][name].origin}"
    if body["context"]:
        yield f"  context    {flow(body['context'])}"
    for index, entry in enumerate(body["inputs"]):
        yield f"  input {index}    {flow(entry)}"
    yield from _code(case)
    yield from _steps(case)
    yield from _control(case)
    for reason in case.survivors:
        leaf = f" {reason.leaf}" if reason.leaf else ""
        yield f"  audit      {reason.expectation}{leaf} may hold with {reason.mutant}: {reason.reason}    at line {reason.position.line}"


_WORDS = {Availability.YES: "yes", Availability.NO: "no", Availability.UNKNOWN: "perhaps"}


def _code(case: Case) -> Iterator[str]:
    found = [*case.body["preludes"], *(value["block"] for value in case.body["functions"].values() if "block" in value)]
    for written in found:
        yield f"  {written['name']}, {written['file']}:{written['line']}"
        yield from _numbered(written)
    for name, value in case.body["functions"].items():
        if "block" not in value:
            yield from (f"  {line}" for line in block(name, as_text(value)))


def _numbered(written: Mapping[str, Any]) -> Iterator[str]:
    yield from (f"  {number:>6} | {line}" for number, line in enumerate(written["text"].splitlines(), start=written["line"]))


def _steps(case: Case) -> Iterator[str]:
    for number, step in enumerate(case.steps, start=1):
        arguments = as_text(dict(step.arguments))
        written = arguments.pop("code", None) if step.kind == "script" else None
        only = "    (with run --bench only)" if step.kind == "bench" else ""
        yield f"  step {number}     {step.kind}{f' {flow(arguments)}' if arguments else ''}    at line {step.position.line}{only}"
        if written is not None:
            yield from _numbered(written)
        for expected in step.expectations:
            first, *more = block(expected.kind, as_text(expected.body))
            yield f"    expect   {first}    at line {expected.position.line}"
            yield from (f"             {line}" for line in more)


def _control(case: Case) -> Iterator[str]:
    """Yield what is set otherwise under the case's control, and what must fail then."""
    if case.control is not None:
        fails = ", ".join(case.control.fails) or "any expectation"
        for section, options in case.control.patch.items():
            for name, value in options.items():
                yield f"  control    {section} {name}: {flow(value)}    must fail: {fails}    at line {case.control.position.line}"
