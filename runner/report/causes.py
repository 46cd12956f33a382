"""Failures by their cause: reports that people read have one entry for each, and name the cases."""

import re
import shlex
from collections import defaultdict
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

from runner.model.escaping import one_line
from runner.model.expectation import NO_EXCEPTION, Verdict
from runner.model.outcomes import RETRIED, JUnitTag, Outcome
from runner.model.results import CaseResult

_CHANGING = re.compile(r"0x[0-9a-f]+|[0-9]+")
"""Addresses and numbers, which differ between exceptions of one cause."""

_LONGEST = 10_000
"""Characters of a line of ids."""


def causes(results: Iterable[CaseResult]) -> list[list[CaseResult]]:
    """Return failures by their cause, in the order of the first of each.

    One cause are: exceptions with one text, but for numbers and addresses; answers that ATen computed; and otherwise failures of the same
    expectation with the same text.
    """
    groups: defaultdict[object, list[CaseResult]] = defaultdict(list)
    for result in results:
        groups[_cause(result)].append(result)
    return list(groups.values())


def _cause(result: CaseResult) -> object:
    failed = result.failed
    if result.outcome not in RETRIED or result.attempts or not failed:
        return result.case_id
    if result.outcome is Outcome.FELL_BACK and result.by_aten:
        return result.outcome, result.backend
    if result.outcome is Outcome.FAIL and all(map(has_raised, failed)):
        return result.outcome, result.backend, _CHANGING.sub("N", failed[0].observed)
    has_details = result.outcome.junit is JUnitTag.ERROR  # the stack of a crash is what it is
    texts = [(verdict.kind, str(verdict.position), verdict.message, verdict.detail if has_details else "") for verdict in failed]
    return result.outcome, result.spec, *texts


def folded_ids(results: Iterable[CaseResult]) -> Iterator[str]:
    """Yield the ids of cases; those that differ in their operator alone on one line, with what ATen ran of each."""
    groups: defaultdict[str, list[str]] = defaultdict(list)
    for result in results:
        operator = parts_of(result.case_id).get("op")
        if operator is None:
            groups[result.case_id] = []
        else:
            by_aten = f" ({', '.join(sorted(result.by_aten))})" if result.by_aten else ""
            groups[result.case_id.replace(f",op={operator},", ",op=*,")].append(unquote(operator) + by_aten)
    for case_id, operators in groups.items():
        shown = shlex.quote(one_line(case_id, _LONGEST))
        yield f"{shown}: {one_line(', '.join(operators), _LONGEST)}" if operators else shown


def parts_of(case_id: str) -> dict[str, str]:
    """Return the values in the id of a case by their keys, the backend first, as they are written."""
    parts = (part.partition("=") for part in case_id.partition("[")[2].rpartition("]")[0].split(","))
    return {key: value for key, _, value in parts}


def has_raised(verdict: Verdict) -> bool:
    """Whether an exception is all that a verdict says, also of the samples that it does not show."""
    of_samples = all(NO_EXCEPTION in wrong.message for wrong in verdict.wrong)
    return verdict.kind in ("raised", "crash", "timeout") or (verdict.expected.endswith(NO_EXCEPTION) and of_samples)
