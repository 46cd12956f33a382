"""The benchmarks measure what they say: figures come out as defined."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.fakes import ROOT
from tools.benchmarks.isolation import ONE_AT_A_TIME, ONE_PROCESS, SPECS, Turn, overhead, ratio
from tools.benchmarks.processes import Cost


def test_no_two_cases_compile_the_same_function() -> None:
    specs = [yaml.safe_load(path.read_text("utf-8")) for path in SPECS.glob("*.yaml")]
    assert len({spec["function"] for spec in specs}) == len(specs) >= 24


def turn(wall: float, **seconds: float) -> Turn:
    return Turn(cost=Cost(wall=wall), seconds=seconds)


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_not_that_of_the_medians() -> None:
    turns = {"a": [turn(s) for s in (1.0, 10.0, 3.0)], "b": [turn(s) for s in (2.0, 40.0, 3.0)]}
    assert ratio("a", "b", turns) == 0.5
    assert ratio("a", "c", turns) is None


def test_the_overhead_is_taken_case_by_case() -> None:
    ours = turn(9.0, x=1.5, y=2.0, first=9.0)
    theirs = turn(9.0, first=1.0, y=1.75, x=1.0)
    assert overhead({ONE_AT_A_TIME: [ours], ONE_PROCESS: [theirs]}) == 0.5


ORPHAN = """\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    end = time.process_time() + 0.4
    while time.process_time() < end:
        pass
    os._exit(0)
"""

MEASURE = """\
import json, os, sys
from pathlib import Path
from tools.benchmarks.processes import adopt_orphans, measure
adopt_orphans()
commands = [[sys.executable, "-c", sys.argv[1]]] * 2
cores = frozenset(os.sched_getaffinity(0))
log = Path(sys.argv[2])
cost = measure(commands, environment=os.environ, cores=cores, interval=0.02, log=log)
print(json.dumps([cost.cpu, cost.peak, cost.first_peak]))
"""


def measured(program: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    words: Any = [sys.executable, "-c", MEASURE, program, folder / "log"]
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    return subprocess.run(
        words, cwd=folder, env=variables, capture_output=True, text=True, check=False, timeout=120
    )


def test_cpu_seconds_of_what_nobody_waited_for_are_counted(tmp_path: Path) -> None:
    cpu, peak, first = json.loads(measured(ORPHAN, tmp_path).stdout)
    assert cpu >= 0.8  # two programs, 0.4 s each
    assert min(peak, first) > 1_000_000


def test_a_contestant_that_fails_is_no_measurement(tmp_path: Path) -> None:
    done = measured("print('why'); raise SystemExit(3)", tmp_path)
    assert done.returncode == 1
    assert "ended with 3:\nwhy" in done.stderr
