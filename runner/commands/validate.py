"""``validate``: every problem of every file, one line each, then a count."""

import argparse
import json
from dataclasses import replace

from runner.diagnostics import Diagnostic, InvalidSpecs
from runner.exits import ExitCode
from runner.language.backends import Backends
from runner.language.load import load
from runner.language.waivers import load_waivers


def main(arguments: argparse.Namespace) -> ExitCode:
    """Read, validate and expand; exit 0 when all is well, 2 otherwise. Warnings change no exit code."""
    problems: tuple[Diagnostic, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()
    files = cases = 0
    backends: Backends | None = None
    try:
        suite = load(arguments.paths, arguments.backends)
        backends, warnings = suite.backends, suite.warnings
        files, cases = len({case.spec for case in suite.cases}), len(suite.cases)
    except InvalidSpecs as error:
        problems = error.diagnostics
    try:
        load_waivers(arguments.waivers, backends)
    except InvalidSpecs as error:
        problems = InvalidSpecs([*problems, *error.diagnostics]).diagnostics
    if arguments.json:
        found = {"problems": [_as_json(one) for one in problems], "warnings": [_as_json(one) for one in warnings]}
        print(json.dumps({"format": 1, "valid": not problems, "specs": files, "cases": cases, **found}, indent=2))
    else:
        for problem in problems:
            print(problem)
        for warning in warnings:
            print(replace(warning, message=f"warning: {warning.message}"))
        total = _counted(problems, "problem") if problems else f"{files} specs, {cases} cases, no problem"
        print(total + (f", {_counted(warnings, 'warning')}" if warnings else ""))
    return ExitCode.USAGE if problems else ExitCode.OK


def _counted(found: tuple[Diagnostic, ...], what: str) -> str:
    return f"{len(found)} {what}{'' if len(found) == 1 else 's'}"


def _as_json(problem: Diagnostic) -> dict[str, object]:
    position = problem.position
    return {"file": position.file, "line": position.line, "column": position.column, "message": problem.message, "hint": problem.hint}
