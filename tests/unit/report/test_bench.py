"""Times that are reported and never judged: how they are taken, what of them a runner believes, and
where people read them.
"""

import os
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import COUNTED, backend, case, observation, observed, seen, step, verdict_of
from tests.unit.report.test_junit import HEADER, write_junit
from tests.unit.report.test_junit import result as junit_result
from tests.unit.worker.test_worker_session import do, session
from torch_conformance.model.case_facts import Timing
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.protocol import MAX_ATTACHMENT
from torch_conformance.plan import schedule
from torch_conformance.plan.selection import without_benches
from torch_conformance.plan.worker_plan import digest_of
from torch_conformance.run.pipeline import benches_of

__all__ = ["session"]

TIMING = {
    "name": "fn",
    "form": "compiled",
    "median_ms": 1.25,
    "least_ms": 1.0,
    "most_ms": 2.5,
    "count": 10,
}
UNPROVEN: dict[str, Any] = {"graphs": [], "executed": {}, "entered": 0}


def timed(**changes: Any) -> dict[str, Any]:
    return seen(bench={"timings": [TIMING], "attachments": [], "notes": [], **changes})


# -- in the worker ---------------------------------------------------------------------------------

SQUARE = """\
functions:
  one: |
    def one(x):
        seen.append("one")
        return x * 2
  two: |
    def two(x):
        seen.append("two")
        return x * 3
prelude: |
  seen = []
inputs: [{ones: [2], requires_grad: true}]
steps:
  - call: {function: one}
    expect: [{close: {to: eager}}]
"""


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
class TestInTheWorker:
    def test_each_round_gives_every_subject_its_turn(
        self, torch: Any, session: Callable[..., Any]
    ) -> None:
        one = session(SQUARE + "  - bench: {repeat: 4}", eager=False)
        for name in ("one", "two"):
            one.compiled_functions.by_name[name] = one.compiled.targets[name]
        do(one, 1)
        assert one.module.namespace["seen"] == ["one", "two"] * (3 + 4)
        assert [
            (found["name"], found["form"], found["count"]) for found in one.bench["timings"]
        ] == [
            ("one", "compiled", 4),
            ("two", "compiled", 4),
        ]
        for found in one.bench["timings"]:
            assert 0 < found["least_ms"] <= found["median_ms"] <= found["most_ms"] < 60_000
        assert (one.bench["attachments"], one.bench["notes"]) == ([], [])

    def test_eager_is_timed_beside_and_each_function_may_have_arguments_of_its_own(
        self, session: Callable[..., Any]
    ) -> None:
        bench = (
            "  - bench: {functions: {two: [{zeros: [3]}], one: [{zeros: [4]}]}, eager: true, "
            "repeat: 2}"
        )
        one = session(SQUARE.replace("return x * 3", "return x + torch.zeros(3)") + bench)
        do(one, 1)
        assert [(found["name"], found["form"]) for found in one.bench["timings"]] == [
            ("two", "compiled"),
            ("two", "eager"),
            ("one", "compiled"),
            ("one", "eager"),
        ]

    def test_an_exception_while_timing_is_no_answer_of_torch(
        self, session: Callable[..., Any]
    ) -> None:
        from torch_conformance.vocabulary.steps import STEPS

        one = session(SQUARE + "  - bench: {inputs: [{value: text}]}")
        one.compiled.targets["two"] = lambda x: x.no_such_attribute
        with pytest.raises(AttributeError):
            do(one, 1)
        assert one.bench is None
        assert not STEPS["bench"].traits.claims

    def test_backward_and_an_optimizer_leave_no_gradients(
        self, torch: Any, session: Callable[..., Any]
    ) -> None:
        one = session(
            LINEAR + "  - bench: {backward: true, optimizer: {call: torch.optim.SGD, kwargs: {lr: "
            "0.5}}, repeat: 2}"
        )
        layer = one.compiled.targets["function"]
        before = layer.weight.detach().clone()
        do(one, 3)
        assert layer.weight.grad is None
        # 3 rounds and 2 that count, each taking half a gradient of ones
        assert torch.allclose(layer.weight, before - 5 * 0.5)


LINEAR = """\
function: {module: torch.nn.Linear, args: [2, 1], kwargs: {bias: false}}
inputs: [{ones: [1, 2]}]
steps:
  - call: {}
    expect: [{close: {to: eager}}]
  - backward: {}
    expect: [{close: {to: eager}}]
  - optimizer: {call: torch.optim.SGD, kwargs: {lr: 0.5, momentum: 0.5}, as: stepped}
    expect: [{close: {to: eager}}]
"""


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
class TestOptimizer:
    def test_both_sides_take_the_step_and_keep_what_the_optimizer_keeps(
        self, torch: Any, session: Callable[..., Any]
    ) -> None:
        one = session(LINEAR)
        before = one.compiled.targets["function"].weight.detach().clone()
        taken = 0.0
        # with momentum, half of the former step comes on top: 0.5, then 0.75
        for step_size in (0.5, 0.75):
            do(one)
            do(one, 1)
            (after,) = do(one, 2)
            taken += step_size
            assert torch.allclose(after, before - taken)
            assert torch.equal(after, one.reference.output[0])
            assert one.names.value("stepped")[0] is not one.compiled.targets["function"].weight
        assert one.compiled.targets["function"].weight is not one.eager.targets["function"].weight

    def test_a_side_that_went_elsewhere_is_seen(
        self, torch: Any, session: Callable[..., Any]
    ) -> None:
        one = session(LINEAR)
        do(one)
        do(one, 1)
        one.compiled.targets["function"].weight.grad.mul_(2)
        (after,) = do(one, 2)
        assert not torch.equal(after, one.reference.output[0])


# -- in the judge ----------------------------------------------------------------------------------


def test_a_bench_proves_nothing() -> None:
    asked = case(step(COUNTED), step(kind="bench"))
    assert verdict_of(asked, observation(seen(**UNPROVEN), timed())).outcome is Outcome.FELL_BACK
    eager_only = backend("eager")
    graphless = observation(seen(**UNPROVEN), timed())
    assert verdict_of(asked, graphless, by=eager_only).outcome is Outcome.PASS


@pytest.mark.parametrize(
    "change",
    [
        {"timings": [{**TIMING, "median_ms": -1}]},
        {"timings": [{**TIMING, "median_ms": 1e300}]},
        {"timings": [{**TIMING, "median_ms": "1"}]},
        {"timings": [{**TIMING, "count": 0}]},
        {"timings": [{**TIMING, "form": "guessed"}]},
        {"timings": [{**TIMING, "more": 1}]},
        {"timings": 7},
        {"attachments": ["../plan.json"]},
        {"attachments": ["/etc/passwd"]},
        {"attachments": [".."]},
        {"attachments": [""]},
        {"attachments": ["trace.json\n"]},
        {"notes": [7]},
    ],
)
def test_what_no_bench_reports_is_an_error_and_is_not_shown(
    change: dict[str, Any], tmp_path: Path
) -> None:
    facts = observation(seen(), timed(**change))
    assert verdict_of(case(step(COUNTED), step(kind="bench")), facts).outcome is Outcome.ERROR
    assert benches_of(tmp_path, observed(facts)) == ((), (), ())


# -- in the runner ---------------------------------------------------------------------------------


def test_an_attachment_is_a_file_of_the_case_and_of_bounded_size(tmp_path: Path) -> None:
    (tmp_path / "outside").write_text("secret")
    folder = tmp_path / "case"
    folder.mkdir()
    (folder / "good.json").write_text("{}")
    (folder / "folder.json").mkdir()
    (folder / "link.json").symlink_to(tmp_path / "outside")
    os.mkfifo(folder / "pipe.json")
    with (folder / "large.json").open("wb") as stream:
        stream.truncate(MAX_ATTACHMENT + 1)
    names = [
        "good.json",
        "good.json",
        "absent.json",
        "folder.json",
        "link.json",
        "pipe.json",
        "large.json",
    ]
    timings, attachments, notes = benches_of(
        folder, observed(observation(timed(attachments=names, notes=["said by the worker"])))
    )
    assert timings == (Timing(**TIMING),)
    assert attachments == ("good.json",)
    assert notes[0] == "said by the worker"
    assert [note.split()[0] for note in notes[1:]] == names[2:]


# -- without --bench -------------------------------------------------------------------------------

TIMED = case(step(COUNTED), step(kind="bench", repeat=3), step(kind="bench"))


def test_without_bench_the_other_steps_keep_their_numbers_and_nothing_runs_alone() -> None:
    left = without_benches(TIMED)
    assert left.steps == TIMED.steps[:1]
    assert left.left_out == TIMED.steps[1:]
    assert (schedule.is_exclusive(TIMED), schedule.is_exclusive(left)) == (True, False)
    assert schedule.is_exclusive(without_benches(replace(TIMED, exclusive=True)))
    assert without_benches(left) == left
    assert without_benches(case(step(COUNTED))) == case(step(COUNTED))


def test_the_digest_is_the_same_with_and_without_bench_and_holds_what_would_be_timed() -> None:
    assert digest_of(without_benches(TIMED)) == digest_of(TIMED)
    assert digest_of(
        without_benches(case(step(COUNTED), step(kind="bench", repeat=4), step(kind="bench")))
    ) != digest_of(without_benches(TIMED))
    assert digest_of(without_benches(case(step(COUNTED)))) != digest_of(TIMED)


# -- where people read them ------------------------------------------------------------------------


def test_no_name_of_a_worker_breaks_the_file(tmp_path: Path) -> None:
    hostile = replace(Timing(**TIMING), name="a\nb]]\x00\ud800" + "x" * 10_000)
    result = junit_result(outcome=Outcome.PASS, timings=(hostile,) * 1000, folder="cases/00007")
    write_junit(tmp_path / "junit.xml", HEADER, [result], folder=tmp_path)
    (found,) = ET.parse(tmp_path / "junit.xml").iter("testcase")
    assert len(found.findtext("system-out") or "") < 64_000
