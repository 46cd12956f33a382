"""Names in a case: definitions of its prelude, values that ``let`` and steps bind, parts of the case, and dotted paths."""

import types
import weakref
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from runner.worker.case.parts import follow
from runner.worker.torch_compat import lookup


class Scope:
    """Looks up names. A value of the case precedes a name of the prelude, which precedes a package."""

    def __init__(self, prelude: Mapping[str, Any]) -> None:
        self.values: dict[str, Any] = {}
        self.parts: dict[str, Callable[[], Any]] = {}
        """Parts of the case: its functions, ``compiled``, ``inputs``, ``output``, ``eager``."""
        self._prelude = prelude

    def find(self, path: str) -> Any:
        """Return the object of a name of the prelude or of a dotted path; raise ``LookupError``, ``ImportError`` or ``AttributeError``."""
        first, _, rest = path.replace(":", ".").partition(".")
        if first not in self._prelude:
            return lookup.resolve(path)
        found = self._prelude[first]
        try:
            return follow(found, rest, first)
        except AttributeError:
            if not isinstance(found, types.ModuleType):
                raise
            # import the submodule: the result must not depend on earlier imports of this process
            return lookup.resolve(f"{found.__name__}.{rest}")

    def named(self, name: str) -> Any:
        """Return a named value, or a part of it by a path of attributes and indices, or a name of the prelude."""
        first, _, rest = name.partition(".")
        if first in self.values:
            return follow(self.values[first], rest, first)
        return follow(self.parts[first](), rest, first) if first in self.parts else self.find(name)

    def callable(self, entry: Any) -> Any:
        """Return the callable of a step: ``entry`` is a dotted path or ``{ref: NAME}``."""
        return self.named(entry["ref"]) if isinstance(entry, Mapping) else self.find(entry)

    def weak(self, names: Iterable[str]) -> dict[str, "Weak"]:
        """Return weak references to the current objects of these names."""
        return {name: Weak(self, name) for name in names}


class Weak:
    """A weak reference to a named object, or the reason why there is none."""

    def __init__(self, scope: Scope, name: str) -> None:
        try:
            found = scope.named(name)
            self._type = type(found).__name__
            self._reference: weakref.ref[Any] | None = weakref.ref(found)
        except Exception as error:  # an attribute of a spec's object may raise anything
            self._type, self._reference = f"{type(error).__name__}: {error}", None

    def state(self) -> dict[str, Any]:
        """Return ``was`` (whether there was such an object), its ``type``, and ``alive``."""
        was = self._reference is not None
        return {"was": was, "type": self._type, "alive": was and self._reference() is not None}  # type: ignore[misc]  # not None here
