"""What the files of a case add to its page: errors of numbers, candidates of autotuning, generated code, graphs.

The files are a worker's. Only those whose digest the journal has are read, and every value is checked for its type and cut to a size.
"""

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from runner.core.protocol import Json
from runner.core.results import Attempt, Verdict
from runner.record.evidence import OBSERVATION, EvidenceAltered, RecordedFiles
from runner.report.html.scripts import clipped, shown
from runner.system.redaction import redacted
from runner.system.safe_open import open_untrusted

_MOST_NUMBERS, _MOST_TUNINGS, _MOST_BINS = 24, 40, 128
_WORD = 300
"""Characters of a name that a worker wrote."""

CODE_OF_CASE, PIECE = 200_000, 60_000
"""Characters of generated code and graphs that the page of a case has, and those of one piece."""

_ROW = re.compile(r">\s*(?P<number>[0-9]{1,8}) \| ?(?P<text>.*)")
_CODE = re.compile(r"(?:code|graph)-[0-9]{1,4}(?:-[a-z_]{1,20})?-[0-9]{1,4}\.txt")
_FIGURES = ("max_error", "max_ulp", "eager_max_error", "eager_max_ulp", "numel", "outside", "nonfinite", "factor", "whole_error")
_OF_WORST = ("index", "value", "eager_value", "reference_value")


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
    leaves.sort(key=lambda one: not _is_outside(one[2]))
    tunings = [(step, one) for step, facts in steps for one in _list(_get(_get(facts, "tunings"), "found"))]
    found = {
        "numbers": [_number(*one) for one in leaves[:_MOST_NUMBERS]],
        "tunings": [_tuning(*one) for one in tunings[:_MOST_TUNINGS]],
        "numbers_left": max(len(leaves) - _MOST_NUMBERS, 0),
        "tunings_left": max(len(tunings) - _MOST_TUNINGS, 0),
    }
    return {name: value for name, value in found.items() if value}


def _leaves(facts: Json) -> Iterator[tuple[str, Json]]:
    for index, measured in _items(_get(facts, "measured")):
        yield from ((index, leaf) for leaf in _list(_get(measured, "leaves")) if isinstance(_get(leaf, "calibrated"), dict))


def _is_outside(leaf: Json) -> bool:
    outside = leaf["calibrated"].get("outside")
    return _is_count(outside) and outside > 0


def _number(step: int, index: str, leaf: Json) -> dict[str, Json]:
    calibrated = leaf["calibrated"]
    one: dict[str, Json] = {"step": step, "expectation": _word(index)}
    one |= {name: _word(_get(leaf, name)) for name in ("path", "dtype", "shape")}
    one |= {name: _figure(calibrated[name]) for name in _FIGURES if name in calibrated}
    if why := calibrated.get("why_not"):
        one["why_not"] = _word(why)
    worst = calibrated.get("worst")
    if isinstance(worst, dict):
        one["worst"] = {name: _figure(worst[name]) for name in _OF_WORST if name in worst}
    if histogram := _histogram(calibrated.get("histogram")):
        one["histogram"] = histogram
    return one


def _histogram(value: Json) -> dict[str, Json] | None:
    first = _get(value, "first")
    bins = {side: [count for count in _list(_get(value, side)) if _is_count(count)][:_MOST_BINS] for side in ("compiled", "eager")}
    return {"first": first, **bins} if _is_count(first, negative=True) and any(map(any, bins.values())) else None


def _tuning(step: int, one: Json) -> dict[str, Json]:
    backends = {_word(name): _tally(tally) for name, tally in _items(_get(one, "backends"))}
    return {"step": step, **{name: _word(_get(one, name)) for name in ("op", "how", "winner", "won_by")}, "backends": backends}


def _tally(value: Json) -> list[Json]:
    counts = [_figure(_get(value, key)) for key in ("rendered", "compiled", "failed", "timed", "won")]
    return [*counts, _word(_get(value, "error"))]


def pieces_of(folder: Path, attempt: Attempt, names: Sequence[str], room: int) -> list[Json]:
    """Return pieces of generated code and graphs, at most ``room`` characters; the others have their name alone."""
    found: list[Json] = []
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
        found.append(piece)
    return found


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
