"""The statement of a profile: CONFORMANT, NOT CONFORMANT or INCOMPLETE. Pure functions of the profile, the cases and their results.

``core.conformance`` has the table by which a case counts; ``run``, reports, ``merge`` and readers of a journal use it through the header of
the run. ``prospect`` says before a run whether this machine could execute what a profile requires.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date

from runner.core.case import Availability, Case
from runner.core.conformance import ProfileRecord, Statement, statement_of, wrong_torch
from runner.core.results import CaseResult
from runner.language.backends import Backends
from runner.language.profiles import Profile
from runner.language.waivers import WaiverFiles
from runner.plan.profile_cases import resolve


def statement(
    profile: Profile,
    cases: Sequence[Case],
    results: Iterable[CaseResult],
    *,
    backends: Backends,
    waivers: WaiverFiles,
    torch: tuple[int, ...] | None,
    day: date,
    lost: Iterable[str] = (),
) -> Statement:
    """Return the statement of results; raise ``InvalidSpecs`` where the profile names nothing among the cases.

    ``waivers`` are those that were read, ``lost`` the ids that the ledger lists and no spec has, ``day`` the day of the run (UTC).
    """
    record = resolve(profile, cases, backends, waivers, lost).record
    return statement_of(record, results, torch=torch, day=day)


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """Whether a machine could execute every required case of a profile."""

    profile: str
    version: str
    required: int
    possible: int
    """How many required cases can run here."""
    perhaps: int
    """How many of them only the run can decide."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """Why the others cannot run here: how many cases have each reason."""
    uncertain: Mapping[str, int] = field(default_factory=dict)
    """Why only the run can decide: how many cases have each reason."""
    problem: str = ""
    """Why no run here is possible, whatever the cases: a torch that the profile is not for."""

    @property
    def can_be_complete(self) -> bool | None:
        """Whether a run here can be complete; None where only the run can know."""
        if self.missing or self.problem or not self.required:
            return False
        return None if self.perhaps else True


def prospect(profile: ProfileRecord, available: Mapping[str, tuple[Availability, str]], *, torch: tuple[int, ...] | None) -> Prospect:
    """Return whether a machine can execute what a profile requires.

    ``available`` has availability and reason of each case by id; ``torch`` is the installed release, if there is one.
    """
    lost = (Availability.NO, "lost: no spec has this case")
    found = [available.get(case_id, lost) for case_id in profile.required]
    counts = Counter(availability for availability, _ in found)
    reasons = {kind: dict(Counter(reason for availability, reason in found if availability is kind).most_common()) for kind in Availability}
    return Prospect(
        profile=profile.name,
        version=profile.version,
        required=len(found),
        possible=counts[Availability.YES],
        perhaps=counts[Availability.UNKNOWN],
        missing=reasons[Availability.NO],
        uncertain=reasons[Availability.UNKNOWN],
        problem=wrong_torch(profile, torch),
    )
