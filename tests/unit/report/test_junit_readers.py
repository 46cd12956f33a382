"""The JUnit report as CI systems read it: each of them shows every case, red as red, with what
happened; and the strict flavour.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.hostile import HOSTILE
from tests.readers import FAILED, PASSED, READERS, SKIPPED, XSD, RefusedError, jenkins_xunit
from tests.unit.report.test_junit import COUNTER, HEADER, etree, result, several, write_junit
from torch_conformance.model.case import CaseId
from torch_conformance.model.expectation import Status
from torch_conformance.model.outcomes import JUnitTag, Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.report import TEXT_LIMIT

FLAVOURS = ("default", "strict")
OF_FLAVOUR = [
    (name, flavour)
    for name in READERS
    for flavour in FLAVOURS
    if (name, flavour) != ("jenkins-xunit", "default")
]
STATUSES = {
    JUnitTag.NONE: PASSED,
    JUnitTag.SKIPPED: SKIPPED,
    JUnitTag.FAILURE: FAILED,
    JUnitTag.ERROR: FAILED,
}


def report(path: Path, *results: CaseResult, flavour: str = "default", **more: Any) -> bytes:
    write_junit(path / "junit.xml", HEADER, results, flavour=flavour, **more)
    return (path / "junit.xml").read_bytes()


def every_outcome(**changes: Any) -> list[CaseResult]:
    return [result(number, outcome, **changes) for number, outcome in enumerate(Outcome)]


@pytest.mark.parametrize(("name", "flavour"), OF_FLAVOUR)
def test_each_reader_shows_every_case_and_red_as_red(
    tmp_path: Path, name: str, flavour: str
) -> None:
    results = every_outcome(
        summary="the claim",
        options=("config.freezing: true", "torch.seed: 7"),
        folder="cases/00001",
    )
    seen = READERS[name](report(tmp_path, *results, flavour=flavour, folder=tmp_path / "run"))
    assert [(one.name, one.group) for one in seen] == [
        (one.case_id, "area.sub.one") for one in results
    ]
    for one, outcome in zip(seen, Outcome, strict=True):
        assert one.status == STATUSES[outcome.junit], outcome
        if one.status == FAILED:
            for words in (
                "it did not hold",
                "claim: the claim",
                "torch.seed: 7",
                "config.freezing: true",
                "cases/00001",
                "repro: ",
            ):
                assert words in one.text, (name, words)


@pytest.mark.parametrize(("name", "flavour"), OF_FLAVOUR)
def test_a_run_that_was_killed_is_red_in_each_reader(
    tmp_path: Path, name: str, flavour: str
) -> None:
    write_junit(tmp_path / "junit.xml", HEADER, (), truncated=True, flavour=flavour)
    (seen,) = READERS[name]((tmp_path / "junit.xml").read_bytes())
    assert (seen.name, seen.status) == ("run", FAILED)
    both = READERS[name](
        report(tmp_path, result(outcome=Outcome.PASS), truncated=True, flavour=flavour)
    )
    assert [one.status for one in both] == [FAILED, PASSED]


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_no_text_hides_a_case_from_a_reader(tmp_path: Path, text: str, flavour: str) -> None:
    verdict = dataclasses.replace(
        COUNTER, kind="counter", expected=text, observed=text, detail=text
    )
    told = {
        "summary": text,
        "options": (text,),
        "repro": text,
        "stdout": text,
        "stderr": text,
        "folder": "cases/00001",
    }
    hostile = result(
        1,
        reason=text or "x",
        failure_type=text,
        case_id=CaseId(f"area/{text}[backend=cpu]"),
        verdicts=(verdict,),
        **told,
    )
    data = report(
        tmp_path, result(0), hostile, result(2, Outcome.PASS), flavour=flavour, folder=tmp_path
    )
    for name, of in OF_FLAVOUR:
        if of == flavour:
            seen = READERS[name](data)
            assert [one.status for one in seen] == [FAILED, FAILED, PASSED], name
            assert all(not one.attachments for one in seen), name


def test_strict_is_valid_for_the_plugin_and_default_is_not(tmp_path: Path) -> None:
    results = [
        *every_outcome(target="hip:gfx942", level="O3"),
        several(Outcome.FAIL, Outcome.FAIL, Outcome.CRASH, case_id="other"),
    ]
    for flavour in FLAVOURS:
        document = etree.fromstring(report(tmp_path, *results, flavour=flavour, folder=tmp_path))
        assert XSD.validate(document) == (flavour == "strict"), XSD.error_log
    with pytest.raises(RefusedError, match=r"'(file|line)'"):
        jenkins_xunit(report(tmp_path, result()))


def test_strict_loses_nothing_but_the_place(tmp_path: Path) -> None:
    """What stands in attributes and properties of the default flavour stands in the texts of the
    strict one.
    """
    offline = result(1, Outcome.OFFLINE_PASS, target="hip:gfx942", level="O3")
    default, strict = (
        etree.fromstring(report(tmp_path, result(), offline, flavour=flavour))
        for flavour in FLAVOURS
    )
    assert "target: hip:gfx942" in strict.findall(".//testcase")[1].findtext("system-out")
    assert "specs/area/sub/one.yaml:12:9" in strict.findtext(".//failure")
    for case in default.iter("testcase"):
        del case.attrib["file"], case.attrib["line"]
        for properties in case.findall("properties"):
            case.remove(properties)
    kept = [(one.tag, dict(one.attrib)) for one in default.iter()]
    assert kept == [(one.tag, dict(one.attrib)) for one in strict.iter()]


# -- attachments and cut texts ---------------------------------------------------------------------

CODE = ("code-0-0.txt", "code-1-0.txt", "graph-0-joint-0.txt")


@pytest.mark.parametrize(
    ("kind", "status", "files"),
    [
        ("filecheck", Status.FAILED, CODE[:2]),
        ("graph", Status.FAILED, CODE[2:]),
        ("proof", Status.FAILED, CODE[:2]),
        ("counter", Status.FAILED, ()),
        ("filecheck", Status.HELD, ()),
    ],
)
@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_code_that_a_failed_filecheck_looked_at_is_attached(
    tmp_path: Path, flavour: str, kind: str, status: Status, files: tuple[str, ...]
) -> None:
    verdict = dataclasses.replace(COUNTER, kind=kind, status=status)
    made = result(
        code=CODE, folder="cases/00001", verdicts=(verdict,), stdout="[[ATTACHMENT|/etc/passwd]]"
    )
    data = report(tmp_path, made, flavour=flavour, folder=tmp_path / "run")
    for name in ("jenkins-junit", "gitlab"):
        (seen,) = READERS[name](data)
        assert seen.attachments == tuple(f"{tmp_path}/run/cases/00001/{file}" for file in files)


def cut(text: str, file: str) -> bool:
    return "is left out; the whole is in" in text and file in text


@pytest.mark.parametrize("name", ["stdout", "stderr"])
def test_cut_output_names_the_file_with_the_whole(tmp_path: Path, name: str) -> None:
    made = result(folder="cases/00007", **{name: "word " * TEXT_LIMIT})
    root = etree.fromstring(report(tmp_path, made, folder=tmp_path / "run"))
    assert cut(
        root.findtext(".//system-out" if name == "stdout" else ".//system-err"),
        f"{tmp_path}/run/cases/00007/{name}.txt",
    )


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_the_properties_of_the_run_stand_once(tmp_path: Path, flavour: str) -> None:
    specs = [result(number, spec=f"specs/{number}.yaml") for number in range(3)]
    root = etree.fromstring(report(tmp_path, *specs, flavour=flavour))
    assert [len(suite.findall("properties/property[@name='torch']")) for suite in root] == [1, 0, 0]
    stub = etree.fromstring(report(tmp_path, *specs, flavour=flavour, truncated=True))
    assert [len(suite.findall("properties/property[@name='torch']")) for suite in stub] == [
        1,
        0,
        0,
        0,
    ]
