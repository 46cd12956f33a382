"""What is kept of torch's probes for vector instructions, and when it is not believed. torch's part is a class of ours; no torch."""

import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from runner.worker.toolchain import compiler, vector_isa
from runner.worker.toolchain.vector_isa import cached_probes, cpu_flags, has, probe_digest, read, write

FLAGS = frozenset("avx2 fma f16c avx512f avx512dq avx512bw avx512vl avx512_vnni amx_tile amx_bf16 amx_int8".split())
AVX512 = "-mavx512f -mavx512dq -mavx512vl -mavx512bw -mfma"


class VecISA:
    """torch's class, as far as it is asked."""

    def __init__(self, name: str, flags: str, *, works: bool = True) -> None:
        self.name, self.flags, self.works = name, flags, works
        self.probes = 0

    def __str__(self) -> str:
        return self.name

    def build_arch_flags(self) -> str:
        return self.flags

    def check_build(self, code: str) -> bool:
        self.probes += 1
        return self.works


PROBE = VecISA.check_build


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A machine with these flags, a compiler, and a torch with this class."""
    torch, inductor, module = ModuleType("torch"), ModuleType("torch._inductor"), ModuleType("torch._inductor.cpu_vec_isa")
    module.VecISA = VecISA  # type: ignore[attr-defined]
    inductor.cpu_vec_isa = module  # type: ignore[attr-defined]
    for name, value in {"torch": torch, "torch._inductor": inductor, "torch._inductor.cpu_vec_isa": module}.items():
        monkeypatch.setitem(sys.modules, name, value)
    monkeypatch.setattr(compiler, "torch_build", lambda: ["2.13.0", "abc"])
    monkeypatch.setattr(compiler, "identity", lambda *_: ("g++",))
    monkeypatch.setattr(vector_isa, "_command", lambda isa: f"g++ i {isa.flags} -o o")
    monkeypatch.setattr(vector_isa, "cpu_flags", lambda _: FLAGS)
    yield
    assert VecISA.check_build is PROBE, "torch's probe is put back"


def probed(folder: Path | None, isa: VecISA, code: str = "code") -> bool:
    with cached_probes(str(folder) if folder else None):
        return isa.check_build(code)


def answers(folder: Path) -> Any:
    return json.loads((folder / "vector-isa.json").read_text())["works"]


# -- served ---------------------------------------------------------------------------------------------------------


def test_a_yes_is_kept_and_asks_no_compiler_again(tmp_path: Path) -> None:
    first, second = VecISA("avx512", AVX512), VecISA("avx512", AVX512)
    assert probed(tmp_path, first)
    assert probed(tmp_path, second)
    assert (first.probes, second.probes) == (1, 0)
    assert (tmp_path / "vector-isa.json").stat().st_mode & 0o777 == 0o600


def test_a_no_is_not_kept(tmp_path: Path) -> None:
    first, second = VecISA("avx512", AVX512, works=False), VecISA("avx512", AVX512)
    assert not probed(tmp_path, first)
    assert probed(tmp_path, second)
    assert second.probes == 1


def test_another_question_is_asked(tmp_path: Path) -> None:
    probed(tmp_path, VecISA("avx512", AVX512))
    for isa, code in ((VecISA("avx2", "-mavx2"), "code"), (VecISA("avx512", "-mavx512f"), "code"), (VecISA("avx512", AVX512), "other")):
        probed(tmp_path, isa, code)
        assert isa.probes == 1
    assert len(answers(tmp_path)) == 4, "what was known stays known"


def test_without_a_folder_it_is_torchs_own_probe(tmp_path: Path) -> None:
    for _ in range(2):
        isa = VecISA("avx512", AVX512)
        assert probed(None, isa)
        assert isa.probes == 1


# -- not believed ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("missing", ["avx512f", "avx512bw", "fma"])
def test_no_answer_claims_what_the_cpu_does_not_have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: str) -> None:
    """Even one that was kept for a CPU with exactly these flags."""
    probed(tmp_path, VecISA("avx512", AVX512))
    (right,) = answers(tmp_path)
    monkeypatch.setattr(vector_isa, "cpu_flags", lambda _: FLAGS - {missing})
    monkeypatch.setattr(vector_isa, "probe_digest", lambda *_: right)
    isa = VecISA("avx512", AVX512, works=False)
    assert not probed(tmp_path, isa)
    assert isa.probes == 1


def test_an_instruction_set_that_is_not_in_the_table_is_always_probed(tmp_path: Path) -> None:
    for _ in range(2):
        isa = VecISA("avx1024", "-mavx1024")
        assert probed(tmp_path, isa)
        assert isa.probes == 1
    assert not (tmp_path / "vector-isa.json").exists()


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[]",
        '{"format": 2, "works": []}',
        '{"format": 1}',
        '{"format": 1, "works": [1]}',
        '{"format": 1, "works": {}}',
        "[" * 100_000,
    ],
)
def test_a_file_that_is_not_as_we_write_it_is_written_anew(tmp_path: Path, text: str) -> None:
    (tmp_path / "vector-isa.json").write_text(text)
    isa = VecISA("avx512", AVX512)
    assert probed(tmp_path, isa)
    assert isa.probes == 1
    assert len(answers(tmp_path)) == 1


@pytest.mark.parametrize("make", ["link", "pipe", "writable", "another's", "large"])
def test_a_file_that_is_not_ours_is_not_believed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str) -> None:
    path, copy = tmp_path / "vector-isa.json", tmp_path / "copy.json"
    write(str(path), frozenset(["yes"]))
    assert read(str(path)) == {"yes"}
    match make:
        case "link":
            path.rename(copy)
            path.symlink_to(copy)
        case "pipe":
            path.unlink()
            os.mkfifo(path)
        case "writable":
            path.chmod(0o620)
        case "another's":
            mine = os.geteuid()
            monkeypatch.setattr(compiler.os, "geteuid", lambda: mine + 1)
        case "large":
            path.write_text(path.read_text() + " " * (1 << 20))
    assert read(str(path)) == frozenset()


def test_a_folder_that_cannot_be_written_to_fails_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert probed(tmp_path / "gone", VecISA("avx512", AVX512))
    assert "are not cached: " in capsys.readouterr().err


def test_a_torch_without_the_probe_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(sys.modules["torch._inductor.cpu_vec_isa"], "VecISA", SimpleNamespace())
    with cached_probes(str(tmp_path)):
        pass
    assert "not available in this torch" in capsys.readouterr().err


def test_a_command_that_torch_builds_otherwise_is_probed_as_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vector_isa, "_command", lambda _: {}["moved"])
    isa = VecISA("avx512", AVX512)
    assert probed(tmp_path, isa)
    assert isa.probes == 1
    assert "is not cached: KeyError" in capsys.readouterr().err


def test_an_exception_of_the_probe_is_torchs_to_see(tmp_path: Path) -> None:
    isa = VecISA("avx512", AVX512)
    with pytest.raises(ZeroDivisionError), cached_probes(str(tmp_path)):
        isa.check_build(1 / 0)


# -- what an answer depends on --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changed",
    [
        {"isa": "avx2"},
        {"code": "other"},
        {"command": "g++ -O2"},
        {"made_by": ("g++", "13")},
        {"torch": ["2.13.0", "abd"]},
        {"flags": FLAGS | {"avx"}},
        *({"environ": {name: "x"}} for name in ("ATEN_CPU_CAPABILITY", "CXX", *compiler.VARIABLES)),
    ],
)
def test_whatever_an_answer_depends_on_makes_another_question(changed: dict[str, Any]) -> None:
    asked: dict[str, Any] = {"isa": "avx512", "code": "code", "command": "g++", "made_by": ("g++",)}
    asked |= {"torch": ["2.13.0", "abc"], "flags": FLAGS, "environ": {"HOME": "/root"}}
    assert probe_digest(**asked) == probe_digest(**{**asked, "environ": {}})
    assert probe_digest(**asked) != probe_digest(**{**asked, **changed})


def test_the_flags_are_those_that_every_processor_has() -> None:
    text = "processor\t: 0\nflags\t\t: fpu avx2 fma\n\nprocessor\t: 1\nflags\t\t: avx2 fpu\n"
    assert cpu_flags(text) == {"fpu", "avx2"}
    assert cpu_flags("processor : 0\nFeatures : fp asimd\n") == {"fp", "asimd"}
    assert cpu_flags("") == frozenset()


def test_an_isa_is_all_of_its_words() -> None:
    assert has(FLAGS, "avx512 avx512_vnni amx_tile", f"{AVX512} -mavx512vnni -mamx-tile -mamx-bf16 -mamx-int8")
    assert not has(FLAGS, "avx512", f"{AVX512} -mavx512bf16")
    assert not has(FLAGS - {"amx_tile"}, "avx512 amx_tile", AVX512)
    assert has(frozenset(["asimd"]), "asimd", "")
    assert not has(frozenset(["asimd"]), "asimd", "-march=armv8-a+sve+bf16 -msve-vector-bits=256")
    assert not has(FLAGS, "", "")


# -- for workers of a zygote that does not probe -----------------------------------------------------------------------


@pytest.fixture
def later(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Serve probes later, from a folder; torch's own probe is put back at the end."""
    monkeypatch.setattr(vector_isa, "_MOST_SECONDS", 0.2)
    vector_isa.serve_later(str(tmp_path))
    yield tmp_path
    VecISA.check_build = PROBE  # type: ignore[method-assign]


def test_a_probe_is_served_when_torch_asks_for_it(later: Path) -> None:
    first, second = VecISA("avx512", AVX512), VecISA("avx512", AVX512)
    assert first.check_build("code")
    assert first.probes == 1
    assert not (later / "vector-isa.json").exists()  # a worker stores nothing
    known = probe_digests(later, second)
    assert second.check_build("code")
    assert second.probes == 0
    assert answers(later) == known


def probe_digests(folder: Path, isa: VecISA) -> list[str]:
    """Store the answer as a zygote does."""
    name = vector_isa._Probes(str(folder / "vector-isa.json"), PROBE)._digest(isa, "code")
    assert name is not None
    write(str(folder / "vector-isa.json"), frozenset([name]))
    return [name]


def test_the_probes_of_another_process_are_waited_for(later: Path) -> None:
    isa = VecISA("avx512", AVX512)
    with vector_isa._alone(str(later), 1.0) as held:
        assert held
        ends = threading.Timer(0.1, probe_digests, [later, VecISA("avx512", AVX512)])
        ends.start()
        assert isa.check_build("code")  # its time limit is longer than the other one needs
        ends.join(timeout=10)
    assert isa.probes == 0


def test_after_the_time_limit_a_process_probes_for_itself(later: Path) -> None:
    isa = VecISA("avx512", AVX512)
    with vector_isa._alone(str(later), 1.0):
        assert isa.check_build("code")
    assert isa.probes == 1


def test_without_a_folder_torch_probes(tmp_path: Path) -> None:
    vector_isa.serve_later(None)
    assert VecISA.check_build is PROBE
    with vector_isa._alone(str(tmp_path / "missing"), 0.1) as held:
        assert not held
