"""Tests whose Python drives torch: one step runs it, each assertion is an expectation, and nothing that asserts is left behind."""

import ast
import re
from typing import Any

import pytest
import yaml

from runner.language.authoring.driven.recorder import recorder
from runner.language.authoring.driven.spec import driven
from runner.language.authoring.driven.texts import pattern
from runner.language.authoring.from_python import draft, problems_of
from runner.language.authoring.python_file import PythonFile
from runner.language.authoring.reading import Reading
from runner.language.authoring.rules import RULES
from runner.language.authoring.values import Function, NotCarried

HEAD = """\
import unittest
import torch
from torch._dynamo import testing
from torch._dynamo.utils import counters
from torch._inductor.utils import run_and_get_code
from torch.testing import FileCheck
from torch.testing._internal.inductor_utils import GPU_TYPE, requires_gpu

"""


def parsed(body: str, *, helpers: str = "", marks: str = "") -> PythonFile:
    """Return a file with one test, below its helpers."""
    lines = "".join(f"        {line}\n" for line in body.strip("\n").split("\n"))
    above = "".join(f"    {line}\n" for line in (helpers.strip("\n") + "\n" + marks).split("\n") if line.strip())
    return PythonFile.parse("test_some.py", f"{HEAD}class TestSome(unittest.TestCase):\n{above}    def test_it(self):\n{lines}")


def spec_of(body: str, **words: str) -> dict[str, Any]:
    file = parsed(body, **words)
    found: dict[str, Any] = yaml.safe_load(driven(Reading(file=file, test=file.tests()[0], rules=RULES)))
    return found


def expected(body: str, **words: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = spec_of(body, **words)["steps"][0]["expect"]
    return found


COMPILED = "f = torch.compile(lambda x: x + 1)\nx = torch.ones(4)\n"
PAIR = {"of": "seen.line_15.actual", "to": "seen.line_15.expected"}


@pytest.mark.parametrize(
    ("assertion", "wanted"),
    [
        ("self.assertEqual(f(x), x + 1)", {"close": PAIR}),
        ("self.assertEqual(f(x), x + 1, atol=0.1, rtol=0.2)", {"close": {**PAIR, "atol": 0.1, "rtol": 0.2}}),
        ("torch.testing.assert_close(f(x), x + 1)", {"close": {**PAIR, "equal_nan": False}}),
        ("self.assertTrue(torch.allclose(f(x), x, 0.5, 0.25))", {"close": {**PAIR, "rtol": 0.5, "atol": 0.25, "equal_nan": False}}),
        ("self.assertEqual(len(counters), 3)", {"equals": {"seen.line_15": 3}}),
        ("self.assertEqual(3, len(counters))", {"equals": {"seen.line_15": 3}}),
        ("assert x.sum() > 3", {"equals": {"seen.line_15": True}}),
        ("self.assertFalse(x.is_cuda)", {"equals": {"seen.line_15": False}}),
        ("self.assertIsNone(x.grad)", {"equals": {"seen.line_15": True}}),
        ("self.assertExpectedInline(x.dtype, 'torch.float32')", {"equals": {"seen.line_15": "torch.float32"}}),
        ("self.assertRegex(str(x), 'tensor')", {"text": {"of": "seen.line_15", "matches": "tensor"}}),
        ("FileCheck().check('def call').run(str(x))", {"text": {"of": "seen.line_15", "contains": "def call"}}),
        ("FileCheck().check_count('a', 2, exactly=True).run(str(x))", {"text": {"of": "seen.line_15", "contains": "a", "count": 2}}),
        ("FileCheck().check_not('b').run(str(x))", {"equals": {"seen.line_15": True}}),
        ("with self.assertRaisesRegex(ValueError, 'no'):\n    f(x)", {"text": {"of": "seen.line_15", "matches": "no"}}),
        ("self.assertRaises(ValueError, f, x)", {"equals": {"seen.line_15": True}}),
        ("self.assertEqual(f(x), x, atol=tol(x), rtol=0.1)", {"equals": {"seen.line_15": True}}),
        ("for y in (1, 2):\n    self.assertEqual(y, 1)", {"close": {"of": "seen.line_16.actual", "to": "seen.line_16.expected"}}),
        ("if x.sum() > 2:\n    self.assertEqual(f(x), x)", {"close": {"of": "seen.line_16.actual", "to": "seen.line_16.expected"}}),
    ],
)
def test_each_assertion_is_an_expectation(assertion: str, wanted: dict[str, Any]) -> None:
    tolerance = "def tol(x):\n    return float(x.sum())\n" if "tol(" in assertion else "\n\n"
    assert expected(COMPILED + tolerance + assertion) == [wanted]


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        ("check = self.assertEqual\ncheck(f(x), x)", "nothing can be kept"),
        ("self.assertEqual(torch.ones(2, device='xpu'), torch.compile(len, backend='unheard')([1]))", "the dynamo backend 'unheard'"),
        ("self.assertLogs('torch')", "the assertion 'assertLogs'"),
        ("hook = lambda y: self.assertEqual(y, x)\nf(x)", "nothing can be kept"),
        ("self.check_all(f, x)", "'self.check_all' is not defined in the file"),
        ("if x.sum() > 2:\n    self.skipTest('why')", "a skip under a condition"),
        ("try:\n    f(x)\nexcept ValueError:\n    self.assertEqual(x, 1)", "where an exception is handled"),
        ("self.assertEqual(f(x), x, strange=1)", "the argument 'strange'"),
        ("mock = unittest.mock.Mock()\nmock.assert_called_once()", "the assertion 'assert_called_once'"),
        ("FileCheck().check_source_highlighted('a').run(str(x))", "check_source_highlighted"),
        ("run_and_get_code(self, f)\nself.assertEqual(f(x), x)", "may assert something"),
    ],
)
def test_what_cannot_be_kept_is_not_carried(body: str, reason: str) -> None:
    above = COMPILED if "torch.compile" not in body else "x = 1\n"
    with pytest.raises(NotCarried, match=reason):
        spec_of(above + body)


def test_helpers_of_the_class_and_its_set_up_come_along() -> None:
    set_up = "limit = 2\ndef setUp(self):\n    super().setUp()\n    torch._dynamo.reset()\n"
    helpers = f"{set_up}def check(self, y):\n    self.assertEqual(y, self.limit)"
    spec = spec_of(COMPILED + "self.check(f(x))", helpers=helpers)
    assert "super()" not in spec["prelude"]
    assert "limit = 2" in spec["prelude"]
    assert len(spec["steps"][0]["expect"]) == 1
    names = {part.attr for part in ast.walk(ast.parse(spec["prelude"])) if isinstance(part, ast.Attribute)}
    assert not [name for name in names if name.startswith("assert")]


@pytest.mark.parametrize(
    ("body", "marks", "backends"),
    [
        (COMPILED + "self.assertEqual(f(x), x)", "", ["cpu"]),
        (COMPILED + "self.assertEqual(f(x.to(GPU_TYPE)), x)", "", ["cuda", "rocm"]),
        (COMPILED + "self.assertEqual(f(x.to(self.device)), x)", "", ["cpu", "cuda", "rocm"]),
        (COMPILED + "self.assertEqual(f(x.to(self.device)), x)", "@requires_gpu()", ["cuda", "rocm"]),
        ("f = torch.compile(len, backend='eager')\nself.assertEqual(f([1]), 1)", "", ["eager"]),
        ("n = testing.CompileCounter()\nf = torch.compile(len, backend=n)\nself.assertEqual(f([1]), 1)", "", ["eager"]),
        ("self.assertEqual(len(counters), 0)", "", ["host"]),
        ("self.assertEqual(torch.ones(2, device='cuda').sum(), 2)", "", ["host-cuda"]),
    ],
)
def test_backends_follow_devices_and_what_is_compiled(body: str, marks: str, backends: list[str]) -> None:
    assert spec_of(body, marks=marks)["backends"] == backends


def test_assertions_under_open_conditions_are_one_list() -> None:
    body = COMPILED + "if x.sum() > 2:\n    self.assertEqual(f(x), x, atol=1.0, rtol=0.5)\nelse:\n    self.assertTrue(x.is_cuda)"
    alone, joined = spec_of(body), spec_of(body + "\nself.assertEqual(x.dim(), 1)")
    (only,) = alone["steps"][0]["expect"]
    assert only == {"close": {"of": "seen.line_14.actual", "to": "seen.line_14.expected"}}
    assert "'begun'" not in alone["prelude"]
    assert joined["steps"][0]["expect"] == [only, {"equals": {"seen.line_17": 1}}]
    assert "keep_pair('line_14', 'begun', 'begun', again=True)" in joined["prelude"]


def test_what_is_kept_is_a_copy_in_which_none_and_empty_lists_are_seen() -> None:
    scope: dict[str, Any] = {"seen_values": {}, "torch": type("Torch", (), {"Tensor": bytes})}
    for made in recorder().values():
        if isinstance(made, Function):
            exec(compile(ast.unparse(made.node), "prelude", "exec"), scope)
    mutable = [1, [2]]
    scope["keep_seen"]("one", mutable)
    scope["keep_pair"]("two", None, [])
    scope["keep_equal"]("three", 1, 1, again=True)
    scope["keep_equal"]("three", 2, 3, again=True)
    mutable[1] = 5
    seen = scope["seen_values"]
    assert (seen["one"], seen["two"]) == ([1, [2]], {"actual": "None", "expected": "[]"})
    assert seen["three"] == {"actual": [1, 2], "expected": [1, 3]}
    with pytest.raises(RuntimeError, match="twice"):
        scope["keep_seen"]("one", 1)
    with pytest.raises(TypeError, match="cannot be compared"):
        scope["keep_seen"]("four", object())


def test_a_test_that_claims_nothing_is_not_carried() -> None:
    with pytest.raises(NotCarried, match="asserts nothing"):
        spec_of("x = torch.ones(2)")


def test_a_driven_draft_is_whole_and_validates() -> None:
    file = parsed(COMPILED + "n = 0\nwhile n < 2:\n    n += 1\nself.assertEqual(f(x), x + 1)")
    made = draft(file, file.tests()[0])
    assert (made.state, made.lost) == ("whole", ())
    assert problems_of(made.text, "it") == []
    assert draft(file, file.tests()[0], may_drive=False).state != "whole"


DIRECTIVES = [
    ([("check", "a", 1), ("check", "b", 1)], "xaxb", "xbxa"),
    ([("check", "a", 1), ("check_not", "z", 1), ("check", "b", 1)], "a.b.z", "a.z.b"),
    ([("check", "a", 1), ("check_not", "z", 1), ("check", "b", 1)], "a.b", "a.z.b a.b"),
    ([("check_count", "a", -2)], "a a", "a a a"),
    ([("check_count", "a", 2), ("check", "b", 1)], "a a a b", "a b"),
    ([("check", "a", 1), ("check_next", "b", 1)], "a\nxb", "a\n\nb"),
    ([("check", "a", 1), ("check_same", "b", 1)], "a b", "a\nb"),
    ([("check", "a.c", 1), ("check_regex", "b+", 1)], "a.c bb", "abc bb"),
]


@pytest.mark.parametrize(("directives", "right", "wrong"), DIRECTIVES)
def test_directives_find_the_first_place_of_each(directives: list[tuple[str, str, int]], right: str, wrong: str) -> None:
    """Both forms agree: the pattern of the spec, and the function of the prelude for texts that only the run knows."""
    made = recorder()["has_directives"]
    assert isinstance(made, Function)
    scope: dict[str, Any] = {}
    exec(compile(ast.unparse(made.node), "prelude", "exec"), scope)
    for text, fits in ((right, True), (wrong, False)):
        assert bool(re.search(pattern(directives), text)) is fits
        assert scope["has_directives"](text, directives) is fits
