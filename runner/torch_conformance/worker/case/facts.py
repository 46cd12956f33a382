"""The facts of a call that can change between two calls: of its arguments, of torch, and of what
its bytecode reads. Three closed tables, made without knowledge of the function.

A change is made in a fork that ends after it: nothing is undone.
"""

import builtins
import collections
import inspect
import itertools
import os
import sys
import sysconfig
import types
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_conformance.worker.case import copies
from torch_conformance.worker.torch_compat.numerics import OperatorMode


@dataclass(frozen=True)
class Fact:
    """One fact with the change of it."""

    name: str
    change: Callable[[list[Any]], object]
    """Receives the arguments of a call, and changes them or the process."""
    key: str = ""
    """The name by which a guard would name it; empty for one of torch's global guards."""
    is_of_arguments: bool = False
    """Whether each call needs the change in its own arguments."""
    limit: str = ""
    """The documented limit that the fact is subject to, a key of ``LIMITS``; empty for none."""


# -- arguments -------------------------------------------------------------------------------------


def _like(changed: torch.Tensor, tensor: torch.Tensor) -> torch.Tensor:
    return changed.requires_grad_(tensor.requires_grad and changed.is_floating_point())


def _transposed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy whose first two dimensions are stored in the other order."""
    return tensor.detach().transpose(0, 1).contiguous().transpose(0, 1)


def _with_grad(tensor: torch.Tensor) -> torch.Tensor:
    changed = tensor.detach().clone().requires_grad_()
    changed.grad = torch.ones_like(tensor)
    return changed


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy that begins three elements after the beginning of its memory."""
    flat = tensor.detach().flatten()
    return torch.cat([flat.new_zeros(3), flat])[3:].view(tensor.shape)


_OF_TENSOR: Sequence[
    tuple[str, Callable[[torch.Tensor], bool], Callable[[torch.Tensor], torch.Tensor]]
] = (
    ("dtype", lambda t: t.is_floating_point(), lambda t: _like(t.detach().double() * 1, t)),
    ("dtype", lambda t: t.dtype == torch.int64, lambda t: t.int()),
    (
        "size of dimension 0",
        lambda t: t.ndim > 0 and t.shape[0] > 1,
        lambda t: _like(t.detach()[:-1].clone(), t),
    ),
    ("strides", lambda t: t.ndim > 1, lambda t: _like(_transposed(t), t)),
    ("offset", lambda t: True, lambda t: _like(_shifted(t), t)),
    (
        "requires_grad",
        torch.is_floating_point,
        lambda t: t.detach().clone().requires_grad_(not t.requires_grad),
    ),
    ("is_leaf", torch.is_floating_point, lambda t: t.detach().clone().requires_grad_() * 1),
    ("grad", lambda t: t.is_floating_point() and t.is_leaf and t.requires_grad, _with_grad),
    (
        "minus zeros",
        torch.is_floating_point,
        lambda t: _like(torch.where(t.detach() == 0, -0.0, t.detach()), t),
    ),
)
"""The facts of a tensor: their names, which tensors have them, and the changed tensor."""


def _overlapping(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    size = left.numel()
    both = torch.cat([left.detach().flatten(), right.detach().flatten()])
    pair = both[:size].view(left.shape), both[size // 2 : size // 2 + size].view(right.shape)
    return _like(pair[0], left), _like(pair[1], right)


_OF_PAIR: Sequence[tuple[str, Callable[[torch.Tensor, torch.Tensor], tuple[Any, Any]]]] = (
    ("one tensor", lambda left, right: (left, left)),
    (
        "a view of one tensor",
        lambda left, right: (left, _like(left.detach().view(left.shape), right)),
    ),
    ("overlapping views", _overlapping),
)


def _of_leaves(name: str, change: Callable[..., Sequence[Any]], at: Sequence[int]) -> Fact:
    """Return the fact of some leaves of the arguments, which ``change`` receives and returns
    changed.
    """

    def changed(arguments: list[Any]) -> None:
        leaves, form = pytree.tree_flatten(arguments)
        for index, leaf in zip(at, change(*(leaves[index] for index in at)), strict=True):
            leaves[index] = leaf
        arguments[:] = pytree.tree_unflatten(leaves, form)

    return Fact(name, changed, is_of_arguments=True)


def of_arguments(arguments: list[Any]) -> Iterator[Fact]:
    """Yield the facts of the leaves of arguments, and of their pairs."""
    leaves, _ = pytree.tree_flatten_with_path(arguments)
    names = [f"argument {pytree.keystr(path)[1:].replace(']', '', 1)}" for path, _ in leaves]
    plain = []
    for index, (name, (_, leaf)) in enumerate(zip(names, leaves, strict=True)):
        if isinstance(leaf, torch.Tensor):
            if not copies.is_plain_strided(leaf) or not leaf.numel() or 0 in leaf.stride():
                continue
            plain.append(index)
            for word, has, changed in _OF_TENSOR:
                if has(leaf):
                    yield _of_leaves(f"{name}: {word}", lambda t, c=changed: [c(t)], [index])
        else:
            for words, other in _others(leaf):
                yield _of_leaves(f"{name}: {words}", lambda _, o=other: [o], [index])
    for left, right in itertools.combinations(plain, 2):
        first, second = leaves[left][1], leaves[right][1]
        if (first.shape, first.dtype, first.device) == (second.shape, second.dtype, second.device):
            for word, paired in _OF_PAIR:
                name = f"{names[left]} and {names[right].removeprefix('argument ')}: {word}"
                yield _of_leaves(name, paired, [left, right])
    for left, right in itertools.combinations(range(len(arguments)), 2):
        if _may_be_one(arguments[left], arguments[right]):

            def join(called: list[Any], left: int = left, right: int = right) -> None:
                called[right] = called[left]

            yield Fact(f"argument {left} and {right}: one object", join, is_of_arguments=True)


def _may_be_one(left: object, right: object) -> bool:
    """Whether one object could be in both places: containers and objects of the case's own
    classes.
    """
    is_own = isinstance(left, list | dict | set) or _is_own(type(left))
    return is_own and type(left) is type(right) and left is not right


# -- torch -----------------------------------------------------------------------------------------


_entered: list[Any] = []
"""Contexts that are open until the fork ends."""


def _enter(make: Callable[[], Any]) -> Callable[[list[Any]], object]:
    """Return a change that enters a context, which stays open until the fork ends."""

    def change(_: list[Any]) -> None:
        _entered.append(context := make())
        context.__enter__()

    return change


def _call(function: Callable[..., Any], *args: object, **kwargs: object) -> Callable[..., object]:
    return lambda _: function(*args, **kwargs)


_OF_TORCH: Sequence[tuple[str, Callable[[list[Any]], object]]] = (
    ("no_grad", _enter(torch.no_grad)),
    ("inference_mode", _enter(torch.inference_mode)),
    ("autocast", _enter(lambda: torch.autocast("cpu", torch.bfloat16))),
    ("the default dtype of autocast", _call(torch.set_autocast_dtype, "cpu", torch.float16)),
    ("the default dtype", _call(torch.set_default_dtype, torch.float64)),
    ("the default device", _call(torch.set_default_device, "meta")),
    ("deterministic algorithms", _call(torch.use_deterministic_algorithms, mode=True)),
    ("the precision of products", _call(torch.set_float32_matmul_precision, "medium")),
    ("the number of threads", _call(torch.set_num_threads, 3)),
    ("anomaly mode", _call(torch.autograd.set_detect_anomaly, mode=True)),
    ("oneDNN", _call(torch.backends.mkldnn.set_flags, _enabled=False)),
    ("cuDNN", _call(torch.backends.cudnn.set_flags, _enabled=False, _benchmark=True)),
    ("attention by its formula", _call(torch.backends.cuda.enable_math_sdp, enabled=False)),
    ("a torch function mode", _enter(torch.overrides.BaseTorchFunctionMode)),
    ("a dispatch mode", _enter(OperatorMode)),
)


def of_torch() -> Iterator[Fact]:
    """Yield the facts of torch's global state."""
    for name, change in _OF_TORCH:
        yield Fact(f"torch: {name}", change)


# -- Python ----------------------------------------------------------------------------------------

_MOST_ITEMS = 4
"""How many items of a container are changed."""

_NOT_CALLED = {"__init__", "__new__", "__del__", "__repr__", "__hash__", "__init_subclass__"}
"""Methods that a call does not run on an object that exists, or that containers depend on."""

_FOREIGN = tuple(
    os.path.realpath(sysconfig.get_path(name)) + os.sep for name in ("stdlib", "purelib", "platlib")
) + (
    os.path.dirname(torch.__file__) + os.sep,
    os.path.dirname(os.path.dirname(os.path.dirname(__file__))) + os.sep,
)


def _is_own_file(file: str | None) -> bool:
    """Whether a file belongs neither to Python, nor to an installed package, nor to this one."""
    return file is not None and not os.path.realpath(file).startswith(_FOREIGN)


def _is_own(kind: type) -> bool:
    """Whether a class is the case's own."""
    module = sys.modules.get(kind.__module__)
    if module is None:
        return True
    return kind.__module__ != "builtins" and (
        not isinstance(module, types.ModuleType)
        or _is_own_file(getattr(module, "__file__", "<case>"))
    )


def _after(result: object) -> object:
    """Return another result of a function."""
    if isinstance(result, bool):
        return not result
    if isinstance(result, int | float):
        return result + 1
    if isinstance(result, str):
        return result + "_"
    return pytree.tree_map_only(torch.Tensor, lambda t: t + 1, result)


def _other_result(_module: object, _arguments: object, result: object) -> object:
    return _after(result)


def _other_inputs(_module: object, arguments: object) -> object:
    return _after(arguments)


def _item(space: MutableMapping[Any, Any] | list[Any], key: Any) -> Callable[[object], object]:
    return lambda other: space.__setitem__(key, other)


def _attribute(owner: object, name: str) -> Callable[[object], object]:
    return lambda other: setattr(owner, name, other)


def _replaced(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **kwargs: _after(function(*args, **kwargs))


Others = Iterable[tuple[str, object]]
"""Other values in the place of one, with the words for them."""


def _other_numbers(number: complex) -> Others:
    """Yield numbers that are unequal, or equal and of another type or sign."""
    yield "another number", number + 1
    if type(number) is int and number in (0, 1):
        yield "an equal bool", bool(number)
    if type(number) is float and number == 0:
        yield "the other zero", -number
    if type(number) is complex and number.real == 0:
        yield "the other zero", complex(-number.real, number.imag)


def _other_items(items: Iterable[object]) -> Others:
    """Yield the container with one of its first items changed."""
    for index, item in enumerate(list(items)[:_MOST_ITEMS]):
        for words, other in _others(item):
            others = list(items)
            others[index] = other
            changed = type(items)(others)  # type: ignore[call-arg]  # of a tuple or a set
            yield f"item {index} {words}", changed


def _other_methods(method: "classmethod[Any, ..., Any] | staticmethod[..., Any]") -> Others:
    yield "another function", type(method)(_replaced(method.__func__))


def _other_properties(read: property) -> Others:
    if read.fget:
        yield "another property", property(_replaced(read.fget), read.fset)


def _other_tensors(tensor: torch.Tensor) -> Others:
    if tensor.is_floating_point():
        yield "another tensor", _like(tensor.detach() + 1, tensor)


_OTHERS: Mapping[type, Callable[[Any], Others]] = {
    bool: lambda value: [("negated", not value)],
    str: lambda text: [("another text", str(int(text) + 1) if text.isdecimal() else text + "_")],
    **dict.fromkeys((int, float, complex), _other_numbers),
    **dict.fromkeys((tuple, set, frozenset), _other_items),
    **dict.fromkeys((classmethod, staticmethod), _other_methods),
    property: _other_properties,
    types.FunctionType: lambda function: [("another function", _replaced(function))],
    torch.Tensor: _other_tensors,
    torch.dtype: lambda dtype: [
        ("another dtype", torch.float16 if dtype == torch.float64 else torch.float64)
    ],
}
"""By the class of a value, what returns other ones; a value of a subclass has none."""


def _others(value: object) -> Others:
    return _OTHERS[type(value)](value) if type(value) in _OTHERS else ()


def _reversed(value: dict[Any, Any]) -> None:
    items = list(value.items())[::-1]
    value.clear()
    value.update(items)


def _other_keys(value: dict[Any, Any]) -> None:
    """Replace the keys 0 and 1 of a map by equal bools."""
    items = [
        (bool(key) if type(key) is int and key in (0, 1) else key, item)
        for key, item in value.items()
    ]
    value.clear()
    value.update(items)


@dataclass
class _Python:
    """Finds the places that a function and what it calls read."""

    names: set[str]
    seen: set[int]
    codes: set[types.CodeType]

    def _value(
        self, label: str, key: str, value: object, put: Callable[[object], object], limit: str = ""
    ) -> Iterator[Fact]:
        """Yield the changes of a value in its place, and of what is within it."""
        for words, other in _others(value):
            yield Fact(f"{label}: {words}", _call(put, other), key, limit=limit)
        yield from self._within(label, key, value)

    def _within(self, label: str, key: str, value: object) -> Iterator[Fact]:
        """Yield the changes of what a value consists of, or of what it reads when it is called."""
        if id(value) in self.seen or isinstance(value, str | type(None)):
            return
        self.seen.add(id(value))
        if isinstance(value, list | dict | tuple):
            items = value.items() if isinstance(value, dict) else enumerate(value)
            for at, item in list(items)[:_MOST_ITEMS]:
                inside = f"{label}[{at!r}]"
                if isinstance(value, tuple):
                    yield from self._within(inside, key, item)
                else:
                    yield from self._value(inside, key, item, _item(value, at))
            if isinstance(value, dict) and len(value) > 1:
                if isinstance(value, collections.OrderedDict):
                    yield Fact(
                        f"{label}: move_to_end", lambda _: value.move_to_end(next(iter(value))), key
                    )
                yield Fact(f"{label}: another order", lambda _: _reversed(value), key)
            if isinstance(value, dict) and any(
                type(name) is int and name in (0, 1) for name in value
            ):
                yield Fact(f"{label}: keys that are equal bools", lambda _: _other_keys(value), key)
        if isinstance(value, types.FunctionType):
            yield from self.function(value)
        elif isinstance(value, types.MethodType):
            yield from self.function(value.__func__)
            yield from self._within(f"{label}.__self__", key, value.__self__)
        elif isinstance(value, types.ModuleType):
            if _is_own_file(getattr(value, "__file__", "<case>")):
                space = vars(value)
                for name in sorted(self.names & set(space)):
                    put = _item(space, name)
                    yield from self._value(f"{label}.{name}", name, space[name], put)
        else:
            yield from self._object(label, value)

    def _object(self, label: str, value: object) -> Iterator[Fact]:
        """Yield the changes of an object's attributes, of those of its class, and of its bases."""
        cls = value if isinstance(value, type) else type(value)
        if isinstance(value, torch.nn.Module):
            yield from self._module(label, value)
        if not _is_own(cls) and cls is not types.SimpleNamespace:
            return
        homes = inspect.getmro(cls) + (inspect.getmro(type(cls)) if cls is value else ())
        own_classes = [c for c in homes if _is_own(c)]
        special = {
            name
            for c in own_classes
            for name, part in vars(c).items()
            if name.startswith("__") and isinstance(part, types.FunctionType)
        }
        attributes = {} if cls is value else dict(getattr(value, "__dict__", {}))
        for c in own_classes:
            attributes |= {
                name: getattr(value, name)
                for name, part in vars(c).items()
                if isinstance(part, types.MemberDescriptorType) and hasattr(value, name)
            }
        for name in sorted(self.names | (special - _NOT_CALLED)):
            if name in attributes:
                put = _attribute(value, name)
                yield from self._value(f"{label}.{name}", name, attributes[name], put)
            home = next((c for c in own_classes if name in vars(c)), None)
            if home is None:
                continue
            part = vars(home)[name]
            put = _attribute(home, name)
            yield from self._value(f"{label}: {home.__name__}.{name}", name, part, put)
            for words, other in _others(part):
                if home is not cls:
                    yield Fact(
                        f"{label}: {cls.__name__}.{name} over {home.__name__}'s: {words}",
                        _call(setattr, cls, name, other),
                        name,
                    )
            if isinstance(part, property | classmethod | staticmethod):
                read: Any = part
                yield from self.function(getattr(read, "fget", None) or read.__func__)

    def _module(self, label: str, module: torch.nn.Module) -> Iterator[Fact]:
        """Yield the changes of a module: its mode, its hooks, its parameters and buffers, its
        children.
        """
        yield Fact(f"{label}: training", lambda _: module.train(not module.training), "training")
        for name, child in module.named_modules():
            path = f"{label}.{name}" if name else label
            for word, hook in (
                ("forward_pre_hook", _other_inputs),
                ("forward_hook", _other_result),
            ):
                yield Fact(
                    f"{path}: a {word.replace('_', ' ')}",
                    _call(getattr(child, f"register_{word}"), hook),
                    f"_{word}s",
                    limit="module_hooks",
                )
            buffers = dict(child.named_buffers(recurse=False))
            for word, tensor in (*child.named_parameters(recurse=False), *buffers.items()):
                if word in buffers and tensor.is_floating_point():
                    put = _attribute(child, word)
                    yield Fact(f"{path}.{word}: dtype", _call(put, tensor.double()), word)
                if tensor.is_floating_point():
                    yield Fact(
                        f"{path}.{word}: another value",
                        _call(tensor.data.add_, 1),
                        word,
                        limit="freezing",
                    )
            if name and _is_own(type(child)):
                yield from self._object(path, child)

    def function(self, function: object) -> Iterator[Fact]:
        """Yield the changes of what a function reads, and of what it calls reads."""
        function = getattr(function, "__wrapped__", function)
        if (
            not isinstance(function, types.FunctionType)
            or function.__code__ in self.codes
            or not _is_own_file(function.__code__.co_filename)
        ):
            return
        self.codes.add(function.__code__)
        codes = list(_codes(function.__code__))
        names = {name for code in codes for name in code.co_names}
        texts = {text for code in codes for text in code.co_consts if isinstance(text, str)}
        if names & {"getattr", "hasattr"}:
            names |= texts
        self.names |= names
        limit = "allow_in_graph" if _is_allowed(function) else ""
        yield from self._globals(function.__globals__, sorted(names), limit)
        cells = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
        for name, cell in cells:
            try:
                value = cell.cell_contents
            except ValueError:  # it is empty
                continue
            put = _attribute(cell, "cell_contents")
            yield from self._value(f"cell {name}", name, value, put, limit)
        yield from self._defaults(function)
        if names & {"getenv", "environ"}:
            for name in sorted(texts & set(os.environ)):
                put = _item(os.environ, name)
                yield from self._value(f"environment {name}", name, os.environ[name], put)

    def _globals(self, space: dict[str, Any], names: Sequence[str], limit: str) -> Iterator[Fact]:
        """Yield the changes of the globals and the builtins with these names."""
        for name in names:
            if name in space:
                put = _item(space, name)
                yield from self._value(f"global {name}", name, space[name], put, limit)
            elif isinstance(other := getattr(builtins, name, None), types.BuiltinFunctionType):
                change = _call(_item(space, name), _replaced(other))
                yield Fact(f"global {name} over the builtin", change, name)
        for left, right in itertools.combinations((name for name in names if name in space), 2):
            if _may_be_one(space[left], space[right]):
                change = _call(_item(space, right), space[left])
                yield Fact(f"globals {left} and {right}: one object", change, right)

    def _defaults(self, function: types.FunctionType) -> Iterator[Fact]:
        """Yield the changes of the defaults of a function's parameters."""
        keywords = function.__kwdefaults__ or {}
        for name, value in keywords.items():
            put = _item(keywords, name)
            yield from self._value(f"default {name} of {function.__name__}", name, value, put)
        for at, value in enumerate(function.__defaults__ or ()):

            def default(other: object, at: int = at) -> None:
                defaults = list(function.__defaults__ or ())
                defaults[at] = other
                function.__defaults__ = tuple(defaults)

            label = f"default {at} of {function.__name__}"
            yield from self._value(label, "__defaults__", value, default)


def _codes(code: types.CodeType) -> Iterator[types.CodeType]:
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _codes(constant)


def _is_allowed(function: object) -> bool:
    return id(function) in torch._dynamo.trace_rules._allowed_callable_ids.function_ids


def of_python(function: object, arguments: Sequence[Any]) -> Iterator[Fact]:
    """Yield the facts of Python values that the bytecode of a function reads."""
    reads = _Python(set(), set(), set())
    owner = getattr(function, "__self__", None)
    if isinstance(function, torch.nn.Module):
        owner, function = function, type(function).forward
    yield from reads.function(getattr(function, "__func__", function))
    if owner is not None:
        yield from reads._within("function", "function", owner)
    for index, argument in enumerate(arguments):
        if _is_own(type(argument)) or isinstance(argument, torch.nn.Module | dict | list | tuple):
            yield from reads._within(f"argument {index}", "", argument)
