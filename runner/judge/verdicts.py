"""The verdicts of the expectations of a case, each with its line of the spec. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from runner.core.case import Case, Expected, Step
from runner.core.conditions import Surroundings
from runner.core.diagnostics import Position
from runner.core.expectation import Judgement, Status, StepFacts
from runner.core.observation import Raised, ServiceReport
from runner.core.protocol import decode
from runner.core.results import Verdict
from runner.judge import absences, repetitions, traffic
from runner.judge.code_conditions import with_code
from runner.judge.evidence import CarriedOut, headline
from runner.judge.hang_stacks import folded
from runner.judge.measurements import ANOTHER_FORM, judge_expectation, nonsense
from runner.plan.worker_plan import expects_raise, needs_eager
from runner.vocabulary.expectations import side_effects


def verdicts_of(case: Case, here: Surroundings, steps: Sequence[CarriedOut]) -> list[Verdict]:
    """Judge the expectations of the steps in order, up to an unexpected exception; verdicts of side effects come last."""
    verdicts: list[Verdict] = []
    effects: list[Verdict] = []
    active = any(map(absences.is_active, steps))
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
    for (expected, _), judgement in zip(found, shown if active else absences.without_hollow(shown), strict=True):
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
    if (problem := repetitions.problem(expected, index, known, known_here)) is not None:
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
        why = traffic.problem(service, [known.step for known in ran], [known.observed for known in ran])
        if why:
            expected = f"traffic of the case with {service.name}"
            yield Verdict(kind="service", status=Status.ERROR, position=case.position, expected=expected, observed=why)
