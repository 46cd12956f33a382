"""``close``: every tensor of a value is close to its reference.

The judge needs no tensors: |a - b| <= atol + rtol * |b| for all elements is the same as max(|a - b| - rtol * |b|) <= atol. The worker sends
that maximum in float64, with the values at its position.
"""

import dataclasses
import enum
import functools
import hashlib
import math
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import EAGER, OUTPUT, BadExpectation, Judgement, Mutant, StepFacts
from runner.vocabulary.expectations.stand_ins import NAMES, measure_other_inputs, measure_stand_ins
from runner.vocabulary.expectations.tolerances import default_tolerance

NOTHING_DIFFERS = "any stand-in"
"""The mutant that survives if no stand-in is applicable and the case has no other expectation."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Close:
    """``close: {to: eager, atol: 1e-2, rtol: 1e-2}``."""

    kind: ClassVar[str] = "close"
    mutations: ClassVar[tuple[str, ...]] = (*NAMES, "another value", NOTHING_DIFFERS)
    of: str = OUTPUT
    to: str = EAGER
    atol: float | None = None
    rtol: float | None = None
    equal_nan: bool = True
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Close":
        """Read the arguments; raise ``BadExpectation`` for a comparison that cannot fail."""
        for word in ("atol", "rtol"):
            if not 0 <= body.get(word, 0) < math.inf:
                raise BadExpectation(f"{word} is {body[word]}", "a tolerance is a finite number, at least 0", path=(word,))
        found = cls(**body)
        if found.of == found.to:
            raise BadExpectation(f"'{found.of}' is compared with itself", "name another value in 'of' or 'to'", path=("to",))
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The value and its reference."""
        return (self.of, self.to)

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker measures with the tolerance of the judgement."""
        return {"of": self.of, "to": self.to, "atol": self.atol, "rtol": self.rtol, "equal_nan": self.equal_nan}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the structure first, then each leaf. The judgement shows the first failed leaf."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        expected = f"{self.of} close to {self.to}"
        measured = facts.measured
        if measured is None:
            return [Judgement.error("nothing was measured", expected=expected)]
        if measured["structure"] != measured["reference_structure"]:
            return [Judgement.failed(expected=f"the structure {measured['reference_structure']}", observed=measured["structure"])]
        if not measured["leaves"]:
            return [Judgement.error("nothing to compare: the value holds no tensor and no number", expected=expected)]
        problems = [problem for leaf in measured["leaves"] if (problem := self.problem(leaf)) is not None]
        if problems:
            return [problems[0]]
        return [Judgement.passed(expected=expected, observed=f"{len(measured['leaves'])} values within tolerance")]

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
                    yield Mutant(name=name, facts=replace(facts, measured={**facts.measured, "leaves": changed}), where=where)

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
        rtol, atol = self._tolerance(leaf)
        expected = f"{where} within atol={atol:g}, rtol={rtol:g}"
        if (leaf["rtol"], leaf["atol"]) != (rtol, atol):
            return Judgement.error(f"measured with atol={leaf['atol']:g}, rtol={leaf['rtol']:g}", expected=expected)
        for fact, what in (("nan_mismatches", "NaN"), ("inf_mismatches", "an infinity")):
            if leaf[fact]:
                return Judgement.failed(expected=expected, observed=f"{what} on one side only in {leaf[fact]} of {leaf['numel']} elements")
        if leaf["numel"] != math.prod(leaf["shape"]):
            return Judgement.error(f"{leaf['numel']} elements of shape {leaf['shape']} were measured", expected=expected)
        if leaf["excess"] <= atol:
            return None
        pair = f"{leaf['worst_value']!r} against {leaf['worst_reference']!r}"
        worst = f"greatest difference {leaf['max_abs']:.3g}; at {leaf['worst_index']}: {pair}"
        detail = f"{leaf['mismatches']} of {leaf['numel']} elements differ by more than the tolerance"
        return Judgement.failed(expected=expected, observed=worst, detail=detail)

    def _tolerance(self, leaf: Mapping[str, Any]) -> tuple[float, float]:
        if self.rtol is not None and self.atol is not None:
            return self.rtol, self.atol
        return default_tolerance(leaf["dtype"], leaf["reference_dtype"])


def _stand_ins(leaf: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    if leaf["type"] != "tensor":
        yield "another value", {"equal": False, "value": "another"}
        return
    for name in NAMES:
        yield name, leaf.get("stand_ins", {}).get(name, {"why_not": "it was not measured in the run"})


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker. ``value`` returns a named value; tensors may be on any device and have any dtype."""
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten_with_path(_unnested(value(arguments["of"])))
    reference_leaves, reference_structure = pytree.tree_flatten_with_path(_unnested(value(arguments["to"])))
    facts: dict[str, Any] = {"structure": _structure(structure), "reference_structure": _structure(reference_structure), "leaves": []}
    if len(leaves) == len(reference_leaves):
        for (path, leaf), (_, reference) in zip(leaves, reference_leaves, strict=True):
            if leaf is not None or reference is not None:
                facts["leaves"].append({"path": pytree.keystr(path), **_leaf(leaf, reference, arguments)})
    return facts


def has_other_inputs(arguments: Mapping[str, Any]) -> bool:
    """Whether the stand-in "other inputs" applies: the output, or a part of it, is compared with the same part of eager."""
    (first, part), (other, same_part) = (name.partition(".")[::2] for name in (arguments["of"], arguments["to"]))
    return (first, other) == (OUTPUT, EAGER) and part == same_part


def add_other_inputs(facts: dict[str, Any], arguments: Mapping[str, Any], reference: Any, answer: Callable[[], Any]) -> None:
    """Add the stand-in "other inputs" to the result of ``measure``.

    ``reference`` is the eager value of the comparison, ``answer`` returns its value for other inputs. It is called after the case ends,
    because the case must not see another call of its function.
    """
    from torch.utils import _pytree as pytree

    references = [leaf for leaf in pytree.tree_leaves(_unnested(reference)) if leaf is not None]
    others = _others(answer, len(references))
    for leaf, right, other in zip(facts["leaves"], references, others, strict=False):
        if "stand_ins" in leaf:
            against = functools.partial(differences, rtol=leaf["rtol"], atol=leaf["atol"], equal_nan=arguments["equal_nan"])
            leaf["stand_ins"]["other inputs"] = measure_other_inputs(right, other, against)


def _others(answer: Callable[[], Any], count: int) -> list[Any]:
    """Return each leaf of the eager value for other inputs, or the reason why it is missing."""
    import torch
    from torch.utils import _pytree as pytree

    try:
        leaves = [leaf for leaf in pytree.tree_leaves(_unnested(answer())) if leaf is not None]
    except Exception as error:  # a spec's code may raise anything for unexpected inputs
        return [f"{type(error).__name__}: {error}"[:300]] * count
    if len(leaves) != count:
        return ["other inputs give another structure"] * count
    return [leaf if isinstance(leaf, torch.Tensor) else "other inputs give no tensor here" for leaf in leaves]


def _unnested(value: Any) -> Any:
    """Return a value as tensors with shapes: nested tensors as their components, sparse ones as dense, numpy arrays as tensors.

    A dataclass that is unknown to pytree becomes a map of its fields.
    """
    from torch.utils import _pytree as pytree

    return pytree.tree_map(_opened, value)


def _opened(leaf: Any) -> Any:
    import torch

    if isinstance(leaf, torch.Tensor):
        if leaf.is_nested:
            return tuple(leaf.unbind())
        return leaf.to_dense() if leaf.layout in (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc) else leaf
    if dataclasses.is_dataclass(leaf) and not isinstance(leaf, type):
        return {field.name: _unnested(getattr(leaf, field.name)) for field in dataclasses.fields(leaf)}
    kind = getattr(getattr(leaf, "dtype", None), "kind", "")
    if type(leaf).__module__ == "numpy" and kind and kind in "biufc":
        return torch.as_tensor(leaf)
    return leaf


def _structure(spec: Any) -> str:
    text = str(spec)
    # the digest covers the part that is cut
    return text if len(text) <= 2000 else f"{text[:2000]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()})"


def _leaf(leaf: Any, reference: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    facts = describe_leaf(leaf, reference, arguments)
    if "excess" in facts:
        rtol, atol = facts["rtol"], facts["atol"]
        against = functools.partial(differences, rtol=rtol, atol=atol, equal_nan=arguments["equal_nan"])
        facts["stand_ins"] = measure_stand_ins(reference, rtol=rtol, atol=atol, against=against)
        if not has_other_inputs(arguments):
            facts["stand_ins"]["other inputs"] = {"why_not": "only eager has a value for other inputs"}
    return facts


def describe_leaf(leaf: Any, reference: Any, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a value and its reference, and their differences if both are tensors of one shape."""
    import torch

    described = _describe(leaf)
    facts: dict[str, Any] = {**described, **{f"reference_{key}": text for key, text in _describe(reference).items()}}
    if not (isinstance(leaf, torch.Tensor) and isinstance(reference, torch.Tensor)):
        equal = type(leaf) is type(reference) and _is_equal(leaf, reference, arguments)
        return {**facts, "equal": equal, "value": repr(leaf)[:200], "reference_value": repr(reference)[:200]}
    if arguments["rtol"] is not None:
        rtol, atol = arguments["rtol"], arguments["atol"]
    else:
        rtol, atol = default_tolerance(described["dtype"], str(facts["reference_dtype"]))
    facts.update(rtol=rtol, atol=atol, numel=leaf.numel())
    if leaf.shape == reference.shape:
        facts.update(differences(leaf, reference, rtol=rtol, atol=atol, equal_nan=arguments["equal_nan"]))
    return facts


def _is_equal(value: Any, reference: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether two plain values of one type are equal. Floats are compared with the tolerance, by default that of float32."""
    if value is reference:
        return True
    if type(value) is float:
        rtol, atol = (arguments["rtol"], arguments["atol"]) if arguments["rtol"] is not None else default_tolerance("float32")
        both_nan = value != value and reference != reference
        return bool(both_nan or value == reference or abs(value - reference) <= atol + rtol * abs(reference))
    by_identity = getattr(type(value), "__eq__", None) is getattr(object, "__eq__", None)
    if by_identity and hasattr(value, "__dict__") and not isinstance(value, enum.Enum | type | types.FunctionType):
        raise TypeError(f"two objects of type {type(value).__name__} cannot be compared; name their parts (of: output.NAME)")
    return bool(value == reference or (value != value and reference != reference))


def _describe(value: Any) -> dict[str, Any]:
    import torch

    if isinstance(value, torch.Tensor):
        return {"type": "tensor", "shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch."), "device": value.device.type}
    return {"type": type(value).__name__, "shape": None, "dtype": None, "device": None}


_CHUNK = 1 << 24


def differences(actual: Any, reference: Any, *, rtol: float, atol: float, equal_nan: bool = True) -> dict[str, Any]:
    """Return the differences of two tensors of one shape, in float64; for complex numbers those of the absolute values.

    Infinite elements count as equal if both are the same infinity, otherwise as ``inf_mismatches``.
    """
    total: dict[str, Any] = {"nan_mismatches": 0, "inf_mismatches": 0, "mismatches": 0, "excess": 0.0, "max_abs": 0.0}
    total.update(worst_index=[], worst_value=None, worst_reference=None)
    actual, reference = actual.detach(), reference.detach()
    if actual.numel() == 0:
        return total
    flat = actual.reshape(-1), reference.to(actual.device).reshape(-1)
    for start in range(0, actual.numel(), _CHUNK):
        pair = flat[0][start : start + _CHUNK], flat[1][start : start + _CHUNK]
        _add_chunk(total, pair, start, actual.shape, rtol, atol, equal_nan)
    return total


def _wide(part: Any) -> Any:
    import torch

    return part.to(torch.complex128 if part.is_complex() else torch.float64)


def _distance(actual: Any, reference: Any, a: Any, b: Any) -> Any:
    """Return |a - b| in float64. Integers are subtracted exactly, so different integers never have the distance 0."""
    import torch

    if any(part.is_floating_point() or part.is_complex() for part in (actual, reference)):
        return (a - b).abs()
    (high, low), (other_high, other_low) = ((whole >> 32, whole & 0xFFFFFFFF) for whole in (actual.long(), reference.long()))
    return ((high - other_high).to(torch.float64) * 2.0**32 + (low - other_low).to(torch.float64)).abs()


def _add_chunk(total: dict[str, Any], pair: tuple[Any, Any], start: int, shape: Any, rtol: float, atol: float, equal_nan: bool) -> None:
    import torch

    a, b = map(_wide, pair)
    nan_a, nan_b = torch.isnan(a), torch.isnan(b)
    total["nan_mismatches"] += int(((nan_a ^ nan_b) if equal_nan else (nan_a | nan_b)).sum())
    infinite = (torch.isinf(a) | torch.isinf(b)) & ~(nan_a | nan_b)
    total["inf_mismatches"] += int((infinite & (a != b)).sum())
    finite = ~(infinite | nan_a | nan_b)
    difference = torch.where(finite, _distance(*pair, a, b), 0.0)
    excess = torch.where(finite, difference - rtol * b.abs(), 0.0)
    total["mismatches"] += int((excess > atol).sum())
    total["max_abs"] = max(total["max_abs"], float(difference.max()))
    place = int(excess.argmax())
    if total["worst_value"] is None or float(excess[place]) > total["excess"]:
        total["excess"] = max(float(excess[place]), 0.0)
        total["worst_index"] = [int(i) for i in torch.unravel_index(torch.tensor(start + place), shape)]
        total["worst_value"], total["worst_reference"] = _plain(a[place]), _plain(b[place])


def _plain(element: Any) -> float | str:
    return str(element.item()) if element.is_complex() else float(element)
