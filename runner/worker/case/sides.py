"""The compiled and the eager side of a case. Each has its own functions and arguments."""

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
from runner.worker.torch_compat import compiling, counting

Enter = Callable[[], contextlib.AbstractContextManager[None]]
"""Enters the contexts of a call."""


@dataclass
class Side:
    """The functions, the arguments and the latest result of one side."""

    targets: dict[str, Any]
    arguments: list[Any]
    result: Any = None
    called: list[Any] = field(default_factory=list)
    """The target and the arguments of the last call, for its gradients."""

    def calling(self, name: str, given: list[Any] | None) -> list[Any]:
        """Return a function followed by its arguments: the given ones, else those of the spec."""
        return [self.targets[name], *(self.arguments if given is None else given)]

    def run(self, target: Any, name: str, given: list[Any] | None, enter: Enter) -> Any:
        """Call ``target`` with the arguments of the function ``name``, and return the result."""
        self.called = self.calling(name, given)
        forget_gradients(self.called)
        with enter():
            self.result = target(*self.called[1:])
        return self.result


class Watched:
    """Whether a call ran compiled: what was counted since this was made."""

    def __init__(self, witness: hooks.Witness) -> None:
        self._witness = witness
        self._graphs = sum(witness.seen.executed.values())
        self._frames = counting.frames()

    @property
    def graphs(self) -> int:
        """How many compiled graphs were called."""
        return sum(self._witness.seen.executed.values()) - self._graphs

    def end(self, what: str) -> None:
        """Record the call, under this name, where it ran eagerly though it had operations."""
        why = "" if self.graphs else counting.frames().why_eager(self._frames)
        if why:
            self._witness.seen.uncompiled.append(f"{what}: {why}")


class Compiled:
    """``torch.compile`` of the functions; each is compiled at its first call."""

    def __init__(self, options: Mapping[str, Any], scope: Scope, witness: hooks.Witness) -> None:
        self._options = options
        self._witness = witness
        self._scope = scope
        self.made: dict[str, Callable[..., Any]] = {}

    def target(self, side: Side, name: str) -> Callable[..., Any]:
        """Return ``torch.compile`` of a function of a side; the same object for each call."""
        if name not in self.made:
            self.made[name] = self.of(side.targets[name])
        return self.made[name]

    def of(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return ``torch.compile`` of any function; its graphs count as the case's own."""
        with needed("an option of compile"):
            options = parts.resolved(self._options, self._scope.named)
        made, backend = compiling.compiled(function, options)
        hooks.claim(backend)
        return made

    def watched(self) -> "Watched":
        """Begin to watch a call of something compiled."""
        return Watched(self._witness)

    def named(self, side: Side) -> Any:
        """Return the value of ``compiled``: the compiled function, or a namespace of several."""
        made = {name: self.target(side, name) for name in side.targets}
        return next(iter(made.values())) if len(made) == 1 else types.SimpleNamespace(**made)


def entering(context: Sequence[Any], scope: Scope, device: str) -> Enter:
    """Return a function that enters the contexts of a call; raise as ``Scope.named`` for an unknown name."""
    return functools.partial(_entered, parts.resolved(list(context), scope.named), device)


@contextlib.contextmanager
def _entered(contexts: Sequence[Any], device: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for context in contexts:
            stack.enter_context(_context_of(context, device))
        yield


def _context_of(entry: Any, device: str) -> Any:
    """Return the context manager of an entry of ``context``."""
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
