"""``repro``: a script that needs torch alone and shows one case; with ``--shrink`` a smaller case that fails in the same way.

A case of torch's database of operators has a script for each sample.
"""

import contextlib
import shlex

from runner.language.expand.cases import surroundings_for
from runner.language.load import load, surroundings_of
from runner.language.read.templates import TemplateError
from runner.machine import capabilities, output, scratch
from runner.machine.installed_torch import installed_torch
from runner.machine.redaction import KNOWN
from runner.model.diagnostics import UsageError
from runner.model.outcomes import ExitCode
from runner.plan.script import NothingChecked, script_of, script_of_sample
from runner.plan.selection import is_of_operator, select, unmatched, without_benches
from runner.tools.author.shrinking.shrinking import ReproOptions, shrink


def main(options: ReproOptions) -> ExitCode:
    """Print the script of the one case that the id selects; what it does not say goes to standard error too.

    With ``--shrink``: exit 130 where an interrupt ended the search; the best so far is written all the same.
    """
    suite = load(options.paths, options.backends)
    cases = select(suite.cases, suite.backends, globs=[options.case])
    if len(cases) != 1:
        raise UsageError(
            f"{len(cases)} cases match '{options.case}': name one by its id" if cases else unmatched([options.case], suite.cases)[0]
        )
    case = cases[0]
    if options.shrink:
        with contextlib.closing(scratch.make()) as place:
            lines, code = shrink(case, suite, options, place.path, output.note)
        for text in lines:  # code of the spec may have written line ends
            output.line(text)
        return code
    if is_of_operator(case):
        output.raw(script_of_sample(case, options.sample or 0))
        return ExitCode.OK
    if options.sample is not None:
        raise UsageError("--sample goes with a case of torch's database of operators")
    KNOWN.learn_environment(case.body.settings.env)
    again = shlex.join(["torch-conformance", "run", *map(str, options.paths), "--select", case.id])
    machine = capabilities.inspect_files(installed_torch())
    surroundings = surroundings_for(suite.backends.by_name[case.backend], surroundings_of(machine.torch, machine), case.target)
    try:
        program = script_of(without_benches(case), surroundings, machine.facts, machine.torch or "unknown")
    except NothingChecked as error:
        raise UsageError(f"no script: {error} ('{again}' runs this case)") from error
    except TemplateError as error:
        raise UsageError(f"no script: this machine lacks a fact: {error} ('{again}' runs this case)") from error
    output.raw(program.text)
    for text in program.unchecked:
        output.note(f"not checked by the script: {text}")
    return ExitCode.OK
