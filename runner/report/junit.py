"""The JUnit report: one flat suite for each YAML file, whole whenever it is looked at.

Written with the ``junit-xml`` package, and this is the one module that knows its faults: it crashes on lone surrogates, drops control
characters, writes an empty failure as a pass, leaves out a time of zero, adds ``disabled``, and gives the whole no name. So its elements
are taken, not its text: everything that enters is made plain first, and the tree is mended before it is written.
"""

import errno
import functools
import math
import os
import secrets
import shlex
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from junit_xml import TestCase, TestSuite  # type: ignore[import-untyped]  # it ships no types

from runner.core.model import Attempt, CaseResult
from runner.core.outcomes import RETRIED, JUnitTag, Outcome
from runner.record.journal import RunHeader
from runner.report import (
    MESSAGE_LIMIT,
    TEXT_LIMIT,
    attempt_text,
    clip,
    company_lines,
    note_lines,
    one_line,
    plain,
    slug,
    timing_lines,
    verdict_text,
    visible_name,
)
from runner.system.streams import naming

REPORT_NAME = "torch-conformance"

FILE_LIMIT = 29_000_000
"""Bytes; GitLab reads no more than 30 MB."""

_TEXT_LIMITS = (TEXT_LIMIT, 16_000, 4_000, 1_000, 250, 0)
"""Bytes of text of one case: the first that keeps the file under its limit is taken. Cases are never dropped."""

_READER_SECONDS = 30.0
"""How long a named pipe waits for its reader."""

_PROPERTY_LIMIT = 2_000
_TOTALS = ("tests", "failures", "errors")
_TRUNCATED = "the run did not reach its end; cases that are not in this report were not judged"


def write_stub(path: Path, header: RunHeader) -> None:
    """Write the report of a run that has just begun, so that a killed run is no empty folder and no pass; into no pipe or device."""
    if _is_special(path):
        return
    write_junit(path, header, (), truncated=True)


def write_junit(
    path: Path,
    header: RunHeader,
    results: Sequence[CaseResult],
    *,
    truncated: bool = False,
    folder: Path | None = None,
    why: str = "",
) -> None:
    """Write the report in place of any former one; that one stands until this one is whole.

    ``why`` says what kept a truncated run from its end. With the run's ``folder``, cases name their attachments as CI systems read them.
    """
    _refuse_impossible(results)
    _spec_file.cache_clear()
    _replace(path, _fitting(functools.partial(_document, header, results, truncated=truncated, folder=folder, why=why)))


def _is_special(path: Path) -> bool:
    """Whether a path is a named pipe or a device: each report that is written there is added to the last."""
    return path.exists() and not path.is_file()


def _opened(path: Path) -> int:
    """Open a pipe or a device to write; a pipe that nobody reads is waited for a while, and an ``OSError`` in the end."""
    deadline = time.monotonic() + _READER_SECONDS
    while True:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY)
        except OSError as error:
            if error.errno != errno.ENXIO or time.monotonic() > deadline:
                raise
            time.sleep(0.05)
            continue
        os.set_blocking(descriptor, True)
        return descriptor


def _write_all(stream: IO[bytes], data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) :]


def _fitting(document: Callable[..., bytes]) -> bytes:
    """Return the document with the most text that keeps it under its limit, or else with the least.

    The least is tried second: where it is too large itself, and so many cases are there, nothing between has to be made.
    """
    largest, *between, smallest = _TEXT_LIMITS
    if whole := document(limit=largest, most=FILE_LIMIT):
        return whole
    least = document(limit=smallest, most=None)
    fitting = (document(limit=limit, most=FILE_LIMIT) for limit in between) if len(least) <= FILE_LIMIT else iter(())
    return next((data for data in fitting if data), least)


def _refuse_impossible(results: Iterable[CaseResult]) -> None:
    seen: set[str] = set()
    for result in results:
        if result.outcome is not Outcome.PASS and not result.reason.strip():
            raise ValueError(f"{result.case_id}: {result.outcome.label} without a reason")
        if result.case_id in seen:
            raise ValueError(f"{result.case_id} has two results")
        seen.add(result.case_id)


def _replace(path: Path, data: bytes) -> None:
    """Put a report in the place of a former one; a link stays, and what is no regular file is written to as it is."""
    if _is_special(path):
        with naming(path), os.fdopen(_opened(path), "wb", buffering=0) as stream:
            _write_all(stream, data)
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    # Beside the report: a rename is only atomic within one file system.
    temporary = path.parent / f".{path.name}.{os.getpid()}-{secrets.token_hex(4)}"
    try:
        with naming(path), temporary.open("xb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    finally:
        with suppress(FileNotFoundError):
            temporary.unlink()


class _Suites:
    """The suites as text: as elements, all at once, they take many times the memory."""

    def __init__(self) -> None:
        self._texts: list[bytes] = []
        self._totals = dict.fromkeys(_TOTALS, 0)
        self.size = 0

    def __len__(self) -> int:
        return len(self._texts)

    def append(self, suite: ET.Element) -> None:
        for total in _TOTALS:
            self._totals[total] += int(suite.get(total, "0"))
        ET.indent(suite, level=1)
        text = b"\n  " + ET.tostring(suite, encoding="utf-8")
        self._texts.append(text)
        self.size += len(text)

    def document(self, seconds: float) -> bytes:
        """Return the whole, indented as if it had been one tree."""
        totals = {name: str(total) for name, total in self._totals.items()}
        root = ET.Element("testsuites", {"name": REPORT_NAME, **totals, "time": _decimal(seconds)})
        end = b"</testsuites>"
        if not self._texts:
            return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
        head = bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True, short_empty_elements=False)).removesuffix(end)
        return b"".join([head, *self._texts, b"\n", end, b"\n"])


def _document(
    header: RunHeader,
    results: Sequence[CaseResult],
    *,
    truncated: bool,
    limit: int,
    folder: Path | None,
    most: int | None = None,
    why: str = "",
) -> bytes:
    """Return the report; nothing when it would have more than ``most`` bytes."""
    properties = _properties(header)
    suites = _Suites()
    if truncated:
        suites.append(_truncated_suite(header, properties, why or _TRUNCATED))
    for spec, group in _by_spec(results).items():
        # When not even the messages fit, the environment is said once.
        said = {} if suites and not limit else properties
        suites.append(_suite(spec, group, header, properties={**said, **_left_out(group)}, limit=limit, folder=folder))
        if most is not None and suites.size > most:
            return b""
    data = suites.document(math.fsum(_seconds(result) for result in results))
    return b"" if most is not None and len(data) > most else data


def _by_spec(results: Iterable[CaseResult]) -> Mapping[str, list[CaseResult]]:
    groups: dict[str, list[CaseResult]] = {}
    for result in results:
        groups.setdefault(result.spec, []).append(result)
    return groups


def _properties(header: RunHeader) -> dict[str, str]:
    run = {REPORT_NAME: header.version, "run": header.run_id, "command": shlex.join(header.command), "shard": header.shard}
    run["shuffle"] = header.shuffle  # what is empty is left out
    run["merged"] = " ".join(header.merged)
    variables = {f"env.{name}": value for name, value in header.variables.items()}
    known = {**run, **header.environment, **variables}
    return {visible_name(name): clip(plain(value), _PROPERTY_LIMIT) for name, value in known.items() if value}


def _left_out(group: Sequence[CaseResult]) -> dict[str, str]:
    """Return how many bench steps of a suite were not run; nothing where there were none."""
    count = sum(result.benches_left_out for result in group)
    return {"bench-steps-left-out": str(count)} if count else {}


def _truncated_suite(header: RunHeader, properties: Mapping[str, str], why: str) -> ET.Element:
    case = TestCase("run", classname=REPORT_NAME)
    case.add_error_info(message=one_line(why), output=f"{one_line(why)}\nrun: {plain(header.run_id)}", error_type="truncated")
    suite = TestSuite("run", [case], timestamp=one_line(header.started), properties=properties).build_xml_doc()
    return _mended(suite, [0.0])


def _suite(
    spec: str, group: Sequence[CaseResult], header: RunHeader, *, properties: Mapping[str, str], limit: int, folder: Path | None
) -> ET.Element:
    passed = [result.outcome is Outcome.PASS or _is_let_pass(result, header) for result in group]
    suite = TestSuite(
        visible_name(_spec_file(spec)),
        [_case(result, limit, folder, passed=is_pass) for result, is_pass in zip(group, passed, strict=True)],
        timestamp=one_line(header.started),
        properties=properties,
    )
    mended = _mended(suite.build_xml_doc(), [_seconds(result) for result in group])
    for element, result in zip(mended.iter("testcase"), group, strict=True):
        for skipped in element.iter("skipped"):
            skipped.set("type", _type(result))
        _add_attempts(element, result, limit, let_pass=_is_let_pass(result, header))
    return mended


def _is_let_pass(result: CaseResult, header: RunHeader) -> bool:
    return result.outcome is Outcome.FLAKY and header.lets_flaky_pass


def _add_attempts(case: ET.Element, result: CaseResult, limit: int, *, let_pass: bool) -> None:
    """Add what the package does not know: failures of a flaky case that may pass, and those after the first of one that never passed.

    They are failures whatever failed: readers know flakyFailure and rerunFailure, and few flakyError and rerunError. A flaky case that
    fails the run says all in its one failure.
    """
    if let_pass:
        tag, attempts = "flakyFailure", [attempt for attempt in result.attempts if attempt.outcome.is_failure]
    elif result.outcome in RETRIED:
        tag, attempts = "rerunFailure", [attempt for attempt in result.attempts[1:] if attempt.outcome.is_failure]
    else:
        return
    place = sum(child.tag in ("failure", "error", "skipped") for child in case)
    share = _share(result, limit) // max(len(attempts), 1)
    for attempt in reversed(attempts):
        case.insert(place, _attempt_element(tag, attempt, share))


def _share(result: CaseResult, limit: int) -> int:
    """Return the bytes that several attempts have of a case's: half where the case itself says something too."""
    return limit if result.outcome is Outcome.FLAKY else limit // 2


def _attempt_element(tag: str, attempt: Attempt, limit: int) -> ET.Element:
    message = one_line(attempt.reason, min(MESSAGE_LIMIT, max(limit, 100))) or slug(attempt.outcome)
    element = ET.Element(tag, message=message, type=one_line(attempt.failure_type) or slug(attempt.outcome))
    texts = (
        ("stackTrace", attempt_text(attempt, limit=limit // 2)),
        ("system-out", clip(plain(attempt.stdout), limit // 4)),
        ("system-err", clip(plain(attempt.stderr), limit // 4)),
    )
    for name, text in texts:
        if text.strip():
            ET.SubElement(element, name).text = text
    return element


def _mended(suite: ET.Element, seconds: Sequence[float]) -> ET.Element:
    """Give the suite and each case its time, and take away what the strict readers refuse."""
    del suite.attrib["disabled"]
    suite.set("time", _decimal(math.fsum(seconds)))
    for case, taken in zip(suite.iter("testcase"), seconds, strict=True):
        case.set("time", _decimal(taken))
    return suite


def _case(result: CaseResult, limit: int, folder: Path | None, *, passed: bool) -> TestCase:
    case = TestCase(
        visible_name(result.case_id),
        classname=visible_name(".".join([*result.area.split("/"), result.name] if result.area else [result.name])),
        file=visible_name(_spec_file(result.position.file or result.spec)),
        line=result.position.line,
    )
    beside = [*company_lines(result), *timing_lines(result), *note_lines(result), *_attachments(result, folder)]
    case.stdout = timed = clip("\n".join(beside), limit // 4)
    if not passed:
        reruns = _share(result, limit) if result.outcome in RETRIED and len(result.attempts) > 1 else 0
        text, said, case.stderr = _texts(result, limit - reruns - len(timed.encode("utf-8")), folder)
        case.stdout = f"{timed}\n{said}" if timed and said else timed or said
        _add_verdict(case, result, text, limit)
    return case


def _attachments(result: CaseResult, folder: Path | None) -> list[str]:
    """Return a line for each file: GitLab and others read it where it stands alone, with a path from the repository's root."""
    if folder is None:
        return []
    return [f"[[ATTACHMENT|{visible_name(spec_file(str(folder / result.folder / name)))}]]" for name in result.attachments]


def _texts(result: CaseResult, limit: int, folder: Path | None) -> tuple[str, str, str]:
    """Return the verdict and the ends of stdout and stderr, together within ``limit`` bytes; the verdict has at least three quarters."""
    stdout, stderr = plain(result.stdout), plain(result.stderr)
    printed = len(stdout.encode("utf-8")) + len(stderr.encode("utf-8"))
    text = verdict_text(result, limit=limit - min(printed, limit // 4), folder=_shown(folder)) if limit else ""
    room = limit - len(text.encode("utf-8"))
    stdout = clip(stdout, max(room // 2, room - len(stderr.encode("utf-8"))), _beside(result, "stdout.txt"))
    return text, stdout, clip(stderr, room - len(stdout.encode("utf-8")), _beside(result, "stderr.txt"))


def _beside(result: CaseResult, name: str) -> str:
    return visible_name(f"{result.folder}/{name}") if result.folder else ""


def _shown(folder: Path | None) -> Path | None:
    return Path(spec_file(str(folder))) if folder is not None else None


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


_spec_file = functools.lru_cache(maxsize=1 << 16)(spec_file)
"""For one report: cases are many, their files few."""
