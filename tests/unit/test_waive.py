"""Proposals of waivers, and the patch that removes void ones, from a run to a file that validates."""

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
from runner.core.exit_codes import ExitCode
from runner.core.matching.patterns import search
from runner.core.results import CaseResult
from runner.execute.base import Execution, Job
from runner.language.read.document import WAIVERS
from runner.language.read.source import parse, read
from runner.language.waiver_text import FILL_IN, Draft, appended, removal_patch
from runner.language.waivers import load_waivers
from runner.run.waiver_proposals import RecordedRun, pattern_of, propose, smallest_condition
from tests.conftest import GOOD
from tests.fakes import ENDED, HERE, case, expected, observation, seen, step, use_executor, verdict_of

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
        (
            "max: expected 1.0e-3, observed 2.53e-3 at [1]",
            ["max: expected 1.0e-3, observed 2.51e-3 at [1]"],
            ["max: expected 1.0e-3, observed 7.25e6 at [1]"],
        ),
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


def run(name: str, here: Surroundings = ON_942, **results: CaseResult) -> RecordedRun:
    found = {
        f"area/fake[backend=cpu,n={key}]": replace(one, case_id=CaseId(f"area/fake[backend=cpu,n={key}]")) for key, one in results.items()
    }
    return RecordedRun(name=name, here=here, results=found)


def proposed(*runs: RecordedRun) -> tuple[list[tuple[str, Mapping[str, Any]]], tuple[str, ...]]:
    found = propose(runs, today=TODAY)
    return [(draft.cases, draft.when) for draft in found.drafts], found.notes


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


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none"], "none"),
        (["red", "--remove", "--to", "x.yaml"], "--remove prints a patch"),
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
