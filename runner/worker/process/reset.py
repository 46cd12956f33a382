"""The baseline of a shared worker: its state before the first case. It is restored after each case; state that remains is reported.

Restored: the entries of the case's undo stack (options, spies), all options of torch, ``settings.SETTINGS``, counters and metrics, torch's
records of compiles, the patterns of freezing, modules of specs and of generated code, the working folder.

Only reported: replaced functions, classes and table entries, registrations with torch, threads, GPU memory. After such a report the worker
gets no further case. The runner checks child processes and memory growth itself.

A case is *contaminated* when it changed a module of this program, Python's standard library or builtins: the change may affect how the
case is measured. The runner discards its result and retries the case alone. In our modules every name, constant, table, list, class
attribute and function is compared (also code, defaults and closures), and no name may be added. In the standard library every callable is
compared, and no name may be added that hides a builtin.

Not detected: the state that the text after ``settings.SETTINGS`` lists; attributes of objects other than modules and classes; class
attributes other than methods, outside of our modules; nested tables; changes of other packages (numpy, sympy); changes made in C, through
``ctypes`` or the garbage collector, or to this check itself; registrations in C++; torch's own patches of optimizers, ``torch.jit`` and
distributions at its first compile; changes that the case undid itself. A spec with such a case sets ``isolation: case`` or leaves the key
out.
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
from runner.worker.case import compilation, hooks, source_module
from runner.worker.process import warming
from runner.worker.process.registered import OURS, PYTHON, Counters, Places, Tables
from runner.worker.process.settings import Settings
from runner.worker.torch_compat import counting, devices, option_state, resets
from runner.worker.torch_compat.freezing_patterns import FreezingPatterns


@dataclass
class Contamination:
    """State that a case changed and that could not be restored; both fields are empty after a clean case."""

    text: str = ""
    """All of it, as one line."""
    contaminated: str = ""
    """The part that may affect how the case is measured. Not empty: the result is discarded."""


class Baseline:
    """The state of this process before its first case."""

    def __init__(self) -> None:
        hooks.install()
        compilation.install()
        _import_all()
        self._freezing = FreezingPatterns()
        warming.freeze()
        self._options = option_state.option_values()
        self._settings = Settings()
        self._counters = Counters()
        self._places = Places()
        # bound here: a case may replace the names in this module
        self._of_ours, self._of_python = Places(OURS).replaced, Places(PYTHON).replaced
        self._tables = Tables()
        self._threads = set(threading.enumerate())
        self._allocated = devices.allocated()
        gc.freeze()  # what it records is much, and stays: else the collection after each case reads all of it

    @contextlib.contextmanager
    def kept(self) -> Iterator[tuple[contextlib.ExitStack, Contamination]]:
        """Run a case in this context. Its end undoes the stack, restores the baseline, and fills in the ``Contamination``."""
        contamination = Contamination()
        sizes = warming.cache_sizes()
        with contextlib.ExitStack() as undo:
            yield undo, contamination
            changes = undo.pop_all()
        remaining = [*_failure("changes of the case", changes.close)]
        changed = list(self._of_ours())
        remaining += [
            *self._bring_back(),
            *_failure("function caches of torch", lambda: warming.clear_grown_caches(sizes)),
            *self._not_restorable(),
        ]
        changed += self._of_python()  # after the settings are restored: some of them are part of it
        contamination.contaminated = ", ".join(changed)[:_MOST_TEXT]
        contamination.text = "; ".join([*(f"{path} stays replaced" for path in changed), *remaining])

    def _bring_back(self) -> Iterator[str]:
        yield from _failure("the working folder", lambda: os.chdir("/"))
        yield from self._bring_back_options()
        yield from self._settings.bring_back()
        yield from _failure("compiled code of torch", _forget)
        yield from _failure("the patterns of freezing", self._freezing.set_back)
        self._counters.set_back()

    def _bring_back_options(self) -> Iterator[str]:
        for (module, name), value in self._changed_options().items():
            yield from _failure(f"option {module}.{name}", functools.partial(option_state.set_option, module, name, value))
        yield from (f"option {module}.{name} stays changed" for module, name in self._changed_options())

    def _changed_options(self) -> dict[tuple[str, str], object]:
        now = option_state.option_values()
        return {key: held for key, held in self._options.items() if key not in now or now[key] != held}

    def _not_restorable(self) -> Iterator[str]:
        """Yield changes that are only reported."""
        yield from (f"{path} stays replaced" for path in self._places.replaced())
        yield from self._tables.grown()
        yield from (f"thread {thread.name} is still running" for thread in threading.enumerate() if thread not in self._threads)
        if (more := devices.allocated() - self._allocated) > 0:
            yield f"{more} bytes of GPU memory stay allocated"
        if devices.has_other_stream():
            yield "the current stream is not the default stream"


_MOST_TEXT = 300


def _import_all() -> None:
    """Import every module of this program that a case may import, so that the baseline covers it."""
    for package in (vocabulary, worker):
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if found.name.rpartition(".")[2] not in ("zygote", "entry"):  # the running program; an import would load it a second time
                importlib.import_module(found.name)


def _failure(what: str, clean: Callable[[], object]) -> Iterator[str]:
    """Call ``clean``; yield the error where it raises, because a case may have broken any function that it uses."""
    try:
        clean()
    except Exception as error:  # replaced code of torch can raise anything; the report retires this worker
        yield f"{what} cannot be restored: {type(error).__name__}: {error}"[:300]


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
