"""The measurements of ``close``, in the worker: leaves of values, differences, bits, and what needs a float64 reference of eager."""

import contextlib
import decimal
import enum
import functools
import hashlib
import math
import re
import types
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.model.protocol import Json
from runner.vocabulary.expectations.calibrated import FORMATS, LEAST_OF_SLICE, MEDIAN_FLOOR, format_of
from runner.vocabulary.expectations.calibrated_measure import (
    ROUNDINGS,
    NoReference,
    Sample,
    Scale,
    bounds_of,
    changed_elements,
    compare,
    errors_of,
    is_explained,
    is_reordered,
    other_change,
    quantiles_in,
    scale_of,
    units_of,
    wide,
)
from runner.vocabulary.expectations.close import Judge, default_tolerance, is_eager
from runner.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from runner.vocabulary.expectations.parts import has_equality, opened
from runner.vocabulary.expectations.stand_ins import Comparer, judged_stand_ins, measure_other_inputs, measure_stand_ins


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker. ``value`` returns a named value; tensors may be on any device and have any dtype."""
    import torch
    from torch.utils import _pytree as pytree

    ours, theirs = value(arguments["of"]), value(arguments["to"])
    kinds: tuple[list[str], list[str]] = [], []
    leaves, form = pytree.tree_flatten_with_path(unnested(ours, kinds[0]))
    reference_leaves, reference_form = pytree.tree_flatten_with_path(unnested(theirs, kinds[1]))
    facts: dict[str, Any] = {
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
            facts["leaves"].append(described)
            if "excess" not in described:
                continue
            comparer = _by_bits(reference, arguments)
            if comparer is None:
                against, rtol, atol = _against(described, arguments), described["rtol"], described["atol"]
                described["stand_ins"] = measure_stand_ins(reference, rtol=rtol, atol=atol, against=against)
            else:
                described.update(comparer(leaf))
                bounds = torch.zeros(reference.shape, dtype=torch.float64)
                described["stand_ins"] = judged_stand_ins(reference, bounds, comparer, exact=True)
            if not has_other_inputs(arguments):
                described["stand_ins"]["other inputs"] = {"why_not": "only eager has a value for other inputs"}
    return facts


def _strides(value: Any) -> list[int] | None:
    """Return the strides of a strided tensor in elements, 0 for dimensions of size 1, which have none that matters; else None."""
    import torch

    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided or not value.numel():
        return None
    return [0 if size == 1 else stride for size, stride in zip(value.shape, value.stride(), strict=True)]


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
    import torch

    references = leaves_of(reference)
    try:
        others = [leaf if isinstance(leaf, torch.Tensor) else "other inputs give no tensor here" for leaf in leaves_of(answer())]
        if len(others) != len(references):
            others = ["other inputs give another structure"] * len(references)
    except Exception as error:  # a spec's code may raise anything for unexpected inputs
        others = [f"{type(error).__name__}: {error}"[:300]] * len(references)
    for leaf, right, other in zip(facts["leaves"], references, others, strict=False):
        if "stand_ins" in leaf:
            comparer = (comparers or {}).get(id(leaf)) or _by_bits(right, arguments)
            leaf["stand_ins"]["other inputs"] = measure_other_inputs(right, other, _against(leaf, arguments), comparer)


def _against(leaf: Mapping[str, Any], arguments: Mapping[str, Any]) -> Callable[[Any, Any], Mapping[str, Any]]:
    return functools.partial(differences, rtol=leaf["rtol"], atol=leaf["atol"], equal_nan=arguments["equal_nan"])


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
        return {**facts, "equal": equal, "value": _text(leaf), "reference_value": _text(reference)}
    if arguments["rtol"] is not None:
        rtol, atol = arguments["rtol"], arguments["atol"]
    else:
        rtol, atol = default_tolerance(described["dtype"], str(facts["reference_dtype"]))
    facts.update(rtol=rtol, atol=atol, numel=leaf.numel())
    if leaf.shape == reference.shape:
        facts.update(differences(leaf, reference, rtol=rtol, atol=atol, equal_nan=arguments["equal_nan"]))
        facts.update(resemblance(leaf, reference))
    return facts


def _text(value: Any) -> str:
    return re.sub(r" at 0x[0-9a-f]+", "", repr(value))[:200]


def unnested(value: Any, notes: list[str] | None = None) -> Any:
    """Return a value as tensors with shapes: nested tensors as their components, sparse ones as dense, numpy arrays as tensors.

    An object becomes a map of its parts. ``notes`` receives what the result does not show: classes, layouts, offsets of jagged tensors.
    """
    notes = [] if notes is None else notes
    return opened(value, lambda leaf, where: _with_shape(leaf, where or "the value", notes), notes)


def _with_shape(leaf: Any, where: str, notes: list[str]) -> Any:
    import torch

    if not isinstance(leaf, torch.Tensor):
        kind = getattr(getattr(leaf, "dtype", None), "kind", "")
        if kind and kind not in "biufc" and getattr(leaf, "shape", ()):
            notes.append(f"{where} an array of {leaf.dtype}")
            return leaf.tolist()  # objects and texts, which == compares by element
        return torch.as_tensor(leaf) if kind and kind in "biufc" else leaf
    if leaf.is_nested:
        is_jagged = leaf.layout is torch.jagged
        lengths = leaf.lengths() if is_jagged else None
        offsets = f" with offsets {leaf.offsets().tolist()}" if is_jagged else ""
        notes.append(f"{where} nested {leaf.layout}{offsets}" + ("" if lengths is None else f" and lengths {lengths.tolist()}"))
        return tuple(leaf.unbind())
    if leaf.is_quantized:
        notes.append(f"{where} quantized {leaf.qscheme()} {leaf.dtype}")
        is_per_tensor = leaf.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
        names = (
            ("q_scale", "q_zero_point") if is_per_tensor else ("q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis")
        )
        return {"int_repr": leaf.int_repr(), **{name: getattr(leaf, name)() for name in names}}
    if leaf.layout is not torch.strided:
        notes.append(f"{where} {leaf.layout}" + " uncoalesced" * (leaf.is_sparse and not leaf.is_coalesced()))
    return dense(leaf)


def dense(tensor: Any) -> Any:
    """Return a sparse tensor, which has no strides, as a dense one; other tensors unchanged."""
    import torch

    sparse = (torch.sparse_coo, torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc)
    return tensor.to_dense() if tensor.layout in sparse else tensor


def structure(spec: Any, more: str = "") -> str:
    """Return pytree's structure in words, and what else is known of it, cut at 2,000 characters. Two structures have two texts."""
    text = _in_words(spec) + (f", {more}" if more else "")
    # the digest covers the part that is cut
    return text if len(text) <= 2000 else f"{text[:2000]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()})"


def _in_words(spec: Any) -> str:
    if spec.is_leaf():
        return "a value"
    parts = [_in_words(part) for part in (spec.children() if hasattr(spec, "children") else spec.children_specs)]
    if spec.type is dict and parts:
        keys = zip(spec.context, parts, strict=True)
        return "a dict with " + ", ".join(repr(key) if part == "a value" else f"{key!r} ({part})" for key, part in keys)
    name = spec.type.__name__ + (f" {spec.context}" if spec.context else "")
    if set(parts) == {"a value"}:
        return f"a {name} of {len(parts)} value{'s' * (len(parts) > 1)}"
    return f"a {name} ({', '.join(parts)})" if parts else f"an empty {name}"


def leaves_of(value: Any) -> list[Any]:
    """Return the leaves of a value that is opened as ``unnested`` does, without None."""
    from torch.utils import _pytree as pytree

    return [leaf for leaf in pytree.tree_leaves(unnested(value)) if leaf is not None]


def is_equal(value: Any, reference: Any, arguments: Mapping[str, Any]) -> bool:
    """Whether two plain values of one type are equal. Floats are compared as the judge says, by default with the tolerance of float32."""
    if value is reference:
        return True
    if isinstance(value, float | complex) and arguments.get("judge") == Judge.EXACT.value:
        # zeros of two signs differ
        parts = ([number.real, number.imag] if isinstance(number, complex) else [number] for number in (value, reference))
        return all(ours.hex() == theirs.hex() for ours, theirs in zip(*parts, strict=True))
    if type(value) is float:
        # the tolerance of float32, but no other number equals 0: a loss of 5e-6 is one
        rtol, atol = (arguments["rtol"], arguments["atol"]) if arguments["rtol"] is not None else (default_tolerance("float32")[0], 0.0)
        both_nan, is_finite = value != value and reference != reference, math.isfinite(value) and math.isfinite(reference)
        return bool(both_nan or value == reference or (is_finite and abs(value - reference) <= atol + rtol * abs(reference)))
    if not has_equality(value) and not isinstance(value, enum.Enum | type | types.FunctionType):
        raise TypeError(f"two objects of type {type(value).__name__} cannot be compared; name their parts (of: output.NAME)")
    if isinstance(value, range | decimal.Decimal):
        return repr(value) == repr(reference)  # 1.10 and 1.1 are equal, and two numbers
    if isinstance(value, set | frozenset):
        return bool(value == reference and Counter(map(type, value)) == Counter(map(type, reference)))
    return bool(value == reference or (value != value and reference != reference))


def describe(value: Any) -> dict[str, Any]:
    """Return the type of a value; shape, dtype and device of a tensor."""
    import torch

    if isinstance(value, torch.Tensor):
        return {"type": "tensor", "shape": list(value.shape), "dtype": str(value.dtype).removeprefix("torch."), "device": value.device.type}
    return {"type": type(value).__name__, "shape": None, "dtype": None, "device": None}


_CHUNK = 1 << 24


def differences(actual: Any, reference: Any, *, rtol: float, atol: float, equal_nan: bool = True) -> dict[str, Any]:
    """Return the differences of two tensors of one shape, in float64; for complex numbers those of the absolute values.

    Infinite elements count as equal if both are the same infinity, otherwise as ``inf_mismatches``. ``sides`` has, where they or NaN
    differ, how many elements are NaN, inf or -inf in each of the two, and in one alone.
    """
    import torch

    total: dict[str, Any] = {"nan_mismatches": 0, "inf_mismatches": 0, "mismatches": 0, "excess": 0.0, "max_abs": 0.0}
    total.update(worst_index=[], worst_value=None, worst_reference=None)
    numbers, expected = actual.detach().reshape(-1), reference.detach().to(actual.device).reshape(-1)
    sides = {what: [0, 0, 0] for what in ("NaN", "inf", "-inf")}
    are_whole = not any(part.is_floating_point() or part.is_complex() for part in (numbers, expected))
    for start in range(0, actual.numel(), _CHUNK):
        pair = numbers[start : start + _CHUNK], expected[start : start + _CHUNK]
        a, b = map(wide, pair)
        nan_a, nan_b = torch.isnan(a), torch.isnan(b)
        total["nan_mismatches"] += int(((nan_a ^ nan_b) if equal_nan else (nan_a | nan_b)).sum())
        infinite = (torch.isinf(a) | torch.isinf(b)) & ~(nan_a | nan_b)
        total["inf_mismatches"] += int((infinite & (a != b)).sum())
        finite = ~(infinite | nan_a | nan_b)
        if not finite.all():
            negative = a == -torch.inf, b == -torch.inf
            places = (nan_a, nan_b), (a.isinf() & ~negative[0], b.isinf() & ~negative[1]), negative
            for counts, (ours, theirs) in zip(sides.values(), places, strict=True):
                counts[:] = [count + int(part.sum()) for count, part in zip(counts, (ours, theirs, ours ^ theirs), strict=True)]
        distance = (a - b).abs()
        if are_whole:
            # integers are subtracted exactly, so different integers never have the distance 0
            (high, low), (other_high, other_low) = ((part.long() >> 32, part.long() & 0xFFFFFFFF) for part in pair)
            distance = ((high - other_high).to(torch.float64) * 2.0**32 + (low - other_low).to(torch.float64)).abs()
        difference = torch.where(finite, distance, 0.0)
        excess = torch.where(finite, difference - rtol * b.abs(), 0.0)
        total["mismatches"] += int((excess > atol).sum())
        total["max_abs"] = max(total["max_abs"], float(difference.max()))
        place = int(excess.argmax())
        if total["worst_value"] is None or float(excess[place]) > total["excess"]:
            total["excess"] = max(float(excess[place]), 0.0)
            total["worst_index"] = [int(index) for index in torch.unravel_index(torch.tensor(start + place), actual.shape)]
            total["worst_value"], total["worst_reference"] = (_shown(part[place]) for part in pair)
    if total["nan_mismatches"] or total["inf_mismatches"]:
        total["sides"] = {what: counts for what, counts in sides.items() if counts[2] or (what == "NaN" and not equal_nan and any(counts))}
    return total


def resemblance(actual: Any, reference: Any) -> dict[str, float]:
    """Return the length of an answer in those of its reference, as vectors, and the cosine of their angle; without what is not finite.

    Both tell wrong answers of about one error apart: zeros have the size 0, a negated answer the likeness -1. ``bias`` and ``outward`` say
    which way small errors go: the mean error, and the mean error away from zero, in mean absolute errors.
    """
    import torch

    squares = products = expected = error = above = outward = 0.0
    numbers, right = actual.detach().reshape(-1), reference.detach().to(actual.device).reshape(-1)
    for start in range(0, actual.numel(), _CHUNK):
        a, b = (wide(part[start : start + _CHUNK]) for part in (numbers, right))
        both = torch.isfinite(a) & torch.isfinite(b)
        a, b = torch.where(both, a, 0.0), torch.where(both, b, 0.0)
        squares += float(torch.vdot(a, a).real)
        expected += float(torch.vdot(b, b).real)
        products += float(torch.vdot(a, b).real)
        apart = a - b
        error, above = error + float(apart.abs().sum()), above + float(apart.real.sum())
        outward += float((apart * b.sgn().conj()).real.sum())
    ways = {"bias": above / error, "outward": outward / error} if 0 < error < math.inf else {}
    if not math.isfinite(squares + expected):
        return {"size": 1.0, "likeness": 0.0, **ways}
    lengths = math.sqrt(squares) * math.sqrt(expected)
    size = math.sqrt(squares / expected) if expected else float(squares == 0)
    return {"size": size, "likeness": products / lengths if lengths else 0.0, **ways}


def _shown(element: Any) -> float | int | str:
    """Return a number as messages show it: integers with every digit, which float64 does not hold, bools and complex numbers as text."""
    return str(element.item()) if element.dtype.is_complex or str(element.dtype) == "torch.bool" else element.item()


def bits(actual: Any, reference: Any) -> dict[str, Any]:
    """Return how many elements differ in their bits, and the first of them. Any NaN equals any other; zeros of two signs differ."""
    import torch

    actual, reference = actual.detach().contiguous(), reference.detach().to(actual.device).contiguous()
    if actual.is_complex():
        actual, reference = torch.view_as_real(actual.resolve_conj()), torch.view_as_real(reference.resolve_conj())
    apart = actual != reference
    if actual.is_floating_point():
        whole = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[actual.element_size()]
        apart = (actual.view(whole) != reference.view(whole)) & ~(actual.isnan() & reference.isnan())
    places = apart.reshape(-1).nonzero().reshape(-1)
    facts: dict[str, Any] = {"differing": len(places), "index": [], "value": None, "reference": None}
    if len(places):
        at = int(places[0])
        facts["index"] = [int(part) for part in torch.unravel_index(torch.tensor(at), actual.shape)]
        facts.update(value=repr(actual.reshape(-1)[at].item()), reference=repr(reference.reshape(-1)[at].item()))
    return facts


@dataclass(frozen=True, slots=True)
class Answers:
    """The runs of eager after the case."""

    again: Any
    """Eager's answer to the same inputs."""
    reference: Any
    """The float64 reference for the same inputs."""
    pairs: Sequence[tuple[Any, Any, float]]
    """Answers of eager with their references, for the same and for nudged inputs, and the resolution of nudged ones."""
    through: Sequence[str] = ()
    """For each leaf of the answer the narrowest format that eager rounded its values to on their way; empty where there is none."""
    jittered: Sequence[Any] = ()
    """Answers of eager to the same inputs with other roundings; empty where it refused."""
    amplitude: float = 1.0
    """How many units these roundings move a number by, at most."""
    fine: Callable[[], Sequence[Any]] | None = None
    """Makes the same with fine roundings: of one unit, but of operators that add. None where the two sides began with other numbers."""
    otherwise: Callable[[str], Any] | None = None
    """Makes the call of eager "on the CPU" or "without TF32"."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """A comparison whose facts are completed."""

    facts: dict[str, Any]
    arguments: Mapping[str, Any]
    values: Mapping[str, Any]
    """The compared values, by the words ``of`` and ``to``."""
    comparers: dict[int, Comparer]
    """Filled with what compares other tensors in the same way, by the identity of a leaf's facts."""
    with_stand_ins: bool = True
    """Whether stand-ins are measured, and a histogram of right answers is sent."""
    unwritten: Sequence[Any] = ()
    before: Sequence[Any] = ()
    """For each leaf a mask of the elements that eager left as they were before, or None; empty for a result."""


def add_reference(comparison: Comparison, answers: Callable[[Any], Answers]) -> None:
    """Add the facts to each leaf of two tensors, or ``why_not``; ``answers`` makes the runs for what eager returned."""
    leaves = comparison.facts["leaves"]
    try:
        eager_runs = answers(comparison.values["to"])
        own = {word: leaves_of(value) for word, value in comparison.values.items()}
        again, reference = leaves_of(eager_runs.again), leaves_of(eager_runs.reference)
        pairs = [(leaves_of(answer), leaves_of(right), step) for answer, right, step in eager_runs.pairs]
        jittered = [leaves_of(answer) for answer in eager_runs.jittered]
        everything = [*own.values(), again, reference, *jittered, *(part for answer, right, _ in pairs for part in (answer, right))]
        are_alike = all(len(parts) == len(leaves) for parts in everything)
        why_not = "" if are_alike else "another run of eager gives another structure"
    except Exception as error:  # code of a spec may raise anything when it is called again
        why_not = _why(error)
    if why_not:
        for leaf in leaves:
            leaf["calibrated"] = {"why_not": why_not}
        return
    for index, leaf in enumerate(leaves):
        if leaf["type"] == leaf["reference_type"] == "float" and not leaf["equal"]:
            ours, theirs = (own[word][index] for word in ("of", "to"))
            movement = max((abs(answer[index] - theirs) for answer in jittered), default=0.0) / eager_runs.amplitude
            leaf.update({"distance": abs(ours - theirs), "movement": movement} if math.isfinite(abs(ours - theirs) + movement) else {})
        if leaf["type"] != "tensor" or leaf["reference_type"] != "tensor" or leaf["shape"] != leaf["reference_shape"]:
            continue
        try:
            samples = [Sample(answer[index], right[index], step) for answer, right, step in pairs]
            through = eager_runs.through[index] if eager_runs.through else ""
            moved = [answer[index] for answer in jittered]
            amplitude = eager_runs.amplitude
            is_suspect = eager_runs.fine is not None and _is_suspect(own["of"][index], own["to"][index], reference[index])
            finely = [leaves_of(answer)[index] for answer in eager_runs.fine()] if is_suspect and eager_runs.fine is not None else []
            judged = functools.partial(_scale, leaf, own["to"][index], again[index], reference[index], samples, through, amplitude, finely)
            scale, is_wrong = judged(moved), False
            if scale.unexplained and leaf["reference_device"] not in ("cpu", "meta") and eager_runs.otherwise is not None:
                with contextlib.suppress(Exception):  # a function may need its device
                    if leaf["reference_device"] == "cuda" and is_explained(
                        leaves_of(eager_runs.otherwise("without TF32"))[index], reference[index], moved, amplitude
                    ):
                        scale = judged([])  # the settings allow TF32; jittered inputs have no such error
                    else:
                        is_wrong = is_explained(leaves_of(eager_runs.otherwise("on the CPU"))[index], reference[index], moved, amplitude)
            _add(comparison, leaf, own["of"][index], scale)
            if is_wrong:
                leaf["calibrated"]["is_wrong"] = True
            if comparison.unwritten and comparison.unwritten[index] is not None:
                before = comparison.before[index] if comparison.before else None
                changed = changed_elements(own["of"][index], scale, comparison.unwritten[index], before)
                leaf["calibrated"].update({"unwritten": changed} if changed else {})
            if comparison.before and comparison.before[index] is not None:
                leaf.pop("change", None)
                moved_by_one = scale.nudge * (scale.form.nudges / ROUNDINGS) if scale.form is FORMATS["float64"] else None
                change = other_change(own["of"][index], own["to"][index], comparison.before[index], scale.precise, moved_by_one)
                leaf.update({"change": change} if change else {})
        except Exception as error:  # an operation that this leaf's dtype or layout lacks: the other leaves are judged
            leaf["calibrated"] = {"why_not": _why(error)}


def _is_suspect(answer: Any, eager: Any, reference: Any) -> bool:
    """Whether the median of an answer is so far from eager or float64 that runs with fine roundings decide on it."""
    form = format_of(str(eager.dtype).removeprefix("torch."))
    if form is None or not form.nudges or eager.numel() < LEAST_OF_SLICE or answer.shape != eager.shape or answer.dtype != eager.dtype:
        return False
    ours, right = wide(answer), wide(reference).to(answer.device)
    units = units_of(right, form)
    return any(quantiles_in(errors_of(ours, other) / units, (0.5,))[0] > MEDIAN_FLOOR for other in (right, wide(eager).to(answer.device)))


def _why(error: Exception) -> str:
    return str(error) if isinstance(error, NoReference) else f"{type(error).__name__}: {error}"[:200]


def _scale(
    leaf: Mapping[str, Any],
    eager: Any,
    again: Any,
    right: Any,
    samples: Sequence[Sample],
    through: str,
    amplitude: float,
    fine: Sequence[Any],
    moved: Sequence[Any],
) -> Scale:
    if leaf["dtype"] != leaf["reference_dtype"]:
        raise NoReference("the dtypes differ")
    everything = [again, right, *moved, *fine, *(part for sample in samples for part in (sample.answer, sample.reference))]
    if any(getattr(part, "shape", None) != eager.shape for part in everything):
        raise NoReference("another run of eager gives another shape")
    if not (eager.is_floating_point() or eager.is_complex()):
        raise NoReference(f"values of dtype {leaf['dtype']} are exact")
    if any(part.element_size() != (16 if part.is_complex() else 8) for part in [right, *(sample.reference for sample in samples)]):
        raise NoReference("the function computes in a narrower dtype than float64 itself")
    rtol, atol = default_tolerance(leaf["dtype"])
    apart = differences(again, eager, rtol=rtol, atol=atol)
    if apart["nan_mismatches"] or apart["inf_mismatches"] or (apart["mismatches"] and not is_reordered([eager, again], right)):
        raise NoReference("a second run of eager gives another answer")
    return scale_of(samples, eager, right, through, moved, amplitude, fine)


def _add(comparison: Comparison, leaf: dict[str, Any], actual: Any, scale: Scale) -> None:
    right = scale.eager.reshape(actual.shape).to(actual.dtype)
    equal_nan = comparison.arguments["equal_nan"]

    def comparer(tensor: Any) -> dict[str, Json]:
        mismatches = differences(tensor, right, rtol=leaf["rtol"], atol=leaf["atol"], equal_nan=equal_nan)
        facts: dict[str, Json] = {name: mismatches[name] for name in ("nan_mismatches", "inf_mismatches", "excess")}
        return {**facts, "calibrated": compare(tensor, scale, equal_nan=equal_nan, histogram=False)}

    leaf["calibrated"] = compare(actual, scale, equal_nan=equal_nan)
    if not comparison.with_stand_ins:
        if not leaf["calibrated"]["outside"]:
            leaf["calibrated"].pop("histogram", None)
        return
    bounds = bounds_of(scale).reshape(actual.shape)
    leaf["stand_ins"] = {**leaf.get("stand_ins", {}), **judged_stand_ins(right, bounds, comparer)}
    comparison.comparers[id(leaf)] = comparer
