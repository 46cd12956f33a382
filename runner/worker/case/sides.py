"""The two worlds of a case: what is compiled, and its eager reference. Each has its own functions and arguments."""

import contextlib
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.vocabulary.steps.gradients import forget_gradients
from runner.vocabulary.steps.session import needed
from runner.worker.case import hooks, parts
from runner.worker.case.scope import Scope
from runner.worker.torch_compat import compiling

Enter = Callable[[], contextlib.AbstractContextManager[None]]
"""Enters the contexts of a call."""


@dataclass
class Side:
    """One of the two."""

    targets: dict[str, Any]
    arguments: list[Any]
    result: Any = None
    called: list[Any] = field(default_factory=list)
    """Target and arguments of the last call, for its gradients."""

    def calling(self, name: str, given: list[Any] | None) -> list[Any]:
        """Return a function and its arguments: the given ones, else those of the spec."""
        return [self.targets[name], *(self.arguments if given is None else given)]

    def run(self, target: Any, name: str, given: list[Any] | None, enter: Enter) -> Any:
        """Call what a function has become, and return the result."""
        self.called = self.calling(name, given)
        forget_gradients(self.called)
        with enter():
            self.result = target(*self.called[1:])
        return self.result


class Compiled:
    """The functions as ``torch.compile`` gives them; each is compiled when it is first called."""

    def __init__(self, options: Mapping[str, Any], scope: Scope) -> None:
        self._options = options
        self._scope = scope
        self.made: dict[str, Callable[..., Any]] = {}

    def target(self, side: Side, name: str) -> Callable[..., Any]:
        """Return a function of a side, compiled."""
        if name not in self.made:
            with needed("an option of compile"):
                options = parts.resolved(self._options, self._scope.named)
            self.made[name], backend = compiling.compiled(side.targets[name], options)
            hooks.claim(backend)
        return self.made[name]

    def named(self, side: Side) -> Any:
        """Return what ``compiled`` names: the compiled function, or the compiled functions by name."""
        made = {name: self.target(side, name) for name in side.targets}
        return next(iter(made.values())) if len(made) == 1 else types.SimpleNamespace(**made)


def entering(context: Sequence[Any], scope: Scope, device: str) -> Enter:
    """Return what enters the contexts of a call; raise where one of them names what is not there."""
    return functools.partial(_entered, parts.resolved(list(context), scope.named), device)


@contextlib.contextmanager
def _entered(contexts: Sequence[Any], device: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(_context_of(context, device))
        yield


def _context_of(entry: Any, device: str) -> Any:
    """Return the context manager that an entry of ``context`` means."""
    if isinstance(entry, Mapping):
        arguments = entry["autocast"]
        dtype = getattr(torch, arguments["dtype"]) if "dtype" in arguments else None
        return torch.autocast(torch.device(device).type, dtype=dtype)
    return CONTEXTS[entry]() if isinstance(entry, str) else parts.entered_as(entry)


CONTEXTS: Mapping[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
}
"""The words of ``context`` that take no arguments."""
