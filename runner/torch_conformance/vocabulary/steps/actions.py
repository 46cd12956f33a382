"""Steps that call no compiled function: caches, counters, modules, calls of torch's own functions,
scripts, child processes.
"""

import ast
import inspect
import os
from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, Self

from torch_conformance.model.diagnostics import Diagnostic, one_of
from torch_conformance.model.expectation import About
from torch_conformance.model.protocol import NO_ASSERTS, Json
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.texts import MOST
from torch_conformance.vocabulary.forms import (
    TEMPLATE,
    Arguments,
    Callable_,
    Form,
    KeywordArguments,
    Name,
    among,
    one_of_keys,
)
from torch_conformance.vocabulary.steps.step_base import (
    COMPILED,
    Callee,
    NotCarriedOut,
    StepContext,
    StepKind,
    Traits,
    WithResult,
    callable_of,
    needed,
    values_of,
)
from torch_conformance.vocabulary.worker_session import Function, Session


@frozen
class Reset(StepKind):
    """Reset state: caches of torch, or the random generators.

    The words are dynamo (torch._dynamo.reset), inductor (its caches in memory), aot_autograd and
    fx_graph (these caches on disk), code (loaded modules and their files), rng (the random
    generators, to the seed of the case).

    ``reset: [dynamo, inductor]``
    """

    form = Form(
        {
            "type": ["array", "string"],
            **TEMPLATE,
            "minItems": 1,
            "uniqueItems": True,
            "items": {
                "title": "reset",
                "type": "string",
                **among("dynamo", "inductor", "aot_autograd", "fx_graph", "code", "rng"),
                "examples": ["dynamo"],
            },
        }
    )
    items: list[str]

    @classmethod
    def parse(cls, body: Json) -> Self:
        """Read the list of a spec, or the map of a plan."""
        return cls(items=body["items"] if isinstance(body, Mapping) else body)

    def run(self, session: Session) -> None:
        """Reset in the order of the words."""
        for word in self.items:
            if word == "rng":
                session.reseed()
            else:
                session.torch_state.RESETS[word]()


@frozen
class ClearCounters(StepKind):
    """Set counters and metrics to zero.

    ``clear_counters: {}``
    """

    only: Literal["counters", "metrics"] | None = None
    """Only one of the two."""

    @property
    def clears_counters(self) -> bool:
        """Unless it clears only metrics."""
        return self.only != "metrics"

    def run(self, session: Session) -> None:
        """Clear all three, or only counters, or only metrics."""
        if self.only is None:
            for spy in session.spies.values():
                spy.clear()
        if self.only in (None, "counters"):
            session.torch_state.clear_counters()
        if self.only in (None, "metrics"):
            session.torch_state.clear_metrics()


@frozen
class DeleteModules(StepKind):
    """Delete the files of the generated modules, so that a later cache hit must write them again.

    ``delete_modules: {}``
    """

    about = About.INDUCTOR

    def run(self, session: Session) -> None:
        """Delete them; raise ``RuntimeError`` where there are none."""
        if session.torch_state.delete_generated_files() == 0:
            raise RuntimeError("no generated module was loaded: nothing was deleted")


@frozen
class FreshCache(StepKind):
    """Continue with an empty Inductor cache folder.

    ``fresh_cache: {}``
    """

    def run(self, session: Session) -> None:
        """Use the next folder."""
        number = session.kept[FreshCache.kind] = session.kept.get(FreshCache.kind, 0) + 1
        session.torch_state.RESETS["inductor"]()
        session.torch_state.use_cache_dir(os.path.join(session.cache, f"fresh-{number}"))


@frozen
class _OfCallable(StepKind):
    """A kind that calls a function by name."""

    call: Callable_ = None
    """What to call."""
    args: Arguments = None
    """Arguments: inputs of every kind, at any depth; {value: ...} for a map that is only data.

    For example ``[1, 2]``.
    """
    kwargs: KeywordArguments = None
    """Keyword arguments, likewise. For example ``{dim: 0}``."""

    @property
    def callees(self) -> Iterator[Callee]:
        """The function."""
        if self.call is not None:
            yield Callee(call=self.call, args=self.args, kwargs=self.kwargs)


@frozen
class Api(_OfCallable):
    """Call a library function, or one of the prelude.

    ``api: {call: torch._inductor.codecache.FxGraphCache.clear}``
    """

    traits = Traits(has_result=True, claims=True)
    form = Form({"required": ["call"]})
    as_: Name | None = None
    """A name for the result."""

    def run(self, session: Session) -> None:
        """Call it."""
        function = callable_of(session, self.call)
        args, kwargs = values_of(session, self.args, self.kwargs)
        with session.phases("api"):
            session.output = function(*args, **kwargs)


@frozen
class Script(WithResult):
    r"""Python that drives torch: one def, whose parameters are named values.

    What it returns is the result of the step.

    ``script: {code: "def run(compiled, inputs):\n    return compiled(*inputs)\n", as: again}``
    """

    traits = Traits(has_result=True, claims=True, needs_own_graphs=True, python="code")
    code: Annotated[Json, Form({"type": "string", "minLength": 1})]
    r"""The def.

    For example ``"def run(compiled, inputs):\n    return [compiled(*inputs) for _ in
    range(3)]\n"``.
    """
    entry: Annotated[str, None] = (
        ""  # in a case ``code`` is a block, and this is the name of its def
    )

    @property
    def names(self) -> Iterator[str]:
        """The parameters of its def, and of functions within it."""
        text = self.code if isinstance(self.code, str) else self.code["text"]
        return (node.arg for node in ast.walk(ast.parse(text)) if isinstance(node, ast.arg))

    @property
    def runs_graphs(self) -> bool:
        """If it has a parameter ``compiled``."""
        return COMPILED in self.names

    def name_problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield a number of defs other than one, and parameters that name no value."""
        path = (*context.path, "code")
        if context.tree is None:
            return
        # of two defs with one name, Python binds the last
        defs = list(
            {
                node.name: node for node in context.tree.body if isinstance(node, ast.FunctionDef)
            }.values()
        )
        if len(defs) != 1:
            names = one_of([node.name for node in defs]) if defs else "none"
            hint = (
                "move the others to prelude"
                if defs
                else "write def NAME(...): ..., whose parameters are named values"
            )
            yield context.problem(path, f"a script is one def, found {names}", hint)
            return
        arguments = defs[0].args
        for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
            problem = context.name_problem(argument.arg)
            if problem is not None:
                yield context.problem(
                    path, f"{problem[0]}: a parameter of a script is a named value", problem[1]
                )
        if arguments.posonlyargs or arguments.vararg or arguments.kwarg:
            yield context.problem(
                path, "a script takes its values by name", "write plain parameters"
            )

    def run(self, session: Session) -> None:
        """Call the def with the values that its parameters name."""
        function = session.module.function(self.code, self.entry)
        with needed("what the script names"):
            values = {
                name: session.scope.named(name) for name in inspect.signature(function).parameters
            }
        with session.phases("script"):
            session.output = function(**values)


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


def _called(
    returning: Any, function: Function, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Call a function in a child, and send that it returned."""
    function(*args, **kwargs)
    returning.send(None)


@frozen
class Spawn(_OfCallable):
    """A child process, which the step waits for: a call in a child that multiprocessing spawns, or
    a program with its arguments.

    The arguments of a call are pickled; the prelude can be imported in the child. The step needs an
    exit expectation.

    ``spawn: {call: time_choice, args: [{ref: choice}]}``
    ``spawn: {program: python, argv: ["-c", "import torch; print(torch.__version__)"]}``
    """

    traits = Traits(has_exit=True, children=1)
    form = Form(
        {
            **one_of_keys("call", "program"),
            "dependentRequired": {"args": ["call"], "kwargs": ["call"], "argv": ["program"]},
        }
    )
    program: Literal["python", "torchrun", "cxx", "cmake", "nvcc", "hipcc"] | None = None
    """A program to run, in the folder of the case and without standard input. python is the Python
    of the worker, torchrun its torch.distributed.run, cxx the C++ compiler c++; all but the first
    two are found on PATH."""
    argv: Annotated[
        Json, Form({"type": "array", "items": {"type": ["string", "number", "object"]}})
    ] = None
    """The arguments of the program: texts, numbers, {ref: NAME} for a value that is one.
    For example ``["-m", "torch.utils.collect_env"]``, ``["-c", "print('ready')"]``."""

    def name_problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield a missing ``exit`` expectation."""
        if not any(EXPECTATIONS[kind].judges_exit for kind, _ in context.expected):
            yield context.problem(
                context.path,
                "nothing is expected of the child",
                "add expect: [{exit: {code: 0}}]",
                key=True,
            )

    def run(self, session: Session) -> None:
        """Start the child and wait for it."""
        import multiprocessing

        if os.environ.get(NO_ASSERTS):  # code of the spec set it
            raise NotCarriedOut(f"with {NO_ASSERTS} Python leaves out the asserts of the child")
        if self.program is not None:
            session.exit = run_program(session, self.program, self.argv)
            return
        function = callable_of(session, self.call)
        args, kwargs = values_of(session, self.args, self.kwargs)
        with session.phases("spawn"):
            spawning = multiprocessing.get_context("spawn")
            has_returned, returning = spawning.Pipe(duplex=False)
            child = spawning.Process(target=_called, args=(returning, function, args, kwargs))
            child.start()
            child.join()
        if child.exitcode == 0 and not has_returned.poll():
            raise NotCarriedOut(
                "the child exited with code 0 before its function returned: let the function return"
            )
        session.exit = {"code": child.exitcode, "stderr": session.log_of_step()}
