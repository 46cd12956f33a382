"""What this machine has and what it lacks: a table of checks (``checks.CHECKS``), each of which returns findings. Imports no torch."""
