"""Joining shards: every reason for which runs do not belong together, and that what belongs
together is the whole run.
"""

import hashlib
import json
import os
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.recorded import NOT_EXECUTED, footer_of, recorded, run_of, write_journal
from torch_conformance.cli.parser import main
from torch_conformance.model.header import RunFooter, RunHeader
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import Attempt, CaseResult, attempt_of
from torch_conformance.record.journal import NamedRun, Run, digest_of_selection, read_run
from torch_conformance.run.merging import join, problems

IDS = [f"area/{name}[backend=cpu,n={number}]" for name in ("one", "two") for number in (1, 2, 10)]
SPECS = {"specs/area/two.yaml": "2" * 64, "specs/area/one.yaml": "1" * 64}
"""In the order in which they were read."""

ENVIRONMENT = {
    "torch": "2.13.0+cu130",
    "torch_git": "abc",
    "python": "3.11.7",
    "platform": "Linux-6.1",
    "cpu": "x86_64",
    "cuda": "13.0",
    "triton": "3.7.0",
    "gpus": "1",
    "device": "NVIDIA H200",
    "arch": "sm_90",
    "gpu_memory": "150000",
    "driver": "580.1",
}
OPTIONS = {"backend": "", "min-executed": "1", "timeout": "300.0", "jobs": "2"}


def evidence(case_id: str) -> dict[str, str]:
    """Return the digest of the observation that ``write`` leaves for a case."""
    return {"observation.json": hashlib.sha256(json.dumps(case_id).encode()).hexdigest()}


def result(case_id: str, outcome: Outcome = Outcome.PASS, **changes: Any) -> CaseResult:
    name = case_id.removeprefix("area/").split("[")[0]
    digest = f"{IDS.index(case_id):064x}" if case_id in IDS else "f" * 64
    ran = {} if outcome in NOT_EXECUTED else {"evidence": evidence(case_id)}
    return recorded(name, outcome, **{"case_id": case_id, "digest": digest, **ran, **changes})


def attempt(case_id: str, folder: str, outcome: Outcome = Outcome.FAIL) -> Attempt:
    ran = {"seconds": 1.0, "isolation": "fork"} if folder else {"seconds": 0.0, "isolation": ""}
    return attempt_of(result(case_id, outcome, folder=folder, **ran))


def flaky(case_id: str, *made: Attempt) -> CaseResult:
    verdicts = {
        "verdicts": made[0].verdicts,
        "folder": made[0].folder,
        "evidence": made[0].evidence,
    }
    return result(
        case_id, Outcome.FLAKY, attempts=made, seconds=sum(one.seconds for one in made), **verdicts
    )


SELECTION = digest_of_selection({case_id: result(case_id).digest for case_id in IDS})


def header(index: int, count: int, selected: int, **changes: Any) -> RunHeader:
    options = {**changes.pop("options", OPTIONS), "shard": changes.pop("shard", f"{index}/{count}")}
    whole = {
        "selected": selected,
        "selected_whole": len(IDS),
        "selection": SELECTION,
        "variables": {"TORCH_LOGS": "+dynamo"},
    }
    made = run_of(
        run_id=f"run-{index}",
        started=f"2026-10-07T12:00:0{index}Z",
        environment=ENVIRONMENT,
        specs=SPECS,
        options=options,
    )
    return replace(made.header, **{**whole, **changes})


def footer(results: Sequence[CaseResult], **changes: Any) -> RunFooter:
    return footer_of(results, **{"ended": "2026-10-07T13:00:00Z", "seconds": 9.0, **changes})


def shard(index: int, ids: Sequence[str], *, count: int = 3, **changes: Any) -> NamedRun:
    """Return a part that holds these cases; changes are those of its header, or ``results`` and
    ``footer``.
    """
    results = tuple(
        changes.pop(
            "results",
            [result(case_id, folder=f"cases/{n:05d}") for n, case_id in enumerate(ids, 1)],
        )
    )
    end = changes.pop("footer", footer(results))
    return NamedRun(
        f"shard-{index}",
        Run(header=header(index, count, len(results), **changes), results=results, footer=end),
    )


def shards(**of_second: Any) -> list[NamedRun]:
    """Return three shards that belong together, the second changed."""
    return [shard(1, IDS[:1]), shard(2, IDS[1:4], **of_second), shard(3, IDS[4:])]


def test_what_belongs_together_has_no_problem() -> None:
    assert problems(shards()) == []
    assert problems(list(reversed(shards()))) == []
    assert problems([shard(1, IDS, count=1)]) == []


def test_shards_that_ran_on_nodes_are_of_one_run_though_their_headers_name_unlike_nodes() -> None:
    """A shard of one machine is judged by the facts of its header, which the other shards must
    share.
    """
    other = {**ENVIRONMENT, "torch": "2.12.0"}
    one, two, three = shards(environment=other)
    assert problems([one, two, three]) == [
        "shard-2: the machine's torch is '2.12.0' here, '2.13.0+cu130' in shard-1"
    ]
    nodes = [
        {"name": name, **facts}
        for name, facts in zip("abc", (ENVIRONMENT, other, ENVIRONMENT), strict=True)
    ]
    parts = [
        NamedRun(
            part.name,
            replace(part.run, results=tuple(replace(one, node=node) for one in part.run.results)),
        )
        for part, node in zip((one, two, three), nodes, strict=True)
    ]
    assert problems(parts) == []
    merged, _ = join(parts, run_id="whole", command=("torch-conformance", "merge"))
    assert merged.header.environment == ENVIRONMENT
    assert [found.node["torch"] for found in merged.results].count("2.12.0") == 3
    assert problems([one, *parts[1:]]) == problems([one, two, three])


def test_a_shard_that_is_given_twice_is_named() -> None:
    one, two, three = shards()
    again = NamedRun("again", replace(two.run, header=replace(two.run.header, run_id="run-4")))
    assert problems([one, two, three, again]) == ["2/3 is given 2 times: shard-2, again"]
    assert problems([one, two, three, NamedRun("same", two.run)]) == [
        "2/3 is given 2 times: shard-2, same"
    ]


def test_cases_that_two_shards_hold_are_named() -> None:
    one, two, _ = shards()
    three = shard(3, IDS[3:])
    assert problems([one, two, three]) == [f"{IDS[3]} in both shard-2 and shard-3"]
    everything = shard(3, IDS)
    assert problems([one, two, everything]) == [
        f"{IDS[0]} in both shard-1 and shard-3",
        f"{IDS[1]}, {IDS[2]}, {IDS[3]} in both shard-2 and shard-3",
    ]


def test_a_gap_within_a_shard_is_seen_whatever_its_header_says() -> None:
    """Its header counts what it holds, and the whole selection is what counts."""
    one, _, three = shards()
    assert problems([one, shard(2, IDS[1:3]), three]) == [
        "together they hold 5 of the 6 cases that were selected"
    ]
    strange = [result(case_id) for case_id in (*IDS[1:3], "area/three[backend=cpu]")]
    assert problems([one, shard(2, [], results=strange), three]) == [
        "together they hold other cases than were selected"
    ]
    changed = [result(IDS[1]), result(IDS[2]), result(IDS[3], digest="0" * 64)]
    assert problems([one, shard(2, [], results=changed), three]) == [
        "together they hold other cases than were selected"
    ]


OF_ONE_PART: list[tuple[Mapping[str, Any], str]] = [
    ({"footer": None}, "it was cut off; resume it with 'run ... --resume', then merge"),
    (
        {"footer": footer([], interrupted=True)},
        "it was interrupted; resume it with 'run ... --resume', then merge",
    ),
    ({"shard": ""}, "not a shard: it was run without --shard"),
    ({"shard": "", "merged": ("a", "b")}, "not a shard: it was merged already"),
]


@pytest.mark.parametrize(
    ("changes", "words"), OF_ONE_PART, ids=[words[:30] for _, words in OF_ONE_PART]
)
def test_a_part_that_is_none(changes: Mapping[str, Any], words: str) -> None:
    assert f"shard-2: {words}" in problems(shards(**changes))


OTHER_MACHINE = {
    "torch": "2.13.1",
    "torch_git": "def",
    "triton": "3.6.0",
    "device": "NVIDIA H100",
    "arch": "sm_100",
    "driver": "590.1",
    "cuda": "12.8",
    "gpus": "2",
    "cpu": "aarch64",
    "hip": "7.0",
    "a_fact_of_tomorrow": "1",
}
BETWEEN: list[tuple[Mapping[str, Any], str]] = [
    ({"version": "0.2.0"}, "version of this program is '0.2.0' here"),
    ({"shard": "2/4"}, "it is shard 2/4"),
    ({"selected_whole": 7}, "another selection, of 7 cases"),
    ({"selection": "f" * 64}, "another selection, of 6 cases"),
    ({"assignment": "f" * 64}, "its shards were made with other durations than those of shard-1"),
    (
        {"specs": {**SPECS, "specs/area/one.yaml": "f" * 64}},
        "the file specs/area/one.yaml is 'ffffffffffff' here",
    ),
    (
        {"specs": {**SPECS, "waivers.yaml": "3" * 64}},
        "the file waivers.yaml is '333333333333' here",
    ),
    ({"variables": {}}, "$TORCH_LOGS is none here"),
    (
        {"variables": {"TORCH_LOGS": "+dynamo", "OMP_NUM_THREADS": "4"}},
        "$OMP_NUM_THREADS is '4' here",
    ),
    ({"options": {**OPTIONS, "timeout": "600.0"}}, "--timeout is '600.0' here"),
    ({"options": {**OPTIONS, "fail-fast": "True"}}, "--fail-fast is 'True' here"),
    *(
        ({"environment": {**ENVIRONMENT, name: value}}, f"the machine's {name} is '{shown}' here")
        for name, value, shown in [
            *((name, value, value) for name, value in OTHER_MACHINE.items()),
            ("python", "3.12.7", "3.12"),
            ("ck_dir", "/opt/ck", "installed"),
        ]
    ),
]


@pytest.mark.parametrize(("changes", "words"), BETWEEN, ids=[words for _, words in BETWEEN])
def test_what_must_agree(changes: Mapping[str, Any], words: str) -> None:
    found = problems(shards(**changes))
    assert [line for line in found if line.startswith("shard-2: ") and words in line]
    assert [line for line in found if line.startswith(("shard-1: ", "shard-3: "))] == []


# -- the command -----------------------------------------------------------------------------------


Write = Callable[[Sequence[NamedRun]], list[str]]


def repeated(part: NamedRun, **changes: Any) -> NamedRun:
    """Return a part whose cases were run several times."""
    found = replace(
        part.run.header,
        options={
            **part.run.header.options,
            **{name: str(value) for name, value in changes.items()},
        },
    )
    end = footer_of(part.run.results, lets_flaky_pass=found.lets_flaky_pass)
    return NamedRun(part.name, replace(part.run, header=found, footer=end))


def line_of(case: CaseResult, made: Attempt) -> CaseResult:
    """Return an attempt as the line that a run wrote of it."""
    whole = result(
        case.case_id,
        made.outcome,
        folder=made.folder,
        seconds=made.seconds,
        isolation=made.isolation,
    )
    return replace(whole, stdout=made.stdout, stderr=made.stderr)


@pytest.fixture
def write(here: Path) -> Write:
    """Return a function that writes parts as runs with evidence, and returns their folders."""

    def written(parts: Sequence[NamedRun]) -> list[str]:
        for part in parts:
            attempts = [line_of(one, made) for one in part.run.results for made in one.attempts]
            write_journal(
                Path(part.name, "run.jsonl"),
                part.run.header,
                part.run.results,
                attempts=attempts,
                footer=part.run.footer,
            )
            for one in part.run.results:
                for place in filter(None, (one.folder, *(made.folder for made in one.attempts))):
                    folder = Path(part.name) / place
                    folder.mkdir(parents=True, exist_ok=True)
                    (folder / "observation.json").write_text(json.dumps(one.case_id))
        return [part.name for part in parts]

    return written


def test_a_merged_run_is_a_run_like_any_other(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("more").mkdir()
    assert main(["merge", *write(shards()), "--out", "out", "--junit", "more/report.xml"]) == 0
    run = read_run(Path("out/run.jsonl"))
    ordered = [
        "area/two[backend=cpu,n=1]",
        "area/two[backend=cpu,n=2]",
        "area/two[backend=cpu,n=10]",
    ]
    assert [one.case_id for one in run.results] == [
        *ordered,
        *(name.replace("two", "one") for name in ordered),
    ]
    assert (run.header.shard, run.header.selected, run.header.merged) == (
        "",
        6,
        ("run-1", "run-2", "run-3"),
    )
    assert (run.header.selection, run.header.started) == (SELECTION, "2026-10-07T12:00:01Z")
    assert run.header.run_id not in run.header.merged
    assert "shard" not in run.header.options
    assert run.footer == footer(run.results)
    for one in run.results:
        assert (
            json.loads((Path("out") / one.folder / "observation.json").read_text()) == one.case_id
        )
    assert len({one.folder for one in run.results}) == 6
    report = Path("out/junit.xml").read_bytes()
    assert report == Path("more/report.xml").read_bytes()
    assert report.count(b"<testcase ") == 6
    assert b'name="merged" value="run-1 run-2 run-3"' in report
    assert re.fullmatch(
        "executed 6 of 6 selected, 0 unavailable; report: more/report.xml; [0-9]+ s",
        capsys.readouterr().out.splitlines()[-1],
    )


@pytest.mark.parametrize(("least", "code"), [("1", 0), ("6", 4)])
def test_the_exit_code_is_that_of_the_whole_run(write: Write, least: str, code: int) -> None:
    """No part executes as many cases as the whole run must; other outcomes are merged in the
    corpus.
    """
    parts = []
    for part in shards(
        results=[
            result(IDS[1]),
            result(IDS[2], Outcome.UNAVAILABLE),
            result(IDS[3], Outcome.XFAIL, folder="cases/00003"),
        ]
    ):
        top = replace(part.run.header, options={**part.run.header.options, "min-executed": least})
        parts.append(
            NamedRun(
                part.name,
                replace(part.run, header=top, footer=footer_of(part.run.results, least=int(least))),
            )
        )
    assert main(["merge", *write(parts), "--out", "out"]) == code
    found = read_run(Path("out/run.jsonl")).footer
    assert found is not None
    assert found.exit_code == code


def test_attempts_come_along_with_their_evidence(write: Write) -> None:
    made = (
        attempt(IDS[1], "cases/00001"),
        attempt(IDS[1], "cases/00009", Outcome.PASS),
        attempt(IDS[1], "", Outcome.UNAVAILABLE),
    )
    second = [
        flaky(IDS[1], *made),
        result(IDS[2], folder="cases/00002"),
        result(IDS[3], folder="cases/00003"),
    ]
    parts = [repeated(part, repeat=3) for part in shards(results=second)]
    assert main(["merge", *write(parts), "--out", "out"]) == 1
    results = {str(one.case_id): one for one in read_run(Path("out/run.jsonl")).results}
    found = results[IDS[1]]
    assert found.attempts[0].folder == found.folder
    assert found.attempts[2].folder == ""
    folders = [
        found.folder,
        found.attempts[1].folder,
        *(one.folder for name, one in results.items() if name != IDS[1]),
    ]
    assert len(set(folders)) == 7
    for folder in folders[:2]:
        assert json.loads((Path("out") / folder / "observation.json").read_text()) == IDS[1]
    assert len(list(Path("out/cases").iterdir())) == 7


def test_what_is_refused_leaves_nothing(write: Write, capsys: pytest.CaptureFixture[str]) -> None:
    names = write(shards(version="0.2.0\n\x1b[31m", footer=None))
    assert main(["merge", names[0], names[1], "nowhere", "--out", "out"]) == 2
    assert capsys.readouterr().err.splitlines() == [
        "no run 'nowhere': neither nowhere/run.jsonl nor reports/nowhere/run.jsonl exists",
        "shard-2: it was cut off; resume it with 'run ... --resume', then merge",
        "shard-2: the version of this program is '0.2.0\\n\\x1b[31m' here, '0.1.0' in shard-1",
        "3/3 is missing",
        "4 problems; nothing was merged",
    ]
    assert not Path("out").exists()


@pytest.mark.parametrize("text", ["", "nonsense\n", '{"kind": "header", "format": 2}\n'])
def test_a_journal_that_is_none_is_a_problem(
    write: Write, capsys: pytest.CaptureFixture[str], text: str
) -> None:
    names = write(shards())
    Path("shard-2/run.jsonl").write_text(text)
    assert main(["merge", *names, "--out", "out"]) == 2
    first, second, _ = capsys.readouterr().err.splitlines()
    assert first.startswith("shard-2/run.jsonl:1: ")
    assert second == "2/3 is missing"


def test_no_link_of_anothers_archive_is_followed(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    names = write(shards())
    Path("secret").write_text("mine")
    Path("secrets").mkdir()
    (Path("secrets") / "observation.json").write_text("mine")
    one = Path("shard-1/cases/00001")
    (one / "code-0-0.txt").symlink_to(Path("secret").absolute())
    os.mkfifo(one / "stdout.txt")
    (one / "inner").mkdir()
    (one / "inner" / "more.txt").write_text("more")
    (one / "inner" / "away").symlink_to(Path("secrets").absolute())
    assert main(["merge", *names, "--out", "out"]) == 0
    copied = {
        path.relative_to("out").as_posix()
        for path in Path("out/cases").rglob("*")
        if not path.is_dir()
    }
    assert copied == {
        "cases/00001/inner/more.txt",
        *(f"cases/{number:05d}/observation.json" for number in range(1, 7)),
    }
    assert not any(path.is_symlink() for path in Path("out").rglob("*"))
    unjudged, warning = capsys.readouterr().err.splitlines()
    assert unjudged.startswith(
        "warning: merged as recorded, not judged again: shard-1 is of version 0.1.0, and this is "
    )
    assert warning.startswith("warning: not copied: ")
    assert warning.endswith(", and 2 more")


@pytest.mark.parametrize("place", ["cases", "cases/00001", "cases/00001/observation.json"])
def test_a_link_in_the_place_of_evidence_is_refused(
    write: Write, place: str, capsys: pytest.CaptureFixture[str]
) -> None:
    names = write(shards())
    linked = Path("shard-3") / place
    linked.rename("elsewhere")
    linked.symlink_to(Path("elsewhere").absolute())
    assert main(["merge", *names, "--out", "out"]) == 2
    assert "shard-3/cases" in capsys.readouterr().err
    assert not Path("out").exists()


def test_evidence_that_was_changed_is_refused(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    names = write(shards())
    Path("shard-2/cases/00002/observation.json").write_text("{}")
    Path("shard-3/cases/00001/observation.json").unlink()
    assert main(["merge", *names, "--out", "out"]) == 2
    first, second, _ = capsys.readouterr().err.splitlines()
    assert (
        f"shard-2/cases/00002/observation.json: not the file that {IDS[2]} was judged by" in first
    )
    assert "shard-3/cases/00001/observation.json: the file that" in second


def test_a_journal_that_is_a_link_is_refused(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    names = write(shards())
    Path("shard-3/run.jsonl").rename("elsewhere.jsonl")
    Path("shard-3/run.jsonl").symlink_to(Path("elsewhere.jsonl").absolute())
    assert main(["merge", *names, "--out", "out"]) == 2
    assert "shard-3/run.jsonl:1: this is a link" in capsys.readouterr().err
