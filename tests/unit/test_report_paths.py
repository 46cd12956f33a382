"""Where reports and runs may lie: links, named pipes, folders that are not there, and things that are no folder or no journal."""

import contextlib
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.model.diagnostics import UsageError
from runner.record.run_folder import RunFolder, find_run, open_run
from runner.report.junit import write_junit, write_stub
from tests.fakes import ROOT
from tests.unit.test_junit import HEADER


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def claim(path: str) -> None:
    RunFolder(path=Path("run"), run_id="run").claim_reports({"--junit": Path(path)})


def test_a_report_goes_to_the_target_of_a_link_and_the_link_stays() -> None:
    Path("real").mkdir()
    for name, target in (("link.xml", "real/a.xml"), ("missing.xml", "real/b.xml")):
        Path(name).symlink_to(target)
    Path("real/a.xml").write_text("old")
    for name in ("link.xml", "missing.xml"):
        claim(name)
        write_junit(Path(name), HEADER, ())
        assert Path(name).is_symlink()
        assert Path(name).resolve().read_text().startswith("<?xml")


def test_a_report_is_written_once_into_a_named_pipe() -> None:
    os.mkfifo("pipe")
    claim("pipe")
    reader = subprocess.Popen([sys.executable, "-c", "print(open('pipe').read())"], stdout=subprocess.PIPE, text=True)
    write_stub(Path("pipe"), HEADER)
    write_junit(Path("pipe"), HEADER, ())
    read = reader.communicate(timeout=60)[0]
    assert read.count("<?xml") == 1
    assert "<testsuites" in read
    assert Path("pipe").is_fifo()


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("folder", "this is a folder"),
        ("self", "this link leads to itself"),
        ("file/report.xml", r"cannot write to .*file"),
    ],
)
def test_a_path_at_which_no_report_can_be(path: str, words: str) -> None:
    Path("folder").mkdir()
    Path("file").write_text("")
    Path("self").symlink_to("self")
    with pytest.raises(UsageError, match=words):
        claim(path)


def test_a_journal_that_is_no_file_is_named() -> None:
    for name, words in (("pipe", "a named pipe"), ("folder", "a folder"), ("link", "a link that leads nowhere")):
        Path(name).mkdir()
        journal = Path(name) / "run.jsonl"
        {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda path: path.symlink_to("none")}[name](journal)
        with pytest.raises(UsageError, match=f"{name}/run.jsonl is {words}"):
            find_run(name)


# -- one report of two runs -----------------------------------------------------------------------------------------

HOLD = """
import sys, time
from pathlib import Path
from runner.record.run_folder import open_run
folder = open_run(Path("first"))
folder.claim_reports({"--junit": Path(sys.argv[1])})
print(1, flush=True)
time.sleep(600)
"""


@pytest.fixture
def live() -> Iterator[Callable[[str], "subprocess.Popen[bytes]"]]:
    """Start a run that writes its report to a path until the test ends."""
    with contextlib.ExitStack() as started:

        def start(path: str) -> "subprocess.Popen[bytes]":
            variables = {**os.environ, "PYTHONPATH": str(ROOT)}
            process = subprocess.Popen([sys.executable, "-c", HOLD, path], env=variables, stdout=subprocess.PIPE)
            started.enter_context(process)
            started.callback(process.kill)
            assert process.stdout is not None
            process.stdout.readline()
            return process

        yield start


@pytest.mark.parametrize("name", ["same.xml", "link.xml", "first/junit.xml", "x" * 250 + ".xml"])
def test_a_report_that_a_live_run_writes_is_refused_before_anything_is_made(live, capsys: pytest.CaptureFixture[str], name: str) -> None:
    Path("link.xml").symlink_to("same.xml")
    process = live("same.xml" if name in ("link.xml", "first/junit.xml") else name)
    specs = str(ROOT / "tests/specs/judged/host-pass.yaml")
    assert main(["run", specs, "--junit", name]) == 2
    told = capsys.readouterr().err
    assert f"--junit {name}: process {process.pid} writes the report" in told
    if "/" not in name:
        assert f"of its run in {Path('first').absolute()} to this file (wait for its end, end it, or name another file)" in told
    assert not Path("reports").exists()


def test_a_report_of_a_run_that_was_killed_is_free(live) -> None:
    process = live("same.xml")
    process.kill()
    process.wait(timeout=60)
    folder = open_run(Path("second"))
    folder.claim_reports({"--junit": Path("same.xml")})
    folder.release()
    assert not list(Path().glob(".*.lock"))
