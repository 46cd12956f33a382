"""Proposals of waivers, from a run to a file that validates."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GOOD
from tests.fakes import ENDED, HERE, observation, seen, use_executor, write_specs
from torch_conformance.cli.parser import main
from torch_conformance.execute.executor_protocol import Execution, Job
from torch_conformance.matching.patterns import search
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.tools.author.commands.waive import FILL_IN, pattern_of, smallest_condition

pytestmark = pytest.mark.usefixtures("here")


# -- conditions ------------------------------------------------------------------------------------


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
        (
            [OLD, NEW],
            [place(torch=(2, 11, 0), arch="gfx950"), NEWEST],
            {"arch": ["gfx942"], "torch": "<2.13.0"},
        ),
        ([place(torch=None)], [NEW], None),
    ],
)
def test_the_smallest_condition_separates_failures_from_passes(
    failed: Any, passed: Any, when: Any
) -> None:
    assert smallest_condition(failed, passed) == when


# -- signatures ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "others", "not_these"),
    [
        (
            "counter: expected hits 2, observed 1",
            ["counter: expected hits 2, observed 1"],
            ["counter: expected hits 2, observed 0"],
        ),
        (
            "max: expected 1.0e-3, observed 2.53e-3 at [1]",
            ["max: expected 1.0e-3, observed 2.51e-3 at [1]"],
            ["max: expected 1.0e-3, observed 7.25e6 at [1]"],
        ),
        ("crash: killed at 0x7fae48ee50d0", ["crash: killed at 0x1"], ["crash: killed"]),
        (
            "raised: no file /tmp/ab/cd.so (x)",
            ["raised: no file /var/tmp/e.so (x)"],
            ["raised: no file (x)"],
        ),
        ("a (b) [c] {d} *", ["a (b) [c] {d} *"], ["a b c d"]),
        ("first\nsecond", ["first\nthird"], ["second"]),
    ],
)
def test_a_pattern_keeps_what_does_not_change_from_run_to_run(
    message: str, others: list[str], not_these: list[str]
) -> None:
    pattern = pattern_of(message)
    assert search(pattern, message) is not None
    assert all(search(pattern, other) is not None for other in others)
    assert all(search(pattern, other) is None for other in not_these)


KEPT = """\
# a comment at the top
waivers:
  # about the first   {odd}  spacing
  - cases: one/*       # why
    failure: {type: crash, match: "SIGSEGV in conv"}
    reason: >-
      A defect

      # of three lines
    # below it
    issue: JIRA-1
    until: 2027-01-01

  # about the second and the third
  - cases: two/*
    failure: {type: crash, match: "SIGSEGV in conv"}
    reason: Another defect
    issue: JIRA-2
    until: 2020-01-01
  - {cases: three/*, failure: {type: crash, match: SIGSEGV in conv}, reason: A third defect, issue: JIRA-3, until: 2027-01-01}
"""  # noqa: E501 - text that is read by its lines


# -- from run to file ------------------------------------------------------------------------------

SPEC = GOOD.replace(
    "expect: [{close: {to: eager}}]", "expect: [{counter: {inductor.fxgraph_cache_miss: 1}}]"
)
Go = Callable[..., int]


@pytest.fixture
def go(monkeypatch: pytest.MonkeyPatch, here: Path) -> Go:
    """Return a function that runs two specs, of which those named fail."""
    write_specs(here, dict.fromkeys(("area/one", "area/two"), SPEC))

    def run_it(*options: str, failing: str = "", out: str) -> int:
        def answer(job: Job) -> Execution:
            assert job.plan is not None
            case_id = job.plan["id"]
            misses = 2 if failing and failing in case_id else 1
            sent = observation(
                seen(counters={"inductor": {"fxgraph_cache_miss": misses}}), id=case_id
            )
            return Execution(job=job, observation=sent, ending=ENDED, seconds=1.0, isolation="fork")

        use_executor(monkeypatch, answer)
        return main(["run", "specs", "--out", out, *options])

    return run_it


def test_a_proposal_makes_the_run_green_until_torch_is_repaired(
    go: Go, capsys: pytest.CaptureFixture[str]
) -> None:
    assert go(failing="one", out="red") == ExitCode.FAILED
    assert main(["waive", "red"]) == ExitCode.OK
    printed = capsys.readouterr()
    assert f"issue: {FILL_IN}" in printed.out
    assert "\n1 waiver proposed; 1 of them have FILL-IN" in printed.err
    Path("draft.yaml").write_text(printed.out[printed.out.index("# Known") :])
    assert (
        main(["validate", "specs", "--waivers", "draft.yaml"]) == ExitCode.USAGE
    )  # a draft is not valid until a person completes it
    assert "draft.yaml:6:12: " in capsys.readouterr().out

    others = KEPT.replace("2020", "2099").replace("2027", "2099")
    Path("known.yaml").write_text(others)
    assert (
        main(["waive", "red", "--to", "known.yaml", "--issue", "JIRA-9", "--until", "2099-01-01"])
        == ExitCode.OK
    )
    assert main(["validate", "specs", "--waivers", "known.yaml"]) == ExitCode.OK
    assert go("--waivers", "known.yaml", failing="one", out="waived") == ExitCode.OK
    capsys.readouterr()
    assert main(["waive", "waived"]) == ExitCode.OK
    assert "waivers: []" in capsys.readouterr().out

    assert go("--waivers", "known.yaml", out="repaired") == ExitCode.FAILED
    assert (
        "passed, though waived: remove the waiver at known.yaml:21:5 (JIRA-9)"
        in capsys.readouterr().out
    )


def test_what_failed_and_passed_alike_gets_a_flaky_waiver(
    go: Go, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (go(failing="one", out="red"), go(out="green")) == (ExitCode.FAILED, ExitCode.OK)
    assert (
        main(
            [
                "waive",
                "red",
                "green",
                "--to",
                "known.yaml",
                "--issue",
                "JIRA-9",
                "--until",
                "2099-01-01",
            ]
        )
        == ExitCode.OK
    )
    assert "'run --repeat 20' shows whether it flakes" in capsys.readouterr().err
    assert "flaky: true" in Path("known.yaml").read_text()
    for failing, outcomes in (("one", "1 XFAIL"), ("", "1 PASS")):
        assert (
            go("--waivers", "known.yaml", failing=failing, out=f"waived-{failing}") == ExitCode.OK
        )
        assert f"1 case has a flaky waiver: {outcomes}" in capsys.readouterr().out
        assert (
            f"1 case has a flaky waiver: {outcomes}"
            in Path(f"waived-{failing}/report/index.js").read_text()
        )
        assert (
            f'name="flaky-waivers" value="1 case has a flaky waiver: {outcomes}"'
            in Path(f"waived-{failing}/junit.xml").read_text()
        )
    assert (
        go("--waivers", "known.yaml", "--repeat", "20", failing="one", out="always")
        == ExitCode.FAILED
    )
    assert main(["waive", "always"]) == ExitCode.OK
    assert "flaky" not in capsys.readouterr().out.partition("waivers:")[2]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["none"], "none"),
        (["red", "--until", "tomorrow"], "--until 'tomorrow' is not a date"),
        (["red", "--to", "specs/area/one.yaml"], "specs/area/one.yaml:"),
    ],
)
def test_wrong_usage(
    go: Go, arguments: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    go(failing="one", out="red")
    capsys.readouterr()
    assert main(["waive", *arguments]) == ExitCode.USAGE
    assert says in "".join(capsys.readouterr())
    assert Path("specs/area/one.yaml").read_text() == SPEC
