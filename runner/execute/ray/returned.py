"""The files of a job: read on the node, written into the folder of the run. Both sides believe nothing of names and sizes."""

import contextlib
import os
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from runner.core.protocol import MAX_MESSAGE
from runner.system.safe_open import open_untrusted
from runner.system.streams import naming

_MOST_TOGETHER = 256 << 20
_MOST_FILES = 2000
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def files_of(folder: Path, names: Iterable[str]) -> dict[str, bytes]:
    """Return the content of the regular files among ``names``; without those that are too large, or too many."""
    found: dict[str, bytes] = {}
    left = _MOST_TOGETHER
    for name in list(names)[:_MOST_FILES]:
        if not is_name(name):
            continue
        with contextlib.suppress(OSError), open_untrusted(folder / name) as stream:
            size = stream.seek(0, os.SEEK_END)
            if size <= min(MAX_MESSAGE, left):
                stream.seek(0)
                found[name] = stream.read(size)
                left -= len(found[name])
    return found


def write_files(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write files into the folder of a job, which is empty before: an earlier node may have left some."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if is_name(name):
            with naming(folder / name), os.fdopen(os.open(folder / name, _FLAGS, 0o644), "wb") as stream:
                stream.write(content)


def is_name(name: str) -> bool:
    """Whether a name stays in its folder."""
    return bool(name) and "/" not in name and "\0" not in name and name not in (".", "..") and len(os.fsencode(name)) < 256
