"""The JUnit report, read back with two parsers and a strict schema: whatever a case holds, the file
stays whole and says what happened.
"""

import re
import xml.etree.ElementTree as ET
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml
from lxml import etree  # type: ignore[import-untyped]  # lxml has no py.typed, and lxml-stubs are not a dependency of the tests

from tests.recorded import footer_of, run_of
from torch_conformance.model.case import CaseId
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.header import ReportedRun, RunHeader
from torch_conformance.model.outcomes import RETRIED, JUnitTag, Outcome
from torch_conformance.model.results import Attempt, CaseResult
from torch_conformance.report import junit
from torch_conformance.report import replace as replace_file

XSD = etree.XMLSchema(etree.parse(Path(__file__).parents[2] / "data" / "junit-strict.xsd"))
HEADER = run_of(
    environment={"torch": "2.13.0", "hip": ""},
    variables={"OMP_NUM_THREADS": "2"},
    selected=1,
    options={},
).header
AT = Position(file="specs/area/sub/one.yaml", line=12, column=9)
COUNTER = Verdict(
    kind="counter",
    status=Status.FAILED,
    position=AT,
    expected="hit 1",
    observed="hit 0",
    detail="line one\n  line two",
)
HELD = Verdict(kind="close", status=Status.HELD, position=AT, expected="not to be shown")


def result(number: int = 0, outcome: Outcome = Outcome.FAIL, **changes: Any) -> CaseResult:
    passed = outcome is Outcome.PASS
    made = CaseResult(
        case_id=CaseId(f"area/sub/one[backend=cpu,n={number}]"),
        spec="specs/area/sub/one.yaml",
        outcome=outcome,
        reason="" if passed else "it did not hold",
        failure_type="" if passed else "counter",
        verdicts=(HELD,) if passed else (HELD, COUNTER),
        position=AT,
        seconds=1.5,
        repro="" if passed else f"torch-conformance repro 'area/sub/one[backend=cpu,n={number}]'",
        stdout="said",
        stderr="cried",
    )
    return replace(made, **changes)


def write_junit(
    path: Path, header: RunHeader, results: Any, *, truncated: bool = False, **more: Any
) -> None:
    """Write the report of a run."""
    footer = None if truncated else footer_of(results)
    run = ReportedRun(header=header, results=tuple(results), footer=footer)
    replace_file(path, junit.document_of(run, **more))


def document(
    path: Path, *results: CaseResult, truncated: bool = False, header: RunHeader = HEADER
) -> Any:
    """Write, check against the schema, and return lxml's root."""
    write_junit(path, header, results, truncated=truncated)
    root = etree.parse(path)
    XSD.assertValid(root)
    return root.getroot()


@pytest.fixture
def report(tmp_path: Path) -> Path:
    return tmp_path / "junit.xml"


@pytest.mark.parametrize("outcome", Outcome)
def test_each_outcome_has_the_element_of_its_table(report: Path, outcome: Outcome) -> None:
    case = document(report, result(outcome=outcome)).find("testsuite/testcase")
    verdicts = [child.tag for child in case if child.tag in ("failure", "error", "skipped")]
    assert verdicts == [outcome.junit.value] * (outcome.junit is not JUnitTag.NONE)
    assert bool(case.findall("system-out") + case.findall("system-err")) == (
        outcome is not Outcome.PASS
    )


def test_totals_count_what_is_there(report: Path) -> None:
    results = [result(number, outcome) for number, outcome in enumerate(Outcome)]
    root = document(
        report,
        *results,
        result(99, spec="specs/area/sub/two.yaml", case_id=CaseId("area/sub/two[backend=cpu]")),
    )
    for suite in root:
        for total, tag in (
            ("tests", "testcase"),
            ("failures", "failure"),
            ("errors", "error"),
            ("skipped", "skipped"),
        ):
            assert int(suite.get(total)) == len(list(suite.iter(tag))), total
    for total, tag in (("tests", "testcase"), ("failures", "failure"), ("errors", "error")):
        assert int(root.get(total)) == len(list(root.iter(tag))), total
    assert root.get("tests") == str(len(Outcome) + 1)
    assert root.get("time") == f"{1.5 * (len(Outcome) + 1):.3f}"


@pytest.mark.parametrize(
    "results",
    [[result(reason=" \n\t")], [result(1), result(1, Outcome.PASS)]],
    ids=["blank reason", "two results"],
)
def test_what_is_a_bug_of_ours_is_not_written(report: Path, results: list[CaseResult]) -> None:
    with pytest.raises(ValueError, match=r"without a reason|has two results"):
        write_junit(report, HEADER, results)
    assert not report.exists()


@pytest.mark.parametrize("outcome", [outcome for outcome in Outcome if outcome.is_failure])
def test_a_failure_with_nothing_to_say_is_still_one(report: Path, outcome: Outcome) -> None:
    silent = result(
        outcome=outcome,
        reason="\x1b[31m\x1b[0m",
        failure_type="",
        verdicts=(),
        repro="",
        stdout="",
        stderr="",
    )
    (verdict,) = document(report, silent).xpath("//failure | //error")
    assert verdict.get("message") == verdict.get("type") == outcome.label.lower().replace("_", "-")
    assert verdict.text.strip()


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (1e-6, "0.000"),
        (1e22, "10000000000000000000000.000"),
        (-1.0, "0.000"),
        (float("nan"), "0.000"),
        (float("inf"), "0.000"),
    ],
)
def test_time_is_decimal_and_always_there(report: Path, seconds: float, shown: str) -> None:
    root = document(report, result(outcome=Outcome.PASS, seconds=seconds))
    assert [element.get("time") for element in (root, root[0], root.find(".//testcase"))] == [
        shown
    ] * 3


def test_the_stub_is_one_error_which_a_truncated_report_keeps_beside_what_finished(
    report: Path,
) -> None:
    write_junit(report, HEADER, (), truncated=True)
    stub = etree.parse(report).getroot()
    XSD.assertValid(stub)
    whole = document(report, result(1, Outcome.PASS), result(2, Outcome.PASS), truncated=True)
    for root, count in ((stub, 1), (whole, 3)):
        case = root.find(".//testcase")
        assert (case.get("name"), case.get("time"), case.find("error").get("type")) == (
            "run",
            "0.000",
            "truncated",
        )
        assert (root.get("tests"), root.get("errors"), len(root.findall(".//testcase"))) == (
            str(count),
            "1",
            count,
        )


# Whatever a case holds.

CONTROLS = [chr(code) for code in (*range(0x20), *range(0x7F, 0xA0))]
NASTY = [
    "".join(CONTROLS),
    *"\ud800 \udbff \udc00 \udfff \ufffe \uffff \ufffd \ufdd0 \U0001fffe \U0010ffff \u2028 "
    "\u202e \udc00\ud800 e\u0301".split(" "),
    *(
        "]]>",
        "<![CDATA[x]]>",
        "<!--",
        "&amp;&#0;&lt;\"'",
        "<?xml?>",
        "\U0001f600\u200d\U0001f525",
        "a\r\nb\rc\n",
    ),
    *"\x1b[31mred\x1b[0m|\x1b]0;title\x07|\x1b]8;;http://x\x1b\\link|\x1b[|\x1b]never "
    "closed|\x1b\x1b[0m[31m|\x1bPq\x1b\\".split("|"),
]
TEXT_FIELDS = [field.name for field in fields(CaseResult) if field.type in (str, CaseId)]


@pytest.mark.parametrize("field", TEXT_FIELDS)
def test_no_text_of_a_result_breaks_the_file(report: Path, field: str) -> None:
    for nasty in NASTY:
        changes: dict[str, Any] = {field: f"a{nasty}b"}
        document(report, result(**changes))
        assert JUnitXml.fromfile(str(report)).tests == 1


@pytest.mark.parametrize("field", ["kind", "expected", "observed", "detail", "file"])
def test_no_text_of_a_verdict_breaks_the_file(report: Path, field: str) -> None:
    for nasty in NASTY:
        position = Position(file=f"a{nasty}b") if field == "file" else AT
        verdict = replace(
            COUNTER, position=position, **({} if field == "file" else {field: f"a{nasty}b"})
        )
        failure = document(report, result(verdicts=(verdict,), position=position)).find(
            ".//failure"
        )
        assert failure.text.startswith("it did not hold")


def test_no_text_of_the_header_breaks_the_file(report: Path) -> None:
    for nasty in NASTY:
        text = f"a{nasty}b"
        header = replace(
            HEADER,
            run_id=text,
            version=text,
            command=(text,),
            environment={text: text},
            variables={text: text},
            options={"shard": text},
        )
        document(report, result(), header=header)
        write_junit(report, header, (), truncated=True)
        XSD.assertValid(etree.parse(report))


def test_illegal_characters_are_shown_and_not_dropped(report: Path) -> None:
    shown = {"\t": "\t", "\n": "\n", "\r": "\n"}
    for character in [*CONTROLS, "\ud800", "\udfff", "\ufffe", "\uffff"]:
        code = ord(character)
        escape = shown.get(character, f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}")
        assert (
            document(report, result(stdout=f"a{character}b")).find(".//system-out").text
            == f"a{escape}b"
        ), hex(code)


def test_names_that_differ_stay_different(report: Path) -> None:
    names = [
        "a\x01",
        "a\\x01",
        "a\\\\x01",
        "a\x1b[31m",
        "a",
        "a\t",
        "a\n",
        "a\\t",
        "a\ud800",
        "a\\ud800",
    ]
    root = document(report, *(result(case_id=CaseId(name)) for name in names))
    assert len({case.get("name") for case in root.iter("testcase")}) == len(names)


# Size.


def texts(case: Any) -> int:
    return sum(len((child.text or "").encode()) for child in case)


@pytest.mark.parametrize(
    ("field", "repetitions"),
    [
        ("stdout", 100_000),
        ("detail", 100_000),
        *((name, 50_000) for name in ("stderr", "reason", "repro", "expected", "observed")),
    ],
)
def test_megabytes_become_head_and_tail(report: Path, field: str, repetitions: int) -> None:
    huge = "HEAD" + "\U0001f600&\x00\x1b[0m" * repetitions + "TAIL"
    changes: dict[str, Any] = {field: huge}
    if field not in TEXT_FIELDS:
        changes = {"verdicts": (replace(COUNTER, **changes),)}
    case = document(report, result(**changes)).find(".//testcase")
    assert texts(case) <= 64_000
    text = "".join(child.text for child in case)
    assert "HEAD" in text
    assert "TAIL" in text or field in ("reason", "repro")
    assert len(case.find("failure").get("message")) <= 500
    assert "torch-conformance repro" in text or field == "repro"
    assert report.stat().st_size < 1_000_000


def test_every_failed_expectation_keeps_its_place(report: Path) -> None:
    verdicts = tuple(
        replace(COUNTER, position=replace(AT, line=number), detail="d" * 1_000_000)
        for number in range(1, 21)
    )
    text = document(report, result(verdicts=verdicts)).find(".//failure").text
    assert re.findall(r"one\.yaml:(\d+):9: counter", text) == [
        str(number) for number in range(1, 21)
    ]


def test_the_file_is_capped_by_its_texts_and_no_case_goes(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(junit, "FILE_LIMIT", 150_000)
    root = document(
        report,
        *(result(number, Outcome.FAIL if number % 2 else Outcome.CRASH) for number in range(100)),
    )
    assert report.stat().st_size <= 150_000
    assert len(root.findall(".//testcase")) == 100
    assert len(root.findall(".//failure")) == 50
    assert all("repro: " in failure.text for failure in root.iter("failure"))


def test_when_nothing_fits_every_case_still_has_its_verdict(
    report: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(junit, "FILE_LIMIT", 1)
    write_junit(
        report,
        HEADER,
        [result(number, spec=f"specs/{number}.yaml", reason="r" * 600) for number in range(20)],
    )
    root = ET.parse(report).getroot()
    assert [failure.get("message", "")[-4:] for failure in root.iter("failure")] == ["r..."] * 20
    assert len(root.findall("testsuite/properties")) == 1


# Writing.


@pytest.mark.parametrize("method", ["replace", "open"])
@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
def test_an_interrupted_write_leaves_the_former_file(
    report: Path, monkeypatch: pytest.MonkeyPatch, method: str, error: type[BaseException]
) -> None:
    write_junit(report, HEADER, (), truncated=True)
    former = report.read_bytes()

    def stop(*_: object, **__: object) -> None:
        raise error

    with monkeypatch.context() as patched:
        patched.setattr(Path, method, stop)
        with pytest.raises(error):
            write_junit(report, HEADER, [result()])
    assert report.read_bytes() == former
    assert [path.name for path in report.parent.iterdir()] == [report.name]


# -- cases that were run several times -------------------------------------------------------------

LETS_PASS = replace(HEADER, options={**HEADER.options, "retries": "2", "flaky": "pass"})


def attempt(outcome: Outcome, number: int = 1, **changes: Any) -> Attempt:
    passed = outcome is Outcome.PASS
    made = Attempt(
        outcome=outcome,
        reason="" if passed else f"{outcome.label} number {number}",
        failure_type="" if passed else outcome.label.lower(),
        seconds=1.25,
        isolation="fork",
        folder=f"cases/{number:05d}",
        verdicts=() if passed else (replace(COUNTER, observed=f"hit {number}"),),
        stdout="" if passed else f"said {number}",
        stderr="" if passed else f"cried {number}",
    )
    return replace(made, **changes)


def several(outcome: Outcome, *outcomes: Outcome, **changes: Any) -> CaseResult:
    return result(
        0,
        outcome,
        attempts=tuple(attempt(one, number) for number, one in enumerate(outcomes, start=1)),
        **changes,
    )


FLAKY = several(Outcome.FLAKY, Outcome.FAIL, Outcome.CRASH, Outcome.PASS)


def test_a_flaky_case_that_may_pass_is_a_pass_with_its_failures(report: Path) -> None:
    root = document(report, FLAKY, header=LETS_PASS)
    case = root.find(".//testcase")
    assert case.findall("failure") + case.findall("error") + case.findall("system-out") == []
    found = case.findall("flakyFailure")
    assert [(one.get("type"), one.get("message")) for one in found] == [
        ("fail", "FAIL number 1"),
        ("crash", "CRASH number 2"),
    ]
    assert [[(child.tag, child.text) for child in one] for one in found] == [
        [
            (
                "stackTrace",
                f"{label} number {number}\nspecs/area/sub/one.yaml:12:9: counter failed\n  "
                f"expected: hit 1\n  observed: hit {number}\n"
                "    line one\n      line two",
            ),
            ("system-out", f"said {number}"),
            ("system-err", f"cried {number}"),
        ]
        for number, label in ((1, "FAIL"), (2, "CRASH"))
    ]
    for element in (root, root.find("testsuite")):
        assert [element.get(total) for total in ("tests", "failures", "errors")] == ["1", "0", "0"]


def test_letting_flaky_pass_lets_nothing_else_pass(report: Path) -> None:
    others = [
        result(number, outcome)
        for number, outcome in enumerate(Outcome)
        if outcome is not Outcome.FLAKY
    ]
    without, with_ = (document(report, *others, header=header) for header in (HEADER, LETS_PASS))
    assert [*map(etree.tostring, without.iter("testcase"))] == [
        *map(etree.tostring, with_.iter("testcase"))
    ]


@pytest.mark.parametrize("outcome", RETRIED)
def test_a_case_that_never_passed_has_its_further_failures(report: Path, outcome: Outcome) -> None:
    root = document(report, several(outcome, outcome, Outcome.TIMEOUT, outcome))
    case = root.find(".//testcase")
    tags = [child.tag for child in case]
    assert tags == [outcome.junit.value, "rerunFailure", "rerunFailure", "system-out", "system-err"]
    assert [one.get("message") for one in case.findall("rerunFailure")] == [
        "TIMEOUT number 2",
        f"{outcome.label} number 3",
    ]
    assert [one.findtext("system-err") for one in case.findall("rerunFailure")] == [
        "cried 2",
        "cried 3",
    ]
    text = case.find(outcome.junit.value).text
    assert (
        f"attempt 1 in cases/00001, 1.2s: {outcome.label}: {outcome.label} number 1\nattempt "
        "2 in cases/00002" in text
    )
    assert sum(int(root.get(total)) for total in ("failures", "errors")) == 1


@pytest.mark.parametrize("field", ["reason", "failure_type", "folder", "stdout", "stderr"])
@pytest.mark.parametrize("header", [HEADER, LETS_PASS])
@pytest.mark.parametrize("outcome", [Outcome.FLAKY, Outcome.FAIL])
def test_no_text_of_an_attempt_breaks_the_file(
    report: Path, field: str, header: RunHeader, outcome: Outcome
) -> None:
    hostile = "".join(map(chr, range(0x20))) + "]]>&<\ud800\ufffe\u202e\x1b[31m"
    attempts = (
        attempt(Outcome.FAIL, **{field: hostile}),
        attempt(Outcome.FAIL, 2, **{field: hostile}),
    )
    document(report, result(outcome=outcome, attempts=attempts), header=header)
    assert not set(report.read_text("utf-8")) & {"\x1b", "\u202e", "\x00"}
