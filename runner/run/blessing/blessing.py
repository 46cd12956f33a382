"""``bless``: from recorded runs to changed specs, and the reasons for every red case that is not blessed."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.case import Case
from runner.core.diagnostics import InvalidSpecs, UsageError
from runner.core.options import BlessOptions
from runner.core.outcomes import PASSED
from runner.judge.audit import audit, try_case
from runner.judge.evidence import recorded_observation
from runner.language.backends import Backend
from runner.language.load import inspect_specs, load_specs, surroundings_of
from runner.language.read.anatomy import SOURCE
from runner.language.read.document import DataPath, Document
from runner.language.read.substitution import replaced
from runner.language.text_edits import CannotEdit, Edit, Layout, changed
from runner.plan.selection import select, without_benches
from runner.record.evidence import RecordedFiles
from runner.run import rejudge
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
    for spec in dict.fromkeys(one.case.spec for one in recorded.samples if one.is_red):
        found = _of_spec(spec, recorded, chosen, refused)
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


def _of_spec(spec: str, recorded: Recorded, chosen: frozenset[str], refused: dict[tuple[str, str], str]) -> ChangedSpec | None:
    samples = [one for one in recorded.samples if one.case.spec == spec]
    source = samples[0].source
    inspection = inspect_specs(specs_of([samples[0].result]), source.backend_files, surroundings_of(source.torch, None))
    anatomy = inspection.valid().anatomies[0]
    facts = SpecFacts(
        anatomy=anatomy,
        samples=samples,
        others=[(case, here) for case, here in recorded.others if case.spec == spec],
        chosen=chosen,
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


# -- the changed spec, judged -----------------------------------------------------------------------------------------

# It validates, and runs judged by it give PASS for blessed cases and no change for others.


def problem_of(changed: Document, samples: Sequence[Sample], blessed: Iterable[Sample]) -> str:
    """Return why a changed spec is refused; empty if it is not."""
    must_pass = {id(one) for one in blessed}
    suites: dict[object, tuple[Mapping[str, Case], Mapping[str, Backend]] | str] = {}
    for one in samples:
        key = (one.source.torch, one.source.backend_files)
        if key not in suites:
            suites[key] = _expanded(changed, one)
        found = suites[key]
        if isinstance(found, str):
            return found
        cases, backends = found
        if one.case.id not in cases:
            return f"{one.case.id} would be gone"
        case = cases[one.case.id]
        now = without_benches(case) if one.result.benches_left_out else case
        if one.steps and (why := _differs(one, now, backends[case.backend], must_pass=id(one) in must_pass)):
            return why
    return ""


def _expanded(changed: Document, sample: Sample) -> tuple[Mapping[str, Case], Mapping[str, Backend]] | str:
    source = sample.source
    try:
        specs = specs_of([sample.result])
        texts = {spec.path: changed.content for spec in specs}
        suite = load_specs(specs, source.backend_files, surroundings_of(source.torch, None), texts)
    except InvalidSpecs as error:
        return f"the changed spec would not validate: {error.diagnostics[0]}"
    except UsageError as error:
        return str(error)
    return {str(case.id): case for case in suite.cases}, suite.backends.by_name


def _differs(sample: Sample, case: Case, backend: Backend, *, must_pass: bool) -> str:
    """Return how the facts of a sample, judged by a changed case, are not what they must be."""
    files = RecordedFiles(sample.folder, sample.result.evidence)
    now = rejudge.judged_again(case, backend, sample.here, sample.result, files, sample.folder)
    then = rejudge.judged_again(sample.case, backend, sample.here, sample.result, files, sample.folder)
    if isinstance(now, str) or isinstance(then, str):
        return now if isinstance(now, str) else str(then)
    if must_pass and now.outcome not in PASSED:
        return f"{case.id} of {sample.source.run}, judged again by the changed spec, is {now.outcome.label}: {now.reason}"
    if not must_pass and now.outcome is not then.outcome:
        return f"{case.id} of {sample.source.run} would become {now.outcome.label}: {now.reason}"
    new = _survivors(sample, case, files) - _survivors(sample, sample.case, files)
    if new:
        kind, leaf, mutant = sorted(new)[0]
        return f"{kind} {leaf} could not fail in {case.id}: it holds for the mutant '{mutant}' of its facts".replace("  ", " ")
    return ""


def _survivors(sample: Sample, case: Case, files: RecordedFiles) -> set[tuple[str, str, str]]:
    """Return the mutants of a sample's facts that its expectations let through without a written reason."""
    trials = try_case(case, sample.here, recorded_observation(files.observation()), files.code)
    return {(one.kind, one.leaf, one.mutant) for one in audit([(case, trials)]).survivors}
