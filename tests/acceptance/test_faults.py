"""What happens to a case happens to no other: memory that ends, compilers that hang, floods of
output.

``tests/specs/hostile/README.md`` has the table of faults, of which ``test_hostile_workers`` runs
those that need no option.
"""

import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fakes import ROOT, prestarted, prestarted_program
from tests.ran import processes_below
from torch_conformance.machine.scratch import open_untrusted
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run

pytestmark = pytest.mark.torch

SPECS = ROOT / "tests" / "specs"


def results_of(out: Path) -> Mapping[str, CaseResult]:
    """Return the results of a run that came to its end, by id."""
    run = read_run(out / "run.jsonl")
    assert run.footer is not None
    return {result.case_id: result for result in run.results}


# -- memory ----------------------------------------------------------------------------------------

EATERS = ("child-memory", "endless-allocation", "mapped-files", "orphan-memory", "shared-memory")


@pytest.fixture(scope="module")
def eaten(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, CaseResult]:
    out = tmp_path_factory.mktemp("memory") / "out"
    # two at once: what they take before they are killed must be there
    done = prestarted_program(
        "run",
        SPECS / "hostile-memory",
        "--memory-limit",
        "600MiB",
        "--jobs",
        2,
        "--timeout",
        60,
        "--out",
        out,
    )
    assert done.returncode == 1, done.stderr
    assert processes_below(out) == []
    return results_of(out)


@pytest.mark.parametrize("name", EATERS)
def test_who_takes_too_much_memory_is_killed_and_the_limit_is_named(eaten, name):
    result = eaten[f"{name}[backend=host]"]
    assert result.outcome is Outcome.CRASH
    told = re.fullmatch(
        r"killed by SIGKILL while in phase 'api' \(it used (\d+) MiB, more than the 600 MiB "
        r"of --memory-limit\)",
        result.reason,
    )
    assert told, result.reason
    assert int(told[1]) >= 600  # whole MiB, rounded down: 600.4 is more than the limit
    assert result.seconds < 60


@pytest.mark.parametrize("name", ["below-limit", "passing-case"])
def test_who_takes_less_is_left_alone(eaten, name):
    assert eaten[f"{name}[backend=host]"].outcome is Outcome.PASS


# -- output ----------------------------------------------------------------------------------------


def test_a_flood_of_output_fills_neither_disk_nor_memory(tmp_path):
    """A gigabyte each on stdout and stderr: the report has the end of both, and says that what came
    before is lost.
    """
    out = tmp_path / "out"
    command = [
        sys.executable,
        "-m",
        "torch_conformance",
        "run",
        str(SPECS / "hostile"),
        "--select",
        "gigabyte-output[*",
        "--out",
        str(out),
    ]
    with subprocess.Popen(
        command, cwd=ROOT, env=prestarted(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as runner:
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
            assert (
                stream.readline()
                == b"[more than 64 MiB were printed: the output before this line is lost]\n"
            )


def _most_memory(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM:")), 0)
