"""The changes of one spec that recorded runs call for, and the red cases that they do not bless, each with the reason. Pure."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from runner.core.case import Case, Expected
from runner.core.conditions import Surroundings, holds, is_conditional
from runner.core.expectation import Status
from runner.judge.verdicts import place_of
from runner.language.read.anatomy import Anatomy, RawExpectation
from runner.language.read.document import DataPath
from runner.run.blessing import claims
from runner.run.blessing.claims import (
    FILECHECK,
    STRIDES,
    Cell,
    Column,
    Leaf,
    Line,
    NotBlessed,
    Observed,
    changed_lines,
    expression,
    with_lines,
)
from runner.run.blessing.samples import BLESSABLE, Sample
from runner.vocabulary.expectations.filecheck import FileCheck


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A value of a spec that is changed; ``lines`` are those of a text, where only they are."""

    path: DataPath
    value: Any
    lines: tuple[Line, ...] = ()
    comment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """What one case needs of a leaf on one machine."""

    case: Case
    here: Surroundings
    old: Any
    value: Any
    is_recorded: bool
    comment: str = ""

    @property
    def entry(self) -> int | None:
        """The entry of values under conditions that applies; None where the value has no conditions."""
        if not is_conditional(self.old):
            return None
        return next((index for index, one in enumerate(self.old) if holds(one.get("when"), self.here)), None)


@dataclass(frozen=True, kw_only=True)
class SpecFacts:
    """What the runs say of one spec."""

    anatomy: Anatomy
    samples: Sequence[Sample]
    others: Sequence[tuple[Case, Surroundings]]
    """Its cases that no run recorded."""
    chosen: frozenset[str]
    """The ids of the cases that may be blessed."""
    refused: dict[tuple[str, str], str] = field(default_factory=dict)
    """Why a red case is not blessed, by its run and its id."""

    @cached_property
    def seen(self) -> Mapping[tuple[str, str], Mapping[Leaf, Observed]]:
        """What each sample observed, by run and id."""
        return {_key(one): {found.leaf: found for found in claims.observed(one.steps, one.here)} for one in self.samples}

    @property
    def blessed(self) -> list[Sample]:
        """The samples whose facts may become the claim."""
        return [one for one in self.samples if one.case.id in self.chosen and one.is_red and _key(one) not in self.refused]


def _key(sample: Sample) -> tuple[str, str]:
    return sample.source.run, str(sample.case.id)


def propose(facts: SpecFacts) -> list[Change]:
    """Return the changes, and write into ``refused`` why red cases are not blessed."""
    for one in facts.samples:
        if one.is_red and (why := _why_never(one, facts.seen[_key(one)])):
            facts.refused[_key(one)] = why
    while True:
        changes: list[Change] = []
        wrong: dict[tuple[str, str], str] = {}  # the samples that a change cannot serve
        failed = {leaf for one in facts.blessed for leaf, seen in facts.seen[_key(one)].items() if seen.judgement.status is Status.FAILED}
        for leaf in sorted(failed):
            raw = facts.anatomy.steps[leaf.step].expectations[leaf.index]
            try:
                changes += _of_leaf(facts, leaf, raw)
            except NotBlessed as why:
                for one in facts.blessed:
                    seen_there = facts.seen[_key(one)].get(leaf) if why.case_id in ("", one.case.id) else None
                    if seen_there is not None and seen_there.judgement.status in (Status.FAILED, Status.ERROR):
                        wrong[_key(one)] = f"{raw.kind} {leaf.name}".rstrip() + f": {why}"
        if not wrong:
            return changes
        facts.refused.update(wrong)


def _why_never(sample: Sample, seen: Mapping[Leaf, Observed]) -> str:
    """Return why the facts of a red case are never blessed; empty if they may be."""
    result = sample.result
    if result.outcome not in BLESSABLE:
        return f"{result.outcome.label}: {result.reason}"
    counted = {(one.expected.kind, place_of(one.expected, one.judgement)) for one in seen.values() if one.judgement.status is Status.FAILED}
    for verdict in result.failed:
        if verdict.kind not in claims.KINDS or verdict.status is Status.ERROR:
            return f"{verdict.message} ({verdict.kind} is never blessed)" if verdict.kind not in claims.KINDS else verdict.message
        if (verdict.kind, verdict.position) not in counted:
            return f"{verdict.message} (its facts are not there)"
    return "" if result.failed else result.reason


def _of_leaf(facts: SpecFacts, leaf: Leaf, raw: RawExpectation) -> list[Change]:
    if raw.kind == FILECHECK:
        return [_directives(facts, leaf, raw)]
    path = claims.body_path(raw.kind, leaf)
    if path is None or claims.value_at(raw.body, path) is None:
        raise NotBlessed("its line has no number of its own (write the count)")
    rows = list(_rows(facts, leaf, path))
    found = []
    by_entry = itertools.groupby(sorted(rows, key=lambda row: -1 if row.entry is None else row.entry), key=lambda row: row.entry)
    for entry, group in by_entry:
        own = list(group)
        if all(row.value == _effective(row.old, row.here) for row in own):
            continue
        places: dict[tuple[str, Surroundings], list[Row]] = {}
        for row in own:
            places.setdefault((row.case.backend, row.here), []).append(row)
        columns = []
        for (_, here), rows_there in places.items():
            cells = tuple(Cell(row.case.params, row.value) for row in rows_there)
            columns.append(Column(here=here, cells=cells, is_recorded=any(row.is_recorded for row in rows_there)))
        value = expression(columns)
        if entry is not None and is_conditional(value):
            raise NotBlessed("its value under a condition would need more conditions (change it by hand)")
        below: DataPath = () if entry is None else (entry, "value")
        comments = list(dict.fromkeys(row.comment for row in own if row.comment))
        found.append(Change(path=(*raw.path, *path, *below), value=value, comment="; ".join(comments)))
    return found


# -- the rows of a leaf -----------------------------------------------------------------------------------------------


def _rows(facts: SpecFacts, leaf: Leaf, path: DataPath) -> Iterator[Row]:
    """Yield a row for each case in the surroundings of each run, and for those that no run recorded."""
    by_place: dict[tuple[str, Surroundings], list[Sample]] = {}
    for one in facts.samples:
        if one.steps:
            by_place.setdefault((str(one.case.id), one.here), []).append(one)
    places: dict[str, dict[Surroundings, None]] = {}
    for (_, here), own in by_place.items():
        places.setdefault(own[0].case.backend, {})[here] = None
    for (_, here), own in by_place.items():
        if (expected := claims.applies(own[0].case, leaf, here)) is not None:
            yield _recorded(facts, leaf, own, expected, path)
    recorded = {case_id for case_id, _ in by_place}
    for case, here in facts.others:
        if case.id in recorded:
            continue
        for place in places.get(case.backend, {here: None}):
            if (expected := claims.applies(case, leaf, place)) is not None:
                old = claims.value_at(expected.body, path)
                yield Row(case=case, here=place, old=old, value=_effective(old, place), is_recorded=case.backend in places)


def _recorded(facts: SpecFacts, leaf: Leaf, own: Sequence[Sample], expected: Expected, path: DataPath) -> Row:
    """Return what one case needs in the surroundings of one or more runs."""
    here = own[0].here
    old = claims.value_at(expected.body, path)
    now = _effective(old, here)
    used = [one for one in own if one.is_usable and _key(one) not in facts.refused and leaf in facts.seen[_key(one)]]
    seen = [(one.source.machine, facts.seen[_key(one)][leaf]) for one in used if one.case.id in facts.chosen]
    needs = any(one.judgement.status is Status.FAILED for _, one in seen)
    if not needs or expected.kind not in (*claims.COUNTED, STRIDES):
        return Row(case=own[0].case, here=here, old=old, value=now, is_recorded=True)
    try:
        value, comment = _needed(seen, now, expected.kind)
    except NotBlessed as why:
        raise NotBlessed(str(why), str(own[0].case.id)) from why
    return Row(case=own[0].case, here=here, old=old, value=value, is_recorded=True, comment=comment)


def _needed(seen: Sequence[tuple[object, Observed]], now: object, kind: str) -> tuple[Any, str]:
    """Return the value that all runs in the same surroundings allow, and a comment where it is unstable."""
    if kind == STRIDES:
        found = {tuple(claims.strides_of(one)) for _, one in seen}
        if len(found) > 1:
            raise NotBlessed("unstable: its strides differ from run to run")
        return list(found.pop()), ""
    by_machine: dict[object, list[int]] = {}
    for machine, one in seen:
        by_machine.setdefault(machine, []).append(claims.number_of(one))
    values = [claims.counted(numbers, now) for numbers in by_machine.values()]
    if any(value != values[0] for value in values):
        raise NotBlessed("machines differ, and no condition of the language tells them apart")
    numbers = next(iter(by_machine.values()))
    is_unstable = isinstance(values[0], dict)
    return values[0], f"unstable: {min(numbers)} to {max(numbers)} in {len(numbers)} runs of one machine" if is_unstable else ""


def _effective(old: object, here: Surroundings) -> Any:
    """Return the value of values under conditions that applies here."""
    if not isinstance(old, list) or not is_conditional(old):
        return old
    return next((one["value"] for one in old if holds(one.get("when"), here)), None)


# -- directives -------------------------------------------------------------------------------------------------------


def _directives(facts: SpecFacts, leaf: Leaf, raw: RawExpectation) -> Change:
    texts: dict[str, None] = {}
    known: set[str] = set()
    for one in facts.samples:
        seen = facts.seen[_key(one)].get(leaf)
        if seen is None or not one.is_usable or seen.judgement.status is Status.NOT_APPLICABLE or _key(one) in facts.refused:
            continue
        check = seen.expected.check
        text = check.text_of(seen.facts.code) if isinstance(check, FileCheck) else None
        if text is None:
            raise NotBlessed(f"{one.case.id} has no code to match")
        texts[text] = None
        known.add(str(one.case.id))
    for case in itertools.chain((one.case for one in facts.samples), (case for case, _ in facts.others)):
        places = [here for other, here in facts.others if other.id == case.id] + [
            one.here for one in facts.samples if one.case.id == case.id
        ]
        if case.id not in known and any(claims.applies(case, leaf, here) is not None for here in places):
            raise NotBlessed(f"its line also serves {case.id}, of which no run has code to bless (write when: for each)")
    below: DataPath = () if isinstance(raw.body, str) else ("checks",)
    checks = raw.body if isinstance(raw.body, str) else raw.body["checks"]
    lines = tuple(changed_lines(checks, list(texts)))
    return Change(path=(*raw.path, *below), value=with_lines(checks, lines), lines=lines)
