"""``validate``: every problem of every file, one line each, then a count."""

import argparse

from runner import output
from runner.diagnostics import Diagnostic, InvalidSpecs
from runner.exits import ExitCode
from runner.language.backends import Backends
from runner.language.load import load
from runner.language.waivers import load_waivers


def main(arguments: argparse.Namespace) -> ExitCode:
    """Read, validate and expand; exit 0 when all is well, 2 otherwise."""
    problems: tuple[Diagnostic, ...] = ()
    files = cases = 0
    backends: Backends | None = None
    try:
        suite = load(arguments.paths, arguments.backends)
        backends = suite.backends
        files, cases = len({case.spec for case in suite.cases}), len(suite.cases)
    except InvalidSpecs as error:
        problems = error.diagnostics
    try:
        load_waivers(arguments.waivers, backends)
    except InvalidSpecs as error:
        problems = InvalidSpecs([*problems, *error.diagnostics]).diagnostics
    if arguments.json:
        found = [_as_json(problem) for problem in problems]
        output.document({"format": 1, "valid": not problems, "specs": files, "cases": cases, "problems": found})
    else:
        output.lines(map(str, problems))
        count = f"{len(problems)} problem{'' if len(problems) == 1 else 's'}"
        output.line(count if problems else f"{files} specs, {cases} cases, no problem")
    return ExitCode.USAGE if problems else ExitCode.OK


def _as_json(problem: Diagnostic) -> dict[str, object]:
    position = problem.position
    return {"file": position.file, "line": position.line, "column": position.column, "message": problem.message, "hint": problem.hint}
