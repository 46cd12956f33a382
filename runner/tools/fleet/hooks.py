"""The functions of the fleet that the core calls for ``--executor ray``: check its options, and run the cases on nodes."""

from runner.tools.fleet.fleet_options import check_fleet
from runner.tools.fleet.runner import FleetRunner

__all__ = ["FleetRunner", "check_fleet"]
