"""``close``: every tensor of a value is close to its reference.

The judge needs no tensors: |a - b| <= atol + rtol * |b| for all elements is the same as max(|a - b|
- rtol * |b|) <= atol. The worker sends that maximum in float64, with the values at its position.
The other judges have other facts.
"""

import contextlib
import functools
import itertools
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Annotated, Any, Literal

from torch_conformance.model.expectation import (
    ALIASING,
    NUMBERS,
    About,
    Mutant,
    Reading,
    Status,
    Verdict,
    WrongValue,
)
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations import calibrated, distributions
from torch_conformance.vocabulary.expectations.comparing import (
    bits,
    default_tolerance,
    describe_leaf,
    differences,
    leaves_of,
    picture,
    structure,
    unnested,
)
from torch_conformance.vocabulary.expectations.expectation_base import (
    EAGER,
    OUTPUT,
    BadExpectation,
    ConditionalOnCode,
)
from torch_conformance.vocabulary.expectations.stand_ins import (
    EQUAL,
    Comparer,
    judged_stand_ins,
    measure_other_inputs,
    measure_stand_ins,
)
from torch_conformance.vocabulary.forms import Boolean, Form, Number, ValueName
from torch_conformance.vocabulary.worker_session import Facts, Lookup, NewFacts
from torch_conformance.vocabulary.worker_torch import Tensor, pytree, torch

NAMES = ("zeros", "negated", "rows swapped", "one element off", "NaN", "other inputs")
"""The names of the stand-ins in a spec."""

_OF_INPUTS = ("rows swapped", "other inputs")
"""Those that a result need not show that hardly depends on the inputs, as some gradients of batch
norms: the others show that it is judged.
"""

OF_OPTIMIZER = "the result is that of an optimizer's step"
"""Why there are no other inputs."""

MORE_NAMES = ("one element zero", "lower precision", "sign of zero")
"""The names of those that only the judges without a tolerance must reject."""

_MOST_REASONS = 5
"""The maximum number of reasons why there is no float64 reference that a verdict names."""

_BY_TOLERANCE = "within tolerance"

_BY_DISTRIBUTION = "by their distribution"

_BY_RUNS = "equal to float64 or to eager with other roundings"

TOLERANCES = Form({"dependentRequired": {"atol": ["rtol"], "rtol": ["atol"]}})


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


def measure(arguments: Facts, value: Lookup, *, with_stand_ins: bool = True) -> NewFacts:
    """Measure in the worker.

    ``value`` returns a named value; tensors may be on any device and have any dtype.
    """
    ours, theirs = value(arguments["of"]), value(arguments["to"])
    kinds: tuple[list[str], list[str]] = [], []
    leaves, form = pytree.tree_flatten_with_path(unnested(ours, kinds[0]))
    reference_leaves, reference_form = pytree.tree_flatten_with_path(unnested(theirs, kinds[1]))
    facts: NewFacts = {
        "structure": structure(form, ", ".join(kinds[0])),
        "reference_structure": structure(reference_form, ", ".join(kinds[1])),
        "leaves": [],
    }
    if len(leaves) == len(reference_leaves):
        for (path, leaf), (_, reference) in zip(leaves, reference_leaves, strict=True):
            if leaf is None and reference is None:
                continue
            described = {"path": pytree.keystr(path), **describe_leaf(leaf, reference, arguments)}
            if is_eager(arguments["to"]) and not arguments.get("strides"):
                described.update(strides=_strides(leaf), reference_strides=_strides(reference))
            # verify --recompute asks for it
            if (place := arguments.get("at", {}).get(described["path"])) is not None:
                eager = calibrated.in_parts(reference)[tuple(place)]
                described["at"] = {"index": tuple(place), "eager": float(eager)}
            facts["leaves"].append(described)
            if "excess" not in described:
                continue
            comparer = _by_bits(reference, arguments)
            described.update(comparer(leaf) if comparer else {})
            if not with_stand_ins:
                continue
            if comparer is None:
                against, rtol, atol = (
                    _against(described, arguments),
                    described["rtol"],
                    described["atol"],
                )
                described["stand_ins"] = measure_stand_ins(
                    reference, rtol=rtol, atol=atol, against=against
                )
            else:
                bounds = torch.zeros(reference.shape, dtype=torch.float64)
                described["stand_ins"] = judged_stand_ins(reference, bounds, comparer, exact=True)
            if not has_other_inputs(arguments):
                described["stand_ins"]["other inputs"] = {
                    "why_not": "only eager has a value for other inputs"
                }
    return facts


def _strides(value: object) -> list[int] | None:
    """Return the strides of a strided tensor in elements, 0 for dimensions of size 1, which have
    none that matters; else None.
    """
    if (
        not isinstance(value, torch.Tensor)
        or value.layout is not torch.strided
        or not value.numel()
    ):
        return None
    return [
        0 if size == 1 else stride for size, stride in zip(value.shape, value.stride(), strict=True)
    ]


def has_other_inputs(arguments: Facts) -> bool:
    """Whether the stand-in "other inputs" applies: the output, or a part of it, is compared with
    the same part of eager.
    """
    (first, part), (other, same_part) = (
        name.partition(".")[::2] for name in (arguments["of"], arguments["to"])
    )
    return (first, other) == (OUTPUT, EAGER) and part == same_part


def needs_reference(arguments: Facts) -> bool:
    """Whether a measurement needs a float64 reference."""
    return arguments.get("judge") == Judge.CALIBRATED.value


def add_other_inputs(
    facts: NewFacts,
    arguments: Facts,
    reference: object,
    answer: Callable[[], Any],
    comparers: Mapping[int, Comparer] | None = None,
) -> None:
    """Add the stand-in "other inputs" to the result of ``measure``.

    ``reference`` is the eager value of the comparison, ``answer`` returns its value for other
    inputs. It is called after the case ends, because the case must not see another call of its
    function. ``comparers`` has those of leaves with a float64 reference, by identity.
    """
    references = leaves_of(reference)
    try:
        others = [
            leaf if isinstance(leaf, torch.Tensor) else "other inputs give no tensor here"
            for leaf in leaves_of(answer())
        ]
        if len(others) != len(references):
            others = ["other inputs give another structure"] * len(references)
    except Exception as error:  # a spec's code may raise anything for unexpected inputs
        others = [f"{type(error).__name__}: {error}"[:300]] * len(references)
    for leaf, right, other in zip(facts["leaves"], references, others, strict=False):
        if "stand_ins" in leaf and "distribution" not in leaf.get("calibrated", {}):
            comparer = (comparers or {}).get(id(leaf)) or _by_bits(right, arguments)
            leaf["stand_ins"]["other inputs"] = measure_other_inputs(
                right, other, _against(leaf, arguments), leaf["atol"], comparer
            )


def _against(leaf: Facts, arguments: Facts) -> Callable[[Any, Any], Mapping[str, Any]]:
    return functools.partial(
        differences, rtol=leaf["rtol"], atol=leaf["atol"], equal_nan=arguments["equal_nan"]
    )


def _by_bits(reference: Tensor, arguments: Facts) -> Comparer | None:
    """Return what compares a tensor with its reference by bits; None for other judges."""
    return (
        (lambda other: {"bits": bits(other, reference, of_nan="of_nan" in arguments)})
        if arguments.get("judge") == Judge.EXACT.value
        else None
    )


@frozen
class Close(ConditionalOnCode):
    """Every tensor of a value is close to its counterpart: same structure, shape and dtype.

    To eager without further words: the error against a float64 reference is at most twice eager's
    own (by element and by quantile), with a floor of some units in the last place; where there is
    no float64 reference, eager with other roundings judges, and where eager is not run again, the
    dtype's tolerance; the verdict says why. To another value,
    or with atol and rtol: NaN and infinities in the same places, and |a - b| <= atol + rtol * |b|,
    measured in float64. The eager reference runs before the compiled call, with compilation off, on
    copies of modules and arguments. Globals of the spec's Python that the reference changed are set
    back before the compiled call, except what nothing sets back (locks, files, Python generators).
    What a call changes (arguments, parameters, buffers, globals) is compared as well.

    ``close: {to: eager}``
    ``close: {to: eager, atol: 0.01, rtol: 0.01}``
    ``close: {to: eager, exact: true}``
    """

    form = TOLERANCES
    instead = "write no tolerance or a smaller one, or use inputs whose results are larger"
    measure = staticmethod(measure)
    about = About.ANYTHING
    of: ValueName = OUTPUT
    """The value; the step's own result when absent."""
    to: Annotated[ValueName, Form({"allOf": [{"$ref": "names.schema.json#/$defs/compared"}]})] = (
        EAGER
    )
    """eager (the function run without compiling, first, on its own copies) or the name of a value.
    """
    atol: Number | None = None
    """Absolute tolerance. Stated together with rtol."""
    rtol: Number | None = None
    """Relative tolerance. Stated together with atol."""
    exact: Annotated[bool | str, Form({"enum": [True, "bits"]})] = False
    """Every element has the same bits; the sign of zero matters. With true any NaN equals any
    other, with bits only one of the same bits.

    Without atol, rtol and equal_nan.
    """
    equal_nan: Boolean = True
    """NaN equals NaN in the same place; true when absent."""
    strides: Literal["any"] | None = None
    """Tensors may have other strides than eager's. When absent they have the same; dimensions of
    size 1 and empty tensors have none that count. For example ``any``."""

    @classmethod
    def read(cls, body: Json) -> "Close":
        """Read the arguments; raise ``BadExpectation`` for a comparison that cannot fail, and for
        words that exclude each other.
        """
        for word in ("atol", "rtol"):
            if not 0 <= body.get(word, 0) < math.inf:
                raise BadExpectation(
                    f"{word} is {body[word]}", "a tolerance is a finite number, at least 0", word
                )
        if "exact" in body and ("atol" in body or "rtol" in body):
            raise BadExpectation(
                "'atol' and 'exact' both choose how numbers are judged",
                "remove 'atol' or 'exact'",
                "exact",
            )
        if "exact" in body and "equal_nan" in body:
            raise BadExpectation(
                "'equal_nan' means nothing together with 'exact'", "remove 'equal_nan'", "equal_nan"
            )
        expectation = cls(**body)
        if expectation.of == expectation.to:
            raise BadExpectation(
                f"'{expectation.of}' is compared with itself",
                "name another value in 'of' or 'to'",
                "to",
            )
        if expectation.strides and not is_eager(expectation.to):
            raise BadExpectation(
                "'strides' means nothing here",
                "only strides of eager are compared; remove 'strides'",
                "strides",
            )
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
        return (
            Judge.TOLERANCE if self.atol is not None or not is_eager(self.to) else Judge.CALIBRATED
        )

    def measurement(self) -> Facts:
        """The worker measures with the tolerance of the judgement, and what the judge needs."""
        arguments: NewFacts = {
            "of": self.of,
            "to": self.to,
            "atol": self.atol,
            "rtol": self.rtol,
            "equal_nan": self.equal_nan,
        }
        arguments.update({"strides": self.strides} if self.strides else {})
        if self.judge_kind is Judge.TOLERANCE:
            return arguments
        of_nan = {"of_nan": True} if self.exact == "bits" else {}
        return {**arguments, "judge": self.judge_kind.value, **of_nan}

    def judged(self, facts: Reading) -> list[Verdict]:
        """Judge the structure first, then each leaf. The judgement shows the first failed leaf."""
        expected = f"{self.of} close to {self.to}"
        measured = facts.measured
        if measured["structure"] != measured["reference_structure"]:
            return [
                Verdict.failed(
                    f"{self.of} is {measured['reference_structure']}", measured["structure"]
                )
            ]
        changes = facts.effects.changes if facts.effects else 0
        if not measured["leaves"] and changes and is_eager(self.to):
            return [
                Verdict.passed(
                    expected, f"no number; {changes} values that eager changed are compared"
                )
            ]
        if not measured["leaves"]:
            return [
                Verdict.error(
                    expected, "nothing to compare: the value holds no tensor and no number"
                )
            ]
        if problem := self.first_problem(measured["leaves"]):
            return [problem]
        held = Verdict.passed(expected, ways_judged(measured["leaves"]))
        return [replace(held, worst=greatest_error(measured["leaves"]))]

    def first_problem(self, leaves: Sequence[Facts]) -> Verdict | None:
        """Return the judgement of the first wrong value, which names all of them for waivers; None
        where none is wrong.
        """
        problems = [
            (leaf, _blamed(leaf, problem))
            for leaf in leaves
            if (problem := self.problem(leaf)) is not None
        ]
        for median in calibrated.pooled(leaf.get("calibrated", {}) for leaf in leaves):
            if not problems and (text := calibrated.median_problem(median)):
                what = self.of or "the values together"  # of side effects: not of one value
                expected = f"{what} within {calibrated.FACTOR:g} x eager's error against float64"
                problems = [(leaves[0], Verdict.failed(expected, text))]
        if not problems:
            return None
        wrong = (
            WrongValue(
                message=f"expected {judgement.expected}, observed {judgement.observed}",
                numbers=numbers_of(leaf),
                aspect=aspect_of(leaf, compares_strides=self.strides is None),
            )
            for leaf, judgement in problems
        )
        return replace(problems[0][1], wrong=tuple(wrong))

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """One mutant for each leaf and each stand-in that the worker measured for it."""
        leaves = facts.measured["leaves"]
        if not leaves:
            yield Mutant("nothing changed", replace(facts, effects=None))
        most = max(
            (leaf.get("stand_ins", {}).get("zeros", {}).get("excess", 0.0) for leaf in leaves),
            default=0.0,
        )
        for index, leaf in enumerate(leaves):
            where = f"{self.of}{leaf['path']}"
            if leaf["type"] == "tensor":
                measured_here = leaf.get("stand_ins", {})
                names = (*NAMES, *(name for name in MORE_NAMES if name in measured_here))
                stand_ins = {
                    name: measured_here.get(name, {"why_not": "it was not measured in the run"})
                    for name in names
                }
            else:
                stand_ins = {
                    "another value": {
                        "equal": False,
                        "value": "another",
                        "movement": None,
                        "calibrated": {},
                    }
                }
            other = stand_ins.get("other inputs", {})
            of_other = other.get("calibrated", {})
            is_constant = other.get("why_not", "").endswith((EQUAL, OF_OPTIMIZER)) or (
                of_other.get("max_error", math.inf) <= _CONSTANT * of_other.get("most", 0.0)
            )
            for name, measured in stand_ins.items():
                why_not = measured.get("why_not") or _by_rounding(
                    name, leaf["dtype"], measured, stand_ins.get("zeros", {}), most
                )
                if is_constant and name in _OF_INPUTS:
                    why_not = why_not or "the result is the same for other inputs, but for rounding"
                changed = [*leaves[:index], {**leaf, **measured}, *leaves[index + 1 :]]
                mutant = None if why_not else facts.with_measured(leaves=changed)
                yield Mutant(name, mutant, where=where, why_not=why_not)

    def problem(self, leaf: Facts) -> Verdict | None:
        """Return the judgement of a value that is not close to its reference, or that was not
        measured as its judge needs it; None where it is close.
        """
        if (other_form := form_problem(leaf, self.of)) is not None:
            return other_form
        where = f"{self.of}{leaf['path']}"
        if self.strides is None and leaf.get("strides") != leaf.get("reference_strides"):
            hint = "dimensions of size 1 are 0; where torch promises no layout: strides: any"
            return Verdict.failed(
                f"{where} of strides {leaf['reference_strides']}", str(leaf["strides"]), detail=hint
            )
        if leaf["type"] != "tensor":
            is_by_rounding = (
                leaf.get("movement") is not None
                and leaf["distance"] <= calibrated.FORMATS["float32"].nudges * leaf["movement"]
            )
            if (
                leaf["equal"] is True
                or is_by_rounding
                or leaf.get("calibrated", {}).get("others") == 0
            ):
                # a float that other roundings of eager move as far, or a number that they give
                return None
            return Verdict.failed(f"{where} is {leaf['reference_value']}", str(leaf["value"]))
        if self.judge_kind is Judge.EXACT:
            facts, expected = leaf["bits"], f"{where} bit for bit"
            problem = _incomplete(leaf, leaf["numel"], expected)
            if problem is not None or facts["differing"] == 0:
                return problem
            observed = f"at {facts['index']}: {facts['value']} against {facts['reference']}"
            return Verdict.failed(
                expected,
                observed,
                detail=f"{facts['differing']} of {leaf['numel']} elements differ",
            )
        if self.judge_kind is Judge.TOLERANCE:
            return self._by_tolerance(where, leaf, "")
        if "calibrated" not in leaf:
            return Verdict.error(where, "the float64 reference was not measured")
        if (why_not := leaf["calibrated"].get("why_not")) is not None:
            return self._by_tolerance(where, leaf, f" (no float64 reference: {why_not})")
        return self._by_reference(where, leaf)

    def _by_reference(self, where: str, leaf: Facts) -> Verdict | None:
        """Judge by the error against the float64 reference, compared with that of eager; or by what
        other runs of eager give.
        """
        facts = leaf["calibrated"]
        if "distribution" in facts:
            text = distributions.problem(facts["distribution"])
            expected = f"{where} distributed as eager's, its random numbers of its own as declared"
            return Verdict.failed(expected, text) if text else None
        if "others" in facts:
            expected = f"{where} as in eager, in float64 or in eager with other roundings"
            observed = f"{facts['others']} of {leaf['numel']} elements are as in none of them"
            return Verdict.failed(expected, observed) if facts["others"] else None
        expected = f"{where} within {calibrated.FACTOR:g} x eager's error against float64"
        if unexplained := facts.get("unexplained"):
            why = (
                f"no float64 reference: {facts['no_float64']}"
                if "no_float64" in facts
                else f"in {unexplained} of {facts['numel']} elements float64 is farther from eager "
                "than rounding explains: no reference"
            )
            expected = (
                f"{where} within {calibrated.FACTOR:g} x what other roundings change of eager "
                f"({why})"
            )
        if products := facts.get("products"):
            expected += f", its products in {products} as declared"
        form = calibrated.form_of(leaf["dtype"], facts)
        if form is None:
            return Verdict.error(expected, f"values of dtype {leaf['dtype']} are exact")
        problem = _incomplete(leaf, leaf["numel"], expected) or _incomplete(
            leaf, facts["numel"] // (1 + (leaf["dtype"] in calibrated.COMPONENTS)), expected
        )
        if problem is not None:
            return problem
        if facts.get("is_wrong"):
            where = f"{self.to}{leaf['path']} on {leaf['reference_device']}"
            observed = (
                f"eager is wrong on {leaf['reference_device']}, in {facts['unexplained']} of "
                f"{leaf['numel']} elements"
            )
            return Verdict.failed(f"{where} as on the CPU and in float64", observed)
        is_near = leaf["excess"] <= leaf["atol"] and not (
            leaf["nan_mismatches"] or leaf["inf_mismatches"]
        )
        problems = calibrated.problems(facts, form, is_near=is_near)
        if not problems:
            return None
        if facts["nonfinite"] and "sides" in leaf:
            problems[0] = self._sides(leaf)
        return Verdict.failed(
            expected, problems[0], detail="\n".join([*problems[1:], calibrated.summary(facts)])
        )

    def _by_tolerance(self, where: str, leaf: Facts, why: str) -> Verdict | None:
        """Judge by ``atol`` and ``rtol``; ``why`` is why the dtype's are used."""
        rtol, atol = default_tolerance(leaf["dtype"], leaf["reference_dtype"])
        if self.rtol is not None and self.atol is not None:
            rtol, atol = self.rtol, self.atol
        expected = f"{where} within atol={atol:g}, rtol={rtol:g}{why}"
        if (leaf["rtol"], leaf["atol"]) != (rtol, atol):
            return Verdict.error(
                expected, f"measured with atol={leaf['atol']:g}, rtol={leaf['rtol']:g}"
            )
        if leaf["nan_mismatches"] or leaf["inf_mismatches"]:
            count = leaf["nan_mismatches"] + leaf["inf_mismatches"]
            observed = f"NaN or an infinity on one side only in {count} of {leaf['numel']} elements"
            return Verdict.failed(expected, self._sides(leaf) if "sides" in leaf else observed)
        problem = _incomplete(leaf, leaf["numel"], expected)
        hidden = leaf.get("calibrated", {}).get("hidden")
        if problem is None and leaf["excess"] <= atol and hidden:
            observed = (
                f"in {hidden} of {leaf['numel']} elements only atol holds, which is large for them"
            )
            return Verdict.failed(expected, observed)
        if problem is not None or leaf["excess"] <= atol:
            return problem
        pair = f"{leaf['worst_value']} against {leaf['worst_reference']}"
        worst = f"greatest difference {leaf['max_abs']:.3g}; at {leaf['worst_index']}: {pair}"
        detail = (
            f"{leaf['mismatches']} of {leaf['numel']} elements differ by more than the tolerance"
        )
        return Verdict.failed(expected, worst, detail=detail)

    def _sides(self, leaf: Facts) -> str:
        """Return how many elements of each side are NaN, and which infinity."""
        ours, theirs = ("compiled" if is_eager(self.to) else self.of), self.to
        sentences = []
        for what, (count, other, apart) in leaf["sides"].items():
            (more, most), (less, least) = (
                ((ours, count), (theirs, other))
                if count >= other
                else ((theirs, other), (ours, count))
            )
            place = (
                ""
                if most > least
                else ", at other places"
                if apart
                else ": with equal_nan: false these differ"
            )
            sentences.append(
                f"{more} has {what} in {most} of {leaf['numel']} elements, {less} in "
                f"{least or 'none'}{place}"
            )
        return "; ".join(sentences)


_FORM = ("type", "shape", "dtype", "device")

_OF_MEMORY = re.compile("memory of |the earlier call")
"""In what is said of a tensor that should share memory with another one, or should not."""


def form_problem(leaf: Facts, of: str = OUTPUT) -> Verdict | None:
    """Return the judgement of a value with another form than its reference; None if it has that."""
    for fact in _FORM:
        if leaf[fact] != leaf[f"reference_{fact}"]:
            expected = f"{of}{leaf['path']} of {fact} {leaf[f'reference_{fact}']}"
            return Verdict.failed(expected, str(leaf[fact]))
    return None


def aspect_of(leaf: Facts, *, compares_strides: bool) -> str:
    """Return what of a wrong value is wrong, in a word or two."""
    if _OF_MEMORY.search(f"{leaf.get('value')} {leaf.get('reference_value')}"):
        return ALIASING
    compared = (*_FORM, "strides") if compares_strides and "strides" in leaf else _FORM
    return next((fact for fact in compared if leaf[fact] != leaf[f"reference_{fact}"]), NUMBERS)


def greatest_error(leaves: Iterable[Facts]) -> float | None:
    """Return the greatest error of right values, in units of the bounds of their elements; None
    where no bound judged one.
    """
    shares = []
    for leaf in leaves:
        facts = leaf.get("calibrated", {})
        form = calibrated.form_of(leaf["dtype"], facts) if facts.get("worst") else None
        if form is not None:
            bound = calibrated.element_bound(facts, form)
            shares.append(float(facts["worst"]["error"]) / bound)
        elif leaf.get("atol"):
            shares.append(max(0.0, leaf["excess"] / leaf["atol"]))
    return max(shares, default=None)


def numbers_of(leaf: Facts) -> dict[str, float]:
    """Return what a waiver holds of a wrong tensor; empty for another value, or another shape or
    dtype.
    """
    if "size" not in leaf or leaf["dtype"] != leaf["reference_dtype"]:
        return {}
    numel = max(leaf["numel"], 1)
    differing = max(
        leaf["mismatches"],
        leaf.get("calibrated", {}).get("outside", 0),
        leaf.get("bits", {}).get("differing", 0),
    )
    nonfinite = leaf["nan_mismatches"] + leaf["inf_mismatches"]
    shares = {"share": differing / numel, "nonfinite": nonfinite / numel}
    error = (
        float(leaf["max_abs"]) if differing or not nonfinite else 0.0
    )  # else the other elements are right
    # of few errors the mean is far from zero by chance
    ways = {
        word: float(leaf[word])
        for word in WAYS
        if abs(leaf.get(word, 0.0)) >= max(0.5, 2 / math.sqrt(max(differing, 1)))
    }
    return {
        "error": error,
        **shares,
        "size": float(leaf["size"]),
        "likeness": float(leaf["likeness"]),
        **ways,
    }


WAYS = ("bias", "outward")
"""What is known of a wrong tensor where most of its errors go one way: up or down, away from zero
or towards it.
"""


def _by_rounding(name: str, dtype: str, measured: Facts, zeros: Facts, most: float) -> str:
    """Return why a stand-in need not fail: rounding explains what it differs by; empty where it
    does not.

    A gradient that is 0 but for rounding is as near to zeros as to itself. ``most`` is the
    magnitude of the greatest value of the result.
    """
    if (known := measured.get("calibrated")) is not None and "whole_error" in known:
        factor = _COARSE if name == "lower precision" else calibrated.FACTOR
        is_near = known["max_error"] <= factor * known["whole_error"] and not known["nonfinite"]
        if is_near:
            return "it is as near to float64 as eager"
        # as the gradient of a scale that a later norm removes; greater values of the result carry
        # the claim
        is_small = 0 < zeros.get("excess", 0.0) <= most * _SMALL
        is_noise = known["nearest"] is not None  # eager's error says little
        if not (is_small or is_noise) or known["outside"]:
            return ""
        form, worst = calibrated.form_of(dtype, known), known["worst"]
        nudges = 0.0 if form is None else form.nudges
        is_by_rounding = worst["error"] <= max(nudges * worst["nudge"], worst.get("moved", 0.0))
        of = "is small compared with the other values" if is_small else "is mostly noise in eager"
        return f"rounding moves it as far, and it {of}" if is_by_rounding else ""
    return (
        "it is only rounding compared with the other values"
        if 0 < zeros.get("excess", 0.0) <= most * 2.0**-20
        else ""
    )


_SMALL = 2.0**-10
"""Values that are smaller than the greatest of the result by this may be mostly rounding."""

_CONSTANT = 2.0**-12
"""A result that changes by less of its greatest value, where all inputs change, need not show
which input is which."""

_COARSE = 16.0
"""In eager's errors.

An answer in lower precision with an error up to this is as right as answers for nudged inputs.
"""


_EXACT = ("int", "bool", "str", "NoneType")
"""Types of values whose texts are equal where the values are."""


_SIZES = frozenset(
    (
        "rtol atol excess max_abs size most nearest nudge reference error group_error "
        "whole_error whole_ulp max_error max_ulp"
        " eager eager_max_error eager_max_ulp quantiles eager_quantiles nudge_quantiles"
    ).split()
)
"""Facts that are at least 0, and not NaN."""


def _impossible(facts: Facts) -> Iterator[str]:
    """Yield each fact of a value, without those of stand-ins, that is no size."""
    for name, fact in facts.items():
        for part in fact if isinstance(fact, list) else [fact]:
            if isinstance(part, dict) and name != "stand_ins":
                yield from _impossible(part)
            elif (
                name in _SIZES
                and isinstance(part, int | float)
                and not part >= 0
                and not (name == "error" and math.isnan(part))
            ):
                yield f"{name} is {part}"


def contradiction(leaf: Facts) -> str:
    """Return how the facts of a measured value that would pass contradict others, as where a
    replaced operation spoils one; else empty.
    """
    where = f"the facts of {leaf['path'] or 'the value'} contradict each other: "
    if "excess" not in leaf:
        is_other = (
            leaf.get("equal") is True
            and leaf["type"] in _EXACT
            and leaf["value"] != leaf["reference_value"]
        )
        return (
            f"{where}{leaf['value']} is said to equal {leaf['reference_value']}" if is_other else ""
        )
    if problem := next(_impossible(leaf), ""):
        return f"{where}{problem}"
    counts = {name: leaf[name] for name in ("mismatches", "nan_mismatches", "inf_mismatches")}
    differing, most = leaf.get("bits", {}).get("differing", 0), leaf["max_abs"]
    if not all(0 <= count <= leaf["numel"] for count in (*counts.values(), differing)):
        return f"{where}{counts} and {differing} other bit patterns in {leaf['numel']} elements"
    if (leaf["mismatches"] > 0) is not (leaf["excess"] > leaf["atol"]) or leaf["excess"] > most:
        excess = (
            f"the greatest excess over rtol is {leaf['excess']:g} with atol={leaf['atol']:g}, the "
            f"greatest difference {most:g}"
        )
        return f"{where}{leaf['mismatches']} mismatches, and {excess}"
    if "bits" in leaf and not differing and (any(counts.values()) or most):
        return f"{where}no bits differ, and {counts}, greatest difference {most:g}"
    if "sides" in leaf and not (counts["nan_mismatches"] or counts["inf_mismatches"]):
        return f"{where}NaN or infinities on one side, and {counts}"
    if (
        not any(counts.values())
        and not most
        and not math.isclose(leaf.get("size", 1.0), 1.0, rel_tol=1e-6)
    ):
        return (
            f"{where}no difference, and an answer of {leaf['size']:g} times the size of its "
            "reference"
        )
    facts = leaf.get("calibrated", {})
    # the judge computes the bound itself, and the worker rounds it otherwise
    form = calibrated.form_of(leaf["dtype"], facts) if facts.get("outside") else None
    if form is not None:
        error, bound = facts["worst"]["error"], calibrated.element_bound(facts, form)
        if error < bound / 1.01:
            return (
                f"{where}{facts['outside']} elements outside, and the worst error is {error:g} "
                f"with the bound {bound:g}"
            )
    return ""


def _incomplete(leaf: Facts, numel: int, expected: str) -> Verdict | None:
    """Return an error where not all elements were measured."""
    if numel != math.prod(leaf["shape"]):
        return Verdict.error(expected, f"{numel} elements of shape {leaf['shape']} were measured")
    return None


def ways_judged(leaves: Sequence[Facts]) -> str:
    """Return how many values were judged, and by what."""
    ways: dict[str, list[tuple[str, Facts]]] = {}
    for leaf in leaves:
        facts = leaf.get("calibrated", {})
        why = facts.get("no_float64", facts.get("why_not", ""))
        way = "by eager with other roundings" if why else "by the float64 reference"
        if "numel" not in facts:
            way = _BY_RUNS if facts.get("others") == 0 else _BY_TOLERANCE
            way = _BY_DISTRIBUTION if "distribution" in facts else way
        ways.setdefault(way, []).append((why, facts))
    parts = []
    for way, group in sorted(ways.items()):
        worst = max(group, key=lambda pair: pair[1]["max_ulp"] if pair[1].get("numel") else 0.0)[1]
        details = [calibrated.summary(worst)] if "numel" in worst else []
        details += dict.fromkeys(
            f"products in {f['products']}" for _, f in group if "products" in f
        )
        if why := "; ".join(list(dict.fromkeys(why for why, _ in group if why))[:_MOST_REASONS]):
            details.append(f"no float64 reference: {why}")
        parts.append(f"{len(group)} values {way}" + (f" ({'; '.join(details)})" if details else ""))
    return ", ".join(parts)


# -- the float64 reference, which the worker adds after the case -----------------------------------


@dataclass(frozen=True, slots=True)
class Answers:
    """The runs of eager after the case."""

    again: Any
    """Eager's answer to the same inputs."""
    reference: Any
    """The float64 reference for the same inputs."""
    pairs: Sequence[tuple[Any, Any, float]]
    """Answers of eager with their references, for the same and for nudged inputs, and the
    resolution of nudged ones.
    """
    through: Sequence[str] = ()
    """For each leaf of the answer the narrowest format that eager rounded its values to on their
    way; empty where there is none.
    """
    jittered: Sequence[Any] = ()
    """Answers of eager to the same inputs with other roundings; empty where it refused."""
    amplitude: float = 1.0
    """How many units these roundings move a number by, at most."""
    fine: Callable[[], Sequence[Any]] | None = None
    """Makes the same with fine roundings: of one unit, but of operators that add.

    None where the two sides began with other numbers.
    """
    exact: Callable[[], Iterable[Any]] = tuple
    """Makes answers of eager to the same inputs, with other roundings of what was rounded."""
    otherwise: Callable[[str], Any] | None = None
    """Makes the call of eager "on the CPU" or "without TF32"."""
    opaque: str = ""
    """The objects in reach of the call that cannot be set back, in words."""
    why_not: str = ""
    """Why there is no float64 reference; then only runs with other roundings judge."""
    drawn: Callable[[], Sequence[Any]] | None = None
    """Makes answers of eager with other random numbers, where the compiler declares its own."""
    products: str = ""
    """The declared format that eager's products were computed in; empty for that of the case."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison whose facts are completed."""

    facts: NewFacts
    arguments: Facts
    values: Mapping[str, Any]
    """The compared values, by the words ``of`` and ``to``."""
    comparers: dict[int, Comparer]
    """Filled with what compares other tensors in the same way, by the identity of a leaf's facts.
    """
    with_stand_ins: bool = True
    """Whether stand-ins are measured, and a histogram of right answers is sent."""
    unwritten: Sequence[Any] = ()
    before: Sequence[Any] = ()
    """For each leaf a mask of the elements that eager left as they were before, or None; empty for
    a result.
    """


@dataclass(frozen=True, slots=True)
class _Runs:
    """The runs of eager with the leaves of each value in order, as many as the comparison has."""

    answers: Answers
    own: Mapping[str, Sequence[Any]]
    """The compared values, by the words ``of`` and ``to``."""
    again: Sequence[Any]
    reference: Sequence[Any]
    pairs: Sequence[tuple[Sequence[Any], Sequence[Any], float]]
    jittered: Sequence[Sequence[Any]]
    drawn: Sequence[Sequence[Any]]

    @classmethod
    def of(cls, comparison: Comparison, answers: Answers) -> "_Runs":
        """Make the runs; raise ``NoReference`` where one has another structure."""
        runs = cls(
            answers=answers,
            own={word: leaves_of(value) for word, value in comparison.values.items()},
            again=leaves_of(answers.again),
            reference=leaves_of(answers.reference),
            pairs=[
                (leaves_of(answer), leaves_of(right), step) for answer, right, step in answers.pairs
            ],
            jittered=[leaves_of(answer) for answer in answers.jittered],
            drawn=[leaves_of(answer) for answer in answers.drawn()] if answers.drawn else [],
        )
        of_pairs = (part for *both, _ in runs.pairs for part in both)
        values = (*runs.own.values(), runs.again, runs.reference, *runs.jittered, *runs.drawn)
        if any(len(leaves) != len(comparison.facts["leaves"]) for leaves in (*values, *of_pairs)):
            raise calibrated.NoReference("another run of eager gives another structure")
        return runs

    @property
    def eager(self) -> Sequence[Any]:
        """Eager's answer: computed again where a format is declared for its products."""
        return self.again if self.answers.products else self.own["to"]


def add_reference(comparison: Comparison, answers: Callable[[Any], Answers]) -> None:
    """Add the facts to each leaf of two tensors, or ``why_not``; ``answers`` makes the runs for
    what eager returned.
    """
    leaves = comparison.facts["leaves"]
    if not any(map(_needs_runs, leaves)):
        for leaf in leaves:
            leaf["calibrated"] = {"why_not": _exact(leaf)}
        return
    try:
        runs = _Runs.of(comparison, answers(comparison.values["to"]))
    except Exception as error:  # code of a spec may raise anything when it is called again
        values = [leaves_of(comparison.values[word]) for word in ("of", "to")]
        for leaf in leaves:
            leaf["calibrated"] = _why(error)
        for leaf, *both in zip(leaves, *values, strict=False):
            _add_hidden(leaf, *both)
        return
    for index, leaf in enumerate(leaves):
        ours, theirs = (runs.own[word][index] for word in ("of", "to"))
        if leaf["type"] == leaf["reference_type"] == "float" and not leaf["equal"]:
            _add_movement(leaf, ours, theirs, [answer[index] for answer in runs.jittered], runs)
        is_tensor = leaf["type"] == leaf["reference_type"] == "tensor"
        if (
            leaf["type"] != "tensor"
            and not leaf["equal"]
            and runs.again[index] != runs.eager[index]
        ):
            why = calibrated.Unrepeatable("a second run of eager gives another answer")
            leaf["calibrated"] = _why(why, runs.answers.opaque)
        elif leaf["shape"] == leaf["reference_shape"] if is_tensor else leaf["type"] in _WHOLE:
            try:
                _add_leaf(comparison, leaf, index, runs, is_tensor=is_tensor)
            except Exception as error:  # torch raises any class for a dtype or layout
                # the other leaves are judged
                leaf["calibrated"] = _why(error, runs.answers.opaque)
                _add_hidden(leaf, ours, theirs)


def _add_movement(
    leaf: NewFacts, ours: float, theirs: float, jittered: Sequence[float], runs: _Runs
) -> None:
    """Add how far a Python float is from eager's, and how far other roundings move it per unit."""
    greatest = max((abs(answer - theirs) for answer in jittered), default=0.0)
    movement = greatest / runs.answers.amplitude
    if math.isfinite(abs(ours - theirs) + movement):
        leaf.update(distance=abs(ours - theirs), movement=movement)


def _add_leaf(
    comparison: Comparison, leaf: NewFacts, index: int, runs: _Runs, *, is_tensor: bool
) -> None:
    """Add the facts of one leaf: of random numbers, of an exact value, or of rounded numbers.

    Raise ``NoReference``, and what an operator raises that the leaf's dtype or layout lacks.
    """
    ours, theirs = (runs.own[word][index] for word in ("of", "to"))
    if is_tensor and runs.drawn:
        draws = [answer[index] for answer in runs.drawn]
        if (random := distributions.measure(ours, draws)) is not None:
            _add_distribution(leaf, random, theirs, draws)
            return
    if not is_tensor or (leaf["mismatches"] and calibrated.format_of(leaf["dtype"]) is None):
        exact = (leaves_of(run)[index] for run in runs.answers.exact())
        others = itertools.chain([runs.reference[index], runs.again[index]], exact)
        _add_exact(comparison, leaf, [ours, theirs], others)
        return
    scale, wrong_in_eager = _judged_scale(leaf, index, runs)
    _add(comparison, leaf, ours, scale)
    if runs.answers.products:
        leaf["calibrated"]["products"] = runs.answers.products
    if wrong_in_eager:
        leaf["calibrated"].update(is_wrong=True, unexplained=wrong_in_eager)
    before = comparison.before[index] if comparison.before else None
    unwritten = comparison.unwritten[index] if comparison.unwritten else None
    if unwritten is not None and "no_float64" not in scale.figures:
        changed = calibrated.changed_elements(ours, scale, unwritten, before)
        leaf["calibrated"].update({"unwritten": changed} if changed else {})
    if before is not None:
        leaf.pop("change", None)
        change = calibrated.other_change(
            ours,
            theirs,
            before,
            scale.precise if "no_float64" not in scale.figures else None,
            scale.by_rounding if _is_double(scale) else None,
        )
        leaf.update({"change": change} if change else {})


def _is_double(scale: calibrated.Scale) -> bool:
    return scale.form is calibrated.FORMATS["float64"]


def _judged_scale(leaf: Facts, index: int, runs: _Runs) -> tuple[calibrated.Scale, int]:
    """Return eager's error for a leaf, and in how many elements eager is wrong on its device.

    More runs are made only where the answer would fail without them: with finer roundings, and
    where rounding does not explain eager's distance from float64 with the same call on the CPU or
    without TF32.
    """
    answers, right = runs.answers, runs.reference[index]
    ours, theirs = (runs.own[word][index] for word in ("of", "to"))
    jittered = [answer[index] for answer in runs.jittered]
    judged = functools.partial(_scale, leaf, index, runs)
    fine: list[Any] | None = None if answers.fine is None else []
    scale = judged(fine, jittered)
    if is_suspect := calibrated.is_suspect(ours, scale):
        if not scale.form.nudges:
            jittered += [leaves_of(run)[index] for run in answers.exact()]
        elif answers.fine is not None:
            fine = [leaves_of(answer)[index] for answer in answers.fine()] or None
        scale = judged(fine, jittered)
    is_double, device = _is_double(scale), leaf["reference_device"]
    is_unexplained = (
        "unexplained" in scale.figures or (is_double and is_suspect)
    ) and "no_float64" not in scale.figures
    if not is_unexplained or device in ("cpu", "meta") or answers.otherwise is None:
        return scale, 0
    unexplained = functools.partial(
        calibrated.unexplained_in, jittered=jittered, amplitude=answers.amplitude
    )
    with contextlib.suppress(Exception):  # a function may need its device
        if device == "cuda" and not is_double:
            without_tf32 = leaves_of(answers.otherwise("without TF32"))[index]
            if not unexplained(without_tf32, right):
                # the settings allow TF32; jittered inputs have no such error
                return judged(fine, []), 0
        on_cpu = leaves_of(answers.otherwise("on the CPU"))[index]
        # of float64 nothing is more precise than eager elsewhere
        if is_double and not unexplained(ours, on_cpu):
            return scale, unexplained(theirs, on_cpu)
        if not is_double and not unexplained(on_cpu, right):
            return scale, unexplained(theirs, right)
    return scale, 0


def _add_distribution(leaf: NewFacts, facts: Facts, eager: Tensor, runs: Sequence[Any]) -> None:
    """Add the facts of random numbers of the compiler's own; of wrong answers zeros are tried."""
    leaf["calibrated"] = {"distribution": facts}
    if "stand_ins" in leaf:
        zeros = distributions.measure(torch.zeros_like(eager), runs)
        few = zeros is None or zeros["numel"] < distributions.LEAST
        leaf["stand_ins"] = {
            name: {"why_not": "its numbers are random"} for name in (*NAMES, *leaf["stand_ins"])
        }
        leaf["stand_ins"]["zeros"] = (
            {"why_not": "its random numbers are few"}
            if few
            else {"calibrated": {"distribution": zeros}}
        )


_WHOLE = ("int", "bool")


def _needs_runs(leaf: Facts) -> bool:
    """Whether a value is inexact, or an exact one that differs from eager's."""
    is_inexact = leaf["type"] == "float" or calibrated.format_of(leaf["dtype"]) is not None
    return is_inexact or leaf.get("equal") is False or bool(leaf.get("mismatches"))


def _exact(leaf: Facts) -> str:
    is_tensor = leaf["type"] == "tensor"
    return f"values of dtype {leaf['dtype']} are exact" if is_tensor else "it is not a tensor"


def _add_exact(
    comparison: Comparison, leaf: NewFacts, sides: Sequence[Any], runs: Iterable[Any]
) -> None:
    """Add in how many elements an exact value, as an index or a mask, is neither eager's nor that
    of a run; nothing where runs explain no element.
    """
    ours, eager = map(torch.as_tensor, sides)
    known = [eager]

    def others(tensor: Tensor) -> Tensor:
        return torch.stack([tensor != right for right in known]).all(0)

    for run in runs if bool((ours != eager).any()) else ():
        answer = torch.as_tensor(run)
        known += [answer.to(eager.device)] if answer.shape == eager.shape else []
        if not bool(others(ours).any()):
            break
    count = int(others(ours).sum())
    if count == int((ours != eager).sum()):
        raise calibrated.NoReference(_exact(leaf))

    def comparer(tensor: Tensor) -> NewFacts:
        return {"calibrated": {"others": int(others(tensor).sum())}}

    leaf.update(comparer(ours))
    if comparison.with_stand_ins and leaf["type"] == "tensor":
        # a stand-in is wrong where no run explains it
        apart = [(right.double() - eager.double()).abs() for right in known]
        bounds = torch.stack(apart).amax(0)
        leaf["stand_ins"] = {**leaf["stand_ins"], **judged_stand_ins(eager, bounds, comparer)}
        comparison.comparers[id(leaf)] = comparer


def _add_hidden(leaf: NewFacts, ours: Tensor, theirs: Tensor) -> None:
    """Add in how many elements the distance of two tensors is within the tolerance of the dtype
    only because that is absolute: it is large compared with the values.
    """
    form = calibrated.format_of(leaf["dtype"] or "")
    if "excess" in leaf and form is not None:
        with contextlib.suppress(RuntimeError):  # values of a layout that has no such operator
            answer, right = calibrated.wide(ours), calibrated.wide(theirs)
            typical = float(right[right.isfinite()].abs().square().mean().sqrt())
            bounds = leaf["rtol"] * right.abs()
            bounds += form.quantile_floor * calibrated.ulp(typical, form)
            is_hidden = calibrated.errors_of(answer, right) > bounds
            leaf["calibrated"]["hidden"] = int(is_hidden.sum())


def _blamed(leaf: Facts, problem: Verdict) -> Verdict:
    """Return an error in place of a failure where eager itself does not repeat its answer."""
    facts = leaf.get("calibrated") or {}
    if facts.get("repeats", True) or problem.status is not Status.FAILED:
        return problem
    return Verdict.error(
        problem.expected,
        f"{facts['why_not']} (define what the function depends on within it, or pass it as an "
        "argument)",
    )


def _why(error: Exception, opaque: str = "") -> NewFacts:
    """Return the facts of an answer without a reference."""
    if isinstance(error, calibrated.Unrepeatable):
        return {
            "why_not": f"{error}{opaque and f': {opaque} cannot be set back'}",
            "repeats": False,
        }
    if isinstance(error, calibrated.NoReference):
        return {"why_not": str(error)}
    return {"why_not": f"{type(error).__name__}: {error}"[:200]}


def _scale(
    leaf: Facts, index: int, runs: _Runs, fine: Sequence[Tensor] | None, jittered: Sequence[Tensor]
) -> calibrated.Scale:
    """Return eager's error for a leaf, by its runs with fine and with other roundings of the leaf.

    Raise ``NoReference`` where nothing judges it, and ``Unrepeatable``.
    """
    answers, why_not = runs.answers, runs.answers.why_not
    eager, again, right = runs.eager[index], runs.again[index], runs.reference[index]
    samples = [calibrated.Sample(answer[index], of[index], step) for answer, of, step in runs.pairs]
    through = answers.through[index] if answers.through else ""
    if leaf["dtype"] != leaf["reference_dtype"]:
        raise calibrated.NoReference("the dtypes differ")
    everything = [
        again,
        right,
        *jittered,
        *(fine or ()),
        *(part for sample in samples for part in (sample.answer, sample.reference)),
    ]
    if any(getattr(part, "shape", None) != eager.shape for part in everything):
        raise calibrated.NoReference("another run of eager gives another shape")
    if not (eager.is_floating_point() or eager.is_complex()):
        raise calibrated.NoReference(f"values of dtype {leaf['dtype']} are exact")
    rtol, atol = default_tolerance(leaf["dtype"])
    apart = differences(again, eager, rtol=rtol, atol=atol)
    if (
        apart["nan_mismatches"]
        or apart["inf_mismatches"]
        or (apart["mismatches"] and not calibrated.is_reordered([eager, again], right))
    ):
        raise calibrated.Unrepeatable("a second run of eager gives another answer")
    if any(
        part.element_size() != (16 if part.is_complex() else 8)
        for part in [right, *(sample.reference for sample in samples)]
    ):
        why_not = why_not or "the function computes in a narrower dtype than float64 itself"
    roundings = through, jittered, answers.amplitude, fine
    try:
        if not why_not:
            return calibrated.scale_of(samples, eager, right, *roundings)
    except calibrated.NoReference as error:
        why_not = str(error)
    if not jittered:
        raise calibrated.NoReference(why_not)
    scale = calibrated.scale_of([], eager, eager, *roundings)
    return replace(scale, figures={**scale.figures, "no_float64": why_not})


def _add(comparison: Comparison, leaf: NewFacts, actual: Tensor, scale: calibrated.Scale) -> None:
    right, bounds = (
        part.reshape(calibrated.in_parts(actual).shape) for part in (scale.eager, scale.bounds)
    )
    if asked := leaf.get("at"):
        place = asked["index"]
        precise = scale.reference.reshape(bounds.shape)[place]
        asked.update(reference=float(precise), bound=float(bounds[place]))
    if actual.is_complex():
        right, bounds = torch.view_as_complex(right), bounds.amax(-1)
    right = right.to(actual.dtype)
    equal_nan = comparison.arguments["equal_nan"]

    def comparer(tensor: Tensor) -> NewFacts:
        mismatches = differences(
            tensor, right, rtol=leaf["rtol"], atol=leaf["atol"], equal_nan=equal_nan
        )
        facts: NewFacts = {
            name: mismatches[name] for name in ("nan_mismatches", "inf_mismatches", "excess")
        }
        return {
            **facts,
            "calibrated": calibrated.compare(tensor, scale, equal_nan=equal_nan, histogram=False),
        }

    leaf["calibrated"] = calibrated.compare(actual, scale, equal_nan=equal_nan)
    leaf.pop("picture", None)
    if leaf["calibrated"]["outside"] or leaf["calibrated"]["nonfinite"]:
        answer = calibrated.flat(actual).to(scale.reference.device)
        error = calibrated.errors_of(answer, scale.reference) / scale.bounds
        error = error.reshape(calibrated.in_parts(actual).shape)
        error = error.amax(-1) if actual.is_complex() else error
        leaf["picture"] = picture(actual, right, error)
    if not comparison.with_stand_ins:
        if not leaf["calibrated"]["outside"]:
            leaf["calibrated"].pop("histogram", None)
        return
    leaf["stand_ins"] = {**leaf.get("stand_ins", {}), **judged_stand_ins(right, bounds, comparer)}
    comparison.comparers[id(leaf)] = comparer
