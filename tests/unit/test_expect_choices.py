"""``choices`` judged on facts alone, and the proof that an inductor backend served each operation."""

from typing import Any

import pytest

from runner.language.backends import Serves
from runner.model.case_facts import Tally, Tuning, Tunings
from runner.model.expectation import Judgement, Status, StepFacts
from runner.model.outcomes import Outcome
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.expectations.expectation_base import BadExpectation
from tests.fakes import ELSEWHERE, HERE, backend, case, expected, judged, observation, observed_steps, seen, step, verdict_of

HELD, FAILED, ERROR = Status.HELD, Status.FAILED, Status.ERROR
HOLDS = expected("counter", {"inductor.fxgraph_cache_miss": 1})


def tally(rendered: int = 0, failed: int = 0, timed: int | None = None, won: int = 0, error: str = "") -> Tally:
    timed = rendered - failed if timed is None else timed
    return Tally(rendered=rendered, compiled=timed, failed=failed, timed=timed, won=won, error=error)


def tuning(op: str = "mm", won_by: str = "TRITON", **backends: Tally) -> Tuning:
    found = backends or {"ATEN": tally(1), "TRITON": tally(4, won=1)}
    return Tuning(op=op, how="timed", winner="best", won_by=won_by, by_backend=found)


def facts(*found: Tuning, count: int | None = None) -> StepFacts:
    return StepFacts(tunings=Tunings(count=len(found) if count is None else count, found=found))


def by_leaf(body: Any, given: StepFacts) -> dict[str, Status]:
    return {one.leaf: one.status for one in EXPECTATIONS["choices"].parse(body).judge(given, HERE)}


def only_failed(body: Any, given: StepFacts) -> Judgement:
    (found,) = [one for one in EXPECTATIONS["choices"].parse(body).judge(given, HERE) if one.status is FAILED]
    return found


def test_every_count_holds_for_every_operation():
    two = facts(tuning(), tuning("addmm", TRITON=tally(3, 1, won=1)))
    assert by_leaf({"backend": "TRITON", "rendered": {"min": 3}, "timed": {"min": 2}, "won": 1, "tuned": 2}, two) == dict.fromkeys(
        ("tuned", "rendered", "timed", "won"), HELD
    )
    assert by_leaf({"backend": "TRITON", "failed": 0}, two) == {"tuned": HELD, "rendered": HELD, "failed": FAILED}
    assert only_failed({"backend": "TRITON", "rendered": 4}, two).observed == "3 for addmm"


@pytest.mark.parametrize(
    ("given", "leaf"),
    [
        (facts(), "tuned"),
        (facts(tuning("convolution")), "tuned"),
        (facts(tuning(ATEN=tally(1, won=1), won_by="ATEN")), "rendered"),
    ],
    ids=["nothing selected", "another operation", "no candidate of the backend"],
)
def test_no_failure_of_nothing_is_no_claim(given: StepFacts, leaf: str):
    assert only_failed({"backend": "CK", "of": "gemm", "failed": 0}, given).leaf == leaf


def test_zero_candidates_can_be_claimed_in_words():
    assert by_leaf({"backend": "CK", "rendered": 0}, facts(tuning())) == {"tuned": HELD, "rendered": HELD}
    assert by_leaf({"backend": "CK", "rendered": 0}, facts(tuning(CK=tally(1)))) == {"tuned": HELD, "rendered": FAILED}


def test_without_a_backend_all_candidates_count():
    assert by_leaf({"rendered": 5, "timed": 5}, facts(tuning())) == dict.fromkeys(("tuned", "rendered", "timed"), HELD)


@pytest.mark.parametrize("of", ["gemm", "addmm", ["bmm", "addmm"], ["convolution", "gemm"]])
def test_operations_by_name_and_by_group(of: Any):
    given = facts(tuning("addmm"), tuning("flex_attention"))
    assert by_leaf({"of": of, "tuned": 1}, given) == {"tuned": HELD}
    assert by_leaf({"of": of, "tuned": 2}, given) == {"tuned": FAILED}


def test_what_was_not_recorded_is_no_pass():
    given = facts(tuning(), count=201)
    assert by_leaf({"backend": "TRITON", "failed": 0}, given) == {"": ERROR}


def test_elsewhere_it_does_not_apply():
    assert [one.status for one in judged("choices", {"tuned": 1, "when": ELSEWHERE})] == [Status.NOT_APPLICABLE]


def test_a_winner_without_a_backend_is_refused():
    with pytest.raises(BadExpectation, match="of all candidates one wins") as caught:
        EXPECTATIONS["choices"].parse({"won": 1})
    assert caught.value.path == ("won",)


@pytest.mark.parametrize(
    "body",
    [
        {"backend": "TRITON", "failed": 0},
        {"backend": "TRITON", "rendered": 4, "timed": {"min": 4}, "won": 1, "tuned": 2},
        {"rendered": 5, "of": "gemm"},
        {"backend": "CK", "rendered": 0},
    ],
)
def test_every_mutant_is_refused(body: Any):
    given = facts(tuning(), tuning("bmm"))
    expectation = EXPECTATIONS["choices"].parse(body)
    assert all(one.status is HELD for one in expectation.judge(given, HERE))
    mutants = [mutant for mutant in expectation.mutants(given, HERE) if mutant.facts is not None]
    assert mutants
    for mutant in mutants:
        (changed,) = [one for one in expectation.judge(mutant.facts, HERE) if one.leaf == mutant.leaf]
        assert changed.status is FAILED


# -- the proof of a backend -----------------------------------------------------------------------------------------


def tuned_as_json(op: str = "mm", won_by: str = "CK", **backends: dict[str, Any]) -> dict[str, Any]:
    none = {"rendered": 0, "compiled": 0, "failed": 0, "timed": 0, "won": 0, "error": ""}
    found = {name: {**none, **tally} for name, tally in (backends or {won_by: {"rendered": 1, "won": 1}}).items() if name}
    return {"op": op, "how": "timed", "winner": "a", "won_by": won_by, "backends": found}


def served(*found: dict[str, Any], code: str = "", group: str = "gemm", by: tuple[str, ...] = ("CK",)) -> tuple[Outcome, str]:
    facts = observation(seen(tunings={"count": len(found), "found": list(found)}, code=bool(code) + 0))
    claims = backend(serves=(Serves(group=group, by=by),))
    result = verdict_of(case(step(HOLDS)), facts, by=claims, code={(0, 0): code})
    return result.outcome, result.reason


def test_each_operation_must_have_been_won_by_the_backend():
    assert served(tuned_as_json(), tuned_as_json("addmm"))[0] is Outcome.PASS
    assert served(tuned_as_json(), tuned_as_json("addmm", "ATEN"))[0] is Outcome.FELL_BACK
    assert served(tuned_as_json("mm", "CKTILE"), by=("CK", "CKTILE"))[0] is Outcome.PASS
    # what the backend does not claim may be served by anything
    assert served(tuned_as_json(), tuned_as_json("convolution", "ATEN"))[0] is Outcome.PASS


@pytest.mark.parametrize(
    ("found", "why"),
    [
        ([], "inductor selected no kernel for any gemm"),
        ([tuned_as_json("convolution")], "inductor selected no kernel for any gemm"),
        ([tuned_as_json("mm", "ATEN")], "mm was served by ATEN; CK had no candidate"),
        ([tuned_as_json("mm", "")], "what serves mm is not known"),
        (
            [tuned_as_json("mm", "ATEN", CK={"rendered": 2, "failed": 2, "error": "E: no header"}, ATEN={"won": 1})],
            "all 2 candidates of CK failed: E",
        ),
        ([tuned_as_json("mm", "ATEN", CK={"rendered": 2, "timed": 2}, ATEN={"won": 1})], "CK had 2 candidates, 2 timed"),
    ],
)
def test_another_server_is_a_fall_back_with_its_reason(found: list[Any], why: str):
    outcome, reason = served(*found)
    assert outcome is Outcome.FELL_BACK
    assert why in reason


@pytest.mark.parametrize(
    ("code", "outcome"),
    [
        ("def call(args):\n    extern_kernels.mm(a, b, out=c)\n", Outcome.FELL_BACK),
        ("def call(args):\n    extern_kernels.baddbmm(a, b, c)\n", Outcome.FELL_BACK),
        ("def call(args):\n    torch.ops.aten._scaled_mm.default(a, b)\n", Outcome.FELL_BACK),
        ("def call(args):\n    torch.ops.mkldnn._linear_pointwise.default(a, b)\n", Outcome.FELL_BACK),
        ("#include <x>\nvoid f() {\n  aoti_torch_cuda_addmm_out(a, b);\n}\n", Outcome.FELL_BACK),
        ("#include <x>\nvoid f() {\n  aoti_torch_cpu_mkldnn__linear_pointwise(a, b);\n}\n", Outcome.FELL_BACK),
        ("#include <x>\nvoid f() {\n  at::bmm_out(a, b);\n}\n", Outcome.FELL_BACK),
        ("def call(args):\n    # extern_kernels.mm(a, b, out=c)\n    rocm_gemm(a)\n", Outcome.PASS),
        ("def call(args):\n    print('extern_kernels.mm(a, b)')\n", Outcome.PASS),
        ("def call(args):\n    extern_kernels.convolution(a, b)\n", Outcome.PASS),
        ("def call(args):\n    my_extern_kernels.mm(a, b)\n", Outcome.PASS),
    ],
)
def test_a_library_call_in_the_code_is_a_fall_back_whoever_selected_it(code: str, outcome: Outcome):
    assert served(tuned_as_json(), code=code)[0] is outcome


def test_an_old_observation_has_no_census_and_shows_nothing():
    (old,) = observed_steps(seen())
    assert old.tunings == Tunings()
    assert served()[0] is Outcome.FELL_BACK
