"""How two values are compared, in the worker: they are opened to tensors and plain values, and each
pair of these is measured.

What is no tensor and no container of pytree is opened too: objects, closures, iterators, subclasses
of dict.
"""

import decimal
import enum
import hashlib
import math
import re
import types
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

from torch_conformance.vocabulary.expectations.calibrated import wide
from torch_conformance.vocabulary.picture import anatomy, attributes_of, is_atom
from torch_conformance.vocabulary.worker_session import Facts, NewFacts
from torch_conformance.vocabulary.worker_torch import Tensor, pytree, torch

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


# -- the parts of a value --------------------------------------------------------------------------

_DEEPEST = 50


def is_whole(value: object) -> bool:
    """Whether pytree does not make a tuple again as it is: ``torch.Size`` becomes a tuple, and a
    named tuple loses its attributes.
    """
    return isinstance(value, torch.Size) or (
        isinstance(value, tuple) and bool(attributes_of(value))
    )


def _is_keyless(value: object) -> bool:
    node = pytree.SUPPORTED_NODES.get(type(value))
    return is_whole(value) or (node is not None and node.flatten_with_keys_fn is None)


def parts_of(value: object) -> tuple[str, dict[str, Any]] | None:
    """Return the form and the parts of an object by their names; None for a value without parts,
    which only its ``__eq__`` compares.
    """
    if is_atom(value) or isinstance(value, set | frozenset | bytearray | type | types.ModuleType):
        return None
    whole = anatomy(value)
    if whole.is_opaque or (not whole.parts and has_equality(value)):
        return None
    return whole.form, {name.removeprefix("."): part for name, part in whole.parts}


def has_equality(value: object) -> bool:
    """Whether the class of a value defines when two of them are equal."""
    return any("__eq__" in kind.__dict__ for kind in type(value).__mro__[:-1])


def opened(
    value: object,
    tensor: Callable[[Any, str], Any],
    notes: list[str],
    where: str = "",
    above: tuple[Any, ...] = (),
) -> Any:
    """Return a value with each object as a map of its parts, and ``tensor`` applied to tensors and
    to arrays of numpy, and their paths.

    ``notes`` receives what the result does not show: the classes of the objects. An object within
    itself becomes a text.
    """

    def open_leaf(leaf: object, where: str) -> Any:
        if isinstance(leaf, torch.Tensor):
            parts = {
                name.removeprefix("."): part
                for name, part in anatomy(leaf).parts
                if not name.startswith(".hook")
            }
            if not parts:
                return tensor(leaf, where)
            notes.append(f"{where or 'the value'} with attributes")
            return {
                "tensor": tensor(leaf, where),
                **opened(parts, tensor, notes, where, (*above, leaf)),
            }
        if type(leaf).__module__ == "numpy":
            return tensor(leaf, where)
        for level, other in enumerate(above):
            if other is leaf:
                return f"the object {level} levels above"
        whole = parts_of(leaf) if len(above) < _DEEPEST else None
        if whole is None:
            return leaf
        form, named = whole
        notes.append(f"{where or 'the value'} of class {form}")
        return opened(named, tensor, notes, where, (*above, leaf))

    leaves, form = pytree.tree_flatten_with_path(value, is_leaf=_is_keyless)
    return pytree.tree_unflatten(
        [open_leaf(leaf, where + pytree.keystr(path)) for path, leaf in leaves], form
    )


# -- two values ------------------------------------------------------------------------------------


def describe_leaf(leaf: object, reference: object, arguments: Facts) -> NewFacts:
    """Return the facts of a value and its reference, and their differences if both are tensors of
    one shape.
    """
    described = describe(leaf)
    facts: NewFacts = {
        **described,
        **{f"reference_{key}": text for key, text in describe(reference).items()},
    }
    if not (isinstance(leaf, torch.Tensor) and isinstance(reference, torch.Tensor)):
        equal = type(leaf) is type(reference) and is_equal(leaf, reference, arguments)
        texts = (re.sub(r" at 0x[0-9a-f]+", "", repr(side))[:200] for side in (leaf, reference))
        return {
            **facts,
            "equal": equal,
            **dict(zip(("value", "reference_value"), texts, strict=True)),
        }
    if arguments["rtol"] is not None:
        rtol, atol = arguments["rtol"], arguments["atol"]
    else:
        rtol, atol = default_tolerance(described["dtype"], str(facts["reference_dtype"]))
    facts.update(rtol=rtol, atol=atol, numel=leaf.numel())
    if leaf.shape == reference.shape:
        facts.update(
            differences(leaf, reference, rtol=rtol, atol=atol, equal_nan=arguments["equal_nan"])
        )
        facts.update(resemblance(leaf, reference))
        if facts["nan_mismatches"] or facts["inf_mismatches"] or facts["mismatches"]:
            right = wide(reference).to(leaf.device)
            apart, bound = (wide(leaf) - right).abs(), atol + rtol * right.abs()
            facts["picture"] = picture(leaf, reference, apart / bound)
    return facts


SIDE = 32
"""The cells of a picture are at most those of a square of this side."""


def picture(actual: Tensor, reference: Tensor, error: Tensor) -> NewFacts:
    """Return where a tensor is wrong: the element with the greatest error of each cell of a grid
    over it.

    ``error`` is in units of the bound, and infinite where a bound of 0 is not met. The columns are
    those of the last dimension.
    """
    ours, theirs = (wide(side).cpu() for side in (actual, reference))
    is_same = (ours == theirs) | (ours.isnan() & theirs.isnan())
    if not any(side.is_floating_point() or side.is_complex() for side in (actual, reference)):
        whole = (side.detach().cpu().long().reshape(-1) for side in (actual, reference))
        is_same = torch.eq(*whole)  # float64 does not hold every integer
    numel, width = actual.numel(), actual.shape[-1] if actual.ndim else 1
    height = numel // width
    rows = min(height, SIDE)
    columns = min(width, SIDE * SIDE // rows)
    rows = min(height, SIDE * SIDE // columns)
    error = error.reshape(-1).cpu()
    error = torch.where(is_same, 0.0, torch.where(error.isfinite(), error, torch.inf))
    across = torch.arange(width) * columns // width
    cells = ((torch.arange(height) * rows // height)[:, None] * columns + across).reshape(-1)
    worst = torch.zeros(rows * columns, dtype=error.dtype).scatter_reduce(
        0, cells, error, "amax", include_self=False
    )
    found = (error == worst[cells]).nonzero()[:, 0]
    places = torch.zeros(rows * columns, dtype=torch.int64)
    places[cells[found]] = found

    def shown(numbers: Tensor) -> list[float]:
        parts = numbers[places]
        parts = parts.abs() if parts.is_complex() else parts
        return [float(f"{number:.4g}") for number in parts.tolist()]

    sides = {"errors": shown(error), "values": shown(ours), "eager_values": shown(theirs)}
    return {"columns": columns, "size": [height, width], **sides}


def unnested(value: object, notes: list[str] | None = None) -> Any:
    """Return a value as tensors with shapes: nested tensors as their components, sparse ones as
    dense, numpy arrays as tensors.

    An object becomes a map of its parts. ``notes`` receives what the result does not show: classes,
    layouts, offsets of jagged tensors.
    """
    notes = [] if notes is None else notes
    return opened(value, lambda leaf, where: _with_shape(leaf, where or "the value", notes), notes)


def _with_shape(leaf: Any, where: str, notes: list[str]) -> Any:
    if not isinstance(leaf, torch.Tensor):
        kind = getattr(getattr(leaf, "dtype", None), "kind", "")
        notes.append(f"{where} of class {type(leaf).__name__}")
        if kind and kind not in "biufc" and getattr(leaf, "shape", ()):
            notes.append(f"{where} an array of {leaf.dtype}")
            return leaf.tolist()  # objects and texts, which == compares by element
        return torch.as_tensor(leaf) if kind and kind in "biufc" else leaf
    if leaf.is_nested:
        is_jagged = leaf.layout is torch.jagged
        lengths = leaf.lengths() if is_jagged else None
        offsets = f" with offsets {leaf.offsets().tolist()}" if is_jagged else ""
        notes.append(
            f"{where} nested {leaf.layout}{offsets}"
            + ("" if lengths is None else f" and lengths {lengths.tolist()}")
        )
        return tuple(leaf.unbind())
    if leaf.is_quantized:
        notes.append(f"{where} quantized {leaf.qscheme()} {leaf.dtype}")
        is_per_tensor = leaf.qscheme() in (torch.per_tensor_affine, torch.per_tensor_symmetric)
        names = (
            ("q_scale", "q_zero_point")
            if is_per_tensor
            else ("q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis")
        )
        return {"int_repr": leaf.int_repr(), **{name: getattr(leaf, name)() for name in names}}
    if leaf.layout is not torch.strided:
        notes.append(
            f"{where} {leaf.layout}" + " uncoalesced" * (leaf.is_sparse and not leaf.is_coalesced())
        )
    return dense(leaf)


def dense(tensor: Tensor) -> Tensor:
    """Return a sparse tensor, which has no strides, as a dense one; other tensors unchanged."""
    sparse = (
        torch.sparse_coo,
        torch.sparse_csr,
        torch.sparse_csc,
        torch.sparse_bsr,
        torch.sparse_bsc,
    )
    return tensor.to_dense() if tensor.layout in sparse else tensor


def structure(spec: object, more: str = "") -> str:
    """Return pytree's structure in words, and what else is known of it, cut at 2,000 characters.

    Two structures have two texts.
    """
    text = _in_words(spec) + (f", {more}" if more else "")
    # the digest covers the part that is cut
    return (
        text
        if len(text) <= 2000
        else f"{text[:2000]}... (sha256 {hashlib.sha256(text.encode()).hexdigest()})"
    )


def _in_words(spec: Any) -> str:
    if spec.is_leaf():
        return "a value"
    parts = [
        _in_words(part)
        for part in (spec.children() if hasattr(spec, "children") else spec.children_specs)
    ]
    if spec.type is dict and parts:
        keys = zip(spec.context, parts, strict=True)
        return "a dict with " + ", ".join(
            repr(key) if part == "a value" else f"{key!r} ({part})" for key, part in keys
        )
    name = spec.type.__name__ + (f" {spec.context}" if spec.context else "")
    if set(parts) == {"a value"}:
        return f"a {name} of {len(parts)} value{'s' * (len(parts) > 1)}"
    return f"a {name} ({', '.join(parts)})" if parts else f"an empty {name}"


def leaves_of(value: object) -> list[Any]:
    """Return the leaves of a value that is opened as ``unnested`` does, without None."""
    return [leaf for leaf in pytree.tree_leaves(unnested(value)) if leaf is not None]


def is_equal(value: object, reference: Any, arguments: Facts) -> bool:
    """Whether two plain values of one type are equal.

    Floats are compared as the judge says, by default with the tolerance of float32.
    """
    if value is reference:
        return True
    if isinstance(value, float | complex) and arguments.get("judge") == "exact":
        # zeros of two signs differ
        parts = (
            [number.real, number.imag] if isinstance(number, complex) else [number]
            for number in (value, reference)
        )
        return all(ours.hex() == theirs.hex() for ours, theirs in zip(*parts, strict=True))
    if type(value) is float:
        # the tolerance of float32, but no other number equals 0: a loss of 5e-6 is one
        rtol, atol = (
            (arguments["rtol"], arguments["atol"])
            if arguments["rtol"] is not None
            else (default_tolerance("float32")[0], 0.0)
        )
        both_nan, is_finite = (
            value != value and reference != reference,
            math.isfinite(value) and math.isfinite(reference),
        )
        return bool(
            both_nan
            or value == reference
            or (is_finite and abs(value - reference) <= atol + rtol * abs(reference))
        )
    if not has_equality(value) and not isinstance(value, enum.Enum | type | types.FunctionType):
        raise TypeError(
            f"two objects of type {type(value).__name__} cannot be compared; name their parts "
            "(of: output.NAME)"
        )
    if isinstance(value, range | decimal.Decimal):
        return repr(value) == repr(reference)  # 1.10 and 1.1 are equal, and two numbers
    if isinstance(value, set | frozenset):
        return bool(
            value == reference and Counter(map(type, value)) == Counter(map(type, reference))
        )
    return bool(value == reference or (value != value and reference != reference))


def describe(value: object) -> NewFacts:
    """Return the type of a value; shape, dtype and device of a tensor."""
    if isinstance(value, torch.Tensor):
        return {
            "type": "tensor",
            "shape": list(value.shape),
            "dtype": str(value.dtype).removeprefix("torch."),
            "device": value.device.type,
        }
    return {"type": type(value).__name__, "shape": None, "dtype": None, "device": None}


_CHUNK = 1 << 24


def differences(
    actual: Tensor, reference: Tensor, *, rtol: float, atol: float, equal_nan: bool = True
) -> NewFacts:
    """Return the differences of two tensors of one shape, in float64; for complex numbers those of
    the absolute values.

    Infinite elements count as equal if both are the same infinity, otherwise as ``inf_mismatches``.
    ``sides`` has, where they or NaN differ, how many elements are NaN, inf or -inf in each of the
    two, and in only one of them.
    """
    total: NewFacts = {
        "nan_mismatches": 0,
        "inf_mismatches": 0,
        "mismatches": 0,
        "excess": 0.0,
        "max_abs": 0.0,
    }
    total.update(worst_index=[], worst_value=None, worst_reference=None)
    numbers, expected = (
        actual.detach().reshape(-1),
        reference.detach().to(actual.device).reshape(-1),
    )
    sides = {what: [0, 0, 0] for what in ("NaN", "inf", "-inf")}
    are_whole = not any(
        part.is_floating_point() or part.is_complex() for part in (numbers, expected)
    )
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
                counts[:] = [
                    count + int(part.sum())
                    for count, part in zip(counts, (ours, theirs, ours ^ theirs), strict=True)
                ]
        distance = (a - b).abs()
        if are_whole:
            # integers are subtracted exactly, so different integers never have the distance 0
            (high, low), (other_high, other_low) = (
                (part.long() >> 32, part.long() & 0xFFFFFFFF) for part in pair
            )
            distance = (
                (high - other_high).to(torch.float64) * 2.0**32
                + (low - other_low).to(torch.float64)
            ).abs()
        difference = torch.where(finite, distance, 0.0)
        excess = torch.where(finite, difference - rtol * b.abs(), 0.0)
        total["mismatches"] += int((excess > atol).sum())
        total["max_abs"] = max(total["max_abs"], float(difference.max()))
        place = int(excess.argmax())
        if total["worst_value"] is None or float(excess[place]) > total["excess"]:
            total["excess"] = max(float(excess[place]), 0.0)
            total["worst_index"] = [
                int(index)
                for index in torch.unravel_index(torch.tensor(start + place), actual.shape)
            ]
            total["worst_value"], total["worst_reference"] = (_shown(part[place]) for part in pair)
    if total["nan_mismatches"] or total["inf_mismatches"]:
        total["sides"] = {
            what: counts
            for what, counts in sides.items()
            if counts[2] or (what == "NaN" and not equal_nan and any(counts))
        }
    return total


def resemblance(actual: Tensor, reference: Tensor) -> dict[str, float]:
    """Return norm(``actual``) / norm(``reference``), and the cosine of their angle, of two tensors
    with as many elements, in float64; elements that are not finite in both are left out.

    Both tell wrong answers of about one error apart: zeros have the size 0, a negated answer the
    likeness -1. ``bias`` and ``outward`` say which way small errors go: the mean error, and the
    mean error away from zero, in mean absolute errors.
    """
    answers, rights = (
        tensor.detach().to(actual.device).reshape(-1) for tensor in (actual, reference)
    )
    sums: defaultdict[str, float] = defaultdict(float)
    for start in range(0, actual.numel(), _CHUNK):
        answer, right = (wide(part[start : start + _CHUNK]) for part in (answers, rights))
        is_finite = torch.isfinite(answer) & torch.isfinite(right)
        answer, right = (torch.where(is_finite, part, 0.0) for part in (answer, right))
        error = answer - right
        for name, of_chunk in {
            "answer squared": torch.vdot(answer, answer),
            "right squared": torch.vdot(right, right),
            "product": torch.vdot(answer, right),
            "errors": error.abs().sum(),
            "bias": error.sum(),
            "outward": (error * right.sgn().conj()).sum(),
        }.items():
            sums[name] += float(of_chunk.real)
    squared, right_squared, errors = sums["answer squared"], sums["right squared"], sums["errors"]
    is_off = 0 < errors < math.inf
    ways = {name: sums[name] / errors for name in ("bias", "outward")} if is_off else {}
    if not math.isfinite(squared + right_squared):
        return {"size": 1.0, "likeness": 0.0, **ways}
    lengths = math.sqrt(squared) * math.sqrt(right_squared)
    size = math.sqrt(squared / right_squared) if right_squared else float(squared == 0)
    return {"size": size, "likeness": sums["product"] / lengths if lengths else 0.0, **ways}


def _shown(element: Tensor) -> float | int | str:
    """Return a number as messages show it: integers with every digit, which float64 does not hold,
    bools and complex numbers as text.
    """
    return (
        str(element.item())
        if element.dtype.is_complex or str(element.dtype) == "torch.bool"
        else element.item()
    )


def bits(actual: Tensor, reference: Tensor, *, of_nan: bool = False) -> NewFacts:
    """Return how many elements differ in their bits, and the first of them.

    Any NaN equals any other, unless the bits ``of_nan`` count; zeros of two signs differ.
    """
    plain = [
        tensor.detach().resolve_conj().resolve_neg().contiguous()
        for tensor in (actual, reference.to(actual.device))
    ]
    ours, theirs = (
        torch.view_as_real(tensor) if tensor.is_complex() else tensor.unsqueeze(-1)
        for tensor in plain
    )
    if ours.is_floating_point():
        whole = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[
            ours.element_size()
        ]
        apart = ours.view(whole) != theirs.view(whole)
        if not of_nan:
            apart &= ~(ours.isnan() & theirs.isnan())
    else:
        apart = ours != theirs
    places = apart.any(-1).reshape(-1).nonzero().reshape(-1)
    facts: NewFacts = {"differing": len(places), "index": [], "value": None, "reference": None}
    if len(places):
        at = int(places[0])
        facts["index"] = [int(part) for part in torch.unravel_index(torch.tensor(at), actual.shape)]
        facts.update(
            value=repr(plain[0].reshape(-1)[at].item()),
            reference=repr(plain[1].reshape(-1)[at].item()),
        )
        if facts["value"] == facts["reference"]:  # two NaN: their bytes tell them apart
            facts["value"], facts["reference"] = (
                f"{text} of the bytes {tensor.reshape(-1)[at : at + 1].view(torch.uint8).tolist()}"
                for text, tensor in zip((facts["value"], facts["reference"]), plain, strict=True)
            )
    return facts
