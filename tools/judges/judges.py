"""The judges that the table compares. Each returns whether it accepts an answer of a cell."""

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import torch

from tools.judges.families import Cell, Tensor
from torch_conformance.vocabulary.expectations.calibrated import (
    Sample,
    Scale,
    compare,
    errors_of,
    fine_runs_of,
    nudged,
    problems,
    quantiles_in,
    quantiles_of,
    runs_of,
    scale_of,
    units_of,
    wide,
)
from torch_conformance.worker.case.additional import MOST_JITTERED
from torch_conformance.worker.torch_compat.numerics import (
    AMPLITUDE,
    RESOLUTION,
    Jittered,
    Roundings,
    jittered,
)

Judge = Callable[[Tensor], bool]


def samples_of(
    function: Callable[..., Tensor], inputs: Sequence[Tensor], eager: Tensor, through: str = ""
) -> list[Sample]:
    """Run eager and its float64 reference, on the inputs and on nudged ones.

    The samples of float64 are runs of float32.

    ``through`` is the format that eager rounds its values to on their way.
    """
    generator = torch.Generator().manual_seed(0)
    if inputs[0].dtype == torch.float64:
        inputs = [part.float() for part in inputs]
    least = (
        torch.finfo(getattr(torch, through)).eps
        if through and inputs[0].dtype == torch.float32
        else 0.0
    )
    step = max(torch.finfo(inputs[0].dtype).eps, least)
    samples = []
    for run in range(runs_of(eager.numel())):
        perturbed = [part if run == 0 else nudged(part, generator, least) for part in inputs]
        samples.append(
            Sample(
                function(*perturbed),
                function(*(part.double() for part in perturbed)),
                step if run else 0.0,
            )
        )
    return samples


@functools.lru_cache(maxsize=1)
def calibration_of(cell: Cell) -> tuple[list[Sample], Scale]:
    """Return the runs of eager for a cell, and its error by them."""
    with Roundings() as mode:
        through = mode.narrowest(cell.family.eager(*cell.inputs))
    samples = samples_of(cell.family.eager, cell.inputs, cell.eager, through)
    generator, moved = torch.Generator().manual_seed(1), []
    times = 1.0 if through or torch.finfo(cell.eager.dtype).eps > RESOLUTION else AMPLITUDE
    for _ in range(min(len(samples) - 1, MOST_JITTERED)):
        with Jittered(generator, times):
            moved.append(
                cell.family.eager(
                    *(jittered(part, generator, RESOLUTION, times) for part in cell.inputs)
                )
            )
    fine: list[Tensor] = []
    for _ in range(0 if through else fine_runs_of(cell.eager.numel())):
        with Jittered(generator, is_fine=True):
            fine.append(
                cell.family.eager(*(jittered(part, generator, RESOLUTION) for part in cell.inputs))
            )
    return samples, scale_of(
        samples, cell.eager, cell.reference, through, moved, times, fine or None
    )


def calibrated_judge(cell: Cell) -> Judge:
    """Return our judge for a cell."""
    _, scale = calibration_of(cell)
    return lambda answer: not problems(compare(answer, scale, histogram=False), scale.form)


def within_right_answers(cell: Cell) -> Judge:
    """Return whether an answer is within what right answers of the cell show, in the statistics of
    our judge.

    Each of its statistics is at most the greatest of theirs. Right answers are eager's, also to
    nudged inputs, and the other ways to compute it. No factor and no floor is used.
    """
    samples, scale = calibration_of(cell)
    ranges = (
        []
        if cell.dtype == "float64"
        else [_shown(result.answer, _scale_of_run(scale, result), wider=True) for result in samples]
    )
    most = [
        max(column)
        for column in zip(
            *ranges,
            *(_shown(result, scale, wider=True) for result in [cell.eager, *cell.right.values()]),
            strict=True,
        )
    ]
    return lambda answer: all(
        figure <= limit for figure, limit in zip(_shown(answer, scale), most, strict=True)
    )


def _scale_of_run(scale: Scale, sample: Sample) -> Scale:
    """Return the scale for the inputs of another run of eager."""
    reference = wide(sample.reference)
    return replace(
        scale, reference=reference, eager=wide(sample.answer), units=units_of(reference, scale.form)
    )


def _shown(answer: Tensor, scale: Scale, *, wider: bool = False) -> list[float]:
    """Return the statistics of an answer: elements that are not finite, the greatest error in
    bounds of its element, quantiles, biases.

    ``wider``: quantiles and biases are taken three standard deviations of as many roundings
    farther: one element is none of them.
    """
    facts = compare(answer, scale, histogram=False)
    errors = errors_of(wide(answer), scale.reference)
    count = len(errors)
    ratio = float((errors / scale.bounds).max())
    judged = quantiles_of(count)
    shares = [
        share + (3 * math.sqrt(share * (1 - share) / count) if wider else 0.0) for share in judged
    ]
    quantiles = quantiles_in(errors / scale.units, [min(share, 1.0) for share in shares])
    biases = [
        abs(entry["mean"]) + wider / math.sqrt(entry["distinct"]) for entry in facts.get("bias", [])
    ]
    return [float(facts["nonfinite"]), ratio, *quantiles, *biases]


def assert_close(cell: Cell) -> Judge:
    def accepts(answer: Tensor) -> bool:
        try:
            torch.testing.assert_close(answer, cell.eager, equal_nan=True)
        except AssertionError:
            return False
        return True

    return accepts


def same(cell: Cell) -> Judge:
    """``torch._dynamo.utils.same`` as torch's benchmarks call it: tolerance 1e-3 for float32, 1e-2
    below.
    """
    from torch._dynamo.utils import same as judge

    tolerance = 1e-2 if cell.dtype in ("bfloat16", "float16") else 1e-3
    return lambda answer: bool(
        judge(
            cell.eager,
            answer,
            fp64_ref=cell.reference,
            tol=tolerance,
            equal_nan=True,
            log_error=lambda *_: None,
        )
    )


def cosine(cell: Cell) -> Judge:
    def accepts(answer: Tensor) -> bool:
        pair = answer.double().reshape(-1), cell.eager.double().reshape(-1)
        return bool(torch.nn.functional.cosine_similarity(*pair, dim=0) >= 0.99)

    return accepts


JUDGES: Mapping[str, Callable[[Cell], Judge]] = {
    "calibrated": calibrated_judge,
    "assert_close": assert_close,
    "same": same,
    "cosine": cosine,
}
