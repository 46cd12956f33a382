"""``close``: every tensor of a value is close to its reference. Pure, without torch: ``close_measure`` measures in the worker.

The judge needs no tensors: |a - b| <= atol + rtol * |b| for all elements is the same as max(|a - b| - rtol * |b|) <= atol. The worker
sends that maximum in float64, with the values at its position. The other judges have other facts.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, ClassVar

from runner.model.conditions import Surroundings
from runner.model.expectation import Judgement, Mutant, StepFacts, WrongValue
from runner.model.protocol import Json
from runner.vocabulary.expectations import calibrated
from runner.vocabulary.expectations.expectation_base import EAGER, OUTPUT, BadExpectation, Conditional

NAMES = ("zeros", "negated", "rows swapped", "one element off", "NaN", "other inputs")
"""The names of the stand-ins in a spec."""

MORE_NAMES = ("one element zero", "lower precision", "sign of zero")
"""The names of those that only the judges without a tolerance must reject."""

_MOST_REASONS = 5
"""The maximum number of reasons why there is no float64 reference that a verdict names."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(Conditional):
    """``close: {to: eager}``, ``close: {to: eager, atol: 1e-2, rtol: 1e-2}``, ``close: {to: first, exact: true}``."""

    kind: ClassVar[str] = "close"
    mutations: ClassVar[tuple[str, ...]] = (*NAMES, *MORE_NAMES, "another value")
    of: str = OUTPUT
    to: str = EAGER
    atol: float | None = None
    rtol: float | None = None
    exact: bool = False
    equal_nan: bool = True
    strides: str | None = None
    """``any`` where the layout may be another than eager's; else a result has eager's strides."""

    @classmethod
    def parse(cls, body: Any) -> "Close":
        """Read the arguments; raise ``BadExpectation`` for a comparison that cannot fail, and for words that exclude each other."""
        for word in ("atol", "rtol"):
            if not 0 <= body.get(word, 0) < math.inf:
                raise BadExpectation(f"{word} is {body[word]}", "a tolerance is a finite number, at least 0", path=(word,))
        if "exact" in body and ("atol" in body or "rtol" in body):
            raise BadExpectation("'atol' and 'exact' both choose how numbers are judged", "remove 'atol' or 'exact'", path=("exact",))
        if "exact" in body and "equal_nan" in body:
            raise BadExpectation("'equal_nan' means nothing beside 'exact'", "remove 'equal_nan'", path=("equal_nan",))
        expectation = cls(**body)
        if expectation.of == expectation.to:
            raise BadExpectation(f"'{expectation.of}' is compared with itself", "name another value in 'of' or 'to'", path=("to",))
        if expectation.strides and not is_eager(expectation.to):
            raise BadExpectation("'strides' means nothing here", "only strides of eager are compared; remove 'strides'", path=("strides",))
        return expectation

    @property
    def names(self) -> tuple[str, ...]:
        """The value and its reference."""
        return self.of, self.to

    @property
    def compares_with_eager(self) -> bool:
        """Eager's result, or a part of it."""
        return is_eager(self.to)

    @property
    def judge_kind(self) -> Judge:
        """The judge that the words choose."""
        if self.exact:
            return Judge.EXACT
        return Judge.TOLERANCE if self.atol is not None or not is_eager(self.to) else Judge.CALIBRATED

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker measures with the tolerance of the judgement, and what the judge needs."""
        arguments: dict[str, Json] = {"of": self.of, "to": self.to, "atol": self.atol, "rtol": self.rtol, "equal_nan": self.equal_nan}
        arguments.update({"strides": self.strides} if self.strides else {})
        if self.judge_kind is Judge.TOLERANCE:
            return arguments
        return {**arguments, "judge": self.judge_kind.value}

    def judged(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge the structure first, then each leaf. The judgement shows the first failed leaf."""
        expected = f"{self.of} close to {self.to}"
        measured = facts.measured
        if measured["structure"] != measured["reference_structure"]:
            return [Judgement.failed(expected=f"{self.of} is {measured['reference_structure']}", observed=measured["structure"])]
        changes = facts.effects.changes if facts.effects else 0
        if not measured["leaves"] and changes and is_eager(self.to):
            return [Judgement.passed(expected=expected, observed=f"no number; {changes} values that eager changed are compared")]
        if not measured["leaves"]:
            return [Judgement.error("nothing to compare: the value holds no tensor and no number", expected=expected)]
        if problem := self.first_problem(measured["leaves"]):
            return [problem]
        return [Judgement.passed(expected=expected, observed=told(measured["leaves"]))]

    def first_problem(self, leaves: Sequence[Mapping[str, Any]]) -> Judgement | None:
        """Return the judgement of the first wrong value, which names all of them for waivers; None where none is wrong."""
        problems = [(leaf, problem) for leaf in leaves if (problem := self.problem_of_leaf(leaf)) is not None]
        if not problems:
            return None
        wrong = (
            WrongValue(message=f"expected {judgement.expected}, observed {judgement.observed}", numbers=numbers_of(leaf))
            for leaf, judgement in problems
        )
        return replace(problems[0][1], wrong=tuple(wrong))

    def problem_of_leaf(self, leaf: Mapping[str, Any]) -> Judgement | None:
        """Return the judgement of a value that is not close to its reference, or that was not measured as its judge needs it."""
        are_tensors = leaf["type"] == leaf["reference_type"] == "tensor" and leaf["shape"] == leaf["reference_shape"]
        if self.judge_kind is Judge.CALIBRATED and are_tensors and "calibrated" not in leaf:
            return Judgement.error("the float64 reference was not measured", expected=f"{self.of}{leaf['path']}")
        return self.problem(leaf)

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """One mutant for each leaf and each stand-in that the worker measured for it."""
        leaves = facts.measured["leaves"]
        if not leaves:
            yield Mutant(name="nothing changed", facts=replace(facts, effects=None))
        most = max((leaf.get("stand_ins", {}).get("zeros", {}).get("excess", 0.0) for leaf in leaves), default=0.0)
        for index, leaf in enumerate(leaves):
            where = f"{self.of}{leaf['path']}"
            if leaf["type"] == "tensor":
                known = leaf.get("stand_ins", {})
                names = (*NAMES, *(name for name in MORE_NAMES if name in known))
                stand_ins = {name: known.get(name, {"why_not": "it was not measured in the run"}) for name in names}
            else:
                stand_ins = {"another value": {"equal": False, "value": "another", "movement": None}}
            for name, measured in stand_ins.items():
                if why_not := measured.get("why_not") or _by_rounding(name, leaf["dtype"], measured, stand_ins.get("zeros", {}), most):
                    yield Mutant.not_applicable(name, why_not, where=where)
                else:
                    changed = [*leaves[:index], {**leaf, **measured}, *leaves[index + 1 :]]
                    yield Mutant(name=name, facts=facts.with_measured(leaves=changed), where=where)

    def problem(self, leaf: Mapping[str, Any]) -> Judgement | None:
        """Return the judgement of a value that is not close to its reference; None if it is."""
        where = f"{self.of}{leaf['path']}"
        for fact in ("type", "shape", "dtype", "device"):
            if leaf[fact] != leaf[f"reference_{fact}"]:
                return Judgement.failed(expected=f"{where} of {fact} {leaf[f'reference_{fact}']}", observed=str(leaf[fact]))
        if self.strides is None and leaf.get("strides") != leaf.get("reference_strides"):
            hint = "dimensions of size 1 are 0; where torch promises no layout: strides: any"
            return Judgement.failed(expected=f"{where} of strides {leaf['reference_strides']}", observed=str(leaf["strides"]), detail=hint)
        if leaf["type"] != "tensor":
            is_moved = leaf.get("movement") is not None and leaf["distance"] <= calibrated.FORMATS["float32"].nudges * leaf["movement"]
            if leaf["equal"] is True or is_moved:  # a float that other roundings of eager move as far
                return None
            return Judgement.failed(expected=f"{where} is {leaf['reference_value']}", observed=str(leaf["value"]))
        if self.judge_kind is Judge.EXACT:
            facts, expected = leaf["bits"], f"{where} bit for bit"
            problem = _incomplete(leaf, leaf["numel"], expected)
            if problem is not None or facts["differing"] == 0:
                return problem
            observed = f"at {facts['index']}: {facts['value']} against {facts['reference']}"
            return Judgement.failed(expected=expected, observed=observed, detail=f"{facts['differing']} of {leaf['numel']} elements differ")
        why_not = leaf["calibrated"].get("why_not") if "calibrated" in leaf else None
        if self.judge_kind is Judge.TOLERANCE or "calibrated" not in leaf or why_not is not None:
            is_reason = self.judge_kind is Judge.CALIBRATED and why_not is not None
            return self._by_tolerance(where, leaf, f" (no float64 reference: {why_not})" if is_reason else "")
        # the error against the float64 reference, by that of eager
        facts = leaf["calibrated"]
        expected = f"{where} within {calibrated.FACTOR:g} x eager's error against float64"
        if unexplained := facts.get("unexplained"):
            why = f"in {unexplained} of {facts['numel']} elements float64 is farther from eager than rounding explains: no reference"
            expected = f"{where} within {calibrated.FACTOR:g} x what other roundings change of eager ({why})"
        form = calibrated.form_of(leaf["dtype"], facts)
        if form is None:
            return Judgement.error(f"values of dtype {leaf['dtype']} are exact", expected=expected)
        problem = _incomplete(leaf, leaf["numel"], expected) or _incomplete(leaf, facts["numel"], expected)
        if problem is not None:
            return problem
        if facts.get("is_wrong"):
            where = f"{self.to}{leaf['path']} on {leaf['reference_device']}"
            observed = f"eager is wrong on {leaf['reference_device']}, in {facts['unexplained']} of {leaf['numel']} elements"
            return Judgement.failed(expected=f"{where} as on the CPU and in float64", observed=observed)
        is_near = leaf["excess"] <= leaf["atol"] and not (leaf["nan_mismatches"] or leaf["inf_mismatches"])
        problems = calibrated.problems(facts, form, is_near=is_near)
        if not problems:
            return None
        if facts["nonfinite"] and "sides" in leaf:
            problems[0] = self._sides(leaf)
        return Judgement.failed(expected=expected, observed=problems[0], detail="\n".join([*problems[1:], calibrated.summary(facts)]))

    def _by_tolerance(self, where: str, leaf: Mapping[str, Any], why: str) -> Judgement | None:
        """Judge by ``atol`` and ``rtol``; ``why`` is why the dtype's are used."""
        rtol, atol = default_tolerance(leaf["dtype"], leaf["reference_dtype"])
        if self.rtol is not None and self.atol is not None:
            rtol, atol = self.rtol, self.atol
        expected = f"{where} within atol={atol:g}, rtol={rtol:g}{why}"
        if (leaf["rtol"], leaf["atol"]) != (rtol, atol):
            return Judgement.error(f"measured with atol={leaf['atol']:g}, rtol={leaf['rtol']:g}", expected=expected)
        if leaf["nan_mismatches"] or leaf["inf_mismatches"]:
            count = leaf["nan_mismatches"] + leaf["inf_mismatches"]
            alone = f"NaN or an infinity on one side only in {count} of {leaf['numel']} elements"
            return Judgement.failed(expected=expected, observed=self._sides(leaf) if "sides" in leaf else alone)
        problem = _incomplete(leaf, leaf["numel"], expected)
        if problem is not None or leaf["excess"] <= atol:
            return problem
        pair = f"{leaf['worst_value']} against {leaf['worst_reference']}"
        worst = f"greatest difference {leaf['max_abs']:.3g}; at {leaf['worst_index']}: {pair}"
        detail = f"{leaf['mismatches']} of {leaf['numel']} elements differ by more than the tolerance"
        return Judgement.failed(expected=expected, observed=worst, detail=detail)

    def _sides(self, leaf: Mapping[str, Any]) -> str:
        """Return how many elements of each side are NaN, and which infinity."""
        ours, theirs = ("compiled" if is_eager(self.to) else self.of), self.to
        sentences = []
        for what, (count, other, apart) in leaf["sides"].items():
            (more, most), (less, least) = ((ours, count), (theirs, other)) if count >= other else ((theirs, other), (ours, count))
            place = "" if most > least else ", at other places" if apart else ": with equal_nan: false these differ"
            sentences.append(f"{more} has {what} in {most} of {leaf['numel']} elements, {less} in {least or 'none'}{place}")
        return "; ".join(sentences)


def numbers_of(leaf: Mapping[str, Any]) -> dict[str, float]:
    """Return what a waiver holds of a wrong tensor; empty for another value, or another shape or dtype."""
    if "size" not in leaf or leaf["dtype"] != leaf["reference_dtype"]:
        return {}
    numel = max(leaf["numel"], 1)
    differing = max(leaf["mismatches"], leaf.get("calibrated", {}).get("outside", 0), leaf.get("bits", {}).get("differing", 0))
    nonfinite = leaf["nan_mismatches"] + leaf["inf_mismatches"]
    shares = {"share": differing / numel, "nonfinite": nonfinite / numel}
    error = float(leaf["max_abs"]) if differing or not nonfinite else 0.0  # else the other elements are right
    # of few errors the mean is far from zero by chance
    ways = {word: float(leaf[word]) for word in WAYS if abs(leaf.get(word, 0.0)) >= max(0.5, 2 / math.sqrt(max(differing, 1)))}
    return {"error": error, **shares, "size": float(leaf["size"]), "likeness": float(leaf["likeness"]), **ways}


WAYS = ("bias", "outward")
"""What is known of a wrong tensor where most of its errors go one way: up or down, away from zero or towards it."""


def _by_rounding(name: str, dtype: str, measured: Mapping[str, Any], zeros: Mapping[str, Any], most: float) -> str:
    """Return why a stand-in need not fail: rounding explains what it differs by; empty where it does not.

    A gradient that is 0 but for rounding is as near to zeros as to itself. ``most`` is the magnitude of the greatest value beside it.
    """
    if (known := measured.get("calibrated")) is not None and "whole_error" in known:
        factor = _COARSE if name == "lower precision" else calibrated.FACTOR
        is_near = known["max_error"] <= factor * known["whole_error"] and not known["nonfinite"]
        if is_near:
            return "it is no farther from float64 than eager"
        # as the gradient of a scale that a later norm removes; greater values of the result carry the claim
        form = calibrated.form_of(dtype, known) if 0 < zeros.get("excess", 0.0) <= most * _SMALL else None
        is_moved = form is not None and not known["outside"] and known["worst"]["error"] <= form.nudges * known["worst"]["nudge"]
        return "rounding moves it as far, and it is small beside the other values" if is_moved else ""
    return "it is nothing but rounding beside the other values" if 0 < zeros.get("excess", 0.0) <= most * 2.0**-20 else ""


_SMALL = 2.0**-10
"""Values that are smaller, beside the greatest of the result, may be mostly rounding."""

_COARSE = 16.0
"""In eager's errors. An answer in lower precision with an error up to this is as right as answers for nudged inputs."""


_EXACT = ("int", "bool", "str", "NoneType")
"""Types of values whose texts are equal where the values are."""


def contradiction(leaf: Mapping[str, Any]) -> str:
    """Return how the facts of a measured value that would pass contradict others, as where a replaced operation spoils one; else empty."""
    where = f"the facts of {leaf['path'] or 'the value'} contradict each other: "
    if "excess" not in leaf:
        is_other = leaf.get("equal") is True and leaf["type"] in _EXACT and leaf["value"] != leaf["reference_value"]
        return f"{where}{leaf['value']} is said to equal {leaf['reference_value']}" if is_other else ""
    counts = {name: leaf[name] for name in ("mismatches", "nan_mismatches", "inf_mismatches")}
    differing, most = leaf.get("bits", {}).get("differing", 0), leaf["max_abs"]
    if not all(0 <= count <= leaf["numel"] for count in (*counts.values(), differing)):
        return f"{where}{counts} and {differing} other bit patterns in {leaf['numel']} elements"
    if (leaf["mismatches"] > 0) is not (leaf["excess"] > leaf["atol"]) or leaf["excess"] > most:
        excess = f"the greatest excess over rtol is {leaf['excess']:g} with atol={leaf['atol']:g}, the greatest difference {most:g}"
        return f"{where}{leaf['mismatches']} mismatches, and {excess}"
    if "bits" in leaf and not differing and (any(counts.values()) or most):
        return f"{where}no bits differ, and {counts}, greatest difference {most:g}"
    if "sides" in leaf and not (counts["nan_mismatches"] or counts["inf_mismatches"]):
        return f"{where}NaN or infinities on one side, and {counts}"
    if not any(counts.values()) and not most and not math.isclose(leaf.get("size", 1.0), 1.0, rel_tol=1e-6):
        return f"{where}no difference, and an answer of {leaf['size']:g} times the size of its reference"
    facts = leaf.get("calibrated", {})
    # the judge computes the bound itself; facts of an earlier rule had other bounds, and the worker rounds them otherwise
    if (
        facts.get("outside")
        and facts.get("version") == calibrated.VERSION
        and (form := calibrated.form_of(leaf["dtype"], facts)) is not None
    ):
        error, bound = facts["worst"]["error"], calibrated.element_bound(facts, form)
        if error < bound / 1.01:
            return f"{where}{facts['outside']} elements outside, and the worst error is {error:g} with the bound {bound:g}"
    return ""


def _incomplete(leaf: Mapping[str, Any], numel: int, expected: str) -> Judgement | None:
    """Return an error where not all elements were measured."""
    if numel != math.prod(leaf["shape"]):
        return Judgement.error(f"{numel} elements of shape {leaf['shape']} were measured", expected=expected)
    return None


def told(leaves: Sequence[Mapping[str, Any]]) -> str:
    """Return how many values were judged, and by what."""
    judged = [leaf["calibrated"] for leaf in leaves if "numel" in leaf.get("calibrated", {})]
    others = len(leaves) - len(judged)
    parts = []
    if judged:
        worst = max(judged, key=lambda facts: facts["max_ulp"] if facts["numel"] else 0.0)
        parts.append(f"{len(judged)} values by the float64 reference ({calibrated.summary(worst)})")
    if others:
        why = list({leaf["calibrated"]["why_not"]: 0 for leaf in leaves if "why_not" in leaf.get("calibrated", {})})
        more = [f"{len(why) - _MOST_REASONS} more reasons"] if len(why) > _MOST_REASONS else []
        reasons = "; ".join([*why[:_MOST_REASONS], *more])
        parts.append(f"{others} values within tolerance" + (f" (no float64 reference: {reasons})" if why else ""))
    return ", ".join(parts)
