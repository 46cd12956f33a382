"""Specs from Python tests: what is carried says the same, what is not is named, and nothing of the
file runs.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.tools.author.commands import new
from torch_conformance.tools.author.commands.new import NewOptions
from torch_conformance.tools.author.from_python import Draft, PythonFile, draft, problems_of

HEAD = """\
import itertools
import torch
from torch._dynamo.utils import counters
from torch._inductor import config, metrics
from torch._inductor.utils import fresh_inductor_cache, run_and_get_code
from torch.testing import FileCheck
from torch.testing._internal.common_utils import instantiate_parametrized_tests, parametrize, skipIfRocm
from torch.testing._internal.inductor_utils import GPU_TYPE, HAS_GPU, requires_gpu
import unittest

SCALE = 3

def scaled(x):
    return x * SCALE

"""  # noqa: E501 - text that is read by its lines

PAIR = """
def fn(x, y):
    return x * 2, y @ y
a = torch.rand(25)
b = torch.rand(5, 5, dtype=torch.float64)
opt = torch.compile(fn, dynamic=True, fullgraph=True)
"""


def drafted(
    body: str, *, decorators: str = "", arguments: str = "self", methods: str = ""
) -> Draft:
    """Return the draft of a method with a body."""
    lines = "".join(f"        {line}\n" for line in body.strip("\n").split("\n"))
    marks = "".join(f"    {line}\n" for line in decorators.split("\n") if line)
    text = (
        f"{HEAD}class TestSome(unittest.TestCase):\n{methods}{marks}    def "
        f"test_it({arguments}):\n{lines}"
    )
    file = PythonFile.parse("test_some.py", text)
    (test,) = file.tests()
    return draft(file, test)


def whole(body: str, **words: str) -> dict[str, Any]:
    made = drafted(body, **words)
    assert made.state == "whole", made.lost
    assert problems_of(made.text, "it") == []
    spec: dict[str, Any] = yaml.safe_load(made.text)
    return spec


def expectations(spec: dict[str, Any]) -> list[Any]:
    return [expectation for step in spec["steps"] for expectation in step.get("expect", [])]


def test_function_inputs_and_comparison() -> None:
    spec = whole(PAIR + "self.assertEqual(fn(a, b), opt(a, b))")
    assert spec["backends"] == ["cpu"]
    assert spec["steps"][0]["call"]["inputs"] == [
        {"rand": [25]},
        {"rand": [5, 5], "dtype": "float64"},
    ]
    assert spec["compile"] == {"dynamic": True, "fullgraph": True}
    assert expectations(spec) == [{"close": {"to": "eager"}}]


def test_counters_resets_and_steps() -> None:
    spec = whole(
        PAIR
        + """
torch._dynamo.reset()
self.assertEqual(fn(a, b), opt(a, b))
self.assertEqual(counters["inductor"]["fxgraph_cache_miss"], 1)
self.assertGreater(counters["inductor"]["fxgraph_lookup_write_file"], 0)
counters.clear()
torch._dynamo.reset()
opt(a, b)
self.assertEqual(metrics.generated_kernel_count, 2)
"""
    )
    first, cleared, reset, last = spec["steps"]
    assert first["expect"][1:] == [
        {"counter": {"inductor.fxgraph_cache_miss": 1}},
        {"counter": {"inductor.fxgraph_lookup_write_file": {"min": 1}}},
    ]
    assert (cleared, reset) == ({"clear_counters": {"only": "counters"}}, {"reset": ["dynamo"]})
    assert last["expect"] == [{"metric": {"generated_kernel_count": 2}}]


def test_parameters_options_and_tolerances() -> None:
    spec = whole(
        """
x = torch.randn(8, 8, device=device, dtype=dtype)
f = lambda x: x.relu()
with config.patch({"max_autotune": True, "epilogue_fusion": fuse}), torch.no_grad():
    torch.testing.assert_close(torch.compile(f)(x), f(x), atol=1e-2, rtol=1e-3)
self.assertEqual(counters["inductor"]["fxgraph_cache_miss"], 1 if fuse else 2)
""",
        decorators="\n".join(
            [
                '@parametrize("device", (GPU_TYPE, "cpu"))',
                '@parametrize("dtype", (torch.float32, torch.bfloat16))',
                '@parametrize("fuse", (False, True))',
                "@config.patch(freezing=True)",
            ]
        ),
        arguments="self, device, dtype, fuse",
    )
    assert spec["backends"] == ["cpu", "cuda", "rocm"]
    assert spec["matrix"] == {"fuse": [False, True], "dtype": ["float32", "bfloat16"]}
    assert spec["config"] == {
        "freezing": True,
        "max_autotune": True,
        "epilogue_fusion": "{{ fuse }}",
    }
    assert spec["context"] == ["no_grad"]
    assert spec["steps"][0]["call"]["inputs"] == [{"randn": [8, 8], "dtype": "{{ dtype }}"}]
    assert expectations(spec) == [
        {"close": {"to": "eager", "atol": 0.01, "rtol": 0.001}},
        {"counter": {"inductor.fxgraph_cache_miss": "{{ 1 if fuse else 2 }}"}},
    ]


def test_generated_code_of_a_gpu_test() -> None:
    spec = whole(
        """
x = torch.randn(8, device=GPU_TYPE)
@torch.compile
def f(x):
    return x + 1
with torch.no_grad():
    out, (code,) = run_and_get_code(f, x)
self.assertEqual(out, x + 1)
FileCheck().check("def call").check_not("extern {{").check_count("a[[0]]", 2, exactly=True).run(code)
self.assertNotIn("empty_strided", code)
""",  # noqa: E501 - text that is read by its lines
        decorators="@requires_gpu()\n@skipIfRocm",
    )
    assert spec["backends"] == ["cuda"]
    compared, checked, lacking = expectations(spec)
    assert compared == {"close": {"to": "expected"}}
    assert "expected = x + 1" in spec["prelude"]
    checks = checked["filecheck"]["checks"].splitlines()
    assert checks[0] == "CHECK: def call"
    assert checks[1].startswith("CHECK-NOT: extern {{[{]")
    assert checks[2].startswith("CHECK-COUNT-2: a{{\\[\\[}}0")
    assert lacking["filecheck"]["checks"].splitlines()[1:] == ["CHECK-NOT: empty_strided"]


@pytest.mark.parametrize(
    ("values", "backends"),
    [
        ("GPU_TYPE,", ["cuda", "rocm"]),
        ("'cpu',", ["cpu"]),
        ("'cpu', GPU_TYPE", ["cpu", "cuda", "rocm"]),
    ],
)
def test_the_values_of_a_device_parameter_are_the_backends(
    values: str, backends: list[str]
) -> None:
    body = "x = torch.ones(3, device=device)\nself.assertEqual(torch.compile(scaled)(x), scaled(x))"
    spec = whole(body, decorators=f'@parametrize("device", ({values}))', arguments="self, device")
    assert spec["backends"] == backends


def test_what_a_test_prepares_stands_in_the_prelude() -> None:
    spec = whole(
        """
mod = torch.nn.Linear(4, 4).eval()
for _ in range(3):
    mod(torch.rand(2, 4))
unused = torch.rand(3)
x = torch.rand(2, 4)
self.assertEqual(torch.compile(lambda mod, x: scaled(mod(x)))(mod, x), scaled(mod(x)))
self.assertEqual(torch.compile(mod)(x), mod(x))
"""
    )
    assert "def scaled(x)" in spec["prelude"]
    assert "SCALE = 3" in spec["prelude"]
    assert "for _ in range(3)" in spec["prelude"]
    assert "unused" not in spec["prelude"]
    assert [step["call"]["inputs"] for step in spec["steps"]] == [
        [{"ref": "mod"}, {"ref": "x"}],
        [{"ref": "x"}],
    ]
    assert expectations(spec)[1] == {"close": {"to": "eager"}}


def test_the_set_up_of_the_class_is_read() -> None:
    methods = (
        "    @classmethod\n    def setUpClass(cls):\n        "
        "cls.stack.enter_context(config.patch(freezing=True))\n\n"
    )
    body = (
        "args = [torch.ones(3, "
        "device=self.device)]\nself.assertEqual(torch.compile(scaled)(*args), scaled(*args))\n"
    )
    spec = whole(body, methods=methods)
    assert (spec["config"], spec["backends"]) == ({"freezing": True}, ["cpu", "cuda", "rocm"])
    assert expectations(spec) == [{"close": {"to": "expected"}}]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("self.assertEqual(opt(a, b)[0].shape, (25,))", "shape"),
        ("opt(a, b)\nself.assertIn('x', str(open('/etc/passwd').read()))", "no generated code"),
        ("opt(a, b)\nself.check_all(a)", "self"),
        ("with unittest.mock.patch('torch.add', None):\n    opt(a, b)\nopt(a, b)", "the context"),
        ("opt(a, b)\nassert counters['inductor']['nothing_of_this_name'] == 0", "unknown counter"),
        ("while a.sum() > 0:\n    pass\nopt(a, b)", "a statement of this kind"),
        ("opt(a, b)\na.add_(1)", "between two calls"),
        ("if a.sum() > 0:\n    opt(a, b)", "a condition"),
        (
            "opt(a, b)\nif self.device == 'cpu':\n    assert metrics.ir_nodes_pre_fusion == 2",
            "a condition",
        ),
        ("with config.patch(freezing=True):\n    opt(a, b)\nopt(a, b)", "different options"),
        ("for x in range(2):\n    opt(a, b)", "a statement of this kind"),
        ("with self.assertRaises(RuntimeError):\n    opt(a, b)", "the context"),
        ("torch.compile(fn, backend='eager')(a, b)", "another backend of dynamo"),
        ("with config.patch(freezing=a):\n    opt(a, b)", "the option 'freezing'"),
        ("torch.compile(fn, mode='default')(a, b)\nopt(a, b)", "different options"),
    ],
)
def test_what_is_not_understood_is_named(statement: str, reason: str) -> None:
    made = drafted(PAIR + statement)
    assert made.state != "whole"
    assert any(reason in remark.text for remark in made.lost), made.lost
    if made.text:
        assert "# not carried: line " in made.text
        assert "in part" in yaml.safe_load(made.text)["summary"]


@pytest.mark.parametrize(
    "statement",
    [
        "self.assertEqual(opt(a, b), fn(b, b))",
        "self.assertEqual(fn(a, b)[1], opt(a, b)[0])",
        "g = lambda x, y: (x * 3, y @ y)\nself.assertEqual(g(a, b), opt(a, b))",
        "y = a.half()\nself.assertEqual(fn(y, b), opt(a, b))",
        "ref = fn(a, b)\na.add_(1)\nself.assertEqual(ref, opt(a, b))",
    ],
)
def test_another_call_is_not_compared_as_eager(statement: str) -> None:
    made = drafted(PAIR + statement)
    assert "to: eager" not in made.text
    assert "to: expected" in made.text or "to: ref" in made.text


def test_a_test_without_understood_assertions_has_no_spec() -> None:
    made = drafted(PAIR + "self.check_all(opt(a, b))")
    assert (made.state, made.text) == ("none", "")


def test_nothing_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    file = tmp_path / "test_evil.py"
    file.write_text(
        f"{HEAD}open({str(marker)!r}, 'w').write('x')\n\n\ndef test_it():\n"
        f"    x = torch.ones(open({str(marker)!r}, 'w').write('y'))\n    torch.compile(lambda "
        "x: x)(x)\n"
    )
    new.main(options(tmp_path / "out", from_python=str(file)))
    assert not marker.exists()


def options(area: Path, name: str = "", **words: Any) -> NewOptions:
    given = {"from_python": "", "allow_partial": False, **words}
    return NewOptions(area=area, name=name, **given)


def test_the_template_validates() -> None:
    assert problems_of(new.TEMPLATE, "it") == []


@pytest.mark.parametrize("name", ["", "Conv", "a_b", "../x", "-a", "a--b", "a.yaml", "\u00e4"])
def test_bad_names(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="NAME"):
        new.main(options(tmp_path, name))
    assert list(tmp_path.iterdir()) == []


def test_existing_files_stay(tmp_path: Path) -> None:
    assert new.main(options(tmp_path / "deep" / "area", "one-claim")) == ExitCode.OK
    with pytest.raises(UsageError, match="exists"):
        new.main(options(tmp_path / "deep" / "area", "one-claim"))


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"def test_it(:\n", "no Python"),
        (b"x = 1\n", "has no test"),
        (b"\xff\xfe", "not UTF-8"),
        (b"def test_a(): pass\0", "no Python"),
        (b"x = " + b"(" * 100_000, "no Python"),
    ],
)
def test_files_that_are_no_tests(tmp_path: Path, text: bytes, reason: str) -> None:
    (tmp_path / "t.py").write_bytes(text)
    with pytest.raises(UsageError, match=reason):
        new.main(options(tmp_path / "out", from_python=str(tmp_path / "t.py")))


def test_hostile_tests_end(tmp_path: Path) -> None:
    bodies = [
        "for i in range(4000):\n        for j in range(4000):\n            x = i * j",
        "x = " + " + ".join(["1"] * 300),
        "x = 'a' * 10000000000",
        "x = 9 ** 9 ** 9 ** 9",
        "def f(): return f()\n    x = f() + torch.ones(f())",
    ]
    text = HEAD + "".join(
        f"\n\ndef test_{index}():\n    {body}\n" for index, body in enumerate(bodies)
    )
    (tmp_path / "t.py").write_text(text)
    assert (
        new.main(options(tmp_path / "out", from_python=str(tmp_path / "t.py"), allow_partial=True))
        == ExitCode.FAILED
    )


def test_exit_codes_of_partial_specs(tmp_path: Path) -> None:
    body = (
        "    y = torch.compile(scaled)(torch.ones(2))\n    assert y.equal(y)\n    assert "
        "metrics.ir_nodes_pre_fusion == 1\n"
    )
    (tmp_path / "t.py").write_text(f"{HEAD}def test_it():\n{body}")
    place = str(tmp_path / "t.py")
    assert new.main(options(tmp_path / "a", from_python=f"{place}::test_it")) == ExitCode.FAILED
    assert new.main(options(tmp_path / "b", from_python=place, allow_partial=True)) == ExitCode.OK
    with pytest.raises(UsageError, match="did you mean 'test_it'"):
        new.main(options(tmp_path / "c", from_python=f"{place}::test_its"))
