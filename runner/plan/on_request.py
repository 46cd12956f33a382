"""Which specs with ``on_request: true`` a run executes: those that a path, a tag or a glob names.

A path names them when it is their file, or a folder of such specs alone; a glob when it matches cases of such specs alone. So ``run`` of
the shipped specs, and ``--select '*'``, leave them out.
"""

from collections.abc import Callable, Sequence
from pathlib import Path

from runner.core.case import Case
from runner.core.globs import glob


def requested(
    cases: Sequence[Case], read: Sequence[Case], *, paths: Sequence[Path], globs: Sequence[str], tags: Sequence[str]
) -> list[Case]:
    """Return the cases without those on request that nothing names. ``read`` are all cases that were read."""
    if not any(case.on_request for case in cases):
        return list(cases)
    specs = {case.spec: case.on_request for case in read}
    named = {spec for path in paths for spec in _named_by(path, specs)}
    tagged = frozenset(tags)
    patterns = [pattern for text in globs if (pattern := glob(text)) and _matches_them_alone(pattern.fullmatch, read)]
    return [
        case
        for case in cases
        if not case.on_request
        or case.spec in named
        or not tagged.isdisjoint(case.tags)
        or any(pattern.fullmatch(case.id) for pattern in patterns)
    ]


def _named_by(path: Path, specs: dict[str, bool]) -> list[str]:
    """Return the specs on request at a path, where it leads to no other spec."""
    whole = path.resolve()
    below = [spec for spec in specs if (file := Path(spec).resolve()) == whole or whole in file.parents]
    return below if all(specs[spec] for spec in below) else []


def _matches_them_alone(matches: Callable[[str], object], read: Sequence[Case]) -> bool:
    return not any(matches(case.id) for case in read if not case.on_request)


def not_requested(count: int) -> str:
    """Return in words how many cases on request were not selected."""
    cases = "1 case on request was" if count == 1 else f"{count} cases on request were"
    return f"{cases} not selected (name their file or folder, or use --tag or --select)"
