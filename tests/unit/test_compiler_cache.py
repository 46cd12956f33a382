"""The compiler of the tests: the same command is run once, and everything that could change its output makes another command."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import compiler_cache

REAL = """\
#!/bin/sh
echo "$*" >> {log}
while [ $# -gt 1 ]; do
  [ "$1" = -o ] && echo "output $$" > "$2"
  shift
done
exit ${{CODE:-0}}
"""


class Compiler:
    """A session's compiler, over one that counts its calls and writes another output each time."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.log = folder / "log"
        self.real = folder / "real" / "g++"
        self.real.parent.mkdir()
        self.real.write_text(REAL.format(log=self.log))
        self.real.chmod(0o755)
        (folder / "headers").mkdir()
        for name in (compiler_cache.FOLDER, "CXX"):
            patch.delenv(name, raising=False)
        patch.setenv("PATH", f"{self.real.parent}{os.pathsep}/usr/bin{os.pathsep}/bin")
        patch.setenv(compiler_cache.FOLDER, "")  # so that it is restored at the end
        compiler_cache.install(str(folder / "session"), [str(folder / "headers")])

    def run(self, place: str, text: str = "int x;", *more: str, code: int = 0, **variables: str) -> str:
        """Compile a source in a folder of its own, and return the output; empty where there is none."""
        source, output = self.folder / place / "a.main.cpp", self.folder / place / "a.main.so"
        source.parent.mkdir(exist_ok=True)
        source.write_text(text)
        command = ["g++", str(source), "-O3", "-D", "A=1", "-Wall", f"-I{self.folder}/headers", *more, "-shared", "-o", str(output)]
        environment = {**os.environ, "CODE": str(code), **variables}
        assert subprocess.run(command, check=False, env=environment, capture_output=True, timeout=120).returncode == code
        return output.read_text() if output.exists() else ""

    @property
    def calls(self) -> int:
        return len(self.log.read_text().splitlines())


@pytest.fixture
def compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiler:
    return Compiler(tmp_path, monkeypatch)


def test_the_same_command_in_another_folder_is_served(compiler: Compiler) -> None:
    assert compiler.run("one") == compiler.run("two") != ""
    assert compiler.calls == 1
    assert not (compiler.folder / "one" / "a.main.so").samefile(compiler.folder / "two" / "a.main.so")


@pytest.mark.parametrize(
    ("text", "more", "variables"),
    [
        pytest.param("int y;", (), {}, id="source"),
        pytest.param("int x;", ("-D", "B=1"), {}, id="macro"),
        pytest.param("int x;", ("-O2",), {}, id="option"),
        pytest.param("int x;", (), {"CPATH": "/elsewhere"}, id="variable"),
    ],
)
def test_what_differs_is_compiled(compiler: Compiler, text: str, more: tuple[str, ...], variables: dict[str, str]) -> None:
    assert compiler.run("one") != compiler.run("two", text, *more, **variables)
    assert compiler.calls == 2


def test_another_included_header_is_another_command(compiler: Compiler) -> None:
    header = compiler.folder / "h.h"
    header.write_text("int h;")
    first = compiler.run("one", "int x;", "-include", str(header))
    header.write_text("int i;")
    assert compiler.run("two", "int x;", "-include", str(header)) != first


ANOTHER_KIND = [("-I/elsewhere",), ("-MD", "-MF", "/dev/null"), ("-save-temps",), ("-Wl,-Map,x",), ("-o", "/dev/null"), ("b.S",)]


@pytest.mark.parametrize("words", ANOTHER_KIND)
def test_a_command_of_another_kind_is_run_each_time(compiler: Compiler, words: tuple[str, ...]) -> None:
    compiler.run("one", "int x;", *words)
    compiler.run("two", "int x;", *words)
    assert compiler.calls == 2


def test_what_fails_is_not_stored_and_keeps_its_code(compiler: Compiler) -> None:
    compiler.run("one", code=3)
    compiler.run("one", code=3)
    assert compiler.calls == 2


def test_a_precompiled_header_is_one_file(compiler: Compiler) -> None:
    for place in ("one", "two"):
        header = compiler.folder / place / "h.h"
        header.parent.mkdir()
        header.write_text("int h;")
        subprocess.run(["g++", "-x", "c++-header", str(header), "-o", f"{header}.gch"], check=True, timeout=120)
    assert (compiler.folder / "one" / "h.h.gch").samefile(compiler.folder / "two" / "h.h.gch")
    assert compiler.calls == 1


def test_a_session_within_a_session_uses_the_first(compiler: Compiler) -> None:
    path = os.environ["PATH"]
    compiler_cache.install(str(compiler.folder / "another"), [])
    assert os.environ["PATH"] == path


def test_a_compiler_that_was_chosen_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(compiler_cache.FOLDER, raising=False)
    monkeypatch.setenv("CXX", sys.executable)
    path = os.environ["PATH"]
    compiler_cache.install(str(tmp_path / "session"), [])
    assert os.environ["PATH"] == path
