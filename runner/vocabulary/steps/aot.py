"""``aot``: a function is compiled ahead of time: exported, built into a package, loaded, and called."""

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

from runner.core.diagnostics import Diagnostic
from runner.vocabulary.steps.around import Around
from runner.vocabulary.steps.call import Calling
from runner.vocabulary.steps.session import Call as Wanted
from runner.vocabulary.steps.session import Session
from runner.vocabulary.steps.traits import Traits


@dataclass
class Packages:
    """The packages of a case. They stay loaded until ``close``: a result may be in a package's memory."""

    folder: str
    loaded: list[Any] = field(default_factory=list)

    def target(self, function: Callable[..., Any], strict: bool | None) -> Callable[..., Any]:
        """Return a function that exports the target for its arguments, builds and loads the package, and calls it."""

        def build_and_run(*arguments: Any) -> Any:
            package = _load(function, arguments, strict, os.path.join(self.folder, f"{len(self.loaded)}.pt2"))
            self.loaded.append(package)
            return package(*arguments)

        return build_and_run

    def close(self) -> None:
        """Unload every package; torch then deletes its unpacked files."""
        self.loaded.clear()


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


def run(session: Session, arguments: "Aot") -> None:
    """Build and call a package; the reference is the function itself, on copies."""
    packages = session.kept.get(Aot.kind)
    if packages is None:
        packages = session.kept[Aot.kind] = Packages(os.path.join(session.cache, "ahead"))
        session.maker.closing.callback(packages.close)
    name = arguments.function or next(iter(session.compiled.targets))
    wanted = Wanted(
        function=name,
        inputs=arguments.inputs,
        context=arguments.context,
        target=lambda: packages.target(session.compiled.targets[name], arguments.strict),
        is_package=True,
    )
    session.call(wanted)


@dataclass(frozen=True, slots=True, kw_only=True)
class Aot(Calling):
    """``aot: {function: NAME, inputs: [...], context: [...], strict: true, as: NAME}``."""

    kind: ClassVar[str] = "aot"
    traits: ClassVar[Traits] = Traits(has_result=True, claims=True, compiles=True, enters_context=True)
    runs = staticmethod(run)
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
