"""Proposals of waivers, the patch that removes void ones, and lists of other projects, from bytes to a file that validates."""

import subprocess
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import date
from pathlib import Path
from typing import Any

import pytest

from runner.cli.parser import main
from runner.core.case import CaseId
from runner.core.conditions import Surroundings
from runner.core.diagnostics import InvalidSpecs, UsageError
from runner.core.exit_codes import ExitCode
from runner.core.matching.patterns import search
from runner.core.observation import Ending
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.execute.base import Execution, Job
from runner.language.importers import FORMS
from runner.language.read.kinds import WAIVERS
from runner.language.read.source import parse, read
from runner.language.waiver_text import FILL_IN, Draft, appended, document_of, removal_patch
from runner.language.waivers import load_waivers
from runner.run.waiver_proposals import RecordedRun, pattern_of, propose, smallest_condition
from tests.conftest import GOOD
from tests.fakes import COUNTED, ENDED, HERE, case, expected, observation, seen, step, use_executor, verdict_of

TODAY = date(2026, 12, 1)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


# -- conditions -------------------------------------------------------------------------------------------------------


def place(**changes: Any) -> Surroundings:
    return replace(HERE, **{"arch": "gfx942", "vendor": "amd", **changes})


ON_942, ON_950 = place(), place(arch="gfx950")
OLD, NEW, NEWEST = place(torch=(2, 11, 0)), place(torch=(2, 12, 1)), place(torch=(2, 13, 0))


@pytest.mark.parametrize(
    ("failed", "passed", "when"),
    [
        ([ON_942], [], {}),
        ([ON_942], [ON_950], {"arch": ["gfx942"]}),
        ([ON_942, ON_950], [place(arch="gfx90a")], {"arch": ["gfx942", "gfx950"]}),
        ([OLD], [NEW, NEWEST], {"torch": "<2.12.1"}),
        ([NEWEST], [OLD, NEW], {"torch": ">=2.13.0"}),
        ([NEW], [OLD, NEWEST], {"torch": ">=2.12.1,<2.13.0"}),
        ([OLD, NEWEST], [NEW], None),
        ([place(python=(3, 11, 7))], [place(python=(3, 12, 0))], {"python": "<3.12.0"}),
        ([ON_942], [place(vendor="nvidia", arch=None)], {"arch": ["gfx942"]}),
        ([place(arch=None)], [place(arch=None, vendor="nvidia")], {"vendor": ["amd"]}),
        ([ON_942], [ON_942], None),
        ([ON_942], [ON_942, ON_950], None),
        ([OLD, NEW], [place(torch=(2, 11, 0), arch="gfx950"), NEWEST], {"arch": ["gfx942"], "torch": "<2.13.0"}),
        ([place(torch=None)], [NEW], None),
    ],
)
def test_the_smallest_condition_separates_failures_from_passes(failed: Any, passed: Any, when: Any) -> None:
    assert smallest_condition(failed, passed) == when


# -- signatures -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "others", "not_these"),
    [
        ("counter: expected hits 2, observed 1", ["counter: expected hits 2, observed 1"], ["counter: expected hits 2, observed 0"]),
        ("close: expected 1.0e-3, observed 2.5e-3 at [1]", ["close: expected 1e-3, observed 7.25 at [1]"], ["close: expected 1e-3, no"]),
        ("crash: killed at 0x7fae48ee50d0", ["crash: killed at 0x1"], ["crash: killed"]),
        ("raised: no file /tmp/ab/cd.so (x)", ["raised: no file /var/tmp/e.so (x)"], ["raised: no file (x)"]),
        ("a (b) [c] {d} *", ["a (b) [c] {d} *"], ["a b c d"]),
        ("first\nsecond", ["first\nthird"], ["second"]),
    ],
)
def test_a_pattern_keeps_what_does_not_change_from_run_to_run(message: str, others: list[str], not_these: list[str]) -> None:
    pattern = pattern_of(message)
    assert search(pattern, message) is not None
    assert all(search(pattern, other) is not None for other in others)
    assert all(search(pattern, other) is None for other in not_these)


MISSES = expected("counter", {"inductor.fxgraph_cache_miss": 2}, line=11)
FAILED = verdict_of(case(step(MISSES)), observation(seen()))
PASSED = verdict_of(case(step(COUNTED)), observation(seen()))
CRASHED = verdict_of(case(step(COUNTED)), None, ending=Ending(signal=11, phase="run"))
ERROR = verdict_of(
    case(step(COUNTED)),
    observation(seen(), error={"type": "builtins.ValueError", "ancestors": [], "message": "x", "traceback": "", "phase": "inputs"}),
)


def run(name: str, here: Surroundings = ON_942, **results: CaseResult) -> RecordedRun:
    found = {
        f"area/fake[backend=cpu,n={key}]": replace(one, case_id=CaseId(f"area/fake[backend=cpu,n={key}]")) for key, one in results.items()
    }
    return RecordedRun(name=name, here=here, results=found)


def proposed(*runs: RecordedRun) -> tuple[list[tuple[str, Mapping[str, Any]]], tuple[str, ...]]:
    found = propose(runs, today=TODAY)
    return [(draft.cases, draft.when) for draft in found.drafts], found.notes


def test_cases_of_one_spec_with_one_failure_share_a_waiver_that_matches_no_other_case() -> None:
    assert proposed(run("r", aa=FAILED, ab=FAILED, b=PASSED))[0] == [("area/fake[backend=cpu,n=a*", {})]
    assert proposed(run("r", aa=FAILED, ab=FAILED, ac=PASSED))[0] == [
        ("area/fake[backend=cpu,n=aa]", {}),
        ("area/fake[backend=cpu,n=ab]", {}),
    ]
    assert len(proposed(run("r", a=FAILED, b=CRASHED))[0]) == 2


def test_a_condition_is_that_of_the_runs_in_which_the_case_failed() -> None:
    assert proposed(run("r", a=FAILED), run("s", ON_950, a=PASSED))[0] == [("area/fake[backend=cpu,n=a]", {"arch": ["gfx942"]})]


def test_what_passes_and_fails_alike_and_what_cannot_be_waived_is_said() -> None:
    drafts, notes = proposed(run("r", a=FAILED, b=ERROR), run("s", a=PASSED))
    assert drafts == []
    assert "a]: failed and passed under the same conditions" in notes[0]
    assert "b]: ERROR in r cannot be waived" in notes[1]


def test_a_waived_failure_needs_no_other_waiver_and_counts_as_a_failure() -> None:
    waived = replace(FAILED, outcome=Outcome.XFAIL)
    assert proposed(run("r", a=waived)) == ([], ())
    assert proposed(run("r", a=waived), run("s", place(torch=(2, 12, 0)), a=FAILED), run("t", ON_950, a=PASSED))[0] == [
        ("area/fake[backend=cpu,n=a]", {"arch": ["gfx942"]})
    ]


# -- text -------------------------------------------------------------------------------------------------------------

DRAFT = Draft(
    cases="area/*[backend=cpu,n=1]",
    signatures=({"type": "counter", "match": 'miss \\[1\\]: "x"'},),
    reason="It counts: a miss # too many",
    issue="#7",
    until="2027-03-01",
    when={"torch": "<2.14", "arch": ["gfx942"]},
)
KEPT = """\
# a comment at the top
waivers:
  # about the first   {odd}  spacing
  - cases: one/*       # why
    failure: {type: crash, match: "SIGSEGV in conv"}
    reason: >-
      A defect
      of two lines
    issue: JIRA-1
    until: 2027-01-01
  # about the second and the third
  - cases: two/*
    failure: {type: crash, match: "SIGSEGV in conv"}
    reason: Another defect
    issue: JIRA-2
    until: 2020-01-01
  - {cases: three/*, failure: {type: crash, match: SIGSEGV in conv}, reason: A third defect, issue: JIRA-3, until: 2027-01-01}
"""


def file(text: str, name: str = "known.yaml") -> Path:
    Path(name).write_bytes(text.encode())
    return Path(name)


def test_a_new_file_of_drafts_says_what_the_drafts_say() -> None:
    (found,) = load_waivers([file(document_of([DRAFT]))], None).waivers[-1:]
    assert (found.cases, found.when, found.reason, found.issue) == (DRAFT.cases, DRAFT.when, DRAFT.reason, DRAFT.issue)
    assert [(one.type, one.match) for one in found.failures] == [("counter", DRAFT.signatures[0]["match"])]


@pytest.mark.parametrize(
    "text",
    [KEPT, KEPT.rstrip("\n"), "waivers: []\n", "# only a comment\nwaivers:   [ ]\n# and one below", KEPT.replace("\n  ", "\n      ")],
)
def test_an_existing_file_keeps_every_byte_before_the_new_waiver(text: str) -> None:
    new = appended(read(file(text), WAIVERS), [DRAFT, DRAFT])
    begun = text.partition("[")[0].rstrip() if "[]" in text or "[ ]" in text else text
    assert new.startswith(begun)
    assert all(line in new.splitlines() for line in text.splitlines() if line.strip().startswith("#"))
    found = parse(new, path=Path("known.yaml"), kind=WAIVERS).data["waivers"]
    assert [one["cases"] for one in found][-2:] == [DRAFT.cases, DRAFT.cases]
    assert len(found) == text.count("cases:") + 2


@pytest.mark.parametrize(
    "text", ["waivers: [{cases: a, failure: {type: crash, match: SIGSEGV in conv}, reason: long enough, issue: J-1, until: 2027-01-01}]\n"]
)
def test_a_list_in_brackets_has_no_place_for_a_waiver(text: str) -> None:
    document = read(file(text), WAIVERS)
    with pytest.raises(UsageError, match="brackets"):
        appended(document, [DRAFT])
    with pytest.raises(UsageError, match="brackets"):
        removal_patch(document, [0])


def patched(text: str, *indices: int) -> str:
    patch = removal_patch(read(file(text), WAIVERS), indices)
    done = subprocess.run(["git", "apply"], input=patch, text=True, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return Path("known.yaml").read_text()


@pytest.mark.parametrize(
    ("indices", "gone", "kept"),
    [
        ([0], ["about the first", "one/*", "of two lines", "JIRA-1"], ["a comment at the top", "about the second", "two/*", "three/*"]),
        ([1], ["two/*", "JIRA-2"], ["about the first", "about the second and the third", "one/*", "three/*"]),
        ([2], ["three/*"], ["about the second and the third", "one/*", "two/*"]),
        ([0, 2], ["one/*", "three/*", "about the first"], ["two/*", "about the second"]),
        ([0, 1, 2], ["one/*", "two/*", "three/*"], ["a comment at the top", "waivers: []"]),
    ],
)
@pytest.mark.parametrize("end", ["\n", ""])
def test_the_patch_removes_the_waivers_and_nothing_else(indices: list[int], gone: list[str], kept: list[str], end: str) -> None:
    text = patched(KEPT.rstrip("\n") + end, *indices)
    assert [word for word in gone if word in text] == []
    assert [word for word in kept if word not in text] == []
    assert len(load_waivers([Path("known.yaml")], None).waivers) - len(load_waivers([], None).waivers) == 3 - len(indices)


# -- from run to file -------------------------------------------------------------------------------------------------

SPEC = GOOD.replace("expect: [{close: {to: eager}}]", "expect: [{counter: {inductor.fxgraph_cache_miss: 1}}]")
Go = Callable[..., int]


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Go:
    """Return a function that runs two specs, of which those named fail."""
    (folder / "specs" / "area").mkdir(parents=True)
    for name in ("one", "two"):
        (folder / "specs" / "area" / f"{name}.yaml").write_text(SPEC)

    def run_it(*options: str, failing: str = "", out: str) -> int:
        def answer(job: Job) -> Execution:
            assert job.plan is not None
            case_id = job.plan["id"]
            misses = 2 if failing and failing in case_id else 1
            sent = observation(seen(counters={"inductor": {"fxgraph_cache_miss": misses}}), id=case_id)
            return Execution(job=job, observation=sent, ending=ENDED, seconds=1.0, isolation="fork")

        use_executor(monkeypatch, answer)
        return main(["run", "specs", "--out", out, *options])

    return run_it


def test_a_proposal_makes_the_run_green_and_a_repaired_torch_gets_the_patch_that_removes_it(
    go: Go, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go(failing="one", out="red") == ExitCode.FAILED
    assert main(["waive", "red"]) == ExitCode.OK
    printed = capsys.readouterr()
    assert f"issue: {FILL_IN}" in printed.out
    assert "1 waiver proposed; FILL-IN stands in 1 of them where a person must write something (--issue ID gives the issue)" in printed.err
    file(printed.out[printed.out.index("# Known") :], "draft.yaml")
    assert main(["validate", "specs", "--waivers", "draft.yaml"]) == ExitCode.USAGE  # a draft is not valid until a person completes it
    assert "draft.yaml:6:12: " in capsys.readouterr().out
    assert main(["waive", "red", "--to", "known.yaml"]) == ExitCode.USAGE
    assert not Path("known.yaml").exists()

    file(KEPT.replace("2020", "2027"))
    assert main(["waive", "red", "--to", "known.yaml", "--issue", "JIRA-9", "--until", "2099-01-01"]) == ExitCode.OK
    assert Path("known.yaml").read_text().startswith(KEPT.replace("2020", "2027"))
    assert main(["validate", "specs", "--waivers", "known.yaml"]) == ExitCode.OK
    assert go("--waivers", "known.yaml", failing="one", out="waived") == ExitCode.OK
    assert main(["waive", "waived"]) == ExitCode.OK
    capsys.readouterr()

    assert go("--waivers", "known.yaml", out="repaired") == ExitCode.FAILED
    report = capsys.readouterr().out
    assert "4 waivers to remove" in report  # three of them are for no case
    assert "1 of its cases passed, and no failure matched (JIRA-9)" in report
    assert "\nin known.yaml:\n@@ " in report  # the lines above it, of a patch, would be commands to a CI system
    assert "\\x2d" not in report
    assert "\n-  - cases: " in report
    assert main(["waive", "repaired", "--remove"]) == ExitCode.OK
    printed = capsys.readouterr()
    assert printed.out.startswith("--- a/known.yaml\n+++ b/known.yaml\n")
    done = subprocess.run(["git", "apply"], input=printed.out, text=True, capture_output=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    assert Path("known.yaml").read_text() == KEPT.replace("2020", "2027")


def test_an_expired_waiver_is_removed_though_its_case_fails(go: Go, capsys: pytest.CaptureFixture[str]) -> None:
    entry = document_of(
        [replace(DRAFT, cases="area/one*", when={}, until="2020-01-01", signatures=({"type": "counter", "match": "miss 1, observed 2"},))]
    )
    file(entry)
    assert go("--waivers", "known.yaml", failing="one", out="out") == ExitCode.FAILED
    report = capsys.readouterr().out
    assert "1 waiver to remove" in report
    assert "known.yaml:3:5: ended on 2020-01-01 (#7)" in report
    assert "\n+waivers: []\n" in report


def test_a_waiver_that_some_cases_still_need_stays(go: Go, capsys: pytest.CaptureFixture[str]) -> None:
    entry = document_of(
        [replace(DRAFT, cases="area/*", when={}, until="2099-01-01", signatures=({"type": "counter", "match": "miss 1, observed 2"},))]
    )
    file(entry)
    assert go("--waivers", "known.yaml", failing="one", out="out") == ExitCode.FAILED
    assert "to remove" not in capsys.readouterr().out
    assert main(["waive", "out", "--remove"]) == ExitCode.OK
    assert capsys.readouterr().out == ""


def test_a_file_that_changed_after_the_run_gets_no_patch(go: Go, capsys: pytest.CaptureFixture[str]) -> None:
    file(KEPT)
    go("--waivers", "known.yaml", failing="one", out="out")
    file("\n" + KEPT)
    assert main(["waive", "out", "--remove"]) == ExitCode.USAGE
    assert "known.yaml is not the file that the run read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none"], "none"),
        (["red", "--cases", "a"], "--cases goes with --from"),
        (["red", "--remove", "--to", "x.yaml"], "--remove prints a patch"),
        (["x.yaml", "--from", "known-bug"], "unknown form 'known-bug' (did you mean 'known-bugs'?)"),
        (["red", "--until", "tomorrow"], "--until 'tomorrow' is no date"),
    ],
)
def test_wrong_usage(go: Go, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    go(failing="one", out="red")
    assert main(["waive", *arguments]) == ExitCode.USAGE
    assert says in capsys.readouterr().err


def test_a_file_with_problems_is_not_changed(go: Go) -> None:
    go(failing="one", out="red")
    broken = KEPT.replace("until: 2020-01-01", "until: never")
    file(broken)
    assert main(["waive", "red", "--to", "known.yaml", "--issue", "J-1"]) == ExitCode.USAGE
    assert Path("known.yaml").read_text() == broken


# -- lists of other projects ------------------------------------------------------------------------------------------

KNOWN_BUGS = """\
---
Known bugs:
# ROCM-1545
# REMOVE this entry once it is fixed
- { name: gemm_bad, function: gemm_ex, a_type: f16_r, transA: N, M: 3, N: [1, 2], K: 8, alpha: 1.5, known_bug_platforms: "gfx950, gfx1250" }
- function: trsm
  a_type: f32_r
  lda: 64
  batch_count: 2
"""
SKIPS = '''\
"""Tests that fail."""
skip_dict = {
    # https://github.com/intel/torch-xpu-ops/issues/253
    "test_codecache_xpu.py": (
        "test_cache_load_function_xpu_float32",
        # https://github.com/intel/torch-xpu-ops/issues/1000
        "test_other",  # slow
    ),
    "test_all.py": None,
}
'''
ISSUE = """\
Fails on BMG, see #12

Cases:
op_ut,third_party.torch-xpu-ops.test.TestA,test_one
op_ut,a.TestB,test_two

More words, here, too
"""
CUML = """\
- reason: Sampling differs
  marker: cuml_accel_bugs
  condition: "scikit-learn>=1.7.2,<1.9"
  tests:
    - "sklearn/test_a.py::test_one[x]"
- reason: A defect of torch, https://github.com/pytorch/pytorch/issues/5
  condition: torch>=2.11,<2.13
  strict: false
  tests: ["test_b.py::test_two", "test_b.py::test_three"]
"""
LISTS = {"known-bugs": ("known_bugs.yaml", KNOWN_BUGS), "xpu-skip-list": ("skip.py", SKIPS), "xpu-issue": ("issue.txt", ISSUE)}
LISTS["cuml-xfail-list"] = ("xfail-list.yaml", CUML)


def entries(form: str, text: str) -> list[Any]:
    return FORMS[form].read(file(text, LISTS[form][0]))


def test_every_field_of_known_bugs_is_kept() -> None:
    first, second = entries("known-bugs", KNOWN_BUGS)
    assert first.fields == {
        "name": "gemm_bad",
        "function": "gemm_ex",
        "a_type": "f16_r",
        "transA": "N",
        "M": 3,
        "N": [1, 2],
        "K": 8,
        "alpha": 1.5,
        "known_bug_platforms": "gfx950, gfx1250",
    }
    assert (first.when, first.issue, first.comment) == (
        {"arch": ["gfx950", "gfx1250"]},
        "ROCM-1545",
        "ROCM-1545 REMOVE this entry once it is fixed",
    )
    assert (second.fields, second.when) == ({"function": "trsm", "a_type": "f32_r", "lda": 64, "batch_count": 2}, {})


def test_the_lists_of_torch_xpu_ops() -> None:
    first, second = entries("xpu-skip-list", SKIPS)
    assert first.tests == ("test_codecache_xpu.py::test_cache_load_function_xpu_float32",)
    assert first.issue == "https://github.com/intel/torch-xpu-ops/issues/253"
    assert second.fields == {"file": "test_codecache_xpu.py", "test": "test_other"}
    assert second.issue == "https://github.com/intel/torch-xpu-ops/issues/1000"
    one, two = entries("xpu-issue", ISSUE)
    assert one.fields == {"category": "op_ut", "class": "third_party.torch-xpu-ops.test.TestA", "test": "test_one"}
    assert (one.issue, two.position.line) == ("#12", 5)
    (parametrized,) = entries("xpu-issue", "Cases:\n```\nop_ut,a.TestB,test_two[x,y]\n```\n")
    assert parametrized.fields["test"] == "test_two[x,y]"


def test_a_condition_that_no_waiver_can_say_is_not_dropped() -> None:
    first, second = entries("cuml-xfail-list", CUML)
    assert (first.when, first.unsaid) == ({}, "scikit-learn>=1.7.2,<1.9")
    assert (second.when, second.unsaid) == ({"torch": ">=2.11,<2.13"}, "")
    assert first.fields["marker"] == "cuml_accel_bugs"
    assert second.issue == "https://github.com/pytorch/pytorch/issues/5"
    assert second.tests == ("test_b.py::test_two", "test_b.py::test_three")


@pytest.mark.usefixtures("shipped_once")
@pytest.mark.parametrize("form", FORMS)
def test_an_import_writes_waivers_with_the_origin(form: str, capsys: pytest.CaptureFixture[str]) -> None:
    name, text = LISTS[form]
    file(text, name)
    arguments = ["waive", name, "--from", form, "--cases", "ck/*", "--type", "close", "--match", "observed 1 wrong tile", "--issue", "J-1"]
    assert main([*arguments, "--until", "2099-01-01"]) == ExitCode.OK
    printed = capsys.readouterr().out
    data = parse(printed, path=Path("x.yaml"), kind=WAIVERS).data["waivers"]
    assert [one["origin"]["fields"] for one in data] == [dict(entry.fields) for entry in FORMS[form].read(Path(name))]
    assert {one["origin"]["form"] for one in data} == {form}
    if form == "cuml-xfail-list":  # the condition on another package stays open
        assert data[0]["when"] == {"torch": FILL_IN}
        assert "# no condition of a waiver says: scikit-learn>=1.7.2,<1.9" in printed
        assert main([*arguments, "--to", "known.yaml"]) == ExitCode.USAGE
    else:
        assert main([*arguments, "--to", "known.yaml"]) == ExitCode.OK
        assert main(["validate", "--waivers", "known.yaml"]) == ExitCode.OK


@pytest.mark.usefixtures("shipped_once")
def test_tests_are_found_by_what_specs_cover(capsys: pytest.CaptureFixture[str]) -> None:
    file('skip_dict = {"test_codecache_xpu.py": ("test_cache_load_function_xpu", "test_nothing_like_it")}\n', "skip.py")
    assert main(["waive", "skip.py", "--from", "xpu-skip-list"]) == ExitCode.OK
    printed = capsys.readouterr()
    assert "cases: " in printed.out
    assert "codecache/fx-cache-hit[*" in printed.out
    assert "skip.py:1:72: no case covers its tests (name the cases: --cases GLOB)" in printed.err


HOSTILE: list[tuple[str, str, str]] = [
    ("known-bugs", "", "known_bugs.yaml:1:1"),
    ("known-bugs", "Known bugs: {a: 1}\n", "known_bugs.yaml:1:1: has no list below 'Known bugs'"),
    ("known-bugs", "Known bugs: [1]\n", "known_bugs.yaml:1:14: an entry is a map of fields"),
    ("known-bugs", "Known bugs:\n- {function: {a: 1}}\n", "known_bugs.yaml:2:14: the field 'function' is a number"),
    ("known-bugs", "Known bugs:\n- {known_bug_platforms: 'gfx942; rm -rf'}\n", "known_bugs.yaml:2:25: 'gfx942;' is no platform"),
    ("known-bugs", "Known bugs:\n- !!python/object/apply:os.system [true]\n", "known_bugs.yaml:2:3"),
    ("known-bugs", "Known bugs:\n- {M: 1, M: 2}\n", "known_bugs.yaml:2:10"),
    ("known-bugs", "Known bugs: [" + "[" * 500 + "]" * 500 + "]\n", "known_bugs.yaml:1:"),
    (
        "known-bugs",
        "a: &a [1,1,1,1,1,1,1,1,1]\n"
        + "".join(f"b{n}: &b{n} [*{'a' if not n else f'b{n - 1}'}{f', *b{n - 1}' * 8 if n else ''}]\n" for n in range(9)),
        "known_bugs.yaml:",
    ),
    ("xpu-skip-list", "import os\n", "skip.py:1:1: a skip list has assignments of dicts alone"),
    ("xpu-skip-list", 'd = {"a.py": (__import__("os").system("touch owned"),)}\n', "skip.py:1:15: a test is the text of its name"),
    ("xpu-skip-list", 'd = {f"{1}": ("a",)}\n', "skip.py:1:6: a key is the text of a file's name"),
    ("xpu-skip-list", 'd = {"a.py": [x for x in "ab"]}\n', "skip.py:1:14: the tests of 'a.py' are a tuple of names"),
    ("xpu-skip-list", "d = {**{}}\n", "skip.py:1:8: a key is the text"),
    ("xpu-skip-list", "d = {\n", "skip.py:1:5: is not Python"),
    ("xpu-skip-list", "x = " + "(" * 1000 + ")" * 1000, "skip.py:1:"),
    ("xpu-skip-list", "d = " + "-" * 100_000 + "1", "skip.py:1:"),
    ("xpu-skip-list", "", "skip.py:1:1: has no dict of tests"),
    ("xpu-issue", "no list\n", "issue.txt:1:1: has no line 'Cases:'"),
    ("xpu-issue", "Cases:\n", "issue.txt:1:1: has no case below 'Cases:'"),
    ("xpu-issue", "Cases:\na,b\n", "issue.txt:2:1: is no case"),
    ("xpu-issue", "Cases:\na,b,\x1b[31m\n", "issue.txt:2:1: is no case"),
    ("cuml-xfail-list", "tests: []\n", "xfail-list.yaml:1:1: is no list of groups"),
    ("cuml-xfail-list", "- [a]\n", "xfail-list.yaml:1:3: a group is a map"),
    ("cuml-xfail-list", "- {reason: x, tests: []}\n", "xfail-list.yaml:1:22: a group needs a list of tests"),
    ("cuml-xfail-list", "- {reason: 1, tests: [a]}\n", "xfail-list.yaml:1:12: 'reason' is text"),
    ("cuml-xfail-list", "- {reasn: x, tests: [a]}\n", "xfail-list.yaml:1:4: unknown key 'reasn' (did you mean 'reason'?)"),
    ("cuml-xfail-list", "- {tests: [{a: 1}]}\n", "xfail-list.yaml:1:12: a test is the text of its name"),
]


@pytest.mark.parametrize(("form", "text", "message"), HOSTILE, ids=range(len(HOSTILE)))
def test_a_hostile_list_is_refused_with_a_position(form: str, text: str, message: str) -> None:
    with pytest.raises(InvalidSpecs) as found:
        entries(form, text)
    assert message in "\n".join(map(str, found.value.diagnostics))
    assert not Path("owned").exists()


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("data", [b"\xff\xfe\x00", b"\x80abc", b"a" * (1 << 21)])
def test_a_list_that_is_no_text_or_too_large_is_refused(form: str, data: bytes) -> None:
    Path("list").write_bytes(data)
    with pytest.raises(InvalidSpecs, match="1 problems"):
        FORMS[form].read(Path("list"))
