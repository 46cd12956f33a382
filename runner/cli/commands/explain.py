"""``explain``: one case as expanded: its options and where each came from, its code, its steps, whether it can run here."""

from collections.abc import Iterator, Mapping
from typing import Any

from runner.cli.commands.list import as_json
from runner.cli.profiles import levels_of, load_profile
from runner.core.case import Availability, Case, CodeBlock, DescribedFunction, Step
from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.core.options import ExplainOptions
from runner.core.protocol import Json, encode
from runner.language.flow import block, flow
from runner.language.load import load
from runner.language.profiles import Profile
from runner.language.read.substitution import as_text
from runner.plan.isolation import needs_new_process, why_alone
from runner.plan.operator_script import is_of_operator, script
from runner.plan.schedule import is_exclusive
from runner.plan.selection import is_optional, select, unmatched, without_benches
from runner.plan.worker_plan import body_as_json, digest_of, python_of, seed_of
from runner.system import availability, output
from runner.system.availability import Verdict
from runner.system.installed_torch import installed_torch


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
        for number, (case, verdict) in enumerate(found):
            output.lines([""] if number else [])
            output.lines(_text(case, verdict, suite.backends.by_name[case.backend].summary))
            if profile is not None:
                output.line(_level(profile.profile, levels.get(case.id)))
            output.lines(_sample(case, options.sample))
    return ExitCode.OK


def _level(profile: Profile, level: Mapping[str, Any] | None) -> str:
    """Return the line about a case's level in a profile."""
    what = "not a case of it" if level is None else f"{level['level']}, {'required' if level['required'] else 'optional'}"
    return f"  profile    {profile.name} {profile.version}: {what}"


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
        "body": as_text(body_as_json(case.body)),
        "steps": steps,
        "control": control,
        "origins": {f"{section}.{name}": option.origin for section, found in case.options.items() for name, option in found.items()},
    }


def _beside(step: Step) -> dict[str, Json]:
    """Return what stands beside the kind of a step."""
    return {**({"repeat": step.repeat} if step.repeat != 1 else {}), **({} if step.when is None else {"when": dict(step.when)})}


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
    for section, options in case.body.settings.by_section.items():
        for name, value in options.items():
            yield f"  {section:<10} {name}: {flow(as_text(value))}    from {case.options[section][name].origin}"
    if case.body.context:
        yield f"  context    {flow(as_text(list(case.body.context)))}"
    for index, entry in enumerate(case.body.inputs):
        yield f"  input {index}    {flow(as_text(entry))}"
    yield from _code(case)
    yield from _steps(case)
    yield from _control(case)
    for reason in case.survivors:
        leaf = f" {reason.leaf}" if reason.leaf else ""
        yield f"  audit      {reason.expectation}{leaf} may pass with {reason.mutant}: {reason.reason}    at line {reason.position.line}"


def _sample(case: Case, sample: int | None) -> Iterator[str]:
    """Yield the script of a sample."""
    if sample is not None:
        yield f"  sample {sample}    as a script: its output has the arguments"
        yield from (f"    {line}".rstrip() for line in script(case, sample).splitlines())


_WORDS = {Availability.YES: "yes", Availability.NO: "no", Availability.UNKNOWN: "perhaps"}


def _code(case: Case) -> Iterator[str]:
    for written in case.body.blocks:
        yield f"  {written.name}, {written.file}:{written.line}"
        yield from _numbered(written)
    for name, function in case.body.functions.items():
        if isinstance(function, DescribedFunction):
            yield from (f"  {line}" for line in block(name, as_text(function.value)))


def _numbered(written: CodeBlock) -> Iterator[str]:
    yield from (f"  {number:>6} | {line}" for number, line in enumerate(written.text.splitlines(), start=written.line))


def _steps(case: Case) -> Iterator[str]:
    for number, step in enumerate(case.steps, start=1):
        written = python_of(step)
        arguments = as_text({key: value for key, value in step.arguments.items() if written is None or value is not written})
        only = "".join(f"    {name}: {flow(value)}" for name, value in _beside(step).items())
        only += "    (with run --bench only)" if is_optional(step) else ""
        yield f"  step {number}     {step.kind}{f' {flow(arguments)}' if arguments else ''}    at line {step.position.line}{only}"
        if written is not None:
            yield from _numbered(CodeBlock(**written))
        for expected in step.expectations:
            first, *more = block(expected.kind, as_text(expected.body))
            yield f"    expect   {first}    at line {expected.position.line}"
            yield from (f"             {line}" for line in more)


def _control(case: Case) -> Iterator[str]:
    """Yield the options that the case's control sets, and the expectations that must fail under it."""
    if case.control is not None:
        fails = ", ".join(case.control.fails) or "any expectation"
        for section, options in case.control.patch.items():
            for name, value in options.items():
                yield f"  control    {section} {name}: {flow(value)}    must fail: {fails}    at line {case.control.position.line}"
