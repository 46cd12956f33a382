"""Checks of the C++ compiler that torch calls, of OpenMP, and of the assembler for NVIDIA GPUs."""

import os
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path

from runner.core.escaping import one_line
from runner.system.doctor.findings import Finding, note, ok, problem, warning
from runner.system.doctor.scene import Scene

_WRAPPERS = ("ccache", "sccache", "distcc", "icecc", "buildcache", "fastbuild", "clcache")
"""Programs that stand before a compiler and may answer from a cache or from another machine."""

_OPENMP = b'#include <omp.h>\nextern "C" int threads() { return omp_get_max_threads(); }\n'

_LOCALE = b'#include <locale>\nextern "C" bool is_classic() { return std::locale() == std::locale::classic(); }\n'

_SHARED_RUNTIMES = (b"libstdc++.so", b"libc++.so")
"""The names by which a library asks for a C++ runtime that other libraries have too."""

_SCRIPT_BYTES = 4096


def cxx(scene: Scene) -> Iterator[Finding]:
    """Name the compiler that torch calls: ``$CXX`` as one word, else g++."""
    named = scene.environ.get("CXX")
    found = scene.which("g++" if named is None else named)
    if found is None:
        yield _without_compiler(scene, named)
        return
    printed = scene.asked(found, "--version")
    if printed.problem:
        remedy = "set CXX to a compiler that answers --version" if named is not None else "reinstall g++, or set CXX to another compiler"
        yield problem(
            "cxx.version", f"torch calls {found}, which does not answer --version", _why(printed.problem, printed.text), remedy=remedy
        )
        return
    origin = "named by CXX" if named is not None else "the first g++ on PATH"
    yield ok("cxx.version", f"torch calls {found} ({origin}): {one_line(printed.first_line, 120)}")
    wrapper = wrapper_of(found)
    if wrapper:
        cause = "it may answer from a cache or another machine, so that a case compiles nothing here"
        yield warning("cxx.wrapper", f"{found} is {wrapper}", cause, "set CXX to the compiler itself for a run that counts")
    yield from _openmp(scene, found)
    yield from _runtime(scene, found)


def _without_compiler(scene: Scene, named: str | None) -> Finding:
    if named is not None:
        # the value itself is not shown: it is not among the variables that are recorded
        cause = "torch starts its whole value as one program, and the value has several words" if len(named.split()) > 1 else ""
        return problem("cxx.version", "CXX names no program", cause, remedy="set CXX to the path of one program, or unset it")
    other = scene.which("clang++")
    if other is not None:
        return warning(
            "cxx.version",
            f"there is {other}, and no g++",
            "without CXX torch calls g++ alone: every compile for the CPU fails",
            f"export CXX={other}",
        )
    return warning(
        "cxx.version", "there is no C++ compiler", "Inductor compiles for the CPU with it, and Triton its launchers", "install g++"
    )


def wrapper_of(program: Path) -> str:
    """Return in words what stands in place of a compiler: a known wrapper, or a script; empty for a binary."""
    seen = [program, *_links(program)]
    for path in seen:
        names = {path.name, *(("ccache",) if path.parent.name == "ccache" else ())}
        if found := next((name for name in _WRAPPERS if name in names), ""):
            return f"{found}, a compiler wrapper"
    try:
        with seen[-1].open("rb") as stream:
            head = stream.read(_SCRIPT_BYTES)
    except OSError:
        return ""
    if not head.startswith(b"#!"):
        return ""
    text = head.decode("utf-8", "replace")
    called = next((name for name in _WRAPPERS if re.search(rf"\b{name}\b", text)), "")
    return f"a script ({one_line(text.splitlines()[0], 60)})" + (f" that names {called}" if called else "")


def _links(program: Path) -> Iterator[Path]:
    for _ in range(16):  # a circle of links ends here
        if not program.is_symlink():
            return
        program = program.parent / os.readlink(program)
        yield program


def _openmp(scene: Scene, compiler: Path) -> Iterator[Finding]:
    """Build two lines that use OpenMP, as torch's code for the CPU does."""
    with tempfile.TemporaryDirectory(prefix="torch-conformance-doctor-") as folder:
        target = str(Path(folder) / "openmp.so")
        printed = scene.run([str(compiler), "-x", "c++", "-", "-fopenmp", "-shared", "-fPIC", "-o", target], given=_OPENMP)
    if not printed.problem:
        yield ok("cxx.openmp", "the compiler builds a library that uses OpenMP")
        return
    remedy = "install the OpenMP library of this compiler (libgomp for g++, libomp-dev for clang++)"
    yield problem("cxx.openmp", "the compiler builds no library that uses OpenMP", _why(printed.problem, printed.text), remedy=remedy)


def _runtime(scene: Scene, compiler: Path) -> Iterator[Finding]:
    """Build two lines that use the C++ runtime, and read whether the library shares it. A compiler that builds nothing is found before."""
    with tempfile.TemporaryDirectory(prefix="torch-conformance-doctor-") as folder:
        target = Path(folder) / "runtime.so"
        printed = scene.run([str(compiler), "-x", "c++", "-", "-shared", "-fPIC", "-o", str(target)], given=_LOCALE)
        if printed.problem or not target.is_file():
            return
        is_shared = any(name in target.read_bytes() for name in _SHARED_RUNTIMES)
    if is_shared:
        yield ok("cxx.runtime", "the libraries that it builds share the C++ runtime")
        return
    # seen with torch 2.11 on an H200: SIGSEGV in std::regex of a package that was loaded
    cause = "torch has another copy of the runtime: std::regex crashed (SIGSEGV) where a package of AOTInductor was loaded"
    yield warning("cxx.runtime", "each library that it builds has its own copy of the C++ runtime", cause, "set CXX to another compiler")


def _why(ending: str, text: str) -> str:
    lines = [line for line in text.splitlines() if line.strip()]
    shown = next((line for line in lines if "error" in line.lower()), lines[-1] if lines else "")
    return ending + (f": {one_line(shown, 200)}" if shown else "")


def ptxas(scene: Scene) -> Iterator[Finding]:
    """Find the assembler that Triton calls for NVIDIA GPUs: ``$TRITON_PTXAS_PATH``, else Triton's own."""
    if not scene.built_for("cuda"):
        return
    named = scene.environ.get("TRITON_PTXAS_PATH")
    triton = next(iter(scene.machine.found.get("triton", ())), None)
    own = Path(triton) / "backends" / "nvidia" / "bin" / "ptxas" if triton else None
    path = Path(named) if named else own
    if path is None:
        yield note("ptxas.version", "ptxas was not looked for", "Triton brings it, and Triton is not installed")
        return
    printed = scene.asked(path, "--version")
    release = re.search(r"release [^\n]*", printed.text)
    if not printed.problem:
        yield ok("ptxas.version", f"{path}: {one_line(release[0] if release else printed.first_line, 120)}")
    elif named:
        yield problem(
            "ptxas.version", f"TRITON_PTXAS_PATH names {named}, which does not answer", printed.problem, remedy="unset TRITON_PTXAS_PATH"
        )
    else:
        yield problem(
            "ptxas.version", f"Triton has no working ptxas in {path}", printed.problem, remedy="reinstall triton, or set TRITON_PTXAS_PATH"
        )
