"""What the page of a case shows, in chunks: a page opens the chunk of its case alone.

Within a chunk, strings are numbers of one table (``scripts.Strings``). Values that are empty are left out.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.expectation import Status
from runner.core.outcomes import PASSED
from runner.core.protocol import Json
from runner.core.results import AppliedWaiver, Attempt, CaseResult, Verdict
from runner.report import node_lines
from runner.report.html.observed import CODE_OF_CASE, facts_of, names_of, observation_of, pieces_of
from runner.report.html.scripts import Strings, clipped, clipped_end, script

MOST_CASES = 256
"""Cases of a chunk."""

_CHUNK = 2_000_000
"""Bytes after which a chunk ends."""

_STATUSES = tuple(status.value for status in Status)
_OUTPUT, _OUTPUT_OF_PASS = 24_000, 2_000
"""Characters of what a worker printed."""

_DETAIL = 40_000


@dataclass
class Budget:
    """How much a page reads of the files of cases. A failed case comes before one that passed; the rest have links to their files."""

    passed: int = 2_000
    """Cases that passed, of which the measured facts are read."""
    failed: int = 5_000
    """Other cases."""
    code: int = 4_000_000
    """Characters of generated code of all cases that did not pass."""


class Details:
    """Makes the chunks of a run."""

    def __init__(self, folder: Path, results: Sequence[CaseResult], budget: Budget | None = None) -> None:
        self._folder = folder
        self._results = results
        self._budget = budget or Budget()
        self.first: list[int] = []
        """The number of the first case of each chunk, once it was made."""

    def chunks(self) -> Iterator[bytes]:
        """Yield the scripts, in the order of the cases."""
        at = 0
        while at < len(self._results):
            self.first.append(at)
            strings, cases, size = Strings(), list[Json](), 0
            for result in self._results[at : at + MOST_CASES]:
                cases.append(self._case(result, strings))
                size += sum(len(piece.get("text", "")) for piece in cases[-1].get("code", ()))
                size += len(result.stdout) + len(result.stderr) + sum(len(verdict.detail) for verdict in result.verdicts)
                if size > _CHUNK:
                    break
            at += len(cases)
            yield script(f"cases-{len(self.first) - 1}", {"strings": strings.table(), "cases": cases})

    def _case(self, result: CaseResult, strings: Strings) -> dict[str, Json]:
        of = strings.of
        repro = result.repro.split(result.case_id) if result.repro.count(result.case_id) == 1 else [result.repro]
        case: dict[str, Json] = {
            **_attempt(result, strings),
            "at": _position(result, strings),
            "reason": of(result.reason),
            "claim": of(result.summary),
            "options": [*map(of, result.options)],
            "phases": [[of(name), round(seconds, 4)] for name, seconds in result.phases.items()],
            "phase": of(result.phase),
            "after": result.after,
            "company": of(result.company),
            "repro": [*map(of, repro)],
            "covers": [*map(of, result.covers)],
            "requires": [*map(of, result.requires)],
            "target": of(result.target),
            "level": of(result.level),
            "digest": of(result.digest),
            "notes": [*map(of, [*result.notes, *node_lines(result)])],
            "attachments": [*map(of, result.attachments)],
            "files": [of(name) for name in result.evidence if name not in names_of(result)],
            "benches": result.benches_left_out,
            "waivers": [_waiver(waiver, strings) for waiver in result.waivers],
            "timings": [[of(one.name), of(one.form), one.median_ms, one.least_ms, one.most_ms, one.count] for one in result.timings],
            "attempts": [{**_attempt(one, strings), "reason": of(one.reason)} for one in result.attempts],
            "code": self._code(result),
            **self._facts(result),
        }
        return {name: value for name, value in case.items() if value not in ([], 0)}

    def _code(self, result: CaseResult) -> list[Json]:
        names = names_of(result, result.code)
        if result.outcome in PASSED:
            return [{"name": name} for name in names]
        pieces = pieces_of(self._folder, result, names, min(self._budget.code, CODE_OF_CASE))
        self._budget.code -= sum(len(piece.get("text", "")) for piece in pieces)
        return pieces

    def _facts(self, result: CaseResult) -> dict[str, Json]:
        if result.outcome in PASSED:
            self._budget.passed -= 1
            room = self._budget.passed
        else:
            self._budget.failed -= 1
            room = self._budget.failed
        return facts_of(observation_of(self._folder, result)) if room >= 0 else {}


def _attempt(attempt: Attempt, strings: Strings) -> dict[str, Json]:
    """Return what a case has, and each of its attempts."""
    of = strings.of
    most = _OUTPUT_OF_PASS if attempt.outcome in PASSED else _OUTPUT
    return {
        "outcome": attempt.outcome.label,
        "type": of(attempt.failure_type),
        "seconds": attempt.seconds,
        "isolation": of(attempt.isolation),
        "folder": of(attempt.folder),
        "begun": of(attempt.begun),
        "worker": attempt.worker,
        "gpus": list(attempt.gpus),
        "verdicts": [_verdict(verdict, strings) for verdict in attempt.verdicts],
        "stdout": of(clipped_end(attempt.stdout, most)),
        "stderr": of(clipped_end(attempt.stderr, most)),
    }


def _verdict(verdict: Verdict, strings: Strings) -> Json:
    of, at = strings.of, verdict.position
    status = _STATUSES.index(verdict.status.value)
    texts = (verdict.expected, verdict.observed, clipped(verdict.detail, _DETAIL))
    return [of(verdict.kind), status, of(at.file), at.line, at.column, *map(of, texts)]


def _position(result: CaseResult, strings: Strings) -> Json:
    return [strings.of(result.position.file), result.position.line, result.position.column]


def _waiver(waiver: AppliedWaiver, strings: Strings) -> Json:
    of, at = strings.of, waiver.position
    return [of(waiver.effect.value), of(at.file), at.line, of(waiver.reason), of(waiver.issue), of(waiver.until), of(waiver.cases)]
