"""``explain``: one case as the spec of it alone, with where each value came from; above it, what a spec does not say."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.cli.commands.list import as_json
from runner.cli.profiles import levels_of, load_profile
from runner.core.case import Availability, Case, Step
from runner.core.conditions import Surroundings
from runner.core.diagnostics import UsageError, one_line
from runner.core.exit_codes import ExitCode
from runner.core.options import argument, backend_files, flag, paths, profile_option, sample_option
from runner.core.protocol import Json, encode
from runner.judge.waivers import Waivers
from runner.language.backends import Backend
from runner.language.expand.cases import surroundings
from runner.language.flow import flow
from runner.language.load import Suite, load, surroundings_of
from runner.language.profiles import Profile
from runner.language.read.substitution import as_text
from runner.language.waivers import load_waivers
from runner.plan.case_document import decision_of, document_of, text_of
from runner.plan.operator_script import is_of_operator, script
from runner.plan.origins import Origins
from runner.plan.schedule import is_exclusive
from runner.plan.selection import select, unmatched, without_benches
from runner.plan.worker_plan import body_as_json, digest_of, seed_of
from runner.system import availability, output
from runner.system.availability import Verdict
from runner.system.installed_torch import installed_torch


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The options of ``explain``."""

    case: str = argument("CASE", "a case's id, or a glob that selects cases")
    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    sample: int | None = sample_option()
    profile: str | None = profile_option("name the case's level in this profile")
    json: bool = flag("print an array of objects")


def main(options: ExplainOptions) -> ExitCode:
    """Print every case that the id or glob selects."""
    profile = load_profile(options.profile, options.paths, options.backends) if options.profile else None
    suite = load(options.paths, options.backends) if profile is None else profile.suite
    levels = {} if profile is None else levels_of(profile.resolved.record)
    cases = select(suite.cases, suite.backends, globs=[options.case])
    if not cases:
        raise UsageError(unmatched([options.case], suite.cases)[0])
    if options.sample is not None and not all(map(is_of_operator, cases)):
        raise UsageError("--sample goes with a case of torch's database of operators")
    machine = availability.inspect_files(installed_torch())
    found = [(case, availability.of_case(case, machine)) for case in cases]
    if options.json:
        output.document(encode([{**as_json(case, verdict), **_details(case), **levels.get(case.id, {})} for case, verdict in found]))
    else:
        files = load_waivers(() if profile is None else profile.profile.waivers, suite.backends)
        waivers, known = Waivers(files, today=datetime.now(UTC).date()), surroundings_of(machine.torch, machine)
        for number, (case, verdict) in enumerate(found):
            output.raw("---\n" if number else "")
            level = [] if profile is None else [_level(profile.profile, levels.get(case.id))]
            here = surroundings(suite.backends.by_name[case.backend], known, case.target)
            output.lines(_text(case, verdict, suite, _waivers(case, waivers, here), level))
            output.lines(_sample(case, options.sample))
    return ExitCode.OK


def _level(profile: Profile, level: Mapping[str, Any] | None) -> str:
    """Return the line about a case's level in a profile."""
    what = "not a case of it" if level is None else f"{level['level']}, {'required' if level['required'] else 'optional'}"
    return f"{profile.name} {profile.version}: {what}"


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
        "origins": {f"{section}.{name}": option.origin for section, found in case.options.items() for name, option in found.items()},
    }


def _beside(step: Step) -> dict[str, Json]:
    """Return what stands beside the kind of a step."""
    return {**({"repeat": step.repeat} if step.repeat != 1 else {}), **({} if step.when is None else {"when": dict(step.when)})}


def _text(case: Case, verdict: Verdict, suite: Suite, waivers: Iterable[str], level: Iterable[str]) -> Iterator[str]:
    """Yield what is known of the case as comments, then the case as a spec."""
    backend = suite.backends.by_name[case.backend]
    yield f"# {one_line(case.id)}"
    for word, text in (*_facts(case, verdict, backend), *(("waiver", text) for text in waivers), *(("profile", text) for text in level)):
        yield f"#   {word:<10} {one_line(text)}"
    origins = Origins(case, suite.documents, decision_of(case, suite.backends))
    yield from text_of(document_of(case, suite.backends), origins).rstrip("\n").split("\n")


def _waivers(case: Case, waivers: Waivers, here: Surroundings) -> Iterator[str]:
    """Yield the waivers that apply to a case here."""
    for waiver in waivers.of(case.id, here):
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


def _sample(case: Case, sample: int | None) -> Iterator[str]:
    """Yield the script of a sample."""
    if sample is not None:
        yield f"  sample {sample}    as a script: its output has the arguments"
        yield from (f"    {line}".rstrip() for line in script(case, sample).splitlines())


_WORDS = {Availability.YES: "yes", Availability.NO: "no", Availability.UNKNOWN: "perhaps"}
