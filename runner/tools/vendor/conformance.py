"""Conformance to a profile: what the results of a run say of it, and in which words reports say so.

A statement is a function of the profile as the run recorded it (``ProfileRecord``) and of the results, so that a run, its reports,
``merge`` and every reader of its journal compute the same one.

| of a required case                                                                                   | it counts as |
|------------------------------------------------------------------------------------------------------|--------------|
| PASS                                                                                                 | passed       |
| XFAIL by a permitted waiver that has not expired                                                     | waived       |
| FAIL, FELL_BACK, FLAKY, XPASS, OFFLINE_FAIL; CRASH and TIMEOUT while compiling or running; any other XFAIL | failed       |
| UNAVAILABLE, NOT_RUN, OFFLINE_PASS, ERROR, no result; CRASH and TIMEOUT before the function was compiled | not executed |
| of a profile for any compiler also a PASS where ATen computed something, whatever its entry allows, or nobody measured it | not executed |

One failed case: NOT CONFORMANT. Otherwise one that was not executed: INCOMPLETE. A failure stays one, whatever else could not be run.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from enum import Enum

from runner.machine.installed_torch import release
from runner.model.conditions import BadRange, VersionRange
from runner.model.diagnostics import Position
from runner.model.escaping import one_line
from runner.model.header import ProfileRecord, RunHeader
from runner.model.outcomes import ExitCode, Outcome
from runner.model.results import AppliedWaiver, CaseResult, WaiverEffect
from runner.plan.case_ledger import fold
from runner.report.support_table import State, counts_of, state_of

LEVELS = ("P0", "P1", "P2")
"""The levels of a profile; P0 is the most important."""

PHASES_BEFORE_CLAIM = ("", "start", "import", "inputs", "eager")
"""Phases in which nothing was compiled yet. A process that ends there shows nothing of the backend."""


class Conformance(Enum):
    """What a run says of a profile, or of one of its levels."""

    CONFORMANT = "CONFORMANT"
    NOT_CONFORMANT = "NOT CONFORMANT"
    INCOMPLETE = "INCOMPLETE"

    @classmethod
    def of(cls, *, failed: bool, missing: bool) -> "Conformance":
        """Return what cases that failed, or were not executed, make of a level or a profile."""
        return cls.NOT_CONFORMANT if failed else cls.INCOMPLETE if missing else cls.CONFORMANT

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a run with this statement."""
        return {"CONFORMANT": ExitCode.OK, "NOT CONFORMANT": ExitCode.FAILED, "INCOMPLETE": ExitCode.NOTHING}[self.value]


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


_SHOWN = 3
"""How many reasons the one line of ``why`` has."""


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
    compiler: str = ""
    """The backend of a profile for any compiler; empty for any other profile, as are the next two."""
    proof: str = ""
    """What its entry says that the compiler must compute, and what ATen may."""
    computed: Mapping[str, int] = field(default_factory=dict)
    """How many required cases have each state of the support table."""

    @property
    def about_compiler(self) -> tuple[str, ...]:
        """Who computed the required cases, and what the entry of the backend says; empty for a profile that is not for any compiler."""
        counts = ", ".join(f"{count} {word}" for word, count in self.computed.items())
        return (f"{self.compiler}: {counts or 'no case was run'}", f"its entry: {self.proof}") if self.compiler else ()

    @property
    def failed(self) -> Mapping[str, str]:
        """The reason of each failed case of all levels."""
        return {case_id: reason for level in self.levels for case_id, reason in level.failed.items()}

    @property
    def not_executed(self) -> Mapping[str, str]:
        """The reason of each required case that was not executed."""
        return {case_id: reason for level in self.levels for case_id, reason in level.not_executed.items()}

    @property
    def in_words(self) -> str:
        """The statement with how many required cases passed, are waived, failed and were not executed."""
        return f"{self.conformance.value}: {_standings(self.levels)} of {self.required} required"

    @property
    def why(self) -> str:
        """Why a profile is not CONFORMANT, on one line; empty where it is."""
        if self.conformance is Conformance.CONFORMANT:
            return ""
        by_case = self.failed or self.not_executed
        reasons = Counter(one_line(reason, 200) for reason in by_case.values())
        shown = [f"{count} x {reason}" for reason, count in reasons.most_common(_SHOWN)]
        more = [f"and {len(reasons) - _SHOWN} more reasons"] if len(reasons) > _SHOWN else []
        what = "failed" if self.failed else "not executed"
        counted = [f"{len(by_case)} of {self.required} required cases {what}"] if by_case else []
        because = f": {'; '.join([*shown, *more])}" if shown else ""
        words = f"{'; '.join([*self.problems, *counted])}{because}"
        return one_line(f"profile {self.profile} {self.version} is {self.conformance.value}: {words}", 2_000)

    @property
    def optional_failures(self) -> str:
        """What the failures of optional cases change; empty where none of them failed."""
        failures = [outcome.label for outcome in Outcome if outcome.is_failure and outcome is not Outcome.NOT_RUN]
        count = sum(level.optional.get(label, 0) for level in self.levels for label in failures)
        if not count:
            return ""
        cases, they = ("1 optional case", "It changes") if count == 1 else (f"{count} optional cases", "They change")
        return f"{cases} of the profile failed. {they} neither the statement nor the exit code."

    @property
    def remark(self) -> str:
        """Why the statement and the number of failed cases go together; empty where both need no explanation."""
        return " ".join(filter(None, [f"{self.why}." if self.why else "", self.optional_failures]))

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report for people."""
        yield f"\nprofile {one_line(self.profile)} {one_line(self.version)}, sha256 {self.digest}"
        for level in self.levels:
            optional = ", ".join(f"{count} {label}" for label, count in level.optional.items())
            yield f"  {level.level}  {_of_level(level, ': ')}{f'; optional: {optional}' if optional else ''}"
        yield from (f"  {one_line(remark, 2_000)}" for remark in (*self.about_compiler, *self.problems))
        for what, reasons in (("failed", self.failed), ("not executed", self.not_executed)):
            if reasons:
                yield f"  {what}:"
            for reason in dict.fromkeys(reasons.values()):
                yield f"    {one_line(reason)}"
                ids = fold(case_id for case_id, why in reasons.items() if why == reason)
                yield from (f"      {one_line(line, limit=10_000)}" for line in ids)
        if self.waivers:
            yield "  waivers:"
        for waiver in self.waivers:
            words = f"{waiver.position} until {waiver.until}, {len(waiver.used_by)} cases: {waiver.reason} ({waiver.issue})"
            yield f"    {one_line(words)}"
        yield self.in_words
        yield from filter(None, [self.optional_failures])

    def properties(self) -> dict[str, str]:
        """Return the properties of a suite of JUnit."""
        return {
            "profile": f"{self.profile} {self.version}",
            "profile.sha256": self.digest,
            "statement": self.conformance.value,
            "statement.required": str(self.required),
            "statement.executed": str(self.executed),
            "statement.passed": str(sum(level.passed for level in self.levels)),
            "statement.waived": str(sum(level.waived for level in self.levels)),
            "statement.waivers": " ".join(waiver.issue for waiver in self.waivers),
            **{f"profile.{level.level}": _of_level(level, ", ") for level in self.levels},
            **{f"statement.{word}": str(count) for word, count in self.computed.items()},
            **({"statement.proof": self.proof} if self.compiler else {}),
        }


def _of_level(level: LevelStatement, mark: str) -> str:
    return f"{level.conformance.value}{mark}{_standings([level])} of {level.required} required"


def _standings(levels: Sequence[LevelStatement]) -> str:
    """Return how many required cases passed, are waived, failed and were not executed."""
    counts = {
        "passed": sum(level.passed for level in levels),
        "waived": sum(level.waived for level in levels),
        "failed": sum(len(level.failed) for level in levels),
        "not executed": sum(len(level.not_executed) for level in levels),
    }
    return ", ".join(f"{count} {word}" for word, count in counts.items() if count or word == "passed")


# -- how it is computed -----------------------------------------------------------------------------------------------


class Standing(Enum):
    """How a required case counts."""

    PASSED = "passed"
    WAIVED = "waived"
    FAILED = "failed"
    NOT_EXECUTED = "not executed"


def statement_of_run(header: RunHeader, results: Iterable[CaseResult]) -> Statement:
    """Return what results say of the profile of their run, by the waivers of the day on which it began."""
    try:
        day = date.fromisoformat(header.started[:10])
    except ValueError:
        day = date.max  # no waiver reaches it
    return statement_of(header.profile[0], results, torch=header.environment.get("torch", ""), day=day, shard=header.shard)


def statement_of(profile: ProfileRecord, results: Iterable[CaseResult], *, torch: str, day: date, shard: str = "") -> Statement:
    """Return the statement. ``torch`` is the version that ran, ``day`` the day of the run, ``shard`` is empty for a whole run."""
    by_id: dict[str, CaseResult] = {result.case_id: result for result in results}
    nodes = (part.node.get("torch", "") for result in by_id.values() for part in (result, *result.attempts))
    releases = dict.fromkeys(map(_release, (torch, *nodes)))
    problems = [problem for known in releases if known and (problem := wrong_torch(profile, known))]
    if _release(torch) is None and any(result.outcome.is_executed for result in by_id.values()):
        problems.append(f"the run does not say which torch executed its cases; the profile is for {profile.torch}")

    permitted = frozenset((waiver.cases, waiver.issue, waiver.until) for waiver in profile.waivers if _is_valid(waiver.until, day))
    levels: list[LevelStatement] = []
    used: dict[AppliedWaiver, list[str]] = {}
    for level in profile.levels:
        standings = {
            case_id: standing(by_id.get(case_id), permitted, shard, is_measured=bool(profile.compiler)) for case_id in level.required
        }
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
                conformance=Conformance.of(failed=bool(failed), missing=bool(missing)),
                required=len(level.required),
                executed=len(level.required) - len(missing) - sum(by_id[case_id].outcome is Outcome.OFFLINE_FAIL for case_id in failed),
                passed=counts[Standing.PASSED],
                waived=counts[Standing.WAIVED],
                failed=failed,
                not_executed=missing,
                optional={outcome.label: optional[outcome] for outcome in Outcome if optional[outcome]},
            )
        )
    is_missing = bool(problems) or any(level.not_executed for level in levels) or not profile.required
    return Statement(
        profile=profile.name,
        version=profile.version,
        digest=profile.digest,
        conformance=Conformance.of(failed=any(level.failed for level in levels), missing=is_missing),
        required=sum(level.required for level in levels),
        executed=sum(level.executed for level in levels),
        levels=tuple(levels),
        waivers=tuple(
            UsedWaiver(**{key: getattr(waiver, key) for key in ("cases", "position", "reason", "issue", "until")}, used_by=tuple(ids))
            for waiver, ids in used.items()
        ),
        problems=tuple(problems),
        compiler=profile.compiler,
        proof=profile.proof,
        computed=counts_of(state_of(by_id[case_id]) for case_id in profile.required if case_id in by_id) if profile.compiler else {},
    )


def standing(
    result: CaseResult | None, permitted: frozenset[tuple[str, str, str]], shard: str = "", *, is_measured: bool = False
) -> tuple[Standing, str]:
    """Return how a required case counts, and why where it did not pass; ``is_measured`` where the compiler itself must compute it."""
    if result is None:
        return Standing.NOT_EXECUTED, f"not in shard {shard}" if shard else "lost: it has no result"
    reason = f"{result.outcome.label}: {result.reason}"
    match result.outcome:
        case Outcome.PASS if is_measured and (state := state_of(result)) not in (State.SERVED, State.MOVES_DATA):
            by_aten = f"ATen ran {', '.join(sorted(result.by_aten))}, which the entry allows"
            return Standing.NOT_EXECUTED, f"{state.word}: {by_aten if result.by_aten else state.meaning}"
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


def _is_valid(until: str, day: date) -> bool:
    try:
        return date.fromisoformat(until) >= day
    except ValueError:
        return False


def _release(version: str) -> tuple[int, ...] | None:
    try:
        return release(version)
    except ValueError:
        return None


def wrong_torch(profile: ProfileRecord, torch: tuple[int, ...] | None) -> str:
    """Return what is wrong with a release of torch for a profile; empty where nothing is."""
    if torch is None or VersionRange.parse(profile.torch).holds(torch):
        return ""
    return f"torch {'.'.join(map(str, torch))} is not in {profile.torch}, for which the profile is"


def problem_of_record(profile: ProfileRecord) -> str:
    """Return why no run recorded this profile; empty where one may have."""
    names = [level.name for level in profile.levels]
    ids = [case_id for level in profile.levels for case_id in (*level.required, *level.optional)]
    if len(set(ids)) < len(ids) or len(set(names)) < len(names) or not set(names) <= set(LEVELS):
        return "its profile names a case or a level twice, or a level that there is not"
    try:
        VersionRange.parse(profile.torch)
    except BadRange as error:
        return f"its profile: {error}"
    return ""
