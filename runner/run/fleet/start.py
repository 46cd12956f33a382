"""Starts the runner of a fleet, and the link to its nodes."""

from collections.abc import Sequence

from runner.core.case import Case
from runner.core.options import RunOptions
from runner.execute.ray.gateway_link import GatewayLink
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


def fleet_runner(prepared: Prepared, folder: RunFolder, cases: Sequence[Case], recorded: Sequence[Case], glance: Machine) -> FleetRunner:
    """Return the runner of a prepared run."""
    options, selection = prepared.options, prepared.selection
    lab = LabCheck(read_lab(options.lab) if options.lab is not None else None)
    link = link_of(options)
    return FleetRunner(options, selection.suite, selection.waivers, cases, folder, glance, prepared.scheduling, recorded, link, lab)


def link_of(options: RunOptions) -> Link:
    """Return the link to the nodes of a cluster."""
    return GatewayLink(options.address or "", lease_seconds=_LEASE_SECONDS, silence=_SILENCE_SECONDS)
