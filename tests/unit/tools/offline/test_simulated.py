"""Code that Inductor generates for a simulated GPU, judged by texts made by hand: what is refused,
and what can never pass.
"""

from collections.abc import Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import HERE, backend, observation, reading, seen, verdict_of
from torch_conformance.language.expand import surroundings_for
from torch_conformance.language.load import load
from torch_conformance.machine import capabilities
from torch_conformance.machine.capabilities import Machine
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.expectation import Reading, Status
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.model.targets import SIMULATED, TARGETS
from torch_conformance.tools.offline.simulated_options import refusals
from torch_conformance.tools.offline.worker import simulated_codegen, simulated_kernels
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.compiled_kernels import of_compiler, with_amount

AMD, NVIDIA = TARGETS["hip:gfx942"], TARGETS["cuda:sm_90"]
HERE_AMD = surroundings_for(backend(SIMULATED), HERE, AMD.name)

SPEC = """\
summary: A sum is one kernel
targets: [hip:gfx942, cuda:sm_90]
matrix: {cpp: [false]}
config: {max_autotune: true, cpp_wrapper: "{{ cpp }}"}
function: "def fn(x): return x + 1"
inputs: [{rand: [4]}]
expect:
  - filecheck: {stage: wrapper, checks: "CHECK: triton_poi_one"}
  - resources: {spills: 0}
"""


def amdgcn(*names: str, target: str = "gfx942", spills: int = 0) -> str:
    return "".join(
        f'\t.amdgcn_target "amdgcn-amd-amdhsa--{target}"\n{name}:\n\t.amdhsa_kernel {name}\n  '
        "  .private_segment_fixed_size: 0\n"
        f"    .sgpr_spill_count: 0\n    .vgpr_count:     {10 + index}\n    .vgpr_spill_count: "
        f"{spills * index}\n"
        for index, name in enumerate(names)
    )


def wrapper(*names: str) -> str:
    kernel = "{0} = async_compile.triton('{0}', '''\n    def {0}(): pass\n''', device_str='cuda')\n"
    heading = "async_compile = AsyncCompile()\n# async_compile.triton('triton_in_a_comment', '''\n"
    return heading + "".join(map(kernel.format, names))


def texts_of(*names: str, there: tuple[str, ...] | None = None, **of_isa: Any) -> tuple[str, ...]:
    """Return the texts of a step: one module for each kernel, the instructions of those that are
    ``there``, the wrapper.
    """
    there = names if there is None else there
    ttgir = "".join('module attributes {ttg.target = "hip:gfx942"} {\n' for _ in there)
    return ("tt.load", ttgir, "define void", amdgcn(*there, **of_isa), wrapper(*names))


def cases_of(tmp_path: Path, text: str = SPEC) -> list[Case]:
    (tmp_path / "sum.yaml").write_text(text)
    return list(load([tmp_path / "sum.yaml"]).cases)


def result_of(case: Case, texts: tuple[str, ...], **step: Any) -> CaseResult:
    code = {(0, index): text for index, text in enumerate(texts)}
    sent = observation(seen(code=len(texts), measured={"1": {"shared": 1}}, **step), id=case.id)
    return verdict_of(
        case,
        sent,
        by=backend(SIMULATED),
        code=code,
        here=surroundings_for(backend(SIMULATED), HERE, case.target),
    )


def tally(**counts: int) -> dict[str, Any]:
    return {"rendered": 0, "compiled": 0, "failed": 0, "timed": 0, "won": 0, "error": "", **counts}


def judged(kind: str, body: Any, known: Reading) -> list[tuple[Status, str]]:
    return [(one.status, one.observed) for one in EXPECTATIONS[kind].parse(body).judge(known)]


# -- the language ----------------------------------------------------------------------------------


def test_a_function_with_targets_has_a_backend_of_its_own(tmp_path: Path) -> None:
    cases = cases_of(tmp_path)
    assert [case.id for case in cases] == [
        "sum[backend=simulated,target=hip%3Agfx942,cpp=false]",
        "sum[backend=simulated,target=cuda%3Asm_90,cpp=false]",
    ]
    assert [(one.name, one.argument) for one in cases[0].requires] == [
        ("triton", None),
        ("simulated", "hip:gfx942"),
    ]
    assert cases[0].target == "hip:gfx942"


@pytest.mark.parametrize(
    ("config", "compiled", "why"),
    [
        (
            {"max_autotune": True, "max_autotune_gemm_backends": "triton, ATen"},
            {"mode": "max-autotune-no-cudagraphs"},
            "",
        ),
        ({"cpp_wrapper": True}, {}, "cpp_wrapper True: its C++ needs the headers of the GPU"),
        (
            {"triton.cudagraphs": True},
            {},
            "triton.cudagraphs True: graphs are captured on the device",
        ),
        (
            {"max_autotune_gemm_backends": "TRITON,CUTLASS"},
            {},
            "its candidates need the vendor's compiler",
        ),
        ({"fx_graph_cache": True}, {}, "a simulated GPU needs False"),
        ({}, {"mode": "max-autotune"}, "mode max-autotune: it captures graphs"),
        ({}, {"options": {"coordinate_descent_tuning": True}}, "it chooses by times of the device"),
    ],
)
def test_what_is_not_faithful_is_refused_with_evaluated_templates(
    config: Mapping[str, Any], compiled: Mapping[str, Any], why: str
) -> None:
    found = list(refusals(config, compiled))
    assert bool(found) is bool(why)
    assert why in "".join(found)


# -- availability ----------------------------------------------------------------------------------

FOUND = {"triton": ("/t",), "cxx": ("/c",)}


@pytest.mark.parametrize(
    ("release", "found", "targets", "expected", "reason"),
    [
        (None, FOUND, {}, Availability.NO, "no torch here"),
        ((2, 12, 0), FOUND, {}, Availability.NO, "not tried with torch 2.12, only with 2.13"),
        ((2, 14, 0), FOUND, {}, Availability.NO, "not tried with torch 2.14"),
        ((2, 13, 0), {"cxx": ("/c",)}, {}, Availability.NO, "triton is not installed"),
        ((2, 13, 0), {"triton": ("/t",)}, {}, Availability.NO, "no C++ compiler is installed"),
        ((2, 13, 1), FOUND, {}, Availability.UNKNOWN, "is known only when torch runs"),
        (
            (2, 13, 0),
            FOUND,
            {"hip:gfx942": ""},
            Availability.UNKNOWN,
            "is known only when torch runs",
        ),
        (
            (2, 13, 0),
            FOUND,
            {"simulated hip:gfx942": "canary 'device': odd"},
            Availability.NO,
            "does not work here: canary 'device': odd",
        ),
        ((2, 13, 0), FOUND, {"simulated hip:gfx942": ""}, Availability.YES, ""),
    ],
)
def test_a_simulation_is_available_where_it_was_tried(
    tmp_path: Path,
    release: Any,
    found: Any,
    targets: Mapping[str, str],
    expected: Availability,
    reason: str,
) -> None:
    torch = ".".join(map(str, release)) if release else None
    machine = Machine(
        python=(3, 11, 7),
        torch=torch,
        release=release,
        found=found,
        targets=targets,
        no_torch="no torch here",
    )
    verdict = capabilities.availability_of(cases_of(tmp_path)[0], machine)
    assert verdict.availability is expected
    assert reason in verdict.reason


# -- the device ------------------------------------------------------------------------------------


DEVICE = (
    "DeviceProperties(type='hip', index=0, multi_processor_count=304, cc='gfx942', major=9, "
    "regs_per_multiprocessor=65536, "
    "max_threads_per_multi_processor=2048, max_threads_per_block=1024, warp_size=64)"
)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (DEVICE, ""),
        ("no device", "the wrapper names no device"),
        (DEVICE.replace("304", "132"), "the wrapper has multi_processor_count 132, the table 304"),
        (DEVICE.replace("gfx942", "gfx950"), "the wrapper has cc 'gfx950', the table 'gfx942'"),
        (DEVICE.replace("'hip'", "'cuda'"), "the wrapper has type cuda, the table hip"),
        (DEVICE.replace(", warp_size=64", ""), "the wrapper has warp_size None, the table 64"),
    ],
)
def test_a_canary_compares_the_device_of_the_wrapper(text: str, problem: str) -> None:
    assert next(simulated_kernels.device_problems(AMD, text), "") == problem


# -- what was generated ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "refused"),
    [
        (["torch.nn.functional.scaled_dot_product_attention"], True),
        (["aten._scaled_dot_product_flash_attention"], True),
        (["torch._transformer_encoder_layer_fwd"], True),
        (["_c10d_functional.all_reduce"], True),
        (["aten.mm", "aten.relu"], False),
    ],
)
def test_operators_that_are_not_shown_are_refused_by_name(names: list[str], refused: bool) -> None:
    nodes = [SimpleNamespace(target=name) for name in names]
    simulated_codegen.take()
    if refused:
        with pytest.raises(
            simulated_codegen.Unfaithful, match=names[0].rsplit(".", maxsplit=1)[-1]
        ):
            simulated_codegen.refuse_operators(nodes)
    else:
        simulated_codegen.refuse_operators(nodes)
    # torch may catch the exception: the recording remembers it
    assert bool(simulated_codegen.take().refused) is refused


def test_the_worst_kernel_is_judged() -> None:
    texts = texts_of("triton_poi_one", "triton_poi_two", spills=3)
    assert of_compiler("registers", "amd", texts) == 11
    assert of_compiler("spills", "amd", texts) == 3
    assert of_compiler("registers", "amd", with_amount("registers", "amd", texts, 7)) == 7
    known = reading(HERE_AMD, code=texts, measured={"shared": 0})
    assert judged("resources", {"spills": 0}, known)[0][0] is Status.FAILED


@pytest.mark.parametrize("stage", ["wrapper", "amdgcn"])
def test_every_mutant_of_a_text_is_refused(stage: str) -> None:
    expected = EXPECTATIONS["filecheck"].parse({"stage": stage, "checks": "CHECK: triton_poi_one"})
    known = reading(HERE_AMD, code=texts_of("triton_poi_one"))
    mutants = [one for one in expected.mutants(known) if one.facts is not None]
    assert mutants
    assert all(
        one.status is not Status.HELD
        for mutant in mutants
        if mutant.facts
        for one in expected.judge(mutant.facts)
    )


def test_candidates_are_counted_without_times(tmp_path: Path) -> None:
    text = SPEC + "  - choices: {backend: TRITON, compiled: {min: 2}, failed: 0}\n"
    case = cases_of(tmp_path, text)[0]
    counted = {
        "op": "mm",
        "how": "untimed",
        "winner": "",
        "won_by": "",
        "backends": {"TRITON": tally(rendered=3, compiled=3)},
    }
    for found, outcome in (([counted], Outcome.OFFLINE_PASS), ([], Outcome.OFFLINE_FAIL)):
        result = result_of(
            case, texts_of("triton_poi_one"), tunings={"count": len(found), "found": found}
        )
        assert result.outcome is outcome, result.reason


# -- the judge -------------------------------------------------------------------------------------


def test_a_simulated_case_never_passes(tmp_path: Path) -> None:
    result = result_of(cases_of(tmp_path)[0], texts_of("triton_poi_one"))
    assert result.outcome is Outcome.OFFLINE_PASS
    assert result.level == "O2"
    assert not result.is_executed


@pytest.mark.parametrize(
    ("texts", "problem"),
    [
        ((), "no kernel of Triton"),
        ((wrapper(),), "no kernel of Triton"),
        ((wrapper("triton_poi_one"),), "1 texts, where ttir"),
        (
            texts_of("triton_poi_one", there=("triton_poi_two",)),
            "amdgcn has no kernel 'triton_poi_one'",
        ),
        (
            texts_of("triton_poi_one", there=("triton_poi_one", "triton_poi_two")),
            "the wrapper defines no kernel 'triton_poi_two'",
        ),
        (texts_of("triton_poi_one", target="gfx950"), "amdgcn is for gfx950"),
        (
            (
                *texts_of("triton_poi_one")[:1],
                'ttg.target = "cuda:90"',
                *texts_of("triton_poi_one")[2:],
            ),
            "ttgir does not say",
        ),
        ((*texts_of("triton_poi_one")[:4], "# nothing"), "no kernel of Triton"),
    ],
)
def test_code_of_something_else_claims_nothing(
    tmp_path: Path, texts: tuple[str, ...], problem: str
) -> None:
    case = cases_of(tmp_path)[0]
    result = result_of(case, texts)
    assert result.outcome is Outcome.ERROR, result.reason
    assert problem in "\n".join(verdict.observed for verdict in result.verdicts)
