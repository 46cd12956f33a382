"""How an answer with random numbers of the compiler's own is judged: by three distributions,
compared with those of eager with other seeds.

``ranks``: where each number is among those that eager draws for the same element; ``sizes``: the
same of absolute values. ``values``: all numbers together. Each is the greatest distance of two
distribution functions (Kolmogorov and Smirnov), from all runs of eager; eager's own runs say how
far a right one may be.
"""

import math
from collections.abc import Sequence

from torch_conformance.vocabulary.expectations.calibrated import flat
from torch_conformance.vocabulary.worker_session import Facts, NewFacts
from torch_conformance.vocabulary.worker_torch import Tensor, torch

RUNS = 24
"""How often eager draws."""

LEAST = 36
"""Of fewer random numbers nothing can be said: a coin shows the same side five times."""

FACTOR = 2.0
"""How many times the greatest distance of eager's runs a right answer may be away."""

_BY_CHANCE = 3.0
"""Over the root of the number of elements: a distance that is right whatever eager's runs show."""

_MOST = 1 << 14
"""Elements that are compared, evenly spread."""

_EQUAL = 1e-4
"""Relative to the greatest of eager's draws, what is the same number."""


def measure(answer: Tensor, runs: Sequence[Tensor]) -> NewFacts | None:
    """Return the facts of an answer, of any shape and of a real or complex dtype, and of runs of
    eager of the same shape; None where eager draws none of its numbers.

    Of at most ``_MOST`` elements, evenly spread, each has a rank among eager's draws of it: the
    share of draws that are smaller, where an equal one (``_EQUAL``) counts a half.
    """
    step = -(-answer.numel() // _MOST) or 1
    drawn = torch.stack([flat(run)[::step] for run in runs])
    own = flat(answer)[::step].to(drawn.device)
    near = _EQUAL * drawn.abs().amax(0)
    if not bool(((drawn - drawn[0]).abs() > near).any()):
        return None
    is_random = ((drawn - drawn[0]).abs() > near).any(0) | ~((own - drawn[0]).abs() <= near)
    drawn, own, near = drawn[:, is_random], own[is_random], near[is_random]

    def ranks(numbers: Tensor, others: Tensor) -> Tensor:
        """Return the rank of each of n numbers, in 0 to 1, among k others of shape (k, n)."""
        apart = numbers - others
        return ((apart > near).double() + (apart.abs() <= near).double() / 2).mean(0)

    def ranked(numbers: Tensor, draws: Tensor) -> tuple[Tensor, Tensor]:
        """Return the ranks of an answer, and those of each run, among as many other runs."""
        places = torch.arange(len(draws))
        of_runs = [ranks(draws[at], draws[places != at]) for at in places]
        return ranks(numbers, draws[1:]), torch.stack(of_runs)

    facts: NewFacts = {
        "numel": int(is_random.sum()),
        "nonfinite": int((own.isfinite() != drawn[0].isfinite()).sum()),
    }
    for name, (ours, theirs) in {
        "ranks": ranked(own, drawn),
        "sizes": ranked(own.abs(), drawn.abs()),
        "values": (own, drawn),
    }.items():
        whole = theirs.reshape(-1)
        facts[name] = _distance(ours, whole)
        facts[f"eager_{name}"] = max(_distance(row, whole) for row in theirs)
    return facts


def _distance(numbers: Tensor, whole: Tensor) -> float:
    """Return the greatest distance of two distribution functions."""
    places = torch.cat([numbers, whole]).sort().values
    shares = [
        torch.searchsorted(part.sort().values, places, right=True) / len(part)
        for part in (numbers, whole)
    ]
    return float((shares[0] - shares[1]).abs().max())


def problem(facts: Facts) -> str:
    """Return what is wrong with an answer by its facts; empty for a right one, and for one of too
    few numbers.
    """
    if facts["nonfinite"]:
        return f"NaN or an infinity on one side only in {facts['nonfinite']} random numbers"
    if facts["numel"] < LEAST:
        return ""
    by_chance = _BY_CHANCE / math.sqrt(facts["numel"])
    for name in ("ranks", "sizes", "values"):
        bound = max(FACTOR * facts[f"eager_{name}"], by_chance)
        if not facts[name] <= bound:
            return (
                f"the distribution of the {name} of {facts['numel']} random numbers is "
                f"{facts[name]:.3g} from eager's: the bound is {bound:.3g}"
            )
    return ""
