"""Random numbers of a compiler's own, beside those of eager."""

from collections.abc import Callable
from typing import Any

import pytest

from torch_conformance.vocabulary.expectations import distributions

pytestmark = pytest.mark.torch

SIZE = 512


def dropped(torch: Any, numbers: Any, seed: int, rate: float = 0.5) -> Any:
    kept = torch.rand(numbers.shape, generator=torch.Generator().manual_seed(seed)) >= rate
    return numbers * kept / (1 - rate)


ANSWERS: list[tuple[str, bool, Callable[[Any, Any], Any]]] = [
    ("another seed", True, lambda torch, x: dropped(torch, x, 1_000)),
    ("nothing dropped", False, lambda torch, x: x),
    ("nothing dropped, and scaled", False, lambda torch, x: 2 * x),
    ("all dropped", False, lambda torch, x: x * 0),
    ("another scale", False, lambda torch, x: dropped(torch, x, 1_000) / 2),
    ("another rate", False, lambda torch, x: dropped(torch, x, 1_000, 0.2)),
    ("one half of the rows", False, lambda torch, x: dropped(torch, x, 1_000) * (x.arange < 256)),
    ("a NaN", False, lambda torch, x: dropped(torch, x, 1_000).index_fill(0, x.at, torch.nan)),
]


@pytest.mark.parametrize(
    ("is_right", "answer"), [row[1:] for row in ANSWERS], ids=[r[0] for r in ANSWERS]
)
@pytest.mark.parametrize("shift", [0.0, 3.0])
def test_a_dropout_has_the_distribution_of_eager(
    torch: Any, is_right: bool, answer: Callable[[Any, Any], Any], shift: float
) -> None:
    numbers = torch.randn(SIZE, generator=torch.Generator().manual_seed(7)) + shift
    numbers.arange, numbers.at = torch.arange(SIZE), torch.tensor([5])
    runs = [dropped(torch, numbers, 100 + seed) for seed in range(distributions.RUNS)]
    facts = distributions.measure(answer(torch, numbers), runs)
    assert facts is not None
    assert (distributions.problem(facts) == "") is is_right, facts


def test_what_eager_does_not_draw_is_left_to_the_other_rules(torch: Any) -> None:
    numbers = torch.arange(SIZE) / 7
    assert distributions.measure(numbers + 1, [numbers] * distributions.RUNS) is None
    few = [dropped(torch, numbers[:20] + 1, seed) for seed in range(distributions.RUNS)]
    facts = distributions.measure(numbers[:20] * 0, few)
    assert facts is not None
    assert facts["numel"] == 20
    assert distributions.problem(facts) == ""
