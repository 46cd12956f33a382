"""GitHub Actions: annotations as workflow commands, and the summary of the job.

Both are made of untrusted text. A command ends at a line end, and its properties at ``:`` and ``,``, so these are escaped as GitHub's own
toolkit does, after control characters and other commands were made visible. In the summary, text stands in HTML elements with each special
character as a character reference, where it is neither Markdown nor HTML.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from runner.core.escaping import line
from runner.core.events import RunAbandoned, RunEnded, RunEvent, RunStarted
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.report import clip, one_line, plain, verdict_text, visible_name
from runner.report.files import is_special, replace
from runner.report.run_report import NAME, RunReport, failure_type, file_of, first_words, forget_files, reason_of, shown_file
from runner.report.setup import ReportSetup
from runner.system import output

MOST_ANNOTATIONS = 10
"""GitHub shows ten errors and ten warnings of a step, and 50 annotations of a job; it drops others silently."""

SUMMARY_LIMIT = 1 << 20
"""Bytes of the summary of a step; GitHub shows nothing of a larger one."""

_MESSAGE = 2_000
_TITLE = 200
_OF_CASE = 8_000
"""Bytes of text of one case in the summary."""
_LEAST = 2_000
"""Bytes that the head of a summary needs."""
_IDS = 10
_REASONS = 20

_SPECIAL = re.compile(r"[^A-Za-z0-9 ]")


class GitHubReporter:
    """Writes a summary that says that the run did not end, and at the end the summary and the annotations."""

    def __init__(self, setup: ReportSetup) -> None:
        self._setup = setup
        self._summary = SummaryFile(setup.github_summary) if setup.github_summary is not None else None

    def on_event(self, event: RunEvent) -> None:
        """Tell GitHub what an event says."""
        folder = self._setup.folder.path
        match event:
            case RunStarted():
                self._write(RunReport(header=event.header, results=(), folder=folder))
            case RunEnded():
                self._tell(RunReport(header=event.header, results=event.results, footer=event.footer, folder=folder))
            case RunAbandoned():
                self._tell(RunReport(header=event.header, results=event.results, why=event.why, folder=folder))

    def close(self) -> None:
        """Release nothing: every text is written at once."""

    def _tell(self, report: RunReport) -> None:
        forget_files()
        for command in annotations(report):
            output.command(command)
        self._write(report)

    def _write(self, report: RunReport) -> None:
        """Write the summary. A summary that cannot be written is a warning, and does not fail the run."""
        if self._summary is None:
            return
        try:
            if not self._summary.write(report):
                output.note("warning: the summary of this step is full; the run is not in it")
        except OSError as error:
            output.note(f"warning: no summary was written to {self._summary.path}: {error.strerror or error}")


class SummaryFile:
    """The file of a step's summary: other programs of the step may have written to it, and may still do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._mine = b""

    def write(self, report: RunReport) -> bool:
        """Write the summary of a run instead of the one that this object wrote before; return False if there is no room."""
        if is_special(self.path):
            return True
        if self.path.exists() and self.path.stat().st_size > SUMMARY_LIMIT:
            return False
        found = self.path.read_bytes() if self.path.exists() else b""
        before, mine, after = found.rpartition(self._mine) if self._mine else (found, b"", b"")
        if self._mine and not mine:
            before, after = found, b""  # somebody else has changed it
        room = SUMMARY_LIMIT - len(before) - len(after) - 2
        if room < _LEAST:
            return False
        gap = b"\n" if before and not before.endswith(b"\n") else b""
        self._mine = summary(report, room).encode("utf-8")
        replace(self.path, before + gap + self._mine + after)
        return True


# -- annotations ------------------------------------------------------------------------------------------------------


def annotations(report: RunReport) -> list[str]:
    """Return the workflow commands of a run, no more than GitHub shows. The cases that fail at one line for one reason share one."""
    errors = [_command("error", problem.text, title=f"{NAME}: {problem.kind}") for problem in report.problems]
    groups = list(_groups(report.red).values())
    room = MOST_ANNOTATIONS - len(errors)
    shown = groups if len(groups) <= room else groups[: max(room - 1, 0)]
    errors += [_of_group("error", group) for group in shown]
    if rest := [result for group in groups[len(shown) :] for result in group]:
        text = f"{len(rest)} more failed cases have no annotation: {first_words(rest, _IDS)}"
        errors.append(_command("error", text, title=f"{NAME}: {len(rest)} more failures"))
    flaky = _groups([result for result in report.results if report.is_let_pass(result)]).values()
    return errors + [_of_group("warning", group) for group in list(flaky)[:MOST_ANNOTATIONS]]


def _groups(results: list[CaseResult]) -> dict[tuple[str, int, str], list[CaseResult]]:
    found: dict[tuple[str, int, str], list[CaseResult]] = {}
    for result in results:
        found.setdefault((file_of(result), result.position.line, failure_type(result)), []).append(result)
    return found


def _of_group(kind: str, group: list[CaseResult]) -> str:
    first = group[0]
    text = reason_of(first, 1_000)
    if first.failed:
        text += "".join(f"\n{word}: {one_line(said)}" for word, said in _said(first))
    text += f"\n{first_words(group, _IDS)}"
    if first.repro:
        text += f"\nrepro: {one_line(first.repro)}"
    title = one_line(f"{first.outcome.label} {first.name}: {failure_type(first)}", _TITLE)
    file, at = file_of(first), first.position
    return _command(kind, text, file=file, line=str(max(at.line, 1)), col=str(max(at.column, 1)), title=title)


def _said(result: CaseResult) -> Iterator[tuple[str, str]]:
    verdict = result.failed[0]
    if verdict.expected:
        yield "expected", verdict.expected
        yield "observed", verdict.observed


def _command(kind: str, text: str, **properties: str) -> str:
    """Return a workflow command on one line."""
    said = ",".join(f"{name}={_property(value)}" for name, value in properties.items())
    shown = filter(None, (one_line(part, _MESSAGE) for part in text[: 4 * _MESSAGE].split("\n")))
    return f"::{kind} {said}::{_data(chr(10).join(shown))}"


def _data(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _data(line(text)).replace(":", "%3A").replace(",", "%2C")


# -- summary ----------------------------------------------------------------------------------------------------------


def summary(report: RunReport, room: int = SUMMARY_LIMIT) -> str:
    """Return the summary of a run as Markdown, at most ``room`` bytes."""
    head = "\n".join(_head(report))
    text = head if len(head.encode("utf-8")) <= room else f"## {NAME}: {_verdict(report)}\n\n"
    rest = _rest(len(report.red))
    left = room - len(text.encode("utf-8")) - len(rest)
    blocks: list[str] = []
    for result in report.red:
        block = _block(report, result)
        left -= len(block.encode("utf-8"))
        if left < 0:
            blocks.append(_rest(len(report.red) - len(blocks)))
            break
        blocks.append(block)
    return text + "".join(blocks)


def _rest(count: int) -> str:
    return f"\n{count} more failed cases are in the reports of the run.\n\n"


def _verdict(report: RunReport) -> str:
    if report.problems:
        return report.problems[0].kind.replace("-", " ")
    failed = len(report.red)
    return f"{failed} failed, {report.executed} executed" if failed else f"passed, {report.executed} executed"


def _head(report: RunReport) -> Iterator[str]:
    yield f"## {NAME}: {_verdict(report)}"
    yield ""
    for problem in report.problems:
        yield f"- {_inline(problem.text)}"
    yield ""
    counts = Counter(result.outcome for result in report.results)
    if counts:
        yield "| outcome | cases |"
        yield "|---|---|"
        yield from (f"| {outcome.label} | {counts[outcome]} |" for outcome in Outcome if counts[outcome])
        yield ""
    machine = {name: report.header.environment.get(name, "") for name in ("torch", "python", "device", "arch")}
    facts = ", ".join(f"{name} {value}" for name, value in machine.items() if value)
    folder = shown_file(str(report.folder)) if report.folder is not None else ""
    yield f"{_inline(facts)} run {_inline(report.header.run_id)}, folder {_inline(folder)}"
    yield ""
    yield from _unavailable(report)


def _unavailable(report: RunReport) -> Iterator[str]:
    reasons = Counter(one_line(result.reason, 300) for result in report.results if result.outcome is Outcome.UNAVAILABLE)
    if not reasons:
        return
    yield "| unavailable because | cases |"
    yield "|---|---|"
    yield from (f"| {_inline(reason)} | {count} |" for reason, count in reasons.most_common(_REASONS))
    if len(reasons) > _REASONS:
        yield f"| {len(reasons) - _REASONS} more reasons | {sum(reasons.values()) - sum(n for _, n in reasons.most_common(_REASONS))} |"
    yield ""


def _block(report: RunReport, result: CaseResult) -> str:
    """Return a red case, folded. The text stands in ``pre``, where only HTML matters."""
    title = f"{result.outcome.label} {visible_name(result.case_id)}"
    text = clip(plain(verdict_text(result, limit=_OF_CASE, folder=report.folder)), _OF_CASE)
    return f"<details><summary>{_inline(title)}</summary>\n\n<pre>{html.escape(text)}</pre>\n\n</details>\n\n"


def _inline(text: str) -> str:
    """Return text that is neither Markdown nor HTML: each special character is a character reference."""
    shown = _SPECIAL.sub(lambda found: f"&#{ord(found.group())};", one_line(text, _MESSAGE))
    return f"<code>{shown}</code>" if shown else ""
