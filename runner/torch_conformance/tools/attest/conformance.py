"""Conformance to a profile: what the results of a run say of it.

A statement is a function of the profile as the run recorded it (``ProfileRecord``) and of the
results, so that a run, its reports, ``merge`` and every reader of its journal compute the same one.

| of a required case                                                                                   | it counts as |
|------------------------------------------------------------------------------------------------------|--------------|
| PASS                                                                                                 | passed       |
| XFAIL by a permitted waiver that has not expired                                                     | waived       |
| PASS or XFAIL with a permitted flaky waiver that has not expired                                     | flaky        |
| FAIL, FELL_BACK, FLAKY, XPASS, OFFLINE_FAIL; CRASH and TIMEOUT while compiling or running; any other XFAIL | failed       |
| UNAVAILABLE, NOT_RUN, OFFLINE_PASS, ERROR, no result; CRASH and TIMEOUT before the function was compiled | not executed |
| anything, where the profile requires it under a condition that fails by the recorded facts of each machine | not required |
| PASS of a profile for any compiler, where ATen computed an operator, allowed or not, or this was not measured | not executed |

NOT CONFORMANT: a case failed, more of a level are waived or flaky than the profile permits, or ATen
computed the answers of more cases. INCOMPLETE:
none failed, and a case was not executed. CONFORMANT: every other run.
"""  # noqa: E501 - a table

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date
from enum import Enum
from typing import Any

from torch_conformance.machine.installed_torch import release
from torch_conformance.model.conditions import BadRange, VersionRange, as_list, holds
from torch_conformance.model.header import ProfileRecord, RunHeader
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import (
    PHASES_BEFORE_CLAIM,
    AppliedWaiver,
    Redacted,
    WaiverEffect,
)
from torch_conformance.model.statement import (
    Conformance,
    LevelStatement,
    Statement,
    UsedWaiver,
    words_of,
)
from torch_conformance.report.support_table import State, counts_of, state_of
from torch_conformance.run.rejudge import surroundings_of_record

LEVELS = ("P0", "P1", "P2")
"""The levels of a profile; P0 is the most important."""


# -- how it is computed ----------------------------------------------------------------------------


class Standing(Enum):
    """How a required case counts."""

    PASSED = "passed"
    WAIVED = "waived"
    FLAKY = "waived as flaky"
    FAILED = "failed"
    NOT_EXECUTED = "not executed"


def statement_of_run(header: RunHeader, results: Iterable[Redacted]) -> Statement:
    """Return what results say of the profile of their run, by the waivers of the day on which it
    began.
    """
    try:
        day = date.fromisoformat(header.started[:10])
    except ValueError:
        day = date.max  # no waiver reaches it
    return statement_of(
        header.profile[0],
        results,
        environment=header.environment,
        day=day,
        shard=header.shard,
        challenge=header.options.get("challenge", ""),
    )


def statement_of(
    profile: ProfileRecord,
    results: Iterable[Redacted],
    *,
    environment: Mapping[str, str],
    day: date,
    shard: str = "",
    challenge: str = "",
) -> Statement:
    """Return the statement by the facts of the machine (``environment``) on a ``day``; ``shard`` is
    empty for a whole run, and ``challenge`` the text of --challenge.
    """
    by_id: dict[str, Redacted] = {result.case_id: result for result in results}
    nodes = (
        part.node for result in by_id.values() for part in (result, *result.attempts) if part.node
    )
    machines = list(
        {tuple(sorted(facts.items())): facts for facts in (environment, *nodes)}.values()
    )
    releases = dict.fromkeys(_release(facts.get("torch", "")) for facts in machines)
    problems = [*filter(None, (wrong_torch(profile.torch, release) for release in releases))]
    if _release(environment.get("torch", "")) is None and any(
        result.outcome.is_executed for result in by_id.values()
    ):
        problems.append(
            "the run does not say which torch executed its cases; the profile is for "
            f"{profile.torch}"
        )

    is_wrong = bool(problems)
    spared = not_required(profile, machines)
    remarks = [f"{times} more cases are {why}" for why, times in Counter(spared.values()).items()]
    if challenge:
        remarks.append(f"the seeds of its cases depend on the challenge '{challenge}'")
    levels: list[LevelStatement] = []
    used: dict[UsedWaiver, list[str]] = {}
    for level in profile.levels:
        valid = (
            waiver
            for waiver in profile.waivers
            if _is_valid(waiver.until, day) and (waiver.is_shipped or level.name != LEVELS[0])
        )
        permitted = frozenset((waiver.cases, waiver.issue, waiver.until) for waiver in valid)
        required = [case_id for case_id in level.required if case_id not in spared]
        standings = {
            case_id: standing(
                by_id.get(case_id), permitted, shard, is_measured=bool(profile.compiler)
            )
            for case_id in required
        }
        reasons = {
            kind: {case_id: why for case_id, (status, why) in standings.items() if status is kind}
            for kind in Standing
        }
        failed, missing = reasons[Standing.FAILED], reasons[Standing.NOT_EXECUTED]
        for case_id in (*reasons[Standing.WAIVED], *reasons[Standing.FLAKY]):
            if (by := by_id[case_id].flaky_waiver or _matched(by_id[case_id])) is not None:
                waiver = UsedWaiver(
                    by.cases, by.position, by.reason, by.issue, by.until, by.flaky, ()
                )
                used.setdefault(waiver, []).append(case_id)
        free = {case_id: spared[case_id] for case_id in level.required if case_id in spared}
        optional = Counter(
            by_id[case_id].outcome if case_id in by_id else Outcome.NOT_RUN
            for case_id in (*free, *level.optional)
        )
        waived, flaky = (len(reasons[kind]) for kind in (Standing.WAIVED, Standing.FLAKY))
        limit = ": ".join(filter(None, (f"{level.most_waived:g} %", level.most_waived_because)))
        as_flaky = f", {flaky} of them as flaky" if flaky else ""
        has_excess = (waived + flaky) * 100 > level.most_waived * len(required)
        if waived or flaky:
            if profile.without_waivers and level.name == LEVELS[0]:
                limit += f" (minors of torch that need no waiver: {profile.without_waivers})"
            (problems if has_excess else remarks).append(
                f"{level.name}: {waived + flaky} of {len(required)} required cases are "
                f"waived{as_flaky}; the profile permits {limit}"
            )
        conformance = Conformance.of(failed=bool(failed) or has_excess, missing=bool(missing))
        levels.append(
            LevelStatement(
                level=level.name,
                conformance=conformance,
                words=words_of(conformance, waived + flaky),
                required=len(required),
                executed=len(required)
                - len(missing)
                - sum(by_id[case_id].outcome is Outcome.OFFLINE_FAIL for case_id in failed),
                passed=len(reasons[Standing.PASSED]),
                waived=waived,
                flaky=flaky,
                failed=failed,
                not_executed=missing,
                not_required=free,
                optional={
                    outcome.label: optional[outcome] for outcome in Outcome if optional[outcome]
                },
            )
        )
    counts = {
        name: sum(getattr(level, name) for level in levels)
        for name in ("required", "executed", "passed", "waived", "flaky")
    }
    count = counts["required"]
    states = [state_of(by_id[case_id]) for case_id in profile.required if case_id in by_id]
    by_aten = states.count(State.BY_ATEN)
    has_excess = by_aten * 100 > profile.most_by_aten * count
    if by_aten:
        bound = f"; the profile permits {profile.most_by_aten:g} %" * (profile.most_by_aten < 100)
        (problems if has_excess else remarks).append(
            f"ATen computed the whole answer of {by_aten} of {count} required cases{bound}"
        )
    conformance = Conformance.of(
        failed=has_excess
        or any(level.conformance is Conformance.NOT_CONFORMANT for level in levels),
        missing=is_wrong or any(level.not_executed for level in levels) or not count,
    )
    return Statement(
        profile=profile.name,
        version=profile.version,
        digest=profile.digest,
        conformance=conformance,
        words=words_of(conformance, counts["waived"] + counts["flaky"]),
        **counts,
        levels=tuple(levels),
        waivers=tuple(replace(waiver, used_by=tuple(ids)) for waiver, ids in used.items()),
        problems=tuple(problems),
        remarks=tuple(remarks),
        compiler=profile.compiler,
        proof=profile.proof,
        by_aten=by_aten,
        computed=counts_of(states) if profile.compiler else {},
    )


def not_required(profile: ProfileRecord, machines: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return why cases that the profile requires under conditions are not required on these
    machines, by id.

    A condition must fail on each machine, and by recorded facts: what is not known makes no case
    less required.
    """
    failures = {
        case_id: [_failure(when, facts) for facts in machines]
        for case_id, when in profile.conditions.items()
    }
    return {
        case_id: "; ".join(dict.fromkeys(reasons))
        for case_id, reasons in failures.items()
        if all(reasons)
    }


def _failure(when: Mapping[str, Any], facts: Mapping[str, str]) -> str:
    """Return the first part of a condition that fails by the facts of a machine; empty where all
    hold, or where a fact is not recorded.
    """
    if _release(facts.get("torch", "")) is None:
        return ""
    surroundings, arch = surroundings_of_record(facts), "no GPU" if facts.get("gpus") == "0" else ""
    values = {
        "torch": facts["torch"],
        "python": facts.get("python"),
        "vendor": surroundings.vendor or "no GPU",
        "arch": surroundings.arch or arch,
    }
    for word, required in when.items():
        if values[word] and not holds({word: required}, surroundings):
            return (
                f"required for {word} {' or '.join(map(str, as_list(required)))}, and the machine "
                f"has {values[word]}"
            )
    return ""


def standing(
    result: Redacted | None,
    permitted: frozenset[tuple[str, str, str]],
    shard: str = "",
    *,
    is_measured: bool = False,
) -> tuple[Standing, str]:
    """Return how a required case counts, and why where it did not pass; ``is_measured`` where the
    compiler itself must compute it.
    """
    if result is None:
        return Standing.NOT_EXECUTED, f"not in shard {shard}" if shard else "lost: it has no result"
    reason = f"{result.outcome.label}: {result.reason}"
    by = result.flaky_waiver or _matched(result)
    is_permitted = by is not None and (by.cases, by.issue, by.until) in permitted
    match result.outcome:
        case Outcome.PASS | Outcome.XFAIL if result.flaky_waiver is not None and is_permitted:
            return Standing.FLAKY, ""
        case Outcome.PASS if is_measured and (state := state_of(result)) not in (
            State.SERVED,
            State.MOVES_DATA,
        ):
            by_aten = f"ATen ran {', '.join(sorted(result.by_aten))}, which the entry allows"
            return (
                Standing.NOT_EXECUTED,
                f"{state.word}: {by_aten if result.by_aten else state.meaning}",
            )
        case Outcome.PASS:
            return Standing.PASSED, ""
        case Outcome.XFAIL if is_permitted:
            return Standing.WAIVED, ""
        case Outcome.XFAIL:
            return (
                Standing.FAILED,
                f"{reason}; the profile does not permit this waiver ({LEVELS[0]} permits "
                "only shipped ones)",
            )
        case Outcome.UNAVAILABLE | Outcome.NOT_RUN | Outcome.OFFLINE_PASS | Outcome.ERROR:
            return Standing.NOT_EXECUTED, reason
        case Outcome.CRASH | Outcome.TIMEOUT if result.phase in PHASES_BEFORE_CLAIM:
            return Standing.NOT_EXECUTED, f"{reason}; nothing was compiled yet"
    return Standing.FAILED, reason


def _matched(result: Redacted) -> AppliedWaiver | None:
    """Return the waiver that made this an XFAIL: the first that matches counts."""
    return next(
        (waiver for waiver in result.waivers if waiver.effect is WaiverEffect.MATCHED), None
    )


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


def wrong_torch(versions: str, torch: tuple[int, ...] | None) -> str:
    """Return what is wrong with a release of torch for a profile that is for these ``versions``;
    empty where nothing is.
    """
    if torch is None or VersionRange.parse(versions).holds(torch):
        return ""
    return f"torch {'.'.join(map(str, torch))} is not in {versions}, for which the profile is"


def problem_of_record(profile: ProfileRecord) -> str:
    """Return why no run recorded this profile; empty where one may have."""
    names = [level.name for level in profile.levels]
    ids = [case_id for level in profile.levels for case_id in (*level.required, *level.optional)]
    if len(set(ids)) < len(ids) or len(set(names)) < len(names) or not set(names) <= set(LEVELS):
        return "its profile names a case or a level twice, or a level that there is not"
    try:
        VersionRange.parse(profile.torch)
        for when in profile.conditions.values():
            _failure(when, {"torch": "2.0", "python": "3.0", "gpus": "0"})
    except (BadRange, LookupError, TypeError, AttributeError) as error:
        return f"its profile: {error}"
    return ""
