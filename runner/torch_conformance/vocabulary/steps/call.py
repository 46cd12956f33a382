"""``call``, ``aot``, ``backward``, ``optimizer``: the compiled function, called; its gradients;
steps that use them.
"""

import copy
import inspect
import json
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from torch_conformance.model.conditions import is_template
from torch_conformance.model.diagnostics import Diagnostic, did_you_mean, unknown
from torch_conformance.model.expectation import About
from torch_conformance.model.protocol import Json, encode
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.comparing import opened
from torch_conformance.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from torch_conformance.vocabulary.forms import (
    TEMPLATE,
    Boolean,
    Callable_,
    Contexts,
    Form,
    Inputs,
    KeywordArguments,
    Name,
    ValueName,
    common,
)
from torch_conformance.vocabulary.steps.step_base import (
    ONLY,
    Callee,
    Compared,
    DataPath,
    StepContext,
    StepKind,
    Traits,
    needed,
    values_of,
)
from torch_conformance.vocabulary.worker_session import Function, Lookup, Session, Side
from torch_conformance.vocabulary.worker_torch import pytree, torch


@frozen
class Calling(Compared):
    """The common arguments and checks of ``call`` and ``aot``, which call a function of the spec
    with inputs.
    """

    function: Name | None = None
    """Which one of functions; the only one when absent."""
    inputs: Inputs | None = None
    """Arguments for this step, instead of the spec's inputs."""
    kwargs: KeywordArguments = None
    """Arguments by keyword: inputs of every kind, which are judged as those by position are. For
    example ``{bias: {rand: [3]}}``."""
    context: Contexts | None = None
    """Contexts of this step, instead of the spec's."""

    @property
    def input_lists(self) -> Iterator[tuple[DataPath, Json]]:
        """Its own inputs."""
        for key, entries in (("inputs", self.inputs), ("kwargs", self.kwargs)):
            if entries is not None:
                yield (key,), entries

    def problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield an unknown function, inputs that do not fit, and backends that compile nothing."""
        if not any(isinstance(step, Calling) for step in context.above):  # the first is enough
            yield from context.compiling_nothing(
                f"the step '{self.kind}'", "use api steps, or another backend"
            )
        if not context.functions:
            yield context.problem(
                (),
                "spec needs the key 'function'",
                "the function to compile; a spec with only api steps needs none",
            )
        names = [ONLY] if ONLY in context.functions else list(context.functions)
        if self.function is not None:
            names = [self.function]
        if len(names) != 1:
            if names:
                hint = f"write {self.kind}: {{function: {names[0]}}}"
                yield context.problem(context.path, "which of the functions?", hint, key=True)
            return
        (name,) = names
        if name not in context.functions:
            yield context.problem(
                (*context.path, "function"), *unknown("function", name, context.functions)
            )
            return
        path = (*context.path, "inputs") if self.inputs is not None else ("inputs",)
        keywords = () if is_template(self.kwargs) else self.kwargs
        yield from context.input_problems(
            name, self.inputs, path, keywords or (), (*context.path, "kwargs")
        )


@frozen
class Call(Calling):
    """Call the compiled function.

    When an expectation compares with eager, the function runs in eager mode first, on copies.

    ``call: {}``
    ``call: {function: one, as: first}``
    ``call: {kwargs: {bias: {rand: [3]}}}``
    ``call: {process: new}``
    ``call: {processes: 2}``
    """

    traits = Traits(
        has_result=True,
        claims=True,
        compiles=True,
        enters_context=True,
        has_reference=True,
        can_be_differentiated=True,
        can_be_called_again=True,
        needs_own_graphs=True,
    )
    eager: Boolean = False
    """Call the function in eager mode instead of the compiled one."""
    process: Literal["new"] | None = None
    """Call it in a new Python process, which has the folders and caches of the case, executes its
    preludes and makes its values again, and carries out no other step; everything that is expected
    is judged of that process. Its result has no name."""
    processes: Annotated[int, Form({"type": "integer", "minimum": 2, "maximum": 8})] | None = None
    """Call it in so many new processes at the same time, the ranks of a process group of
    torch.distributed (gloo) that is there before the preludes are executed. Everything that is
    expected is judged of each rank, and a failure names it. Each rank calls eager, then the
    compiled function, so that collectives of the ranks meet; ``close`` has no float64 reference
    there, and judges by the tolerances of the dtype unless it names others."""

    def problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield also what does not leave a new process, and what would call a rank again."""
        yield from Calling.problems(self, context)
        process_key = "processes" if self.processes else "process"
        for key, is_there in (
            ("as", self.bound is not None),
            ("eager", self.eager),
            ("process", self.process and self.processes),
        ):
            if self.is_elsewhere and is_there:
                yield context.problem(
                    (*context.path, key),
                    f"'{key}' together with '{process_key}': what a new process has is only judged",
                    "remove one of them",
                    key=True,
                )
        for kind, path in context.expected if self.processes else ():
            if kind in EXPECTATIONS and EXPECTATIONS[kind].calls_again:
                yield context.problem(
                    path,
                    f"'{kind}' of a call in several processes: a rank makes no additional calls",
                    "expect it of a call in one process",
                    key=True,
                )

    @property
    def is_elsewhere(self) -> bool:
        """Whether other processes make the call."""
        return bool(self.process or self.processes)

    @property
    def children(self) -> int:
        """One for each rank."""
        return self.processes or int(self.is_elsewhere)

    @property
    def runs_graphs(self) -> bool:
        """Unless it is eager."""
        return not self.eager

    @property
    def compares_effects(self) -> bool:
        """Unless it is eager, or ``side_effects`` is false."""
        return not self.eager and self.side_effects is not False

    def why_no_reference(self, above: Sequence[StepKind]) -> tuple[str, str] | None:
        """An eager call has no reference."""
        return (
            ("an eager call compared with eager cannot differ", "compare with a named value")
            if self.eager is True
            else None
        )

    def run(self, session: Session) -> None:
        """Call the function; its reference first, unless the call is eager."""
        name = self.function or next(iter(session.compiled.targets))
        if self.eager:
            session.call(
                name,
                self,
                lambda: session.compiled.targets[name],
                phase="eager",
                has_reference=False,
            )
        else:
            session.call(
                name, self, lambda: session.compiled_functions.target(session.compiled, name)
            )


_SHAPES = Form(
    {
        "title": "dynamic shapes",
        "type": "object",
        "minProperties": 1,
        "additionalProperties": {
            "title": "dimensions",
            "type": "object",
            "minProperties": 1,
            "propertyNames": {"pattern": "^[0-9]+$"},
            "additionalProperties": {
                "title": "dynamic dimension",
                "type": ["string", "object"],
                "pattern": "^[A-Za-z_][A-Za-z0-9_]*$",
                "properties": {
                    "name": common("name"),
                    "min": common("size"),
                    "max": common("size"),
                },
                "minProperties": 1,
                "additionalProperties": False,
                "examples": ["batch", {"min": 2, "max": 64}],
            },
        },
    }
)


def _shapes(
    dimensions: Mapping[str, Any],
    function: Function,
    inputs: tuple[Any, ...],
    keywords: Mapping[str, Any],
) -> dict[str, Any]:
    """Return torch's ``dynamic_shapes``, in the order of the arguments; equal names of dimensions
    are one ``Dim``.
    """
    names = list(inspect.signature(function).bind(*inputs, **keywords).arguments)
    for name in dimensions:
        if name not in names:
            raise ValueError(". ".join(unknown("argument", name, names)))
    dims: dict[str, Any] = {}

    def dimension(argument: str, number: str, entry: Json) -> object:
        if isinstance(entry, str) and entry in ("auto", "dynamic"):
            return getattr(torch.export.Dim, entry.upper())
        words = {"name": entry} if isinstance(entry, str) else entry
        name = words.get("name", f"{argument}_{number}")
        bounds = {key: words[key] for key in ("min", "max") if key in words}
        if name not in dims:
            dims[name] = torch.export.Dim(name, **bounds)
        return dims[name]

    return {
        name: {
            int(number): dimension(name, number, entry)
            for number, entry in dimensions.get(name, {}).items()
        }
        or None
        for name in names
    }


def _load(
    session: Session,
    function: Function,
    inputs: tuple[Any, ...],
    keywords: Mapping[str, Any],
    arguments: "Aot",
    path: str,
) -> Any:
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    is_module = isinstance(function, torch.nn.Module)
    names = () if is_module else tuple(keywords)

    class AsModule(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
        """A module with one function: ``torch.export`` accepts only modules. It gets all arguments
        by position, because torch gives dimensions of ``**keywords`` no names.
        """

        def forward(self, *given: object) -> object:  # torch.export names dimensions after it
            last = len(given) - len(names)
            return function(*given[:last], **dict(zip(names, given[last:], strict=True)))

    mode: dict[str, Any] = {} if arguments.strict is None else {"strict": arguments.strict}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    marks = session.compiling.marks(pytree.tree_leaves([inputs, keywords]))
    if arguments.dynamic_shapes is not None:
        with needed("dynamic_shapes"):
            target = getattr(function, "forward", function)
            shapes = _shapes(arguments.dynamic_shapes, target, inputs, keywords)
            by_position = [shape for name, shape in shapes.items() if name not in names]
            given = (*by_position, *(shapes[name] for name in names))
            mode["dynamic_shapes"] = shapes if is_module else {"given": given}

    def given_to(
        inputs: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        by_name = {name: value for name, value in keywords.items() if name not in names}
        return (*inputs, *(keywords[name] for name in names)), by_name

    module = function if is_module else AsModule()
    program = torch.export.export(module, *given_to(inputs, keywords), **mode)
    if problem := next(session.compiling.why_static(program, marks), ""):
        raise ValueError(problem)
    package = aoti_load_package(aoti_compile_and_package(program, package_path=path))

    def call(*inputs: object, **keywords: object) -> object:
        values, by_name = given_to(inputs, keywords)
        return package(*values, **by_name)

    return call


@frozen
class Aot(Calling):
    """Export the function, compile it ahead of time into a package, load the package and call it.

    When an expectation compares with eager, the function runs in eager mode first, on copies. The
    key compile applies to torch.compile only.

    ``aot: {}``
    ``aot: {function: one, as: packaged}``
    ``aot: {strict: true}``
    ``aot: {dynamic_shapes: {x: {0: {min: 2, max: 64}}}}``
    ``aot: {package: last, inputs: [{rand: [5, 4]}]}``
    """

    about = About.INDUCTOR
    traits = Traits(
        has_result=True,
        claims=True,
        compiles=True,
        enters_context=True,
        has_reference=True,
        tools=("cxx",),
    )
    strict: Boolean | None = None
    """Whether torch.export traces with Dynamo (true), or runs the function with symbolic values
    (false); torch's default when absent.
    """
    dynamic_shapes: Annotated[Mapping[str, Any], _SHAPES] | None = None
    """The dimensions that the package takes with other sizes, by argument and number: a name (equal
    names have equal sizes), auto, dynamic, or a range. Dimensions with mark_dynamic of an input are
    dynamic without it. For example ``{x: {0: {min: 2, max: 64}}, y: {0: batch}}``."""
    package: Literal["last"] | None = None
    """Call the package that the last aot step of this function built, for example with other sizes,
    and build none."""

    def problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield also backends on which inductor must compile nothing, and a package that no step
        builds.
        """
        yield from Calling.problems(self, context)
        if self.package:
            for key in ("strict", "dynamic_shapes"):
                if getattr(self, key) is not None:
                    yield context.problem(
                        (*context.path, key),
                        f"'{key}' together with 'package', which is built already",
                        f"write '{key}' in the aot step above",
                        key=True,
                    )
            if not any(
                isinstance(step, Aot) and step.function == self.function and not step.package
                for step in context.above
            ):
                hint = "put an aot step of the same function above it, or remove 'package'"
                yield context.problem(
                    (*context.path, "package"), "no step above builds this package", hint
                )
        if any(isinstance(step, Aot) for step in context.above):
            return
        for backend in context.backends:
            if backend.compiles and not backend.has_graphs:
                message = f"the step 'aot' on '{backend.name}', where inductor must compile nothing"
                hint = "only inductor compiles ahead of time: use call, or another backend"
                yield context.problem(context.path, message, hint, key=True)

    def run(self, session: Session) -> None:
        """Build and call a package; the reference is the function itself, on copies."""
        packages: list[tuple[str, Any]] | None = session.kept.get(Aot.kind)
        if packages is None:
            # they stay loaded until the case ends, as a result may be in a package's memory; then
            # torch deletes their unpacked files
            packages = session.kept[Aot.kind] = []
            session.scope.closing.callback(packages.clear)
        name = self.function or next(iter(session.compiled.targets))

        def build_and_run(*inputs: object, **keywords: object) -> object:
            if self.package:
                return dict(packages)[name](*inputs, **keywords)
            path = os.path.join(session.cache, "ahead", f"{len(packages)}.pt2")
            package = _load(session, session.compiled.targets[name], inputs, keywords, self, path)
            packages.append((name, package))
            return package(*inputs, **keywords)

        session.call(name, self, lambda: build_and_run, is_package=True)


# -- gradients -------------------------------------------------------------------------------------

Differentiate = Callable[[Any], None]
"""Runs backward on a result."""


def gradient_leaves(called: Sequence[Any]) -> "list[torch.Tensor]":
    """Return the tensors that get gradients: arguments with ``requires_grad``, then parameters of
    modules, each once.
    """
    leaves = pytree.tree_leaves(list(called))
    tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    return _once(
        tensor
        for tensor in [*tensors, *_parameters(called)]
        if tensor.requires_grad and tensor.is_leaf
    )


def _parameters(called: Sequence[Any]) -> "list[torch.nn.Parameter]":
    """Return the parameters of the modules in a call; those of two modules twice."""
    return [
        parameter
        for leaf in pytree.tree_leaves(list(called))
        if isinstance(leaf, torch.nn.Module)
        for parameter in leaf.parameters()
    ]


def _once(tensors: Iterable[Any]) -> list[Any]:
    """Return tensors in their order, each object once."""
    return list({id(tensor): tensor for tensor in tensors}.values())


def forget_gradients(called: Sequence[Any]) -> None:
    """Delete the gradients of a target and its arguments."""
    for leaf in gradient_leaves(called):
        leaf.grad = None


def differentiable(result: object) -> "list[torch.Tensor]":
    """Return the tensors of a result, also those of objects in it, that require a gradient."""
    leaves = pytree.tree_leaves(opened(result, lambda tensor, _: tensor, []))
    return [leaf for leaf in leaves if isinstance(leaf, torch.Tensor) and leaf.requires_grad]


def _tensors_of(result: object) -> "list[torch.Tensor]":
    """Return the tensors of a result that require a gradient; raise ``RuntimeError`` if there is
    none.
    """
    tensors = differentiable(result)
    if not tensors:
        raise RuntimeError(
            "nothing to run backward on: no tensor of the result requires a gradient"
        )
    return tensors


LOSSES: Mapping[str, Callable[[Any], Any]] = {
    "sum": lambda result: sum(tensor.sum() for tensor in _tensors_of(result)),
    "mean": lambda result: sum(tensor.mean() for tensor in _tensors_of(result)),
}
"""The losses that the language has a word for: of each tensor of a result, then added."""

SUM = "sum"
"""The loss of a ``backward`` that names none."""


def differentiation(loss: str | None, gradient: str | None, lookup: Lookup) -> Differentiate:
    """Return the function that runs backward: from a loss of the result, or with a named gradient
    of it.
    """
    tangent = lookup(gradient) if gradient is not None else None
    word = SUM if loss is None else loss
    function = None if gradient is not None else LOSSES[word] if word in LOSSES else lookup(word)

    def differentiate(result: object) -> None:
        if function is None:
            tensors = _tensors_of(result)
            gradients = list(tangent) if isinstance(tangent, list | tuple) else [tangent]
            if len(gradients) != len(tensors):
                counts = (
                    f"holds {len(gradients)} values, the result {len(tensors)} tensors that "
                    "require a gradient"
                )
                raise ValueError(f"the gradient '{gradient}' {counts}")
            torch.autograd.backward(
                tensors,
                [grad.detach() if isinstance(grad, torch.Tensor) else grad for grad in gradients],
            )
            return
        number = function(result)
        if not isinstance(number, torch.Tensor) or number.numel() != 1:
            kind = (
                f"a tensor of shape {list(number.shape)}"
                if isinstance(number, torch.Tensor)
                else f"a {type(number).__name__}"
            )
            raise TypeError(f"the loss '{word}' returned {kind}, not a tensor of one number")
        number.backward()

    return differentiate


def gradients_of(
    result: object, called: Sequence[Any], differentiate: Differentiate
) -> "list[torch.Tensor | None]":
    """Run backward on the result of a call, and return a copy of each gradient in the order of
    ``gradient_leaves``.
    """
    differentiate(result)
    return [None if leaf.grad is None else leaf.grad.clone() for leaf in gradient_leaves(called)]


_NAMED = Form(
    {
        "type": "string",
        "pattern": rf"^[A-Za-z][A-Za-z0-9_]*(\.[A-Za-z0-9_]+)*$|{TEMPLATE['pattern']}",
    }
)


@frozen
class Backward(Compared):
    """Run backward from a loss of a result: by default the sum of its tensors.

    The result of the step is the list of gradients: inputs first, then parameters in order.

    ``backward: {}``
    ``backward: {loss: mean}``
    ``backward: {of: out.0, gradient: tangent}``
    """

    traits = Traits(
        has_result=True,
        claims=True,
        can_be_called_again=True,
        gives_gradients=True,
        needs_own_graphs=True,
        why_once="a result is differentiated once: write call and backward as often as needed",
    )
    of: ValueName | None = None
    """The result, or a part of it (out.0); that of the last call when absent. The eager side runs
    backward of its own result of the same call."""
    loss: Annotated[str, _NAMED, Form({"title": "loss"})] | None = None
    """What backward begins from: sum or mean (of each tensor of the result, then added), or a named
    function that takes the result and returns a tensor of one number; sum when absent. The eager
    side calls it with its own result. For example ``mean``, ``squared_error``."""
    gradient: Annotated[str, _NAMED, Form({"title": "gradient"})] | None = None
    """Instead of a loss: a named value with the gradient of the result, a tensor, or a list with
    one for each tensor of the result that requires a gradient. For example ``tangent``."""

    @property
    def names(self) -> Iterator[str]:
        """Its loss and its gradient."""
        yield from (
            name for name in (self.loss, self.gradient) if name is not None and name not in LOSSES
        )

    @property
    def runs_graphs(self) -> bool:
        """Always: the differentiated result comes from a compiled call."""
        return True

    @property
    def differentiated(self) -> str | None:
        """The name of the differentiated result, without a path."""
        return None if self.of is None else self.of.split(".")[0]

    def why_no_reference(self, above: Sequence[StepKind]) -> tuple[str, str] | None:
        """A backward on a value that is not the result of a call has no reference."""
        if self.of is None or is_template(self.of):
            return None
        first = self.of.split(".")[0]
        giving = next(
            (
                step
                for step in reversed(above)
                if (first == OUTPUT and step.traits.has_result) or step.bound == first
            ),
            None,
        )
        if isinstance(giving, Calling):
            if giving.why_no_reference(()) is None:
                return None
            why = f"'{first}' is the result of an eager call"
        else:
            why = (
                f"'{first}' is "
                f"{'no result of a call' if giving is None else f'the result of the step {giving.kind!r}'}"  # noqa: E501 - Python 3.11 breaks no line within a field
            )
        hint = (
            "give the call's result a name with 'as', and write backward: {of: NAME}; or compare "
            "with a named value"
        )
        return f"this backward has no eager reference: {why}", hint

    def problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield ``gradient`` together with ``loss``."""
        if self.loss is not None and self.gradient is not None:
            hint = (
                "a loss is one number, whose gradient is 1: scale it in the loss, or leave one of "
                "the two out"
            )
            yield context.problem(
                (*context.path, "gradient"), "'gradient' together with 'loss'", hint, key=True
            )

    def name_problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield why there is no result to differentiate, and unknown names of a loss or a
        gradient.
        """
        name = OUTPUT if self.of is None else self.of
        path = (*context.path, "of")
        last = next(
            (step for step in reversed(context.above) if step.traits.can_be_differentiated), None
        )
        if name.split(".")[0] == OUTPUT and (last is None or getattr(last, "is_elsewhere", False)):
            why_not = "of a call in another process" if last else "before any call"
            yield context.problem(
                context.path, f"backward {why_not}", "put a call step above it", key=True
            )
        elif not is_template(name) and name.split(".")[0] == EAGER:
            hint = "leave it out, or name a result: the eager side runs backward of its own"
            yield context.problem(
                path, "backward runs on what is compiled, not on its reference", hint
            )
        elif not is_template(name) and (problem := context.name_problem(name)) is not None:
            yield context.problem(path, *problem)
        for key, used in (("loss", self.loss), ("gradient", self.gradient)):
            if used is None or is_template(used) or (key == "loss" and used in LOSSES):
                continue
            if (problem := context.name_problem(used)) is not None:
                words = did_you_mean(used, LOSSES) if key == "loss" else ""
                yield context.problem((*context.path, key), problem[0], words or problem[1])

    def run(self, session: Session) -> None:
        """Run backward on both sides; the results are the gradients of arguments, then of
        parameters.
        """
        name = self.of
        with needed("what backward runs on"):
            result = session.compiled.result if name is None else session.scope.named(name)
            differentiate = differentiation(self.loss, self.gradient, session.scope.named)
        compiled, eager = session.compiled.called, session.reference.side
        session.compiled.is_differentiated = True
        if eager is not None:
            eager.is_differentiated = True
            session.effects.begin(compiled, eager.called)
        session.reference.backward(name, differentiate)
        if eager is not None:
            session.effects.eager_done(eager.called)
        session.compiled_functions.differentiates(differentiable(result))
        with session.phases("trace"):  # the backward graph is compiled when it is first run
            session.output = gradients_of(result, compiled, differentiate)
            session.device_api.synchronize()
        session.effects.finish(compiled, eager if session.reference.is_there else None)


def _step(session: Session, side: Side, arguments: "Optimizer") -> Any:
    parameters = parameters_of(side.called)
    if all(parameter.grad is None for parameter in parameters):
        raise RuntimeError(
            "nothing to optimize: no parameter of the last call's function has a gradient"
        )
    optimizers, key = _optimizers(session), _key(arguments, parameters)
    if key not in optimizers:
        optimizers[key] = make_optimizer(session, arguments.call, arguments.kwargs, parameters)
    optimizers[key].step()
    return session.copy(parameters)


def _optimizers(session: Session) -> dict[str, Any]:
    optimizers: dict[str, Any] = session.kept.setdefault(Optimizer.kind, {})
    return optimizers


def _key(arguments: "Optimizer", parameters: "Sequence[torch.Tensor]") -> str:
    return json.dumps(
        [
            encode([arguments.call, arguments.kwargs or {}]),
            [id(parameter) for parameter in parameters],
        ]
    )


def make_optimizer(
    session: Session, call: Json, kwargs: Json, parameters: "Sequence[torch.Tensor]"
) -> Any:
    """Return the optimizer that a call makes for the parameters; raise ``NotCarriedOut`` if that
    fails.
    """
    _, values = values_of(session, None, kwargs)
    with needed("the optimizer"):
        return session.scope.callable(call)(list(parameters), **values)


def parameters_of(called: Sequence[Any]) -> "list[torch.nn.Parameter]":
    """Return the trainable parameters of every module in a call, each once."""
    return _once(parameter for parameter in _parameters(called) if parameter.requires_grad)


@frozen
class Optimizer(Compared):
    """After a backward: an optimizer changes the parameters of the last called function, on both
    sides.

    The result of the step is the list of these parameters. A second step with the same arguments
    uses the same optimizer.

    ``optimizer: {call: torch.optim.SGD, kwargs: {lr: 0.01}}``
    """

    traits = Traits(has_result=True, claims=True, has_reference=True)
    call: Callable_
    """The optimizer's class, or a function that makes one: called with the parameters."""
    kwargs: KeywordArguments = None
    """Its keyword arguments: inputs of every kind. For example ``{lr: 0.01}``."""

    @property
    def callees(self) -> Iterator[Callee]:
        """The class of the optimizer."""
        yield Callee(call=self.call, kwargs=self.kwargs)

    def problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield a missing backward step."""
        if not any(step.traits.gives_gradients for step in context.above):
            yield context.problem(
                context.path,
                "an optimizer before any backward",
                "put a backward step above it",
                key=True,
            )

    def run(self, session: Session) -> None:
        """Run the optimizer's step; the results are the parameters, in order.

        Equal arguments reuse the same optimizer object, so that its state persists between steps.
        Raises ``RuntimeError`` if no parameter has a gradient.
        """
        eager = session.reference.side
        if eager is None:
            session.reference.forget()
        else:
            session.effects.begin(session.compiled.called, eager.called)
            # a copy of the state of the optimizer before the step; None where the step makes the
            # optimizer
            optimizer = _optimizers(session).get(_key(self, parameters_of(eager.called)))
            state = None if optimizer is None else copy.deepcopy(optimizer.state_dict())

            def again(called: Sequence[Any]) -> Any:
                """Make the step with another optimizer of the same state; return the parameters."""
                parameters = parameters_of(called)
                other = make_optimizer(session, self.call, self.kwargs, parameters)
                if state is not None:
                    other.load_state_dict(copy.deepcopy(state))
                other.step()
                return session.copy(parameters)

            with session.phases("eager"), session.reference.running():
                session.reference.stepped(_step(session, eager, self), again)
            session.effects.eager_done(eager.called)
        with session.phases("optimizer"):
            session.output = _step(session, session.compiled, self)
            session.device_api.synchronize()
        session.effects.finish(session.compiled.called, eager)
