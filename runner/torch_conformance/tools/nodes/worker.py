"""The graphs of a call, run by an interpreter with one node changed at a time."""

import collections
import contextlib
import functools
import hashlib
import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch._dynamo
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.aot_autograd import make_boxed_func
from torch._guards import detect_fake_mode
from torch._ops import OpOverload
from torch.fx import GraphModule, Interpreter, Node
from torch.fx.node import map_arg
from torch.utils import _pytree as pytree

from torch_conformance.vocabulary.expectations import close
from torch_conformance.vocabulary.expectations.additional_calls import comparing, differing_bits
from torch_conformance.worker.case import copies
from torch_conformance.worker.case.additional import RepeatableCall
from torch_conformance.worker.case.soundness import is_within

_SECONDS = 120.0
"""The processor time of a worker after which it makes no further change."""

_FAR = 0.125
"""So large a part of the elements that differ by this part of the greatest number is wrong by any
bound of the judge: it need not be asked, which takes longest."""

_ROUNDINGS = 64
"""Answers that differ by so many units of their greatest number are one answer otherwise
rounded."""

_FRAME = re.compile(r'File "([^"\n]+)", line (\d+)')


class _NotMade(Exception):
    """The changed node is refused, or gives a value of another form."""


# -- changes ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Change:
    """What a node computes instead."""

    words: str
    operator: Any
    """None where it gives its first argument."""
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = field(default_factory=dict)


def _fits(node: Node, change: Change) -> bool:
    """Whether a changed node gives a value of the same form."""

    def example(value: Node) -> object:
        return value.meta["val"]

    args, kwargs = map_arg((change.args, change.kwargs), example)
    try:
        with detect_fake_mode([args, kwargs]) or nullcontext():
            value = change.operator(*args, **kwargs) if change.operator else args[0]
    except Exception:  # an operator may refuse its operands with any exception
        return False
    return _form(value) == _form(node.meta.get("val"))


def _changes(node: Node) -> Iterator[Change]:
    """Yield the changes of a node; none where it draws, writes, or calls no operator of torch."""
    operator = node.target
    if (
        not isinstance(operator, OpOverload)
        or operator._schema.is_mutable
        or torch.Tag.nondeterministic_seeded in operator.tags
    ):
        return
    tensors = [
        (index, argument)
        for index, argument in enumerate(node.args)
        if isinstance(argument, Node)
        and isinstance(argument.meta.get("val"), torch.Tensor)
        and str(operator._schema.arguments[index].type) == "Tensor"  # and needed
    ]
    for _, operand in tensors:
        if _fits(node, dropped := Change("dropped", None, (operand,))):
            yield dropped
            break
    for (left, first), (right, second) in itertools.combinations(tensors, 2):
        if first is not second:
            swapped = {left: second, right: first}
            args = tuple(swapped.get(index, value) for index, value in enumerate(node.args))
            yield Change(f"operands {left} and {right} swapped", operator, args, node.kwargs)
    for neighbour in _neighbours(operator):
        yield Change(f"{neighbour} in its place", neighbour, node.args, node.kwargs)
    for index, argument in enumerate(node.args):
        if isinstance(argument, int | float):
            name, value = operator._schema.arguments[index].name, _other(argument)
            args = (*node.args[:index], value, *node.args[index + 1 :])
            yield Change(f"{name} {value} for {argument}", operator, args, node.kwargs)
    for name, argument in node.kwargs.items():
        if isinstance(argument, int | float):
            value = _other(argument)
            kwargs = {**node.kwargs, name: value}
            yield Change(f"{name} {value} for {argument}", operator, node.args, kwargs)


def _other(number: float) -> float:
    return not number if isinstance(number, bool) else number + 1


def _form(value: object) -> list[object]:
    return [
        (leaf.shape, leaf.dtype, leaf.device) if isinstance(leaf, torch.Tensor) else type(leaf)
        for leaf in pytree.tree_leaves(value)
    ]


@functools.cache
def _neighbours(operator: OpOverload) -> list[OpOverload]:
    """Return the core operators of torch with the schema of an operator; of one that takes only a
    tensor they are too many, and to drop it says more.
    """
    schema = operator._schema
    candidates = (
        getattr(getattr(torch.ops.aten, name), overload or "default")
        for name, overload in _by_signature()[str(schema).partition("(")[2]]
        if len(schema.arguments) > 1
    )
    return [other for other in candidates if other is not operator and torch.Tag.core in other.tags]


@functools.cache
def _by_signature() -> Mapping[str, list[tuple[str, str]]]:
    """Return names and overloads of ATen's operators by their arguments and results."""
    table = collections.defaultdict[str, list[tuple[str, str]]](list)
    for schema in torch._C._jit_get_all_schemas():
        space, _, name = schema.name.partition("::")
        if space == "aten":
            table[str(schema).partition("(")[2]].append((name, schema.overload_name))
    return table


# -- graphs ----------------------------------------------------------------------------------------


class _Interpreter(Interpreter):  # type: ignore[misc]  # mypy does not follow torch
    def __init__(self, module: GraphModule, changed: tuple[Node, Change] | None) -> None:
        super().__init__(module)
        self._changed = changed

    def run_node(self, node: Node) -> object:
        """Compute a node, the changed one otherwise; raise ``_NotMade`` for a value of another
        form.
        """
        value = super().run_node(node)
        if self._changed is None or node is not self._changed[0]:
            return value
        change = self._changed[1]
        args, kwargs = self.map_nodes_to_values((change.args, change.kwargs), node)
        try:
            other = change.operator(*args, **kwargs) if change.operator else args[0]
        except Exception as error:  # an operator may refuse its operands with any exception
            raise _NotMade from error
        if _form(other) != _form(value):
            raise _NotMade
        return other


@dataclass
class Graph:
    """A graph that was captured."""

    module: GraphModule
    number: int
    """Which one it is of those that were captured for arguments of these sizes."""
    has_run: bool = False

    @functools.cached_property
    def key(self) -> str:
        """What another step knows it by."""
        return hashlib.sha256(self.module.code.encode()).hexdigest()[:16]

    @functools.cached_property
    def changes(self) -> Mapping[tuple[str, str], tuple[Node, Change]]:
        """Its changes with their nodes, by the name of the node and their words."""
        return {
            (node.name, change.words): (node, change)
            for node in self.module.graph.nodes
            for change in _changes(node)
            if _fits(node, change)
        }


@dataclass
class _Captured:
    """The graphs of a function, and what is changed in its next call."""

    graphs: list[Graph] = field(default_factory=list)
    first: int = 0
    """The first graph for arguments of these sizes."""
    changed: tuple[int, tuple[str, str]] | None = None
    """The number of a graph, and a key of its changes."""

    def compiled(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return the function, whose graphs are interpreted."""

        def compiler(module: GraphModule, inputs: Sequence[Any]) -> Callable[..., object]:
            graph = Graph(module, len(self.graphs) - self.first)
            self.graphs.append(graph)

            def run(*values: object) -> object:
                graph.has_run = True
                number, key = self.changed or (-1, ("", ""))
                changed = graph.changes.get(key) if number == graph.number else None
                return _Interpreter(module, changed).run(*values)

            return make_boxed_func(run)

        return torch.compile(function, backend=aot_autograd(fw_compiler=compiler), dynamic=False)


# -- answers ---------------------------------------------------------------------------------------


def _among(whole: torch.Tensor, by: torch.Generator) -> torch.Tensor:
    """Return whole numbers that the function takes also where they are indices."""
    numbers = whole.to("cpu", torch.int64)
    least, most = min(0, int(numbers.min())), int(numbers.max())
    return torch.randint(least, most + 1, whole.shape, generator=by)


_DRAWS: Sequence[tuple[Callable[..., Any], Callable[..., Any]]] = (
    (lambda shape, by: torch.randn(shape, generator=by) * 3, _among),
    (lambda shape, by: torch.rand(shape, generator=by) * 10, _among),
    (lambda shape, by: torch.randn(shape, generator=by) * 3, lambda whole, by: ~whole),
)
"""Other numbers for arguments and parameters: negative and large ones, positive ones; whole numbers
of the same range, or negated."""


@dataclass
class _Answers:
    """The answers of a call, as it is and with other arguments."""

    call: RepeatableCall
    captured: _Captured

    def of(self, draw: int | None = None, *, is_larger: bool = False) -> tuple[Any, Any]:
        """Return the answer, and the tensors that the call may have written; with numbers of their
        own, and with arguments whose sizes of 1 are 2.
        """
        arguments = self.call.arguments()
        if is_larger:
            arguments = pytree.tree_map_only(torch.Tensor, _larger, arguments)
        tensors = copies.changeable_tensors([self.call.called[0], *arguments])

        @contextlib.contextmanager
        def enter() -> Iterator[None]:
            if draw is not None:
                _draw(tensors, *_DRAWS[draw])
            with self.call.enter():
                yield

        result = replace(self.call, enter=enter).run(arguments)
        return result, copies.frozen(tensors)

    @functools.cached_property
    def drawn(self) -> list[tuple[Mapping[str, Any], tuple[Any, Any]]]:
        """The answers for other arguments that the function takes, without a change."""
        answers: list[tuple[Mapping[str, Any], tuple[Any, Any]]] = []
        changed, self.captured.changed = self.captured.changed, None
        sizes = {size for value in copies.tensors_of(self.call.arguments()) for size in value.shape}
        for is_larger in (False, True) if 1 in sizes else (False,):
            self.captured.first = len(self.captured.graphs)
            for draw in range(len(_DRAWS)):
                way: dict[str, Any] = {"draw": draw, "is_larger": is_larger}
                with contextlib.suppress(Exception):  # it may refuse other arguments
                    answers.append((way, self.of(**way)))
        self.captured.changed = changed
        return answers

    def is_equivalent(self) -> bool:
        """Whether the changed function gives the same answers for all of them."""
        for way, answer in self.drawn:
            try:
                if not _is_near(self.of(**way), answer):
                    return False
            except Exception:  # what the function takes, the changed one refuses
                return False
        return True

    def compared(self, result: object) -> dict[str, Any]:
        """Return the facts of each ``close`` of the step for an answer."""
        with comparing():
            return {
                index: self.call.close(arguments, result)
                for index, arguments in self.call.comparisons.items()
            }


def _larger(tensor: torch.Tensor) -> torch.Tensor:
    if 1 not in tensor.shape:
        return tensor
    sizes = [2 if size == 1 else 1 for size in tensor.shape]
    return tensor.detach().repeat(sizes).requires_grad_(tensor.requires_grad)


@torch.no_grad()  # type: ignore[untyped-decorator]
def _draw(
    tensors: Sequence[torch.Tensor], numbers: Callable[..., Any], whole: Callable[..., Any]
) -> None:
    """Give tensors other numbers, in place."""
    generator = torch.Generator().manual_seed(0)
    for tensor in tensors:
        if copies.is_plain_strided(tensor) and 0 not in tensor.stride() and tensor.numel():
            is_whole = not (tensor.is_floating_point() or tensor.is_complex())
            tensor.data.copy_(
                whole(tensor, generator) if is_whole else numbers(tensor.shape, generator)
            )


def _is_near(values: object, others: object) -> bool:
    """Whether two answers are equal but for rounding."""
    if _form(values) != _form(others):
        return False
    for value, other in zip(pytree.tree_leaves(values), pytree.tree_leaves(others), strict=True):
        if not isinstance(value, torch.Tensor):
            if value != other:
                return False
        elif not copies.is_plain_strided(value) or not (
            is_within(value, other, _ROUNDINGS * torch.finfo(value.dtype).eps)
            if value.is_floating_point()
            else torch.allclose(value, other, 0.0, 0.0, equal_nan=True)
        ):
            return False
    return True


def _is_far(values: object, others: object) -> bool:
    """Whether much of a tensor differs by much."""
    pairs = zip(pytree.tree_leaves(values), pytree.tree_leaves(others), strict=True)
    return any(
        bool(((value - other).abs() > _FAR * other.abs().max()).double().mean() > _FAR)
        for value, other in pairs
        if isinstance(other, torch.Tensor)
        and other.is_floating_point()
        and other.numel()
        and copies.is_plain_strided(other)
    )


# -- the changes of a call -------------------------------------------------------------------------


def tried(call: RepeatableCall, *, gradients: bool) -> dict[str, Any]:
    """Return for each change of each node whether the call's answer shows it.

    ``gradients``: whether a step of the case asks for some; otherwise the graph has no outputs for
    a backward.
    """

    @contextlib.contextmanager
    def enter() -> Iterator[None]:
        with nullcontext() if gradients else torch.no_grad(), call.enter():
            yield

    torch._dynamo.reset()
    captured = _Captured()
    target = captured.compiled(call.called[0])
    answers = _Answers(replace(call, target=target, enter=enter, executed=0), captured)
    base = answers.of()
    graphs = {graph.key: graph for graph in captured.graphs if graph.has_run}
    changes = [(graph, *change) for graph in graphs.values() for change in graph.changes.items()]
    fates: list[Mapping[str, Any]] = []
    skipped = 0
    for graph, key, (node, change) in changes:
        if time.process_time() > _SECONDS:
            skipped += 1
            continue
        captured.changed = (graph.number, key)
        if (fate := _fate(answers, base)) is not None:
            file, line = _place(node)
            changed = {"graph": graph.key, "node": node.name, "operator": str(node.target)}
            fates.append({**changed, "change": change.words, "file": file, "line": line, **fate})
    torch._dynamo.reset()
    call.state.restore()
    nodes = {(graph.key, node.name): None for graph, _, (node, _) in changes}
    return {
        "base": answers.compared(base[0]),
        "nodes": list(nodes),
        "changes": fates,
        "left": skipped,
    }


def _fate(answers: _Answers, base: tuple[Any, Any]) -> dict[str, Any] | None:
    """Return how the call shows a change; None where the change cannot be made."""
    try:
        result, state = answers.of()
    except _NotMade:
        return None
    except Exception as error:  # the function may refuse the changed value
        return {"noticed": f"raises {type(error).__name__}"}
    if not _is_near(state, base[1]):
        return {"noticed": "what it writes differs"}
    if _form(result) != _form(base[0]):
        return {"noticed": "the form of the answer differs"}
    if not differing_bits(result, base[0]):
        return {"equivalent": answers.is_equivalent()}
    calibrated = all(map(close.needs_reference, answers.call.comparisons.values()))
    if calibrated and _is_far(result, base[0]):
        return {"noticed": "most of the answer differs"}
    is_equivalent = _is_near(result, base[0]) and answers.is_equivalent()
    return {"again": answers.compared(result), "equivalent": is_equivalent}


def _place(node: Node) -> tuple[str, int]:
    """Return the innermost line of a spec that a node comes from; ("", 0) where none is known."""
    frames = _FRAME.findall(node.meta.get("stack_trace") or "")
    spec_frames = [(file, int(line)) for file, line in frames if file.endswith((".yaml", ".yml"))]
    return spec_frames[-1] if spec_frames else ("", 0)
