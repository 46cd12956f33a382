"""The JUnit report: one flat suite for each YAML file, one test case for each case; the file is
replaced atomically.

The elements are made with the ``junit-xml`` package. Only this module works around its defects: it
crashes on lone surrogates, drops control characters, writes an empty failure as a pass, omits a
time of zero, and adds ``disabled``. So only its elements are used, not its text: all input is
escaped first, and the tree is corrected before it is written.
"""

import functools
import itertools
import math
import os
import shlex
import xml.etree.ElementTree as ET
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from urllib.parse import quote

from junit_xml import TestCase, TestSuite  # type: ignore[import-untyped]  # junit-xml ships no annotations (no py.typed), and no stub package exists for it

from torch_conformance.model.escaping import MESSAGE_LIMIT, one_line, plain, visible_name
from torch_conformance.model.header import ReportedRun
from torch_conformance.model.outcomes import RETRIED, JUnitTag, Outcome
from torch_conformance.model.results import Attempt, Redacted
from torch_conformance.model.targets import evidence_of
from torch_conformance.optional.options import ReportOptions
from torch_conformance.record.conclusion import profile_statement
from torch_conformance.record.run_folder import JUNIT
from torch_conformance.report import (
    TEXT_LIMIT,
    FileReport,
    attempt_text,
    clip,
    flaky_words,
    node_lines,
    note_lines,
    replace,
    size,
    slug,
    timing_lines,
    tolerance_words,
    verdict_text,
    weak_lines,
)

NAME = "torch-conformance"
TRUNCATED = "the run did not reach its end; cases that are not in this report were not judged"

FILE_LIMIT = 29_000_000
"""The maximum size in bytes; GitLab reads at most 30 MB."""

_TEXT_LIMITS = (TEXT_LIMIT, 16_000, 4_000, 1_000, 250, 0)
"""Bytes of text for each case: the first value that keeps the file below its limit is used.

Cases are never dropped.
"""

_PROPERTY_LIMIT = 2_000
_MOST_CODE = 10
_CODE_OF = {"filecheck": "code-", "graph": "graph-", "proof": "code-"}
"""The files that expectations of a kind look at, by the beginning of their names."""

_PARTS_FOR_LINK = 8
"""The address of a case in the HTML report has at most this part of its text."""

_END = b"</testsuites>"


class JUnitReporter(FileReport):
    """Writes JUnit into the folder of a run, and where ``--junit`` says."""

    def files(self) -> Iterable[Path]:
        """Return both; ``report`` leaves the file in the folder as the run wrote it."""
        options = self.setup.options
        default = () if isinstance(options, ReportOptions) else (self.setup.folder.path / JUNIT,)
        return filter(None, (*default, options.junit))

    def write(self, path: Path, run: ReportedRun) -> None:
        """Write a file."""
        setup = self.setup
        replace(path, document_of(run, setup.folder.path, setup.page, setup.options.junit_flavour))


def document_of(
    run: ReportedRun, folder: Path | None = None, page: str = "", flavour: str = "default"
) -> bytes:
    """Return the report with the most text that fits into the limit, or else with the least
    text. The arguments are the fields of ``_Report``.
    """
    seen: set[str] = set()
    for result in run.results:
        if result.outcome is not Outcome.PASS and not result.reason.strip():
            raise ValueError(f"{result.case_id}: {result.outcome.label} without a reason")
        if result.case_id in seen:
            raise ValueError(f"{result.case_id} has two results")
        seen.add(result.case_id)
    cached_file.cache_clear()
    report = _Report(run, folder, page, flavour)
    *limits, least = _TEXT_LIMITS
    return next(
        filter(None, (report.document(limit, most=FILE_LIMIT) for limit in limits)), b""
    ) or report.document(least)


@dataclass(frozen=True, slots=True)
class _Report:
    run: ReportedRun
    folder: Path | None
    """The folder of the run: cases list their attachments in it, in the form for CI systems."""
    page: str
    """The name of the HTML report in ``folder``: red cases have their address there."""
    flavour: str
    """``strict`` is valid for Jenkins' xunit plugin."""

    def document(self, limit: int, most: float = math.inf) -> bytes:
        """Return the document, indented like one tree, each case within ``limit`` bytes of text;
        empty if it is longer than ``most``.

        The suites become text one by one: elements of all suites together need many times the
        memory.
        """
        header, results = self.run.header, self.run.results
        facts = {
            NAME: header.version,
            "run": header.run_id,
            "command": shlex.join(header.command),
            "shard": header.shard,
            "shuffle": header.shuffle,
            "merged": " ".join(header.merged),
            "flaky-waivers": flaky_words(results),
            "tolerances": tolerance_words(results),
            **(statement.properties() if (statement := profile_statement(header, results)) else {}),
            **header.environment,
            **{f"env.{name}": value for name, value in header.variables.items()},
        }
        # the properties of the run are written once, in the first suite: a reader shows those of
        # every suite
        properties = {
            visible_name(name): clip(plain(value), _PROPERTY_LIMIT)
            for name, value in facts.items()
            if value
        }
        groups: dict[str | None, list[Redacted]] = {} if self.run.footer else {None: []}
        for result in results:
            groups.setdefault(result.spec, []).append(result)

        totals = dict.fromkeys(("tests", "failures", "errors"), 0)
        texts: list[bytes] = []
        size = 0
        for spec, group in groups.items():
            if left_out := sum(result.benches_left_out for result in group):
                properties["bench-steps-left-out"] = str(left_out)
            if spec is not None:
                name = visible_name(cached_file(spec))
                cases = [self._case(result, limit) for result in group]
            else:
                name, cases = "run", [TestCase("run", classname=NAME)]
                why = one_line(self.run.why or TRUNCATED)
                cases[0].add_error_info(
                    message=why,
                    output=f"{why}\nrun: {plain(header.run_id)}",
                    error_type="truncated",
                )
            suite = TestSuite(
                name,
                cases,
                timestamp=one_line(min(_begun(group), default=header.started)),
                properties=properties,
            ).build_xml_doc()
            properties = {}
            del suite.attrib["disabled"]  # strict readers refuse it
            suite.set("time", f"{math.fsum(map(_seconds, group)):.3f}")
            for element, result in itertools.zip_longest(suite.iter("testcase"), group):
                element.set("time", f"{_seconds(result) if result else 0:.3f}")
                if result:
                    self._complete(element, result, limit)
            for name in totals:
                totals[name] += int(suite.get(name, "0"))
            ET.indent(suite, level=1)
            texts.append(b"\n  " + ET.tostring(suite, encoding="utf-8"))
            size += len(texts[-1])
            if size > most:
                return b""
        seconds = f"{math.fsum(map(_seconds, results)):.3f}"
        root = ET.Element(
            "testsuites",
            {"name": NAME, **{name: str(total) for name, total in totals.items()}, "time": seconds},
        )
        head = bytes(
            ET.tostring(root, encoding="utf-8", xml_declaration=True, short_empty_elements=False)
        ).removesuffix(_END)
        data = b"".join([head, *texts, b"\n", _END, b"\n"])
        return b"" if len(data) > most else data

    def _case(self, result: Redacted, limit: int) -> TestCase:
        """Return a case within ``limit`` bytes of text, as far as the package can write it."""
        case = TestCase(
            visible_name(result.case_id),
            classname=visible_name(
                ".".join([*result.area.split("/"), result.name] if result.area else [result.name])
            ),
            file=visible_name(cached_file(result.position.file or result.spec)),
            line=result.position.line,
        )
        printed_lines = [*node_lines(result), *timing_lines(result), *note_lines(result)]
        folder = None
        if self.folder is not None:
            folder = Path(cached_file(str(self.folder)))
            # with the first few files of code or graphs that a failed expectation was judged by.
            # GitLab and others read each on a line of its own, with a path from the repository's
            # root
            prefixes = tuple(
                _CODE_OF[verdict.kind] for verdict in result.failed if verdict.kind in _CODE_OF
            )
            judged_files = [name for name in result.code if prefixes and name.startswith(prefixes)][
                :_MOST_CODE
            ]
            for name in (*result.attachments, *judged_files):
                printed_lines.append(
                    f"[[ATTACHMENT|{visible_name(cached_file(str(self.folder / result.folder / name)))}]]"  # noqa: E501 - Python 3.11 breaks no line within a field
                )
        case.stdout = timed = clip("\n".join(printed_lines), limit // 4)
        if result.outcome.junit is JUnitTag.NONE or self.run.header.lets_pass(result):
            return case
        link = ""
        if self.page and folder is not None:
            case_id = quote(result.case_id, safe="", errors="replace")
            link = f"\npage: {one_line(str(folder / self.page))}#/case?id={case_id}"
            link = link if _PARTS_FOR_LINK * len(link) < limit else ""

        # the verdict has at least three quarters; the ends of stdout and stderr have the rest
        reruns = (
            _share(result, limit) if result.outcome in RETRIED and len(result.attempts) > 1 else 0
        )
        room = limit - reruns - size(f"{timed}{link}")
        of_stderr = size(plain(result.stderr))
        printed = size(plain(result.stdout)) + of_stderr
        text = (
            verdict_text(result, limit=room - min(printed, room // 4), folder=folder)
            if room
            else ""
        )
        room -= size(text)
        stdout = self._printed(result, "stdout", max(room // 2, room - of_stderr))
        case.stderr = self._printed(result, "stderr", room - size(stdout))
        case.stdout = "\n".join(filter(None, (timed, stdout)))
        text = f"{text}{link}" if text else text

        message = _message(result, limit)
        match result.outcome.junit:
            case JUnitTag.FAILURE:
                case.add_failure_info(
                    message=message, output=text, failure_type=failure_type(result)
                )
            case JUnitTag.ERROR:
                case.add_error_info(message=message, output=text, error_type=failure_type(result))
            case JUnitTag.SKIPPED:
                # Readers show only the message, so it begins with the outcome: XFAIL and
                # UNAVAILABLE are both skipped.
                case.add_skipped_info(message=f"{slug(result.outcome)}: {message}", output=text)
        return case

    def _complete(self, element: ET.Element, result: Redacted, limit: int) -> None:
        """Add to the element of a case what the package lacks.

        ``flakyFailure`` of a FLAKY case that may pass, ``rerunFailure`` of one that never passed.
        Crashes and errors are written as failures too: few readers support flakyError and
        rerunError. A FLAKY case that fails the run has all attempts in its one failure.
        """
        for skipped in element.iter("skipped"):
            skipped.set("type", failure_type(result))
        is_let_pass = self.run.header.lets_pass(result)
        attempts = (
            result.attempts
            if is_let_pass
            else result.attempts[1:]
            if result.outcome in RETRIED
            else ()
        )
        failed = [attempt for attempt in attempts if attempt.outcome.is_failure]
        place = sum(child.tag in ("failure", "error", "skipped") for child in element)
        share = _share(result, limit) // max(len(failed), 1)
        for number, attempt in enumerate(failed):
            rerun = ET.Element(
                "flakyFailure" if is_let_pass else "rerunFailure",
                message=_message(attempt, share),
                type=failure_type(attempt),
            )
            texts = {
                "stackTrace": attempt_text(attempt, limit=share // 2),
                "system-out": self._printed(attempt, "stdout", share // 4),
                "system-err": self._printed(attempt, "stderr", share // 4),
            }
            for name, text in texts.items():
                if text.strip():
                    ET.SubElement(rerun, name).text = text
            element.insert(place + number, rerun)
        # a case that was compiled for a target and not executed, a flaky waiver, and weak
        # expectations
        waiver = result.flaky_waiver
        words = {
            "flaky-waiver": f"{waiver.position}: {waiver.reason} ({waiver.issue})"
            if waiver
            else "",
            "target": result.target,
            "evidence": evidence_of(result.level) if result.target else "",
            "weak": "; ".join(weak_lines(result)),
        }
        words = {name: visible_name(value) for name, value in words.items() if value}
        if self.flavour == "strict":
            # Jenkins' xunit plugin refuses file and line of a case, and its properties, which are
            # in its output
            for name in ("file", "line"):
                element.attrib.pop(name, None)
            if words:
                printed = element.find("system-out")
                printed = ET.SubElement(element, "system-out") if printed is None else printed
                printed.text = "\n".join(
                    [
                        *(f"{name}: {value}" for name, value in words.items()),
                        *filter(None, [printed.text]),
                    ]
                )
        elif words:
            element.insert(0, properties := ET.Element("properties"))
            for name, value in words.items():
                ET.SubElement(properties, "property", {"name": name, "value": value})

    def _printed(self, attempt: Attempt, stream: str, limit: int) -> str:
        """Return what an attempt printed to ``stdout`` or ``stderr``, at most ``limit`` bytes; a
        text that is cut names the file with all of it, where there is one.
        """
        whole = ""
        if attempt.folder:
            file = Path(attempt.folder, f"{stream}.txt")
            run = Path() if self.folder is None else Path(cached_file(str(self.folder)))
            whole = visible_name(str(run / file))
        return clip(plain(getattr(attempt, stream)), limit, whole)


def _message(attempt: Attempt, limit: int) -> str:
    """Return the reason on one line, or the outcome, for an attribute: at most ``limit`` characters
    or 100.
    """
    reason = one_line(attempt.reason, min(MESSAGE_LIMIT, max(limit, 100)))
    return reason or slug(attempt.outcome)


def _share(result: Redacted, limit: int) -> int:
    """Return the bytes for the attempts of a case: half of the limit, or all of it for a FLAKY
    case.
    """
    return limit if result.outcome is Outcome.FLAKY else limit // 2


def _begun(results: Iterable[Redacted]) -> Iterator[str]:
    """Yield when executions began, without the fraction of a second, which few readers know."""
    for result in results:
        for attempt in (result, *result.attempts):
            with suppress(ValueError):
                yield datetime.fromisoformat(attempt.begun).isoformat(timespec="seconds")


def _seconds(result: Redacted) -> float:
    """Return the duration of a case; 0 for a value that cannot be summed."""
    return result.seconds if math.isfinite(result.seconds) and result.seconds > 0 else 0.0


def failure_type(result: Attempt) -> str:
    """Return what failed as one word: ``counter``, ``crash``, ``flaky``."""
    word = "" if result.outcome is Outcome.FLAKY else one_line(result.failure_type)
    return word or slug(result.outcome)


@functools.lru_cache(maxsize=1 << 16)
def cached_file(shown: str) -> str:
    """Return a file relative to the repository's root, as CI systems need it, or else as shown.

    Cached during one report: many cases share few files, and files may appear between two reports.
    """
    working_folder = Path.cwd()
    root = next(
        (
            folder
            for folder in (working_folder, *working_folder.parents)
            if (folder / ".git").exists()
        ),
        working_folder,
    )
    whole = Path(os.path.abspath(working_folder / shown))
    # a path of another folder or machine is not changed, nor a name that no file can have
    return (
        whole.relative_to(root).as_posix()
        if whole.is_relative_to(root) and os.path.exists(whole)
        else shown
    )
