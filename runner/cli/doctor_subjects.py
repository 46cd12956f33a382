"""What this machine allows, for ``doctor``: for each backend, how many cases can run, and why the others cannot.

``SUBJECTS`` is the table: an entry turns the loaded specs and the machine into rows. Profiles, which select cases, are one entry more.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from runner.core.case import Availability, Case
from runner.language.load import Suite
from runner.system import availability
from runner.system.capabilities import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A name that selects cases, and what becomes of its cases on this machine."""

    name: str
    summary: str
    specs: int
    """How many specs its cases come from."""
    can_run: int
    perhaps: int
    """Cases of which only a run can know."""
    unavailable: int
    on_request: int
    """How many of all its cases run only when they are named."""
    reasons: Mapping[str, int]
    """Why cases cannot run, or perhaps cannot, with their numbers; the most frequent first."""

    @property
    def cases(self) -> int:
        """How many cases it has."""
        return self.can_run + self.perhaps + self.unavailable


def row_of(name: str, summary: str, cases: Sequence[Case], machine: Machine) -> Row:
    """Return what becomes of some cases, by the same rules as ``list``."""
    verdicts = [availability.of_case(case, machine) for case in cases]
    counts = Counter(verdict.availability for verdict in verdicts)
    reasons = Counter(verdict.reason for verdict in verdicts if verdict.reason)
    return Row(
        name=name,
        summary=summary,
        specs=len({case.spec for case in cases}),
        can_run=counts[Availability.YES],
        perhaps=counts[Availability.UNKNOWN],
        unavailable=counts[Availability.NO],
        on_request=sum(case.on_request for case in cases),
        reasons=dict(reasons.most_common()),
    )


def of_backends(suite: Suite, machine: Machine) -> list[Row]:
    """Return a row for each backend of the backends files."""
    by_backend: dict[str, list[Case]] = {name: [] for name in suite.backends.by_name}
    for case in suite.cases:
        by_backend[case.backend].append(case)
    return [row_of(name, suite.backends.by_name[name].summary, cases, machine) for name, cases in by_backend.items()]


SUBJECTS: Mapping[str, Callable[[Suite, Machine], list[Row]]] = {"backends": of_backends}
"""What selects cases, by the key of ``--json``."""
