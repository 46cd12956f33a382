"""Waivers as values: known failures with their cases, their signature, the defect of torch, and the
last day.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any

from torch_conformance.model.diagnostics import Position
from torch_conformance.model.document import Document
from torch_conformance.model.values import frozen


@dataclass(frozen=True, slots=True)
class Signature:
    """The signature of a failure: its type in JUnit, and a regular expression for its message."""

    type: str
    match: str
    phases: tuple[str, ...] = ()
    """The phases in which the failure may have happened; empty for any."""
    numbers: Mapping[str, float] = field(default_factory=dict)
    """What is known of the wrong numbers: ``error`` or ``most``, and the words of ``answer``; empty
    for any.
    """

    def covers(self, measured: Mapping[str, float]) -> bool:
        """Whether these are the numbers of a failure, about; those without numbers are of another
        failure.
        """
        if not self.numbers:
            return True
        limits = {"nonfinite": 0.0, **self.numbers}
        most = limits.pop("most", math.inf)
        return (
            bool(measured)
            and measured["error"] <= most
            and all(
                _is_about(word, measured.get(word, 0.0), number) for word, number in limits.items()
            )
        )


def _is_about(word: str, measured: float, waived: float) -> bool:
    if word in ("likeness", "bias", "outward"):
        return abs(measured - waived) <= LIKENESS
    if word == "nonfinite" and not waived:
        return measured == 0
    factor = SIZE if word == "size" else ERROR
    return waived / factor <= measured <= waived * factor or (
        word == "share" and abs(measured - waived) <= SHARE
    )


ERROR, SIZE, SHARE, LIKENESS = 4.0, 2.0, 0.05, 0.5
"""The same defect on other inputs: its error, and the share of wrong elements, within a factor of 4
(or 0.05 of a share); the size within one of 2; the likeness, and which way errors go, within 0.5.
"""


@frozen
class Waiver:
    """One known failure."""

    cases: str
    """A glob over ids."""
    when: Mapping[str, Any] | None
    failures: tuple[Signature, ...]
    reason: str
    issue: str
    until: date
    """The last day on which the waiver applies."""
    flaky: bool = False
    """Whether its cases pass in some runs."""
    is_cell: bool = False
    """Whether it is a known gap of a compiler, as its entry expects it."""
    position: Position


@frozen
class WaiverFiles:
    """The waivers in file order, the shipped file first."""

    waivers: tuple[Waiver, ...] = ()
    documents: tuple[Document, ...] = ()
    user_files: frozenset[str] = frozenset()
    """Files of the command line, by their names in messages."""
