"""The labels and resources with which a node joins a Ray cluster: who writes them and who reads them share this module."""

import re
from collections.abc import Mapping

NAME = "torch-conformance/name"
SHARES = "torch-conformance/shares"
SPLIT = "torch-conformance/split"

RESOURCE = "torch_conformance_share_"
"""The resource of each share: a run that holds it has the share alone."""

_VALUE = re.compile(r"[^A-Za-z0-9._-]+")
_MOST = 63


def labels_of(name: str, shares: int, split: str, facts: Mapping[str, str]) -> dict[str, str]:
    """Return the labels of a node: its name, its shares, and the facts that ``doctor`` shows of it."""
    known = {f"torch-conformance/{fact}": value for fact, value in facts.items()}
    return {label: as_label(value) for label, value in {**known, NAME: name, SHARES: str(shares), SPLIT: split}.items() if value}


def as_label(value: str) -> str:
    """Return a text as the value of a label: Ray allows 63 letters, digits, dots, dashes and underscores."""
    return _VALUE.sub("-", value)[:_MOST].strip("-._")


def resources_of(shares: int) -> dict[str, float]:
    """Return the resources of a node."""
    return {f"{RESOURCE}{share}": 1.0 for share in range(shares)}
