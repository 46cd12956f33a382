"""Runs that somebody stops, that the machine has no room for, and whose output nobody reads:
nothing that was judged is lost.

Every case here compiles nothing. A case waits only where CONFORMANCE_MARK is set, so that the same
specs can be gone on with.
"""

import contextlib
import errno
import os
import re
import resource
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from junitparser import JUnitXml

from tests.fakes import ROOT, environment, line_with, prestarted, prestarted_program
from tests.ran import called, normalised
from torch_conformance.model.outcomes import Outcome
from torch_conformance.record.journal import Run, read_run

pytestmark = pytest.mark.torch

SPEC = """
summary: Cases of which some fail, and the last ones wait to be stopped
backends: [host]
matrix: {number: [1, 2, 3, 4, 5, 6]}
prelude: |
  import os
  import subprocess
  import time

  def act():
      print("number", params.number)
      if params.number == 2:
          os.abort()
      if params.number >= 4 and "CONFORMANCE_MARK" in os.environ:
          subprocess.Popen(["sleep", "600"])
          with open("waiting", "w") as stream:
              stream.write(str(os.getpid()))
          while not os.path.exists(os.environ["CONFORMANCE_GO"]):
              time.sleep(0.02)
      return params.number % 3
steps:
  - api: {call: act, as: found}
    expect: [{equals: {found: 1}}]
"""
IDS = [f"six[backend=host,number={number}]" for number in range(1, 7)]
UNBROKEN = dict(
    zip(
        IDS,
        [Outcome.PASS, Outcome.CRASH, Outcome.FAIL, Outcome.PASS, Outcome.FAIL, Outcome.FAIL],
        strict=True,
    ),
)


@dataclass
class Started:
    """A run that goes on, in a session of its own."""

    process: "subprocess.Popen[str]"
    out: Path
    mark: str
    go: Path
    folder: Path
    """Where it has its temporary files."""

    def waiting(self, count: int) -> None:
        """Wait until so many cases wait."""
        waited(
            lambda: (
                len([path for path in self.out.glob("cases/*/waiting") if path.read_text()])
                == count
            )
        )

    def recorded(self, count: int) -> None:
        """Wait until so many cases stand in the journal."""
        waited(lambda: len(read_run(self.out / "run.jsonl").results) == count)

    def says(self, words: str) -> str:
        """Read standard error up to a line with these words."""
        return line_with(self.process, words)

    def ended(self, code: int) -> tuple[str, str]:
        stdout, stderr = self.process.communicate(timeout=60)
        assert self.process.returncode == code, stderr
        assert "Traceback" not in stderr
        waited(lambda: not list(processes_with(self.mark, self.folder)), seconds=10)
        return stdout, stderr

    @property
    def run(self) -> Run:
        return read_run(self.out / "run.jsonl")

    @property
    def outcomes(self) -> dict[str, Outcome]:
        return {str(result.case_id): result.outcome for result in self.run.results}


def waited(condition: Callable[[], Any], seconds: float = 90) -> Any:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(FileNotFoundError):
            if found := condition():
                return found
        assert time.monotonic() < deadline, "nothing happened"
        time.sleep(0.05)


def processes_with(mark: str, folder: Path) -> Iterator[int]:
    """Yield the processes whose environment has the mark, or that stand below the folder, as a
    prestarted zygote and its workers do.
    """
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and int(entry.name) != os.getpid():
                stands_there = Path(os.readlink(entry / "cwd")).is_relative_to(folder)
                if stands_there or mark.encode() in (entry / "environ").read_bytes():
                    yield int(entry.name)


@pytest.fixture
def spec(tmp_path: Path) -> Path:
    path = tmp_path / "six.yaml"
    path.write_text(SPEC)
    return path


@pytest.fixture
def start(tmp_path: Path, spec: Path) -> Iterator[Callable[..., Started]]:
    begun: list[Started] = []

    def starts(
        *more: object,
        jobs: int = 2,
        out: str = "out",
        env: Callable[..., dict[str, str]] = prestarted,
    ) -> Started:
        mark = f"conformance-test-{uuid.uuid4()}"
        go = tmp_path / f"go-{mark}"
        command = [
            sys.executable,
            "-m",
            "torch_conformance",
            "run",
            spec,
            "--out",
            tmp_path / out,
            "--jobs",
            jobs,
            *more,
        ]
        variables = env(CONFORMANCE_MARK=mark, CONFORMANCE_GO=str(go), TMPDIR=str(tmp_path))
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        process = subprocess.Popen(
            [str(word) for word in command],
            cwd=ROOT,
            env=variables,
            text=True,
            start_new_session=True,
            **pipes,
        )
        begun.append(Started(process, tmp_path / out, mark, go, tmp_path))
        return begun[-1]

    yield starts
    for one in begun:
        one.process.kill()
        one.process.communicate(timeout=60)


def resumed(out: Path, spec: Path, *more: object) -> "subprocess.CompletedProcess[str]":
    return called("run", spec, "--resume", out, *more, env=prestarted())


def junit(out: Path, name: str = "junit.xml") -> list[tuple[str, str | None]]:
    """Return each case of the report with the type of its element."""
    found = [case for suite in JUnitXml.fromfile(str(out / name)) for case in suite]
    return [(case.name, case.result[0].type if case.result else None) for case in found]


# -- Ctrl-C ----------------------------------------------------------------------------------------


def test_one_interrupt_finishes_what_runs_and_begins_nothing(start, spec):
    run = start()
    run.waiting(2)
    run.process.send_signal(signal.SIGINT)
    assert run.says("interrupted") == "interrupted: finishing 2 running cases; again stops now\n"
    run.go.touch()
    stdout, stderr = run.ended(130)
    assert run.outcomes == {
        **dict.fromkeys(IDS, Outcome.NOT_RUN),
        **{name: UNBROKEN[name] for name in IDS[:5]},
    }
    assert (run.run.results[-1].case_id, run.run.results[-1].reason) == (IDS[5], "interrupted")
    assert run.run.footer is not None
    assert (run.run.footer.interrupted, run.run.footer.exit_code) == (True, 130)
    assert [name for name, _ in junit(run.out)] == IDS
    assert junit(run.out)[5] == (IDS[5], "not-run")
    assert stdout.splitlines()[-1].startswith("executed 5 of 6 selected")
    assert f"--resume {run.out}" in stderr

    done = resumed(run.out, spec, "--jobs", "1")
    assert (done.returncode, run.outcomes) == (1, UNBROKEN), done.stderr
    assert [line.split()[1] for line in done.stderr.splitlines() if "six[" in line] == ["1/1"]
    assert not run.run.footer.interrupted


@pytest.mark.parametrize("signals", [[signal.SIGINT, signal.SIGINT], [signal.SIGTERM]])
def test_a_second_interrupt_stops_now_and_reports_all_the_same(start, signals):
    run = start()
    run.waiting(2)
    run.process.send_signal(signals[0])
    if len(signals) > 1:
        run.says("finishing 2 running cases")
    for number in signals[1:]:
        run.process.send_signal(number)
    run.ended(130)
    assert run.outcomes == {
        **dict.fromkeys(IDS, Outcome.NOT_RUN),
        **{name: UNBROKEN[name] for name in IDS[:3]},
    }
    assert {result.reason for result in run.run.results if result.outcome is Outcome.NOT_RUN} == {
        "interrupted"
    }
    assert [kind for _, kind in junit(run.out)] == [
        None,
        "crash",
        "equals",
        "not-run",
        "not-run",
        "not-run",
    ]
    assert not list(run.folder.glob("*torch-conformance*"))


def test_an_interrupt_while_torch_is_imported_ends_everything_too(start):
    run = start(env=environment)
    # torch is imported while the specs are read; the report begins when they are
    waited(lambda: (run.out / "junit.xml").exists())
    assert len(list(processes_with(run.mark, run.folder))) >= 2
    run.process.send_signal(signal.SIGINT)
    run.ended(130)
    assert set(run.outcomes.values()) == {Outcome.NOT_RUN}
    assert [name for name, _ in junit(run.out)] == IDS


OTHER_ROOM = pytest.mark.nightly(
    reason="a disk that fills, and one that is full at first, are tested by every run of the tests"
)


# -- SIGKILL, and going on -------------------------------------------------------------------------


def test_a_killed_run_that_is_gone_on_with_gives_the_report_of_an_unbroken_one(
    start, spec, tmp_path
):
    whole = called("run", spec, "--out", tmp_path / "whole", "--jobs", "2", env=prestarted())
    assert whole.returncode == 1
    run = start()
    run.waiting(2)
    run.process.kill()
    run.process.wait(timeout=60)
    waited(lambda: not list(processes_with(run.mark, run.folder)), seconds=10)
    assert run.run.footer is None
    assert run.outcomes == {name: UNBROKEN[name] for name in IDS[:3]}
    assert junit(run.out) == [("run", "truncated")]
    done = resumed(run.out, spec, "--jobs", "2")
    assert done.returncode == whole.returncode
    assert run.outcomes == UNBROKEN
    assert normalised(run.out) == normalised(tmp_path / "whole")
    # the end of a crash's stderr is cut by bytes, and lists what its process happened to have
    # imported
    without_place = [
        re.sub(r"report: .*|folder: .*|page: .*|seconds until .*|(?m:^ {4}.*)", "", text)
        for text in (done.stdout, whole.stdout)
    ]
    assert without_place[0] == without_place[1]


def test_a_run_that_is_still_going_on_is_not_gone_on_with(start, spec):
    run = start()
    run.waiting(2)
    done = resumed(run.out, spec, "--jobs", "2")
    assert done.returncode == 2
    assert f"{run.out}: process {run.process.pid} is writing a run there" in done.stderr
    run.go.touch()
    run.ended(1)
    assert run.outcomes == UNBROKEN


# -- no room ---------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """Return a folder on a file system of 256 KiB."""
    place = tmp_path / "small"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=256k", "none", place]
    mounted = subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)
    if mounted.returncode:
        pytest.skip(f"no file system can be mounted here: {mounted.stderr.strip()}")
    yield place
    subprocess.run(["umount", "-l", place], check=True, timeout=240)


def fill(place: Path) -> None:
    with (place / "ballast").open("wb", buffering=0) as ballast, contextlib.suppress(OSError):
        while True:
            ballast.write(bytes(1 << 10))


def test_a_disk_that_fills_while_a_run_goes_on_ends_it_and_says_so(start, small, spec):
    run = start(out="small/out")
    run.waiting(2)
    fill(small)
    run.go.touch()
    _, stderr = run.ended(1)
    (told,) = [line for line in stderr.splitlines() if line.startswith("torch-conformance: ")]
    assert re.fullmatch(
        rf"torch-conformance: cannot write {re.escape(str(run.out))}/\S+: No space left on device",
        told,
    )
    assert "bug" not in stderr
    assert run.run.footer is None
    assert junit(run.out) == [("run", "truncated")]
    (small / "ballast").unlink()
    done = resumed(run.out, spec, "--jobs", "2")
    assert (done.returncode, run.outcomes) == (1, UNBROKEN), done.stderr


def test_a_full_disk_is_told_before_anything_is_run(small, spec):
    fill(small)
    done = called("run", spec, "--out", small / "out", env=prestarted())
    assert (done.returncode, "No space left on device" in done.stderr) == (2, True), done.stderr
    assert "Traceback" not in done.stderr


@OTHER_ROOM
def test_a_journal_that_may_not_grow_ends_the_run_and_leaves_the_stub(spec, tmp_path):
    """A quota, or ``ulimit -f``: here the process may write no file that is longer than half a
    journal.
    """
    called("run", spec, "--out", tmp_path / "first", "--jobs", "2", env=prestarted())
    limit = (tmp_path / "first" / "run.jsonl").stat().st_size // 2
    options = {"preexec_fn": lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))}
    done = prestarted_program("run", spec, "--out", tmp_path / "out", "--jobs", "2", **options)
    told = f"torch-conformance: cannot write {tmp_path}/out/run.jsonl: {os.strerror(errno.EFBIG)}"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (1, told)
    assert "Traceback" not in done.stderr
    assert junit(tmp_path / "out") == [("run", "truncated")]
    again = resumed(tmp_path / "out", spec, "--jobs", "2")
    assert again.returncode == 1, again.stderr
    assert normalised(tmp_path / "out") == normalised(tmp_path / "first")


# -- nobody reads ----------------------------------------------------------------------------------


def test_a_reader_that_leaves_changes_nothing(start, spec):
    run = start()
    for stream in (run.process.stdout, run.process.stderr):
        assert stream is not None
    run.waiting(2)
    run.process.stdout.close()
    run.process.stderr.close()
    run.go.touch()
    assert run.process.wait(timeout=60) == 1
    assert run.outcomes == UNBROKEN
    assert run.run.footer is not None
    assert [name for name, _ in junit(run.out)] == IDS
