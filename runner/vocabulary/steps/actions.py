"""Steps that call no compiled function: caches, counters, modules, calls of torch's own functions, scripts, child processes."""

import ast
import inspect
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from runner.model.diagnostics import Diagnostic, one_of
from runner.model.protocol import Json
from runner.vocabulary.expectations.texts import MOST
from runner.vocabulary.steps.step_base import COMPILED, Around, Callee, StepKind, Traits
from runner.vocabulary.steps.step_session import NotCarriedOut, Session, callable_of, needed, values_of

GENERATORS = "rng"
"""The word that sets the random generators to the case's seed again; the other words are caches of torch."""


def run_reset(session: Session, arguments: "Reset") -> None:
    """Reset in the order of the words."""
    for word in arguments.items:
        if word == GENERATORS:
            session.reseed()
        else:
            session.torch_state.RESETS[word]()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset(StepKind):
    """``reset: [dynamo, inductor]``."""

    kind: ClassVar[str] = "reset"
    runs = staticmethod(run_reset)
    items: list[str]

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read the list of a spec, or the map of a plan."""
        return cls(items=body["items"] if isinstance(body, Mapping) else body)


def run_clear_counters(session: Session, arguments: "ClearCounters") -> None:
    """Clear all three, or only counters, or only metrics."""
    if arguments.only is None:
        for spy in session.spies.values():
            spy.clear()
    if arguments.only in (None, "counters"):
        session.torch_state.clear_counters()
    if arguments.only in (None, "metrics"):
        session.torch_state.clear_metrics()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearCounters(StepKind):
    """``clear_counters: {only: metrics}``."""

    kind: ClassVar[str] = "clear_counters"
    runs = staticmethod(run_clear_counters)
    only: str | None = None

    @property
    def clears_counters(self) -> bool:
        """Unless it clears only metrics."""
        return self.only != "metrics"


def run_delete_modules(session: Session, arguments: "DeleteModules") -> None:
    """Delete them; raise ``RuntimeError`` where there are none."""
    if session.torch_state.delete_generated_files() == 0:
        raise RuntimeError("no generated module was loaded: nothing was deleted")


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteModules(StepKind):
    """``delete_modules: {}``."""

    kind: ClassVar[str] = "delete_modules"
    runs = staticmethod(run_delete_modules)


def run_fresh_cache(session: Session, arguments: "FreshCache") -> None:
    """Use the next folder."""
    number = session.kept[FreshCache.kind] = session.kept.get(FreshCache.kind, 0) + 1
    session.torch_state.RESETS["inductor"]()
    session.torch_state.use_cache_dir(os.path.join(session.cache, f"fresh-{number}"))


@dataclass(frozen=True, slots=True, kw_only=True)
class FreshCache(StepKind):
    """``fresh_cache: {}``."""

    kind: ClassVar[str] = "fresh_cache"
    runs = staticmethod(run_fresh_cache)


def run_api(session: Session, arguments: "Api") -> None:
    """Call it."""
    function = callable_of(session, arguments.call)
    args, kwargs = values_of(session, arguments.args, arguments.kwargs)
    with session.phases("api"):
        session.output = function(*args, **kwargs)


@dataclass(frozen=True, slots=True, kw_only=True)
class Api(StepKind):
    """``api: {call: NAME, args: [...], kwargs: {...}, as: NAME}``."""

    kind: ClassVar[str] = "api"
    traits: ClassVar[Traits] = Traits(has_result=True, claims=True)
    runs = staticmethod(run_api)
    call: Json
    args: Json = None
    kwargs: Json = None
    as_: str | None = None

    @property
    def callees(self) -> Iterator[Callee]:
        """The function."""
        yield Callee(call=self.call, args=self.args, kwargs=self.kwargs)


def run_script(session: Session, arguments: "Script") -> None:
    """Call the def with the values that its parameters name."""
    function = session.module.function(arguments.code, arguments.entry)
    with needed("what the script names"):
        values = {name: session.scope.named(name) for name in inspect.signature(function).parameters}
    with session.phases("script"):
        session.output = function(**values)


@dataclass(frozen=True, slots=True, kw_only=True)
class Script(StepKind):
    """``script: {code: PYTHON, as: NAME}``. In a case ``code`` is a block, and ``entry`` the name of its def."""

    kind: ClassVar[str] = "script"
    traits: ClassVar[Traits] = Traits(has_result=True, claims=True, needs_own_graphs=True, python="code")
    runs = staticmethod(run_script)
    code: Json
    entry: str = ""
    as_: str | None = None

    @property
    def names(self) -> Iterator[str]:
        """The parameters of its def, and of functions within it."""
        text = self.code if isinstance(self.code, str) else self.code["text"]
        return (node.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arg))

    @property
    def runs_graphs(self) -> bool:
        """If it has a parameter ``compiled``."""
        return COMPILED in self.names

    def name_problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield a number of defs other than one, and parameters that name no value."""
        path = (*around.path, "code")
        if around.tree is None:
            return
        # of two defs with one name, Python binds the last
        defs = list({node.name: node for node in around.tree.body if isinstance(node, ast.FunctionDef)}.values())
        if len(defs) != 1:
            names = one_of([node.name for node in defs]) if defs else "none"
            hint = "move the others to prelude" if defs else "write def NAME(...): ..., whose parameters are named values"
            yield around.problem(path, f"a script is one def, found {names}", hint)
            return
        arguments = defs[0].args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            problem = around.name_problem(argument.arg)
            if problem is not None:
                yield around.problem(path, f"{problem[0]}: a parameter of a script is a named value", problem[1])
        if arguments.posonlyargs or arguments.vararg or arguments.kwarg:
            yield around.problem(path, "a script takes its values by name", "write plain parameters")


_PYTHON = "<python>"
"""Stands for the Python of the worker."""

PROGRAMS: Mapping[str, tuple[str, ...]] = {
    "python": (_PYTHON,),
    "torchrun": (_PYTHON, "-m", "torch.distributed.run"),
    "cxx": ("c++",),
    "cmake": ("cmake",),
    "nvcc": ("nvcc",),
    "hipcc": ("hipcc",),
}
"""By the word of the language, the executable and its first arguments."""


def run_program(session: Session, program: str, argv: Json) -> dict[str, Any]:
    """Run a program to its end; return its exit code and the end of what it printed."""
    import shutil
    import subprocess
    import sys
    import tempfile

    with needed("the program"):
        executable, *first = PROGRAMS[program]
        path = sys.executable if executable == _PYTHON else shutil.which(executable)
        if path is None:
            raise LookupError(f"{executable} is not on PATH")
        command = [path, *first, *map(str, values_of(session, argv, None)[0])]
    with session.phases("spawn"), tempfile.TemporaryFile(dir=session.cache) as printed:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=printed)
        code = child.wait()
        printed.seek(max(0, printed.seek(0, 2) - MOST))
        text = printed.read().decode("utf-8", "backslashreplace")
    return {"code": code, "stderr": session.log_of_step(), "stdout": text}


def _called(returning: Any, function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Call a function in a child, and send that it returned."""
    function(*args, **kwargs)
    returning.send(None)


def run_spawn(session: Session, arguments: "Spawn") -> None:
    """Start the child and wait for it."""
    import multiprocessing

    if arguments.program is not None:
        session.exit = run_program(session, arguments.program, arguments.argv)
        return
    function = callable_of(session, arguments.call)
    args, kwargs = values_of(session, arguments.args, arguments.kwargs)
    with session.phases("spawn"):
        spawning = multiprocessing.get_context("spawn")
        has_returned, returning = spawning.Pipe(duplex=False)
        child = spawning.Process(target=_called, args=(returning, function, args, kwargs))
        child.start()
        child.join()
    if child.exitcode == 0 and not has_returned.poll():
        raise NotCarriedOut("the child exited with code 0 before its function returned: let the function return")
    session.exit = {"code": child.exitcode, "stderr": session.log_of_step()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spawn(StepKind):
    """``spawn: {call: NAME, args: [...], kwargs: {...}}`` or ``spawn: {program: python, argv: [...]}``."""

    kind: ClassVar[str] = "spawn"
    traits: ClassVar[Traits] = Traits(has_exit=True, children=1)
    runs = staticmethod(run_spawn)
    call: Json = None
    args: Json = None
    kwargs: Json = None
    program: str | None = None
    argv: Json = None

    @property
    def callees(self) -> Iterator[Callee]:
        """The function that the child calls."""
        if self.call is not None:
            yield Callee(call=self.call, args=self.args, kwargs=self.kwargs)

    def name_problems(self, around: Around) -> Iterator[Diagnostic]:
        """Yield a missing ``exit`` expectation."""
        if not any(kind == "exit" for kind, _ in around.expected):
            yield around.problem(around.path, "nothing is expected of the child", "add expect: [{exit: {code: 0}}]", key=True)
