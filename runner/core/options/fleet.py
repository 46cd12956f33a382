"""The options of the commands about labs: ``node`` and ``plan``."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options of ``node``."""

    action: str
    address: str
    lab: Path | None
    name: str
    """Its name in the lab; empty for the name of the machine."""
    image: str
    once: bool
    dry: bool
    """Print, and do not join."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanOptions:
    """The options of ``plan``."""

    paths: tuple[Path, ...]
    backends: tuple[Path, ...]
    backend: tuple[str, ...]
    select: tuple[str, ...]
    tag: tuple[str, ...]
    shards: int
    by: str
    slurm: bool
