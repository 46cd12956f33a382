"""``call`` and ``aot``: the compiled function, called."""

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from runner.model.diagnostics import Diagnostic, unknown
from runner.model.protocol import Json
from runner.vocabulary.steps.step_base import ONLY, Around, DataPath, Inputs, StepKind, Traits

if TYPE_CHECKING:
    from runner.vocabulary.steps.step_session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Calling(StepKind):
    """The common arguments and checks of ``call`` and ``aot``, which call a function of the spec with inputs."""

    function: str | None = None
    inputs: Inputs | None = None
    context: list[Json] | None = None
    side_effects: bool | None = None
    as_: str | None = None

    @property
    def input_lists(self) -> Iterator[tuple[DataPath, Inputs]]:
        """Its own inputs."""
        if self.inputs is not None:
            yield ("inputs",), self.inputs

    def problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield an unknown function, inputs that do not fit, and backends that compile nothing."""
        if not any(isinstance(step, Calling) for step in around.above):  # the first is enough
            for backend in around.backends:
                if not backend.compiles:
                    message = f"the step '{self.kind}' on '{backend.name}', which compiles nothing"
                    yield around.problem(around.path, message, "use api steps, or another backend", key=True)
        if not around.functions:
            yield around.problem((), "spec needs the key 'function'", "the function to compile; a spec with only api steps needs none")
        name = self.function if self.function is not None else ONLY if ONLY in around.functions else None
        if name is None:
            if len(around.functions) != 1:
                if around.functions:
                    hint = f"write {self.kind}: {{function: {next(iter(around.functions))}}}"
                    yield around.problem(around.path, "which of the functions?", hint, key=True)
                return
            name = next(iter(around.functions))
        if name not in around.functions:
            yield around.problem((*around.path, "function"), *unknown("function", name, around.functions))
            return
        yield from around.input_problems(name, self.inputs, (*around.path, "inputs") if self.inputs is not None else ("inputs",))


def run_call(session: "Session", arguments: "Call") -> None:
    """Call the function; its reference first, unless the call is eager."""
    name = arguments.function or next(iter(session.compiled.targets))
    if arguments.eager:
        session.call(name, arguments, lambda: session.compiled.targets[name], phase="eager", has_reference=False)
    else:
        session.call(name, arguments, lambda: session.compiled_target(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class Call(Calling):
    """``call: {function: NAME, inputs: [...], context: [...], eager: false, as: NAME}``."""

    kind: ClassVar[str] = "call"
    traits: ClassVar[Traits] = Traits(
        has_result=True,
        claims=True,
        compiles=True,
        enters_context=True,
        has_reference=True,
        can_be_differentiated=True,
        can_be_called_again=True,
        needs_own_graphs=True,
    )
    runs = staticmethod(run_call)
    eager: bool = False

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
        return ("an eager call compared with eager cannot differ", "compare with a named value") if self.eager is True else None


def _load(function: Callable[..., Any], arguments: tuple[Any, ...], strict: bool | None, path: str) -> Any:
    import torch
    from torch._inductor import aoti_compile_and_package, aoti_load_package

    class AsModule(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
        """A module with one function: ``torch.export`` accepts only modules."""

        def __init__(self, function: Callable[..., Any]) -> None:
            super().__init__()
            self._function = function

        def forward(self, *given: Any) -> Any:
            return self._function(*given)

    module = function if isinstance(function, torch.nn.Module) else AsModule(function)
    mode = {} if strict is None else {"strict": strict}
    os.makedirs(os.path.dirname(path), exist_ok=True)
    return aoti_load_package(aoti_compile_and_package(torch.export.export(module, arguments, **mode), package_path=path))


def run_aot(session: "Session", arguments: "Aot") -> None:
    """Build and call a package; the reference is the function itself, on copies."""
    packages: list[Any] | None = session.kept.get(Aot.kind)
    if packages is None:
        # they stay loaded until the case ends, as a result may be in a package's memory; then torch deletes their unpacked files
        packages = session.kept[Aot.kind] = []
        session.scope.closing.callback(packages.clear)
    name = arguments.function or next(iter(session.compiled.targets))

    def build_and_run(*inputs: Any) -> Any:
        path = os.path.join(session.cache, "ahead", f"{len(packages)}.pt2")
        package = _load(session.compiled.targets[name], inputs, arguments.strict, path)
        packages.append(package)
        return package(*inputs)

    session.call(name, arguments, lambda: build_and_run, is_package=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aot(Calling):
    """``aot: {function: NAME, inputs: [...], context: [...], strict: true, as: NAME}``."""

    kind: ClassVar[str] = "aot"
    traits: ClassVar[Traits] = Traits(has_result=True, claims=True, compiles=True, enters_context=True, has_reference=True)
    runs = staticmethod(run_aot)
    strict: bool | None = None

    def problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield also backends on which inductor must compile nothing."""
        yield from Calling.problems(self, around)
        if any(isinstance(step, Aot) for step in around.above):
            return
        for backend in around.backends:
            if backend.compiles and not backend.has_graphs:
                message = f"the step 'aot' on '{backend.name}', where inductor must compile nothing"
                hint = "only inductor compiles ahead of time: use call, or another backend"
                yield around.problem(around.path, message, hint, key=True)
