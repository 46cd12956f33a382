"""The folder of what a run needs only while it goes."""

import contextlib
import fcntl
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fakes import ROOT, environment
from torch_conformance.cli.parser import main
from torch_conformance.machine import scratch
from torch_conformance.model.outcomes import ExitCode


def forbidden(*_: object, **more: object) -> None:
    raise PermissionError(1, "Operation not permitted")


@pytest.fixture
def base(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    yield tmp_path
    for found in tmp_path.iterdir():  # so that pytest can remove it
        if found.is_dir() and not found.is_symlink():
            found.chmod(0o700)


# -- before the first case -------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["a b", "it's", 'say"so', "back\\slash", "tab\there", "line\nbreak"]
)
def test_path_with_characters_that_torch_splits_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / name / "below").mkdir(parents=True)
    assert "splits the compiler's command line" in scratch.problem_of(tmp_path / name / "below")


@pytest.mark.parametrize(
    ("room", "words"),
    [
        ((1 << 20, 1000), "1 MiB of free space, and a run needs at least 256 MiB"),
        ((0, None), "0 MiB of free space"),
        ((1 << 30, 3), "no free inodes"),
        ((1 << 30, None), ""),
    ],
)
def test_folder_without_free_space_is_refused(
    room: tuple[int, int | None], words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scratch, "_free", lambda _: room)
    found = scratch.problem_of(tmp_path)
    assert words in found
    assert bool(words) == bool(found)


def test_noexec_folder_is_refused_and_probe_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert scratch.problem_of(tmp_path) == ""
    monkeypatch.setattr("mmap.mmap", forbidden)
    assert "noexec" in scratch.problem_of(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("name", "word"), [("with space", "a space"), ("absent", "no such folder")]
)
def test_the_folder_is_named_before_anything_runs(
    name: str,
    word: str,
    here: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    (here / "with space").mkdir()
    monkeypatch.setenv("TMPDIR", str(here / name))
    assert (
        main(["run", str(ROOT / "tests" / "specs" / "judged" / "host-pass.yaml")]) == ExitCode.USAGE
    )
    said = capsys.readouterr().err
    assert f"TMPDIR={here / name}: " in said
    assert word in said
    assert not (here / "reports").exists()


# -- while it goes ---------------------------------------------------------------------------------


def test_a_shortage_is_seen_while_cases_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "No such file" in scratch.shortage(scratch.space_of(tmp_path / "run"))
    (tmp_path / "run").mkdir()
    assert scratch.shortage(scratch.space_of(tmp_path / "run")) == ""
    monkeypatch.setattr(scratch, "_free", lambda _: (4 << 20, None))
    assert f"no space is left in {tmp_path} (4 MiB free)" in scratch.shortage(
        scratch.space_of(tmp_path / "run")
    )
    monkeypatch.setattr(scratch, "_free", lambda _: (1 << 30, 1))
    assert "no room is left for files" in scratch.shortage(scratch.space_of(tmp_path / "run"))


# -- afterwards ------------------------------------------------------------------------------------

HOLD = """
import sys, time
from torch_conformance.cli.parser import main
from torch_conformance.machine import scratch
from torch_conformance.model.outcomes import ExitCode
one = scratch.make()
(one.path / "template-1" / "deep").mkdir(parents=True)
(one.path / "template-1" / "deep" / "file").write_text("x")
(one.path / "template-1" / "outside").symlink_to(sys.argv[1])
print(one.path, flush=True)
time.sleep(60)
"""


@pytest.fixture
def killed(base: Path) -> Path:
    """Return what a run leaves that was killed."""
    precious = base / "precious"
    precious.mkdir()
    (precious / "kept").touch()
    command = [sys.executable, "-c", HOLD, str(precious)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env=environment(TMPDIR=str(base))
    ) as process:
        try:
            assert process.stdout is not None
            path = Path(process.stdout.readline().strip())
            assert scratch.remove_dead(base) == 0, "its run lives"
            assert (path / "template-1").is_dir()
        finally:
            process.send_signal(signal.SIGKILL)
        process.wait(timeout=60)
    return path


def test_next_run_removes_folder_of_killed_run(killed: Path, base: Path) -> None:
    assert killed.is_dir()
    with contextlib.closing(scratch.make()) as one:
        assert not killed.exists()
        assert one.path.is_dir()
        assert (base / "precious" / "kept").exists()
    assert not one.path.exists()


def test_unwritable_folders_of_killed_run_are_removed(killed: Path, base: Path) -> None:
    (killed / "template-1" / "deep").chmod(0o500)
    (killed / "template-1").chmod(0)
    assert scratch.remove_dead(base) == 1
    assert not killed.exists()


def test_what_is_no_folder_of_a_dead_run_stays(killed: Path, base: Path) -> None:
    (base / "torch-conformance.link").symlink_to(killed)
    shared = base / "torch-conformance.shared"
    shared.mkdir()
    shared.chmod(0o777)
    (base / "torch-conformance-of-others").mkdir()
    (base / "torch-conformance.file").touch()
    assert scratch.remove_dead(base) == 1
    left = {entry.name for entry in base.iterdir()}
    assert left == {
        "precious",
        "torch-conformance-of-others",
        *(f"torch-conformance.{name}" for name in ("link", "shared", "file")),
    }


def test_a_file_system_without_locks_is_left_alone(
    base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(37, "No locks available")

    with monkeypatch.context() as patch:
        patch.setattr(fcntl, "flock", unsupported)
        one = scratch.make()
        assert scratch.remove_dead(base) == 0
    one.close()
    assert not one.path.exists()
