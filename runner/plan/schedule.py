"""The order of the cases, the resources that each needs and that the machine has, and how many cases run in parallel."""

import math
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner.machine.capabilities import CAPABILITIES, Machine, memory_of
from runner.model import devices, targets
from runner.model.case import Case
from runner.model.conditions import VersionRange
from runner.model.diagnostics import UsageError, one_line
from runner.model.protocol import SIMULATED, TARGET
from runner.plan.resources import Capacity, Environment, Needs
from runner.vocabulary.steps import traits_of

_MIB = 1 << 20

# Measured private memory of processes (the rest is shared with their zygote), plus at least 50 %. Torch 2.13 for the CPU, peak of the
# case: most cases that compile 250 to 400 MiB, the largest 560; cases that do not compile 95 to 300; a child that imports torch itself
# 150 to 250; a pool of 16 compile processes 500 more than its worker.
_MEMORY_OF_COMPILING = 1024 * _MIB
_MEMORY_OF_CALLS = 512 * _MIB
_MEMORY_OF_CHILD = 384 * _MIB
_MEMORY_OF_COMPILER = 256 * _MIB
"""For each parallel compile after the first: a process of torch's pool, with g++."""

_MEMORY_ON_HOST_OF_GPU = 2048 * _MIB
"""Memory that the libraries of a GPU add in a worker: an upper bound, not measured."""

_MEMORY_RESERVED = 1024 * _MIB
"""For the runner and the zygotes, which use some 300 MiB each."""

_MEMORY_OF_ZYGOTE = 4096 * _MIB
"""A zygote uses some 300 MiB: of a machine's memory, zygotes use a small part."""

_CORES_OF_ZYGOTE = 4
"""The start of a zygote uses one core for some ten seconds: of a machine's cores, starts use a quarter at most."""

_LEAST_ZYGOTES = 2
"""With one zygote at a time, an environment of one case starts its zygote when nothing else runs: the other core waits for seconds."""

_CORES_OF_POOL = 4
"""So many cores does a pool of compile processes use at most, by this plan."""

_GPU_MEMORY = 4096 * _MIB
"""Default GPU memory of a case. Measured on an H200 with torch 2.11, twice a second, for 381 processes of profile inductor-cuda,
contexts included: half of them use 684 MiB, 95 % at most 934 MiB, 99 % at most 3.6 GiB. A spec that needs more has
``requires: [{gpu_memory: ...}]``: two use 31.5 GiB."""

_GPU_MEMORY_OF_CHILD = 1024 * _MIB
"""For a child process that times kernels: a second context, and a second copy of the inputs."""


_START_SECONDS = 20.0
"""What the start of a zygote for a GPU and of its first worker takes, measured on a machine with an H200; only the order depends on it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulingOptions:
    """Scheduling options of the command line, and the durations of the last run."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """Durations of cases in the last runs, by id."""
    seed: int | None = None
    """The seed of a random order; None for the usual order."""
    memory_limit: int | None = None
    """Bytes that one case may use; None for no limit."""


def environment_of(case: Case) -> Environment:
    """Return the environment of the case's zygote."""
    variables = {name: None if value is None else _as_variable(value) for name, value in case.body.settings.env.items()}
    if case.target:
        # a simulated target has torch, in processes of its own; the executor names the folder
        return Environment(variables={TARGET: case.target, **({SIMULATED: ""} if case.backend == targets.SIMULATED else {})})
    # a case that does not compile needs no warm compiler: warming it up takes longer than importing torch
    kinds = frozenset([devices.kind_of(case.device)]) if case.body.compiles else frozenset[str]()
    return Environment(variables=variables, kinds=kinds)


def _as_variable(value: object) -> str:
    return ("1" if value else "0") if isinstance(value, bool) else str(value)


def environments(cases: Sequence[Case]) -> dict[str, Environment]:
    """Return one environment for each set of variables, with every kind of device that its cases use.

    That with the most cases is the first: its zygote is the first to start, and the others start beside its cases.
    """
    per_case = [environment_of(case) for case in cases]
    kinds: dict[str, frozenset[str]] = {}
    for mine in per_case:
        kinds[mine.key] = kinds.get(mine.key, frozenset()) | mine.kinds
    variables = {mine.key: mine.variables for mine in per_case}
    most_first = Counter(mine.key for mine in per_case).most_common()
    return {key: Environment(variables=variables[key], kinds=kinds[key]) for key, _ in most_first}


def order(
    cases: Sequence[Case],
    seconds: Mapping[str, float] | None = None,
    seed: int | None = None,
    zygotes: int = 1,
) -> list[Case]:
    """Return the cases in the order in which they run. ``zygotes``: how many environments run at a time.

    With one, the cases of one environment are together, so each zygote is started once. With more, environments are mixed, and the cases of
    the smaller ones count as longer by the start of their zygote.

    The longest cases of the last run come first, so that no long case runs alone at the end. Cases without a known duration come first
    too, because an overestimate costs nothing. Exclusive cases come last, so that the machine is drained once.
    With a seed the order is random, and depends only on the seed and the ids, not on the selection.
    """
    if seed is not None:
        # grouped by environment
        return sorted(cases, key=lambda case: (_lot(seed, environment_of(case).key), _lot(seed, case.id)))
    known = seconds or {}
    keys = {case.id: environment_of(case).key for case in cases}
    largest = next(iter(Counter(keys.values()).most_common(1)), ("", 0))[0]

    def urgency(case: Case) -> float:
        waits_for_zygote = zygotes > 1 and keys[case.id] != largest
        return known.get(case.id, math.inf) + (_START_SECONDS if waits_for_zygote else 0.0)

    ordered = sorted(cases, key=urgency, reverse=True)
    if zygotes == 1:
        first: dict[str, int] = {}
        for place, case in enumerate(ordered):
            first.setdefault(keys[case.id], place)
        ordered.sort(key=lambda case: first[keys[case.id]])
    return sorted(ordered, key=is_exclusive)


def _lot(seed: int, text: str) -> bytes:
    import hashlib  # loads OpenSSL: not for runs that do not shuffle

    return hashlib.sha256(f"{seed} {text}".encode("utf-8", "surrogatepass")).digest()


def is_exclusive(case: Case) -> bool:
    """Whether a case must run alone: it measures times, or its spec has ``exclusive``."""
    return case.exclusive or any(traits_of(step).is_exclusive for step in case.steps)


def needs_of(case: Case, machine: Machine) -> Needs:
    """Return the resources that a case uses.

    A worker counts as one core: Python, the compiler and kernels run one after another. Short peaks above one core are ignored.
    Max-autotune shares its GPU: parallel cases may change which kernel is fastest, but no spec can claim that.
    """
    compilers = _compilers(case)
    children = _children(case)
    memory = _MEMORY_OF_COMPILING if case.body.compiles else _MEMORY_OF_CALLS
    memory += (compilers - 1) * _MEMORY_OF_COMPILER + children * _MEMORY_OF_CHILD
    if not (devices.is_accelerator(case.device) or any(CAPABILITIES[need.name].is_of_gpus for need in case.requires)):
        return Needs(cores=_cores_of(compilers), memory=memory, exclusive=is_exclusive(case))
    asked = max((memory_of(need.argument or "") for need in case.requires if need.name == "gpu_memory"), default=0)
    return Needs(
        cores=_cores_of(compilers),
        memory=memory + _MEMORY_ON_HOST_OF_GPU,
        gpu_memory=max(asked, _GPU_MEMORY + children * _GPU_MEMORY_OF_CHILD),
        gpus=_whole_gpus(case, machine),
        exclusive=is_exclusive(case),
    )


def _compilers(case: Case) -> int:
    """Return how many compile processes run in parallel: one, unless the case sets the number."""
    config, env = case.body.settings.config, case.body.settings.env
    setting = config.get("compile_threads", env.get("TORCHINDUCTOR_COMPILE_THREADS", 1))
    text = str(setting)  # only the worker evaluates a template over facts
    thread_count = int(text) if re.fullmatch("[1-9][0-9]{0,3}", text) and case.body.compiles else 1
    # threads beyond the number of cores wait for each other, so they need no cores
    return min(thread_count, max(1, int(cores())))


def _cores_of(compilers: int) -> int:
    """Return the cores that compile processes use: most of a large pool wait, and a case that needs all cores would run alone.

    A pool uses half of the machine's cores at most, by this plan.
    """
    return min(compilers, _CORES_OF_POOL, max(1, int(cores()) // 2))


def _children(case: Case) -> int:
    """Return how many child processes with torch a case runs in parallel with its worker."""
    tunes = case.body.settings.config.get("autotune_in_subproc") is True
    # steps run one after another, so only one step's children run at a time
    return max(int(tunes), *(traits_of(step).children for step in case.steps), 0)


def _whole_gpus(case: Case, machine: Machine) -> int:
    """Return how many GPUs a case uses alone: 0 when one GPU is enough, which it shares."""
    there = machine.gpus or 0
    ranges = [VersionRange.parse(need.argument or "") for need in case.requires if need.name == "gpus"]
    # the smallest number that the spec accepts
    gpus = next((count for count in range(1, there + 1) if all(bounds.holds((count,)) for bounds in ranges)), 1)
    gpus = max(gpus, devices.index_of(case.device) + 1)
    if case.body.settings.config.get("autotune_multi_device") is True:
        gpus = max(gpus, there)
    return gpus if gpus > 1 else 0


def workers(jobs: str) -> int:
    """Read ``--jobs``: a number, or auto, which is limited by cores and memory; raise ``UsageError``."""
    if jobs == "auto":
        return max(1, min(int(cores()), _shared_memory() // _MEMORY_OF_COMPILING))
    if re.fullmatch("[1-9][0-9]{0,5}", jobs) is None:
        raise UsageError(f"--jobs {jobs}: write a number from 1, or auto")
    return int(jobs)


def capacity(count: int, machine: Machine) -> Capacity:
    """Return the resources that ``count`` workers share. More workers than cores are allowed, as far as memory suffices."""
    return Capacity(
        jobs=count,
        cores=max(cores(), float(count)),
        memory=_shared_memory(),
        gpus=machine.gpus or 0,
        gpu_memory=machine.gpu_memory or 0,
    )


def _shared_memory() -> int:
    return max(available_memory() - _MEMORY_RESERVED, _MEMORY_OF_COMPILING)


def threads(count: int) -> int:
    """Return the OpenMP threads of each of ``count`` workers."""
    return max(1, int(cores() // count))


def zygotes() -> int:
    """Return how many environments may have a zygote with jobs at a time: the start of one uses a core for seconds."""
    available = int(cores())
    count = max(available // _CORES_OF_ZYGOTE, min(available, _LEAST_ZYGOTES))
    return max(1, min(count, _shared_memory() // _MEMORY_OF_ZYGOTE))


def spares(count: int) -> int:
    """Return how many workers may warm up, or wait warm, beside ``count`` that run cases: as many as these, or as there are cores besides.

    The warm-up for a GPU takes several times as long as a small case, so one worker that runs cases can use several spare workers. Where
    cases use all cores, warm-ups beside long cases still save time: the driver makes contexts one after another. Each uses memory.
    """
    besides = int(cores()) - count
    for_memory = (_shared_memory() - count * (_MEMORY_OF_COMPILING + _MEMORY_ON_HOST_OF_GPU)) // _MEMORY_ON_HOST_OF_GPU
    return max(0, min(3 * count, max(besides, min(count, for_memory))))


MOST_OF_MEMORY = 0.75
"""The share of the available memory that one case may use, when ``--memory-limit`` is auto."""

_SIZE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(KiB|MiB|GiB|TiB|KB|MB|GB|TB)")
_UNITS = {"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12}
_LEAST_LIMIT = 64 * _MIB
"""A Python process that imports torch needs more: a smaller limit is probably a mistaken unit."""


def memory_limit(text: str) -> int | None:
    """Read ``--memory-limit``: a size, auto, or none; raise ``UsageError``."""
    if text == "none":
        return None
    if text == "auto":
        return max(int(available_memory() * MOST_OF_MEMORY), _MEMORY_OF_COMPILING)
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(f"--memory-limit {one_line(text)}: write a size with its unit, for example 4GiB or 500MiB, or auto, or none")
    size = int(float(match[1]) * _UNITS[match[2]])
    if size < _LEAST_LIMIT:
        raise UsageError(f"--memory-limit {text}: no worker can begin in so little; write {_LEAST_LIMIT // _MIB}MiB or more")
    return size


_ROOT = Path("/")


def cores(root: Path = _ROOT) -> float:
    """Return the number of usable cores. It may be a fraction, because a container's quota may be a share of one core."""
    usable = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return min([float(usable), *_quotas(root)])


def available_memory(root: Path = _ROOT) -> int:
    """Return the available memory in bytes, within the limits of all control groups."""
    available = _fields(root / "proc/meminfo").get("MemAvailable")
    whole = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return min([whole if available is None else available << 10, *_free_in_groups(root)])


def _quotas(root: Path) -> Iterator[float]:
    """Yield the CPU quota of each control group in cores."""
    for group in _groups(root):
        texts = _text(group / "cpu.max").split()
        if len(texts) == 2 and all(map(_is_number, texts)):
            yield int(texts[0]) / int(texts[1])


def _free_in_groups(root: Path) -> Iterator[int]:
    """Yield the free bytes of each control group with a limit. Its inactive page cache counts as free."""
    for group in _groups(root):
        limits = [int(text) for name in ("memory.max", "memory.high") if _is_number(text := _text(group / name).strip())]
        used = _text(group / "memory.current").strip()
        if limits and used.isascii() and used.isdecimal():
            yield max(min(limits) - int(used) + _fields(group / "memory.stat").get("inactive_file", 0), 0)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups (version 2), the innermost first.

    In a container the root of the file system may be the group itself, while the path is the host's: absent folders say nothing.
    """
    paths = [line[3:] for line in _text(root / "proc/self/cgroup").splitlines() if line.startswith("0::/")]
    parts = [part for path in paths for part in path.split("/") if part]
    for depth in range(len(parts) if ".." not in parts else 0, -1, -1):
        yield root.joinpath("sys/fs/cgroup", *parts[:depth])


def _fields(path: Path) -> Mapping[str, int]:
    """Return the numbers of a file with lines ``name: number`` or ``name number``."""
    pairs = (line.replace(":", " ").split() for line in _text(path).splitlines())
    return {pair[0]: int(pair[1]) for pair in pairs if len(pair) > 1 and _is_number(pair[1])}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) > 0


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
