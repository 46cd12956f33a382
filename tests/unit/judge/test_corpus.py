"""The corpus of recorded facts: what each case gives in the journal and in JUnit, judged again as a
submission, compared with other facts.

All cases of one machine and the same options are one run of the command line.
"""

import itertools
import json
import xml.etree.ElementTree as ET
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.corpus import (
    CONTRADICTING,
    TEXTS,
    CorpusCase,
    CorpusRun,
    cases,
    folders,
    given,
    groups,
    run,
    texts,
)

ELEMENTS = {
    **dict.fromkeys(("FAIL", "FELL_BACK", "XPASS", "FLAKY", "OFFLINE_FAIL"), "failure"),
    **dict.fromkeys(("ERROR", "CRASH", "TIMEOUT", "NOT_RUN"), "error"),
    **dict.fromkeys(("UNAVAILABLE", "XFAIL", "OFFLINE_PASS"), "skipped"),
}
"""The element of JUnit for each outcome but PASS."""

CLAIMS = ("PASS", "FAIL", "FELL_BACK")
"""Outcomes that claim something by one observation: ``verify`` judges it again."""

STATES = {
    "PASS": "passes",
    "XPASS": "passes",
    "XFAIL": "excused",
    "UNAVAILABLE": "idle",
    "NOT_RUN": "idle",
}
WORDS = {
    ("passes", "passes"): ("same", "changed"),
    ("passes", "fails"): ("broken",),
    ("fails", "passes"): ("fixed",),
    ("fails", "fails"): ("still-failing", "changed"),
    ("excused", "excused"): ("same", "changed"),
    ("excused", "fails"): ("broken",),
    ("fails", "excused"): ("waived",),
    ("passes", "excused"): ("waived",),
    ("excused", "passes"): ("fixed",),
    ("idle", "idle"): ("same",),
}
"""What ``diff`` may call a change."""

GROUPS = groups()
CONSISTENT = [name for name in GROUPS if not name.endswith(CONTRADICTING)]
LARGEST = ("cpu", "cpu --repeat 20")
"""Groups of hundreds of executions; each case of them is judged by every run of the tests."""
MANY = pytest.mark.nightly(
    reason="hundreds of executions once more; the other groups say the same of fewer"
)
Runs = Callable[[str], CorpusRun]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    """Return a function that runs a group of cases, once in this module."""
    made: dict[str, CorpusRun] = {}

    def of_group(name: str) -> CorpusRun:
        if name not in made:
            made[name] = run(tmp_path_factory.mktemp("corpus"), GROUPS[name])
        return made[name]

    return of_group


@pytest.mark.parametrize("folder", folders(), ids=lambda folder: folder.name)
def test_each_case_gives_what_it_says(folder: Path, runs: Runs) -> None:
    expected = {case.title: case.edits["gives"] for case in cases(folder)}
    chosen = [name for name, some in GROUPS.items() if any(case.folder == folder for case in some)]
    results = itertools.chain.from_iterable(runs(name).results for name in chosen)
    assert {case.title: given(line) for case, line in results if case.folder == folder} == expected


@pytest.mark.parametrize("group", GROUPS)
def test_junit_has_the_element_the_type_and_the_line_of_each_case(group: str, runs: Runs) -> None:
    whole = runs(group)
    elements = {
        element.get("name"): element
        for element in ET.parse(whole.out / "junit.xml").iter("testcase")
    }
    assert len(elements) == len(GROUPS[group])
    for case, line in whole.results:
        element = elements[line["case_id"]]
        shown = [child for child in element if child.tag in ("failure", "error", "skipped")]
        is_let_pass = line["outcome"] == "FLAKY" and "pass" in case.options
        assert [child.tag for child in shown] == (
            [] if line["outcome"] == "PASS" or is_let_pass else [ELEMENTS[line["outcome"]]]
        ), case.title
        assert (element.find("flakyFailure") is not None) == is_let_pass, case.title
        assert (element.get("file"), element.get("line")) == (
            line["position"]["file"],
            str(line["position"].get("line", 1)),
        ), case.title
        assert [child.get("type") for child in shown] == [line["failure_type"]] * len(shown), (
            case.title
        )
    assert whole.command("report", "out", "--junit", "again.xml")[0] == 0
    again, first = (
        path.read_text("utf-8").splitlines()
        for path in (whole.place / "again.xml", whole.out / "junit.xml")
    )
    assert sorted(again) == sorted(
        first
    )  # the suites stand in the order in which their cases ended


@pytest.mark.parametrize("group", GROUPS)
def test_facts_that_cannot_all_be_true_are_found(group: str, runs: Runs) -> None:
    assert runs(group).contradictions == {
        case.title: case.edits["contradicts"]
        for case in GROUPS[group]
        if "contradicts" in case.edits
    }


@pytest.mark.parametrize("group", CONSISTENT)
def test_a_submission_is_judged_again_and_gives_the_same(group: str, runs: Runs) -> None:
    whole = runs(group)
    assert whole.contradictions == {}
    code, printed, _ = whole.command("verify", "submission.tar.zst", "--json")
    verified = json.loads(printed)
    assert (verified["verified"], verified["exit_code"]) == (True, code)
    outcomes = [line["outcome"] for _, line in whole.results]
    assert verified["totals"] == {
        outcome: outcomes.count(outcome) for outcome in verified["totals"]
    }
    assert code == whole.code


@pytest.mark.parametrize(
    "group",
    [
        pytest.param(name, marks=MANY if name in LARGEST else ())
        for name in CONSISTENT
        if "--" in name
    ],
)
def test_shards_that_are_merged_are_the_whole_run(group: str, runs: Runs) -> None:
    whole = runs(group)
    count = min(2, len(whole.cases))
    shards = [
        run(whole.place, list(whole.cases.values()), f"shard-{i}", "--shard", f"{i}/{count}")
        for i in range(1, count + 1)
    ]
    assert (
        whole.command("merge", *(shard.out.name for shard in shards), "--out", "merged")[0]
        == whole.code
    )
    merged = replace(whole, out=whole.place / "merged")
    assert {case.title: given(line) for case, line in merged.results} == {
        case.title: given(line) for case, line in whole.results
    }
    assert merged.contradictions == {}  # each case is judged again from the files that came along
    assert (merged.out / "junit.xml").read_text("utf-8").count("<testcase ") == len(whole.cases)


def exchanged(whole: CorpusRun) -> dict[CorpusCase, CorpusCase]:
    """Return the cases that claim something, each with the next of its spec and code whose
    observation gives something else.
    """
    of_spec: dict[str, list[tuple[CorpusCase, str]]] = {}
    for case, line in whole.results:
        is_one = len({attempt["outcome"] for attempt in line["attempts"]}) < 2
        is_alone = is_one and not line["waivers"] and "{spec}" not in str(case.edits)
        if (
            line["outcome"] in (*CLAIMS, "ERROR")
            and "observation.json" in line["evidence"]
            and is_alone
        ):
            key = f"{case.folder.name} {len(line['attempts'])} {case.spec} {case.edits.get('code')}"
            of_spec.setdefault(key, []).append((case, given(line)))
    found = {}
    for some in of_spec.values():
        for number, (case, gives) in enumerate(some):
            other = next(
                (one for one, others in some[number + 1 :] + some[:number] if others != gives), None
            )
            if other is not None and gives.split()[0] in CLAIMS:
                found[case] = other
    return found


@pytest.mark.parametrize(
    "group",
    [pytest.param(name, marks=MANY if name in LARGEST else ()) for name in CONSISTENT],
)
def test_other_facts_are_compared_and_never_taken_for_the_recorded_ones(
    group: str, runs: Runs
) -> None:
    """In the second run cases have the observation of a neighbour: ``diff`` names what changed; the
    verdicts of the first fit no longer.
    """
    first = runs(group)
    neighbours = exchanged(first)
    second = run(first.place, list(first.cases.values()), "second", facts_of=neighbours)
    before, after = dict(first.results), dict(second.results)
    assert {case.title: given(after[case]) for case in neighbours} == {
        case.title: given(before[one]) for case, one in neighbours.items()
    }
    code, printed, said = first.command("diff", "out", "second", "--json")
    assert code == 0, said
    changes = {change["id"]: change["change"] for change in json.loads(printed)["cases"]}
    for case, line in after.items():
        states = [STATES.get(one["outcome"], "fails") for one in (before[case], line)]
        assert changes.get(line["case_id"], "same") in WORDS[states[0], states[1]], case.title
    forged = [_own(line, other) for line, other in zip(first.lines, second.lines, strict=True)]
    (second.out / "run.jsonl").write_text(
        "".join(json.dumps(line) + "\n" for line in forged), "utf-8"
    )
    assert not neighbours or first.command("audit", "second")[0] == 2
    found = second.contradictions
    assert [case.title for case in neighbours if "verdicts" not in found.get(case.title, ())] == []


def _own(line: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """Return a line of a journal, and its attempts, with the files of another one."""
    if line["kind"] in ("header", "footer"):
        return line
    attempts = [
        {**attempt, **{name: files[name] for name in ("folder", "evidence")}}
        for attempt, files in zip(line["attempts"], other["attempts"], strict=True)
    ]
    return {**line, "folder": other["folder"], "evidence": other["evidence"], "attempts": attempts}


def test_the_whole_texts_of_a_failure_of_each_kind(tmp_path: Path) -> None:
    """Nothing else pins wording: ``python -m tests.corpus texts`` writes them again."""
    assert texts(tmp_path) == {path.stem: path.read_text("utf-8") for path in TEXTS.glob("*.txt")}
