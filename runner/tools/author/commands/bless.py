"""``bless``: from recorded runs to changed specs, printed or applied, and the reasons for every red case that is not blessed."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.language.load import Suite, inspect_specs, load_specs, surroundings_of
from runner.language.read.anatomy import SOURCE
from runner.language.read.document import Document
from runner.language.read.templates import replaced
from runner.machine import output
from runner.model.diagnostics import InvalidSpecs, UsageError, one_line
from runner.model.options import argument, backend_files, flag, several
from runner.model.outcomes import PASSED, ExitCode
from runner.plan.selection import select, without_benches
from runner.record.case_files import RecordedFiles
from runner.report import replace
from runner.run import rejudge
from runner.run.rejudge import specs_of
from runner.tools.author.blessed_counts import NotBlessed, Sample, SpecFacts, propose, read_samples
from runner.tools.author.text_edits import CannotEdit, changed, patch, value_edit


@dataclass(frozen=True, slots=True, kw_only=True)
class BlessOptions:
    """The options of ``bless``."""

    targets: tuple[str, ...] = argument(
        "RUN", "recorded runs: a folder, an id, or latest; of several machines or versions, if there are", nargs="+"
    )
    write: bool = flag("change the specs instead of printing the patch")
    backends: tuple[Path, ...] = backend_files()
    backend: tuple[str, ...] = several("NAME", "bless the cases of this backend alone")
    select: tuple[str, ...] = several("GLOB", "bless the ids that match; * and ? are special")
    tag: tuple[str, ...] = several("NAME", "bless the cases whose spec has this tag")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangedSpec:
    """A spec with its changed text."""

    before: Document
    after: Document
    cases: tuple[str, ...]
    """The red cases that pass by it."""
    has_control: bool


def bless(options: BlessOptions) -> tuple[list[ChangedSpec], dict[tuple[str, str], str], int]:
    """Return the changed specs, why red cases are not blessed (by run and id), and how many cases of the runs are selected.

    Raise ``UsageError`` for a run that cannot be read or whose specs changed since.
    """
    recorded, unrecorded, red, backends = read_samples(options.targets, options.backends)
    cases = list({sample.case.id: sample.case for sample in recorded}.values())
    cases += [case for case, _ in unrecorded]
    chosen = {str(case.id) for case in select(cases, backends, names=options.backend, globs=options.select, tags=options.tag)}
    if not (options.backend or options.select or options.tag):  # also those whose specs are gone
        chosen.update(str(result.case_id) for _, result in red)
    with_facts = {sample.key for sample in recorded}
    reasons = {(run, str(result.case_id)): f"{result.outcome.label}: {result.reason}" for run, result in red}
    refused = {key: reason for key, reason in reasons.items() if key not in with_facts}
    specs: list[ChangedSpec] = []
    for spec in dict.fromkeys(sample.case.spec for sample in recorded if sample.is_red):
        samples = [sample for sample in recorded if sample.case.spec == spec]
        source = samples[0].source
        inspection = inspect_specs(specs_of([samples[0].result]), source.backend_files, surroundings_of(source.torch, None))
        anatomy = inspection.valid().anatomies[0]
        others = [(case, surroundings) for case, surroundings in unrecorded if case.spec == spec]
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
            data: Any = anatomy.document.data
            for change in changes:
                data = replaced(data, change.path, change.value)
            edits = [value_edit(anatomy.document, change.path, change.value) for change in changes]
            after = changed(anatomy.document, edits, data)  # refused unless the text then means exactly the changes
            judge_again(after, samples, facts.blessed)
        except (CannotEdit, NotBlessed) as error:
            refused.update(dict.fromkeys(own, str(error)))
        else:
            names = tuple(dict.fromkeys(case_id for _, case_id in own))
            specs.append(ChangedSpec(before=anatomy.document, after=after, cases=names, has_control="control" in anatomy.data))
    return specs, {key: reason for key, reason in refused.items() if key[1] in chosen}, len(chosen)


def judge_again(after: Document, samples: Sequence[Sample], blessed: Iterable[Sample]) -> None:
    """Raise ``NotBlessed`` unless a changed spec validates, blessed cases pass by it, and the outcomes of others stay."""
    must_pass = {id(sample) for sample in blessed}
    suites: dict[object, Suite] = {}
    for sample in samples:
        source = sample.source
        key = (source.torch, source.backend_files)
        if key not in suites:
            try:
                specs = specs_of([sample.result])
                texts = {spec.path: after.content for spec in specs}
                suites[key] = load_specs(specs, source.backend_files, surroundings_of(source.torch, None), texts)
            except InvalidSpecs as error:
                raise NotBlessed(f"the changed spec would not validate: {error.diagnostics[0]}") from error
            except UsageError as error:
                raise NotBlessed(str(error)) from error
        case = next((case for case in suites[key].cases if case.id == sample.case.id), None)
        if case is None:
            raise NotBlessed(f"{sample.case.id} would be gone")
        if not sample.steps:
            continue
        case = without_benches(case) if sample.result.benches_left_out else case
        backend, files = suites[key].backends.by_name[case.backend], RecordedFiles(sample.folder, sample.result.evidence)
        now, then = (
            rejudge.judged_again(judged, backend, sample.surroundings, sample.result, files, sample.folder)
            for judged in (case, sample.case)
        )
        if isinstance(now, str) or isinstance(then, str):
            raise NotBlessed(now if isinstance(now, str) else str(then))
        if id(sample) in must_pass and now.outcome not in PASSED:
            raise NotBlessed(f"{case.id} of {sample.source.run}, judged again by the changed spec, is {now.outcome.label}: {now.reason}")
        if id(sample) not in must_pass and now.outcome is not then.outcome:
            raise NotBlessed(f"{case.id} of {sample.source.run} would become {now.outcome.label}: {now.reason}")


def main(options: BlessOptions) -> ExitCode:
    """Print the patch, or write the specs; exit 1 where a red case is not blessed, 4 where no case of the runs is selected."""
    specs, refused, chosen = bless(options)
    for spec in () if options.write else specs:
        output.raw(patch(spec.before, spec.after.content.decode("utf-8")))
    for (run, case_id), why in refused.items():
        output.note(one_line(f"not blessed: {case_id} ({run}): {why}"))
    for spec in specs:
        if options.write:
            replace(spec.before.path, spec.after.content)
        if spec.has_control:
            output.note(f"{spec.before.file}: has a control; 'audit --run' shows whether it still fails")
    cases = sum(len(spec.cases) for spec in specs)
    what = f"{cases} red case{'' if cases == 1 else 's'} blessed in {len(specs)} spec{'' if len(specs) == 1 else 's'}"
    where = ", written" if options.write else "" if not specs else ": pass the output to 'git apply' or 'patch -p1'"
    none = "no case of the runs is selected; " if not chosen else ""
    output.note(f"{none}{what}{where}" + (f", {len(refused)} not blessed" if refused else ""))
    if not chosen:
        return ExitCode.NOTHING
    return ExitCode.FAILED if refused else ExitCode.OK
