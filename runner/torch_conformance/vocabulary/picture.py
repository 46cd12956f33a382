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
import hashlib
import io
import re
import types
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from torch_conformance.vocabulary.worker_torch import torch

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
)
"""Prefixes of attributes that torch's compiler sets on modules and functions, and a scheduler on an
optimizer, of which a copy has none.
"""

_OF_DYNAMO = re.compile(r"_[0-9]{6,}_c[0-9]+\Z")
"""The end of the names of globals that Dynamo adds for the code that it makes: the id of an object
and the number of a compile.
"""

_OF_TENSORS = (*OF_TORCH, "erased_name", "owning_mod_ref", "_is_", "_specialize_on")

_INSIDE_TORCH = ("torch._", "torch.fx", "torch.utils.", "torch.jit", "triton", "sympy")
"""Packages of which objects are atoms: caches and tables of the compiler."""

_BASES: tuple[type, ...] = (bool, int, float, complex, str, bytes)

GRAD = ".grad"
"""The end of the path of a gradient."""

IDENTITY = "identity of "
"""The beginning of the path of the fact which object it is."""

MOST_BYTES = 1 << 30
"""Bytes of storages that one picture keeps; the memory of further ones is not set back."""


class Form(str):
    """What an object is, beside its parts: its class, its length, the order of its keys."""

    __slots__ = ()


class Absent:
    """The value of a path that one side does not have."""

    def __repr__(self) -> str:
        return "absent"


def is_atom(value: Any) -> bool:
    """Whether a value has no parts and cannot change."""
    words = (torch.dtype, torch.device, torch.layout, torch.memory_format, torch.SymInt)
    return (
        type(value) in _BASES
        or isinstance(value, (type(None), range, slice, enum.Enum, *words))
        or (isinstance(value, _BASES) and not attributes_of(value))
    )


def name_of(kind: Any) -> str:
    """Return the name of a class or a function, without the name of a spec's module."""
    module = str(getattr(kind, "__module__", ""))
    name = getattr(kind, "__qualname__", type(kind).__qualname__)
    return name if module == "builtins" or module.startswith(PREFIX) else f"{module}.{name}"


def attributes_of(value: Any) -> dict[str, Any]:
    """Return the attributes that an object itself holds, in ``__dict__`` and in slots;
    ``__getattr__`` of its class is not called.
    """
    attributes: dict[str, Any] = {}
    with contextlib.suppress(AttributeError, TypeError):
        attributes.update(object.__getattribute__(value, "__dict__"))
    for kind in type(value).__mro__:
        for name, member in kind.__dict__.items():
            if isinstance(member, types.MemberDescriptorType) and "__slots__" in kind.__dict__:
                with contextlib.suppress(AttributeError):
                    attributes[name] = object.__getattribute__(value, name)
    return attributes


# -- what a value consists of ----------------------------------------------------------------------

Replaced = Mapping[int, Any]
"""Objects made again, by the identity of those that could not be set back in place."""


@dataclass(frozen=True)
class Anatomy:
    """What an object consists of."""

    form: str
    parts: list[tuple[str, Any]]
    """Each with its label: ``.name``, ``[key]``, ``<name>`` (closure), ``(name=)`` (default)."""
    keep: Callable[[], Callable[[Replaced], None]] | None = None
    """Keeps the content; returns what sets it back. None for what cannot change."""
    again: Callable[[Replaced], Any] | None = None
    """Makes the object again, where nothing sets it back in place, as for iterators."""
    is_opaque: bool = False


def anatomy(value: Any, key: Callable[[Any], str] = repr) -> Anatomy:
    """Return what a value consists of that is no atom. ``key`` returns the text of a key of a map.

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
            return Anatomy(
                f"method {name_of(value)}",
                [(".__self__", value.__self__), (".__func__", value.__func__)],
            )
        case types.BuiltinMethodType():
            owner = value.__self__
            is_bound = owner is not None and not isinstance(owner, types.ModuleType | type)
            return Anatomy(name_of(value), [(".__self__", owner)] if is_bound else [])
        case weakref.ref():
            return Anatomy(
                f"{form} of {'nothing' if value() is None else 'an object'}", [("()", value())]
            )
        case contextvars.ContextVar():
            return _of_variable(value)
        case dict():
            items = list(_base(value).items(value))
            parts = [(f"[{key(name)}]", part) for name, part in items]
            order = ", ".join(key(name) for name, _ in items)
            own = [] if kind is dict else _attributes(value)
            form = f"{form}({order})" + _remainder(value)
            return Anatomy(form, [*parts, *own], functools.partial(_keep_map, value))
        case tuple():
            names = getattr(value, "_fields", None)
            labels = [f".{name}" for name in names] if names else _indices(value)
            own = [] if kind is tuple else _attributes(value)
            return Anatomy(f"{form} of {len(value)}", [*zip(labels, value, strict=True), *own])
        case list() | collections.deque():
            own = [] if kind is list else _attributes(value)
            return Anatomy(
                f"{form} of {len(value)}{_remainder(value)}",
                [*zip(_indices(value), value, strict=True), *own],
                functools.partial(_keep_sequence, value),
            )
        case set() | frozenset():
            members = sorted(f"{type(item).__name__} {key(item)}" for item in value)
            keep = None if isinstance(value, frozenset) else functools.partial(_keep_set, value)
            return Anatomy(f"{form} of {', '.join(members)}", _attributes(value), keep)
        case bytearray():
            return Anatomy(
                form, [(" content", bytes(value))], functools.partial(_keep_array, value)
            )
        case array.array():
            content = f"{value.typecode}{value.tolist()!r}"
            return Anatomy(form, [(" content", content)], functools.partial(_keep_array, value))
    if isinstance(value, _BASES):
        plain: Any = next(base(value) for base in _BASES if isinstance(value, base))
        return Anatomy(form, [(" value", plain), *_attributes(value)])
    if kind.__module__ == "numpy" and hasattr(value, "__array__"):
        return _of_array(value)
    if str(kind.__module__).startswith(_INSIDE_TORCH) and kind is not torch.Generator:
        return Anatomy(form, [])
    return _by_protocol(value)


def _of_variable(variable: contextvars.ContextVar[Any]) -> Anatomy:
    try:
        now = variable.get()
    except LookupError:  # without a value nothing can be set back
        return Anatomy(f"{name_of(type(variable))} without a value", [], is_opaque=True)

    def restore(again: Replaced) -> None:
        variable.set(again.get(id(now), now))

    return Anatomy(name_of(type(variable)), [(".value", now)], lambda: restore)


def _indices(value: Any) -> list[str]:
    return [f"[{index}]" for index in range(len(value))]


def _remainder(value: Any) -> str:
    """Return what a container of a class of the standard library has beside its items."""
    match value:
        case collections.deque():
            return "" if value.maxlen is None else f", at most {value.maxlen}"
        case collections.defaultdict():
            factory = value.default_factory
            return "" if factory is None else f" with {name_of(factory)}"
    return ""


def _attributes(value: Any) -> list[tuple[str, Any]]:
    return [(f".{name}", part) for name, part in sorted(_plain_attributes(value).items())]


def _base(value: dict[Any, Any]) -> Any:
    """Return the class whose methods read and write a map, whatever its own class overrides."""
    return collections.OrderedDict if isinstance(value, collections.OrderedDict) else dict


def _keep_map(value: Any) -> Callable[[Replaced], None]:
    base = _base(value)
    items, attributes = list(base.items(value)), _keep_attributes(value)

    def restore(again: Replaced) -> None:
        wanted = [(name, again.get(id(part), part)) for name, part in items]
        now = list(base.items(value))
        if len(now) != len(wanted) or any(
            ours[0] is not theirs[0] or ours[1] is not theirs[1]
            for ours, theirs in zip(now, wanted, strict=True)
        ):
            base.clear(value)
            for name, part in wanted:
                base.__setitem__(value, name, part)
        attributes(again)

    return restore


def _keep_sequence(value: Any) -> Callable[[Replaced], None]:
    items, attributes = list(value), _keep_attributes(value)

    def restore(again: Replaced) -> None:
        value.clear()
        value.extend(again.get(id(part), part) for part in items)
        attributes(again)

    return restore


def _keep_array(value: Any) -> Callable[[Replaced], None]:
    content = value[:]

    def restore(_: Replaced) -> None:
        value[:] = content

    return restore


def _keep_set(value: Any) -> Callable[[Replaced], None]:
    items = list(value)

    def restore(_: Replaced) -> None:
        value.clear()
        value.update(items)

    return restore


def _keep_attributes(value: Any) -> Callable[[Replaced], None]:
    """Keep the attributes of an object; those that torch's compiler sets stay as they are."""
    before = dict(_plain_attributes(value))

    def restore(again: Replaced) -> None:
        now = _plain_attributes(value)
        for name in now.keys() - before.keys():
            with contextlib.suppress(AttributeError, TypeError):
                object.__delattr__(value, name)
        for name, part in before.items():
            wanted = again.get(id(part), part)
            if now.get(name, _NOTHING) is wanted:
                continue
            with contextlib.suppress(AttributeError, TypeError):
                if isinstance(value, torch.nn.Module) or name in getattr(value, "__dict__", {}):
                    vars(value)[name] = wanted
                else:
                    object.__setattr__(value, name, wanted)

    return restore


def _plain_attributes(value: Any) -> dict[str, Any]:
    attributes = attributes_of(value)
    return {name: part for name, part in attributes.items() if not name.startswith(OF_TORCH)}


_NOTHING = object()


def _of_class(value: type) -> Anatomy:
    if not value.__module__.startswith(PREFIX) or isinstance(value, enum.EnumMeta):
        return Anatomy(f"class {name_of(value)}", [])

    def is_own(name: str) -> bool:
        return not name.startswith(("__", "_abc_", *OF_TORCH))

    parts = [(f".{name}", part) for name, part in vars(value).items() if is_own(name)]
    bases = ", ".join(name_of(base) for base in value.__bases__)
    return Anatomy(
        f"class {name_of(value)}({bases})",
        parts,
        functools.partial(_keep_attributes_of_class, value, is_own),
    )


def _keep_attributes_of_class(
    value: type, is_own: Callable[[str], bool]
) -> Callable[[Replaced], None]:
    before = {name: part for name, part in vars(value).items() if is_own(name)}

    def restore(again: Replaced) -> None:
        for name in [name for name in vars(value) if is_own(name) and name not in before]:
            delattr(value, name)
        for name, part in before.items():
            if vars(value).get(name, _NOTHING) is not (part := again.get(id(part), part)):
                setattr(value, name, part)

    return restore


def _of_namespace(value: types.ModuleType) -> Anatomy:
    """Return what a module of a spec's Python consists of: its globals."""

    def is_own(name: str) -> bool:
        return not name.startswith(("__", *OF_TORCH)) and not _OF_DYNAMO.search(name)

    parts = [(f".{name}", part) for name, part in vars(value).items() if is_own(name)]
    return Anatomy(
        "globals",
        parts,
        functools.partial(_keep_attributes_of_class, value, is_own),  # type: ignore[arg-type]
    )


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
    is_local = "<locals>" in value.__qualname__ or "<lambda>" in value.__qualname__
    form = name_of(value) + (f" with the code {_code(code)}" if is_local and not is_torchs else "")
    names = code.co_varnames[: code.co_argcount]
    defaults = value.__defaults__ or ()
    parts = [
        (f"({name}=)", part)
        for name, part in zip(names[len(names) - len(defaults) :], defaults, strict=True)
    ]
    parts += [(f"({name}=)", part) for name, part in (value.__kwdefaults__ or {}).items()]
    parts += [
        (f".{name}", part)
        for name, part in vars(value).items()
        if name != "__wrapped__" and not name.startswith(OF_TORCH)
    ]
    for name, cell in zip(code.co_freevars, value.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell that is not filled yet
            parts.append((f"<{name}>", cell.cell_contents))
    return Anatomy(form, parts, functools.partial(_keep_function, value) if parts else None)


def _keep_function(value: types.FunctionType) -> Callable[[Replaced], None]:
    attributes, defaults, cells = dict(vars(value)), value.__defaults__, []
    keywords = dict(value.__kwdefaults__ or {})
    for cell in value.__closure__ or ():
        with contextlib.suppress(ValueError):
            cells.append((cell, cell.cell_contents))

    def restore(again: Replaced) -> None:
        for cell, content in cells:
            cell.cell_contents = again.get(id(content), content)
        for name in [name for name in vars(value) if name not in attributes]:
            if not name.startswith(OF_TORCH):
                del vars(value)[name]
        vars(value).update(attributes)
        if value.__defaults__ is not defaults:
            value.__defaults__ = defaults
        if (value.__kwdefaults__ or {}) != keywords:
            value.__kwdefaults__ = keywords

    return restore


_OF_EVERY_MODULE = ("_parameters", "_buffers", "_modules", "_non_persistent_buffers_set")


def _of_module(module: Any) -> Anatomy:
    parts: list[tuple[str, Any]] = []
    tables = ("_parameters", "_buffers", "_modules")
    for table in tables[:2]:
        parts += [(f".{name}", part) for name, part in vars(module).get(table, {}).items()]
    names = [f".{name}" for table in tables for name in vars(module).get(table, {})]
    transient = sorted(vars(module).get("_non_persistent_buffers_set", ()))
    form = f"{name_of(type(module))} with {', '.join(name[1:] for name in names)}"
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
    parts += [(f".{name}", part) for name, part in vars(module).get("_modules", {}).items()]

    def keep() -> Callable[[Replaced], None]:
        tables = [
            _keep_map(part)
            for name, part in vars(module).items()
            if isinstance(part, dict) and (name in _OF_EVERY_MODULE or "_hooks" in name)
        ]
        attributes = _keep_attributes(module)

        def restore(again: Replaced) -> None:
            attributes(again)
            for table in tables:
                table(again)

        return restore

    return Anatomy(form, parts, keep)


def _hook_name(hook: Any) -> str:
    return name_of(hook) if isinstance(hook, types.FunctionType) else name_of(type(hook))


def _of_array(value: Any) -> Anatomy:
    """Return what an array or a number of numpy consists of: a tensor with its memory, where torch
    can have one.
    """
    form = f"{name_of(type(value))} of {value.dtype}"
    if not value.shape:
        return Anatomy(form, [(" value", value.item())])
    form += f", strides {list(value.strides)}"
    if value.dtype.kind in "biufc":
        with warnings.catch_warnings(), contextlib.suppress(TypeError, ValueError):
            warnings.simplefilter("ignore")  # an array that cannot be written
            shared = value if all(stride >= 0 for stride in value.strides) else value.copy()
            return Anatomy(form, [(" values", torch.as_tensor(shared))])
    return Anatomy(form, [(" values", value.tolist())])


def _by_protocol(value: Any) -> Anatomy:
    """Return what the protocol of ``copy`` says of an object: constructor, arguments, state, items.

    The attributes of an object of a Python class that does not define the protocol are its parts,
    and none of its code is called.
    """
    kind: Any = type(value)
    form, attributes = name_of(kind), _attributes(value)
    is_default = (
        kind.__reduce_ex__ is object.__reduce_ex__
        and kind.__reduce__ is object.__reduce__
        and getattr(kind, "__getstate__", None) is getattr(object, "__getstate__", None)
        and kind not in copyreg.dispatch_table
    )
    if is_default and attributes:
        return Anatomy(form, attributes, functools.partial(_keep_attributes, value))
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # itertools' own protocol is deprecated
            custom = copyreg.dispatch_table.get(kind)
            reduced: Any = custom(value) if custom else value.__reduce_ex__(4)
    except Exception:  # code of a spec may raise anything; C objects refuse
        reduced = None
    if not isinstance(reduced, tuple):
        keep = functools.partial(_keep_attributes, value) if attributes else None
        return Anatomy(form, attributes, keep, is_opaque=not attributes)
    function, arguments, state, items, pairs = (*reduced, None, None, None)[:5]
    arguments = [part for part in arguments if part is not kind]
    parts = [(f"({index})", part) for index, part in enumerate(arguments)]
    parts += [(f"[{index}]", part) for index, part in enumerate(items or ())]
    parts += [(f"[{name!r}]", part) for name, part in pairs or ()]
    is_named = isinstance(state, dict)
    if is_named and str(kind.__module__).startswith("torch."):
        # what torch itself calls the state: a copy of an optimizer has other attributes
        attributes = [(f".{name}", part) for name, part in state.items()]
    parts += attributes
    if state is not None and not is_named:
        parts.append((" state", state))
    sets_state = state is not None and not is_named and hasattr(value, "__setstate__")
    is_iterator = isinstance(value, Iterator) and not isinstance(value, io.IOBase)
    if not is_iterator and (attributes or is_named or sets_state):

        def keep_state() -> Callable[[Replaced], None]:
            before = _keep_attributes(value)

            def restore(again: Replaced) -> None:
                if sets_state:
                    value.__setstate__(state)
                before(again)

            return restore

        return Anatomy(form, parts, keep_state)
    if is_iterator:

        def again(replaced: Replaced) -> Any:
            made = reduced[0](*(replaced.get(id(part), part) for part in reduced[1]))
            if state is not None:
                made.__setstate__(state)
            return made

        if function is not iter:
            return Anatomy(form, parts, again=again)
        # Dynamo returns one over a tuple for one over a list
        rest = [(f"[{index}]", part) for index, part in enumerate(copy.copy(value))]
        return Anatomy("an iterator", rest, again=again)
    return Anatomy(form, parts)


# -- tensors ---------------------------------------------------------------------------------------

_COMPRESSED = {
    "sparse_csr": ("crow_indices", "col_indices"),
    "sparse_bsr": ("crow_indices", "col_indices"),
    "sparse_csc": ("ccol_indices", "row_indices"),
    "sparse_bsc": ("ccol_indices", "row_indices"),
}

HOOKS = {
    "_backward_hooks": "register_hook",
    "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook",
}
"""The hooks of a tensor, and what registers one."""


def is_erased(tensor: Any) -> bool:
    """Whether freezing has discarded a parameter: every use of it raises."""
    return type(tensor).__name__ == "ErasedTensor"


def extent(tensor: Any) -> int:
    """Return the length of a strided tensor's memory from its first element to its last, gaps
    included, in elements.
    """
    if not tensor.numel():
        return 0
    strides = zip(tensor.shape, tensor.stride(), strict=True)
    length: int = 1 + sum((size - 1) * stride for size, stride in strides)
    return length


def is_leaf(tensor: Any) -> bool:
    """Whether a tensor is a leaf; False for a view whose history a write has made invalid, of which
    torch refuses to say it.
    """
    with torch._C.DisableTorchFunctionSubclass(), contextlib.suppress(RuntimeError):
        return bool(tensor.is_leaf)
    return False


def is_freed(tensor: Any) -> bool:
    """Whether a tensor is longer than its storage, as parameters that FSDP has freed: to read it
    would end the process.
    """
    with torch._C.DisableTorchFunctionSubclass(), contextlib.suppress(Exception):
        if tensor.layout is not torch.strided or tensor.device.type == "meta":
            return False
        end = (tensor.storage_offset() + extent(tensor)) * tensor.element_size()
        return bool(tensor.numel() and end > tensor.untyped_storage().nbytes())
    return False


def inner_tensors(tensor: Any) -> list[tuple[str, Any]] | None:
    """Return the tensors that hold the values of a sparse, jagged or wrapping tensor, by label;
    None for one that has its own memory.
    """
    with torch._C.DisableTorchFunctionSubclass():
        if hasattr(type(tensor), "__tensor_flatten__") and type(tensor) is not torch.Tensor:
            names, _ = tensor.__tensor_flatten__()
            return [(f".{name}", getattr(tensor, name)) for name in names]
        if tensor.layout is torch.sparse_coo:
            return [(".indices", tensor._indices()), (".values", tensor._values())]
        if (names := _COMPRESSED.get(str(tensor.layout).removeprefix("torch."))) is not None:
            inner = [(f".{name}", getattr(tensor, name)()) for name in names]
            return [*inner, (".values", tensor.values())]
    return None


def _of_tensor(tensor: Any) -> Anatomy:
    """Return what a tensor has beside its values: class, kind of history, hooks, attributes."""
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
        inner = inner_tensors(tensor) if tensor.layout is not torch.strided else None
        words += [f"{label[1:]} of {part.dtype}" for label, part in inner or ()]
    skipped = (
        _OF_TENSORS if type(tensor) in (torch.Tensor, torch.nn.Parameter) else (*_OF_TENSORS, "_")
    )
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
        """Objects of the classes ``left_out`` are no part of the picture."""
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
        self._restores: list[Callable[[Replaced], None]] = []
        self._again: list[tuple[Any, Leaves, Callable[[Replaced], Any]]] = []
        self._tensors: dict[int, _KeptTensor] = {}
        self._storages: dict[int, _KeptStorage] = {}
        self._bytes = 0
        self._keys: dict[int, tuple[int, Any]] = {}
        self._fresh: set[int] = set()

    def add(self, path: str, value: Any) -> "Picture":
        """Add what can be reached from a value, with paths that begin with ``path``."""
        waiting = [(path, value)]
        while waiting:
            where, part = waiting.pop()
            if is_atom(part):
                self.leaves[where] = part
                continue
            known = self.places.get(id(part))
            if known is not None:
                self.leaves[IDENTITY + where] = Form(f"the object at {known}")
                continue
            if isinstance(part, self._left_out):
                continue
            waiting.extend(reversed(self._parts(where, part)))
        return self

    def add_globals(self, path: str, module: types.ModuleType) -> "Picture":
        """Add the globals of a module of a spec's Python."""
        whole = _of_namespace(module)
        if self._keeps and whole.keep is not None:
            self._restores.append(whole.keep())
        for label, part in whole.parts:
            self.add(f"{path}{label[1:]}", part)
        return self

    def _parts(self, path: str, value: Any) -> list[tuple[str, Any]]:
        """Note an object; return its parts with their paths."""
        whole = anatomy(value, self.key)
        is_tensor = isinstance(value, torch.Tensor)
        is_fresh = id(value) in self._fresh
        can_change = not is_fresh and (is_tensor or whole.keep is not None)
        if can_change or is_fresh or whole.is_opaque or whole.again is not None or whole.parts:
            self.places[id(value)] = path
            self.objects[id(value)] = value
        if can_change or whole.is_opaque:
            was = None if self._before is None else self._before.places.get(id(value))
            if self._before is not None:
                text = "another object" if was is None else f"the object at {was}"
                self.leaves[IDENTITY + path] = Form(text)
        if can_change:
            self.mutable.add(id(value))
        if whole.is_opaque:
            self.opaque[path] = whole.form
        self.leaves[f"{path} as an object"] = Form(whole.form)
        if self._keeps:
            if is_tensor:
                self._keep_tensor(path, value)
            elif whole.keep is not None:
                self._restores.append(whole.keep())
            elif whole.again is not None:
                self._again.append((value, _fingerprint(whole), whole.again))
        # the protocol makes what a label with a space names anew each time
        self._fresh.update(
            id(part) for label, part in whole.parts if is_fresh or label.startswith(" ")
        )
        parts = [(f"{path}{label}", part) for label, part in whole.parts]
        return parts + self._of_tensor(path, value) if is_tensor else parts

    def _of_tensor(self, path: str, tensor: Any) -> list[tuple[str, Any]]:
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
        with torch._C.DisableTorchFunctionSubclass():
            grad = tensor.grad if is_leaf(tensor) else None
        return [] if grad is None else [(f"{path}{GRAD}", grad)]

    def key(self, key: Any) -> str:
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

    def _keep_tensor(self, path: str, tensor: Any) -> None:
        if is_erased(tensor):
            return
        kept = _KeptTensor(tensor)
        self._tensors[id(tensor)] = kept
        for part in kept.strided:
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
        replaced: dict[int, Any] = {}
        for value, fingerprint, again in reversed(self._again):  # inner ones first
            with contextlib.suppress(Exception):
                if _fingerprint(anatomy(value)) != fingerprint:
                    replaced[id(value)] = again(replaced)
        for old, new in replaced.items():
            self.places[id(new)], self.objects[id(new)] = self.places.get(old, ""), new
        for restore in self._restores:
            with contextlib.suppress(Exception):  # code of a spec may raise anything
                restore(replaced)
        with torch.no_grad():
            for storage in self._storages.values():
                storage.restore()
            for tensor in self._tensors.values():
                tensor.restore()

    def again(self) -> "Picture":
        """Return the kept picture of the same globals now."""
        return shared_state(self.modules, keeps=True)

    @functools.cached_property
    def values(self) -> Leaves:
        """The leaves as they were when the picture was made; those of tensors are copies."""
        return {path: self._value(leaf) for path, leaf in self.leaves.items()}

    def _value(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor) or is_erased(leaf):
            return leaf
        kept = self._tensors.get(id(leaf))
        with torch._C.DisableTorchFunctionSubclass():
            if kept is None or len(kept.strided) != 1 or kept.strided[0] is not kept.alias:
                return leaf
            storage = self._storages.get(int(kept.alias.untyped_storage()._cdata))
            if storage is None:
                return leaf
            place = kept.alias
            copied = torch.empty(0, dtype=place.dtype, device=place.device)
            copied.set_(storage.content, place.storage_offset(), tuple(place.shape), place.stride())
            return copied.requires_grad_(kept.requires_grad) if kept.requires_grad else copied

    def digest(self) -> str | None:
        """Return a text that is equal for pictures with equal content; None where a part is not
        known by its bits.
        """
        if self.opaque:
            return None
        hashed = hashlib.sha256()
        for path, leaf in self.leaves.items():
            hashed.update(f"{path}\0".encode("utf-8", "surrogatepass"))
            if not isinstance(leaf, torch.Tensor):
                hashed.update(f"{type(leaf)} {leaf!r} ".encode("utf-8", "surrogatepass"))
                continue
            if leaf.layout is not torch.strided or type(leaf) not in (
                torch.Tensor,
                torch.nn.Parameter,
            ):
                return None
            hashed.update(f"{leaf.dtype} {list(leaf.shape)} {leaf.device} ".encode())
            plain = leaf.detach().resolve_conj().resolve_neg().cpu().contiguous()
            hashed.update(plain.reshape(-1).view(torch.uint8).numpy().data)
        return hashed.hexdigest()


def _fingerprint(whole: Anatomy) -> Leaves:
    picture = Picture()
    for label, part in whole.parts:
        picture.add(label, part)
    return {path: repr(leaf) for path, leaf in picture.leaves.items()}


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

    def __init__(self, tensor: Any) -> None:
        self.tensor = tensor
        with torch._C.DisableTorchFunctionSubclass():
            self.alias = tensor.detach()
            self.requires_grad = tensor.requires_grad
            self._is_leaf = is_leaf(tensor)
            self._grad = tensor.grad if is_leaf(tensor) else None
            self._attributes = dict(vars(tensor)) if hasattr(tensor, "__dict__") else {}
            self._hooks = {name: dict(getattr(tensor, name, None) or {}) for name in HOOKS}
            self._version: int | None = None
            with contextlib.suppress(RuntimeError):
                self._version = tensor._version
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

    def restore(self) -> None:
        """Set them back."""
        tensor, alias = self.tensor, self.alias
        with torch._C.DisableTorchFunctionSubclass(), contextlib.suppress(RuntimeError, TypeError):
            if len(self.strided) == 1 and self.strided[0] is alias:
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
            if vars(tensor) != self._attributes and self._attributes.keys() ^ vars(tensor).keys():
                for name in [name for name in vars(tensor) if name not in self._attributes]:
                    delattr(tensor, name)
            for name, hooks in self._hooks.items():
                now = getattr(tensor, name, None)
                if now is not None and dict(now) != hooks:
                    now.clear()
                    now.update(hooks)
            if self._version is not None and tensor._version != self._version:
                torch._C._autograd._unsafe_set_version_counter((tensor,), (self._version,))


def global_of(path: str) -> str:
    """Return the global that a path of the shared state begins with; empty for other paths."""
    found = re.match(r"global(?: \([0-9]+\))? (\w+)", path.removeprefix(IDENTITY))
    return found[1] if found else ""


def shared_state(
    modules: Iterable[types.ModuleType], *, keeps: bool = False, before: Picture | None = None
) -> Picture:
    """Return the picture of the state that both sides share: the globals of a spec's modules."""
    picture = Picture(keeps=keeps, before=before)
    picture.modules = tuple(modules)
    for number, module in enumerate(picture.modules):
        picture.add_globals(f"global{f' ({number})' if number else ''} ", module)
    return picture
