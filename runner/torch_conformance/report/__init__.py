"""The text of a case in every report: escaped, limited in size, with every verdict.

Output of a case is untrusted; it reaches a file or a terminal only through ``plain``, ``one_line``
or ``visible_name``. With a verdict go the lines of the spec around its position, with a caret, as a
compiler shows them; of a file only if it is the one that the run read: it may have been saved
since, and a case may have replaced it.
"""

import hashlib
import os
import secrets
import textwrap
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from torch_conformance.machine.output import naming
from torch_conformance.machine.redaction import redacted
from torch_conformance.machine.scratch import open_untrusted
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.escaping import MESSAGE_LIMIT, line, one_line, plain
from torch_conformance.model.events import (
    HeaderCompleted,
    Listener,
    ResultsCompleted,
    RunAbandoned,
    RunEvent,
    RunStarted,
)
from torch_conformance.model.expectation import Verdict
from torch_conformance.model.header import ReportedRun
from torch_conformance.model.outcomes import PASSED, Outcome
from torch_conformance.model.results import WEAK, Attempt, Redacted
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import MergeOptions, ReportOptions, RunOptions
from torch_conformance.record.case_files import SCRIPT
from torch_conformance.record.run_folder import RunFolder

Source: TypeAlias = Callable[[Position], Sequence[str]]
"""Returns the lines to show for a position; none where there is nothing to show."""

WIDTH = 120
"""Columns of a shown line, without its number; the rest is cut."""

TEXT_LIMIT = 64_000
"""Bytes of text that a report keeps of one case."""

_LARGEST = 4 << 20
"""Bytes of a YAML file whose lines are shown."""

_MARK = "..."


@frozen
class ReportSetup:
    """What a listener is made of: the folder of the reported run, and the options of the
    command.
    """

    folder: RunFolder
    options: RunOptions | MergeOptions | ReportOptions
    page: str = ""
    """The name of the HTML report in the folder; empty where none is written."""


class Excerpts:
    """Shows positions in files whose digests are known (``Source``): the line, the line above it,
    and a caret.
    """

    def __init__(self, digests: Mapping[str, str]) -> None:
        self._digests = digests
        self._read: dict[str, Sequence[str]] = {}

    def __call__(self, position: Position) -> Sequence[str]:
        """Return the lines to show; none for the spec as a whole, and for a file that is not the
        one that was read.
        """
        if position.file not in self._read:
            data = b""
            with suppress(OSError, ValueError), open_untrusted(Path(position.file)) as stream:
                data = stream.read(_LARGEST)
            is_known = hashlib.sha256(data).hexdigest() == self._digests.get(position.file)
            self._read[position.file] = (
                data.decode("utf-8-sig", "replace").split("\n") if is_known else ()
            )
        lines = self._read[position.file]
        if (position.line, position.column) == (1, 1) or not 0 < position.line <= len(lines):
            return ()
        return excerpt(lines, position.line, position.column)


def excerpt(lines: Sequence[str], number: int, column: int) -> list[str]:
    """Return the numbered line, the line above it, and a line with a caret under the column.

    Nothing in it drives a terminal.
    """
    digits = max(len(str(number)), 4)
    text = lines[number - 1].rstrip("\r")
    before, after = redacted(line(text[: column - 1])), redacted(line(text[column - 1 :]))
    if columns(before) > WIDTH - WIDTH // 4:  # the caret stays visible
        before = _MARK + cut_to(before[::-1], WIDTH // 2)[::-1]
    above = (
        [f" {number - 1:{digits}} | {_fitted(redacted(line(lines[number - 2])))}".rstrip()]
        if number > 1
        else []
    )
    return [
        *above,
        f" {number:{digits}} | {_fitted(before + after)}".rstrip(),
        f" {'':{digits}} | {' ' * columns(before)}^",
    ]


def _fitted(text: str) -> str:
    return text if columns(text) <= WIDTH else cut_to(text, WIDTH - len(_MARK)) + _MARK


def columns(text: str) -> int:
    """Return how many columns of a terminal a text takes: East Asian wide characters take two,
    marks that combine none.
    """
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in text
    )


def cut_to(text: str, width: int) -> str:
    """Return the beginning of a text that takes at most ``width`` columns."""
    used = 0
    for index, char in enumerate(text):
        used += columns(char)
        if used > width:
            return text[:index]
    return text


def clip(text: str, limit: int, whole: str = "") -> str:
    """Return head and tail of a plain text, at most ``limit`` bytes of UTF-8; ``whole`` is the file
    with the complete text.
    """
    data = text.encode("utf-8")
    if len(data) <= limit:
        return text
    where = f"; the whole is in {whole}" if whole else ""
    mark = f"\n... the middle of {len(data)} bytes is left out{where} ...\n"
    room = limit - len(mark)
    if room <= 0:
        return data[: max(limit, 0)].decode("utf-8", "ignore")
    head = room // 2
    return (
        data[:head].decode("utf-8", "ignore")
        + mark
        + data[len(data) - (room - head) :].decode("utf-8", "ignore")
    )


def slug(outcome: Outcome) -> str:
    """Return an outcome as a lower-case word for reports: ``fell-back``."""
    return outcome.label.lower().replace("_", "-")


def verdict_text(
    result: Redacted,
    *,
    limit: int = TEXT_LIMIT,
    folder: Path | None = None,
    source: Source = lambda position: (),
) -> str:
    """Return the reason, claim, verdicts with their positions, artifacts and repro command of a
    case.

    Never empty.

    The middle of long parts is cut; every failed expectation and the repro command stay if
    ``limit`` allows. ``folder`` is the run's; ``source`` returns the lines of the spec to show at a
    verdict's position.
    """
    within = str(folder / result.folder) if folder is not None else result.folder
    places = (
        [f"options: {one_line(', '.join(result.options), 4 * MESSAGE_LIMIT)}"]
        if result.options
        else []
    )
    places += [f"folder: {one_line(within, 4 * MESSAGE_LIMIT)}"] if result.folder else []
    places += (
        [f"generated code, in that folder: {one_line(', '.join(result.code), MESSAGE_LIMIT)}"]
        if result.code
        else []
    )
    # unlike Path.is_file, this is False for a text that is not a path
    if folder is not None and result.folder and os.path.isfile(folder / result.folder / SCRIPT):
        places.append(f"script that needs only torch, in that folder: {SCRIPT}")
    repro = (
        clip(f"repro: {one_line(result.repro, 4 * MESSAGE_LIMIT)}", limit // 2)
        if result.repro
        else ""
    )
    end = "\n".join(part for part in (clip("\n".join(places), limit // 4), repro) if part)

    parts: list[Verdict | str] = []
    is_flaky = result.outcome is Outcome.FLAKY and bool(result.attempts)
    if not is_flaky:
        parts += result.failed or [plain(str(result.position))]
    for number, attempt in enumerate(result.attempts, start=1):
        where = f" in {one_line(attempt.folder)}" if attempt.folder else ""
        because = f": {one_line(attempt.reason)}" if attempt.reason else ""
        parts.append(
            f"attempt {number}{where}, {attempt.seconds:.1f}s: {attempt.outcome.label}{because}"
        )
        parts += attempt.verdicts if is_flaky else ()
    head = [
        _head(
            result.reason,
            result.outcome,
            result.failed if result.outcome is not Outcome.FLAKY else (),
        )
    ]
    head += [f"claim: {one_line(result.summary)}"] if result.summary else []
    head += [f"doctor: {one_line(text, 4 * MESSAGE_LIMIT)}" for text in result.warnings]
    whole = one_line(within, MESSAGE_LIMIT) if result.folder else ""
    body = _body("\n".join(filter(None, head)), parts, limit - size(end) - 1, whole, source)
    return f"{body}\n{end}" if end else body


def attempt_text(attempt: Attempt, *, limit: int) -> str:
    """Return the reason and the verdicts of an attempt, with their positions.

    Never empty if ``limit`` is above 0.
    """
    return _body(_head(attempt.reason, attempt.outcome, attempt.verdicts), attempt.verdicts, limit)


def _head(reason: str, outcome: Outcome, failed: Sequence[Verdict]) -> str:
    """Return the reason on one line; empty if the first verdict, which follows, has the same
    text.
    """
    reason = one_line(reason) or slug(outcome)
    texts = [
        one_line(text.strip().split("\n")[0])
        for verdict in failed[:1]
        for text in (verdict.message, verdict.observed)
    ]
    return "" if reason in texts else reason


def _body(
    head: str,
    parts: Sequence[Verdict | str],
    room: int,
    whole: str = "",
    source: Source = lambda position: (),
) -> str:
    """Return head and parts within ``room`` bytes; if they are too long, each part gets an equal
    share.
    """

    def shown(limit: int) -> list[str]:
        return [
            _verdict(part, limit, whole, source) if isinstance(part, Verdict) else part
            for part in parts
        ]

    places = shown(room)
    if sum(map(size, places)) + len(places) + size(head) > room:
        places = shown(max((room - size(head)) // max(len(places), 1) - 1, 200))
    return clip("\n".join(filter(None, [head, *places])), room, whole)


def _verdict(verdict: Verdict, limit: int, whole: str, source: Source) -> str:
    status = "" if verdict.kind == verdict.status.value else f" {verdict.status.value}"
    lines = [
        f"{one_line(str(verdict.position))}: {one_line(verdict.kind)}{status}",
        *source(verdict.position),
    ]
    for word, text_of_word in (("expected", verdict.expected), ("observed", verdict.observed)):
        if text := plain(text_of_word):
            lines.append(
                f"  {word}: " + clip(text.strip("\n").replace("\n", "\n    "), limit // 4, whole)
            )
    head = "\n".join(lines)
    detail = textwrap.indent(plain(verdict.detail).strip("\n"), "    ")
    return f"{head}\n{clip(detail, max(limit - size(head) - 1, 0), whole)}" if detail else head


def size(text: str) -> int:
    """Return the bytes of a text in UTF-8."""
    return len(text.encode("utf-8"))


# -- timings, notes and nodes of a case ------------------------------------------------------------


def timing_lines(result: Redacted) -> list[str]:
    """Return a line for each timing of bench steps."""
    return [
        f"{timing.median_ms:10.3f} ms  {one_line(timing.name)} {one_line(timing.form)}, median of "
        f"{timing.count} ({timing.least_ms:.3f} to {timing.most_ms:.3f})"
        for timing in result.timings
    ]


def note_lines(result: Redacted) -> list[str]:
    """Return the notes of a case, which change no outcome: weak expectations, a missing trace, a
    worker that outlived its case.
    """
    waiver = (
        result.flaky_waiver if result.outcome in PASSED else None
    )  # the reason of an XFAIL names it
    flaky = (
        []
        if waiver is None
        else [
            f"flaky waiver at {waiver.position} until {waiver.until}: {waiver.reason} "
            f"({waiver.issue})"
        ]
    )
    return [*weak_lines(result), *map(one_line, (*flaky, *result.shown_notes))]


def tolerance_words(results: Sequence[Redacted]) -> str:
    """Return how many cases a tolerance judged, and why; empty where it judged none."""
    reasons = Counter[str]()
    for result in results:
        parts = [
            verdict.observed.partition("values within tolerance") for verdict in result.verdicts
        ]
        whys = [
            why.removeprefix(" (no float64 reference: ")
            for _, is_tolerance, why in parts
            if is_tolerance
        ]
        reasons.update({why for words in whys for why in words.removesuffix(")").split("; ")})
    shown = "; ".join(
        f"{count} {one_line(why, MESSAGE_LIMIT) or 'the spec has one'}"
        for why, count in sorted(reasons.items(), key=lambda entry: (-entry[1], entry[0]))
        if not why.endswith("are exact")
    )
    return f"cases with values that a tolerance judged: {shown}" if shown else ""


def flaky_words(results: Sequence[Redacted]) -> str:
    """Return how many cases have a flaky waiver, and with which outcomes they ended; empty where
    none has one.
    """
    outcomes = [result.outcome for result in results if result.flaky_waiver is not None]
    shown = ", ".join(
        f"{outcomes.count(outcome)} {outcome.label}" for outcome in Outcome if outcome in outcomes
    )
    return (
        f"{len(outcomes)} {'case has' if len(outcomes) == 1 else 'cases have'} a flaky "
        f"waiver: {shown}"
        if outcomes
        else ""
    )


def weak_lines(result: Redacted) -> list[str]:
    """Return the expectations of a case that hold for wrong answers too, each with the reason of
    its spec.
    """
    return [
        one_line(f"weak: {verdict.position}: {verdict.observed}")
        for verdict in result.verdicts
        if verdict.kind == WEAK
    ]


def node_lines(result: Redacted) -> list[str]:
    """Return the node of a fleet that ran a case; nothing for the machine of the run."""
    names = ("name", "host", "image", "torch", "device", "driver", "gpu_serial")
    facts = [f"{name} {one_line(result.node[name])}" for name in names if result.node.get(name)]
    return [f"node: {', '.join(facts)}"] if facts else []


# -- files of reports ------------------------------------------------------------------------------


def is_special(path: Path) -> bool:
    """Whether a path is a named pipe or a device.

    Reports that are written there are not replaced.
    """
    return path.exists() and not path.is_file()


def replace(path: Path, data: bytes) -> None:
    """Replace a report file atomically, so that a reader never sees a partial file; follow a link,
    and write to a special file directly.
    """
    if is_special(path):
        with naming(path), path.open("wb") as stream:
            stream.write(data)
        return
    path = path.resolve()
    path.parent.mkdir(parents=True, exist_ok=True)
    # in the report's folder: a rename is atomic only within one file system
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


@dataclass
class FileReport(Listener):
    """A report in files, which are written when a run begins too: a run that is killed leaves no
    report of an earlier run.
    """

    setup: ReportSetup

    def files(self) -> Iterable[Path]:
        """Return where the report is written."""
        raise NotImplementedError

    def write(self, path: Path, run: ReportedRun) -> None:
        """Write a file."""
        raise NotImplementedError

    def on_event(self, event: RunEvent) -> None:
        """Write the files that are due; pipes and devices get no report of a run that begins."""
        match event:
            case RunStarted(is_resumed=False) | HeaderCompleted(is_resumed=True):
                run: ReportedRun = ReportedRun(header=event.header)
            case ResultsCompleted() | RunAbandoned():
                run = event
            case _:
                return
        for path in self.files():
            if run.footer or run.why or not is_special(path):
                self.write(path, run)
