"""Modes of torch before and after a call, compiled and eager: what every later call of the process sees."""

from runner.core import devices
from runner.worker.process.settings import Settings

_NAMES = (
    "grad mode",
    "inference mode",
    "anomaly detection",
    "default device",  # a function mode, too
    "torch functions",  # whether __torch_function__ of subclasses and modes is called
    "function modes",
    "dispatch modes",
    "default dtype",
    *(f"autocast of {kind}" for kind in (devices.CPU, *devices.ACCELERATORS)),
    "threads",
    "deterministic algorithms",
    "matmul precision",
    "threads of autograd",
    "hooks of saved tensors",
    "functorch's transforms",
    "dynamo's stance",
    "autocast's cache",
    "filling of new memory",
    "oneDNN",
    "flash attention",
    "memory-efficient attention",
    "plain attention",
    "cuDNN's attention",
)
"""Settings of a process that change what later calls compute. Compiled code must leave each as eager does."""


class Modes(Settings):
    """The modes at one time."""

    def __init__(self) -> None:
        super().__init__(_NAMES)

    def restore(self) -> None:
        """Set every mode to its value of that time; one that torch cannot set, such as the inference mode, stays."""
        for _ in self.bring_back():
            pass


def compared(eager: Modes, compiled: Modes) -> list[dict[str, str]]:
    """Return the modes that the two calls left otherwise, each with both values."""
    return [{"name": name, "eager": theirs, "compiled": ours} for name, theirs, ours in eager.other_than(compiled)]
