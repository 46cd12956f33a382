"""Whether a journal contradicts itself. Every reader refuses a line with contradicting fields. Pure.

Derived fields are computed again: the outcome from the verdicts, the result of several attempts from the attempts, the footer from the
lines.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import unquote

from runner.core import required
from runner.core.attempts import attempt_of, outcome_of
from runner.core.conditions import BadRange, VersionRange
from runner.core.conformance import LEVELS, ProfileRecord, Statement
from runner.core.devices import CPU, WITHOUT_MODULE, kind_of
from runner.core.exit_codes import ExitCode, exit_code
from runner.core.expectation import Status
from runner.core.folding import ENDINGS, Folded, fold
from runner.core.header import AuditScore
from runner.core.outcomes import PASSED, WAIVABLE, Outcome
from runner.core.results import NODE_LOST, Attempt, CaseResult, WaiverEffect, executed

OBSERVATION = "observation.json"
_FOLDER = re.compile(r"cases/[0-9]{5,9}")
_DIGEST = re.compile(r"[0-9a-f]{64}")
_NOTHING_RAN = (Outcome.UNAVAILABLE, Outcome.NOT_RUN)
_OFFLINE = (Outcome.OFFLINE_PASS, Outcome.OFFLINE_FAIL)
_ONLINE = (Outcome.PASS, Outcome.FAIL, Outcome.FELL_BACK)
"""Outcomes that only an executed case has."""
_EFFECTS: Mapping[Outcome, frozenset[WaiverEffect]] = {
    **dict.fromkeys(PASSED, frozenset({WaiverEffect.EXPIRED, WaiverEffect.PART_PASSED})),
    Outcome.XPASS: frozenset({WaiverEffect.EXPIRED, WaiverEffect.PASSED}),
    Outcome.XFAIL: frozenset(WaiverEffect) - {WaiverEffect.PASSED, WaiverEffect.PART_PASSED},
    **dict.fromkeys(WAIVABLE, frozenset({WaiverEffect.EXPIRED, WaiverEffect.OTHER_FAILURE, WaiverEffect.TOO_SLOW})),
}
"""The possible effects of waivers, by the outcome."""


def of_result(result: CaseResult, *, retries: int, repeat: int) -> str:
    """Return how the line of a case or of an attempt contradicts itself; empty if it does not."""
    return next(_of_result(result, retries, repeat), "")


def _of_result(result: CaseResult, retries: int, repeat: int) -> Iterator[str]:
    said = result.outcome.label
    yield from _identity(result)
    if (result.outcome is Outcome.PASS) != (not result.reason.strip()):
        yield f"{said} {'with' if result.outcome is Outcome.PASS else 'without'} a reason"
    for attempt in result.attempts:
        yield from _attempt(attempt, result.target)
    yield from _offline(result)
    if result.outcome in _NOTHING_RAN:
        yield from _unexecuted(result)
    elif not _is_required_and_missing(result):
        yield from _executed(result)
    if result.attempts:
        yield from _attempts(result, retries, repeat)
    elif result.outcome is Outcome.FLAKY:
        yield "FLAKY without attempts"


def _identity(result: CaseResult) -> Iterator[str]:
    stem = f"{result.area}/{result.name}" if result.area else result.name
    backend = re.match(r"\[backend=([^,\]]*)[,\]]", result.case_id.removeprefix(stem))
    if not result.case_id.startswith(stem) or backend is None or unquote(backend[1]) != result.backend:
        yield f"the id {result.case_id!r} is not of area '{result.area}', name '{result.name}' and backend '{result.backend}'"
    folders = [result.folder, *(attempt.folder for attempt in result.attempts)]
    if strange := [folder for folder in folders if folder and not _FOLDER.fullmatch(folder)]:
        yield f"'{strange[0]}' is no folder of a case"
    if result.digest and not _DIGEST.fullmatch(result.digest):
        yield "its digest is no sha256"
    for evidence in (result.evidence, *(attempt.evidence for attempt in result.attempts)):
        for name, digest in evidence.items():
            if "/" in name or name in ("", ".", "..") or not _DIGEST.fullmatch(digest):
                yield f"'{name}' with '{digest}' is no file of a case with its sha256"


def _offline(result: CaseResult) -> Iterator[str]:
    """Yield how a case that was compiled and not executed claims more than that."""
    said = result.outcome.label
    if result.outcome in (_ONLINE if result.target else _OFFLINE):
        yield f"{said} {'for the target ' + result.target if result.target else 'without a target'}"
    if bool(result.level) != (result.outcome is Outcome.OFFLINE_PASS):
        yield f"{said} {'with' if result.level else 'without'} a level of evidence"


def _is_required_and_missing(result: CaseResult) -> bool:
    """Whether this is the ERROR of an unavailable case that ``--require`` names; such a case was not executed."""
    missing = result.outcome is Outcome.ERROR and result.failure_type == "unavailable" and result.reason.startswith("--require ")
    return missing and not any((result.verdicts, result.folder, result.isolation, result.evidence, result.attempts, result.waivers))


def _unexecuted(result: CaseResult) -> Iterator[str]:
    said = result.outcome.label
    kinds = ("unavailable",) if result.outcome is Outcome.UNAVAILABLE else ("not-run", NODE_LOST)
    if result.failure_type not in kinds:
        yield f"{said} with the failure type '{result.failure_type}'"
    if result.verdicts:
        yield f"{said} with verdicts"
    if not result.attempts and any((result.folder, result.isolation, result.seconds, result.evidence, result.timings, result.waivers)):
        yield f"{said}, though it was executed"
    if result.attempts and result.outcome is Outcome.UNAVAILABLE:
        yield "UNAVAILABLE, though it was attempted"


def _executed(result: CaseResult) -> Iterator[str]:
    said = result.outcome.label
    folded = fold(result.verdicts, result.target)
    if not any(verdict.status is not Status.NOT_APPLICABLE for verdict in result.verdicts):
        yield f"{said} without a verdict"
    yield from _outcome(result, folded)
    if not result.folder:
        yield f"{said}, though it has no folder"
    if folded.outcome in (*_ONLINE, *_OFFLINE) and OBSERVATION not in result.evidence:
        yield f"{said} without the digest of what it was judged by (of an older version: run it again)"
    yield from _waivers(result)


def _outcome(result: CaseResult, folded: Folded) -> Iterator[str]:
    said, outcome = result.outcome.label, folded.outcome
    allowed = {Outcome.XPASS: PASSED, Outcome.XFAIL: WAIVABLE, Outcome.FLAKY: tuple(Outcome)}.get(result.outcome, (result.outcome,))
    if outcome not in allowed:
        yield f"{said}, though the outcome of its verdicts is {outcome.label}"
    kind = {Outcome.XPASS: "xpass", Outcome.FLAKY: "flaky"}.get(result.outcome, folded.failure_type)
    if result.failure_type != kind:
        yield f"{said} with the failure type '{result.failure_type}', which is '{kind}'"
    first = folded.first
    if first is not None and outcome in (Outcome.FAIL, Outcome.OFFLINE_FAIL, *ENDINGS.values()) and result.position != first.position:
        yield f"its position {result.position} is not that of its first failure, {first.position}"


def _waivers(result: CaseResult) -> Iterator[str]:
    effects = [waiver.effect for waiver in result.waivers]
    needed = {Outcome.XFAIL: WaiverEffect.MATCHED, Outcome.XPASS: WaiverEffect.PASSED}.get(result.outcome)
    if needed is not None and needed not in effects:
        yield f"{result.outcome.label} without a waiver that {needed.value}"
    if result.outcome is not Outcome.FLAKY:
        allowed = _EFFECTS.get(result.outcome, frozenset())
        yield from (f"{result.outcome.label} with a waiver of effect '{effect.value}'" for effect in effects if effect not in allowed)
    named = next((waiver for waiver in result.waivers if waiver.effect is WaiverEffect.MATCHED), None)
    if result.outcome is Outcome.XFAIL and named is not None and "***" not in result.reason and named.reason not in result.reason:
        yield "XFAIL with another reason than its waiver's"


def _attempt(attempt: Attempt, target: str) -> Iterator[str]:
    said = f"an attempt is {attempt.outcome.label}"
    if attempt.outcome in (Outcome.NOT_RUN, Outcome.FLAKY):
        yield said
        return
    if attempt.outcome is Outcome.UNAVAILABLE:
        yield from [f"{said}, though it was executed"] if attempt.folder or attempt.verdicts else []
        return
    if (attempt.outcome is Outcome.PASS) != (not attempt.reason.strip()):
        yield f"{said} {'with' if attempt.outcome is Outcome.PASS else 'without'} a reason"
    folded = fold(attempt.verdicts, target)
    expected = {Outcome.XPASS: PASSED, Outcome.XFAIL: WAIVABLE}.get(attempt.outcome, (attempt.outcome,))
    if folded.outcome not in expected:
        yield f"{said}, though the outcome of its verdicts is {folded.outcome.label}"
    kind = "xpass" if attempt.outcome is Outcome.XPASS else folded.failure_type
    if attempt.failure_type != kind:
        yield f"{said} with the failure type '{attempt.failure_type}', which is '{kind}'"


def _attempts(result: CaseResult, retries: int, repeat: int) -> Iterator[str]:
    made = result.attempts
    most = max(retries + 1, repeat)
    if len(made) > most:
        yield f"{len(made)} attempts, where at most {most} are made"
    folders = [attempt.folder for attempt in made if attempt.folder]
    if len(set(folders)) < len(folders):
        yield "two attempts of one folder"
    index, outcome = outcome_of([attempt.outcome for attempt in made], repeat)
    if result.outcome not in (outcome, Outcome.NOT_RUN):
        yield f"{result.outcome.label}, though the outcome of its attempts is {outcome.label}"
    shown = made[index]
    if (result.folder, result.evidence) != (shown.folder, shown.evidence):
        yield "its folder is not that of the attempt that it shows"
    if result.outcome is not Outcome.NOT_RUN and result.failed != shown.verdicts:
        yield "its failed verdicts are not those of the attempt that it shows"
    if abs(result.seconds - sum(attempt.seconds for attempt in made)) > 0.01:
        yield "its seconds are not those of its attempts"


def of_attempt_lines(result: CaseResult, lines: Sequence[CaseResult]) -> str:
    """Return how a case contradicts the earlier lines of its attempts; empty if it does not."""
    if len(lines) == 1 and not result.attempts:
        return "" if (lines[0].folder, lines[0].evidence) == (result.folder, result.evidence) else "it is not the attempt that was made"
    made = tuple(map(attempt_of, lines))
    return "" if made == result.attempts else f"its {len(result.attempts)} attempts are not the {len(made)} that were recorded before it"


def of_results(results: Sequence[CaseResult]) -> str:
    """Return how two lines contradict each other; empty if none do."""
    owner: dict[str, str] = {}
    for result in results:
        for folder in {result.folder, *(attempt.folder for attempt in result.attempts)} - {""}:
            if (other := owner.setdefault(folder, result.case_id)) != result.case_id:
                return f"{folder} is the folder of {other!r} and of {result.case_id!r}"
    return ""


def of_machine(results: Sequence[CaseResult], environment: Mapping[str, str], devices: Mapping[str, str]) -> str:
    """Return which case a machine without a GPU cannot have executed; empty for none. ``devices`` are the devices of backends by name.

    The machine is the node that a result names, or that of the header with this ``environment``.
    """
    for result in results:
        if (result.node or environment).get("gpus") != "0":
            continue
        device = kind_of(devices.get(result.backend, CPU))
        # whether there was a device of a vendor's module is not recorded
        if device in WITHOUT_MODULE and device != CPU and result.folder:
            return f"{result.case_id!r}: {result.outcome.label} on {device}, and the machine had no GPU"
    return ""


def of_audit(scores: Sequence[AuditScore], results: Sequence[CaseResult]) -> str:
    """Return how the score of a footer contradicts itself, or the cases; empty if it does not."""
    for score in scores:
        counts = (score.cases, score.expectations, score.applicable, score.killed, score.excused, score.weak)
        if min(counts) < 0 or score.killed + score.excused > score.applicable or len(score.listed) > score.weak:
            return "the counts of its audit contradict each other"
        judged = executed(results) + sum(result.outcome is Outcome.OFFLINE_PASS for result in results)
        if score.cases > judged:
            return f"its audit has {score.cases} cases, and {judged} were judged"
    return "" if len(scores) <= 1 else "it has more than one audit"


def of_footer(
    results: Sequence[CaseResult],
    *,
    selected: int,
    options: Mapping[str, str],
    totals: tuple[Mapping[str, int], Mapping[str, int]],
    ended: tuple[int, bool],
    lets_flaky_pass: bool,
    statements: tuple[Statement | None, Statement | None] = (None, None),
) -> str:
    """Return how a footer contradicts the lines before it; empty if it does not.

    ``totals`` are those of the footer and those that were counted, ``ended`` the footer's exit code and whether the run was interrupted,
    ``statements`` that of the footer and the one that the lines give.
    """
    stated, computed = statements
    if stated != computed:
        return _difference_of_statements(stated, computed)
    said, counted = totals
    code, interrupted = ended
    if dict(said) != dict(counted):
        return "its footer counts other outcomes than its cases have"
    if len(results) != selected:
        return f"it holds {len(results)} of its {selected} cases"
    unrun = any(result.outcome is Outcome.NOT_RUN and result.failure_type != NODE_LOST for result in results)
    if unrun and not interrupted and options.get("fail-fast", "True") != "True":
        return "a case was not run, though nothing stopped the run"
    least = options.get("min-executed", "1")
    wanted = int(least) if least.isdecimal() else 1
    whole = exit_code((one.outcome for one in results), wanted, lets_flaky_pass=lets_flaky_pass, executed=executed(results))
    if computed is not None:
        whole = computed.conformance.exit_code
    expected = ExitCode.INTERRUPTED if interrupted else whole
    if computed is None and expected in (ExitCode.OK, ExitCode.NOTHING) and (names := required.names_in(options)):
        if options.get("shard") and code == ExitCode.NOTHING:
            return ""  # a case of another shard may exercise the name
        if not options.get("shard") and next(required.problems_of_recorded(names, results), ""):
            expected = ExitCode.NOTHING
    return "" if code == expected else f"its exit code is {code}, but its cases give {int(expected)}"


def _difference_of_statements(stated: Statement | None, computed: Statement | None) -> str:
    said, given = _in_short(stated), _in_short(computed)
    if said == given:
        return "the reasons of its statement are not those that its cases give"
    return f"its statement is {said}, but its cases give {given}"


def _in_short(statement: Statement | None) -> str:
    return f"{statement.conformance.value}, {statement.executed} of {statement.required}" if statement else "missing"


def of_options(options: Mapping[str, str], said: Mapping[str, object]) -> str:
    """Return which field of a header contradicts its options; empty if none."""
    differing = [name for name, value in said.items() if name in options and options[name] != str(value)]
    return f"its {differing[0]} contradicts its options" if differing else ""


def of_profile(profile: Sequence[ProfileRecord]) -> str:
    """Return how the profile of a header contradicts itself; empty if it does not."""
    if len(profile) > 1:
        return "two profiles"
    ids = [case_id for one in profile for level in one.levels for case_id in (*level.required, *level.optional)]
    names = [level.name for one in profile for level in one.levels]
    if len(set(ids)) < len(ids):
        return "its profile names a case twice"
    if strange := [name for name in names if name not in LEVELS or names.count(name) > 1]:
        return f"its profile has the level '{strange[0]}' twice" if strange[0] in LEVELS else f"'{strange[0]}' is no level of a profile"
    try:
        any(VersionRange.parse(one.torch) for one in profile)
    except BadRange as error:
        return f"its profile: {error}"
    return ""


ReDigest = Callable[[Mapping[str, str]], str]


def of_selection(results: Sequence[CaseResult], selection: str, digest: ReDigest) -> str:
    """Return why these are not the selected cases; empty if they are."""
    found = digest({result.case_id: result.digest for result in results})
    return "" if found == selection else "its cases are not those that were selected, or one has another digest"
