"""Samples of recorded runs, the changed counts of a spec that they call for, and why they do not
bless other red cases.

Only counts are blessed. Numbers, strides, generated code, exceptions, exits, texts and proofs have
no ``may_be_blessed``.
"""

import contextlib
import itertools
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

from torch_conformance.judge.evidence import (
    CarriedOut,
    judge_expectation,
)
from torch_conformance.judge.verdicts import reading_of
from torch_conformance.language.backends import Backends
from torch_conformance.language.read.anatomy import SOURCE, Anatomy
from torch_conformance.language.read.templates import MAX_EXPRESSION
from torch_conformance.model.case import Case, Expected
from torch_conformance.model.conditions import Surroundings, holds, is_conditional
from torch_conformance.model.document import DataPath
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.outcomes import PASSED, Outcome
from torch_conformance.model.protocol import Json
from torch_conformance.model.results import CaseResult
from torch_conformance.model.values import frozen
from torch_conformance.plan.selection import without_benches
from torch_conformance.record.journal import recorded_run
from torch_conformance.run.auditing import AuditOptions, recorded_cases, recorded_steps
from torch_conformance.run.rejudge import files_of, surroundings_of_part
from torch_conformance.tools.author.commands.explain import surroundings_in
from torch_conformance.tools.author.commands.waive import KEYS, Separate, smallest_condition
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.expectation_base import BadExpectation, parse_count

BLESSABLE = (Outcome.FAIL, Outcome.OFFLINE_FAIL)
"""Outcomes of which facts can be blessed. A crash, a hang, an error and a wrong proof cannot."""


class Leaf(NamedTuple):
    """A leaf of an expectation, the same in all cases of a spec: the numbers of step and
    expectation, and its name.
    """

    step: int
    expectation: int
    name: str


@dataclass(frozen=True, kw_only=True)
class Sample:
    """A case in one run: what its spec was read with, and on which machine it ran.

    Its steps are empty where no facts were recorded.
    """

    run: str
    torch: str | None
    backend_files: tuple[Path, ...]
    machine: tuple[tuple[str, str], ...]
    """The facts of the machine and its torch: what differs between runs with the same facts is
    unstable.
    """
    case: Case
    surroundings: Surroundings
    result: CaseResult
    folder: Path
    steps: tuple[CarriedOut, ...]

    @property
    def key(self) -> tuple[str, str]:
        """Its run and its id."""
        return self.run, str(self.case.id)

    @property
    def is_red(self) -> bool:
        """Whether the case failed the run."""
        return self.result.outcome.is_failure

    @cached_property
    def observed(self) -> Mapping[Leaf, tuple[Expected, Verdict]]:
        """What the expectations that can be blessed observed."""
        seen: dict[Leaf, tuple[Expected, Verdict]] = {}
        for number, carried in enumerate(self.steps):
            # the ranks of a step have one count in the spec: that of the first
            is_run = not carried.step.rank and carried.step.runs(self.surroundings)
            for index, expected in enumerate(carried.step.expectations if is_run else ()):
                if not EXPECTATIONS[expected.kind].may_be_blessed:
                    continue
                facts = reading_of(expected, index, carried.facts, self.surroundings)
                if not isinstance(facts, Verdict):
                    for judgement in judge_expectation(expected, facts):
                        seen[Leaf(number, index, judgement.leaf)] = expected, judgement
        return seen


Elsewhere: TypeAlias = tuple[Case, Surroundings]
"""A case without facts in any run, with the surroundings that its backend and target give."""

Red: TypeAlias = tuple[str, CaseResult]
"""A failed case with the name of its run, also one without facts."""


def read_samples(
    runs: Iterable[str], backend_files: tuple[Path, ...]
) -> tuple[list[Sample], list[Elsewhere], list[Red], Backends]:
    """Return the samples of the runs, and the cases that none recorded; the backends are these
    files, or those of the runs.

    Raise ``UsageError`` for a run whose specs changed since, or that its own files contradict.
    """
    samples: list[Sample] = []
    cases: dict[str, Case] = {}
    red: list[Red] = []
    backends = Backends({})
    for name in runs:
        recorded = recorded_run(name)
        header, results = recorded.run.header, recorded.run.results
        ran = recorded_cases(name, AuditOptions(backends=backend_files))
        backends = ran.suite.backends
        cases |= {case.id: case for case in ran.suite.cases}
        red += [(header.run_id, result) for result in results if result.outcome.is_failure]
        for case, result in ran.results:
            facts = result.node or header.environment
            case = without_benches(case) if result.benches_left_out else case
            samples.append(
                Sample(
                    run=header.run_id,
                    torch=facts.get("torch"),
                    backend_files=backend_files or tuple(files_of(header, "backends")),
                    machine=tuple(sorted(facts.items())),
                    case=case,
                    surroundings=surroundings_of_part(
                        case, backends.by_name[case.backend], result, ran.surroundings
                    ),
                    result=result,
                    folder=recorded.folder / result.folder,
                    steps=tuple(recorded_steps(case, result, recorded.folder)),
                )
            )
    nothing = Surroundings(backends=frozenset(), device="")
    without_facts = cases.keys() - {sample.case.id for sample in samples if sample.steps}
    others = [
        (case, surroundings_in(case, backends, nothing))
        for case in cases.values()
        if case.id in without_facts
    ]
    return samples, others, red, backends


Change: TypeAlias = tuple[DataPath, Any]
"""A value of a spec that is changed: its path, and the new value."""


class Row(NamedTuple):
    """The count that one case needs on one machine."""

    params: Mapping[str, Json]
    """The case's values of the matrix."""
    backend: str
    surroundings: Surroundings
    old: Any
    """The count that applies before the change."""
    value: Any
    entry: int | None
    """The entry of counts under conditions that applies; None where the count has no conditions."""
    is_recorded: bool
    """Whether a run has a case of this backend."""


class NotBlessed(Exception):
    """Why a leaf cannot be blessed: in one case, or in all."""

    def __init__(self, why: str, case_id: str = "") -> None:
        super().__init__(why)
        self.case_id = case_id


@frozen
class SpecFacts:
    """What the runs say of one spec."""

    anatomy: Anatomy
    samples: Sequence[Sample]
    others: Sequence[Elsewhere]
    """Its cases that no run recorded."""
    chosen: frozenset[str]
    """The ids of the cases that may be blessed."""
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why a red case is not blessed, by its run and its id."""

    @property
    def blessed(self) -> list[Sample]:
        """The samples whose facts may become the claim."""
        return [
            sample
            for sample in self.samples
            if sample.case.id in self.chosen and sample.is_red and sample.key not in self.refused
        ]


def propose(facts: SpecFacts) -> list[Change]:
    """Return the changes, and write into ``refused`` why red cases are not blessed; raise
    ``NotBlessed`` where nothing can be changed.
    """
    if SOURCE in facts.anatomy.data:
        raise NotBlessed("its cases come from a database of operators")
    for sample in facts.samples:
        if sample.is_red and (why := _why_never(sample)):
            facts.refused[sample.key] = why
    while True:
        changes: list[Change] = []
        wrong: dict[tuple[str, str], str] = {}  # the samples that a change cannot serve
        blessed = facts.blessed
        for leaf in sorted(
            {
                leaf
                for sample in blessed
                for leaf, (_, judgement) in sample.observed.items()
                if judgement.status is Status.FAILED
            }
        ):
            try:
                changes += _of_leaf(facts, leaf)
            except NotBlessed as why:
                for sample in blessed:
                    if leaf not in sample.observed or why.case_id not in ("", sample.case.id):
                        continue
                    expected, judgement = sample.observed[leaf]
                    if judgement.status in (Status.FAILED, Status.ERROR):
                        words = f"{expected.kind} {leaf.name}".rstrip()
                        wrong[sample.key] = f"{words}: {why}"
        if not wrong and not changes:
            raise NotBlessed("nothing in its spec can be blessed")
        if not wrong:
            return changes
        facts.refused.update(wrong)


def _why_never(sample: Sample) -> str:
    """Return why the facts of a red case are never blessed; empty if they may be."""
    result = sample.result
    if result.outcome not in BLESSABLE:
        return f"{result.outcome.label}: {result.reason}"
    counted = {
        (expected.kind, expected.place(expected.check.leaf_of(judgement)))
        for expected, judgement in sample.observed.values()
        if judgement.status is Status.FAILED
    }
    for verdict in result.failed:
        if verdict.kind not in EXPECTATIONS or not EXPECTATIONS[verdict.kind].may_be_blessed:
            return f"{verdict.message} ({verdict.kind} is never blessed)"
        if verdict.status is Status.ERROR:
            return verdict.message
        if (verdict.kind, verdict.position) not in counted:
            return f"{verdict.message} (its facts are not there)"
    return "" if result.failed else result.reason


def _of_leaf(facts: SpecFacts, leaf: Leaf) -> Iterator[Change]:
    raw = facts.anatomy.steps[leaf.step].expectations[leaf.expectation]
    counts = EXPECTATIONS[raw.kind].counts_of(raw.body)
    # the whole expectation is a leaf where it has one count
    path = next((path for path, _ in counts if leaf.name in ("", " ".join(path))), None)
    if path is None:
        raise NotBlessed("its line has no number of its own (write the count)")
    rows = list(_rows(facts, leaf, path))
    for entry in dict.fromkeys(row.entry for row in rows):
        of_entry = [row for row in rows if row.entry == entry]
        if all(row.value == row.old for row in of_entry):
            continue
        value = expression(of_entry)
        if entry is not None and is_conditional(value):
            raise NotBlessed(
                "its value under a condition would need more conditions (change it by hand)"
            )
        yield (*raw.path, *path, *(() if entry is None else (entry, "value"))), value


# -- the rows of a leaf ----------------------------------------------------------------------------


def _rows(facts: SpecFacts, leaf: Leaf, path: tuple[str, ...]) -> Iterator[Row]:
    """Yield a row for each case in the surroundings of each run, and for those that no run
    recorded, which keep their count.
    """
    by_place = defaultdict[tuple[str, Surroundings], list[Sample]](list)
    places = defaultdict[str, dict[Surroundings, None]](dict)
    for sample in facts.samples:
        if sample.steps:
            by_place[sample.case.id, sample.surroundings].append(sample)
            places[sample.case.backend][sample.surroundings] = None
    cases = [(samples[0].case, surroundings) for (_, surroundings), samples in by_place.items()]
    cases += [
        (case, place)
        for case, surroundings in facts.others
        for place in places.get(case.backend, (surroundings,))
    ]
    for case, surroundings in cases:
        step = case.steps[leaf.step] if leaf.step < len(case.steps) else None
        if step is None or leaf.expectation >= len(step.expectations):
            continue  # a run without benches
        expected = step.expectations[leaf.expectation]
        if not step.runs(surroundings) or not expected.check.applies(surroundings):
            continue
        value: Any = dict(EXPECTATIONS[expected.kind].counts_of(expected.body)).get(path)
        entry = None
        if isinstance(value, list) and is_conditional(value):
            holding = (
                index for index, part in enumerate(value) if holds(part.get("when"), surroundings)
            )
            entry = next(holding, None)
            value = None if entry is None else value[entry]["value"]
        old = value
        # the facts of a waived failure may not become a claim
        observed = [
            (sample.machine, sample.observed[leaf][1])
            for sample in by_place.get((case.id, surroundings), ())
            if sample.result.outcome in (*PASSED, *BLESSABLE)
            and sample.key not in facts.refused
            and leaf in sample.observed
            and sample.case.id in facts.chosen
        ]
        if any(judgement.status is Status.FAILED for _, judgement in observed):
            try:
                value = _needed(observed, value)
            except NotBlessed as why:
                raise NotBlessed(str(why), case.id) from why
        yield Row(
            case.params, case.backend, surroundings, old, value, entry, case.backend in places
        )


def _needed(observed: Sequence[tuple[object, Verdict]], current: object) -> Json:
    """Return the count that all runs in the same surroundings allow."""
    by_machine = defaultdict[object, list[int]](list)
    for machine, judgement in observed:
        try:
            by_machine[machine].append(int(judgement.observed))
        except ValueError as error:
            raise NotBlessed("what it observed is not a whole number") from error
    values = [counted(numbers, current) for numbers in by_machine.values()]
    if any(value != values[0] for value in values):
        raise NotBlessed("machines differ, and no condition of the language tells them apart")
    return values[0]


def counted(numbers: Sequence[int], old: object) -> Json:
    """Return the count to write for what one machine observed in all runs; raise ``NotBlessed``
    where it would say less than before.
    """
    least, most = min(numbers), max(numbers)
    allows_zero = False
    with contextlib.suppress(BadExpectation, TypeError, AttributeError):
        allows_zero = parse_count(old).holds(0)
    if least == 0 and not allows_zero:
        raise NotBlessed(
            "0 was observed: the claim would become that it never happens (change the claim "
            "by hand)"
        )
    if least == most:
        return least
    if least == 0:
        raise NotBlessed(
            f"unstable: 0 to {most} in runs of one machine: the range would hold where "
            "nothing happens"
        )
    return {"min": least, "max": most}


# -- one line for several cases and machines -------------------------------------------------------


def expression(rows: Sequence[Row]) -> Json:
    """Return the value that gives each case what it needs; raise ``NotBlessed`` where none does.

    Among the cases of one backend on one machine, only the matrix can tell cases apart; between
    these groups only ``when`` can.
    """
    columns = defaultdict[tuple[str, Surroundings], list[Row]](list)
    for row in rows:
        columns[row.backend, row.surroundings].append(row)
    groups: dict[str, tuple[Any, list[Row]]] = {}
    for column in columns.values():
        value = _of_column(column)
        groups.setdefault(json.dumps(value, sort_keys=True), (value, []))[1].append(column[0])
    ordered = sorted(
        groups.values(),
        key=lambda group: (any(not row.is_recorded for row in group[1]), len(group[1])),
    )
    entries = []
    for index, (value, covered) in enumerate(ordered[:-1]):
        others = [row.surroundings for _, group in ordered[index + 1 :] for row in group]
        when = smallest_condition([row.surroundings for row in covered], others, SEPARATING)
        if when is None:
            raise NotBlessed("machines differ, and no condition of the language tells them apart")
        entries.append({"when": when, "value": value})
    return [*entries, {"value": ordered[-1][0]}] if entries else ordered[-1][0]


def _of_column(rows: Sequence[Row]) -> Json:
    values = {json.dumps(row.value, sort_keys=True): row.value for row in rows}
    if len(values) == 1:
        return rows[0].value
    if not all(type(value) is int for value in values.values()):
        raise NotBlessed("cases of one matrix need different ranges, which no matrix value can say")
    keys = [key for key in rows[0].params if len({json.dumps(row.params[key]) for row in rows}) > 1]
    for size in (1, 2):
        for chosen in itertools.combinations(keys, size):
            if (template := _template(rows, chosen)) is not None:
                return template
    raise NotBlessed(
        "cases of one matrix need different values, and no one or two of its keys decide which"
    )


_WORD = re.compile(r"[A-Za-z0-9_.+ -]{1,60}")


def _template(rows: Sequence[Row], keys: Sequence[str]) -> str | None:
    """Return the template in which some keys decide the count; None where they do not, or where it
    would be too long.
    """
    by_point: dict[str, int] = {}
    for row in rows:
        tests = []
        for key in keys:
            match row.params[key]:
                case bool(value):
                    tests.append(key if value else f"not {key}")
                case int(value):
                    tests.append(f"{key} == {value}")
                case str(value) if _WORD.fullmatch(value):
                    tests.append(f"{key} == '{value}'")
                case _:
                    return None
        if by_point.setdefault(" and ".join(tests), row.value) != row.value:
            return None
    numbers = Counter(by_point.values())
    usual = [number for number, count in numbers.items() if count == max(numbers.values())]
    texts = [
        f"{{{{ "
        f"{''.join(f'{value} if {test} else ' for test, value in by_point.items() if value != number)}{number} "  # noqa: E501 - Python 3.11 breaks no line within a field
        f"}}}}"
        for number in usual
    ]
    shortest = min(texts, key=len)
    return shortest if len(shortest) <= MAX_EXPRESSION else None


def _device(key: str, covered: Sequence[Surroundings], others: Sequence[Surroundings]) -> Json:
    return _as_value({surroundings.device.partition(":")[0] for surroundings in covered})


def _backend(key: str, covered: Sequence[Surroundings], others: Sequence[Surroundings]) -> Json:
    """Return one name that all covered backends have and no other one, else each of their names."""
    foreign = frozenset[str]().union(*(surroundings.backends for surroundings in others))
    names = [surroundings.backends - foreign for surroundings in covered]
    common = frozenset.intersection(*names)
    return _as_value(sorted(common)[:1] or frozenset().union(*names))


def _as_value(names: Iterable[str]) -> Json:
    """Return the value of a condition that accepts some names; None where there are none."""
    values = sorted(names)
    return values[0] if len(values) == 1 else values or None


SEPARATING: Separate = {"device": _device, "backend": _backend, **KEYS}
"""The keys of the conditions that are proposed, the preferred one first."""
