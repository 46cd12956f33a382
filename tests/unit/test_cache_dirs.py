"""The folder that outlives a run: where it lies, what is refused, and which objects go first. Nothing here imports torch."""

import os
import stat
import time
from pathlib import Path

import pytest

from runner.cli.parser import main
from runner.core.diagnostics import UsageError
from runner.system import cache_dirs

EMPTY = Path()
"""``--object-cache`` without a folder."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_CONFORMANCE_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


# -- where it lies --------------------------------------------------------------------------------------------------


def test_the_variable_the_users_cache_then_the_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("TORCH_CONFORMANCE_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_dirs.home() == tmp_path / ".cache" / "torch-conformance"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert cache_dirs.home() == tmp_path / ".cache" / "torch-conformance"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert cache_dirs.home() == tmp_path / "xdg" / "torch-conformance"
    monkeypatch.setenv("TORCH_CONFORMANCE_CACHE", str(tmp_path / "mine"))
    assert cache_dirs.home() == tmp_path / "mine"


def test_a_folder_is_made_for_its_user_alone(home: Path) -> None:
    assert cache_dirs.probe_cache_folder() == home
    assert mode(home) == 0o700
    assert cache_dirs.object_folder(EMPTY) == home / "objects"
    assert mode(home / "objects") == 0o700
    assert cache_dirs.object_folder(EMPTY) == home / "objects", "a second run finds it"


def test_no_option_makes_no_folder(home: Path) -> None:
    assert cache_dirs.object_folder(None) is None
    assert not home.exists()


def test_a_folder_that_is_named(home: Path, tmp_path: Path) -> None:
    assert cache_dirs.object_folder(tmp_path / "a" / "b") == tmp_path / "a" / "b"
    assert mode(tmp_path / "a" / "b") == 0o700
    assert not home.exists()


# -- what is refused ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(home: Path, bits: int) -> None:
    home.mkdir()
    home.chmod(bits)
    for wanted in (cache_dirs.probe_cache_folder, lambda: cache_dirs.object_folder(EMPTY), lambda: cache_dirs.object_folder(home)):
        with pytest.raises(UsageError, match=rf"other users can write to this folder \(mode {bits:04o}\); chmod 700 it"):
            wanted()


@pytest.mark.parametrize("bits", [0o700, 0o755, 0o750])
def test_a_folder_that_others_can_read_is_taken(home: Path, bits: int) -> None:
    home.mkdir()
    home.chmod(bits)
    assert cache_dirs.probe_cache_folder() == home


def test_a_link_is_refused_wherever_it_leads(home: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    home.symlink_to(tmp_path / "there")
    with pytest.raises(UsageError, match="this is a symbolic link; name the folder itself"):
        cache_dirs.probe_cache_folder()
    home.unlink()
    home.symlink_to(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="this is a symbolic link"):
        cache_dirs.object_folder(EMPTY)
    assert not (tmp_path / "nowhere").exists()


def test_the_folder_of_objects_may_be_no_link_either(home: Path, tmp_path: Path) -> None:
    cache_dirs.probe_cache_folder()
    (home / "objects").symlink_to(tmp_path)
    with pytest.raises(UsageError, match=r"objects: this is a symbolic link"):
        cache_dirs.object_folder(EMPTY)


def test_a_file_is_refused(home: Path) -> None:
    home.write_text("")
    with pytest.raises(UsageError, match="this is not a folder"):
        cache_dirs.probe_cache_folder()


def test_another_users_folder_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(mode=0o700)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(UsageError, match=rf"another user \(uid {mine}\)"):
        cache_dirs.probe_cache_folder()


def test_a_home_that_cannot_be_written_to_keeps_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("TORCH_CONFORMANCE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_dirs.probe_cache_folder() is None
    with pytest.raises(UsageError, match=r"--object-cache .*; name another folder"):
        cache_dirs.object_folder(EMPTY)
    monkeypatch.setenv("TORCH_CONFORMANCE_CACHE", str(tmp_path / "file" / "inner"))
    with pytest.raises(UsageError, match="this folder cannot be created; name another one"):
        cache_dirs.probe_cache_folder()


def test_a_path_that_was_meant_to_be_run_is_no_folder_of_objects(home: Path, tmp_path: Path) -> None:
    specs = tmp_path / "specs"
    specs.mkdir()
    (specs / "one.yaml").write_text("")
    with pytest.raises(UsageError, match=r"holds other files \('one.yaml'\).*write the paths before --object-cache"):
        cache_dirs.object_folder(specs)


def test_a_run_is_refused_before_it_has_a_folder(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, good: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "spec.yaml").write_text(good)
    home.mkdir()
    home.chmod(0o777)
    for options in ([], ["--object-cache"]):
        assert main(["run", "spec.yaml", "--out", "out", *options]) == 2
        assert not (tmp_path / "out").exists()


# -- what goes ------------------------------------------------------------------------------------------------------


def entry(folder: Path, digit: str, size: int, age: float) -> Path:
    path = folder / (digit * 2) / f"{digit * 64}.object"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"x" * size)
    os.utime(path, (time.time() - age, time.time() - age))
    return path


def test_what_was_used_longest_ago_goes_first(tmp_path: Path) -> None:
    old, middle, new = (entry(tmp_path, digit, 100, age) for digit, age in (("a", 300), ("b", 200), ("c", 100)))
    assert cache_dirs.prune(tmp_path, 300) == 0
    assert cache_dirs.prune(tmp_path, 299) == 1
    assert [path.exists() for path in (old, middle, new)] == [False, True, True]
    os.utime(middle)
    assert cache_dirs.prune(tmp_path, 100) == 1
    assert [path.exists() for path in (middle, new)] == [True, False]
    assert cache_dirs.prune(tmp_path, 99) == 1
    assert cache_dirs.prune(tmp_path, 0) == 0


def test_nothing_but_entries_is_deleted(tmp_path: Path) -> None:
    folder, outside = tmp_path / "objects", tmp_path / "outside"
    folder.mkdir()
    outside.mkdir()
    stranger = outside / f"{'d' * 64}.object"
    stranger.write_bytes(b"y" * 1000)
    (folder / "dd").symlink_to(outside)
    (folder / "ee").mkdir()
    other = folder / "ee" / "notes.txt"
    other.write_bytes(b"z" * 1000)
    link = folder / "ee" / f"{'e' * 64}.object"
    link.symlink_to(stranger)
    mine = entry(folder, "f", 100, 10)
    assert cache_dirs.prune(folder, 0) == 2
    assert stranger.exists()
    assert other.exists()
    assert not link.is_symlink()
    assert not mine.exists()


def test_what_a_killed_worker_left_half_written_goes_after_a_while(tmp_path: Path) -> None:
    (tmp_path / "aa").mkdir()
    left, fresh = tmp_path / "aa" / ".0a1b.part", tmp_path / "aa" / ".0a1c.part"
    left.write_text("")
    fresh.write_text("")
    os.utime(left, (0, 0))
    cache_dirs.prune(tmp_path)
    assert [left.exists(), fresh.exists()] == [False, True]


def test_a_folder_that_is_gone_holds_nothing(tmp_path: Path) -> None:
    assert cache_dirs.prune(tmp_path / "gone") == 0
