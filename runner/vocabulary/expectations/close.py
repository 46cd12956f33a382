"""``close``: every tensor of a value is close to its reference.

The judge needs no tensors: |a - b| <= atol + rtol * |b| for all elements is the same as max(|a - b| - rtol * |b|) <= atol. The worker
sends that maximum in float64, with the values at its position. The other judges (``close_words.Judge``) have other facts, which
``close_rules`` judges.
"""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.core.conditions import Surroundings
from runner.core.expectation import Judgement, Mutant, StepFacts
from runner.core.protocol import Json
from runner.vocabulary.expectations import calibrated, close_rules
from runner.vocabulary.expectations.base import EAGER, OUTPUT, BadExpectation, Conditional
from runner.vocabulary.expectations.close_measure import (
    bits,
    describe,
    differences,
    is_equal,
    kinds,
    structure,
    unnested,
)
from runner.vocabulary.expectations.close_rules import Judge, default_tolerance
from runner.vocabulary.expectations.stand_ins import MORE_NAMES, NAMES, Comparer, judged_stand_ins, measure_other_inputs, measure_stand_ins

NOTHING_DIFFERS = "any stand-in"
"""The mutant that survives if no stand-in is applicable and the case has no other expectation."""

_MOST_REASONS = 5
"""The maximum number of reasons why there is no float64 reference that a verdict names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Close(Conditional):
    """``close: {to: eager}``, ``close: {to: eager, atol: 1e-2, rtol: 1e-2}``, ``close: {to: first, exact: true}``."""

    kind: ClassVar[str] = "close"
    mutations: ClassVar[tuple[str, ...]] = (*NAMES, *MORE_NAMES, "another value", NOTHING_DIFFERS)
    of: str = OUTPUT
    to: str = EAGER
    atol: float | None = None
    rtol: float | None = None
    exact: bool = False
    equal_nan: bool = True

    @classmethod
    def parse(cls, body: Any) -> "Close":
        """Read the arguments; raise ``BadExpectation`` for a comparison that cannot fail, and for words that exclude each other."""
        close_rules.check(body)
        found = cls(**body)
        if found.of == found.to:
            raise BadExpectation(f"'{found.of}' is compared with itself", "name another value in 'of' or 'to'", path=("to",))
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The value and its reference."""
        return self.of, self.to

    @property
    def judge_kind(self) -> Judge:
        """The judge that the words choose."""
        if self.exact:
            return Judge.EXACT
        return Judge.TOLERANCE if self.atol is not None or not close_rules.is_eager(self.to) else Judge.CALIBRATED

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker measures with the tolerance of the judgement, and what the judge needs."""
        wanted = {"of": self.of, "to": self.to, "atol": self.atol, "rtol": self.rtol, "equal_nan": self.equal_nan}
        if self.judge_kind is Judge.TOLERANCE:
            return wanted
        return {**wanted, "judge": self.judge_kind.value}

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the structure first, then each leaf. The judgement shows the first failed leaf."""
        expected = f"{self.of} close to {self.to}"
        measured = facts.measured
        if measured["structure"] != measured["reference_structure"]:
            return [Judgement.failed(expected=f"the structure {measured['reference_structure']}", observed=measured["structure"])]
        if not measured["leaves"]:
            return [Judgement.error("nothing to compare: the value holds no tensor and no number", expected=expected)]
        problems = [problem for leaf in measured["leaves"] if (problem := self.problem_of_leaf(leaf)) is not None]
        if problems:
            return [problems[0]]
        return [Judgement.passed(expected=expected, observed=told(measured["leaves"]))]

    def problem_of_leaf(self, leaf: Mapping[str, Any]) -> Judgement | None:
        """Return the judgement of a value that is not close to its reference, or that was not measured as its judge needs it."""
        are_tensors = leaf["type"] == leaf["reference_type"] == "tensor" and leaf["shape"] == leaf["reference_shape"]
        if self.judge_kind is Judge.CALIBRATED and are_tensors and "calibrated" not in leaf:
            return Judgement.error("the float64 reference was not measured", expected=f"{self.of}{leaf['path']}")
        return self.problem(leaf)

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """One mutant for each leaf and each stand-in that the worker measured for it."""
        leaves = facts.measured["leaves"]
        for index, leaf in enumerate(leaves):
            where = f"{self.of}{leaf['path']}"
            for name, measured in _stand_ins(leaf):
                if "why_not" in measured:
                    yield Mutant.not_applicable(name, measured["why_not"], where=where)
                else:
                    changed = [*leaves[:index], {**leaf, **measured}, *leaves[index + 1 :]]
                    yield Mutant(name=name, facts=facts.with_measured(leaves=changed), where=where)

    def problem(self, leaf: Mapping[str, Any]) -> Judgement | None:
        """Return the judgement of a value that is not close to its reference; None if it is."""
        where = f"{self.of}{leaf['path']}"
        for fact in ("type", "shape", "dtype", "device"):
            if leaf[fact] != leaf[f"reference_{fact}"]:
                return Judgement.failed(expected=f"{where} of {fact} {leaf[f'reference_{fact}']}", observed=str(leaf[fact]))
        if leaf["type"] == "tensor":
            return self._numbers(where, leaf)
        if leaf["equal"] is True:
            return None
        return Judgement.failed(expected=f"{where} is {leaf['reference_value']}", observed=str(leaf["value"]))

    def _numbers(self, where: str, leaf: Mapping[str, Any]) -> Judgement | None:
        if self.judge_kind is Judge.EXACT:
            return close_rules.by_bits(where, leaf)
        if self.judge_kind is Judge.TOLERANCE or "calibrated" not in leaf:
            return close_rules.by_tolerance(where, leaf, *self._tolerance(leaf))
        why_not = leaf["calibrated"].get("why_not")
        if why_not is not None:
            return close_rules.by_tolerance(where, leaf, *self._tolerance(leaf), f"no float64 reference: {why_not}")
        return close_rules.by_calibration(where, leaf)

    def _tolerance(self, leaf: Mapping[str, Any]) -> tuple[float, float]:
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        return default_tolerance(leaf["dtype"], leaf["reference_dtype"])


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


def _stand_ins(leaf: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if leaf["type"] != "tensor":
        yield "another value", {"equal": False, "value": "another"}
        return
    found = leaf.get("stand_ins", {})
    for name in (*NAMES, *(name for name in MORE_NAMES if name in found)):
        yield name, found.get(name, {"why_not": "it was not measured in the run"})


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker. ``value`` returns a named value; tensors may be on any device and have any dtype."""
    from torch.utils import _pytree as pytree

    ours, theirs = value(arguments["of"]), value(arguments["to"])
    leaves, form = pytree.tree_flatten_with_path(unnested(ours))
    reference_leaves, reference_form = pytree.tree_flatten_with_path(unnested(theirs))
    facts: dict[str, Any] = {
        "structure": structure(form, kinds(ours)),
        "reference_structure": structure(reference_form, kinds(theirs)),
        "leaves": [],
    }
    if len(leaves) == len(reference_leaves):
        for (path, leaf), (_, reference) in zip(leaves, reference_leaves, strict=True):
            if leaf is not None or reference is not None:
                facts["leaves"].append({"path": pytree.keystr(path), **_leaf(leaf, reference, arguments)})
    return facts


def has_other_inputs(arguments: Mapping[str, Any]) -> bool:
    """Whether the stand-in "other inputs" applies: the output, or a part of it, is compared with the same part of eager."""
    (first, part), (other, same_part) = (name.partition(".")[::2] for name in (arguments["of"], arguments["to"]))
    return (first, other) == (OUTPUT, EAGER) and part == same_part


def needs_reference(arguments: Mapping[str, Any]) -> bool:
    """Whether a measurement needs a float64 reference."""
    return arguments.get("judge") == Judge.CALIBRATED.value


def add_other_inputs(
    facts: dict[str, Any],
    arguments: Mapping[str, Any],
    reference: Any,
    answer: Callable[[], Any],
    comparers: Mapping[int, Comparer] | None = None,
) -> None:
    """Add the stand-in "other inputs" to the result of ``measure``.

    ``reference`` is the eager value of the comparison, ``answer`` returns its value for other inputs. It is called after the case ends,
    because the case must not see another call of its function. ``comparers`` has those of leaves with a float64 reference, by identity.
    """
    from torch.utils import _pytree as pytree

    references = [leaf for leaf in pytree.tree_leaves(unnested(reference)) if leaf is not None]
    others = _others(answer, len(references))
    for leaf, right, other in zip(facts["leaves"], references, others, strict=False):
        if "stand_ins" in leaf:
            comparer = (comparers or {}).get(id(leaf)) or _by_bits(right, arguments)
            leaf["stand_ins"]["other inputs"] = measure_other_inputs(right, other, _against(leaf, arguments), comparer)


def _against(leaf: Mapping[str, Any], arguments: Mapping[str, Any]) -> Callable[[Any, Any], Mapping[str, Any]]:
    return functools.partial(differences, rtol=leaf["rtol"], atol=leaf["atol"], equal_nan=arguments["equal_nan"])


def _others(answer: Callable[[], Any], count: int) -> list[Any]:
    """Return each leaf of the eager value for other inputs, or the reason why it is missing."""
    import torch
    from torch.utils import _pytree as pytree

    try:
        leaves = [leaf for leaf in pytree.tree_leaves(unnested(answer())) if leaf is not None]
    except Exception as error:  # a spec's code may raise anything for unexpected inputs
        return [f"{type(error).__name__}: {error}"[:300]] * count
    if len(leaves) != count:
        return ["other inputs give another structure"] * count
    return [leaf if isinstance(leaf, torch.Tensor) else "other inputs give no tensor here" for leaf in leaves]


def _leaf(leaf: Any, reference: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    import torch

    facts = describe_leaf(leaf, reference, arguments)
    if "excess" in facts:
        comparer = _by_bits(reference, arguments)
        if comparer is None:
            against = _against(facts, arguments)
            facts["stand_ins"] = measure_stand_ins(reference, rtol=facts["rtol"], atol=facts["atol"], against=against)
        else:
            facts.update(comparer(leaf))
            bounds = torch.zeros(reference.shape, dtype=torch.float64)
            facts["stand_ins"] = judged_stand_ins(reference, bounds, comparer, exact=True)
        if not has_other_inputs(arguments):
            facts["stand_ins"]["other inputs"] = {"why_not": "only eager has a value for other inputs"}
    return facts


def _by_bits(reference: Any, arguments: Mapping[str, Any]) -> Comparer | None:
    """Return what compares a tensor with its reference by bits; None for other judges."""
    return (lambda other: {"bits": bits(other, reference)}) if arguments.get("judge") == Judge.EXACT.value else None


def describe_leaf(leaf: Any, reference: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a value and its reference, and their differences if both are tensors of one shape."""
    import torch

    described = describe(leaf)
    facts: dict[str, Any] = {**described, **{f"reference_{key}": text for key, text in describe(reference).items()}}
    if not (isinstance(leaf, torch.Tensor) and isinstance(reference, torch.Tensor)):
        equal = type(leaf) is type(reference) and is_equal(leaf, reference, arguments)
        return {**facts, "equal": equal, "value": repr(leaf)[:200], "reference_value": repr(reference)[:200]}
    if arguments["rtol"] is not None:
        rtol, atol = arguments["rtol"], arguments["atol"]
    else:
        rtol, atol = default_tolerance(described["dtype"], str(facts["reference_dtype"]))
    facts.update(rtol=rtol, atol=atol, numel=leaf.numel())
    if leaf.shape == reference.shape:
        facts.update(differences(leaf, reference, rtol=rtol, atol=atol, equal_nan=arguments["equal_nan"]))
    return facts
