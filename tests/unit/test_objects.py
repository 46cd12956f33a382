"""The object cache: which commands are understood, what names an entry, and what is never served. The compiler is a function; no torch."""

import os
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from runner.core.observation import ObjectCounts
from runner.language.read.schema import fits
from runner.run.observed import count
from runner.run.observed import objects as objects_of
from runner.worker.toolchain import compiler, objects
from runner.worker.toolchain.objects import Command, Store, key_of, needs_of, understood
from tests import fakes

CC = ("/usr/bin/g++", "g++ 12", "/usr/bin/g++ 100 1")
TORCH = ["2.13.0", "abc"]


class Case:
    """A case's folders, a header that is nobody's, and a compiler that writes what it reads."""

    def __init__(self, root: Path) -> None:
        self.header = root / "include" / "head er.h"
        self.header.parent.mkdir(exist_ok=True)
        self.header.write_text("1")
        self.folder = root / f"case-{len(list(root.iterdir()))}"
        self.work = self.folder / "build"
        self.work.mkdir(parents=True)
        self.source = self.folder / "kernel.main.cpp"
        self.source.write_text("int f();")
        self.output = self.folder / "kernel.main.so"
        self.ran: list[str] = []
        self.fails = False

    def compile(self, cmd_line: str, cwd: str) -> None:
        self.ran.append(cmd_line)
        words = shlex.split(cmd_line)
        if self.fails:
            raise RuntimeError(cmd_line)
        self.output.write_text(f"built from {self.source.read_text()} and {self.header.read_text()}")
        self.output.chmod(0o755)
        if "-MF" in words:
            escaped = str(self.header).replace(" ", "\\ ")
            Path(words[words.index("-MF") + 1]).write_text(f"needs: {self.source} \\\n {escaped}\n")

    @property
    def command(self) -> str:
        return f"g++ {self.source} -O3 -D X=1 -shared -march=native -I/usr/include -o {self.output} -lgomp"

    def build(self, command: str | None = None, *, installed: Path | None = None, own: bool = True) -> dict[str, Any]:
        """Build as a new worker would, and return what it would say."""
        self.output.unlink(missing_ok=True)
        if installed is not None:
            objects.install(str(installed), [str(self.folder)] if own else [])
        objects._around(self.compile)(command or self.command, str(self.work))
        return objects.facts() or {}


@pytest.fixture(autouse=True)
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process whose torch is wrapped, with a compiler that is always the same."""
    monkeypatch.setattr(objects, "_state", objects._State(unavailable=""))
    monkeypatch.setattr(compiler, "torch_build", lambda: TORCH)
    monkeypatch.setattr(compiler, "identity", lambda *_: CC)
    monkeypatch.setattr(objects.shutil, "which", lambda name: f"/usr/bin/{name}")
    for name in compiler.VARIABLES:
        monkeypatch.delenv(name, raising=False)
    yield
    objects.install(None)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "objects").mkdir()
    return tmp_path / "objects"


def entries(store: Path) -> list[Path]:
    return sorted(store.glob("*/*"))


# -- what is understood ---------------------------------------------------------------------------------------------

KINDS = {
    "compile and link": "g++ /own/a.main.cpp -O3 -include /own/precompiled_headers/ch.h -shared -o /own/a.main.so -lgomp",
    "compile": "g++ /own/a.optimized.cpp -O3 -c -o /own/a.optimized.o",
    "link": "g++ /own/a.main.o /own/b.optimized.o -shared -o /own/a.main.so -L/usr/lib",
    "precompile": "g++ -x c++-header /own/precompiled_headers/ch.h -O3 -o /own/precompiled_headers/ch.h.gch",
    "preprocess": "g++ /own/tmp1/header.hpp -D A=1 -E -P -o /own/tmp1/header.i",
}


@pytest.mark.parametrize("kind", KINDS)
def test_the_commands_of_inductors_kernels_are_understood(kind: str) -> None:
    found = understood(KINDS[kind], "/own/build", ["/own"])
    assert found is not None
    assert found.compiles == (kind != "link")
    assert not [word for word in found.words if "/own" in word]
    assert found.words.count("<input>") == len(found.inputs)


@pytest.mark.parametrize(
    "command",
    [
        "",
        "g++",
        "g++ 'unbalanced",
        "g++ /own/a.main.cpp -shared",
        "g++ /own/a.main.cpp -shared -o",
        "g++ /own/a.main.cpp -shared -o /own/a.so -o /own/b.so",
        "g++ @/own/flags /own/a.main.cpp -shared -o /own/a.so",
        "g++ /own/a.main.cpp /own/b.main.cpp -shared -o /own/a.so",
        "g++ /own/a.main.cpp -shared -MD -o /own/a.so",
        "g++ /own/a.main.cpp -shared --coverage -o /own/a.so",
        "g++ /own/a.main.cpp -shared -save-temps -o /own/a.so",
        "g++ /own/a.main.cpp -shared -gsplit-dwarf -o /own/a.so",
        "g++ /own/a.main.cpp -shared -fplugin=x -o /own/a.so",
        "g++ /own/a.main.cpp -E -o /own/a.i",
        "g++ /own/header.hpp -E -o /own/header.i",
        "g++ /own/model.wrapper.cpp -c -o /own/model.wrapper.o",
        "g++ /own/model.wrapper.o /own/consts.o -shared -o /own/model.wrapper.so",
        "g++ /own/a.main.o /own/weights.bin -shared -o /own/a.so",
        "g++ /own/isa.cpp -shared -o /own/isa.so",
        "g++ /own/a.main.cpp -shared -I/own/headers -o /own/a.so",
        "g++ /own/a.main.cpp -shared -D FILE=/own/x -o /own/a.so",
        "g++ /own/a.main.cpp -shared -include /own/mine.h -o /own/a.so",
        "g++ /own/a.main.cpp -shared -unknown argument -o /own/a.so",
        "g++ -x c++-header /own/ch.h -o /own/elsewhere.gch",
        "g++ -x c /own/a.main.cpp -o /own/a.so",
        "nvcc /own/a.cu -shared -o /own/a.so",
    ],
)
def test_any_other_command_is_not(command: str) -> None:
    assert understood(command, "/own/build", ["/own"]) is None


# -- what names an entry --------------------------------------------------------------------------------------------


@pytest.fixture
def taken_apart(tmp_path: Path) -> Command:
    (tmp_path / "a.main.cpp").write_text("source")
    (tmp_path / "ch.h").write_text("header")
    words = ("<input>", "-O3", "-include", "<header>", "-o", "<output>")
    paths = {"inputs": (str(tmp_path / "a.main.cpp"),), "headers": (str(tmp_path / "ch.h"),), "output": "/own/a.main.so"}
    return Command(compiler="g++", words=words, **paths)


def key(command: Command, made_by: tuple[str, ...] = CC, torch: list[str] = TORCH, environ: Mapping[str, str] | None = None) -> str | None:
    return key_of(command, made_by, torch, environ or {})


def test_the_same_has_the_same_name_wherever_it_lies(taken_apart: Command, tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    for name in ("a.main.cpp", "ch.h"):
        (tmp_path / "other" / name).write_text((tmp_path / name).read_text())
    other = replace(
        taken_apart,
        inputs=(str(tmp_path / "other" / "a.main.cpp"),),
        headers=(str(tmp_path / "other" / "ch.h"),),
        output="/elsewhere/a.main.so",
    )
    assert key(taken_apart) == key(other)


@pytest.mark.parametrize("name", ["compiler", "flag", "order", "output", "made by", "torch", "git", *compiler.VARIABLES])
def test_whatever_is_put_in_changes_the_name(taken_apart: Command, name: str) -> None:
    words = taken_apart.words
    changed = {
        "compiler": lambda: key(replace(taken_apart, compiler="clang++")),
        "flag": lambda: key(replace(taken_apart, words=(*words, "-O2"))),
        "order": lambda: key(replace(taken_apart, words=words[::-1])),
        "output": lambda: key(replace(taken_apart, output="/own/a.main.o")),
        "made by": lambda: key(taken_apart, made_by=(*CC[:2], "/usr/bin/g++ 101 1")),
        "torch": lambda: key(taken_apart, torch=["2.13.1", "abc"]),
        "git": lambda: key(taken_apart, torch=["2.13.0", "abd"]),
    }.get(name, lambda: key(taken_apart, environ={name: "/x"}))()
    assert changed not in (None, key(taken_apart))


@pytest.mark.parametrize("name", ["a.main.cpp", "ch.h"])
def test_a_changed_file_changes_the_name(taken_apart: Command, tmp_path: Path, name: str) -> None:
    before = key(taken_apart)
    (tmp_path / name).write_text("changed")
    assert key(taken_apart) not in (None, before)


def test_a_header_of_another_name_is_another(taken_apart: Command, tmp_path: Path) -> None:
    """What it includes is known by its name alone."""
    (tmp_path / "ci.h").write_text("header")
    assert key(replace(taken_apart, headers=(str(tmp_path / "ci.h"),))) != key(taken_apart)


@pytest.mark.parametrize("word", ["__DATE__", "__TIME__", "__TIMESTAMP__"])
def test_what_is_another_each_time_has_no_name(taken_apart: Command, tmp_path: Path, word: str) -> None:
    (tmp_path / "a.main.cpp").write_text(f"auto now = {word};")
    assert key(taken_apart) is None


def test_a_variable_that_makes_the_compiler_write_more_gives_no_name(taken_apart: Command) -> None:
    assert key(taken_apart, environ={"DEPENDENCIES_OUTPUT": "/tmp/x"}) is None


def test_a_rule_names_its_files() -> None:
    assert needs_of("needs: a.cpp /b/c.h \\\n /d\\ e/f.h \\\n  /g$$h.h\n") == ["a.cpp", "/b/c.h", "/d e/f.h", "/g$h.h"]
    assert needs_of("") == []


# -- what a compiler is ---------------------------------------------------------------------------------------------


def fake(path: Path, words: str, code: int = 0) -> str:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\necho '{words}' \"$@\"\nexit {code}\n")
    path.chmod(0o755)
    os.utime(path, (1, 1))
    return str(path)


def test_a_compiler_is_its_file_its_words_and_what_its_flags_mean(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    first = fake(tmp_path / "a" / "g++", "version 1")
    known = compiler.identity(first, ("-march=native",))
    assert known is not None
    assert known[0] == first
    assert "version 1" in known[1]
    found = [
        known,
        compiler.identity(first, ("-march=x",)),
        compiler.identity(fake(tmp_path / "b" / "g++", "version 1"), ("-march=native",)),
    ]
    compiler.identity.cache_clear()
    fake(tmp_path / "a" / "g++", "version 2")
    found.append(compiler.identity(first, ("-march=native",)))
    compiler.identity.cache_clear()
    os.utime(first, (2, 2))
    found.append(compiler.identity(first, ("-march=native",)))
    assert None not in found
    assert len(set(found)) == len(found)


def test_a_compiler_that_does_not_say_what_it_is_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    assert compiler.identity(fake(tmp_path / "a" / "g++", "no such option", code=1), ()) is None
    assert compiler.identity(str(tmp_path / "none"), ()) is None


# -- served and built -----------------------------------------------------------------------------------------------


def test_a_second_case_is_served_what_the_first_built(tmp_path: Path, store: Path) -> None:
    first, second = Case(tmp_path), Case(tmp_path)
    assert first.build(installed=store) == {"served": 0, "built": 1}
    assert second.build(installed=store) == {"served": 1, "built": 0}
    assert second.ran == []
    assert second.output.read_bytes() == first.output.read_bytes()
    assert second.output.stat().st_mode == first.output.stat().st_mode
    assert second.output.stat().st_nlink == 1
    assert sorted(path.name for path in second.folder.iterdir()) == ["build", "kernel.main.cpp", "kernel.main.so"]


def test_torchs_own_command_is_run_with_nothing_but_the_rule_added(tmp_path: Path, store: Path) -> None:
    case = Case(tmp_path)
    case.build(installed=store)
    assert case.ran == [f"{case.command} -MD -MT needs -MF {case.work / 'needs.d'}"]


def test_a_changed_source_is_not_served(tmp_path: Path, store: Path) -> None:
    first, second = Case(tmp_path), Case(tmp_path)
    first.build(installed=store)
    second.source.write_text("int g();")
    assert second.build(installed=store) == {"served": 0, "built": 1}
    assert second.output.read_text() == "built from int g(); and 1"


def test_a_changed_header_is_not_served_and_what_is_built_takes_its_place(tmp_path: Path, store: Path) -> None:
    first, second, third = Case(tmp_path), Case(tmp_path), Case(tmp_path)
    first.build(installed=store)
    second.header.write_text("2")
    assert second.build(installed=store) == {"served": 0, "built": 1}
    assert second.output.read_text().endswith("and 2")
    assert third.build(installed=store) == {"served": 1, "built": 0}
    assert third.output.read_text().endswith("and 2")
    third.header.unlink()
    third.fails = True
    with pytest.raises(RuntimeError):
        third.build(installed=store)


def test_a_command_that_is_not_understood_is_run_as_it_stands(tmp_path: Path, store: Path) -> None:
    case = Case(tmp_path)
    odd = f"{case.command} -save-temps"
    for _ in range(2):
        assert case.build(odd, installed=store) == {"served": 0, "built": 1}
    assert case.ran == [odd, odd]
    assert entries(store) == []


def test_a_build_that_fails_says_what_torchs_own_command_says(tmp_path: Path, store: Path) -> None:
    case = Case(tmp_path)
    case.fails = True
    with pytest.raises(RuntimeError) as caught:
        case.build(installed=store)
    assert str(caught.value) == case.command
    assert entries(store) == []


def test_what_read_a_file_of_its_case_is_not_kept(tmp_path: Path, store: Path) -> None:
    case = Case(tmp_path)
    case.header = case.folder / "mine.h"
    case.header.write_text("1")
    case.build(installed=store)
    assert entries(store) == []


def test_a_compiler_that_names_no_headers_leaves_nothing(tmp_path: Path, store: Path) -> None:
    case = Case(tmp_path)
    build = case.compile
    case.compile = lambda cmd_line, cwd: build(cmd_line.partition(" -MD")[0], cwd)  # type: ignore[method-assign]
    case.build(installed=store)
    assert entries(store) == []


def _cut(data: bytes) -> bytes:
    return data[:-1]


def _flip(data: bytes) -> bytes:
    return data[:-1] + bytes([data[-1] ^ 1])


def _other_mode(data: bytes) -> bytes:
    return data.replace(b'"mode": 493', b'"mode": 511')


def _no_needs(data: bytes) -> bytes:
    return data.replace(b'"needs"', b'"noods"')


def _a_list(data: bytes) -> bytes:
    return data.split(b"\n")[0] + b"\n[]\n"


@pytest.mark.parametrize("spoil", [_cut, _flip, _other_mode, _no_needs, _a_list, lambda _: b"", lambda _: b"\xff\n{}\n", lambda _: b"{}"])
def test_a_spoilt_entry_is_deleted_and_built_again(tmp_path: Path, store: Path, spoil: Any) -> None:
    first, second, third = Case(tmp_path), Case(tmp_path), Case(tmp_path)
    first.build(installed=store)
    (entry,) = entries(store)
    whole = entry.read_bytes()
    assert spoil(whole) != whole
    entry.write_bytes(spoil(whole))
    assert not Store(str(store)).serve(entry.stem, str(second.output))
    assert not entry.exists()
    assert not second.output.exists()
    assert second.build(installed=store) == {"served": 0, "built": 1}
    assert third.build(installed=store) == {"served": 1, "built": 0}
    assert entries(store) == [entry]


@pytest.mark.parametrize("make", ["link", "pipe", "writable", "folder"])
def test_what_is_no_file_of_ours_is_not_served(tmp_path: Path, store: Path, make: str) -> None:
    first, second = Case(tmp_path), Case(tmp_path)
    first.build(installed=store)
    (entry,) = entries(store)
    copy = tmp_path / "copy"
    copy.write_bytes(entry.read_bytes())
    entry.unlink()
    {
        "link": lambda: entry.symlink_to(copy),
        "pipe": lambda: os.mkfifo(entry),
        "writable": lambda: (entry.write_bytes(copy.read_bytes()), entry.chmod(0o666)),
        "folder": entry.mkdir,
    }[make]()
    assert second.build(installed=store) == {"served": 0, "built": 1}
    assert copy.exists()


def test_a_full_disk_fails_no_case(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(objects.os, "replace", full)
    assert case.build(installed=store) == {"served": 0, "built": 1}
    assert entries(store) == [], "nothing half written is left"


def test_an_entry_that_is_used_is_young_again(tmp_path: Path, store: Path) -> None:
    Case(tmp_path).build(installed=store)
    (entry,) = entries(store)
    os.utime(entry, (1, 1))
    Case(tmp_path).build(installed=store)
    assert entry.stat().st_mtime > 1


def test_a_folder_takes_the_place_of_another_and_none_turns_it_off(tmp_path: Path, store: Path) -> None:
    case = Case(tmp_path)
    case.build(installed=store)
    other = tmp_path / "other"
    other.mkdir()
    assert case.build(installed=other) == {"served": 0, "built": 1}
    assert case.build(installed=store) == {"served": 1, "built": 0}
    objects.install(None)
    assert case.build() == {}
    assert len(case.ran) == 3
    assert case.ran[-1] == case.command


def test_another_process_builds_for_itself(tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(tmp_path)
    case.build(installed=store)
    monkeypatch.setattr(objects.os, "getpid", lambda: -1)
    assert case.build() == {"served": 0, "built": 1}
    assert case.ran[-1] == case.command


def test_torch_is_wrapped_once_and_never_for_nothing(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wrapped: list[Any] = []
    monkeypatch.setattr(objects, "_state", objects._State())
    monkeypatch.setattr(objects.compiling, "wrap_builds", lambda around: wrapped.append(around) or "")
    objects.install(None)
    assert wrapped == []
    for _ in range(2):
        objects.install(str(store))
    assert len(wrapped) == 1


def test_a_torch_that_cannot_be_wrapped_is_said(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(objects, "_state", objects._State())
    monkeypatch.setattr(objects.compiling, "wrap_builds", lambda _: "not available in this torch: it has no function")
    objects.install(str(store))
    assert objects.facts() == {"served": 0, "built": 0, "unavailable": "not available in this torch: it has no function"}


# -- what the runner believes of it ---------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [-1, True, 1.0, "3", None, [], {"$float": "nan"}])
def test_a_count_that_is_none_is_refused(value: Any) -> None:
    assert fakes.observed(fakes.observation(objects={"served": value, "built": 0})) is None
    assert fakes.observed(fakes.observation(objects={"served": 3, "built": 0})) is not None


def test_a_count_that_no_case_reaches_is_0() -> None:
    assert (count(3), count(1 << 40)) == (3, 0)


@pytest.mark.parametrize("sent", [None, [], "x", {}, {"objects": [1]}, {"objects": None}, fakes.observation()])
def test_an_observation_without_counts_has_none(sent: Any) -> None:
    assert objects_of(fakes.observed(sent)) == ObjectCounts()


def test_what_the_worker_says_is_what_the_schema_wants(tmp_path: Path, store: Path) -> None:
    said = Case(tmp_path).build(installed=store)
    assert objects_of(fakes.observed(fakes.observation(objects=said))) == ObjectCounts(**said)
    assert fits("observation")(fakes.observation(objects=said))
    assert fits("observation")(fakes.observation(objects={**said, "unavailable": "why"}))
    assert fits("observation")(fakes.observation())
    for wrong in ({"served": 1}, {"served": -1, "built": 0}, {**said, "more": 1}):
        assert not fits("observation")(fakes.observation(objects=wrong))
