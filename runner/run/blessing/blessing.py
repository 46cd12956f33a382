"""``bless``: from recorded runs to changed specs, and the reasons for every red case that is not blessed."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.options import BlessOptions
from runner.language.load import inspect_specs, surroundings_of
from runner.language.read.anatomy import SOURCE, Anatomy
from runner.language.read.document import DataPath, Document
from runner.language.read.substitution import replaced
from runner.language.text_edits import CannotEdit, Edit, Layout, changed
from runner.plan.selection import select
from runner.run.blessing.checking import problem_of
from runner.run.blessing.proposing import Change, SpecFacts, propose
from runner.run.blessing.samples import Recorded, Sample, read_samples
from runner.run.rejudge import specs_of


@dataclass(frozen=True, slots=True, kw_only=True)
class NotBlessed:
    """A red case that is not blessed."""

    run: str
    case_id: str
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSpec:
    """A spec with its changed text."""

    before: Document
    after: Document
    cases: tuple[str, ...]
    """The red cases that pass by it."""
    has_control: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Blessing:
    """What the runs bless."""

    specs: tuple[ChangedSpec, ...]
    refused: tuple[NotBlessed, ...]
    chosen: int
    """How many cases of the runs were selected."""


def bless(options: BlessOptions) -> Blessing:
    """Return the changed specs; raise ``UsageError`` for a run that cannot be read or whose specs changed since."""
    recorded = read_samples(options)
    chosen = _chosen(recorded, options)
    specs: list[ChangedSpec] = []
    refused: dict[tuple[str, str], str] = {}
    with_facts = {(one.source.run, str(one.case.id)) for one in recorded.samples}
    for run, result in recorded.red:
        if (run, result.case_id) not in with_facts:
            refused[run, str(result.case_id)] = f"{result.outcome.label}: {result.reason}"
    for spec in dict.fromkeys(one.case.spec for one in recorded.samples if one.is_red or options.all):
        found = _of_spec(spec, recorded, chosen, options, refused)
        specs += [found] if found is not None else []
    wanted = tuple(NotBlessed(run=run, case_id=case_id, why=why) for (run, case_id), why in refused.items() if case_id in chosen)
    return Blessing(specs=tuple(specs), refused=wanted, chosen=len(chosen))


def _chosen(recorded: Recorded, options: BlessOptions) -> frozenset[str]:
    """Return the ids that the options select, among those of the runs."""
    cases = list({one.case.id: one.case for one in recorded.samples}.values())
    cases += [case for case, _ in recorded.others]
    chosen = select(cases, recorded.backends, names=options.backend, globs=options.select, tags=options.tag)
    whole = () if options.backend or options.select or options.tag else (str(result.case_id) for _, result in recorded.red)
    return frozenset([*whole, *(str(case.id) for case in chosen)])


def _of_spec(
    spec: str, recorded: Recorded, chosen: frozenset[str], options: BlessOptions, refused: dict[tuple[str, str], str]
) -> ChangedSpec | None:
    samples = [one for one in recorded.samples if one.case.spec == spec]
    anatomy = _anatomy(samples[0])
    facts = SpecFacts(
        anatomy=anatomy,
        samples=samples,
        others=[(case, here) for case, here in recorded.others if case.spec == spec],
        chosen=chosen,
        narrow=options.all,
    )
    changes = propose(facts) if SOURCE not in anatomy.data else []
    blessed = facts.blessed
    after, why = _checked(anatomy.document, changes, samples, blessed)
    refused.update(facts.refused)
    if after is None:
        refused.update({(one.source.run, str(one.case.id)): why for one in blessed})
        return None
    cases = tuple(dict.fromkeys(str(one.case.id) for one in blessed))
    return ChangedSpec(before=anatomy.document, after=after, cases=cases, has_control="control" in anatomy.data)


def _anatomy(sample: Sample) -> Anatomy:
    specs = specs_of([sample.result])
    return inspect_specs(specs, sample.source.backend_files, surroundings_of(sample.source.torch, None)).valid().anatomies[0]


def _checked(
    document: Document, changes: Sequence[Change], samples: Sequence[Sample], blessed: Sequence[Sample]
) -> tuple[Document | None, str]:
    """Return the changed spec, or None and why there is none."""
    if not changes:
        return None, "its cases come from a database of operators" if SOURCE in document.data else "nothing in its spec can be blessed"
    try:
        after = edited(document, changes)
    except CannotEdit as error:
        return None, str(error)
    why = problem_of(after, samples, blessed)
    return (None, why) if why else (after, "")


def edited(document: Document, changes: Sequence[Change]) -> Document:
    """Return a spec with changes; raise ``CannotEdit`` unless the text then means exactly them."""
    layout = Layout(document)
    data: Any = document.data
    for change in changes:
        data = replaced(data, change.path, change.value)
    return changed(document, list(_edits(layout, changes)), data)


def _edits(layout: Layout, changes: Sequence[Change]) -> Iterator[Edit]:
    commented: set[tuple[DataPath, str]] = set()
    for change in changes:
        if change.lines:
            yield from (layout.line_of_text(change.path, line.number, line.old, line.new) for line in change.lines)
        else:
            yield layout.value(change.path, change.value)
        if change.comment and (change.path[:-1], change.comment) not in commented:
            commented.add((change.path[:-1], change.comment))
            yield layout.comment(change.path, change.comment)
