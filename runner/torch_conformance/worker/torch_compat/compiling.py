"""What torch compiles, as far as it depends on torch: hooks, backends, frames, guards, graphs,
kernel calls, autotuning, fresh memory.
"""

import ast
import collections
import contextlib
import functools
import importlib
import inspect
import itertools
import re
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from unittest import mock

import torch
import torch._dynamo
import torch._ops
import torch.compiler
import torch.fx
from torch._dynamo import eval_frame, exc
from torch._dynamo.backends import registry
from torch._inductor import config, select_algorithm
from torch._inductor.codecache import PyCodeCache
from torch.fx.node import _get_qualified_name

from torch_conformance.vocabulary.expectations.additional_calls import Poison
from torch_conformance.vocabulary.expectations.compilation import KINDS
from torch_conformance.worker.torch_compat import imports

Function = Callable[..., Any]


@dataclass(frozen=True)
class Call:
    """A call of a function of torch that has a hook; calling it makes the call."""

    original: Function
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments by the names of torch's parameters."""
        return inspect.signature(self.original).bind(*self.args, **self.kwargs).arguments

    def __call__(self) -> Any:
        """Call the function of torch."""
        return self.original(*self.args, **self.kwargs)


def hook(module: str, name: str, on_call: Callable[[Call], object]) -> None:
    """Replace a function or a method of torch: ``on_call`` gets each call of it, and returns the
    result.

    Raise ``AttributeError`` where there is none.

    Class methods and static methods remain such.
    """
    owner: Any = importlib.import_module(module)
    *parents, attribute = name.split(".")
    for parent in parents:
        owner = getattr(owner, parent)
    raw = vars(owner).get(attribute, getattr(owner, attribute))
    kind = type(raw) if isinstance(raw, classmethod | staticmethod) else None
    original = raw.__func__ if kind else raw

    @functools.wraps(original)
    def wrapper(*args: object, **kwargs: object) -> object:
        return on_call(Call(original, args, kwargs))

    setattr(owner, attribute, kind(wrapper) if kind else wrapper)


# -- backends and frames ---------------------------------------------------------------------------


def compiled(function: Function, options: Mapping[str, Any]) -> tuple[Function, Any]:
    """Return ``torch.compile`` of a function, and the backend object with which dynamo will compile
    its frames (None if unknown).
    """
    backends: list[Any] = []
    original = torch._dynamo.optimize

    def optimize(*args: object, **kwargs: object) -> object:
        backends.append(kwargs["backend"] if "backend" in kwargs else args[0])
        return original(*args, **kwargs)

    with mock.patch.object(torch._dynamo, "optimize", optimize):
        optimized = torch.compile(function, **options)
    return optimized, backends[-1] if backends else None


def has_ignored_mark(function: Function) -> bool:
    """Whether a function is marked with ``torch.compiler.disable``, and ``torch.compile`` of it
    unwraps and compiles what was marked.

    Of methods, and of a module whose ``forward`` is marked, torch obeys the mark.
    """
    context = getattr(function, "dynamo_ctx", None)
    is_marked = getattr(function, "_torchdynamo_disable", False) or isinstance(
        context, eval_frame.DisableContext
    )
    return is_marked and eval_frame.innermost_fn(function) is not function


def backends_of(convert: object) -> list[Any]:
    """Return the backend object with which a converter of frames compiles, and those that it
    wraps.
    """
    chain = [convert]
    while (
        len(chain) <= 20
        and (backend := getattr(chain[-1], "_torchdynamo_orig_backend", None)) is not None
    ):
        chain.append(backend)
    return chain[1:]


def is_graph_break(error: Exception) -> bool:
    """Whether an exception from the conversion of a frame is a graph break.

    At the recompile limit torch raises the same type. That is not a graph break, because the frame
    was traced before.
    """
    at_limit = (
        getattr(error, "frame_exec_strategy", None) is not None
        or "recompile limit" in str(error)[:2000].lower()
    )
    return isinstance(error, exc.Unsupported | exc.UserError | exc.SkipFrame) and not at_limit


_NOT_A_LEAF = re.compile(r"\w*GuardManager\b|TREE_GUARD_MANAGER")
_USER_CODE = re.compile(r"\s+# .*$")


class Guarded(Protocol):
    """What dynamo keeps of a compiled frame."""

    guard_manager: object


def guards_of(manager: Guarded) -> list[str]:
    """Return the guards of a ``CheckFunctionManager``, each as ``TYPE: CODE``, as torch's log of
    guards shows them.

    The log ends each guard with the line of the user's code as a comment, which is not part of the
    guard.
    """
    lines = (line.lstrip("|+- ") for line in str(manager.guard_manager).splitlines())
    return [
        _USER_CODE.sub("", line) for line in lines if line.strip() and not _NOT_A_LEAF.match(line)
    ]


def registered_backends(prefix: str) -> list[Any]:
    """Return the backends of dynamo that modules whose names begin so have registered."""
    return [
        backend
        for backend in registry._COMPILER_FNS.values()
        if str(getattr(backend, "__module__", "")).startswith(prefix)
    ]


def is_erased(value: object) -> bool:
    """Whether freezing has discarded a parameter: every use of it raises."""
    freezing = sys.modules.get("torch._inductor.freezing")
    return freezing is not None and isinstance(value, freezing.ErasedTensor)


def is_set(option: str) -> bool:
    """Whether an option of inductor is set."""
    return bool(getattr(config, option))


@contextlib.contextmanager
def without_lowering(missed: list[bool] | None, error: type[Exception]) -> Iterator[None]:
    """Raise an exception, and record it, where inductor would lower a graph that no cache has; do
    nothing for None.
    """
    if missed is None:
        yield
        return

    def refuse(*args: object, **kwargs: object) -> None:
        missed.append(True)
        raise error("no cache has this graph")

    lowering = importlib.import_module("torch._inductor.graph").GraphLowering
    with mock.patch.object(lowering, "run", refuse):
        yield


def reference_stance() -> contextlib.AbstractContextManager[Any]:
    """Return the context in which compiled functions run eagerly."""
    stance: contextlib.AbstractContextManager[Any] = torch.compiler.set_stance("force_eager")
    return stance


# -- graphs ----------------------------------------------------------------------------------------


def operators(graph: torch.fx.GraphModule) -> dict[str, int]:
    """Return how many nodes call each operator, in a graph module and in the graphs within it."""
    counts: collections.Counter[str] = collections.Counter()
    for module in graph.modules():
        for node in module.graph.nodes if isinstance(module, torch.fx.GraphModule) else ():
            if node.op == "call_function":
                counts[_function_name(node.target)] += 1
            elif node.op == "call_method":
                counts[f"Tensor.{node.target}"] += 1
            elif node.op == "call_module":
                kind = type(module.get_submodule(node.target))
                counts[f"{kind.__module__}.{kind.__qualname__}"] += 1
            elif node.op != "output":
                counts[str(node.op)] += 1
    return dict(counts)


def calls(graph: torch.fx.GraphModule) -> bool:
    """Whether a graph module has a node that calls something, and so something to compile."""
    return any(node.op.startswith("call_") for node in graph.graph.nodes)


def are_views(tensors: Sequence[Any]) -> bool:
    """Whether autograd recorded nothing but views of leaves: torch compiles no backward of these,
    and replays the views outside of the graph.
    """
    nodes = [tensor.grad_fn for tensor in tensors]
    seen = set()
    while nodes:
        node = nodes.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        nodes += [following for following, _ in node.next_functions]
        name, is_operator, _ = node.name().partition("Backward")
        operator = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
        if node.name() != "torch::autograd::AccumulateGrad" and not (
            is_operator and _returns_view(getattr(torch.ops.aten, operator, None))
        ):
            return False
    return True


def _returns_view(operator: torch._ops.OpOverloadPacket | None) -> bool:
    """Whether an operator of ATen has an overload whose result is a view."""
    schemas = [getattr(operator, name)._schema for name in operator.overloads()] if operator else []
    return any(
        value.alias_info is not None and not value.alias_info.is_write
        for schema in schemas
        for value in schema.returns
    )


def graph_of_code(lowered: Any) -> dict[str, list[str]]:
    """Return the arguments of a graph that inductor lowered, and the operators, before
    decompositions, that its nodes come from.
    """
    nodes = (
        node
        for module in lowered.module.modules()
        if isinstance(module, torch.fx.GraphModule)
        for node in module.graph.nodes
    )
    operators = {node.meta.get("original_aten") for node in nodes} - {None}
    names = {str(getattr(operator, "_overloadpacket", operator)) for operator in operators}
    return {
        "arguments": [_described(value) for value in lowered.example_inputs],
        "operators": sorted(names),
    }


def _described(value: object) -> str:
    """Return dtype, shape and strides of a tensor, with ? for a size that varies; ? for anything
    else.
    """
    if not isinstance(value, torch.Tensor):
        return "?"
    shape, strides = (
        ", ".join(str(size) if isinstance(size, int) else "?" for size in sizes)
        for sizes in (value.shape, value.stride())
    )
    return f"{str(value.dtype).removeprefix('torch.')}[{shape}][{strides}]"


def _function_name(target: object) -> str:
    """Return the name of what a node of a graph calls, as expectations write it."""
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target.name()}"
    if isinstance(target, torch._ops.OpOverload | torch._ops.OpOverloadPacket):
        return str(target)
    try:
        name = str(_get_qualified_name(target))
    except (AttributeError, RuntimeError):  # an object that is called and has no name
        return f"{type(target).__module__}.{type(target).__qualname__}"
    return name.replace("_operator.", "operator.", 1) if name.startswith("_operator.") else name


def is_known(name: str) -> bool:
    """Whether torch, or the code of the case, has an operator or a function of a name as
    ``operators`` writes it.
    """
    if name in ("placeholder", "get_attr"):  # kinds of nodes, not operators
        return True
    if name.startswith("Tensor."):
        return hasattr(torch.Tensor, name.removeprefix("Tensor."))
    operator: Any = torch.ops
    try:
        for part in name.split("."):
            operator = getattr(operator, part)
    except (AttributeError, RuntimeError):
        try:
            imports.resolve(name)
        except (ImportError, AttributeError, ValueError):
            return False
    return "." in name


Marks = list[dict[int, tuple[int | None, int | None]]]
"""For each leaf of arguments the dimensions that are marked as dynamic, with their ranges."""


def marks(leaves: Sequence[Any]) -> Marks:
    """Return the marks of ``torch._dynamo.mark_dynamic``."""
    return [
        {
            marked.dim: (marked.min, marked.max)
            for marked in getattr(leaf, "_dynamo_dynamic_range", ())
        }
        for leaf in leaves
    ]


def why_static(program: torch.export.ExportedProgram, marked: Marks) -> Iterator[str]:
    """Yield marked dimensions that became a number in an exported program, and sizes of their
    ranges that the program refuses.

    Without Dynamo, torch.export takes both as it is.
    """
    nodes = {node.name: node for node in program.graph.nodes}
    for name, dimensions in zip(program.graph_signature.user_inputs, marked, strict=True):
        for dim, (least, most) in dimensions.items():
            size = nodes[name].meta["val"].shape[dim]
            subject = f"dimension {dim} of {name} is marked as dynamic"
            if isinstance(size, int):
                yield f"{subject}, and is the number {size} in the exported program"
                continue
            # the ends show a bound, their neighbours a divisor; torch never promises 0 and 1
            ends = {least or 0, (least or 0) + 1, (most or 0) - 1, most or 0} - {-1, 0, 1}
            for end, guard in itertools.product(sorted(ends), size.node.shape_env.guards):
                if str(guard.expr.subs(size.node.expr, end)) == "False":
                    yield f"{subject} for {end}, which the exported program refuses: {guard.expr}"


def is_decomposed(name: str) -> bool:
    """Whether no graph below AOTAutograd can have an operator of ATen: each overload writes its
    arguments, or has a decomposition and no lowering.
    """
    from torch._inductor import decomposition, lowering

    _, _, operator = name.partition("aten.")
    packet: Any = getattr(torch.ops.aten, operator.partition(".")[0], None)
    table = decomposition.select_decomp_table()
    try:
        overloads = [getattr(packet, overload) for overload in packet.overloads()]
        return operator.partition(".")[0] != "copy_" and all(
            overload._schema.is_mutable
            or (
                overload not in lowering.lowerings
                and (overload in table or overload._can_decompose())
            )
            for overload in overloads
        )
    except (AttributeError, RuntimeError):  # no operator, or one of TorchScript
        return False


# -- kernel calls ----------------------------------------------------------------------------------

FUSED, EXTERN, USER = KINDS
"""Calls of kernels that inductor generated (of C++, of Triton, of a template), of operators and
library kernels, and of Triton kernels that the user wrote."""

_USER_KERNEL = re.compile(r"^@triton_heuristics\.user_autotune\(", re.MULTILINE)
_CPP_WRAPPER = "CppWrapperCodeCache"
_WITHOUT_KERNEL = frozenset(
    [
        "inductor::_reinterpret_tensor",
        "inductor::_alloc_from_pool",
        "aten::set_",
        "aten::resize_",
        "aten::resize",
    ]
)
"""Operators that only create or change the description of a tensor.

Views are recognized by their schema.
"""


@dataclass(frozen=True, slots=True)
class Wrapper:
    """A generated wrapper, as its source says."""

    kernels: frozenset[str] = frozenset()
    """The global names of its kernels."""
    generated: frozenset[str] = frozenset()
    """The sources of the kernels that inductor generated, without their names."""
    is_python: bool = True
    """False for a wrapper that only calls C++."""


wrappers: dict[str, Wrapper] = {}
"""By file, the wrappers that were loaded in the running case, whose calls may be counted."""


def read_wrapper(source: str) -> Wrapper:
    """Return what a wrapper defines: its top-level assignments of ``async_compile.KIND(...)``."""
    tree = ast.parse(source)
    if any(isinstance(node, ast.Name) and node.id == _CPP_WRAPPER for node in ast.walk(tree)):
        return Wrapper(is_python=False)
    kernels, generated = set(), set()
    for statement in tree.body:
        match statement:
            case ast.Assign(
                targets=[ast.Name(id=name)],
                value=ast.Call(
                    func=ast.Attribute(value=ast.Name(id="async_compile"), attr=kind)
                ) as call,
            ) if name != "async_compile":
                kernels.add(name)
                text = "\n".join(
                    node.value
                    for node in ast.walk(call)
                    if isinstance(node, ast.Constant) and isinstance(node.value, str)
                )
                # a kernel that only chooses among others: these have definitions of their own
                if kind not in (
                    "multi_kernel",
                    "size_hint_multi_kernel",
                ) and not _USER_KERNEL.search(text):
                    generated.add(text.replace(name, "KERNEL"))
    return Wrapper(kernels=frozenset(kernels), generated=frozenset(generated))


def note_wrapper(module: types.ModuleType) -> None:
    """Read the source of a generated module that was loaded.

    Modules other than wrappers define no kernels.
    """
    file = str(module.__file__)
    if file not in wrappers:
        # without the names of its kernels a wrapper is not one that is seen to run, so that its
        # calls count as unknown
        with (
            contextlib.suppress(OSError, ValueError, SyntaxError),
            open(file, encoding="utf-8") as stream,
        ):
            wrappers[file] = read_wrapper(stream.read())


def generated_kernels(graph: object, generated: Sequence[Any]) -> frozenset[str]:
    """Return the kernels of the code that ``GraphLowering.codegen`` returned; raise ``ValueError``
    where they cannot be known.
    """
    if getattr(graph, "cpp_wrapper", False):
        raise ValueError("a compiled graph has a C++ wrapper, whose kernels are not seen")
    source = generated[0]
    try:
        return read_wrapper(source if isinstance(source, str) else source.value).generated
    except SyntaxError as error:
        raise ValueError(f"the generated wrapper cannot be read: {error}") from error


@dataclass
class Counted:
    """The kernel calls of one call of a compiled graph."""

    calls: list[tuple[str, str]] = field(default_factory=list)
    """The kind and the name of each."""
    in_python: bool = False
    """Whether a function of a Python wrapper ran."""
    in_cpp: bool = False
    """Whether a wrapper ran that only calls C++."""
    to_the_end: bool = False
    """Whether the calls were counted until the graph returned: code that it calls may set another
    profile function.
    """


@contextlib.contextmanager
def counted() -> Iterator[Counted]:
    """Count the kernel calls of wrappers in this thread until the context ends."""
    record = Counted()
    before, profile = sys.getprofile(), _Profile(record)
    sys.setprofile(profile)
    try:
        yield record
    finally:
        record.to_the_end = sys.getprofile() is profile
        sys.setprofile(before)


class _Profile:
    """The profile function. A call of C within a wrapper hides what Python it calls itself."""

    def __init__(self, record: Counted) -> None:
        self._record = record
        self._calling: types.FrameType | None = None
        """The wrapper's frame that is calling C."""
        self._kernels: dict[int, dict[int, tuple[str, Any]]] = {}
        """The kernels of a wrapper with their names by ``id``, by the ``id`` of its namespace."""
        self._extern: dict[int, Any] = {
            id(function): function for function in vars(select_algorithm.extern_kernels).values()
        }

    def __call__(self, frame: types.FrameType, event: str, argument: object) -> None:
        if event == "c_call":
            if self._calling is None and (kernels := self._kernels_of(frame)) is not None:
                self._calling = frame
                owner, name = getattr(argument, "__self__", None), getattr(argument, "__name__", "")
                is_extern = id(argument) in self._extern or (
                    name == "copy_" and isinstance(owner, torch.Tensor)
                )
                self._note(
                    kernels.get(id(argument)) or kernels.get(id(owner)), name if is_extern else ""
                )
        elif event in ("c_return", "c_exception"):
            if frame is self._calling:
                self._calling = None
        elif event == "call":
            if (entered := wrappers.get(frame.f_code.co_filename)) is not None:
                self._record.in_python |= entered.is_python
                self._record.in_cpp |= not entered.is_python
            caller = frame.f_back
            if (
                self._calling is None
                and caller is not None
                and (kernels := self._kernels_of(caller)) is not None
            ):
                owner, code = frame.f_locals.get("self"), frame.f_code
                kernel = kernels.get(id(owner)) or next(
                    (candidate for candidate in kernels.values() if _has_code(candidate[1], code)),
                    None,
                )
                is_operator = code.co_name == "__call__" and kernel is None and _runs_kernel(owner)
                is_extern = any(_has_code(function, code) for function in self._extern.values())
                self._note(kernel, code.co_name if is_extern else str(owner) if is_operator else "")

    def _kernels_of(self, frame: types.FrameType) -> dict[int, tuple[str, Any]] | None:
        """Return the kernels of the wrapper that a frame belongs to; None where it is of none."""
        wrapper, names = wrappers.get(frame.f_code.co_filename), frame.f_globals
        if wrapper is None:
            return None
        if id(names) not in self._kernels:
            self._kernels[id(names)] = {
                id(names[name]): (name, names[name]) for name in wrapper.kernels if name in names
            }
        return self._kernels[id(names)]

    def _note(self, kernel: tuple[str, Any] | None, extern: str) -> None:
        """Count the call of a kernel, or else of what has a name among operators and library
        kernels.
        """
        if kernel is not None:
            name, function = kernel
            is_of_user = (
                getattr(getattr(function, "heuristic_type", None), "name", "") == "USER_AUTOTUNE"
            )
            self._record.calls.append((USER if is_of_user else FUSED, name))
        elif extern:
            self._record.calls.append((EXTERN, extern))


def _has_code(function: object, code: types.CodeType) -> bool:
    return getattr(function, "__code__", None) is code


def _runs_kernel(operator: object) -> bool:
    """Whether an operator runs a kernel: it is not a view, and does not only describe memory."""
    if isinstance(operator, torch._ops.OpOverload):
        return not operator.is_view and operator.name().partition(".")[0] not in _WITHOUT_KERNEL
    if isinstance(operator, torch._ops.OpOverloadPacket):
        return any(_runs_kernel(getattr(operator, name)) for name in operator.overloads())
    return False


# -- autotuning and fresh memory -------------------------------------------------------------------


@contextlib.contextmanager
def only_candidate(number: int) -> Iterator[list[list[str]]]:
    """Compile anew within the context; each autotuning may choose only the candidate ``number``,
    counted from 0.

    An autotuning with fewer candidates counts on from its first. The context has the names of all
    candidates of each autotuning, the chosen one first. Caches are off: the result of another
    candidate must not be found.
    """
    seen: list[list[str]] = []

    def choose(choices: list[Any]) -> list[Any]:
        if not choices:
            return choices
        chosen = choices[number % len(choices)]
        first = sorted(choices, key=lambda choice: choice is not chosen)
        seen.append([str(choice.name) for choice in first])
        return [chosen]

    functions = select_algorithm.get_algorithm_selector_cache().preprocessing_fns
    functions.append(choose)
    torch._dynamo.reset()
    try:
        with config.patch(force_disable_caches=True):
            yield seen
    finally:
        functions.remove(choose)
        torch._dynamo.reset()


_ALLOCATORS = [
    f"empty_strided{suffix}" for suffix in ("", "_cpu", "_cpu_pinned", "_cuda", "_xpu", "_mtia")
]
"""The names in a generated module of the functions that allocate its buffers."""

BYTE = 255
"""NaN for every float, -1 for signed integers, the greatest number for others."""


@contextlib.contextmanager
def poisoned() -> Iterator[Poison]:
    """Fill each buffer that a loaded generated module allocates.

    Memory that kernels and operators of ATen allocate themselves, and that of ``cpp_wrapper``, is
    not reached.
    """
    poison = Poison()

    def filled(
        allocate: Callable[..., torch.Tensor], *args: object, **kwargs: object
    ) -> torch.Tensor:
        tensor = allocate(*args, **kwargs)
        storage = tensor.untyped_storage()
        if storage.nbytes():
            torch.empty(0, dtype=torch.uint8, device=tensor.device).set_(storage).fill_(BYTE)
        poison.allocations += 1
        poison.bytes += storage.nbytes()
        return tensor

    with contextlib.ExitStack() as undo:
        for module in list(PyCodeCache.modules):
            for name in _ALLOCATORS:
                if (original := vars(module).get(name)) is not None:
                    poisoning = functools.partial(filled, original)
                    undo.enter_context(mock.patch.object(module, name, poisoning))
        yield poison
