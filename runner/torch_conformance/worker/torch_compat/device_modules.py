"""Devices: what torch says of each kind of accelerator, the module that registers a vendor's, and
the facts of this machine.
"""

import contextlib
import importlib
import importlib.util
import json
import multiprocessing
import os
import platform
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from importlib import metadata
from itertools import accumulate
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import torch

from torch_conformance.model import devices, module_files
from torch_conformance.model.devices import HOLDS, UNKNOWN_COMPILER, VendorCompiler, VendorDevice
from torch_conformance.vocabulary.steps.bench import timed_on_host
from torch_conformance.worker.torch_compat import imports
from torch_conformance.worker.torch_compat.imports import OF_VENDORS, modules

GeneratorState = tuple[torch.Tensor, dict[str, list[torch.Tensor]]]
"""The state of the CPU's generator, and those of the accelerators' generators by module."""


def register(vendor: VendorDevice) -> None:
    """Import the module of a vendor, which registers its device; raise what it raises, or
    ``ImportError`` if torch lacks the device then.

    The device's functions are those of ``torch.KIND``.
    """
    importlib.import_module(vendor.module)
    try:
        torch.device(vendor.kind)
    except RuntimeError as error:
        raise ImportError(
            f"{vendor.module} was imported, and torch has no device '{vendor.kind}'"
        ) from error
    missing = [name for name in REQUIRED if not hasattr(getattr(torch, vendor.kind, None), name)]
    if missing:
        raise ImportError(
            f"{vendor.module} was imported, and torch.{vendor.kind} has no {', '.join(missing)}"
        )
    OF_VENDORS[vendor.kind] = devices.Accelerator(
        module=vendor.kind, builds=(), nodes=(), activity="PrivateUse1"
    )


def register_module(device: str, module: str) -> None:
    """Import the module that registers a vendor's device, or the compiler of a device that torch
    brings; raise what it raises.
    """
    kind = devices.kind_of(device)
    if kind in devices.WITHOUT_MODULE:
        importlib.import_module(module)
    else:
        register(VendorDevice(kind, module))


REQUIRED = ("is_available", "device_count", "synchronize")
"""What the module of a vendor's device must have. All else is used where it is there."""


def _is_initialized(module: object) -> bool:
    # a vendor's module without the question is used from its import on
    return bool(getattr(module, "is_initialized", lambda: True)())


def danger_of_fork() -> str:
    """Return why a fork of this process is not safe because of an accelerator that it or its parent
    has used; empty when it is safe.
    """
    for accelerator, module in modules():
        if _is_initialized(module):
            return f"the zygote has a {accelerator.activity} context"
        if getattr(module, "_is_in_bad_fork", bool)():
            return f"the zygote cannot pass {accelerator.activity} on to a fork"
    return ""


def generator_state() -> GeneratorState:
    """Return the state of every generator."""
    # a vendor's module may lack the functions
    states = {
        accelerator.module: module.get_rng_state_all()
        for accelerator, module in modules()
        if _is_initialized(module)
        and hasattr(module, "get_rng_state_all")
        and hasattr(module, "set_rng_state_all")
    }
    return torch.get_rng_state(), states


def restore_generators(state: GeneratorState) -> None:
    """Restore every generator to a state from ``generator_state``."""
    torch.set_rng_state(state[0])
    for accelerator, module in modules():
        if states := state[1].get(accelerator.module):
            module.set_rng_state_all(states)


@dataclass(frozen=True)
class DeviceApi:
    """Torch's functions of the device of a case."""

    name: str

    @property
    def _accelerator(self) -> devices.Accelerator | None:
        kind = devices.kind_of(self.name)
        return devices.ACCELERATORS.get(kind) or OF_VENDORS.get(kind)

    @property
    def _module(self) -> Any:
        return None if self._accelerator is None else getattr(torch, self._accelerator.module)

    @property
    def activities(self) -> list[str]:
        """The names of the profiler activities."""
        return ["CPU", *([] if self._accelerator is None else [self._accelerator.activity])]

    def synchronize(self) -> None:
        """Wait for all work on the device; raise the error of a kernel that failed."""
        if self._module is not None:
            # a kernel's error must be raised in the step that launched it
            self._module.synchronize()

    @contextlib.contextmanager
    def peak_memory(self, peak: list[int]) -> Iterator[None]:
        """Append the most bytes that are allocated at one time in this context, beyond those before
        it; raise ``AttributeError`` for a device without such statistics.
        """
        if self._module is not None:
            self.synchronize()
            self._module.reset_peak_memory_stats()
            before = self._module.memory_allocated()
            yield
            self.synchronize()
            peak.append(self._module.max_memory_allocated() - before)
            return
        with torch.autograd.profiler.profile(profile_memory=True) as profiler:
            yield
        events = sorted(
            (event.start_ns(), index, event.nbytes())
            for index, event in enumerate(profiler.kineto_results.events())
            if event.name() == "[memory]"
        )
        peak.append(max([0, *accumulate(size for _, _, size in events)]))

    def timed(self, run: Callable[[], None]) -> float:
        """Return the time of a call in milliseconds, by events of the device where it is an
        accelerator.
        """
        if self._module is None:
            return timed_on_host(run)
        if not hasattr(self._module, "Event"):

            def run_whole() -> None:
                run()
                self.synchronize()

            return timed_on_host(run_whole)
        begun, ended = (self._module.Event(enable_timing=True) for _ in range(2))
        self._module.synchronize()
        begun.record()
        run()
        ended.record()
        self._module.synchronize()
        return float(begun.elapsed_time(ended))


# -- facts of the machine --------------------------------------------------------------------------

_BYTES = 64_000


def collect(questions: Iterable[str] = ()) -> dict[str, Any]:
    """Return versions and devices: the ``facts`` that options of backends may use.

    Memory is in bytes.

    A worker collects them once per run, so that only workers use a device. ``questions`` are paths
    of predicates, and devices and compilers of vendors (``KIND=MODULE``, ``NAME@MODULE``);
    ``answers`` has what each returned.
    """
    # first, before this process initializes a driver
    questions = tuple(questions)
    of_vendors = answers(
        [question for question in questions if not {"=", "@"}.isdisjoint(question)]
    )
    by_question = {question: text.partition("\t") for question, text in of_vendors.items()}
    counted = [(module, module.device_count()) for _, module in modules() if module.is_available()]
    properties = next(
        (
            [module.get_device_properties(n) for n in range(count)]
            for module, count in counted
            if count
        ),
        [],
    )
    ck = importlib.util.find_spec("ck4inductor")
    mkldnn = []
    if torch.backends.mkldnn.is_available():
        asks = {"bfloat16": "_is_mkldnn_bf16_supported", "float16": "_is_mkldnn_fp16_supported"}
        mkldnn = [
            "float32",
            *(dtype for dtype, name in asks.items() if getattr(torch.ops.mkldnn, name, bool)()),
        ]
    triton = None
    with contextlib.suppress(ImportError):
        triton = str(importlib.import_module("triton").__version__)
    facts: dict[str, Any] = {
        "torch": torch.__version__,
        "torch_root": imports.torch_root(),
        "torch_git": torch.version.git_version,
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": platform.processor() or platform.machine(),
        "vec_isa": imports.picked_vector_isa(),
        **{
            build.version: getattr(torch.version, build.version, None) for build in devices.builds()
        },
        "triton": triton,
        "gpus": len(properties),
        "ck_dir": next(iter(ck.submodule_search_locations or []), None) if ck else None,
        "ck": _distribution("rocm-composable-kernel") if ck else None,
        "mkldnn": " ".join(mkldnn),
        "answers": {
            question: by_question[question][0] if question in by_question else _answer(question)
            for question in questions
        },
        **{
            name: value
            for _, _, words in by_question.values()
            if words
            for name, value in json.loads(words).items()
        },
    }
    if properties:
        facts.update(_facts_of_gpus(properties))
    if torch.version.hip:
        home = Path(os.environ.get("ROCM_HOME") or os.environ.get("ROCM_PATH") or "/opt/rocm")
        facts.update(
            facts_of_amd(
                Path(imports.torch_root()) / "lib", home, Path("/sys/module/amdgpu/version")
            )
        )
    return facts


def _facts_of_gpus(properties: Sequence[Any]) -> dict[str, Any]:
    """Return the facts of GPUs by what torch says of each: name, architecture, memory in bytes,
    multiprocessors, driver.
    """
    first, driver = properties[0], None
    counts = [
        count
        for entry in properties
        if (count := getattr(entry, "multi_processor_count", None)) is not None
    ]
    with (
        contextlib.suppress(OSError),
        open("/proc/driver/nvidia/version", encoding="ascii", errors="replace") as stream,
    ):
        driver = stream.readline().strip()
    # properties of an XPU have no capability, but a number of its architecture
    arch = (
        f"sm_{first.major}{first.minor}"
        if hasattr(first, "major")
        else f"xpu_{getattr(first, 'architecture', 0)}"
    )
    return {
        "device": first.name,
        "arch": str(first.gcnArchName) if torch.version.hip else arch,
        "gpu_memory": min(entry.total_memory for entry in properties),
        "sms": min(counts, default=None),
        "big_gpu": _is_each_big(len(properties)),
        "driver": driver,
    }


def _is_each_big(count: int) -> bool | None:
    """Return whether Inductor offers its templates on each GPU, which it decides by the number of
    multiprocessors or by the architecture; None where this torch does not tell.
    """
    try:
        from torch._inductor.utils import is_big_gpu

        return all(is_big_gpu(index) for index in range(count))
    except Exception:  # torch raises what the device's code does
        return None


LIBRARIES_OF_AMD = {
    "hipblaslt": "libhipblaslt.so",
    "rocblas": "librocblas.so",
    "miopen": "libMIOpen.so",
    "aotriton": "libaotriton_v2.so",
}
"""Libraries that compute for AMD GPUs, by the fact that names the file."""


def facts_of_amd(lib: Path, home: Path, driver: Path) -> dict[str, str]:
    """Return what is installed for AMD GPUs, only by files: a call of a library may start a driver
    that hangs.

    Libraries are those of torch (``lib``), else of ROCm (``home``). There the name of a file has
    the version; in a wheel its size must do.
    """
    facts: dict[str, str] = {}
    for name, path in (("rocm", home / ".info" / "version"), ("driver", driver)):
        with contextlib.suppress(OSError):
            facts[name] = path.read_text("ascii", "replace").strip()
    for name, file in LIBRARIES_OF_AMD.items():
        with contextlib.suppress(OSError, StopIteration):
            first = next(
                path for folder in (lib, home / "lib") for path in sorted(folder.glob(f"{file}*"))
            )
            facts[name] = f"{first.resolve().name}, {first.stat().st_size} bytes"
    return facts


def _distribution(name: str) -> str | None:
    """Return version and commit of an installed distribution, where pip recorded it; None where it
    is not installed.
    """
    with contextlib.suppress(metadata.PackageNotFoundError, ValueError):
        installed = metadata.distribution(name)
        commit = (
            json.loads(installed.read_text("direct_url.json") or "{}")
            .get("vcs_info", {})
            .get("commit_id")
        )
        return f"{installed.version}, commit {commit}" if commit else installed.version
    return None


def _first_line(error: BaseException) -> str:
    """Return the class and the first line of an exception."""
    return f"{type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]


def _answer(path: str) -> str:
    """Call a predicate; return what it returned or raised, in words (``HOLDS`` where it holds)."""
    try:
        returned = imports.resolve(path.replace(":", "."))()
    except Exception as error:  # a predicate of any package may raise anything
        return f"raised {_first_line(error)}"
    is_answer = isinstance(returned, bool)
    return (
        f"returned {returned}"
        if is_answer
        else f"returned a value of type {type(returned).__name__}, not True or False"
    )


def answers(questions: Iterable[str]) -> dict[str, str]:
    """Return for each question ``HOLDS`` where torch sees a vendor's device or knows a compiler,
    else the reason.

    Each is asked in a process of its own: a fork where this process has its module, else a new
    Python, as a module need not work in forks.
    """
    answers_of = dict[str, str]()
    processes = []
    for question in questions:
        module = question.replace("=", "@").partition("@")[2]
        answers_of[question] = "the import of its module does not end: it waits, or takes minutes"
        if module in imports.HANGING:
            continue
        has_module = module in sys.modules
        context: Any = multiprocessing.get_context("fork" if has_module else "spawn")
        mine, theirs = context.Pipe(duplex=False)
        child = context.Process(target=_look, args=(question, theirs))
        child.start()
        theirs.close()
        processes.append((question, child, mine))
    for question, child, mine in processes:
        try:
            if imports.ends(child.pid, mine):
                answers_of[question] = mine.recv_bytes(_BYTES).decode("utf-8", "replace")
        except (EOFError, OSError):
            child.join(1)
            code = child.exitcode or 0
            ending = signal.Signals(-code).name if code < 0 else f"exit code {code}"
            answers_of[question] = (
                f"the process that imported its module ended without an answer: {ending}"
            )
        mine.close()
        with contextlib.suppress(OSError):  # its children too
            os.killpg(child.pid, signal.SIGKILL)
        child.kill()
        child.join()
    return answers_of


def _look(question: str, pipe: Connection) -> None:
    """Answer a question in the process that was started for it, and end the process."""
    os.setsid()
    imports.be_silent()
    try:
        text = (
            _compiler_problem(VendorCompiler.parse(question))
            if "@" in question
            else _device_problem(VendorDevice.parse(question))
        )
        text = text or "\t".join(filter(None, (HOLDS, _description(question))))
    except BaseException as error:
        # a vendor's module may raise anything, also SystemExit; the answer says what
        text = f"its import raised {_first_line(error)}"
    pipe.send_bytes(text.encode("utf-8", "replace")[:_BYTES])
    os._exit(0)  # what the module registered for the end of the process does not run


def _description(question: str) -> str:
    """Return as JSON the version of a vendor's package, its device, and what ``conformance_facts``
    of its module returns.
    """
    name, _, path = question.replace("=", "@").partition("@")
    if not path:  # an entry point names the module
        entries = metadata.entry_points(group="torch_dynamo_backends", name=name)
        own = getattr(torch._dynamo.lookup_backend(name), "__module__", "")
        path = next((entry.module for entry in entries), str(own))
    names = list(accumulate(path.split("."), "{}.{}".format))
    owners = sorted(metadata.packages_distributions().get(names[0], ()))
    # a namespace package has no file: several distributions may share it
    packages = (sys.modules.get(package) for package in names)
    top = next((package for package in packages if getattr(package, "__file__", None)), None)
    owned = ", ".join(f"{owner} {_distribution(owner)}" for owner in owners)
    facts = {"package": owned} if owned else {}
    if not owners and (version := getattr(top, "__version__", "")):
        facts["package"] = f"{path.partition('.')[0]} {version}"
    files = module_files.files_of(
        path, getattr(top, "__path__", ()), getattr(top, "__file__", None)
    )
    if files:
        facts["module"] = module_files.described(path, files)
    if "=" in question and hasattr(module := getattr(torch, name), "get_device_name"):
        facts["device"] = module.get_device_name(0)
    facts |= getattr(sys.modules.get(path), "conformance_facts", dict)()
    return (
        json.dumps(
            {f"{name}.{key}"[:60]: str(value)[:300] for key, value in list(facts.items())[:20]}
        )
        if facts
        else ""
    )


def _device_problem(vendor: VendorDevice) -> str:
    """Return why torch does not see a vendor's device; empty where it does."""
    register(vendor)
    module = getattr(torch, vendor.kind)
    if not module.is_available():
        return f"torch.{vendor.kind}.is_available() returned False"
    return f"torch.{vendor.kind}.device_count() returned 0" if module.device_count() <= 0 else ""


def _compiler_problem(compiler: VendorCompiler) -> str:
    """Return why dynamo does not know a vendor's compiler; empty where it does."""
    if compiler.module:
        importlib.import_module(compiler.module)
    names = torch._dynamo.list_backends(exclude_tags=None)
    if compiler.name not in names:
        return f"{UNKNOWN_COMPILER}{' '.join(names)}"
    torch._dynamo.lookup_backend(compiler.name)  # imports what an entry point names
    return ""
