"""Spies on what torch does once a process: ``validate`` warns, and changes no exit code."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from runner.core.diagnostics import errors
from runner.language.check import values
from runner.language.load import inspect
from tests.conftest import GOOD

SPIED = GOOD.replace("expect: [{close: {to: eager}}]\n", "expect: [{close: {to: eager}}, {calls: {of: seen, count: 0}}]\n")
RECORD = "prelude: |\n  def note(*args, **kwargs): return {}\n"


def spied(target: str, kind: str = "function", more: str = "") -> str:
    return f"{SPIED}{RECORD}spies: {{seen: {{{kind}: {target}, record: note}}}}\n{more}"


@pytest.fixture
def warnings_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    monkeypatch.chdir(tmp_path)

    def read(text: str, **files: str) -> list[str]:
        for name, content in {"spec.yaml": text, **files}.items():
            Path(name).write_text(content)
        found = inspect([Path("spec.yaml")]).problems
        assert not errors(found)
        return [str(one) for one in found]

    return read


@pytest.mark.parametrize(
    ("kind", "target"),
    [
        ("function", "torch.backends.mkldnn.is_available"),
        ("function", "torch.backends.mkldnn:is_available"),
        ("function", "torch._inductor.fx_passes.joint_graph.lazy_init"),
        ("function", "torch._inductor.fx_passes.mkldnn_fusion._register_unary_fusion"),
        ("function", "torch._inductor.pattern_matcher.gen_register_replacement"),
        ("function", "torch._inductor.cpp_builder.get_compiler_version_info"),
        ("method", "torch._inductor.cpu_vec_isa.VecISA.check_build"),
        ("function", "torch.cpu.get_capabilities"),
    ],
)
def test_a_spy_on_what_is_done_once_is_warned_of(warnings_of, kind, target):
    (warning,) = warnings_of(spied(target, kind))
    assert re.match(r"\S*spec\.yaml:10:\d+: warning: the spy 'seen' may record no call of torch", warning)
    assert target in warning
    assert "isolation: process" in warning


@pytest.mark.parametrize("target", ["torch._inductor.compile_fx.compile_fx", "torch._inductor.cpp_builder.run_compile_cmd"])
def test_a_spy_on_what_is_done_each_time_is_not(warnings_of, target):
    assert warnings_of(spied(target)) == []


def test_a_spec_or_its_folder_with_a_process_of_its_own_is_not(warnings_of):
    assert warnings_of(spied("torch.backends.mkldnn.is_available", more="isolation: process\n")) == []
    assert warnings_of(spied("torch.backends.mkldnn.is_available"), **{"_defaults.yaml": "isolation: process\n"}) == []
    nearer = spied("torch.backends.mkldnn.is_available", more="isolation: case\n")
    assert len(warnings_of(nearer, **{"_defaults.yaml": "isolation: process\n"})) == 1


@pytest.mark.torch
def test_the_table_names_what_the_installed_torch_has():
    """A path that torch has no more warns of nothing."""
    from tests.fakes import import_torch

    import_torch()
    from runner.worker.torch_compat import imports

    for path in ("torch._inductor.fx_passes.joint_graph.lazy_init", "torch.backends.mkldnn.is_available", "torch.cpu.get_capabilities"):
        assert values.why_once(path)
        assert callable(imports.resolve(path))
