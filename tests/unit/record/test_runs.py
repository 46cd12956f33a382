"""Folders of runs: where they lie, how they are found, which one can be resumed.

No worker is started.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import COUNTED, case, step
from tests.recorded import footer_of, recorded, run_of, write_journal
from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.header import RunHeader
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.plan.worker_plan import digest_of
from torch_conformance.record.journal import digest_of_selection
from torch_conformance.record.run_folder import RunFolder, find_run, open_run
from torch_conformance.run.earlier_runs import resume_run

pytestmark = pytest.mark.usefixtures("here")

ONE, TWO = CASES = [
    case(step(COUNTED), id=f"area/{name}[backend=cpu]", name=name) for name in ("one", "two")
]
OTHER = case(id="area/c[backend=cpu]")
FILES = {"waivers.yaml": "1" * 64}
OPTIONS = {"backend": "cpu", "jobs": "2", "timeout": "300.0"}


def header_of(cases: Sequence[Case], **changes: Any) -> RunHeader:
    """Return the header that a run of these cases would write."""
    selection = digest_of_selection({one.id: digest_of(one) for one in cases})
    values = {
        "version": "0",
        "variables": {"TORCH_LOGS": "+dynamo"},
        "specs": {"spec.yaml": "0" * 64, **FILES},
        "options": OPTIONS,
    }
    whole = {"selected": len(cases), "selected_whole": len(cases), "selection": selection}
    return run_of(run_id="r1", environment={}, **{**values, **whole, **changes}).header


def result_of(one: Case, outcome: Outcome = Outcome.PASS, **changes: Any) -> CaseResult:
    return recorded(
        one.name,
        outcome,
        **{"digest": digest_of(one), "folder": f"cases/{ord(one.name[0]):05d}", **changes},
    )


def resumed(
    cases: Sequence[Case], *, files: Mapping[str, str] = FILES, **changes: Any
) -> RunFolder:
    return resume_run(
        "out", header_of(cases, **changes), {one.id: digest_of(one) for one in cases}, files, None
    )


def written(
    *results: CaseResult,
    attempts: Sequence[CaseResult] = (),
    end: str = "killed",
    folder: Path = Path("out"),
) -> None:
    """Write a run that was killed, interrupted, or that ended."""
    footer = None if end == "killed" else footer_of(results, interrupted=end == "interrupted")
    write_journal(folder / "run.jsonl", header_of(CASES), results, attempts=attempts, footer=footer)


def test_a_run_without_a_name_lies_in_reports_and_is_the_latest() -> None:
    first = open_run(None)
    assert (first.path, first.is_latest) == (Path("reports").absolute() / first.run_id, True)
    second = open_run(None)
    assert os.readlink("reports/latest") == second.run_id
    assert sorted(os.listdir("reports")) == sorted([first.run_id, second.run_id, "latest"])


def test_a_folder_that_holds_a_run_is_refused() -> None:
    written()
    before = Path("out/run.jsonl").read_bytes()
    with pytest.raises(UsageError, match="holds a run already"):
        open_run(Path("out"))
    assert Path("out/run.jsonl").read_bytes() == before


def test_a_run_is_found_by_folder_by_id_and_as_latest() -> None:
    folder = open_run(None)
    written(folder=folder.path)
    for name in (str(folder.path), folder.run_id, "latest", f"reports/{folder.run_id}"):
        assert find_run(name).resolve() == folder.path
    for name in ("nothing", "reports", "", "x" * 300):
        with pytest.raises(UsageError, match="no run"):
            find_run(name)


# -- going on --------------------------------------------------------------------------------------

FAILED = result_of(ONE, Outcome.FAIL, reason="at first")
UNRUN = [result_of(one, Outcome.NOT_RUN, reason="interrupted") for one in CASES]


@pytest.mark.parametrize("end", ["killed", "interrupted"])
@pytest.mark.parametrize(
    ("results", "attempts", "finished", "begins_anew"),
    [
        ([result_of(ONE), UNRUN[1]], [], [ONE.id], False),
        ([result_of(TWO), UNRUN[0]], [FAILED], [TWO.id], False),
        (UNRUN, [FAILED], [], False),
        (UNRUN, [], [], True),
    ],
    ids=["a result", "a result and an attempt", "an attempt", "nothing"],
)
def test_a_run_goes_on_with_what_it_has(
    end: str, results: Any, attempts: Any, finished: list[str], begins_anew: bool
) -> None:
    written(*results, attempts=attempts, end=end)
    folder = resumed(CASES)
    assert (folder.run_id, folder.header) == ("r1", None if begins_anew else header_of(CASES))
    assert [one.case_id for one in folder.finished] == finished
    assert folder.attempts == ({ONE.id: (FAILED,)} if attempts else {})


def test_attempts_of_another_case_are_refused() -> None:
    written(attempts=[result_of(ONE, digest="0" * 64)])
    with pytest.raises(UsageError, match="has changed since the run"):
        resumed(CASES)


def test_a_run_that_ended_is_refused() -> None:
    written(*map(result_of, CASES), end="ended")
    with pytest.raises(UsageError, match="this run is complete"):
        resumed(CASES)


@pytest.mark.parametrize(
    "selected",
    [[TWO], [ONE], [], [*CASES, OTHER], [replace(ONE, params={"changed": 1}), TWO], [OTHER, TWO]],
    ids=[
        "without the first",
        "without the second",
        "none",
        "one more",
        "one changed",
        "one exchanged",
    ],
)
def test_other_cases_than_those_of_the_run_are_refused(selected: list[Case]) -> None:
    written(result_of(ONE))
    with pytest.raises(UsageError, match="--resume out"):
        resumed(selected)


OTHERS = {"timeout": "600.0", "require": "cuda", "retries": "2", "timeout-factor": "2.0"}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"version": "1"}, "version"),
        *(
            ({"options": {**OPTIONS, name: value}}, f"--{name} is '{value}' now")
            for name, value in OTHERS.items()
        ),
        ({"variables": {}}, "$TORCH_LOGS"),
        ({"selected_whole": 3, "selection": "f" * 64}, "2 then, 3 now"),
        ({"files": {"waivers.yaml": "2" * 64}}, "waivers.yaml"),
        ({"files": {**FILES, "vendor.yaml": "3" * 64}}, "vendor.yaml"),
    ],
)
def test_a_run_goes_on_as_it_began(changes: dict[str, Any], words: str) -> None:
    written(result_of(ONE))
    before = Path("out/run.jsonl").read_bytes()
    with pytest.raises(UsageError) as caught:
        resumed(CASES, **changes)
    assert words in str(caught.value)
    assert Path("out/run.jsonl").read_bytes() == before


@pytest.mark.parametrize("text", ["", "nonsense\n", "[]\n", '{"kind": "case"}\n'])
def test_a_journal_that_is_none_is_a_usage_error(text: str) -> None:
    Path("out").mkdir()
    Path("out/run.jsonl").write_text(text)
    with pytest.raises(UsageError):
        resumed(CASES)
