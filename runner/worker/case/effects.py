"""Side effects of a call: compares what the compiled side changed with what the eager side changed.

Compared are arguments, parameters, buffers, attributes of modules and objects, ``.grad``, version counters, the generators of random
numbers, the modes of torch, which results share memory with the arguments, and which results require a gradient. Both sides begin with
equal copies. A value is compared after a call only if it was equal, or close, before the call. A step that runs on one side alone can
make the two differ; then the call is not the cause, and the path is reported as ``apart``. What eager does not change must keep its bits.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from runner.vocabulary.expectations.close import describe_leaf
from runner.vocabulary.expectations.close_measure import dense
from runner.vocabulary.steps.gradients import gradient_leaves
from runner.worker.case import generators, memory
from runner.worker.case.aliases import aliases, histories
from runner.worker.case.changeable import ARGUMENT, FUNCTION, GRAD, Absent, Leaves, changeable
from runner.worker.case.copies import frozen, plain, tensor_version
from runner.worker.case.generators import Generators
from runner.worker.case.modes import Modes
from runner.worker.case.repetitions import is_near
from runner.worker.case.untouched import REFERENCE, Untouched
from runner.worker.torch_compat import compiling

MOST = 50
"""The maximum number of differing values that are sent."""


@dataclass(frozen=True)
class Inexact:
    """Two tensors that a call left, of one form and not equal: the calibrated judge decides."""

    path: str
    facts: dict[str, Any]
    ours: torch.Tensor
    theirs: torch.Tensor
    equal_nan: bool
    unwritten: torch.Tensor | None = None
    """A mask of the elements in which eager's tensor has the bits of before the call."""


_NOT_JUDGED = "it is no strided tensor of floating-point numbers, or has another form than eager's"

_Version = tuple[torch.Tensor, memory.Place | None, int | None]
"""The tensor itself, where its values lie, and its version counter. While it is held, no other tensor has its memory."""

Versions = Mapping[str, _Version]
"""By path."""


@dataclass(frozen=True)
class Left:
    """What the eager call left."""

    generators: Generators
    modes: Modes
    aliases: Mapping[str, str]
    """Of its result, by path."""
    histories: Mapping[str, str]
    """Which parts of its result require a gradient."""


@dataclass
class Effects:
    """Compares the side effects of one call: ``before`` the calls, ``after_eager``, and ``after`` the compiled call."""

    tolerance: Mapping[str, Any]
    """``rtol``, ``atol`` (both None for the dtype's defaults) and ``equal_nan``; ``gradients``: false where ``close`` judges them."""
    settings: Mapping[str, Any]
    """The arguments of ``torch.compile``: they decide how random numbers are drawn."""
    is_package: bool = False
    """A package compiled ahead of time has its own parameters and buffers, and returns new tensors."""
    inexact: list[Inexact] = field(default_factory=list)
    """The values after the call that the calibrated judge decides. Their facts are in those of ``after``, and are completed later."""
    _apart: set[str] = field(default_factory=set)
    _untouched: Untouched = field(default_factory=Untouched)
    _versions: tuple[Versions, Versions] = field(default=({}, {}))
    _begun: Generators | None = None
    _eager: Left | None = None
    """What the eager call left. None where it raised."""

    def before(self, compiled: Sequence[Any], eager: Sequence[Any]) -> None:
        """Record the state before the call. Each sequence is the target followed by its arguments."""
        ours, theirs = self._leaves(compiled), self._leaves(eager)
        self._apart = {path for path in ours if path not in theirs or self._problem(path, ours[path], theirs[path]) is not None}
        self._versions = _versions(ours), _versions(theirs)
        readable = {path: leaf for path, leaf in ours.items() if path not in self._apart and not compiling.is_erased(leaf)}
        self._untouched.before(readable, theirs)
        self._begun = Generators.now()

    def after_eager(self, eager: Sequence[Any], result: Any) -> None:
        """Record the generators, the modes, and aliases and histories of the result, while it exists."""
        theirs = self._leaves(eager)
        self._eager = Left(Generators.now(), Modes(), aliases(result, theirs), histories(result))
        self._untouched.after_eager(theirs)

    def after(self, compiled: Sequence[Any], eager: Sequence[Any], result: Any) -> dict[str, Any]:
        """Return ``compared`` (a count), ``apart`` (paths), ``leaves`` (facts of what differs), ``generators`` and ``modes``."""
        now, left = Generators.now(), Modes()  # before the comparison
        ours, theirs = self._leaves(compiled), self._leaves(eager)
        differing = []
        paths = [path for path in {**theirs, **ours} if path not in self._apart]
        for path in paths:
            facts = self._differing(path, ours.get(path, _ABSENT), theirs.get(path, _ABSENT))
            if facts is not None:
                differing.append(facts)
        if not self.is_package:
            differing += [*self._unnoticed_writes(ours, theirs), *self._other_results(ours, result)]
        self._versions = {}, {}  # they hold the tensors: 'dead' may claim that these are freed
        counted = {"compared": len(paths), "apart": sorted(self._apart)[:MOST], "leaves": differing}
        if self._begun is None or self._eager is None:
            return counted
        drawn = generators.compared(self._begun, self._eager.generators, now, self.settings)
        return {**counted, "generators": drawn, "modes": self._eager.modes.other_than(left)}

    def _leaves(self, called: Sequence[Any]) -> Leaves:
        found = changeable(called, parameters=not self.is_package)
        if self.tolerance.get("gradients", True):
            return found
        identities = {id(tensor) for tensor in gradient_leaves(called)}
        judged = {f"{path}{GRAD}" for path, leaf in found.items() if id(leaf) in identities}
        return {path: leaf for path, leaf in found.items() if path not in judged}

    def _differing(self, path: str, ours: Any, theirs: Any) -> dict[str, Any] | None:
        """Return the facts of two values that are not equal, by the first rule that applies."""
        change = None if compiling.is_erased(ours) else self._untouched.problem(path, ours)
        if change is not None:
            return _words(path, change, REFERENCE)
        if path in self._untouched.alike and isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor):
            change = memory.other_gaps(plain(ours), plain(theirs))
        if change is not None:
            return _words(path, change, "as eager leaves the memory between its elements")
        facts = self._inexact(path, ours, theirs)
        if facts is None and (found := self._problem(path, ours, theirs)) is not None:
            facts = {"path": path, "calibrated": {"why_not": _NOT_JUDGED}, **found}
        return facts

    def _inexact(self, path: str, ours: Any, theirs: Any) -> dict[str, Any] | None:
        """Return the facts of two tensors that the calibrated judge decides; None where a tolerance is given, and for other values."""
        if self.tolerance["rtol"] is not None or not (isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)):
            return None
        one, other = plain(ours), plain(theirs)
        is_number = one.layout is torch.strided and not one.is_nested and (one.is_floating_point() or one.is_complex())
        if compiling.is_erased(ours) or not is_number or (one.shape, one.dtype) != (other.shape, other.dtype) or _equal(one, other):
            return None
        if _other_form(path, one, other) is not None:
            return None
        facts = {"path": path, **describe_leaf(one, other, self.tolerance)}
        kept = self._untouched.elements.get(path)
        self.inexact.append(Inexact(path, facts, frozen(one), frozen(other), self.tolerance["equal_nan"], kept))
        return facts

    def _problem(self, path: str, ours: Any, theirs: Any) -> dict[str, Any] | None:
        """Return the facts of two values that differ; None for close values and for parameters that freezing has erased."""
        if compiling.is_erased(ours) or (ours is theirs and not isinstance(ours, torch.Tensor)):
            return None
        if not (isinstance(ours, torch.Tensor) and isinstance(theirs, torch.Tensor)):
            facts: dict[str, Any] = describe_leaf(ours, theirs, self.tolerance)
            return None if is_near(facts) else facts
        one, other = plain(ours), plain(theirs)
        if one.layout is not other.layout:
            return _words(path, f"layout {one.layout}", f"layout {other.layout}")
        if not _equal(one, other):
            facts = describe_leaf(dense(one), dense(other), self.tolerance)
            if not is_near(facts):
                return facts
        return _other_form(path, one, other)

    def _unnoticed_writes(self, ours: Leaves, theirs: Leaves) -> Iterator[dict[str, Any]]:
        """Yield the tensors that eager wrote, and whose version counter the compiled call did not advance, or that it replaced.

        Autograd, and other names of the tensor, must notice the write. The opposite is no error: an operator of eager, such as batch norm,
        may write without advancing the counter. A tensor that eager replaced by another has no counter of before.
        """
        before, eager_before = self._versions
        now, eager_now = _versions(ours), _versions(theirs)
        known = before.keys() & eager_before.keys() & eager_now.keys() - self._apart
        for path in (path for path in now if path in known):
            if compiling.is_erased(ours[path]) or path.endswith(GRAD) or not _is_one(eager_before[path], eager_now[path]):
                continue
            (_, _, version), (_, _, version_now), (_, _, eager_version) = before[path], now[path], eager_before[path]
            if version_now is None or eager_now[path][2] == eager_version:
                continue
            if not _is_one(before[path], now[path]):
                yield _words(path, "replaced by another tensor", "written in place, as by eager")
            elif version_now == version:
                yield _words(f"version counter of {path}", "not advanced", "advanced")

    def _other_results(self, ours: Leaves, result: Any) -> Iterator[dict[str, Any]]:
        if self._eager is None:
            return
        found = aliases(result, ours)
        for path, expected in self._eager.aliases.items():
            # with freezing, parameters are constants of the graph: it returns copies of them
            if compiling.is_freezing() and f" {FUNCTION}" in expected:
                continue
            if path in found and found[path] != expected:
                yield _words(path, found[path], expected)
        for path, ours_requires in histories(result).items():
            if self._eager.histories.get(path, ours_requires) != ours_requires and not compiling.is_freezing():
                yield _words(path, ours_requires, self._eager.histories[path])


_ABSENT = Absent()


def _versions(leaves: Leaves) -> Versions:
    tensors = ((path, leaf) for path, leaf in leaves.items() if isinstance(leaf, torch.Tensor))
    return {path: (tensor, memory.place(plain(tensor)), tensor_version(tensor)) for path, tensor in tensors}


def _is_one(before: _Version, now: _Version) -> bool:
    """Whether a path has the tensor of before; parts of a nested tensor are new objects each time."""
    return now[0] is before[0] or (now[1] is not None and now[1] == before[1])


def _equal(ours: torch.Tensor, theirs: torch.Tensor) -> bool:
    described = (ours.shape, ours.dtype, ours.device, ours.layout, ours.is_nested)
    if described != (theirs.shape, theirs.dtype, theirs.device, theirs.layout, theirs.is_nested):
        return False
    try:
        return bool(torch.equal(dense(ours), dense(theirs)))
    except (RuntimeError, NotImplementedError, AttributeError, TypeError):  # quantized and wrapper tensors: measured as close does
        return False


def _other_form(path: str, ours: torch.Tensor, theirs: torch.Tensor) -> dict[str, Any] | None:
    """Return the facts of two close tensors that differ in strides or ``requires_grad``; None when they do not.

    A compile may change the layout of parameters, and of gradients.
    """
    if ours.layout is not torch.strided or ours.is_nested:
        return None
    shows: Callable[[torch.Tensor], str] = _requires_grad
    if path.startswith(ARGUMENT) and not path.endswith(GRAD):
        shows = _strides_and_requires_grad
    return None if shows(ours) == shows(theirs) else _words(path, shows(ours), shows(theirs))


def _requires_grad(tensor: torch.Tensor) -> str:
    return f"requires_grad {tensor.requires_grad}"


def _strides_and_requires_grad(tensor: torch.Tensor) -> str:
    return f"strides {list(tensor.stride())}, {_requires_grad(tensor)}"


def _words(path: str, value: str, reference: str) -> dict[str, Any]:
    """Return the facts of a property that is described by words."""
    facts = {"type": "form", "shape": None, "dtype": None, "device": None}
    both = {**facts, **{f"reference_{name}": fact for name, fact in facts.items()}}
    return {"path": path, **both, "equal": False, "value": value, "reference_value": reference}
