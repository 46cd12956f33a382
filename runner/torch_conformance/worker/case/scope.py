"""The names of a case, the parts of their values, and the inputs and contexts that a spec describes
with them.
"""

import contextlib
import functools
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch._dynamo import mark_dynamic

from torch_conformance.model.diagnostics import did_you_mean, one_of
from torch_conformance.model.protocol import Json
from torch_conformance.vocabulary import steps
from torch_conformance.vocabulary.expectations.expectation_base import is_reference
from torch_conformance.vocabulary.inputs import INPUTS, Entry, kind_of, times
from torch_conformance.vocabulary.steps.step_base import StepKind
from torch_conformance.worker.case.source_module import SpecModule
from torch_conformance.worker.torch_compat import imports

_Value = TypeVar("_Value")

STEPS: Mapping[str, type[StepKind]] = dict(steps.STEPS)
"""The kinds of steps by their words, all imported before the seal is taken, which then covers them.
"""

Enter = Callable[[], contextlib.AbstractContextManager[None]]
"""Enters the contexts of a call."""

CONTEXTS: Mapping[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
}
"""The words of ``context`` that take no arguments."""


class MissingPart(LookupError, AttributeError):
    """A path without a value; the message lists the parts that exist."""


def follow(value: object, path: str, name: str = "") -> Any:
    """Return the part of ``value`` at a dotted path; raise ``MissingPart``.

    Messages call ``value`` by ``name``.
    """
    for part in path.split(".") if path else []:
        value = _part(value, part, name or f"a {type(value).__name__}")
        name = f"{name}.{part}" if name else ""
    return value


def _part(value: Any, part: str, name: str) -> object:
    """Return an attribute or an item of a value; raise ``MissingPart``."""
    cause = None
    try:
        if isinstance(value, Mapping):
            keys = [
                key for key in ([part, int(part)] if part.isdecimal() else [part]) if key in value
            ]
            if keys:
                return value[keys[0]]
        if not part.isdecimal():
            return getattr(value, part)
        if not isinstance(value, Mapping | torch.Tensor):
            return value[int(part)]
    except (AttributeError, LookupError, TypeError) as error:
        cause = error
    raise MissingPart(f"{name} has no part '{part}': it is {_described(value, part)}") from cause


def _described(value: object, part: str) -> str:
    """Say in a message what a value is, and which parts it has."""
    kind, names = type(value).__name__, [name for name in dir(value) if not name.startswith("_")]
    hint = did_you_mean(part, names)
    if isinstance(value, torch.Tensor):
        return (
            f"a tensor of shape {list(value.shape)}, which has attributes and no "
            f"parts{f' ({hint})' if hint else ''}"
        )
    if isinstance(value, Mapping):
        return (
            f"a {kind} with the keys {one_of([str(key) for key in value])}"
            if value
            else f"an empty {kind}"
        )
    if isinstance(value, tuple | list):
        fields = getattr(value, "_fields", ())
        count = f"a {kind} of {len(value)}" + (f", 0 to {len(value) - 1}" if value else "")
        return count + (f", also called {', '.join(fields)}" if fields else "")
    return f"a {kind}" + (
        f" ({hint})" if hint else f" with the attributes {one_of(names)}" if names else ""
    )


def resolved(value: Any, lookup: Callable[[str], Any]) -> Any:
    """Return a value of an option or a context with each ``{ref: NAME}`` replaced by the named
    value.
    """
    if is_reference(value):
        return lookup(str(value["ref"]))
    if isinstance(value, Mapping):
        return {key: resolved(item, lookup) for key, item in value.items()}
    return [resolved(item, lookup) for item in value] if isinstance(value, list) else value


class Scope:
    """Looks up names, and makes what a spec describes.

    A value of the case precedes a name of the prelude, which precedes a package.
    """

    def __init__(
        self, prelude: Mapping[str, Any], device: str, closing: contextlib.ExitStack
    ) -> None:
        """``closing`` is closed when the case ends."""
        self.values: dict[str, Any] = {}
        self.parts: dict[str, Callable[[], Any]] = {}
        """Parts of the case: its functions, ``compiled``, ``inputs``, ``output``, ``eager``."""
        self._prelude = prelude
        self.device, self.closing = device, closing

    def find(self, path: str) -> Any:
        """Return the object of a name of the prelude or of a dotted path; raise ``LookupError``,
        ``ImportError`` or ``AttributeError``.
        """
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
        """Return a named value, or a part of it by a path of attributes and indices, or a name of
        the prelude.
        """
        first, _, rest = name.partition(".")
        if first in self.values:
            return follow(self.values[first], rest, first)
        return follow(self.parts[first](), rest, first) if first in self.parts else self.find(name)

    def callable(self, entry: str | Mapping[str, str]) -> Any:
        """Return the callable of a step: ``entry`` is a dotted path or ``{ref: NAME}``."""
        return self.named(entry["ref"]) if isinstance(entry, Mapping) else self.find(entry)

    def entering(self, context: Sequence[Any]) -> Enter:
        """Return a function that enters the contexts of a call; raise as ``named`` for an unknown
        name.
        """
        entries = resolved(list(context), self.named)

        @contextlib.contextmanager
        def entered() -> Iterator[None]:
            with contextlib.ExitStack() as stack:
                for entry in entries:
                    if isinstance(entry, Mapping):
                        dtype = entry["autocast"].get("dtype")
                        kind = torch.device(self.device).type
                        stack.enter_context(
                            torch.autocast(
                                kind, dtype=None if dtype is None else getattr(torch, dtype)
                            )
                        )
                        continue
                    manager = CONTEXTS[entry]() if isinstance(entry, str) else entry
                    if not hasattr(type(manager), "__enter__") and callable(manager):
                        manager = manager()
                    if not hasattr(type(manager), "__enter__"):
                        kind = type(manager).__name__
                        raise TypeError(
                            f"a {kind} in 'context' is neither a context manager nor a "
                            "function that returns one"
                        )
                    stack.enter_context(manager)
                yield

        return entered

    # -- inputs ------------------------------------------------------------------------------------

    def make(self, entry: Json) -> Any:
        """Return the argument that an entry of ``inputs`` describes; a plain value is returned as
        it is.
        """
        if not isinstance(entry, Mapping):
            return self.value(entry)
        kind = next(word for word in INPUTS if word in entry)
        argument = MAKERS[kind](entry, self)
        if not isinstance(argument, torch.Tensor) or INPUTS[kind].is_finished:
            return argument
        if "strides" in entry:
            argument = _laid_out(argument, entry["strides"], argument.device)
        device = entry.get("device", self.device)
        if torch.device(device) != argument.device:
            # Tensor.to may pack strides with holes: the layout is part of the claim
            argument = (
                argument.to(device)
                if argument.is_nested
                else _laid_out(argument, argument.stride(), device)
            )
        if "memory_format" in entry:
            argument = argument.to(memory_format=getattr(torch, entry["memory_format"]))
        if offset := entry.get("storage_offset"):
            argument = _laid_out(argument, argument.stride(), argument.device, offset)
        argument.requires_grad_(bool(entry.get("requires_grad", False)))
        for dimension in entry.get("mark_dynamic", []):
            marked = dimension if isinstance(dimension, Mapping) else {"dim": dimension}
            mark_dynamic(argument, marked["dim"], min=marked.get("min"), max=marked.get("max"))
        return argument

    def make_all(self, entries: Iterable[Json]) -> list[Any]:
        """Return the arguments that a list of inputs describes; an entry with ``repeat`` is made as
        often as it says.
        """
        return [self.make(entry) for entry in entries for _ in range(times(entry))]

    def value(self, entry: Json) -> Any:
        """Return a value with every input description in it replaced, at any depth of maps and
        lists; other maps are data.
        """
        if isinstance(entry, Mapping):
            return (
                {key: self.value(item) for key, item in entry.items()}
                if kind_of(entry) is None
                else self.make(entry)
            )
        return (
            [self.value(item) for item in entry for _ in range(times(item))]
            if isinstance(entry, list)
            else entry
        )

    def called(self, function: Callable[..., _Value], entry: Entry) -> _Value:
        """Return what a function returns for ``args`` and ``kwargs`` of an entry."""
        return function(*self.value(entry.get("args", [])), **self.value(entry.get("kwargs", {})))

    def function(self, entry: Entry, module: SpecModule) -> Callable[..., Any]:
        """Return a function of the case: that of a block of ``module``, a module, or an object
        that has a name.
        """
        if "block" in entry:
            return module.function(entry["block"], entry["entry"])
        return (
            self.module(entry) if "module" in entry else self.find(entry.get("ref") or entry["api"])
        )

    def module(self, entry: Entry) -> torch.nn.Module:
        """Make a module: its class or maker is called on the CPU, from the case's seed, then it is
        converted and brought to the device.
        """
        instance = self.called(self.find(entry["module"]), entry)
        if not isinstance(instance, torch.nn.Module):
            raise TypeError(
                f"{entry['module']} made a {type(instance).__name__}, not a torch.nn.Module"
            )
        if "dtype" in entry:
            instance = instance.to(getattr(torch, entry["dtype"]))
        instance = instance.to(entry.get("device", self.device))
        return instance.eval() if entry.get("eval") else instance


def _laid_out(
    tensor: torch.Tensor, strides: Sequence[int], device: torch.device | str, offset: int = 0
) -> torch.Tensor:
    """Return a tensor with these strides; of a dimension with stride 0 it has the first element.

    It is not a view.
    """
    laid_out = torch.empty_strided(
        tuple(tensor.shape), tuple(strides), dtype=tensor.dtype, device=device
    )
    if offset:
        size = offset * tensor.element_size() + laid_out.untyped_storage().nbytes()
        memory = torch.zeros(size, dtype=torch.uint8, device=device).untyped_storage()
        laid_out.set_(memory, offset, tuple(tensor.shape), tuple(strides))
    written = tuple(slice(None) if stride else slice(1) for stride in strides)
    laid_out[written].copy_(tensor[written])
    return laid_out


def _options(entry: Entry, scope: Scope) -> dict[str, Any]:
    """Return torch's keyword arguments for making a tensor: on the CPU, unless the entry has
    ``on_device``.
    """
    dtype = {"dtype": getattr(torch, entry["dtype"])} if "dtype" in entry else {}
    return (
        {**dtype, "device": entry.get("device", scope.device)} if entry.get("on_device") else dtype
    )


def _drawn(
    draw: Callable[..., torch.Tensor], entry: Entry, scope: Scope, *, wider_integers: bool = True
) -> torch.Tensor:
    """Make a tensor.

    Where torch cannot make one of this dtype, make it in a wider dtype and convert: draws of float8
    are of float32.

    Without ``wider_integers`` what torch refuses for an integer dtype stays refused: numbers from 0
    to 1 would all become 0.
    """
    options = _options(entry, scope)
    try:
        return draw(**options)
    except NotImplementedError:
        dtype = options.get("dtype")
        is_integer = dtype is not None and not (
            dtype.is_floating_point or dtype.is_complex or dtype is torch.bool
        )
        if dtype is None or not (dtype.is_floating_point or (is_integer and wider_integers)):
            raise
        return draw(**{**options, "dtype": torch.int64 if is_integer else torch.float32}).to(dtype)


def _of_shape(kind: str, entry: Entry, scope: Scope) -> torch.Tensor:
    """Make a tensor with the torch function of the same name as the kind; that of ``rand`` with the
    bounds of the entry.
    """
    low, high = entry.get("low", 0), entry.get("high", 1)

    def draw(**options: object) -> torch.Tensor:
        drawn: torch.Tensor = getattr(torch, kind)(tuple(entry[kind]), **options)
        return drawn if (low, high) == (0, 1) else drawn.mul_(high - low).add_(low)

    return _drawn(draw, entry, scope, wider_integers=False)


def _randint(entry: Entry, scope: Scope) -> torch.Tensor:
    """Draw integers from ``low`` (default 0) up to ``high``, which is not drawn."""
    return _drawn(
        functools.partial(
            torch.randint, entry.get("low", 0), entry["high"], tuple(entry["randint"])
        ),
        entry,
        scope,
    )


def _arange(entry: Entry, scope: Scope) -> torch.Tensor:
    bounds = entry["arange"] if isinstance(entry["arange"], list) else [entry["arange"]]
    return _drawn(functools.partial(torch.arange, *bounds), entry, scope)


def _jagged(entry: Entry, scope: Scope) -> torch.Tensor:
    parts = [_of_shape("rand", {**entry, "rand": shape}, scope) for shape in entry["jagged"]]
    return torch.nested.nested_tensor(parts, layout=torch.jagged)


def _call(entry: Entry, scope: Scope) -> object:
    returned = scope.called(scope.callable(entry["call"]), entry)
    if "close" in entry:
        scope.closing.callback(getattr(returned, entry["close"]))
    return returned


MAKERS: Mapping[str, Callable[[Entry, Scope], Any]] = {
    **{kind: functools.partial(_of_shape, kind) for kind in ("rand", "randn", "zeros", "ones")},
    "full": lambda entry, scope: torch.full(
        tuple(entry["full"]), entry["value"], **_options(entry, scope)
    ),
    "randint": _randint,
    "arange": _arange,
    "values": lambda entry, scope: torch.tensor(entry["values"], **_options(entry, scope)),
    "jagged": _jagged,
    "module": lambda entry, scope: scope.module(entry),
    "call": _call,
    "ref": lambda entry, scope: scope.named(entry["ref"]),
    "value": lambda entry, scope: entry["value"],
}
"""What makes an input of each kind."""
