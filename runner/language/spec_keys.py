"""The key of a spec in the cache: a digest of everything that its cases depend on, except questions about files outside (``read/outside``).

| it depends on | in the key |
|---|---|
| the spec, and its path | the content and the path |
| the defaults that it inherits | the content and path of each; a spec with defaults that extend others, or that are links, has no key |
| the backends | the content and the name of each file |
| the schemas, the tables of names, the code of the runner | their content |
| torch, Python, the packages that read YAML, schemas and templates | their versions and places |
| names in messages and ids | the working folder and the root of the area |
"""

import functools
import hashlib
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from runner.language.read.document import Document
from runner.language.read.files import DEFAULTS, SpecPath, folders_of
from runner.language.read.source import BUFFERS, MAX_BYTES
from runner.language.read.tree import is_project
from runner.system.data_dirs import folder
from runner.system.installed_torch import InstalledTorch

_DIGEST_BYTES = 20
_PACKAGES = ("pyyaml", "jsonschema", "jinja2")
_RUNNER = Path(__file__).resolve().parents[1]


class SpecKeys:
    """The keys of the specs of one command."""

    def __init__(self, backends: Sequence[Document], torch: InstalledTorch | None) -> None:
        self.state = _digest(_state(backends, torch))
        """What all keys depend on."""
        self._project: Callable[[Path], bool] = functools.cache(is_project)
        self._bases: dict[tuple[str, Path], bytes | None] = {}
        self._defaults: dict[Path, bytes | None] = {}
        self._chains: dict[tuple[Path, Path], tuple[Path, ...]] = {}

    def of(self, spec: SpecPath) -> tuple[str, bytes] | None:
        """Return the key of a spec and the content that it is for; None for a spec that is read each time: a link, or unreadable."""
        path = os.fspath(spec.path)
        folder, name = os.path.split(path)
        place = folder, spec.root
        if place not in self._bases:
            self._bases[place] = self._base(spec)
        base = self._bases[place]
        content = None if base is None else _content(path)
        if base is None or content is None:
            return None
        # the base is a digest, so of one length, and no name has a zero byte
        return hashlib.blake2b(b"%b%b\0%b" % (base, os.fsencode(name), content), digest_size=_DIGEST_BYTES).hexdigest(), content

    def _base(self, spec: SpecPath) -> bytes | None:
        """Return a digest of what the specs of a folder have in common."""
        parts = [self.state, os.fsencode(spec.root), os.fsencode(spec.path.parent)]
        for place in self._folders(spec.path.parent, spec.root):
            if place not in self._defaults:
                self._defaults[place] = _defaults_of(place)
            found = self._defaults[place]
            if found is None:
                return None
            parts += [os.fsencode(place), found]
        return _digest(parts)

    def _folders(self, place: Path, root: Path) -> tuple[Path, ...]:
        """Return ``folders_of``, which is that of the folder above for every folder below the root that is no project."""
        known = self._chains.get((place, root))
        if known is None:
            is_own = place == root or self._project(place)
            known = tuple(folders_of(place, root, self._project)) if is_own else (place, *self._folders(place.parent, root))
            self._chains[place, root] = known
        return known


def _defaults_of(place: Path) -> bytes | None:
    """Return the defaults of a folder, empty if it has none; None if other files or links decide what they are."""
    path = os.path.join(place, DEFAULTS)
    if not os.path.lexists(path):
        return b""
    content = _content(path)
    return None if content is None or b"extends" in content else b"defaults " + content


def _content(path: str) -> bytes | None:
    """Return the bytes of a regular file; None for anything else, whose problem the reader of specs reports."""
    if BUFFERS.get():
        return None
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode) or found.st_size > MAX_BYTES:
            return None
        content = os.read(descriptor, found.st_size + 1)
        return content if len(content) == found.st_size else None
    except OSError:
        return None
    finally:
        os.close(descriptor)


def _state(backends: Sequence[Document], torch: InstalledTorch | None) -> Iterator[bytes]:
    yield b"2"
    yield working_folder()
    yield from (text.encode() for text in (sys.version, sys.platform, repr(torch)))
    for package in _PACKAGES:
        try:
            yield f"{package} {version(package)}".encode()
        except PackageNotFoundError:
            yield package.encode()
    for document in backends:
        yield document.file.encode("utf-8", "surrogateescape")
        yield document.content
    for path in sorted(_sources()):
        yield os.fsencode(path)
        yield Path(path).read_bytes()


def working_folder() -> bytes:
    """Return the working folder; empty where it is gone, because then all files are shown by their absolute paths."""
    try:
        return os.fsencode(os.getcwd())
    except FileNotFoundError:
        return b""


def _sources() -> Iterator[str]:
    """Yield the files of the runner that decide what a spec means."""
    for top in (_RUNNER, folder("schemas")):
        for directory, _, names in os.walk(top):
            yield from (os.path.join(directory, name) for name in names if name.endswith((".py", ".json")))


def _digest(parts: Iterable[bytes]) -> bytes:
    state = hashlib.blake2b(digest_size=_DIGEST_BYTES)
    for part in parts:
        state.update(len(part).to_bytes(8, "little"))
        state.update(part)
    return state.digest()
