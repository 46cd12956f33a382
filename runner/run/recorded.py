"""Expands the cases of a recorded run again, from the files that its header names, so that its verdicts can be judged again."""

import hashlib
import itertools
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path

from runner import __version__
from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.diagnostics import InvalidSpecs, UsageError
from runner.core.header import RunHeader
from runner.core.results import CaseResult
from runner.judge.waivers import Waivers
from runner.language.load import Suite, load_specs, surroundings_of
from runner.language.read.files import SpecPath
from runner.language.waivers import load_waivers
from runner.plan.worker_plan import digest_of
from runner.run import rejudge
from runner.run.machines_then import here_of, surroundings_then
from runner.system.installed_torch import installed_torch

_LARGEST = 64 << 20
"""The maximum size in bytes of a file that is compared with a digest; no spec is as large."""


def files_of(header: RunHeader, option: str) -> list[Path]:
    """Return the files that ``--backends`` or ``--waivers`` named; for a merged run, those of its parts."""
    if option in header.options:
        return [Path(name) for name in shlex.split(header.options[option])]
    return [Path(name) for name in _given(f"--{option}", header.command)]


def _given(option: str, command: Sequence[str]) -> Iterator[str]:
    """Yield the values of an option in a recorded, valid command line: ``--option VALUE`` or ``--option=VALUE``."""
    words = iter(command)
    for word in words:
        if word == option:
            yield from itertools.islice(words, 1)
        elif word.startswith(f"{option}="):
            yield word.removeprefix(f"{option}=")


def specs_of(results: Iterable[CaseResult]) -> list[SpecPath]:
    """Return the spec files of results, each with the root folder of its area; raise ``UsageError`` where one is missing."""
    found: dict[str, SpecPath] = {}
    for result in results:
        path = Path(result.spec).absolute()
        depth = len(Path(result.area).parts)
        if not path.is_file():
            raise UsageError(
                f"{result.spec} of the run is not there: give this command where the run was started, with the files that it read"
            )
        if depth >= len(path.parents):
            raise UsageError(f"{result.spec} does not lie in the folder '{result.area}', which the run names")
        found[result.spec] = SpecPath(path=path, root=path.parents[depth])
    return list(found.values())


def other_files(read: Mapping[str, str], header: RunHeader) -> list[str]:
    """Return the files, among those read now with their digests, that the run did not read with the same digest."""
    return sorted(file for file, digest in read.items() if header.specs.get(file) != digest)


# -- judging a run again --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Unjudged:
    """Verdicts that were not judged again, and why."""

    why: str


@dataclass(frozen=True, slots=True)
class Disagreement:
    """A contradiction between a recorded result and its files."""

    case_id: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Then:
    """The specs, waivers and surroundings by which the run was judged."""

    suite: Suite
    waivers: Waivers
    known: Surroundings


def judge_again(header: RunHeader, results: Sequence[CaseResult], folder: Path) -> Iterator[Disagreement | Unjudged]:
    """Yield each result that the files in the run's ``folder`` contradict, and each reason why results were not judged again."""
    ran = [result for result in results if result.folder]
    if not ran:
        return
    missing = _missing(header)
    if missing:
        yield Unjudged(f"not here as the run read {'it' if len(missing) == 1 else 'them'}: {_some(missing)}")
    if header.version != __version__:
        yield Unjudged(f"the run is of version {header.version}, and this is {__version__}")
    elif there := [result for result in ran if result.spec not in missing]:
        yield from _judge_again(header, there, folder, is_whole=not missing)


def _judge_again(header: RunHeader, results: Sequence[CaseResult], folder: Path, *, is_whole: bool) -> Iterator[Disagreement | Unjudged]:
    try:
        then = _read(header, results)
    except (InvalidSpecs, UsageError) as error:
        yield Unjudged(str(error).splitlines()[0])
        return
    read = {**then.suite.digests, **{one.document.file: one.document.digest for one in then.suite.backends.by_name.values()}}
    if other := other_files({**read, **then.waivers.digests}, header):
        yield Unjudged(f"the run did not read {_some(other)}")
        return
    cases: dict[str, Case] = {case.id: case for case in then.suite.cases}
    for result in results:
        case = cases.get(result.case_id)
        if case is not None and digest_of(case) == result.digest:
            yield from (Disagreement(result.case_id, problem) for problem in _problems(then, case, result, folder))
        elif is_whole and _is_same_torch(header):
            yield Disagreement(result.case_id, f"{result.case_id} is not a case of {result.spec}")
        else:
            yield Unjudged(f"{result.case_id} is another case here, where torch or a file is another")


def _read(header: RunHeader, results: Sequence[CaseResult]) -> _Then:
    known = surroundings_then(header)
    suite = load_specs(specs_of(results), files_of(header, "backends"), surroundings_of(header.environment.get("torch"), None))
    return _Then(suite=suite, waivers=Waivers(load_waivers(files_of(header, "waivers"), suite.backends), today=date.min), known=known)


def _problems(then: _Then, case: Case, result: CaseResult, folder: Path) -> list[str]:
    backend = then.suite.backends.by_name[case.backend]
    found = (
        rejudge.disagreement(case, backend, then.known, result, folder / result.folder)
        or rejudge.of_attempts(case, backend, then.known, result, folder)
        or rejudge.not_excused(case, result, here_of(case, backend, result, then.known), then.waivers)
    )
    return [found] if found else []


def _is_same_torch(header: RunHeader) -> bool:
    installed = installed_torch()
    return (installed.version if installed else None) == header.environment.get("torch")


def _missing(header: RunHeader) -> list[str]:
    """Return the files of the header that are missing here, or have another digest."""
    return [file for file, digest in header.specs.items() if _digest(Path(file)) != digest]


def _digest(path: Path) -> str:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() if path.is_file() and path.stat().st_size <= _LARGEST else ""
    except (OSError, ValueError):
        return ""


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")
