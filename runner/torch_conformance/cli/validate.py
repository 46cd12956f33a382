"""``validate``: every problem of every file, one line each, then a count."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from torch_conformance.judge.waiving import Waivers, remarks
from torch_conformance.language.load import inspect, load
from torch_conformance.language.read.spec_files import names_shipped
from torch_conformance.language.waivers import load_waivers, read_waivers
from torch_conformance.machine import output
from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    Severity,
    UsageError,
    errors,
)
from torch_conformance.model.escaping import counted
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import SpecFiles, flag, profile_option, waiver_files
from torch_conformance.plan.profile import Profile, profiles


@frozen
class ValidateOptions(SpecFiles):
    """The options of ``validate``."""

    waivers: tuple[Path, ...] = waiver_files()
    profile: str | None = profile_option(
        "also check this profile, with the specs, backends and waivers that it names"
    )
    json: bool = flag("print the problems as JSON")


def main(options: ValidateOptions) -> ExitCode:
    """Read, validate and expand; exit 0 when there is no error, 2 otherwise.

    Warnings do not change the exit code.

    Every problem is printed once, in the order of the files; of a profile those that it has with
    valid specs, backends and waivers.
    """
    profile: Profile | None = None
    if options.profile is not None:
        if options.paths:
            raise UsageError(
                "--profile: PATH does not go with it: the profile names its specs (remove PATH)"
            )
        try:
            profile = profiles().read_profile(options.profile)
        except InvalidSpecs as error:  # which specs it names is not known
            return _report(options, (), error.diagnostics)
        backends = tuple(dict.fromkeys([*profile.backends, *options.backends]))
        waivers = tuple(dict.fromkeys([*profile.waivers, *options.waivers]))
        options = replace(options, paths=profile.specs, backends=backends, waivers=waivers)
    inspection = inspect(options.paths, options.backends)
    problems = [*inspection.problems]
    files = read_waivers(options.waivers, inspection.suite.backends, problems)
    # specs with errors have no cases, so a waiver without a case is not reported then
    cases = () if errors(inspection.problems) else inspection.suite.cases
    ids = None if errors(inspection.problems) else [case.id for case in cases]
    problems.extend(
        remarks(
            Waivers(files, today=datetime.now(UTC).date()),
            ids,
            shipped=names_shipped(options.paths),
        )
    )
    if profile is not None and not errors(problems):
        try:
            suite = load(options.paths, options.backends)
            profiles().cases_of(profile, suite, load_waivers(options.waivers, suite.backends))
        except InvalidSpecs as error:
            problems.extend(error.diagnostics)
    return _report(options, cases, sorted(set(problems)))


def _report(
    options: ValidateOptions, cases: Sequence[Case], problems: Sequence[Diagnostic]
) -> ExitCode:
    """Print the problems and the count; return the exit code.

    There are no ``cases`` where a spec is invalid.
    """
    wrong, specs = len(errors(problems)), len({case.spec for case in cases})
    if options.json:
        documents = [_as_json(problem) for problem in problems]
        output.document(
            {
                "format": 1,
                "valid": not wrong,
                "specs": specs,
                "cases": len(cases),
                "problems": documents,
            }
        )
    else:
        warnings = len(problems) - wrong
        noted = f", {counted(warnings, 'warning')}" if warnings else ""
        clean = f"{counted(specs, 'spec')}, {counted(len(cases), 'case')}, no problem"
        output.lines(
            [*map(str, problems), f"{counted(wrong, 'problem') if wrong else clean}{noted}"]
        )
    return ExitCode.USAGE if wrong else ExitCode.OK


def _as_json(problem: Diagnostic) -> dict[str, object]:
    return {
        "file": problem.position.file,
        "line": problem.position.line,
        "column": problem.position.column,
        "severity": str(Severity(problem.severity)),
        **{name: getattr(problem, name) for name in ("code", "message", "hint")},
    }
