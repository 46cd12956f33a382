"""Starts the runner of a fleet: the options of the lab, checked, and the link to its nodes."""

import importlib.util
from collections.abc import Sequence

from runner.core.case import Case
from runner.core.diagnostics import UsageError
from runner.core.options import RunOptions
from runner.execute.ray.gateway_link import GatewayLink
from runner.execute.ray.head import require_head
from runner.execute.ray.link import Link
from runner.language.lab import read_lab
from runner.record.run_folder import RunFolder
from runner.run.fleet.lab_check import LabCheck
from runner.run.fleet.runner import FleetRunner
from runner.run.preparation import Prepared
from runner.system.capabilities import Machine

_LEASE_SECONDS = 600.0
"""How long a node that another run holds is waited for."""

_SILENCE_SECONDS = 60.0
"""A node that answers no call for so long is lost."""


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


def fleet_runner(prepared: Prepared, folder: RunFolder, cases: Sequence[Case], recorded: Sequence[Case], glance: Machine) -> FleetRunner:
    """Return the runner of a prepared run."""
    options, selection = prepared.options, prepared.selection
    lab = LabCheck(read_lab(options.lab) if options.lab is not None else None)
    link = link_of(options)
    return FleetRunner(options, selection.suite, selection.waivers, cases, folder, glance, prepared.scheduling, recorded, link, lab)


def link_of(options: RunOptions) -> Link:
    """Return the link to the nodes of a cluster."""
    return GatewayLink(options.address or "", lease_seconds=_LEASE_SECONDS, silence=_SILENCE_SECONDS)
