"""Keeps what torch's probes for vector instructions found, so that the next template of this machine needs no compiler to know it.

Only the answer of a probe is kept: does this compiler build that code with those flags, and can it be loaded? Which instructions the CPU
has, and which of them are taken, torch asks and decides as ever. Only a yes is kept, because a no may have been a full disk.
"""

import contextlib
import json
import os
import secrets
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from runner.worker.toolchain import compiler

_FORMAT = 1
_MOST_BYTES = 1 << 20

_CPU_FLAGS: Mapping[str, tuple[str, ...]] = {
    "avx2": ("avx2",),
    "avx512": ("avx512f", "avx512dq", "avx512vl", "avx512bw"),
    "avx512_vnni": ("avx512_vnni",),
    "amx_tile": ("amx_tile",),
    "asimd": ("asimd",),
    "-mavx2": ("avx2",),
    "-mfma": ("fma",),
    "-mf16c": ("f16c",),
    "-mavx512f": ("avx512f",),
    "-mavx512dq": ("avx512dq",),
    "-mavx512vl": ("avx512vl",),
    "-mavx512bw": ("avx512bw",),
    "-mavx512vnni": ("avx512_vnni",),
    "-mavx512bf16": ("avx512_bf16",),
    "-mamx-tile": ("amx_tile",),
    "-mamx-bf16": ("amx_bf16",),
    "-mamx-int8": ("amx_int8",),
    "-mamx-fp16": ("amx_fp16",),
}
"""What /proc/cpuinfo says of a CPU that has what torch names, and what a flag of the compiler uses."""


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Return what every processor of a text as /proc/cpuinfo has; empty where it says nothing."""
    lines = [line.partition(":") for line in cpuinfo.splitlines()]
    found = [frozenset(value.split()) for name, _, value in lines if name.strip() in ("flags", "Features")]
    return frozenset.intersection(*found) if found else frozenset()


def has(flags: frozenset[str], isa: str, arch_flags: str) -> bool:
    """Whether a CPU with these flags has an ISA, by torch's name and the compiler's flags for it; False for what is not in the table."""
    words = [*isa.split(), *arch_flags.split()]
    return bool(isa) and all(word in _CPU_FLAGS and flags.issuperset(_CPU_FLAGS[word]) for word in words)


def read(path: str) -> frozenset[str]:
    """Return the questions that a file answers with yes; none for a file that is not ours, or not as we write it."""
    try:
        with compiler.open_ours(path) as stream:
            data = stream.read(_MOST_BYTES + 1)
        known = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return frozenset()
    if len(data) > _MOST_BYTES or not isinstance(known, dict) or known.get("format") != _FORMAT:
        return frozenset()
    answers = known.get("works")
    if not isinstance(answers, list) or not all(isinstance(answer, str) for answer in answers):
        return frozenset()
    return frozenset(answers)


def write(path: str, works: frozenset[str]) -> None:
    """Write the questions that were answered with yes, in one step."""
    temporary = f"{path}.{secrets.token_hex(8)}"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(descriptor, "w", encoding="ascii") as stream:
            json.dump({"format": _FORMAT, "works": sorted(works)}, stream)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


@contextlib.contextmanager
def kept(folder: str | None) -> Iterator[None]:
    """Let torch's probes take their answers from a folder of ours, and leave there what they find; None for probing as ever."""
    from torch._inductor import cpu_vec_isa

    original = getattr(cpu_vec_isa.VecISA, "check_build", None)
    if not folder or original is None:
        if folder:
            print(
                "not available in this torch: no answers about vector instructions are kept, it has no VecISA.check_build", file=sys.stderr
            )
        yield
        return
    probes = _Probes(os.path.join(folder, "vector-isa.json"), original)
    cpu_vec_isa.VecISA.check_build = lambda isa, code: probes.answer(isa, code)
    try:
        yield
    finally:
        cpu_vec_isa.VecISA.check_build = original
    probes.keep()


class _Probes:
    """Answers from a file where that knows, by torch's own probe where it does not."""

    def __init__(self, path: str, probe: Any) -> None:
        self._path = path
        self._probe = probe
        self._known = read(path)
        self._found: set[str] = set()
        try:
            with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as stream:
                self._flags = cpu_flags(stream.read())
        except OSError:
            self._flags = frozenset()

    def answer(self, isa: Any, code: str) -> bool:
        name = self._question(isa, code)
        if name in self._known:
            return True
        works = bool(self._probe(isa, code))
        if works and name is not None:
            self._found.add(name)
        return works

    def _question(self, isa: Any, code: str) -> str | None:
        """Return the digest of all that the answer depends on; None where it may not come from a file."""
        arch_flags = str(isa.build_arch_flags())
        if not has(self._flags, str(isa), arch_flags):
            return None
        try:
            command = _command(isa)
        except Exception as error:  # where torch's builder of commands moved it may raise anything; torch then probes by itself
            print(f"what {isa} can do is not kept: {type(error).__name__}: {error}", file=sys.stderr)
            return None
        flags = tuple(word for word in command.split() if word.startswith("-m"))
        made_by = compiler.identity(command.split()[0], flags)
        if made_by is None:
            return None
        return question(str(isa), code, command, made_by, compiler.torch_build(), self._flags, os.environ)

    def keep(self) -> None:
        """Write what was found, beside what is known."""
        if self._found:
            try:
                write(self._path, self._known | self._found)
            except OSError as error:
                print(f"what was found out about vector instructions is not kept: {error}", file=sys.stderr)


def _command(isa: Any) -> str:
    """Return the command of torch's probe, but for its files."""
    from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions

    return str(CppBuilder("o", ["i"], CppTorchOptions(vec_isa=isa, warning_all=False)).get_command_line())


def question(
    isa: str, code: str, command: str, made_by: tuple[str, ...], torch: list[str], flags: frozenset[str], environ: Mapping[str, str]
) -> str:
    """Return the digest of all that a probe's answer depends on."""
    variables = {**compiler.variables(environ), **{name: environ[name] for name in ("ATEN_CPU_CAPABILITY", "CXX") if name in environ}}
    return compiler.digest([_FORMAT, isa, code, command, made_by, torch, sorted(flags), variables, sys.executable])
