"""What a changed spec must fulfil: it validates, and runs judged by it give PASS for blessed cases and no change for others."""

from collections.abc import Iterable, Mapping, Sequence

from runner.core.case import Case
from runner.core.diagnostics import InvalidSpecs, UsageError
from runner.core.outcomes import PASSED
from runner.judge.audit import audit, try_case
from runner.judge.evidence import recorded_observation
from runner.language.backends import Backend
from runner.language.load import load_specs, surroundings_of
from runner.language.read.document import Document
from runner.plan.selection import without_benches
from runner.record.evidence import RecordedFiles
from runner.run import rejudge
from runner.run.blessing.samples import Sample
from runner.run.rejudge import specs_of


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
