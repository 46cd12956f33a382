"""The calibrated judge accepts every right answer of the table, and no wrong one but those that are
listed here.
"""

from typing import Any

import pytest

from tests.fakes import import_torch

pytestmark = pytest.mark.torch

torch: Any = import_torch()

from tools.judges.families import (
    AT_RANDOM,
    DTYPES,
    FAMILIES,
    SCALES,
    Family,
    cell,
    cells,
    fused,
    normal,
)
from tools.judges.judges import JUDGES, calibrated_judge, within_right_answers
from tools.judges.table import entries, totals, unexplained

SMALL = ("matmul", "batched matmul", "convolution", "attention", "sum to a scalar", "layer norm")

SEEN: dict[tuple[str, str], str] = {
    (
        "matmul and epilogue",
        "bfloat16",
    ): "at scale 100 eager's cosine is noise; else an error of less than twice eager's, or of "
    "1.5 ulp",
    ("matmul and epilogue", "float16"): "at scale 100 eager's cosine is noise",
    (
        "cancelling chain",
        "bfloat16",
    ): "one element with an error of less than twice that of others of eager",
    (
        "cancelling chain",
        "float16",
    ): "one element with an error of less than twice that of others of eager",
    (
        "uneven cancelling chain",
        "bfloat16",
    ): "one element with an error of less than twice that of others of eager",
    (
        "uneven cancelling chain",
        "float16",
    ): "one element with an error of less than twice that of others of eager",
    ("shifted chain", "bfloat16"): "at scale 100 most results are 0 or 1 but for rounding",
    ("softmax", "float64"): "at scale 100 the last term may be less than rounding shows",
    (
        "softmax",
        "bfloat16",
    ): "at scale 100 few elements of a row are not 0: their errors are less than 1.5 ulp",
    (
        "softmax",
        "float16",
    ): "at scale 100 one element of a row is not 0: its error is less than 1.5 ulp",
    ("attention written out", "float16"): "eager rounds every step, as the defect does",
    (
        "attention written out",
        "bfloat16",
    ): "eager rounds every step, as the defect does; at scale 100 a factor is less than its errors",
    (
        "sum of positive numbers",
        "float16",
    ): "one of 32,768 terms is less than rounding shows in 64 elements",
    (
        "sum of positive numbers",
        "bfloat16",
    ): "one of 32,768 terms is less than rounding shows in 64 elements",
    (
        "sum",
        "bfloat16",
    ): "x 1.002 moves 10 to 14 of 64 elements by one ulp: rounding once more moves as many one "
    "way in 1 of 500 to 8,000",
    ("sum to a scalar", "bfloat16"): "one element, whose error is less than 1.5 ulp",
    ("sum to a scalar", "float16"): "one element, whose error is less than 1.5 ulp",
}
"""Families and dtypes in which some wrong answers are accepted though no right answer shows as
much, and why.
"""

NEVER = ("zeros", "x 1.02", "x 2", "rows rotated", "NaN", "another input", "wrong axis")
"""Defects that no exception covers."""


def check(families: Any, dtypes: Any, scales: Any, seed: int = 0) -> None:
    found = list(
        entries(cells(families, dtypes, scales, seed=seed), {"calibrated": JUDGES["calibrated"]})
    )
    assert (
        sum(entry.is_wrong for entry in found) > 3 * sum(entry.is_right for entry in found) / 2
    ), "the table has both"
    wrong = unexplained(found)
    assert not [entry for entry in wrong if entry.is_right]
    assert not [
        entry for entry in wrong if (entry.family, entry.dtype) not in SEEN or entry.answer in NEVER
    ]


def test_small_families() -> None:
    check(SMALL, ("float32", "bfloat16"), (1.0,))


@pytest.mark.nightly(reason="seven minutes; the small families are always judged")
@pytest.mark.parametrize("seed", [0, 1])
def test_the_whole_table(seed: int) -> None:
    check((), DTYPES, SCALES, seed)


def test_a_defect_is_told_from_rounding_without_a_judge() -> None:
    one = cell(FAMILIES["batched matmul"], "bfloat16", 1.0)
    assert not one.is_wrong(one.eager)
    # the reference rounded at random sets no limit of what is wrong: small defects would hide in
    # its quantiles
    assert not any(one.is_wrong(answer) for name, answer in one.right.items() if name != AT_RANDOM)
    assert one.is_wrong(one.wrong["x 1.02"])
    assert one.is_wrong(one.wrong["NaN"])


def test_what_right_answers_show_is_told_by_their_statistics() -> None:
    one = cell(FAMILIES["batched matmul"], "bfloat16", 1.0)
    shows = within_right_answers(one)
    assert shows(one.eager)
    assert all(shows(answer) for answer in one.right.values())
    assert not any(shows(answer) for answer in one.wrong.values() if one.is_wrong(answer))


def test_other_judges_are_mistaken_where_they_are_known_to_be() -> None:
    found = list(entries(cells(["batched matmul"], ("bfloat16",), (1e-2,)), JUDGES))
    counted = totals(found, JUDGES)
    assert counted["calibrated"]["wrong accepted"] == counted["calibrated"]["right refused"] == 0
    assert counted["same"]["wrong accepted"] > 0
    assert counted["cosine"]["wrong accepted"] > 0
    assert set(FAMILIES) > set(SMALL)


UPDATES = {
    "a small update": (lambda w, g: w - 3e-6 * g, lambda w, g: w.clone()),
    "a decay beside an update": (lambda w, g: w * (1 - 1e-6) - 1e-2 * g, lambda w, g: w - 1e-2 * g),
    "an average": (lambda w, g: w * (1 - 2e-6) + 2e-6 * g, lambda w, g: w.clone()),
    "a decay after a product": (lambda w, g: (w @ g.mT) * (1 - 1e-4), lambda w, g: w @ g.mT),
}
"""Functions, and what is left of each where a small update is lost."""


@pytest.mark.parametrize("shape", [(4, 4), (64, 96)], ids=["few", "many"])
@pytest.mark.parametrize("name", UPDATES)
def test_a_small_update_that_is_lost_is_refused(name: str, shape: tuple[int, int]) -> None:
    function, lost = UPDATES[name]
    right = {
        "fused": fused(function),
        "in float64": lambda *inputs: function(*(part.double() for part in inputs)).float(),
    }
    one = cell(Family(name, normal(shape, shape), function, right, {"lost": lost}), "float32", 1.0)
    accepts = calibrated_judge(one)
    assert all(accepts(answer) for answer in (one.eager, *one.right.values()))
    # one unit more or less in each element, as devices compute
    assert accepts(torch.nextafter(one.eager, torch.zeros(())))
    assert not accepts(one.wrong["lost"])
