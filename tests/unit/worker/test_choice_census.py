"""The hooks of the census of autotuning, on torch's own selector with candidates made up here."""

import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import ck_stand_in
from tests.fakes import import_torch
from torch_conformance.machine.capabilities import CK_ARCHITECTURES

pytestmark = pytest.mark.torch

torch: Any = import_torch()

from torch_conformance.worker.torch_compat import choice_census


@pytest.fixture
def census(monkeypatch: pytest.MonkeyPatch) -> Any:
    found: list[Any] = []
    state = choice_census._State(found.append, lambda: True)
    monkeypatch.setattr(choice_census, "_state", state)
    return choice_census, found


class Candidate:
    """A candidate whose time, or exception, is given."""

    def __init__(self, name: str, time: float | Exception = 1.0) -> None:
        self.name, self.time = name, time

    def output_node(self) -> str:
        return f"node of {self.name}"


def selection(census: Any, choices: list[Candidate], pick: int, errors: list[Any] = ()) -> str:
    """Do what torch's selector does, through the hooks."""
    from torch_conformance.worker.torch_compat.compiling import Call

    def benchmark(choice: Candidate) -> float:
        if isinstance(choice.time, Exception):
            raise choice.time
        return choice.time

    def select(selector: Any, name: str, choices: list[Candidate]) -> str:
        census._record_compile_errors(Call(lambda _: None, (errors,), {}))
        failed = {choice for choice, _ in errors}
        timings = {}
        for choice in choices:
            if choice not in failed:
                try:
                    timings[choice] = census._record_error(Call(benchmark, (choice,), {}))
                except RuntimeError:
                    timings[choice] = float("inf")
        if len(choices) > 1:
            census._record_times(
                timings, "mm", [], list(timings), None, dict.fromkeys(timings, 0.1)
            )
        return choices[pick].output_node()

    # as torch calls it for a custom operator
    return census._record_selection(Call(select, (None,), {"name": "mm", "choices": choices}))


def test_what_became_of_each_candidate(census: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    module, found = census
    monkeypatch.setattr(module, "backend_of", lambda choice: choice.name.split("_")[0])
    good, slow = Candidate("CK_0", 1.0), Candidate("CK_1", 2.0)
    broken, dead = Candidate("CK_2"), Candidate("CK_3", RuntimeError("unspecified\nlaunch failure"))
    aten = Candidate("ATEN_mm", 3.0)
    choices = [aten, good, slow, broken, dead]
    assert (
        selection(module, choices, 1, [(broken, ValueError("ck/config.h: No such file"))])
        == "node of CK_0"
    )
    (one,) = [tuning.to_json() for tuning in found]
    assert (one["op"], one["how"], one["winner"], one["won_by"]) == ("mm", "timed", "CK_0", "CK")
    assert one["backends"]["ATEN"] == {
        "rendered": 1,
        "compiled": 1,
        "failed": 0,
        "refused": 0,
        "timed": 1,
        "won": 0,
        "error": "",
    }
    error = "ValueError: ck/config.h: No such file"
    # the one that could not be timed was compiled
    assert one["backends"]["CK"] == {
        "rendered": 4,
        "compiled": 3,
        "failed": 2,
        "refused": 0,
        "timed": 2,
        "won": 1,
        "error": error,
    }


@pytest.mark.parametrize(
    ("backend", "message", "refused"),
    [
        ("CK", "Error in function: rocm_ck_gemm_template_3", True),
        ("CK", "HIP error: an illegal memory access", False),
        ("CKTILE", "Error in function: rocm_ck_tile_gemm_template_3", False),
        ("CUTLASS", "Error in function: cutlass_3", False),
    ],
)
def test_what_composable_kernel_refuses_did_not_fail(
    census: Any, monkeypatch: pytest.MonkeyPatch, backend: str, message: str, refused: bool
) -> None:
    module, found = census
    monkeypatch.setattr(module, "backend_of", lambda choice: choice.name.split("_")[0])
    good, other = Candidate(f"{backend}_0"), Candidate(f"{backend}_1", RuntimeError(message))
    selection(module, [good, other], 0)
    (one,) = [tuning.to_json() for tuning in found]
    assert one["backends"][backend] == {
        "rendered": 2,
        "compiled": 2,
        "failed": 0 if refused else 1,
        "refused": 1 if refused else 0,
        "timed": 1,
        "won": 1,
        "error": "" if refused else f"RuntimeError: {message}",
    }


def test_torch_makes_this_message_of_what_a_kernel_returns(tmp_path: Path) -> None:
    """The number with which Composable Kernel refuses is lost, and no other kernel returns one."""
    from torch._inductor.codecache import DLLWrapper

    library = tmp_path / "kernel.so"
    source = 'extern "C" int fine() { return 0; } extern "C" int refused() { return -23; }'
    subprocess.run(
        ["g++", "-x", "c++", "-shared", "-fPIC", "-o", library, "-"],
        input=source.encode(),
        check=True,
    )
    with DLLWrapper(str(library)) as loaded:
        loaded.fine()
        with pytest.raises(RuntimeError) as error:
            loaded.refused()
    assert str(error.value).startswith(choice_census._REFUSED)


def test_one_candidate_is_not_timed(census: Any) -> None:
    module, found = census
    selection(module, [Candidate("mm")], 0)
    (one,) = [tuning.to_json() for tuning in found]
    assert (one["how"], one["winner"], one["won_by"]) == ("only", "mm", "OTHER")
    assert one["backends"]["OTHER"]["timed"] == 0


def test_a_selection_that_is_revised_has_one_winner(census: Any) -> None:
    from torch_conformance.worker.torch_compat.compiling import Call

    module, found = census
    first, last = Candidate("first"), Candidate("last")
    selection(module, [first, last], 0)
    module._record_deferred(Call(lambda _buffer, _caller: None, (None, last), {}))
    (one,) = [tuning.to_json() for tuning in found]
    assert one["winner"] == "last"
    assert one["backends"]["OTHER"]["won"] == 1


@pytest.mark.parametrize(
    ("path", "word"),
    [
        ("torch._inductor.codegen.rocm.ck_universal_gemm_template.CKGemmTemplate", "CK"),
        (
            "torch._inductor.codegen.rocm.ck_tile_universal_gemm_template.CKTileGemmTemplate",
            "CKTILE",
        ),
        ("torch._inductor.codegen.cutlass.gemm_template.CUTLASS3xGemmTemplate", "CUTLASS"),
        ("torch._inductor.codegen.cpp_gemm_template.CppGemmTemplate", "CPP"),
        ("torch._inductor.select_algorithm.TritonTemplateCaller", "TRITON"),
        ("torch._inductor.select_algorithm.ExternKernelCaller", "ATEN"),
        ("torch._inductor.codegen.subgraph.SubgraphChoiceCaller", "SUBGRAPH"),
        ("mine.torch._inductor.codegen.rocm.ck_universal", "OTHER"),
        ("", "OTHER"),
    ],
)
def test_a_backend_is_known_by_the_class_of_its_template(
    path: str, word: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice_census, "class_of_choice", lambda _: path)
    assert choice_census.backend_of(None) == word


def test_composable_kernel_is_offered_where_torch_says() -> None:
    assert [*CK_ARCHITECTURES] == import_torch()._inductor.config.rocm.ck_supported_arch


def test_the_hooks_exist_in_this_torch() -> None:
    """A name that torch renamed would be a census without reasons."""
    from torch._inductor import autotune_process, ir, select_algorithm

    assert callable(select_algorithm._log_autotune_exceptions)
    assert callable(select_algorithm.AlgorithmSelectorCache.benchmark_choice)
    assert callable(autotune_process.TuningProcessPool.target)
    assert callable(autotune_process.TuningProcess.get)
    assert callable(ir.MultiTemplateBuffer.finalize_as_triton_caller)


def test_the_stand_in_draws_candidates_as_torch_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Torch offers what Composable Kernel refuses, and draws at random with its own seed."""
    from torch._inductor import config
    from torch._inductor.codegen.rocm import ck_universal_gemm_template as templates

    # all that the filter asks of an instance; nothing is known of its pipeline
    fits = {
        **{f"{side}_element_dtype": "BF16" for side in "abc"},
        **{f"{side}_compute_dtype": None for side in "ab"},
        **{f"{side}_layout": "Row" for side in "abc"},
        **{f"{side}_block_transfer_src_scalar_per_vector": 8 for side in "ab"},
        "c_shuffle_block_transfer_scalar_per_vector_n_per_block": 8,
        "gemm_specialization": "GemmSpecialization::MNKPadding",
        "a_k1": 8,
        "b_k1": 8,
    }
    whole = ck_stand_in.drawn("bfloat16", None)
    offered = sorted(whole)
    instances = [SimpleNamespace(**fits, k_per_block=one.k_per_block, own=one) for one in offered]
    package = SimpleNamespace(
        gen_ops_library=lambda: instances, gen_ops_preselected=lambda: instances
    )
    for part in ("universal_gemm", "batched_universal_gemm"):
        monkeypatch.setitem(sys.modules, f"ck4inductor.{part}", SimpleNamespace())
        monkeypatch.setitem(sys.modules, f"ck4inductor.{part}.gen_instances", package)
    monkeypatch.setitem(sys.modules, "ck4inductor", SimpleNamespace())

    def node(*size: int) -> Any:
        layout = SimpleNamespace(size=size, stride=(size[1], 1), dtype=torch.bfloat16, device=None)
        return SimpleNamespace(get_layout=lambda: layout)

    monkeypatch.setattr(templates, "is_dynamic", lambda *_: False)
    template = templates.CKGemmTemplate.__new__(templates.CKGemmTemplate)
    template.input_nodes, template.output_node = (
        [node(2240, 256), node(256, 2048)],
        node(2240, 2048),
    )
    template.is_batched = False
    for most in (2, 24, None):
        with config.patch({"rocm.ck_max_profiling_configs": most}):
            found = [one.op.own for one in template.gen_ops()]
        expected = ck_stand_in.sampled(offered, most) if most else offered
        assert found == expected
    assert any(one.is_refused(256) for one in whole)
