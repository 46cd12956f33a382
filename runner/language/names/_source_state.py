"""The state of torch's Python files, as a question that a cached result can ask again."""

import functools
import os
from collections.abc import Iterator

from runner.language.read.outside import question


@question("torch source")
def source_state(root: str) -> str:
    """Return a digest of the names, sizes and times of the Python files of a torch. The time of change cannot be set by a program."""
    return _state(root)


@functools.cache
def _state(root: str) -> str:
    import hashlib  # loads OpenSSL: most specs have only names that the tables have

    state = hashlib.sha256()
    for line in _files(root):
        state.update(line.encode("utf-8", "surrogateescape"))
    return state.hexdigest()


def _files(folder: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        known = sorted(entries, key=lambda entry: entry.name)
    for entry in known:
        if entry.is_dir():
            yield from _files(entry.path)
        elif entry.name.endswith(".py"):
            found = entry.stat()
            yield f"{entry.path}\0{found.st_size}\0{found.st_mtime_ns}\0{found.st_ctime_ns}\0"
