"""Which files a spec depends on: its own, its defaults, and modules of the user that its text names."""

import re
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from runner.language.read.files import DefaultsReader, SpecPath, files_of_defaults

_NAMED = re.compile(r"\b(?:import|from)\s+([A-Za-z_]\w*)|\b([A-Za-z_]\w*)[.:](?=[A-Za-z_])")
"""The first part of what could be the name of a module."""

_MOST_FILES = 500
"""How many files of one package are watched."""

_LARGEST = 1 << 20


def files_of(spec: SpecPath, defaults: DefaultsReader) -> set[Path]:
    """Return the files that a spec depends on, with files of defaults that do not exist yet."""
    found = {spec.path, *files_of_defaults(spec)}
    found |= {path.absolute() for path in defaults.of(spec).files}
    return found | set(_modules([path for path in found if path.is_file()], user_folders()))


def user_folders() -> list[Path]:
    """Return the folders on ``sys.path`` in which users keep modules of their own: neither Python's nor those of installed packages."""
    installed = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    installed |= {*site.getsitepackages(), site.getusersitepackages()}
    # the modules of this program run in the runner too: a change there needs another process
    own = str(Path(__file__).resolve().parents[3])
    left_out = (*(f"{folder}/" for folder in installed), f"{own}/")
    return [Path(entry) for entry in sys.path if entry and Path(entry).is_dir() and not f"{entry}/".startswith(left_out)]


def _modules(files: Iterable[Path], folders: Sequence[Path]) -> Iterator[Path]:
    """Yield the files of the modules and packages in these folders that the texts name."""
    if not folders:
        return
    names: set[str] = set()
    for file in files:
        try:
            text = file.read_bytes()[:_LARGEST].decode("utf-8", "replace")
        except OSError:
            continue
        names |= {first or second for first, second in _NAMED.findall(text)}
    for folder in folders:
        for name in sorted(names):
            if (folder / f"{name}.py").is_file():
                yield folder / f"{name}.py"
            elif (folder / name).is_dir():
                yield from sorted((folder / name).rglob("*.py"))[:_MOST_FILES]
