"""``python -m tools.benchmarks.isolation``: what a process for each case costs, compared with what
others pay for theirs.

The same cases (``specs/``, which ``cases/test_cases.py`` runs as plain pytest tests) are run by
each contestant, in rounds; each round runs every contestant once, beginning with another one.
Ratios are taken within a round, and their median over the rounds is what is judged.

- Every test and every case has an inductor cache folder of its own. What torch keeps in the
  temporary folder each contestant finds empty, so that each pays for it once; what the runner keeps
  between runs it finds from its second round on.
- All contestants run with torch's defaults but the runner, which compiles with one thread in each
  worker.
- *first*: seconds from the runner's start to the file of the first worker's output.
- *Overhead of a case*: the case's seconds in the journal of a run with ``--jobs 1``, less what the
  same test takes in pytest in one process; the median over the cases and rounds. What each pays
  once falls on its first case, and so not on the median.
- *The floor*: a bare start of torch and its compiler, and the seconds that the cases compile, over
  the cores. *One spec* is the loop of who edits a spec, compared with a script that compiles the
  same: the second run of each in one temporary folder.
- *The template above a bare import*: the most of its own memory (resident, and no file's), less
  that of a process that has imported torch.

Exit code 1 when a bound is passed; a bound of a contestant that was left out is not checked.
"""

import argparse
import functools
import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tools.benchmarks.processes import MEGABYTE, Cost, adopt_orphans, kilobytes, measure
from tools.reports import table

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SPECS = HERE / "specs"
TESTS = HERE / "cases" / "test_cases.py"

ONE_PROCESS = "pytest, one process"
NEW_PROCESS = "pytest, a new process a test"
RUNNER = "runner"
ONE_AT_A_TIME = "runner --jobs 1"
ONE_SPEC = "runner, one spec"
ONE_SCRIPT = "a script, one function"
WARMS = (ONE_SPEC, ONE_SCRIPT)
"""Those who run once before they are measured, in the same temporary folder."""

COMPILES = frozenset(["trace", "lower", "autotune", "codegen", "kernel build"])
"""The phases of a case in which torch compiles."""


@dataclass(frozen=True, kw_only=True)
class Turn:
    """One run of one contestant."""

    cost: Cost
    seconds: Mapping[str, float] = field(default_factory=dict)
    """Of each case; empty where the contestant does not say."""
    compiles: float = 0.0
    """Seconds in which its cases compile, together; 0 where the contestant does not say."""
    before_first: float | None = None
    """Seconds until the first case began."""


@dataclass(frozen=True)
class Bare:
    """A process that has imported torch and nothing else."""

    own: int
    seconds: float
    """How long it takes to start with torch's compiler."""
    cores: int


Turns = Mapping[str, Sequence[Turn]]
Commands = Sequence[Sequence[str]]


# -- contestants -----------------------------------------------------------------------------------


def _pytest(folder: Path, *options: str, test: str = "") -> list[str]:
    words = ["-q", "-p", "no:cacheprovider", f"--junitxml={folder / 'pytest.xml'}", *options]
    return [sys.executable, "-m", "pytest", *words, f"{TESTS}{test}"]


def _run(device: str, specs: Path, *options: str) -> Callable[[Path], Commands]:
    command = [sys.executable, "-m", "torch_conformance", "run", str(specs), "--backend", device]
    return lambda folder: [[*command, "--out", str(folder / "run"), *options]]


_SCRIPT = """\
import torch
def fn(x): return torch.tanh(x) * torch.sigmoid(x) + torch.relu(x) * {number}
torch.manual_seed(0)
x = torch.randn(32, 100).to({device!r})
torch.testing.assert_close(torch.compile(fn)(x), fn(x))
"""


def _script(_: Path, device: str) -> Commands:
    # as after an edit: no kernel of it is in torch's caches
    number = time.time_ns() % 997 + 2
    return [[sys.executable, "-c", _SCRIPT.format(number=number, device=device)]]


def contestants(device: str) -> dict[str, Callable[[Path], Commands]]:
    """Return who takes part, in the order of the table: the commands, given a folder, one after
    the other.
    """
    tests = sorted(f"::test_case[{path.stem}]" for path in SPECS.glob("*.yaml"))
    return {
        ONE_PROCESS: lambda folder: [_pytest(folder)],
        "pytest-xdist -n 2": lambda folder: [_pytest(folder, "-n", "2")],
        NEW_PROCESS: lambda folder: [_pytest(folder / "last", test=test) for test in tests],
        RUNNER: _run(device, SPECS),
        ONE_AT_A_TIME: _run(device, SPECS, "--jobs", "1"),
        ONE_SPEC: _run(device, SPECS / "activations.yaml"),
        ONE_SCRIPT: functools.partial(_script, device=device),
    }


# -- measuring -------------------------------------------------------------------------------------


def take_turn(
    name: str, commands: Callable[[Path], Commands], arguments: argparse.Namespace
) -> Turn:
    """Run one contestant once, in a temporary folder that is empty."""
    with tempfile.TemporaryDirectory(prefix="isolation-") as temporary:
        folder = Path(temporary)
        run = folder / "run"
        variables = environment(folder, arguments.device)
        if name in WARMS:
            for command in commands(folder / "first"):
                subprocess.run(command, env=variables, capture_output=True, check=True)
        begun = time.time()
        cost = measure(
            commands(folder),
            environment=variables,
            cores=arguments.cores,
            interval=arguments.interval,
            log=folder / "log.txt",
        )
        if (folder / "pytest.xml").exists():
            cases = ET.parse(folder / "pytest.xml").getroot().iter("testcase")
            names = {case.get("name", "")[10:-1]: float(case.get("time", "nan")) for case in cases}
            return Turn(cost=cost, seconds=names)
        if not run.is_dir():
            return Turn(cost=cost)
        lines = (run / "run.jsonl").read_text("ascii").splitlines()
        records = [record for record in map(json.loads, lines) if record["kind"] == "case"]
        phases = [item for record in records for item in record["phases"].items()]
        return Turn(
            cost=cost,
            seconds={record["name"]: record["seconds"] for record in records},
            compiles=sum(seconds for phase, seconds in phases if phase in COMPILES),
            before_first=min(path.stat().st_mtime for path in run.glob("cases/*/std*.txt")) - begun,
        )


def environment(folder: Path, device: str) -> dict[str, str]:
    """Return the variables of a contestant: this process's own, without caches that an earlier run
    could have filled.
    """
    (folder / "tmp").mkdir()
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TORCHINDUCTOR_", "TRITON_CACHE"))
    }
    path = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    return {
        **variables,
        "TMPDIR": str(folder / "tmp"),
        "BENCH_DEVICE": device,
        "PYTHONPATH": path,
    }


def bare_torch(cores: frozenset[int]) -> Bare:
    """Measure a process that has imported torch, with the threads of a template; and the start of
    torch's compiler, the best of three.
    """
    threads = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    variables = {**os.environ, **dict.fromkeys(threads, "1")}
    waits = [sys.executable, "-c", "import sys, torch; print(flush=True); sys.stdin.read()"]
    pipe = subprocess.PIPE
    with subprocess.Popen(waits, env=variables, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        anonymous_kb = kilobytes(process.pid, "status", b"RssAnon:")
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        starts = [sys.executable, "-c", "import torch._inductor.compile_fx"]
        subprocess.run(starts, env=variables, check=True)
        seconds.append(time.perf_counter() - begin)
    return Bare(anonymous_kb, min(seconds), len(cores))


# -- figures: None where a contestant did not run --------------------------------------------------


def median(values: Sequence[float]) -> float | None:
    """Return the median; None of nothing."""
    return statistics.median(values) if values else None


def pairs(name: str, against: str, turns: Turns) -> Iterator[tuple[Turn, Turn]]:
    """Yield the turns of two contestants of each round in which both took part."""
    return zip(turns.get(name, ()), turns.get(against, ()), strict=False)


def ratio(name: str, against: str, turns: Turns) -> float | None:
    """Return the median over the rounds of a contestant's wall seconds in times of another's."""
    return median([mine.cost.wall / other.cost.wall for mine, other in pairs(name, against, turns)])


def overhead(turns: Turns) -> float | None:
    """Return the seconds that a case takes longer in a process of its own than in pytest's one
    process.
    """
    return median(
        [
            mine.seconds[case] - other.seconds[case]
            for mine, other in pairs(ONE_AT_A_TIME, ONE_PROCESS, turns)
            for case in mine.seconds
        ]
    )


def over_one_process(turns: Turns) -> float | None:
    """Return the wall seconds of a case that the runner takes longer than pytest in one process."""
    return median(
        [
            (mine.cost.wall - other.cost.wall) / len(other.seconds)
            for mine, other in pairs(RUNNER, ONE_PROCESS, turns)
        ]
    )


def over_floor(turns: Turns, bare: Bare) -> float | None:
    """Return the median of the runner's wall seconds in times of its floor."""
    return median(
        [
            turn.cost.wall / (bare.seconds + turn.compiles / bare.cores)
            for turn in turns.get(RUNNER, ())
        ]
    )


def most(turns: Turns, size: str, less: int = 0) -> float | None:
    """Return the largest size of the runner's rounds, in megabytes; None where it was not
    sampled.
    """
    sizes = [getattr(turn.cost, size) for turn in turns.get(RUNNER, ())]
    return (max(sizes) - less) / MEGABYTE if sizes and all(sizes) else None


def figures(turns: Turns, bare: Bare, device: str) -> dict[str, tuple[float | None, float]]:
    """Return each figure of a device, with the most that it may be."""
    memory = {
        "template above a bare import, MB": (most(turns, "template_own", bare.own), 190),
        "the runner's own process, MB": (most(turns, "first_peak"), 80),
    }
    if device == "cuda":
        return {"wall of a case over one process, s": (over_one_process(turns), 0.5), **memory}
    return {
        "runner / pytest in one process, wall": (ratio(RUNNER, ONE_PROCESS, turns), 0.6),
        "runner / a new process a test, wall": (ratio(RUNNER, NEW_PROCESS, turns), 0.15),
        "runner / its floor, wall": (over_floor(turns, bare), 1.1),
        "one spec / a script, wall": (ratio(ONE_SPEC, ONE_SCRIPT, turns), 1.1),
        "overhead of a case, s": (overhead(turns), 0.15),
        **memory,
    }


# -- the report ------------------------------------------------------------------------------------


def row(name: str, turns: Turns) -> list[str]:
    """Return the row of a contestant: medians over the rounds, and wall seconds in times of
    pytest's one process.
    """
    turns_of_name = turns[name]
    peak = median([turn.cost.peak for turn in turns_of_name])
    figures = [
        (median([turn.cost.wall for turn in turns_of_name]), 1),
        (ratio(name, ONE_PROCESS, turns), 2),
        (median([turn.cost.cpu for turn in turns_of_name]), 1),
        (peak and peak / MEGABYTE, 0),
        (median([turn.before_first for turn in turns_of_name if turn.before_first is not None]), 1),
        (
            median(
                [statistics.median(turn.seconds.values()) for turn in turns_of_name if turn.seconds]
            ),
            2,
        ),
    ]
    return [name, *("-" if value is None else f"{value:.{digits}f}" for value, digits in figures)]


def machine(cores: frozenset[int]) -> dict[str, str]:
    """Return what the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return {
        "cpu": next(models, platform.machine()),
        "cores": f"{len(cores)} of {os.cpu_count()}",
        "python": platform.python_version(),
        **{name: importlib.metadata.version(name) for name in ("torch", "pytest")},
    }


def main() -> int:
    """Measure, print the table and the bounds, and return 1 when one is passed."""
    arguments = _arguments()
    adopt_orphans()
    everyone = contestants(arguments.device)
    if unknown := set(arguments.only) - set(everyone):
        raise SystemExit(f"--only {min(unknown)}: there are: {'; '.join(everyone)}")
    playing = arguments.only or [*everyone]
    bare = bare_torch(arguments.cores)
    turns: dict[str, list[Turn]] = {name: [] for name in playing}
    for number in range(arguments.rounds):
        # another one begins each round: who runs first finds the machine colder
        shift = number * max(len(playing) // arguments.rounds, 1) % len(playing)
        for name in [*playing[shift:], *playing[:shift]]:
            turns[name].append(take_turn(name, everyone[name], arguments))
            wall = turns[name][-1].cost.wall
            print(f"round {number + 1}: {name}: {wall:.1f} s", file=sys.stderr, flush=True)
    facts = machine(arguments.cores)
    print(", ".join(f"{name} {value}" for name, value in facts.items()))
    print(f"{arguments.device}, median of {arguments.rounds}\n")
    columns = ("contestant", "wall s", "ratio", "CPU s", "peak MB", "first s", "a case s")
    print("\n".join(table(columns, [row(name, turns) for name in playing])), end="\n\n")
    values = figures(turns, bare, arguments.device)
    print("\n".join(table(("bound", "figure", "at most", ""), map(_judged, values.items()))))
    return int(any(figure is not None and figure > limit for figure, limit in values.values()))


def _judged(item: tuple[str, tuple[float | None, float]]) -> list[object]:
    name, (figure, limit) = item
    if figure is None:
        return [name, "-", limit, "not checked"]
    return [name, f"{figure:.2f}", limit, "holds" if figure <= limit else "MISSED"]


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    add = parser.add_argument
    add("--device", choices=["cpu", "cuda"], default="cpu", help="where the cases run (cpu)")
    add("--rounds", type=int, default=3, help="how often each contestant runs (3)")
    add("--only", action="append", default=[], metavar="NAME", help="this contestant; may repeat")
    mine = frozenset(os.sched_getaffinity(0))
    add("--cores", type=_cores, default=mine, metavar="N,N", help="run on these cores: 0,1")
    often = "seconds between looks at the memory; 0 for none (0.2)"
    add("--interval", type=float, default=0.2, metavar="S", help=often)
    return parser.parse_args()


def _cores(text: str) -> frozenset[int]:
    return frozenset(map(int, text.split(",")))


if __name__ == "__main__":
    sys.exit(main())
