"""What happens to a case happens to no other: memory that ends, compilers that hang, floods of output.

``tests/specs/hostile/README.md`` has the table of faults, of which ``test_hostile_workers`` runs those that need no option.
"""

import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.journal import read_run
from runner.system.safe_open import open_untrusted
from tests.fakes import ROOT, prestarted, prestarted_program, program

pytestmark = pytest.mark.torch

SPECS = ROOT / "tests" / "specs"


def results_of(out: Path) -> Mapping[str, CaseResult]:
    """Return the results of a run that came to its end, by id."""
    run = read_run(out / "run.jsonl")
    assert not run.truncated
    return {result.case_id: result for result in run.results}


def processes_below(folder: Path) -> list[str]:
    """Return the command lines of the processes that stand in a folder, or were given a file in it."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                words = (entry / "cmdline").read_bytes().decode(errors="replace").replace("\0", " ")
                found += [words] if str(folder) in words or os.readlink(entry / "cwd").startswith(str(folder)) else []
        except OSError:
            continue
    return found


# -- memory ---------------------------------------------------------------------------------------------------------

EATERS = ("child-memory", "endless-allocation", "mapped-files", "orphan-memory", "shared-memory")


@pytest.fixture(scope="module")
def eaten(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, CaseResult]:
    out = tmp_path_factory.mktemp("memory") / "out"
    # two at once: what they take before they are killed must be there
    done = prestarted_program("run", SPECS / "hostile-memory", "--memory-limit", "600MiB", "--jobs", 2, "--timeout", 60, "--out", out)
    assert done.returncode == 1, done.stderr
    assert processes_below(out) == []
    return results_of(out)


def test_every_way_to_take_memory_is_tried(eaten):
    assert {result.name for result in eaten.values()} == {*EATERS, "below-limit", "passing-case"}


@pytest.mark.parametrize("name", EATERS)
def test_who_takes_too_much_memory_is_killed_and_the_limit_is_named(eaten, name):
    result = eaten[f"{name}[backend=host]"]
    assert result.outcome is Outcome.CRASH
    told = re.fullmatch(
        r"killed by SIGKILL while in phase 'api' \(it used (\d+) MiB, more than the 600 MiB of --memory-limit\)", result.reason
    )
    assert told, result.reason
    assert int(told[1]) > 600
    assert result.seconds < 60


@pytest.mark.parametrize("name", ["below-limit", "passing-case"])
def test_who_takes_less_is_left_alone(eaten, name):
    assert eaten[f"{name}[backend=host]"].outcome is Outcome.PASS


# -- output ---------------------------------------------------------------------------------------------------------


def test_a_flood_of_output_fills_neither_disk_nor_memory(tmp_path):
    """A gigabyte each on stdout and stderr: the report has the end of both, and says that what came before is lost."""
    out = tmp_path / "out"
    command = [sys.executable, "-m", "runner", "run", str(SPECS / "hostile"), "--select", "gigabyte-output[*", "--out", str(out)]
    with subprocess.Popen(command, cwd=ROOT, env=prestarted(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as runner:
        peak = 0
        end = time.monotonic() + 240
        while runner.poll() is None:
            assert time.monotonic() < end, runner.kill()
            peak = max(peak, _most_memory(runner.pid))
            time.sleep(0.05)
    assert 0 < peak < 100 << 20
    assert sum(path.lstat().st_blocks * 512 for path in out.rglob("*")) < 200 << 20
    (result,) = results_of(out).values()
    assert result.outcome is Outcome.PASS
    for text, name in ((result.stdout, "stdout.txt"), (result.stderr, "stderr.txt")):
        assert text.endswith("\nthe last line\n")
        with open_untrusted(out / result.folder / name) as stream:
            assert stream.readline() == b"[more than 64 MiB were printed: what stood here is lost]\n"


def _most_memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)


# -- the compiler ---------------------------------------------------------------------------------------------------

COMPILER = """\
#!/bin/sh
if [ -e "$0.hangs" ]; then
    echo $$ >> "$0.pids"
    sleep 600
fi
exec g++ "$@"
"""

NEIGHBOUR = """\
summary: A library call on the host gives what Python gives
backends: [host]
env: {{CXX: {compiler}}}
steps:
  - api: {{call: operator.add, args: [1, 2], as: three}}
    expect: [{{equals: {{three: 3}}}}]
"""

HANG_IN_COMPILER = """\
summary: The compiler hangs when the case asks it, and not before
backends: [cpu]
env: {{CXX: {compiler}}}
timeout: 8
prelude: |
  open("{compiler}.hangs", "w").close()
function: |
  def fn(x):
      return x.exp() + 1
inputs: [{{rand: [8, 8]}}]
expect: [{{close: {{to: eager}}}}]
"""


@pytest.mark.nightly(reason="compiles until a deadline; test_hangs ends cases at their deadline in five ways")
def test_a_hang_in_the_compiler_is_the_end_of_one_case(tmp_path):
    compiler = tmp_path / "slow-g++"
    compiler.write_text(COMPILER)
    compiler.chmod(0o755)
    (tmp_path / "specs").mkdir()
    (tmp_path / "specs" / "hang.yaml").write_text(HANG_IN_COMPILER.format(compiler=compiler))
    (tmp_path / "specs" / "neighbour.yaml").write_text(NEIGHBOUR.format(compiler=compiler))
    done = program("run", tmp_path / "specs", "--out", tmp_path / "out", "--timeout", 120)
    results = results_of(tmp_path / "out")
    assert results["neighbour[backend=host]"].outcome is Outcome.PASS, done.stderr
    hung = results["hang[backend=cpu]"]
    assert hung.outcome is Outcome.TIMEOUT
    assert hung.reason == "outlived its deadline while in phase 'kernel build'"
    assert "subprocess.py" in hung.stderr
    assert compiler.with_name("slow-g++.pids").read_text().split(), "the compiler was never asked"
    assert processes_below(tmp_path) == []


# -- a new Python ---------------------------------------------------------------------------------------------------


@pytest.mark.nightly(reason="imports torch for one case; test_hostile_workers finds what a fork leaves behind")
def test_what_a_worker_without_a_zygote_leaves_behind_ends_with_the_run(tmp_path):
    text = (SPECS / "hostile" / "leaked-daemon.yaml").read_text("utf-8")
    (tmp_path / "leaked.yaml").write_text("isolation: process\n" + text.replace("prelude: |\n", "prelude: |\n  import subprocess\n"))
    done = program("run", tmp_path / "leaked.yaml", "--timeout", 60, "--out", tmp_path / "out")
    (result,) = results_of(tmp_path / "out").values()
    assert (result.outcome, result.isolation) == (Outcome.PASS, "process"), done.stderr
    (left,) = (tmp_path / "out").glob("cases/*/left-behind")
    assert not Path("/proc", left.read_text()).exists()
    assert processes_below(tmp_path) == []
