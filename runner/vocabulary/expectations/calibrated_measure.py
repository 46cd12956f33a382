"""The measurements of the calibrated judge, in the worker: errors against a float64 reference, eager's own by group, biases."""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from runner.model.protocol import Json
from runner.vocabulary.expectations.calibrated import (
    FACTOR,
    FLUSHED,
    FORMATS,
    LEAST_DRAWS,
    LEAST_OF_GROUP,
    LEAST_OF_SLICE,
    VERSION,
    Format,
    between,
    bias_bound,
    format_of,
    is_zero,
    quantiles_of,
    ulp,
    widening,
)

BINS = range(-4, 33)
"""The exponents of the histogram's bins: errors of at least 2**n ulp and less than 2**(n + 1). The first bin has all smaller ones."""

BLOCK = 64
"""The number of neighbours in memory order whose errors are taken together."""

NEIGHBOURS = 16
"""The number of neighbours in memory order whose movement is compared."""

TILE = 16
"""The length of a tile's sides, in the last two dimensions: kernels write multiples of it."""

LEAST_NEIGHBOURS = 64
"""The number of elements that follow each other in memory and are taken together."""

EXPLAINED = 16.0
"""How many times its movement with other roundings eager's error may be, so that rounding explains it."""

ROUNDINGS = 128.0
"""In wide formats, how many times farther than eager with one other rounding of each operator an element of a right answer may be: a kernel
rounds each of its additions."""

TYPICAL = 32.0
"""The same for a quantile of the elements."""

MEDIAN = 3.0
"""In wide formats, how many times farther than eager with fine roundings the median of a right answer may be."""

COMPUTED = 32.0
"""In ulp. Where eager changes no element by more, its changes are rounding: so far may a right answer be from those that it left."""

COHERENT = 8.0
"""How many times farther a result may be that is 0 but for rounding: the errors of what is summed may have one sign."""

_TRIED = 8
"""Of each kind, how many groups with the greatest means are compared with their bounds."""

_MOST_COMPARED = 1 << 16
"""How many numbers of a group are compared to count different ones, evenly spread: fewer distinct ones only widen the bound."""


class NoReference(Exception):
    """No float64 reference; the message has the reason."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run of eager: its answer, and the float64 reference for the same inputs. Both are tensors of one shape."""

    answer: Any
    reference: Any
    step: float = 0.0
    """The resolution of the inputs that were nudged; 0 for the case's own inputs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """Eager's error for each element of a leaf. The tensors are flat; those of numbers are float64, or complex128."""

    dtype: str
    form: Format
    through: str
    """The narrower format that a result of a wide one was rounded to on its way; empty where there is none."""
    is_rounded: bool
    """Whether all of eager's results are numbers of that format: it was rounded to last."""
    reference: Any
    """That of float64, but eager's number where that one is finite by its rounding alone."""
    precise: Any
    """That of float64."""
    eager: Any
    units: Any
    """The ulp of each element."""
    group_error: Any
    """For each element, eager's greatest error in the group that gives the smallest bound."""
    group_draws: Any
    nudge: Any
    """For each element, how far the reference moves when the last digits of the inputs change."""
    bounds: Any
    """For each element its bound, in parts: the floor, and what is multiplied by ``FACTOR``."""
    whole_error: float
    whole_ulp: float
    most: float
    runs: int
    bias: Mapping[str, Sequence[float]] | None
    """Eager's greatest bias in any run, for each kind of deviation and each way to group the elements; None for wide formats."""
    eager_quantiles: list[float]
    nudge_quantiles: list[float]
    unexplained: int
    """Where not 0, eager itself is the reference: in so many elements float64 is farther from it than rounding explains."""
    has_fine_runs: bool
    """Whether the median is judged by eager with fine roundings."""


# -- numbers of tensors ---------------------------------------------------------------------------------------------


def wide(tensor: Any) -> Any:
    """Return the numbers of a tensor, flat, in float64 or complex128."""
    import torch

    return tensor.detach().to(torch.complex128 if tensor.is_complex() else torch.float64).reshape(-1)


def units_of(reference: Any, form: Format) -> Any:
    """Return the ulp of each element of a float64 tensor; that of the smallest number where it is not finite."""
    import torch

    size = torch.where(reference.abs().isfinite(), reference.abs(), 0.0)
    exponent = torch.where(size > 0, torch.frexp(size).exponent.to(torch.float64) - 1, -1100.0)
    return torch.exp2((exponent - form.bits).clamp(min=float(form.least)))


def _floors_of(reference: Any, form: Format) -> Any:
    """Return ``floor_of`` each element of a float64 tensor."""
    relative = form.element_floor * units_of(reference, replace(form, least=-1074))
    return relative.clamp(min=FLUSHED * math.ldexp(1.0, form.least)).minimum(form.element_floor * units_of(reference, form))


def errors_of(answer: Any, reference: Any) -> Any:
    """Return |answer - reference|; 0 where one of them is not finite."""
    import torch

    error = (answer - reference).abs()
    return torch.where(error.isfinite(), error, 0.0)


def quantiles_in(values: Any, shares: Sequence[float]) -> list[float]:
    """Return quantiles as elements of the sorted values: torch.quantile is limited to 16 million."""
    count = len(values)
    return [float(values.kthvalue(min(math.ceil(share * count), count)).values) for share in shares]


def _histogram(ulps: Any) -> list[int]:
    """Count errors by their exponents."""
    import torch

    exponents = torch.frexp(ulps).exponent.to(torch.int64) - 1
    bins = (torch.where(ulps > 0, exponents, BINS[0]).clamp(BINS[0], BINS[-1])) - BINS[0]
    return [int(count) for count in torch.bincount(bins, minlength=len(BINS))]


def _greatest(values: Any) -> float:
    """Return the greatest of values that are finite numbers; 0 for none."""
    return float(values.max()) if values.numel() else 0.0


def _finite_sizes(numbers: Any) -> Any:
    import torch

    return torch.where(numbers.abs().isfinite(), numbers.abs(), 0.0)


def _plain(element: Any) -> float | str:
    return str(element.item()) if element.is_complex() else float(element)


# -- runs of eager --------------------------------------------------------------------------------------------------


def runs_of(numel: int) -> int:
    """Return how many runs of eager are measured: more where there are few elements, because a few errors may all be small by chance."""
    return min(12, max(3, math.ceil(1024 / max(numel, 1))))


def fine_runs_of(numel: int) -> int:
    """Return how many runs with fine roundings are measured: the median of many elements needs one."""
    return math.ceil(256 / max(numel, 32))


def nudged(tensor: Any, generator: Any, least: float = 0.0) -> Any:
    """Return a floating-point tensor with every value nearer to 0 by up to eight units of its resolution: eager rounds it differently.

    Signs, zeros, infinities and NaN remain. Values stay in a domain such as [0, 1] or [-1, 1]. ``least``: the resolution of a narrower
    format that eager rounds values to on their way; else every run would round them in the same way.
    """
    import torch

    if tensor.is_complex():
        return torch.view_as_complex(nudged(torch.view_as_real(tensor.detach().resolve_conj()).contiguous(), generator, least))
    eps = max(torch.finfo(tensor.dtype).eps, least)
    less = torch.rand(tensor.shape, generator=generator, dtype=torch.float64) * (8 * eps)
    return (tensor.detach().to(torch.float64) * (1 - less.to(tensor.device))).to(tensor.dtype)


def is_reordered(answers: Sequence[Any], reference: Any) -> bool:
    """Whether answers to the same inputs are so near to the reference that another order of additions explains how they differ.

    Atomic additions have no fixed order. A function with a state of its own, or with numbers from elsewhere, is farther away.
    """
    form = format_of(str(answers[0].dtype).removeprefix("torch."))
    right = wide(reference)
    most = _greatest(_finite_sizes(right))
    return form is not None and all(bool((errors_of(wide(answer), right) <= form.reordered * ulp(most, form)).all()) for answer in answers)


def _drawn(samples: Sequence[Sample], dtype: Any) -> tuple[list[Any], Any]:
    """Return the errors of each run, and how far the reference moved at most."""
    import torch

    errors: list[Any] = []
    first = wide(samples[0].reference)
    moved = torch.zeros_like(first.abs())
    for sample in samples:
        answer, right = wide(sample.answer), wide(sample.reference)
        shrink = torch.finfo(dtype).eps / torch.finfo(sample.answer.dtype).eps
        error = errors_of(answer, right)
        if shrink < 1:
            # the narrower range of the format is not an error of eager
            error = torch.where(answer.abs() < torch.finfo(sample.answer.dtype).tiny, 0.0, error)
        errors.append(error * shrink)
        # a nudge of the inputs moves the reference by as many units of a finer format
        distance = errors_of(right, first) * min(1.0, torch.finfo(dtype).eps / sample.step if sample.step else 1.0)
        moved = torch.maximum(moved, distance)
    return errors, moved


def _beside_neighbours(moved: Any) -> Any:
    """Return movements that are at least the median of their neighbours: a sum may move little by chance where its neighbours move."""
    import torch

    count, rest = len(moved), -len(moved) % NEIGHBOURS
    if count < NEIGHBOURS:
        return torch.maximum(moved, moved.median()) if count else moved
    padded = torch.cat([moved, moved[count - rest :]]) if rest else moved
    return torch.maximum(moved, padded.reshape(-1, NEIGHBOURS).median(-1).values.repeat_interleave(NEIGHBOURS)[:count])


def _in_block(values: Any) -> Any:
    """Return for each value the greatest of its ``BLOCK`` neighbours."""
    import torch

    block = (torch.arange(len(values), device=values.device) // BLOCK).clamp(max=max(len(values) // BLOCK - 1, 0))
    return values.new_zeros(len(values)).scatter_reduce(0, block, values, "amax")[block]


def _unexplained(own: Any, eager: Any, right: Any, moved: Any, form: Format) -> int:
    """Return in how many elements eager's error is greater than rounding explains; 0 for a few, where results may flip, as of a comparison.

    Explained is ``EXPLAINED`` times the movement of eager with other roundings, and additions in another order, among 64 neighbours.
    """
    if not len(own):
        return 0
    likely = moved.amax() if is_zero(_greatest(_finite_sizes(right)), _greatest(own)) else _in_block(moved)
    explained = EXPLAINED * likely + form.reordered * units_of(_in_block(_finite_sizes(eager)), form)
    count = int((own > explained).sum())
    return count if count > most_by_chance(len(own)) else 0


def is_explained(eager: Any, reference: Any, jittered: Sequence[Any], amplitude: float = 1.0) -> bool:
    """Whether rounding explains how far an answer of eager is from the reference. It may be on another device than the other runs."""
    import torch

    ours, right = wide(eager), wide(reference).cpu()
    moved = torch.stack([errors_of(wide(other), wide(jittered[0])) for other in jittered]).amax(0).cpu() / amplitude
    form = format_of(str(eager.dtype).removeprefix("torch."))
    return form is not None and not _unexplained(errors_of(ours.cpu(), right), ours.cpu(), right, moved, form)


def most_by_chance(numel: int) -> int:
    """Return in how many elements the reference may be another number than eager's by rounding, as where a comparison flips."""
    return max(numel // 128, int(numel >= LEAST_OF_SLICE))


def _grouped(most: Any, size: Any, shape: tuple[int, ...], runs: int, form: Format, whole_ulp: float) -> tuple[Any, Any, Any]:
    """Return for each element the error, the number of draws and the widened error of the group with the smallest bound."""
    import torch

    numel = most.numel()
    best = torch.full_like(most, math.inf)
    best_error, best_draws = most.new_zeros(numel), torch.zeros(numel, dtype=torch.int64, device=most.device)
    for error, draws in _groups(most, size, shape, runs) if numel else ():
        values, places = draws.unique(return_inverse=True)
        factors = [widening(int(value), numel, form, whole_ulp) for value in values]
        bound = error * torch.tensor(factors, dtype=torch.float64, device=draws.device)[places]
        better = bound < best
        best = torch.where(better, bound, best)
        best_error, best_draws = torch.where(better, error, best_error), torch.where(better, draws, best_draws)
    return best_error, best_draws, best


def _groups(most: Any, size: Any, shape: tuple[int, ...], runs: int) -> Iterator[tuple[Any, Any]]:
    """Yield for each way of grouping the error of each element's group, and how many draws it is of."""
    import torch

    numel = most.numel()
    yield most.amax().expand(numel), torch.full_like(most, max(numel * runs, 1), dtype=torch.int64)
    shaped = most.reshape(shape)
    for dimension, length in enumerate(shape):
        others = [other for other in range(len(shape)) if other != dimension]
        draws = numel // length * runs
        if length > 1 and numel // length >= LEAST_OF_SLICE and draws >= LEAST_DRAWS:
            error = shaped.amax(others, keepdim=True).expand(shape) if others else shaped
            yield error.reshape(-1), torch.full_like(most, draws, dtype=torch.int64)
    if numel > BLOCK:
        for order in (torch.arange(numel, device=most.device), size.argsort()):
            # groups of elements that follow each other in memory, or in size; the last group has the remaining ones
            group = (torch.arange(numel, device=most.device) // BLOCK).clamp(max=numel // BLOCK - 1)
            maxima = most.new_zeros(numel // BLOCK).scatter_reduce(0, group, most[order], "amax")
            counts = torch.bincount(group) * runs
            error, drawn = torch.empty_like(most), torch.empty_like(group)
            error[order], drawn[order] = maxima[group], counts[group]
            yield error, drawn


# -- biases ---------------------------------------------------------------------------------------------------------


def _ways_to_group(shape: tuple[int, ...]) -> Iterator[tuple[str, int, Callable[[Any], Any]]]:
    """Yield the ways to group the elements of a tensor: the tensor itself, the slices of each dimension, tiles, neighbours in memory.

    Each has a name, the number of groups, and what returns the values of each group as a row; what that receives is flat.
    """
    numel = math.prod(shape)
    if numel < LEAST_OF_GROUP:
        return
    yield "tensor", 1, lambda values: values.reshape(1, -1)
    for dimension, length in enumerate(shape):
        if length > 1 and numel // length >= LEAST_OF_GROUP:

            def slices(values: Any, dimension: int = dimension, length: int = length) -> Any:
                return values.reshape(shape).movedim(dimension, 0).reshape(length, -1)

            yield f"slice of dimension {dimension}", length, slices
    if len(shape) > 1 and min(shape[-2:]) >= 2 * TILE:
        rows, columns = shape[-2] // TILE, shape[-1] // TILE

        def tiles(values: Any) -> Any:
            inner = values.reshape(-1, *shape[-2:])[:, : rows * TILE, : columns * TILE].reshape(-1, rows, TILE, columns, TILE)
            return inner.transpose(2, 3).reshape(-1, TILE * TILE)

        yield "tile", numel // (shape[-2] * shape[-1]) * rows * columns, tiles
    if numel >= 2 * LEAST_NEIGHBOURS:
        count = numel // LEAST_NEIGHBOURS
        yield "neighbours", count, lambda values: values[: count * LEAST_NEIGHBOURS].reshape(count, LEAST_NEIGHBOURS)


def _deviations(answer: Any, reference: Any, scale: Scale) -> dict[str, Any]:
    """Return answer - reference as eager's last dtype rounds it, in multiples of each element's bound; 0 where one of them is not finite.

    ``value`` has them with their signs, which a defect of some places shows; in ``size`` they are positive away from 0, which a factor
    shows. Against the rounded reference a right answer deviates in few elements: its mean is nearer to 0 than that of its errors.
    """
    import torch

    dtype = getattr(torch, scale.through if scale.is_rounded else scale.dtype)
    deviating = (answer - reference.to(dtype).to(reference.dtype)) / bounds_of(scale)
    deviating = torch.where(deviating.isfinite(), deviating, 0.0)
    return {"value": deviating, "size": deviating * reference.sign()}


def _bias_facts(answer: Any, shape: tuple[int, ...], scale: Scale) -> list[dict[str, Json]]:
    """Return for each way to group the group that is nearest to its bound, or farthest outside; for values and for sizes."""
    if scale.bias is None:
        return []
    biases: list[dict[str, Any]] = []
    deviating = _deviations(answer, scale.reference, scale)
    for number, (kind, count, rows_of) in enumerate(_ways_to_group(shape)):
        for of, values in deviating.items():
            means, inside = rows_of(values).mean(1), rows_of(scale.reference)
            common = {"of": of, "group": kind, "groups": count, "eager": scale.bias[of][number], "runs": scale.runs + 1}
            facts: list[dict[str, Any]] = []
            for place in means.abs().topk(min(_TRIED, len(means))).indices.tolist():
                row = inside[place]
                distinct = int(row[:: math.ceil(len(row) / _MOST_COMPARED)].abs().unique().numel())
                facts.append({**common, "index": place, "distinct": distinct, "mean": float(means[place])})
            biases.append(max(facts, key=lambda bias: abs(bias["mean"]) / bias_bound(bias, scale.form)))
    return biases


# -- eager's error, and an answer's ---------------------------------------------------------------------------------


def scale_of(
    samples: Sequence[Sample],
    answer: Any,
    reference: Any,
    through: str = "",
    jittered: Sequence[Any] = (),
    amplitude: float = 1.0,
    fine: Sequence[Any] = (),
) -> Scale:
    """Return eager's error by its samples; ``answer`` and ``reference`` are those of the case's own inputs. Raise ``NoReference``.

    ``jittered`` are answers of eager to these inputs with other roundings, each of up to ``amplitude`` units, or fine ones.

    The first sample is of those inputs, the others are of nudged ones. The samples of float64 are runs of float32, whose errors are scaled.
    ``through`` is the narrowest format that eager rounded the values to on their way.
    """
    import torch

    dtype = str(answer.dtype).removeprefix("torch.")
    form = format_of(dtype)
    if form is None:
        raise NoReference(f"values of dtype {dtype} are exact")
    precise, eager, limits = wide(reference), wide(answer), torch.finfo(answer.dtype)
    # a reference a few units beyond the greatest number is one that eager's rounding kept below the overflow
    if bool((eager.isfinite() & precise.isfinite() & (precise.abs() / limits.max > 1 + 4 * limits.eps)).any()):
        # nan_to_num and functions like it give the greatest number of their dtype: in float64 they are other functions
        raise NoReference(f"the float64 reference is beyond the range of {dtype} where eager is finite")
    # A power of a negative number is NaN unless the exponent is whole. In bfloat16 an exponent of -7.03 becomes whole when 1 is subtracted,
    # for its gradient. A kernel that computes in float32 has NaN as float64 has.
    is_by_rounding = eager.isfinite() & ~precise.isfinite()
    count, numel = int(is_by_rounding.sum()), is_by_rounding.numel()
    if count > most_by_chance(numel):
        raise NoReference(f"the float64 reference is not finite in {count} of {numel} elements where eager is")
    right = torch.where(is_by_rounding, eager, precise)

    has_fine_runs = bool(fine and form.nudges and not through)
    own, unexplained, by_rounding = errors_of(eager, right), 0, torch.zeros_like(eager.abs())
    errors, moved = _drawn(samples, answer.dtype)
    if jittered:
        by_rounding = torch.stack([errors_of(wide(other), eager) for other in jittered]).amax(0) / amplitude
        unexplained = _unexplained(torch.maximum(own, errors[0]), eager, right, by_rounding, form)
    if unexplained:  # the reference is another function, or of another state: eager's distance from it is no error of rounding
        right = precise = eager
        own = torch.zeros_like(own)
        samples = [Sample(other, answer) for other in jittered]
        errors, moved = _drawn(samples, answer.dtype)
        errors = [error / amplitude for error in errors]
    is_whole = bool(right.abs().isfinite().all())
    if jittered and is_whole and form is FORMATS["float64"] and _greatest(right.abs()) <= EXPLAINED * _greatest(by_rounding):
        right = precise = torch.zeros_like(right)  # eager is no more precise than a run of float64: all of its digits are rounding
        own = errors_of(eager, right)
    if jittered and numel:
        # a nudged label or mask makes another function of it: where a nudge moves farther than rounding can, it says nothing of rounding
        moved = torch.minimum(moved, EXPLAINED * _in_block(by_rounding))
    finer = limits.eps / torch.finfo(getattr(torch, through)).eps if through else 1.0  # as if all had been roundings to this format
    by_rounding_of_wide = by_rounding * (finer / form.nudges if form.nudges else 0.0)
    typical, moved = (_beside_neighbours(torch.maximum(moved, times * by_rounding_of_wide)) for times in (TYPICAL, ROUNDINGS))
    runs = [*samples, Sample(answer, right.reshape(answer.shape))]
    # the runs in place of a float64 one are of float32; eager's own error counts too, where a part of it computes in a narrower dtype
    most = torch.maximum(torch.stack(errors).amax(0), own)
    if numel and is_zero(_greatest(_finite_sizes(right)), _greatest(most)):
        moved = COHERENT * moved.amax().expand(numel)

    def greatest_ulp(form: Format) -> float:
        """Return the greatest error of all runs of eager, in ulp."""
        pairs = [(wide(run.answer), wide(run.reference)) for run in runs if run.answer.numel()]
        return max((float((errors_of(ours, theirs) / units_of(theirs, form)).max()) for ours, theirs in pairs), default=0.0)

    # Whether eager's errors show the narrower format. For a float64 result the runs of eager are in float32: there is none.
    if not through or form is FORMATS["float64"] or FORMATS[through].bits >= form.bits or greatest_ulp(form) <= form.quantile_floor:
        through = ""
    is_rounded = bool(through) and all(_has_numbers_of(run.answer, through) for run in runs)
    if is_rounded:
        form = FORMATS[through]
    elif through:  # roundings move by half a unit: these are more draws of eager's error
        most = torch.maximum(most, by_rounding / 2)
    units = units_of(right, form)
    whole_ulp = greatest_ulp(form) if form.nudges == 0 or through else 0.0
    shares = quantiles_of(numel, has_fine_runs=has_fine_runs)
    # of the errors of all samples, or of eager's own error where that is greater
    of_samples = quantiles_in(torch.cat([error / units for error in errors]), shares)
    eager_quantiles = list(map(max, of_samples, quantiles_in(own / units, shares)))
    if through and not is_rounded:
        form = between(form, FORMATS[through], eager_quantiles, whole_ulp)
    group_error, draws, group_bound = _grouped(most, right.abs(), tuple(answer.shape), len(samples), form, whole_ulp)
    nudge_quantiles = quantiles_in(typical / units, shares)
    if has_fine_runs and shares:
        finely = torch.cat([_beside_neighbours(errors_of(wide(other), eager)) / units for other in fine])
        nudge_quantiles[0] = MEDIAN / form.nudges * quantiles_in(finely, shares[:1])[0]
    scale = Scale(
        dtype=dtype,
        form=form,
        through=through,
        is_rounded=is_rounded,
        reference=right,
        precise=precise,
        eager=eager,
        units=units,
        group_error=group_error,
        group_draws=draws,
        nudge=moved,
        bounds=(torch.maximum(_floors_of(right, form), form.nudges * moved), group_bound * form.slack),
        whole_error=_greatest(most),
        whole_ulp=whole_ulp,
        bias=None,
        most=_greatest(_finite_sizes(right)),
        runs=len(samples),
        eager_quantiles=eager_quantiles,
        nudge_quantiles=nudge_quantiles,
        has_fine_runs=has_fine_runs,
        unexplained=unexplained,
    )
    if math.isinf(form.bias_floor):
        return scale
    deviating = [_deviations(wide(run.answer), wide(run.reference), scale) for run in runs]
    ways = [rows_of for _, _, rows_of in _ways_to_group(tuple(answer.shape))]
    bias = {of: [max(float(rows_of(run[of]).mean(1).abs().max()) for run in deviating) for rows_of in ways] for of in ("value", "size")}
    return replace(scale, bias=bias)


def _has_numbers_of(tensor: Any, name: str) -> bool:
    """Whether every finite element of a tensor is a number of a narrower dtype."""
    import torch

    narrow = tensor.to(getattr(torch, name)).to(tensor.dtype)
    return bool(((narrow == tensor) | ~tensor.isfinite()).all())


def bounds_of(scale: Scale) -> Any:
    """Return the bound of each element, as ``calibrated.element_bound`` computes it of one."""
    import torch

    numel = scale.reference.numel()
    floor, group = scale.bounds
    if numel == 0:
        return floor
    whole = FACTOR * scale.whole_error * widening(numel * scale.runs, numel, scale.form, scale.whole_ulp)
    whole = max(whole, scale.form.element_floor * ulp(scale.most, scale.form))
    if is_zero(scale.most, scale.whole_error):
        return floor.clamp(min=whole)
    return torch.maximum(floor, (FACTOR * group).clamp(max=whole))


def compare(actual: Any, scale: Scale, *, equal_nan: bool = True, histogram: bool = True) -> dict[str, Json]:
    """Return the facts of an answer: nonfinite mismatches, the element nearest to its bound, quantiles, and a histogram."""
    import torch

    right, eager = scale.reference, scale.eager
    answer = wide(actual).to(right.device)
    numel = answer.numel()
    judged = answer.isfinite() & right.isfinite()
    # the elements that are not finite where neither eager nor the reference has the same
    nonfinite = ~judged
    for other in (eager, scale.precise.to(getattr(torch, scale.dtype)).to(scale.precise.dtype)):
        same = answer == other
        nonfinite &= ~(same | (answer.isnan() & other.isnan()) if equal_nan else same)
    facts: dict[str, Any] = {"version": VERSION, "runs": scale.runs, "numel": numel, "nonfinite": int(nonfinite.sum())}
    if numel == 0:
        return {**facts, "outside": 0, "worst": None, "quantiles": [], "eager_quantiles": []}
    if scale.through:
        facts.update(through=scale.through, is_rounded=scale.is_rounded)
    if scale.has_fine_runs:
        facts["has_fine_runs"] = True
    if scale.unexplained:
        facts["unexplained"] = scale.unexplained
    errors = torch.where(judged, errors_of(answer, right), 0.0)
    ratio = torch.where(judged, errors / bounds_of(scale), -1.0)
    ulps = errors / scale.units
    place = int(ratio.argmax())
    facts["outside"] = int((ratio > 1).sum())
    facts["worst"] = {
        "index": [int(index) for index in torch.unravel_index(torch.tensor(place), actual.shape)],
        "value": _plain(answer[place]),
        "eager_value": _plain(eager[place]),
        "reference_value": _plain(right[place]),
        # where no element is finite in both, the first stands here: it has no error, and its NaN or infinity is counted as nonfinite
        "reference": float(right[place].abs()) if bool(right[place].isfinite()) else 0.0,
        "error": float(errors[place]),
        "group_error": float(scale.group_error[place]),
        "group_draws": int(scale.group_draws[place]),
        "nudge": float(scale.nudge[place]),
    }
    facts.update(whole_error=scale.whole_error, whole_ulp=scale.whole_ulp, most=scale.most)
    facts.update(bias=_bias_facts(answer, tuple(actual.shape), scale))
    facts.update(max_error=float(errors.max()), max_ulp=float(ulps.max()))
    facts.update(
        quantiles=quantiles_in(ulps, quantiles_of(numel, has_fine_runs=scale.has_fine_runs)), eager_quantiles=scale.eager_quantiles
    )
    facts.update(nudge_quantiles=scale.nudge_quantiles)
    eager_errors = errors_of(eager, right)
    eager_ulps = eager_errors / scale.units
    facts.update(eager_max_error=float(eager_errors.max()), eager_max_ulp=float(eager_ulps.max()), nearest=None)
    if quantiles_in(eager_ulps, (0.5,))[0] > scale.form.blind or (facts["quantiles"] and facts["eager_quantiles"][0] > scale.form.blind):
        apart = torch.minimum(torch.where(judged, errors_of(answer, eager), 0.0) / scale.units, ulps)
        facts["nearest"] = quantiles_in(apart, (0.5,))[0]
    if histogram:
        facts["histogram"] = {"first": BINS[0], "compiled": _histogram(ulps), "eager": _histogram(eager_ulps)}
    return facts


def changed_elements(actual: Any, scale: Scale, unwritten: Any, before: Any = None) -> dict[str, Json] | None:
    """Return the elements that eager does not write and that differ in an answer: their number, and the first; None without any.

    ``unwritten`` is a mask of the elements in which eager's number is that of before. Eager may have computed the same number: it did where
    float64 has another. Where float64 has the same too, as of ``0.9 * x + 0.1 * x``, a right answer is at most 2 ulp from it, or
    ``COMPUTED``. A few such elements are chance. A result in float64 has no more precise reference, and is not measured.
    """
    import torch

    form = format_of(scale.dtype)
    if form is None or actual.dtype in (torch.float64, torch.complex128) or not actual.numel():
        return None
    answer, mask = wide(actual).to(scale.eager.device), unwritten.reshape(-1).to(scale.eager.device)
    units = units_of(scale.eager, form)
    is_step_of_rounding = form.nudges and before is not None and bool((errors_of(scale.eager, wide(before)) <= COMPUTED * units).all())
    is_near = (answer - scale.eager).abs() <= (COMPUTED if is_step_of_rounding else 2) * units
    changed = (answer != scale.eager) & ~is_near
    if not answer.is_complex():
        changed |= (answer == 0) & (scale.eager == 0) & (answer.signbit() != scale.eager.signbit())
        mask &= scale.precise.signbit() == scale.eager.signbit()
    changed &= mask & (scale.precise == scale.eager)
    if int((mask & (scale.precise == scale.eager)).sum()) <= most_by_chance(len(mask)) or not changed.any():
        return None
    place = int(changed.nonzero()[0])
    index = [int(part) for part in torch.unravel_index(torch.tensor(place), actual.shape)]
    return {"count": int(changed.sum()), "index": index, "value": _plain(answer[place]), "before": _plain(scale.eager[place])}


LEAST_CHANGE = 4.0
"""From how many ulp of its values on a change is judged, in the root mean square."""

MOST_OTHER = 0.5
"""Which share of eager's change the distance of the two sides may have."""

MOST_NOISE = 1 / 16
"""Which share of eager's change its distance from float64 may have: of a greater one another right answer may differ by as much."""


def other_change(ours: Any, theirs: Any, before: Any, precise: Any = None, movement: Any = None) -> dict[str, Json] | None:
    """Return how the compiled side changed a tensor, or 64 neighbours of it, otherwise than eager; None where it did not.

    ``precise`` is the float64 reference; without it only values that the compiled side left as they were are another change.
    ``movement`` is that of a result without a more precise reference: what exceeds the roundings of the values themselves is noise.
    All figures are root mean squares: ``eager`` and ``compiled`` are the changes, ``apart`` is the distance of the sides.
    """
    import torch

    form = format_of(str(theirs.dtype).removeprefix("torch."))
    if form is None or ours.dtype != theirs.dtype or ours.shape != theirs.shape or not theirs.numel():
        return None
    old, eager, compiled = wide(before), wide(theirs), wide(ours)
    parts = {
        "eager": eager - old,
        "compiled": compiled - old,
        "apart": compiled - eager,
        "units": units_of(torch.maximum(old.abs(), eager.abs()), form),
    }
    if precise is not None:
        parts["noise"] = eager - wide(precise)
        if movement is not None:
            parts["noise"] = torch.maximum(parts["noise"].abs(), (movement - LEAST_CHANGE * parts["units"]).clamp(min=0.0))
    count = eager.numel() // LEAST_NEIGHBOURS
    worst: dict[str, Json] | None = None
    for rows in ((1, -1), (count, LEAST_NEIGHBOURS))[: 2 if count > 1 else 1]:
        sizes = {
            name: torch.where(part.isfinite(), part.abs(), 0.0)[: None if rows[0] == 1 else count * LEAST_NEIGHBOURS]
            .reshape(rows)
            .square()
            .mean(1)
            .sqrt()
            for name, part in parts.items()
        }
        is_other = (sizes["eager"] > LEAST_CHANGE * sizes["units"]) & (sizes["apart"] > MOST_OTHER * sizes["eager"])
        is_other &= sizes["compiled"] == 0 if precise is None else sizes["noise"] <= MOST_NOISE * sizes["eager"]
        if is_other.any() and worst is None:
            place = int(torch.where(is_other, sizes["apart"] / sizes["eager"], 0.0).argmax())
            worst = {name: float(size[place]) for name, size in sizes.items()}
            worst["elements"] = None if rows[0] == 1 else [place * LEAST_NEIGHBOURS, (place + 1) * LEAST_NEIGHBOURS - 1]
    return worst
