"""The files of a submission: compared with the published ones, and loaded again as the run read them."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.diagnostics import Position, UsageError, one_line, shown_path
from runner.core.header import RunHeader
from runner.core.results import CaseResult
from runner.judge.waivers import Waivers
from runner.language.load import Suite, load_specs, surroundings_of
from runner.language.profiles import read_profile, shipped_profiles
from runner.language.read.document import Document
from runner.language.read.files import SpecPath
from runner.language.waivers import load_waivers
from runner.record.evidence import digest
from runner.record.submission.layout import OWN, SHIPPED
from runner.run.machines_then import surroundings_then
from runner.run.recorded import files_of
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


def problems(header: RunHeader, place: Path, published: Sequence[Path]) -> Iterator[str]:
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
            yield from _of_shipped(name, header.specs[name])
        elif name.startswith(f"{OWN}/") and published and not _is_published(name, header.specs[name], known):
            yield f"'{name}' is not one of the published files that you named"
        elif not name.startswith(f"{OWN}/"):
            yield f"'{name}' is no file of a submission"


def of_profile(name: str | None) -> tuple[Path, ...]:
    """Return the files of a reader's own profile: those of its author in the archive must be the same. A shipped one has none."""
    if name is None or name in shipped_profiles():
        return ()
    profile = read_profile(name)
    shipped = folder("specs").resolve()
    found = (profile.document.path, *profile.specs, *profile.backends, *profile.waivers)
    return tuple(path for path in found if not Path(os.path.realpath(path)).is_relative_to(shipped))


def _of_shipped(name: str, found: str) -> Iterator[str]:
    path = folder("specs") / name.removeprefix(f"{SHIPPED}/")
    if ".." in Path(name).parts or not path.is_file():
        yield f"'{name}' is no published file of this version"
    elif digest(path.read_bytes()) != found:
        yield f"'{name}' is not the published file of this version"


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


def _is_published(name: str, found: str, known: Mapping[tuple[str, str], Sequence[Path]]) -> bool:
    """Whether a file with this content is published in a folder of the same name: one path ends with the other."""
    mine = Path(name.removeprefix(f"{OWN}/")).parts
    return any(mine[-len(one.parts) :] == one.parts[-len(mine) :] for one in known.get((Path(name).name, found), ()))


def loaded(header: RunHeader, results: Sequence[CaseResult], place: Path) -> Then:
    """Load what the run read; raise ``NotOfTheRun``, or ``InvalidSpecs`` or ``UsageError`` where it cannot be loaded here."""
    (place / OWN).mkdir(parents=True, exist_ok=True)
    (place / OWN / _MARK).touch()
    specs = {result.spec: _spec(header, result, place) for result in results}
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


def _spec(header: RunHeader, result: CaseResult, place: Path) -> SpecPath:
    path = _file(header, result.spec, place)
    depth = len(Path(result.area).parts)
    if depth >= len(path.parents):
        raise NotOfTheRun(f"'{result.spec}' does not lie in the folder '{result.area}', which the run names")
    return SpecPath(path=path, root=path.parents[depth])


def _file(header: RunHeader, name: str, place: Path) -> Path:
    """Return where a file of the submission is here; raise ``NotOfTheRun`` for a name that is none."""
    if name not in header.specs:
        raise NotOfTheRun(f"'{one_line(name)}' is no file that the run read")
    if name.startswith(f"{SHIPPED}/"):
        return folder("specs") / name.removeprefix(f"{SHIPPED}/")
    return place / name


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
