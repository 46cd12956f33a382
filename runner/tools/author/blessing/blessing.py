"""``bless``: from recorded runs to changed specs, and the reasons for every red case that is not blessed."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.language.backends import Backend
from runner.language.load import Suite, inspect_specs, load_specs, surroundings_of
from runner.language.read.anatomy import SOURCE
from runner.language.read.document import Document
from runner.language.read.templates import replaced
from runner.model.case import Case
from runner.model.diagnostics import InvalidSpecs, UsageError
from runner.model.outcomes import PASSED
from runner.plan.selection import select, without_benches
from runner.record.case_files import RecordedFiles
from runner.run import rejudge
from runner.run.rejudge import specs_of
from runner.tools.author.blessing.blessed_samples import BlessOptions, Sample, read_samples
from runner.tools.author.blessing.proposing import Change, NotBlessed, SpecFacts, propose
from runner.tools.author.text_edits import CannotEdit, changed, value_edit


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
    refused: Mapping[tuple[str, str], str]
    """Why a red case is not blessed, by its run and its id."""
    chosen: int
    """How many cases of the runs were selected."""


def bless(options: BlessOptions) -> Blessing:
    """Return the changed specs; raise ``UsageError`` for a run that cannot be read or whose specs changed since."""
    recorded = read_samples(options)
    cases = list({sample.case.id: sample.case for sample in recorded.samples}.values())
    cases += [case for case, _ in recorded.others]
    chosen = {str(case.id) for case in select(cases, recorded.backends, names=options.backend, globs=options.select, tags=options.tag)}
    if not (options.backend or options.select or options.tag):  # also those whose specs are gone
        chosen.update(str(result.case_id) for _, result in recorded.red)
    with_facts = {sample.key for sample in recorded.samples}
    reasons = {(run, str(result.case_id)): f"{result.outcome.label}: {result.reason}" for run, result in recorded.red}
    refused = {key: reason for key, reason in reasons.items() if key not in with_facts}
    specs: list[ChangedSpec] = []
    for spec in dict.fromkeys(sample.case.spec for sample in recorded.samples if sample.is_red):
        samples = [sample for sample in recorded.samples if sample.case.spec == spec]
        source = samples[0].source
        inspection = inspect_specs(specs_of([samples[0].result]), source.backend_files, surroundings_of(source.torch, None))
        anatomy = inspection.valid().anatomies[0]
        others = [(case, surroundings) for case, surroundings in recorded.others if case.spec == spec]
        facts = SpecFacts(anatomy=anatomy, samples=samples, others=others, chosen=frozenset(chosen))
        changes = propose(facts) if SOURCE not in anatomy.data else []
        refused.update(facts.refused)
        own = [sample.key for sample in facts.blessed]
        if not changes:
            is_database = SOURCE in anatomy.data
            reason = "its cases come from a database of operators" if is_database else "nothing in its spec can be blessed"
            refused.update(dict.fromkeys(own, reason))
            continue
        try:
            after = edited(anatomy.document, changes)
            judge_again(after, samples, facts.blessed)
        except (CannotEdit, NotBlessed) as error:
            refused.update(dict.fromkeys(own, str(error)))
        else:
            names = tuple(dict.fromkeys(case_id for _, case_id in own))
            specs.append(ChangedSpec(before=anatomy.document, after=after, cases=names, has_control="control" in anatomy.data))
    return Blessing(specs=tuple(specs), refused={key: reason for key, reason in refused.items() if key[1] in chosen}, chosen=len(chosen))


def edited(document: Document, changes: Sequence[Change]) -> Document:
    """Return a spec with changes; raise ``CannotEdit`` unless the text then means exactly them."""
    data: Any = document.data
    for change in changes:
        data = replaced(data, change.path, change.value)
    edits = [value_edit(document, change.path, change.value) for change in changes]
    return changed(document, edits, data)


def judge_again(changed: Document, samples: Sequence[Sample], blessed: Iterable[Sample]) -> None:
    """Raise ``NotBlessed`` unless a changed spec validates, blessed cases pass by it, and the outcomes of others stay."""
    must_pass = {id(sample) for sample in blessed}
    suites: dict[object, Suite] = {}
    for sample in samples:
        source = sample.source
        key = (source.torch, source.backend_files)
        if key not in suites:
            try:
                specs = specs_of([sample.result])
                texts = {spec.path: changed.content for spec in specs}
                suites[key] = load_specs(specs, source.backend_files, surroundings_of(source.torch, None), texts)
            except InvalidSpecs as error:
                raise NotBlessed(f"the changed spec would not validate: {error.diagnostics[0]}") from error
            except UsageError as error:
                raise NotBlessed(str(error)) from error
        case = next((case for case in suites[key].cases if case.id == sample.case.id), None)
        if case is None:
            raise NotBlessed(f"{sample.case.id} would be gone")
        if sample.steps:
            case = without_benches(case) if sample.result.benches_left_out else case
            _compare(sample, case, suites[key].backends.by_name[case.backend], must_pass=id(sample) in must_pass)


def _compare(sample: Sample, case: Case, backend: Backend, *, must_pass: bool) -> None:
    """Raise ``NotBlessed`` where the facts of a sample, judged by a changed case, are not what they must be."""
    files = RecordedFiles(sample.folder, sample.result.evidence)
    now = rejudge.judged_again(case, backend, sample.surroundings, sample.result, files, sample.folder)
    then = rejudge.judged_again(sample.case, backend, sample.surroundings, sample.result, files, sample.folder)
    if isinstance(now, str) or isinstance(then, str):
        raise NotBlessed(now if isinstance(now, str) else str(then))
    if must_pass and now.outcome not in PASSED:
        raise NotBlessed(f"{case.id} of {sample.source.run}, judged again by the changed spec, is {now.outcome.label}: {now.reason}")
    if not must_pass and now.outcome is not then.outcome:
        raise NotBlessed(f"{case.id} of {sample.source.run} would become {now.outcome.label}: {now.reason}")
