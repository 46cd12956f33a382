"""Spies: functions of torch that a spec observes, changes or replaces.

Each call is recorded as an entry.
"""

import functools
import importlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch

from torch_conformance.model.protocol import encode
from torch_conformance.worker.case.scope import Scope, resolved
from torch_conformance.worker.process.channel import Observed, Plan
from torch_conformance.worker.torch_compat import imports

KEPT = 2000
"""The maximum number of entries of a spy that are sent. All are counted."""

OF_PROOF = ""
"""The name of the spy that the proof of a backend asks for; those of a spec have names."""

Function = Callable[..., Any]


class Spy:
    """One spy: its functions, and the entries of its calls."""

    def __init__(self, scope: Scope, spec: Plan) -> None:
        self.spec = spec
        self.count = 0
        self.entries: list[Any] = []
        self.is_paused = False
        """Whether calls are not recorded, as during calls by the runner itself."""
        self._record, self._result, self._around = (
            scope.find(spec[word]) if word in spec else None
            for word in ("record", "result", "around")
        )
        instead = spec.get("instead")
        self.replacement: Function | None = None
        if isinstance(instead, Mapping):
            self.replacement = lambda *args, **kwargs: resolved(instead["returns"], scope.named)
        elif instead is not None:
            self.replacement = scope.find(instead)

    def wrap(self, original: Function) -> Function:
        """Return the wrapper that replaces the original."""

        @functools.wraps(original)
        def wrapper(*args: object, **kwargs: object) -> object:
            self.saw(*args, **kwargs)
            if self._around is not None:
                return self._around(original, *args, **kwargs)
            returned = (self.replacement or original)(*args, **kwargs)
            return returned if self._result is None else self._result(returned, *args, **kwargs)

        return wrapper

    def saw(self, *args: object, **kwargs: object) -> None:
        """Record a call; raise ``TypeError`` where ``record`` returns neither a map nor a list of
        maps.
        """
        if self.is_paused:
            return
        recorded = {} if self._record is None else self._record(*args, **kwargs)
        for entry in recorded if isinstance(recorded, list) else [recorded]:
            if not isinstance(entry, dict):
                raise TypeError(
                    f"record {self.spec['record']} returned a {type(entry).__name__}, not a "
                    "map or a list of maps"
                )
            self.count += 1
            if len(self.entries) < KEPT:
                self.entries.append(encode(entry))

    def facts(self) -> Observed:
        """Return ``count`` and ``entries`` as plain data."""
        return {"count": self.count, "entries": list(self.entries)}

    def clear(self) -> None:
        """Delete the entries."""
        self.count, self.entries = 0, []


class RuntimeCalls:
    """Counts the calls of a function of a vendor's runtime around each compiled call of a step."""

    def __init__(self) -> None:
        self.spy: Spy | None = None
        self.least: int | None = None
        """The fewest calls around one compiled call of the step; None where none was counted."""

    @contextmanager
    def counted(self) -> Iterator[None]:
        """Count the calls in this context, unless it raises."""
        before = 0 if self.spy is None else self.spy.count
        yield
        if self.spy is not None:
            count = max(0, self.spy.count - before)
            self.least = count if self.least is None else min(self.least, count)


@contextmanager
def paused(spies: Iterable[Spy]) -> Iterator[None]:
    """Do not record calls of these spies in this context."""
    paused_spies = list(spies)
    for spy in paused_spies:
        spy.is_paused = True
    try:
        yield
    finally:
        for spy in paused_spies:
            spy.is_paused = False


def needs_values(spec: Plan) -> bool:
    """Whether the spy observes an object of the case, and so must be set after the values are
    made.
    """
    return isinstance(spec.get("method"), list)


def only_records(spec: Plan) -> bool:
    """Whether the spy does nothing while it is paused, also on copies of the case's objects."""
    return not needs_values(spec) and spec.keys().isdisjoint(("result", "around", "instead"))


def set_spy(spec: Plan, scope: Scope, undo: ExitStack) -> Spy:
    """Set a spy; its removal is registered with ``undo``."""
    spy = Spy(scope, spec)
    TARGETS[next(word for word in TARGETS if word in spec)](spy, scope, undo)
    return spy


def _put(undo: ExitStack, owner: object, name: str, value: object) -> None:
    """Set an attribute, and register its restoration with ``undo``."""
    undo.enter_context(mock.patch.object(owner, name, value))


def _owner(path: str) -> tuple[Any, str]:
    """Return the module or class that holds the object of a dotted path, and the object's name
    there.
    """
    parent, _, name = path.replace(":", ".").rpartition(".")
    if not parent:
        raise LookupError(f"'{path}' is not a dotted path")
    owner = imports.resolve(parent)
    getattr(owner, name)
    return owner, name


def _set_function(spy: Spy, scope: Scope, undo: ExitStack) -> None:
    """Observe a function at the name where its callers look it up."""
    owner, name = _owner(spy.spec["function"])
    _put(undo, owner, name, spy.wrap(getattr(owner, name)))


def _set_method(spy: Spy, scope: Scope, undo: ExitStack) -> None:
    """Observe a method of a class, or of one object."""
    target = spy.spec["method"]
    if isinstance(target, list):
        holder, name = scope.named(target[0]["ref"]), target[1]
        # an object of the case: nothing to restore
        setattr(holder, name, spy.wrap(getattr(holder, name)))
        return
    owner, name = _owner(target)
    raw = vars(owner).get(name, getattr(owner, name))
    is_wrapped = isinstance(raw, classmethod | staticmethod)
    _put(undo, owner, name, type(raw)(spy.wrap(raw.__func__)) if is_wrapped else spy.wrap(raw))


def _set_class(spy: Spy, scope: Scope, undo: ExitStack) -> None:
    """Observe the constructor of a class, or of its replacement.

    The result is a subclass; raise ``TypeError`` for another object.
    """
    owner, name = _owner(spy.spec["class"])
    original = spy.replacement or getattr(owner, name)
    if not isinstance(original, type):
        raise TypeError(f"{spy.spec.get('instead', name)} is not a class")

    def construct(self: object, *args: object, **kwargs: object) -> None:
        spy.saw(*args, **kwargs)
        original.__init__(self, *args, **kwargs)  # type: ignore[misc]  # of any class

    # with __module__ and name of the original, so that pickle finds the class
    members = {
        "__init__": construct,
        "__module__": original.__module__,
        "__qualname__": original.__qualname__,
    }
    _put(undo, owner, name, type(original.__name__, (original,), members))


def _set_lowering(spy: Spy, scope: Scope, undo: ExitStack) -> None:
    """Observe the lowering of an operator; raise ``LookupError`` where inductor has none."""
    from torch._inductor.lowering import lowerings

    operator: Any = torch.ops
    for part in spy.spec["lowering"].split("."):
        operator = getattr(operator, part)
    if operator not in lowerings:
        raise LookupError(f"inductor has no lowering of {spy.spec['lowering']}")
    undo.callback(lowerings.__setitem__, operator, lowerings[operator])
    lowerings[operator] = spy.wrap(lowerings[operator])


def _set_graph(spy: Spy, scope: Scope, undo: ExitStack) -> None:
    """Observe each graph that inductor compiles, before the compile or after it, when the passes
    have changed the graph.
    """
    module = importlib.import_module("torch._inductor.compile_fx")
    # all entry points call this function; compile_fx_inner itself is bound early, as a default
    # argument
    original = module._compile_fx_inner
    is_before = spy.spec["graph"] == "before_inner_compile"

    @functools.wraps(original)
    def wrapper(graph: object, *args: object, **kwargs: object) -> object:
        if is_before:
            spy.saw(graph)
        returned = original(graph, *args, **kwargs)
        if not is_before:
            spy.saw(graph)
        return returned

    _put(undo, module, "_compile_fx_inner", wrapper)


TARGETS: Mapping[str, Callable[[Spy, Scope, ExitStack], None]] = {
    "function": _set_function,
    "method": _set_method,
    "class": _set_class,
    "lowering": _set_lowering,
    "graph": _set_graph,
}
"""The kinds of spy."""
