"""The side effects of a step: what the compiled side left beside its result, compared with what
eager left.
"""

import contextlib
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
    extent,
    global_of,
    inner_tensors,
    is_freed,
    shared_state,
)
from torch_conformance.vocabulary.steps.call import gradient_leaves
from torch_conformance.vocabulary.steps.step_base import needed, referenced
from torch_conformance.worker.case import state
from torch_conformance.worker.case.copies import (
    FUNCTION,
    changeable,
    frozen,
    plain,
    storage_of,
    tensor_version,
)
from torch_conformance.worker.case.state import Generators, Modes
from torch_conformance.worker.torch_compat import compiling

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
        return [part for _, each in inner for part in _parts(each)]
    with torch._C.DisableTorchFunctionSubclass():
        is_strided = tensor.layout is torch.strided and not tensor.is_nested
        if is_strided and tensor.device.type != "meta" and not is_freed(tensor):
            return [plain(tensor).detach()]
        raise NotImplementedError(str(tensor.layout))


def _place(tensor: torch.Tensor) -> Place | None:
    """Return where the values of a tensor lie; None where its memory cannot be read."""
    try:
        parts = _parts(tensor)
        places = tuple(
            (part.untyped_storage().data_ptr(), part.storage_offset(), part.shape, part.stride())
            for part in parts
        )
        return (
            places
            if all(
                location[0] or not part.numel()
                for location, part in zip(places, parts, strict=True)
            )
            else None
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
    alike = [
        (ours, theirs)
        for ours, theirs in pairs
        if all(getattr(ours, key) == getattr(theirs, key) for key in _FORM)
    ]
    return alike, len(alike) == len(pairs)


def _alike(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the memory of two tensors as bytes; that of their elements alone where their strides
    differ.
    """
    if (left.stride(), left.is_conj(), left.is_neg()) != (
        right.stride(),
        right.is_conj(),
        right.is_neg(),
    ):
        left, right = _dense(left), _dense(right)
    return _bytes(left), _bytes(right)


def _dense(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg().contiguous()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return the memory of a tensor from its first element to its last, as uint8 of shape
    ``(bytes,)``; it shares the memory.
    """
    size = tensor.element_size()
    view = torch.empty(0, dtype=torch.uint8, device=tensor.device)
    return view.set_(
        tensor.untyped_storage(), tensor.storage_offset() * size, (extent(tensor) * size,), (1,)
    )


def _is_same(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Whether two tensors of one form have the same bits, also in the gaps between elements where
    their strides are equal.

    False where the memory of one cannot be read.
    """
    pairs, are_all = _pairs(left, right)
    with contextlib.suppress(*_UNREADABLE):
        return are_all and all(bool(torch.equal(*_alike(*pair))) for pair in pairs)
    return False


def changed(now: torch.Tensor, before: torch.Tensor) -> str | None:
    """Return how a tensor differs from its value before; None where no bit does, and for tensors of
    two forms.
    """
    for part, part_before in _pairs(now, before)[0]:
        memory, memory_before = _alike(part, part_before)
        if torch.equal(memory, memory_before):
            continue
        ours, theirs = (
            _bytes(_dense(tensor)).view(-1, tensor.element_size()) for tensor in (part, part_before)
        )
        differs = (ours != theirs).any(1)
        if not differs.any():
            return (
                f"changed between its elements: {int((memory != memory_before).sum())} bytes of "
                "its memory"
            )
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


def _is_changed(tensor: torch.Tensor, before: Any) -> bool:
    # torch raises for a result that a CUDA graph has overwritten, so no wrong value can be read
    # from it
    with contextlib.suppress(RuntimeError):
        return (
            isinstance(before, torch.Tensor) and changed(plain(tensor), plain(before)) is not None
        )
    return False


def _other_gaps(left: torch.Tensor, right: torch.Tensor) -> str | None:
    """Return how the memory between the elements of two strided tensors differs; None where it does
    not, or they have other strides.
    """
    if left.layout is not torch.strided or left.is_nested or extent(left) <= left.numel():
        return None
    pairs, are_all = _pairs(left, right)
    if not are_all or len(pairs) != 1 or pairs[0][0].stride() != pairs[0][1].stride():
        return None
    ours, theirs = pairs[0]
    is_gap = torch.ones(extent(ours), dtype=torch.bool, device=ours.device)
    is_gap.as_strided(ours.shape, ours.stride()).zero_()
    differs = (_bytes(ours) != _bytes(theirs)).view(-1, ours.element_size()).any(1) & is_gap
    return (
        f"changed between its elements: {int(differs.sum())} elements of its memory"
        if differs.any()
        else None
    )


# -- results ---------------------------------------------------------------------------------------

NEW = "memory of its own"
"""The relation of a tensor that shares no memory with a tensor of the call."""


def _tensors_of(result: Any, name: str = "output") -> list[tuple[str, torch.Tensor]]:
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


def aliases(result: Any, leaves: Mapping[str, Any]) -> dict[str, str]:
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


def with_repetition(before: Mapping[str, Any] | None, after: Mapping[str, Any]) -> dict[str, Any]:
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


def _is_near(facts: Mapping[str, Any]) -> bool:
    """Whether two values are equal, or tensors of one form within the tolerance."""
    if facts["type"] != "tensor":
        return facts.get("equal") is True
    same = all(
        facts[name] == facts[f"reference_{name}"] for name in ("type", "shape", "dtype", "device")
    )
    return same and not any(
        facts[name] for name in ("mismatches", "nan_mismatches", "inf_mismatches")
    )


def _words(path: str, value: str, reference: str) -> dict[str, Any]:
    """Return the facts of a property that is described by words."""
    facts = {"type": "form", "shape": None, "dtype": None, "device": None}
    both = {**facts, **{f"reference_{name}": fact for name, fact in facts.items()}}
    return {"path": path, **both, "equal": False, "value": value, "reference_value": reference}


def _other_form(path: str, ours: torch.Tensor, theirs: torch.Tensor) -> dict[str, Any] | None:
    """Return the facts of two close tensors that differ in strides or ``requires_grad``; None when
    they do not.
    """
    if ours.layout is not torch.strided or ours.is_nested:
        return None
    value, reference = (
        f"strides {list(tensor.stride())}, requires_grad {tensor.requires_grad}"
        for tensor in (ours, theirs)
    )
    return None if value == reference else _words(path, value, reference)


def _equal(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
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
"""The end of the path of memory that no tensor of the call shows, beside one that does."""

_NOT_JUDGED = "it is no strided tensor of floating-point numbers, or has another form than eager's"


@dataclass(frozen=True)
class Inexact:
    """Two tensors of one form, or floats, that a call left and that are not equal: the calibrated
    judge decides.
    """

    path: str
    facts: dict[str, Any]
    ours: torch.Tensor | float
    theirs: torch.Tensor | float
    unwritten: torch.Tensor | None = None
    """A mask of the elements in which eager's tensor has the bits of before the call."""
    before: torch.Tensor | None = None
    """The values of both sides before the call, where they were equal."""


class _Version(NamedTuple):
    """A tensor at one time. While it is held, no other tensor has its memory."""

    tensor: torch.Tensor
    place: Place | None
    counter: int | None

    def is_of(self, now: "_Version") -> bool:
        """Whether a path still has this tensor; parts of a nested tensor are new objects each
        time.
        """
        return now.tensor is self.tensor or (now.place is not None and now.place == self.place)


def _versions(leaves: Leaves) -> dict[str, _Version]:
    tensors = ((path, leaf) for path, leaf in leaves.items() if isinstance(leaf, torch.Tensor))
    return {
        path: _Version(tensor, _place(plain(tensor)), tensor_version(tensor))
        for path, tensor in tensors
    }


def _texts(leaves: Leaves) -> dict[str, str]:
    """Return values that are no tensors as text; of tensors, which are compared by their bits, that
    they are there.
    """
    return {
        path: "a tensor" if isinstance(leaf, torch.Tensor) else repr(leaf)
        for path, leaf in leaves.items()
        if not path.startswith(IDENTITY)  # only the later picture says which object it is
    }


class _EagerLeft(NamedTuple):
    generators: Generators
    modes: Modes
    aliases: Mapping[str, str]
    forms: Leaves
    """What the objects of the result are, by path."""
    shared: Leaves
    """The values of the shared state that eager changed; absent ones that it deleted."""


@dataclass
class Effects:
    """Compares the side effects of one call: ``before`` the calls, ``after_eager``, and ``after``
    the compiled call.

    The sides mostly begin with equal bits, and eager runs first: then the value of each side is a
    copy of the other's value before the step. Only values that differ before the step are copied.
    """

    tolerance: Mapping[str, Any]
    """``rtol``, ``atol`` (both None for the dtype's defaults) and ``equal_nan``; ``gradients``:
    false where ``close`` judges them.
    """
    settings: Mapping[str, Any]
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
    _begun: dict[str, tuple[Any, Any]] = field(default_factory=dict)
    """What holds eager's value of before the call when eager has run, and ours when the compiled
    side has run.
    """
    _texts: dict[str, str] = field(default_factory=dict)
    """The values of eager before the call that are no tensors, as text."""
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
    _same: set[str] = field(default_factory=set)
    """The paths of tensors that eager wrote, and that had the same bits on both sides before the
    step.
    """
    _earlier: dict[str, tuple[torch.Tensor, Any]] = field(default_factory=dict)
    """Tensors of earlier results with copies of them."""
    _eager_earlier: dict[str, tuple[torch.Tensor, Any]] = field(default_factory=dict)
    """Eager's twins of these, with copies of them."""
    _of_call: dict[str, torch.Tensor] = field(default_factory=dict)
    """The tensors of eager's result that are memory of the function or of an argument."""
    _shared: set[int | None] = field(default_factory=set)
    """The storages of eager's result."""
    _eager: _EagerLeft | None = None
    """None where eager raised."""

    def before(self, compiled: Sequence[Any], eager: Sequence[Any]) -> None:
        """Record the state before the call.

        Each sequence is the target followed by its arguments.
        """
        self._pictures = self._picture(compiled), self._picture(eager)
        ours, theirs = (
            self._leaves(each, called)
            for each, called in zip(self._pictures, (compiled, eager), strict=True)
        )
        self._apart = {
            path
            for path in ours
            if path not in theirs or self._problem(path, ours[path], theirs[path]) is not None
        }
        self._versions, self._texts = (_versions(ours), _versions(theirs)), _texts(theirs)
        for path, our, their in [
            (path, leaf, theirs[path]) for path, leaf in ours.items() if path not in self._apart
        ]:
            if isinstance(our, float | complex) and isinstance(their, float | complex):
                # otherwise compared with a tolerance
                self._begun[path] = their, our
            elif (
                isinstance(our, torch.Tensor)
                and isinstance(their, torch.Tensor)
                and not compiling.is_erased(our)
            ):
                place = self._versions[1][path].place
                if place is not None and place != self._versions[0][path].place:
                    # memory that both sides share tells nothing
                    self._begun[path] = (
                        (our, their)
                        if _is_same(plain(our), plain(their))
                        else (frozen(their), frozen(our))
                    )
        self.begun = Generators.now(), Modes(), shared_state(self.holders, keeps=True)
        own = {
            storage_of(leaf)
            for leaf in changeable(compiled, parameters=True).leaves.values()
            if isinstance(leaf, torch.Tensor)
        }
        tensors = {
            path: leaf
            for name, result in self.earlier.items()
            for path, leaf in _tensors_of(result, name)
        }
        for path, leaf in {id(leaf): (path, leaf) for path, leaf in tensors.items()}.values():
            # the memory of what a call may change is compared elsewhere, and that of CUDA graphs
            # may refuse to be read
            with contextlib.suppress(RuntimeError):
                if (storage := storage_of(leaf)) is not None and storage not in own:
                    self._earlier[path] = leaf, frozen(leaf)
                    if leaf in self.twins:
                        self._eager_earlier[path] = self.twins[leaf], frozen(self.twins[leaf])

    def after_eager(self, eager: Sequence[Any], result: Any) -> None:
        """Record the generators, the modes, and aliases and histories of the result, while it
        exists.

        The compiled side has not yet run.
        """
        picture = self._picture(eager, self._pictures[1])
        theirs = self._leaves(picture, eager)
        # what eager changes lies in memory that both sides share, such as that of a global, or is a
        # parameter that freezing erased
        pairs = {
            path: [pair, self._eager_earlier.get(path, pair)]
            for path, pair in self._earlier.items()
        }
        self._earlier = {
            path: ours
            for path, (ours, theirs) in pairs.items()
            if not (_is_changed(*ours) or _is_changed(*theirs))
        }
        results = _tensors_of(result)
        self._shared = {storage_of(leaf) for _, leaf in results}
        relations, forms = aliases(result, theirs), _forms(picture, result)
        self._eager = _EagerLeft(
            Generators.now(), Modes(), relations, forms, self._changed_by_eager()
        )
        storages = {
            storage_of(leaf) for leaf in theirs.values() if isinstance(leaf, torch.Tensor)
        } - {None}
        self._of_call = {
            path: plain(leaf).data for path, leaf in results if storage_of(leaf) in storages
        }
        changes = {path for path, _ in _texts(theirs).items() ^ self._texts.items()}
        for path, (eager_value, our_value) in self._begun.items():
            now = theirs.get(path)
            if isinstance(now, torch.Tensor) and isinstance(eager_value, torch.Tensor):
                if self._find_written(path, now, eager_value, our_value):
                    changes.add(path)
            elif path in theirs and now is eager_value:
                self._kept[path] = our_value
        self._begun = {}
        self._changes = (
            len(changes)
            + len(self._eager.shared)
            + (0 if self.begun is None else len(self._eager.modes.changed_since(self.begun[1])))
        )

    def _changed_by_eager(self) -> Leaves:
        """Return the values of the shared state that eager changed."""
        if self.begun is None:
            return {}
        before = self.begun[2]
        left = shared_state(self.holders, keeps=True, before=before)
        changed: Leaves = {}
        for path in {**before.values, **left.values}:
            first, now = before.values.get(path, _ABSENT), left.values.get(path, _ABSENT)
            if path.startswith(IDENTITY):  # only the later picture says which object it is
                same = f"the object at {path.removeprefix(IDENTITY)}"
                if now == same or (now is _ABSENT or str(first) == str(now)):
                    continue
            if not _is_same_leaf(first, now):
                changed[path] = now
                if isinstance(first, torch.Tensor) and isinstance(now, torch.Tensor):
                    self._note_bits(path, now, first)
        return changed

    def _changed_alone(self, before: Leaves, now: Leaves) -> Iterator[dict[str, Any]]:
        """Yield the values of the shared state that only the compiled side changed."""
        known = () if self._eager is None else self._eager.shared
        for path in sorted({**before, **now}, key=_rank):
            if path in known or global_of(path) in self.of_hooks:
                continue
            first, last = before.get(path, _ABSENT), now.get(path, _ABSENT)
            if path.startswith(IDENTITY):  # only the later picture says it of each object
                if last is _ABSENT:
                    continue
                if first is _ABSENT:
                    first = Form(f"the object at {path.removeprefix(IDENTITY)}")
            if not _is_same_leaf(first, last):
                yield _words(path, _in_words(last), f"{_in_words(first)}, {REFERENCE}")

    def _note_bits(
        self, path: str, now: torch.Tensor, before: torch.Tensor, *, with_values: bool = True
    ) -> bool:
        """Note which elements of a tensor that eager wrote have the bits of before, and with
        ``with_values`` the values of before; return whether these bits can be read.
        """
        pairs, are_all = _pairs(now, before)
        if not are_all or len(pairs) != 1 or not now.numel():
            return False
        ours, bits = (_bytes(_dense(part)).view(-1, part.element_size()) for part in pairs[0])
        self._elements[path] = (ours == bits).all(1).view(now.shape)
        is_number = now.is_floating_point() or now.is_complex()
        if with_values and is_number and now.numel() <= _MOST_CHANGED:
            self._values[path] = frozen(before)
        return True

    def _find_written(
        self, path: str, now: torch.Tensor, eager_value: torch.Tensor, our_value: Any
    ) -> bool:
        """Find the elements of a tensor that eager has not written; return whether the tensor has
        other values or another form.
        """
        surroundings, before, version = plain(now), plain(eager_value), self._versions[1][path]
        is_same = _is_same(surroundings, before)
        if (
            is_same
            and _place(surroundings) == version.place
            and tensor_version(now) == version.counter
        ):
            self._kept[path] = our_value
            return False
        # the sides had the same bits
        were_equal = our_value is version.tensor
        if self._note_bits(path, surroundings, before, with_values=were_equal) and were_equal:
            self._same.add(path)
        return not is_same

    def after(self, compiled: Sequence[Any], eager: Sequence[Any], result: Any) -> dict[str, Any]:
        """Return the counts ``compared`` and ``changes``, ``apart`` (paths), ``leaves`` (what
        differs), ``generators`` and ``modes``.
        """
        now, left = Generators.now(), Modes()  # before the comparison
        picture = self._picture(compiled, self._pictures[0])
        ours, theirs = (
            self._leaves(each, called)
            for each, called in (
                (picture, compiled),
                (self._picture(eager, self._pictures[1]), eager),
            )
        )
        erased = tuple(path for path, leaf in ours.items() if compiling.is_erased(leaf))
        paths = [
            path
            for path in {**theirs, **ours}
            if path not in self._apart
            and not (path.startswith(IDENTITY) and path.removeprefix(IDENTITY) in erased)
        ]
        paths.sort(key=_rank)
        both = [(path, ours.get(path, _ABSENT), theirs.get(path, _ABSENT)) for path in paths]
        differing = [facts for values in both if (facts := self._differing(*values)) is not None]
        if self.begun is not None and self._eager is not None:
            shared = shared_state(self.holders, before=self.begun[2]).leaves
            both = [
                (path, shared.get(path, _ABSENT), self._eager.shared[path])
                for path in sorted(self._eager.shared, key=_rank)
                if global_of(path) not in self.of_hooks
            ]
            paths += [path for path, _, _ in both]
            differing += [
                facts for values in both if (facts := self._differing(*values)) is not None
            ]
            differing += self._changed_alone(self.begun[2].values, shared)
        if not self.is_package:
            differing += [
                *self._unnoticed_writes(ours, theirs),
                *self._other_results(ours, picture, result),
            ]
        differing.sort(key=lambda facts: _rank(facts["path"]))
        for path, (tensor, before) in self._earlier.items():
            if _is_changed(tensor, before):
                differing.append(
                    _words(
                        path,
                        changed(plain(tensor), plain(before)) or "",
                        "as it was when the earlier call returned it",
                    )
                )
        owners = {storage_of(tensor): path for path, (tensor, _) in self._earlier.items()}
        for path, leaf in _tensors_of(result):
            storage = storage_of(leaf) if leaf.numel() else None
            if (owner := owners.get(storage)) is not None and storage not in self._shared:
                twin = self._eager_earlier.get(owner)
                if twin is None or storage_of(twin[0]) not in self._shared:
                    differing.append(
                        _words(
                            path,
                            f"a view of the memory of {owner}, the result of an earlier call",
                            NEW,
                        )
                    )
            if path in self._of_call:
                self.twins[leaf] = self._of_call[path]
        counted = {
            "compared": len(paths),
            "changes": self._changes,
            "apart": sorted(self._apart)[:MOST],
            "leaves": differing,
        }
        if self.begun is not None and self._eager is not None:
            counted["generators"] = state.compared(
                self.begun[0], self._eager.generators, now, self.settings
            )
            counted["modes"] = self._eager.modes.other_than(left)
        # these hold tensors: 'dead' may claim that they are freed
        self._earlier, self._eager_earlier, self._of_call, self._versions = {}, {}, {}, ({}, {})
        self.begun = self._eager = None
        self._pictures = Picture(), Picture()
        return counted

    def _picture(self, called: Sequence[Any], before: Picture | None = None) -> Picture:
        return changeable(called, parameters=not self.is_package, before=before)

    def _leaves(self, picture: Picture, called: Sequence[Any]) -> Leaves:
        leaves = dict(picture.leaves)
        leaves.update(_outside(leaves))
        if self.tolerance.get("gradients", True):
            return leaves
        identities = {id(tensor) for tensor in gradient_leaves(called)}
        judged = [f"{path}{GRAD}" for path, leaf in leaves.items() if id(leaf) in identities]
        for path in judged:
            for name in (path, f"{path}{OBJECT}", f"{IDENTITY}{path}"):
                leaves.pop(name, None)
        return leaves

    def leaves_after(self, called: Sequence[Any]) -> Leaves:
        """Return the values that one more call of eager left."""
        shared = shared_state(self.holders).leaves if self.holders else {}
        return {**self._picture(called).leaves, **shared}

    def _differing(self, path: str, ours: Any, theirs: Any) -> dict[str, Any] | None:
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
        is_erased, are_tensors = (
            compiling.is_erased(ours),
            isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor),
        )
        change = None if is_erased else self._change_of_kept(path, ours)
        if change is not None:
            return _words(path, change, REFERENCE)
        if path.endswith(OUTSIDE):
            return None  # what eager writes there are numbers of another tensor
        if (
            path in self._same
            and are_tensors
            and (change := _other_gaps(plain(ours), plain(theirs))) is not None
        ):
            return _words(path, change, "as eager leaves the memory between its elements")
        if (
            path in self._kept
            and are_tensors
            and (ours.layout, ours.shape, ours.dtype) == (theirs.layout, theirs.shape, theirs.dtype)
        ):
            return _other_form(
                path, plain(ours), plain(theirs)
            )  # what neither side wrote was judged after an earlier step
        facts = self._inexact(path, ours, theirs)
        if facts is None and (problem := self._problem(path, ours, theirs)) is not None:
            facts = {"path": path, "calibrated": {"why_not": _NOT_JUDGED}, **problem}
        before = None if is_erased else self._values.get(path)
        if before is not None and are_tensors:
            left, right = plain(ours), plain(theirs)
            if (lost := other_change(left, right, before)) is not None:
                facts = facts or {
                    "path": path,
                    "calibrated": {"why_not": _NOT_JUDGED},
                    **describe_leaf(left, right, self.tolerance),
                }
                facts["change"] = lost
        return facts

    def _change_of_kept(self, path: str, leaf: Any) -> str | None:
        """Return how the compiled side changed a value that eager did not; None where it did not,
        and for values of another form.
        """
        kept = self._kept.get(path, leaf)
        if isinstance(leaf, torch.Tensor) and isinstance(kept, torch.Tensor):
            return None if leaf is kept else changed(plain(leaf), plain(kept))
        # repr tells zeros of different sign apart, and shows every digit
        return (
            None
            if type(leaf) is not type(kept) or leaf is kept or repr(leaf) == repr(kept)
            else f"changed from {kept!r} to {leaf!r}"
        )

    def _inexact(self, path: str, ours: Any, theirs: Any) -> dict[str, Any] | None:
        """Return the facts of two values that the calibrated judge decides; None where a tolerance
        is given, and for other values.

        What neither side writes differs as it did after an earlier step, which judged it.
        """
        if self.tolerance["rtol"] is not None or path in self._kept:
            return None
        facts: dict[str, Any]
        if (
            type(ours) is type(theirs) is float
            and not (facts := describe_leaf(ours, theirs, self.tolerance))["equal"]
        ):
            self.inexact.append(Inexact(path, facts := {"path": path, **facts}, ours, theirs))
            return facts
        if not (isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)):
            return None
        left, right = plain(ours), plain(theirs)
        is_number = (
            left.layout is torch.strided
            and not left.is_nested
            and (left.is_floating_point() or left.is_complex())
        )
        if (
            compiling.is_erased(ours)
            or not is_number
            or (left.shape, left.dtype) != (right.shape, right.dtype)
        ):
            return None
        kept = self._elements.get(path)
        if _equal(left, right) and not (
            kept is not None
            and left.is_floating_point()
            and ((left.signbit() != right.signbit()) & kept).any()
        ):
            return None
        if _other_form(path, left, right) is not None:
            return None
        facts = {"path": path, **describe_leaf(left, right, self.tolerance)}
        self.inexact.append(
            Inexact(path, facts, frozen(left), frozen(right), kept, self._values.get(path))
        )
        return facts

    def _problem(self, path: str, ours: Any, theirs: Any) -> dict[str, Any] | None:
        """Return the facts of two values that differ; None for close values and for parameters that
        freezing has erased.
        """
        if compiling.is_erased(ours) or (ours is theirs and not isinstance(ours, torch.Tensor)):
            return None
        if not (isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)):
            if {type(ours), type(theirs)} <= {Form, Absent}:
                return None if str(ours) == str(theirs) else _words(path, str(ours), str(theirs))
            facts: dict[str, Any] = describe_leaf(ours, theirs, self.tolerance)
            return None if _is_near(facts) else facts
        left, right = plain(ours), plain(theirs)
        if left.layout is not right.layout:
            return _words(path, f"layout {left.layout}", f"layout {right.layout}")
        if not _equal(left, right):
            facts = describe_leaf(dense(left), dense(right), self.tolerance)
            if not _is_near(facts):
                return facts
        return _other_form(path, left, right)

    def _unnoticed_writes(self, ours: Leaves, theirs: Leaves) -> Iterator[dict[str, Any]]:
        """Yield the tensors that eager wrote, and whose version counter the compiled call did not
        advance, or that it replaced.

        Autograd, and other names of the tensor, must notice the write. The opposite is no error: an
        operator of eager, such as batch norm, may write without advancing the counter. A tensor
        that eager replaced by another has no counter of before.
        """
        before, eager_before = self._versions
        now, eager_now = _versions(ours), _versions(theirs)
        known = before.keys() & eager_before.keys() & eager_now.keys() - self._apart
        for path in (path for path in now if path in known):
            if (
                compiling.is_erased(ours[path])
                or path.endswith(GRAD)
                or not eager_before[path].is_of(eager_now[path])
            ):
                continue
            if now[path].counter is None or eager_now[path].counter == eager_before[path].counter:
                continue
            if not before[path].is_of(now[path]):
                yield _words(path, "replaced by another tensor", "written in place, as by eager")
            elif now[path].counter == before[path].counter:
                yield _words(f"version counter of {path}", "not advanced", "advanced")

    def _other_results(
        self, ours: Leaves, picture: Picture, result: Any
    ) -> Iterator[dict[str, Any]]:
        # with freezing, parameters are constants of the graph: it returns copies of them
        if self._eager is None or compiling.is_set("freezing"):
            return
        relations, forms = aliases(result, ours), _forms(picture, result)
        for expected, observed in ((self._eager.aliases, relations), (self._eager.forms, forms)):
            for path in expected.keys() & observed.keys():
                if expected[path] != observed[path]:
                    yield _words(path, observed[path], expected[path])


def _forms(picture: Picture, result: Any) -> Leaves:
    """Add a result to the picture of the call; return what its objects are, by path."""
    known = set(picture.leaves)
    picture.add("output", result)
    return {
        path: leaf
        for path, leaf in picture.leaves.items()
        if path not in known and isinstance(leaf, Form)
    }


def _in_words(leaf: Any) -> str:
    return "another tensor" if isinstance(leaf, torch.Tensor) else str(leaf)[:200]


def _rank(path: str) -> tuple[bool, bool]:
    """Return the order of facts: values first, then what objects are, then which ones they are."""
    return path.startswith(IDENTITY), path.endswith(OBJECT)


def _is_same_leaf(first: Any, now: Any) -> bool:
    """Whether a value of the shared state is as it was, bit by bit."""
    if isinstance(first, torch.Tensor) and isinstance(now, torch.Tensor):
        return (first.requires_grad, first.stride()) == (
            now.requires_grad,
            now.stride(),
        ) and _is_same(plain(first), plain(now))
    return type(first) is type(now) and repr(first) == repr(now)


_ABSENT = Absent()


def _outside(leaves: Leaves) -> Leaves:
    """Return the bytes of the memory of each tensor that no tensor of the call has between its
    first and its last element.
    """
    shown: dict[int, list[tuple[int, int]]] = {}
    owners: dict[int, tuple[str, torch.Tensor]] = {}
    for path, leaf in leaves.items():
        if (
            isinstance(leaf, torch.Tensor)
            and not compiling.is_erased(leaf)
            and (address := storage_of(leaf)) is not None
        ):
            with torch._C.DisableTorchFunctionSubclass():
                start, size = (
                    leaf.storage_offset() * leaf.element_size(),
                    extent(leaf) * leaf.element_size(),
                )
            shown.setdefault(address, []).append((start, start + size))
            owners.setdefault(address, (path, leaf))
    outside: Leaves = {}
    for address, spans in shown.items():
        path, leaf = owners[address]
        storage, begun = plain(leaf).untyped_storage(), 0
        for start, end in [*sorted(spans), (storage.nbytes(), storage.nbytes())]:
            if start > begun:
                memory = torch.empty(0, dtype=torch.uint8, device=leaf.device).set_(
                    storage, begun, (start - begun,), (1,)
                )
                outside[f"{path}, bytes from {begun} on{OUTSIDE}"] = memory
            begun = max(begun, end)
    return outside


class StepEffects:
    """Compares the side effects of a step: ``begin``, the eager side, ``eager_done``, the compiled
    side, ``finish``.
    """

    def __init__(self, session: Any) -> None:
        self._session = session
        self._tolerance: Mapping[str, Any] | None = None
        self._running: Effects | None = None
        self._twins: MutableMapping[torch.Tensor, torch.Tensor] = WeakIdKeyDictionary()
        self.facts: dict[str, Any] | None = None
        """The side effects of the current step; None where they were not compared."""

    @contextlib.contextmanager
    def _comparing(self) -> Iterator[None]:
        """In this context an exception is an ERROR of the case: it does not come from compiled
        code.
        """
        with self._session.phases("compare"), needed("the comparison of side effects"):
            yield

    def begin_step(self, step: Mapping[str, Any]) -> None:
        """Forget the last step.

        ``effects`` of the plan's step is the tolerance, None where nothing is compared.
        """
        self._tolerance = step.get("effects")
        self._running, self.facts = None, None

    def begin(self, compiled: list[Any], eager: list[Any], *, is_package: bool = False) -> None:
        """Record the state of both sides (each the target followed by its arguments) before the
        step.
        """
        if self._tolerance is None:
            return
        with self._comparing():
            session, settings = self._session, self._session.plan["body"]["compile"]
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

    def eager_done(self, eager: list[Any], result: Any = None) -> None:
        """Record what the eager side left, and restore generators and modes for the compiled
        side.
        """
        if self._running is not None and self._running.begun is not None:
            with self._comparing():
                self._running.after_eager(eager, result)
                for before in self._running.begun:
                    before.restore()

    def finish(self, compiled: list[Any], eager: Any, result: Any = None) -> None:
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
