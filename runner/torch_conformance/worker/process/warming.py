"""Warm-up: a zygote does the work of the first compile of a process before a case runs.

The compiled code is discarded. Imports, registrations and compiler probes remain, which torch does
once per process: the first compile of a worker on the CPU takes as long as its second.
``WarmFiles`` keeps what the compiler built for later zygotes of this machine.
"""

import ast
import contextlib
import functools
import gc
import hashlib
import itertools
import os
import platform
import secrets
import shutil
import sys
import tempfile
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import FunctionType
from typing import Any

import torch

from torch_conformance.worker.torch_compat import imports, torch_state

_CACHE_TYPE = type(functools.cache(lambda: None))
_frozen: list[Any] = []
"""The caches at the time of ``freeze``: ``gc.get_objects`` does not return frozen objects."""

_COMPILER_CACHES = ("torch._inductor.cpp_builder", "torch._inductor.cpu_vec_isa")
"""Modules whose function caches hold results of the C++ compiler.

The keys hold all inputs, so these caches are not cleared.
"""

_FILE_CACHES = ("_precompile_header", "triton_key")
"""Functions whose caches depend only on installed files: torch's headers, Triton's sources."""


_COUNTED = ("torch._dynamo", "torch._functorch", "torch._inductor")
"""Packages whose counters are reset: their values occur in generated code and in logs."""


_FROM_ZERO: Mapping[type, str] = {int: "0", itertools.count: "count(0)"}

_NUMBERS = (
    ("torch._functorch._aot_autograd.logging_utils", "nth_graph"),
    ("torch._dynamo.utils", "op_count"),
)
"""Counters that are plain integers: module and name."""


def _counters() -> Iterator[tuple[Any, str, Any]]:
    for name, module in list(sys.modules.items()):
        if not name.startswith(_COUNTED) or type(module) is not types.ModuleType:
            continue
        for key, value in list(vars(module).items()):
            if type(value) is itertools.count:
                yield module, key, value
            elif issubclass(type(value), type) and value.__module__ == name:
                yield from (
                    (value, member, counter)
                    for member, counter in list(vars(value).items())
                    if type(counter) is itertools.count
                )
    for name, key in _NUMBERS:
        if type(number := vars(sys.modules.get(name, object)).get(key)) is int:
            yield sys.modules[name], key, number


def _restore_counters(before: Mapping[tuple[int, str], str]) -> None:
    """Restore torch's counters from ``before`` (text by id of the owner and name); counters of
    modules that were imported since then restart at 0. No compiled code is alive at this point.
    """
    for owner, name, value in list(_counters()):
        text = before.get((id(owner), name), _FROM_ZERO[type(value)])
        if repr(value) != text:
            start = ast.literal_eval(text.removeprefix("count"))  # 3, (3) or (3, 2)
            if type(value) is not int:
                start = itertools.count(*start if type(start) is tuple else (start,))
            setattr(owner, name, start)


@contextlib.contextmanager
def _discarded(folder: str | None) -> Iterator[list[str]]:
    """Discard all code that is compiled in this context.

    With a folder for torch's caches, exceptions are not raised: their texts are in the yielded
    list.
    """
    sizes = {id(cache): cache.cache_info().currsize for cache in _caches()}
    # an ``itertools.count`` is stored as text, not as a copy
    counters = {(id(owner), name): repr(value) for owner, name, value in _counters()}
    problems: list[str] = []
    try:
        with contextlib.nullcontext() if folder is None else torch_state.cache_folder(folder):
            yield problems
    except Exception as error:
        # without a working compiler nothing is warmed up: the next case will run into it and report
        # it
        if folder is None:
            raise
        problems.append(f"{type(error).__name__}: {error}")
    torch_state.RESETS["dynamo"]()
    torch_state.RESETS["inductor"]()
    torch_state.clear_counters()
    torch_state.clear_metrics()
    torch_state.forget_compiles()
    # function caches that may depend on options, variables or devices of a case
    for cache in list(_caches()):
        if cache.cache_info().currsize > sizes.get(id(cache), 0) and not _may_stay(cache):
            cache.cache_clear()
    gc.collect()
    _restore_counters(counters)


def compile_something(device: str, *, with_gradients: bool, few: bool) -> str:
    """Compile and run small functions on a device, and discard them; return the text of torch's
    exception, empty when none was raised.

    ``with_gradients`` starts torch's autograd, which initializes every driver that torch is built
    for: a process that forks later must not. ``few``: only the function whose compile does what
    nearly every compile needs.
    """
    with _discarded(os.environ["TORCHINDUCTOR_CACHE_DIR"]) as problems:
        with torch.no_grad():
            torch.compile(_with_own_globals(_pointwise))(
                torch.rand(8, 8, device=device), torch.rand(8, device=device)
            )
        torch._dynamo.reset()
        if with_gradients and not few:
            # its backward is traced and not run: a run would compile it and start autograd's
            # threads
            torch.compile(_with_own_globals(_matmul))(
                *(torch.rand(4, 4, device=device, requires_grad=True) for _ in range(2))
            )
            torch._dynamo.reset()
        if not few:
            # the calls in it make dynamo import its handlers of functions; no kernel is built
            torch.compile(_with_own_globals(_calls), backend="eager")(
                torch.rand(4, 4, device=device)
            )
    return "".join(problems)


def build_header() -> None:
    """Let torch build its precompiled header for the best vector instructions of this CPU: another
    process probes whether they work.

    The state of the compiler stays as it is then: this process should end.
    """
    torch._inductor.config.cpp.vec_isa_ok = True
    with (
        imports.without_devices(),
        tempfile.TemporaryDirectory() as folder,
        torch_state.cache_folder(folder),
    ):
        torch.compile(_smallest)(torch.rand(8))


def trace_something(*, few: bool) -> None:
    """Trace small functions with dynamo and AOTAutograd, and discard them; ``few`` is that of
    ``compile_something``.

    This uses no device, registers no pattern, builds no kernel.
    """
    with _discarded(None), torch.no_grad():
        torch.compile(_with_own_globals(_pointwise), backend="aot_eager")(
            torch.rand(8, 8), torch.rand(8)
        )
        if not few:
            torch.compile(_with_own_globals(_calls), backend="eager")(torch.rand(4, 4))


def _with_own_globals(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a copy of a function with separate global names.

    Dynamo writes numbered names into them, and numbers begin anew when it is discarded: in the same
    names a later compile fails.
    """
    names: dict[str, Any] = {"__name__": __name__, "__builtins__": __builtins__, "torch": torch}
    for helper in (_helper, function):
        names[helper.__name__] = FunctionType(
            helper.__code__, names, helper.__name__, helper.__defaults__
        )
    copy: Callable[..., Any] = names[function.__name__]
    return copy


def _smallest(x: Any) -> Any:
    return x + 1


def _pointwise(x: Any, y: Any) -> Any:
    return (x * 2 + 1).relu(), (x.sum(1) + y.mean()).softmax(0)


def _matmul(x: object, y: Any) -> Any:
    return x @ y


def _calls(x: Any) -> Any:
    parts = [torch.nn.functional.relu(x), _helper(x, factor=2)]
    torch._dynamo.graph_break()
    return {"sum": sum(parts), "shape": x.shape}


def _helper(x: Any, *, factor: int) -> Any:
    return x * factor


def _caches() -> Iterator[Any]:
    # not isinstance: it reads __class__, and a dead weak proxy raises then
    yield from _frozen
    yield from (cache for cache in gc.get_objects() if type(cache) is _CACHE_TYPE)


def _may_stay(cache: object) -> bool:
    module, name = str(getattr(cache, "__module__", "")), str(getattr(cache, "__qualname__", ""))
    if (
        not module.startswith(("torch.", "triton."))
        or module in _COMPILER_CACHES
        or name in _FILE_CACHES
    ):
        return True
    if "warn" in name:
        return False
    # every cached result is None: such calls register something, which must happen once
    values = [
        value
        for table in gc.get_referents(cache)
        if isinstance(table, dict) and table is not vars(cache)
        for value in table.values()
    ]
    return bool(values) and all(value is None for value in values)


def freeze() -> None:
    """Exclude all live objects from garbage collection: a scan in a worker would copy the pages
    that it shares with the zygote.
    """
    _frozen[:] = list(_caches())
    gc.freeze()


# -- files -----------------------------------------------------------------------------------------

_MOST_KEPT = 8
"""How many folders are kept, two for each compiler, torch and CPU: a precompiled header takes some
150 MB.
"""

_VARIABLES = (
    "CXX",
    "COMPILER_PATH",
    "CPATH",
    "CPLUS_INCLUDE_PATH",
    "C_INCLUDE_PATH",
    "GCC_EXEC_PREFIX",
    "LD_LIBRARY_PATH",
    "LIBRARY_PATH",
)
"""Variables that change what a compiler builds."""

_LEFT_OUT = shutil.ignore_patterns("fxgraph", "aotautograd", "locks", "*.lock")
"""torch's caches of graphs: with a hit the warm-up would compile nothing."""


class WarmFiles:
    """What the compiler built while a zygote warmed up: a later zygote of this machine starts in
    half of the time with it.

    The files, in a folder that only this user can write to (none in None), are those of torch's own
    caches for this torch, compiler and CPU: a precompiled header, the kernels of the warm-up. A
    zygote for the CPU copies those of an earlier one into its own folders before it warms up, or
    adds its own when it is warm. No case writes there, so that one that is killed leaves no half of
    a file.
    """

    def __init__(self, folder: str | None) -> None:
        self._kept = Path(folder, _key()) if folder else None
        self._are_there = self._kept is not None and self._kept.is_dir()

    def probes(self) -> str | None:
        """Return the folder of answers to torch's probes of vector instructions; None for none."""
        if self._kept is None:
            return None
        folder = self._kept.with_name(f"{self._kept.name}-probes")
        with contextlib.suppress(OSError):
            folder.mkdir(exist_ok=True)
        return str(folder)

    def restore(self) -> bool:
        """Copy the files of an earlier zygote into the folders of this one; return whether there
        are any.
        """
        if self._kept is not None and self._are_there:
            try:
                os.utime(self._kept)
                for name, target in torch_state.built_by_warm_up().items():
                    if (self._kept / name).is_dir():
                        shutil.copytree(self._kept / name, target, dirs_exist_ok=True)
            except OSError:  # removed by another run, or a full disk: torch builds what is missing
                self._are_there = False
        return self._are_there

    def keep(self) -> None:
        """Store the files that this zygote built, unless the cache has them; remove the least
        recently used.
        """
        if self._kept is None or self._are_there:
            return
        part = self._kept.with_name(f"{self._kept.name}.{secrets.token_hex(8)}.part")
        try:
            for name, source in torch_state.built_by_warm_up().items():
                if os.path.isdir(source):
                    shutil.copytree(source, part / name, ignore=_LEFT_OUT)
            part.rename(self._kept)
        except OSError:  # another zygote was first, or a full disk
            shutil.rmtree(part, ignore_errors=True)
        with contextlib.suppress(OSError):
            by_age = sorted(self._kept.parent.iterdir(), key=lambda path: path.stat().st_mtime)
            for old in by_age[:-_MOST_KEPT]:
                shutil.rmtree(old, ignore_errors=True)


def _key() -> str:
    compiler = shutil.which(os.environ.get("CXX") or "g++")
    stamp = os.stat(compiler) if compiler else None
    lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    cpu = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    parts = [
        torch.__version__,
        torch.version.git_version,
        platform.python_version(),
        platform.machine(),
        cpu,
        compiler,
    ]
    parts += [
        stamp and (stamp.st_size, stamp.st_mtime_ns),
        {name: os.environ.get(name) for name in _VARIABLES},
    ]
    return hashlib.sha256(repr(parts).encode("utf-8", "surrogatepass")).hexdigest()
