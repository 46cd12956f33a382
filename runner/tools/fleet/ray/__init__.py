"""The executor of a fleet: nodes of a Ray cluster, each with its own torch, run jobs with the local executor (``docs/design/fleet.md``)."""
