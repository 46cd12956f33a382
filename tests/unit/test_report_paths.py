"""Where reports and runs may lie: links, named pipes, folders that are not there, and things that are no folder or no journal."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.core.diagnostics import InvalidSpecs, UsageError
from runner.language.backends import load_backends
from runner.language.waivers import load_waivers
from runner.record.run_folder import RunFolder, find_run, open_run
from runner.report.junit import write_junit, write_stub
from tests.unit.test_junit import HEADER


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def claim(path: str) -> None:
    RunFolder(path=Path("run"), run_id="run").claim_junit(Path(path))


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
    read = reader.communicate(timeout=30)[0]
    assert read.count("<?xml") == 1
    assert "<testsuites" in read
    assert Path("pipe").is_fifo()


def test_a_report_into_a_device() -> None:
    claim("/dev/null")
    write_junit(Path("/dev/null"), HEADER, ())
    assert Path("/dev/null").is_char_device()


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


def test_folders_of_a_report_are_made() -> None:
    claim("none/below/report.xml")
    assert Path("none/below").is_dir()


def test_a_journal_that_is_no_file_is_named() -> None:
    for name, words in (("pipe", "a named pipe"), ("folder", "a folder"), ("link", "a link that leads nowhere")):
        Path(name).mkdir()
        journal = Path(name) / "run.jsonl"
        {"pipe": os.mkfifo, "folder": os.mkdir, "link": lambda path: path.symlink_to("none")}[name](journal)
        with pytest.raises(UsageError, match=f"{name}/run.jsonl is {words}"):
            find_run(name)


def test_out_that_is_no_folder() -> None:
    Path("file").write_text("")
    os.mkfifo("pipe")
    for name, words in (("file", "a file"), ("pipe", "a named pipe")):
        with pytest.raises(UsageError, match=f"--out {name}: this is {words}, and no folder; name another"):
            open_run(Path(name))


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir])
def test_files_of_backends_and_waivers_are_called_what_they_are(make: object) -> None:
    make("it.yaml")  # type: ignore[operator]
    for read, words in ((load_backends, "a file of backends"), (lambda paths: load_waivers(paths, None), "a waiver file")):
        with pytest.raises(InvalidSpecs) as caught:
            read([Path("it.yaml")])
        assert f"is not a regular file ({words} is a text file)" in str(caught.value.diagnostics[0])


def test_merge_names_a_journal_that_is_no_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("run").mkdir()
    os.mkfifo("run/run.jsonl")
    assert main(["merge", "run"]) == 2
    assert "run/run.jsonl is a named pipe" in capsys.readouterr().err
