"""The catalogue: each fault by its name; a module of ``patches`` for each area.

Nothing here imports torch; a patch does, in the worker.
"""

from tools.faults.patches import (
    autotune,
    cache,
    compiling,
    freezing,
    padding,
    properties,
    regressions,
)

AREAS = {
    module.__name__: module.FAULTS
    for module in (cache, freezing, padding, autotune, compiling, properties, regressions)
}
FAULTS = {fault.name: fault for faults in AREAS.values() for fault in faults}
CATALOGUE = tuple(FAULTS.values())

IN_CI = (
    "key-without-dtype",
    "freezing-skipped",
    "padding-at-the-threshold-itself",
    "nothing-is-padded",
    "padded-alike-for-every-dtype",
    "crashed-candidate-counted-as-fastest",
    "silent-eager",
    "random-number-drawn-by-each-graph",
    "sums-promoted-to-int",
)
"""Faults that every run of the tests plants: of each area those whose cases are quick.

The nightly tests plant all others.
"""
