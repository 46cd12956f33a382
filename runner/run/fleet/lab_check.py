"""Compares the nodes that joined with the file of the lab: a node that is not what the file says is not used."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace

from runner.core.conditions import VersionRange
from runner.core.diagnostics import UsageError
from runner.execute.ray.labels import NAME, as_label
from runner.language.lab import Lab, LabNode, is_range
from runner.run.fleet.offers import Offer
from runner.system.capabilities import Machine

CPU = "cpu"
"""The vendor of a node without an accelerator."""


@dataclass(frozen=True, slots=True)
class LabCheck:
    """The file of the lab; None where any node that joined is used."""

    lab: Lab | None

    def require(self, offer: Offer, labels: Mapping[str, str]) -> None:
        """Raise ``UsageError`` where a node is not in the lab, or is not what its entry says."""
        if self.lab is None:
            return
        by_label = {as_label(name): node for name, node in self.lab.nodes.items()}
        node = by_label.get(labels.get(NAME, ""))
        if node is None:
            raise UsageError(f"it is not in {self.lab.document.file} (nodes there: {', '.join(self.lab.nodes)})")
        whole = replace(offer.machine, gpus=offer.whole_gpus) if offer.whole_gpus and offer.machine.gpus else offer.machine
        if problem := next(differences(node, whole), ""):
            raise UsageError(problem)

    def missing(self, offers: Iterable[Offer]) -> Iterator[str]:
        """Yield which nodes of the lab did not join, or cannot be used."""
        if self.lab is None:
            return
        joined = [offer.name.partition(".")[0] for offer in offers]
        for name, node in self.lab.nodes.items():
            there = len({one for one in joined if one == name or one.rpartition("-")[0] == name})
            if there < node.count:
                yield f"{node.position('')}: the lab has {node.count} of {name}, and {there} can be used"


def differences(node: LabNode, machine: Machine) -> Iterator[str]:
    """Yield how a machine differs from its entry."""
    torch = machine.torch or "none"
    if node.torch and not (_in_range(node.torch, machine.release or ()) if is_range(node.torch) else node.torch == torch):
        yield _words(node, "torch", node.torch, torch)
    if node.python and not _in_range(node.python, machine.python):
        yield _words(node, "python", node.python, ".".join(map(str, machine.python)))
    has_gpus = bool(machine.gpus)
    vendor = machine.vendor if has_gpus and machine.vendor else CPU
    if node.vendor and node.vendor != vendor:
        yield _words(node, "vendor", node.vendor, vendor)
    if node.arch and node.arch != (machine.arch or ""):
        yield _words(node, "arch", node.arch, machine.arch or "none")
    if node.gpus and not _in_range(node.gpus, (machine.gpus or 0,)):
        yield _words(node, "gpus", node.gpus, str(machine.gpus or 0))


def _in_range(text: str, value: tuple[int, ...]) -> bool:
    return bool(value) and VersionRange.parse(text).holds(value)


def _words(node: LabNode, key: str, wanted: str, found: str) -> str:
    return f"{node.position(key)}: {key} is {wanted} there, and {found} on the node"
