"""Computes all that it takes itself, forward and backward."""

from tests.compilers.runtime import compiled, register

register("honest", compiled)
