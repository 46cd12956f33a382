"""What a user says of a fleet: the file of a lab (how many nodes of which kind, and what a node
must have), and the address of its head.
"""

import importlib.util
import re
import socket
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

from torch_conformance.language.backends import read_named
from torch_conformance.language.read.document import LAB
from torch_conformance.machine.capabilities import Machine
from torch_conformance.model.conditions import BadRange, VersionRange
from torch_conformance.model.diagnostics import Diagnostic, InvalidSpecs, Position, UsageError
from torch_conformance.model.document import Document
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import RunOptions

CPU = "cpu"
"""The vendor of a node without an accelerator."""
LABEL = "torch-conformance/"
"""What the labels of a node begin with."""
NAME = LABEL + "name"


def as_label(value: str) -> str:
    """Return a text as the value of a label: Ray allows 63 letters, digits, dots, dashes and
    underscores.
    """
    return re.sub(r"[^A-Za-z0-9._-]+", "-", value)[:63].strip("-._")


@frozen
class LabNode:
    """The nodes of one name. Empty where anything is accepted."""

    count: int = 1
    torch: str = ""
    python: str = ""
    vendor: str = ""
    arch: str = ""
    gpus: str = ""
    image: str = ""
    positions: Mapping[str, Position]
    """The place of each key in the file; the empty key for the node itself."""

    def require(self, machine: Machine) -> None:
        """Raise ``UsageError`` for a machine that differs from what the lab says of it."""
        for key, (text, numbers) in facts_of(machine).items():
            required = getattr(self, key)
            is_right = required in ("", text)
            if _is_range(key, required):
                is_right = bool(numbers) and VersionRange.parse(required).holds(numbers)
            if not is_right:
                raise UsageError(
                    f"{self.positions[key]}: {key} is {required} there, and {text} on the node"
                )


def facts_of(machine: Machine) -> Mapping[str, tuple[str, tuple[int, ...]]]:
    """Return what a lab may say of a machine, as text and, where it has some, as numbers."""
    gpus = machine.gpus or 0
    return {
        "torch": (machine.torch or "none", machine.release or ()),
        "python": (".".join(map(str, machine.python)), machine.python),
        "vendor": ((gpus and machine.vendor) or CPU, ()),
        "arch": (machine.arch or "none", ()),
        "gpus": (str(gpus), (gpus,)),
    }


@frozen
class Lab:
    """A lab as written."""

    name: str
    nodes: Mapping[str, LabNode]
    document: Document

    def node(self, name: str) -> LabNode:
        """Return the nodes of one name; raise ``UsageError`` where the lab has none."""
        if name not in self.nodes:
            names = ", ".join(self.nodes)
            raise UsageError(f"'{name}' is not in {self.document.file} (nodes there: {names})")
        return self.nodes[name]


def read_lab(path: Path) -> Lab:
    """Read the file of a lab; raise ``InvalidSpecs`` with all its problems, or ``UsageError``."""
    problems: list[Diagnostic] = []
    document = read_named(path, LAB, problems)
    if document is None:
        raise InvalidSpecs(problems)
    nodes = {}
    for name, values in document.data["nodes"].items():
        values = values or {}
        positions = {"": document.position(("nodes", name), key=True)}
        positions |= {key: document.position(("nodes", name, key)) for key in values}
        nodes[name] = LabNode(**values, positions=positions)
        for key, text in values.items():
            if _is_range(key, text):
                try:
                    VersionRange.parse(text)
                except BadRange as error:
                    problems.append(document.problem(("nodes", name, key), str(error)))
    if problems:
        raise InvalidSpecs(problems)
    return Lab(name=document.data["lab"], nodes=nodes, document=document)


def _is_range(key: str, text: str) -> bool:
    """Whether a text is a range of numbers, and not one version."""
    is_one = key == "torch" and text[:1] not in ("<", ">", "=", "!", "~")
    return key in ("torch", "python", "gpus") and bool(text) and not is_one


# -- options ---------------------------------------------------------------------------------------


_ANSWER_SECONDS = 8.0
_HOW = (
    "start a head with 'ray start --head --port=6379', and write --address HOST:PORT as it "
    "prints it"
)


def check_fleet(options: RunOptions) -> None:
    """Raise ``UsageError`` for options of a fleet that contradict each other, without Ray, or where
    no head listens.
    """
    if options.executor != "ray":
        for name, value in (("--address", options.address), ("--lab", options.lab)):
            if value is not None:
                raise UsageError(
                    f"{name} has no effect with --executor {options.executor} (write "
                    "--executor ray, or remove it)"
                )
        return
    if options.address is None:
        raise UsageError(
            "--executor ray: which cluster? (write --address HOST:PORT, as 'ray start --head' "
            "printed it)"
        )
    require_ray()
    if options.lab is not None:
        read_lab(options.lab)
    require_head(options.address)


def require_ray() -> None:
    """Raise ``UsageError`` where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError(
            "Ray is not installed (pip install 'torch-conformance[ray]', with the same "
            "version on every node)"
        )


def require_head(address: str) -> None:
    """Raise ``UsageError`` for a text that is not an address, or where nothing listens.

    Ray tries for three minutes, and does not say why.
    """
    host, port = host_and_port(address)
    try:
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
    except (OSError, UnicodeError) as error:
        raise UsageError(
            f"--address {address}: no Ray cluster answers "
            f"({getattr(error, 'strerror', '') or error}); {_HOW}"
        ) from error


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address; raise ``UsageError``."""
    parts = urlsplit(f"//{address}")
    try:
        port = parts.port
    except ValueError:
        port = None
    if not parts.hostname or not port or parts.netloc != address:
        public = re.sub(r"//.*@", "//", address)[:60]  # it may have a password
        raise UsageError(
            f"--address {public}: no host and port (write --address HOST:PORT, for example "
            f"127.0.0.1:6379; {_HOW})"
        )
    return parts.hostname, port
