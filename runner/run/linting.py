"""The logic of ``lint``: what is linted, what a recorded run says of it, and which fixes are written."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.case import Case, Expected
from runner.core.diagnostics import Diagnostic, InvalidSpecs, UsageError, errors, one_line, unknown
from runner.core.expectation import Status
from runner.core.options import AuditOptions, LintOptions
from runner.core.results import CaseResult
from runner.judge.evidence import ANOTHER_FORM, carried_out, recorded_observation
from runner.judge.verdicts import facts_of
from runner.language.expand.cases import surroundings
from runner.language.lint.base import Closeness, Finding, Rule, RunFacts, Scene, Spec, Weakness
from runner.language.lint.fixing import fixed
from runner.language.lint.table import RULES, findings_of
from runner.language.load import Inspection, inspect, inspect_specs
from runner.language.profiles import read_profile, shipped_profiles
from runner.language.read.document import Document
from runner.language.read.files import SpecPath, discover, names_shipped
from runner.language.waivers import WaiverFiles, load_waivers
from runner.plan.worker_plan import digest_of
from runner.record.evidence import OBSERVATION, RecordedFiles
from runner.record.run_folder import find_run
from runner.run.auditing import Ran, audit_of, recorded_cases
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.close_rules import Judge


@dataclass(frozen=True, slots=True, kw_only=True)
class Linted:
    """The findings, and the files as fixes change them."""

    findings: tuple[Finding, ...]
    changed: tuple[Document, ...] = ()
    notes: tuple[str, ...] = ()
    """Why files with fixes are not changed."""
    specs: int = 0


def lint(options: LintOptions) -> Linted:
    """Return the findings; with ``--fix`` those that are left, and the changed files. Raise ``InvalidSpecs`` or ``UsageError``."""
    applied = _applied(options)
    found = inspect(options.paths, options.backends)
    if wrong := errors(found.problems):
        raise InvalidSpecs(wrong)
    waivers = load_waivers(options.waivers, found.suite.backends)
    run = _facts(options) if options.run is not None else None
    scene = _scene(found, waivers, options, run)
    findings = findings_of(scene, applied)
    if not options.fix:
        return Linted(findings=tuple(findings), specs=len(scene.specs))
    changed, notes = _fixes(findings, scene, options)
    done = {document.file for document in changed}
    left = [one for one in findings if one.fix is None or one.fix.document.file not in done]
    return Linted(findings=tuple(left), changed=tuple(changed), notes=tuple(notes), specs=len(scene.specs))


def _applied(options: LintOptions) -> dict[str, Rule]:
    for name in (*options.select, *options.ignore):
        if name not in RULES:
            message, hint = unknown("rule", one_line(name), RULES)
            raise UsageError(f"{message} ({hint})")
    return {name: rule for name, rule in RULES.items() if (not options.select or name in options.select) and name not in options.ignore}


def _scene(found: Inspection, waivers: WaiverFiles, options: LintOptions, run: RunFacts | None) -> Scene:
    cases: dict[str, list[Case]] = {}
    for case in found.suite.cases:
        cases.setdefault(case.spec, []).append(case)
    specs = tuple(Spec(anatomy=one, cases=tuple(cases.get(one.document.file, ()))) for one in found.anatomies)
    whole = names_shipped(options.paths)
    return Scene(
        specs=specs,
        backends=found.suite.backends,
        waivers=waivers,
        profiles=tuple(read_profile(name) for name in shipped_profiles()) if whole else (),
        whole=whole,
        is_complete=_Completeness(specs),
        run=run,
    )


class _Completeness:
    """Whether every spec below the folder of a file of defaults is linted, and no other one inherits it."""

    def __init__(self, specs: Sequence[Spec]) -> None:
        self._paths = {os.path.realpath(spec.document.path) for spec in specs}
        self._inheriting: dict[str, set[str]] = {}
        for spec in specs:
            for one in spec.anatomy.spec.defaults:
                self._inheriting.setdefault(one.file, set()).add(os.path.realpath(spec.document.path))

    def __call__(self, document: Document) -> bool:
        """Look at the folder of a file of defaults."""
        problems: list[Diagnostic] = []
        below = {os.path.realpath(one.path) for one in discover([document.path.parent], problems)}
        return below <= self._paths and self._inheriting.get(document.file, set()) <= below


# -- fixes ------------------------------------------------------------------------------------------------------------


def _fixes(findings: Sequence[Finding], scene: Scene, options: LintOptions) -> tuple[list[Document], list[str]]:
    """Return the files with their fixes, without those that would change a case; and a note for each of these."""
    changed: list[Document] = []
    notes: list[str] = []
    for before, after in fixed(one.fix for one in findings if one.fix is not None):
        why = after if isinstance(after, str) else _changes_a_case(before, after, scene, options)
        if isinstance(after, Document) and not why:
            changed.append(after)
        else:
            notes.append(f"{before.file}: not fixed: {why}")
    return changed, notes


def _changes_a_case(before: Document, after: Document, scene: Scene, options: LintOptions) -> str:
    """Return what a changed file would change besides its text; empty for nothing."""
    spec = next((one for one in scene.specs if one.document.file == before.file), None)
    if spec is None:
        return ""  # waivers for no case, or a comment of defaults
    path = Path(os.path.abspath(before.path))
    root = path.parents[len(Path(spec.anatomy.spec.area).parts)]
    try:
        now = inspect_specs([SpecPath(path=path, root=root)], options.backends, texts={path: after.content}).valid()
    except InvalidSpecs as error:
        return f"it would not validate: {error.diagnostics[0]}"
    digests = {str(case.id): digest_of(case) for case in spec.cases}
    return "" if {str(case.id): digest_of(case) for case in now.suite.cases} == digests else "its cases would be others"


# -- a recorded run ---------------------------------------------------------------------------------------------------


def _facts(options: LintOptions) -> RunFacts:
    """Return what a recorded run says: the expectations that could not have failed, and differences at comparisons with a tolerance."""
    name = options.run or ""
    folder = find_run(name)
    ran = recorded_cases(folder, AuditOptions(targets=(name,), backends=options.backends), None)
    survivors = audit_of(ran).survivors
    weak = tuple(Weakness(position=one.position, kind=one.kind, leaf=one.leaf, mutant=one.mutant, case_id=one.case_id) for one in survivors)
    return RunFacts(run=name, weaknesses=weak, closeness=tuple(_closeness(ran)))


def _closeness(ran: Ran) -> list[Closeness]:
    """Return the greatest difference at each comparison with a tolerance that passed."""
    seen: dict[tuple[str, int, int], list[tuple[Expected, float]]] = {}
    for case, result in ran.results:
        for expected, greatest in _compared(ran, case, result):
            place = expected.position
            seen.setdefault((place.file, place.line, place.column), []).append((expected, greatest))
    found = []
    for own in seen.values():
        bounds = [float(one.check.atol) for one, _ in own if isinstance(one.check, Close) and one.check.atol is not None]
        found.append(Closeness(position=own[0][0].position, atol=min(bounds), observed=max(one for _, one in own), cases=len(own)))
    return found


def _compared(ran: Ran, case: Case, result: CaseResult) -> list[tuple[Expected, float]]:
    if not result.folder or OBSERVATION not in result.evidence:
        return []
    files = RecordedFiles(ran.folder / result.folder, result.evidence)
    here = surroundings(ran.suite.backends.by_name[case.backend], ran.known, case.target)
    found = []
    for known in carried_out(case, recorded_observation(files.observation()), files.code):
        for index, expected in enumerate(known.step.expectations if known.step.runs(here) else ()):
            check = expected.check
            if not isinstance(check, Close) or check.judge_kind is not Judge.TOLERANCE or not check.atol:
                continue
            try:
                facts = facts_of(index, known)
                passed = all(one.status is Status.HELD for one in check.judge(facts, here))
                greatest = max((_greatest(leaf) for leaf in facts.measured["leaves"]), default=None)
            except ANOTHER_FORM:
                continue
            if passed and greatest is not None:
                found.append((expected, greatest))
    return found


def _greatest(leaf: Mapping[str, object]) -> float:
    return float(str(leaf["max_abs"])) if "max_abs" in leaf else 0.0
