"""Conformance to a profile: what a profile requires, and what the results of a run say of it. Frozen values and one pure function.

``ProfileRecord`` is a profile as a run recorded it: the ids of its cases and the waivers that it permits. ``statement_of`` is a function of
that record and of results, so that a run, its reports, ``merge`` and every reader of its journal compute the same statement.

| of a required case                                                                                   | it counts as |
|------------------------------------------------------------------------------------------------------|--------------|
| PASS                                                                                                 | passed       |
| XFAIL by a permitted waiver that has not expired                                                     | waived       |
| FAIL, FELL_BACK, FLAKY, XPASS, OFFLINE_FAIL; CRASH and TIMEOUT while compiling or running; any other XFAIL | failed       |
| UNAVAILABLE, NOT_RUN, OFFLINE_PASS, ERROR, no result; CRASH and TIMEOUT before the function was compiled | not executed |

One failed case: NOT CONFORMANT. Otherwise one that was not executed: INCOMPLETE. A failure stays one, whatever else could not be run.
"""

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from enum import Enum

from runner.model.conditions import VersionRange
from runner.model.diagnostics import Position
from runner.model.outcomes import ExitCode, Outcome
from runner.model.results import AppliedWaiver, CaseResult, WaiverEffect

_RELEASE = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})*")

LEVELS = ("P0", "P1", "P2")
"""The levels of a profile; P0 is the most important."""

PHASES_BEFORE_CLAIM = ("", "start", "import", "inputs", "eager")
"""Phases in which nothing was compiled yet. A process that ends there shows nothing of the backend."""


class Conformance(Enum):
    """What a run says of a profile, or of one of its levels."""

    CONFORMANT = "CONFORMANT"
    NOT_CONFORMANT = "NOT CONFORMANT"
    INCOMPLETE = "INCOMPLETE"

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a run with this statement."""
        return {"CONFORMANT": ExitCode.OK, "NOT CONFORMANT": ExitCode.FAILED, "INCOMPLETE": ExitCode.NOTHING}[self.value]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileLevel:
    """The cases of one level, by id. No id is in two levels, or in both lists."""

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PermittedWaiver:
    """A waiver that a profile permits: the fields by which a result names it."""

    cases: str
    issue: str
    until: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRecord:
    """A profile with the cases that it requires."""

    name: str
    version: str
    file: str
    digest: str
    """The sha256 of the file."""
    torch: str
    """The range of versions that it is for."""
    levels: tuple[ProfileLevel, ...]
    waivers: tuple[PermittedWaiver, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        """The required ids of all levels."""
        return tuple(case_id for level in self.levels for case_id in level.required)


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelStatement:
    """What a run says of one level."""

    level: str
    conformance: Conformance
    required: int
    executed: int
    passed: int
    waived: int
    failed: Mapping[str, str] = field(default_factory=dict)
    """The reason of each failed case, by id."""
    not_executed: Mapping[str, str] = field(default_factory=dict)
    """The reason of each case that was not executed, by id."""
    optional: Mapping[str, int] = field(default_factory=dict)
    """How many optional cases have each outcome; they change no statement."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UsedWaiver:
    """A permitted waiver with the required cases whose failure it waived."""

    cases: str
    position: Position
    reason: str
    issue: str
    until: str
    used_by: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """What a run says of a profile."""

    profile: str
    version: str
    digest: str
    conformance: Conformance
    required: int
    executed: int
    levels: tuple[LevelStatement, ...]
    waivers: tuple[UsedWaiver, ...] = ()
    problems: tuple[str, ...] = ()
    """Reasons that concern no single case: a torch that the profile is not for."""

    @property
    def failed(self) -> Mapping[str, str]:
        """The reason of each failed case of all levels."""
        return {case_id: reason for level in self.levels for case_id, reason in level.failed.items()}

    @property
    def optional_failures(self) -> int:
        """How many optional cases ran and failed."""
        failures = [outcome.label for outcome in Outcome if outcome.is_failure and outcome is not Outcome.NOT_RUN]
        return sum(level.optional.get(label, 0) for level in self.levels for label in failures)

    @property
    def not_executed(self) -> Mapping[str, str]:
        """The reason of each required case that was not executed."""
        return {case_id: reason for level in self.levels for case_id, reason in level.not_executed.items()}


class Standing(Enum):
    """How a required case counts."""

    PASSED = "passed"
    WAIVED = "waived"
    FAILED = "failed"
    NOT_EXECUTED = "not executed"


def statement_of(
    profile: ProfileRecord, results: Iterable[CaseResult], *, torch: tuple[int, ...] | None, day: date, shard: str = ""
) -> Statement:
    """Return the statement. ``torch`` is the release that ran, ``day`` the day of the run, ``shard`` is empty for a whole run."""
    by_id: dict[str, CaseResult] = {result.case_id: result for result in results}

    on_nodes = dict.fromkeys(
        part.node["torch"] for result in by_id.values() for part in (result, *result.attempts) if part.node.get("torch")
    )
    releases = [torch, *map(release_of, on_nodes)]
    problems = [problem for problem in dict.fromkeys(wrong_torch(profile, release) for release in releases) if problem]
    if torch is None and any(result.outcome.is_executed for result in by_id.values()):
        problems.append(f"the run does not say which torch executed its cases; the profile is for {profile.torch}")

    permitted = frozenset((waiver.cases, waiver.issue, waiver.until) for waiver in profile.waivers if _is_valid(waiver.until, day))
    levels: list[LevelStatement] = []
    used: dict[AppliedWaiver, list[str]] = {}
    for level in profile.levels:
        standings = {case_id: standing(by_id.get(case_id), permitted, shard) for case_id in level.required}
        counts = Counter(counted for counted, _ in standings.values())
        failed = {case_id: reason for case_id, (counted, reason) in standings.items() if counted is Standing.FAILED}
        missing = {case_id: reason for case_id, (counted, reason) in standings.items() if counted is Standing.NOT_EXECUTED}
        for case_id, (counted, _) in standings.items():
            if counted is Standing.WAIVED and (waiver := _matched(by_id[case_id])) is not None:
                used.setdefault(waiver, []).append(case_id)
        optional = Counter(by_id[case_id].outcome if case_id in by_id else Outcome.NOT_RUN for case_id in level.optional)
        levels.append(
            LevelStatement(
                level=level.name,
                conformance=_conformance(failed=bool(failed), missing=bool(missing)),
                required=len(level.required),
                executed=len(level.required) - len(missing) - sum(by_id[case_id].outcome is Outcome.OFFLINE_FAIL for case_id in failed),
                passed=counts[Standing.PASSED],
                waived=counts[Standing.WAIVED],
                failed=failed,
                not_executed=missing,
                optional={outcome.label: optional[outcome] for outcome in Outcome if optional[outcome]},
            )
        )
    return Statement(
        profile=profile.name,
        version=profile.version,
        digest=profile.digest,
        conformance=_conformance(
            failed=any(level.failed for level in levels),
            missing=bool(problems) or any(level.not_executed for level in levels) or not profile.required,
        ),
        required=sum(level.required for level in levels),
        executed=sum(level.executed for level in levels),
        levels=tuple(levels),
        waivers=tuple(
            UsedWaiver(
                cases=waiver.cases,
                position=waiver.position,
                reason=waiver.reason,
                issue=waiver.issue,
                until=waiver.until,
                used_by=tuple(ids),
            )
            for waiver, ids in used.items()
        ),
        problems=tuple(problems),
    )


def _is_valid(until: str, day: date) -> bool:
    try:
        return date.fromisoformat(until) >= day
    except ValueError:
        return False


def _conformance(*, failed: bool, missing: bool) -> Conformance:
    if failed:
        return Conformance.NOT_CONFORMANT
    return Conformance.INCOMPLETE if missing else Conformance.CONFORMANT


def release_of(version: str) -> tuple[int, ...] | None:
    """Return the release numbers of a version of torch; None for a text without any."""
    match = _RELEASE.match(version)
    return tuple(map(int, match[0].split("."))) if match else None


def wrong_torch(profile: ProfileRecord, torch: tuple[int, ...] | None) -> str:
    """Return what is wrong with a release of torch for a profile; empty where nothing is."""
    if torch is None or VersionRange.parse(profile.torch).holds(torch):
        return ""
    return f"torch {'.'.join(map(str, torch))} is not in {profile.torch}, for which the profile is"


def standing(result: CaseResult | None, permitted: frozenset[tuple[str, str, str]], shard: str = "") -> tuple[Standing, str]:
    """Return how a required case counts, and why where it did not pass."""
    if result is None:
        return Standing.NOT_EXECUTED, f"not in shard {shard}" if shard else "lost: it has no result"
    reason = f"{result.outcome.label}: {result.reason}"
    match result.outcome:
        case Outcome.PASS:
            return Standing.PASSED, ""
        case Outcome.XFAIL:
            waiver = _matched(result)
            if waiver is not None and (waiver.cases, waiver.issue, waiver.until) in permitted:
                return Standing.WAIVED, ""
            return Standing.FAILED, f"{reason}; the profile does not permit this waiver"
        case Outcome.UNAVAILABLE | Outcome.NOT_RUN | Outcome.OFFLINE_PASS | Outcome.ERROR:
            return Standing.NOT_EXECUTED, reason
        case Outcome.CRASH | Outcome.TIMEOUT if result.phase in PHASES_BEFORE_CLAIM:
            return Standing.NOT_EXECUTED, f"{reason}; nothing was compiled yet"
    return Standing.FAILED, reason


def _matched(result: CaseResult) -> AppliedWaiver | None:
    """Return the waiver that made this an XFAIL: the first that matches counts."""
    return next((waiver for waiver in result.waivers if waiver.effect is WaiverEffect.MATCHED), None)
