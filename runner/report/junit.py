"""The JUnit report: one flat suite for each YAML file, whole whenever it is looked at.

Written with the ``junit-xml`` package, and this is the one module that knows its faults: it crashes on lone surrogates, drops control
characters, writes an empty failure as a pass, leaves out a time of zero, adds ``disabled``, and gives the whole no name. So its elements
are taken, not its text: everything that enters is made plain first, and the tree is mended before it is written.
"""

import math
import os
import secrets
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from junit_xml import TestCase, TestSuite  # type: ignore[import-untyped]  # it ships no types

from runner.model import CaseResult
from runner.outcomes import JUnitTag, Outcome
from runner.record import RunHeader
from runner.report import MESSAGE_LIMIT, TEXT_LIMIT, clip, company_lines, one_line, plain, slug, timing_lines, verdict_text, visible_name

REPORT_NAME = "torch-conformance"

FILE_LIMIT = 29_000_000
"""Bytes; GitLab reads no more than 30 MB."""

_TEXT_LIMITS = (TEXT_LIMIT, 16_000, 4_000, 1_000, 250, 0)
"""Bytes of text of one case: the first that keeps the file under its limit is taken. Cases are never dropped."""

_PROPERTY_LIMIT = 2_000
_TOTALS = ("tests", "failures", "errors")
_TRUNCATED = "the run did not reach its end; cases that are not in this report were not judged"


def write_stub(path: Path, header: RunHeader) -> None:
    """Write the report of a run that has just begun, so that a killed run is no empty folder and no pass."""
    write_junit(path, header, (), truncated=True)


def write_junit(
    path: Path, header: RunHeader, results: Sequence[CaseResult], *, truncated: bool = False, folder: Path | None = None
) -> None:
    """Write the report in place of any former one; that one stands until this one is whole.

    With the run's ``folder``, cases name their attachments as CI systems read them.
    """
    _refuse_impossible(results)
    data = b""
    for limit in _TEXT_LIMITS:
        data = _document(header, results, truncated=truncated, limit=limit, folder=folder)
        if len(data) <= FILE_LIMIT:
            break
    _replace(path, data)


def _refuse_impossible(results: Iterable[CaseResult]) -> None:
    seen: set[str] = set()
    for result in results:
        if result.outcome is not Outcome.PASS and not result.reason.strip():
            raise ValueError(f"{result.case_id}: {result.outcome.label} without a reason")
        if result.case_id in seen:
            raise ValueError(f"{result.case_id} has two results")
        seen.add(result.case_id)


def _replace(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the report: a rename is only atomic within one file system.
    temporary = path.parent / f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


def _document(header: RunHeader, results: Sequence[CaseResult], *, truncated: bool, limit: int, folder: Path | None) -> bytes:
    properties = _properties(header)
    suites = [_truncated_suite(header, properties)] if truncated else []
    for spec, group in _by_spec(results).items():
        # When not even the messages fit, the environment is said once.
        said = {} if suites and not limit else properties
        suites.append(_suite(spec, group, timestamp=header.started, properties=said, limit=limit, folder=folder))
    root = ET.Element("testsuites", name=REPORT_NAME)
    root.extend(suites)
    for total in _TOTALS:
        root.set(total, str(sum(int(suite.get(total, "0")) for suite in suites)))
    root.set("time", _decimal(math.fsum(_seconds(result) for result in results)))
    ET.indent(root)
    return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"


def _by_spec(results: Iterable[CaseResult]) -> Mapping[str, list[CaseResult]]:
    groups: dict[str, list[CaseResult]] = {}
    for result in results:
        groups.setdefault(result.spec, []).append(result)
    return groups


def _properties(header: RunHeader) -> dict[str, str]:
    run = {REPORT_NAME: header.version, "run": header.run_id, "command": shlex.join(header.command), "shard": header.shard}
    run["shuffle"] = header.shuffle  # what is empty is left out
    variables = {f"env.{name}": value for name, value in header.variables.items()}
    known = {**run, **header.environment, **variables}
    return {visible_name(name): clip(plain(value), _PROPERTY_LIMIT) for name, value in known.items() if value}


def _truncated_suite(header: RunHeader, properties: Mapping[str, str]) -> ET.Element:
    case = TestCase("run", classname=REPORT_NAME)
    case.add_error_info(message=_TRUNCATED, output=f"{_TRUNCATED}\nrun: {plain(header.run_id)}", error_type="truncated")
    suite = TestSuite("run", [case], timestamp=one_line(header.started), properties=properties).build_xml_doc()
    return _mended(suite, [0.0])


def _suite(
    spec: str, group: Sequence[CaseResult], *, timestamp: str, properties: Mapping[str, str], limit: int, folder: Path | None
) -> ET.Element:
    suite = TestSuite(
        visible_name(spec_file(spec)),
        [_case(result, limit, folder) for result in group],
        timestamp=one_line(timestamp),
        properties=properties,
    )
    mended = _mended(suite.build_xml_doc(), [_seconds(result) for result in group])
    for element, result in zip(mended.iter("testcase"), group, strict=True):
        for skipped in element.iter("skipped"):
            skipped.set("type", _type(result))
    return mended


def _mended(suite: ET.Element, seconds: Sequence[float]) -> ET.Element:
    """Give the suite and each case its time, and take away what the strict readers refuse."""
    del suite.attrib["disabled"]
    suite.set("time", _decimal(math.fsum(seconds)))
    for case, taken in zip(suite.iter("testcase"), seconds, strict=True):
        case.set("time", _decimal(taken))
    return suite


def _case(result: CaseResult, limit: int, folder: Path | None) -> TestCase:
    case = TestCase(
        visible_name(result.case_id),
        classname=visible_name(".".join([*result.area.split("/"), result.name] if result.area else [result.name])),
        file=visible_name(spec_file(result.position.file or result.spec)),
        line=result.position.line,
    )
    case.stdout = timed = clip("\n".join([*company_lines(result), *timing_lines(result), *_attachments(result, folder)]), limit // 4)
    if result.outcome is not Outcome.PASS:
        text, said, case.stderr = _texts(result, limit - len(timed.encode("utf-8")))
        case.stdout = f"{timed}\n{said}" if timed and said else timed or said
        _add_verdict(case, result, text, limit)
    return case


def _attachments(result: CaseResult, folder: Path | None) -> list[str]:
    """Return a line for each file: GitLab and others read it where it stands alone, with a path from the repository's root."""
    if folder is None:
        return []
    return [f"[[ATTACHMENT|{visible_name(spec_file(str(folder / result.folder / name)))}]]" for name in result.attachments]


def _texts(result: CaseResult, limit: int) -> tuple[str, str, str]:
    """Return the verdict and the ends of stdout and stderr, together within ``limit`` bytes; the verdict has at least three quarters."""
    stdout, stderr = plain(result.stdout), plain(result.stderr)
    printed = len(stdout.encode("utf-8")) + len(stderr.encode("utf-8"))
    text = verdict_text(result, limit=limit - min(printed, limit // 4)) if limit else ""
    room = limit - len(text.encode("utf-8"))
    stdout = clip(stdout, max(room // 2, room - len(stderr.encode("utf-8"))))
    return text, stdout, clip(stderr, room - len(stdout.encode("utf-8")))


def _add_verdict(case: TestCase, result: CaseResult, text: str, limit: int) -> None:
    message = one_line(result.reason, min(MESSAGE_LIMIT, max(limit, 100))) or slug(result.outcome)
    match result.outcome.junit:
        case JUnitTag.FAILURE:
            case.add_failure_info(message=message, output=text, failure_type=_type(result))
        case JUnitTag.ERROR:
            case.add_error_info(message=message, output=text, error_type=_type(result))
        case JUnitTag.SKIPPED:
            # A reader shows the message alone, and an expected failure is not a machine that lacks something.
            case.add_skipped_info(message=f"{slug(result.outcome)}: {message}", output=text)
        case JUnitTag.NONE:
            raise ValueError(f"{result.outcome.label} has no element")


def _type(result: CaseResult) -> str:
    """Return what failed; a flaky case is named so whatever failed the first time."""
    if result.outcome is Outcome.FLAKY:
        return slug(result.outcome)
    return one_line(result.failure_type) or slug(result.outcome)


def _seconds(result: CaseResult) -> float:
    return result.seconds if math.isfinite(result.seconds) and result.seconds > 0 else 0.0


def _decimal(seconds: float) -> str:
    """Return seconds without an exponent."""
    return f"{seconds:.3f}"


def spec_file(shown: str) -> str:
    """Return a file as CI systems look for it: relative to the repository's root, or else as shown."""
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    whole = Path(os.path.abspath(here / shown))
    # A run of another folder or machine is reported as it was recorded.
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) and whole.exists() else shown
