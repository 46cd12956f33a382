"""The state in which a worker of several cases began, to which it is brought back after each; what stays otherwise is said.

What is brought back: what the case put on its stack (options, spies), all options of torch, ``settings.SETTINGS``, counters and
metrics, what torch remembers of compiles, modules of specs and of generated code, the working folder. What is only said, after which the
worker gets no further case: functions, classes and entries of tables that were replaced, what was registered with torch, threads,
memory of a GPU. The runner looks for processes and growth itself.

What was changed in this program's own modules, in Python's standard library or in builtins makes the case *contaminated*: it could have
changed how it is measured, so the runner does not believe it and runs it again alone. Of our modules every name, constant, table, list,
class attribute and function is compared (code, defaults, closures too), and that no name was added; of the standard library what can be
called, and that no name was added that hides a builtin.

What nobody sees: what the text of ``settings.SETTINGS`` names; attributes of objects that are no modules or classes; attributes of classes
outside of our modules where they are no methods; tables within tables; what was put into other packages (numpy, sympy); what was changed
in C, through ``ctypes`` or the garbage collector, or in this check itself; what was registered in C++; that torch patches optimizers,
``torch.jit`` and distributions when it first compiles; what was changed and changed back. A case that does such things says
``isolation: case``, or leaves it unsaid.
"""

import contextlib
import functools
import gc
import importlib
import linecache
import os
import pkgutil
import sys
import threading
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from runner import vocabulary, worker
from runner.worker.case import hooks, source_module
from runner.worker.process import warming
from runner.worker.process.registered import OURS, PYTHON, Counters, Places, Tables
from runner.worker.process.settings import Settings
from runner.worker.torch_compat import counting, devices, option_state, resets


@dataclass
class Odd:
    """What could not be brought back."""

    text: str = ""
    contaminated: str = ""
    """What it changed of what measures it."""


class Baseline:
    """What this process was before its first case."""

    def __init__(self) -> None:
        hooks.install()
        _import_all()
        self._options = option_state.option_values()
        self._settings = Settings()
        self._counters = Counters()
        self._places = Places()
        # bound here, and looked at before anything of ours that a case may have replaced
        self._of_ours, self._of_python = Places(OURS).replaced, Places(PYTHON).replaced
        self._tables = Tables()
        self._threads = set(threading.enumerate())
        self._allocated = devices.allocated()

    @contextlib.contextmanager
    def kept(self) -> Iterator[tuple[contextlib.ExitStack, Odd]]:
        """Run a case; what it puts on the stack is undone, and all else that we know of brought back, or said."""
        odd = Odd()
        sizes = warming.cache_sizes()
        with contextlib.ExitStack() as undo:
            yield undo, odd
            kept = undo.pop_all()
        said = [*_failure("what it had changed", kept.close)]
        changed = list(self._of_ours())
        said += [
            *self._bring_back(),
            *_failure("answers that torch had kept", lambda: warming.forget_answers(sizes)),
            *self._oddities(),
        ]
        changed += self._of_python()  # what a setting is brought back by is in it
        odd.contaminated = ", ".join(changed)[:_MOST_TEXT]
        odd.text = "; ".join([*(f"{path} stays replaced" for path in changed), *said])

    def _bring_back(self) -> Iterator[str]:
        yield from _failure("the working folder", lambda: os.chdir("/"))
        yield from self._bring_back_options()
        yield from self._settings.bring_back()
        yield from _failure("what torch had compiled", _forget)
        self._counters.set_back()

    def _bring_back_options(self) -> Iterator[str]:
        for (module, name), value in self._changed_options().items():
            yield from _failure(f"option {module}.{name}", functools.partial(option_state.set_option, module, name, value))
        yield from (f"option {module}.{name} stays changed" for module, name in self._changed_options())

    def _changed_options(self) -> dict[tuple[str, str], object]:
        now = option_state.option_values()
        return {key: held for key, held in self._options.items() if key not in now or now[key] != held}

    def _oddities(self) -> Iterator[str]:
        yield from (f"{path} stays replaced" for path in self._places.replaced())
        yield from self._tables.grown()
        yield from (f"thread {thread.name} goes on" for thread in threading.enumerate() if thread not in self._threads)
        if (more := devices.allocated() - self._allocated) > 0:
            yield f"{more} bytes of GPU memory stay allocated"
        if devices.has_other_stream():
            yield "another stream stays the current one"


_MOST_TEXT = 300


def _import_all() -> None:
    """Import all that a later case may import of this program: a case could leave something else in its place."""
    for package in (vocabulary, worker):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.rpartition(".")[2] not in ("zygote", "entry"):  # the program that runs, which would be there twice
                importlib.import_module(found.name)


def _failure(what: str, clean: Callable[[], object]) -> Iterator[str]:
    """Clean; yield why that cannot be done: a case may have broken whatever is used here."""
    try:
        clean()
    except Exception as error:  # code of torch that a case may have replaced can raise anything; what is not clean is told, and retires us
        yield f"{what} cannot be brought back: {type(error).__name__}: {error}"[:300]


def _forget() -> None:
    resets.reset_dynamo()
    resets.reset_inductor()
    counting.clear_counters()
    counting.clear_metrics()
    resets.forget_compiles()
    source_module.forget_all()
    linecache.checkcache()
    _let_warn_again()
    gc.collect()
    if devices.used():
        devices.synchronize_all()
        devices.free_memory()


def _let_warn_again() -> None:
    for module in list(sys.modules.values()):
        if type(module) is types.ModuleType and isinstance(found := vars(module).get("__warningregistry__"), dict):
            found.clear()
