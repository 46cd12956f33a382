"""The folder that outlives a run: where it lies, and what is refused.

Nothing here imports torch.
"""

import os
import stat
from pathlib import Path

import pytest

from torch_conformance.cli.parser import main
from torch_conformance.machine import cache_dirs
from torch_conformance.model.diagnostics import UsageError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TORCH_CONFORMANCE_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept"


# -- where it lies ---------------------------------------------------------------------------------


def test_the_variable_the_users_cache_then_the_home(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
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
    assert cache_dirs.cache_folder("warm") == home / "warm"
    assert [stat.S_IMODE(path.stat().st_mode) for path in (home, home / "warm")] == [0o700, 0o700]
    assert cache_dirs.cache_folder("warm") == home / "warm", "a second run finds it"


# -- what is refused -------------------------------------------------------------------------------


@pytest.mark.parametrize("bits", [0o770, 0o702, 0o777, 0o1777])
def test_a_folder_that_others_can_write_to_is_refused(home: Path, bits: int) -> None:
    home.mkdir()
    home.chmod(bits)
    with pytest.raises(
        UsageError, match=rf"other users can write to this folder \(mode {bits:04o}\); chmod 700 it"
    ):
        cache_dirs.cache_folder("warm")


@pytest.mark.parametrize("target", ["there", "nowhere"])
@pytest.mark.parametrize("name", [".", "warm"])
def test_a_link_is_refused_wherever_it_leads(
    home: Path, tmp_path: Path, name: str, target: str
) -> None:
    (tmp_path / "there").mkdir(mode=0o700)
    if name == "warm":
        home.mkdir(mode=0o700)
    (home / name if name == "warm" else home).symlink_to(tmp_path / target)
    with pytest.raises(UsageError, match="this is a symbolic link; name the folder itself"):
        cache_dirs.cache_folder("warm")
    assert not (tmp_path / "nowhere").exists()


def test_another_users_folder_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home.mkdir(mode=0o700)
    mine = os.geteuid()
    monkeypatch.setattr(os, "geteuid", lambda: mine + 1)
    with pytest.raises(UsageError, match=rf"another user \(uid {mine}\)"):
        cache_dirs.cache_folder("warm")


def test_a_home_that_cannot_be_written_to_keeps_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.delenv("TORCH_CONFORMANCE_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    assert cache_dirs.cache_folder("warm") is None
    monkeypatch.setenv("TORCH_CONFORMANCE_CACHE", str(tmp_path / "file" / "inner"))
    with pytest.raises(UsageError, match="this folder cannot be created; name another one"):
        cache_dirs.cache_folder("warm")


def test_a_run_is_refused_before_it_has_a_folder(home: Path, here: Path, good: str) -> None:
    (here / "spec.yaml").write_text(good)
    home.mkdir()
    home.chmod(0o777)
    assert main(["run", "spec.yaml", "--out", "out"]) == 2
    assert not (here / "out").exists()
