"""What a zygote leaves for the next one: whole files of its warm-up, and none of a graph that would spare the next one a compile."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.worker.torch_compat import torch_state
from tests.fakes import import_torch

pytestmark = pytest.mark.torch

import_torch()

from runner.worker.process import warming  # noqa: E402 - it imports torch

Zygote = Callable[..., Any]


@pytest.fixture
def zygote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Zygote:
    """Return a function that makes the files of a zygote, whose own folders lie below one of its name."""
    (tmp_path / "kept").mkdir()
    keys: list[str] = []
    monkeypatch.setattr(warming, "_key", lambda: keys[-1])

    def start(name: str, key: str = "cpu") -> Any:
        keys.append(key)
        folders = {part: str(tmp_path / name / part) for part in ("cache", "headers")}
        monkeypatch.setattr(torch_state, "built_by_warm_up", lambda: folders)
        return warming.WarmFiles(str(tmp_path / "kept"))

    return start


def build(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(name)


def below(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_the_next_zygote_has_what_the_first_built(zygote: Zygote, tmp_path: Path) -> None:
    first = zygote("first")
    first.restore()
    build(tmp_path / "first", "cache/ab/isa.so", "headers/h.gch", "cache/fxgraph/a", "cache/aotautograd/b", "cache/locks/c", "cache/d.lock")
    first.keep()
    zygote("second").restore()
    assert below(tmp_path / "second") == ["cache/ab/isa.so", "headers/h.gch"]


def test_a_zygote_of_another_compiler_has_files_of_its_own(zygote: Zygote, tmp_path: Path) -> None:
    build(tmp_path / "first", "cache/isa.so")
    zygote("first", "other").keep()
    zygote("second", "cpu").restore()
    assert below(tmp_path / "second") == []


def test_of_two_that_start_at_a_time_one_keeps_its_files(zygote: Zygote, tmp_path: Path) -> None:
    first = zygote("first")
    build(tmp_path / "second", "cache/second")
    zygote("second").keep()
    zygote("first")
    build(tmp_path / "first", "cache/first")
    first.keep()
    assert below(tmp_path / "kept") == ["cpu/cache/second"]


def test_those_that_were_not_used_for_longest_go(zygote: Zygote, tmp_path: Path) -> None:
    build(tmp_path / "all", "cache/isa.so")
    for number in range(warming._MOST_KEPT):
        zygote("all", f"kind{number}").keep()
        os.utime(tmp_path / "kept" / f"kind{number}", (number, number))
    zygote("again", "kind0").restore()
    zygote("all", "new").keep()
    kept = {path.name for path in (tmp_path / "kept").iterdir()}
    assert kept == {"kind0", "new", *(f"kind{number}" for number in range(2, warming._MOST_KEPT))}


def test_without_a_folder_nothing_is_kept(zygote: Zygote, tmp_path: Path) -> None:
    zygote("first")
    files = warming.WarmFiles(None)
    files.restore()
    files.keep()
    assert below(tmp_path) == []


def test_a_probe_of_vector_instructions_that_succeeded_is_not_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import cpu_vec_isa

    from runner.worker.torch_compat import imports

    asked: list[str] = []
    monkeypatch.setattr(cpu_vec_isa.VecISA, "check_build", lambda isa, code: asked.append(str(isa)) or isa.works)
    folder = warming.WarmFiles(str(tmp_path)).probes()
    assert folder is not None
    imports.share_probes(folder)
    for _ in range(2):
        for isa in (Isa("avx512 vnni", works=True), Isa("avx2", works=False)):
            assert cpu_vec_isa.VecISA.check_build(isa, "code") is isa.works
    assert asked == ["avx512 vnni", "avx2", "avx2"]


class Isa:
    def __init__(self, name: str, *, works: bool) -> None:
        self.name, self.works = name, works

    def __str__(self) -> str:
        return self.name
