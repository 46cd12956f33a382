"""What this machine has and what it lacks: a table of checks, each of which returns findings. A new check is a function and a row here."""

from collections.abc import Callable, Iterable, Iterator

from runner.tools.vendor.doctor import accelerators, composable_kernel, software
from runner.tools.vendor.doctor.findings import WARNING, Finding, Scene

CHECKS: tuple[tuple[str, Callable[[Scene], Iterable[Finding]]], ...] = (
    ("Python and torch", software.python),
    ("Python and torch", software.torch),
    ("Python and torch", software.triton),
    ("Compilers", software.cxx),
    ("Compilers", software.ptxas),
    ("Accelerators", accelerators.check),
    ("ROCm", accelerators.rocm),
    ("Composable Kernel", composable_kernel.check),
    ("Resources", software.resources),
)
"""Every check, with the group in which its findings are shown, in the order of the report."""


def examine(scene: Scene) -> Iterator[tuple[str, Finding]]:
    """Yield every finding with its group. A check that cannot read the machine says so, and the others go on."""
    for group, check in CHECKS:
        try:
            yield from ((group, finding) for finding in check(scene))
        except OSError as error:
            cause = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
            yield group, Finding(f"{check.__name__}.unread", WARNING, f"the check '{check.__name__}' could not look", cause)
