"""GitHub Actions: annotations as workflow commands, and the summary of the job; and what is wrong with a run as a whole.

A list of cases alone can look green: a run that was killed has few of them, and a run in which nothing was executed has no failure.

Annotations and summary are made of untrusted text. A command ends at a line end, and its properties at ``:`` and ``,``, so these are
escaped as GitHub's own toolkit does, after control characters and other commands were made visible. In the summary, text stands in HTML
elements with each special character as a character reference, where it is neither Markdown nor HTML.
"""

import html
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.conformance import Conformance
from runner.core.escaping import line
from runner.core.events import RunAbandoned, RunEnded, RunEvent, RunStarted
from runner.core.exit_codes import ExitCode
from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult, executed
from runner.report import clip, one_line, plain, slug, statement, verdict_text, visible_name
from runner.report.console import why_nothing
from runner.report.files import is_special, replace
from runner.report.junit import NAME, TRUNCATED, cached_file, failure_type
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


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a run as a whole is no success, besides its failed cases."""

    kind: str
    """``truncated``, ``interrupted``, ``nothing-executed``, ``too-few-executed``, ``incomplete``, ``not-conformant`` or ``exit-code``."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a report is made of."""

    header: RunHeader
    results: tuple[CaseResult, ...]
    footer: RunFooter | None = None
    """None for a run that did not reach its end."""
    why: str = ""
    """Why it did not."""
    folder: Path | None = None
    """The folder of the run."""

    def is_red(self, result: CaseResult) -> bool:
        """Whether a case fails the run."""
        return result.outcome.is_failure and not self.is_let_pass(result)

    def is_let_pass(self, result: CaseResult) -> bool:
        """Whether a case is FLAKY, and FLAKY cases may pass."""
        return result.outcome is Outcome.FLAKY and self.header.lets_flaky_pass

    @property
    def red(self) -> list[CaseResult]:
        """The cases that fail the run, in their order."""
        return [result for result in self.results if self.is_red(result)]

    @property
    def executed(self) -> int:
        """How many cases were executed."""
        return executed(self.results)

    @property
    def problems(self) -> list[Problem]:
        """What is wrong with the run itself."""
        footer = self.footer
        if footer is None:
            return [Problem("truncated", one_line(self.why or TRUNCATED, _MESSAGE))]
        problems = [Problem("interrupted", "the run was interrupted; its other cases were not run")] if footer.interrupted else []
        for stated in footer.statement:
            if stated.conformance is not Conformance.CONFORMANT:
                problems.append(Problem(stated.conformance.value.lower().replace(" ", "-"), statement.why(stated)))
        if not problems and not footer.statement:
            problems += _nothing(self, footer)
        if not problems and not self.red and (footer.exit_code != ExitCode.OK or not self.executed):
            problems.append(Problem("exit-code", f"the run exited with {footer.exit_code}, {self.executed} cases were executed"))
        return problems


def _nothing(report: RunReport, footer: RunFooter) -> list[Problem]:
    least = report.header.options.get("min-executed", "1")
    text = one_line(why_nothing(report.results, int(least) if least.isdecimal() else 1, report.header.selected), _MESSAGE)
    if not report.executed:
        return [Problem("nothing-executed", text)]
    if footer.exit_code != ExitCode.NOTHING:
        return []
    if least.isdecimal() and report.executed < int(least):
        return [Problem("too-few-executed", text)]
    required = one_line(report.header.options.get("require", ""))
    return [Problem("too-few-executed", f"no executed case uses what --require names: {required}")]


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
        cached_file.cache_clear()
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
        content = self.path.read_bytes() if self.path.exists() else b""
        before, mine, after = content.rpartition(self._mine) if self._mine else (content, b"", b"")
        if self._mine and not mine:
            before, after = content, b""  # somebody else has changed it
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
        text = f"{len(rest)} more failed cases have no annotation: {_first_words(rest, _IDS)}"
        errors.append(_command("error", text, title=f"{NAME}: {len(rest)} more failures"))
    flaky = _groups([result for result in report.results if report.is_let_pass(result)]).values()
    return errors + [_of_group("warning", group) for group in list(flaky)[:MOST_ANNOTATIONS]]


def _groups(results: list[CaseResult]) -> dict[tuple[str, int, str], list[CaseResult]]:
    groups: dict[tuple[str, int, str], list[CaseResult]] = {}
    for result in results:
        groups.setdefault((_file_of(result), result.position.line, failure_type(result)), []).append(result)
    return groups


def _of_group(kind: str, group: list[CaseResult]) -> str:
    first = group[0]
    text = one_line(first.reason, 1_000) or slug(first.outcome)
    if first.failed:
        text += "".join(f"\n{word}: {one_line(said)}" for word, said in _said(first))
    text += f"\n{_first_words(group, _IDS)}"
    if first.repro:
        text += f"\nrepro: {one_line(first.repro)}"
    title = one_line(f"{first.outcome.label} {first.name}: {failure_type(first)}", _TITLE)
    file, at = _file_of(first), first.position
    return _command(kind, text, file=file, line=str(max(at.line, 1)), col=str(max(at.column, 1)), title=title)


def _file_of(result: CaseResult) -> str:
    return visible_name(cached_file(result.position.file or result.spec))


def _first_words(results: Sequence[CaseResult], most: int) -> str:
    """Return the first ids of some cases, and how many more there are."""
    shown = ", ".join(visible_name(result.case_id) for result in results[:most])
    return f"{shown} and {len(results) - most} more" if len(results) > most else shown


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
    folder = visible_name(cached_file(str(report.folder))) if report.folder is not None else ""
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
    shown = _SPECIAL.sub(lambda match: f"&#{ord(match.group())};", one_line(text, _MESSAGE))
    return f"<code>{shown}</code>" if shown else ""
