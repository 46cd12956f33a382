"""Runs the cases in rounds: first all cases in parallel, then the failed ones that have retries left, each alone."""

from collections.abc import Callable, Iterator, Sequence
from functools import partial

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.options import RunOptions
from runner.core.results import CaseResult
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
    """Yield each execution when it ends; the caller records it. Stop if ``is_stopping``, or with ``--fail-fast`` at a failure.

    A round begins after all executions of the previous round are recorded.
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
