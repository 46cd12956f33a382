"""The file of a lab: how many nodes of which kind, and what a node must have; compared with the machine of a node that joined."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from runner.language.backends import read_named
from runner.language.read.document import LAB, Document
from runner.machine.capabilities import Machine
from runner.model.conditions import BadRange, VersionRange
from runner.model.diagnostics import Diagnostic, InvalidSpecs, Position

CPU = "cpu"
"""The vendor of a node without an accelerator."""


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
    image: str = ""
    positions: Mapping[str, Position]
    """Where each key stands in the file; the empty key for the node itself."""

    def differences(self, machine: Machine) -> Iterator[str]:
        """Yield how a machine differs from what the lab says of it."""
        torch = machine.torch or "none"
        vendor = machine.vendor if machine.gpus and machine.vendor else CPU
        same_torch = _in_range(self.torch, machine.release or ()) if _is_range(self.torch) else self.torch == torch
        for key, actual, is_right in (
            ("torch", torch, same_torch),
            ("python", ".".join(map(str, machine.python)), _in_range(self.python, machine.python)),
            ("vendor", vendor, self.vendor == vendor),
            ("arch", machine.arch or "none", self.arch == machine.arch),
            ("gpus", str(machine.gpus or 0), _in_range(self.gpus, (machine.gpus or 0,))),
        ):
            required = getattr(self, key)
            if required and not is_right:
                yield f"{self.positions[key]}: {key} is {required} there, and {actual} on the node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Lab:
    """A lab as written."""

    name: str
    nodes: Mapping[str, LabNode]
    document: Document


def read_lab(path: Path) -> Lab:
    """Read the file of a lab; raise ``InvalidSpecs`` with all its problems, or ``UsageError``."""
    problems: list[Diagnostic] = []
    document = read_named(path, LAB, problems)
    if document is None:
        raise InvalidSpecs(problems)
    nodes = {}
    for name, values in document.data["nodes"].items():
        values = values or {}
        positions = {key: document.position(("nodes", name, key)) for key in values}
        nodes[name] = LabNode(name=name, **values, positions={**positions, "": document.position(("nodes", name), key=True)})
        for key in ("python", "gpus", "torch"):
            text = values.get(key)
            if text and (key != "torch" or _is_range(text)):
                try:
                    VersionRange.parse(text)
                except BadRange as error:
                    problems.append(document.problem(("nodes", name, key), str(error)))
    if problems:
        raise InvalidSpecs(problems)
    return Lab(name=document.data["lab"], nodes=nodes, document=document)


def _is_range(text: str) -> bool:
    """Whether a text is a range of versions, and not one version."""
    return text[:1] in ("<", ">", "=", "!", "~")


def _in_range(text: str, value: tuple[int, ...]) -> bool:
    return bool(text and value) and VersionRange.parse(text).holds(value)
