"""The words of ``close`` that choose its judge: which judge they choose, and which combinations mean nothing. Pure."""

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from runner.vocabulary.expectations.base import EAGER, BadExpectation


class Judge(Enum):
    """How the numbers of a leaf are judged."""

    TOLERANCE = "tolerance"
    """``atol`` and ``rtol``, or those of the dtype."""
    CALIBRATED = "calibrated"
    """The error against a float64 reference, compared with eager's."""
    NO_WORSE = "no_worse_than"
    """The same, compared with the error of a named value."""
    ACCUMULATE = "accumulate"
    """The error against a float64 reference, and the bound of an accumulation."""
    EXACT = "exact"
    ULP = "ulp"

    @property
    def needs_reference(self) -> bool:
        """Whether it needs a float64 reference."""
        return self in (Judge.CALIBRATED, Judge.NO_WORSE, Judge.ACCUMULATE)


CHOOSING: tuple[tuple[str, ...], ...] = (("atol", "rtol"), ("exact",), ("ulp",), ("accumulate",), ("no_worse_than",))
"""The words that choose a judge; at most one group is written."""

WITHOUT: Mapping[str, tuple[str, ...]] = {
    "exact": ("outliers", "nan", "equal_nan", "factor"),
    "atol": ("factor",),
    "ulp": ("factor",),
    "accumulate": ("factor",),
}
"""The words that mean nothing beside a word."""

NEEDS_EAGER = ("accumulate", "no_worse_than", "factor")


def judge_of(words: Mapping[str, Any]) -> Judge:
    """Return the judge that the words choose; a word that is absent or None is not written."""
    if words.get("exact"):
        return Judge.EXACT
    for word, judge in (("ulp", Judge.ULP), ("accumulate", Judge.ACCUMULATE), ("no_worse_than", Judge.NO_WORSE)):
        if words.get(word) is not None:
            return judge
    if words.get("atol") is not None or not is_eager(words["to"]):
        return Judge.TOLERANCE
    return Judge.CALIBRATED


def is_eager(name: str) -> bool:
    """Whether a name is eager's result or a part of it."""
    return name.partition(".")[0] == EAGER


def check(body: Mapping[str, Any]) -> None:
    """Raise ``BadExpectation`` for numbers that no judge can use, and for words that exclude each other."""
    for word in ("atol", "rtol", "ulp"):
        if not 0 <= body.get(word, 0) < math.inf:
            raise BadExpectation(f"{word} is {body[word]}", "a tolerance is a finite number, at least 0", path=(word,))
    if not 1 <= body.get("factor", 1) < math.inf:
        raise BadExpectation(f"factor is {body['factor']}", "a finite number, at least 1", path=("factor",))
    written = [group[0] for group in CHOOSING if any(word in body for word in group)]
    if len(written) > 1:
        first, second = written[:2]
        raise BadExpectation(
            f"'{first}' and '{second}' both choose how numbers are judged", f"remove '{first}' or '{second}'", path=(second,)
        )
    for word, others in WITHOUT.items():
        for other in others:
            if word in body and other in body:
                raise BadExpectation(f"'{other}' means nothing beside '{word}'", f"remove '{other}'", path=(other,))
    if "nan" in body and "equal_nan" in body:
        raise BadExpectation("'nan' and 'equal_nan' both say what NaN equals", "remove 'equal_nan'", path=("equal_nan",))
    for word in NEEDS_EAGER:
        if word in body and not is_eager(body["to"]):
            hint = "only eager has a float64 reference: write to: eager"
            raise BadExpectation(f"'{word}' compares with a float64 reference, and '{body['to']}' has none", hint, path=(word,))
    if is_eager(body.get("no_worse_than", "")):
        raise BadExpectation("eager is what the calibrated judge compares with anyway", "write factor alone", path=("no_worse_than",))
