"""What a run cost, and what bounds it: sums over results, and two limits."""

from dataclasses import replace
from datetime import UTC, datetime

from tests.recorded import recorded
from torch_conformance.execute.executor_protocol import StartUp
from torch_conformance.run.costs import costs_of, phases_of_start

BEGUN = 1_800_000_000.0


def at(seconds: float) -> str:
    return datetime.fromtimestamp(BEGUN + seconds, UTC).isoformat(timespec="milliseconds")


def of_gpu(number: int, **changes: object):
    """Return a case whose worker began to warm up 10 s after the run, half a second after the one
    before, and had a context 0.4 s later.
    """
    begun = 10 + number / 2
    times = {
        "warmup_begun": at(begun),
        "warmup": 1.0,
        "context": 0.4,
        "begun": at(begun + 1),
        "seconds": 3.0,
        "cpu": 2.5,
    }
    phases = {
        "kernel build": 1.0,
        "eager": 0.5,
        "compare": 0.25,
        "trace": 0.5,
        "codegen": 0.5,
        "api": 0.5,
    }
    return recorded(str(number), backend="cuda", phases=phases, **{**times, **changes})


def test_two_limits_and_the_sums_of_forty_cases():
    costs = costs_of([of_gpu(number) for number in range(40)], seconds=40, begun=BEGUN, cores=4)
    # 40 cases take 100 s of processors; 20 contexts are made in 10 s
    sums = {
        "warm-ups": 40.0,
        "kernel builds": 40.0,
        "eager and float64": 30.0,
        "compiler": 40.0,
        "waiting": 60.0,
        "processors": 100.0,
    }
    assert costs == {
        "start": 10.0,
        "inputs and steps": 20.0,
        **sums,
        "cores": 35.0,
        "contexts": 30.0,
        "ratio": round(40 / 35, 2),
    }


def test_the_larger_limit_is_the_one_that_counts():
    costs = costs_of([of_gpu(number) for number in range(20)], seconds=40, begun=BEGUN, cores=40)
    assert costs["contexts"] == 20.0, "two a second, though all of them took less than ten seconds"
    assert (costs["cores"], costs["ratio"]) == (11.25, 2.0)


def test_without_a_gpu_there_is_one_limit():
    of_cpu = [of_gpu(number, warmup_begun="", warmup=0.0, context=0.0) for number in range(20)]
    costs = costs_of(of_cpu, seconds=40, begun=BEGUN, cores=2)
    assert (costs["start"], costs["cores"]) == (11.0, 36.0)
    assert "contexts" not in costs


def test_a_run_of_few_cases_or_of_cases_that_no_worker_had_has_none():
    assert costs_of([of_gpu(number) for number in range(19)], seconds=9, begun=BEGUN, cores=4) == {}
    assert (
        costs_of(
            [of_gpu(number, begun="") for number in range(40)], seconds=9, begun=BEGUN, cores=4
        )
        == {}
    )


def test_the_phases_until_the_first_case_are_its_start():
    attempts = [recorded("b", begun=at(9.0)), recorded("a", begun=at(7.5)), recorded("c", begun="")]
    start_up = StartUp(begun=BEGUN + 1.25, phases={"imports of torch": 5.0})
    expected = {"specs": 1.25, "imports of torch": 5.0, "the rest": 1.25}
    assert phases_of_start(attempts, start_up, BEGUN) == expected
    early = replace(start_up, begun=BEGUN - 1)
    assert phases_of_start(attempts, early, BEGUN)["the rest"] == 2.5
    assert phases_of_start(attempts[2:], start_up, BEGUN) == {}
