"""What the core calls for ``audit --nodes``: the cases as they are run for it, and the report."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from torch_conformance.judge.evidence import (
    CarriedOut,
    judge_expectation,
)
from torch_conformance.language.load import Suite
from torch_conformance.model.case import Case, Expected, Step
from torch_conformance.model.conditions import Surroundings, without_code
from torch_conformance.model.diagnostics import Position, shown_path
from torch_conformance.model.escaping import line
from torch_conformance.model.expectation import Mutant, Reading, Status, Verdict
from torch_conformance.model.protocol import Json, decode
from torch_conformance.model.values import frozen
from torch_conformance.run import rejudge
from torch_conformance.run.auditing import AuditTool, RunCases, recorded_steps
from torch_conformance.vocabulary.expectations.expectation_base import EAGER, OUTPUT, Kind
from torch_conformance.vocabulary.steps import traits_of

_FATES = _NOTICED, _UNNOTICED, _EQUIVALENT = "noticed", "unnoticed", "equivalent"
"""What becomes of a change. Of several steps, the first of these counts."""

_SECONDS = 1200
"""The deadline of a case: the worker itself stops changing nodes long before."""

_KEPT = ("close", "raises")
"""The expectations of a case that are measured: others speak of a compiler."""


@frozen
class Nodes(Kind):
    """Asks the worker to change the nodes of a step's graphs."""

    calls_again: ClassVar[bool] = True
    gradients: bool = False

    @staticmethod
    def measure(arguments: Mapping[str, Any], call: "RepeatableCall") -> dict[str, Any]:
        """Measure in the worker."""
        from torch_conformance.tools.nodes.worker import tried

        return tried(call, **arguments)

    def measurement(self) -> Mapping[str, Json]:
        """Whether the case asks for gradients."""
        return {"gradients": self.gradients}

    def judged(self, facts: Reading) -> list[Verdict]:
        """It claims nothing."""
        return [Verdict.passed("nodes changed", "")]

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """None: it claims nothing."""
        return iter(())


MEASURED = Nodes
"""The kind that a worker finds by the name of this tool."""


def _compares(expected: Expected) -> bool:
    check: Any = expected.check
    return expected.kind == "close" and (check.of, check.to) == (OUTPUT, EAGER)


def _without_code(check: Any) -> Any:
    """Return an expectation without its condition on generated code, of which there is none."""
    return replace(check, when=without_code(check.when)) if check.when else check


def _as_run(case: Case) -> Case:
    """Return a case without a compiler, whose steps that compare with eager change their nodes."""
    gradients = any(traits_of(step).gives_gradients for step in case.steps)

    def changed(step: Step) -> Step:
        expectations = tuple(
            replace(expected, check=_without_code(expected.check))
            for expected in step.expectations
            if expected.kind in _KEPT
        )
        if traits_of(step).can_be_called_again and any(map(_compares, expectations)):
            check = Nodes(gradients=gradients)
            expectations += (Expected(kind=check.kind, check=check, position=step.position),)
        return replace(step, expectations=expectations)

    # without options of inductor: freezing would keep the state of a module from being set back
    settings = replace(case.body.settings, compile={"backend": "eager"}, config={})
    steps = tuple(map(changed, case.steps))
    body = replace(case.body, settings=settings, timeout=_SECONDS)
    return replace(case, body=body, steps=steps, control=None)


@frozen
class _Tried:
    """One change of one node of a case."""

    case: Case
    position: Position
    operator: str
    change: str
    fate: str


@frozen
class Report:
    """What became of the changes of some cases."""

    tried: Sequence[_Tried]
    nodes: Mapping[str, int]
    """How many nodes were changed, by spec."""
    left: Mapping[str, str]
    """Why cases, or some of their changes, were not tried, by id."""

    @property
    def is_empty(self) -> bool:
        """Whether no node was changed."""
        return not self.nodes

    @property
    def is_clean(self) -> bool:
        """Whether each change was noticed."""
        return all(change.fate != _UNNOTICED for change in self.tried)

    def _by_line(self) -> Iterator[tuple[Position, str, list[str], list[str]]]:
        """Yield the unnoticed changes of each line and operator, with their cases."""
        groups = defaultdict[tuple[Position, str], list[_Tried]](list)
        for change in self.tried:
            if change.fate == _UNNOTICED:
                groups[change.position, change.operator].append(change)
        for (position, operator), group in groups.items():
            changes = dict.fromkeys(tried.change for tried in group)
            cases = dict.fromkeys(tried.case.id for tried in group)
            yield position, operator, list(changes), list(cases)

    def counts(self, tried: Iterable[_Tried]) -> dict[str, int]:
        """Return how many changes had each fate."""
        fates = Counter(change.fate for change in tried)
        return {fate: fates[fate] for fate in _FATES}

    def by_spec(self) -> dict[str, dict[str, int]]:
        """Return the counts of each spec."""
        specs = defaultdict[str, list[_Tried]](list)
        for change in self.tried:
            specs[change.case.spec].append(change)
        return {
            spec: {"nodes": nodes, **self.counts(specs[spec])}
            for spec, nodes in sorted(self.nodes.items())
        }

    def lines(self) -> Iterator[str]:
        """Yield a line for each operator of a spec that may change, what was not tried, and the
        sums.
        """
        for position, operator, changes, cases in self._by_line():
            more = f" and {len(cases) - 1} more" if len(cases) > 1 else ""
            yield (
                f"{position}: {operator} may change unnoticed: {'; '.join(changes)}  "
                f"{line(cases[0])}{more}"
            )
        for case_id, why in self.left.items():
            yield f"not tried: {line(case_id)}: {why}"
        counts = self.counts(self.tried)
        ids = {change.case.id for change in self.tried}
        fates = ", ".join(f"{count} {fate}" for fate, count in counts.items())
        nodes, sum_of_changes = sum(self.nodes.values()), sum(counts.values())
        yield f"{nodes} nodes of {len(ids)} cases, {sum_of_changes} changes: {fates}"

    def as_json(self) -> Mapping[str, Any]:
        """Return the JSON of ``audit --nodes --json``."""
        unnoticed = [
            {**asdict(position), "operator": operator, "changes": changes, "cases": cases}
            for position, operator, changes, cases in self._by_line()
        ]
        return {
            "format": 1,
            "specs": self.by_spec(),
            "unnoticed": unnoticed,
            "not_tried": dict(self.left),
        }


def report(cases: Iterable[Case], suite: Suite, run: RunCases, folder: Path) -> Report:
    """Run the cases, once for all backends, with their nodes changed."""
    first = {case.seed_key: case for case in reversed(list(cases))}
    as_run = [_as_run(case) for case in first.values()]
    to_run = [case for case in as_run if any(map(_asked, case.steps))]
    tried: list[_Tried] = []
    nodes, not_tried = Counter[str](), dict[str, str]()
    results, machine_surroundings = run(to_run)
    for case, result in sorted(results, key=lambda pair: pair[0].id):
        if not (steps := recorded_steps(case, result, folder)):
            not_tried[case.id] = f"{result.outcome.label}: {result.reason}"
            continue
        surroundings = rejudge.surroundings_of_part(
            case, suite.backends.by_name[case.backend], result, machine_surroundings
        )
        changes = _Changes(case, surroundings)
        for step in steps:
            if _asked(step.step):
                changes.add(step)
        tried += changes.tried.values()
        nodes[case.spec] += len(changes.nodes)
        if changes.left or not changes.nodes:
            not_tried[case.id] = changes.left or "its graphs have no node that can be changed"
    return Report(tried=tried, nodes=nodes, left=not_tried)


def _asked(step: Step) -> bool:
    return any(isinstance(expected.check, Nodes) for expected in step.expectations)


@dataclass
class _Changes:
    """The changes of a case: what one step lets through, another one may notice."""

    case: Case
    surroundings: Surroundings
    tried: dict[tuple[str, str, str], _Tried] = field(default_factory=dict)
    """By graph, node and change."""
    nodes: set[tuple[str, ...]] = field(default_factory=set)
    left: str = ""
    """Why some changes were not tried."""

    def add(self, carried: CarriedOut) -> None:
        """Add those of a step."""
        step = carried.step
        facts: Any = decode(carried.facts.measurements.get(str(len(step.expectations) - 1))) or {}
        where = f"{step.kind}, line {step.position.line}"
        if "nodes" not in facts:
            why = facts.get("why_not") or facts.get("raised") or "nothing was measured"
            self.left = self.left or f"{where}: {why}"
            return
        if not self._holds(carried, facts["base"]):
            self.left = f"{where}: without a change, the answer of the graph differs from eager's"
            return
        if facts["left"]:
            self.left = f"{where}: {facts['left']} changes for lack of time"
        self.nodes |= set(map(tuple, facts["nodes"]))
        for change in facts["changes"]:
            if "noticed" in change or (
                "again" in change and not self._holds(carried, change["again"])
            ):
                fate = _NOTICED
            else:
                fate = _EQUIVALENT if change["equivalent"] else _UNNOTICED
            key = (change["graph"], change["node"], change["change"])
            earlier = self.tried.get(key)
            if earlier is not None and _FATES.index(earlier.fate) <= _FATES.index(fate):
                continue
            position = step.position
            if change["file"]:
                position = Position(file=shown_path(Path(change["file"])), line=change["line"])
            self.tried[key] = _Tried(
                case=self.case,
                position=position,
                operator=change["operator"],
                change=change["change"],
                fate=fate,
            )

    def _holds(self, carried: CarriedOut, compared: Mapping[str, Any]) -> bool:
        """Whether each ``close`` of the step lets an answer through."""
        return all(
            verdict.status in (Status.HELD, Status.NOT_APPLICABLE)
            for index, measured in compared.items()
            for verdict in judge_expectation(
                carried.step.expectations[int(index)],
                Reading.of(carried.facts, measured, self.surroundings),
            )
        )


if TYPE_CHECKING:
    from torch_conformance.tools.nodes import hooks
    from torch_conformance.worker.case.additional import RepeatableCall

    _CHECKED: AuditTool = hooks
