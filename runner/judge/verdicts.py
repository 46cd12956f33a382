"""The verdicts of a case: each expectation of each step is judged by the facts of that step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from runner.core.case import Case, Expected, Step
from runner.core.conditions import Surroundings, asks_for_code, holds
from runner.core.diagnostics import Position
from runner.core.expectation import Judgement, Status, StepFacts
from runner.core.matching.generated_code import code_of, joined
from runner.core.matching.time_limit import PatternTooSlow
from runner.core.observation import ObservedStep, Raised, Repetition, ServiceReport
from runner.core.protocol import decode
from runner.core.results import Verdict
from runner.judge.endings import folded
from runner.judge.evidence import ANOTHER_FORM, CarriedOut, headline, judge_expectation, nonsense
from runner.plan.worker_plan import expects_raise, needs_eager
from runner.vocabulary.expectations import side_effects
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.close_rules import is_eager
from runner.vocabulary.steps import parsed, traits_of


def with_code(expected: Expected, facts: StepFacts, here: Surroundings) -> Surroundings | Judgement:
    """Return the surroundings with the code of the step, where a condition of the expectation asks for it.

    Without code the condition is neither true nor false: an error, as for ``filecheck``. Comments and boilerplate are left out.
    """
    if not asks_for_code(expected.body):
        return here
    if not facts.code:
        return Judgement.error("the step generated no code", expected="generated code, for the condition of this expectation")
    try:
        return replace(here, code=joined([code_of(piece) for piece in facts.code]).text)
    except PatternTooSlow:
        return Judgement.error("pattern too slow", expected="generated code, for the condition of this expectation")


NOTHING = (
    "the case compiled nothing and torch counted nothing, so no other number was possible:"
    " expect something else of this step too, such as a result or a count of at least 1"
)


def is_active(known: CarriedOut) -> bool:
    """Whether torch compiled, called or counted anything in a step."""
    observed = known.observed
    counted = any(number for names in observed.counters.values() for number in names.values()) or any(observed.metrics.values())
    return bool(observed.entered or observed.graphs or observed.executed or observed.executed_others or observed.code_pieces or counted)


def without_hollow(judged: Sequence[Judgement]) -> list[Judgement]:
    """Return the judgements of a step of a case without any activity: a 0 that nothing else stands beside is an ERROR."""
    if any(one.status is Status.HELD and not one.is_absence for one in judged):
        return list(judged)
    return [replace(one, status=Status.ERROR, observed=NOTHING) if _is_hollow(one) else one for one in judged]


def _is_hollow(one: Judgement) -> bool:
    return one.status is Status.HELD and one.is_absence


def problem_of_repetitions(expected: Expected, index: int, known: CarriedOut, here: Surroundings) -> Judgement | None:
    """Return the judgement of the first repetition that does not hold, or of missing ones; None where each holds, or none is judged."""
    check, step = expected.check, known.step
    if not isinstance(check, Close) or not is_eager(check.to) or not holds(check.when, here):
        return None
    if step.repeat == 1 or known.facts.raised is not None or expects_raise(step, here):
        return None
    entries = known.observed.repetitions.get(str(index), ())
    for entry in entries:
        judged = _judged_repetition(expected, entry, known, here)
        if judged.status is not Status.HELD:
            return _named(judged, entry.first, step.repeat)
    count = sum(entry.times for entry in entries)
    if count != step.repeat - 1:
        return Judgement.error(f"{count + 1} of {step.repeat} repetitions were measured", expected=f"{check.of} close to {check.to}")
    return None


def _judged_repetition(expected: Expected, entry: Repetition, known: CarriedOut, here: Surroundings) -> Judgement:
    if entry.measured is None:
        return Judgement.error(entry.why_not)
    try:
        facts = replace(known.facts, measured=decode(entry.measured))
    except ANOTHER_FORM as error:
        return nonsense(error)
    found = judge_expectation(expected, facts, here)
    return next((one for one in found if one.status is not Status.HELD), found[0])


def _named(judged: Judgement, number: int, count: int) -> Judgement:
    return replace(judged, expected=f"repetition {number + 1} of {count}: {judged.expected}".removesuffix(": "))


@dataclass(frozen=True, slots=True)
class Counted:
    """Look-ups and writes that torch's remote caches counted, and how many of them raised."""

    gets: int = 0
    sets: int = 0
    raised: int = 0

    def __add__(self, other: "Counted") -> "Counted":
        return Counted(self.gets + other.gets, self.sets + other.sets, self.raised + other.raised)


def counted_by_torch(steps: Sequence[Step], facts: Sequence[ObservedStep]) -> Counted:
    """Return torch's counts for a whole case: they accumulate from step to step, and ``clear_counters`` sets them to zero."""
    total = current = Counted()
    for step, known in zip(steps, facts, strict=False):
        if parsed(step).clears_counters:
            total += current
        current = _of_step(known.remote or {})
    return total + current


def _of_step(remote: Mapping[str, Mapping[str, int]]) -> Counted:
    caches = remote.values()
    gets = sum(cache.get("hit", 0) + cache.get("miss", 0) for cache in caches)
    return Counted(gets, sum(cache.get("put", 0) for cache in caches), sum(cache.get("exception", 0) for cache in caches))


def _while_compiling(steps: Sequence[Step], facts: Sequence[ObservedStep]) -> bool:
    """Whether a count changed in a step that compiled, or looked up a graph. True if no step did so: the spec compiles nothing then."""
    before = Counted()
    for step, known in zip(steps, facts, strict=False):
        now = _of_step(known.remote or {})
        if now != before and not parsed(step).clears_counters and (known.entered or known.graphs):
            return True
        before = now
    return not any(known.entered or known.graphs for known in facts)


def problem_of_traffic(service: ServiceReport, steps: Sequence[Step], facts: Sequence[ObservedStep]) -> str:
    """Return why torch is not proven to have caused the traffic of a case with a service; empty if it is."""
    gets, sets = service.answered.get("GET", 0), service.answered.get("SET", 0)
    torch = counted_by_torch(steps, facts)
    if not gets + sets:
        others = f" (another client of the case sent {service.foreign})" if service.foreign else ""
        return f"the case uses {service.name}, but torch sent it no request{others}"
    # a child process has its own counts, which are unknown here
    most = float("inf") if any(traits_of(step).children for step in steps) else torch.raised
    agrees = 0 <= gets - torch.gets <= most and 0 <= sets - torch.sets <= most
    if agrees and torch.gets + torch.sets > 0:
        return "" if _while_compiling(steps, facts) else f"torch's remote caches used {service.name} in no step that compiled anything"
    return (
        f"{service.name} answered {gets} look-ups and {sets} writes, and torch's remote caches counted {torch.gets} and {torch.sets}: "
        "another client used it, or torch's did not reach it"
    )


def verdicts_of(case: Case, here: Surroundings, steps: Sequence[CarriedOut]) -> list[Verdict]:
    """Judge the expectations of the steps in order, up to an unexpected exception; verdicts of side effects come last."""
    verdicts: list[Verdict] = []
    effects: list[Verdict] = []
    active = any(map(is_active, steps))
    for known in steps:
        if known.facts.raised is not None and not expects_raise(known.step, here):
            return [*verdicts, *effects, _unexpected(known.step, known.facts.raised)]
        verdicts.extend(_step_verdicts(known, here, active))
        effects.extend(_effects_verdicts(case, known, here))
    if len(steps) < len(case.steps):
        return [*verdicts, _error(case.steps[len(steps)].position, f"step {len(steps) + 1} was not carried out")]
    if not any(verdict.status is not Status.NOT_APPLICABLE for verdict in verdicts):
        return [*verdicts, *effects, _error(case.position, "no expectation applies here: the case claims nothing")]
    return [*verdicts, *effects]


def _error(position: Position, observed: str) -> Verdict:
    return Verdict(kind="error", status=Status.ERROR, position=position, observed=observed)


def _effects_verdicts(case: Case, known: CarriedOut, here: Surroundings) -> list[Verdict]:
    """Judge the side effects of a call; a call that raised has no verdict."""
    step = known.step
    wanted = side_effects.of_step(step, case.steps, here) if _compares_effects(case, known, here) else None
    if wanted is None:
        return []
    try:
        judgement = wanted.judge(known.observed.effects)
    except ANOTHER_FORM as error:
        judgement = nonsense(error)
    return [Verdict.of(judgement, kind=side_effects.KIND, position=step.position)]


def _compares_effects(case: Case, known: CarriedOut, here: Surroundings) -> bool:
    return needs_eager(case) and known.facts.raised is None and known.step.runs(here)


def _unexpected(step: Step, raised: Raised) -> Verdict:
    observed = f"{raised.type} in phase '{raised.phase}': {headline(raised.message)}".rstrip(": ")
    return Verdict(
        kind="raised",
        status=Status.FAILED,
        position=step.position,
        expected="no exception",
        observed=observed,
        detail=folded(raised.traceback),
    )


def _step_verdicts(known: CarriedOut, here: Surroundings, active: bool) -> Iterator[Verdict]:
    found: list[tuple[Expected, Judgement]] = []
    for index, expected in enumerate(known.step.expectations):
        judged = _judged(expected, index, known, here) if known.step.runs(here) else [Judgement.not_applicable()]
        found.extend((expected, judgement) for judgement in judged)
    shown = [judgement for _, judgement in found]
    for (expected, _), judgement in zip(found, shown if active else without_hollow(shown), strict=True):
        yield Verdict.of(judgement, kind=expected.kind, position=expected.place(judgement.leaf))


def facts_of(index: int, known: CarriedOut) -> StepFacts:
    """Return the facts of a step for one of its expectations; raise one of ``ANOTHER_FORM`` for a malformed measurement."""
    return replace(known.facts, measured=decode(known.observed.facts.get(str(index))))


def _judged(expected: Expected, index: int, known: CarriedOut, here: Surroundings) -> list[Judgement]:
    try:
        facts = facts_of(index, known)
    except ANOTHER_FORM as error:
        return [nonsense(error)]
    known_here = with_code(expected, facts, here)
    if isinstance(known_here, Judgement):
        return [known_here]
    judgements = judge_expectation(expected, facts, known_here)
    if (problem := problem_of_repetitions(expected, index, known, known_here)) is not None:
        return [problem]
    why_not = known.observed.unmeasured.get(str(index))
    if why_not is None:
        return judgements
    return [Judgement.error(why_not, expected=one.expected, leaf=one.leaf) if one.status is Status.ERROR else one for one in judgements]


def verdicts_of_services(
    case: Case, services: Sequence[ServiceReport], steps: Sequence[CarriedOut], here: Surroundings
) -> Iterator[Verdict]:
    """Yield an ERROR for each service without traffic from torch: torch continues silently if it cannot reach its remote cache."""
    ran = [known for known in steps if known.step.runs(here)]
    for service in services:
        why = problem_of_traffic(service, [known.step for known in ran], [known.observed for known in ran])
        if why:
            expected = f"traffic of the case with {service.name}"
            yield Verdict(kind="service", status=Status.ERROR, position=case.position, expected=expected, observed=why)
