"""The JUnit report: one flat suite for each YAML file, one test case for each case; the file is replaced atomically.

The elements are made with the ``junit-xml`` package. Only this module works around its defects: it crashes on lone surrogates, drops
control characters, writes an empty failure as a pass, omits a time of zero, and adds ``disabled``. So only its elements are used, not its
text: all input is escaped first, and the tree is corrected before it is written.
"""

import functools
import itertools
import math
import os
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote

from junit_xml import TestCase, TestSuite  # type: ignore[import-untyped]  # junit-xml ships no annotations (no py.typed), and no stub package exists for it

from runner.core.events import HeaderCompleted, ResultsCompleted, RunAbandoned, RunEvent, RunStarted
from runner.core.header import RunHeader
from runner.core.outcomes import RETRIED, JUnitTag, Outcome
from runner.core.results import Attempt, CaseResult
from runner.core.targets import evidence_of
from runner.report import (
    MESSAGE_LIMIT,
    TEXT_LIMIT,
    attempt_text,
    clip,
    node_lines,
    note_lines,
    one_line,
    plain,
    slug,
    timing_lines,
    verdict_text,
    visible_name,
)
from runner.report.files import is_special, replace
from runner.report.setup import ReportSetup
from runner.report.statement import statement_properties

NAME = "torch-conformance"
TRUNCATED = "the run did not reach its end; cases that are not in this report were not judged"

FILE_LIMIT = 29_000_000
"""The maximum size in bytes; GitLab reads at most 30 MB."""

_TEXT_LIMITS = (TEXT_LIMIT, 16_000, 4_000, 1_000, 250, 0)
"""Bytes of text for each case: the first value that keeps the file below its limit is used. Cases are never dropped."""

_PROPERTY_LIMIT = 2_000
_MOST_CODE = 10
_CODE_OF = {"filecheck": "code-", "graph": "graph-", "proof": "code-"}
"""The files that expectations of a kind look at, by the beginning of their names."""

_PARTS_FOR_LINK = 8
"""The address of a case in the HTML report has at most this part of its text."""


class JUnitReporter:
    """Writes a stub when a run begins, and the report when all results are known."""

    def __init__(self, setup: ReportSetup) -> None:
        self._setup = setup

    def on_event(self, event: RunEvent) -> None:
        """Write the files that are due."""
        setup = self._setup
        for path in setup.folder.junit_files:
            match event:
                case RunStarted(is_resumed=False) | HeaderCompleted(is_resumed=True):
                    write_stub(path, event.header, flavour=setup.junit_flavour)
                case ResultsCompleted(header=header, results=results):
                    write_junit(
                        path,
                        header,
                        results,
                        folder=setup.folder.path,
                        flavour=setup.junit_flavour,
                        page=setup.page,
                    )
                case RunAbandoned(header=header, results=results, why=why):
                    write_junit(
                        path,
                        header,
                        results,
                        truncated=True,
                        why=why,
                        folder=setup.folder.path,
                        flavour=setup.junit_flavour,
                        page=setup.page,
                    )

    def close(self) -> None:
        """Release nothing: every file is written at once."""


def write_stub(path: Path, header: RunHeader, *, flavour: str = "default") -> None:
    """Write the report of a run that has just begun, so that a killed run has a failing report. Pipes and devices get none."""
    if not is_special(path):
        write_junit(path, header, (), truncated=True, flavour=flavour)


def write_junit(path: Path, header: RunHeader, results: Sequence[CaseResult], **more: Any) -> None:
    """Write the report (the fields of ``_Report``), and replace a former one atomically."""
    replace(path, _Report(header, results, **more).fitting())


def document_of(header: RunHeader, results: Sequence[CaseResult]) -> bytes:
    """Return the report of a run that has ended, without files beside it: a submission holds it."""
    return _Report(header, results).fitting()


@dataclass(frozen=True, slots=True)
class _Report:
    """What a report is made of."""

    header: RunHeader
    results: Sequence[CaseResult]
    _: KW_ONLY
    truncated: bool = False
    why: str = ""
    """Why the run is truncated."""
    folder: Path | None = None
    """The folder of the run: cases list their attachments in it, in the form for CI systems."""
    page: str = ""
    """The name of the HTML report in ``folder``: red cases have their address there."""
    flavour: str = "default"
    """``strict`` is valid for Jenkins' xunit plugin."""

    def fitting(self) -> bytes:
        """Return the document with the most text that fits into the limit, or else with the least text.

        The least is tried second: if it is too large itself, the sizes between are skipped.
        """
        seen: set[str] = set()
        for result in self.results:
            if result.outcome is not Outcome.PASS and not result.reason.strip():
                raise ValueError(f"{result.case_id}: {result.outcome.label} without a reason")
            if result.case_id in seen:
                raise ValueError(f"{result.case_id} has two results")
            seen.add(result.case_id)
        forget_files()
        largest, *between, smallest = _TEXT_LIMITS
        if whole := self.document(largest, most=FILE_LIMIT):
            return whole
        least = self.document(smallest)
        fitting = (self.document(limit, most=FILE_LIMIT) for limit in between) if len(least) <= FILE_LIMIT else iter(())
        return next((data for data in fitting if data), least)

    def document(self, limit: int, most: float = math.inf) -> bytes:
        """Return the document, indented like one tree, each case within ``limit`` bytes of text; empty if it is longer than ``most``.

        The suites become text one by one: elements of all suites together need many times the memory.
        """
        totals = dict.fromkeys(("tests", "failures", "errors"), 0)
        texts: list[bytes] = []
        size = 0
        for suite in self._suites(limit):
            for name in totals:
                totals[name] += int(suite.get(name, "0"))
            if self.flavour == "strict":
                _make_strict(suite)
            ET.indent(suite, level=1)
            texts.append(b"\n  " + ET.tostring(suite, encoding="utf-8"))
            size += len(texts[-1])
            if size > most:
                return b""
        seconds = _decimal(math.fsum(map(seconds_of, self.results)))
        root = ET.Element("testsuites", {"name": NAME, **{name: str(total) for name, total in totals.items()}, "time": seconds})
        if not texts:
            return bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True)) + b"\n"
        end = b"</testsuites>"
        head = bytes(ET.tostring(root, encoding="utf-8", xml_declaration=True, short_empty_elements=False)).removesuffix(end)
        data = b"".join([head, *texts, b"\n", end, b"\n"])
        return b"" if len(data) > most else data

    def _suites(self, limit: int) -> Iterator[ET.Element]:
        properties = _properties(self.header, self.results)
        if self.truncated:
            yield _truncated_suite(self.header, properties, self.why or TRUNCATED)
        # the properties of the run stand once: a reader shows those of every suite
        properties = {} if self.truncated else properties
        groups: dict[str, list[CaseResult]] = {}
        for result in self.results:
            groups.setdefault(result.spec, []).append(result)
        for spec, group in groups.items():
            left_out = sum(result.benches_left_out for result in group)
            if left_out:
                properties = {**properties, "bench-steps-left-out": str(left_out)}
            yield _suite(spec, group, self.header, properties=properties, limit=limit, folder=self.folder, page=self.page)
            properties = {}


# -- the elements ---------------------------------------------------------------------------------------------------


def _properties(header: RunHeader, results: Sequence[CaseResult] = ()) -> dict[str, str]:
    """Return the properties of every suite: the run, its statement, the machine and the environment. ``results`` are all of the run."""
    run = {NAME: header.version, "run": header.run_id, "command": shlex.join(header.command), "shard": header.shard}
    run["shuffle"] = header.shuffle  # empty properties are left out
    run["merged"] = " ".join(header.merged)
    variables = {f"env.{name}": value for name, value in header.variables.items()}
    known = {**run, **statement_properties(header, results), **header.environment, **variables}
    return {visible_name(name): clip(plain(value), _PROPERTY_LIMIT) for name, value in known.items() if value}


def _truncated_suite(header: RunHeader, properties: Mapping[str, str], why: str) -> ET.Element:
    """Return the suite with one error for a run that did not reach its end."""
    case = TestCase("run", classname=NAME)
    case.add_error_info(message=one_line(why), output=f"{one_line(why)}\nrun: {plain(header.run_id)}", error_type="truncated")
    suite = TestSuite("run", [case], timestamp=one_line(header.started), properties=properties).build_xml_doc()
    return _mended(suite, [0.0])


def _suite(
    spec: str,
    group: Sequence[CaseResult],
    header: RunHeader,
    *,
    properties: Mapping[str, str],
    limit: int,
    folder: Path | None,
    page: str = "",
) -> ET.Element:
    """Return the suite of one YAML file, each case within ``limit`` bytes of text. ``page`` is the HTML report in ``folder``."""
    passed = [result.outcome is Outcome.PASS or _is_let_pass(result, header) for result in group]
    suite = TestSuite(
        visible_name(cached_file(spec)),
        [_case(result, limit, folder, passed=is_pass, page=page) for result, is_pass in zip(group, passed, strict=True)],
        timestamp=one_line(header.started),
        properties=properties,
    )
    mended = _mended(suite.build_xml_doc(), [seconds_of(result) for result in group])
    for element, result in zip(mended.iter("testcase"), group, strict=True):
        for skipped in element.iter("skipped"):
            skipped.set("type", failure_type(result))
        _add_attempts(element, result, limit, folder, let_pass=_is_let_pass(result, header))
        _add_evidence(element, result)
    return mended


def _add_evidence(case: ET.Element, result: CaseResult) -> None:
    """Add the properties of a case that was compiled for a target and not executed, which the package cannot write."""
    values = {"target": result.target, "evidence": evidence_of(result.level)}
    if result.target:
        properties = ET.Element("properties")
        for name, value in values.items():
            if value:
                ET.SubElement(properties, "property", {"name": name, "value": visible_name(value)})
        case.insert(0, properties)


def _make_strict(suite: ET.Element) -> None:
    """Remove what Jenkins' xunit plugin refuses: ``file`` and ``line`` of a case, and its properties, which move to its output."""
    for case in suite.iter("testcase"):
        for name in ("file", "line"):
            case.attrib.pop(name, None)
        for properties in case.findall("properties"):
            said = "\n".join(f"{entry.get('name')}: {entry.get('value')}" for entry in properties)
            case.remove(properties)
            output = case.find("system-out")
            if output is None:
                output = ET.SubElement(case, "system-out")
            output.text = f"{said}\n{output.text}" if output.text else said


def _is_let_pass(result: CaseResult, header: RunHeader) -> bool:
    return result.outcome is Outcome.FLAKY and header.lets_flaky_pass


def _add_attempts(case: ET.Element, result: CaseResult, limit: int, folder: Path | None, *, let_pass: bool) -> None:
    """Add the elements that the package lacks: ``flakyFailure`` of a FLAKY case that may pass, ``rerunFailure`` of one that never passed.

    Crashes and errors are written as failures too: few readers support flakyError and rerunError. A FLAKY case that fails the run has all
    attempts in its one failure.
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
        case.insert(place, _attempt_element(tag, attempt, share, folder))


def _share(result: CaseResult, limit: int) -> int:
    """Return the bytes for the attempts of a case: half of the limit, or all of it for a FLAKY case."""
    return limit if result.outcome is Outcome.FLAKY else limit // 2


def _attempt_element(tag: str, attempt: Attempt, limit: int, folder: Path | None) -> ET.Element:
    message = one_line(attempt.reason, min(MESSAGE_LIMIT, max(limit, 100))) or slug(attempt.outcome)
    element = ET.Element(tag, message=message, type=one_line(attempt.failure_type) or slug(attempt.outcome))
    texts = (
        ("stackTrace", attempt_text(attempt, limit=limit // 2)),
        ("system-out", clip(plain(attempt.stdout), limit // 4, _beside(attempt, "stdout.txt", folder))),
        ("system-err", clip(plain(attempt.stderr), limit // 4, _beside(attempt, "stderr.txt", folder))),
    )
    for name, text in texts:
        if text.strip():
            ET.SubElement(element, name).text = text
    return element


def _mended(suite: ET.Element, seconds: Sequence[float]) -> ET.Element:
    """Set the time of the suite and of each case, and remove attributes that strict readers refuse."""
    del suite.attrib["disabled"]
    suite.set("time", _decimal(math.fsum(seconds)))
    for case, taken in zip(suite.iter("testcase"), seconds, strict=True):
        case.set("time", _decimal(taken))
    return suite


def _case(result: CaseResult, limit: int, folder: Path | None, *, passed: bool, page: str) -> TestCase:
    case = TestCase(
        visible_name(result.case_id),
        classname=visible_name(".".join([*result.area.split("/"), result.name] if result.area else [result.name])),
        file=visible_name(cached_file(result.position.file or result.spec)),
        line=result.position.line,
    )
    beside = [*node_lines(result), *timing_lines(result), *note_lines(result), *_attachments(result, folder)]
    case.stdout = timed = clip("\n".join(beside), limit // 4)
    if not passed:
        reruns = _share(result, limit) if result.outcome in RETRIED and len(result.attempts) > 1 else 0
        link = _link(result, folder, page)
        link = link if _PARTS_FOR_LINK * len(link) < limit else ""
        text, said, case.stderr = _texts(result, limit - reruns - len(f"{timed}{link}".encode()), folder)
        text = f"{text}{link}" if text else text
        case.stdout = f"{timed}\n{said}" if timed and said else timed or said
        _add_verdict(case, result, text, limit)
    return case


def _link(result: CaseResult, folder: Path | None, page: str) -> str:
    """Return a line with the address of a case in the HTML report; empty where there is none."""
    shown = _shown(folder)
    if not page or shown is None:
        return ""
    return f"\npage: {one_line(str(shown / page))}#/case?id={quote(result.case_id, safe='', errors='replace')}"


def _attachments(result: CaseResult, folder: Path | None) -> list[str]:
    """Return a line for each attachment: GitLab and others read it on a line of its own, with a path from the repository's root."""
    if folder is None:
        return []
    names = (*result.attachments, *_judged_code(result))
    return [f"[[ATTACHMENT|{visible_name(cached_file(str(folder / result.folder / name)))}]]" for name in names]


def _judged_code(result: CaseResult) -> list[str]:
    """Return the files of code or graphs that a failed expectation of a case was judged by; the first few of many."""
    prefixes = tuple(_CODE_OF[verdict.kind] for verdict in result.failed if verdict.kind in _CODE_OF)
    return [name for name in result.code if prefixes and name.startswith(prefixes)][:_MOST_CODE]


def _texts(result: CaseResult, limit: int, folder: Path | None) -> tuple[str, str, str]:
    """Return the verdict and the ends of stdout and stderr, together within ``limit`` bytes; the verdict has at least three quarters."""
    stdout, stderr = plain(result.stdout), plain(result.stderr)
    printed = len(stdout.encode("utf-8")) + len(stderr.encode("utf-8"))
    text = verdict_text(result, limit=limit - min(printed, limit // 4), folder=_shown(folder)) if limit else ""
    room = limit - len(text.encode("utf-8"))
    stdout = clip(stdout, max(room // 2, room - len(stderr.encode("utf-8"))), _beside(result, "stdout.txt", folder))
    return text, stdout, clip(stderr, room - len(stdout.encode("utf-8")), _beside(result, "stderr.txt", folder))


def _beside(attempt: Attempt, name: str, folder: Path | None) -> str:
    """Return the path of a file in the folder of an attempt, as messages name it; empty where there is none."""
    shown = _shown(folder)
    inside = f"{attempt.folder}/{name}"
    return visible_name(str(shown / inside) if shown is not None else inside) if attempt.folder else ""


def _shown(folder: Path | None) -> Path | None:
    return Path(spec_file(str(folder))) if folder is not None else None


def _add_verdict(case: TestCase, result: CaseResult, text: str, limit: int) -> None:
    message = one_line(result.reason, min(MESSAGE_LIMIT, max(limit, 100))) or slug(result.outcome)
    match result.outcome.junit:
        case JUnitTag.FAILURE:
            case.add_failure_info(message=message, output=text, failure_type=failure_type(result))
        case JUnitTag.ERROR:
            case.add_error_info(message=message, output=text, error_type=failure_type(result))
        case JUnitTag.SKIPPED:
            # Readers show only the message, so it begins with the outcome: XFAIL and UNAVAILABLE are both skipped.
            case.add_skipped_info(message=f"{slug(result.outcome)}: {message}", output=text)
        case JUnitTag.NONE:
            raise ValueError(f"{result.outcome.label} has no element")


def failure_type(result: CaseResult) -> str:
    """Return what failed as one word: ``counter``, ``crash``, ``flaky``."""
    word = "" if result.outcome is Outcome.FLAKY else one_line(result.failure_type)
    return word or slug(result.outcome)


def seconds_of(result: CaseResult) -> float:
    """Return the duration of a case; 0 for a value that cannot be summed."""
    return result.seconds if math.isfinite(result.seconds) and result.seconds > 0 else 0.0


def spec_file(shown: str) -> str:
    """Return a file relative to the repository's root, as CI systems need it, or else as shown."""
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    whole = Path(os.path.abspath(here / shown))
    # a path of another folder or machine is not changed, nor a name that no file can have
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) and os.path.exists(whole) else shown


cached_file = functools.lru_cache(maxsize=1 << 16)(spec_file)
"""Cached during one report: many cases share few files."""


def forget_files() -> None:
    """Clear the cache of ``spec_file``: files may have appeared since the last report."""
    cached_file.cache_clear()


def _decimal(seconds: float) -> str:
    """Return seconds without an exponent."""
    return f"{seconds:.3f}"


# -- whether a report is that of a journal --------------------------------------------------------------------------

_BY_FOLDER = {("testcase", "file"), ("testsuite", "name")}
"""What depends on the folder in which a report is written."""


def difference(report: bytes, header: RunHeader, results: Sequence[CaseResult]) -> str:
    """Return where a report differs from the one that a journal gives; empty if nowhere. The report is untrusted."""
    if len(report) > 2 * FILE_LIMIT or b"<!" in report:
        return "it is larger than a report, or has a declaration of a type"
    try:
        # Read as UTF-8 whatever it declares: in another encoding the bytes of a declaration are others. UTF-16 has zero bytes.
        text = report.decode("utf-8")
        if "\0" in text:
            return "it is no XML: it has a zero byte"
        document = ET.fromstring(text)  # noqa: S314 - without a declaration no entity can be defined
    except (ET.ParseError, ValueError) as error:
        return f"it is no XML: {one_line(str(error))}"
    return _difference(document, ET.fromstring(document_of(header, results)), "")  # noqa: S314 - this program has just written the text


def _difference(element: ET.Element, expected: ET.Element, where: str) -> str:
    named = expected.get("name", "") if expected.tag in ("testcase", "testsuite", "property") else ""
    where = f"{where}/{expected.tag}{f' {one_line(named)}' if named else ''}"
    if element.tag != expected.tag:
        return f"{where}: it has '{one_line(element.tag)}' there"
    for name in sorted({*element.keys(), *expected.keys()}):
        if (expected.tag, name) not in _BY_FOLDER and element.get(name) != expected.get(name):
            return f"{where}: its {one_line(name)} is '{one_line(element.get(name, ''))}', and the journal gives '{expected.get(name, '')}'"
    if (element.text or "").strip() != (expected.text or "").strip() or (element.tail or "").strip():
        return f"{where}: its text is not what the journal gives"
    for mine, other in itertools.zip_longest(element, expected):
        if mine is None or other is None:
            return f"{where}: it has {len(element)} elements, and the journal gives {len(expected)}"
        if words := _difference(mine, other, where):
            return words
    return ""
