"""Checks of Python, torch and Triton, of the compilers that torch calls, of memory and space."""

import os
import platform
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runner.machine import scratch
from runner.model import devices
from runner.model.diagnostics import UsageError
from runner.model.escaping import one_line
from runner.plan import schedule
from runner.tools.vendor.doctor.findings import NOTE, OK, PROBLEM, WARNING, Finding, Printed, Scene

_WRAPPERS = ("ccache", "sccache", "distcc", "icecc", "buildcache", "fastbuild", "clcache")
"""Programs that stand before a compiler and may answer from a cache or from another machine."""

_OPENMP = b'#include <omp.h>\nextern "C" int threads() { return omp_get_max_threads(); }\n'
_LOCALE = b'#include <locale>\nextern "C" bool is_classic() { return std::locale() == std::locale::classic(); }\n'

_SHARED_RUNTIMES = (b"libstdc++.so", b"libc++.so")
"""The names by which a library asks for a C++ runtime that other libraries have too."""

_LEAST_MEMORY = 2 << 30
"""Two cases that compile, and what the runner and its zygotes use."""
_LEAST_DISK = 1 << 30
"""Generated code, objects and precompiled headers of a run: a header alone takes some 200 MB."""


def python(scene: Scene) -> Iterator[Finding]:
    """Name the interpreter, and say whether specs are read by libyaml."""
    import yaml

    yield Finding("python.version", OK, f"Python {platform.python_version()}, {sys.executable}")
    if not hasattr(yaml, "CSafeLoader"):
        cause = "specs are read by PyYAML's Python parser, eight times as slow"
        yield Finding("yaml.loader", WARNING, "PyYAML without libyaml", cause, "pip install --force-reinstall pyyaml (a wheel has it)")


def torch(scene: Scene) -> Iterator[Finding]:
    """Report the torch that files show, and what the worker that imported it said."""
    if scene.torch_problem:
        yield Finding("torch.version", PROBLEM, scene.torch_problem, "", "reinstall torch, or remove the folder from PYTHONPATH")
        return
    if scene.torch is None:
        yield Finding("torch.version", PROBLEM, scene.machine.no_torch, "without torch no case can run", "pip install torch")
        return
    built = [f"{build.title} {version}" for build in devices.builds() if (version := scene.built_for(build.version))]
    commit = f", commit {scene.torch.git[:12]}" if scene.torch.git else ""
    words = f"torch {scene.torch.version}{commit}, built for {' and '.join(built) or 'the CPU only'}, {scene.torch.root}"
    yield Finding("torch.version", OK, words)
    if scene.facts is not None:
        yield Finding("torch.worker", OK, "a worker imports torch and reports the facts of the machine")
        return
    cause = one_line(scene.worker_problem or "it sent nothing")
    remedy = f"{sys.executable} -P -c 'import torch._inductor.compile_fx' shows the whole error"
    yield Finding("torch.worker", PROBLEM, "no worker with torch could report the facts of this machine", cause, remedy)


def triton(scene: Scene) -> Iterator[Finding]:
    """Say whether there is a Triton that a worker can import."""
    folder, version = scene.package("triton"), (scene.facts or {}).get("triton")
    if folder is None and any(scene.built_for(build.version) for build in devices.builds()):
        yield Finding(
            "triton.version", PROBLEM, "Triton is not installed", "torch compiles for GPUs with it", "reinstall torch with its Triton"
        )
    elif folder is None:
        yield Finding("triton.version", NOTE, "Triton is not installed", "backends that compile for GPUs need it")
    elif scene.facts is not None and version is None:
        words = f"Triton is in {folder}, and a worker cannot import it"
        yield Finding("triton.import", PROBLEM, words, "", "reinstall the Triton of this torch")
    else:
        yield Finding("triton.version", OK, f"Triton {version or 'of unknown version'}, {folder}")


# -- compilers ------------------------------------------------------------------------------------------------------


def cxx(scene: Scene) -> Iterator[Finding]:
    """Name the compiler that torch calls, ``$CXX`` as one word, else g++, and build two small libraries with it."""
    named = scene.environ.get("CXX")
    compiler = scene.which("g++" if named is None else named)
    if compiler is None:
        yield _without_compiler(scene, named)
        return
    printed = scene.asked(compiler, "--version")
    if printed.problem:
        remedy = "set CXX to a compiler that answers --version" if named is not None else "reinstall g++, or set CXX to another compiler"
        yield Finding("cxx.version", PROBLEM, f"torch calls {compiler}, which does not answer --version", _why(printed), remedy)
        return
    origin = "named by CXX" if named is not None else "the first g++ on PATH"
    yield Finding("cxx.version", OK, f"torch calls {compiler} ({origin}): {one_line(printed.first_line, 120)}")
    if wrapper := wrapper_of(compiler):
        cause = "it may answer from a cache or another machine, so that a case compiles nothing here"
        yield Finding("cxx.wrapper", WARNING, f"{compiler} is {wrapper}", cause, "set CXX to the compiler itself for a run that counts")
    with tempfile.TemporaryDirectory(prefix="torch-conformance-doctor-") as folder:
        target = Path(folder) / "built.so"
        command = [str(compiler), "-x", "c++", "-", "-shared", "-fPIC", "-o", str(target)]
        printed = scene.run([*command, "-fopenmp"], stdin=_OPENMP)
        if printed.problem:
            remedy = "install the OpenMP library of this compiler (libgomp for g++, libomp-dev for clang++)"
            yield Finding("cxx.openmp", PROBLEM, "the compiler builds no library that uses OpenMP", _why(printed), remedy)
        else:
            yield Finding("cxx.openmp", OK, "the compiler builds a library that uses OpenMP")
        target.unlink(missing_ok=True)
        printed = scene.run(command, stdin=_LOCALE)
        if printed.problem or not target.is_file():
            return
        is_shared = any(name in target.read_bytes() for name in _SHARED_RUNTIMES)
    if is_shared:
        yield Finding("cxx.runtime", OK, "the libraries that it builds share the C++ runtime")
    else:  # seen with torch 2.11 on an H200: SIGSEGV in std::regex of a package that was loaded
        cause = "torch has another copy of the runtime: std::regex crashed (SIGSEGV) where a package of AOTInductor was loaded"
        words = "each library that it builds has its own copy of the C++ runtime"
        yield Finding("cxx.runtime", WARNING, words, cause, "set CXX to another compiler")


def _without_compiler(scene: Scene, named: str | None) -> Finding:
    if named is not None:
        # the value itself is not shown: it is not among the variables that are recorded
        cause = "torch starts its whole value as one program, and the value has several words" if len(named.split()) > 1 else ""
        return Finding("cxx.version", PROBLEM, "CXX names no program", cause, "set CXX to the path of one program, or unset it")
    if (other := scene.which("clang++")) is not None:
        cause = "without CXX torch calls g++ alone: every compile for the CPU fails"
        return Finding("cxx.version", WARNING, f"there is {other}, and no g++", cause, f"export CXX={other}")
    cause = "Inductor compiles for the CPU with it, and Triton its launchers"
    return Finding("cxx.version", WARNING, "there is no C++ compiler", cause, "install g++")


def wrapper_of(program: Path) -> str:
    """Return in words what stands in place of a compiler: a known wrapper, or a script; empty for a binary."""
    for _ in range(16):  # a circle of links ends here
        names = {program.name, *(("ccache",) if program.parent.name == "ccache" else ())}
        if wrapper := next((name for name in _WRAPPERS if name in names), ""):
            return f"{wrapper}, a compiler wrapper"
        if not program.is_symlink():
            break
        program = program.parent / os.readlink(program)
    try:
        with program.open("rb") as stream:
            text = stream.read(4096).decode("utf-8", "replace")
    except OSError:
        return ""
    if not text.startswith("#!"):
        return ""
    called = next((name for name in _WRAPPERS if re.search(rf"\b{name}\b", text)), "")
    return f"a script ({one_line(text.splitlines()[0], 60)})" + (f" that names {called}" if called else "")


def _why(printed: Printed) -> str:
    lines = [line for line in printed.text.splitlines() if line.strip()]
    shown = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
    return printed.problem + (f": {one_line(shown, 200)}" if shown else "")


def ptxas(scene: Scene) -> Iterator[Finding]:
    """Find the assembler that Triton calls for NVIDIA GPUs: ``$TRITON_PTXAS_PATH``, else Triton's own."""
    triton, named = scene.package("triton"), scene.environ.get("TRITON_PTXAS_PATH")
    path = Path(named) if named else triton / "backends" / "nvidia" / "bin" / "ptxas" if triton else None
    if not scene.built_for("cuda") or path is None:
        return
    printed = scene.asked(path, "--version")
    if not printed.problem:
        release = re.search(r"release [^\n]*", printed.text)
        yield Finding("ptxas.version", OK, f"{path}: {one_line(release[0] if release else printed.first_line, 120)}")
    else:
        remedy = "unset TRITON_PTXAS_PATH" if named else "reinstall triton, or set TRITON_PTXAS_PATH"
        yield Finding("ptxas.version", PROBLEM, f"there is no working ptxas in {path}", printed.problem, remedy)


# -- memory and space -----------------------------------------------------------------------------------------------


def resources(scene: Scene) -> Iterator[Finding]:
    """Report cores and memory within the limits of control groups, and the space for temporary files."""
    cores, memory = schedule.cores(), schedule.available_memory()
    words = f"{cores:g} cores, {memory / 2**30:.1f} GiB of memory available"
    if memory < _LEAST_MEMORY:
        remedy = "close other programs, or run with --jobs 1"
        yield Finding("resources.memory", WARNING, words, "a case that compiles takes about 1 GiB", remedy)
    else:
        yield Finding("resources.memory", OK, words)
    try:
        scratch.check()
    except UsageError as error:
        yield Finding("folders.temporary", PROBLEM, str(error), "", "set TMPDIR to a folder with free space in which programs may run")
        return
    folder = Path(tempfile.gettempdir())
    space = scratch.space_of(folder)
    words = f"{folder}: {space.bytes / 2**30:.1f} GiB free"
    if space.bytes < _LEAST_DISK:
        cause = "runs keep generated code and objects there"
        yield Finding("folders.temporary", WARNING, words, cause, "set TMPDIR to a larger folder")
    else:
        yield Finding("folders.temporary", OK, words)
