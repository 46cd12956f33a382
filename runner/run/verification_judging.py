"""Judges a submission again: its files compared with the published ones and loaded as the run read them, its cases, and what it claims."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.conformance import ProfileRecord
from runner.core.diagnostics import InvalidSpecs, Position, UsageError, one_line, shown_path
from runner.core.expectation import Status
from runner.core.header import RunHeader
from runner.core.observation import Observation
from runner.core.results import CaseResult
from runner.judge.cross_checks import disagreements, impossible_on_machine
from runner.judge.evidence import carried_out, read_observation
from runner.judge.waivers import Waivers, apply
from runner.language.load import Suite, load, load_specs, surroundings_of
from runner.language.profiles import read_profile, shipped_profiles
from runner.language.read.document import Document
from runner.language.read.files import SpecPath
from runner.language.waivers import load_waivers
from runner.plan.profile_cases import REFUSED, cases_of
from runner.plan.selection import without_benches
from runner.plan.worker_plan import digest_of
from runner.record.evidence import OBSERVATION, EvidenceAltered, RecordedFiles, digest
from runner.record.journal import Run, digest_of_selection, totals
from runner.record.submission.archive import OWN, SHIPPED
from runner.run import rejudge
from runner.run.machines_then import here_of, surroundings_then
from runner.run.preparation import option_text
from runner.run.rejudge import files_of
from runner.run.results import phases_of
from runner.run.verification_report import Finding, Verification, claims_of
from runner.system.data_dirs import folder

_MARK = ".git"
"""What makes the folder of the author's files a project: defaults are looked for up to there."""
_LARGEST = 64 << 20


class NotOfTheRun(Exception):
    """The journal names a file that the submission does not have, or that is not what the run read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Then:
    """The specs, waivers and surroundings by which the run was judged, loaded again."""

    suite: Suite
    waivers: Waivers
    known: Surroundings
    names: Mapping[str, str]
    """The name in the submission of each file that was loaded, by its name in messages."""

    @property
    def cases(self) -> dict[str, Case]:
        """The cases by id."""
        return {case.id: case for case in self.suite.cases}

    def place(self, position: Position) -> tuple[str, int, int]:
        """Return a position with the name of the submission."""
        return self.names.get(position.file, position.file), position.line, position.column


def problems_of_files(header: RunHeader, place: Path, published: Sequence[Path]) -> Iterator[str]:
    """Yield how the files of a submission, below ``place``, differ from its journal and from the published ones."""
    there = {str(path.relative_to(place)): path for path in sorted((place / "files").rglob("*")) if path.is_file() and path.name != _MARK}
    for name in sorted(there.keys() ^ header.specs.keys()):
        yield f"'{name}' is {'in the archive, and the run did not read it' if name in there else 'missing: the run read it'}"
    for name in sorted(there.keys() & header.specs.keys()):
        if digest(there[name].read_bytes()) != header.specs[name]:
            yield f"'{name}' is not the file that the run read"
    known = _published(published)
    for name in sorted(header.specs):
        if name.startswith(f"{SHIPPED}/"):
            path = folder("specs") / name.removeprefix(f"{SHIPPED}/")
            if ".." in Path(name).parts or not path.is_file() or digest(path.read_bytes()) != header.specs[name]:
                yield f"'{name}' is not a published file of this version"
        elif not name.startswith(f"{OWN}/"):
            yield f"'{name}' is no file of a submission"
        elif published:  # a file with this content in a folder of the same name: one path ends with the other
            mine = Path(name.removeprefix(f"{OWN}/")).parts
            same = [path.parts for path in known.get((Path(name).name, header.specs[name]), ())]
            if not any(mine[-len(parts) :] == parts[-len(mine) :] for parts in same):
                yield f"'{name}' is not one of the published files that you named"


def files_of_profile(name: str | None) -> tuple[Path, ...]:
    """Return the files of a reader's own profile: those of its author in the archive must be the same. A shipped one has none."""
    if name is None or name in shipped_profiles():
        return ()
    profile = read_profile(name)
    shipped = folder("specs").resolve()
    found = (profile.document.path, *profile.specs, *profile.backends, *profile.waivers)
    return tuple(path for path in found if not Path(os.path.realpath(path)).is_relative_to(shipped))


def _published(paths: Sequence[Path]) -> dict[tuple[str, str], list[Path]]:
    """Return the files below paths by their last part and sha256."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path in paths:
        if not path.exists():
            raise UsageError(f"--specs {shown_path(path)}: no such file or folder")
        files = [path] if path.is_file() else [one for one in sorted(path.rglob("*")) if one.is_file()]
        for one in files:
            if one.suffix in (".yaml", ".yml") and one.stat().st_size <= _LARGEST:
                relative = Path(one.name) if path.is_file() else one.relative_to(path)
                found.setdefault((one.name, digest(one.read_bytes())), []).append(relative)
    return found


def loaded(header: RunHeader, results: Sequence[CaseResult], place: Path) -> Then:
    """Load what the run read; raise ``NotOfTheRun``, or ``InvalidSpecs`` or ``UsageError`` where it cannot be loaded here."""
    (place / OWN).mkdir(parents=True, exist_ok=True)
    (place / OWN / _MARK).touch()
    specs: dict[str, SpecPath] = {}
    for result in results:
        path, depth = _file(header, result.spec, place), len(Path(result.area).parts)
        if depth >= len(path.parents):
            raise NotOfTheRun(f"'{result.spec}' does not lie in the folder '{result.area}', which the run names")
        specs[result.spec] = SpecPath(path=path, root=path.parents[depth])
    backends = [_file(header, str(path), place) for path in files_of(header, "backends")]
    waivers = [_file(header, str(path), place) for path in files_of(header, "waivers")]
    suite = load_specs(list(specs.values()), backends, surroundings_of(header.environment.get("torch"), None))
    found = load_waivers(waivers, suite.backends)
    documents = [*suite.documents, *(one.document for one in suite.backends.by_name.values()), *found.documents]
    names = {document.file: _name(document, place) for document in documents}
    other = sorted(names[document.file] for document in documents if header.specs.get(names[document.file]) != document.digest)
    if other:
        raise NotOfTheRun(f"'{other[0]}' decides how the cases are judged, and the run did not read it as it is here")
    day = date.fromisoformat(header.started[:10])
    return Then(suite=suite, waivers=Waivers(found, day), known=surroundings_then(header), names=names)


def _file(header: RunHeader, name: str, place: Path) -> Path:
    """Return where a file of the submission is here; raise ``NotOfTheRun`` for a name that is none."""
    if name not in header.specs:
        raise NotOfTheRun(f"'{one_line(name)}' is no file that the run read")
    return folder("specs") / name.removeprefix(f"{SHIPPED}/") if name.startswith(f"{SHIPPED}/") else place / name


def _name(document: Document, place: Path) -> str:
    """Return the name in the submission of a file that was loaded."""
    path, shipped = Path(os.path.realpath(document.path)), folder("specs").resolve()
    if path.is_relative_to(shipped):
        return f"{SHIPPED}/{path.relative_to(shipped)}"
    real = Path(os.path.realpath(place))
    return str(path.relative_to(real)) if path.is_relative_to(real) else document.file


def stolen(results: Sequence[CaseResult]) -> Iterator[str]:
    """Yield each file of the author whose cases have the ids of a published spec."""
    shipped = folder("specs")
    for spec, area, name in sorted({(result.spec, result.area, result.name) for result in results}):
        if spec.startswith(f"{OWN}/") and any((shipped / area / f"{name}{suffix}").is_file() for suffix in (".yaml", ".yml")):
            yield f"'{spec}' takes the ids of the published spec {area}/{name}"


# -- judging again ------------------------------------------------------------------------------------------------


def judged_again(
    run: Run, place: Path, before: tuple[Finding, ...], *, signature: tuple[str, bool], profile: str | None, specs: Sequence[Path]
) -> Verification:
    """Return what is found of a run whose members lie in the folder ``place``; ``before`` are the findings so far."""
    published = [*specs, *files_of_profile(profile)]
    findings = [*before, *(Finding("files", problem) for problem in problems_of_files(run.header, place, published))]
    findings += [Finding("cases", problem) for problem in stolen(run.results)]
    results: Sequence[CaseResult] = run.results
    unjudged: list[str] = []
    try:
        then = loaded(run.header, run.results, place)
    except NotOfTheRun as error:
        findings.append(Finding("files", str(error)))
        unjudged.append("the cases cannot be loaded: the journal names other files than there are")
    except (InvalidSpecs, UsageError, ValueError) as error:
        unjudged.append(f"the cases cannot be loaded here: {_first(error)}".replace(f"{place}/", ""))
    else:
        results, contradictions = _results(run, then, place)
        findings += contradictions
    # the reader's profile to compare with: the one that is named, or the shipped one that the run names
    shipped = f"{SHIPPED}/profiles/"
    named = [Path(record.file).stem for record in run.header.profile if record.file.startswith(shipped)]
    mine = profile or next(iter(named), "")
    record = next(iter(run.header.profile), None)
    if record is None and mine:
        findings.append(Finding("profile", f"the run is not one of a profile, and --profile asks for {mine}"))
    elif record is not None:
        for name, (default, why) in REFUSED.items():
            option = name.replace("_", "-")
            text = run.header.options.get(option)
            if name != "paths" and text is not None and text != option_text(default):  # the paths are those of the profile
                findings.append(Finding("profile", f"the run has --{option} {text}, which does not go with a profile: {why}"))
        try:
            record = _own_record(mine, run.header, record, results, findings) if mine else record
        except InvalidSpecs as error:
            record = None
            unjudged.append(f"the profile {mine} cannot be read here: {_first(error)}")
    signer, is_signed = signature
    follows, words = claims_of(run, results, signer=signer, is_signed=is_signed, has_files=bool(published), has_profile=bool(mine))
    return Verification(
        findings=tuple(findings),
        unjudged=tuple(unjudged),
        follows=() if findings or unjudged else follows,
        words=words,
        run=run.header.run_id,
        signer=signer,
        totals=totals(results),
        statement=replace(run.header, profile=(record,)).statement(results) if record else None,
        code_of_cases=run.header.conclusion(results)[0],
    )


def _first(error: Exception) -> str:
    """Return the first problem of an error on one line."""
    return one_line(str(error.diagnostics[0] if isinstance(error, InvalidSpecs) and error.diagnostics else error).splitlines()[0])


# -- cases ----------------------------------------------------------------------------------------------------------


def _results(run: Run, then: Then, place: Path) -> tuple[list[CaseResult], list[Finding]]:
    """Return each result as judging it again gives it, and every contradiction."""
    judged: list[CaseResult] = []
    findings: list[Finding] = []
    cases = then.cases
    backends = {name: backend.device for name, backend in then.suite.backends.by_name.items()}
    if problem := impossible_on_machine(run.results, run.header.environment, backends):
        findings.append(Finding("machine", problem))
    for result in run.results:
        case = cases.get(result.case_id)
        if case is None:
            findings.append(Finding("cases", f"{result.case_id}: it is no case of the files"))
            judged.append(result)
            continue
        same = {
            "digest": result.digest == digest_of(case),
            "spec": result.spec == then.names.get(case.spec, case.spec),
            "area": result.area == case.area,
            "name": result.name == case.name,
            "backend": result.backend == case.backend,
            "target": result.target == case.target,
            "covers": result.covers == case.covers,
            "requires": result.requires == tuple(dict.fromkeys(requirement.name for requirement in case.requires)),
        }
        if other := [name for name, is_same in same.items() if not is_same]:
            findings.append(Finding("cases", f"{result.case_id}: its {other[0]} is not that of the case in the files"))
            judged.append(result)
            continue
        now, problems = _again(case, result, run.header, then, place)
        findings += [Finding(check, f"{result.case_id}: {problem}") for check, problem in problems]
        judged.append(now)
    digests = {str(case_id): digest_of(case) for case_id, case in cases.items()}
    chosen: dict[str, str] = {result.case_id: digests.get(result.case_id, "") for result in run.results}
    if run.header.selection != digest_of_selection(chosen):
        findings.append(Finding("cases", "its cases are not those that the run selected"))
    return judged, findings


def _again(case: Case, result: CaseResult, header: RunHeader, then: Then, place: Path) -> tuple[CaseResult, list[tuple[str, str]]]:
    """Return a result as it is judged now, and each contradiction as a check with its problem."""
    if result.outcome not in rejudge.BY_FACTS or OBSERVATION not in result.evidence:
        return result, []
    backend = then.suite.backends.by_name[case.backend]
    here = here_of(case, backend, result, then.known)
    where = place / result.folder
    files = RecordedFiles(where, result.evidence)
    problems = [("facts", problem) for problem in _disagreements(case, result, header, then, files)]
    if result.attempts:
        found = rejudge.disagreement(case, backend, then.known, result, place)
        return result, [*problems, *([("verdicts", found)] if found else [])]
    judged = rejudge.judged_again(case, backend, here, result, files, Path(result.folder))
    if isinstance(judged, str):
        return result, [*problems, ("verdicts", judged)]
    now = apply(judged, case, here, then.waivers)
    given = replace(
        result,
        outcome=now.outcome,
        reason=now.reason,
        failure_type=now.failure_type,
        verdicts=now.verdicts,
        waivers=tuple(replace(one, position=replace(one.position, file=then.place(one.position)[0])) for one in now.waivers),
        level=now.level,
    )
    return given, [*problems, *(("verdicts", problem) for problem in _differences(result, now, then))]


def _disagreements(case: Case, result: CaseResult, header: RunHeader, then: Then, files: RecordedFiles) -> Iterator[str]:
    if case.target:
        return
    try:
        observation = read_observation(files.observation())
        if not isinstance(observation, Observation) or observation.error is not None:
            return
        whole = without_benches(case) if result.benches_left_out else case
        steps = list(carried_out(whole, observation, files.code))
    except (EvidenceAltered, OSError, ValueError, LookupError, TypeError):
        return  # the judge says what is wrong with them
    if dict(result.phases) != phases_of(observation):
        yield "the times of its phases are not those of the observation"
    backend = then.suite.backends.by_name[case.backend]
    yield from dict.fromkeys(disagreements(backend, result.node or header.environment, observation, steps))


def _differences(then: CaseResult, now: CaseResult, files: Then) -> Iterator[str]:
    """Yield how a recorded result differs from what judging it again gives."""
    if any("pattern too slow" in verdict.observed for verdict in now.verdicts if verdict.status is Status.ERROR):
        return  # this machine was too slow for a verdict
    if (then.outcome, then.failure_type, then.level) != (now.outcome, now.failure_type, now.level):
        yield f"{then.outcome.label} is recorded, and judging it again gives {now.outcome.label}{f': {now.reason}' if now.reason else ''}"
        return
    if len(then.verdicts) != len(now.verdicts):
        yield f"{len(then.verdicts)} verdicts are recorded, and judging it again gives {len(now.verdicts)}"
        return
    for old, new in zip(then.verdicts, now.verdicts, strict=True):
        if (old.kind, old.status, _place(old.position)) != (new.kind, new.status, files.place(new.position)):
            was = f"{old.kind} {old.status.value} at line {old.position.line}"
            yield f"{was} is recorded, and judging it again gives {new.kind} {new.status.value}"
        elif not rejudge.is_same_text(old, new):
            yield f"the text of {old.kind} at line {old.position.line} is not what judging it again gives"
    if _place(then.position) not in (files.place(now.position), *(files.place(waiver.position) for waiver in now.waivers[:1])):
        yield "its position is not that of its first failure"
    recorded, again = ([(waiver.effect, waiver.cases, waiver.issue, waiver.until) for waiver in result.waivers] for result in (then, now))
    if recorded != again:
        yield "its waivers are not those of the files"
    if not then.waivers and not rejudge.is_text(then.reason, now.reason):
        yield "its reason is not what judging it again gives"


def _place(position: Position) -> tuple[str, int, int]:
    return position.file, position.line, position.column


# -- profile, statement -----------------------------------------------------------------------------------


def _own_record(name: str, header: RunHeader, said: ProfileRecord, results: Sequence[CaseResult], findings: list[Finding]) -> ProfileRecord:
    """Return what a profile of the reader requires, from the reader's own files, of the torch of the run; add what is another there."""
    profile = read_profile(name)
    suite = load(profile.specs, profile.backends, surroundings_of(header.environment.get("torch"), None))
    waivers = load_waivers(profile.waivers, suite.backends)
    resolved = cases_of(profile, suite, waivers)
    mine = resolved.record
    problems = [
        f"the {what} of the run's profile is '{getattr(said, what)[:40]}', and that of yours is '{getattr(mine, what)[:40]}'"
        for what in ("name", "version", "digest", "torch")
        if getattr(said, what) != getattr(mine, what)
    ]
    levels, own = ({level.name: (set(level.required), set(level.optional)) for level in one.levels} for one in (said, mine))
    if left_out := sorted(set(mine.required) - set(said.required)):
        problems.append(f"the run's profile leaves out {len(left_out)} required cases: {left_out[0]}")
    elif levels != own:
        problems.append("the run's profile has other levels, or other cases in one")
    if more := set(said.waivers) - set(mine.waivers):
        problems.append(f"the run's profile permits {len(more)} waivers that yours does not: {min(waiver.cases for waiver in more)}")
    findings += [Finding("profile", problem) for problem in problems]
    permitted = {document.digest for document in waivers.documents}
    for file in map(str, files_of(header, "waivers")):
        if header.specs.get(file) not in permitted:
            findings.append(Finding("profile", f"the run read the waivers of '{file}', which the profile does not permit"))
    digests = {str(case.id): digest_of(case) for case in resolved.cases}
    for result in results:
        if result.digest != digests.get(result.case_id, result.digest):
            findings.append(Finding("cases", f"{result.case_id}: it is not the case of this name in your files"))
    return mine
