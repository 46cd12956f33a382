"""What counts as a kernel call of a generated wrapper: the text of a wrapper, and a wrapper of a
few lines that runs.
"""

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import import_torch

pytestmark = pytest.mark.torch

import_torch()

from torch_conformance.worker.torch_compat import compiling

GENERATED = '''
"""decoy = async_compile.triton('decoy', 'in a docstring')"""
# commented = async_compile.triton('commented', 'in a comment')
async_compile = AsyncCompile()
cpp_fused_add_0 = async_compile.cpp_pybinding(['float*'], r"""
extern "C" void kernel() { /* nested = async_compile.triton('nested', '') */ }
""")
triton_poi_0 = async_compile.triton('triton_poi_0', """
@triton_heuristics.pointwise(size_hints={'x': 8})
def triton_poi_0(x):
    "@triton_heuristics.user_autotune( in the text of a kernel"
""")
triton_poi_1 = async_compile.triton('triton_poi_1', """
@triton_heuristics.pointwise(size_hints={'x': 8})
def triton_poi_1(x):
    "@triton_heuristics.user_autotune( in the text of a kernel"
""")
theirs = async_compile.triton('theirs', """
@triton_heuristics.user_autotune(configs=[])
def theirs(x):
    ...
""")
multi_kernel_0 = async_compile.multi_kernel('multi_kernel_0', [triton_poi_0, triton_poi_1])
async_compile.wait(globals())
'''


def test_kernels_are_what_the_syntax_tree_defines_and_no_text():
    found = compiling.read_wrapper(GENERATED)
    assert found.kernels == {
        "cpp_fused_add_0",
        "triton_poi_0",
        "triton_poi_1",
        "theirs",
        "multi_kernel_0",
    }
    assert found.is_python


def test_a_wrapper_in_cpp_is_recognized_by_its_code():
    assert not compiling.read_wrapper(
        "inductor_entry = CppWrapperCodeCache.load_pybinding([], '')\n"
    ).is_python
    assert compiling.read_wrapper("# CppWrapperCodeCache\nx = 'CppWrapperCodeCache'\n").is_python


# -- a wrapper that runs ---------------------------------------------------------------------------

FILE = "/nowhere/wrapper.py"

WRAPPER = """
def call(x):
    fused(x)
    triton_0.run(x, stream=0)
    theirs.run(x, stream=0)
    by_function(x)
    out = extern_kernels.mm(x, x)
    torch.ops.aten.sort.stable(x, stable=False)
    aten.relu(x)
    aten.view.dtype(x, torch.int32)
    aten.view(x, [4])
    inductor_ops._reinterpret_tensor(x, (4,), (1,), 0)
    out.copy_(out)
    empty_strided_cpu((2, 2), (2, 1), torch.float32)
    helper(x)
    fused_elsewhere(x)
    return out
"""


class TritonKernel:
    def __init__(self, kind: str) -> None:
        self.heuristic_type = SimpleNamespace(name=kind)

    def run(self, *args: Any, stream: Any) -> None:
        len(args)


def by_function(x: Any) -> None:
    pass


def helper(x: Any) -> Any:
    return x.relu() @ x


@pytest.fixture
def wrapper(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    torch = import_torch()
    from torch._C._dynamo.guards import _empty_strided_cpu
    from torch._inductor.select_algorithm import extern_kernels

    monkeypatch.setattr(extern_kernels, "mm", torch.mm, raising=False)
    names = {
        "fused": {}.setdefault,  # a function of C, as a kernel of C++ is
        "fused_elsewhere": {}.setdefault,
        "triton_0": TritonKernel("POINTWISE"),
        "theirs": TritonKernel("USER_AUTOTUNE"),
        "by_function": by_function,
        "helper": helper,
        "extern_kernels": extern_kernels,
        "torch": torch,
        "aten": torch.ops.aten,
        "inductor_ops": torch.ops.inductor,
        "empty_strided_cpu": _empty_strided_cpu,
        "sys": sys,
    }
    known = compiling.Wrapper(
        kernels=frozenset(["fused", "triton_0", "theirs", "by_function", "not_there"])
    )
    monkeypatch.setitem(compiling.wrappers, FILE, known)
    exec(compile(WRAPPER, FILE, "exec"), names)
    return names


def test_each_call_of_a_wrapper_is_told_by_the_object_that_is_called(wrapper: dict[str, Any]):
    before = sys.getprofile()
    with compiling.counted() as found:
        wrapper["call"](wrapper["torch"].zeros(2, 2))
    assert found.calls == [
        (compiling.FUSED, "fused"),
        (compiling.FUSED, "triton_0"),
        (compiling.USER, "theirs"),
        (compiling.FUSED, "by_function"),
        (compiling.EXTERN, "mm"),
        (compiling.EXTERN, "aten.sort.stable"),
        (compiling.EXTERN, "aten.relu"),
        (compiling.EXTERN, "copy_"),
    ]
    assert (found.in_python, found.in_cpp, found.to_the_end) == (True, False, True)
    assert sys.getprofile() is before


def test_a_call_outside_of_a_wrapper_is_none(wrapper: dict[str, Any]):
    with compiling.counted() as found:
        wrapper["torch"].mm(wrapper["torch"].zeros(2, 2), wrapper["torch"].zeros(2, 2))
        wrapper["triton_0"].run(1, stream=0)
    assert (found.calls, found.in_python) == ([], False)


def test_a_profile_function_of_another_is_noticed(wrapper: dict[str, Any]):
    exec(compile("def stops(): sys.setprofile(None)\n", FILE, "exec"), wrapper)
    with compiling.counted() as found:
        wrapper["stops"]()
    assert not found.to_the_end


# -- frames ----------------------------------------------------------------------------------------

TREE = """
TREE_GUARD_MANAGER:
+- RootGuardManager
| +- LAMBDA_GUARD: torch._functorch.x ids == None  # _dynamo/output_graph.py:1135 in init_ambient_guards
| +- GuardManager: source=L['x'], accessed_by=FrameLocalsGuardAccessor(key='x'), type=<class 'torch.Tensor'>
| | +- TENSOR_MATCH: check_tensor(L['x'], size=[4])  # a = x.sin()  # size=[5]  # spec.yaml:14 in f
| | +- DictSubclassGuardManager: source=L['d']
| | | +- EQUALS_MATCH: L['d']['n'] == 3                # n = d["n"]
+- LAMBDA_GUARD: 2 <= L['x'].size()[0]  # (unknown var s17)
"""  # noqa: E501 - a table


def test_guards_are_the_leaves_without_the_code_of_the_user():
    class Manager:
        def __str__(self) -> str:
            return TREE

    assert compiling.guards_of(SimpleNamespace(guard_manager=Manager())) == [
        "LAMBDA_GUARD: torch._functorch.x ids == None",
        "TENSOR_MATCH: check_tensor(L['x'], size=[4])",
        "EQUALS_MATCH: L['d']['n'] == 3",
        "LAMBDA_GUARD: 2 <= L['x'].size()[0]",
    ]
