"""The values of a case's names when an expectation is measured. A name that a step bound has a copy from the time of binding."""

from collections.abc import Callable, Mapping
from typing import Any

from torch.utils import _pytree as pytree

from runner.vocabulary.expectations.base import EAGER, OUTPUT
from runner.vocabulary.expectations.compilation import COMPILATION
from runner.vocabulary.expectations.texts import STDERR
from runner.vocabulary.expectations.values import WEAK
from runner.worker.case import copies
from runner.worker.case.parts import follow
from runner.worker.case.reference import Reference
from runner.worker.case.scope import Scope


class Names:
    """Looks up the names of expectations."""

    def __init__(self, scope: Scope, reference: Reference, output: Callable[[], Any], log: Callable[[], str]) -> None:
        self._scope = scope
        self._reference = reference
        self._output = output
        self._log = log
        self.weak: Mapping[str, Any] = {}
        """Weak references to objects that must be dead at some step."""
        self.snapshots: dict[str, Any] = {}
        """Copies of the values of names that steps bound and that an expectation uses."""
        self.compilation: Mapping[str, Any] = {}
        """What was recorded of the compiles of the step, by the kind of expectation that asks for it."""
        self._bound: str | None = None
        """The name of the current step's result; None before it is bound."""

    def begin_step(self) -> None:
        """Reset the name of the step's result."""
        self._bound = None

    def bind(self, name: str, value: Any, *, is_compared: bool) -> None:
        """Bind a name to a result. With ``is_compared``, later comparisons use a copy made now."""
        self._scope.values[name] = value
        self._bound = name
        if is_compared:
            self.snapshots[name] = copies.frozen(value)

    def values(self) -> Callable[[str], Any]:
        """Return the lookup for one expectation. It raises ``LookupError`` for two names of one mutable object, and for unknown names."""
        objects: dict[str, Any] = {}

        def value(name: str) -> Any:
            found = self.value(name)
            now = self._scope.values[name] if name == self._bound else found
            for other, known in objects.items():
                if other != name and copies.same_object(now, known):
                    raise LookupError(f"'{other}' and '{name}' are one object: a comparison of the two cannot fail")
            objects[name] = now
            return copies.measured(found)

        return value

    def value(self, name: str) -> Any:
        """Return the value of a name: output, eager, the copy of a named value, or a part of one of them."""
        first, _, rest = name.partition(".")
        if first == OUTPUT:
            return follow(self._output(), rest, first)
        if first == EAGER:
            if not self._reference.is_there:
                raise LookupError("no eager reference was run in this step")
            return _known(first, follow(self._reference.output, rest, first))
        if name == STDERR:
            return self._log()
        if name == WEAK:
            return self.weak
        if name.startswith(COMPILATION):
            return self.compilation[name.removeprefix(COMPILATION)]
        return self._snapshot(first, rest) if first in self.snapshots else self._scope.named(name)

    def _snapshot(self, first: str, rest: str) -> Any:
        found = self.snapshots[first]
        if not isinstance(found, copies.Live):
            found = follow(found, rest, first)
        return _known(first, found)


def _known(name: str, value: Any) -> Any:
    """Return the value; raise ``LookupError`` where a part of it could not be copied."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, copies.Live):
            raise leaf.refuse(name)
    return value
