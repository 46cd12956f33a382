"""Runs the cases in rounds: first all of them in parallel, then those that failed and may be run again, each alone."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from runner.core.conditions import Surroundings
from runner.core.model import Case, CaseResult
from runner.core.options import RunOptions
from runner.run.ledger import Ledger
from runner.run.pipeline import CaseRunner
from runner.run.repro import repro


def run_rounds(
    runner: CaseRunner,
    cases: Sequence[Case],
    known: Surroundings,
    ledger: Ledger,
    options: RunOptions,
    is_stopping: Callable[[], bool],
) -> Iterator[CaseResult]:
    """Yield each execution as it ends, for the caller to record; stop where ``is_stopping``, or with ``--fail-fast`` at a failure.

    A round begins after all executions of the one before it are recorded.
    """
    waiting = [case for case in cases for _ in range(ledger.missing_attempts(case.id))]
    alone = False
    while (waiting or not alone) and not is_stopping():
        for result in runner.run(waiting, known, partial(repro, options), alone=alone):
            if result.case_id in ledger.results:
                continue
            yield result
            if options.fail_fast and result.outcome.is_failure:
                return
        waiting = [case for case in cases if case.id in ledger.attempts]
        alone = True
