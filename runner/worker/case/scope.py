"""Names in a case: what its prelude defines, what let and steps bind, what the case itself is made of, and dotted paths."""

import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runner.worker.case.parts import follow
from runner.worker.torch_compat import lookup


class Scope:
    """Looks up names. A value of the case comes before a name of the prelude, and that before a package."""

    def __init__(self, prelude: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = {}
        self.parts: dict[str, Callable[[], Any]] = {}
        """What the case is made of: its functions, ``compiled``, ``inputs``."""
        self._prelude = prelude

    def find(self, path: str) -> Any:
        """Return what a name of the prelude or a dotted path stands for."""
        first, _, rest = path.replace(":", ".").partition(".")
        if first not in self._prelude:
            return lookup.resolve(path)
        found = self._prelude[first]
        try:
            return follow(found, rest, first)
        except AttributeError:
            if not isinstance(found, types.ModuleType):
                raise
            # what this process has imported so far decides nothing
            return lookup.resolve(f"{found.__name__}.{rest}")

    def named(self, name: str) -> Any:
        """Return a named value with its path of attributes and indices, or a name of the prelude."""
        first, _, rest = name.partition(".")
        if first in self.values:
            return follow(self.values[first], rest, first)
        return follow(self.parts[first](), rest, first) if first in self.parts else self.find(name)

    def callable(self, entry: Any) -> Any:
        """Return what a step calls: a path, or ``{ref: NAME}``."""
        return self.named(entry["ref"]) if isinstance(entry, Mapping) else self.find(entry)

    def weak(self, names: Iterable[str]) -> dict[str, "Weak"]:
        """Return weak references to what the names stand for now."""
        return {name: Weak(self, name) for name in names}


class Weak:
    """A weak reference to a named object, or why there is none."""

    def __init__(self, scope: Scope, name: str) -> None:
        try:
            found = scope.named(name)
            self._type = type(found).__name__
            self._reference: weakref.ref[Any] | None = weakref.ref(found)
        except Exception as error:  # an attribute of a spec's object may raise anything
            self._type, self._reference = f"{type(error).__name__}: {error}", None

    def state(self) -> dict[str, Any]:
        """Return whether there was such an object, its type, and whether it is alive."""
        was = self._reference is not None
        return {"was": was, "type": self._type, "alive": was and self._reference() is not None}  # type: ignore[misc]  # not None here
