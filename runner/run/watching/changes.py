"""Notices changed files by polling. A change is reported when no file has changed for a moment: editors write in several steps."""

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TypeAlias

Stamp: TypeAlias = tuple[int, int, int]
"""The time of the last change, size and inode of a file. An editor that writes by rename changes the inode."""

Snapshot: TypeAlias = Mapping[str, Stamp]

SETTLE_SECONDS = 0.03
"""How long no file may have changed before a change is reported."""

MOST_SECONDS = 1.0
"""A change is reported after this time even if files go on changing."""

SUFFIXES = (".yaml", ".yml")


class Changes:
    """Compares each snapshot with the one before."""

    def __init__(self, take: Callable[[], Snapshot], clock: Callable[[], float] = time.monotonic) -> None:
        self._take = take
        self._clock = clock
        self._last = take()
        self._pending: set[str] = set()
        self._first = self._latest = 0.0
        self.seconds = 0.0
        """How long the last snapshot took."""

    def poll(self) -> frozenset[str]:
        """Return the files that changed, appeared or went; empty while there are none, or while they go on changing."""
        begun = self._clock()
        now = self._take()
        self.seconds = self._clock() - begun
        if changed := differences(self._last, now):
            self._first = self._first if self._pending else begun
            self._latest = begun
            self._pending |= changed
            self._last = now
        if not self._pending or (begun - self._latest < SETTLE_SECONDS and begun - self._first < MOST_SECONDS):
            return frozenset()
        found, self._pending = frozenset(self._pending), set()
        return found


def differences(before: Snapshot, after: Snapshot) -> set[str]:
    """Return the files whose stamps differ, and those that only one snapshot has."""
    return {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}


def snapshot(paths: Iterable[Path], files: Iterable[Path] = ()) -> dict[str, Stamp]:
    """Return the stamps of the YAML files below the paths, and of further files; files that cannot be read are left out."""
    found: dict[str, Stamp] = {}
    for path in paths:
        if path.is_dir():
            found.update(_below(str(path.absolute()), set()))
        else:
            found.update(_one(path))
    for file in files:
        found.update(_one(file))
    return found


def _one(path: Path) -> dict[str, Stamp]:
    try:
        return {str(path.absolute()): _stamp(os.stat(path))}
    except OSError:
        return {}


def _below(folder: str, above: set[tuple[int, int]]) -> Iterator[tuple[str, Stamp]]:
    """Yield the YAML files below a folder. Folders are followed through links, but into none that contains the link."""
    try:
        status = os.stat(folder)
        entries = list(os.scandir(folder))
    except OSError:
        return
    own = (status.st_dev, status.st_ino)
    if own in above:
        return
    for entry in entries:
        if entry.name.startswith("."):
            continue
        with contextlib.suppress(OSError):
            if entry.is_dir():
                yield from _below(entry.path, above | {own})
            elif entry.name.endswith(SUFFIXES):
                yield entry.path, _stamp(entry.stat())


def _stamp(status: os.stat_result) -> Stamp:
    return (status.st_mtime_ns, status.st_size, status.st_ino)
