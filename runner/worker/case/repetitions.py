"""The side effects of a step that is carried out several times. Pure, without torch."""

from collections.abc import Mapping
from typing import Any


def with_repetition(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a step after one more repetition: what differed after an earlier one still counts.

    A value that is not near after one repetition is ``apart`` before the next, which therefore does not compare it. One that is
    near, but not equal, is compared after each.
    """
    if before is None:
        return dict(after)
    differed = {leaf["path"] for leaf in before["leaves"] if not is_near(leaf)}
    found = {
        **after,
        "compared": max(before["compared"], after["compared"]),
        "apart": [path for path in after["apart"] if path not in differed],
        "leaves": [*before["leaves"], *(leaf for leaf in after["leaves"] if leaf["path"] not in differed)],
    }
    both = {name: [*before.get(name, ()), *after.get(name, ())] for name in ("generators", "modes")}
    return {**found, **{name: entries for name, entries in both.items() if entries}}


def is_near(facts: Mapping[str, Any]) -> bool:
    """Whether two values are equal, or tensors of one form within the tolerance."""
    if facts["type"] != "tensor":
        return facts.get("equal") is True
    same = all(facts[name] == facts[f"reference_{name}"] for name in ("type", "shape", "dtype", "device"))
    return same and not any(facts[name] for name in ("mismatches", "nan_mismatches", "inf_mismatches"))
