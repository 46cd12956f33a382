"""Names that a spec gives to things of its own are no proof of a backend where generated code
repeats them.
"""

from collections.abc import Mapping

import pytest

from tests.fakes import COUNTED, backend, case, observation, seen, step, verdict_of
from torch_conformance.judge.proof import own_names, without
from torch_conformance.model.case import CodeBlock
from torch_conformance.model.outcomes import Outcome

OPERATOR = """\
@torch.library.custom_op("ours::ck_gemm", mutates_args=())
def multiply(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    return a @ b
"""
LIBRARY = (
    'lib = torch.library.Library("ours", "DEF")\nlib.define("ck_gemm(Tensor a, Tensor b) -> '
    'Tensor")\n'
)
KERNEL = "@triton.jit\ndef ck_gemm(pointer, size: tl.constexpr):\n    pass\n"
MODULE = (
    "class Model(torch.nn.Module):\n    def __init__(self):\n        self.ck_gemm = "
    "torch.nn.Linear(4, 4)\n"
)
BUFFER = (
    "def prepared(model):\n    model.register_buffer('ck_gemm', torch.ones(4))\n    return model\n"
)
SCHEMA = 'torch.library.define("ours::ck_gemm", "(Tensor a) -> Tensor")\n'

CALLED = (
    "def call(args):\n    buf0 = torch.ops.ours.ck_gemm.default(arg0, arg1)\n    return (buf0, )\n"
)
LAUNCHED = (
    "def call(args):\n    ck_gemm_0.run(arg0, 4, grid=grid, stream=stream0)\n    return (buf0, )\n"
)
LIBRARY_CALL = (
    "def call(args):\n    extern_kernels.ck_gemm(arg0, arg1, out=buf0)\n    return (buf0, )\n"
)


def outcome(prelude: str, code: str, checks: str = "CHECK: ck_gemm") -> tuple[Outcome, str]:
    blocks = (CodeBlock(name="prelude", file="spec.yaml", line=3, text=prelude),)
    facts: Mapping[str, object] = observation(seen(code=1))
    found = verdict_of(
        case(step(COUNTED), body={"preludes": blocks}),
        facts,
        by=backend(code=checks),
        code={(0, 0): code},
    )
    return found.outcome, found.reason


@pytest.mark.parametrize("prelude", [OPERATOR, LIBRARY, SCHEMA, KERNEL, MODULE, BUFFER])
@pytest.mark.parametrize("code", [CALLED, LAUNCHED])
def test_a_name_of_the_spec_is_no_proof(prelude: str, code: str) -> None:
    found, reason = outcome(prelude, code)
    assert found is Outcome.FELL_BACK
    assert "the proof matches only with ck_gemm" in reason
    assert "which the spec defines" in reason


@pytest.mark.parametrize(
    "prelude",
    [
        "",
        "def helper(x):\n    return torch.mm(x, x)\n",
        "import ourkernels\n",
        "mode = 'ck_gemm'\n",
        "not python (\n",
        "f(x.ck_gemm)\n",
    ],
)
def test_code_that_the_compiler_wrote_is_a_proof(prelude: str) -> None:
    assert outcome(prelude, LIBRARY_CALL)[0] is Outcome.PASS


def test_a_proof_beside_a_name_of_the_spec_holds() -> None:
    assert (
        outcome(
            OPERATOR, CALLED + LIBRARY_CALL.replace("ck_gemm", "vendor_gemm"), "CHECK: vendor_gemm("
        )[0]
        is Outcome.PASS
    )


def test_a_name_that_is_only_a_part_of_another_stays() -> None:
    assert (
        without("fused_gemm gemm_0 gemm.x gemms agemm", frozenset(["gemm"]))
        == "fused_gemm     _0     .x gemms agemm"
    )
    assert without("text", frozenset()) == "text"


def test_names_are_those_that_python_binds() -> None:
    text = "import torch\nimport numpy as np\nfrom a import b as c\n"
    text += "x = 1\nfor y in z: pass\ndef f(u, *, v): w.attribute = u\nclass K: pass\n"
    found = own_names(
        case(body={"preludes": (CodeBlock(name="prelude", file="s", line=1, text=text),)})
    )
    assert found == {"np", "c", "x", "y", "f", "u", "v", "attribute", "K"}
