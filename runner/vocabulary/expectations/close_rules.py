"""The judges of ``close``: the words that choose one, default tolerances, how each judges a leaf. Pure, without torch."""

import math
from collections.abc import Mapping
from enum import Enum
from typing import Any

from runner.core.expectation import Judgement
from runner.vocabulary.expectations import calibrated
from runner.vocabulary.expectations.base import EAGER, BadExpectation

DEFAULTS: dict[str, tuple[float, float]] = {
    "float64": (1e-7, 1e-7),
    "float32": (1.3e-6, 1e-5),
    "float16": (1e-3, 1e-5),
    "bfloat16": (1.6e-2, 1e-5),
    "complex128": (1e-7, 1e-7),
    "complex64": (1.3e-6, 1e-5),
}


def default_tolerance(*dtypes: str) -> tuple[float, float]:
    """Return the largest (rtol, atol) of the dtypes; (0, 0) for exact dtypes."""
    pairs = [DEFAULTS.get(dtype, (0.0, 0.0)) for dtype in dtypes]
    return max(pair[0] for pair in pairs), max(pair[1] for pair in pairs)


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


Leaf = Mapping[str, Any]


def accumulation_bound(worst: Mapping[str, Any], length: int, outer: calibrated.Format, inner: calibrated.Format) -> float:
    """Return the greatest right error of an element: one ulp of the result, and one rounding of each of ``length`` additions."""
    return calibrated.ulp(float(worst["reference"]), outer) + length * math.ldexp(1.0, -(inner.bits + 1)) * float(worst["magnitude"])


def more_often(facts: Leaf, outliers: int) -> Leaf:
    """Return the facts of a stand-in as if its defect were in more elements than the outliers that are allowed."""
    if not outliers:
        return facts
    found = {name: _outside_more(fact, outliers) if isinstance(fact, Mapping) else fact for name, fact in facts.items()}
    return {**found, "mismatches": outliers + 1}


def _outside_more(facts: Leaf, outliers: int) -> Leaf:
    return {**facts, "outside": outliers + 1} if 0 < facts.get("outside", 0) <= outliers else facts


def complete(leaf: Leaf, expected: str) -> Judgement | None:
    """Return an error where not all elements were measured."""
    if leaf["numel"] != math.prod(leaf["shape"]):
        return Judgement.error(f"{leaf['numel']} elements of shape {leaf['shape']} were measured", expected=expected)
    return None


def nonfinite(facts: Leaf, numel: int, expected: str) -> Judgement | None:
    """Judge NaN and infinities that are on one side only."""
    for fact, what in (("nan_mismatches", "NaN"), ("inf_mismatches", "an infinity")):
        if facts[fact]:
            return Judgement.failed(expected=expected, observed=f"{what} on one side only in {facts[fact]} of {numel} elements")
    return None


def by_tolerance(where: str, leaf: Leaf, rtol: float, atol: float, outliers: int = 0, why: str = "") -> Judgement | None:
    """Judge by ``atol`` and ``rtol``; ``why`` is why the dtype's are used."""
    expected = (
        f"{where} within atol={atol:g}, rtol={rtol:g}" + (f", {outliers} outliers" if outliers else "") + (f" ({why})" if why else "")
    )
    if (leaf["rtol"], leaf["atol"]) != (rtol, atol):
        return Judgement.error(f"measured with atol={leaf['atol']:g}, rtol={leaf['rtol']:g}", expected=expected)
    problem = nonfinite(leaf, leaf["numel"], expected) or complete(leaf, expected)
    if problem is not None:
        return problem
    if leaf["excess"] <= atol or 0 < leaf["mismatches"] <= outliers:
        return None
    pair = f"{leaf['worst_value']} against {leaf['worst_reference']}"
    worst = f"greatest difference {leaf['max_abs']:.3g}; at {leaf['worst_index']}: {pair}"
    detail = f"{leaf['mismatches']} of {leaf['numel']} elements differ by more than the tolerance"
    return Judgement.failed(expected=expected, observed=worst, detail=detail)


def by_bits(where: str, leaf: Leaf) -> Judgement | None:
    """Judge that every element has the bits of its counterpart."""
    facts, expected = leaf["bits"], f"{where} bit for bit"
    problem = complete(leaf, expected)
    if problem is not None or facts["differing"] == 0:
        return problem
    observed = f"at {facts['index']}: {facts['value']} against {facts['reference']}"
    return Judgement.failed(expected=expected, observed=observed, detail=f"{facts['differing']} of {leaf['numel']} elements differ")


def by_ulp(where: str, leaf: Leaf, limit: float, outliers: int) -> Judgement | None:
    """Judge the distances in units in the last place of the reference."""
    facts, expected = leaf["ulp"], f"{where} within {limit:g} ulp" + (f", {outliers} outliers" if outliers else "")
    form = calibrated.format_of(leaf["reference_dtype"])
    if form is None:
        return Judgement.error(f"values of dtype {leaf['reference_dtype']} have no units in the last place", expected=expected)
    problem = nonfinite(facts, leaf["numel"], expected) or complete(leaf, expected)
    distance = float(facts["apart"]) / calibrated.ulp(float(facts["size"]), form)
    if problem is not None or distance <= limit or 0 < facts["outside"] <= outliers:
        return problem
    observed = f"{distance:.3g} ulp at {facts['index']}: {facts['value']!r} against {facts['reference']!r}"
    return Judgement.failed(expected=expected, observed=observed, detail=f"{facts['outside']} of {leaf['numel']} elements are outside")


def by_accumulation(where: str, leaf: Leaf, length: int, dtype: str, outliers: int) -> Judgement | None:
    """Judge the error against the float64 reference by the bound of an accumulation."""
    facts = leaf["accumulate"]
    expected = f"{where} within the error of {length} additions in {dtype}"
    if "why_not" in facts:
        return Judgement.error(f"no float64 reference: {facts['why_not']}", expected=expected)
    if (facts["length"], facts["dtype"]) != (length, dtype):
        return Judgement.error(f"measured with {facts['length']} additions in {facts['dtype']}", expected=expected)
    problem = nonfinite(leaf, leaf["numel"], expected) or complete(leaf, expected)
    worst = facts["worst"]
    if problem is not None or (worst is None and leaf["numel"] == 0):
        return problem
    outer, inner = calibrated.format_of(leaf["dtype"]), calibrated.format_of(dtype)
    assert outer is not None
    assert inner is not None
    bound = accumulation_bound(worst, length, outer, inner)
    if worst["error"] <= bound or 0 < facts["outside"] <= outliers:
        return None
    observed = f"error {worst['error']:.3g}, {worst['error'] / bound:.3g} times the bound; at {worst['index']}: {worst['value']!r}"
    observed += f" against {worst['reference_value']!r} in float64"
    return Judgement.failed(expected=expected, observed=observed, detail=f"{facts['outside']} of {leaf['numel']} elements are outside")


def by_calibration(where: str, leaf: Leaf, factor: float, whose: str, outliers: int) -> Judgement | None:
    """Judge the error against the float64 reference by that of eager, or of another value (``whose``)."""
    facts = leaf["calibrated"]
    expected = f"{where} within {factor:g} x {whose} error against float64"
    form = calibrated.form_of(leaf["dtype"], facts)
    if form is None:
        return Judgement.error(f"values of dtype {leaf['dtype']} are exact", expected=expected)
    if facts["factor"] != factor:
        return Judgement.error(f"measured with factor {facts['factor']:g}", expected=expected)
    problem = complete(leaf, expected) or complete({**leaf, "numel": facts["numel"]}, expected)
    if problem is not None:
        return problem
    is_near = leaf["excess"] <= leaf["atol"] and not (leaf["nan_mismatches"] or leaf["inf_mismatches"])
    problems = calibrated.problems(facts, form, factor, outliers, is_near=is_near)
    if not problems:
        return None
    return Judgement.failed(expected=expected, observed=problems[0], detail="\n".join([*problems[1:], calibrated.summary(facts, whose)]))
