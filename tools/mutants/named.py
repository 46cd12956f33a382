"""Mutants named by what they change and not by a line number, so that a name outlives another
version of torch.
"""

import importlib.util
import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tools.mutants.operators import Mutant, difference, mutants
from torch_conformance.machine.installed_torch import installed_torch

HERE = Path(__file__).parent
IN_CI = HERE / "in_ci.json"
SURVIVORS = HERE / "survivors.json"


SURVIVED_IN = "2.13"
"""The torch minor whose survivors are classified; a survivor of another one says so."""


@dataclass(frozen=True)
class Named:
    """What a mutant changes: the difference has the removed and the added lines of the function, as
    ``ast.unparse`` writes them.
    """

    module: str
    function: str
    kind: str
    difference: str

    @property
    def text(self) -> str:
        """The name on one line."""
        return (
            f"{self.module}:{self.function}:{self.kind}: "
            f"{' / '.join(line.strip() for line in self.difference.splitlines())}"
        )

    def find(self) -> Mutant | None:
        """Return the mutant of the installed torch that makes this change; of several, the
        first.
        """
        source = source_of(self.module)
        alike = [
            mutant
            for mutant in mutants(self.module, source)
            if (mutant.function, mutant.kind) == (self.function, self.kind)
        ]
        return next(
            (mutant for mutant in alike if difference(source, mutant) == self.difference), None
        )


@dataclass(frozen=True)
class Caught:
    """A mutant, and the one case that detects it."""

    mutant: Named
    case: str


KINDS_OF_SURVIVORS = {
    "equivalent": "no program can tell the difference on this machine",
    "slower": "answers stay right; time, memory or a cache hit is lost",
    "diagnostics": "only texts, traces or counters for people change",
    "other platform": "the changed code decides only for a device, a compiler or "
    "an operating system that the "
    "run did not have",
    "unclaimed": "a behaviour that no case of the sample claims; answers "
    "stay right, or it fails loudly",
    "wrong answer": "a program can get a wrong answer; a spec is missing, "
    "or is listed under claimed_by",
}
"""What a survivor can be, with what the word means."""


@dataclass(frozen=True)
class Survivor:
    """A mutant that its cases did not detect, what somebody who read the code says of it, and the
    spec that detects it by now.
    """

    mutant: Named
    classified: str
    reason: str
    claimed_by: str
    torch: str = SURVIVED_IN
    """The torch minor that has the mutated text."""


def in_ci() -> tuple[str, tuple[Caught, ...]]:
    """Return the torch minor that the mutants of CI were taken from, and the mutants with their
    cases.
    """
    read = json.loads(IN_CI.read_bytes())
    return read["torch"], tuple(
        Caught(_named(mutant), mutant["case"]) for mutant in read["mutants"]
    )


def survivors() -> tuple[Survivor, ...]:
    """Return the survivors that have been read and classified."""
    read = json.loads(SURVIVORS.read_bytes())
    return tuple(
        Survivor(
            _named(entry),
            entry["class"],
            entry["reason"],
            entry.get("claimed_by", ""),
            entry.get("torch", SURVIVED_IN),
        )
        for entry in read["survivors"]
    )


def _named(entry: dict[str, str | list[str]]) -> Named:
    difference = entry["difference"]
    assert isinstance(difference, list)
    return Named(
        str(entry["module"]), str(entry["function"]), str(entry["kind"]), "\n".join(difference)
    )


@cache
def source_of(module: str) -> str:
    """Return the source of a module of the installed torch, without importing it."""
    spec = importlib.util.find_spec(module.partition(".")[0])
    if spec is None or spec.origin is None:
        raise LookupError(f"{module} is not installed")
    path = Path(spec.origin).parent.joinpath(*module.split(".")[1:])
    return (
        path.with_suffix(".py") if path.with_suffix(".py").exists() else path / "__init__.py"
    ).read_text("utf-8")


def torch_version() -> str:
    """Return the version of the installed torch; an empty text where there is none."""
    torch = installed_torch()
    return torch.version if torch is not None else ""


def minor(version: str) -> str:
    """Return the first two numbers of a version."""
    return ".".join(version.split(".")[:2])


def missing(mutants: Sequence[Named], made_for: str) -> str:
    """Return why mutants that are not found are not a failure: the torch is of another minor
    version.

    An empty text: they are one.
    """
    if minor(torch_version()) == made_for:
        return ""
    return f"not in torch {torch_version()}, made for {made_for}: " + "; ".join(
        mutant.text for mutant in mutants
    )
