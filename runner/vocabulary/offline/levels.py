"""What may be expected of a kernel that is compiled for a target and not executed, and the level of evidence that each kind gives."""

from collections.abc import Mapping

from runner.core.targets import ISA, WRAPPER, Level

LEVELS: Mapping[str, Level] = {
    "filecheck": Level.COMPILED,
    "resources": Level.COMPILED,
    "metadata": Level.COMPILED,
    "runs": Level.COMPILED,
    "raises": Level.COMPILED,
}
"""The level of each kind of expectation. Other kinds need a device."""

OF_SIMULATED: Mapping[str, Level] = {**LEVELS, "choices": Level.COMPILED}
"""The same for code that Inductor generates for a simulated target."""


KERNEL = "<kernel>"
"""The name of what the compiler recorded of a kernel; no value of a spec can have this name."""


def level_of(kind: str, stage: str | None = None, *, is_compiled: bool = True) -> Level:
    """Return the level of an expectation; ``stage`` is what a ``filecheck`` reads. Candidates that are only counted are text."""
    if stage == WRAPPER or not is_compiled:
        return Level.RENDERED
    return Level.INSTRUCTIONS if stage in ISA.values() else OF_SIMULATED[kind]
