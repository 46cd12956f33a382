"""Checks the options of a fleet before anything is read or started."""

import importlib.util

from runner.core.diagnostics import UsageError
from runner.core.options import RunOptions
from runner.execute.ray.head import require_head
from runner.language.lab import read_lab


def check_fleet(options: RunOptions) -> None:
    """Raise ``UsageError`` for options of a fleet that contradict each other, or without Ray."""
    if options.executor != "ray":
        for name, value in (("--address", options.address), ("--lab", options.lab)):
            if value is not None:
                raise UsageError(f"{name} has no effect with --executor {options.executor} (write --executor ray, or remove it)")
        return
    if options.address is None:
        raise UsageError("--executor ray: which cluster? (write --address HOST:PORT, as 'ray start --head' printed it)")
    if options.isolation == "auto":
        raise UsageError(
            "--executor ray with --isolation auto: what may share a worker is learnt on one machine (write --isolation worker or case)"
        )
    require_ray()
    if options.lab is not None:
        read_lab(options.lab)
    require_head(options.address)


def require_ray() -> None:
    """Raise ``UsageError`` where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("Ray is not installed (pip install 'torch-conformance[ray]', with the same version on every node)")
