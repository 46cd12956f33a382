"""The compiler of samples of mutants: kernels are built from a header that is precompiled once;
other commands are run as they are.
"""

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.fakes import ROOT

COMPILER = ROOT / "tools" / "mutants" / "compiler"
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    header = tmp_path / "include" / "torch" / "csrc" / "inductor" / "cpp_prefix.h"
    header.parent.mkdir(parents=True)
    header.write_text("inline int three() { return 3; }\n")
    (tmp_path / "a.main.cpp").write_text(
        '#include <torch/csrc/inductor/cpp_prefix.h>\nextern "C" int kernel() { return three(); }\n'
    )
    (tmp_path / "b.main.cpp").write_text(
        '#include <torch/csrc/inductor/cpp_prefix.h>\nextern "C" int kernel() { return '
        "three() + 1; }\n"
    )
    return tmp_path


def build(folder: Path, *words: str) -> "subprocess.CompletedProcess[str]":
    variables = {
        **os.environ,
        "PATH": f"{COMPILER}{os.pathsep}{os.environ['PATH']}",
        "QUICK_COMPILER": str(folder / "headers"),
    }
    return subprocess.run(
        ["g++", *words],
        cwd=folder,
        env=variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def kernel(folder: Path, name: str, *more: str) -> "subprocess.CompletedProcess[str]":
    options = (
        "-O3",
        "-Wall",
        "-pedantic",
        "-g1",
        "-shared",
        "-fPIC",
        f"-I{folder / 'include'}",
        "-MD",
        "-MT",
        "needs",
        "-MF",
        "needs.d",
    )
    return build(
        folder,
        str(folder / f"{name}.main.cpp"),
        *options,
        *more,
        "-o",
        str(folder / f"{name}.main.so"),
    )


def test_the_header_is_precompiled_once_and_used(folder: Path) -> None:
    import ctypes

    for name, answer in (("a", 3), ("b", 4)):
        done = kernel(folder, name, "-Winvalid-pch")
        assert (done.returncode, done.stderr) == (0, "")
        assert ctypes.CDLL(str(folder / f"{name}.main.so")).kernel() == answer
    assert len(list((folder / "headers").rglob("cpp_prefix.h.gch"))) == 1
    kernel(folder, "a", "-H")
    assert kernel(folder, "b", "-H").stderr.startswith("! "), (
        "g++ -H marks a precompiled header that was used"
    )


def test_another_header_is_precompiled_anew(folder: Path) -> None:
    import ctypes

    assert kernel(folder, "a").returncode == 0
    (folder / "include" / "torch" / "csrc" / "inductor" / "cpp_prefix.h").write_text(
        "inline int three() { return 5; }\n"
    )
    assert kernel(folder, "b").returncode == 0
    assert ctypes.CDLL(str(folder / "b.main.so")).kernel() == 6


def test_an_error_of_the_source_is_an_error(folder: Path) -> None:
    (folder / "a.main.cpp").write_text(
        "#include <torch/csrc/inductor/cpp_prefix.h>\nint kernel() { return four(); }\n"
    )
    done = kernel(folder, "a")
    assert done.returncode == 1
    assert "four" in done.stderr


def test_other_options_have_a_header_of_their_own(folder: Path) -> None:
    assert kernel(folder, "a").returncode == kernel(folder, "a", "-fopenmp").returncode == 0
    assert len(list((folder / "headers").rglob("cpp_prefix.h.gch"))) == 2


@pytest.mark.parametrize("words", [("--version",), ("-E", "-x", "c++", os.devnull)])
def test_other_commands_are_run_as_they_are(folder: Path, words: tuple[str, ...]) -> None:
    plain = subprocess.run(["g++", *words], capture_output=True, text=True, timeout=120, check=True)
    assert build(folder, *words).stdout == plain.stdout
    assert not (folder / "headers").exists()
