"""``lint``: a finding and a near miss of each rule, and the shipped specs."""

import itertools
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import GOOD
from tests.fakes import ROOT
from tests.fences import fences
from torch_conformance.cli.parser import main
from torch_conformance.language.read import spec_schema
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.tools.author.commands.lint import RULES, LintOptions, lint

pytestmark = pytest.mark.usefixtures("here")

OPTIONS = LintOptions(paths=(Path("specs"),), backends=(), select=(), ignore=(), json=False)


def write(**files: str) -> None:
    """Write specs: ``area__name`` is area/name.yaml."""
    for name, text in files.items():
        path = Path("specs", *name.replace("_", "-").split("--")).with_suffix(".yaml")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")


def found(rule: str, **changes: Any) -> list[str]:
    """Return the messages of one rule."""
    return [one.message for one in lint(replace(OPTIONS, select=(rule,), **changes))[0]]


def counts(rule: str, *texts: str) -> list[int]:
    """Return how many findings of one rule each of some specs has."""
    write(**{f"a__spec_{number}": text for number, text in enumerate(texts)})
    places = [one.position.file for one in lint(replace(OPTIONS, select=(rule,)))[0]]
    return [places.count(f"specs/a/spec-{number}.yaml") for number in range(len(texts))]


def spec(*changes: tuple[str, str], more: str = "") -> str:
    text = GOOD + more
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


OTHER = ("A product of two matrices is right", "Two matrices have a right product")


# -- matrix ----------------------------------------------------------------------------------------

MATRIX = ("inputs:", "matrix: {dtype: [float32, float16]}\nexclude: [EXCLUDE]\ninputs:")
USED = (
    "{rand: [4, 4]}, {rand: [4, 4]}",
    '{rand: [4, 4], dtype: "{{ dtype }}"}, {rand: [4, 4], dtype: "{{ dtype }}"}',
)


def test_unreachable_point() -> None:
    both = spec(MATRIX, USED, ("backends: [cpu]", "backends: [cpu, cuda]"))
    entries = ["{dtype: float16, reason: no kernel}", "{backend: cpu, reason: no kernel}"]
    near = "{dtype: float16, backend: cpu, reason: no kernel}"
    assert counts(
        "unreachable-point",
        *(both.replace("[EXCLUDE]", f"[{entry}]") for entry in (*entries, near)),
    ) == [1, 1, 0]
    assert found("unreachable-point") == [
        "every point with dtype = float16 is excluded",
        "every point of the backend 'cpu' is excluded",
    ]


# -- expectations that nothing judges --------------------------------------------------------------


JUDGED = [
    ("[cpu, rocm]", "filecheck: {when: {vendor: amd}, checks: 'CHECK: mfma'}", 0),
    ("[cpu, cuda]", "filecheck: {when: {vendor: amd}, checks: 'CHECK: mfma'}", 1),
    ("[cuda]", "filecheck: {when: {arch: gfx942}, checks: 'CHECK: mfma'}", 1),
    ("[cuda]", "filecheck: {when: {arch: sm_90}, checks: 'CHECK: mfma'}", 0),
    (
        "[cpu]",
        "counter: {inductor.fxgraph_cache_miss: [{when: {torch: '<2.11'}, value: 1}, {value: 2}]}",
        1,
    ),
    (
        "[cpu]",
        "counter: {inductor.fxgraph_cache_miss: [{when: {torch: '<2.12'}, value: 1}, {value: 2}]}",
        0,
    ),
    (
        "[cpu, cuda]",
        "counter: {inductor.fxgraph_cache_miss: [{when: {device: cuda}, value: 1}]}",
        0,
    ),
]


def test_unjudged_expectation() -> None:
    texts = [
        spec(
            ("backends: [cpu]", f"backends: {backends}"),
            ("{to: eager}}", f"{{to: eager}}}}, {{{expectation}}}"),
        )
        for backends, expectation, _ in JUDGED
    ]
    assert counts("unjudged-expectation", *texts) == [count for _, _, count in JUDGED]


def test_a_case_without_an_expectation_that_applies() -> None:
    write(
        a__one_two=spec(
            ("backends: [cpu]", "backends: [cpu, cuda]"),
            ("{to: eager}", "{to: eager, when: {device: cuda}}"),
        )
    )
    assert found("unjudged-expectation") == ["no expectation applies to a/one-two[backend=cpu]"]


# -- tolerances ------------------------------------------------------------------------------------


TOLERANCES = [
    ("{to: eager, atol: 1e-2, rtol: 1e-2}", 1),
    ("{to: eager, atol: 1e-3, rtol: 1e-3}", 0),
    ("{to: eager}", 0),
    ("{to: eager, atol: 1e-2, rtol: 1e-2}  # sums", 0),
]
REASONS = [
    ("expect:", "# a sum of many terms\nexpect:"),
    ("backends:", "covers: ['test_a.py::T::test_a']\nbackends:"),
    ("backends:", "# restates test_a.py::T::test_a\nbackends:"),
    (
        "{rand: [4, 4]}, {rand: [4, 4]}",
        "{rand: [4, 4], dtype: bfloat16}, {rand: [4, 4], dtype: bfloat16}",
    ),
]


def test_loose_tolerance() -> None:
    texts = [
        spec(("expect: [{close: {to: eager}}]", f"expect:\n  - close: {new}"))
        for new, _ in TOLERANCES
    ]
    reasons = [
        spec(change, ("{to: eager}", "{to: eager, atol: 1e-2, rtol: 1e-2}")) for change in REASONS
    ]
    assert counts("loose-tolerance", *texts, *reasons) == [count for _, count in TOLERANCES] + [
        0
    ] * len(REASONS)


# -- unused names ----------------------------------------------------------------------------------

PRELUDE = """\
prelude: |
  from math import pi, tau
  import os
  LIMIT = 3
  class Used: pass
  @register
  def decorated(): ...
  def register(function): return function
  def helper(): return helper
  def called(x): return (Used, LIMIT)
"""


# -- the examples of the reference -----------------------------------------------------------------


def test_the_examples_of_each_rule_are_a_finding_and_none() -> None:
    page = ROOT / "docs" / "reference" / "lint.md"
    assert re.findall("^## (.*)$", page.read_text(), re.MULTILINE) == list(RULES)
    for (name, form), fence in zip(
        itertools.product(RULES, ("bad", "good")), fences(page), strict=True
    ):
        own = yaml.safe_load(fence.text)
        dtype = {"dtype": "{{ dtype }}"} if "dtype" in own.get("matrix", {}) else {}
        base = {**yaml.safe_load(GOOD), "inputs": [{"rand": [4, 4], **dtype}] * 2, **own}
        if "steps" in own:
            del base["expect"]
        write(**{f"{form}__{name}": json.dumps(base)})
    found_at = {(one.rule, one.position.file) for one in lint(OPTIONS)[0]}
    for name in RULES:
        assert (name, f"specs/bad/{name}.yaml") in found_at
        assert (name, f"specs/good/{name}.yaml") not in found_at


BAD = spec(("{to: eager}", "{to: eager, atol: 1e-2, rtol: 1e-2}"))


# -- the command -----------------------------------------------------------------------------------


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    write(a__one_two=BAD)
    assert main(["lint", "specs", "--json"]) == ExitCode.FAILED
    assert spec_schema.describe(json.loads(capsys.readouterr().out), "lint") == []
    assert main(["lint", "specs"]) == ExitCode.FAILED
    assert "loose-tolerance: the tolerance is" in capsys.readouterr().out
    assert main(["lint", "specs", "--json", "--ignore", "loose-tolerance"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"format": 1, "specs": 1, "findings": []}
    assert main(["lint", "specs", "--select", "loose-tolerence"]) == ExitCode.USAGE
    assert "did you mean 'loose-tolerance'?" in capsys.readouterr().err
    write(a__one_two=GOOD + "unknown: 1\n")
    assert main(["lint", "specs"]) == ExitCode.USAGE


def test_the_shipped_specs_have_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    findings, specs = lint(replace(OPTIONS, paths=()))
    assert [f"{one.position}: {one.rule}: {one.message}" for one in findings] == []
    assert specs > 300
