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
    EXACT = "exact"


def is_eager(name: str) -> bool:
    """Whether a name is eager's result or a part of it."""
    return name.partition(".")[0] == EAGER


def check(body: Mapping[str, Any]) -> None:
    """Raise ``BadExpectation`` for numbers that no judge can use, and for words that exclude each other."""
    for word in ("atol", "rtol"):
        if not 0 <= body.get(word, 0) < math.inf:
            raise BadExpectation(f"{word} is {body[word]}", "a tolerance is a finite number, at least 0", path=(word,))
    if "exact" in body and ("atol" in body or "rtol" in body):
        raise BadExpectation("'atol' and 'exact' both choose how numbers are judged", "remove 'atol' or 'exact'", path=("exact",))
    if "exact" in body and "equal_nan" in body:
        raise BadExpectation("'equal_nan' means nothing beside 'exact'", "remove 'equal_nan'", path=("equal_nan",))


Leaf = Mapping[str, Any]


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


def by_tolerance(where: str, leaf: Leaf, rtol: float, atol: float, why: str = "") -> Judgement | None:
    """Judge by ``atol`` and ``rtol``; ``why`` is why the dtype's are used."""
    expected = f"{where} within atol={atol:g}, rtol={rtol:g}" + (f" ({why})" if why else "")
    if (leaf["rtol"], leaf["atol"]) != (rtol, atol):
        return Judgement.error(f"measured with atol={leaf['atol']:g}, rtol={leaf['rtol']:g}", expected=expected)
    problem = nonfinite(leaf, leaf["numel"], expected) or complete(leaf, expected)
    if problem is not None:
        return problem
    if leaf["excess"] <= atol:
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


def by_calibration(where: str, leaf: Leaf) -> Judgement | None:
    """Judge the error against the float64 reference by that of eager."""
    facts = leaf["calibrated"]
    expected = f"{where} within {calibrated.FACTOR:g} x eager's error against float64"
    form = calibrated.form_of(leaf["dtype"], facts)
    if form is None:
        return Judgement.error(f"values of dtype {leaf['dtype']} are exact", expected=expected)
    problem = complete(leaf, expected) or complete({**leaf, "numel": facts["numel"]}, expected)
    if problem is not None:
        return problem
    is_near = leaf["excess"] <= leaf["atol"] and not (leaf["nan_mismatches"] or leaf["inf_mismatches"])
    problems = calibrated.problems(facts, form, is_near=is_near)
    if not problems:
        return None
    return Judgement.failed(expected=expected, observed=problems[0], detail="\n".join([*problems[1:], calibrated.summary(facts)]))
