"""What a run selects, in which order, and how often each case runs.

The executor is a fake: every case that can run here crashes.
"""

import dataclasses
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import GOOD
from tests.fakes import FakeExecutor, case, crashed, use_executor, write_specs
from tests.recorded import edit, recorded, run_of, write_run
from torch_conformance.cli.parser import main, parse
from torch_conformance.execute.executor_protocol import Job
from torch_conformance.language.backends import load_backends
from torch_conformance.language.load import load
from torch_conformance.model.case import Case, CaseId
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.optional.options import RunOptions, Selection
from torch_conformance.plan.selection import requested, select
from torch_conformance.record.run_folder import JOURNAL, REPORTS
from torch_conformance.run import preparation
from torch_conformance.run.earlier_runs import with_failed
from torch_conformance.run.preparation import prepare, seconds_of_run

ABSENT = GOOD + "requires: [{module: no_such_module_here}]\n"
SPECS = {
    "one": GOOD,
    "two": GOOD,
    "three": ABSENT,
    "later": GOOD + "on_request: true\ntags: [many]\nmatrix: {repeat: [1, 2]}\n",
}
Run = Callable[..., list[list[Job]]]


@pytest.fixture
def executor(here: Path, monkeypatch: pytest.MonkeyPatch) -> FakeExecutor:
    write_specs(here, SPECS)
    return use_executor(monkeypatch, crashed)


def options_of(*arguments: str) -> RunOptions:
    _, options = parse(["run", *arguments])
    assert isinstance(options, RunOptions)
    return options


def lines(folder: Path = REPORTS / "latest") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / JOURNAL).read_text().splitlines()]


def ran(folder: Path = REPORTS / "latest") -> set[str]:
    return {line["case_id"].partition("[")[0] for line in lines(folder) if line["kind"] == "case"}


# -- specs on request, and tags --------------------------------------------------------------------


def of_spec(id: str, *, on_request: bool, tags: tuple[str, ...] = ()) -> Case:
    return dataclasses.replace(
        case(),
        id=CaseId(id),
        spec=f"specs/{id.partition('[')[0]}.yaml",
        on_request=on_request,
        tags=tags,
    )


USUAL = of_spec("area/usual[backend=cpu,op=add]", on_request=False, tags=("both",))
FAMILY = [
    of_spec(f"operators/family[backend=cpu,op={op}]", on_request=True, tags=("operators", "both"))
    for op in ("add", "mul")
]
MIXED = of_spec("area/large[backend=cpu]", on_request=True)
CASES = [USUAL, *FAMILY, MIXED]
HALF = [
    of_spec(f"part/half[backend=cpu,dtype={dtype}]", on_request=dtype != "float32")
    for dtype in ("float32", "float64")
]


@pytest.mark.parametrize(
    ("paths", "globs", "tags", "expected"),
    [
        ((), (), (), [USUAL]),
        (("specs",), (), (), [USUAL]),
        (("specs/operators",), (), (), [USUAL, *FAMILY]),
        (("specs/operators/family.yaml",), (), (), [USUAL, *FAMILY]),
        (("specs/area",), (), (), [USUAL]),
        (("specs/area/large.yaml",), (), (), [USUAL, MIXED]),
        ((), ("*",), (), [USUAL]),
        ((), ("*op=add*",), (), [USUAL]),
        ((), ("*op=mul*",), (), [USUAL, FAMILY[1]]),
        ((), ("operators/*",), (), [USUAL, *FAMILY]),
        ((), ("!operators/*", "!large"), (), [USUAL]),
        ((), (FAMILY[0].id,), (), [USUAL, FAMILY[0]]),
        ((), (), ("operators",), [USUAL, *FAMILY]),
        ((), (), ("both",), [USUAL, *FAMILY]),
        ((), (), ("another",), [USUAL]),
        ((), (), ("!both",), [USUAL]),
    ],
)
def test_what_names_a_spec_on_request(
    paths: tuple[str, ...], globs: tuple[str, ...], tags: tuple[str, ...], expected: list[Case]
) -> None:
    selection = Selection(select=globs, tag=tags)
    assert requested(CASES, CASES, selection, paths=list(map(Path, paths))) == expected


@pytest.mark.parametrize(
    ("path", "count"), [("specs", 1), ("specs/part", 1), ("specs/part/half.yaml", 2)]
)
def test_a_spec_with_some_cases_on_request_is_named_by_its_file_alone(
    path: str, count: int
) -> None:
    assert requested(HALF, [*CASES, *HALF], Selection(), paths=[Path(path)]) == HALF[:count]


def test_a_reason_of_a_template_puts_some_cases_on_request(tmp_path: Path) -> None:
    reason = (
        "on_request: \"{{ 'one shows the same' if repeat == 2 else '' }}\"\nmatrix: {repeat: [1, "
        "2]}\n"
    )
    cases = load([write_specs(tmp_path, {"one": GOOD + reason})], []).cases
    assert [(case.on_request, case.because) for case in cases] == [
        (False, ""),
        (True, "one shows the same"),
    ]


@pytest.mark.parametrize(
    ("tags", "expected"),
    [
        (["operators"], FAMILY),
        (["operators", "both"], [USUAL, *FAMILY]),
        (["!operators"], [USUAL, MIXED]),
        (["both", "!operators"], [USUAL]),
        (["!both", "!operators"], [MIXED]),
        (["operator"], None),
        (["!operator"], None),
    ],
)
def test_a_tag_selects_or_excludes(tags: list[str], expected: list[Case] | None) -> None:
    if expected is None:
        with pytest.raises(UsageError, match="unknown tag 'operator'"):
            select(CASES, load_backends(), Selection(tag=tuple(tags)))
    else:
        assert select(CASES, load_backends(), Selection(tag=tuple(tags))) == expected


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        (["specs"], {"one", "two", "three"}),
        (["specs/later.yaml"], {"later"}),
        (["specs", "--tag", "many"], {"later"}),
        (["specs", "--select", "later*"], {"later"}),
    ],
)
def test_a_run_takes_specs_on_request_where_they_are_named(
    executor: FakeExecutor, arguments: list[str], names: set[str]
) -> None:
    prepared = prepare(options_of(*arguments, "--backend", "cpu"))
    assert {case.name for case in prepared.selected} == names
    assert prepared.header.not_requested == 0, "who gave a path knows which are meant"


# -- what failed in an earlier run -----------------------------------------------------------------


def earlier(**outcomes: Outcome) -> str:
    """Write a run with these outcomes of the specs, and return its name."""
    ids = {
        name: {"case_id": f"{name}[backend=cpu]", "spec": f"specs/{name}.yaml"} for name in outcomes
    }
    results = [recorded(name, outcome, **ids[name]) for name, outcome in outcomes.items()]
    write_run(
        Path("old"),
        run_of(*results, run_id="earlier", options={"min-executed": "1", "paths": "specs"}),
    )
    return "old"


def test_what_failed_in_the_last_run_of_these_specs_is_selected(
    executor: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["run", "specs", "--backend", "cpu"]) == ExitCode.FAILED
    assert ran() == {"one", "two", "three"}
    first = lines()[0]["run_id"]
    assert (
        main(["run", "specs/three.yaml", "--backend", "cpu", "--out", "elsewhere"])
        == ExitCode.NOTHING
    )
    assert main(["run", "specs/three.yaml", "--last-failed"]) == ExitCode.NOTHING, (
        "of its own last run"
    )
    assert main(["run", "specs/one.yaml", "--last-failed", "--select", "o*"]) == ExitCode.FAILED
    assert ran() == {"one"}
    options = lines()[0]["options"]
    assert (options["failed-in"], options["last-failed"], options["paths"]) == (
        first,
        "",
        "specs/one.yaml",
    )
    assert main(["run", "--failed-in", first]) == ExitCode.FAILED
    assert ran() == {"one", "two"}
    assert main(["run", "--last-failed", "--select", "three*"]) == ExitCode.NOTHING
    assert "0 of the 2 cases that failed in" in capsys.readouterr().err


def test_only_what_fails_a_run_is_selected(
    executor: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    every = [
        outcome for outcome in Outcome if outcome is not Outcome.FLAKY
    ]  # FLAKY needs lines of attempts
    options, failed = with_failed(
        options_of("--failed-in", earlier(**{outcome.label: outcome for outcome in every}))
    )
    assert (options.failed_in, options.paths) == ("earlier", (Path("specs"),))
    fails = {
        outcome.label for outcome in every if outcome.is_failure and outcome is not Outcome.NOT_RUN
    }
    assert {case_id.partition("[")[0] for case_id in failed} == fails
    assert "1 case was not run in earlier" in capsys.readouterr().err


def test_shards_of_failed_cases_are_the_whole_selection(executor: FakeExecutor) -> None:
    name = earlier(one=Outcome.FAIL, two=Outcome.CRASH, three=Outcome.PASS)
    whole: set[str] = set()
    for number in (1, 2):
        main(["run", "--failed-in", name, "--shard", f"{number}/2"])
        assert lines()[0]["selected_whole"] == 2
        whole |= ran()
    assert whole == {"one", "two"}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("--last-failed", "no run 'latest'"),
        ("--failed-in nowhere", "no run 'nowhere'"),
        (
            "--shard 1/2 --durations specs/one.yaml",
            "--durations specs/one.yaml: it has no seconds of cases",
        ),
        ("--last-failed --failed-in old", "--last-failed with --failed-in old"),
        ("--last-failed --resume old", "--last-failed with --resume"),
        ("--failed-in broken", "broken/run.jsonl:1: "),
        ("--failed-in old --profile inductor-cpu", "--failed-in does not go with it"),
    ],
)
def test_what_cannot_be_selected(
    line: str, message: str, executor: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    earlier(one=Outcome.FAIL)
    Path("broken").mkdir()
    Path("broken/run.jsonl").write_text("{}\n")
    assert main(["run", *line.split()]) == ExitCode.USAGE
    assert message in capsys.readouterr().err


def test_a_run_of_failed_cases_is_resumed(
    executor: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["run", "--failed-in", earlier(one=Outcome.FAIL, two=Outcome.FAIL), "--fail-fast"]
    assert main([*command, "--out", "new"]) == ExitCode.FAILED
    journal = Path("new/run.jsonl")
    journal.write_text(
        "".join(journal.read_text().splitlines(keepends=True)[:2])
    )  # as after a kill: one result, no footer
    assert main([*command, "--resume", "new"]) == ExitCode.FAILED, capsys.readouterr().err
    assert [line["kind"] for line in lines(Path("new"))] == ["header", "case", "case", "footer"]
    assert main(["run", "specs", "--fail-fast", "--resume", "new"]) == ExitCode.USAGE


def test_a_shard_is_resumed_by_the_durations_of_then(
    executor: FakeExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another run is the latest one now."""
    one, two = (recorded(name, case_id=f"{name}[backend=cpu]") for name in ("one", "two"))
    write_run(REPORTS / "then", run_of(one, replace(two, seconds=9.0)))
    (REPORTS / "latest").symlink_to("then")
    command = ["run", "specs", "--shard", "2/2", "--durations", "latest"]
    main([*command, "--out", "new"])
    assert (ran(Path("new")), lines(Path("new"))[0]["options"]["durations"]) == (
        {"one", "three"},
        "then",
    )
    main(["run", "specs", "--shard", "2/2"])
    assert ran() == {"three"}
    capsys.readouterr()
    assert main(["list", "specs", "--shard", "2/2"]) == ExitCode.OK
    assert capsys.readouterr().out.startswith("three[backend=cpu]  unavailable"), (
        "a case on request, or another one, is listed"
    )
    assert main(command) == ExitCode.USAGE
    assert "the latest run is shard 2/2" in capsys.readouterr().err
    for table, code in (("", ExitCode.FAILED), ("9.5 three[backend=cpu]\n", ExitCode.USAGE)):
        Path("specs/durations.txt").write_text(table)
        edit(
            Path("new/run.jsonl"), lambda records: records.__delitem__(slice(2, None))
        )  # as after a kill
        assert main([*command, "--resume", "new"]) == code, capsys.readouterr().err
    assert "the shards were made with other durations" in capsys.readouterr().err


# -- attempts and deadlines ------------------------------------------------------------------------


@pytest.fixture
def run(executor: FakeExecutor) -> Run:
    """Return a function that runs two cases and returns the jobs of each round."""

    def go(*arguments: str) -> list[list[Job]]:
        assert (
            main(["run", "specs", "--backend", "cpu", "--out", "out", *arguments])
            == ExitCode.FAILED
        )
        return executor.rounds

    return go


def test_what_is_run_again_has_the_machine_and_a_worker_to_itself(run: Run) -> None:
    rounds = run("--retries", "2")
    assert [(len(jobs), {job.needs.exclusive for job in jobs}) for jobs in rounds] == [
        (2, {False}),
        (2, {True}),
        (2, {True}),
    ]


def test_attempts_of_a_case_are_jobs_of_their_own(run: Run) -> None:
    (jobs,) = run("--repeat", "3")
    assert len({job.name for job in jobs}) == len({job.folder for job in jobs}) == len(jobs) == 6
    assert sorted(
        len(line["attempts"]) for line in lines(Path("out")) if line["kind"] == "case"
    ) == [0, 3, 3]


@pytest.mark.parametrize(("factor", "seconds"), [("1", 300.0), ("0.5", 150.0), ("4", 1200.0)])
def test_every_deadline_is_multiplied(
    run: Run, executor: FakeExecutor, factor: str, seconds: float
) -> None:
    (jobs,) = run("--timeout-factor", factor)
    assert {job.timeout for job in jobs} == {seconds}
    assert executor.settings is not None
    assert executor.settings.timeout_factor == float(factor)


# -- durations of an earlier run: read where they can be, and nothing of what is broken, hostile or


def timed(folder: Path, seconds: dict[str, float]) -> Path:
    results = [
        replace(recorded(f"n{number}", case_id=id), seconds=value)
        for number, (id, value) in enumerate(seconds.items())
    ]
    return write_run(folder, run_of(*results)) / JOURNAL


def test_ids_and_seconds(tmp_path: Path) -> None:
    seconds = {"a/one[backend=cpu]": 1.25, "b/two[backend=cpu,x=é]": 1e-05, '"q\\': 300.0}
    assert seconds_of_run(timed(tmp_path, seconds)) == seconds


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"\xff\x00",
        b"[]",
        b'{"kind": "case"',
        *(
            b'{"kind": "case", "case_id": "b", "seconds": ' + value
            for value in (b'"1"}', b"-1}", b"1e999}", b"1.2.3}", b"NaN}", b"1")  # the last is torn
        ),
        b'{"kind": "case", "case_id": "\\x", "seconds": 1}',
        b'{"kind": "case", "case_id": 7, "seconds": 1}',
    ],
)
def test_a_line_that_is_broken_says_nothing_and_costs_no_other(line: bytes, tmp_path: Path) -> None:
    journal = timed(tmp_path, {"a": 2.5})
    with journal.open("ab") as stream:
        stream.write(line)
    assert seconds_of_run(journal) == {"a": 2.5}


def test_what_is_no_file_is_not_read_and_a_journal_without_end_is_left_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = timed(tmp_path / "run", {"a": 2.5, **{f"b{number}": 1.0 for number in range(50)}})
    for name, place in (
        ("link", lambda path: path.symlink_to(journal)),
        ("pipe", os.mkfifo),
        ("folder", os.mkdir),
    ):
        place(tmp_path / name)
        assert seconds_of_run(tmp_path / name) == {}
    monkeypatch.setattr(preparation, "_MOST_BYTES", journal.stat().st_size // 5)
    seconds = seconds_of_run(journal)
    assert seconds["a"] == 2.5
    assert len(seconds) < 20
