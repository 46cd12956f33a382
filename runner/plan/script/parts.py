"""What is collected of a case while its script is written, and the options as Python."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.plan.script.values import attribute, literal

MODULES = {"config": "torch._inductor.config", "dynamo_config": "torch._dynamo.config", "functorch_config": "torch._functorch.config"}
"""The module of torch for each section of options."""

FRAGMENTS = (
    *("core", "code", "inputs", "modules", "closing", "functions", "prepare", "resets", "call", "backward", "optimizer", "aot"),
    *("scripts", "spawn", "spies", "counts", "raises", "values", "deterministic", "batch", "close", "filecheck", "frames", "graphs"),
)
"""The helpers of a script in their order, each a file of ``templates/repro``."""

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "backward": ("call",),
    "aot": ("call",),
    "close": ("call", "values"),
    "deterministic": ("call", "values"),
    "batch": ("call", "values"),
    "optimizer": ("call",),
    "frames": ("counts", "values", "filecheck"),
    "graphs": ("frames", "counts", "values", "filecheck"),
}
"""The helpers that a helper calls."""


@dataclass(slots=True)
class Parts:
    """What is collected while the case is read."""

    used: set[str] = field(default_factory=lambda: {"core", "prepare", "resets"})
    left_out: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    checks: int = 0

    def leave_out(self, text: str) -> None:
        """Name a part of the case that the script does not say, once."""
        if text not in self.left_out:
            self.left_out.append(text)

    def fragments(self) -> list[str]:
        """Return the helpers that are used, with those that they call, in their order."""
        for word in [*self.used]:
            self.used.update(_NEEDS.get(word, ()))
        return [word for word in FRAGMENTS if word in self.used]


def option(module: str, name: str) -> str:
    """Return the expression of an option of torch; raise ``ValueError`` for a name that Python cannot write."""
    found = module
    for part in name.split("."):
        found = attribute(found, part)
    if not found.startswith("getattr"):
        return found
    raise ValueError(f"the option {name} has no name in Python")


def torch_state(state: Mapping[str, Any]) -> Iterator[str]:
    """Yield the statements of the section ``torch``."""
    calls = {
        "float32_matmul_precision": "torch.set_float32_matmul_precision({})",
        "deterministic": "torch.use_deterministic_algorithms({})",
        "allow_tf32": "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = {}",
        "allow_fp16_reduced_precision_reduction": "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = "
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = {}",
    }
    for name, value in state.items():
        if name == "default_dtype":
            yield f"torch.set_default_dtype({attribute('torch', value)})"
        elif name != "seed":
            yield calls[name].format(literal(value))


def names_something(value: Any) -> bool:
    """Whether a value holds a ``{ref: NAME}``."""
    if isinstance(value, Mapping):
        return set(value) == {"ref"} or any(map(names_something, value.values()))
    return isinstance(value, list) and any(map(names_something, value))
