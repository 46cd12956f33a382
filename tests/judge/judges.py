"""The judges that the table compares. Each returns whether it accepts an answer of a cell."""

from collections.abc import Callable, Mapping, Sequence

import torch

from runner.vocabulary.expectations.calibrated import FACTOR, problems
from runner.vocabulary.expectations.calibrated_measure import Sample, compare, nudged, runs_of, scale_of
from tests.judge.families import Cell, Tensor

Judge = Callable[[Tensor], bool]


def samples_of(function: Callable[..., Tensor], inputs: Sequence[Tensor], eager: Tensor) -> list[Sample]:
    """Run eager and its float64 reference, on the inputs and on nudged ones. The samples of float64 are runs of float32."""
    generator = torch.Generator().manual_seed(0)
    if inputs[0].dtype == torch.float64:
        inputs = [part.float() for part in inputs]
    step = torch.finfo(inputs[0].dtype).eps
    found = []
    for run in range(runs_of(eager.numel())):
        given = [part if run == 0 else nudged(part, generator) for part in inputs]
        found.append(Sample(function(*given), function(*(part.double() for part in given)), step if run else 0.0))
    return found


def calibrated_judge(cell: Cell) -> Judge:
    """Return our judge for a cell."""
    scale = scale_of(samples_of(cell.family.eager, cell.inputs, cell.eager), cell.eager, cell.reference)
    return lambda answer: not problems(compare(answer, scale, FACTOR), scale.form, FACTOR)


def assert_close(cell: Cell) -> Judge:
    def accepts(answer: Tensor) -> bool:
        try:
            torch.testing.assert_close(answer, cell.eager, equal_nan=True)
        except AssertionError:
            return False
        return True

    return accepts


def same(cell: Cell) -> Judge:
    """``torch._dynamo.utils.same`` as torch's benchmarks call it: tolerance 1e-3 for float32, 1e-2 below."""
    from torch._dynamo.utils import same as judge

    tolerance = 1e-2 if cell.dtype in ("bfloat16", "float16") else 1e-3
    return lambda answer: bool(judge(cell.eager, answer, fp64_ref=cell.reference, tol=tolerance, equal_nan=True, log_error=lambda *_: None))


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
