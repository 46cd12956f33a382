"""``validate``: every problem of every file, one line each, then a count."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from runner.judge.waiving import Waivers, remarks
from runner.language.load import Inspection, inspect
from runner.language.read.spec_files import names_shipped
from runner.language.waivers import load_waivers, read_waivers
from runner.machine import output
from runner.model.case import Case
from runner.model.diagnostics import Diagnostic, InvalidSpecs, Severity, UsageError, errors
from runner.model.optional import hooks
from runner.model.options import backend_files, flag, paths, profile_option, waiver_files
from runner.model.outcomes import ExitCode


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOptions:
    """The options of ``validate``."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    waivers: tuple[Path, ...] = waiver_files()
    profile: str | None = profile_option("also check this profile, with the specs, backends and waivers that it names")
    json: bool = flag("print the problems as JSON")


def main(options: ValidateOptions) -> ExitCode:
    """Read, validate and expand; exit 0 when there is no error, 2 otherwise. Warnings do not change the exit code."""
    try:
        options, profile = _with_profile(options)
    except InvalidSpecs as error:  # which specs it names is not known
        return _report(options, (), error.diagnostics)
    inspection = inspect(options.paths, options.backends)
    problems = _with_waivers(options, inspection)
    if profile is not None and not errors(problems):
        problems = sorted({*problems, *_profile_problems(profile, options)})
    return _report(options, inspection.suite.cases if not errors(inspection.problems) else (), problems)


def _report(options: ValidateOptions, cases: Sequence[Case], problems: Sequence[Diagnostic]) -> ExitCode:
    """Print the problems and the count; return the exit code. There are no ``cases`` where a spec is invalid."""
    wrong = errors(problems)
    files = len({case.spec for case in cases})
    if options.json:
        found_json = {"format": 1, "valid": not wrong, "specs": files, "cases": len(cases), "problems": [_as_json(p) for p in problems]}
        output.document(found_json)
    else:
        output.lines(map(str, problems))
        output.line(_count(len(wrong), len(problems) - len(wrong), files, len(cases)))
    return ExitCode.USAGE if wrong else ExitCode.OK


def _with_profile(options: ValidateOptions) -> tuple[ValidateOptions, Any]:
    """Return the options with the files of the profile, and the profile."""
    if options.profile is None:
        return options, None
    if options.paths:
        raise UsageError("--profile: PATH does not go with it: the profile names its specs (remove PATH)")
    profile = hooks("vendor").read_profile(options.profile)
    backends = tuple(dict.fromkeys([*profile.backends, *options.backends]))
    waivers = tuple(dict.fromkeys([*profile.waivers, *options.waivers]))
    return replace(options, paths=profile.specs, backends=backends, waivers=waivers), profile


def _profile_problems(profile: Any, options: ValidateOptions) -> Sequence[Diagnostic]:
    """Return the problems of a profile with valid specs, backends and waivers: entries and permissions that name nothing."""
    from runner.language.load import load

    try:
        suite = load(options.paths, options.backends)
        hooks("vendor").cases_of(profile, suite, load_waivers(options.waivers, suite.backends))
    except InvalidSpecs as error:
        return error.diagnostics
    return ()


def _with_waivers(options: ValidateOptions, inspection: Inspection) -> list[Diagnostic]:
    """Return every problem once, including those of waivers, in the order of the files."""
    problems = [*inspection.problems]
    files = read_waivers(options.waivers, inspection.suite.backends, problems)
    # specs with errors have no cases, so a waiver without a case is not reported then
    ids = None if errors(inspection.problems) else [case.id for case in inspection.suite.cases]
    waivers = Waivers(files, today=datetime.now(UTC).date())
    problems.extend(remarks(waivers, ids, shipped=names_shipped(options.paths)))
    return sorted(set(problems))


def _count(errors: int, warnings: int, files: int, cases: int) -> str:
    noted = f", {warnings} warning{'' if warnings == 1 else 's'}" if warnings else ""
    if errors:
        return f"{errors} problem{'' if errors == 1 else 's'}{noted}"
    return f"{files} spec{'' if files == 1 else 's'}, {cases} case{'' if cases == 1 else 's'}, no problem{noted}"


def _as_json(problem: Diagnostic) -> dict[str, object]:
    position = problem.position
    return {
        "file": position.file,
        "line": position.line,
        "column": position.column,
        "severity": str(Severity(problem.severity)),
        "code": problem.code,
        "message": problem.message,
        "hint": problem.hint,
    }
