"""The picture of what a step can reach: one walk that finds every object, says what it consists of,
keeps it and sets it back.

``anatomy`` is the only place that knows kinds of objects: its form as text, its parts by label, and
what sets it back. What it has no case for goes by the protocol of ``copy`` and ``pickle``
(``__reduce_ex__``); what that refuses (a lock, a file, a Python generator) is opaque: only its
identity is known.
"""

import array
import collections
import contextlib
import contextvars
import copy
import copyreg
import enum
import functools
import gc
import hashlib
import io
import logging
import operator
import re
import sys
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch_conformance.vocabulary.worker_torch import Tensor, torch

PREFIX = "conformance_spec_"
"""How the names of the modules of specs' Python begin."""

OF_TORCH = (
    "_dynamo",
    "_torchdynamo",
    "_compiled_call_impl",
    "_is_torch_compile",
    "_orig_mod",
    "_is_fsdp",
    "_opt_called",
    "_warned_capturable",
)
"""Prefixes of attributes that torch's compiler sets on modules and functions, and torch on an
optimizer, of which a copy has none.
"""

_OF_DYNAMO = re.compile(r"_[0-9]{6,}_c[0-9]+\Z")
"""The end of the names of globals that Dynamo adds for the code that it makes: the id of an object
and the number of a compile.
"""

_OF_TENSORS = (*OF_TORCH, "erased_name", "owning_mod_ref", "_is_", "_specialize_on")

INSIDE_TORCH = ("torch._", "torch.fx", "torch.utils.hooks", "torch.jit", "triton", "sympy")
"""Packages of which objects are atoms: caches and tables of the compiler."""

_BASES: tuple[type, ...] = (bool, int, float, complex, str, bytes)

GRAD = ".grad"
"""The end of the path of a gradient."""

IDENTITY = "identity of "
"""The beginning of the path of the fact which object it is."""

MOST_BYTES = 1 << 30
"""Bytes of storages that one picture keeps; the memory of further ones is not restored."""


class Form(str):
    """What an object is, apart from its parts: its class, its length, the order of its keys."""

    __slots__ = ()


class Absent:
    """The value of a path that one side does not have."""

    def __repr__(self) -> str:
        return "absent"


def is_atom(value: object) -> bool:
    """Whether a value has no parts and cannot change."""
    words = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.SymInt)
    return (
        type(value) in _BASES
        or isinstance(value, (type(None), range, slice, enum.Enum, *words))
        or (isinstance(value, _BASES) and not attributes_of(value))
    )


def is_of_torch(tensor: object) -> bool:
    """Whether a tensor is of one of torch's own classes."""
    return type(tensor) in (torch.Tensor, torch.nn.Parameter)


def name_of(kind: object) -> str:
    """Return the name of a class or a function, without the name of a spec's module."""
    module = str(getattr(kind, "__module__", ""))
    name = getattr(kind, "__qualname__", type(kind).__qualname__)
    return name if module == "builtins" or module.startswith(PREFIX) else f"{module}.{name}"


def _dict_of(value: object) -> dict[str, Any]:
    """Return the ``__dict__`` of an object; no code of a spec is called."""
    find: Any = type(value).__getattribute__
    if isinstance(find, types.FunctionType):
        find = object.__getattribute__
    attributes: dict[str, Any] = find(value, "__dict__")
    return attributes


@functools.cache
def _slots(kind: type) -> set[str]:
    return {
        name
        for base in kind.__mro__
        if "__slots__" in vars(base)
        for name, member in vars(base).items()
        if isinstance(member, types.MemberDescriptorType)
    }


def attributes_of(value: object) -> dict[str, Any]:
    """Return the attributes that an object itself holds, in ``__dict__`` and in slots;
    ``__getattr__`` of its class is not called.
    """
    attributes: dict[str, Any] = {}
    with contextlib.suppress(Exception):
        attributes.update(_dict_of(value))
    kind: Any = type(value)
    for name in _slots(kind):
        with contextlib.suppress(AttributeError):
            attributes[name] = object.__getattribute__(value, name)
    return attributes


# -- what a value consists of ----------------------------------------------------------------------

Replaced = Mapping[int, Any]
"""New objects by the ids of the originals, which could not be restored in place."""

Restore = Callable[[Replaced], None]


@dataclass(frozen=True)
class Anatomy:
    """What an object consists of."""

    form: str
    parts: list[tuple[str, Any]]
    """Each with its label: ``.name``, ``[key]``, ``{key}`` (a key itself, or a member of a set),
    ``<name>`` (closure), ``(name=)`` (default)."""
    keep: Callable[[], Restore] | None = None
    """Keeps the content; returns a function that restores it. None for immutable objects."""
    rebuild: Callable[[Replaced], Any] | None = None
    """Makes a new object where the original cannot be restored in place: an iterator, or a tuple
    that holds one."""
    advances: bool = False
    """Whether it changes by itself, as iterators."""
    is_opaque: bool = False


def anatomy(value: object, key: Callable[[Any], str] = repr) -> Anatomy:
    """Return what a value that is not an atom consists of; ``key`` returns the text of a key of a
    map.

    A further kind of object is one more case here, where the protocol of ``copy`` does not have it.
    """
    kind = type(value)
    form = name_of(kind)
    match value:
        case torch.Tensor():
            return _of_tensor(value)
        case torch.nn.Module():
            return _of_module(value)
        case types.ModuleType():
            return Anatomy(f"module {value.__name__}", [])
        case type():
            return _of_class(value)
        case types.FunctionType():
            return _of_function(value)
        case types.MethodType():
            function, owner = value.__func__, value.__self__
            return Anatomy(
                f"method {name_of(value)}",
                [(".__self__", owner), (".__func__", function)],
                rebuild=lambda replaced: types.MethodType(function, *_renewed([owner], replaced)),
            )
        case types.BuiltinMethodType() | types.MethodWrapperType():
            owner = value.__self__
            is_bound = owner is not None and not isinstance(owner, types.ModuleType | type)
            return Anatomy(
                name_of(value),
                [(".__self__", owner)] if is_bound else [],
                rebuild=lambda replaced: getattr(_renewed([owner], replaced)[0], value.__name__),
            )
        case property() | staticmethod() | classmethod() | memoryview() | logging.Logger():
            # the manager of a logger has all loggers of the process
            parts = [
                (f".{name}", getattr(value, name)) for name in _MEMBERS if hasattr(value, name)
            ]
            keep = functools.partial(_keep_attributes, value)
            return Anatomy(form, parts, keep, is_opaque=kind is memoryview)
        case types.MappingProxyType():
            return Anatomy(form, [(".mapping", *gc.get_referents(value))])
        case weakref.ref():
            return Anatomy(
                f"{form} of {'nothing' if value() is None else 'an object'}", [("()", value())]
            )
        case contextvars.ContextVar():
            try:
                content = value.get()
            except LookupError:  # without a value nothing can be restored
                return Anatomy(f"{form} without a value", [], is_opaque=True)
            return Anatomy(
                form,
                [(".value", content)],
                lambda: lambda replaced: value.set(*_renewed([content], replaced)) and None,
            )
        case bytearray() | array.array():
            return Anatomy(form, [(" content", repr(value))], functools.partial(_keep_array, value))
    return _of_data(value, form, key)


def _of_data(value: Any, form: str, key: Callable[[Any], str]) -> Anatomy:
    """Return what a container, a number or a text of a class of its own, an array or any other
    object consists of.
    """
    kind = type(value)
    for base in _CONTAINERS:
        if issubclass(kind, base):
            return _of_container(value, base, key)
    if isinstance(value, _BASES):
        plain: Any = next(base(value) for base in _BASES if isinstance(value, base))
        return Anatomy(form, [(" value", plain), *_attributes(value)])
    if kind.__module__ == "numpy" and hasattr(value, "__array__"):
        return _of_array(value)
    if str(kind.__module__).startswith(INSIDE_TORCH) and kind is not torch.Generator:
        return Anatomy(form, [])
    return _by_protocol(value)


_MEMBERS = (
    *("fget", "fset", "fdel", "__func__", "obj"),
    *("level", "handlers", "filters", "disabled", "propagate"),
)

_CONTAINERS: tuple[Any, ...] = (
    *(collections.OrderedDict, dict, list, collections.deque, set, frozenset, tuple),
)


def _of_container(value: Any, base: Any, key: Callable[[Any], str]) -> Anatomy:
    """Return what a container has by the methods of ``base``: its own class may override them."""
    kind = type(value)
    entries = list(base.__iter__(value))
    form, fields = name_of(kind), getattr(kind, "_fields", ()) if base is tuple else ()
    labels = [f".{name}" for name in fields] or [f"[{index}]" for index in range(len(entries))]
    parts = list(zip(labels, entries, strict=True))
    is_map = issubclass(base, dict)
    if is_map or base in (set, frozenset):
        entries = entries if is_map else sorted(entries, key=_shallow)
        texts = [key(entry) for entry in entries]
        form += f"({', '.join(texts)})" if is_map else f" of {', '.join(texts)}"
        labelled = list(zip(texts, entries, strict=True))
        parts = [(f"[{text}]", dict.__getitem__(value, name)) for text, name in labelled * is_map]
        parts += [(f"{{{text}}}", entry) for text, entry in labelled if not is_atom(entry)]
    else:
        form += f" of {len(entries)}"
    more = {collections.deque: "maxlen", collections.defaultdict: "default_factory"}
    names = [name for other, name in more.items() if issubclass(kind, other)]
    parts += [(f".{name}", getattr(value, name)) for name in names]
    parts += [] if kind is base else _attributes(value)
    if base in (tuple, frozenset):
        return Anatomy(
            form, parts, rebuild=lambda replaced: base.__new__(kind, _renewed(entries, replaced))
        )
    return Anatomy(form, parts, functools.partial(_keep_items, value, base))


def _shallow(value: object) -> str:
    """Return what orders the members of a set as those of a copy."""
    if is_atom(value):
        return f"{type(value).__name__} {value!r}"
    whole = anatomy(value)
    return repr([whole.form, *((label, part) for label, part in whole.parts if is_atom(part))])


def _attributes(value: object) -> list[tuple[str, Any]]:
    return [(f".{name}", part) for name, part in sorted(_plain_attributes(value).items())]


# -- what sets an object back ----------------------------------------------------------------------

_NOTHING = object()


def _renewed(parts: Iterable[Any], replaced: Replaced) -> list[Any]:
    return [replaced.get(id(part), part) for part in parts]


def _all(restores: list[Restore]) -> Restore:
    def restore(replaced: Replaced) -> None:
        for restore_part in restores:
            restore_part(replaced)

    return restore


def _keep_names(read: Callable[[], Mapping[Any, Any]], write: Callable[..., object]) -> Restore:
    """Keep what names refer to; ``write`` receives a name and its value, or deletes the name."""
    before = dict(read())

    def restore(replaced: Replaced) -> None:
        current = dict(read())
        for name in {**current, **before}:
            (part,) = _renewed([before.get(name, _NOTHING)], replaced)
            if current.get(name, _NOTHING) is not part:
                with contextlib.suppress(Exception):
                    write(name, *([] if part is _NOTHING else [part]))

    return restore


def _keep_attributes(value: object) -> Restore:
    """Keep the attributes of an object; those that torch's compiler sets stay as they are."""
    kind: Any = type(value)
    slots = _slots(kind)

    def write(name: str, *part: object) -> None:
        if name in slots:
            (object.__setattr__ if part else object.__delattr__)(value, name, *part)
        else:
            _write(_dict_of(value), name, *part)

    return _keep_names(functools.partial(_plain_attributes, value), write)


def _write(names: dict[str, Any], name: str, *part: object) -> None:
    if part:
        names[name] = part[0]
    else:
        del names[name]


def _keep_items(value: Any, base: Any) -> Restore:
    is_map = issubclass(base, dict)
    fill = base.__setitem__ if is_map else base.add if base is set else base.append
    attributes = _keep_attributes(value)

    def read() -> list[tuple[Any, ...]]:
        return list(base.items(value)) if is_map else [(part,) for part in base.__iter__(value)]

    items = read()

    def restore(replaced: Replaced) -> None:
        content = [_renewed(entry, replaced) for entry in items]
        if [list(map(id, entry)) for entry in read()] != [
            list(map(id, entry)) for entry in content
        ]:
            base.clear(value)
            for entry in content:
                fill(value, *entry)
        attributes(replaced)

    return restore


def _keep_array(value: Any) -> Restore:
    content, place = copy.copy(value), ... if hasattr(value, "__array__") else slice(None)
    return lambda _: value.__setitem__(place, content)


def _plain_attributes(value: object) -> dict[str, Any]:
    attributes = attributes_of(value)
    return {name: part for name, part in attributes.items() if not name.startswith(OF_TORCH)}


@functools.lru_cache(maxsize=1)
def _globals_of_torch(_modules: int) -> Mapping[int, tuple[Mapping[str, Any], str]]:
    return {
        id(part): (names, name)
        for module, names in [(name, vars(module)) for name, module in sys.modules.items()]
        if module.startswith(INSIDE_TORCH)
        for name, part in names.items()
        if isinstance(part, _CONTAINERS)
    }


def _is_global_of_torch(value: object) -> bool:
    """Whether a value is a container that torch keeps, as the counters of Dynamo, which a spec has
    imported: compiling changes it.
    """
    names, name = _globals_of_torch(len(sys.modules)).get(id(value), ({}, ""))
    return bool(name) and names.get(name) is value


def _of_names(form: str, names: Mapping[str, Any], write: Callable[..., object]) -> Anatomy:
    """Return what a class or a module of a spec's Python consists of."""

    def read() -> dict[str, Any]:
        left_out = ("__", "_abc_", *OF_TORCH)
        return {
            name: part
            for name, part in names.items()
            if not name.startswith(left_out)
            and not _OF_DYNAMO.search(name)
            and not _is_global_of_torch(part)
        }

    parts = [(f".{name}", part) for name, part in read().items()]
    return Anatomy(form, parts, functools.partial(_keep_names, read, write))


def _of_class(value: type) -> Anatomy:
    if not value.__module__.startswith(PREFIX) or isinstance(value, enum.EnumMeta):
        return Anatomy(f"class {name_of(value)}", [])

    def write(name: str, *part: object) -> None:  # without the methods of its metaclass
        (type.__setattr__ if part else type.__delattr__)(value, name, *part)

    bases = ", ".join(map(name_of, value.__bases__))
    return _of_names(f"class {name_of(value)}({bases})", vars(value), write)


def _code(code: types.CodeType) -> str:
    """Return a digest of what a function's code does, without its place in a file."""
    constants = [
        _code(part) if isinstance(part, types.CodeType) else repr(part) for part in code.co_consts
    ]
    text = repr((code.co_code, constants, code.co_names, code.co_varnames, code.co_freevars))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def _of_function(value: types.FunctionType) -> Anatomy:
    code = value.__code__
    is_torchs = str(value.__globals__.get("__name__")).startswith(("torch.", "torch_conformance."))
    form = name_of(value) + ("" if is_torchs else f" with the code {_code(code)}")
    defaults = value.__defaults__ or ()
    names = code.co_varnames[code.co_argcount - len(defaults) : code.co_argcount]
    parameters = [*zip(names, defaults, strict=True), *(value.__kwdefaults__ or {}).items()]
    parts = [(f"({name}=)", part) for name, part in parameters] + _attributes(value)
    for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is not filled yet
            parts.append((f"<{name}>", cell.cell_contents))
    return Anatomy(form, parts, functools.partial(_keep_function, value))


def _keep_function(value: types.FunctionType) -> Restore:
    cells, keywords = value.__closure__ or (), value.__kwdefaults__

    def read() -> dict[Any, Any]:
        names = ("__code__", "__defaults__", "__kwdefaults__")
        attributes: dict[Any, Any] = {name: getattr(value, name) for name in names}
        for index, cell in enumerate(cells):
            with contextlib.suppress(ValueError):
                attributes[index] = cell.cell_contents
        return attributes

    def write(name: int | str, part: object) -> None:
        if isinstance(name, int):
            cells[name].cell_contents = part
        else:
            setattr(value, name, part)

    def renew(replaced: Replaced) -> None:
        defaults = value.__defaults__ or ()
        if any(map(operator.is_not, renewed := _renewed(defaults, replaced), defaults)):
            value.__defaults__ = tuple(renewed)

    items = [_keep_items(keywords, dict)] if keywords else []
    return _all([_keep_names(read, write), renew, _keep_attributes(value), *items])


_OF_EVERY_MODULE = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


def _of_module(module: object) -> Anatomy:
    names = vars(module)
    parameters, buffers, children = (
        names.get(table, {}) for table in ("_parameters", "_buffers", "_modules")
    )
    parts = [(f".{name}", part) for name, part in [*parameters.items(), *buffers.items()]]
    transient = sorted(names.get("_non_persistent_buffers_set", ()))
    form = f"{name_of(type(module))} with {', '.join([*parameters, *buffers, *children])}"
    if transient:
        form += f", not persistent: {', '.join(transient)}"
    for name, part in vars(module).items():
        if name in _OF_EVERY_MODULE or name.startswith(OF_TORCH):
            continue
        if "_hooks" in name and isinstance(part, dict):  # by numbers that count all hooks
            form += "".join(f", {name} {_hook_name(hook)}" for hook in part.values())
            parts += [(f".{name}[{index}]", hook) for index, hook in enumerate(part.values())]
        else:
            parts.append((f".{name}", part))
    parts += [(f".{name}", part) for name, part in children.items()]

    def keep() -> Restore:
        restores = [_keep_attributes(module)]
        for name, part in vars(module).items():
            if name in _OF_EVERY_MODULE or ("_hooks" in name and isinstance(part, dict)):
                kind = next(base for base in _CONTAINERS if isinstance(part, base))
                restores.append(_keep_items(part, kind))

        return _all(restores)

    return Anatomy(form, parts, keep)


def _hook_name(hook: object) -> str:
    return name_of(hook) if isinstance(hook, types.FunctionType) else name_of(type(hook))


def _of_array(value: Any) -> Anatomy:
    """Return what an array or a number of numpy consists of: a tensor with its memory, where torch
    can have one.
    """
    form, numpy = f"{name_of(type(value))} of {value.dtype}", sys.modules["numpy"]
    if not isinstance(value, numpy.ndarray):
        return Anatomy(form, [(" value", value.item())])
    form += f", strides {list(value.strides)}" + ", read only" * (not value.flags.writeable)
    content: Any = None
    # torch warns of an array that cannot be written
    with warnings.catch_warnings(action="ignore"), contextlib.suppress(TypeError, ValueError):
        content = torch.as_tensor(numpy.ascontiguousarray(value))
    parts = [(" values", value.tolist() if content is None else content)]
    return Anatomy(form, parts, functools.partial(_keep_array, value))


def _by_protocol(value: Any) -> Anatomy:
    """Return what the protocol of ``copy`` says of an object: constructor, arguments, state, items.

    The attributes of an object of a Python class that does not define the protocol are its parts,
    and none of its code is called.
    """
    kind: Any = type(value)
    form, attributes = name_of(kind), _attributes(value)
    names = ("__reduce_ex__", "__reduce__", "__getstate__")
    is_default = kind not in copyreg.dispatch_table and all(
        getattr(kind, name) is getattr(object, name) for name in names
    )
    has_attributes = bool(attributes or _slots(kind) or kind.__dictoffset__)
    keep = functools.partial(_keep_attributes, value)
    if is_default and has_attributes:
        return Anatomy(form, attributes, keep)
    undo = keep()
    try:
        with warnings.catch_warnings(action="ignore"):  # itertools' own protocol is deprecated
            custom = copyreg.dispatch_table.get(kind)
            reduced: Any = custom(value) if custom else value.__reduce_ex__(4)
    except Exception:  # code of a spec may raise anything; C objects refuse
        reduced = None
    undo({})  # code of a spec may count its calls
    if not isinstance(reduced, tuple):
        return Anatomy(form, attributes, keep if attributes else None, is_opaque=not attributes)
    make, arguments, state = (*reduced, None)[:3]
    if state is None and kind.__module__.partition(".")[0] in sys.stdlib_module_names:
        attributes, has_attributes = [], False  # those are what it has computed and stored
    is_named = isinstance(state, dict)
    if is_named and not attributes:
        attributes = [(f".{name}", part) for name, part in state.items()]
    parts = [(f" ({index})", part) for index, part in enumerate(arguments) if part is not kind]
    parts += attributes if state is None or is_named else [*attributes, (" state", state)]
    sets_state = (
        state is not None and not (is_named and has_attributes) and hasattr(kind, "__setstate__")
    )
    if isinstance(value, BaseException):
        parts.append((".__cause__", value.__cause__))
    is_iterator = isinstance(value, Iterator) and not isinstance(value, io.IOBase)
    if not is_iterator and (has_attributes or sets_state):

        def renew(replaced: Replaced) -> None:
            if sets_state:
                value.__setstate__(*_renewed([state], replaced))

        return Anatomy(form, parts, lambda: _all([renew, keep()]))

    def rebuild(replaced: Replaced) -> Any:
        copy_of_value = make(*_renewed(arguments, replaced))
        if state is not None:
            copy_of_value.__setstate__(*_renewed([state], replaced))
        return copy_of_value

    if make is iter:
        # Dynamo returns one over a tuple for one over a list
        rest = [(f"[{index}]", part) for index, part in enumerate(copy.copy(value))]
        return Anatomy("an iterator", rest, rebuild=rebuild, advances=True)
    return Anatomy(form, parts, rebuild=rebuild if parts else None, advances=bool(parts))


# -- tensors ---------------------------------------------------------------------------------------

_COMPRESSED = ("crow_indices", "col_indices", "ccol_indices", "row_indices", "values")

_QUANTIZED = (
    *("q_scale", "q_zero_point"),
    *("q_per_channel_scales", "q_per_channel_zero_points", "q_per_channel_axis"),
)

HOOKS = {
    "_backward_hooks": "register_hook",
    "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook",
}
"""The hooks of a tensor, and what registers one."""


def is_erased(tensor: object) -> bool:
    """Whether freezing has discarded a parameter: every use of it raises."""
    return type(tensor).__name__ == "ErasedTensor"


def extent(tensor: Tensor) -> int:
    """Return the length of a strided tensor's memory from its first element to its last, gaps
    included, in elements.
    """
    if not tensor.numel():
        return 0
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    length: int = 1 + sum((size - 1) * stride for size, stride in strides)
    return length


def is_leaf(tensor: Tensor) -> bool:
    """Whether a tensor is a leaf; False for a view whose history a write has made invalid, of which
    torch refuses to say it.
    """
    with torch._C.DisableTorchFunctionSubclass(), contextlib.suppress(RuntimeError):
        return bool(tensor.is_leaf)
    return False


def tensor_grad(tensor: Tensor) -> Tensor | None:
    """Return the gradient of a leaf tensor, without a call of ``__torch_function__`` of a subclass;
    None where it has none.
    """
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.grad if is_leaf(tensor) else None


def tensor_version(tensor: Tensor) -> int | None:
    """Return the version counter of a tensor; None for an inference tensor and other tensors
    without one.
    """
    with torch._C.DisableTorchFunctionSubclass(), contextlib.suppress(RuntimeError, AttributeError):
        return int(tensor._version)
    return None


def is_freed(tensor: Tensor) -> bool:
    """Whether a tensor ends behind the bytes of its storage, as parameters that FSDP has freed: to
    read it would end the process. False for tensors without strides and of the device ``meta``.
    """
    with torch._C.DisableTorchFunctionSubclass(), contextlib.suppress(Exception):
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            return False
        end = (tensor.storage_offset() + extent(tensor)) * tensor.element_size()
        return bool(tensor.numel() and end > tensor.untyped_storage().nbytes())
    return False


def inner_tensors(tensor: Tensor) -> list[tuple[str, Any]] | None:
    """Return the tensors that hold the values of a sparse, jagged or wrapping tensor, by label;
    None for one that has its own memory.
    """
    with torch._C.DisableTorchFunctionSubclass():
        if hasattr(type(tensor), "__tensor_flatten__") and type(tensor) is not torch.Tensor:
            names, _ = tensor.__tensor_flatten__()
            return [(f".{name}", getattr(tensor, name)) for name in names]
        if tensor.layout is torch.sparse_coo:
            return _methods(tensor, ("_indices", "_values"))
        if str(tensor.layout).startswith("torch.sparse"):
            return _methods(tensor, _COMPRESSED)
    return None


def _methods(tensor: object, names: Iterable[str]) -> list[tuple[str, Any]]:
    """Return what these methods return of a tensor that has them, by label."""
    parts = []
    for name in names:
        with contextlib.suppress(RuntimeError):
            parts.append((f".{name.removeprefix('_')}", getattr(tensor, name)()))
    return parts


def _of_tensor(tensor: Tensor) -> Anatomy:
    """Return what a tensor has in addition to its values: class, kind of history, hooks,
    attributes.
    """
    if is_erased(tensor):
        return Anatomy("an erased parameter", [])
    with torch._C.DisableTorchFunctionSubclass():
        words = [name_of(type(tensor))]
        if tensor.requires_grad:
            words.append("a leaf with requires_grad" if is_leaf(tensor) else "with a grad_fn")
        if tensor.is_inference():
            words.append("of inference mode")
        words += ["conjugated"] * tensor.is_conj() + ["negated"] * tensor.is_neg()
        hooks = [
            (name, hook) for name in HOOKS for hook in (getattr(tensor, name, None) or {}).values()
        ]
        words += [f"{name[1:-6]} hook {_hook_name(hook)}" for name, hook in hooks]
        if tensor.layout is torch.sparse_coo:
            words.append(f"{tensor.sparse_dim()} sparse and {tensor.dense_dim()} dense dimensions")
            words += ["coalesced"] * tensor.is_coalesced()
        if is_freed(tensor):
            words.append(f"freed: a storage of {tensor.untyped_storage().nbytes()} bytes")
        words += map(str, _methods(tensor, _QUANTIZED if tensor.is_quantized else ()))
        inner = inner_tensors(tensor) if tensor.layout is not torch.strided else None
        words += [f"{label[1:]} of {part.dtype}" for label, part in inner or ()]
    skipped = _OF_TENSORS if is_of_torch(tensor) else (*_OF_TENSORS, "_")
    parts = [
        (f".{name}", part)
        for name, part in attributes_of(tensor).items()
        if not name.startswith(skipped)
    ]
    parts += [(f".hook[{index}]", hook) for index, (_, hook) in enumerate(hooks)]
    return Anatomy(", ".join(words), parts)


# -- the walk --------------------------------------------------------------------------------------

Leaves = dict[str, Any]
"""Tensors, plain values and forms, by path."""


class Picture:
    """What can be reached from some roots at one time.

    ``before`` is an earlier picture of the same side: then the leaves say of each object whether it
    is the one that was there. With ``keeps`` the content of every object is kept: ``restore`` sets
    it back, and ``values`` has the leaves as they were.
    """

    def __init__(
        self,
        *,
        left_out: tuple[type, ...] = (),
        keeps: bool = False,
        before: "Picture | None" = None,
    ) -> None:
        """Objects of the classes ``left_out`` are not part of the picture."""
        self.leaves: Leaves = {}
        self.places: dict[int, str] = {}
        """Where each object was met first."""
        self.objects: dict[int, Any] = {}
        """The objects themselves, so that no id is used twice."""
        self.opaque: dict[str, str] = {}
        """The classes of opaque objects, by path."""
        self.mutable: set[int] = set()
        self.modules: tuple[types.ModuleType, ...] = ()
        """Those whose globals it has."""
        self._left_out, self._before = left_out, before
        self._keeps = keeps
        self._restores: list[Restore] = []
        self._rebuildable: dict[int, tuple[Any, Anatomy, Leaves | None]] = {}
        self._tensors: dict[int, _KeptTensor] = {}
        self._storages: dict[int, _KeptStorage] = {}
        self._bytes = 0
        self._keys: dict[int, tuple[int, Any]] = {}
        self._fresh: set[int] = set()

    def add(self, path: str, value: object) -> "Picture":
        """Add what can be reached from a value, with paths that begin with ``path``."""
        waiting = [(path, value)]
        while waiting:
            where, part = waiting.pop()
            if is_atom(part):
                self.leaves[where] = part
                continue
            place = self.places.get(id(part))
            if place is not None:
                self.leaves[IDENTITY + where] = Form(f"the object at {place}")
                continue
            if isinstance(part, self._left_out):
                continue
            waiting.extend(reversed(self._parts(where, part)))
        return self

    def add_parts(self, path: str, whole: Anatomy) -> None:
        """Add parts of something that is not an object itself, as the globals of a module."""
        if self._keeps and whole.keep is not None:
            self._restores.append(whole.keep())
        for label, part in whole.parts:
            self.add(f"{path}{label[1:]}", part)

    def _parts(self, path: str, value: object) -> list[tuple[str, Any]]:
        """Note an object; return its parts with their paths."""
        whole = anatomy(value, self.key)
        tensor: Tensor | None = value if isinstance(value, torch.Tensor) else None
        is_fresh = id(value) in self._fresh
        can_change = not is_fresh and (tensor is not None or whole.keep is not None)
        if can_change or is_fresh or whole.is_opaque or whole.rebuild is not None or whole.parts:
            self.places[id(value)] = path
            self.objects[id(value)] = value
        if self._before is not None and (can_change or whole.is_opaque):
            was = self._before.places.get(id(value))
            text = "another object" if was is None else f"the object at {was}"
            self.leaves[IDENTITY + path] = Form(text)
        if can_change:
            self.mutable.add(id(value))
        if whole.is_opaque:
            self.opaque[path] = whole.form
        self.leaves[f"{path} as an object"] = Form(whole.form)
        if self._keeps:
            if tensor is not None:
                self._keep_tensor(path, tensor)
            elif whole.keep is not None:
                self._restores.append(whole.keep())
            elif whole.rebuild is not None:
                first = _fingerprint(whole) if whole.advances else None
                self._rebuildable[id(value)] = value, whole, first
        # the protocol makes what a label with a space names anew each time
        self._fresh.update(
            id(part) for label, part in whole.parts if is_fresh or label.startswith(" ")
        )
        parts = [(f"{path}{label}", part) for label, part in whole.parts]
        return parts if tensor is None else parts + self._of_tensor(path, tensor)

    def _of_tensor(self, path: str, tensor: Tensor) -> list[tuple[str, Any]]:
        if is_erased(tensor):
            self.leaves[path] = tensor
        elif tensor.is_nested and tensor.layout is torch.strided:
            for index, part in enumerate(tensor.unbind()):
                self.leaves[f"{path}[{index}]"] = part
        elif tensor.is_nested:
            for label, part in inner_tensors(tensor) or ():
                if isinstance(part, torch.Tensor):
                    self.leaves[f"{path}{label}"] = part
        elif not is_freed(tensor):
            self.leaves[path] = tensor
        grad = tensor_grad(tensor)
        return [] if grad is None else [(f"{path}{GRAD}", grad)]

    def key(self, key: object) -> str:
        """Return a key of a map as text.

        An object is named by its place, or by the order of its first use: it has no lasting text.
        """
        if is_atom(key):
            return repr(key)
        if isinstance(key, tuple):
            return f"({', '.join(map(self.key, key))})"
        if isinstance(key, type | types.FunctionType):
            return name_of(key)
        number, _ = self._keys.setdefault(id(key), (len(self._keys), key))
        return f"{type(key).__name__} #{number}"

    # -- what was there ----------------------------------------------------------------------------

    def _keep_tensor(self, path: str, tensor: Tensor) -> None:
        if is_erased(tensor):
            return
        kept_tensor = _KeptTensor(tensor)
        self._tensors[id(tensor)] = kept_tensor
        for part in kept_tensor.strided:
            storage = part.untyped_storage()
            address = int(storage._cdata)
            if address not in self._storages:
                self._bytes += storage.nbytes()
                if self._bytes > MOST_BYTES:
                    self.opaque[path] = f"{name_of(type(tensor))} of {storage.nbytes()} bytes"
                    continue
                self._storages[address] = _KeptStorage(storage)

    def restore(self) -> None:
        """Give every object the content that it had."""
        replaced = _Rebuilt(self._rebuildable)
        for restore in self._restores:
            with contextlib.suppress(Exception):  # code of a spec may raise anything
                restore(replaced)
        with torch.no_grad():
            for storage in self._storages.values():
                storage.restore()
            for tensor in self._tensors.values():
                tensor.restore(replaced)
        for old, new in replaced.items():
            self.places[id(new)], self.objects[id(new)] = self.places.get(old, ""), new

    def recapture(self) -> "Picture":
        """Return the kept picture of the same globals now."""
        return shared_state(self.modules, keeps=True)

    @functools.cached_property
    def values(self) -> Leaves:
        """The leaves as they were when the picture was made; those of tensors are copies."""
        return {path: self._value(leaf) for path, leaf in self.leaves.items()}

    def _value(self, leaf: object) -> Any:
        if not isinstance(leaf, torch.Tensor) or is_erased(leaf):
            return leaf
        kept_tensor = self._tensors.get(id(leaf))
        with torch._C.DisableTorchFunctionSubclass():
            if kept_tensor is None or not kept_tensor.is_strided:
                return leaf
            storage = self._storages.get(int(kept_tensor.alias.untyped_storage()._cdata))
            if storage is None:
                return leaf
            place = kept_tensor.alias
            if place.is_quantized:
                return place.clone()
            copied = torch.empty(0, dtype=place.dtype, device=place.device)
            copied.set_(storage.content, place.storage_offset(), tuple(place.shape), place.stride())
            return (
                copied.requires_grad_(kept_tensor.requires_grad)
                if kept_tensor.requires_grad
                else copied
            )

    def digest(self) -> str | None:
        """Return a text that is equal for pictures with equal content; None where a part is not
        known by its bits.
        """
        if self.opaque:
            return None
        leaves = []
        for path, leaf in self.leaves.items():
            content: Any = leaf
            if isinstance(leaf, torch.Tensor):
                if leaf.layout is not torch.strided or not is_of_torch(leaf):
                    return None
                plain = leaf.detach().resolve_conj().resolve_neg().cpu().contiguous()
                data = plain.reshape(-1).view(torch.uint8).numpy().data
                content = leaf.dtype, leaf.shape, leaf.device, hashlib.sha256(data).digest()
            leaves.append((path, type(leaf), content))
        return hashlib.sha256(repr(leaves).encode("utf-8", "surrogatepass")).hexdigest()


def _fingerprint(whole: Anatomy) -> Leaves:
    picture = Picture()
    for label, part in whole.parts:
        picture.add(label, part)
    return {path: repr(leaf) for path, leaf in picture.leaves.items()}


class _Rebuilt(dict[int, Any]):
    """Rebuilds an object at its first use: one that advanced, or holds such a part."""

    def __init__(self, kept: Mapping[int, tuple[Any, Anatomy, Leaves | None]]) -> None:
        super().__init__()
        self._kept = kept

    def get(self, key: int, default: object = None) -> Any:
        if key not in self and key in self._kept:
            value, whole, first = self._kept[key]
            self[key] = value
            with contextlib.suppress(Exception):  # code of a spec may raise anything
                has_advanced = first is not None and _fingerprint(anatomy(value)) != first
                if whole.rebuild and (
                    has_advanced
                    or any(self.get(id(part), part) is not part for _, part in whole.parts)
                ):
                    self[key] = whole.rebuild(self)
        return super().get(key, default)


class _KeptStorage:
    """The content of a storage."""

    def __init__(self, storage: Any) -> None:
        self._storage = storage
        self.content = storage.clone()

    def restore(self) -> None:
        """Set it back, without an advance of a version counter."""
        if self._storage.nbytes() != self.content.nbytes():
            self._storage.resize_(self.content.nbytes())
        self._storage.copy_(self.content)


class _KeptTensor:
    """The place, the gradient and the properties of a tensor."""

    def __init__(self, tensor: Tensor) -> None:
        self.tensor = tensor
        with torch._C.DisableTorchFunctionSubclass():
            self.alias = tensor.detach()
            self.requires_grad = tensor.requires_grad
            self._is_leaf = is_leaf(tensor)
            self._grad = tensor_grad(tensor)
            self._attributes = _keep_attributes(tensor)
            self._hooks = {name: dict(getattr(tensor, name, None) or {}) for name in HOOKS}
            self._version = tensor_version(tensor)
            inner = inner_tensors(tensor)
        self.strided = [
            part
            for part in ([self.alias] if inner is None else [part for _, part in inner])
            if isinstance(part, torch.Tensor)
            and part.layout is torch.strided
            and part.device.type != "meta"
            and inner_tensors(part) is None
            and not part.is_nested
        ]

        self.is_strided = any(part is self.alias for part in self.strided)

    def restore(self, replaced: Replaced) -> None:
        """Restore them."""
        tensor, alias = self.tensor, self.alias
        self._attributes(replaced)
        with torch._C.DisableTorchFunctionSubclass(), contextlib.suppress(RuntimeError, TypeError):
            if self.is_strided:
                ours, theirs = (
                    (
                        part.shape,
                        part.stride(),
                        part.storage_offset(),
                        part.dtype,
                        part.untyped_storage()._cdata,
                    )
                    for part in (tensor, alias)
                )
                if ours != theirs:
                    tensor.data = alias
            if self._is_leaf and is_leaf(tensor):
                if tensor.requires_grad != self.requires_grad:
                    tensor.requires_grad_(self.requires_grad)
                if tensor.grad is not self._grad:
                    tensor.grad = self._grad
            for name, hooks in self._hooks.items():
                current = getattr(tensor, name, None)
                if current is not None:
                    current.clear()
                    current.update(hooks)
            if self._version is not None and tensor._version != self._version:
                torch._C._autograd._unsafe_set_version_counter((tensor,), (self._version,))


def global_of(path: str) -> str:
    """Return the global that a path of the shared state begins with; empty for other paths."""
    match = re.match(r"global(?: \([0-9]+\))? (\w+)", path.removeprefix(IDENTITY))
    return match[1] if match else ""


def shared_state(
    modules: Iterable[types.ModuleType], *, keeps: bool = False, before: Picture | None = None
) -> Picture:
    """Return the picture of the state that both sides share: the globals of a spec's modules."""
    picture = Picture(keeps=keeps, before=before)
    picture.modules = tuple(modules)
    for number, module in enumerate(picture.modules):
        path, names = f"global{f' ({number})' if number else ''} ", vars(module)
        picture.add_parts(path, _of_names("globals", names, functools.partial(_write, names)))
    return picture
