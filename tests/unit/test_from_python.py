"""Specs from Python tests: what is carried says the same, what is not is named, and nothing of the file runs."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.cli.commands import new
from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.core.options import NewOptions
from runner.language.authoring.drafting import Draft
from runner.language.authoring.from_python import draft, problems_of
from runner.language.authoring.python_file import PythonFile
from runner.language.authoring.template import TEMPLATES, template

HEAD = """\
import torch
from torch._dynamo.utils import counters
from torch._inductor import config, metrics
from torch._inductor.utils import fresh_inductor_cache, run_and_get_code
from torch.testing import FileCheck
from torch.testing._internal.common_utils import instantiate_parametrized_tests, parametrize, skipIfRocm
from torch.testing._internal.inductor_utils import GPU_TYPE, HAS_GPU, requires_gpu
import unittest

"""


def drafted(body: str, *, decorators: str = "", name: str = "test_it", arguments: str = "self") -> Draft:
    """Return the draft of a method with a body."""
    lines = "".join(f"        {line}\n" for line in body.strip("\n").split("\n"))
    marks = "".join(f"    {line}\n" for line in decorators.split("\n") if line)
    file = PythonFile.parse("test_some.py", f"{HEAD}class TestSome(unittest.TestCase):\n{marks}    def {name}({arguments}):\n{lines}")
    (test,) = file.tests()
    return draft(file, test, may_drive=False)


def spec_of(made: Draft) -> dict[str, Any]:
    assert made.text, made.lost
    assert problems_of(made.text, "it") == []
    found: dict[str, Any] = yaml.safe_load(made.text)
    return found


def whole(body: str, **words: str) -> dict[str, Any]:
    made = drafted(body, **words)
    assert made.state == "whole", made.lost
    return spec_of(made)


PAIR = """
def fn(x, y):
    return x * 2, y @ y
a = torch.rand(25)
b = torch.rand(5, 5, dtype=torch.float64)
opt = torch.compile(fn, dynamic=True, fullgraph=True)
"""


def test_function_inputs_and_comparison() -> None:
    spec = whole(PAIR + "self.assertEqual(fn(a, b), opt(a, b))")
    assert spec["backends"] == ["cpu"]
    assert spec["inputs"] == [{"rand": [25]}, {"rand": [5, 5], "dtype": "float64"}]
    assert spec["compile"] == {"dynamic": True, "fullgraph": True}
    assert spec["expect"] == [{"close": {"to": "eager"}}]


def test_counters_resets_and_steps() -> None:
    spec = whole(
        PAIR
        + """
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
    assert first["expect"][1] == {"counter": {"inductor.fxgraph_cache_miss": 1, "inductor.fxgraph_lookup_write_file": {"min": 1}}}
    assert (cleared, reset) == ({"clear_counters": {"only": "counters"}}, {"reset": ["dynamo"]})
    assert last["expect"] == [{"metric": {"generated_kernel_count": 2}}]


def test_options_tolerances_and_matrix() -> None:
    spec = whole(
        """
x = torch.randn(8, 8, device=device, dtype=dtype)
f = lambda x: x.relu()
with config.patch({"max_autotune": True}):
    torch.testing.assert_close(torch.compile(f)(x), f(x), atol=1e-2, rtol=1e-3)
""",
        decorators="\n".join(
            [
                '@parametrize("device", (GPU_TYPE, "cpu"))',
                '@parametrize("dtype", (torch.float32, torch.bfloat16))',
                "@config.patch(freezing=True)",
            ]
        ),
        arguments="self, device, dtype",
    )
    assert spec["backends"] == ["cpu", "cuda", "rocm"]
    assert spec["matrix"] == {"dtype": ["float32", "bfloat16"]}
    assert spec["config"] == {"freezing": True, "max_autotune": True}
    assert spec["expect"] == [{"close": {"to": "eager", "atol": 0.01, "rtol": 0.001}}]


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
""",
        decorators="@requires_gpu()\n@skipIfRocm",
    )
    assert spec["backends"] == ["cuda"]
    assert spec["context"] == ["no_grad"]
    checks = spec["expect"][1]["filecheck"]["checks"].splitlines()
    assert checks[0] == "CHECK: def call"
    assert checks[1].startswith("CHECK-NOT: extern {{[{]")
    assert checks[2].startswith("CHECK-COUNT-2: a{{\\[\\[}}0")


def test_a_module_in_a_compiled_function_is_compared_with_eager() -> None:
    spec = whole(
        """
class Mod(torch.nn.Module):
    def forward(self, x):
        return x + 1
mod = Mod().eval()
x = torch.ones(3)
@torch.compile
def foo(mod, x):
    return mod(x)
self.assertEqual(foo(mod, x), mod(x))
"""
    )
    assert spec["expect"] == [{"close": {"to": "eager"}}]
    assert spec["inputs"] == [{"module": "Mod", "eval": True}, {"ones": [3]}]


def test_a_converted_tensor_is_another_value() -> None:
    made = drafted("f = lambda x: x + 1\nx = torch.rand(4, 4)\ny = x.half()\nself.assertEqual(torch.compile(f)(x), f(y))")
    assert "to: eager" not in made.text


def test_exceptions() -> None:
    spec = whole(
        """
with self.assertRaisesRegex(RuntimeError, "no .* here"):
    torch.compile(lambda x: x.view(7))(torch.ones(3))
"""
    )
    assert spec["expect"] == [{"raises": {"type": "RuntimeError", "match": "no .* here"}}]


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("self.assertEqual(opt(a, b), fn(b, b))", ""),
        ("self.assertEqual(opt(a, b)[0].shape, (25,))", "shape"),
        ("opt(a, b)\nself.assertIn('x', str(open('/etc/passwd').read()))", "text that is computed"),
        ("opt(a, b)\nself.check_all(a)", "is not defined in the file"),
        ("with unittest.mock.patch('torch.add', None):\n    opt(a, b)\nopt(a, b)", "the context"),
        ("opt(a, b)\nassert counters['inductor']['nothing_of_this_name'] == 0", "unknown counter"),
        ("while a.sum() > 0:\n    pass\nopt(a, b)", "while"),
        ("opt(a, b)\na.add_(1)", "effect"),
    ],
)
def test_what_is_not_understood_is_named(statement: str, reason: str) -> None:
    made = drafted(PAIR + statement)
    if not reason:  # another call than the compiled one: compared as a value of its own, never with eager
        assert "to: eager" not in made.text
        return
    assert made.state != "whole"
    assert any(reason in lost.reason for lost in made.lost), made.lost
    if made.text:
        assert "# not carried: line " in made.text
        assert "in part" in spec_of(made)["summary"]


def test_a_comparison_of_another_function_is_never_one_with_eager() -> None:
    made = drafted(PAIR + "g = lambda x, y: (x * 3, y @ y)\nself.assertEqual(g(a, b), opt(a, b))")
    assert "to: eager" not in made.text


def test_a_mutated_variable_of_the_test_is_not_hidden() -> None:
    made = drafted(
        "n = 0\ndef f(x):\n    nonlocal n\n    n += 1\n    return x\nself.assertEqual(torch.compile(f)(torch.ones(2)), torch.ones(2))"
    )
    assert made.state == "none"


def named_specs(made: Draft) -> dict[str, dict[str, Any]]:
    assert made.state == "whole", made.lost
    for name, text in made.specs:
        assert problems_of(text, name) == []
    return {name: yaml.safe_load(text) for name, text in made.specs}


def test_a_parameter_that_changes_what_is_claimed_gives_a_spec_for_each_value() -> None:
    made = drafted(
        PAIR + "if cached:\n    self.assertEqual(opt(a, b), fn(a, b))\nelse:\n    with self.assertRaises(RuntimeError):\n        opt(a, b)",
        decorators='@parametrize("cached", (True, False))',
        arguments="self, cached",
    )
    found = named_specs(made)
    assert found["it-true"]["expect"] == [{"close": {"to": "eager"}}]
    assert found["it-false"]["expect"] == [{"raises": {"type": "RuntimeError"}}]
    assert "cached false" in found["it-false"]["summary"]


def test_parameters_that_change_together_give_a_spec_for_each_row() -> None:
    body = "x = torch.ones(n)\nopt = torch.compile(lambda x: x + 1)\nopt(x)\nself.assertEqual(metrics.generated_kernel_count, count)"
    made = drafted(body, decorators='@parametrize("n,count", [(3, 1), (4, 2)])', arguments="self, n, count")
    found = named_specs(made)
    assert found["it-3-1"]["inputs"] == [{"ones": [3]}]
    assert found["it-4-2"]["expect"] == [{"metric": {"generated_kernel_count": 2}}]


ROUNDS = """
x = torch.ones(3)
for mode in ("default", "max-autotune"):
    torch._dynamo.reset()
    self.assertEqual(torch.compile(lambda x: x + 1, mode=mode)(x), x + 1)
"""


def test_rounds_of_a_loop_with_different_options_are_specs() -> None:
    found = named_specs(drafted(ROUNDS))
    assert [spec.get("compile") for spec in found.values()] == [{"mode": "default"}, {"mode": "max-autotune"}]


def test_rounds_that_depend_on_each_other_stay_together() -> None:
    gathered = ROUNDS.replace("    torch._dynamo.reset()", "    seen.append(mode)")
    assert drafted("seen = []\n" + gathered).state != "whole"


def test_a_context_manager_of_the_file_is_read_around_the_block() -> None:
    text = HEAD + (
        "import contextlib\n\n\n@contextlib.contextmanager\ndef relaxed(tolerance):\n    with config.patch(freezing=True):\n"
        "        yield tolerance * 10\n\n\ndef test_it():\n    x = torch.ones(3)\n    f = lambda x: x + 1\n    with relaxed(0.5) as atol:\n"
        "        torch.testing.assert_close(torch.compile(f)(x), f(x), atol=atol, rtol=0)\n"
    )
    file = PythonFile.parse("test_some.py", text)
    made = draft(file, file.tests()[0], may_drive=False)
    assert made.state == "whole", made.lost
    spec = spec_of(made)
    assert spec["config"] == {"freezing": True}
    assert spec["expect"] == [{"close": {"to": "eager", "atol": 5.0, "rtol": 0}}]


def test_a_replaced_constant_of_torch_is_a_context_of_the_calls() -> None:
    spec = whole(
        "with unittest.mock.patch('torch._inductor.fx_passes.pad_mm._skip_do_bench_times', True):\n"
        "    x = torch.ones(3)\n    self.assertEqual(torch.compile(lambda x: x + 1)(x), x + 1)"
    )
    assert spec["context"] == [{"ref": "context_1"}]
    assert "pad_mm._skip_do_bench_times" in spec["prelude"]


def test_a_replacement_that_tells_the_test_something_is_not_carried() -> None:
    made = drafted(
        "seen = []\ndef spy(*args):\n    seen.append(args)\nx = torch.ones(3)\n"
        "with unittest.mock.patch('torch._inductor.fx_passes.pad_mm.should_pad_bench', spy):\n"
        "    torch.compile(lambda x: x + 1)(x)\nself.assertEqual(len(seen), 0)"
    )
    assert made.state != "whole"


def test_what_python_computes_of_results_is_computed_in_the_spec() -> None:
    spec = whole(PAIR + "out = opt(a, b)\nself.assertEqual(out[1].shape, (5, 5))\nself.assertTrue(out[0].sum() > -1)")
    assert [next(iter(step)) for step in spec["steps"]] == ["call", "api", "api"]
    assert [step["expect"] for step in spec["steps"][1:]] == [[{"equals": {"value_of_1": True}}], [{"equals": {"value_of_2": True}}]]
    assert spec["steps"][0]["call"]["as"] == "result_1"


def test_a_state_of_the_process_counts_when_it_is_asked() -> None:
    asked = "self.assertEqual(torch._inductor.utils.num_fw_fixed_arguments(1, 2), 1)"
    assert drafted(PAIR + "opt(a, b)\n" + asked).state == "whole"
    before = "before = torch._inductor.utils.num_fw_fixed_arguments(1, 2)\nopt(a, b)\nself.assertEqual(before, 1)"
    assert drafted(PAIR + before).state != "whole"


def test_failing_branches_are_claims() -> None:
    spec = whole(PAIR + "out = opt(a, b)\nif out[0].isnan().any():\n    self.fail('nan')")
    assert spec["steps"][1]["expect"] == [{"equals": {"value_of_1": False}}]


def test_backward_from_a_gradient() -> None:
    spec = whole(
        "x = torch.rand(4, requires_grad=True)\ny = x.clone().detach().requires_grad_(True)\ng = torch.rand(4)\nf = lambda x: x.sin()\n"
        "ref = f(x)\nref.backward(g)\nout = torch.compile(f)(y)\nout.backward(g)\nself.assertEqual(x.grad, y.grad)"
    )
    backward = spec["steps"][-1]
    assert backward["backward"] == {"gradient": "gradient_1"}
    assert backward["expect"] == [{"close": {"to": "eager"}}]


def test_arguments_that_a_call_changes() -> None:
    spec = whole(
        "def f(x):\n    x.add_(1)\nx = torch.ones(3)\ny = x.clone()\nf(x)\ntorch.compile(f)(y)\nself.assertEqual(x, y)",
    )
    assert spec["expect"] == [{"close": {"to": "eager"}}]
    other = drafted("def f(x):\n    x.add_(1)\nx = torch.ones(3)\ny = x.clone()\ntorch.compile(f)(y)\nself.assertEqual(x, y)")
    assert other.state != "whole"


def test_a_counting_backend() -> None:
    spec = whole(
        "cnt = torch._dynamo.testing.CompileCounterWithBackend('inductor')\nx = torch.ones(3)\nf = lambda x: x + 1\n"
        "opt = torch.compile(f, backend=cnt)\nself.assertEqual(opt(x), f(x))\nself.assertEqual(cnt.frame_count, 1)"
    )
    assert "compile" not in spec
    assert spec["expect"][1] == {"counter": {"stats.unique_graphs": 1}}


def test_decorators_that_a_function_of_the_file_puts_around_a_test() -> None:
    text = HEAD + (
        "\n\ndef patches(fn):\n    for patcher in [config.patch(freezing=True), config.patch(max_autotune=True)]:\n"
        "        fn = patcher(fn)\n    return fn\n\n\n@patches\ndef test_it():\n    x = torch.ones(3)\n    f = lambda x: x + 1\n"
        "    torch.testing.assert_close(torch.compile(f)(x), f(x))\n"
    )
    file = PythonFile.parse("test_some.py", text)
    assert spec_of(draft(file, file.tests()[0]))["config"] == {"freezing": True, "max_autotune": True}


def test_a_check_that_the_class_takes_over() -> None:
    text = (
        "import torch\nfrom inductor.test_torchinductor import check_model_cuda\nimport unittest\n\n\nclass TestIt(unittest.TestCase):\n"
        "    check_model_gpu = check_model_cuda\n\n    def test_it(self):\n        def fn(a):\n            return a + 1\n"
        "        self.check_model_gpu(fn, (torch.rand(3, device='cuda'),), check_lowp=False)\n"
    )
    file = PythonFile.parse("test_some.py", text)
    made = draft(file, file.tests()[0], may_drive=False)
    assert made.state == "whole", made.lost
    assert spec_of(made)["backends"] == ["cuda", "rocm"]


@pytest.mark.parametrize("test", ["TEST_ACL", "IS_MACOS"])
def test_conditions_of_the_platform(test: str) -> None:
    spec = whole(PAIR + f"opt(a, b)\nself.assertEqual(metrics.generated_kernel_count, 0 if {test} else 2)")
    assert spec["expect"] == [{"metric": {"generated_kernel_count": 2}}]


def test_a_name_with_several_values_is_not_guessed() -> None:
    text = HEAD + (
        "if torch.cuda.is_available():\n    KERNELS = 1\nelse:\n    KERNELS = 2\n\n\ndef test_it():\n"
        "    torch.compile(lambda x: x + 1)(torch.ones(3))\n    assert metrics.generated_kernel_count == KERNELS\n"
    )
    file = PythonFile.parse("test_some.py", text)
    made = draft(file, file.tests()[0], may_drive=False)
    assert made.state != "whole"
    assert any("does not define in one place" in lost.reason for lost in made.lost)


def test_library_calls_without_compilation() -> None:
    spec = whole("self.assertEqual(torch._inductor.utils.ceildiv(7, 2), 4)")
    assert spec["backends"] == ["host"]
    assert spec["steps"][0]["expect"] == [{"equals": {"value_of_1": 4}}]


def test_nothing_is_executed(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    file = tmp_path / "test_evil.py"
    file.write_text(
        f"{HEAD}open({str(marker)!r}, 'w').write('x')\n\n\ndef test_it():\n"
        f"    x = torch.ones(open({str(marker)!r}, 'w').write('y'))\n    torch.compile(lambda x: x)(x)\n"
    )
    new.main(options(tmp_path / "out", from_python=str(file)))
    assert not marker.exists()


def options(area: Path, name: str = "", **words: Any) -> NewOptions:
    given = {"template": "function", "backend": (), "from_python": "", "allow_partial": False, **words}
    return NewOptions(area=area, name=name, **given)


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_templates_validate(name: str) -> None:
    assert problems_of(template(name, ["cpu", "cuda"]), "it") == []


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
    text = HEAD + "".join(f"\n\ndef test_{index}():\n    {body}\n" for index, body in enumerate(bodies))
    (tmp_path / "t.py").write_text(text)
    assert new.main(options(tmp_path / "out", from_python=str(tmp_path / "t.py"), allow_partial=True)) == ExitCode.FAILED
    # a recursion that only the run would end becomes a spec whose step raises
    (tmp_path / "u.py").write_text(HEAD + "\n\ndef test_it():\n    def f(): return f()\n    x = torch.compile(f())\n")
    assert new.main(options(tmp_path / "out", from_python=str(tmp_path / "u.py"))) == ExitCode.OK


def test_exit_codes_of_partial_specs(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(HEAD + "def test_it():\n    y = torch.compile(lambda x: x)(torch.ones(2))\n    check(y)\n")
    place = str(tmp_path / "t.py")
    assert new.main(options(tmp_path / "a", from_python=f"{place}::test_it")) == ExitCode.FAILED
    assert new.main(options(tmp_path / "b", from_python=place, allow_partial=True)) == ExitCode.OK
    with pytest.raises(UsageError, match="did you mean 'test_it'"):
        new.main(options(tmp_path / "c", from_python=f"{place}::test_its"))


OPERATOR = """
@torch.library.custom_op("planted::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2
@double.register_fake
def _(x):
    return torch.empty_like(x)
f = lambda x: torch.ops.planted.double(x)
x = torch.ones(3)
self.assertEqual(torch.compile(f)(x), f(x))
"""


def test_operators_of_a_test_are_defined_in_the_prelude() -> None:
    prelude = whole(OPERATOR)["prelude"]
    assert prelude.index("@torch.library.custom_op('planted::double'") < prelude.index("@double.register_fake")


def test_a_scoped_library_is_defined_in_the_prelude() -> None:
    spec = whole(
        "with torch.library._scoped_library('planted', 'FRAGMENT') as lib:\n"
        "    torch.library.define('planted::triple', '(Tensor x) -> Tensor', lib=lib)\n"
        "    @torch.library.impl('planted::triple', 'cpu', lib=lib)\n"
        "    def triple(x):\n        return x * 3\n"
        "    f = lambda x: torch.ops.planted.triple(x)\n    x = torch.ones(3)\n    self.assertEqual(torch.compile(f)(x), f(x))"
    )
    lines = spec["prelude"].splitlines()
    assert "lib = torch.library.Library('planted', 'FRAGMENT')" in lines
    assert lines.index("torch.library.define('planted::triple', '(Tensor x) -> Tensor', lib=lib)") < lines.index("def triple(x):")


def test_an_input_of_two_later_calls_is_one_value() -> None:
    spec = whole(
        "f = torch.compile(lambda x: x + 1)\nf(torch.rand(3))\ny = torch.rand(4)\none = f(y)\ntwo = f(y)\nself.assertEqual(one, two)",
    )
    assert spec["let"] == {"value_1": {"rand": [4]}}
    assert [step["call"].get("inputs") for step in spec["steps"][1:]] == [[{"ref": "value_1"}]] * 2


@pytest.mark.parametrize(("backend", "name"), [("eager", "eager"), ("aot_eager", "dynamo"), ("inductor", "cpu")])
def test_other_backends_of_dynamo(backend: str, name: str) -> None:
    spec = whole(f"x = torch.ones(3)\nf = lambda x: x + 1\nself.assertEqual(torch.compile(f, backend={backend!r})(x), f(x))")
    assert spec["backends"] == [name]
    assert spec.get("compile", {}) == ({"backend": "aot_eager"} if name == "dynamo" else {})


def test_options_around_the_compiled_call_alone_are_carried() -> None:
    made = drafted(
        "x = torch.ones(3)\nwith config.patch(freezing=True):\n    f = torch.compile(lambda x: x + 1)\nself.assertEqual(f(x), x + 1)"
    )
    assert made.state != "whole"


def test_a_library_that_is_made_twice_is_not_carried() -> None:
    one = "with torch.library._scoped_library('planted', 'FRAGMENT') as lib:\n    lib.define('a(Tensor x) -> Tensor')\n"
    assert drafted(one + one + "x = torch.ones(3)\nself.assertEqual(torch.compile(lambda x: x + 1)(x), x + 1)").state != "whole"


@pytest.mark.parametrize("test", ["id(out[0]) != id(a)", "out[0].data_ptr() != a.data_ptr()", "out[0] is not a"])
def test_identities_are_not_carried(test: str) -> None:
    made = drafted(PAIR + f"out = opt(a, b)\nself.assertTrue({test})")
    assert made.state == "part"
