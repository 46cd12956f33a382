"""What both sides share, such as globals of a spec: its values at one time, which are set again and compared."""

import copy
import math
from collections import deque
from collections.abc import Iterable
from typing import Any

import torch

from runner.worker.case.source_module import PREFIX

_PLAIN = (bool, int, float, complex, str, bytes, type(None))

_MOST_ELEMENTS = 1 << 20
"""Of a tensor that is copied."""

_MOST_SHOWN = 8
"""Elements of a tensor in a message."""

_DEPTH = 30

_PART_OF_CHANGE = 1 / 16
"""How far the two sides may differ in a tensor, as a part of its change by eager."""

OF_TORCH = ("_dynamo", "_torchdynamo", "_compiled_call_impl", "_is_torch_compile", "_orig_mod", "_is_fsdp", "_opt_called")
"""Prefixes of attributes that torch's compiler sets on modules and functions, and a scheduler on an optimizer, of which a copy has none."""

_OF_MODULES = ("_parameters", "_buffers", "_modules")


class Held:
    """A value at one time: the object itself, which may change later, and what it held."""

    def __init__(self, value: Any, known: dict[int, "Held"], depth: int = 0) -> None:
        """``known`` are the values that are held already, by identity."""
        known[id(value)] = self
        self.value = value
        self.copy: Any = None
        """Of a tensor or a set; None for a tensor that is not copied."""
        self.parts: list[tuple[Any, Held]] = []
        if isinstance(value, torch.Tensor):
            is_plain = type(value) in (torch.Tensor, torch.nn.Parameter) and value.layout is torch.strided and value.device.type != "meta"
            self.copy = value.detach().clone() if is_plain and value.numel() <= _MOST_ELEMENTS else None
        elif isinstance(value, set):
            self.copy = copy.copy(value)
        elif depth < _DEPTH:
            self.parts = [(key, known.get(id(part)) or Held(part, known, depth + 1)) for key, part in _parts(value)]

    @property
    def is_known(self) -> bool:
        """Whether what it held can be compared."""
        return isinstance(self.value, (*_PLAIN, list, tuple, deque, dict)) or self.copy is not None or bool(self.parts)

    def restore(self, done: set[int] | None = None) -> None:
        """Give the object what it held."""
        done = set() if done is None else done
        if id(self) in done:
            return
        done.add(id(self))
        value = self.value
        if isinstance(value, torch.Tensor):
            if self.copy is not None and value.shape == self.copy.shape and not torch.equal(value, self.copy):
                value.data.copy_(self.copy)  # no advance of its version counter
        elif isinstance(value, set):
            value.clear()
            value.update(self.copy)
        elif [id(part) for _, part in _parts(value)] != [id(part.value) for _, part in self.parts]:
            parts = {key: part.value for key, part in self.parts}
            if isinstance(value, list | deque):
                value.clear()
                value.extend(parts.values())
            elif isinstance(value, dict):
                value.clear()
                value.update(parts)
            else:
                for name in [name for name, _ in _parts(value) if name not in parts]:
                    del vars(value)[name]
                vars(value).update(parts)
        for _, part in self.parts:
            part.restore(done)

    def is_other(self, eager: "Held", before: "Held | None", done: set[tuple[int, int]] | None = None, *, is_exact: bool = False) -> bool:
        """Whether the compiled side left another value than eager, which changed ``before``.

        Unless ``is_exact``, tensors may differ by a part of that change. Of an object whose content is unknown, the class alone counts.
        """
        done = set() if done is None else done
        if (id(self), id(eager)) in done:
            return False
        done.add((id(self), id(eager)))
        ours, theirs = self.value, eager.value
        if isinstance(ours, float) and isinstance(theirs, float) and not is_exact:
            is_near = math.isclose(ours, theirs, rel_tol=1.3e-6, abs_tol=1e-9)
            return not is_near and not (math.isnan(ours) and math.isnan(theirs))
        if type(ours) is not type(theirs):
            return True
        if isinstance(ours, _PLAIN):
            return bool(ours != theirs)
        if isinstance(ours, torch.Tensor) and is_exact:
            is_known = self.copy is not None and eager.copy is not None
            return not torch.equal(self.copy, eager.copy) if is_known else ours is not theirs
        if isinstance(ours, torch.Tensor):
            return _are_other(self.copy, eager.copy, None if before is None else before.copy)
        if isinstance(ours, set):
            return bool(self.copy != eager.copy)
        if len(self.parts) != len(eager.parts) or any(_is_key_other(*keys) for keys in zip(*map(_keys, (self, eager)), strict=True)):
            return True
        begun = {} if before is None else {id(key) if isinstance(key, torch.Tensor) else key: part for key, part in before.parts}
        return any(
            part.is_other(their, begun.get(id(key) if isinstance(key, torch.Tensor) else key), done, is_exact=is_exact)
            for (key, part), (_, their) in zip(self.parts, eager.parts, strict=True)
        )

    def is_same(self, other: "Held") -> bool:
        """Whether both hold the same, bit for bit."""
        return not self.is_other(other, None, is_exact=True)

    def __str__(self) -> str:
        if isinstance(self.value, torch.Tensor):
            return str("*" if self.copy is None else self.copy.flatten()[:_MOST_SHOWN].tolist())
        if isinstance(self.value, list | tuple | deque):
            return f"[{', '.join(str(part) for _, part in self.parts)}]"
        if self.parts:
            texts = {key: str(part) for key, part in self.parts if not part.parts or key in _OF_MODULES}
            return (
                f"{{{', '.join(f'{key!r}: {text}' for key, text in texts.items() if text not in ('*', '{}', 'OrderedDict()', 'set()'))}}}"
            )
        return repr(self.value if self.copy is None else self.copy) if isinstance(self.value, (*_PLAIN, set, dict)) else "*"


def _keys(snapshot: Held) -> list[Any]:
    return [key for key, _ in snapshot.parts]


def _is_key_other(left: Any, right: Any) -> bool:
    return isinstance(left, _PLAIN) and isinstance(right, _PLAIN) and bool(left != right)


def _parts(value: Any) -> Iterable[tuple[Any, Any]]:
    """Return the parts of a container, of a module or an optimizer, and of an object of a class of the spec."""
    if isinstance(value, dict):
        return list(value.items())
    if isinstance(value, list | tuple | deque):
        return list(enumerate(value))
    is_of_spec = type(value).__module__.startswith(PREFIX) and not isinstance(value, type)
    if is_of_spec or isinstance(value, torch.nn.Module | torch.optim.Optimizer):
        return [(name, part) for name, part in getattr(value, "__dict__", {}).items() if not name.startswith(OF_TORCH)]
    return []


def _are_other(ours: torch.Tensor | None, theirs: torch.Tensor | None, before: torch.Tensor | None) -> bool:
    if ours is None or theirs is None:
        return False
    if (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype):
        return True
    if not ours.is_floating_point():
        return not torch.equal(ours, theirs)
    is_changed = before is not None and before.shape == theirs.shape
    change = theirs.double() - before.double() if is_changed and before is not None else theirs.double()
    return bool((ours.double() - theirs.double()).norm() > _PART_OF_CHANGE * change.norm())
