"""The table of checks. A new check is a function of a ``Scene`` and a row here; ``examine`` asks all of them."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from runner.system.doctor import accelerators, compilers, composable_kernel, resources, rocm, software
from runner.system.doctor.findings import Finding, warning
from runner.system.doctor.scene import Scene


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """A check, and the group in which its findings are shown."""

    name: str
    group: str
    look: Callable[[Scene], Iterable[Finding]]


CHECKS: tuple[Check, ...] = (
    Check(name="python", group="Python and torch", look=software.python),
    Check(name="torch", group="Python and torch", look=software.torch),
    Check(name="triton", group="Python and torch", look=software.triton),
    Check(name="yaml", group="Python and torch", look=software.yaml),
    Check(name="services", group="Python and torch", look=software.services),
    Check(name="cxx", group="Compilers", look=compilers.cxx),
    Check(name="ptxas", group="Compilers", look=compilers.ptxas),
    Check(name="accelerators", group="Accelerators", look=accelerators.check),
    Check(name="rocm", group="ROCm", look=rocm.check),
    Check(name="ck", group="Composable Kernel", look=composable_kernel.check),
    Check(name="resources", group="Resources", look=resources.check),
)
"""Every check, in the order of the report."""


def examine(scene: Scene) -> Iterator[tuple[str, Finding]]:
    """Yield every finding with its group. A check that cannot read the machine says so, and the others go on."""
    for check in CHECKS:
        try:
            yield from ((check.group, finding) for finding in check.look(scene))
        except OSError as error:
            cause = f"{error.strerror or error}{f': {error.filename}' if error.filename else ''}"
            yield check.group, warning(f"{check.name}.unread", f"the check '{check.name}' could not look", cause)
