"""The side effects of a step: what the compiled side changed in addition to its result, compared
with what eager left.
"""

import contextlib
import re
import types
from collections.abc import Iterator, Mapping, MutableMapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from torch_conformance.vocabulary.expectations.calibrated import other_change
from torch_conformance.vocabulary.expectations.comparing import dense, describe_leaf, opened
from torch_conformance.vocabulary.picture import (
    GRAD,
    IDENTITY,
    PREFIX,
    Absent,
    Form,
    Leaves,
    Picture,
    global_of,
    inner_tensors,
    is_freed,
    shared_state,
    tensor_version,
)
from torch_conformance.vocabulary.steps.call import gradient_leaves
from torch_conformance.vocabulary.steps.step_base import needed, referenced
from torch_conformance.vocabulary.worker_session import Side
from torch_conformance.worker.case import state
from torch_conformance.worker.case.copies import (
    FUNCTION,
    Called,
    changeable,
    changeable_tensors,
    frozen,
    plain,
    storage_of,
)
from torch_conformance.worker.case.state import Generators, Modes
from torch_conformance.worker.process.channel import Observed, Plan
from torch_conformance.worker.torch_compat import compiling
from torch_conformance.worker.torch_compat.numerics import is_inexact, is_strided

# -- the memory of tensors -------------------------------------------------------------------------

Place = tuple[tuple[object, ...], ...]
"""Where the values of a tensor lie: address, offset, shape and strides of each of its parts."""

_FORM = ("shape", "dtype", "device")

_UNREADABLE = (RuntimeError, NotImplementedError, AttributeError, ValueError)
"""What torch raises for a wrapper without a storage, and for a layout without parts."""


def _parts(tensor: torch.Tensor) -> list[torch.Tensor]:
    """Return the strided tensors that hold the values of a tensor; raise ``NotImplementedError``
    for a layout without them.
    """
    # no generator: two that take turns would leave torch functions disabled, because each restores
    # what it found
    if (inner := inner_tensors(tensor)) is not None:
        return [part for _, child in inner for part in _parts(child)]
    with torch._C.DisableTorchFunctionSubclass():
        if is_strided(tensor) and tensor.device.type != "meta" and not is_freed(tensor):
            return [plain(tensor).detach()]
        raise NotImplementedError(str(tensor.layout))


def _place(tensor: torch.Tensor) -> Place | None:
    """Return the place in memory of a tensor's values; None if it cannot be read."""
    try:
        parts = _parts(tensor)
        if any(part.numel() and not part.untyped_storage().data_ptr() for part in parts):
            return None
        return tuple(
            (part.untyped_storage().data_ptr(), part.storage_offset(), part.shape, part.stride())
            for part in parts
        )
    except _UNREADABLE:
        return None


Pair = tuple[torch.Tensor, torch.Tensor]


def _pairs(left: torch.Tensor, right: torch.Tensor) -> tuple[list[Pair], bool]:
    """Return the parts of two tensors that have one form, and whether these are all; none where the
    memory of one cannot be read.
    """
    try:
        pairs = list(zip(_parts(left), _parts(right), strict=True))
    except _UNREADABLE:
        return [], False
    same_form = [
        (ours, theirs)
        for ours, theirs in pairs
        if all(getattr(ours, key) == getattr(theirs, key) for key in _FORM)
    ]
    return same_form, len(same_form) == len(pairs)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    """Return a contiguous copy of a strided tensor, with lazy conjugation and negation resolved."""
    return tensor.resolve_conj().resolve_neg().contiguous()


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """Return the bytes of each element of a strided tensor, as uint8 of shape ``(elements,
    bytes)``.
    """
    dense_tensor, size = _dense(tensor), tensor.element_size()
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    place = dense_tensor.storage_offset() * size
    return view.set_(dense_tensor.untyped_storage(), place, (tensor.numel(), size), (size, 1))


def _is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors of one form have the same bits; False where the memory of one cannot be
    read.
    """
    pairs, are_all = _pairs(left, right)
    with contextlib.suppress(*_UNREADABLE):
        return are_all and all(torch.equal(*map(_bits, pair)) for pair in pairs)
    return False


def changed(after: torch.Tensor, before: torch.Tensor) -> str | None:
    """Return how a tensor differs from its value before; None where no bit does, and for tensors of
    two forms.
    """
    for part, part_before in _pairs(after, before)[0]:
        ours, theirs = _bits(part), _bits(part_before)
        differs = (ours != theirs).any(1)
        if not differs.any():
            continue
        first = int(differs.nonzero()[0])
        value, value_before = (
            repr(_dense(tensor).reshape(-1)[first].item()) for tensor in (part, part_before)
        )
        if value == value_before:  # NaN of other bits
            value, value_before = (bytes(raw[first].tolist()).hex() for raw in (ours, theirs))
        from_to = f"from {value_before} to {value}"
        if not part.dim():
            return f"changed {from_to}"
        index = [int(place) for place in torch.unravel_index(torch.tensor(first), part.shape)]
        return f"changed in {int(differs.sum())} of {part.numel()} elements: {index} {from_to}"
    return None


def _hidden(leaves: Leaves) -> dict[str, torch.Tensor]:
    """Return a copy of the bytes of each storage that no tensor shows, neither between its elements
    nor before or after them.
    """
    by_address: dict[int, tuple[str, list[torch.Tensor]]] = {}
    for path, leaf in leaves.items():
        if not isinstance(leaf, torch.Tensor) or compiling.is_erased(leaf) or is_freed(leaf):
            continue
        if (address := storage_of(leaf)) is not None:
            by_address.setdefault(address, (path, []))[1].append(plain(leaf))
    hidden: dict[str, torch.Tensor] = {}
    for path, tensors in by_address.values():
        storage = tensors[0].untyped_storage()
        if any(
            tensor.is_contiguous() and tensor.numel() * tensor.element_size() == storage.nbytes()
            for tensor in tensors
        ):
            continue
        memory = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
        is_hidden = torch.ones_like(memory, dtype=torch.bool)
        for tensor in tensors:
            size = tensor.element_size()
            # a dimension of stride 0 shows one element again and again
            dimensions = zip(tensor.shape, tensor.stride(), strict=True)
            shape = [length if stride else min(length, 1) for length, stride in dimensions]
            strides = [stride * size for stride in tensor.stride()]
            is_hidden.as_strided(
                (*shape, size), (*strides, 1), tensor.storage_offset() * size
            ).zero_()
        if is_hidden.any():
            hidden[f"{path}{OUTSIDE}"] = memory[is_hidden]
    return hidden


# -- results ---------------------------------------------------------------------------------------

NEW = "memory of its own"
"""The relation of a tensor that shares no memory with a tensor of the call."""


def _tensors_of(result: object, name: str = "output") -> list[tuple[str, torch.Tensor]]:
    """Return the tensors of a result by their paths; each object is a map of its parts."""
    leaves = pytree.tree_flatten_with_path(opened(result, lambda leaf, _: leaf, []))[0]
    return [
        (f"{name}{pytree.keystr(path)}{label}", part)
        for path, leaf in leaves
        if isinstance(leaf, torch.Tensor)
        for label, part in _sparse_parts(leaf) or [("", leaf)]
    ]


def _sparse_parts(tensor: torch.Tensor) -> list[tuple[str, torch.Tensor]]:
    """Return the tensors that a sparse one consists of, by label; nothing for others."""
    is_sparse = tensor.layout not in (torch.strided, torch.jagged)
    return (inner_tensors(tensor) if is_sparse else None) or []


def aliases(result: object, leaves: Leaves) -> dict[str, str]:
    """Return for each tensor of a result, by its path, how it relates to the tensors of the call,
    and to those before it in the result.

    ``leaves`` are the values that the call could change, by path. Empty tensors share nothing.
    """
    tensors = {
        path: value
        for path, value in leaves.items()
        if isinstance(value, torch.Tensor) and not path.endswith(GRAD)
    }
    identities: dict[int, str] = {}
    owners: dict[int, tuple[str, torch.Tensor]] = {}
    relations = {}
    results = _tensors_of(result)
    for path, leaf in [*tensors.items(), *results]:
        storage = storage_of(leaf) if leaf.numel() else None
        owner, base = (
            owners.setdefault(storage, (path, leaf)) if storage is not None else (path, leaf)
        )
        if id(leaf) in identities:
            relations[path] = f"the tensor {identities[id(leaf)]}"
        elif owner == path:
            relations[path] = NEW
        else:
            offset = (
                leaf.storage_offset() * leaf.element_size()
                - base.storage_offset() * base.element_size()
            )
            relations[path] = f"a view of the memory of {owner}" + (
                f", {offset} bytes from its first element" if offset else ""
            )
            if owner in tensors and not _shares_version(leaf, base):
                relations[path] += ", with a version counter of its own"
        identities.setdefault(id(leaf), path)
    return {path: relations[path] for path, _ in results}


def _shares_version(view: torch.Tensor, base: torch.Tensor) -> bool:
    """Whether autograd sees a write through one tensor in the other."""
    with torch._C.DisableTorchFunctionSubclass(), contextlib.suppress(RuntimeError):
        before, of_base = view._version, base._version
        torch.autograd.graph.increment_version(base)
        is_shared: bool = view._version != before
        torch._C._autograd._unsafe_set_version_counter((base,), (of_base,))
        return is_shared
    return True


# -- facts -----------------------------------------------------------------------------------------


def with_repetition(before: Observed | None, after: Observed) -> Observed:
    """Return the facts of a step after one more repetition: what differed after an earlier one
    still counts.

    A value that is not near after one repetition is ``apart`` before the next, which therefore does
    not compare it. One that is near, but not equal, is compared after each.
    """
    if before is None:
        return dict(after)
    differed = {leaf["path"] for leaf in before["leaves"] if not _is_near(leaf)}
    merged = {
        **after,
        **{name: max(before[name], after[name]) for name in ("compared", "changes")},
        "apart": [path for path in after["apart"] if path not in differed],
        "leaves": [
            *before["leaves"],
            *(leaf for leaf in after["leaves"] if leaf["path"] not in differed),
        ],
    }
    both = {name: [*before.get(name, ()), *after.get(name, ())] for name in ("generators", "modes")}
    return {**merged, **{name: entries for name, entries in both.items() if entries}}


def _is_near(facts: Observed) -> bool:
    """Whether two values are equal, or tensors of one form within the tolerance."""
    if facts["type"] != "tensor":
        return facts.get("equal") is True
    same = all(
        facts[name] == facts[f"reference_{name}"] for name in ("type", "shape", "dtype", "device")
    )
    return same and not any(
        facts[name] for name in ("mismatches", "nan_mismatches", "inf_mismatches")
    )


def _words(path: str, value: str, reference: str) -> Observed:
    """Return the facts of a property that is described by words."""
    facts = {"type": "form", "shape": None, "dtype": None, "device": None}
    both = {**facts, **{f"reference_{name}": fact for name, fact in facts.items()}}
    return {"path": path, **both, "equal": False, "value": value, "reference_value": reference}


def _other_form(path: str, ours: torch.Tensor, theirs: torch.Tensor) -> Observed | None:
    """Return the facts of two close tensors that differ in strides or ``requires_grad``; None when
    they do not.
    """
    if not is_strided(ours):
        return None
    value, reference = (
        f"strides {list(tensor.stride())}, requires_grad {tensor.requires_grad}"
        for tensor in (ours, theirs)
    )
    return None if value == reference else _words(path, value, reference)


def _kind_of(tensor: torch.Tensor) -> tuple[object, ...]:
    """Return the key that two tensors share if their elements can be compared one by one."""
    return tensor.layout, tensor.shape, tensor.dtype


def _equal(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    """Whether two tensors have one form and equal numbers; False where torch cannot compare
    them.
    """
    described = (ours.shape, ours.dtype, ours.device, ours.layout, ours.is_nested)
    if described != (theirs.shape, theirs.dtype, theirs.device, theirs.layout, theirs.is_nested):
        return False
    try:
        return bool(torch.equal(dense(ours), dense(theirs)))
    except (*_UNREADABLE, TypeError):  # quantized and wrapper tensors: measured as close does
        return False


MOST = 50
"""The maximum number of differing values that are sent."""

_MOST_CHANGED = 1 << 24
"""The maximum number of elements of a tensor whose change is judged: its values are copied."""

REFERENCE = "as before the call: eager does not change it"
"""What is expected of such a value."""

OBJECT = " as an object"
"""The end of the path of the form of an object."""

OUTSIDE = " outside of the tensors of the call"
"""The end of the path of memory that no tensor of the call shows, next to one that does."""

_NOT_JUDGED = (
    "it is not a strided tensor of floating-point numbers, or its form differs from eager's"
)


@dataclass(frozen=True)
class Inexact:
    """Two tensors of one form, or floats, that a call left and that are not equal: the calibrated
    judge decides.
    """

    path: str
    facts: Observed
    ours: torch.Tensor | float
    theirs: torch.Tensor | float
    unwritten: torch.Tensor | None = None
    """A mask of the elements in which eager's tensor has the bits of before the call."""
    before: torch.Tensor | None = None
    """The values of both sides before the call, where they were equal."""


class _Version(NamedTuple):
    """A tensor at one time. While this refers to it, no other tensor has its memory."""

    tensor: torch.Tensor
    place: Place | None
    counter: int | None

    def is_of(self, current: "_Version") -> bool:
        """Whether a path still has this tensor; parts of a nested tensor are new objects each
        time.
        """
        return current.tensor is self.tensor or (
            current.place is not None and current.place == self.place
        )


def _versions(leaves: Leaves) -> dict[str, _Version]:
    """Return the tensors of some leaves with their memory and their version counters, by path."""
    tensors = ((path, leaf) for path, leaf in leaves.items() if isinstance(leaf, torch.Tensor))
    return {
        path: _Version(tensor, _place(plain(tensor)), tensor_version(tensor))
        for path, tensor in tensors
        if not path.endswith(OUTSIDE)  # a copy
    }


def _texts(leaves: Leaves) -> dict[str, str]:
    """Return values other than tensors as text; of tensors, which are compared by their bits, that
    they are there.
    """
    return {
        path: "a tensor" if isinstance(leaf, torch.Tensor) else repr(leaf)
        for path, leaf in leaves.items()
        if not path.startswith(IDENTITY)  # only the later picture says which object it is
    }


class _Before(NamedTuple):
    """A value before the call."""

    of_eager: Any
    """When eager has run."""
    ours: Any
    """When the compiled side has run."""
    were_same: bool
    """Whether both had the same bits."""


class _Earlier(NamedTuple):
    """A tensor of an earlier result, eager's twin of it if there is one, and copies of them."""

    tensor: torch.Tensor
    before: torch.Tensor
    twin: torch.Tensor
    twin_before: torch.Tensor


class _EagerLeft(NamedTuple):
    generators: Generators
    modes: Modes
    results: Leaves
    """What the objects of the result are, and how its tensors share memory, by path."""
    of_call: Leaves
    """The values that the call could change."""
    shared: Leaves
    """The values of the shared state."""


@dataclass
class Effects:
    """Compares the side effects of one call: ``before`` the calls, ``after_eager``, and ``after``
    the compiled call.

    The sides mostly begin with equal bits, and eager runs first: then the value of each side is a
    copy of the other's value before the step. Only values that differ before the step are copied.
    The shared state is a part of both sides, and is restored between them.
    """

    tolerance: Plan
    """``rtol``, ``atol`` (both None for the dtype's defaults) and ``equal_nan``; ``gradients``:
    false where ``close`` judges them.
    """
    settings: Plan
    """The arguments of ``torch.compile``: they decide how random numbers are drawn."""
    is_package: bool = False
    """A package compiled ahead of time has its own parameters and buffers, and returns new tensors.
    """
    holders: Sequence[Any] = ()
    """The modules of the spec's Python, whose globals both sides share."""
    of_hooks: frozenset[str] = frozenset()
    """The globals that the spec's own backend or passes name: these run in the compiled call only,
    and may change them.
    """
    earlier: Mapping[str, Any] = field(default_factory=dict)
    """The results of earlier calls that are alive, by name."""
    twins: MutableMapping[torch.Tensor, torch.Tensor] = field(default_factory=WeakIdKeyDictionary)
    """Eager's tensors for those of results that in eager are memory of the function or of an
    argument.
    """
    inexact: list[Inexact] = field(default_factory=list)
    """The values after the call that the calibrated judge decides.

    Their facts are in those of ``after``, and are completed later.
    """
    begun: tuple[Generators, Modes, Picture] | None = None
    """The generators, the modes and the shared state before the call."""
    _pictures: tuple[Picture, Picture] = field(default_factory=lambda: (Picture(), Picture()))
    """The pictures of both sides before the call."""
    _apart: set[str] = field(default_factory=set)
    """The paths of values that differed before the call."""
    _versions: tuple[Mapping[str, _Version], Mapping[str, _Version]] = ({}, {})
    """The tensors of both sides before the call."""
    _before: dict[str, _Before] = field(default_factory=dict)
    """Tensors and inexact numbers, by path."""
    _texts: dict[str, str] = field(default_factory=dict)
    """The values of eager before the call other than tensors, as text."""
    _changes: int = 0
    """How many values eager changed."""
    _kept: dict[str, Any] = field(default_factory=dict)
    """Our values before the call where eager has not written its own, not even with the same bits.
    """
    _elements: dict[str, torch.Tensor] = field(default_factory=dict)
    """A mask of the elements with the bits of before, in tensors that eager wrote.

    They may be computed, too.
    """
    _values: dict[str, torch.Tensor] = field(default_factory=dict)
    """The values of before of tensors of numbers that eager wrote, and that had the same bits on
    both sides.
    """
    _earlier: dict[str, _Earlier] = field(default_factory=dict)
    _of_call: dict[str, torch.Tensor] = field(default_factory=dict)
    """The tensors of eager's result that are memory of the function or of an argument."""
    _shared: set[int | None] = field(default_factory=set)
    """The storages of eager's result."""
    _eager: _EagerLeft | None = None
    """None where eager raised."""

    def before(self, compiled: Called, eager: Called) -> None:
        """Record the state before the call.

        Each sequence is the target followed by its arguments.
        """
        self._pictures = self._picture(compiled), self._picture(eager)
        ours, theirs = (
            self._leaves(picture, called)
            for picture, called in zip(self._pictures, (compiled, eager), strict=True)
        )
        self._apart = {
            path
            for path in ours
            if path not in theirs or self._problem(path, ours[path], theirs[path]) is not None
        }
        self._versions = _versions(ours), _versions(theirs)
        self.begun = Generators.now(), Modes(), shared_state(self.holders, keeps=True)
        shared = self._of_globals(self.begun[2].values)
        self._texts = _texts({**theirs, **shared})
        self._keep_values(ours, theirs)
        self._before |= {
            path: _Before(leaf, leaf, were_same=True)
            for path, leaf in shared.items()
            if isinstance(leaf, torch.Tensor | float | complex)
        }
        self._keep_earlier(compiled)

    def _keep_values(self, ours: Leaves, theirs: Leaves) -> None:
        """Keep what holds the values of before the call: tensors and inexact numbers that are not
        apart.
        """
        for path, our in ours.items():
            if path in self._apart:
                continue
            their = theirs[path]
            if isinstance(our, float | complex) and isinstance(their, float | complex):
                # otherwise compared with a tolerance
                self._before[path] = _Before(their, our, were_same=False)
            elif (
                isinstance(our, torch.Tensor)
                and isinstance(their, torch.Tensor)
                and not compiling.is_erased(our)
            ):
                places = [versions[path].place for versions in self._versions if path in versions]
                # memory that both sides share, or that cannot be read, shows nothing
                if not places or (places[1] is not None and places[0] != places[1]):
                    self._before[path] = (
                        _Before(our, their, were_same=True)
                        if _is_same(plain(our), plain(their))
                        else _Before(frozen(their), frozen(our), were_same=False)
                    )

    def _keep_earlier(self, compiled: Called) -> None:
        """Keep copies of the tensors of earlier results that are not memory of this call."""
        storages = set(map(storage_of, changeable_tensors(compiled)))
        tensors = {
            path: leaf
            for name, result in self.earlier.items()
            for path, leaf in _tensors_of(result, name)
        }
        for path, leaf in {id(leaf): (path, leaf) for path, leaf in tensors.items()}.values():
            # the memory of what a call may change is compared elsewhere, and that of CUDA graphs
            # may refuse to be read
            with contextlib.suppress(RuntimeError):
                if (storage := storage_of(leaf)) is not None and storage not in storages:
                    twin = self.twins.get(leaf, leaf)
                    self._earlier[path] = _Earlier(leaf, frozen(leaf), twin, frozen(twin))

    def after_eager(self, eager: Called, result: object) -> None:
        """Record the generators, the modes, and aliases and histories of the result, while it
        exists.

        The compiled side has not yet run.
        """
        assert self.begun is not None
        state_after = shared_state(self.holders, keeps=True, before=self.begun[2])
        picture = self._picture(eager, self._pictures[1], state_after)
        theirs = self._leaves(picture, eager)
        shared = self._of_globals(state_after.values)
        # what eager changes lies in memory that both sides share, such as that of a global, or is a
        # parameter that freezing erased
        self._earlier = {
            path: earlier
            for path, earlier in self._earlier.items()
            if _is_same(plain(earlier.tensor), plain(earlier.before))
            and _is_same(plain(earlier.twin), plain(earlier.twin_before))
        }
        results = _tensors_of(result)
        self._shared = {storage_of(leaf) for _, leaf in results}
        relations = _relations(result, theirs, picture, state_after)
        self._eager = _EagerLeft(Generators.now(), Modes(), relations, theirs, shared)
        storages = {
            storage_of(leaf) for leaf in theirs.values() if isinstance(leaf, torch.Tensor)
        } - {None}
        self._of_call = {
            path: plain(leaf).data for path, leaf in results if storage_of(leaf) in storages
        }
        theirs = theirs | shared
        changes = {path for path, _ in _texts(theirs).items() ^ self._texts.items()}
        for path, before in self._before.items():
            current = theirs.get(path)
            if isinstance(current, torch.Tensor) and isinstance(before.of_eager, torch.Tensor):
                if self._find_written(path, current, before):
                    changes.add(path)
            elif path in theirs and current is before.of_eager:
                self._kept[path] = before.ours
        self._before = {}
        self._changes = len(changes) + len(self._eager.modes.changed_since(self.begun[1]))

    def _find_written(self, path: str, current: torch.Tensor, before: _Before) -> bool:
        """Find the elements of a tensor that eager has not written; return whether the tensor has
        other values or another form.
        """
        left, first = plain(current), plain(before.of_eager)
        is_same, version = _is_same(left, first), self._versions[1].get(path)
        if is_same and (
            version is None  # a copy
            or (_place(left) == version.place and tensor_version(current) == version.counter)
        ):
            self._kept[path] = before.ours
            return False
        pairs, are_all = _pairs(left, first)
        if are_all and len(pairs) == 1 and current.numel():
            ours, bits = map(_bits, pairs[0])
            self._elements[path] = (ours == bits).all(1).view(current.shape)
            if before.were_same and is_inexact(left) and current.numel() <= _MOST_CHANGED:
                self._values[path] = frozen(first)
        return not is_same

    def after(self, compiled: Called, eager: Called, result: object) -> Observed:
        """Return the counts ``compared`` and ``changes``, ``apart`` (paths), ``leaves`` (what
        differs), ``generators`` and ``modes``.
        """
        generators, modes = Generators.now(), Modes()  # before the comparison
        shared = Picture()
        if self.begun is not None and self._eager is not None:
            shared = shared_state(self.holders, before=self.begun[2])
        picture = self._picture(compiled, self._pictures[0], shared)
        of_call = self._leaves(picture, compiled)
        ours = of_call | self._of_globals(shared.leaves)
        if self._eager is None:
            theirs = self._leaves(self._picture(eager, self._pictures[1]), eager)
        else:
            theirs = self._eager.of_call | self._eager.shared
        erased = tuple(path for path, leaf in ours.items() if compiling.is_erased(leaf))
        paths = [
            path
            for path in {**theirs, **ours}
            if path not in self._apart
            and not (path.startswith(IDENTITY) and path.removeprefix(IDENTITY) in erased)
        ]
        differing = [
            facts
            for path in paths
            if (facts := self._differing(path, ours.get(path, _ABSENT), theirs.get(path, _ABSENT)))
        ]
        if not self.is_package:
            differing += [
                *self._unnoticed_writes(of_call, theirs),
                *self._other_results(of_call, picture, shared, result),
            ]
        self._refuse_if_copied(differing)
        # values first, then what objects are, then which ones they are
        differing.sort(
            key=lambda facts: (facts["path"].startswith(IDENTITY), facts["path"].endswith(OBJECT))
        )
        differing += self._of_earlier(result)
        counted = {
            "compared": len(paths),
            "changes": self._changes,
            "apart": sorted(self._apart)[:MOST],
            "leaves": differing,
        }
        if self.begun is not None and self._eager is not None:
            counted["generators"] = state.compared(
                self.begun[0], self._eager.generators, generators, self.settings
            )
            counted["modes"] = self._eager.modes.other_than(modes)
        # these hold tensors: 'dead' may claim that they are freed
        self._earlier, self._of_call, self._versions = {}, {}, ({}, {})
        self.begun = self._eager = None
        self._pictures = Picture(), Picture()
        return counted

    def _of_earlier(self, result: object) -> Iterator[Observed]:
        """Yield the results of earlier calls that the call changed, and the results that are
        memory of them; note which tensors of eager belong to the results.
        """
        for path, earlier in self._earlier.items():
            # torch raises for a result that a CUDA graph has overwritten, so no wrong value can be
            # read from it
            change = None
            with contextlib.suppress(RuntimeError):
                change = changed(plain(earlier.tensor), plain(earlier.before))
            if change is not None:
                yield _words(path, change, "as it was when the earlier call returned it")
        owners = {storage_of(earlier.tensor): path for path, earlier in self._earlier.items()}
        for path, leaf in _tensors_of(result):
            storage = storage_of(leaf) if leaf.numel() else None
            if (owner := owners.get(storage)) is not None and not self._shared & {
                storage,
                storage_of(self._earlier[owner].twin),
            }:
                text = f"a view of the memory of {owner}, the result of an earlier call"
                yield _words(path, text, NEW)
            if path in self._of_call:
                self.twins[leaf] = self._of_call[path]

    def _picture(
        self, called: Called, before: Picture | None = None, shared: Picture | None = None
    ) -> Picture:
        """Return the picture of a call; what it has got of the globals is known by their names."""
        places = {
            key: path
            for key, path in (shared.places if shared else {}).items()
            if before and key not in before.places and global_of(path) not in self.of_hooks
        }
        parameters = not self.is_package
        return changeable(called, parameters=parameters, before=before, places=places)

    def _of_globals(self, leaves: Leaves) -> Leaves:
        """Return the values of the shared state that only the function may change."""
        return {
            path: leaf
            for path, leaf in {**leaves, **_hidden(leaves)}.items()
            if global_of(path) not in self.of_hooks
        }

    def _leaves(self, picture: Picture, called: Called) -> Leaves:
        """Return what a call can change, by path, without the gradients that ``close`` judges."""
        leaves = {**picture.leaves, **_hidden(picture.leaves)}
        if self.tolerance.get("gradients", True):
            return leaves
        identities = {id(tensor) for tensor in gradient_leaves(called)}
        gradients = [f"{path}{GRAD}" for path, leaf in leaves.items() if id(leaf) in identities]
        for path in gradients:
            for name in (path, f"{path}{OBJECT}", f"{IDENTITY}{path}"):
                leaves.pop(name, None)
        return leaves

    def leaves_after(self, called: Called) -> Leaves:
        """Return the values that one more call of eager left."""
        shared = shared_state(self.holders).leaves if self.holders else {}
        return {**self._picture(called).leaves, **shared}

    def _differing(self, path: str, ours: object, theirs: object) -> Observed | None:
        """Return the facts of two values that are not equal, by the first rule that applies."""
        if isinstance(ours, Form | Absent) and isinstance(theirs, Form | Absent):
            if "an erased parameter" in (ours, theirs):
                return None
            is_missing = path.startswith(IDENTITY) and Absent in (type(ours), type(theirs))
            is_frozen = path.removeprefix(IDENTITY).startswith(FUNCTION) and compiling.is_set(
                "freezing"
            )
            if str(ours) == str(theirs) or is_missing or is_frozen:
                return None
            return _words(path, str(ours), str(theirs))
        if compiling.is_erased(ours):
            return None
        if (change := self._change_of_kept(path, ours)) is not None:
            return _words(path, change, REFERENCE)
        if path.endswith(OUTSIDE):
            return None  # what eager writes there are numbers of another tensor
        tensors = None
        if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
            tensors = plain(ours), plain(theirs)
            if path in self._kept and _kind_of(tensors[0]) == _kind_of(tensors[1]):
                # what neither side wrote was judged after an earlier step
                return _other_form(path, *tensors)
        facts = self._inexact(path, ours, theirs)
        if facts is None and (problem := self._problem(path, ours, theirs)) is not None:
            facts = {"path": path, "calibrated": {"why_not": _NOT_JUDGED}, **problem}
        before = self._values.get(path)
        if before is not None and tensors and (lost := other_change(*tensors, before)) is not None:
            facts = facts or {
                "path": path,
                "calibrated": {"why_not": _NOT_JUDGED},
                **describe_leaf(*tensors, self.tolerance),
            }
            facts["change"] = lost
        return facts

    def _change_of_kept(self, path: str, leaf: object) -> str | None:
        """Return how the compiled side changed a value that eager did not; None where it did not,
        and for values of another form.
        """
        before = self._kept.get(path, leaf)
        if isinstance(leaf, torch.Tensor) and isinstance(before, torch.Tensor):
            return None if leaf is before else changed(plain(leaf), plain(before))
        # repr tells zeros of different sign apart, and shows every digit
        return (
            None
            if type(leaf) is not type(before) or leaf is before or repr(leaf) == repr(before)
            else f"changed from {before!r} to {leaf!r}"
        )

    def _inexact(self, path: str, ours: object, theirs: object) -> Observed | None:
        """Return the facts of two values that the calibrated judge decides; None where a tolerance
        is given, and for other values.

        What neither side writes differs as it did after an earlier step, which judged it.
        """
        if self.tolerance["rtol"] is not None or path in self._kept:
            return None
        elements = self._elements.get(path)
        if isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
            ours, theirs = plain(ours), plain(theirs)
            if not (is_strided(ours) and is_inexact(ours)) or _kind_of(ours) != _kind_of(theirs):
                return None
            has_other_zeros = (
                elements is not None
                and ours.is_floating_point()
                and ((ours.signbit() != theirs.signbit()) & elements).any()
            )
            if _equal(ours, theirs) and not has_other_zeros:
                return None
            if _other_form(path, ours, theirs) is not None:
                return None
        elif not type(ours) is type(theirs) is float:
            return None
        facts: Observed = {"path": path, **describe_leaf(ours, theirs, self.tolerance)}
        if facts.get("equal"):
            return None
        values = frozen(ours), frozen(theirs), elements, self._values.get(path)
        self.inexact.append(Inexact(path, facts, *values))
        return facts

    def _problem(self, path: str, ours: object, theirs: object) -> Observed | None:
        """Return the facts of two values that differ; None for close values and for parameters that
        freezing has erased.
        """
        if compiling.is_erased(ours) or (ours is theirs and not isinstance(ours, torch.Tensor)):
            return None
        if not (isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)):
            if {type(ours), type(theirs)} <= {Form, Absent}:
                return None if str(ours) == str(theirs) else _words(path, str(ours), str(theirs))
            facts: Observed = describe_leaf(ours, theirs, self.tolerance)
            return None if _is_near(facts) else facts
        left, right = plain(ours), plain(theirs)
        if left.layout is not right.layout:
            return _words(path, f"layout {left.layout}", f"layout {right.layout}")
        if not _equal(left, right):
            facts = describe_leaf(dense(left), dense(right), self.tolerance)
            if not _is_near(facts):
                return facts
        return _other_form(path, left, right)

    def _unnoticed_writes(self, ours: Leaves, theirs: Leaves) -> Iterator[Observed]:
        """Yield the tensors that eager wrote, and whose version counter the compiled call did not
        advance, or that it replaced.

        Autograd, and other names of the tensor, must notice the write. The opposite is not an
        error: an operator of eager, such as batch norm, may write without advancing the counter. A
        tensor that eager replaced by another has no counter of before.
        """
        before, eager_before = self._versions
        versions, eager_now = _versions(ours), _versions(theirs)
        common = before.keys() & eager_before.keys() & eager_now.keys() - self._apart
        for path in (path for path in versions if path in common):
            if (
                compiling.is_erased(ours[path])
                or path.endswith(GRAD)
                or not eager_before[path].is_of(eager_now[path])
            ):
                continue
            if (
                versions[path].counter is None
                or eager_now[path].counter == eager_before[path].counter
            ):
                continue
            if not before[path].is_of(versions[path]):
                yield _words(path, "replaced by another tensor", "written in place, as by eager")
            elif versions[path].counter == before[path].counter:
                yield _words(f"version counter of {path}", "not advanced", "advanced")

    def _refuse_if_copied(self, differing: Sequence[Observed]) -> None:
        """Raise ``LookupError`` where a difference is at a global that is an argument, too: eager
        has a copy of the argument, and the global itself.
        """
        if self.begun is None or not differing:
            return
        before = self.begun[2]
        of_globals = {
            key: path for path, leaf in before.leaves.items() for key in _keys(leaf)
        } | before.places
        compiled, eager = (
            {key: path for path, leaf in picture.leaves.items() for key in _keys(leaf)}
            | {key: picture.places[key] for key in picture.mutable}
            for picture in self._pictures
        )
        for key in compiled.keys() & of_globals.keys() - eager.keys():
            name = re.compile(rf"{re.escape(of_globals[key])}(?!\w)")
            for facts in differing:
                if name.search(f"{facts['path']} {facts.get('reference_value')}"):
                    raise LookupError(
                        f"{compiled[key]} is {of_globals[key]}, or has its memory, and the call "
                        f"changes it: eager gets a copy of its arguments; pass a copy of it"
                    )

    def _other_results(
        self, ours: Leaves, picture: Picture, shared: Picture, result: object
    ) -> Iterator[Observed]:
        """Yield the parts of a result that share memory or identity with other values differently
        than in eager.
        """
        # with freezing, parameters are constants of the graph: it returns copies of them
        if self._eager is None or compiling.is_set("freezing"):
            return
        relations = _relations(result, ours, picture, shared)
        for path, expected in self._eager.results.items():
            if path in relations and relations[path] != expected:
                yield _words(path, relations[path], expected)


def _relations(result: object, of_call: Leaves, picture: Picture, shared: Picture) -> Leaves:
    """Return what the objects of a result are, which of those of the call and of the globals they
    are, and how its tensors share memory, by path. The result is added to the picture of the call.
    """
    paths = set(picture.leaves)
    picture.places.update({**shared.places, **picture.places})
    picture.add("output", result)
    forms = {
        path: leaf
        for path, leaf in picture.leaves.items()
        if path not in paths and isinstance(leaf, Form)
    }
    return {**aliases(result, {**of_call, **shared.leaves}), **forms}


def _keys(leaf: object) -> list[int]:
    """Return what two names of one tensor, or of one memory, have in common."""
    if not isinstance(leaf, torch.Tensor) or compiling.is_erased(leaf):
        return []
    return [key for key in (storage_of(leaf),) if key is not None]


_ABSENT = Absent()


class StepEffects:
    """Compares the side effects of a step: ``begin``, the eager side, ``eager_done``, the compiled
    side, ``finish``.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tolerance: Plan | None = None
        self._running: Effects | None = None
        self._twins: MutableMapping[torch.Tensor, torch.Tensor] = WeakIdKeyDictionary()
        self.facts: Observed | None = None
        """The side effects of the current step; None where they were not compared."""

    @contextlib.contextmanager
    def _comparing(self) -> Iterator[None]:
        """In this context an exception is an ERROR of the case: it does not come from compiled
        code.
        """
        with self._session.phases("compare"), needed("the comparison of side effects"):
            yield

    def begin_step(self, step: Plan) -> None:
        """Forget the last step.

        ``effects`` of the plan's step is the tolerance, None where nothing is compared.
        """
        self._tolerance = step.get("effects")
        self._running, self.facts = None, None

    def begin(self, compiled: Called, eager: Called, *, is_package: bool = False) -> None:
        """Record the state of both sides (each the target followed by its arguments) before the
        step.
        """
        if self._tolerance is None:
            return
        with self._comparing():
            session, plan = self._session, self._session.plan
            settings = {**plan["body"]["compile"], **plan.get("declared", {})}
            holders = [*reversed(session.module.globals())]
            # the results that are alive: those with a name, and the latest
            earlier = {
                **{name: session.scope.values[name] for name in session.names.results},
                "the result before": session.output,
            }
            self._running = Effects(
                self._tolerance,
                settings,
                is_package,
                holders,
                self._named_by_hooks(),
                earlier,
                self._twins,
            )
            self._running.before(compiled, eager)

    def _named_by_hooks(self) -> frozenset[str]:
        """Return the globals that the spec's backend and passes name, themselves included."""
        body, scope = self._session.plan["body"], self._session.scope
        names_of_spec = self._session.module.namespace
        refs = [
            name
            for key in ("compile", "config", "dynamo_config")
            for name in referenced(body.get(key))
        ]
        waiting = [scope.named(name) for name in refs] + compiling.registered_backends(PREFIX)
        names, seen = set(refs), set[int]()
        while waiting:
            hook = waiting.pop()
            if id(hook) in seen:
                continue
            seen.add(id(hook))
            members = vars(hook if isinstance(hook, type) else type(hook)).values()
            codes = [
                function.__code__
                for function in (hook, *members)
                if isinstance(function, types.FunctionType)
            ]
            while codes:
                code = codes.pop()
                codes += [part for part in code.co_consts if isinstance(part, types.CodeType)]
                new = set(code.co_names) - names
                names |= new
                waiting += [
                    value
                    for name in new
                    if isinstance(value := names_of_spec.get(name), types.FunctionType | type)
                ]
        return frozenset(names)

    def eager_done(self, eager: Called, result: object = None) -> None:
        """Record what the eager side left, and restore generators and modes for the compiled
        side.
        """
        if self._running is not None and self._running.begun is not None:
            with self._comparing():
                self._running.after_eager(eager, result)
                for before in self._running.begun:
                    before.restore()

    def finish(self, compiled: Called, eager: Side | None, result: object = None) -> None:
        """Compare the two sides after the step, where it was begun; ``eager`` is the side, None
        where it has no result.
        """
        if self._running is None or eager is None:
            return
        with self._comparing(), self._session.unseen():
            facts = self._running.after(compiled, eager.called, result)
            self.facts = with_repetition(self.facts, facts)
            self._session.additional.calibrate_effects(
                self.facts,
                self._running.inexact,
                equal_nan=self._running.tolerance["equal_nan"],
                leaves=self._running.leaves_after,
            )

    def unwanted_write(
        self, ours: torch.Tensor, theirs: torch.Tensor, before: torch.Tensor
    ) -> tuple[str, str] | None:
        """Return how the compiled side changed a tensor that eager did not write, and what was
        expected; None where it did not.

        All three were made in one way: ``before`` has the version counter with which the others
        began.
        """
        with self._comparing(), self._session.unseen():
            is_unwritten = tensor_version(theirs) == tensor_version(before) and _is_same(
                plain(theirs), plain(before)
            )
            change = changed(plain(ours), plain(before)) if is_unwritten else None
            if is_unwritten and change is None:
                outside = [*_hidden({"": ours}).values(), *_hidden({"": before}).values()]
                change = changed(*outside) if len(outside) == 2 else None
            return None if change is None else (change, REFERENCE)

    def shared_memory(self, *sides: tuple[Any, Sequence[Any]]) -> dict[str, tuple[str, str]]:
        """Return how tensors of a compiled result share memory where eager's do not, by path.

        A side is a result and its arguments.
        """
        ours, theirs = (
            aliases(result, {f"argument {number}": leaf for number, leaf in enumerate(called)})
            for result, called in sides
        )
        return {
            f"memory of {path}": (ours[path], NEW)
            for path, relation in theirs.items()
            if relation == NEW != ours.get(path, NEW)
        }
