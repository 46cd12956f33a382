"""Parts of values by a path of keys, indices and attributes; replacement of ``{ref: NAME}`` by values of the case."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any, cast

import torch

from runner.core.diagnostics import did_you_mean, one_of
from runner.vocabulary.steps import STEPS


class MissingPart(LookupError, AttributeError):
    """A path without a value; the message lists the parts that exist."""


def follow(found: Any, path: str, name: str = "") -> Any:
    """Return the part of ``found`` at a dotted path; raise ``MissingPart``. Messages call ``found`` by ``name``."""
    for part in path.split(".") if path else []:
        found = _part(found, part, name or f"a {type(found).__name__}")
        name = f"{name}.{part}" if name else ""
    return found


def _part(found: Any, part: str, name: str) -> Any:
    try:
        if isinstance(found, Mapping):
            keys = [key for key in ([part, int(part)] if part.isdecimal() else [part]) if key in found]
            if keys:
                return found[keys[0]]
        if not part.isdecimal():
            return getattr(found, part)
        if not isinstance(found, Mapping | torch.Tensor):
            return found[int(part)]
    except (AttributeError, LookupError, TypeError) as error:
        raise _missing(found, part, name) from error
    raise _missing(found, part, name)


def _missing(found: Any, part: str, name: str) -> MissingPart:
    return MissingPart(f"{name} has no part '{part}': it is {_described(found, part)}")


def _described(found: Any, part: str) -> str:
    if isinstance(found, torch.Tensor):
        hint = did_you_mean(part, [name for name in dir(found) if not name.startswith("_")])
        return f"a tensor of shape {list(found.shape)}, which has attributes and no parts{f' ({hint})' if hint else ''}"
    if isinstance(found, Mapping):
        keys = [str(key) for key in found]
        return f"a {type(found).__name__} with the keys {one_of(keys)}" if keys else f"an empty {type(found).__name__}"
    if isinstance(found, tuple | list):
        fields = getattr(found, "_fields", ())
        count = f"a {type(found).__name__} of {len(found)}" + (f", 0 to {len(found) - 1}" if found else "")
        return count + (f", also called {', '.join(fields)}" if fields else "")
    names = [attribute for attribute in dir(found) if not attribute.startswith("_")]
    hint = did_you_mean(part, names)
    return f"a {type(found).__name__}" + (f" ({hint})" if hint else f" with the attributes {one_of(names)}" if names else "")


def is_reference(value: Any) -> bool:
    """Whether a value is ``{ref: NAME}``."""
    return isinstance(value, Mapping) and set(value) == {"ref"}


def resolved(value: Any, named: Callable[[str], Any]) -> Any:
    """Return a value of an option or a context with each ``{ref: NAME}`` replaced by the named value."""
    if is_reference(value):
        return named(str(value["ref"]))
    if isinstance(value, Mapping):
        return {key: resolved(item, named) for key, item in value.items()}
    return [resolved(item, named) for item in value] if isinstance(value, list) else value


def _names_something(value: Any) -> bool:
    if isinstance(value, Mapping):
        return is_reference(value) or any(map(_names_something, value.values()))
    return isinstance(value, list) and any(map(_names_something, value))


def differentiated(plan: Mapping[str, Any]) -> set[str]:
    """Return the names of results that a backward step differentiates. The eager side stores its own results of these."""
    found = (STEPS[step["kind"]].parse(step["arguments"]).differentiated for step in plan["steps"] if not step.get("skipped"))
    return {name for name in found if name is not None}


Sections = Mapping[str, Mapping[str, Any]]


def parted(sections: Sections) -> tuple[Sections, Sections]:
    """Split options into plain data and those with a ``{ref: NAME}``. The latter can be set only after the value is made."""
    plain, naming = (
        {
            section: {name: value for name, value in options.items() if _names_something(value) is wanted}
            for section, options in sections.items()
        }
        for wanted in (False, True)
    )
    return plain, naming


def entered_as(found: Any) -> AbstractContextManager[Any]:
    """Return the context manager of an entry of ``context``: the object itself, or the result of a function; raise ``TypeError``."""
    made = found if hasattr(type(found), "__enter__") or not callable(found) else found()
    if not hasattr(type(made), "__enter__"):
        raise TypeError(f"a {type(made).__name__} in 'context' is neither a context manager nor a function that returns one")
    return cast("AbstractContextManager[Any]", made)
