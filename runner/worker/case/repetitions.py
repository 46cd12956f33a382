"""The side effects of a step that is carried out several times. Pure, without torch."""

from collections.abc import Mapping
from typing import Any


def with_repetition(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts of a step after one more repetition: what differed after an earlier one still counts.

    A value that differs after one repetition is ``apart`` before the next, which therefore does not compare it.
    """
    if before is None:
        return dict(after)
    differed = {leaf["path"] for leaf in before["leaves"]}
    found = {
        **after,
        "compared": max(before["compared"], after["compared"]),
        "apart": [path for path in after["apart"] if path not in differed],
        "leaves": [*before["leaves"], *(leaf for leaf in after["leaves"] if leaf["path"] not in differed)],
    }
    generators = [*before.get("generators", ()), *after.get("generators", ())]
    return {**found, "generators": generators} if generators else found
