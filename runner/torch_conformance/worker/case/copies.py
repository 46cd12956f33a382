"""Copies of what a case can change, and which values these are."""

import contextlib
import contextvars
import copy
import gc
import logging
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping
from typing import Any, TypeGuard, TypeVar
from unittest import mock

import torch
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import is_traceable_wrapper_subclass
from torch.utils.weak import WeakIdKeyDictionary

from torch_conformance.vocabulary.expectations.comparing import is_whole
from torch_conformance.vocabulary.picture import (
    HOOKS,
    PREFIX,
    Picture,
    anatomy,
    extent,
    is_atom,
    is_freed,
    is_of_torch,
    name_of,
    tensor_grad,
)
from torch_conformance.worker.torch_compat import compiling
from torch_conformance.worker.torch_compat.numerics import is_strided

_SINGLE = (type, logging.Logger)
"""Objects of which a process has one: they are not copied, nor what they have."""

_SHARED = (types.FunctionType, *_SINGLE, types.ModuleType, contextvars.ContextVar, weakref.ref)
"""Objects that both sides share; what of a function can change is copied with it."""


class Keywords(dict[str, Any]):
    """The arguments by keyword of a call: the last of its arguments, where it has some."""


pytree.register_pytree_node(
    Keywords,
    lambda keywords: (list(keywords.values()), list(keywords)),
    lambda values, names: Keywords(zip(names, values, strict=True)),
)


_Value = TypeVar("_Value")

Called = list[Any]
"""A target followed by its arguments: those by position, then ``Keywords`` where it has some."""


def invoke(target: Callable[..., _Value], called: Called) -> _Value:
    """Call ``target`` with the arguments in ``called``, which follow the function that it was made
    of.
    """
    arguments = list(called[1:])
    keywords = arguments.pop() if arguments and isinstance(arguments[-1], Keywords) else {}
    return target(*arguments, **keywords)


class Live:
    """Stands for an object that cannot be copied.

    Its value at the time of naming is unknown later.
    """

    def __init__(self, kind: type, why: Exception) -> None:
        self.kind = name_of(kind)
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
    if is_of_torch(tensor) or is_traceable_wrapper_subclass(tensor):
        return tensor
    with torch._C.DisableTorchFunctionSubclass():
        if not is_strided(tensor):
            return tensor
        if kind.__torch_dispatch__ is not torch.Tensor.__torch_dispatch__:
            try:
                if torch.Tensor.data_ptr(tensor) == 0:
                    return tensor
            except RuntimeError:  # a wrapper without a storage
                return tensor
        plain_tensor: torch.Tensor = torch.Tensor.as_subclass(tensor, torch.Tensor)
        return plain_tensor


def is_plain_strided(value: object) -> TypeGuard[torch.Tensor]:
    """Whether a value is a tensor of torch's own class in strided memory of its own, which was not
    freed.
    """
    return (
        isinstance(value, torch.Tensor)
        and is_of_torch(value)
        and is_strided(value)
        and not is_freed(value)
    )


def measured(value: _Value) -> _Value:
    """Return a value with ``plain`` applied to every tensor in it."""
    return pytree.tree_map_only(torch.Tensor, plain, value, is_leaf=is_whole)


def parts_of(value: object) -> list[Any]:
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


def tensors_of(value: object) -> list[torch.Tensor]:
    """Return the tensors of a value, with the parameters and buffers of its modules."""
    return [part for part in parts_of(value) if isinstance(part, torch.Tensor)]


def bytes_of(value: object) -> int:
    """Return the size of the tensors of a value."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors_of(value))


def independent(value: _Value, twins: "Twins | None" = None) -> _Value:
    """Return a deep copy; raise ``TypeError`` where it shares an object that can change with the
    original, or where a part cannot be copied. Opaque parts (locks, files) are shared.
    """
    before = Picture(left_out=_SINGLE).add("", value)
    try:
        duplicate = deep(value, twins, before)
    except Exception as error:
        # __deepcopy__ and __reduce__ of an object of a spec may raise anything
        hint = "define __deepcopy__ in its class, or create it within the function"
        raise TypeError(
            f"{_culprit(before, value)} cannot be copied for the eager side "
            f"({type(error).__name__}: {error}): {hint}"
        ) from error
    after = Picture(left_out=_SINGLE).add("", duplicate)
    for key, part in after.objects.items():
        if key in before.mutable and not isinstance(part, _SHARED):
            raise TypeError(
                f"a copy shares the {name_of(type(part))} at "
                f"{after.places[key] or 'its root'} with the original: see __deepcopy__ there or "
                "above it"
            )
    return duplicate


def _culprit(picture: Picture, value: object) -> str:
    """Return the name of the innermost part of a value that cannot be copied."""
    for key, part in reversed(picture.objects.items()):
        try:
            deep(part)
        except Exception:  # as of the whole
            where = picture.places[key]
            return f"the {name_of(type(part))} at {where[:_MOST_PATH] or 'its root'}"
    return f"a {type(value).__qualname__}"


def deep(value: _Value, twins: "Twins | None" = None, picture: Picture | None = None) -> _Value:
    """Return a deep copy; hooks of tensors, closures, defaults of functions and weak references
    refer to the copies.

    A tensor that an operation made becomes one without the history before it, but not a leaf: it
    gets no gradient. ``twins`` are known copies of tensors, which the copy refers to; those that
    are made are added to them. ``picture`` is that of the value, where there is one.
    """
    picture = picture or Picture(left_out=_SINGLE).add("", value)
    memo: dict[int, Any] = {} if twins is None else twins.memo()
    memo.update(
        {
            key: part
            for key, part in picture.objects.items()
            if picture.places[key] in picture.opaque or isinstance(part, contextvars.ContextVar)
        }
    )
    with _deep_copies(_copy_with_history):
        duplicate = copy.deepcopy(value, memo)
        # where deepcopy keeps what it has copied
        originals = [
            tensor for tensor in memo.get(id(memo), ()) if isinstance(tensor, torch.Tensor)
        ]
        for original in [*originals, *(twins.originals() if twins is not None else ())]:
            copied = memo.get(id(original))
            if not isinstance(copied, torch.Tensor):
                continue
            # the copy of a parameter has none
            grad = tensor_grad(original) if isinstance(original, torch.nn.Parameter) else None
            if grad is not None and tensor_grad(copied) is None:
                copied.grad = memo.get(id(grad)) if id(grad) in memo else _copy(grad)
            for name, register in HOOKS.items():
                with torch._C.DisableTorchFunctionSubclass():
                    if getattr(copied, name):
                        getattr(copied, name).clear()
                    for hook in (getattr(original, name) or {}).values():
                        getattr(copied, register)(copy.deepcopy(hook, memo))
    if twins is not None:
        twins.add((original, memo.get(id(original))) for original in originals)
    return duplicate


_MOST_PATH = 200
"""Characters of the path of a part that cannot be copied."""


@contextlib.contextmanager
def _deep_copies(copy_of_tensor: Callable[..., torch.Tensor]) -> Iterator[None]:
    """In this context ``copy.deepcopy`` copies functions that hold what is copied, what refers to
    it, and tensors of each kind by the given function.
    """
    atoms: frozenset[type] = getattr(copy, "_atomic_types", frozenset())  # of Python 3.14
    kinds = {
        types.FunctionType: _copy_of_function,
        weakref.ref: lambda weak, memo: (
            weakref.ref(memo[id(weak())]) if id(weak()) in memo else weak
        ),
        types.BuiltinMethodType: lambda method, memo: (
            method
            if isinstance(method.__self__, types.ModuleType | type | None)
            else getattr(copy.deepcopy(method.__self__, memo), method.__name__)
        ),
        types.MappingProxyType: lambda proxy, memo: types.MappingProxyType(
            *copy.deepcopy(gc.get_referents(proxy), memo)
        ),
    }
    with (
        mock.patch.dict(copy._deepcopy_dispatch, kinds),  # type: ignore[attr-defined]
        mock.patch.object(torch.Tensor, "__deepcopy__", copy_of_tensor),
        mock.patch.object(copy, "_atomic_types", atoms - set(kinds), create=True),
    ):
        yield


_COPY_OF_TORCH = torch.Tensor.__deepcopy__


def _copy_with_history(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """Return a copy of a tensor for the eager side: a leaf where it is one, else the result of an
    operation.
    """
    if is_freed(tensor):
        return _copy_of_freed(tensor)
    with torch._C.DisableTorchFunctionSubclass():
        is_leaf, is_jagged = tensor.is_leaf, tensor.layout is torch.jagged
    if is_jagged and is_leaf:
        # torch's own copy has new offsets under the old symbol of its size
        duplicate = tensor.detach().clone().requires_grad_(tensor.requires_grad)
        duplicate.grad = None if tensor.grad is None else tensor.grad.clone()
        return duplicate
    if is_leaf:
        try:
            return _COPY_OF_TORCH(tensor, memo)
        except RuntimeError:  # a subclass for which torch's own copy has another class
            return _copy_of_subclass(tensor, memo)
    with torch.enable_grad():
        return _copy(tensor).requires_grad_().clone()


def _copy_of_freed(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same form whose storage is as short, too."""
    copied = torch.empty_strided(
        tuple(tensor.shape), tensor.stride(), dtype=tensor.dtype, device=tensor.device
    )
    copied.untyped_storage().resize_(tensor.untyped_storage().nbytes())
    if isinstance(tensor, torch.nn.Parameter):
        copied.__class__ = torch.nn.Parameter
    return copied.requires_grad_(tensor.requires_grad and tensor.is_leaf)


def _copy_of_subclass(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
    """Return a copy of a tensor of a Python subclass, with its attributes or the tensors that it
    wraps.
    """
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
    if not _can_change(function, memo):
        return function
    cells = tuple(
        memo.setdefault(id(cell), types.CellType()) for cell in function.__closure__ or ()
    )  # functions may share a cell
    copied = types.FunctionType(
        function.__code__, function.__globals__, function.__name__, None, cells or None
    )
    memo[id(function)] = copied  # before its parts, which may refer to it
    copied.__module__, copied.__qualname__ = function.__module__, function.__qualname__
    copied.__defaults__ = _copied_part(function.__defaults__, memo)
    copied.__kwdefaults__ = _copied_part(function.__kwdefaults__, memo)
    copied.__dict__.update(
        {name: _copied_part(part, memo) for name, part in vars(function).items()}
    )
    for cell, original in zip(cells, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # an empty cell
            cell.cell_contents = _copied_part(original.cell_contents, memo)
    return copied


def _copied_part(part: _Value, memo: dict[int, Any]) -> _Value:
    try:
        return copy.deepcopy(part, memo)
    except Exception:  # a lock, a file: both sides share it, as they share globals
        return part


def _can_change(function: types.FunctionType, memo: Mapping[int, Any]) -> bool:
    """Whether a function holds what is copied or can change: a closure that it may bind again, or
    an object in a closure, a default or an attribute.
    """
    if str(function.__module__).startswith(("torch.", "torch_conformance.")):
        return False
    picture = Picture(left_out=_SINGLE).add("", function)
    return any(
        key in memo
        or (key in picture.mutable and not isinstance(part, _SHARED))
        or (isinstance(part, types.FunctionType) and _rebinds(part))
        for key, part in picture.objects.items()
    )


def _rebinds(function: types.FunctionType) -> bool:
    """Whether another function of a closure of a spec may bind a name of it again."""
    return str(function.__module__).startswith(PREFIX) and any(
        label.startswith("<") and is_atom(part) for label, part in anatomy(function).parts
    )


class Twins:
    """The eager side's copies of tensors of the compiled side.

    They remain the same: optimizers and results of earlier steps use them.
    """

    def __init__(self) -> None:
        self._copies: MutableMapping[torch.Tensor, torch.Tensor] = WeakIdKeyDictionary()

    def add(self, pairs: Iterable[tuple[torch.Tensor, object]]) -> None:
        """Add tensors of the compiled side, each with its copy."""
        for ours, theirs in pairs:
            if isinstance(theirs, torch.Tensor) and ours is not theirs:
                self._copies[ours] = theirs

    def memo(self) -> dict[int, Any]:
        """Return a memo for ``deepcopy`` that has the copies of tensors that are still alive."""
        return {id(ours): theirs for ours, theirs in self._copies.items()}

    def originals(self) -> list[torch.Tensor]:
        """Return the tensors of the compiled side that are alive."""
        return list(self._copies)

    def adopt(self, *, only_judged: bool) -> None:
        """Give the eager side the values of the compiled side; with ``only_judged`` only those
        that are numbers of one form.
        """
        for original in (tensor for tensor in self.originals() if not compiling.is_erased(tensor)):
            ours, theirs = plain(original), plain(self._copies[original])
            is_alike = (ours.shape, ours.dtype, ours.stride()) == (
                theirs.shape,
                theirs.dtype,
                theirs.stride(),
            )
            if only_judged and not (is_alike and ours.is_floating_point()):
                continue
            with (
                contextlib.suppress(RuntimeError, NotImplementedError, AttributeError, TypeError),
                torch.no_grad(),
            ):
                if not is_alike:
                    theirs.data = _copy(ours)
                elif not torch.equal(ours, theirs):
                    theirs.data.copy_(ours)
                if not only_judged and theirs.is_leaf:
                    theirs.requires_grad_(original.requires_grad)
                    grad = tensor_grad(original)
                    theirs.grad = None if grad is None else _copy(grad)


def frozen(value: object) -> Any:
    """Return a copy of a value, of its tensors and of every other object in it.

    An object that cannot be copied becomes a ``Live``.

    Of tensors, shape, dtype, strides and gaps between elements are preserved.
    An object, not a tensor, that occurs twice in the value is one object in the copy.
    """
    memo: dict[int, Any] = {}

    def of_values(tensor: torch.Tensor, memo: dict[int, Any]) -> torch.Tensor:
        """Copy the numbers of a tensor and its attributes, without its history and its hooks."""
        duplicate = memo[id(tensor)] = _copy(tensor)
        for label, part in anatomy(tensor).parts:
            if not label.startswith(".hook"):
                with contextlib.suppress(AttributeError):
                    setattr(duplicate, label[1:], copy.deepcopy(part, memo))
        return duplicate

    def copied(leaf: object) -> object:
        """Copy a leaf, or say why it cannot be copied."""
        if isinstance(leaf, torch.Tensor):
            return of_values(leaf, memo)
        try:
            if isinstance(leaf, dict):  # of a class whose __getattr__ may take any name for a key
                reconstruct = vars(copy)["_reconstruct"]  # typeshed lacks it
                return reconstruct(leaf, memo, *leaf.__reduce_ex__(4))
            return copy.deepcopy(leaf, memo)
        except Exception as error:
            # __deepcopy__ and __reduce__ of an object of a spec may raise anything
            return Live(type(leaf), error)

    with _deep_copies(of_values):
        return pytree.tree_map(copied, value, is_leaf=is_whole)


def _copy(tensor: torch.Tensor) -> torch.Tensor:
    """Return a copy of the numbers of a tensor, in its strides; of a freed one its form."""
    if is_freed(tensor):
        return _copy_of_freed(tensor)
    source = plain(tensor).detach()
    duplicate: torch.Tensor = source.clone()
    if is_plain_strided(source) and source.numel() and duplicate.stride() != source.stride():
        # its elements overlap or have gaps between them
        memory = source.as_strided((extent(source),), (1,), source.storage_offset()).clone()
        return memory.as_strided(source.shape, source.stride(), 0)
    return duplicate


def same_object(left: object, right: object) -> bool:
    """Whether two names refer to one mutable object: a comparison of the two cannot fail."""
    return left is right and not (is_atom(left) or isinstance(left, _SHARED) or left == ())


def storage_of(tensor: torch.Tensor) -> int | None:
    """Return the address of a tensor's storage; None where it has no memory of its own."""
    if is_traceable_wrapper_subclass(tensor) or not is_strided(tensor):
        return None
    with torch._C.DisableTorchFunctionSubclass():
        try:
            return int(tensor.untyped_storage().data_ptr()) or None
        except (RuntimeError, NotImplementedError):  # a wrapper without a storage
            return None


FUNCTION = "function"
"""The first word of the path of a parameter, a buffer or an attribute of the function's module."""


def changeable(
    called: Called,
    *,
    parameters: bool,
    before: Picture | None = None,
    places: Mapping[int, str] | None = None,
) -> Picture:
    """Return the picture of what a call of ``called`` (the target, then its arguments) can change.

    Without ``parameters`` modules are left out: a package compiled ahead of time has its own.
    ``places`` objects are named by their places, and no part of it.
    """
    target, *arguments = called
    picture = Picture(left_out=() if parameters else (torch.nn.Module,), before=before)
    picture.places.update(places or {})
    for index, argument in enumerate(arguments):
        entries = argument.items() if isinstance(argument, Keywords) else [(index, argument)]
        for place, value in entries:
            picture.add(f"argument [{place}]", value)
    owner = getattr(target, "__self__", target)
    if not isinstance(owner, types.ModuleType | type):
        picture.add(FUNCTION, owner)
    return picture


def changeable_tensors(called: Called) -> list[torch.Tensor]:
    """Return the tensors that a call of ``called`` can change."""
    leaves = changeable(called, parameters=True).leaves.values()
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
