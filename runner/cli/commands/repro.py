"""``repro``: a script that imports torch alone and shows one sample of a case of torch's database of operators."""

import shlex

from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.core.options import ReproOptions
from runner.language.load import load
from runner.plan.operator_script import is_of_operator, script
from runner.plan.selection import select, unmatched
from runner.system import output


def main(options: ReproOptions) -> ExitCode:
    """Print the script of the one case that the id selects."""
    suite = load(options.paths, options.backends)
    cases = select(suite.cases, suite.backends, globs=[options.case])
    if len(cases) != 1:
        raise UsageError(
            f"{len(cases)} cases match '{options.case}': name one by its id" if cases else unmatched([options.case], suite.cases)[0]
        )
    if not is_of_operator(cases[0]):
        again = shlex.join(["torch-conformance", "run", *map(str, options.paths), "--select", cases[0].id])
        raise UsageError(f"repro writes the scripts of operators alone ('{again}' runs this case)")
    output.raw(script(cases[0], options.sample or 0))
    return ExitCode.OK
