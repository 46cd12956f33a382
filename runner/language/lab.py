"""The file of a lab as data: how many nodes of which kind, and what a node must have."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from runner.core.conditions import BadRange, VersionRange
from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position
from runner.language.backends import read_named
from runner.language.read.document import Document
from runner.language.read.kinds import LAB
from runner.language.read.repair import readable

_RANGES = ("python", "gpus")
_SIGNS = "<>=!~"


@dataclass(frozen=True, slots=True, kw_only=True)
class LabNode:
    """The nodes of one name. Empty where anything is accepted."""

    name: str
    count: int = 1
    torch: str = ""
    python: str = ""
    vendor: str = ""
    arch: str = ""
    gpus: str = ""
    environment: str = ""
    image: str = ""
    split: str = "none"
    shares: int = 1
    positions: Mapping[str, Position]
    """Where each key stands in the file; the empty key for the node itself."""

    def position(self, key: str) -> Position:
        """Return where a key stands."""
        return self.positions.get(key, self.positions[""])


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A lab as written."""

    name: str
    nodes: Mapping[str, LabNode]
    document: Document


def read_lab(path: Path) -> Lab:
    """Read the file of a lab; raise ``InvalidSpecs`` with all its problems, or ``UsageError``."""
    found = readable(read_named(path, LAB), LAB)
    problems = [*found.problems, *(_problems(found.document) if found.document is not None else ())]
    if problems or found.document is None:
        raise InvalidSpecs(problems)
    document = found.document
    nodes = {str(name): _node(document, str(name)) for name in document.data["nodes"]}
    return Lab(name=document.data["lab"], nodes=nodes, document=document)


def is_range(text: str) -> bool:
    """Whether a text is a range of versions, and not one version."""
    return text[:1] in _SIGNS


def _problems(document: Document) -> Iterator[Diagnostic]:
    """Yield what is wrong with the ranges and the shares of a lab."""
    for name, given in document.data.get("nodes", {}).items():
        for key in (*_RANGES, "torch"):
            text = given.get(key)
            if isinstance(text, str) and (key != "torch" or is_range(text)):
                try:
                    VersionRange.parse(text)
                except BadRange as error:
                    yield document.problem(("nodes", name, key), str(error))
        if given.get("shares", 1) > 1 and given.get("split", "none") == "none":
            hint = "add split: gpu or split: cpu, or remove shares"
            yield document.problem(("nodes", name, "shares"), "shares without a split: one actor has the whole node", hint)


def _node(document: Document, name: str) -> LabNode:
    given: Mapping[str, Any] = document.data["nodes"][name] or {}
    positions = {key: document.position(("nodes", name, key)) for key in given}
    return LabNode(name=name, **given, positions={**positions, "": document.position(("nodes", name), key=True)})
