"""Folds facts into one outcome. Pure: a recorded observation can be judged again.

The ending of the process is judged first, then the validity of the observation, then its facts:

| process              | observation     | expectations | proof  | outcome   |
|----------------------|-----------------|--------------|--------|-----------|
| exceeded its deadline | any            | any          | any    | TIMEOUT   |
| died                 | any             | any          | any    | CRASH     |
| ended                | broke the protocol | any       | any    | ERROR     |
| ended                | none            | any          | any    | CRASH     |
| ended                | with an error   | any          | any    | ERROR     |
| ended                | facts           | one cannot be judged, or none applies | any | ERROR |
| ended                | facts           | one failed   | any    | FAIL      |
| ended                | facts           | all passed   | failed | FELL_BACK |
| ended                | facts           | one also holds for changed facts | passed | ERROR |
| ended                | facts           | all passed   | passed | PASS      |
"""

from runner.judge.endings import by_ending, ended_by_code, error_of, folded, place_of_error
from runner.judge.evidence import carried_out, first_line
from runner.judge.mutants import verdicts_of_audit
from runner.judge.proof import own_names, proof
from runner.judge.verdicts import verdicts_of, verdicts_of_services
from runner.language.backends import Backend
from runner.model.case import Case
from runner.model.case_facts import Facts
from runner.model.conditions import Surroundings
from runner.model.optional import hooks
from runner.model.outcomes import Outcome
from runner.model.results import CaseResult, fold, result_of

_OWN_EXCEPTIONS = ("runner.vocabulary.steps.step_session.NotCarriedOut", "runner.worker.process.seal.Broken")
"""Exceptions that the worker itself raises: their text needs neither type nor traceback."""


def judge(case: Case, backend: Backend, surroundings: Surroundings, facts: Facts) -> CaseResult:
    """Judge one case: return its outcome with the reason, without data about its execution."""
    ended = by_ending(case, facts)
    if ended is not None:
        return ended
    for service in facts.services:
        if service.problem:
            return error_of(case, f"{service.name}: {service.problem}")
    if facts.nonsense and not facts.case_id:
        return error_of(case, facts.nonsense)
    if facts.case_id != case.id or len(facts.steps) > len(case.steps):
        why = "it is another case's" if facts.case_id != case.id else "it has too many steps"
        return error_of(case, f"the worker's observation makes no sense: {why}")
    exited = ended_by_code(case, surroundings, facts)
    if exited is not None:
        return exited
    if (error := facts.error) is not None:
        if error.type in _OWN_EXCEPTIONS:  # raised by the worker, not by the spec's code
            return error_of(case, f"{error.phase}: {first_line(error.message)}")
        reason = f"{error.phase}: {error.type}: {first_line(error.message)}"
        return error_of(case, reason, place_of_error(case, error, len(facts.steps)), folded(error.traceback))
    if facts.nonsense:
        return error_of(case, facts.nonsense)
    steps = list(carried_out(case, facts.steps))
    verdicts = verdicts_of(case, surroundings, steps)
    # an exception is a more specific reason than anything that the steps after it did not show
    has_raised = any(verdict.kind == "raised" for verdict in verdicts)
    if not has_raised:
        verdicts.extend(verdicts_of_services(case, facts.services, steps, surroundings))
    if case.target:
        verdicts.append(hooks("offline").proof(case, backend, steps))
    elif backend.compiles and not has_raised:
        verdicts.append(proof(backend, surroundings, steps, own_names(case) if backend.proof.code else frozenset()))
    outcome, failure_type, first = fold(verdicts, case.target)
    if first is None:
        verdicts.extend(verdicts_of_audit(case, surroundings, steps))
        outcome, failure_type, first = fold(verdicts, case.target)
    if first is None:
        passed = result_of(case, outcome, verdicts=tuple(verdicts))
        return hooks("offline").with_level(case, passed) if case.target else passed
    return result_of(
        case,
        outcome,
        first_line(first.message),
        failure_type,
        verdicts=tuple(verdicts),
        position=None if outcome is Outcome.FELL_BACK else first.position,
    )
