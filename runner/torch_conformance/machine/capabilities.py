"""Capabilities of machines, one table with the argument, the probe and the reason of absence of
each; and whether a case can run here.

A probe reads a ``Machine``. Before the run it holds only what files and environment show, without
torch (``inspect_files``). During the run it also holds the facts of a worker (``facts``). A probe
without enough facts returns UNKNOWN, and the run repeats it.
"""

import functools
import importlib.util
import math
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from torch_conformance.machine.installed_torch import (
    InstalledTorch,
    installed_torch,
    no_torch_reason,
    release,
)
from torch_conformance.model import devices
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.conditions import BadRange, VersionRange
from torch_conformance.model.diagnostics import UsageError, one_of
from torch_conformance.model.targets import (
    EXAMPLE,
    SIMULATED_TARGETS,
    TARGETS,
    TESTED_MINORS,
    simulated,
)
from torch_conformance.model.values import frozen

TORCH_ROOT = "torch_root"
"""The fact with the folder from which a worker imported torch. It is compared and not recorded."""

CK_ARCHITECTURES = ("gfx90a", "gfx942", "gfx950")
"""Where torch 2.11 to 2.14 offer Composable Kernel, for a machine whose torch is not here."""
_CK_ARCHITECTURES = re.compile(r"^\s*ck_supported_arch\b[^=\n]*=\s*\[([^\]]*)\]", re.MULTILINE)

ANSWERS = "answers"
"""The fact with what predicates returned.

It depends on the selected cases, so it is not recorded.
"""


@frozen
class Machine:
    """The known properties of a machine. None means not known yet."""

    python: tuple[int, ...]
    torch: str | None
    """The version; None when torch is not installed."""
    release: tuple[int, ...] | None
    builds: Mapping[str, str | None] = field(default_factory=dict)
    """The versions of what torch was built for, by their names in ``torch.version``
    (``model/devices.py``).
    """
    gpus: int | None = None
    gpu_memory: int | None = None
    """Bytes of the smallest GPU."""
    arch: str | None = None
    ck_architectures: tuple[str, ...] = CK_ARCHITECTURES
    """Where torch offers Composable Kernel."""
    found: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What ``look`` of each capability found, by its name."""
    torch_root: str | None = None
    """The folder of the inspected torch; None if it is not known."""
    no_torch: str = "torch is not installed"
    facts: Mapping[str, Any] = field(default_factory=dict)
    targets: Mapping[str, str] = field(default_factory=dict)
    """Why each target cannot be compiled for here, empty where it can; without targets whose
    compiler was not tried.
    """
    packages: Mapping[str, bool] | None = None
    """Which top-level packages another machine has, of those that cases need; None for the machine
    of this process, which looks itself.
    """
    answers: Mapping[str, str] | None = None
    """What the predicates of ``call`` returned or raised, by path, in words; None before a worker
    has called them.
    """

    @property
    def vendor(self) -> str | None:
        """The maker of the accelerator that torch was built for."""
        return next(
            (build.vendor for build in devices.builds() if self.builds.get(build.version)), None
        )

    def has_package(self, package: str) -> bool:
        """Whether a top-level package is installed. Nothing is imported."""
        return (
            _is_installed(package) if self.packages is None else self.packages.get(package, False)
        )


@functools.cache
def _is_installed(package: str) -> bool:
    try:
        # a top-level find_spec imports nothing
        return importlib.util.find_spec(package) is not None
    except ValueError:  # __main__ and hand-made entries of sys.modules have no spec
        return False


class NotKnown(Exception):
    """What only torch can say, when torch runs."""


@dataclass(frozen=True, slots=True)
class Capability:
    """One capability.

    ``check`` returns what is wrong with an argument, or None; ``takes`` shows the argument, empty
    for none.
    """

    summary: str
    probe: Callable[[Machine, str], str]
    """Returns why a machine lacks it, empty where it has it; raises ``NotKnown``."""
    takes: str = ""
    check: Callable[[str], str | None] = lambda argument: None
    look: Callable[[], tuple[str, ...]] | None = None
    """What files and environment say of it on this machine, in milliseconds and without torch: kept
    in ``Machine.found``. None where its probe needs nothing of the kind."""
    is_of_gpus: bool = False
    """Whether a case that requires it uses a GPU."""

    def answer(self, machine: Machine, argument: str) -> tuple[Availability, str]:
        """Return whether a machine has it, and the reason, which is empty only for YES."""
        try:
            reason = self.probe(machine, argument)
        except NotKnown as error:
            return Availability.UNKNOWN, f"{error} is known only when torch runs"
        return Availability.NO if reason else Availability.YES, reason


# -- probes ----------------------------------------------------------------------------------------

_Known = TypeVar("_Known")


def _known(value: _Known | None, what: str) -> _Known:
    if value is None:
        raise NotKnown(what)
    return value


def _in(argument: str, *numbers: int) -> bool:
    return VersionRange.parse(argument).holds(numbers)


def _built_for(build: devices.Build, machine: Machine, argument: str) -> str:
    if machine.torch is None:
        return machine.no_torch
    if not machine.builds.get(build.version):
        return f"torch {machine.torch} is built without {build.title}"
    gpus = _known(machine.gpus, f"whether torch sees {build.device}")
    return "" if gpus > 0 else f"no {build.device.partition(' ')[2]} is visible"


def _python(machine: Machine, argument: str) -> str:
    return (
        ""
        if _in(argument, *machine.python)
        else f"python {'.'.join(map(str, machine.python))} is not {argument}"
    )


def _torch(machine: Machine, argument: str) -> str:
    if machine.release is None:
        return machine.no_torch
    return "" if _in(argument, *machine.release) else f"torch {machine.torch} is not {argument}"


def _ck(machine: Machine, argument: str) -> str:
    if not machine.found.get("ck"):
        return "Composable Kernel (the package ck4inductor) is not installed"
    if machine.vendor != "amd" or machine.gpus == 0:
        return ""  # the GPU is simulated; a case on a real one requires rocm too
    arch = _known(machine.arch, "the GPU's architecture").partition(":")[0]
    offered = machine.ck_architectures
    return (
        ""
        if arch in offered
        else f"torch offers Composable Kernel on {', '.join(offered) or 'no GPU'}, and the GPU is "
        f"{arch}"
    )


def _gpus(machine: Machine, argument: str) -> str:
    count = _known(machine.gpus, "how many GPUs torch sees")
    return "" if _in(argument, count) else f"{count} GPUs visible, {argument} required"


def _gpu_memory(machine: Machine, argument: str) -> str:
    if machine.gpus == 0:
        return f"no GPU, {argument} of memory required"
    size, required = _known(machine.gpu_memory, "the GPU's memory"), memory_of(argument)
    is_enough = size > required or (size == required and argument.strip().startswith(">="))
    return "" if is_enough else f"the GPU has {size / 2**30:.0f} GiB, {argument} required"


def _arch(machine: Machine, argument: str) -> str:
    sign, name = _parts(_ARCH, argument)
    if machine.gpus == 0:
        return f"no GPU, the architecture {argument} required"
    arch = _known(machine.arch, "the GPU's architecture")
    if sign:
        fits = (
            arch.startswith("sm_")
            and arch[3:].isdecimal()
            and _in(f"{sign}{name[3:]}", int(arch[3:]))
        )
    else:
        fits = arch == name or (not name.startswith("sm_") and arch.startswith(name))
    return "" if fits else f"the GPU is {arch}, {argument} required"


def _sms(machine: Machine, argument: str) -> str:
    if machine.gpus == 0:
        return f"no GPU, {argument} multiprocessors required"
    if (
        count := _known(machine.facts or None, "how many multiprocessors the GPU has").get("sms")
    ) is None:
        return f"torch does not tell how many multiprocessors the GPU has, {argument} required"
    return (
        "" if _in(argument, count) else f"the GPU has {count} multiprocessors, {argument} required"
    )


def _big_gpu(machine: Machine, argument: str) -> str:
    if not _known(machine.gpus, "whether the GPU is one that Inductor has templates for"):
        return "no GPU, one that Inductor has templates for required"
    answer = machine.facts.get("big_gpu")
    if answer is None:
        return "torch does not tell whether the GPU is one that Inductor has templates for"
    gpu = f"{machine.arch} with {machine.facts.get('sms')} multiprocessors"
    return "" if str(answer) == "True" else f"Inductor has no templates for the GPU, {gpu}"


def _mkldnn(machine: Machine, argument: str) -> str:
    dtypes = str(
        _known(machine.facts.get("mkldnn"), f"whether oneDNN computes {argument} on this CPU")
    ).split()
    computed = ", ".join(dtypes) or "nothing: torch is built without it"
    return (
        ""
        if argument in dtypes
        else f"oneDNN on this CPU does not compute {argument} (it computes {computed})"
    )


def _library(machine: Machine, argument: str) -> str:
    if machine.torch is None:
        return machine.no_torch
    return (
        ""
        if argument in machine.found.get("library", ())
        else f"torch {machine.torch} was installed without {argument}"
    )


def _target(machine: Machine, argument: str) -> str:
    if not machine.found.get("triton"):
        return "triton is not installed"
    problem = _known(machine.targets.get(argument), f"whether the compiler for {argument} works")
    return problem and f"the compiler for {argument} does not work here: {problem}"


def _simulated(machine: Machine, argument: str) -> str:
    if machine.release is None:
        return machine.no_torch
    minor = ".".join(map(str, machine.release[:2]))
    if minor not in TESTED_MINORS:
        return (
            f"the simulation of a GPU is not tried with torch {minor}, only with "
            f"{', '.join(TESTED_MINORS)}"
        )
    if not machine.found.get("triton"):
        return "triton is not installed"
    if not machine.found.get("cxx"):
        return "no C++ compiler is installed, which builds the C++ side of a simulated GPU"
    problem = _known(
        machine.targets.get(simulated(argument)),
        f"whether torch generates code for a simulated {argument}",
    )
    return problem and f"the simulation of {argument} does not work here: {problem}"


def _call(machine: Machine, argument: str) -> str:
    package = argument.replace(":", ".").split(".")[0]
    if not machine.has_package(package):
        return f"{argument}() cannot be called: the module {package} is not installed"
    answer = _known(machine.answers, f"what {argument}() returns").get(argument, "was not called")
    return "" if answer == devices.HOLDS else f"{argument}() {answer}"


def _device(machine: Machine, argument: str) -> str:
    device = devices.VendorDevice.parse(argument)
    return _of_vendor(
        machine,
        argument,
        device.module,
        f"the device {device.kind}",
        f"torch sees a device {device.kind}",
    )


def _registered(machine: Machine, argument: str) -> str:
    compiler = devices.VendorCompiler.parse(argument)
    return _of_vendor(
        machine,
        argument,
        compiler.module,
        f"the compiler {compiler.name}",
        f"torch knows the compiler {compiler.name}",
    )


def _of_vendor(machine: Machine, argument: str, module: str, what: str, question: str) -> str:
    if machine.torch is None:
        return machine.no_torch
    if module and not machine.has_package(package := module.partition(".")[0]):
        return f"the package {package} is not installed, whose module registers {what}"
    answer = _known(machine.answers, f"whether {question}").get(argument, "was not asked")
    return "" if answer == devices.HOLDS else f"{what}{module and f' of {module}'}: {answer}"


def _module(machine: Machine, argument: str) -> str:
    return (
        ""
        if machine.has_package(argument.split(".")[0])
        else f"the module {argument} is not installed"
    )


# -- arguments: what is wrong with one; None for nothing -------------------------------------------

_ARCH = re.compile(r"(?:(>=|<=|==|!=|>|<)\s*(?=sm_))?(sm_[0-9]+[a-z]?|gfx[0-9a-f]+[a-z0-9:+-]*)")
_MEMORY = re.compile(r"(>=|>)\s*([0-9]+(?:\.[0-9]+)?)\s*(GiB|MiB|GB|MB)")
_UNITS = {"GiB": 1 << 30, "MiB": 1 << 20, "GB": 10**9, "MB": 10**6}
_MKLDNN_DTYPES = ("float32", "bfloat16", "float16")


def _must(form: Callable[[str], object] | str, problem: str) -> Callable[[str], str | None]:
    """Return the check of an argument by a function, or by the regular expression of all of it."""
    fits = re.compile(form, re.ASCII).fullmatch if isinstance(form, str) else form
    return lambda argument: None if fits(argument) else f"'{argument[:60]}' {problem}"


def _check_range(argument: str) -> str | None:
    try:
        VersionRange.parse(argument)
    except BadRange as error:
        return str(error)
    return None


def _is_arch(argument: str) -> bool:
    match = _ARCH.fullmatch(argument.strip())
    return match is not None and (not match[1] or match[2][3:].isdecimal())


def _parts(pattern: re.Pattern[str], argument: str) -> tuple[str, ...]:
    if (match := pattern.fullmatch(argument.strip())) is None:
        raise ValueError(argument)
    return match.groups(default="")


def memory_of(argument: str) -> int:
    """Return the bytes of an argument of ``gpu_memory``, without its comparison sign."""
    _, number, unit = _parts(_MEMORY, argument)
    return math.ceil(float(number) * _UNITS[unit])


# -- the table -------------------------------------------------------------------------------------


def rocm_home(
    environ: Mapping[str, str], usual: Path = Path("/opt/rocm")
) -> tuple[Path | None, str]:
    """Return the folder that torch takes for ROCm, and by what: the order of
    ``torch.utils.cpp_extension``.
    """
    for name in ("ROCM_HOME", "ROCM_PATH"):
        if environ.get(name):
            return Path(environ[name]), name
    spec = importlib.util.find_spec("_rocm_sdk_core")
    if spec is not None and spec.origin is not None:
        return Path(spec.origin).parent.resolve(), "the package _rocm_sdk_core"
    if (hipcc := shutil.which("hipcc", path=environ.get("PATH", os.defpath))) is not None:
        folder = Path(hipcc).resolve().parent.parent
        return folder.parent if folder.name == "hip" else folder, "hipcc on PATH"
    return (usual, "the usual folder") if usual.exists() else (None, "")


def _ck_architectures(torch: InstalledTorch | None) -> tuple[str, ...]:
    """Return where a torch offers Composable Kernel: ``rocm.ck_supported_arch`` in its source."""
    config = torch.root / "_inductor" / "config.py" if torch is not None else None
    if config is None or not config.is_file():
        return CK_ARCHITECTURES
    match = _CK_ARCHITECTURES.search(config.read_text("utf-8"))
    return tuple(re.findall(r"\w+", match[1])) if match else ()


def _libraries() -> tuple[str, ...]:
    torch = installed_torch()
    try:
        return tuple(sorted(os.listdir(torch.root / "lib"))) if torch is not None else ()
    except OSError:
        return ()


def _on_files(
    name: str,
    summary: str,
    reason: str,
    package: str = "",
    look: Callable[[], tuple[str, ...]] | None = None,
) -> Capability:
    """Return what is there where ``look`` finds something, or where there is the folder of a
    package, which is not imported.
    """

    def of_package() -> tuple[str, ...]:
        spec = importlib.util.find_spec(package)
        return tuple([*(spec.submodule_search_locations or [])][:1]) if spec else ()

    return Capability(
        summary,
        lambda machine, _: "" if machine.found.get(name) else reason,
        look=look or of_package,
    )


def _of_gpus(
    summary: str,
    probe: Callable[[Machine, str], str],
    takes: str = "",
    check: Callable[[str], str | None] = lambda argument: None,
) -> Capability:
    return Capability(summary, probe, takes, check, is_of_gpus=True)


_NO_MEMORY = 'is not an amount of memory: write for example ">=64GiB"'
_NO_ARCH = 'is not an architecture: write for example sm_90, ">=sm_80" or gfx942'
_NO_HIPCC = (
    "no HIP compiler that torch calls: llvm/bin/clang of ROCm, whose folder $ROCM_HOME or "
    "$ROCM_PATH names"
)
_NO_COMPILER = "no C++ compiler that torch calls: $CXX, which is one program, or else g++"

CAPABILITIES: Mapping[str, Capability] = {
    **{
        build.capability: _of_gpus(
            f"torch is built for {build.title} and sees a GPU",
            functools.partial(_built_for, build),
        )
        for build in devices.builds()
    },
    "triton": _on_files("triton", "Triton can be imported", "triton is not installed", "triton"),
    "ck": replace(
        _on_files(
            "ck",
            "Composable Kernel's Inductor package is installed, and torch offers it on the GPU",
            "",
            "ck4inductor",
        ),
        probe=_ck,
    ),
    "hipcc": _on_files(
        "hipcc",
        "the HIP compiler that torch calls is installed: llvm/bin/clang of ROCm",
        _NO_HIPCC,
        look=lambda: tuple(
            filter(
                None,
                [
                    shutil.which(
                        f"{home}/llvm/bin/clang" if (home := rocm_home(os.environ)[0]) else "clang"
                    )
                ],
            )
        ),
    ),
    "cxx": _on_files(
        "cxx",
        "the C++ compiler that torch calls is installed: $CXX, or else g++",
        _NO_COMPILER,
        look=lambda: tuple(
            filter(None, [shutil.which(os.environ.get("CXX", "g++"))])
        ),  # one program, as of config.cpp.cxx in torch
    ),
    "redis": _on_files(
        "redis",
        "the Redis client of torch's remote caches",
        "the Python package redis is not installed (install the extra 'remote')",
        "redis",
    ),
    "python": Capability("Python is in a range of versions", _python, ">3.11.8", _check_range),
    "torch": Capability("torch is in a range of versions", _torch, ">=2.12", _check_range),
    "gpus": _of_gpus("so many GPUs are visible", _gpus, ">=2", _check_range),
    "gpu_memory": _of_gpus(
        "each GPU has so much memory",
        _gpu_memory,
        ">=64GiB",
        _must(rf"\s*{_MEMORY.pattern}\s*", _NO_MEMORY),
    ),
    "arch": _of_gpus(
        "the GPU is of this architecture, or of one in a range of sm_NN",
        _arch,
        ">=sm_80",
        _must(_is_arch, _NO_ARCH),
    ),
    "sms": _of_gpus("the GPU has so many multiprocessors", _sms, ">=68", _check_range),
    "big_gpu": _of_gpus(
        "Inductor has templates for the GPU: 68 multiprocessors on NVIDIA, no gfx10 on AMD "
        "(`torch._inductor.utils.is_big_gpu`)",
        _big_gpu,
    ),
    "mkldnn": Capability(
        "oneDNN computes this dtype on the CPU",
        _mkldnn,
        "float16",
        _must(_MKLDNN_DTYPES.__contains__, f"is none of the dtypes {', '.join(_MKLDNN_DTYPES)}"),
    ),
    "library": Capability(
        "the folder lib of the installed torch has this file, such as a library of torch's "
        "own tests",
        _library,
        "libtorchbind_test.so",
        _must(
            r"[A-Za-z0-9_][\w.+-]*",
            "is not the name of a file: write for example libtorchbind_test.so",
        ),
        _libraries,
    ),
    "target": Capability(
        "Triton compiles for this GPU, which the machine may lack",
        _target,
        EXAMPLE,
        _must(TARGETS.__contains__, f"is not a target: {one_of(TARGETS)}"),
    ),
    "simulated": Capability(
        "Inductor generates code for this GPU, simulated, and Triton compiles it",
        _simulated,
        EXAMPLE,
        _must(
            SIMULATED_TARGETS.__contains__,
            f"is not a target that can be simulated: {one_of(SIMULATED_TARGETS)}",
        ),
    ),
    "call": Capability(
        "a function without arguments, such as a predicate of torch, returns True",
        _call,
        "torch.cuda.is_bf16_supported",
        _must(
            r"[A-Za-z_]\w*([.:][A-Za-z_]\w*)+",
            "is not a dotted path: write for example torch.cuda.is_bf16_supported",
        ),
    ),
    "device": Capability(
        "torch sees a device that this module registers; a backend with module: requires it",
        _device,
        "npu=torch_npu",
        _must(devices.VendorDevice.fits, "is not KIND=MODULE: write for example npu=torch_npu"),
    ),
    "compiler": Capability(
        "torch.compile knows a compiler by this name once the module is imported; a backend "
        "with compile: {backend: NAME} requires it",
        _registered,
        "openvino@openvino.torch",
        _must(
            r"[\w.-]+@([A-Za-z_]\w*(\.[A-Za-z_]\w*)*)?",
            "is not NAME@MODULE: write for example openvino@openvino.torch",
        ),
    ),
    "module": Capability(
        "a Python module is installed",
        _module,
        "transformers",
        _must(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", "is not the name of a module"),
    ),
}
"""The words of ``requires``, each with all that asks about it.

What only torch knows, ``worker/torch_compat/device_modules.py`` tells.
"""


# -- a machine, and a case on it: an unavailable case is never a pass ------------------------------


def has_device_nodes() -> bool:
    """Whether this machine has the device file of any accelerator."""
    kinds = devices.ACCELERATORS.values()
    return any(Path(node).exists() for kind in kinds for node in kind.nodes)


def inspect_files(installed: InstalledTorch | None) -> Machine:
    """Return what files and environment show of this machine, without importing torch."""
    return Machine(
        python=tuple(sys.version_info[:3]),
        torch=installed.version if installed else None,
        release=release(installed.version) if installed else None,
        builds=installed.builds if installed else {},
        # without one of these device nodes no driver can be reached; with one, only torch can say
        gpus=None if has_device_nodes() else 0,
        found={
            name: capability.look()
            for name, capability in CAPABILITIES.items()
            if capability.look is not None
        },
        ck_architectures=_ck_architectures(installed),
        torch_root=str(installed.root) if installed else None,
        no_torch=no_torch_reason() if installed is None else "",
    )


@dataclass(frozen=True, slots=True)
class CaseAvailability:
    """The availability of a case, the reason, and the name of the missing capability (empty for a
    missing name of torch).
    """

    availability: Availability
    reason: str = ""
    capability: str = ""


def availability_of(case: Case, machine: Machine) -> CaseAvailability:
    """Return the first missing requirement; else the first one that only a worker can decide; else
    YES.
    """
    if machine.torch is None and not case.target:
        # what is only compiled for a target needs no torch
        return CaseAvailability(Availability.NO, machine.no_torch, "torch")
    if case.missing_names:
        return CaseAvailability(Availability.NO, "; ".join(case.missing_names))
    if is_cpp_wrapped_and_counted(case):
        return CaseAvailability(
            Availability.NO,
            "the expectation kernels: calls of a wrapper in C++ (cpp_wrapper) are not seen",
        )
    unknown: CaseAvailability | None = None
    for requirement in case.requires:
        answer, reason = CAPABILITIES[requirement.name].answer(machine, requirement.argument or "")
        if answer is Availability.NO:
            return CaseAvailability(answer, reason, requirement.name)
        if answer is Availability.UNKNOWN:
            unknown = unknown or CaseAvailability(answer, reason, requirement.name)
    return unknown or CaseAvailability(Availability.YES)


def is_cpp_wrapped_and_counted(case: Case) -> bool:
    """Whether the options of a case choose a C++ wrapper, and a step of it counts kernels."""
    return is_cpp_wrapped(case) and any(
        expected.check.needs_python_wrapper for step in case.steps for expected in step.expectations
    )


def is_cpp_wrapped(case: Case) -> bool:
    """Whether the options of a case choose a C++ wrapper."""
    settings = case.body.settings
    options = settings.compile.get("options")
    chosen = [
        settings.config.get("cpp_wrapper"),
        options.get("cpp_wrapper") if isinstance(options, Mapping) else None,
    ]
    return True in chosen or str(settings.env.get("TORCHINDUCTOR_CPP_WRAPPER", "")) == "1"


def availabilities_of(cases: Iterable[Case], machine: Machine) -> list[CaseAvailability]:
    """Return ``availability_of`` of each case. What many cases have in common is asked once."""
    by_requirements: dict[object, CaseAvailability] = {}
    verdicts: list[CaseAvailability] = []
    for case in cases:
        # positions do not count, and the hash of a tuple of texts is fast
        key = (
            case.target,
            case.missing_names,
            is_cpp_wrapped_and_counted(case),
            tuple([(need.name, need.argument) for need in case.requires]),
        )
        if key not in by_requirements:
            by_requirements[key] = availability_of(case, machine)
        verdicts.append(by_requirements[key])
    return verdicts


def with_facts(machine: Machine, facts: Mapping[str, Any]) -> Machine:
    """Return the machine with a worker's facts; raise ``UsageError`` if the worker imported another
    torch than the inspected one.
    """
    no_facts = (TORCH_ROOT, ANSWERS)
    usable = {name: value for name, value in facts.items() if name not in no_facts}
    root = facts.get(TORCH_ROOT)
    version = str(facts.get("torch"))
    inspected = machine.torch_root or ""
    # conditions and names were resolved for the inspected torch
    if isinstance(root, str) and (
        os.path.realpath(root) != os.path.realpath(inspected) or version != machine.torch
    ):
        shows = f"'{sys.executable} -P -c \"import torch\"' imports what workers import"
        raise UsageError(
            f"the workers import torch {version} from {root}, but the specs were read for torch "
            f"{machine.torch} in {inspected or 'no folder'} (remove one of the two, or correct "
            f"PYTHONPATH or the .pth file that names it; {shows})"
        )
    answers = {str(path): str(answer) for path, answer in facts.get(ANSWERS, {}).items()}
    gpus, memory, arch = int(facts.get("gpus", 0)), facts.get("gpu_memory"), facts.get("arch")
    return replace(
        machine,
        gpus=gpus,
        gpu_memory=memory,
        arch=arch,
        facts={**machine.facts, **usable},
        answers=answers,
    )


def with_target(
    machine: Machine, target: str, facts: Mapping[str, Any] | None, words: str
) -> Machine:
    """Return the machine with what its compiler for a target said; ``words`` are the last ones of a
    compiler that did not answer.
    """
    if facts is None:
        problem = (
            f"it ended without an answer: {words.splitlines()[-1]}"
            if words
            else "it ended without an answer"
        )
        return replace(machine, targets={**machine.targets, target: problem})
    versions = {str(name): str(version) for name, version in facts.get("versions", {}).items()}
    simulated = {
        **machine.facts,
        **versions,
        f"target {target}": str(facts["problem"])
        or f"canaries passed: {', '.join(facts['canaries'])}",
    }
    return replace(
        machine, targets={**machine.targets, target: str(facts["problem"])}, facts=simulated
    )


def questions_of(cases: Iterable[Case]) -> tuple[str, ...]:
    """Return the predicates, and the devices and compilers of vendors, that cases require, each
    once.
    """
    probed = ("call", "device", "compiler")
    arguments = (
        need.argument
        for case in cases
        for need in case.requires
        if need.name in probed and need.argument
    )
    return tuple(dict.fromkeys(arguments))
