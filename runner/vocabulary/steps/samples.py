"""``samples``: the step of a spec with a source of cases: each sample of an operator, eager and compiled."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar

from runner.model.diagnostics import Diagnostic
from runner.model.protocol import Json
from runner.vocabulary.steps.step_base import Around, StepKind, Traits
from runner.vocabulary.steps.step_session import NotCarriedOut, Session, needed

Given = tuple[list[Any], dict[str, Any]]
"""The positional and the keyword arguments of a call."""


UNWRITTEN = "arguments that eager does not write"
"""The key of what the compiled call did to them."""

_MOST_TEXT = 600
"""Characters of the description of a sample, and of the message of an exception."""


@dataclass(kw_only=True)
class Done:
    """One sample that was run. ``compiled`` and ``eager`` hold what is compared, by the same keys."""

    index: int
    text: str
    """Shapes, strides and dtypes of its tensors, and its plain arguments."""
    operator: Callable[..., Any]
    """The operator, not compiled."""
    takes_out: bool
    takes_gradients: bool
    reseed: Callable[[], None]
    refused: str = ""
    """The exception of eager: the sample claims nothing."""
    no_gradients: str = ""
    """The exception of eager's backward: only the results are compared."""
    raised: dict[str, str] | None = None
    """The exception of the compiled call."""
    graphs: int = 0
    """How many compiled graphs the compiled call ran."""
    compiled: dict[str, Any] = field(default_factory=dict)
    eager: dict[str, Any] = field(default_factory=dict)
    fixed: list[Any] = field(default_factory=list)
    """The gradients of the results from which the backward began; empty where there was none."""
    inputs: list[Any] = field(default_factory=list)
    """``None`` where other calls have a target, the arguments before the call, and ``fixed``: eager computes the same from copies."""

    def called(self, function: Callable[..., Any], arguments: Given) -> dict[str, Any]:
        """Call a function from the state of the case's seed; return its result, and the gradients of its inputs where it has some."""
        import torch

        is_eager = function is self.operator
        with torch.enable_grad():
            outputs = self._call(function, arguments)
            if not self.takes_gradients or self.no_gradients:
                return outputs
            self.reseed()
            try:
                # a random gradient for each result that has a history, the same on both sides
                fixed = [torch.randn_like(tensor) for tensor in _differentiable(outputs["result"])] if _differentiable(arguments) else []
                if fixed:
                    outputs["gradients"] = _gradients(outputs["result"], arguments, fixed)
            except Exception as error:  # eager has no gradients for this sample
                if not is_eager:
                    raise
                self.no_gradients = f"{type(error).__name__}: {error}"[:_MOST_TEXT]
            else:
                self.fixed = fixed if is_eager else self.fixed
        return outputs

    def again(self, called: Sequence[Any], around: AbstractContextManager[Any]) -> dict[str, Any]:
        """Return what eager computes from other inputs, by the keys of ``eager``; ``around`` is entered for the call alone."""
        _, args, kwargs, fixed = called
        outputs = self._call(self.operator, (args, kwargs), around)
        if fixed:
            outputs["gradients"] = _gradients(outputs["result"], (args, kwargs), fixed)
        if "arguments" in self.eager:
            leaves = _leaves((args, kwargs))
            outputs["arguments"] = {index: leaves[int(index)] for index in self.eager["arguments"]}
        return {**outputs, UNWRITTEN: self.eager[UNWRITTEN]} if UNWRITTEN in self.eager else outputs

    def _call(self, function: Callable[..., Any], arguments: Given, around: AbstractContextManager[Any] | None = None) -> dict[str, Any]:
        """Call the operator, or what was compiled of it; return its result, and the tensors of ``out=``."""
        args, kwargs = arguments
        outputs: dict[str, Any] = {}
        if self.takes_out:
            self.reseed()
            kwargs = {**kwargs, "out": _outputs(self.operator(*args, **kwargs))}
            outputs["out"] = kwargs["out"]
        self.reseed()
        with around or nullcontext():
            outputs["result"] = function(*args, **kwargs)
        return outputs


def _outputs(result: Any) -> Any:
    """Return tensors of ones for ``out=``, of the shapes and dtypes of a result. They are contiguous: dynamo compiles no other."""
    import torch
    from torch.utils import _pytree as pytree

    def ones(tensor: Any) -> Any:
        if tensor.layout is not torch.strided or tensor.is_nested:
            return torch.ones_like(tensor, requires_grad=False)
        return torch.ones(tensor.shape, dtype=tensor.dtype, device=tensor.device)

    return pytree.tree_map_only(torch.Tensor, ones, result)


def _gradients(result: Any, arguments: Given, fixed: Sequence[Any]) -> list[Any]:
    """Return the gradients of the arguments for fixed gradients of the results, in the dtypes of the results."""
    import torch

    results = _differentiable(result)
    fixed = [gradient.to(tensor.dtype) for tensor, gradient in zip(results, fixed, strict=True)]
    return list(torch.autograd.grad(results, _differentiable(arguments), fixed, allow_unused=True))


def _differentiable(value: Any) -> list[Any]:
    import torch

    return [leaf for leaf in _leaves(value) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _leaves(value: Any) -> list[Any]:
    from torch.utils import _pytree as pytree

    leaves: list[Any] = pytree.tree_leaves(value)
    return leaves


def run(session: Session, arguments: "Samples") -> None:
    """Run the samples; ``output`` is a list of ``Done``."""
    with needed("torch's database of operators"), session.phases("inputs"):
        operator = session.opinfo.find(
            arguments.op,
            arguments.variant,
            dtype=arguments.dtype,
            device=session.device_api.name,
            call=arguments.call,
            gradients=arguments.gradients,
        )
        session.reseed()
        samples, most = operator.samples(1 if arguments.samples == "first" else None), arguments.most
        if not samples:
            raise LookupError(f"no sample of '{arguments.op}' for {arguments.dtype} can be called this way")
        # at most so many, spread evenly: those of one kind often stand together
        count = len(samples) if most is None else min(most, len(samples))
        numbers = [index * len(samples) // count for index in range(count)]
    session.output = [_run(session, operator, number, samples[number]) for number in numbers]


def _run(session: Session, operator: Any, index: int, sample: Any) -> Done:
    import torch
    from torch.utils import _pytree as pytree

    def own() -> Given:
        """Return copies of the arguments of the sample, with the strides of their tensors."""

        def copy(tensor: Any) -> Any:
            return session.copy(tensor).requires_grad_(tensor.requires_grad)

        copied: Given = pytree.tree_map_only(torch.Tensor, copy, (list(sample.args), sample.kwargs))
        return copied

    done = Done(
        index=index,
        text=description(sample)[:_MOST_TEXT],
        operator=operator.function,
        takes_out=operator.takes_out,
        takes_gradients=operator.takes_gradients,
        reseed=session.reseed,
    )
    session.opinfo.announce_sample(index, done.text)
    theirs = own()
    try:
        with session.phases("eager"), session.reference.running():
            done.eager = done.called(operator.function, theirs)
    except NotCarriedOut as error:
        done.refused = str(error.__cause__ or error)[:_MOST_TEXT]
        return done
    session.torch_state.RESETS["dynamo"]()
    watched, ours = session.compiled_functions.watched(), own()
    try:
        with session.phases("trace"):
            done.compiled = done.called(session.compiled_functions.of(plain(operator.function)), ours)
            session.device_api.synchronize()
    except NotCarriedOut:
        raise
    except Exception as error:  # torch may raise anything: it is the result of this sample
        kind = type(error)
        phase = getattr(error, "_conformance_phase", "trace")
        done.raised = {"type": f"{kind.__module__}.{kind.__qualname__}", "message": str(error)[:_MOST_TEXT], "phase": phase}
    else:
        watched.end(f"sample {index}")
        before = own()
        _add_changed_arguments(session, done, ours, theirs, before)
        done.inputs = [None, *before, done.fixed]
    done.graphs = watched.graphs
    return done


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function of Python that calls an operator: what is compiled may be written in C."""

    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _add_changed_arguments(session: Session, done: Done, *givens: Given) -> None:
    """Add the tensors among the arguments that differ after the two calls, and writes to those that eager does not write.

    ``givens`` are the arguments of the compiled call and of eager's after the calls, and copies of them from before the calls.
    """
    import torch

    for number, (ours, theirs, before) in enumerate(zip(*map(_leaves, givens), strict=True)):
        if not isinstance(ours, torch.Tensor):
            continue
        change, is_changed = session.effects.unwanted_write(ours, theirs, before), False
        if change is None and ours.layout is torch.strided and not ours.is_nested:  # no operator changes an argument of another layout
            with torch.no_grad():
                is_changed = (ours.shape, ours.dtype) != (theirs.shape, theirs.dtype) or not bool(
                    ((ours == theirs) | ((ours != ours) & (theirs != theirs))).all()
                )
        for side, value in ((done.compiled, ours), (done.eager, theirs)) if is_changed else ():
            side.setdefault("arguments", {})[str(number)] = value
        for side, value in ((done.compiled, change["value"]), (done.eager, change["reference"])) if change is not None else ():
            side.setdefault(UNWRITTEN, {})[str(number)] = value


def description(sample: Any) -> str:
    """Return the arguments of a sample as text: shape, strides and dtype of tensors, other values as Python writes them."""
    named = [*((str(index), value) for index, value in enumerate(sample.args)), *sample.kwargs.items()]
    return "; ".join(f"{name}: {_described(value)}" for name, value in named)


def _described(value: Any) -> str:
    import torch

    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        strides = f" strides {list(value.stride())}" if value.layout is torch.strided and not value.is_nested else f" {value.layout}"
        return f"{dtype}{list(value.shape)}{strides}{' requires_grad' if value.requires_grad else ''}"
    if isinstance(value, list | tuple):
        inner = ", ".join(map(_described, value))
        return f"[{inner}]" if isinstance(value, list) else f"({inner}{',' * (len(value) == 1)})"
    return repr(value)[:120]


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples(StepKind):
    """The step of a spec with ``source: {opinfo: {dtypes: [...], samples: all}}``. In a case it names one operator and one dtype."""

    kind: ClassVar[str] = "samples"
    traits: ClassVar[Traits] = Traits(
        has_result=True, claims=True, compiles=True, has_reference=True, needs_own_graphs=True, may_have_no_graph=True
    )
    runs = staticmethod(run)
    dtypes: Json = None
    calls: Json = None
    samples: str | int = "all"
    gradients: bool = True
    op: str = ""
    variant: str = ""
    dtype: str = ""
    call: str = "function"
    rule: str = ""
    reason: str = ""

    @property
    def most(self) -> int | None:
        """The greatest number of samples; None for all."""
        numbers: Mapping[str | int, int | None] = {"all": None, "first": 1}
        return numbers[self.samples] if self.samples in numbers else int(self.samples)

    def problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield backends that compile nothing."""
        for backend in around.backends:
            if not backend.compiles:
                message = f"operators on '{backend.name}', which compiles nothing"
                yield around.problem(around.path, message, "use another backend", key=True)
