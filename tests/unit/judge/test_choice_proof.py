"""The proof that an inductor backend served each operation, by the census of autotuning."""

from typing import Any

import pytest

from tests.fakes import backend, case, expected, observation, observed_steps, seen, step, verdict_of
from torch_conformance.model.case_facts import TALLIED, Tunings
from torch_conformance.model.outcomes import Outcome
from torch_conformance.vocabulary.backend import Serves

HOLDS = expected("counter", {"inductor.fxgraph_cache_miss": 1})


def tuned_as_json(op: str = "mm", won_by: str = "CK", **backends: dict[str, Any]) -> dict[str, Any]:
    none = {**dict.fromkeys(TALLIED, 0), "error": ""}
    found = {
        name: {**none, **tally}
        for name, tally in (backends or {won_by: {"rendered": 1, "won": 1}}).items()
        if name
    }
    return {"op": op, "how": "timed", "winner": "a", "won_by": won_by, "backends": found}


def served(
    *found: dict[str, Any], code: str = "", group: str = "gemm", by: tuple[str, ...] = ("CK",)
) -> tuple[Outcome, str]:
    facts = observation(
        seen(tunings={"count": len(found), "found": list(found)}, code=bool(code) + 0)
    )
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
            [
                tuned_as_json(
                    "mm",
                    "ATEN",
                    CK={"rendered": 2, "failed": 2, "error": "E: no header"},
                    ATEN={"won": 1},
                )
            ],
            "all 2 candidates of CK failed: E",
        ),
        (
            [tuned_as_json("mm", "ATEN", CK={"rendered": 2, "timed": 2}, ATEN={"won": 1})],
            "CK had 2 candidates, 2 timed",
        ),
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
        (
            "def call(args):\n    torch.ops.mkldnn._linear_pointwise.default(a, b)\n",
            Outcome.FELL_BACK,
        ),
        ("#include <x>\nvoid f() {\n  aoti_torch_cuda_addmm_out(a, b);\n}\n", Outcome.FELL_BACK),
        (
            "#include <x>\nvoid f() {\n  aoti_torch_cpu_mkldnn__linear_pointwise(a, b);\n}\n",
            Outcome.FELL_BACK,
        ),
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
