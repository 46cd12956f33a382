"""The order of the cases, the environment and the resources that each needs, what the machine has,
how many cases run in parallel.
"""

import math
import os
import re
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path

from torch_conformance.machine.capabilities import CAPABILITIES, Machine, is_cpp_wrapped, memory_of
from torch_conformance.model import devices, targets
from torch_conformance.model.case import Case, Group
from torch_conformance.model.conditions import VersionRange
from torch_conformance.model.diagnostics import UsageError, one_line
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.protocol import MODULE, SIMULATED, TARGET
from torch_conformance.model.results import PHASES_BEFORE_CLAIM, CaseResult
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.steps import parsed, traits_of

_MIB = 1 << 20

# Measured private memory of processes (the rest is shared with their zygote), plus at least 50 %.
# Torch 2.13 for the CPU, peak of the case: most cases that compile 250 to 400 MiB, the largest 560;
# cases that do not compile 95 to 300; a child that imports torch itself 150 to 250; a pool of 16
# compile processes 500 more than its worker.
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

_CORES_OF_ZYGOTE, _LEAST_ZYGOTES = 4, 2
"""The start of a zygote uses one core for some ten seconds: of a machine's cores, starts use a
quarter at most. With one zygote at a time, an environment of one case starts its zygote when
nothing else runs: the other core waits for seconds."""

_CORES_OF_POOL = 4
"""So many cores does a pool of compile processes use at most, by this plan."""

_GPU_MEMORY = 2048 * _MIB
"""Default GPU memory of a case. Measured on an H200 with torch 2.11, twice a second, for 381
processes of profile inductor-cuda, contexts included: half of them use 684 MiB, 95 % at most 934
MiB, 99 % at most 3.6 GiB. So cases together use less than half of what is counted, which leaves
room for the few that use more. A spec that needs much has ``requires: [{gpu_memory: ...}]``."""

_GPU_MEMORY_OF_CHILD = 1024 * _MIB
"""For a child process that times kernels: a second context, and a second copy of the inputs."""

_START_SECONDS = 20.0
"""What the start of a zygote for a GPU and of its first worker takes, measured on a machine with an
H200; only the order depends on it.
"""

MOST_OF_MEMORY = 0.75
"""The share of the available memory that one case may use, when ``--memory-limit`` is auto."""

_SIZE = re.compile(r"([0-9]{1,6}(?:\.[0-9]{1,6})?) ?(KiB|MiB|GiB|TiB|KB|MB|GB|TB)")
_UNITS = {
    "KiB": 1 << 10,
    "MiB": 1 << 20,
    "GiB": 1 << 30,
    "TiB": 1 << 40,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
}
_LEAST_LIMIT = 64 * _MIB
"""A Python process that imports torch needs more: a smaller limit is probably a mistaken unit."""


@frozen
class Environment:
    """The environment in which a zygote is started: variables added to the runner's own (None
    removes one).
    """

    variables: Mapping[str, str | None] = field(default_factory=dict)
    kinds: frozenset[str] = frozenset()
    """Kinds of device that its cases compile for; the warm-up depends on them."""
    module: str = ""
    """The module that registers the compiler of its cases, which a zygote imports ahead where that
    is safe.
    """

    @property
    def key(self) -> str:
        """Equal for environments that may share a zygote.

        A zygote is warmed up for a GPU or for the CPU, not for both.
        """
        return repr(
            (self.uses_accelerator, sorted(self.variables.items()), *filter(None, [self.module]))
        )

    @property
    def words(self) -> frozenset[str]:
        """What its zygote warms up: kinds of device, a module (``worker/process/zygote.warm``)."""
        return self.kinds | ({f"{MODULE}{self.module}"} if self.module else frozenset())

    @property
    def uses_accelerator(self) -> bool:
        """Whether one of its cases compiles for an accelerator, for which torch queries the
        driver.
        """
        return any(map(devices.is_accelerator, self.kinds))

    @property
    def compiler(self) -> str | None:
        """The name of what it compiles with: a target, or a simulated target; None for one that
        executes.
        """
        target = self.variables.get(TARGET)
        return (
            targets.simulated(target)
            if target is not None and SIMULATED in self.variables
            else target
        )


@frozen
class Needs:
    """The resources of the machine that a job uses while it runs."""

    cores: float = 1.0
    memory: int = 0
    """Bytes."""
    gpu_memory: int = 0
    """Bytes on each GPU that it uses. A job with GPU memory and ``gpus`` 0 uses one GPU."""
    gpus: int = 0
    """How many GPUs it uses. Jobs share GPUs as far as their memory suffices."""
    exclusive: bool = False
    """No other job may run while it runs: it measures times."""
    group: Group | None = None


@frozen
class Capacity:
    """The resources of the machine that jobs share."""

    jobs: int
    """The maximum number of jobs that run in parallel, whatever they need."""
    cores: float
    memory: int
    """Bytes."""
    gpus: int = 0
    gpu_memory: int = 0
    """Bytes of each GPU."""


@frozen
class SchedulingOptions:
    """Scheduling options of the command line, and the durations of the last run."""

    seconds: Mapping[str, float] = field(default_factory=dict)
    """Durations of cases in the last runs, by id."""
    seed: int | None = None
    """The seed of a random order; None for the usual order."""
    memory_limit: int | None = None
    """Bytes that one case may use; None for no limit."""


# -- environments and order ------------------------------------------------------------------------


def environment_of(case: Case) -> Environment:
    """Return the environment of the case's zygote."""
    if case.target:
        # a simulated target has torch, in processes of its own; the executor names the folder
        return Environment(
            variables={
                TARGET: case.target,
                **({SIMULATED: ""} if case.backend == targets.SIMULATED else {}),
            }
        )
    variables: dict[str, str | None] = {}
    for name, value in case.body.settings.env.items():
        variables[name] = (
            None if value is None else str(int(value)) if isinstance(value, bool) else str(value)
        )
    # a case that does not compile needs no warm compiler: warming it up takes longer than importing
    # torch
    kind = devices.kind_of(case.device)
    module = (
        case.module if kind in devices.WITHOUT_MODULE and case.body.isolation != "process" else ""
    )
    return Environment(
        variables=variables, kinds=frozenset([kind] if case.body.compiles else []), module=module
    )


def environments(cases: Sequence[Case]) -> dict[str, Environment]:
    """Return one environment for each set of variables, with every kind of device that its cases
    use.

    That with the most cases is the first: its zygote is the first to start, and the others start
    while its cases run.
    """
    by_key: dict[str, list[Environment]] = {}
    for case in cases:
        environment = environment_of(case)
        by_key.setdefault(environment.key, []).append(environment)
    return {
        key: replace(
            group[0], kinds=frozenset(kind for environment in group for kind in environment.kinds)
        )
        for key, group in sorted(by_key.items(), key=lambda item: -len(item[1]))
    }


def order(
    cases: Sequence[Case],
    seconds: Mapping[str, float] | None = None,
    seed: int | None = None,
    zygotes: int = 1,
) -> list[Case]:
    """Return the cases in the order in which they run.

    ``zygotes``: how many environments run at a time.

    With one, the cases of one environment are together, so each zygote is started once. With more,
    environments are mixed, and the cases of the smaller ones count as longer by the start of their
    zygote.

    The longest cases of the last run come first, so that no long case runs alone at the end. Cases
    without a known duration come first too, because an overestimate costs nothing. For a GPU, short
    cases come between the long ones (``_mixed``). Exclusive cases come last, so that the machine is
    drained once. With a seed the order is random, and depends only on the seed and the ids, not on
    the selection.
    """
    keys = {case.id: environment_of(case).key for case in cases}
    if seed is not None:
        import hashlib  # loads OpenSSL: not for runs that do not shuffle

        def lot(text: str) -> bytes:
            return hashlib.sha256(f"{seed} {text}".encode("utf-8", "surrogatepass")).digest()

        # grouped by environment
        return sorted(cases, key=lambda case: (lot(keys[case.id]), lot(case.id)))
    durations = seconds or {}
    largest = next(iter(Counter(keys.values()).most_common(1)), ("", 0))[0]

    def urgency(case: Case) -> float:
        waits_for_zygote = zygotes > 1 and keys[case.id] != largest
        return durations.get(case.id, math.inf) + (_START_SECONDS if waits_for_zygote else 0.0)

    ordered = sorted(cases, key=urgency, reverse=True)
    if any(devices.is_accelerator(case.device) for case in cases):
        ordered = _mixed(ordered, durations)
    if zygotes == 1:
        first: dict[str, int] = {}
        for place, case in enumerate(ordered):
            first.setdefault(keys[case.id], place)
        ordered.sort(key=lambda case: first[keys[case.id]])
    return sorted(ordered, key=is_exclusive)


def _mixed(ordered: Sequence[Case], durations: Mapping[str, float]) -> list[Case]:
    """Take cases from both ends of those in order of length, so that in each part of the result
    their mean length is about the same.

    A driver makes contexts one after another, each core works on one case. With all short cases at
    the end, the driver would be idle at first, and the cores would wait for contexts later.
    """
    mean = sum(durations.get(case.id, 0.0) for case in ordered) / max(
        1, sum(case.id in durations for case in ordered)
    )
    waiting, mixed, seconds = deque(ordered), list[Case](), 0.0
    while waiting:
        case = waiting.popleft() if seconds <= mean * len(mixed) else waiting.pop()
        mixed.append(case)
        seconds += durations.get(case.id, mean)
    return mixed


def is_exclusive(case: Case) -> bool:
    """Whether a case must run alone: it measures times, or its spec has ``exclusive``."""
    return case.exclusive or any(traits_of(step).is_exclusive for step in case.steps)


# -- what a case needs -----------------------------------------------------------------------------


def tools_of(case: Case, result: CaseResult) -> frozenset[str]:
    """Return the capabilities that the failed step of a case uses, of all its steps where none is
    known; none before it was compiled.
    """
    if result.node or (
        result.outcome in (Outcome.CRASH, Outcome.TIMEOUT) and result.phase in PHASES_BEFORE_CLAIM
    ):
        return frozenset()  # another machine, or none of its tools
    steps = [step for step in case.steps if step.position.line <= result.position.line][
        -1:
    ] or case.steps
    of_steps = [name for step in steps for name in traits_of(step).tools] + [
        "cxx"
    ] * is_cpp_wrapped(case)
    return frozenset([*of_steps, *(requirement.name for requirement in case.requires)])


def needs_of(case: Case, machine: Machine) -> Needs:
    """Return the resources that a case uses.

    A worker counts as one core: Python, the compiler and kernels run one after another. Short peaks
    above one core are ignored. Max-autotune shares its GPU: parallel cases may change which kernel
    is fastest, but no spec can claim that.
    """
    config, env, available = case.body.settings.config, case.body.settings.env, max(1, int(cores()))
    # one compile process, unless the case sets the number (only the worker evaluates a template
    # over facts)
    text = str(config.get("compile_threads", env.get("TORCHINDUCTOR_COMPILE_THREADS", 1)))
    compilers = int(text) if re.fullmatch("[1-9][0-9]{0,3}", text) and case.body.compiles else 1
    compilers = min(compilers, available)  # those beyond the number of cores wait for each other
    # child processes with torch; steps run one after another, so only one step's children run at a
    # time
    children = max(
        int(config.get("autotune_in_subproc") is True),
        *(parsed(step).children for step in case.steps),
        0,
    )
    memory = _MEMORY_OF_COMPILING if case.body.compiles else _MEMORY_OF_CALLS
    memory += (compilers - 1) * _MEMORY_OF_COMPILER + children * _MEMORY_OF_CHILD
    # most of a large pool wait, and a case that needs all cores would run alone
    used_cores = min(max(compilers, children), _CORES_OF_POOL, max(1, available // 2))
    needs = Needs(cores=used_cores, memory=memory, exclusive=is_exclusive(case), group=case.group)
    if not (
        devices.is_accelerator(case.device)
        or any(CAPABILITIES[need.name].is_of_gpus for need in case.requires)
    ):
        return needs
    arguments = {
        name: [need.argument or "" for need in case.requires if need.name == name]
        for name in ("gpus", "gpu_memory")
    }
    there = machine.gpus or 0
    ranges = [VersionRange.parse(argument) for argument in arguments["gpus"]]
    # the smallest number that the spec accepts
    gpus = next(
        (
            count
            for count in range(1, there + 1)
            if all(bounds.holds((count,)) for bounds in ranges)
        ),
        1,
    )
    gpus = max(
        gpus,
        devices.index_of(case.device) + 1,
        there if config.get("autotune_multi_device") is True else 0,
    )
    return replace(
        needs,
        memory=memory + _MEMORY_ON_HOST_OF_GPU,
        gpu_memory=max(
            [
                _GPU_MEMORY + children * _GPU_MEMORY_OF_CHILD,
                *map(memory_of, arguments["gpu_memory"]),
            ]
        ),
        gpus=gpus if gpus > 1 else 0,  # one GPU is shared
    )


# -- what the machine has --------------------------------------------------------------------------


def workers(jobs: str) -> int:
    """Read ``--jobs``: a number, or auto, which is limited by cores and memory; raise
    ``UsageError``.
    """
    if jobs == "auto":
        return max(1, min(int(cores()), _shared_memory() // _MEMORY_OF_COMPILING))
    if re.fullmatch("[1-9][0-9]{0,5}", jobs) is None:
        raise UsageError(f"--jobs {jobs}: write a number from 1, or auto")
    return int(jobs)


def capacity(count: int, machine: Machine) -> Capacity:
    """Return the resources that ``count`` workers share.

    More workers than cores are allowed, as far as memory suffices.
    """
    gpus, gpu_memory = machine.gpus or 0, machine.gpu_memory or 0
    return Capacity(
        jobs=count,
        cores=max(cores(), float(count)),
        memory=_shared_memory(),
        gpus=gpus,
        gpu_memory=gpu_memory,
    )


def _shared_memory() -> int:
    return max(available_memory() - _MEMORY_RESERVED, _MEMORY_OF_COMPILING)


def threads(count: int) -> int:
    """Return the OpenMP threads of each of ``count`` workers."""
    return max(1, int(cores() // count))


def zygotes(least: int = _LEAST_ZYGOTES) -> int:
    """Return how many environments may have a zygote with jobs at a time: the start of one uses a
    core for seconds.
    """
    available = int(cores())
    count = max(available // _CORES_OF_ZYGOTE, min(available, least))
    return max(min(1, least), min(count, _shared_memory() // _MEMORY_OF_ZYGOTE))


def spares(count: int) -> int:
    """Return how many workers may warm up, or wait warm, in addition to ``count`` that run cases:
    as many as these, or as there are further cores.

    The warm-up for a GPU takes several times as long as a small case, so one worker that runs cases
    can use several spare workers. Where cases use all cores, warm-ups during long cases still save
    time: the driver makes contexts one after another. Each uses memory.
    """
    spare_cores = int(cores()) - count
    for_memory = (
        _shared_memory() - count * (_MEMORY_OF_COMPILING + _MEMORY_ON_HOST_OF_GPU)
    ) // _MEMORY_ON_HOST_OF_GPU
    return max(0, min(3 * count, max(spare_cores, min(count, for_memory))))


def memory_limit(text: str) -> int | None:
    """Read ``--memory-limit``: a size, auto, or none; raise ``UsageError``."""
    if text == "none":
        return None
    if text == "auto":
        return max(int(available_memory() * MOST_OF_MEMORY), _MEMORY_OF_COMPILING)
    match = _SIZE.fullmatch(text)
    if match is None:
        raise UsageError(
            f"--memory-limit {one_line(text)}: write a size with its unit, for example 4GiB "
            "or 500MiB, or auto, or none"
        )
    size = int(float(match[1]) * _UNITS[match[2]])
    if size < _LEAST_LIMIT:
        raise UsageError(
            f"--memory-limit {text}: no worker can begin in so little; write "
            f"{_LEAST_LIMIT // _MIB}MiB or more"
        )
    return size


_ROOT = Path("/")


def cores(root: Path = _ROOT) -> float:
    """Return the number of usable cores.

    It may be a fraction, because a container's quota may be a share of one core.
    """
    usable = (
        len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    )
    quotas = [_text(group / "cpu.max").split() for group in _groups(root)]
    return min(
        [
            float(usable),
            *(
                int(quota[0]) / int(quota[1])
                for quota in quotas
                if len(quota) == 2 and all(map(_is_number, quota))
            ),
        ]
    )


def available_memory(root: Path = _ROOT) -> int:
    """Return the available memory in bytes, within the limits of all control groups, whose inactive
    page cache counts as free.
    """
    available = _number_after("MemAvailable:", root / "proc/meminfo")
    free = [
        available << 10 if available else os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    ]
    for group in _groups(root):
        limits = [
            int(text)
            for name in ("memory.max", "memory.high")
            if _is_number(text := _text(group / name).strip())
        ]
        used = _text(group / "memory.current").strip()
        if limits and used.isascii() and used.isdecimal():
            free.append(
                max(
                    min(limits) - int(used) + _number_after("inactive_file", group / "memory.stat"),
                    0,
                )
            )
    return min(free)


def _groups(root: Path) -> Iterator[Path]:
    """Yield the folders of this process's control groups (version 2), the innermost first.

    In a container the root of the file system may be the group itself, while the path is the
    host's: absent folders say nothing.
    """
    paths = [
        line[3:]
        for line in _text(root / "proc/self/cgroup").splitlines()
        if line.startswith("0::/")
    ]
    parts = [part for path in paths for part in path.split("/") if part]
    for depth in range(len(parts) if ".." not in parts else 0, -1, -1):
        yield root.joinpath("sys/fs/cgroup", *parts[:depth])


def _number_after(name: str, path: Path) -> int:
    """Return the number behind a name in a file; 0 where there is none."""
    _, _, rest = _text(path).partition(f"{name} ")
    words = rest.split(maxsplit=1)
    return int(words[0]) if words and _is_number(words[0]) else 0


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and int(text) > 0


def _text(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace")
    except OSError:
        return ""
