"""``diff`` as a command: exit codes, what it refuses, text, JSON, HTML, hostile names and code."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from tests.fakes import observation, seen
from tests.readers import Elements
from tests.recorded import recorded, run_of, write_run
from torch_conformance.cli.parser import main
from torch_conformance.model.case import CaseId
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult

FAIL, PASS, UNAVAILABLE = Outcome.FAIL, Outcome.PASS, Outcome.UNAVAILABLE
HOSTILE = (
    "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>{{ 7 * 7 "
    "}}&lt;\x1b[31m\u202e::error::"
)


@pytest.fixture(autouse=True)
def folder(here: Path) -> Path:
    write_run(
        Path("a"),
        run_of(recorded("one"), recorded("two"), recorded("three"), recorded("four", FAIL)),
    )
    write_run(
        Path("b"),
        run_of(
            recorded("one", FAIL),
            recorded("two", UNAVAILABLE, reason="no GPU"),
            recorded("four"),
            run_id="run-2",
        ),
    )
    return here


# exit codes


@pytest.mark.parametrize(
    ("line", "code"),
    [
        ("a b", 0),
        ("a a --fail-on broken,gone", 0),
        ("a b --fail-on broken", 1),
        ("a b --fail-on gone", 1),
        ("a b --fail-on new --fail-on fixed", 1),
        ("a b --fail-on no-longer-executed", 1),
        ("a b --fail-on new,spec-changed", 0),
        ("a b --fail-on brokn", 2),
        ("a b --fail-on ''", 2),
        ("a nowhere", 2),
        ("a b --html a", 2),
    ],
)
def test_exit_codes(line: str, code: int) -> None:
    assert main(["diff", *(word.strip("'") for word in line.split())]) == code


def test_nothing_in_common_is_no_success(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("c"), run_of(recorded("one", UNAVAILABLE, reason="no GPU")))
    write_run(Path("d"), run_of(recorded("nine")))
    for other in ("c", "d"):
        assert main(["diff", "a", other]) == 4
        assert "nothing was compared" in capsys.readouterr().err
    assert main(["diff", "a", "d", "--fail-on", "gone"]) == 1


# what is refused


def test_a_truncated_journal_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("cut"), run_of(recorded("one"), footer=None))
    assert main(["diff", "a", "cut"]) == 2
    assert "cut: the run was cut off: its journal has no footer" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new"),
    [('"outcome": "FAIL"', '"outcome": "PASS"'), ('"kind": "header"', '"kind": "head"')],
)
def test_an_altered_journal_is_refused(
    old: str, new: str, capsys: pytest.CaptureFixture[str]
) -> None:
    text = Path("b/run.jsonl").read_text()
    assert old in text
    Path("b/run.jsonl").write_text(text.replace(old, new, 1))
    assert main(["diff", "a", "b"]) == 2
    assert re.search(r"b/run\.jsonl:[0-9]+: ", capsys.readouterr().err)


def test_altered_code_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    write_run(Path("c"), run_of(recorded("one")), {"code-0-0.txt": "x = 1\n"})
    write_run(Path("d"), run_of(recorded("one", FAIL)), {"code-0-0.txt": "x = 2\n"})
    assert main(["diff", "c", "d"]) == 0
    Path("d/cases/00001/code-0-0.txt").write_text("x = 1\n")
    assert main(["diff", "c", "d"]) == 2
    assert (
        "not the file that the case was judged by; nothing is compared with an altered run"
        in capsys.readouterr().err
    )


# JSON


def test_the_json_has_what_changed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["diff", "a", "b", "--json", "--fail-on", "broken,spec-changed"]) == 1
    found = json.loads(capsys.readouterr().out)
    assert {case["id"]: case["change"] for case in found["cases"]} == {
        "area/one[backend=cpu]": "broken",
        "area/two[backend=cpu]": "no-longer-executed",
        "area/three[backend=cpu]": "gone",
        "area/four[backend=cpu]": "fixed",
    }
    assert found["reached"] == {"broken": 1}
    assert found["cases"][0]["after"]["position"] == {
        "file": "specs/area/one.yaml",
        "line": 7,
        "column": 1,
    }


# HTML


def test_nothing_hostile_becomes_markup(capsys: pytest.CaptureFixture[str]) -> None:
    def hostile(outcome: Outcome) -> CaseResult:
        made = recorded(
            "one",
            outcome,
            reason="" if outcome is PASS else HOSTILE,
            observed=HOSTILE,
            spec=f"specs/{HOSTILE}.yaml",
        )
        return replace(made, case_id=CaseId(f"area/{HOSTILE}[backend=cpu]"))

    write_run(
        Path("c"),
        run_of(hostile(PASS), environment={"torch": HOSTILE}),
        {"code-0-0.txt": f"{HOSTILE}\n</table><script>\n"},
    )
    write_run(
        Path("d"),
        run_of(hostile(FAIL)),
        {"code-0-0.txt": f"{HOSTILE} 2\n\udc80".encode("utf-8", "replace").decode()},
    )
    assert main(["diff", "c", "d", "--html", "x.html", "--code"]) == 0
    page = Elements(Path("x.html").read_text("utf-8"))
    assert "broken" in page.text
    assert "<script>alert(1)</script>" in page.text
    assert "{{ 7 * 7 }}" in page.text
    assert not {tag for tag, _ in page.tags} & {
        "script",
        "img",
        "link",
        "iframe",
        "object",
        "base",
        "form",
    }
    assert not [
        name
        for _, found in page.tags
        for name in found
        if name.startswith("on") or name in ("src", "href", "srcset")
    ]
    assert not any(
        "\x1b" in text or "\u202e" in text for text in (page.text, capsys.readouterr().out)
    )


def test_captured_graphs_are_compared(capsys: pytest.CaptureFixture[str]) -> None:
    def facts(text: str) -> str:
        graphs = {"graphs": [{"text": text, "ops": {}}]}
        return json.dumps(
            observation(
                seen(measured={"0": graphs, "1": {"graphs": "none"}, "2": [1]}),
                id="area/one[backend=cpu]",
            )
        )

    write_run(Path("c"), run_of(recorded("one")), {"observation.json": facts("mm\nrelu\n")})
    write_run(Path("d"), run_of(recorded("one", FAIL)), {"observation.json": facts("mm\ngelu\n")})
    assert main(["diff", "c", "d", "--code", "--html", "x.html"]) == 0
    text = capsys.readouterr().out
    assert "generated code and graphs that differ: graph 0 of step 0, expectation 0\n" in text
    assert "      -relu\n      +gelu\n" in text
    assert '<span class="now">+gelu</span>' in Path("x.html").read_text("utf-8")
