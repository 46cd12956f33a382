"""The names of a case and the parts of their values."""

import types
import weakref
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

import torch

from runner.model.diagnostics import did_you_mean, one_of
from runner.vocabulary import steps
from runner.vocabulary.expectations.expectation_base import is_reference
from runner.vocabulary.steps.step_base import StepKind, referenced
from runner.worker.torch_compat import imports

STEPS: Mapping[str, type[StepKind]] = dict(steps.STEPS)
"""The kinds of steps by their words, all imported before the seal is taken, which then covers them."""


class MissingPart(LookupError, AttributeError):
    """A path without a value; the message lists the parts that exist."""


def follow(value: Any, path: str, name: str = "") -> Any:
    """Return the part of ``value`` at a dotted path; raise ``MissingPart``. Messages call ``value`` by ``name``."""
    for part in path.split(".") if path else []:
        value = _part(value, part, name or f"a {type(value).__name__}")
        name = f"{name}.{part}" if name else ""
    return value


def _part(value: Any, part: str, name: str) -> Any:
    try:
        if isinstance(value, Mapping):
            keys = [key for key in ([part, int(part)] if part.isdecimal() else [part]) if key in value]
            if keys:
                return value[keys[0]]
        if not part.isdecimal():
            return getattr(value, part)
        if not isinstance(value, Mapping | torch.Tensor):
            return value[int(part)]
    except (AttributeError, LookupError, TypeError) as error:
        raise MissingPart(f"{name} has no part '{part}': it is {_described(value, part)}") from error
    raise MissingPart(f"{name} has no part '{part}': it is {_described(value, part)}")


def _described(value: Any, part: str) -> str:
    if isinstance(value, torch.Tensor):
        hint = did_you_mean(part, [name for name in dir(value) if not name.startswith("_")])
        return f"a tensor of shape {list(value.shape)}, which has attributes and no parts{f' ({hint})' if hint else ''}"
    if isinstance(value, Mapping):
        keys = [str(key) for key in value]
        return f"a {type(value).__name__} with the keys {one_of(keys)}" if keys else f"an empty {type(value).__name__}"
    if isinstance(value, tuple | list):
        fields = getattr(value, "_fields", ())
        count = f"a {type(value).__name__} of {len(value)}" + (f", 0 to {len(value) - 1}" if value else "")
        return count + (f", also called {', '.join(fields)}" if fields else "")
    names = [attribute for attribute in dir(value) if not attribute.startswith("_")]
    hint = did_you_mean(part, names)
    return f"a {type(value).__name__}" + (f" ({hint})" if hint else f" with the attributes {one_of(names)}" if names else "")


def resolved(value: Any, named: Callable[[str], Any]) -> Any:
    """Return a value of an option or a context with each ``{ref: NAME}`` replaced by the named value."""
    if is_reference(value):
        return named(str(value["ref"]))
    if isinstance(value, Mapping):
        return {key: resolved(item, named) for key, item in value.items()}
    return [resolved(item, named) for item in value] if isinstance(value, list) else value


def names_something(value: Any) -> bool:
    """Whether a value of an option is, or holds, ``{ref: NAME}``: an object of the spec."""
    return any(True for _ in referenced(value))


def differentiated(plan: Mapping[str, Any]) -> set[str]:
    """Return the names of results that a backward step differentiates. The eager side stores its own results of these."""
    names = (STEPS[step["kind"]].parse(step["arguments"]).differentiated for step in plan["steps"] if not step.get("skipped"))
    return {name for name in names if name is not None}


Sections = Mapping[str, Mapping[str, Any]]


def parted(sections: Sections) -> tuple[Sections, Sections]:
    """Split options into plain data and those with a ``{ref: NAME}``. The latter can be set only after the value is made."""
    plain, naming = (
        {
            section: {name: value for name, value in options.items() if names_something(value) is is_named}
            for section, options in sections.items()
        }
        for is_named in (False, True)
    )
    return plain, naming


def entered_as(value: Any) -> AbstractContextManager[Any]:
    """Return the context manager of an entry of ``context``: the object itself, or the result of a function; raise ``TypeError``."""
    manager = value if hasattr(type(value), "__enter__") or not callable(value) else value()
    if not hasattr(type(manager), "__enter__"):
        raise TypeError(f"a {type(manager).__name__} in 'context' is neither a context manager nor a function that returns one")
    return cast("AbstractContextManager[Any]", manager)


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
            return imports.resolve(path)
        root = self._prelude[first]
        try:
            return follow(root, rest, first)
        except AttributeError:
            if not isinstance(root, types.ModuleType):
                raise
            # import the submodule: the result must not depend on earlier imports of this process
            return imports.resolve(f"{root.__name__}.{rest}")

    def named(self, name: str) -> Any:
        """Return a named value, or a part of it by a path of attributes and indices, or a name of the prelude."""
        first, _, rest = name.partition(".")
        if first in self.values:
            return follow(self.values[first], rest, first)
        return follow(self.parts[first](), rest, first) if first in self.parts else self.find(name)

    def callable(self, entry: Any) -> Any:
        """Return the callable of a step: ``entry`` is a dotted path or ``{ref: NAME}``."""
        return self.named(entry["ref"]) if isinstance(entry, Mapping) else self.find(entry)


class Weak:
    """A weak reference to a named object, or the reason why there is none."""

    def __init__(self, scope: Scope, name: str) -> None:
        try:
            value = scope.named(name)
            self._type = type(value).__name__
            self._reference: weakref.ref[Any] | None = weakref.ref(value)
        except Exception as error:  # an attribute of a spec's object may raise anything
            self._type, self._reference = f"{type(error).__name__}: {error}", None

    def state(self) -> dict[str, Any]:
        """Return ``was`` (whether there was such an object), its ``type``, and ``alive``."""
        was = self._reference is not None
        return {"was": was, "type": self._type, "alive": was and self._reference() is not None}  # type: ignore[misc]  # not None here
