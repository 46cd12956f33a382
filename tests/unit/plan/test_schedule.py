"""Order, environments, what cases need, what the machine has, and how many at once."""

import os
from pathlib import Path

import pytest

from tests.fakes import case, requirement, step
from torch_conformance.execute.room import Room
from torch_conformance.machine.capabilities import Machine
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.plan import schedule

MIB = 1 << 20
GIB = 1 << 30
HOST = Machine(python=(3, 11), torch="2.13.0", release=(2, 13, 0), gpus=0)
ONE_GPU = Machine(
    python=(3, 11),
    torch="2.13.0",
    release=(2, 13, 0),
    builds={"cuda": "13"},
    gpus=1,
    gpu_memory=80 * GIB,
)
FOUR_GPUS = Machine(
    python=(3, 11),
    torch="2.13.0",
    release=(2, 13, 0),
    builds={"cuda": "13"},
    gpus=4,
    gpu_memory=80 * GIB,
)


@pytest.fixture
def hard(monkeypatch):
    """Return a function that sets the cores and the free memory of this machine."""

    def be(cores=8.0, gibibytes=64.0):
        monkeypatch.setattr(schedule, "cores", lambda: float(cores))
        monkeypatch.setattr(schedule, "available_memory", lambda: int(gibibytes * GIB))

    be()
    return be


def with_env(name: str, device: str = "cpu", *, compiles: bool = True, **env: object):
    return case(
        id=f"area/{name}[backend=x]", device=device, body={"env": env, "compiles": compiles}
    )


def test_one_environment_is_warm_for_all_that_share_it():
    cases = [
        with_env("a", compiles=False),
        with_env("b", "cuda:1"),
        with_env("c"),
        with_env("d", A="1"),
    ]
    environments = schedule.environments(cases)
    # nothing that is warmed for the CPU may be left in a worker for a GPU; what compiles nothing
    # warms nothing
    assert sorted(map(sorted, (environment.kinds for environment in environments.values()))) == [
        ["cpu"],
        ["cpu"],
        ["cuda"],
    ]
    assert set(environments) == {schedule.environment_of(case).key for case in cases}


def test_a_module_is_imported_ahead_for_the_cases_of_its_compiler_alone():
    cases = [
        case(
            id=f"area/{name}[backend=x]",
            device=device,
            module=module,
            body={"isolation": isolation},
        )
        for name, device, module, isolation in [
            ("a", "cpu", "", "case"),
            ("b", "cpu", "fast.torch", "case"),
            ("c", "cpu", "fast.torch", "process"),
            ("d", "npu", "npu.torch", "case"),  # a device is used after the fork
        ]
    ]
    environments = [schedule.environment_of(one) for one in cases]
    assert [environment.module for environment in environments] == ["", "fast.torch", "", ""]
    assert len({environment.key for environment in environments}) == 2


def test_the_environment_with_the_most_cases_starts_first():
    cases = [with_env(name, A=value) for name, value in zip("abcdef", "123323", strict=True)]
    assert [dict(one.variables) for one in schedule.environments(cases).values()] == [
        {"A": "3"},
        {"A": "2"},
        {"A": "1"},
    ]


# -- order -----------------------------------------------------------------------------------------


def names(cases):
    return "".join(one.id[5] for one in cases)


def timed(**seconds):
    return {f"area/{name}[backend=x]": float(value) for name, value in seconds.items()}


def alone(name, **env):
    return case(id=f"area/{name}[backend=x]", body={"env": env, "compiles": True}, exclusive=True)


def test_what_has_no_time_may_be_long_and_comes_first():
    cases = [with_env(name) for name in "abcd"]
    assert names(schedule.order(cases, timed(b=300, d=1))) == "acbd"
    assert names(schedule.order(cases, {})) == "abcd"


def test_short_cases_for_a_gpu_come_between_long_ones():
    cases = [with_env(name, "cuda") for name in "abcdefgh"]
    assert names(schedule.order(cases, timed(a=20, b=10, c=4, d=3, e=2, f=1, g=1))) == "hagfedbc"


def test_environments_stay_together_that_with_the_longest_case_first():
    cases = [
        with_env("a"),
        with_env("b", A="1"),
        with_env("c"),
        with_env("d", A="1"),
        with_env("e", A="2"),
    ]
    assert names(schedule.order(cases, timed(a=1, b=9, c=5, d=2, e=6))) == "bdeca"


def test_what_runs_alone_comes_last():
    cases = [alone("a"), with_env("b"), alone("c"), with_env("d")]
    assert names(schedule.order(cases, timed(a=1, b=1, c=9, d=2))) == "dbca"


def test_a_shuffled_order_hangs_on_the_seed_alone():
    cases = [with_env(name) for name in "abcdefgh"]
    one = names(schedule.order(cases, timed(a=9), seed=1))
    assert sorted(one) == sorted("abcdefgh")
    assert names(schedule.order(cases[::-1], {}, seed=1)) == one
    assert len({names(schedule.order(cases, {}, seed=seed)) for seed in range(20)}) > 15
    # what is left of it keeps its order
    assert names(schedule.order(cases[2:5], {}, seed=1)) == "".join(
        name for name in one if name in "cde"
    )


# -- needs -----------------------------------------------------------------------------------------


def with_config(device="cpu", requires=(), *steps, compiles=True, env=None, **config):
    body = {"config": config, "compiles": compiles, "env": env or {}}
    return case(*steps, device=device, requires=tuple(requires), body=body)


@pytest.mark.parametrize(
    ("given", "processes"),
    [
        ({"compile_threads": 16}, 16),
        ({"compile_threads": 16, "compiles": False}, 1),
        ({"compile_threads": 0}, 1),
        ({"compile_threads": object()}, 1),
        ({"env": {"TORCHINDUCTOR_COMPILE_THREADS": 4}}, 4),
        ({"env": {"TORCHINDUCTOR_COMPILE_THREADS": "many"}}, 1),
        ({"env": {"TORCHINDUCTOR_COMPILE_THREADS": None}}, 1),
        ({"env": {"TORCHINDUCTOR_COMPILE_THREADS": "4"}, "compile_threads": 2}, 2),
    ],
)
def test_compilers_that_run_at_once_each_need_memory_and_some_of_them_a_core(
    given, processes, monkeypatch
):
    monkeypatch.setattr(schedule, "cores", lambda: 32.0)
    found = schedule.needs_of(with_config(**given), HOST)
    assert found.cores == min(processes, 4)
    compiles = given.get("compiles", True)
    assert found.memory == (1024 if compiles else 512) * MIB + (processes - 1) * 256 * MIB


def test_a_child_with_torch_needs_memory():
    for one in (
        with_config(autotune_in_subproc=True),
        with_config("cpu", (), step(kind="spawn"), step(kind="spawn")),
    ):
        assert schedule.needs_of(one, HOST).memory == (1024 + 384) * MIB


def test_a_case_that_takes_times_is_exclusive():
    assert schedule.needs_of(with_config("cpu", (), step(kind="bench")), HOST).exclusive
    assert schedule.needs_of(with_config("cuda", (), step(kind="bench")), ONE_GPU).exclusive
    assert not schedule.needs_of(with_config("cuda", max_autotune=True), ONE_GPU).exclusive


@pytest.mark.parametrize(
    ("one", "gpus", "gibibytes"),
    [
        (with_config(), 0, 0),
        (with_config("cuda"), 0, 2),
        (with_config("cuda:1"), 2, 2),
        (with_config("cuda", autotune_in_subproc=True), 0, 3),
        (with_config("cuda", autotune_multi_device=True), 4, 2),
        (with_config("cuda", [requirement("gpus", ">=2")]), 2, 2),
        (with_config("cuda", [requirement("gpus", ">2")]), 3, 2),
        (with_config("cuda", [requirement("gpus", ">=2"), requirement("gpus", "!=2")]), 3, 2),
        (with_config("cuda", [requirement("gpu_memory", ">=64GiB")]), 0, 64),
        (
            with_config(
                "cuda", [requirement("gpu_memory", ">=64GiB"), requirement("gpu_memory", ">=16GiB")]
            ),
            0,
            64,
        ),
        (with_config("cuda", [requirement("gpu_memory", ">=1GiB")]), 0, 2),
        (with_config("cpu", [requirement("gpus", ">=1")]), 0, 2),
        (with_config("cpu", [requirement("rocm")]), 0, 2),
    ],
)
def test_gpus(one, gpus, gibibytes):
    found = schedule.needs_of(one, FOUR_GPUS)
    assert (found.gpus, found.gpu_memory) == (gpus, gibibytes * GIB)
    assert found.memory >= (1024 + 2048 * bool(gibibytes)) * MIB


# -- how many at once ------------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["0", "-1", "", "1.5", "٣²"])
def test_jobs_that_are_no_number(text):
    with pytest.raises(UsageError, match="--jobs"):
        schedule.workers(text)


@pytest.mark.parametrize(
    ("cores", "gibibytes", "count"),
    [(8, 64, 8), (2, 24, 2), (1.5, 24, 1), (0.5, 24, 1), (64, 24, 23), (8, 4.5, 3), (8, 0, 1)],
)
def test_auto_takes_what_cores_and_memory_allow(hard, cores, gibibytes, count):
    hard(cores, gibibytes)
    assert schedule.workers("auto") == count


@pytest.mark.parametrize(("cores", "gibibytes"), [(2, 24), (4, 24), (1, 3), (0.5, 1), (64, 64)])
def test_auto_never_fills_more_than_the_machine(hard, cores, gibibytes):
    hard(cores, gibibytes)
    room = Room(schedule.capacity(schedule.workers("auto"), HOST))
    started = 0
    while places := room.places(needs := schedule.needs_of(with_config(), HOST)):
        room.leases[str(started)] = places[0]
        started += 1
    assert 1 <= started <= max(1, cores)
    assert started * needs.memory <= max(gibibytes * GIB, needs.memory)
    if started > 1 or cores >= 2:
        assert not room.places(schedule.needs_of(with_config(compile_threads=2), HOST))


# -- the memory of a case --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("4GiB", 4 * GIB),
        ("4 GiB", 4 * GIB),
        ("1.5GiB", GIB * 3 // 2),
        ("500MiB", 500 * MIB),
        ("500MB", 500 * 10**6),
        ("2TB", 2 * 10**12),
        ("65536KiB", 64 * MIB),
        ("none", None),
    ],
)
def test_a_limit_of_memory(text, size):
    assert schedule.memory_limit(text) == size


@pytest.mark.parametrize(
    "text", ["", "4", "4G", "4gib", "-4GiB", "4GiB ", "4  GiB", "1e3MiB", "٤GiB", "4GiB\n"]
)
def test_a_limit_that_is_no_size(text):
    with pytest.raises(
        UsageError, match=r"--memory-limit .*: write a size with its unit, for example 4GiB"
    ):
        schedule.memory_limit(text)


def test_one_case_takes_three_quarters_of_what_is_free_and_no_more(hard):
    hard(8, 24)
    assert schedule.memory_limit("auto") == 18 * GIB
    hard(8, 0.5)
    assert schedule.memory_limit("auto") == GIB


# -- what the kernel shows of a machine that was made by hand --------------------------------------

MEMINFO = f"MemTotal: {64 * GIB >> 10} kB\nMemFree: 1 kB\nMemAvailable: {24 * GIB >> 10} kB\n"


@pytest.fixture
def eight(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let this process use eight cores."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)), raising=False)


def kernel(root: Path, *, cgroup: str = "0::/a/b\n", meminfo: str = MEMINFO, **files: str) -> Path:
    """Write a root folder; a name of ``files`` is a path with ``__`` for slashes."""
    given = {"proc/self/cgroup": cgroup, "proc/meminfo": meminfo}
    given |= {
        f"sys/fs/cgroup/{name.replace('__', '/').replace('-', '.')}": text
        for name, text in files.items()
    }
    for name, text in given.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


@pytest.mark.usefixtures("eight")
def test_the_smallest_quota_on_the_way_up(tmp_path: Path) -> None:
    found = kernel(
        tmp_path,
        **{
            "a__b__cpu.max": "400000 100000\n",
            "a__cpu.max": "150000 100000\n",
            "a__c__cpu.max": "1000 100000",
        },
    )
    assert schedule.cores(found) == 1.5


def test_smallest_free_memory_of_all_groups_counts(tmp_path: Path) -> None:
    files = {"a__b__memory.max": f"{10 * GIB}\n", "a__b__memory.current": f"{GIB}\n"}
    files |= {
        "a__memory.max": f"{12 * GIB}\n",
        "a__memory.current": f"{8 * GIB}\n",
        "a__memory.stat": f"anon 1\ninactive_file {2 * GIB}\n",
    }
    # what is cached of files goes when memory is asked for
    assert schedule.available_memory(kernel(tmp_path, **files)) == 6 * GIB


def test_a_throttle_bounds_as_a_limit_does(tmp_path: Path) -> None:
    files = {
        "a__b__memory.max": f"{10 * GIB}\n",
        "a__b__memory.high": f"{4 * GIB}\n",
        "a__b__memory.current": f"{GIB}\n",
    }
    assert schedule.available_memory(kernel(tmp_path, **files)) == 3 * GIB


@pytest.mark.parametrize(
    "text", ["", "nonsense", "1 2 3 4", "0 0", "-5 100000", "100000 0", "x 100000", "٣ 1"]
)
@pytest.mark.usefixtures("eight")
def test_invalid_limits_are_ignored(text: str, tmp_path: Path) -> None:
    found = kernel(
        tmp_path, **{"a__b__cpu.max": text, "a__b__memory.max": text, "a__b__memory.current": text}
    )
    assert (schedule.cores(found), schedule.available_memory(found)) == (8, 24 * GIB)


@pytest.mark.parametrize("cgroup", ["", "0::", "no colons", "0::/../../..\n", "0::relative\n"])
@pytest.mark.usefixtures("eight")
def test_groups_that_cannot_be_read(cgroup: str, tmp_path: Path) -> None:
    assert schedule.cores(kernel(tmp_path, cgroup=cgroup)) == 8


@pytest.mark.usefixtures("eight")
def test_system_without_proc_and_cgroups(tmp_path: Path) -> None:
    assert schedule.cores(tmp_path) == 8
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    assert schedule.available_memory(tmp_path) == memory
