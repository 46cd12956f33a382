"""Runs on a fleet: which node may run a case, which results of a node count, and where they came
from (``docs/design/fleet.md``).
"""
