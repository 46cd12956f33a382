"""The step ``aot``: what is exported and run, what its result is, and what shows that inductor
compiled it.

Nothing is built here.
"""

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.sessions import do, prepared
from torch_conformance.vocabulary.steps import STEPS
from torch_conformance.worker.process.channel import Phases

# what torch warns of while it exports is not ours
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

PRODUCT = """\
function: |
  def product(x, y):
      return x @ y
inputs: [{rand: [2, 3]}, {rand: [3, 2]}]
steps:
  - aot: {as: packaged}
    expect: [{close: {to: eager}}]
"""


class Packages:
    """Stands for torch's builder and loader: a package runs the exported program as it is."""

    def __init__(self) -> None:
        self.files: list[str] = []
        self.programs: dict[str, Any] = {}
        self.ran: list[tuple[Any, ...]] = []

    def build(self, program: Any, *, package_path: str) -> str:
        self.files.append(package_path)
        self.programs[package_path] = program
        return package_path

    def load(self, path: str) -> Callable[..., Any]:
        def package(*arguments: Any, **keywords: Any) -> Any:
            self.ran.append(arguments)
            return self.programs[path].module()(*arguments, **keywords)

        return package


@pytest.fixture
def packages(torch: Any, monkeypatch: pytest.MonkeyPatch) -> Packages:
    import torch._inductor

    made = Packages()
    monkeypatch.setattr(torch._inductor, "aoti_compile_and_package", made.build)
    monkeypatch.setattr(torch._inductor, "aoti_load_package", made.load)
    return made


@pytest.fixture
def session(torch: Any, tmp_path: Path) -> Callable[[str], Any]:
    return lambda text: prepared(tmp_path, text, compile_with="inductor")[0]


@pytest.mark.parametrize("strict", ["", "strict: false", "strict: true"])
def test_only_a_strict_export_refuses_a_graph_break(torch, session, packages, strict):
    broken = PRODUCT.replace(
        "      return x @ y", "      torch._dynamo.graph_break()\n      return x @ y"
    )
    one = session(broken.replace("{as: packaged}", f"{{{strict}}}"))
    if strict == "strict: true":
        with pytest.raises(torch._dynamo.exc.Unsupported):
            do(one)
    else:
        assert torch.equal(do(one), one.reference.output)


def test_the_result_is_what_the_loaded_package_returns(torch, session, packages):
    one = session(PRODUCT)
    result = do(one)
    (given,) = packages.ran
    assert torch.equal(result, given[0] @ given[1])
    assert torch.equal(one.names.value("packaged"), result)
    assert torch.equal(one.reference.output, result), (
        "the reference was run on copies of the same numbers"
    )


def test_a_package_that_computes_something_else_is_seen(torch, session, packages, monkeypatch):
    import torch._inductor

    monkeypatch.setattr(torch._inductor, "aoti_load_package", lambda path: lambda x, y: x @ y + 1)
    one = session(PRODUCT)
    assert torch.equal(do(one), one.reference.output + 1)


def test_what_cannot_be_exported_is_torchs_answer(torch, session, packages):
    one = session(PRODUCT.replace("return x @ y", "return x @ y if x.sum() > 0 else y @ x"))
    with pytest.raises(Exception, match="data-dependent"):
        do(one)
    assert packages.files == []
    assert STEPS["aot"].traits.claims


MARKED = """\
prelude: |
  def nested(x, *, least=None, most=None):
      torch._dynamo.mark_dynamic(x, 0, min=least, max=most)
      return {"rows": [3, x]}
function: |
  def fn(x, y):
      x = x if isinstance(x, torch.Tensor) else x["rows"][1]
      return FN
inputs: [X, {rand: [1, 4]}]
steps: [{aot: {strict: false}, expect: [{close: {to: eager}}]}]
"""
NESTED = "{{call: nested, args: [{{rand: [{}, 4]}}], kwargs: {{least: 2, most: 8}}}}"


@pytest.mark.parametrize(
    ("x", "body", "problem"),
    [
        ("{rand: [1, 4], mark_dynamic: [{dim: 0, min: 1, max: 8}]}", "x.mean(0) + y", "number 1"),
        ("{rand: [1, 4], mark_dynamic: [0]}", "x.mean(0) + y", "dimension 0 of .* number 1"),
        ("{rand: [3, 1], mark_dynamic: [0, 1]}", "x.sin() + y", "dimension 1 of .* number 1"),
        (NESTED.format(1), "x.sin() + y", "dimension 0 of given_0_rows_1 .* number 1"),
        (NESTED.format(4), "x.sin() if x.shape[0] < 8 else y", "for 8, which .* refuses"),
        (NESTED.format(4), "x.sin() if x.shape[0] > 2 else y", "for 2, which .* refuses"),
        (NESTED.format(4), "x.view(-1, 2, 4)", "for 2, which .* refuses"),
        (NESTED.format(4), "x.mean(0) + y", ""),
        ("{rand: [3, 4], mark_dynamic: [{dim: 0, min: 2}, 1]}", "x.sin() + y.mean()", ""),
        ("{rand: [1, 4]}", "x + y", ""),
    ],
)
def test_a_dimension_that_is_marked_remains_dynamic(session, packages, x, body, problem):
    text = MARKED.replace("FN", body).replace("X", x)
    with pytest.raises(ValueError, match=problem) if problem else nullcontext():
        do(session(text))
    assert bool(packages.files) is not bool(problem)


@pytest.mark.parametrize(
    ("shapes", "problem"),
    [
        ("{x: {0: rows}, y: {0: rows}}", ""),
        ("{x: {0: {name: rows, max: 4}}, y: {0: rows}}", "<= 4"),
        ("{x: {0: auto}, y: {0: dynamic}}", ""),
        ("{z: {0: auto}}", "unknown argument 'z'"),
    ],
)
def test_one_package_takes_several_sizes(session, packages, shapes, problem):
    text = PRODUCT.replace("x @ y", "x + y").replace("[3, 2]", "[2, 3]")
    text = text.replace("inputs: [{rand: [2, 3]}, {rand: [2, 3]}]", "inputs: [{rand: [2, 3]}]")
    text = text.replace(
        "{as: packaged}", f"{{dynamic_shapes: {shapes}, kwargs: {{y: {{rand: [2, 3]}}}}}}"
    )
    other = "{package: last, inputs: [{rand: [5, 3]}], kwargs: {y: {rand: [5, 3]}}}"
    one = session(f"{text}  - aot: {other}\n    expect: [{{close: {{to: eager}}}}]\n")
    with pytest.raises(Exception, match=problem) if problem else nullcontext():
        do(one)
        do(one, 1)
        assert tuple(one.output.shape) == (5, 3)
        assert one.output.tolist() == one.reference.output.tolist()
        assert len(packages.files) == 1


# -- the proof -------------------------------------------------------------------------------------


def graph_with(sources: str) -> SimpleNamespace:
    written = SimpleNamespace(getvalue=lambda: f"async_compile = AsyncCompile()\n{sources}")
    return SimpleNamespace(
        device_types={"cuda", "cpu"}, wrapper_code=SimpleNamespace(kernel_autotune_defs=written)
    )


GRAPH = graph_with("")


def test_packages_are_counted_when_they_are_built_and_when_they_run(torch):
    from torch_conformance.worker.torch_compat.compiler_hooks import (
        Witness,
        _counting_ahead,
        _recording_ahead,
        watch,
    )
    from torch_conformance.worker.torch_compat.compiling import Call

    def refuse(*arguments: Any) -> Any:
        raise RuntimeError("no compiler")

    witness = Witness()
    watch(Phases(), witness)

    def build(cls: Any, graph: Any, wrapper: Any, kernels: Any, extern: Any, **more: Any) -> Any:
        return list(more.values())

    def built(*args: Any, **kwargs: Any) -> Any:
        return _recording_ahead(Call(build, args, kwargs))

    assert built(None, GRAPH, "int main()", "", None, device_type="cuda") == ["cuda"]
    assert built(None, GRAPH, "int again()", "kernel", None, device_type="cuda") == ["cuda"]
    assert (witness.seen.graphs, witness.seen.code) == (
        [["cpu", "cuda"], ["cpu", "cuda"]],
        ["int main()", "int again()", "kernel"],
    )
    with pytest.raises(RuntimeError, match="no compiler"):
        _recording_ahead(Call(refuse, (None, GRAPH, "wrapper", "kernel", None), {}))
    assert (len(witness.seen.graphs), witness.seen.code[3:]) == (2, ["wrapper", "kernel"]), (
        "what could not be built leaves its code"
    )
    built(
        None,
        graph_with("gemm_0 = async_compile.rocm(r'''...''')\n"),
        "kernels.gemm_0();",
        "",
        None,
        device_type="cuda",
    )
    assert ["gemm_0 = async_compile" in code for code in witness.seen.code[5:]] == [True, False], (
        "the wrapper only calls its kernels"
    )
    package = SimpleNamespace(get_metadata=lambda: {"AOTI_DEVICE_KEY": "cuda"})
    call = Call(lambda package, *arguments: sum(arguments), (package, 1, 2), {})
    assert [_counting_ahead(call), _counting_ahead(call)] == [3, 3]
    assert witness.seen.executed_others == {"cuda": 2}
