"""How quickly the commands that need no torch answer, as ratios in one run: ``python
tools/benchmarks/startup.py``.

Absolute times say little on a shared machine; each command is timed in turn with what it is
compared with, and the medians are divided.

| measured | against | bound |
|---|---|---|
| ``--help`` | a bare program with ``argparse`` | 2.0 |
| ``validate`` of all shipped specs | 3 times ``python -c "import yaml, jsonschema"``, and 1 ms for each spec | 1 |
| ``list``, ``validate`` of one spec | ``python -c "import yaml, jsonschema"`` | 3 |
| what each other shipped spec adds to that | the same | 0.04 |
| ``validate`` of generated specs | ``check-jsonschema`` on the same files | 1 |

The time of a process is that of its CPU, with ``--wall`` that of the clock, which on a shared
machine depends on the others. The shipped specs do not reach their bound yet: every spec is read,
checked against torch's source and expanded, to tens of thousands of cases.
"""  # noqa: E501 - a table

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PYTHON = sys.executable
PROGRAM = [PYTHON, "-m", "torch_conformance"]
LIBRARIES = [PYTHON, "-c", "import yaml, jsonschema"]
BARE = [PYTHON, "-c", "import argparse; argparse.ArgumentParser().parse_args()"]
COMMANDS = ("list", "validate")

ONE = ROOT / "specs" / "basics" / "dynamic-graph-all-sizes.yaml"
"""A spec like most."""

SPEC_BOUND = 0.04
"""The most that one spec more may take, in times of the imports."""

IMPORTS, SECONDS_OF_SPEC = 3.0, 0.001
"""The bound of all shipped specs: so many times the imports, and so long for each spec."""

SPEC = """\
summary: Generated spec number {number} adds and multiplies what it is given
covers: ["generated::test_{number}"]
tags: [generated]
backends: [cpu]
config: {{fx_graph_cache: true}}
function: |
  def fn(x, y):
      return x * {number} + y
inputs:
  - {{rand: [{size}], dtype: float32}}
  - {{rand: [{size}], dtype: float32}}
expect:
  - close: {{to: eager}}
  - counter: {{inductor.fxgraph_cache_miss: 1, inductor.fxgraph_cache_hit: 0}}
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two commands and the most that the first may take, in times of the second."""

    name: str
    command: Sequence[str]
    against: Sequence[str]
    bound: float
    pairs: int


def seconds(command: Sequence[str]) -> float:
    """Return the seconds of one run, of the CPU or with ``--wall`` of the clock; a command that
    fails is no measurement.
    """
    begin, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    # as a user has it: with the bytecode that the first run leaves
    environment = {
        name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"
    }
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        check=False,
        timeout=240,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    took = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    took = time.perf_counter() - begin if "--wall" in sys.argv else took
    if done.returncode != 0:
        raise SystemExit(
            f"{' '.join(command[:4])} ... ended with {done.returncode}: "
            f"{done.stderr.decode()[-500:]}"
        )
    return took


def measure(comparison: Comparison) -> tuple[float, float, float]:
    """Return the medians of both commands, run in turn after one warm-up, and their ratio."""
    if comparison.pairs > 1:
        seconds(comparison.command)
        seconds(comparison.against)
    ours, theirs = [], []
    for _ in range(comparison.pairs):
        ours.append(seconds(comparison.command))
        theirs.append(seconds(comparison.against))
    return (
        statistics.median(ours),
        statistics.median(theirs),
        statistics.median(ours) / statistics.median(theirs),
    )


def generate(folder: Path, count: int) -> list[str]:
    """Write ``count`` specs and return their paths."""
    paths = []
    for number in range(count):
        path = folder / f"{number // 1000:03d}" / f"generated-{number:05d}.yaml"
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(SPEC.format(number=number, size=1 + number % 64), encoding="ascii")
        paths.append(str(path))
    return paths


def comparisons(folder: Path, count: int, pairs: int) -> list[Comparison]:
    """Return what is compared."""
    files = generate(folder / "specs", count)
    schema = str(ROOT / "schemas" / "spec.schema.json")
    return [
        Comparison(
            name="--help", command=[*PROGRAM, "--help"], against=BARE, bound=2.0, pairs=pairs
        ),
        *(
            Comparison(
                name=f"{name}, one spec",
                command=[*PROGRAM, name, str(ONE)],
                against=LIBRARIES,
                bound=3.0,
                pairs=pairs,
            )
            for name in COMMANDS
        ),
        Comparison(
            name=f"validate {count} specs",
            command=[*PROGRAM, "validate", str(folder / "specs")],
            against=[PYTHON, "-m", "check_jsonschema", "--schemafile", schema, *files],
            bound=1.0,
            pairs=1 if count > 1000 else pairs,
        ),
    ]


def of_shipped_specs(name: str, pairs: int) -> dict[str, tuple[float, ...]]:
    """Return medians for a command on all shipped specs, and for one spec more: its seconds, those
    of its bound, their ratio; the bound.
    """
    counted = subprocess.run(
        [*PROGRAM, "validate", "--json"], cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=240
    )
    count = json.loads(counted.stdout)["specs"]
    whole, added, imports = [], [], []
    for _ in range(pairs):
        one = seconds([*PROGRAM, name, str(ONE)])
        whole.append(seconds([*PROGRAM, name]))
        added.append((whole[-1] - one) / (count - 1))
        imports.append(seconds(LIBRARIES))
    limits = [IMPORTS * other + SECONDS_OF_SPEC * count for other in imports]
    rows = {
        f"{name}, {count} specs": (whole, limits, 1.0),
        f"{name}, a spec more": (added, imports, SPEC_BOUND),
    }
    return {
        row: (
            *map(
                statistics.median,
                (mine, theirs, (a / b for a, b in zip(mine, theirs, strict=True))),
            ),
            bound,
        )
        for row, (mine, theirs, bound) in rows.items()
        if name == "validate" or mine is added
    }


def main() -> int:
    """Measure, print a table, and exit 1 when a bound is passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--pairs", type=int, default=11, help="runs of each command")
    parser.add_argument("--specs", type=int, default=10_000, help="how many specs are generated")
    parser.add_argument(
        "--wall", action="store_true", help="measure the time of the clock, not of the CPU"
    )
    arguments = parser.parse_args()
    passed = True
    print(f"{'measured':<24}{'seconds':>10}{'against':>10}{'ratio':>8}{'bound':>8}")
    with tempfile.TemporaryDirectory() as folder:
        for comparison in comparisons(Path(folder), arguments.specs, arguments.pairs):
            ours, theirs, ratio = measure(comparison)
            passed = passed and ratio <= comparison.bound
            print(
                f"{comparison.name:<24}{ours:>10.3f}{theirs:>10.3f}{ratio:>8.2f}{comparison.bound:>8.1f}",
                flush=True,
            )
    for name in COMMANDS:
        for row, (ours, theirs, ratio, bound) in of_shipped_specs(name, arguments.pairs).items():
            passed = passed and ratio <= bound
            print(f"{row:<24}{ours:>10.4f}{theirs:>10.3f}{ratio:>8.3f}{bound:>8.2f}", flush=True)
    return 0 if passed else 1


if __name__ == "__main__":
    sys.exit(main())
