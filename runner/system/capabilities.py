"""Capabilities of machines: one table with the argument, the probe and the reason of absence of each.

A probe reads a ``Machine``. Before the run it holds only what files and environment show, without torch (``availability.inspect_files``).
During the run it also holds the facts of a worker (``facts``). A probe without enough facts returns UNKNOWN, and the run repeats it.
"""

import functools
import importlib.util
import math
import os
import re
import shutil
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from runner.core import devices
from runner.core.case import Availability
from runner.core.conditions import BadRange, VersionRange
from runner.core.diagnostics import one_of
from runner.core.simulated import PROPERTIES, TESTED_MINORS
from runner.core.targets import EXAMPLE, TARGETS, simulated
from runner.system.installed_torch import installed_torch


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The known properties of a machine. None means not known yet."""

    python: tuple[int, ...]
    torch: str | None
    """The version; None when torch is not installed."""
    release: tuple[int, ...] | None
    builds: Mapping[str, str | None] = field(default_factory=dict)
    """The versions of what torch was built for, by their names in ``torch.version`` (``core/devices.py``)."""
    gpus: int | None = None
    gpu_memory: int | None = None
    """Bytes of the smallest GPU."""
    arch: str | None = None
    found: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What ``look`` of each capability found, by its name."""
    torch_root: str | None = None
    """The folder of the inspected torch; None if it is not known."""
    no_torch: str = "torch is not installed"
    """The reason why there is no torch."""
    facts: Mapping[str, Any] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)
    """Why each target cannot be compiled for here, empty where it can; without targets whose compiler was not tried."""
    packages: Mapping[str, bool] | None = None
    """Which top-level packages another machine has, of those that cases need; None for the machine of this process, which looks itself."""
    answers: Mapping[str, str] | None = None
    """What the predicates of ``call`` returned or raised, by path, in words; None before a worker has called them."""

    @property
    def vendor(self) -> str | None:
        """The maker of the accelerator that torch was built for."""
        return devices.vendor_of(self.builds)


@dataclass(frozen=True, slots=True)
class Answer:
    """A probe's answer with its reason; the reason is empty only for YES."""

    availability: Availability
    reason: str = ""


YES = Answer(Availability.YES)


def _no(reason: str) -> Answer:
    return Answer(Availability.NO, reason)


def _unknown(reason: str) -> Answer:
    return Answer(Availability.UNKNOWN, reason)


@dataclass(frozen=True, slots=True, kw_only=True)
class Capability:
    """One capability. ``check`` returns what is wrong with an argument, or None; ``takes`` shows the argument, empty for none."""

    summary: str
    probe: Callable[[Machine, str], Answer]
    takes: str = ""
    check: Callable[[str], str | None] = lambda argument: None
    look: Callable[[], tuple[str, ...]] | None = None
    """What files and environment say of it on this machine, in milliseconds and without torch: kept in ``Machine.found``. None where its
    probe needs nothing of the kind."""
    is_of_gpus: bool = False
    """Whether a case that requires it uses a GPU."""


def _built_for(build: devices.Build, machine: Machine, argument: str) -> Answer:
    if machine.torch is None:
        return _no(machine.no_torch)
    if not machine.builds.get(build.version):
        return _no(f"torch {machine.torch} is built without {build.title}")
    return _has_gpu(machine, build.device)


def _has_gpu(machine: Machine, what: str) -> Answer:
    if machine.gpus is None:
        return _unknown(f"whether torch sees {what} is known only when torch runs")
    return YES if machine.gpus > 0 else _no(f"no {what.partition(' ')[2]} is visible")


def _found(name: str, reason: str) -> Callable[[Machine, str], Answer]:
    """Return the probe of something that files show."""
    return lambda machine, argument: YES if machine.found.get(name) else _no(reason)


def _python(machine: Machine, argument: str) -> Answer:
    version = ".".join(map(str, machine.python))
    return YES if VersionRange.parse(argument).holds(machine.python) else _no(f"python {version} is not {argument}")


def _torch(machine: Machine, argument: str) -> Answer:
    if machine.release is None:
        return _no(machine.no_torch)
    return YES if VersionRange.parse(argument).holds(machine.release) else _no(f"torch {machine.torch} is not {argument}")


def _gpus(machine: Machine, argument: str) -> Answer:
    if machine.gpus is None:
        return _unknown("how many GPUs torch sees is known only when torch runs")
    return YES if VersionRange.parse(argument).holds((machine.gpus,)) else _no(f"{machine.gpus} GPUs visible, {argument} required")


def _gpu_memory(machine: Machine, argument: str) -> Answer:
    if machine.gpus == 0:
        return _no(f"no GPU, {argument} of memory required")
    if machine.gpu_memory is None:
        return _unknown("the GPU's memory is known only when torch runs")
    required = memory_of(argument)
    enough = machine.gpu_memory > required or (machine.gpu_memory == required and argument.strip().startswith(">="))
    return YES if enough else _no(f"the GPU has {machine.gpu_memory / 2**30:.0f} GiB, {argument} required")


def _module(machine: Machine, argument: str) -> Answer:
    return YES if _has_package(machine, argument.split(".")[0]) else _no(f"the module {argument} is not installed")


def _has_package(machine: Machine, package: str) -> bool:
    return _is_installed(package) if machine.packages is None else machine.packages.get(package, False)


@functools.cache
def _is_installed(package: str) -> bool:
    """Cached ``find_spec`` of a top-level package."""
    try:
        # a top-level find_spec imports nothing
        return importlib.util.find_spec(package) is not None
    except ValueError:  # __main__ and hand-made entries of sys.modules have no spec
        return False


def _arch(machine: Machine, argument: str) -> Answer:
    sign, name = _parts(_ARCH, argument)
    if machine.gpus == 0:
        return _no(f"no GPU, the architecture {argument} required")
    if machine.arch is None:
        return _unknown("the GPU's architecture is known only when torch runs")
    found = machine.arch
    if sign:
        same_kind = found.startswith("sm_") and found[3:].isdecimal()
        fits = same_kind and VersionRange.parse(f"{sign}{name[3:]}").holds((int(found[3:]),))
    else:
        fits = found == name or (not name.startswith("sm_") and found.startswith(name))
    return YES if fits else _no(f"the GPU is {found}, {argument} required")


def _sms(machine: Machine, argument: str) -> Answer:
    if machine.gpus == 0:
        return _no(f"no GPU, {argument} multiprocessors required")
    if not machine.facts:
        return _unknown("how many multiprocessors the GPU has is known only when torch runs")
    count = machine.facts.get("sms")
    if count is None:
        return _no(f"torch does not tell how many multiprocessors the GPU has, {argument} required")
    return YES if VersionRange.parse(argument).holds((count,)) else _no(f"the GPU has {count} multiprocessors, {argument} required")


def _mkldnn(machine: Machine, argument: str) -> Answer:
    if "mkldnn" not in machine.facts:
        return _unknown(f"whether oneDNN computes {argument} on this CPU is known only when torch runs")
    dtypes = str(machine.facts["mkldnn"]).split()
    if argument in dtypes:
        return YES
    return _no(f"oneDNN on this CPU does not compute {argument} (it computes {', '.join(dtypes) or 'nothing: torch is built without it'})")


def _library(machine: Machine, argument: str) -> Answer:
    if machine.torch is None:
        return _no(machine.no_torch)
    return YES if argument in machine.found.get("library", ()) else _no(f"torch {machine.torch} was installed without {argument}")


def _target(machine: Machine, argument: str) -> Answer:
    if not machine.found.get("triton"):
        return _no("triton is not installed")
    if argument not in machine.targets:
        return _unknown(f"whether the compiler for {argument} works is known only when it has compiled something")
    problem = machine.targets[argument]
    return _no(f"the compiler for {argument} does not work here: {problem}") if problem else YES


def _simulated(machine: Machine, argument: str) -> Answer:
    if machine.release is None:
        return _no(machine.no_torch)
    minor = ".".join(map(str, machine.release[:2]))
    if minor not in TESTED_MINORS:
        return _no(f"the simulation of a GPU is not tried with torch {minor}, only with {', '.join(TESTED_MINORS)}")
    if not machine.found.get("triton"):
        return _no("triton is not installed")
    if not machine.found.get("cxx"):
        return _no("no C++ compiler is installed, which builds the C++ side of a simulated GPU")
    if simulated(argument) not in machine.targets:
        return _unknown(f"whether torch generates code for a simulated {argument} is known only when it has generated some")
    problem = machine.targets[simulated(argument)]
    return _no(f"the simulation of {argument} does not work here: {problem}") if problem else YES


def _call(machine: Machine, argument: str) -> Answer:
    package = argument.replace(":", ".").split(".")[0]
    if not _has_package(machine, package):
        return _no(f"{argument}() cannot be called: the module {package} is not installed")
    if machine.answers is None:
        return _unknown(f"what {argument}() returns is known only when torch runs")
    answer = machine.answers.get(argument, "was not called")
    return YES if answer == HOLDS else _no(f"{argument}() {answer}")


def _device(machine: Machine, argument: str) -> Answer:
    wanted = devices.VendorDevice.parse(argument)
    package = wanted.module.partition(".")[0]
    if machine.torch is None:
        return _no(machine.no_torch)
    if not _has_package(machine, package):
        return _no(f"the package {package} is not installed, whose module registers the device {wanted.kind}")
    if machine.answers is None:
        return _unknown(f"whether torch sees a device {wanted.kind} is known only when torch runs")
    answer = machine.answers.get(argument, "was not asked")
    return YES if answer == HOLDS else _no(f"the device {wanted.kind} of {wanted.module}: {answer}")


# -- arguments: what is wrong with one; None for nothing ------------------------------------------------------------

_ARCH = re.compile(r"(?:(>=|<=|==|!=|>|<)\s*(?=sm_))?(sm_[0-9]+[a-z]?|gfx[0-9a-f]+[a-z0-9:+-]*)")
_MEMORY = re.compile(r"(>=|>)\s*([0-9]+(?:\.[0-9]+)?)\s*(GiB|MiB|GB|MB)")
_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "GB": 10**9, "MB": 10**6}
_MKLDNN_DTYPES = ("float32", "bfloat16", "float16")


def _of_form(pattern: str, problem: str) -> Callable[[str], str | None]:
    """Return the check of an argument of one form."""
    return lambda argument: None if re.fullmatch(pattern, argument, re.ASCII) else f"'{argument[:60]}' {problem}"


def _one_of(words: Collection[str], problem: str) -> Callable[[str], str | None]:
    """Return the check of an argument that is one of some words."""
    return lambda argument: None if argument in words else f"'{argument[:60]}' {problem}"


def _check_range(argument: str) -> str | None:
    try:
        VersionRange.parse(argument)
    except BadRange as error:
        return str(error)
    return None


def _check_arch(argument: str) -> str | None:
    match = _ARCH.fullmatch(argument.strip())
    if match is None or (match[1] and not match[2][3:].isdecimal()):
        return f"'{argument[:60]}' is not an architecture: write for example sm_90, \">=sm_80\" or gfx942"
    return None


def _check_memory(argument: str) -> str | None:
    fits = _MEMORY.fullmatch(argument.strip())
    return None if fits else f"'{argument[:60]}' is not an amount of memory: write for example \">=64GiB\""


def _check_device(argument: str) -> str | None:
    return None if devices.VendorDevice.fits(argument) else f"'{argument[:60]}' is not KIND=MODULE: write for example npu=torch_npu"


def _parts(pattern: re.Pattern[str], argument: str) -> tuple[str, ...]:
    match = pattern.fullmatch(argument.strip())
    if match is None:
        raise ValueError(argument)
    return match.groups(default="")


def memory_of(argument: str) -> int:
    """Return the bytes of an argument of ``gpu_memory``, without its comparison sign."""
    _, number, unit = _parts(_MEMORY, argument)
    return math.ceil(float(number) * _UNITS[unit])


# -- what files and the environment of this machine show, in milliseconds and without torch --------------------------


def _package(name: str) -> Callable[[], tuple[str, ...]]:
    """Return what looks for the folder of a package, without importing it."""

    def look() -> tuple[str, ...]:
        spec = importlib.util.find_spec(name)
        return tuple([*(spec.submodule_search_locations or [])][:1]) if spec else ()

    return look


def _compiler() -> tuple[str, ...]:
    """Return the program that Inductor starts: the whole of ``$CXX``, and g++ only where it is not set (``config.cpp.cxx`` in torch)."""
    path = shutil.which(os.environ.get("CXX", "g++"))
    return (path,) if path else ()


def _libraries() -> tuple[str, ...]:
    """Return the names of the libraries in the folder of the installed torch."""
    torch = installed_torch()
    try:
        return tuple(sorted(os.listdir(torch.root / "lib"))) if torch is not None else ()
    except OSError:
        return ()


HOLDS = "returned True"
"""The answer of a predicate that holds."""


CAPABILITIES: Mapping[str, Capability] = {
    **{
        build.capability: Capability(
            summary=f"torch is built for {build.title} and sees a GPU", probe=functools.partial(_built_for, build), is_of_gpus=True
        )
        for build in devices.builds()
    },
    "triton": Capability(summary="Triton can be imported", probe=_found("triton", "triton is not installed"), look=_package("triton")),
    "ck": Capability(
        summary="Composable Kernel's Inductor package is installed",
        probe=_found("ck", "Composable Kernel (the package ck4inductor) is not installed"),
        look=_package("ck4inductor"),
    ),
    "cxx": Capability(
        summary="the C++ compiler that torch calls is installed: $CXX, or else g++",
        probe=_found("cxx", "no C++ compiler that torch calls: $CXX, which is one program, or else g++"),
        look=_compiler,
    ),
    "redis": Capability(
        summary="the Redis client of torch's remote caches",
        probe=_found("redis", "the Python package redis is not installed (install the extra 'remote')"),
        look=_package("redis"),
    ),
    "python": Capability(summary="Python is in a range of versions", probe=_python, takes=">3.11.8", check=_check_range),
    "torch": Capability(summary="torch is in a range of versions", probe=_torch, takes=">=2.12", check=_check_range),
    "gpus": Capability(summary="so many GPUs are visible", probe=_gpus, takes=">=2", check=_check_range, is_of_gpus=True),
    "gpu_memory": Capability(
        summary="each GPU has so much memory", probe=_gpu_memory, takes=">=64GiB", check=_check_memory, is_of_gpus=True
    ),
    "arch": Capability(
        summary="the GPU is of this architecture, or of one in a range of sm_NN",
        probe=_arch,
        takes=">=sm_80",
        check=_check_arch,
        is_of_gpus=True,
    ),
    "sms": Capability(summary="the GPU has so many multiprocessors", probe=_sms, takes=">=68", check=_check_range, is_of_gpus=True),
    "mkldnn": Capability(
        summary="oneDNN computes this dtype on the CPU",
        probe=_mkldnn,
        takes="float16",
        check=_one_of(_MKLDNN_DTYPES, f"is none of the dtypes {', '.join(_MKLDNN_DTYPES)}"),
    ),
    "library": Capability(
        summary="the folder lib of the installed torch has this file, such as a library of torch's own tests",
        probe=_library,
        takes="libtorchbind_test.so",
        check=_of_form(r"[A-Za-z0-9_][\w.+-]*", "is not the name of a file: write for example libtorchbind_test.so"),
        look=_libraries,
    ),
    "target": Capability(
        summary="Triton compiles for this GPU, which the machine may lack",
        probe=_target,
        takes=EXAMPLE,
        check=_one_of(TARGETS, f"is no target: {one_of(TARGETS)}"),
    ),
    "simulated": Capability(
        summary="Inductor generates code for this GPU, simulated, and Triton compiles it",
        probe=_simulated,
        takes=EXAMPLE,
        check=_one_of(PROPERTIES, f"is no target that can be simulated: {one_of(PROPERTIES)}"),
    ),
    "call": Capability(
        summary="a function without arguments, such as a predicate of torch, returns True",
        probe=_call,
        takes="torch.cuda.is_bf16_supported",
        check=_of_form(r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+", "is not a dotted path: write for example torch.cuda.is_bf16_supported"),
    ),
    "device": Capability(
        summary="torch sees a device that this module registers; a backend with module: requires it",
        probe=_device,
        takes="npu=torch_npu",
        check=_check_device,
    ),
    "module": Capability(
        summary="a Python module is installed",
        probe=_module,
        takes="transformers",
        check=_of_form(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "is not the name of a module"),
    ),
}
"""The words of ``requires``, each with all that asks about it. What only torch knows, ``worker/torch_compat/facts.py`` tells."""
