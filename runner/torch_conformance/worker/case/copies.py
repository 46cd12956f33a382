"""Copies of what a case can change, and which values these are."""

import array
import collections
import contextlib
import copy
import enum
import functools
import hashlib
import io
import itertools
import operator
import random
import sys
import types
import warnings
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_conformance.vocabulary.expectations.comparing import (
    attributes_of,
    is_keyless,
    items_of,
    opened,
)
from torch_conformance.worker.case.source_module import PREFIX
from torch_conformance.worker.case.state import OF_TORCH
from torch_conformance.worker.torch_compat import compiling

PLAIN = (torch.Tensor, torch.nn.Parameter)

_DATA = (type(None), bool, int, float, complex, str, bytes)

_IMMUTABLE = (
    *(*_DATA, range, slice, type, enum.Enum),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format, torch.SymInt),
    *(types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
)


_CHANGEABLE = (
    list,
    dict,
    set,
    bytearray,
    deque,
    array.array,
    io.BytesIO,
    io.StringIO,
    random.Random,
)
"""Kinds of Python's own objects that can change."""


class Live:
    """Stands for an object that cannot be copied.

    Its value at the time of naming is unknown later.
    """

    def __init__(self, kind: type, why: Exception) -> None:
        self.kind = f"{kind.__module__}.{kind.__qualname__}"
        self.why = f"{type(why).__name__}: {why}"[:200]

    def refuse(self, name: str) -> LookupError:
        """Return the error of a comparison with the named value."""
        return LookupError(
            f"'{name}' holds a {self.kind}, which cannot be copied ({self.why}): its value at "
            "the time of naming is unknown; "
            "bind the name to plain values or tensors instead"
        )


def plain(tensor: torch.Tensor) -> torch.Tensor:
    """Return a plain ``torch.Tensor`` that shares the storage of a tensor of a Python subclass.

    A measurement of it does not call ``__torch_function__`` of the subclass. Wrapper subclasses and
    nested tensors have no storage of their own; they are returned unchanged, and so are sparse
    tensors.
    """
    kind = type(tensor)
    if kind in PLAIN or is_traceable_wrapper_subclass(tensor):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        if tensor.is_nested or tensor.layout is not torch.strided:
            return tensor
        if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            try:
                if torch.Tensor.data_ptr(tensor) == 0:
                    return tensor
            except RuntimeError:  # a wrapper without a storage
                return tensor
        plain_tensor: torch.Tensor = torch.Tensor.as_subclass(tensor, torch.Tensor)
        return plain_tensor


def _is_size(value: Any) -> bool:
    return isinstance(value, torch.Size)  # pytree makes a tuple of it


def is_plain_strided(tensor: torch.Tensor) -> bool:
    """Whether a tensor is of torch's own class and lies in strided memory of its own."""
    return type(tensor) in PLAIN and tensor.layout is torch.strided and not tensor.is_nested


def measured(value: Any) -> Any:
    """Return a value with ``plain`` applied to every tensor in it."""
    return pytree.tree_map_only(torch.Tensor, plain, value, is_leaf=_is_size)


def parts_of(value: Any) -> list[Any]:
    """Return the tensors of a value and its modules with all that these consist of: modules,
    parameters, buffers.
    """
    parts: list[Any] = []
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, torch.nn.Module):
            parts += [*leaf.modules(), *leaf.parameters(), *leaf.buffers()]
        elif isinstance(leaf, torch.Tensor):
            parts.append(leaf)
    return parts


def tensors_of(value: Any) -> list[torch.Tensor]:
    """Return the tensors of a value, with the parameters and buffers of its modules."""
    return [part for part in parts_of(value) if isinstance(part, torch.Tensor)]


def bytes_of(value: Any) -> int:
    """Return the size of the tensors of a value."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(value))


def apart(value: Any, twins: "Twins | None" = None) -> Any:
    """Return a deep copy; raise ``TypeError`` where it shares a module or a tensor with the
    original, or where a part cannot be copied.
    """
    try:
        duplicate = deep(value, twins)
    except Exception as error:
        # __deepcopy__ and __reduce__ of an object of a spec may raise anything
        hint = "define __deepcopy__ in its class, or create it within the function"
        raise TypeError(
            f"{_culprit(value)} cannot be copied for the eager side ({type(error).__name__}: "
            f"{error}): {hint}"
        ) from error
    ours = {id(part) for part in parts_of(value)}
    for part in parts_of(duplicate):
        if id(part) in ours:
            raise TypeError(
                f"a copy of a {type(part).__module__}.{type(part).__qualname__} is the object "
                "itself: see its __deepcopy__"
            )
    return duplicate


def _culprit(value: Any) -> str:
    """Return the name of the innermost part of a value that cannot be copied."""
    walk, path = _Walk(parameters=True), ""
    while True:
        parts = [
            (pytree.keystr(key), part)
            for key, part in pytree.tree_flatten_with_path(value)[0]
            if part is not value
        ]
        if isinstance(value, torch.nn.Module):
            parts += [(f".{name}", part) for name, part in value._modules.items()]
        for name, part in [*parts, *walk.parts(value)]:
            try:
                deep(part)
            except Exception:  # as of the whole
                value, path = part, f"{path}{name}"
                break
        else:
            return (
                f"the {type(value).__module__}.{type(value).__qualname__} at {path or 'its root'}"
            )
        if len(path) > _MOST_PATH:
            return f"a part at {path}"


def deep(value: Any, twins: "Twins | None" = None) -> Any:
    """Return a deep copy; hooks of tensors, closures, defaults of functions and weak references
    refer to the copies.

    A tensor that an operation made becomes one without the history before it, but no leaf: it gets
    no gradient. ``twins`` are known copies of tensors, which the copy refers to; those that are
    made are added to them.
    """
    memo: dict[int, Any] = {} if twins is None else twins.known()
    with _deep_copies():
        duplicate = copy.deepcopy(value, memo)
        # where deepcopy keeps what it has copied
        originals = [
            tensor for tensor in memo.get(id(memo), ()) if isinstance(tensor, torch.Tensor)
        ]
        for original in [*originals, *(twins.originals() if twins is not None else ())]:
            copied = memo.get(id(original))
            if not isinstance(copied, torch.Tensor):
                continue
            grad = (
                tensor_grad(original) if isinstance(original, torch.nn.Parameter) else None
            )  # the copy of a parameter has none
            if grad is not None and tensor_grad(copied) is None:
                copied.grad = memo.get(id(grad)) if id(grad) in memo else _copy(grad)
            for name, register in _TENSOR_HOOKS.items():
                with torch._C.DisableTorchFunctionSubclass():
                    if getattr(copied, name):
                        getattr(copied, name).clear()
                    for hook in (getattr(original, name) or {}).values():
                        getattr(copied, register)(copy.deepcopy(hook, memo))
    if twins is not None:
        twins.add((original, memo.get(id(original))) for original in originals)
    return duplicate


_TENSOR_HOOKS = {
    "_backward_hooks": "register_hook",
    "_post_accumulate_grad_hooks": "register_post_accumulate_grad_hook",
}
"""The hooks of a tensor, and what registers one."""

_MOST_PATH = 200
"""Characters of the path of a part that cannot be copied."""


@contextlib.contextmanager
def _deep_copies() -> Iterator[None]:
    """In this context ``copy.deepcopy`` copies functions that hold what is copied, weak references
    to it, and tensors of each kind.
    """
    dispatch: dict[Any, Any] = copy._deepcopy_dispatch  # type: ignore[attr-defined]
    atoms, of_tensor = getattr(copy, "_atomic_types", None), torch.Tensor.__deepcopy__
    kinds = {
        types.FunctionType: _copy_of_function,
        weakref.ref: lambda weak, memo: (
            weakref.ref(memo[id(weak())]) if id(weak()) in memo else weak
        ),
    }
    before = {kind: dispatch.get(kind) for kind in kinds}

    def copy_of_tensor(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        with torch._C.DisableTorchFunctionSubclass():
            is_leaf, is_jagged = tensor.is_leaf, tensor.layout is torch.jagged
        if is_jagged and is_leaf:
            # torch's own copy has new offsets under the old symbol of its size
            duplicate = tensor.detach().clone().requires_grad_(tensor.requires_grad)
            duplicate.grad = None if tensor.grad is None else tensor.grad.clone()
            return duplicate
        if is_leaf:
            try:
                return of_tensor(tensor, memo)
            except RuntimeError:  # a subclass for which torch's own copy has another class
                return _copy_of_subclass(tensor, memo)
        with torch.enable_grad():
            return _copy(tensor).requires_grad_().clone()

    dispatch.update(kinds)
    torch.Tensor.__deepcopy__ = copy_of_tensor
    if atoms is not None:
        copy._atomic_types = atoms - set(kinds)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        torch.Tensor.__deepcopy__ = of_tensor
        if atoms is not None:
            copy._atomic_types = atoms  # type: ignore[attr-defined]
        for kind, copier in before.items():
            if copier is None:
                del dispatch[kind]
            else:
                dispatch[kind] = copier


def _copy_of_subclass(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    kind: Any = type(tensor)
    with torch._C.DisableTorchFunctionSubclass(), torch.no_grad():
        if is_traceable_wrapper_subclass(tensor):
            names, context = kind.__tensor_flatten__(tensor)
            parts = {name: copy.deepcopy(getattr(tensor, name), memo) for name in names}
            duplicate = kind.__tensor_unflatten__(parts, context, tensor.size(), tensor.stride())
        else:
            duplicate = _copy(tensor).as_subclass(kind)
            duplicate.__dict__.update(copy.deepcopy(tensor.__dict__, memo))
        return duplicate.requires_grad_(tensor.requires_grad)


def _copy_of_function(function: types.FunctionType, memo: dict[int, Any]) -> types.FunctionType:
    """Return a function whose closure, defaults and attributes are copies; the function itself
    where it holds nothing that can change.
    """
    if not _can_change(function, memo, set()):
        return function
    cells = tuple(
        memo.setdefault(id(cell), types.CellType()) for cell in function.__closure__ or ()
    )  # functions may share a cell
    copied = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, None, cells or None
    )
    memo[id(function)] = copied  # before its parts, which may refer to it
    functools.update_wrapper(copied, function, updated=())
    copied.__dict__.pop("__wrapped__", None)
    copied.__defaults__, copied.__kwdefaults__ = (
        _copied_part(part, memo) for part in (function.__defaults__, function.__kwdefaults__)
    )
    copied.__dict__.update(
        {name: _copied_part(part, memo) for name, part in vars(function).items()}
    )
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            cell.cell_contents = _copied_part(original.cell_contents, memo)
    return copied


def _copied_part(part: Any, memo: dict[int, Any]) -> Any:
    try:
        return copy.deepcopy(part, memo)
    except Exception:  # a lock, a file: both sides share it, as they share globals
        return part


def _state_of(
    function: types.FunctionType, memo: Mapping[int, Any], seen: set[int]
) -> Iterator[tuple[str, Any]]:
    """Yield what a function holds beside its globals and can change: defaults, closure, attributes;
    each with its name.
    """
    names = function.__code__.co_varnames[: function.__code__.co_argcount]
    defaults = function.__defaults__ or ()
    parts = [
        *zip((f"({name}=)" for name in names[len(names) - len(defaults) :]), defaults, strict=True)
    ]
    parts += [(f"({name}=)", part) for name, part in (function.__kwdefaults__ or {}).items()]
    parts += [
        (f".{name}", part)
        for name, part in vars(function).items()
        if name != "__wrapped__" and not name.startswith(OF_TORCH)
    ]
    is_of_spec = str(function.__module__).startswith(PREFIX)
    cells = [
        (f"<{name}>", cell)
        for name, cell in zip(
            function.__code__.co_freevars, function.__closure__ or (), strict=True
        )
    ]
    for name, cell in cells:
        try:
            part = cell.cell_contents
        except ValueError:  # an empty cell
            continue
        if is_of_spec and isinstance(part, _DATA):
            # another function of the closure may bind the name again
            yield name, part
        else:
            parts.append((name, part))
    yield from ((name, part) for name, part in parts if _can_change(part, memo, seen))


def _can_change(part: Any, memo: Mapping[int, Any], seen: set[int]) -> bool:
    """Whether a part of a function is copied with it: it is, or holds, what is copied or can
    change.
    """
    if id(part) in seen:
        return False
    seen.add(id(part))
    if id(part) in memo or isinstance(part, (torch.nn.Module, torch.Tensor, *_CHANGEABLE)):
        return True
    if isinstance(part, types.FunctionType):
        is_of_torch = str(part.__module__).startswith(("torch.", "torch_conformance."))
        return not is_of_torch and any(True for _ in _state_of(part, memo, seen))
    if isinstance(part, types.MethodType):
        return _can_change(part.__self__, memo, seen)
    if isinstance(part, functools.partial):
        part = (part.func, *part.args, *part.keywords.values())
    if isinstance(part, tuple):
        return any(_can_change(inner, memo, seen) for inner in part)
    module = str(type(part).__module__).partition(".")[0]
    return not isinstance(part, _IMMUTABLE) and module not in sys.stdlib_module_names | {
        "torch",
        "torch_conformance",
        "builtins",
    }


class Twins:
    """The eager side's copies of tensors of the compiled side.

    They remain the same: optimizers and results of earlier steps use them.
    """

    def __init__(self) -> None:
        self._pairs: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}

    def add(self, pairs: Iterable[tuple[torch.Tensor, Any]]) -> None:
        """Add tensors of the compiled side, each with its copy."""
        for ours, theirs in pairs:
            if isinstance(theirs, torch.Tensor) and ours is not theirs:
                self._pairs[id(ours)] = weakref.ref(ours), theirs

    def known(self) -> dict[int, Any]:
        """Return a memo for ``deepcopy`` that has the copies of tensors that are still alive."""
        self._pairs = {key: pair for key, pair in self._pairs.items() if pair[0]() is not None}
        return {key: theirs for key, (_, theirs) in self._pairs.items()}

    def originals(self) -> list[torch.Tensor]:
        """Return the tensors of the compiled side that are alive."""
        return [ours for weak, _ in self._pairs.values() if (ours := weak()) is not None]

    def adopt(self, *, judged_alone: bool) -> None:
        """Give the eager side the values of the compiled side; with ``judged_alone`` those alone
        that are numbers of one form.
        """
        for original in (tensor for tensor in self.originals() if not compiling.is_erased(tensor)):
            ours, theirs = plain(original), plain(self._pairs[id(original)][1])
            is_alike = (ours.shape, ours.dtype, ours.stride()) == (
                theirs.shape,
                theirs.dtype,
                theirs.stride(),
            )
            if judged_alone and not (is_alike and ours.is_floating_point()):
                continue
            with (
                contextlib.suppress(RuntimeError, NotImplementedError, AttributeError, TypeError),
                torch.no_grad(),
            ):
                if not is_alike:
                    theirs.data = _copy(ours)
                elif not torch.equal(ours, theirs):
                    theirs.data.copy_(ours)
                if not judged_alone and theirs.is_leaf:
                    theirs.requires_grad_(original.requires_grad)
                    grad = tensor_grad(original)
                    theirs.grad = None if grad is None else _copy(grad)


def frozen(value: Any) -> Any:
    """Return a copy of a value, of its tensors and of every other object in it.

    An object that cannot be copied becomes a ``Live``.

    Of tensors, shape, dtype, strides and gaps between elements are preserved.
    An object, not a tensor, that occurs twice in the value is one object in the copy.
    """
    memo: dict[int, Any] = {}

    def copied(leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return _copy(leaf)
        if isinstance(leaf, _IMMUTABLE):
            return leaf
        try:
            for tensor in pytree.tree_leaves(opened(leaf, lambda part, _: part, [])):
                # deepcopy refuses a tensor with a history
                if (
                    isinstance(tensor, torch.Tensor)
                    and not tensor.is_leaf
                    and id(tensor) not in memo
                ):
                    memo[id(tensor)] = _copy(tensor)
            if isinstance(leaf, dict):  # of a class whose __getattr__ may take any name for a key
                base = (
                    collections.OrderedDict if isinstance(leaf, collections.OrderedDict) else dict
                )
                duplicate = memo[id(leaf)] = type(leaf).__new__(type(leaf))
                for key, value in leaf.items():
                    base.__setitem__(duplicate, key, copy.deepcopy(value, memo))
                for name, value in attributes_of(leaf).items():
                    object.__setattr__(duplicate, name, copy.deepcopy(value, memo))
                return duplicate
            return copy.deepcopy(leaf, memo)
        except Exception as error:
            # __deepcopy__ and __reduce__ of an object of a spec may raise anything
            return Live(type(leaf), error)

    return pytree.tree_map(copied, value, is_leaf=_is_size)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    source = plain(tensor).detach()
    duplicate: torch.Tensor = source.clone()
    if is_plain_strided(source) and source.numel() and duplicate.stride() != source.stride():
        # its elements overlap or have gaps between them
        memory = source.as_strided((extent(source),), (1,), source.storage_offset()).clone()
        return memory.as_strided(source.shape, source.stride(), 0)
    return duplicate


def extent(tensor: torch.Tensor) -> int:
    """Return the length of a strided tensor's memory from its first element to its last, gaps
    included, in elements.
    """
    if not tensor.numel():
        return 0
    length: int = 1 + sum(
        (size - 1) * stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True)
    )
    return length


def same_object(left: Any, right: Any) -> bool:
    """Whether two names refer to one mutable object: a comparison of the two cannot fail."""
    return left is right and not isinstance(left, _IMMUTABLE) and left != ()


def tensor_grad(tensor: torch.Tensor) -> torch.Tensor | None:
    """Return the gradient of a leaf tensor, without a call of ``__torch_function__`` of a subclass;
    None where it has none.
    """
    with torch._C.DisableTorchFunctionSubclass():
        grad: torch.Tensor | None = tensor.grad if tensor.is_leaf else None
        return grad


def tensor_version(tensor: torch.Tensor) -> int | None:
    """Return the version counter of a tensor; None for an inference tensor and other tensors
    without one.
    """
    with torch._C.DisableTorchFunctionSubclass():
        try:
            return int(tensor._version)
        except (RuntimeError, AttributeError):
            return None


def storage_of(tensor: torch.Tensor) -> int | None:
    """Return the address of a tensor's storage; None where it has no memory of its own."""
    if (
        is_traceable_wrapper_subclass(tensor)
        or tensor.is_nested
        or tensor.layout is not torch.strided
    ):
        return None
    with torch._C.DisableTorchFunctionSubclass():
        try:
            return int(tensor.untyped_storage().data_ptr()) or None
        except (RuntimeError, NotImplementedError):  # a wrapper without a storage
            return None


_DEPTH = 50
"""The maximum depth to which attributes of objects are followed."""

ARGUMENT = "argument"
"""The first word of the path of an argument."""

FUNCTION = "function"
"""The first word of the path of a parameter, a buffer or an attribute of the function's module."""

GRAD = ".grad"
"""The end of the path of a gradient."""

Leaves = dict[str, Any]


class Absent:
    """The value of a path that one side does not have."""

    def __repr__(self) -> str:
        return "absent"


_VALUES = (
    bool,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    range,
    slice,
    enum.Enum,
    set,
    frozenset,
    Absent,
)
_WORDS = (torch.dtype, torch.device, torch.layout, torch.memory_format)
_TORCH_VALUES = (torch.Tensor, *_WORDS)
_LEAF = "*"
"""The form of what is no container."""
_NAMED = (type, types.FunctionType, types.BuiltinFunctionType, types.MethodType)
"""Callables of which the name alone is compared."""

_OF_EVERY_MODULE = frozenset(vars(torch.nn.Module())) - {"training"}
"""Attributes in which torch keeps parameters, buffers, modules and hooks."""


def _name(function: Any) -> str:
    return f"{function.__module__}.{getattr(function, '__qualname__', type(function).__qualname__)}"


def changeable(called: Sequence[Any], *, parameters: bool) -> Leaves:
    """Return the values that a call of ``called`` (the target, then its arguments) can change.

    Each tensor occurs once.

    Without ``parameters`` modules are left out: a package compiled ahead of time has its own.
    """
    target, *arguments = called
    walk = _Walk(parameters)
    for index, argument in enumerate(arguments):
        walk.add_below(f"{ARGUMENT} [{index}]", argument, 0)
    if isinstance(target, types.FunctionType):
        walk.add_held(FUNCTION, target, 0)
    owner = getattr(target, "__self__", target)
    if isinstance(owner, torch.nn.Module) or (
        owner is not target and not isinstance(owner, types.ModuleType | type)
    ):
        walk.add(FUNCTION, owner, 0)
    return walk.leaves


class Form(str):
    """What a container is: its type, its length or its keys in their order, and the containers
    within; or the name of a function.
    """

    __slots__ = ()


class _Walk:
    """Collects leaves. ``_seen`` holds the objects themselves, so that no id is used twice."""

    def __init__(self, parameters: bool) -> None:
        self.leaves: Leaves = {}
        self._parameters = parameters
        self._seen: dict[int, Any] = {}
        self._keys: dict[int, tuple[int, Any]] = {}

    def add(self, name: str, leaf: Any, depth: int) -> None:
        """Add the values of a leaf, with attributes of objects down to ``_DEPTH``."""
        if isinstance(leaf, torch.nn.Module):
            self._add_module(name, leaf, depth)
        elif isinstance(leaf, torch.Tensor):
            self._add_tensor(name, leaf)
        elif leaf is None or isinstance(leaf, _VALUES + _TORCH_VALUES):
            self.leaves[name] = leaf
        elif type(leaf).__module__ == "numpy" and hasattr(leaf, "__array__"):
            tensor = None
            if leaf.shape and leaf.dtype.kind in "biufc":
                # a tensor that shares the memory of the array, where torch can
                with warnings.catch_warnings(), contextlib.suppress(TypeError, ValueError):
                    warnings.simplefilter("ignore")  # an array that cannot be written
                    tensor = torch.as_tensor(
                        leaf if all(stride >= 0 for stride in leaf.strides) else leaf.copy()
                    )
            self.leaves[name] = leaf.tolist() if tensor is None else tensor
        elif isinstance(leaf, random.Random | torch.Generator):
            state = (
                leaf.getstate() if isinstance(leaf, random.Random) else leaf.get_state().tolist()
            )
            self.leaves[name] = Form(
                f"a generator in the state {hashlib.sha256(repr(state).encode()).hexdigest()[:12]}"
            )
        elif isinstance(leaf, array.array):
            self.leaves[name] = [leaf.typecode, *leaf]
        elif isinstance(leaf, io.BytesIO | io.StringIO) and not leaf.closed:
            self.leaves[name] = (leaf.getvalue(), leaf.tell())
        elif isinstance(leaf, itertools.count):
            self.leaves[name] = Form(repr(leaf))
        elif isinstance(leaf, Iterator) and hasattr(leaf, "__length_hint__"):
            self.leaves[name] = Form(f"an iterator with {operator.length_hint(leaf)} values left")
        elif isinstance(leaf, types.ModuleType):
            self.leaves[name] = Form(leaf.__name__)
        elif isinstance(leaf, _NAMED):
            self.leaves[name] = Form(_name(leaf))
            if isinstance(leaf, types.FunctionType) and self._is_new(leaf) and depth < _DEPTH:
                self.add_held(name, leaf, depth)
            elif isinstance(leaf, types.MethodType) and depth < _DEPTH:
                self.add_below(f"{name}.__self__", leaf.__self__, depth + 1)
        elif self._is_new(leaf) and depth < _DEPTH:
            for part, value in self.parts(leaf):
                self.add_below(f"{name}{part}", value, depth + 1)

    def add_held(self, name: str, function: types.FunctionType, depth: int) -> None:
        """Add what a function holds and can change: defaults, closure, attributes."""
        for part, value in _state_of(function, {}, set()):
            self.add_below(f"{name}{part}", value, depth + 1)

    def add_below(self, name: str, value: Any, depth: int) -> None:
        """Add the form of a container, and the values of its parts."""
        parts, form = pytree.tree_flatten_with_path(value, is_leaf=is_keyless)
        if not form.is_leaf():
            self.leaves[f"{name} as a container"] = Form(self._form(value))
        for path, part in parts:
            keys = (
                f"[{self._key(key.key)}]" if isinstance(key, pytree.MappingKey) else str(key)
                for key in path
            )
            self.add(f"{name}{''.join(keys)}", part, depth)

    def _key(self, key: Any) -> str:
        """Return a key of a map as text.

        A tensor or an object is named by the order of its first use: it has no lasting text.
        """
        if key is None or isinstance(key, (*_VALUES, *_WORDS)):
            return repr(key)
        if isinstance(key, tuple):
            return f"({', '.join(map(self._key, key))})"
        number, _ = self._keys.setdefault(id(key), (len(self._keys), key))
        return f"{type(key).__name__} #{number}"

    def _form(self, value: Any) -> str:
        kind = type(value).__name__
        if isinstance(value, Mapping):
            return f"{kind}({', '.join(f'{self._key(key)}: {self._form(part)}' for key, part in value.items())})"  # noqa: E501
        if isinstance(value, list | tuple | deque):
            inner = [form for form in map(self._form, value) if form != _LEAF]
            return f"{kind} of {len(value)}" + (f" with {', '.join(inner)}" if inner else "")
        return _LEAF if pytree.tree_is_leaf(value) else kind

    def parts(self, leaf: Any) -> Iterator[tuple[str, Any]]:
        """Yield the items and the attributes of an object of a class that pytree does not know."""
        yield from ((f"[{self._key(key)}]", value) for key, value in items_of(leaf))
        yield from (
            (f".{name}", value)
            for name, value in attributes_of(leaf).items()
            if not name.startswith(OF_TORCH)
        )

    def _is_new(self, leaf: Any) -> bool:
        known = id(leaf) in self._seen
        self._seen[id(leaf)] = leaf
        return not known

    def _add_tensor(self, name: str, tensor: torch.Tensor) -> None:
        if tensor.is_nested:
            # compared by component: a nested tensor has no regular shape
            self.leaves.update(
                {f"{name}[{index}]": part for index, part in enumerate(tensor.unbind())}
            )
        elif self._is_new(tensor):
            self.leaves[name] = tensor
            if (grad := tensor_grad(tensor)) is not None:
                self.leaves[f"{name}{GRAD}"] = grad
            with torch._C.DisableTorchFunctionSubclass():
                counts = [len(getattr(tensor, kind) or ()) for kind in _TENSOR_HOOKS]
            if any(counts):
                self.leaves[f"{name}.hooks"] = Form(
                    f"{counts[0]} of its gradient, {counts[1]} after it"
                )
            theirs = (
                *OF_TORCH,
                "erased_name",
                "owning_mod_ref",
                "_is_",
                "_specialize_on",
                *([] if type(tensor) in PLAIN else ["_"]),
            )
            for attribute, value in attributes_of(tensor).items():
                if not attribute.startswith(theirs):  # torch sets them
                    self.add_below(f"{name}.{attribute}", value, 1)

    def _add_module(self, name: str, module: torch.nn.Module, depth: int) -> None:
        if not self._parameters:
            return
        for path, tensor in [*module.named_parameters(), *module.named_buffers()]:
            self._add_tensor(f"{name}.{path}", tensor)
        for path, part in module.named_modules():
            if self._is_new(part) and depth < _DEPTH:
                prefix = f"{name}.{path}" if path else name
                for kind in (
                    kind for kind in vars(part) if kind.endswith("_hooks") and vars(part)[kind]
                ):
                    self.leaves[f"{prefix}.{kind}"] = Form(
                        ", ".join(_name(hook) for hook in vars(part)[kind].values())
                    )
                for attribute, value in vars(part).items():
                    if attribute not in _OF_EVERY_MODULE and not attribute.startswith(OF_TORCH):
                        self.add_below(f"{prefix}.{attribute}", value, depth + 1)
