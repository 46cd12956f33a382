"""Imports of torch and its parts, names looked up in it, and the vector math library initialised
before any case.
"""

import concurrent.futures
import contextlib
import fcntl
import functools
import hashlib
import importlib
import os
import pkgutil
import select
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from multiprocessing.connection import Connection
from typing import Any, NoReturn

from torch_conformance.model import devices
from torch_conformance.vocabulary.worker_torch import torch


def resolve(path: str) -> Any:
    """Return the object at a dotted path after the import of its longest module prefix; raise
    ImportError or AttributeError.
    """
    parts = path.replace(":", ".").split(".")
    for end in range(len(parts), 0, -1):
        try:
            resolved: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if error.name is None or not ".".join(parts[:end]).startswith(error.name):
                raise
            continue
        for part in parts[end:]:
            resolved = getattr(resolved, part)
        return resolved
    raise ImportError(f"no module for '{path}'")


def be_silent() -> None:
    """Discard what this process prints from now on: a vendor's module may print without an end."""
    os.dup2(os.dup2(os.open(os.devnull, os.O_WRONLY), 1), 2)


_INTERVALS, _SECONDS = 12, 10.0
"""For how long the import of a vendor's module may go on."""

_LEAST_TICKS = 2
"""An import whose processes use less of a processor in an interval than so many hundredths of a
second waits for something that does not come."""

HANGING: set[str] = set()
"""Modules whose import did not end in this process, or in the one that it was forked from."""


def ends(leader: int, end: Connection | int) -> bool:
    """Wait until ``end`` is readable, which shows that an import has ended; return False if the
    import hangs or takes too long. ``leader`` is the pid of its process, which leads a session.
    """
    ticks = 0
    for _ in range(_INTERVALS):
        if select.select([end], [], [], _SECONDS)[0]:
            return True
        before, ticks = ticks, _ticks_of(leader)
        if ticks < before + _LEAST_TICKS:
            break
    return False


def _ticks_of(leader: int) -> int:
    """Return the time of processors that a process and its session used."""
    used = 0
    for pid in filter(str.isdecimal, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{pid}/stat", encoding="utf-8") as stream:
            fields = stream.read().rpartition(")")[2].split()
            used += sum(map(int, fields[11:15])) * (leader in (int(pid), int(fields[3])))
    return used


def name_lines(file: str, names: Mapping[int, str]) -> None:
    """Store the function of each line of a file in dynamo's cache.

    Otherwise dynamo parses the file as Python and may raise.
    """
    if "torch._dynamo" in sys.modules:
        from torch._dynamo import funcname_cache

        funcname_cache.cache[file] = dict(names)


def torch_root() -> str:
    """Return the folder of the imported torch."""
    return os.path.dirname(os.path.abspath(str(torch.__file__)))


def refuse_other_torch(inspected: str | None) -> None:
    """Raise ``ImportError`` where the imported torch is not the one that the plan was made for.

    A case's ``env`` can cause that.
    """
    if inspected is not None and os.path.realpath(torch_root()) != os.path.realpath(inspected):
        raise ImportError(
            f"this worker imported torch from {torch_root()}, but the case was planned for "
            f"the torch in {inspected}"
        )


_FROM_LIBRARIES = (
    "acos asin atan ceil cos cosh erf erfc erfinv exp expm1 floor lgamma log log10 log1p log2 "
    "round sin sinh sqrt rsqrt tan tanh trunc"
)
"""Functions that torch calls in a vector math library where there is one."""


@functools.cache
def settle_math() -> None:
    """Initialize the vector math library: call each function once, with one thread, for this
    process and its forks.

    A concurrent first call of MKL by two threads can return wrong results: an error of 1.5e-4
    instead of 1e-7 in 6 of 3,700 processes that only called ``torch.sin``, and in none of 9,000
    with one thread or an initialized library. The case does not cause this error.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    for name in _FROM_LIBRARIES.split():
        for dtype in (torch.float32, torch.float64):
            getattr(torch, name)(torch.full((64,), 0.5, dtype=dtype))
    torch.set_num_threads(before)


def set_threads(count: int) -> None:
    """Set the number of OpenMP threads of this process, after the vector math library is
    initialized.
    """
    settle_math()
    torch.set_num_threads(count)


OF_VENDORS: dict[str, devices.Accelerator] = {}
"""The kinds of device that modules of vendors have registered in this process."""


def modules() -> Iterator[tuple[devices.Accelerator, Any]]:
    """Yield each kind of accelerator that this torch has a module for, and that module."""
    imported = importlib.import_module("torch")
    for accelerator in (*devices.ACCELERATORS.values(), *OF_VENDORS.values()):
        module = getattr(imported, accelerator.module, None)
        if module is not None:
            yield accelerator, module


@contextlib.contextmanager
def _replaced(replacements: Iterable[tuple[Any, str, Callable[..., Any]]]) -> Iterator[None]:
    """Replace attributes of objects, where they are there, in this context."""
    with contextlib.ExitStack() as stack:
        for owner, name, replacement in replacements:
            if hasattr(owner, name):
                stack.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, replacement)
        yield


def _without_driver_calls() -> contextlib.AbstractContextManager[None]:
    """Replace ``is_available`` of accelerators by a check of their device nodes in this context.

    Torch calls it while inductor is imported (until torch 2.12) and when it selects vector
    instructions. The original uses NVML, which starts a thread, after which no fork is safe.
    """
    may_be_there = {
        id(module): _is_built_for(kind) and any(map(os.path.exists, kind.nodes))
        for kind, module in modules()
    }
    return _replaced(
        (module, "is_available", functools.partial(bool, may_be_there[id(module)]))
        for _, module in modules()
    )


def _is_built_for(accelerator: devices.Accelerator) -> bool:
    return any(
        getattr(torch.version, build.version, None) is not None for build in accelerator.builds
    )


def is_built_for_gpus() -> bool:
    """Whether this torch is built for any accelerator."""
    return any(map(_is_built_for, devices.ACCELERATORS.values()))


def import_inductor() -> None:
    """Import the modules of a compile, and compute the hashes of torch's and Triton's files at the
    same time.

    Torch uses tqdm while it registers patterns. The first compile needs the hashes, of 450 MB,
    which their modules keep; while they are computed, another thread can import. Those threads have
    ended when this function returns.
    """
    with ThreadPoolExecutor(2) as threads, _without_driver_calls():
        threads.submit(_hash_files, "triton.runtime.cache:triton_key")
        import torch._dynamo
        import torch._inductor.codecache

        threads.submit(_hash_files, "torch._inductor.codecache:torch_key")
        import torch._inductor.compile_fx  # noqa: F401 - imported for its effect: a fork inherits it
    without_monitor_thread()


def _hash_files(function: str) -> None:
    with contextlib.suppress(ImportError, AttributeError, OSError):
        resolve(function)()


def without_monitor_thread() -> None:
    """Disable the monitor thread of tqdm."""
    with contextlib.suppress(ImportError):
        importlib.import_module("tqdm").tqdm.monitor_interval = 0


_OF_COMPILES = {
    "torch._dynamo": "backends.inductor backends.cudagraphs dce_extra_outputs repro.after_dynamo",
    "torch._inductor": (
        "bounds choices compiler_bisector hooks kernel_template_choice runtime.caching "
        "extern_node_serializer "
        "runtime.triton_heuristics runtime.static_triton_launcher"
    ),
    "torch._inductor.codegen": (
        "triton triton_combo_kernel cuda_combined_scheduling cpp_wrapper_gpu "
        "cuda.device_op_overrides segmented_tree "
        "memory_planning halide mps pallas wrapper_fxir cutlass.scheduling rocm.rocm_cpp_scheduling"
    ),
    "torch._inductor.fx_passes": (
        "efficient_conv_bn_eval freezing_patterns fuse_attention misc_patterns mkldnn_fusion "
        "pad_mm quantization"
    ),
    "torch": (
        "_functorch._aot_autograd.subclass_codegen _subclasses.schema_check_mode "
        "fx.experimental.validator _export.db.logging "
        "export._trace export._unlift utils.cpp_extension"
    ),
    "triton": "compiler.code_generator compiler.compiler runtime.driver language.extra.libdevice",
    "sympy": "physics.units.systems combinatorics tensor.tensor",
}
"""Modules that the first compile for a GPU imports, in torch 2.11 to 2.13.

Missing modules are skipped.
"""


def import_for_gpus() -> None:
    """Import the modules of a compile for a GPU, and compute Triton's hash of its sources.

    No device is used.
    """
    for package, names in _OF_COMPILES.items():
        for name in names.split():
            with contextlib.suppress(ImportError):
                importlib.import_module(f"{package}.{name}")
    with contextlib.suppress(ImportError):
        patterns: Any = importlib.import_module("torch._inductor.fx_passes.serialized_patterns")
        for module in pkgutil.iter_modules(patterns.__path__):
            importlib.import_module(f"{patterns.__name__}.{module.name}")
    with contextlib.suppress(ImportError, AttributeError):
        importlib.import_module("torch._inductor.runtime.triton_compat").triton_key()
    importlib.import_module("torch._inductor.codecache").torch_key()
    # Build and load the C module of Triton's driver for this torch, an object of which a process
    # has one. It calls no driver. Triton initializes the object again in each worker, and the
    # worker's own cache folder has no module: it would run the C compiler for 0.4 s. Where the
    # module cannot be built, Triton tries again in each worker and reports why.
    vendor, name = ("amd", "HIPUtils") if torch.version.hip else ("nvidia", "CudaUtils")
    with contextlib.suppress(Exception):
        # of another Triton, or without a compiler or a driver's library
        kind = getattr(importlib.import_module(f"triton.backends.{vendor}.driver"), name)
        if kind() is kind():
            kind.__init__ = lambda _: None


def without_devices() -> contextlib.AbstractContextManager[None]:
    """Hide all GPUs from torch in this context, so that a compile for the CPU calls no driver.

    A driver that was initialized cannot be used in a fork. The replaced functions are those through
    which a compile for the CPU calls a driver. They were found by tracing torch 2.11 to 2.13 with a
    driver that counts its calls.
    """
    import torch.accelerator

    def refuse() -> NoReturn:
        raise RuntimeError("devices are disabled during this compile")

    of_modules = {
        "is_available": lambda: False,
        "device_count": lambda: 0,
        "current_device": refuse,
    }
    return _replaced(
        (
            *(
                (module, name, replacement)
                for _, module in modules()
                for name, replacement in of_modules.items()
            ),
            (torch.accelerator, "is_available", lambda *_: False),
            (torch.accelerator, "device_count", lambda: 0),
            (torch.accelerator, "current_accelerator", lambda *_, **__: None),
            (torch._C, "_cuda_getDeviceCount", lambda: 0),
            # the device guard of fake tensors, which has no effect without devices
            (torch._C, "_ensureCUDADeviceGuardSet", lambda: None),
        )
    )


_PROBE_SECONDS = 60.0
"""How long another process is waited for that probes; after it, this one probes too."""


def share_probes(folder: str) -> None:
    """Let this process and its forks answer torch's probes of vector instructions from files, to
    which they add what succeeds.

    A probe runs the compiler and a Python that imports torch: all of them take 20 s on a machine
    with a GPU. Who probes holds a lock, and whoever asks for the same waits for the answer.
    """
    from torch._inductor import cpp_builder, cpu_vec_isa

    original = cpu_vec_isa.VecISA.check_build

    @functools.wraps(original)
    def check_build(isa: object, code: str) -> bool:
        """Answer a probe from the file of its set of instructions, or make it and add it there."""
        # a case may have another compiler among its options
        question = f"{isa} {cpp_builder.get_cpp_compiler()}"
        path = os.path.join(folder, f"isa-{hashlib.sha256(question.encode()).hexdigest()[:16]}")
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        except OSError:
            return bool(original(isa, code))
        with os.fdopen(descriptor, "r+", encoding="ascii") as answer:
            until = time.monotonic() + _PROBE_SECONDS
            while time.monotonic() < until:
                with contextlib.suppress(BlockingIOError):
                    fcntl.flock(answer, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    break
                time.sleep(0.05)
            if answer.read(8) == "works":
                return True
            works = bool(original(isa, code))
            if works:
                answer.write("works")
            return works

    cpu_vec_isa.VecISA.check_build = check_build


def pick_vector_isa() -> str:
    """Return the vector instructions that inductor selects, which it caches for the process and its
    forks.
    """
    from torch._inductor import cpu_vec_isa

    with _without_driver_calls():
        # Ask for each set of instructions at the same time, which torch does one after another;
        # each object keeps its answer. A question runs the compiler and starts a Python, several
        # times: on a machine with four sets of instructions all took 40 s.
        flags = cpu_vec_isa.x86_isa_checker()
        sets = [
            isa
            for isa in cpu_vec_isa.supported_vec_isa_list
            if all(flag in flags for flag in str(isa).split())
        ]
        if len(sets) > 1:
            with ThreadPoolExecutor(len(sets)) as threads:
                # what raises here raises again when torch asks
                concurrent.futures.wait([threads.submit(bool, isa) for isa in sets])
        return str(cpu_vec_isa.pick_vec_isa())


def picked_vector_isa() -> str | None:
    """Return the vector instructions that inductor has selected; None before that.

    The selection is slow, so it is not started here.
    """
    cpu_vec_isa = sys.modules.get("torch._inductor.cpu_vec_isa")
    return (
        str(cpu_vec_isa.pick_vec_isa())
        if cpu_vec_isa and cpu_vec_isa.valid_vec_isa_list.cache_info().currsize
        else None
    )
