"""What the core asks of ``--executor ray``: the check of its options, and the pipeline of its run."""

from runner.tools.fleet.fleet_options import check_fleet
from runner.tools.fleet.runner import FleetRunner

__all__ = ["FleetRunner", "check_fleet"]
