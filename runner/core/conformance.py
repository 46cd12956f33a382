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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum

from runner.core.conditions import VersionRange
from runner.core.diagnostics import Position
from runner.core.exit_codes import ExitCode
from runner.core.outcomes import Outcome
from runner.core.results import AppliedWaiver, CaseResult, WaiverEffect

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
        return _EXIT_CODES[self]


_EXIT_CODES = {
    Conformance.CONFORMANT: ExitCode.OK,
    Conformance.NOT_CONFORMANT: ExitCode.FAILED,
    Conformance.INCOMPLETE: ExitCode.NOTHING,
}


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
    problems = tuple(_problems(profile, torch, by_id.values()))
    permitted = frozenset((one.cases, one.issue, one.until) for one in profile.waivers if _is_valid(one.until, day))
    levels = tuple(_level(level, by_id, permitted, shard) for level in profile.levels)
    overall = _conformance(
        failed=any(level.failed for level in levels),
        missing=bool(problems) or any(level.not_executed for level in levels) or not profile.required,
    )
    return Statement(
        profile=profile.name,
        version=profile.version,
        digest=profile.digest,
        conformance=overall,
        required=sum(level.required for level in levels),
        executed=sum(level.executed for level in levels),
        levels=levels,
        waivers=_used(profile, by_id, permitted),
        problems=problems,
    )


_Key = tuple[str, str, str]


def _is_valid(until: str, day: date) -> bool:
    try:
        return date.fromisoformat(until) >= day
    except ValueError:
        return False


def _conformance(*, failed: bool, missing: bool) -> Conformance:
    if failed:
        return Conformance.NOT_CONFORMANT
    return Conformance.INCOMPLETE if missing else Conformance.CONFORMANT


def _problems(profile: ProfileRecord, torch: tuple[int, ...] | None, results: Iterable[CaseResult]) -> Iterable[str]:
    problem = wrong_torch(profile, torch)
    if problem:
        yield problem
    on_nodes = dict.fromkeys(part.node["torch"] for result in results for part in (result, *result.attempts) if part.node.get("torch"))
    for other in dict.fromkeys(wrong_torch(profile, release_of(version)) for version in on_nodes):
        if other and other != problem:
            yield other
    if torch is None and any(result.outcome.is_executed for result in results):
        yield f"the run does not say which torch executed its cases; the profile is for {profile.torch}"


def release_of(version: str) -> tuple[int, ...] | None:
    """Return the release numbers of a version of torch; None for a text without any."""
    found = _RELEASE.match(version)
    return tuple(map(int, found[0].split("."))) if found else None


def wrong_torch(profile: ProfileRecord, torch: tuple[int, ...] | None) -> str:
    """Return what is wrong with a release of torch for a profile; empty where nothing is."""
    if torch is None or VersionRange.parse(profile.torch).holds(torch):
        return ""
    return f"torch {'.'.join(map(str, torch))} is not in {profile.torch}, for which the profile is"


def _level(level: ProfileLevel, results: Mapping[str, CaseResult], permitted: frozenset[_Key], shard: str) -> LevelStatement:
    standings = {case_id: standing(results.get(case_id), permitted, shard) for case_id in level.required}
    counts = Counter(found for found, _ in standings.values())
    failed = {case_id: reason for case_id, (found, reason) in standings.items() if found is Standing.FAILED}
    missing = {case_id: reason for case_id, (found, reason) in standings.items() if found is Standing.NOT_EXECUTED}
    return LevelStatement(
        level=level.name,
        conformance=_conformance(failed=bool(failed), missing=bool(missing)),
        required=len(level.required),
        executed=len(level.required) - len(missing) - sum(results[case_id].outcome is Outcome.OFFLINE_FAIL for case_id in failed),
        passed=counts[Standing.PASSED],
        waived=counts[Standing.WAIVED],
        failed=failed,
        not_executed=missing,
        optional=_outcomes(level.optional, results),
    )


def _outcomes(ids: Sequence[str], results: Mapping[str, CaseResult]) -> dict[str, int]:
    counts = Counter(results[case_id].outcome if case_id in results else Outcome.NOT_RUN for case_id in ids)
    return {outcome.label: counts[outcome] for outcome in Outcome if counts[outcome]}


def standing(result: CaseResult | None, permitted: frozenset[_Key], shard: str = "") -> tuple[Standing, str]:
    """Return how a required case counts, and why where it did not pass."""
    if result is None:
        return Standing.NOT_EXECUTED, f"not in shard {shard}" if shard else "lost: it has no result"
    said = f"{result.outcome.label}: {result.reason}"
    match result.outcome:
        case Outcome.PASS:
            return Standing.PASSED, ""
        case Outcome.XFAIL:
            waived = any((one.cases, one.issue, one.until) in permitted for one in _matched(result))
            return (Standing.WAIVED, "") if waived else (Standing.FAILED, f"{said}; the profile does not permit this waiver")
        case Outcome.UNAVAILABLE | Outcome.NOT_RUN | Outcome.OFFLINE_PASS | Outcome.ERROR:
            return Standing.NOT_EXECUTED, said
        case Outcome.CRASH | Outcome.TIMEOUT if result.phase in PHASES_BEFORE_CLAIM:
            return Standing.NOT_EXECUTED, f"{said}; nothing was compiled yet"
    return Standing.FAILED, said


def _matched(result: CaseResult) -> Iterable[AppliedWaiver]:
    """Return the waivers that made this an XFAIL: the first that matches counts."""
    return [one for one in result.waivers if one.effect is WaiverEffect.MATCHED][:1]


def _used(profile: ProfileRecord, results: Mapping[str, CaseResult], permitted: frozenset[_Key]) -> tuple[UsedWaiver, ...]:
    used: dict[AppliedWaiver, list[str]] = {}
    for case_id in profile.required:
        result = results.get(case_id)
        if result is not None and standing(result, permitted)[0] is Standing.WAIVED:
            for one in _matched(result):
                used.setdefault(one, []).append(case_id)
    return tuple(
        UsedWaiver(cases=one.cases, position=one.position, reason=one.reason, issue=one.issue, until=one.until, used_by=tuple(ids))
        for one, ids in used.items()
    )
