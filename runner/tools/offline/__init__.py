"""Compiles for GPUs that the machine lacks."""
