"""``lint``: a finding and a near miss of each rule, suppressions, fixes, and the shipped specs."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.cli.parser import main
from runner.core.diagnostics import Position
from runner.core.exit_codes import ExitCode
from runner.core.options import LintOptions
from runner.execute.base import Execution, Job
from runner.language.backends import load_backends
from runner.language.lint.base import Closeness, Finding, RunFacts, Scene, Spec, Weakness
from runner.language.lint.conditions import may_hold
from runner.language.lint.table import RULES, findings_of
from runner.language.load import inspect, load
from runner.language.read import schema
from runner.language.waivers import WaiverFiles
from runner.run.linting import lint
from tests.conftest import GOOD
from tests.fakes import ENDED, ROOT, close_facts, close_leaf, observation, seen, use_executor

OPTIONS = LintOptions(paths=(Path("specs"),), backends=(), waivers=(), run=None, select=(), ignore=(), fix=False, json=False)
WAIVER = (
    "  - {cases: 'CASES', failure: {type: counter, match: 'miss 1, observed 2'}, reason: A known one, issue: ISSUE, until: 2099-01-01}\n"
)
LINK = "https://github.com/pytorch/pytorch/issues/149743"


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
    return [one.message for one in lint(replace(OPTIONS, select=(rule,), **changes)).findings]


def counts(rule: str, *texts: str) -> list[int]:
    """Return how many findings of one rule each of some specs has."""
    write(**{f"a__spec_{number}": text for number, text in enumerate(texts)})
    places = [one.position.file for one in lint(replace(OPTIONS, select=(rule,))).findings]
    return [places.count(f"specs/a/spec-{number}.yaml") for number in range(len(texts))]


def spec(*changes: tuple[str, str], more: str = "") -> str:
    text = GOOD + more
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


OTHER = ("A product of two matrices is right", "Two matrices have a right product")


# -- claims -----------------------------------------------------------------------------------------------------------


def test_same_summary() -> None:
    write(a__one_two=GOOD, a__one_three=spec(("is right", "is  RIGHT."), ("4, 4", "5, 5")), a__one_four=spec(("is right", "is wrong")))
    (message,) = found("same-summary")
    assert message.startswith("a/one-three says the same")


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


# -- waivers ----------------------------------------------------------------------------------------------------------

COUNTED = spec(("close: {to: eager}", "counter: {inductor.fxgraph_cache_miss: 1}"))


def waivers(*entries: str, cases: str = "a/*", issue: str = LINK) -> dict[str, Any]:
    text = "waivers:\n" + "".join(one.replace("CASES", cases).replace("ISSUE", issue) for one in entries)
    Path("known.yaml").write_text(text, encoding="utf-8")
    return {"waivers": (Path("known.yaml"),)}


DEAD = [
    ("CASES", "a/*", ""),
    ("CASES", "b/*", "is for none of the 1 cases"),
    ("failure:", "when: {device: cuda}, failure:", "condition of the waiver holds for none of its 1 cases"),
    ("failure:", "when: {device: cpu}, failure:", ""),
    ("failure:", 'when: {torch: "<2.11"}, failure:', "condition of the waiver holds for none"),
    ("failure:", 'when: {torch: "<2.12"}, failure:', ""),
    ("type: counter", "type: close", "expects anything of the type close"),
    ("type: counter", "type: crash", ""),
]


def test_dead_waiver() -> None:
    write(a__one_two=COUNTED)
    options = replace(OPTIONS, select=("dead-waiver",), **waivers(*(WAIVER.replace(old, new) for old, new, _ in DEAD)))
    messages = {one.position.line: one.message for one in lint(options).findings}
    for line, (_, new, message) in enumerate(DEAD, start=2):
        assert (line in messages) is bool(message), new
        assert message in messages.get(line, ""), new


def test_shipped_waivers_are_not_compared_with_other_specs() -> None:
    write(a__one_two=COUNTED)
    assert found("dead-waiver") == []


def test_issue_link() -> None:
    write(a__one_two=COUNTED)
    sound = [LINK, "docs/reference/defects.md#in-torch-211"]
    wrong = ["JIRA-123", "https://github.com/pytorch/pytorch/issues/123456", '"#0"']
    options = replace(OPTIONS, select=("issue-link",), **waivers(*(WAIVER.replace("ISSUE", one) for one in (*sound, *wrong))))
    assert [one.position.line for one in lint(options).findings] == [4, 5, 6]


# -- matrix -----------------------------------------------------------------------------------------------------------

MATRIX = ("inputs:", "matrix: {dtype: [float32, float16]}\nexclude: [EXCLUDE]\ninputs:")
USED = ("{rand: [4, 4]}, {rand: [4, 4]}", '{rand: [4, 4], dtype: "{{ dtype }}"}, {rand: [4, 4], dtype: "{{ dtype }}"}')


def test_unreachable_point() -> None:
    both = spec(MATRIX, USED, ("backends: [cpu]", "backends: [cpu, cuda]"))
    entries = ["{dtype: float16, reason: no kernel}", "{backend: cpu, reason: no kernel}"]
    near = "{dtype: float16, backend: cpu, reason: no kernel}"
    assert counts("unreachable-point", *(both.replace("[EXCLUDE]", f"[{entry}]") for entry in (*entries, near))) == [1, 1, 0]
    assert found("unreachable-point") == ["every point with dtype = float16 is excluded", "every point of the backend 'cpu' is excluded"]


def test_versions_that_exclude_each_other() -> None:
    texts = [spec(("inputs:", f'requires: [{{torch: ">=2.12"}}, {{torch: "{other}"}}]\ninputs:')) for other in ("<2.12", "<2.13")]
    assert counts("unreachable-point", *texts) == [1, 0]


def excluded(*entries: str) -> str:
    lines = "".join(f"  # comment of {number}\n  - {entry}\n" for number, entry in enumerate(entries))
    return spec(MATRIX, USED, ("backends: [cpu]", "backends: [cpu, cuda]"), ("exclude: [EXCLUDE]\n", f"exclude:\n{lines}"))


CPU16, ALL16 = "{backend: cpu, dtype: float16, reason: slow}   # why", "{dtype: float16, reason: no kernel}"


def test_redundant_exclusion() -> None:
    write(a__one_two=excluded(CPU16, ALL16), a__one_three=excluded(CPU16))
    (one,) = lint(replace(OPTIONS, select=("redundant-exclusion",))).findings
    assert (one.position.line, one.fix is not None) == (9, True)


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


CONSTANT = [
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {torch: '<2.11'}, set: {cpp.threads: 2}}]", 1),
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {device: cpu}, set: {cpp.threads: 2}}]", 1),
    ("[cpu, cuda]", "config: [{cpp.threads: 1}, {when: {device: cpu}, set: {cpp.threads: 2}}]", 0),
    ("[cuda]", "config: [{cpp.threads: 1}, {when: {vendor: nvidia}, set: {cpp.threads: 2}}]", 1),
    ("[cuda]", "config: [{cpp.threads: 1}, {when: {vendor: amd}, set: {cpp.threads: 2}}]", 1),
    ("[cuda]", "config: [{cpp.threads: 1}, {when: {arch: sm_90}, set: {cpp.threads: 2}}]", 0),
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {torch: '>=2.11'}, set: {cpp.threads: 2}}]", 1),
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {torch: '>=2.12'}, set: {cpp.threads: 2}}]", 0),
    ("[cpu]", "requires: [{torch: '>=2.12'}]\nconfig: [{cpp.threads: 1}, {when: {torch: '>=2.12'}, set: {cpp.threads: 2}}]", 1),
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {device: cpu, torch: '>=2.12'}, set: {cpp.threads: 2}}]", 0),
    ("[cpu]", "config: [{cpp.threads: 1}, {when: {python: '>=3.11'}, set: {cpp.threads: 2}}]", 0),
]


def test_constant_condition() -> None:
    texts = [spec(("backends: [cpu]", f"backends: {backends}"), more=f"{more}\n") for backends, more, _ in CONSTANT]
    assert counts("constant-condition", *texts) == [count for _, _, count in CONSTANT]


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
    assert counts("constant-condition", TWO_CALLS, other, never) == [1, 0, 1]
    assert found("constant-condition") == ["every case fulfils this condition", "no case of the spec fulfils this condition"]


def test_repeated_expectation() -> None:
    twice = TWO_CALLS.replace("[{close: {to: eager}}, ", "[{counter: {inductor.fxgraph_cache_miss: 1}}, {close: {to: eager}}, ")
    value = twice.replace("[{counter: {inductor.fxgraph_cache_miss: 1}}", "[{counter: {inductor.fxgraph_cache_miss: 2}}")
    both_steps = TWO_CALLS.replace("cache_miss: 0", "cache_miss: 1")
    assert counts("repeated-expectation", twice, value, both_steps) == [1, 0, 0]
    (message,) = found("repeated-expectation")
    assert message == "line 7 expects the same counter of this step"


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
NO_REASON = ("expect:", "# lint: ignore spec-name -- it is no reason\nexpect:")
REASONS = [
    ("expect:", "# a sum of many terms\nexpect:"),
    ("backends:", "covers: ['test_a.py::T::test_a']\nbackends:"),
    ("backends:", "# restates test_a.py::T::test_a\nbackends:"),
    ("{rand: [4, 4]}, {rand: [4, 4]}", "{rand: [4, 4], dtype: bfloat16}, {rand: [4, 4], dtype: bfloat16}"),
]


def test_loose_tolerance() -> None:
    texts = [spec(("expect: [{close: {to: eager}}]", f"expect:\n  - close: {new}")) for new, _ in TOLERANCES]
    reasons = [spec(change, ("{to: eager}", "{to: eager, atol: 1e-2, rtol: 1e-2}")) for change in REASONS]
    wrong = spec(NO_REASON, ("{to: eager}", "{to: eager, atol: 1e-2, rtol: 1e-2}"))
    assert counts("loose-tolerance", *texts, *reasons, wrong) == [count for _, count in TOLERANCES] + [0] * len(REASONS) + [1]


AT = Position(file="specs/a/one-two.yaml", line=7, column=11)


def of_run(rule: str, facts: RunFacts | None) -> list[Finding]:
    write(a__one_two=GOOD)
    part = inspect([Path("specs")]).anatomies[0]
    scene = Scene(
        specs=(Spec(anatomy=part, cases=()),), backends=load_backends(), waivers=lint_waivers(), profiles=(), whole=False, run=facts
    )
    return findings_of(scene, {rule: RULES[rule]})


def lint_waivers() -> Any:
    return WaiverFiles(waivers=(), documents=(), given=frozenset())


@pytest.mark.parametrize(("observed", "count"), [(1e-7, 1), (0.0, 1), (1e-4, 0)])
def test_needless_tolerance(observed: float, count: int) -> None:
    facts = RunFacts(run="r", closeness=(Closeness(position=AT, atol=1e-3, observed=observed, cases=2),))
    assert len(of_run("needless-tolerance", facts)) == count
    assert of_run("needless-tolerance", None) == []


def test_weak_spec() -> None:
    weak = Weakness(position=AT, kind="counter", leaf="inductor.x", mutant="one more", case_id="a/one-two[backend=cpu]")
    assert [one.message for one in of_run("weak-spec", RunFacts(run="r", weaknesses=(weak, weak)))] == [
        "counter inductor.x holds for the mutant 'one more' of its facts (in a/one-two[backend=cpu])"
    ]
    assert of_run("weak-spec", RunFacts(run="r")) == []


def test_the_facts_of_a_recorded_run_reach_the_rules(monkeypatch: pytest.MonkeyPatch) -> None:
    write(a__one_two=spec(("{to: eager}}", "{to: eager, atol: 1e-3, rtol: 0}}, {counter: {inductor.fxgraph_cache_miss: {max: 9}}}")))

    def answer(job: Job) -> Execution:
        assert job.plan is not None
        leaf = close_leaf(rtol=0.0, atol=1e-3, max_abs=2e-7, excess=2e-7)
        sent = observation(seen(measured={"0": close_facts(leaf)}), id=job.plan["id"])
        return Execution(job=job, observation=sent, ending=ENDED, seconds=1.0, isolation="fork")

    use_executor(monkeypatch, answer)
    assert main(["run", "specs", "--out", "run"]) == ExitCode.OK
    linted = lint(replace(OPTIONS, run="run", select=("needless-tolerance", "weak-spec")))
    assert [(one.rule, one.position.line) for one in linted.findings] == [("needless-tolerance", 7)]
    assert "the greatest difference in 1 case of the run was 2e-07" in linted.findings[0].message


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
let: {kept: {value: 3}, lost: {value: 4}, made: {call: operator.add, args: [1, 2], close: bit_length}}
functions:
  one: "def one(x, y): return x + y"
  two: "def two(x, y): return x + y"
inputs: [{rand: [4]}, {ref: kept}]
steps:
  - call: {function: one}
    expect: [{close: {to: eager}}]
"""


def test_unused_value_and_function() -> None:
    write(a__one_two=STEPS)
    assert found("unused-value") == ["nothing uses the value 'lost'"]
    assert found("unused-function") == ["no step calls the function 'two'"]
    write(a__one_two=STEPS.replace("ref: kept", "ref: lost") + "  - call: {function: two, inputs: [{rand: [4]}, {ref: kept}]}\n")
    assert found("unused-value") + found("unused-function") == []


# -- requests, words --------------------------------------------------------------------------------------------------


def test_unrequested_spec(monkeypatch: pytest.MonkeyPatch) -> None:
    write(a__one_two=spec(("inputs:", "on_request: true\ntags: [rare]\ninputs:")), a__one_three=spec(OTHER))
    rule = RULES["unrequested-spec"].check
    one = inspect([Path("specs")])
    specs = tuple(Spec(anatomy=part, cases=tuple(c for c in one.suite.cases if c.spec == part.document.file)) for part in one.anatomies)
    scene = Scene(specs=specs, backends=one.suite.backends, waivers=lint_waivers(), profiles=(), whole=True)
    assert len(list(rule(scene))) == 1
    assert list(rule(replace(scene, whole=False))) == []
    Path("specs/a/README.md").write_text("`torch-conformance run --tag other`")
    assert len(list(rule(scene))) == 1
    Path("specs/a/README.md").write_text("`torch-conformance run --tag rare`.")
    assert list(rule(scene)) == []


def test_spec_name() -> None:
    Path("specs/a").mkdir(parents=True)
    for name in ("one", "One-two", "one-two", "a-b-c-d-e", "a-b-c-d-e-f", "a--b"):
        Path(f"specs/a/{name}.yaml").write_text(GOOD)
    found_at = [Path(one.position.file).stem for one in lint(replace(OPTIONS, select=("spec-name",))).findings]
    assert sorted(found_at) == ["One-two", "a--b", "a-b-c-d-e-f", "one"]


SUMMARIES = [
    ("The answer is right.", 1),
    ("The answer  is right", 1),
    ("Test that the answer is right", 1),
    ("Right answer", 1),
    (f"The answer is {'very ' * 40}right", 1),
    ("Tested functions are right", 0),
    ("relu(x * y) equals eager and so on ...", 0),
]


def test_summary_form() -> None:
    texts = [spec(("A product of two matrices is right", summary)) for summary, _ in SUMMARIES]
    assert counts("summary-form", *texts) == [count for _, count in SUMMARIES]


# -- the examples of the reference -------------------------------------------------------------------------------------

OF_SPECS = [rule for rule in RULES.values() if not rule.needs_run and not rule.bad.startswith("#") and "lint:" not in rule.bad + rule.good]


def test_the_examples_of_each_rule_are_a_finding_and_none() -> None:
    for rule in OF_SPECS:
        for form, text in (("bad", rule.bad), ("good", rule.good)):
            own = yaml.safe_load(text)
            dtype = {"dtype": "{{ dtype }}"} if "dtype" in own.get("matrix", {}) else {}
            base = {**yaml.safe_load(GOOD), "inputs": [{"rand": [4, 4], **dtype}] * 2, **own}
            for gone in (["function"] if "functions" in own else []) + (["expect"] if "steps" in own else []):
                del base[gone]
            write(**{f"{form}__{rule.id}": json.dumps(base)})
    found_at = {(one.rule, one.position.file) for one in lint(OPTIONS).findings}
    for rule in OF_SPECS:
        assert (rule.id, f"specs/bad/{rule.id}.yaml") in found_at
        assert (rule.id, f"specs/good/{rule.id}.yaml") not in found_at


def test_most_rules_have_such_examples() -> None:
    assert len(OF_SPECS) >= 8
    assert all(isinstance(yaml.safe_load(text), dict | list | None) for rule in RULES.values() for text in (rule.bad, rule.good))


# -- suppressions -----------------------------------------------------------------------------------------------------

BAD = spec(("is right", "is right."))


SUPPRESSED: list[tuple[str, list[str]]] = [
    (BAD.replace("right.", "right.   # lint: ignore summary-form -- a name"), []),
    ("# lint: ignore summary-form -- a name\n# and a comment\n\n" + BAD, []),
    ("# lint: ignore spec-name, summary-form -- a name\n" + BAD, ["unused-suppression"]),
    ("# lint: ignore summary-form\n" + BAD, ["wrong-suppression", "summary-form"]),
    ("# lint: ignore summary-form --\n" + BAD, ["wrong-suppression", "summary-form"]),
    ("# lint: ignore summary-from -- a name\n" + BAD, ["wrong-suppression", "summary-form"]),
    ("# lint: ignore unused-suppression -- a name\n" + BAD, ["wrong-suppression", "summary-form"]),
    (BAD.replace("backends: [cpu]", "backends: [cpu]  # lint: ignore summary-form -- a name"), ["summary-form", "unused-suppression"]),
    (GOOD + "# lint: ignore summary-form -- a name\n", ["unused-suppression"]),
    (GOOD.replace("x @ y", "x @ y  # lint: ignore summary-form -- a name"), []),  # Python, no comment of the file
    (GOOD + "# lint: ignore weak-spec -- only a run can tell\n", []),
]


def test_suppressions() -> None:
    write(**{f"a__spec_{number:02}": text for number, (text, _) in enumerate(SUPPRESSED)})
    rules: dict[str, list[str]] = {}
    for one in lint(replace(OPTIONS, ignore=("same-summary", "same-body"))).findings:
        rules.setdefault(one.position.file, []).append(one.rule)
    for number, (text, expected) in enumerate(SUPPRESSED):
        assert rules.get(f"specs/a/spec-{number:02}.yaml", []) == expected, text


# -- fixes ------------------------------------------------------------------------------------------------------------


def test_each_fix_keeps_everything_else_and_is_done_once() -> None:
    text = excluded(CPU16, ALL16).replace("is right", "is  right.   # about the summary")
    text += "# lint: ignore spec-name -- it was named otherwise\n# the end\n"
    write(a__one_two=text)
    options = replace(OPTIONS, fix=True, **waivers(WAIVER, WAIVER.replace("CASES", "b/*"), cases="a/*"))
    linted = lint(options)
    assert sorted(document.file for document in linted.changed) == ["known.yaml", "specs/a/one-two.yaml"]
    assert linted.notes == ()
    for document in linted.changed:
        document.path.write_bytes(document.content)
    expected = (
        text.replace(f"  - {CPU16}\n", "")
        .replace("is  right.", "is right")
        .replace("# lint: ignore spec-name -- it was named otherwise\n", "")
    )
    assert Path("specs/a/one-two.yaml").read_text() == expected
    assert Path("known.yaml").read_text().count("cases:") == 1
    again = lint(options)
    assert again.changed == ()
    assert [one.fix for one in again.findings] == [None] * len(again.findings)


@pytest.mark.parametrize(
    "form", ["exclude: [{backend: cpu, reason: slow}, {backend: cpu, dtype: float16, reason: slower}]", "exclude: [ALL, ALL]"]
)
def test_entries_in_brackets_are_removed_too(form: str) -> None:
    write(a__one_two=excluded(CPU16, ALL16).replace(excluded(CPU16, ALL16).partition("exclude:")[2].partition("inputs:")[0], "@"))
    text = Path("specs/a/one-two.yaml").read_text().replace("exclude:@", form.replace("ALL", ALL16) + "\n")
    write(a__one_two=text)
    ids = [case.id for case in load([Path("specs")]).cases]
    linted = lint(replace(OPTIONS, fix=True, select=("redundant-exclusion",)))
    (document,) = linted.changed
    document.path.write_bytes(document.content)
    assert [case.id for case in load([Path("specs")]).cases] == ids
    assert len(document.data["exclude"]) == 1


# -- the command ------------------------------------------------------------------------------------------------------


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    write(a__one_two=BAD)
    assert main(["lint", "specs", "--json"]) == ExitCode.FAILED
    assert schema.describe(json.loads(capsys.readouterr().out), "lint") == []
    assert main(["lint", "specs"]) == ExitCode.FAILED
    assert "specs/a/one-two.yaml:1:10: summary-form: the summary ends with" in capsys.readouterr().out
    assert main(["lint", "specs", "--json", "--ignore", "summary-form"]) == ExitCode.OK
    assert json.loads(capsys.readouterr().out) == {"format": 1, "specs": 1, "fixed": [], "findings": []}
    assert main(["lint", "specs", "--select", "summary-from"]) == ExitCode.USAGE
    assert "did you mean 'summary-form'?" in capsys.readouterr().err
    assert main(["lint", "specs", "--fix"]) == ExitCode.OK
    assert "1 spec, no findings, 1 file fixed" in capsys.readouterr().out
    assert Path("specs/a/one-two.yaml").read_text() == GOOD
    write(a__one_two=GOOD + "unknown: 1\n")
    assert main(["lint", "specs"]) == ExitCode.USAGE


@pytest.mark.usefixtures("shipped_once")
def test_the_shipped_specs_have_no_finding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    linted = lint(replace(OPTIONS, paths=()))
    assert [f"{one.position}: {one.rule}: {one.message}" for one in linted.findings] == []
    assert linted.specs > 300
