"""``python -m MODULE DESCRIPTOR``: the run of a session of pytest; in its fake executor, a spec
ends as its name says.
"""

import sys
import time

import pytest

from tests.fakes import (
    ENDED,
    FakeExecutor,
    close_facts,
    close_leaf,
    observation,
    seen,
    use_executor,
)
from torch_conformance.cli.parser import answered
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.model.case_facts import Ending
from torch_conformance.tools.pytest_plugin import session_run

EXECUTOR: list[FakeExecutor] = []


def answer(job: Job) -> Execution:
    case_id = job.name.rpartition(" (")[0]
    if "slow" in case_id:
        for _ in range(600):
            EXECUTOR[0]._check()
            time.sleep(0.1)
    if "lost" in case_id:
        sys.stderr.write("planted: the run is lost\n")
        sys.stderr.flush()
        sys.exit(9)
    ending, step = ENDED, seen(measured={"0": close_facts(close_leaf())})
    if "crash" in case_id:
        return Execution(
            job=job,
            observation=None,
            ending=Ending(signal=11, phase="run"),
            seconds=0.5,
            isolation="fork",
        )
    if "timeout" in case_id:
        return Execution(
            job=job,
            observation=None,
            ending=Ending(signal=9, phase="run", timed_out=True),
            seconds=0.5,
            isolation="fork",
        )
    if "fell" in case_id:
        step = seen(
            measured={"0": close_facts(close_leaf())},
            graphs=[],
            executed={},
            entered=0,
            counters={},
        )
    if "fail" in case_id or "waived" in case_id:
        step = seen(measured={"0": close_facts(close_leaf(mismatches=1, excess=1.0, max_abs=1.0))})
    sent = observation(step, id=case_id) if "error" not in case_id else {"format": 2}
    return Execution(job=job, observation=sent, ending=ending, seconds=0.5, isolation="fork")


if __name__ == "__main__":
    with pytest.MonkeyPatch.context() as patch:
        EXECUTOR.append(use_executor(patch, answer))
        code = answered(lambda: session_run.main(int(sys.argv[1])), ())
    sys.exit(code)
