"""What the core calls for ``audit --vary``: the cases as they are run for it, and the report."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch_conformance.language.load import Suite
from torch_conformance.model.case import Case, Expected, Step
from torch_conformance.model.escaping import line
from torch_conformance.model.protocol import decode
from torch_conformance.model.values import frozen
from torch_conformance.run.auditing import AuditTool, RunCases, recorded_steps
from torch_conformance.vocabulary.expectations.soundness import Sound, reports, summary
from torch_conformance.vocabulary.steps import traits_of

_SECONDS = 1200
"""The deadline of a case: the worker itself stops long before."""


def _as_run(case: Case) -> Case:
    """Return a case whose last step that can be called again varies the facts of its call."""
    steps = [replace(step, expectations=()) for step in case.steps]
    for index, step in reversed(list(enumerate(steps))):
        if traits_of(step).can_be_called_again:
            check = Sound(vary="all")
            expected = Expected(kind=check.kind, check=check, position=step.position)
            steps[index] = replace(step, expectations=(expected,))
            break
    body = replace(case.body, timeout=_SECONDS)
    return replace(case, body=body, steps=tuple(steps), control=None)


def _asked(step: Step) -> bool:
    return bool(step.expectations)


@frozen
class Report:
    """What was found in some cases."""

    tried: Sequence[tuple[Case, Mapping[str, Any]]]
    """The cases with what the worker measured."""
    left: Mapping[str, str]
    """Why other cases were not tried, by id."""
    is_complete: bool
    """Whether each case that ran ended by itself, and had the time for all facts."""

    @property
    def is_empty(self) -> bool:
        """Whether no fact was tried."""
        return not any(measured["facts"] for _, measured in self.tried)

    @property
    def is_clean(self) -> bool:
        """Whether each answer after a change was right, and none is missing."""
        return self.is_complete and not any(any(reports(measured)) for _, measured in self.tried)

    def lines(self) -> Iterator[str]:
        """Yield a line for each wrong answer, for each case with its counts, and for what was not
        tried.
        """
        for case, measured in self.tried:
            for _, words in reports(measured):
                yield f"{line(case.id)}: {words}"
            yield f"{line(case.id)}: {summary(measured) or 'no fact'}"
        for case_id, why in self.left.items():
            yield f"not tried: {line(case_id)}: {why}"

    def as_json(self) -> Mapping[str, Any]:
        """Return the JSON of ``audit --vary --json``."""
        cases = {case.id: dict(measured) for case, measured in self.tried}
        return {"format": 1, "cases": cases, "not_tried": dict(self.left)}


def report(cases: Iterable[Case], suite: Suite, run: RunCases, folder: Path) -> Report:
    """Run the cases with ``sound``."""
    to_run = [case for case in map(_as_run, cases) if any(map(_asked, case.steps))]
    tried: list[tuple[Case, Mapping[str, Any]]] = []
    not_tried: dict[str, str] = {case.id: "it was not run" for case in to_run}
    results, _ = run(to_run)
    is_complete = True
    for case, result in sorted(results, key=lambda pair: pair[0].id):
        measured: Any = {}
        for step in recorded_steps(case, result, folder):
            if _asked(step.step):
                measured = decode(step.facts.measurements.get("0")) or {}
        if "facts" in measured:
            del not_tried[case.id]
            tried.append((case, measured))
            is_complete &= not measured["left"]
        else:
            why = measured.get("why_not") or measured.get("raised")
            not_tried[case.id] = why or f"{result.outcome.label}: {result.reason}"
            is_complete &= bool(why)
    return Report(tried=tried, left=not_tried, is_complete=is_complete)


if TYPE_CHECKING:
    from torch_conformance.tools.vary import hooks

    _CHECKED: AuditTool = hooks
