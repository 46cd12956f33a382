"""``lint``: a finding and a near miss of each rule, and the shipped specs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.cli.parser import main
from runner.language.backends import load_backends
from runner.language.load import load
from runner.language.read import spec_schema
from runner.model.outcomes import ExitCode
from runner.tools.author.commands.lint import LintOptions, lint
from runner.tools.author.lint_rules import RULES, may_hold
from tests.conftest import GOOD
from tests.fakes import ROOT

OPTIONS = LintOptions(paths=(Path("specs"),), backends=(), select=(), ignore=(), json=False)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


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


# -- claims -----------------------------------------------------------------------------------------------------------


SAME = [
    ("  def fn(x, y):\n", "  def fn(x, y):  # a comment\n\n"),
    ("backends: [cpu]", "backends: [cpu]\ntags: [gemm]\ncovers: ['test_a.py::T::test_a']"),
    ("x @ y", "(x @ y)"),
]
NOT_SAME = [
    ("x @ y", "y @ x"),
    ("[4, 4]", "[5, 5]"),
    ("backends: [cpu]", "backends: [cuda]"),
    ("backends: [cpu]", "backends: [cpu]\nconfig: {max_autotune: true}"),
    ("{to: eager}", "{to: eager, exact: true}"),
]


def test_same_body() -> None:
    others = [spec(OTHER, change) for change in (*SAME, *NOT_SAME)]
    assert counts("same-body", GOOD, *others) == [0, *[1] * len(SAME), *[0] * len(NOT_SAME)]


def test_specs_of_areas_with_other_defaults_are_no_copies() -> None:
    write(a__one_two=GOOD, b__one_two=spec(OTHER))
    Path("specs/b/_defaults.yaml").write_text("config: {max_autotune: true}\n")
    assert found("same-body") == []


# -- matrix -----------------------------------------------------------------------------------------------------------

MATRIX = ("inputs:", "matrix: {dtype: [float32, float16]}\nexclude: [EXCLUDE]\ninputs:")
USED = ("{rand: [4, 4]}, {rand: [4, 4]}", '{rand: [4, 4], dtype: "{{ dtype }}"}, {rand: [4, 4], dtype: "{{ dtype }}"}')


def test_unreachable_point() -> None:
    both = spec(MATRIX, USED, ("backends: [cpu]", "backends: [cpu, cuda]"))
    entries = ["{dtype: float16, reason: no kernel}", "{backend: cpu, reason: no kernel}"]
    near = "{dtype: float16, backend: cpu, reason: no kernel}"
    assert counts("unreachable-point", *(both.replace("[EXCLUDE]", f"[{entry}]") for entry in (*entries, near))) == [1, 1, 0]
    assert found("unreachable-point") == ["every point with dtype = float16 is excluded", "every point of the backend 'cpu' is excluded"]


# -- expectations that nothing judges ---------------------------------------------------------------------------------


JUDGED = [
    ("[cpu]", "filecheck: {when: {vendor: amd}, checks: 'CHECK: mfma'}", 1),
    ("[cpu, rocm]", "filecheck: {when: {vendor: amd}, checks: 'CHECK: mfma'}", 0),
    ("[cpu, cuda]", "filecheck: {when: {vendor: amd}, checks: 'CHECK: mfma'}", 1),
    ("[cuda]", "filecheck: {when: {arch: gfx942}, checks: 'CHECK: mfma'}", 1),
    ("[cuda]", "filecheck: {when: {arch: sm_90}, checks: 'CHECK: mfma'}", 0),
    ("[cpu]", "counter: {inductor.fxgraph_cache_miss: [{when: {torch: '<2.11'}, value: 1}, {value: 2}]}", 1),
    ("[cpu]", "counter: {inductor.fxgraph_cache_miss: [{when: {torch: '<2.12'}, value: 1}, {value: 2}]}", 0),
    ("[cpu, cuda]", "counter: {inductor.fxgraph_cache_miss: [{when: {device: cuda}, value: 1}]}", 0),
]


def test_unjudged_expectation() -> None:
    texts = [
        spec(("backends: [cpu]", f"backends: {backends}"), ("{to: eager}}", f"{{to: eager}}}}, {{{expectation}}}"))
        for backends, expectation, _ in JUDGED
    ]
    assert counts("unjudged-expectation", *texts) == [count for _, _, count in JUDGED]


DEAD_CONDITIONS = [
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {torch: '<2.11'}, set: {cpp.threads: 2}}]", 1),
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {device: cpu}, set: {cpp.threads: 2}}]", 0),
    ("[cpu, cuda]", "config: [{cpp.threads: 1}, {when: {device: cpu}, set: {cpp.threads: 2}}]", 0),
    ("[cuda]", "config: [{cpp.threads: 1}, {when: {vendor: nvidia}, set: {cpp.threads: 2}}]", 0),
    ("[cuda]", "config: [{cpp.threads: 1}, {when: {vendor: amd}, set: {cpp.threads: 2}}]", 1),
    ("[cuda]", "config: [{cpp.threads: 1}, {when: {arch: sm_90}, set: {cpp.threads: 2}}]", 0),
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {torch: '>=2.11'}, set: {cpp.threads: 2}}]", 0),
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {torch: '>=2.12'}, set: {cpp.threads: 2}}]", 0),
    ("[cpu]", "requires: [{torch: '>=2.12'}]\nconfig: [{cpp.threads: 1}, {when: {torch: '>=2.12'}, set: {cpp.threads: 2}}]", 0),
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {device: cpu, torch: '>=2.12'}, set: {cpp.threads: 2}}]", 0),
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {python: '>=3.11'}, set: {cpp.threads: 2}}]", 0),
]


def test_dead_condition() -> None:
    texts = [spec(("backends: [cpu]", f"backends: {backends}"), more=f"{more}\n") for backends, more, _ in DEAD_CONDITIONS]
    assert counts("dead-condition", *texts) == [count for _, _, count in DEAD_CONDITIONS]


TWO_CALLS = """\
summary: A function is called twice
backends: [cpu, cuda]
function: |
  def fn(x): return x + 1
inputs: [{rand: [4]}]
steps:
  - {call: {}, expect: [{close: {to: eager}}, {counter: {inductor.fxgraph_cache_miss: 1}}]}
  - {call: {}, when: {device: cuda}, expect: [{close: {to: eager, when: {device: cuda}}}, {counter: {inductor.fxgraph_cache_miss: 0}}]}
"""


def test_a_condition_within_the_condition_of_its_step() -> None:
    other = TWO_CALLS.replace("when: {device: cuda}, expect", "when: {device: cpu}, expect")
    never = TWO_CALLS.replace("[cpu, cuda]", "[cpu]").replace("device: cuda", "vendor: amd")
    assert counts("dead-condition", TWO_CALLS, other, never) == [0, 0, 1]
    assert found("dead-condition") == ["no case of the spec fulfils this condition"]


def test_a_case_without_an_expectation_that_applies() -> None:
    write(a__one_two=spec(("backends: [cpu]", "backends: [cpu, cuda]"), ("{to: eager}", "{to: eager, when: {device: cuda}}")))
    assert found("unjudged-expectation") == ["no expectation applies to a/one-two[backend=cpu]"]


def test_an_unknown_vendor_counts_as_possible() -> None:
    write(a__one_two=spec(("backends: [cpu]", "backends: [cpu, cuda, rocm]")))
    cases = {case.backend: case for case in load([Path("specs")]).cases}
    backends = load_backends()
    assert [may_hold({"vendor": "amd"}, cases[name], backends) for name in ("cpu", "cuda", "rocm")] == [False, False, True]
    assert may_hold({"vendor": "amd"}, replace(cases["cuda"], requires=()), backends)


# -- tolerances -------------------------------------------------------------------------------------------------------


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
    ("{rand: [4, 4]}, {rand: [4, 4]}", "{rand: [4, 4], dtype: bfloat16}, {rand: [4, 4], dtype: bfloat16}"),
]


def test_loose_tolerance() -> None:
    texts = [spec(("expect: [{close: {to: eager}}]", f"expect:\n  - close: {new}")) for new, _ in TOLERANCES]
    reasons = [spec(change, ("{to: eager}", "{to: eager, atol: 1e-2, rtol: 1e-2}")) for change in REASONS]
    assert counts("loose-tolerance", *texts, *reasons) == [count for _, count in TOLERANCES] + [0] * len(REASONS)


# -- unused names -----------------------------------------------------------------------------------------------------

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


def test_unused_prelude_name() -> None:
    write(a__one_two=spec(("x @ y", "called(x @ y) + tau"), more=PRELUDE))
    assert found("unused-prelude-name") == ["nothing in the spec uses 'pi'", "nothing in the spec uses 'helper'"]
    write(a__one_two=spec(("x @ y", "called(x @ y) + tau * pi + helper()"), more=PRELUDE))
    assert found("unused-prelude-name") == []


def test_the_prelude_of_an_area_is_compared_with_all_its_specs() -> None:
    write(a__one_two=spec(("x @ y", "helper(x @ y)")), a__one_three=spec(OTHER))
    Path("specs/a/_defaults.yaml").write_text("prelude: |\n  def helper(x): return x\n  def other(x): return x\n")
    assert found("unused-prelude-name") == ["nothing in the 2 specs that inherit the prelude uses 'other'"]
    assert found("unused-prelude-name", paths=(Path("specs/a/one-two.yaml"),)) == []


STEPS = """\
summary: Two functions compute the same
backends: [cpu]
let: {kept: {value: 3}}
functions:
  one: "def one(x, y): return x + y"
  two: "def two(x, y): return x + y"
inputs: [{rand: [4]}, {ref: kept}]
steps:
  - call: {function: one}
    expect: [{close: {to: eager}}]
"""


def test_unused_function() -> None:
    write(a__one_two=STEPS)
    assert found("unused-function") == ["no step calls the function 'two'"]
    write(a__one_two=STEPS + "  - call: {function: two, inputs: [{rand: [4]}, {ref: kept}]}\n")
    assert found("unused-function") == []


# -- the examples of the reference -------------------------------------------------------------------------------------

OF_SPECS = [rule for rule in RULES.values() if not rule.bad.startswith("#")]


def test_the_examples_of_each_rule_are_a_finding_and_none() -> None:
    for rule in OF_SPECS:
        for form, text in (("bad", rule.bad), ("good", rule.good)):
            own = yaml.safe_load(text)
            dtype = {"dtype": "{{ dtype }}"} if "dtype" in own.get("matrix", {}) else {}
            base = {**yaml.safe_load(GOOD), "inputs": [{"rand": [4, 4], **dtype}] * 2, **own}
            for gone in (["function"] if "functions" in own else []) + (["expect"] if "steps" in own else []):
                del base[gone]
            write(**{f"{form}__{rule.id}": json.dumps(base)})
    found_at = {(one.rule, one.position.file) for one in lint(OPTIONS)[0]}
    for rule in OF_SPECS:
        assert (rule.id, f"specs/bad/{rule.id}.yaml") in found_at
        assert (rule.id, f"specs/good/{rule.id}.yaml") not in found_at


def test_most_rules_have_such_examples() -> None:
    assert len(OF_SPECS) >= 6
    assert all(isinstance(yaml.safe_load(text), dict | list | None) for rule in RULES.values() for text in (rule.bad, rule.good))


BAD = spec(("{to: eager}", "{to: eager, atol: 1e-2, rtol: 1e-2}"))


# -- the command ------------------------------------------------------------------------------------------------------


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


@pytest.mark.usefixtures("shipped_once")
def test_the_shipped_specs_have_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    findings, specs = lint(replace(OPTIONS, paths=()))
    assert [f"{one.position}: {one.rule}: {one.message}" for one in findings] == []
    assert specs > 300
