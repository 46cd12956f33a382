"""A recorded run without the folders of its machine and without secrets: what a submission holds of journal, observations and code.

Files that the run read get the names of their members, so that a reader finds them. Text is cut by the same rules on every line, and what
was judged by is judged again before a submission is written: a cut that changes a verdict is noticed there.
"""

import json
import os
import re
import shlex
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.core.diagnostics import UsageError
from runner.core.header import RunHeader
from runner.core.results import CaseResult
from runner.record.submission.layout import OWN, SHIPPED
from runner.system.data_dirs import folder
from runner.system.redaction import IDENTIFIERS, redacted

_SCRATCH = re.compile(r"/[^\s\"'\\]*?/torch-conformance-[a-z0-9_]{8}(?=[/\"'\\]|$)")
"""The folder for temporary files of a run."""

_KERNEL = re.compile(r"(Linux-[0-9.]+)-[\w.+-]+?(?=-x86_64|-aarch64)")
"""The local part of a kernel's release, which its builder chose."""

_FILES_OF_OPTIONS = ("backends", "waivers", "paths", "profile")
"""Options of a run whose values are files that it read."""

_SHORTEST = 2
"""Folders with fewer parts, such as ``/`` and ``/usr``, are of no machine in particular."""


@dataclass(frozen=True, slots=True)
class ReadFile:
    """A file that the run read."""

    name: str
    """As the journal names it."""
    path: Path
    packed: str
    """Its name in the packed journal."""


def read_files(header: RunHeader, results: Sequence[CaseResult]) -> list[ReadFile]:
    """Return the files that a run read, each with its name in the submission."""
    shipped = folder("specs").resolve()
    places = {name: Path(os.path.realpath(name)) for name in header.specs}
    own = [path for path in places.values() if not path.is_relative_to(shipped)]
    roots = [path.parent for path in own] + [root for result in results for root in _root_of(result) if not root.is_relative_to(shipped)]
    root = Path(os.path.commonpath(roots)) if roots else shipped
    found = [
        ReadFile(
            name, path, f"{SHIPPED}/{path.relative_to(shipped)}" if path.is_relative_to(shipped) else f"{OWN}/{path.relative_to(root)}"
        )
        for name, path in places.items()
    ]
    if len({one.packed for one in found}) < len(found):
        raise UsageError("the run read one file under two names, and a submission has each file once (run it again with one of them)")
    return found


def _root_of(result: CaseResult) -> Iterator[Path]:
    """Yield the folder that the area of a result lies in: it belongs to the ids of cases."""
    path = Path(os.path.realpath(result.spec))
    yield from [path.parents[len(Path(result.area).parts)]] if result.area and len(path.parents) > len(Path(result.area).parts) else []


class Portable:
    """Cuts the texts of a run; ``run`` is its folder."""

    def __init__(self, run: Path, files: Sequence[ReadFile]) -> None:
        self._names = {one.name: one.packed for one in files}
        self._by_path = {one.path: one.packed for one in files}
        shipped = folder("specs").resolve()
        self._ledgers = {
            os.path.relpath(shipped / "ledger.txt"): f"{SHIPPED}/ledger.txt",
            str(shipped / "ledger.txt"): f"{SHIPPED}/ledger.txt",
        }
        places = sorted(_places(run).items(), key=lambda place: -len(place[0]))
        self._places = [(re.compile(re.escape(place) + r"(?=[^\w.@+-]|\.?$)"), short) for place, short in places]

    def text(self, text: str) -> str:
        """Return a text without folders of this machine."""
        for pattern, short in self._places:
            text = pattern.sub(short.replace("\\", r"\\"), text)
        return _KERNEL.sub(r"\1", _SCRATCH.sub(".../scratch", text))

    def code(self, data: bytes) -> bytes:
        """Return a piece of generated code without folders of this machine and without secrets."""
        text = data.decode("utf-8", "surrogateescape")
        return redacted(self.text(text)).encode("utf-8", "surrogateescape")

    def facts(self, data: bytes) -> bytes:
        """Return an observation without folders of this machine and without secrets; the same bytes where nothing is to be cut."""
        found = json.loads(data)
        cut = self._cut(found, "")
        return data if cut == found else json.dumps(cut, ensure_ascii=True).encode("ascii")

    def line(self, written: bytes) -> dict[str, Any]:
        """Return a line of the journal with the names of the submission."""
        record = json.loads(written)
        found = {key: self._renamed(value, key) for key, value in record.items()}
        if found.get("kind") == "header":
            found["specs"] = {self._names.get(name, name): digest for name, digest in record["specs"].items()}
            given = found["options"]
            found["options"] = {
                **given,
                **{name: self._option(record["options"].get(name, "")) for name in _FILES_OF_OPTIONS if name in given},
            }
        return found

    def _option(self, text: str) -> str:
        try:
            words = shlex.split(text)
        except ValueError:
            return self.text(text)
        return shlex.join(self._by_path.get(Path(os.path.realpath(word)), self.text(word)) for word in words)

    def _renamed(self, value: object, key: str) -> Any:
        if isinstance(value, str):
            if key in ("spec", "file"):
                return self._names.get(value) or self._ledgers.get(value) or self.text(value)
            return self.text(value) if key in IDENTIFIERS else redacted(self.text(value))
        if isinstance(value, list):
            return [self._renamed(one, key) for one in value]
        return {name: self._renamed(one, name) for name, one in value.items()} if isinstance(value, dict) else value

    def _cut(self, value: object, key: str) -> Any:
        if isinstance(value, str):
            return value if key == "id" else redacted(self.text(value))
        if isinstance(value, list):
            return [self._cut(one, key) for one in value]
        return {name: self._cut(one, name) for name, one in value.items()} if isinstance(value, dict) else value


def _places(run: Path) -> dict[str, str]:
    """Return the folders of this machine, and what stands in their place."""
    packages = [path for path in (*sys.path, sysconfig.get_path("purelib")) if path.endswith(("site-packages", "dist-packages"))]
    found = {
        os.path.expanduser("~"): "~",
        str(Path.cwd()): ".",
        str(run.resolve()): ".../run",
        str(folder("specs").resolve().parent): ".../torch-conformance",
        sys.prefix: ".../venv",
        sysconfig.get_path("stdlib"): ".../python",
        **dict.fromkeys(packages, ".../site-packages"),
    }
    return {place: short for place, short in found.items() if len(Path(place).parts) > _SHORTEST or (short == "~" and place != "/")}
