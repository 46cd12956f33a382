"""The verdicts of a case: each expectation of each step is judged by the facts of that step."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from torch_conformance.judge.evidence import (
    ANOTHER_FORM,
    CarriedOut,
    folded,
    judge_expectation,
    nonsense,
)
from torch_conformance.matching.generated_code import code_of, joined
from torch_conformance.matching.time_limit import PatternTooSlow
from torch_conformance.model.case import Case, Expected, Step
from torch_conformance.model.case_facts import ServiceReport, StepFacts, StepWithCode
from torch_conformance.model.conditions import Surroundings, asks_for_code
from torch_conformance.model.diagnostics import Position
from torch_conformance.model.escaping import headline
from torch_conformance.model.expectation import (
    NO_EXCEPTION,
    NUMBERS,
    RANDOM_STREAM,
    Reading,
    Status,
    Verdict,
)
from torch_conformance.model.protocol import Json, decode
from torch_conformance.model.results import PROOF
from torch_conformance.vocabulary.expectations import side_effects
from torch_conformance.vocabulary.expectations.close import contradiction
from torch_conformance.vocabulary.steps import expects_raise, needs_eager, parsed, traits_of


def reading_of(
    expected: Expected,
    index: int,
    facts: StepWithCode,
    surroundings: Surroundings,
    sent: Json = None,
) -> Reading | Verdict:
    """Return what the expectation ``index`` of a step reads; an error where it cannot be judged by
    that. ``sent`` is another measurement of it than that of the step.

    Where a condition of the expectation asks for the code of the step, the surroundings have it,
    without comments and boilerplate. Without code the condition is neither true nor false: an
    error, as for ``filecheck``.
    """
    if asks_for_code(expected.body) and surroundings.code is None:
        why = "" if facts.code else "the step generated no code"
        try:
            code = joined([code_of(piece) for piece in facts.code])
            surroundings = replace(surroundings, code=code.text)
        except PatternTooSlow:
            why = "pattern too slow"
        if why:
            return Verdict.error("generated code, for the condition of this expectation", why)
    try:
        measured = decode(facts.measurements.get(str(index)) if sent is None else sent)
    except ANOTHER_FORM as error:
        return nonsense(error)
    if why := _contradiction(measured):
        return Verdict.error(expected.kind, why)
    return Reading.of(facts, measured, surroundings)


NOTHING = (
    "the case compiled nothing and torch counted nothing, so no other number was possible:"
    " expect something else of this step too, such as a result or a count of at least 1"
)


UNCOMPARED = (
    "no code of the step fulfils the condition, so nothing was compared with eager: correct "
    "contains or lacks, or add a comparison under the opposite condition"
)


def _with_hint(judgement: Verdict) -> Verdict:
    """Return a comparison with eager that, where it failed, says what to write for random
    numbers.
    """
    if judgement.status is not Status.FAILED:
        return judgement
    hint = (
        "eager drew random numbers here, and Inductor draws others: write config: "
        "{fallback_random: true}"
    )
    wrong = tuple(
        replace(value, aspect=RANDOM_STREAM) if value.aspect == NUMBERS else value
        for value in judgement.wrong
    )
    return replace(judgement, observed=f"{judgement.observed}; {hint}", wrong=wrong)


def is_active(facts: StepFacts) -> bool:
    """Whether torch compiled, called or counted anything in a step."""
    counted = any(number for names in facts.counters.values() for number in names.values()) or any(
        facts.metrics.values()
    )
    return bool(
        facts.entered
        or facts.graphs
        or facts.executed
        or facts.executed_others
        or facts.code_pieces
        or counted
    )


def problem_of_repetitions(
    expected: Expected, index: int, step: Step, facts: Reading, *, holds: bool
) -> Verdict | None:
    """Return the judgement of the first repetition that does not hold; where the step ``holds``, of
    its recorded call too.
    """
    check = expected.check
    if (
        not check.compares_with_eager
        or not check.applies(facts.surroundings)
        or facts.raised
        or expects_raise(step, facts.surroundings)
    ):
        return None
    entries = facts.repetitions.get(str(index), ())
    sent = [
        (f"repetition {entry.first + 1} of {step.repeat}", entry.measured, entry.why_not)
        for entry in entries
    ]
    of_proof = facts.measurements.get(PROOF)
    if (
        holds
        and isinstance(of_proof, Mapping)
        and isinstance(again := of_proof.get("again"), Mapping)
        and str(index) in again
    ):
        sent.append(("one more call, with other numbers", again[str(index)], ""))
    for where, measured, why_not in sent:
        reading = (
            Verdict.error("", why_not)
            if measured is None
            else reading_of(expected, index, facts, facts.surroundings, measured)
        )
        judgements = (
            [reading] if isinstance(reading, Verdict) else judge_expectation(expected, reading)
        )
        problem = next(
            (judgement for judgement in judgements if judgement.status is not Status.HELD), None
        )
        if problem is not None:
            return _of_part(problem, where)
    count = sum(entry.times for entry in entries)
    if count != step.repeat - 1:
        return Verdict.error(
            " close to ".join(check.names),
            f"{count + 1} of {step.repeat} repetitions were measured",
        )
    return None


def _counted(known: StepFacts) -> tuple[int, int, int]:
    """Return the look-ups and writes that torch's remote caches counted until the end of a step,
    and how many of them raised.
    """
    caches = (known.remote or {}).values()
    gets = sum(cache.get("hit", 0) + cache.get("miss", 0) for cache in caches)
    return (
        gets,
        sum(cache.get("put", 0) for cache in caches),
        sum(cache.get("exception", 0) for cache in caches),
    )


def problem_of_traffic(
    service: ServiceReport, steps: Sequence[Step], facts: Sequence[StepFacts]
) -> str:
    """Return why torch is not proven to have caused the traffic of a case with a service; empty if
    it is.
    """
    gets, sets = service.answered.get("GET", 0), service.answered.get("SET", 0)
    # torch's counts accumulate from step to step, and ``clear_counters`` sets them to zero
    torch_gets = torch_sets = torch_raised = 0
    while_compiling = not any(
        known.entered or known.graphs for known in facts
    )  # a spec that compiles nothing
    before = (0, 0, 0)
    for step, known in zip(steps, facts, strict=False):
        counted, clears = _counted(known), parsed(step).clears_counters
        if not clears and counted != before and (known.entered or known.graphs):
            while_compiling = True
        since = (0, 0, 0) if clears else before
        torch_gets, torch_sets, torch_raised = (
            total + now - earlier
            for total, now, earlier in zip(
                (torch_gets, torch_sets, torch_raised), counted, since, strict=True
            )
        )
        before = counted
    if not gets + sets:
        others = f" (another client of the case sent {service.foreign})" if service.foreign else ""
        return f"the case uses {service.name}, but torch sent it no request{others}"
    # a child process has its own counts, which are unknown here
    most = float("inf") if any(traits_of(step).children for step in steps) else torch_raised
    agrees = 0 <= gets - torch_gets <= most and 0 <= sets - torch_sets <= most
    if agrees and torch_gets + torch_sets > 0:
        return (
            ""
            if while_compiling
            else f"torch's remote caches used {service.name} in no step that compiled anything"
        )
    return (
        f"{service.name} answered {gets} look-ups and {sets} writes, and torch's remote "
        f"caches counted {torch_gets} and {torch_sets}: "
        "another client used it, or torch's did not reach it"
    )


def verdicts_of(
    case: Case, surroundings: Surroundings, steps: Sequence[CarriedOut]
) -> list[Verdict]:
    """Judge the expectations of the steps in order, up to an unexpected exception; verdicts of side
    effects come last.
    """
    verdicts: list[Verdict] = []
    effects: list[Verdict] = []
    active = any(is_active(known.facts) for known in steps)
    has_other_draws = False
    for known in steps:
        step, raised = known.step, known.facts.raised
        if raised is not None and not expects_raise(step, surroundings):
            observed = (
                f"{raised.type} in phase '{raised.phase}': {headline(raised.message)}".rstrip(": ")
            )
            judgement = Verdict.failed(NO_EXCEPTION, observed, detail=folded(raised.traceback))
            return [*verdicts, *effects, _placed(judgement, "raised", step, step.position)]
        runs, left = step.runs(surroundings), known.facts.effects
        # of numpy's generator torch never promises the state of eager
        drawn = [
            state
            for state in (left.generators if left else ())
            if state.eager_advanced and not state.exact and state.name != "numpy"
        ]
        has_other_draws = has_other_draws or bool(drawn)
        judged = [
            (expected, judgement)
            for index, expected in enumerate(step.expectations)
            for judgement in (
                _judged(expected, index, known, surroundings)
                if runs
                else [Verdict.not_applicable()]
            )
        ]
        # what answers an own condition on code decides whether anything is compared with eager
        is_uncompared = all(
            judgement.status is Status.NOT_APPLICABLE
            for expected, judgement in judged
            if expected.check.compares_with_eager
        )
        held_judgements = [judgement for _, judgement in judged if judgement.status is Status.HELD]
        # in a case without any activity a 0 without any other claim is an ERROR
        is_hollow = not active and all(judgement.is_absence for judgement in held_judgements)
        for expected, judgement in judged:
            if is_hollow and judgement.status is Status.HELD:
                judgement = replace(judgement, status=Status.ERROR, observed=NOTHING)
            if expected.check.compares_with_eager:
                if runs and is_uncompared and asks_for_code(expected.body):
                    judgement = Verdict.error("", UNCOMPARED)
                elif has_other_draws:
                    judgement = _with_hint(judgement)
            position = expected.place(expected.check.leaf_of(judgement))
            verdicts.append(_placed(judgement, expected.kind, step, position))
        # a call that raised has no verdict of side effects
        if (
            runs
            and raised is None
            and needs_eager(case)
            and (rule := side_effects.of_step(step, case.steps, surroundings)) is not None
        ):
            try:
                judgement = rule.judge(known.facts.effects)
                if known.facts.effects and (
                    why := _contradiction({"leaves": decode(list(known.facts.effects.leaves))})
                ):
                    judgement = Verdict.error(side_effects.KIND, why)
            except ANOTHER_FORM as error:
                judgement = nonsense(error)
            judgement = _with_hint(judgement) if has_other_draws else judgement
            effects.append(_placed(judgement, side_effects.KIND, step, step.position))
    position, observed = case.position, ""
    if len(steps) < len(case.steps):
        position, effects = case.steps[len(steps)].position, []
        observed = f"step {len(steps) + 1} was not carried out"
    elif all(verdict.status is Status.NOT_APPLICABLE for verdict in verdicts):
        observed = "no expectation applies here: the case claims nothing"
    if observed:
        effects.append(
            Verdict(kind="error", status=Status.ERROR, position=position, observed=observed)
        )
    return [*verdicts, *effects]


def _placed(verdict: Verdict, kind: str, step: Step, position: Position) -> Verdict:
    """Return a verdict with its kind and its place; it names the rank whose step it judges."""
    if step.rank is not None:
        verdict = _of_part(verdict, f"rank {step.rank}")
    return replace(verdict, kind=kind, position=position)


def _of_part(verdict: Verdict, part: str) -> Verdict:
    return replace(verdict, expected=f"{part}: {verdict.expected}".removesuffix(": "))


def _contradiction(measured: Json) -> str:
    """Return how the facts of the values of a comparison contradict each other; empty where they
    agree, and for other measurements.
    """
    try:
        compared = (
            [measured, *(trial.get("measured", {}) for trial in measured.get("tried", ()))]
            if isinstance(measured, dict)
            else []
        )
        return next(
            filter(
                None,
                (contradiction(leaf) for facts in compared for leaf in facts.get("leaves", ())),
            ),
            "",
        )
    except ANOTHER_FORM as error:
        return f"the measurement makes no sense: {type(error).__name__}: {error}"


def _judged(
    expected: Expected, index: int, known: CarriedOut, surroundings: Surroundings
) -> list[Verdict]:
    reading = reading_of(expected, index, known.facts, surroundings)
    if isinstance(reading, Verdict):
        return [reading]
    judgements = judge_expectation(expected, reading)
    holds = all(judgement.status is Status.HELD for judgement in judgements)
    if problem := problem_of_repetitions(expected, index, known.step, reading, holds=holds):
        return [problem]
    why_not = known.facts.unmeasured.get(str(index))
    return [
        replace(judgement, observed=why_not)
        if why_not is not None and judgement.status is Status.ERROR
        else judgement
        for judgement in judgements
    ]


def verdicts_of_services(
    case: Case,
    services: Sequence[ServiceReport],
    steps: Sequence[CarriedOut],
    surroundings: Surroundings,
) -> Iterator[Verdict]:
    """Yield an ERROR for each service without traffic from torch: torch continues silently if it
    cannot reach its remote cache.
    """
    ran = [known for known in steps if known.step.runs(surroundings)]
    for service in services:
        why = problem_of_traffic(
            service, [known.step for known in ran], [known.facts for known in ran]
        )
        if why:
            expected = f"traffic of the case with {service.name}"
            yield Verdict(
                kind="service",
                status=Status.ERROR,
                position=case.position,
                expected=expected,
                observed=why,
            )
