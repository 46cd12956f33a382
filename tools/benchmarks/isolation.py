"""What a process for each case costs, beside what others pay for theirs: ``python
tools/benchmarks/isolation.py``.

The same cases (``cases/test_cases.py`` as plain pytest tests, ``specs/`` as specs) are run by each
contestant, in rounds; each round runs every contestant once, beginning with another one. Ratios are
taken within a round, and their median over the rounds is what is judged. Absolute times say little
on a shared machine.

- Every test and every case has an inductor cache folder of its own. What torch keeps in the
  temporary folder (precompiled headers) each
  contestant finds empty, so that each pays for it once.
- What the runner keeps between runs (what a zygote builds to warm up) it finds from its second
  round on.
- All contestants run with torch's defaults but the runner, which compiles with one thread in each
  worker.
- CPU seconds are of all processes. Memory is the largest sum of proportional set sizes, looked at
  every ``--interval`` seconds.
- *Seconds before the first case*: from the runner's start to the file of the first worker's output.
  They are part of its wall seconds.
- *Overhead of a case*: the case's seconds in the journal of a run with ``--jobs 1`` (from before
  its worker is made until it is reaped),
  less what the same test takes in pytest in one process, set-up and tear-down included; the median
  over the cases and rounds. What each
  pays once (imports, vector ISA, precompiled headers) falls on its first case, and so not on the
  median.
- *The floor*: a bare start of torch and its compiler, and the seconds that the cases compile, over
  the cores. *One spec* is the loop of who
  edits a spec, beside a script that compiles the same: the second run of each in one temporary
  folder.
- *The template above a bare import*: the most of its own memory (resident, and no file's), less
  that of a process that has imported torch.
  Resident sets stand beside it: they count the pages of libraries too, of which the machine has one
  copy for all processes.

Exit code 1 when a bound is passed; a bound of a contestant that was left out or is not installed is
not checked, and said so.
"""

import argparse
import functools
import importlib.metadata
import importlib.util
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
from dataclasses import asdict, dataclass
from pathlib import Path

from processes import MEGABYTE, Cost, adopt_orphans, measure, resident

ROOT = Path(__file__).resolve().parents[2]
CASES = ROOT / "tools" / "benchmarks" / "cases"
SPECS = ROOT / "tools" / "benchmarks" / "specs"
PYTHON = sys.executable

ONE_PROCESS = "pytest, one process"
NEW_PROCESS = "pytest, a new process a test"
RUNNER = "runner"
ONE_AT_A_TIME = "runner --jobs 1"
ONE_SPEC = "runner, one spec"
ONE_SCRIPT = "a script, one function"

COMPILES = frozenset(["trace", "lower", "autotune", "codegen", "kernel build"])
"""The phases of a case in which torch compiles."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """Someone who runs all cases: the commands, given a folder of its own, one after the other."""

    name: str
    commands: Callable[[Path], Sequence[Sequence[str]]]
    missing: str = ""
    """Why it cannot take part here."""
    warms: bool = False
    """Whether it runs once before it is measured, in the same temporary folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """One run of one contestant."""

    cost: Cost
    seconds: Mapping[str, float]
    """Of each case; empty where the contestant does not say."""
    outside: Mapping[str, float]
    """Of each case, the seconds in no phase of the worker."""
    compiles: float
    """Seconds in which its cases compile, together; 0 where the contestant does not say."""
    before_first: float | None
    """Seconds until the first case began."""


Turns = Mapping[str, Sequence[Turn]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """The most that a figure may be; ``figure`` returns None where who it is about did not run."""

    name: str
    limit: float
    figure: Callable[[Turns, "Bare"], float | None]
    devices: frozenset[str] = frozenset({"cpu", "cuda"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Bare:
    """A process that has imported torch and nothing else."""

    resident: int
    own: int
    seconds: float
    """How long it takes to start with torch's compiler, over the cores that the contestants have.
    """
    cores: int


# -- contestants -----------------------------------------------------------------------------------


def pytest_command(folder: Path, *options: str) -> Sequence[Sequence[str]]:
    """Return the one command that runs all tests."""
    return [
        [
            PYTHON,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"--junitxml={folder / 'pytest.xml'}",
            *options,
            str(CASES),
        ]
    ]


def process_a_test(_: Path) -> Sequence[Sequence[str]]:
    """Return a command for each test."""
    return [
        [
            PYTHON,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            f"{CASES / 'test_cases.py'}::{test}",
        ]
        for test in tests()
    ]


def tests() -> list[str]:
    """Return the names of the tests, read and not imported."""
    lines = (CASES / "test_cases.py").read_text("utf-8").splitlines()
    return [line[4 : line.index("(")] for line in lines if line.startswith("def test_")]


def run_command(folder: Path, *options: str, device: str) -> Sequence[Sequence[str]]:
    """Return the one command that runs all specs."""
    return [
        [
            PYTHON,
            "-m",
            "torch_conformance",
            "run",
            str(SPECS),
            "--backend",
            device,
            "--out",
            str(folder / "run"),
            *options,
        ]
    ]


def contestants(device: str) -> list[Contestant]:
    """Return who takes part, in the order of the table."""

    def plugin(name: str, module: str, *options: str) -> Contestant:
        missing = "" if importlib.util.find_spec(module) else f"{module} is not installed"
        return Contestant(
            name=name, commands=functools.partial(_pytest_with, options=options), missing=missing
        )

    def runner(name: str, *options: str) -> Contestant:
        return Contestant(
            name=name,
            commands=functools.partial(_run_with, options=options, device=device),
            missing="",
        )

    return [
        Contestant(name=ONE_PROCESS, commands=pytest_command),
        plugin("pytest-xdist -n 2", "xdist", "-n", "2"),
        Contestant(name=NEW_PROCESS, commands=process_a_test),
        runner(RUNNER),
        runner(ONE_AT_A_TIME, "--jobs", "1"),
        Contestant(name=ONE_SPEC, commands=functools.partial(_one_spec, device=device), warms=True),
        Contestant(
            name=ONE_SCRIPT, commands=functools.partial(_one_script, device=device), warms=True
        ),
    ]


_ONE_SCRIPT = """\
import torch
def fn(x): return torch.tanh(x) * torch.sigmoid(x) + torch.relu(x) * {number}
torch.manual_seed(0)
x = torch.randn(32, 100).to({device!r})
torch.testing.assert_close(torch.compile(fn)(x), fn(x))
"""


def _one_script(_: Path, device: str) -> Sequence[Sequence[str]]:
    # as after an edit: no kernel of it is in torch's caches
    return [[PYTHON, "-c", _ONE_SCRIPT.format(number=time.time_ns() % 997 + 2, device=device)]]


def _one_spec(folder: Path, device: str) -> Sequence[Sequence[str]]:
    return [
        [
            PYTHON,
            "-m",
            "torch_conformance",
            "run",
            str(SPECS / "activations.yaml"),
            "--backend",
            device,
            "--out",
            str(folder / "run"),
        ]
    ]


def _pytest_with(folder: Path, options: Sequence[str]) -> Sequence[Sequence[str]]:
    return pytest_command(folder, *options)


def _run_with(folder: Path, options: Sequence[str], device: str) -> Sequence[Sequence[str]]:
    return run_command(folder, *options, device=device)


# -- measuring -------------------------------------------------------------------------------------


def take_turn(contestant: Contestant, arguments: argparse.Namespace) -> Turn:
    """Run one contestant once, in a temporary folder that is empty."""
    with tempfile.TemporaryDirectory(prefix="isolation-") as name:
        folder = Path(name)
        variables = environment(folder, arguments.device)
        if contestant.warms:
            for command in contestant.commands(folder / "first"):
                subprocess.run(
                    command,
                    cwd=ROOT,
                    env=variables,
                    stdout=subprocess.DEVNULL,
                    stderr=subprocess.DEVNULL,
                    check=True,
                )
            (folder / "begun").touch()
        cost = measure(
            contestant.commands(folder),
            cwd=ROOT,
            environment=variables,
            cores=arguments.cores,
            interval=arguments.interval,
            log=folder / "log.txt",
        )
        outside: dict[str, float] = {}
        compiles = 0.0
        seconds = _pytest_seconds(folder / "pytest.xml")
        before_first = None
        if (folder / "run").is_dir():
            seconds, outside, compiles = _journal_seconds(folder / "run" / "run.jsonl")
            before_first = _first_case(folder / "run") - (folder / "begun").stat().st_mtime
        return Turn(
            cost=cost,
            seconds=seconds,
            outside=outside,
            compiles=compiles,
            before_first=before_first,
        )


def environment(folder: Path, device: str) -> dict[str, str]:
    """Return the variables of a contestant: this process's own, without caches that an earlier run
    could have filled.
    """
    temporary = folder / "tmp"
    temporary.mkdir()
    (folder / "begun").touch()
    variables = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("TORCHINDUCTOR_", "TRITON_CACHE"))
    }
    path = os.pathsep.join(
        filter(None, [str(ROOT), str(ROOT / "tools" / "benchmarks"), os.environ.get("PYTHONPATH")])
    )
    return {**variables, "TMPDIR": str(temporary), "BENCH_DEVICE": device, "PYTHONPATH": path}


def _pytest_seconds(report: Path) -> dict[str, float]:
    if not report.exists():
        return {}
    found = ET.parse(report).getroot().iter("testcase")
    return {
        case.get("name", "").removeprefix("test_").replace("_", "-"): float(case.get("time", "nan"))
        for case in found
    }


def _journal_seconds(journal: Path) -> tuple[dict[str, float], dict[str, float], float]:
    with journal.open(encoding="ascii") as stream:
        cases = [record for record in map(json.loads, stream) if record["kind"] == "case"]
    seconds = {case["name"]: case["seconds"] for case in cases}
    compiles = sum(
        taken for case in cases for phase, taken in case["phases"].items() if phase in COMPILES
    )
    return (
        seconds,
        {case["name"]: case["seconds"] - sum(case["phases"].values()) for case in cases},
        compiles,
    )


def _first_case(run: Path) -> float:
    """Return when the first worker's output was opened; a worker that prints nothing leaves the
    file as it was then.
    """
    return min(path.stat().st_mtime for path in run.glob("cases/*/std*.txt"))


def bare_torch(cores: frozenset[int]) -> Bare:
    """Measure a process that has imported torch, with the threads of a template; and the start of
    torch's compiler, the best of three.
    """
    variables = {
        **os.environ,
        **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1"),
    }
    sizes = resident(
        [PYTHON, "-c", "import sys, torch; print(flush=True); sys.stdin.read()"],
        environment=variables,
    )
    seconds = []
    for _ in range(3):
        begin = time.perf_counter()
        subprocess.run(
            [PYTHON, "-c", "import torch._inductor.compile_fx"], env=variables, check=True
        )
        seconds.append(time.perf_counter() - begin)
    return Bare(resident=sizes[0], own=sizes[1], seconds=min(seconds), cores=len(cores))


# -- figures ---------------------------------------------------------------------------------------


def ratio(name: str, against: str, turns: Turns) -> float | None:
    """Return the median over the rounds of a contestant's wall seconds in times of another's."""
    if name not in turns or against not in turns:
        return None
    return statistics.median(
        mine.cost.wall / other.cost.wall
        for mine, other in zip(turns[name], turns[against], strict=True)
    )


def overhead(turns: Turns) -> float | None:
    """Return the seconds that a case takes longer in a process of its own than in pytest's one
    process.
    """
    if ONE_AT_A_TIME not in turns or ONE_PROCESS not in turns:
        return None
    pairs = zip(turns[ONE_AT_A_TIME], turns[ONE_PROCESS], strict=True)
    return statistics.median(
        mine.seconds[case] - other.seconds[case] for mine, other in pairs for case in mine.seconds
    )


def over_one_process(turns: Turns) -> float | None:
    """Return the wall seconds of a case that the runner takes longer than pytest in one process."""
    if RUNNER not in turns or ONE_PROCESS not in turns:
        return None
    pairs = zip(turns[RUNNER], turns[ONE_PROCESS], strict=True)
    return statistics.median(
        (mine.cost.wall - other.cost.wall) / len(other.seconds) for mine, other in pairs
    )


def over_floor(turns: Turns, bare: Bare) -> float | None:
    """Return the median of the runner's wall seconds in times of its floor."""
    return _median(
        [
            turn.cost.wall / (bare.seconds + turn.compiles / bare.cores)
            for turn in turns.get(RUNNER, ())
        ]
    )


def most(turns: Turns, size: Callable[[Cost], int]) -> float | None:
    """Return the largest size of the runner's rounds, in megabytes; None where it was not
    sampled.
    """
    sizes = [size(turn.cost) for turn in turns.get(RUNNER, ())]
    return max(sizes) / MEGABYTE if sizes and all(sizes) else None


def template_above(turns: Turns, bare: Bare) -> float | None:
    """Return what a template has of its own above a bare import of torch, in megabytes."""
    peak = most(turns, lambda cost: cost.template_own)
    return None if peak is None else peak - bare.own / MEGABYTE


CPU = frozenset({"cpu"})
BOUNDS = (
    Bound(
        name="runner / pytest in one process, wall",
        limit=0.6,
        figure=lambda turns, _: ratio(RUNNER, ONE_PROCESS, turns),
        devices=CPU,
    ),
    Bound(
        name="runner / a new process a test, wall",
        limit=0.15,
        figure=lambda turns, _: ratio(RUNNER, NEW_PROCESS, turns),
        devices=CPU,
    ),
    Bound(name="runner / its floor, wall", limit=1.1, figure=over_floor, devices=CPU),
    Bound(
        name="one spec / a script, wall",
        limit=1.1,
        figure=lambda turns, _: ratio(ONE_SPEC, ONE_SCRIPT, turns),
        devices=CPU,
    ),
    Bound(
        name="overhead of a case, s",
        limit=0.15,
        figure=lambda turns, _: overhead(turns),
        devices=CPU,
    ),
    Bound(
        name="wall of a case over one process, s",
        limit=0.5,
        figure=lambda turns, _: over_one_process(turns),
        devices=frozenset({"cuda"}),
    ),
    Bound(name="template above a bare import, MB", limit=190, figure=template_above),
    Bound(
        name="the runner's own process, MB",
        limit=80,
        figure=lambda turns, _: most(turns, lambda cost: cost.first_peak),
    ),
)


# -- the table -------------------------------------------------------------------------------------


def table(everyone: Sequence[Contestant], turns: Turns) -> Iterator[str]:
    """Yield the table's lines: medians over the rounds, and wall seconds in times of pytest's one
    process.
    """
    yield f"{'':<30}{'wall s':>9}{'ratio':>8}{'CPU s':>9}{'peak MB':>9}{'first s':>9}{'a case s':>10}"  # noqa: E501 - Python 3.11 breaks no line within a field
    for contestant in everyone:
        taken = turns.get(contestant.name, ())
        if not taken:
            yield f"{contestant.name:<30}  {contestant.missing or 'left out'}"
            continue
        wall, cpu, peak = (
            statistics.median(getattr(turn.cost, name) for turn in taken)
            for name in ("wall", "cpu", "peak")
        )
        against = ratio(contestant.name, ONE_PROCESS, turns)
        first = [turn.before_first for turn in taken if turn.before_first is not None]
        each = [statistics.median(turn.seconds.values()) for turn in taken if turn.seconds]
        shown = [
            (against, 2),
            (cpu, 1),
            (peak / MEGABYTE or None, 0),
            (_median(first), 1),
            (_median(each), 2),
        ]
        widths = (8, 9, 9, 9, 10)
        cells = "".join(
            _cell(value, width, digits)
            for (value, digits), width in zip(shown, widths, strict=True)
        )
        yield f"{contestant.name:<30}{wall:>9.1f}{cells}"


def _median(values: Sequence[float]) -> float | None:
    return statistics.median(values) if values else None


def _cell(value: float | None, width: int, digits: int) -> str:
    return f"{'-':>{width}}" if value is None else f"{value:>{width}.{digits}f}"


def judged(turns: Turns, bare: Bare, device: str) -> list[tuple[Bound, float | None]]:
    """Return the figure for each bound of the device; None where it could not be had."""
    return [(bound, bound.figure(turns, bare)) for bound in BOUNDS if device in bound.devices]


def notes(turns: Turns, bare: Bare) -> Iterator[str]:
    """Yield what stands beside the bounds: resident sets, and the seconds in no phase of a
    worker.
    """
    if turns.get(RUNNER):
        compiles = statistics.median(turn.compiles for turn in turns[RUNNER])
        yield (
            f"the runner's floor: {bare.seconds:.1f} s for a start of torch, and {compiles:.1f} s "
            f"of compiles over {bare.cores} cores"
        )
    peak = most(turns, lambda cost: cost.template_peak)
    if peak is not None:
        yield (
            f"resident at most: template {peak:.0f} MB, a bare import "
            f"{bare.resident / MEGABYTE:.0f} MB, mapped files and all"
        )
    outside = [value for turn in turns.get(ONE_AT_A_TIME, ()) for value in turn.outside.values()]
    if outside:
        yield (
            "seconds of a case in no phase of its worker (--jobs 1), median: "
            f"{statistics.median(outside):.3f}"
        )


def machine(cores: frozenset[int]) -> dict[str, str]:
    """Return what the figures were measured on."""
    lines = Path("/proc/cpuinfo").read_text("utf-8", "replace").splitlines()
    model = next(
        (line.partition(":")[2].strip() for line in lines if line.startswith("model name")),
        platform.machine(),
    )
    versions = {name: importlib.metadata.version(name) for name in ("torch", "pytest")}
    return {
        "cpu": model,
        "cores": f"{len(cores)} of {os.cpu_count()}",
        "python": platform.python_version(),
        **versions,
    }


def main() -> int:
    """Measure, print the table and the bounds, and return 1 when one is passed."""
    arguments = _arguments()
    adopt_orphans()
    everyone = contestants(arguments.device)
    names = [one.name for one in everyone]
    if unknown := set(arguments.only) - set(names):
        raise SystemExit(
            f"--only {min(unknown)}: no such contestant; there are: {'; '.join(names)}"
        )
    playing = [
        one
        for one in everyone
        if not one.missing and (not arguments.only or one.name in arguments.only)
    ]
    bare = bare_torch(arguments.cores)
    turns: dict[str, list[Turn]] = {one.name: [] for one in playing}
    for number in range(arguments.rounds):
        # another one begins each round: who runs first finds the machine colder
        shift = number * max(len(playing) // arguments.rounds, 1) % len(playing)
        for contestant in [*playing[shift:], *playing[:shift]]:
            turn = take_turn(contestant, arguments)
            turns[contestant.name].append(turn)
            print(
                f"round {number + 1}: {contestant.name}: {turn.cost.wall:.1f} s",
                file=sys.stderr,
                flush=True,
            )
    known = machine(arguments.cores)
    print(", ".join(f"{name} {value}" for name, value in known.items()))
    print(f"{len(tests())} cases on {arguments.device}, median of {arguments.rounds}")
    print("\n".join(table(everyone, turns)))
    found = judged(turns, bare, arguments.device)
    for bound, figure in found:
        verdict = (
            "not checked" if figure is None else "holds" if figure <= bound.limit else "MISSED"
        )
        print(f"{bound.name:<40}{_cell(figure, 9, 2)}{bound.limit:>9.2f}  {verdict}")
    print("\n".join(notes(turns, bare)))
    if arguments.json:
        bounds = [
            {"name": bound.name, "limit": bound.limit, "figure": figure} for bound, figure in found
        ]
        rounds = {name: [asdict(turn) for turn in taken] for name, taken in turns.items()}
        arguments.json.write_text(
            json.dumps(
                {"machine": known, "bare": asdict(bare), "rounds": rounds, "bounds": bounds},
                indent=1,
            )
            + "\n"
        )
    return int(any(figure is not None and figure > bound.limit for bound, figure in found))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument(
        "--device",
        choices=["cpu", "cuda"],
        default="cpu",
        help="where the cases run (default: cpu)",
    )
    parser.add_argument(
        "--rounds", type=int, default=3, help="how often each contestant runs (default: 3)"
    )
    parser.add_argument("--quick", action="store_true", help="one round")
    parser.add_argument(
        "--only",
        action="append",
        default=[],
        metavar="NAME",
        help="only this contestant (repeatable)",
    )
    parser.add_argument(
        "--cores",
        type=_cores,
        default=frozenset(os.sched_getaffinity(0)),
        metavar="N,N",
        help="run on these cores: 0,1",
    )
    parser.add_argument(
        "--interval",
        type=float,
        default=0.2,
        metavar="S",
        help="how often memory is looked at; 0 for never (default: 0.2)",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write every figure of every round here too"
    )
    arguments = parser.parse_args()
    arguments.rounds = 1 if arguments.quick else arguments.rounds
    return arguments


def _cores(text: str) -> frozenset[int]:
    try:
        cores = frozenset(map(int, text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"'{text}' is no list of cores; write 0,1") from error
    if not cores <= os.sched_getaffinity(0):
        raise argparse.ArgumentTypeError(
            f"'{text}': this process may use {sorted(os.sched_getaffinity(0))}"
        )
    return cores


if __name__ == "__main__":
    sys.exit(main())
