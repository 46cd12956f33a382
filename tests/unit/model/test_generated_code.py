"""What of a generated file is code: no comments, docstrings or boilerplate; strings, and kernel
sources read as what they are.
"""

import time

import pytest

from tests.fakes import reading
from torch_conformance.matching.generated_code import code_of, commented_out
from torch_conformance.model.expectation import Status
from torch_conformance.vocabulary.expectations import EXPECTATIONS

WRAPPER = '''# AOT ID: ['0_inference']
from ctypes import c_void_p, c_long, c_int
import torch
from torch._inductor.async_compile import AsyncCompile
from torch._inductor.select_algorithm import (
    extern_kernels,
)

aten = torch.ops.aten
empty_strided_cpu = torch._C._dynamo.guards._empty_strided_cpu
empty_strided_cuda = torch._C._dynamo.guards._empty_strided_cuda
async_compile = AsyncCompile()

# kernel path: /tmp/x.py
# Original ATen: [aten.mm]
cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r\'\'\'
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(float* p) // the kernel's tanh
{
    /* sqrt
       over lines */
    auto s = "// no comment";
}
\'\'\')
triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', \'\'\'
import triton
triton_helpers.set_driver_to_gpu()
@triton.jit
def triton_poi_fused_0(x):
    """libdevice.tanh"""
    # tl.sqrt
    y = tl.load(x)  # a load
\'\'\', device_str='cuda')

async_compile.wait(globals())
del async_compile

class Runner:
    def __init__(self, partitions):
        self.partitions = partitions

    def recursively_apply_fns(self, fns):
        new_callables = []
        self.partitions = new_callables

    def call(self, args):
        # Topologically Sorted Source Nodes: [matmul], Original ATen: [aten.mm]
        extern_kernels.mm(arg0_1, buf0, out=buf1)
        buf2 = torch.ops.mine.op.default(buf1, 'a # b')
        return (buf2, )

runner = Runner(partitions=[])
call = runner.call
recursively_apply_fns = runner.recursively_apply_fns


def get_args():
    from torch._dynamo.testing import rand_strided
    return [rand_strided((2, 2), (2, 1))]


def benchmark_compiled_module(args, times=10, repeat=10):
    return print_performance(fn, times=times)


if __name__ == "__main__":
    args = get_args()
    compiled_module_main('None', benchmark_compiled_module)
'''
LEFT = """cpp_fused_relu_0 = async_compile.cpp_pybinding(['float*'], r'''
#include <torch/csrc/inductor/cpp_prefix.h>
extern "C" void kernel(float* p)
{
    auto s = "// no comment";
}
''')
triton_poi_fused_0 = async_compile.triton('triton_poi_fused_0', '''
@triton.jit
def triton_poi_fused_0(x):
    y = tl.load(x)
''', device_str='cuda')
    def call(self, args):
        extern_kernels.mm(arg0_1, buf0, out=buf1)
        buf2 = torch.ops.mine.op.default(buf1, 'a # b')
        return (buf2, )"""
CPP = """// wrapper
#include <torch/csrc/inductor/aoti_runtime/interface.h>  // the interface
namespace torch::aot_inductor {
    auto a = R"(// not a comment)"; /* one */ auto b = '"'; // two
}
"""


def test_comments_and_boilerplate_are_left_out() -> None:
    assert "\n".join(line for line in code_of(WRAPPER).text.split("\n") if line.strip()) == LEFT


def test_each_line_keeps_its_number() -> None:
    found = code_of(WRAPPER)
    lines = WRAPPER.split("\n")
    for number, line in zip(found.numbers, found.text.split("\n"), strict=True):
        assert lines[number - 1].startswith(line)
    assert found.length == len(lines)


def test_cpp() -> None:
    assert code_of(CPP).text.split("\n") == [
        "#include <torch/csrc/inductor/aoti_runtime/interface.h>",
        "namespace torch::aot_inductor {",
        '    auto a = R"(// not a comment)";  auto b = \'"\';',
        "}",
        "",
    ]


@pytest.mark.parametrize(
    "text",
    [WRAPPER, CPP, "", "\n\n", "x", "'''", '"""\n#', "'\\", "/*", 'R"(', "# only\n", "\0#\0"],
)
def test_what_was_read_once_reads_the_same_again(text: str) -> None:
    once = code_of(text).text
    assert code_of(once).text == once


@pytest.mark.parametrize("text", [WRAPPER, CPP])
def test_a_file_of_comments_has_no_code(text: str) -> None:
    assert not code_of(commented_out(text)).text.strip()


@pytest.mark.parametrize("strings", [True, False])
def test_hostile_text_takes_no_more_than_its_share(strings: bool) -> None:
    begun = time.process_time()
    for part in (
        "'''",
        '"""',
        "/*",
        'R"(',
        "'",
        '"',
        "#",
        "(",
        " ",
        "\n ",
        "import x (\n",
        "def get_args(\n",
        "class Runner:\n def __init__(",
    ):
        code_of(part * (300_000 // len(part)), strings=strings)
    assert time.process_time() - begun < 30


# -- as an expectation -----------------------------------------------------------------------------


def judged(checks: str, text: str | None = None, code: str = WRAPPER) -> tuple[Status, str, str]:

    body = {"checks": checks} if text is None else {"checks": checks, "text": text}
    (judgement,) = EXPECTATIONS["filecheck"].parse(body).judge(reading(code=(code,)))
    return judgement.status, judgement.observed, judgement.detail


@pytest.mark.parametrize(
    "checks",
    [
        "CHECK: empty_strided_cuda",
        "CHECK: aten.mm",
        "CHECK: Topologically",
        "CHECK: import torch",
        "CHECK: tanh",
        "CHECK: tl.sqrt",
        "CHECK: new_callables",
        "CHECK: print_performance",
        "CHECK: rand_strided",
        "CHECK: AsyncCompile",
    ],
)
def test_what_no_generated_code_lacks_is_no_match(checks: str) -> None:
    status, observed, _ = judged(checks)
    assert status is Status.FAILED
    assert "text: whole" in observed
    assert judged(checks, "whole")[0] is Status.HELD
    assert judged(checks, "code")[0] is Status.FAILED


def test_a_forbidden_word_in_a_comment_is_not_there() -> None:
    checks = "CHECK: def call\nCHECK-NOT: aten.mm\nCHECK: return"
    assert judged(checks)[0] is Status.HELD
    assert judged(checks, "whole")[0] is Status.FAILED


def test_a_file_without_code_is_an_error() -> None:
    assert judged("CHECK: torch", code="# torch\nimport torch\n")[:2] == (
        Status.ERROR,
        "the generated code has only comments and boilerplate",
    )
