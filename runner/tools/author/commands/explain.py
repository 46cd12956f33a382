"""``explain``: one case as the spec of it alone, with where each value came from; above it, what a spec does not say."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.cli.commands.list import as_json
from runner.judge.waiving import Waivers
from runner.language.backends import Backend
from runner.language.expand.cases import surroundings_for
from runner.language.flow import flow
from runner.language.load import Suite, load, surroundings_of
from runner.language.read.templates import as_text
from runner.language.waivers import load_waivers
from runner.machine import availability, output
from runner.machine.availability import Verdict
from runner.machine.installed_torch import installed_torch
from runner.model.case import Availability, Case, Step
from runner.model.conditions import Surroundings
from runner.model.diagnostics import UsageError, one_line
from runner.model.optional import hooks
from runner.model.options import argument, backend_files, flag, paths, profile_option
from runner.model.outcomes import ExitCode
from runner.model.protocol import Json, encode
from runner.plan.schedule import is_exclusive
from runner.plan.selection import select, unmatched, without_benches
from runner.plan.worker_plan import body_as_json, digest_of, seed_of
from runner.tools.author.case_document import decision_of, document_of, text_of
from runner.tools.author.origins import Origins


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The options of ``explain``."""

    case: str = argument("CASE", "a case's id, or a glob that selects cases")
    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    profile: str | None = profile_option("look among the cases of this profile")
    json: bool = flag("print an array of objects")


def main(options: ExplainOptions) -> ExitCode:
    """Print every case that the id or glob selects."""
    profile = hooks("vendor").load_profile(options.profile, options.paths, options.backends) if options.profile else None
    suite = load(options.paths, options.backends) if profile is None else profile.suite
    cases = select(suite.cases, suite.backends, globs=[options.case])
    if not cases:
        raise UsageError(unmatched([options.case], suite.cases)[0])
    machine = availability.inspect_files(installed_torch())
    verdicts = [(case, availability.of_case(case, machine)) for case in cases]
    if options.json:
        output.document(encode([{**as_json(case, verdict), **_details(case)} for case, verdict in verdicts]))
    else:
        files = load_waivers(() if profile is None else profile.profile.waivers, suite.backends)
        waivers, known = Waivers(files, today=datetime.now(UTC).date()), surroundings_of(machine.torch, machine)
        for number, (case, verdict) in enumerate(verdicts):
            output.raw("---\n" if number else "")
            surroundings = surroundings_for(suite.backends.by_name[case.backend], known, case.target)
            output.lines(_text(case, verdict, suite, _waivers(case, waivers, surroundings)))
    return ExitCode.OK


def _details(case: Case) -> dict[str, Any]:
    control = None if case.control is None else {"patch": case.control.patch, "fails": list(case.control.fails)}
    steps = [
        {"kind": s.kind, "arguments": as_text(dict(s.arguments)), "expect": [e.kind for e in s.expectations], **_beside(s)}
        for s in case.steps
    ]
    return {
        "device": case.device,
        "seed": seed_of(case),
        "digest": digest_of(case),
        "body": as_text(body_as_json(case)),
        "steps": steps,
        "control": control,
        "origins": {f"{section}.{name}": option.origin for section, options in case.options.items() for name, option in options.items()},
    }


def _beside(step: Step) -> dict[str, Json]:
    """Return what stands beside the kind of a step."""
    return {**({"repeat": step.repeat} if step.repeat != 1 else {}), **({} if step.when is None else {"when": dict(step.when)})}


def _text(case: Case, verdict: Verdict, suite: Suite, waivers: Iterable[str]) -> Iterator[str]:
    """Yield what is known of the case as comments, then the case as a spec."""
    backend = suite.backends.by_name[case.backend]
    yield f"# {one_line(case.id)}"
    for word, text in (*_facts(case, verdict, backend), *(("waiver", text) for text in waivers)):
        yield f"#   {word:<10} {one_line(text)}"
    origins = Origins(case, suite.documents, decision_of(case, suite.backends))
    yield from text_of(document_of(case, suite.backends), origins).rstrip("\n").split("\n")


def _waivers(case: Case, waivers: Waivers, surroundings: Surroundings) -> Iterator[str]:
    """Yield the waivers that apply to a case here."""
    for waiver in waivers.of(case.id, surroundings):
        ended = " (ended)" if waivers.is_expired(waiver) else ""
        yield f"{waiver.position}, until {waiver.until}{ended}: {waiver.reason}, {waiver.issue}"


def _facts(case: Case, verdict: Verdict, backend: Backend) -> Iterator[tuple[str, str]]:
    """Yield what a spec does not say: each with its word."""
    yield "file", str(case.position)
    yield "backend", f"{case.backend} on {case.device}: {backend.summary}"
    yield "proof", flow(backend.document.data[backend.name].get("proof", {}))
    yield "runs here", f"{_WORDS[verdict.availability]}{f': {verdict.reason}' if verdict.reason else ''}"
    usual = without_benches(case)
    yield "process", "a new Python" if case.body.isolation == "process" else "a fork"
    if is_exclusive(case):
        yield "alone", f"nothing runs beside it{'' if is_exclusive(usual) else ' under --bench'}"
    yield "timeout", f"{case.body.timeout:g} seconds" if case.body.timeout else "that of run --timeout"
    yield "digest", digest_of(case)


_WORDS = {Availability.YES: "yes", Availability.NO: "no", Availability.UNKNOWN: "perhaps"}
