"""Cached probe results of torch's vector instruction sets (ISAs), so that a later zygote on this machine does not run the compiler.

A probe checks that the compiler builds a piece of code with given flags, and that the result can be loaded. Only this result is cached.
Torch still detects the instructions of the CPU and selects an ISA itself. Only successes are cached, because a failure may be temporary,
such as no space left on device.
"""

import contextlib
import fcntl
import functools
import json
import os
import secrets
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from runner.worker.toolchain import compiler

_FORMAT = 1
_FILE = "vector-isa.json"
_MOST_SECONDS = 180.0
"""Time limit for the probes of another process. After it a process probes for itself."""

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
"""The flags in /proc/cpuinfo that torch's name of an ISA, or a flag of the compiler, requires."""


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Return the flags that all processors in a text of /proc/cpuinfo have; empty where the text lists none."""
    lines = [line.partition(":") for line in cpuinfo.splitlines()]
    found = [frozenset(value.split()) for name, _, value in lines if name.strip() in ("flags", "Features")]
    return frozenset.intersection(*found) if found else frozenset()


def has(flags: frozenset[str], isa: str, arch_flags: str) -> bool:
    """Whether a CPU with these flags has an ISA, given by torch's name and the compiler's flags; False for names outside of the table."""
    words = [*isa.split(), *arch_flags.split()]
    return bool(isa) and all(word in _CPU_FLAGS and flags.issuperset(_CPU_FLAGS[word]) for word in words)


def read(path: str) -> frozenset[str]:
    """Return the digests of successful probes in a file; empty for a file of another user or in an invalid format."""
    try:
        with compiler.open_ours(path) as stream:
            data = stream.read(_MOST_BYTES + 1)
        known = json.loads(data)
    except (OSError, ValueError, RecursionError):
        return frozenset()
    if len(data) > _MOST_BYTES or not isinstance(known, dict) or known.get("format") != _FORMAT:
        return frozenset()
    digests = known.get("works")
    if not isinstance(digests, list) or not all(isinstance(digest, str) for digest in digests):
        return frozenset()
    return frozenset(digests)


def write(path: str, works: frozenset[str]) -> None:
    """Write the digests of successful probes to a file, atomically; raise ``OSError``."""
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
def _alone(folder: str, seconds: float) -> Iterator[bool]:
    """Hold the lock of those that probe in this context; yield whether that was possible within a time limit."""
    try:
        descriptor = os.open(os.path.join(folder, "vector-isa.lock"), os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError:
        yield False
        return
    try:
        yield _locked(descriptor, seconds)
    finally:
        os.close(descriptor)


def _locked(descriptor: int, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        else:
            return True


def serve_later(folder: str | None) -> None:
    """Serve probes of this process and its forks from the cache in ``folder`` when torch first asks for them; store nothing.

    For a zygote that does not probe: the probes take longer than its start. Where another process probes at that time, its answers are
    waited for.
    """
    from torch._inductor import cpu_vec_isa

    original = getattr(cpu_vec_isa.VecISA, "check_build", None)
    if folder and original is not None:

        @functools.wraps(original)
        def check_build(isa: Any, code: str) -> bool:
            if _Probes(os.path.join(folder, _FILE), original).knows(isa, code):
                return True
            with _alone(folder, _MOST_SECONDS):
                probes = _Probes(os.path.join(folder, _FILE), original)
                return probes.result(isa, code)

        cpu_vec_isa.VecISA.check_build = check_build


@contextlib.contextmanager
def cached_probes(folder: str | None) -> Iterator[None]:
    """Serve torch's probes from the cache in ``folder`` in this context, and store new results at its end; None disables the cache."""
    from torch._inductor import cpu_vec_isa

    original = getattr(cpu_vec_isa.VecISA, "check_build", None)
    if not folder or original is None:
        if folder:
            print(
                "not available in this torch: probe results of vector instructions are not cached, it has no VecISA.check_build",
                file=sys.stderr,
            )
        yield
        return
    with _alone(folder, _MOST_SECONDS):
        probes = _Probes(os.path.join(folder, _FILE), original)
        cpu_vec_isa.VecISA.check_build = lambda isa, code: probes.result(isa, code)
        try:
            yield
        finally:
            cpu_vec_isa.VecISA.check_build = original
        probes.store()


class _Probes:
    """Probe results from a file, and by torch's own probe where the file has none."""

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

    def knows(self, isa: Any, code: str) -> bool:
        """Whether the file says that a probe succeeded."""
        return self._digest(isa, code) in self._known

    def result(self, isa: Any, code: str) -> bool:
        """Whether a probe succeeds, by the file or by torch's own probe."""
        name = self._digest(isa, code)
        if name in self._known:
            return True
        works = bool(self._probe(isa, code))
        if works and name is not None:
            self._found.add(name)
        return works

    def _digest(self, isa: Any, code: str) -> str | None:
        """Return the digest of all inputs of a probe; None where its result must not be cached."""
        arch_flags = str(isa.build_arch_flags())
        if not has(self._flags, str(isa), arch_flags):
            return None
        try:
            command = _command(isa)
        except Exception as error:  # another torch may raise anything here; then torch runs its own probe
            print(f"the probe result of {isa} is not cached: {type(error).__name__}: {error}", file=sys.stderr)
            return None
        flags = tuple(word for word in command.split() if word.startswith("-m"))
        made_by = compiler.identity(command.split()[0], flags)
        if made_by is None:
            return None
        return probe_digest(str(isa), code, command, made_by, compiler.torch_build(), self._flags, os.environ)

    def store(self) -> None:
        """Add the new results to the file."""
        if self._found:
            try:
                write(self._path, self._known | self._found)
            except OSError as error:
                print(f"probe results of vector instructions are not cached: {error}", file=sys.stderr)


def _command(isa: Any) -> str:
    """Return the command of torch's probe, without its files."""
    from torch._inductor.cpp_builder import CppBuilder, CppTorchOptions

    return str(CppBuilder("o", ["i"], CppTorchOptions(vec_isa=isa, warning_all=False)).get_command_line())


def probe_digest(
    isa: str, code: str, command: str, made_by: tuple[str, ...], torch: list[str], flags: frozenset[str], environ: Mapping[str, str]
) -> str:
    """Return the digest of all inputs of a probe."""
    variables = {**compiler.variables(environ), **{name: environ[name] for name in ("ATEN_CPU_CAPABILITY", "CXX") if name in environ}}
    return compiler.digest([_FORMAT, isa, code, command, made_by, torch, sorted(flags), variables, sys.executable])
