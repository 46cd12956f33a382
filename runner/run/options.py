"""How cases are executed, as the command line said it."""

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from runner.plan.jobs import Isolation


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """What a run's pipeline takes of the command line."""

    timeout: float
    """Seconds of a case whose spec gives no timeout."""
    timeout_factor: float
    """How many times longer than usual everything may take."""
    isolation: Isolation
    share_across_folders: bool
    """Whether a shared worker takes specs of several folders."""
    object_cache: Path | None
    """The folder of ``--object-cache``; empty for the default one."""
    probe_cache: bool
    """Whether answers of torch's probes outlive the run."""
    services: tuple[str, ...]
    """What ``--service`` was given."""

    @classmethod
    def of(cls, arguments: argparse.Namespace) -> Self:
        """Return the options of ``run`` and ``audit``; what a command has no word for has its default."""
        isolation = Isolation(arguments.isolation)
        return cls(
            timeout=arguments.timeout,
            timeout_factor=arguments.timeout_factor,
            isolation=isolation,
            share_across_folders=isolation is Isolation.NONE or getattr(arguments, "share_across_folders", False),
            object_cache=getattr(arguments, "object_cache", None),
            probe_cache=not getattr(arguments, "no_kept", False),
            services=tuple(getattr(arguments, "service", ())),
        )
