"""Whether time grows in a line with the cases, and memory stays small: ``python benchmarks/scale.py``.

Generated specs of 100 cases each, 1,000, 10,000 and 100,000 cases together, that do nothing: they require a module that no machine has, so
that ``run`` records each as UNAVAILABLE and everything but the execution is measured. Besides, ``--executed`` such cases are executed.

| measured | is |
|---|---|
| ``validate``, ``list``, ``list --json`` | the commands |
| ``run`` | reading, journal, JUnit and the report on the terminal |
| ``read`` | the run's journal read back, and JUnit written from it |
| ``execute`` | ``run`` of cases that call a function of the standard library, each in a process of its own |

Two bounds. The peak of the resident set of the command's own process stays under 1 GiB. A case more costs, between
the second size and the third, at most ``GROWTH`` times the CPU seconds that it costs between the first and the second: constant costs,
which would hide growth, fall out of it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from processes import adopt_orphans, measure

ROOT = Path(__file__).resolve().parent.parent
PYTHON = sys.executable
PROGRAM = [PYTHON, "-m", "runner"]

SIZES = (1_000, 10_000, 100_000)
POINTS = 100
"""Cases of one spec."""

MEMORY = 1 << 30
GROWTH = 1.5
"""A line would be 1; what is above it is for the clock, and for caches of the processor that a small run fits into."""

NOTHING = 4
"""The exit code of a run in which no case could be executed."""

SPEC = """\
summary: Generated spec number {number} adds nothing to a number
tags: [generated]
backends: [host]
{requires}matrix: {{number: {numbers}}}
steps:
  - api: {{call: operator.pos, args: ["{{{{ number }}}}"], as: same}}
    expect: [{{equals: {{same: "{{{{ number }}}}"}}}}]
"""

READ = """\
import sys
from pathlib import Path
from runner.record.journal import read_run
from runner.report.junit import write_junit
run = read_run(Path(sys.argv[1], "run.jsonl"))
write_junit(Path(sys.argv[1], "again.xml"), run.header, run.results)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What one command took for some number of cases."""

    name: str
    cases: int
    seconds: float
    cpu: float
    """User and system seconds, of children too: the clock also counts what else the machine does."""
    resident: int
    """The peak, in bytes."""


def generate(folder: Path, cases: int, *, available: bool) -> Path:
    """Write specs of ``POINTS`` cases each, and return the folder that holds them."""
    specs = folder / f"specs-{cases}-{available}"
    requires = "" if available else "requires: [{module: no_machine_has_this_module}]\n"
    for number in range(-(-cases // POINTS)):
        path = specs / f"{number // 100:03d}" / f"generated-{number:05d}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        numbers = list(range(min(POINTS, cases - number * POINTS)))
        path.write_text(SPEC.format(number=number, requires=requires, numbers=numbers), encoding="ascii")
    return specs


def read(name: str, cases: int, command: Sequence[str], *, code: int = 0) -> Reading:
    """Run a command; one that ends otherwise than with ``code`` is no measurement."""
    with tempfile.TemporaryFile() as errors:
        begin = time.perf_counter()
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=errors, env={**os.environ, "PYTHONPATH": str(ROOT)})
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.perf_counter() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode != code:
            errors.seek(0)
            raise SystemExit(f"{' '.join(command[:5])} ended with {process.returncode}: {errors.read().decode()[-2000:]}")
    cpu = usage.ru_utime + usage.ru_stime
    return Reading(name=name, cases=cases, seconds=seconds, cpu=cpu, resident=usage.ru_maxrss * 1024)


def readings(folder: Path, cases: int) -> list[Reading]:
    """Return what each command takes for ``cases`` cases."""
    specs = str(generate(folder, cases, available=False))
    out = str(folder / f"run-{cases}")
    return [
        read("validate", cases, [*PROGRAM, "validate", specs]),
        read("list", cases, [*PROGRAM, "list", specs]),
        read("list --json", cases, [*PROGRAM, "list", "--json", specs]),
        read("run", cases, [*PROGRAM, "run", specs, "--out", out], code=NOTHING),
        read("read", cases, [PYTHON, "-c", READ, out]),
    ]


def execution(folder: Path, cases: int, jobs: str) -> Reading:
    """Return what it takes to execute cases that do nothing; the peak is the runner's own, without templates and workers."""
    specs = str(generate(folder, cases, available=True))
    cost = measure(
        [[*PROGRAM, "run", specs, "--jobs", jobs, "--out", str(folder / "executed")]],
        cwd=ROOT,
        environment={**os.environ, "PYTHONPATH": str(ROOT)},
        cores=frozenset(os.sched_getaffinity(0)),
        interval=0.2,
        log=folder / "log.txt",
    )
    return Reading(name="execute", cases=cases, seconds=cost.wall, cpu=cost.cpu, resident=cost.first_peak)


def growth(found: Mapping[int, Reading]) -> float | None:
    """Return how much more a case costs among many than among few; None with fewer than three sizes."""
    if len(found) < 3:
        return None
    few, some, many = (found[size] for size in sorted(found)[-3:])
    return ((many.cpu - some.cpu) / (many.cases - some.cases)) / ((some.cpu - few.cpu) / (some.cases - few.cases))


def main() -> int:
    """Measure, print a table, and return 1 when a bound is passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--sizes", type=_sizes, default=SIZES, metavar="N,N,N", help="numbers of cases (default: 1000,10000,100000)")
    parser.add_argument("--executed", type=int, default=1_000, metavar="N", help="cases to execute; 0 for none (default: 1000)")
    parser.add_argument("--jobs", default="auto", metavar="N", help="cases executed at once (default: auto)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the readings here too")
    arguments = parser.parse_args()
    adopt_orphans()
    found: list[Reading] = []
    print(f"{'measured':<14}{'cases':>8}{'seconds':>10}{'CPU s':>9}{'CPU ms a case':>15}{'peak MiB':>10}")
    with tempfile.TemporaryDirectory(prefix="scale-") as name:
        for cases in arguments.sizes:
            found.extend(_shown(readings(Path(name), cases)))
        if arguments.executed:
            found.extend(_shown([execution(Path(name), arguments.executed, arguments.jobs)]))
    passed = _judge(found)
    if arguments.json:
        arguments.json.write_text(json.dumps([asdict(reading) for reading in found], indent=1) + "\n")
    return 0 if passed else 1


def _judge(found: Sequence[Reading]) -> bool:
    """Print each bound; return whether all hold."""
    peak = max(found, key=lambda reading: reading.resident)
    passed = peak.resident < MEMORY
    print(f"peak {peak.resident >> 20} MiB ({peak.name}, {peak.cases} cases), bound {MEMORY >> 20}: {'holds' if passed else 'MISSED'}")
    for name in dict.fromkeys(reading.name for reading in found):
        grown = growth({reading.cases: reading for reading in found if reading.name == name})
        if grown is not None:
            is_line = grown <= GROWTH
            passed = passed and is_line
            print(f"{name}: a case more costs {grown:.2f} times as much among many, bound {GROWTH}: {'holds' if is_line else 'MISSED'}")
    return passed


def _shown(some: list[Reading]) -> list[Reading]:
    for one in some:
        milliseconds = one.cpu / one.cases * 1000
        print(f"{one.name:<14}{one.cases:>8}{one.seconds:>10.2f}{one.cpu:>9.2f}{milliseconds:>15.3f}{one.resident >> 20:>10}", flush=True)
    return some


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(sorted(map(int, text.split(","))))


if __name__ == "__main__":
    sys.exit(main())
