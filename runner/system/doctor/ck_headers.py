"""The headers of Composable Kernel that torch includes in its kernels, and whether they can be found. Reads files; runs nothing."""

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

GENERATED = "ck/config.h"
"""A header that the build of Composable Kernel writes, and that a wheel of its sources can lack; ``ck/ck.hpp`` includes it."""

_SOURCES = Path("_inductor") / "codegen" / "rocm"

_INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"](?P<name>[^>\"\n]+)[>\"]", re.MULTILINE)
_DIRECTIVE = re.compile(r"^\s*#\s*(?P<word>if|ifdef|ifndef|endif|include)\b(?P<rest>[^\n]*)", re.MULTILINE)
_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_OF_LIBRARY = ("ck/", "ck_tile/")

_MOST_FILES = 5_000
"""How many headers are read at most: Composable Kernel has some hundreds."""


@dataclass(frozen=True, slots=True, order=True)
class Missing:
    """A header that no folder has, and the file that includes it."""

    header: str
    included_by: str


def wanted(torch_root: Path) -> Mapping[str, str]:
    """Return the headers that the templates of an installed torch include, each with the file of torch that names it first."""
    found: dict[str, str] = {}
    for path in sorted((torch_root / _SOURCES).glob("*.py")):
        for text in _strings(path):
            for match in _INCLUDE.finditer(text):
                if match["name"].startswith(_OF_LIBRARY):
                    found.setdefault(match["name"], f"torch/{_SOURCES.as_posix()}/{path.name}")
    return found


def _strings(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_text("utf-8"))
    except (OSError, SyntaxError, ValueError):
        return
    yield from (node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def missing(headers: Mapping[str, str], folders: Sequence[Path]) -> list[Missing]:
    """Return the headers that cannot be found, also those that a found one includes whatever is defined."""
    waiting = [*headers.items(), *([(GENERATED, "ck/ck.hpp")] if any(name.startswith("ck/") for name in headers) else [])]
    lost: dict[str, Missing] = {}
    seen: set[str] = set()
    while waiting and len(seen) < _MOST_FILES:
        name, includer = waiting.pop(0)
        if name in seen:
            continue
        seen.add(name)
        path = resolve(name, folders)
        if path is None:
            lost[name] = Missing(name, includer)
        else:
            waiting.extend((inner, name) for inner in _included(path))
    return sorted(lost.values())


def resolve(name: str, folders: Iterable[Path]) -> Path | None:
    """Return the file that a compiler finds for a header, in the order of the folders."""
    return next((path for folder in folders if (path := folder / name).is_file()), None)


def _included(path: Path) -> Iterator[str]:
    """Yield the headers of the library that a header includes outside of any condition, except its own include guard."""
    try:
        text = _COMMENT.sub("", path.read_text("utf-8", "replace"))
    except OSError:
        return
    depth = 0
    guard = 1 if re.search(r"\A(?:\s|//[^\n]*\n)*#\s*ifndef\s+(\w+)\s*\n\s*#\s*define\s+\1\b", text) else 0
    for match in _DIRECTIVE.finditer(text):
        if match["word"] == "endif":
            depth -= 1
        elif match["word"] != "include":
            depth += 1
        elif depth <= guard and (name := match["rest"].strip().strip('<>"').split('"')[0].split(">")[0]).startswith(_OF_LIBRARY):
            yield name
