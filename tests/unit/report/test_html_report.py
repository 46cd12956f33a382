"""The HTML report without a browser: what is written, and that nothing hostile in it is markup."""

import errno
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.fences import ROOT
from tests.readers import Elements
from tests.recorded import footer_of, recorded, run_of
from torch_conformance.model.case import CaseId
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.events import RunAbandoned, RunEnded
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.header import ReportedRun, RunHeader
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.optional.options import RunOptions
from torch_conformance.record.case_files import digest
from torch_conformance.record.run_folder import RunFolder
from torch_conformance.report import ReportSetup, page
from torch_conformance.report.page import (
    HtmlReporter,
    chunks,
    facts_of,
    pieces_of,
    script,
    shown,
    sources_of,
    write_page,
)

HOSTILE = (
    "</script><script>window.hacked=1</script><img src=x "
    'onerror="window.hacked=1">\'"&amp;\u2028\u202e]]>{{7*7}}\\x3c`${hacked}`'
)
ADDRESS = "javascript:window.hacked=1"
HEADER = run_of(
    command=("torch-conformance", "run", HOSTILE), environment={"torch": HOSTILE, HOSTILE: "1"}
).header


def case(name: str = "one", outcome: Outcome = Outcome.FAIL, **changes: Any) -> CaseResult:
    """Return a result whose words are not markup, but for what is changed."""
    return recorded("one", outcome, case_id=f"a/{name}[backend=cpu,dtype=float32]", **changes)


def hostile_case(number: int, outcome: Outcome) -> CaseResult:
    """Return a result with hostile text wherever a spec or a worker chooses the text."""
    words = {"expected": HOSTILE, "observed": HOSTILE, "detail": HOSTILE}
    verdict = Verdict(
        kind="text", status=Status.FAILED, position=Position(file=HOSTILE, line=3), **words
    )
    made = case(f"n{number}", outcome, reason=HOSTILE)
    texts = dict.fromkeys(("spec", "repro", "summary", "stdout", "stderr"), HOSTILE)
    lists = dict.fromkeys(
        ("options", "code", "covers", "tags", "requires", "notes", "attachments"), (HOSTILE,)
    )
    return replace(
        made,
        **texts,
        **lists,
        case_id=CaseId(f"{HOSTILE}{number}"),
        verdicts=(verdict,),
        waivers=tuple(
            replace(waiver, issue=ADDRESS, reason=HOSTILE, until=HOSTILE) for waiver in made.waivers
        ),
        folder=f"cases/{HOSTILE}",
        phases={HOSTILE: 1.0},
        begun="2026-01-01T00:00:00.500+00:00",
        worker=1,
    )


def hostile_run() -> list[CaseResult]:
    return [
        hostile_case(number, outcome)
        for number, outcome in enumerate(
            (Outcome.FAIL, Outcome.XFAIL, Outcome.UNAVAILABLE, Outcome.PASS)
        )
    ]


def write(folder: Path, results: list[CaseResult], header: RunHeader = HEADER) -> Path:
    folder.mkdir(exist_ok=True)
    header = replace(header, selected=len(results))
    run = ReportedRun(header=header, results=tuple(results), footer=footer_of(results))
    return write_page(folder, run)


def handed_over(path: Path) -> Any:
    """Return what a script of the report hands to the page."""
    text = path.read_text("ascii")
    found = re.fullmatch(r"conformance\('[a-z0-9-]+','(.*)'\);\n", text)
    assert found is not None, path
    literal = re.sub(
        r"\\(?:x([0-9a-f]{2})|(\\))",
        lambda match: chr(int(match[1], 16)) if match[1] else "\\",
        found[1],
    )
    assert "'" not in found[1]
    return json.loads(literal)


def parsed(page: Path) -> Elements:
    return Elements(page.read_text("utf-8"))


# -- nothing hostile becomes markup ----------------------------------------------------------------


def test_hostile_text_is_text_in_the_page(tmp_path: Path) -> None:
    harmless = parsed(write(tmp_path / "harmless", [case(f"n{number}") for number in range(4)]))
    hostile = parsed(write(tmp_path / "hostile", hostile_run()))
    assert {tag for tag, _ in hostile.tags} == {tag for tag, _ in harmless.tags}
    assert [attributes for tag, attributes in hostile.tags if tag == "script"] == [
        {"src": "report/app.js"},
        {"src": "report/index.js"},
    ]
    assert not [
        name for _, attributes in hostile.tags for name in attributes if name.startswith("on")
    ]
    assert shown(HOSTILE) in hostile.text, "it is shown as it was written"


def test_the_page_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    page = parsed(write(tmp_path / "run", hostile_run()))
    policy = next(
        attributes["content"]
        for _, attributes in page.tags
        if attributes.get("http-equiv") == "Content-Security-Policy"
    )
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "script-src 'self' file:;" in policy
    assert "unsafe" not in policy
    addresses = [
        value
        for _, attributes in page.tags
        for name, value in attributes.items()
        if name in ("src", "href")
    ]
    assert addresses == ["report/app.css", "report/app.js", "report/index.js"]


@pytest.mark.parametrize(("name", "program"), [("run", "70-run.js"), ("support", "80-support.js")])
def test_a_view_reads_what_is_written(tmp_path: Path, name: str, program: str) -> None:
    write(tmp_path / "run", [replace(result, eager_operators=1) for result in hostile_run()])
    reads = set(
        re.findall(
            rf"\b{name}\.([a-z_]+)", (ROOT / "templates/report/app" / program).read_text("utf-8")
        )
    )
    assert reads <= handed_over(tmp_path / f"run/report/{name}.js").keys()


def test_scripts_of_data_end_nothing_and_begin_nothing(tmp_path: Path) -> None:
    write(tmp_path / "run", hostile_run())
    files = sorted((tmp_path / "run" / "report").glob("*.js"))
    data = [path for path in files if path.name != "app.js"]
    assert [path.name for path in data] == ["cases-0.js", "index.js", "run.js", "sources-0.js"]
    for path in data:
        text = path.read_bytes()
        assert text.isascii()
        assert not set(text) & set(b"<>&\x7f")
        assert text.count(b"\n") == 1
        handed_over(path)
    chunk = handed_over(tmp_path / "run" / "report" / "cases-0.js")
    assert shown(HOSTILE) in chunk["strings"]


@pytest.mark.parametrize(
    "text",
    [HOSTILE, "\\", "\\'", "\\\\u2028", "\x00\x1f\x7f", "\ud800", "\u2029", "é\U0001f600", "\\x3c"],
)
def test_a_script_hands_over_what_it_was_given(tmp_path: Path, text: str) -> None:
    (tmp_path / "a.js").write_bytes(script("a", {text: [text]}))
    assert handed_over(tmp_path / "a.js") == {text: [text]}


# -- what is written -------------------------------------------------------------------------------


def test_every_case_is_in_a_chunk_and_each_chunk_is_bounded(tmp_path: Path) -> None:
    results = [case(f"n{number}", stderr="x" * 24_000) for number in range(300)]
    firsts, written = zip(*chunks(tmp_path, results), strict=True)
    assert firsts[0] == 0
    assert len(written) > 2
    assert max(map(len, written)) < 4_000_000
    (tmp_path / "a.js").write_bytes(written[0])
    assert len(handed_over(tmp_path / "a.js")["cases"]) == firsts[1]


def observation(picture: Any = None, **calibrated: Any) -> dict[str, Any]:
    leaf = {"picture": picture} if picture else {}
    leaf |= {"path": "output.0", "dtype": "float32", "shape": [4], "calibrated": calibrated}
    tally = {"rendered": 3, "compiled": 2, "failed": 1, "timed": 2, "won": 1, "error": HOSTILE}
    tuning = {
        "op": "mm",
        "how": "timed",
        "winner": HOSTILE,
        "won_by": "CK",
        "backends": {"CK": tally},
    }
    return {
        "steps": [
            {"measured": {"0": {"leaves": [leaf]}}, "tunings": {"count": 1, "found": [tuning]}}
        ]
    }


@pytest.mark.parametrize(
    "lie",
    [
        None,
        7,
        "text",
        [],
        {"steps": 3},
        {"steps": [None, 1, "x"]},
        {"steps": [{"measured": [1], "tunings": "x"}]},
    ]
    + [
        observation(max_ulp="x" * 9000, histogram={"first": "0", "compiled": [1]}),
        observation(histogram={"first": 1, "compiled": [-1, True, 2**80]}),
    ]
    + [observation(max_ulp=float("inf"), worst={"index": [[[1]]]})]
    + [observation({"columns": -2, "errors": [HOSTILE]}), observation([1]), observation("x")]
    + [observation({"columns": 2, "size": {}, "errors": [True, 1e999, []], "values": 7})],
)
def test_a_lying_observation_is_data(tmp_path: Path, lie: Any) -> None:
    found = facts_of(lie)
    assert len(json.dumps(found, allow_nan=False)) < 2_000
    assert "histogram" not in json.dumps(found)


def test_a_picture_of_a_side_effect_is_shown_with_its_infinities() -> None:
    sides = ("errors", "values", "eager_values")
    picture = {"columns": 1, "size": [1, 1], **{side: [{"$float": "inf"}] for side in sides}}
    (number,) = facts_of(
        {"steps": [{"effects": {"leaves": [{"path": "argument [0]", "picture": picture}]}}]}
    )["numbers"]
    assert number["path"] == "argument [0]"
    assert [number["picture"][side] for side in sides] == [["inf"]] * 3


def folder_with(tmp_path: Path, **texts: str) -> tuple[Path, dict[str, str]]:
    """Write files of a case; return the run's folder and their digests."""
    place = tmp_path / "cases" / "00001"
    place.mkdir(parents=True)
    digests = {}
    for name, text in texts.items():
        file = f"{name.replace('_', '-')}.txt"
        (place / file).write_text(text)
        digests[file] = digest(text.encode())
    return tmp_path, digests


def test_code_has_a_limit_and_no_secret(tmp_path: Path) -> None:
    folder, digests = folder_with(
        tmp_path, code_0_0="password=hunter22 " + "x" * 500, code_0_1="y" * 500
    )
    result = case(evidence=digests, code=tuple(digests))
    first, second = pieces_of(folder, result, list(digests), 100)
    assert "hunter22" not in first["text"]
    assert "left out" in first["text"]
    assert second == {"name": "code-0-1.txt"}
    assert pieces_of(folder, result, ["../../secret.txt", "plan.json"], 100) == []


def test_a_link_in_the_place_of_code_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("secret")
    folder, _ = folder_with(tmp_path)
    (folder / "cases" / "00001" / "code-0-0.txt").symlink_to(tmp_path / "secret")
    assert pieces_of(folder, case(), ["code-0-0.txt"], 100) == [{"name": "code-0-0.txt"}]


def test_a_spec_is_shown_only_where_it_is_the_one_that_was_run(tmp_path: Path) -> None:
    spec = tmp_path / "one.yaml"
    spec.write_text("summary: password=hunter22\nbackends: [cpu]\n")
    then = digest(spec.read_bytes())
    found = sources_of(
        [str(spec), "gone.yaml", "unknown.yaml"], {str(spec): then, "gone.yaml": then}
    )
    assert "hunter22" not in found[str(spec)]["text"]
    assert found[str(spec)]["text"].count("\n") == 2, "the numbers of its lines stay"
    assert [list(found[name]) for name in ("gone.yaml", "unknown.yaml")] == [["why"], ["why"]]
    spec.write_text("summary: another\n")
    assert sources_of([str(spec)], {str(spec): then}) == {
        str(spec): {"why": "this file has changed since the run"}
    }


# -- where it is written ---------------------------------------------------------------------------


def test_a_link_that_a_worker_made_is_replaced_and_not_followed(tmp_path: Path) -> None:
    run, elsewhere = tmp_path / "run", tmp_path / "elsewhere"
    run.mkdir()
    elsewhere.mkdir()
    (elsewhere / "kept").write_text("kept")
    (run / "report").symlink_to(elsewhere)
    (run / "index.html").symlink_to(elsewhere / "kept")
    write(run, [case()])
    assert [path.name for path in elsewhere.iterdir()] == ["kept"]
    assert (elsewhere / "kept").read_text() == "kept"
    assert not (run / "report").is_symlink()
    assert not (run / "index.html").is_symlink()


def reporter(folder: Path) -> HtmlReporter:
    folder.mkdir(exist_ok=True)
    return HtmlReporter(
        ReportSetup(folder=RunFolder(path=folder, run_id="x"), options=RunOptions())
    )


def ended(*results: CaseResult) -> RunEnded:
    return RunEnded(header=HEADER, results=results, footer=footer_of(results))


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.ENOSPC, "No space left on device", "index.js"),
        ValueError("a defect of the page"),
    ],
)
def test_a_page_that_cannot_be_written_is_a_warning(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: Exception,
) -> None:
    listener = reporter(tmp_path / "run")
    listener.on_event(ended(case()))
    assert (tmp_path / "run" / "index.html").exists()
    monkeypatch.setattr(page, "rendered", lambda *_: (_ for _ in ()).throw(error))
    capsys.readouterr()
    listener.on_event(ended(case()))
    assert capsys.readouterr().err.startswith("warning: the HTML report was not written: ")
    assert not (tmp_path / "run" / "index.html").exists(), (
        "a page of other results would be believed"
    )


def test_an_altered_run_has_no_page(tmp_path: Path) -> None:
    one = reporter(tmp_path / "run")
    one.on_event(ended(case()))
    one.on_event(RunAbandoned(header=HEADER, results=(), why="altered"))
    assert not (tmp_path / "run" / "index.html").exists()
