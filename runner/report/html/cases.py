"""What the page of a case shows, in chunks: a page opens the chunk of its case alone; and the text of the specs.

Within a chunk, strings are numbers of one table (``Strings``). Values that are empty are left out. The files of a case are a worker's: only
those whose digest the journal has are read, and every value is checked for its type and cut to a size.
"""

import hashlib
import json
import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.expectation import Status
from runner.core.outcomes import PASSED
from runner.core.protocol import Json
from runner.core.results import Attempt, CaseResult, Verdict
from runner.record.evidence import OBSERVATION, EvidenceAltered, RecordedFiles
from runner.report import node_lines
from runner.report.html import Strings, clipped, clipped_end, script, shown
from runner.system import data_dirs
from runner.system.redaction import redacted
from runner.system.safe_open import open_untrusted

MOST_CASES = 256
"""Cases of a chunk."""

_CHUNK = 2_000_000
"""Bytes after which a chunk ends."""

_STATUSES = tuple(status.value for status in Status)
_OUTPUT, _OUTPUT_OF_PASS = 24_000, 2_000
"""Characters of what a worker printed."""

_DETAIL = 40_000


_MOST_NUMBERS, _MOST_TUNINGS, _MOST_BINS = 24, 40, 128
_WORD = 300
"""Characters of a name that a worker wrote."""

CODE_OF_CASE, PIECE = 200_000, 60_000
"""Characters of generated code and graphs that the page of a case has, and those of one piece."""

_ROW = re.compile(r">\s*(?P<number>[0-9]{1,8}) \| ?(?P<text>.*)")
_CODE = re.compile(r"(?:code|graph)-[0-9]{1,4}(?:-[a-z_]{1,20})?-[0-9]{1,4}\.txt")
_FIGURES = ("max_error", "max_ulp", "eager_max_error", "eager_max_ulp", "numel", "outside", "nonfinite", "factor", "whole_error")
_OF_WORST = ("index", "value", "eager_value", "reference_value")

_LARGEST_SPEC = 1 << 20
"""Bytes of a YAML file that the page shows."""


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
            "at": [of(result.position.file), result.position.line, result.position.column],
            "reason": of(result.reason),
            "claim": of(result.summary),
            "options": [*map(of, result.options)],
            "phases": [[of(name), round(seconds, 4)] for name, seconds in result.phases.items()],
            "phase": of(result.phase),
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
            "waivers": [
                [
                    of(entry.effect.value),
                    of(entry.position.file),
                    entry.position.line,
                    *map(of, (entry.reason, entry.issue, entry.until, entry.cases)),
                ]
                for entry in result.waivers
            ],
            "timings": [
                [of(entry.name), of(entry.form), entry.median_ms, entry.least_ms, entry.most_ms, entry.count] for entry in result.timings
            ],
            "attempts": [{**_attempt(entry, strings), "reason": of(entry.reason)} for entry in result.attempts],
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


# -- what a case's own files add: errors of numbers, candidates of autotuning, generated code, graphs ----------------


def observation_of(folder: Path, attempt: Attempt) -> Json:
    """Return what the worker measured; None where there is nothing, or another file than the one that was judged."""
    if not attempt.folder or OBSERVATION not in attempt.evidence:
        return None
    try:
        return RecordedFiles(folder / attempt.folder, attempt.evidence).observation()
    except (OSError, ValueError, RecursionError, EvidenceAltered):
        return None


def facts_of(observation: Json) -> dict[str, Json]:
    """Return the facts that the page shows; keys without a fact are absent. Numbers outside of their bounds come first."""
    steps = list(enumerate(_list(_get(observation, "steps"))))
    leaves = [(step, index, leaf) for step, facts in steps for index, leaf in _leaves(facts)]
    leaves.sort(key=lambda entry: not _is_outside(entry[2]))
    tunings = [(step, entry) for step, facts in steps for entry in _list(_get(_get(facts, "tunings"), "found"))]
    facts_ = {
        "numbers": [_number(*entry) for entry in leaves[:_MOST_NUMBERS]],
        "tunings": [_tuning(*entry) for entry in tunings[:_MOST_TUNINGS]],
        "numbers_left": max(len(leaves) - _MOST_NUMBERS, 0),
        "tunings_left": max(len(tunings) - _MOST_TUNINGS, 0),
    }
    return {name: value for name, value in facts_.items() if value}


def _leaves(facts: Json) -> Iterator[tuple[str, Json]]:
    for index, measured in _items(_get(facts, "measured")):
        yield from ((index, leaf) for leaf in _list(_get(measured, "leaves")) if isinstance(_get(leaf, "calibrated"), dict))


def _is_outside(leaf: Json) -> bool:
    outside = leaf["calibrated"].get("outside")
    return _is_count(outside) and outside > 0


def _number(step: int, index: str, leaf: Json) -> dict[str, Json]:
    calibrated = leaf["calibrated"]
    number: dict[str, Json] = {"step": step, "expectation": _word(index)}
    number |= {name: _word(_get(leaf, name)) for name in ("path", "dtype", "shape")}
    number |= {name: _figure(calibrated[name]) for name in _FIGURES if name in calibrated}
    if why := calibrated.get("why_not"):
        number["why_not"] = _word(why)
    worst = calibrated.get("worst")
    if isinstance(worst, dict):
        number["worst"] = {name: _figure(worst[name]) for name in _OF_WORST if name in worst}
    if histogram := _histogram(calibrated.get("histogram")):
        number["histogram"] = histogram
    return number


def _histogram(value: Json) -> dict[str, Json] | None:
    first = _get(value, "first")
    bins = {side: [count for count in _list(_get(value, side)) if _is_count(count)][:_MOST_BINS] for side in ("compiled", "eager")}
    return {"first": first, **bins} if _is_count(first, negative=True) and any(map(any, bins.values())) else None


def _tuning(step: int, tuning: Json) -> dict[str, Json]:
    backends = {_word(name): _tally(tally) for name, tally in _items(_get(tuning, "backends"))}
    return {"step": step, **{name: _word(_get(tuning, name)) for name in ("op", "how", "winner", "won_by")}, "backends": backends}


def _tally(value: Json) -> list[Json]:
    counts = [_figure(_get(value, key)) for key in ("rendered", "compiled", "failed", "timed", "won")]
    return [*counts, _word(_get(value, "error"))]


def pieces_of(folder: Path, attempt: Attempt, names: Sequence[str], room: int) -> list[Json]:
    """Return pieces of generated code and graphs, at most ``room`` characters; the others have their name alone."""
    pieces: list[Json] = []
    for name in names:
        if not _CODE.fullmatch(name):
            continue
        text = _text(folder / attempt.folder / name, min(room, PIECE)) if room > 0 else ""
        piece: dict[str, Json] = {"name": name}
        if text:
            room -= len(text)
            piece["text"] = shown(redacted(text))
            if marks := list(_marks(text, attempt.verdicts)):
                piece["marks"] = marks
        pieces.append(piece)
    return pieces


def names_of(attempt: Attempt, more: Sequence[str] = ()) -> list[str]:
    """Return the names of an attempt's pieces of code and graphs."""
    return list(dict.fromkeys(name for name in (*more, *attempt.evidence) if _CODE.fullmatch(name)))


def _text(path: Path, limit: int) -> str:
    try:
        with open_untrusted(path) as stream:
            data = stream.read(4 * limit)
    except OSError:
        return ""
    return clipped(data.decode("utf-8", "backslashreplace"), limit)


def _marks(text: str, verdicts: Sequence[Verdict]) -> Iterator[Json]:
    """Yield the line of a piece that a failed verdict points to, with the verdict's number: the excerpt in its detail is of that line."""
    lines = text.split("\n")
    for number, verdict in enumerate(verdicts):
        row = next(filter(None, map(_ROW.fullmatch, verdict.detail.split("\n"))), None) if verdict.kind == "filecheck" else None
        if row is None or not 0 < int(row["number"]) <= len(lines):
            continue
        line = lines[int(row["number"]) - 1].expandtabs(4)
        if row["text"].strip() in line and (row["text"].strip() or not line.strip()):
            yield [int(row["number"]), number]


def _get(value: Json, key: str) -> Json:
    return value.get(key) if isinstance(value, dict) else None


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []


def _items(value: Json) -> Iterator[tuple[str, Json]]:
    return iter(list(value.items())[:_MOST_TUNINGS]) if isinstance(value, Mapping) else iter(())


def _word(value: Json) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return shown(redacted(text[:_WORD]))


def _figure(value: Json) -> Json:
    """Return a finite number as it is, and anything else as a word."""
    if isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e300 and math.isfinite(value):
        return value
    return None if value is None else _word(value)


def _is_count(value: Json, *, negative: bool = False) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and abs(value) < 1 << 53 and (negative or value >= 0)


# -- the text of the YAML files -------------------------------------------------------------------------------------


def files_of(results: Iterable[CaseResult]) -> list[str]:
    """Return the files that cases point to: their specs, and where their verdicts and waivers stand."""
    files: dict[str, None] = {}
    for result in results:
        files[result.spec] = None
        for verdict in result.verdicts:
            files[verdict.position.file] = None
        for waiver in result.waivers:
            files[waiver.position.file] = None
    return list(files)


def sources_of(files: Iterable[str], digests: Mapping[str, str]) -> dict[str, Json]:
    """Return for each file its text, or why it is not shown."""
    return {shown(file): _source(file, digests.get(file, "")) for file in files}


def _source(file: str, digest: str) -> dict[str, str]:
    if not digest:
        return {"why": "the journal has no digest of this file"}
    why = "this file is not here"
    for path in _places(file):
        try:
            data = path.read_bytes() if path.is_file() and path.stat().st_size <= _LARGEST_SPEC else None
        except OSError as error:
            why = f"this file cannot be read: {error.strerror}"
            continue
        if data is None:
            continue
        if hashlib.sha256(data).hexdigest() != digest:
            why = "this file has changed since the run"
            continue
        text = data.decode("utf-8", "backslashreplace")
        # line by line: the numbers of lines stay, whatever is masked
        return {"text": shown("\n".join(map(redacted, text.split("\n"))))}
    return {"why": why}


def _places(file: str) -> Iterable[Path]:
    """Yield where a file may lie: as the journal names it, and beside the installed program."""
    yield Path(file)
    if not Path(file).is_absolute():
        yield data_dirs.folder("schemas").parent / file
