"""Checks of Composable Kernel: the package, each header that torch includes, and the generators of instances. Reads files; runs nothing.

When a header is missing, every candidate of Composable Kernel fails to compile, torch drops them one by one, and another library
serves the operation: a run stays green. When a package is missing, torch's generators are empty, with the same effect.
"""

import ast
import importlib.metadata
import re
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from runner.model.escaping import one_line
from runner.tools.vendor.doctor.accelerators import rocm_home
from runner.tools.vendor.doctor.findings import NOTE, OK, PROBLEM, WARNING, Finding, GeneratorReport, Scene

_PACKAGE = "ck4inductor"

GENERATORS: Mapping[str, str] = {
    "universal_gemm": "universal GEMM",
    "batched_gemm": "batched GEMM",
    "grouped_conv": "grouped convolution",
    "ck_tile": "CK tile GEMM",
}
"""The generators of torch's templates, with their titles. The worker's side is ``tools/vendor/ck_generators.py``."""

_WHEEL = "the wheel of Composable Kernel (rocm-composable-kernel, which has ck4inductor)"
_BUILT = "composablekernel-dev of ROCm (its build writes the header)"

_GENERATED = "ck/config.h"
"""A header that the build of Composable Kernel writes, and that a wheel of its sources can lack; ``ck/ck.hpp`` includes it."""
_SOURCES = Path("_inductor") / "codegen" / "rocm"
_INCLUDE = re.compile(r"^\s*#\s*include\s*[<\"](?P<name>[^>\"\n]+)[>\"]", re.MULTILINE)
_OF_LIBRARY = ("ck/", "ck_tile/")


def check(scene: Scene) -> Iterator[Finding]:
    """Report package, headers and generators; nothing of the package is run in this process."""
    package = scene.package("ck")
    if package is None:
        remedy = "pip install the wheel rocm-composable-kernel of your ROCm" if scene.built_for("hip") else ""
        words = f"Composable Kernel (the package {_PACKAGE}) is not installed"
        yield Finding("ck.package", NOTE, words, "its backends are unavailable", remedy)
        return
    yield Finding("ck.package", OK, f"{_PACKAGE} {_version(package)}, {package}")
    if scene.torch is not None:
        yield from _headers(scene, package, headers_of_torch(scene.torch.root))
    yield from _generators(scene.generators or GeneratorReport(problem="nothing asked for it"))


def _version(package: Path) -> str:
    """Return name and version of the distribution that installed a package."""
    for distribution in importlib.metadata.distributions(path=[str(package.parent)]):
        listed = distribution.read_text("top_level.txt") or distribution.read_text("RECORD") or ""
        if any(line.partition("/")[0].strip() == _PACKAGE for line in listed.splitlines()):
            return f"of {distribution.metadata['Name']} {distribution.version}"
    return "without a version (no distribution on this path has it)"


def _headers(scene: Scene, package: Path, headers: Mapping[str, str]) -> Iterator[Finding]:
    if not headers:
        yield Finding("ck.headers", NOTE, "this torch has no templates for Composable Kernel")
        return
    named = scene.environ.get("TORCHINDUCTOR_CK_DIR")
    if named and Path(named).resolve() != package.resolve():
        cause = f"torch replaces it by {package} when it renders a GEMM"
        yield Finding("ck.folder", WARNING, f"TORCHINDUCTOR_CK_DIR={named} has no effect", cause, "unset TORCHINDUCTOR_CK_DIR")
    home, _ = rocm_home(scene)
    # the folders in which torch lets the compiler look for headers, in their order
    folders = [package / "include", package / "library" / "include", *([home / "include"] if home else [])]
    included = {**headers, **({_GENERATED: "ck/ck.hpp"} if any(name.startswith("ck/") for name in headers) else {})}
    lost = [name for name in included if not any((folder / name).is_file() for folder in folders)]
    for header in lost:
        cause = f"{included[header]} includes it: no candidate that needs it compiles, and torch drops each without an error"
        words = f"the header {header} is not in {', '.join(map(str, folders))}"
        yield Finding("ck.header", PROBLEM, words, cause, f"install {_BUILT if header == _GENERATED else _WHEEL}")
    if not lost:
        words = f"all {len(headers)} headers that torch includes for CK and CK tile are found, and {_GENERATED}"
        yield Finding("ck.headers", OK, words)


def headers_of_torch(torch_root: Path) -> Mapping[str, str]:
    """Return the headers that the templates of an installed torch include, each with the file of torch that names it first."""
    headers: dict[str, str] = {}
    for path in sorted((torch_root / _SOURCES).glob("*.py")):
        try:
            tree = ast.parse(path.read_text("utf-8"))
        except (OSError, SyntaxError, ValueError):
            continue
        texts = [node.value for node in ast.walk(tree) if isinstance(node, ast.Constant) and isinstance(node.value, str)]
        for match in (match for text in texts for match in _INCLUDE.finditer(text)):
            if match["name"].startswith(_OF_LIBRARY):
                headers.setdefault(match["name"], f"torch/{_SOURCES.as_posix()}/{path.name}")
    return headers


def _generators(report: GeneratorReport) -> Iterator[Finding]:
    if report.problem:
        remedy = f"{sys.executable} -P -c 'import {_PACKAGE}.universal_gemm.gen_instances' shows the whole error"
        yield Finding("ck.generators", PROBLEM, "the generators of instances could not be asked", one_line(report.problem), remedy)
        return
    if report.inductor:
        cause = f"{_PACKAGE} is incomplete: {one_line(report.inductor)}"
        remedy = f"install the whole package {_PACKAGE}, or remove it: a part of it disables torch.compile"
        yield Finding("ck.import", PROBLEM, "torch._inductor cannot be imported", cause, remedy)
    for name, title in GENERATORS.items():
        if count := report.counts.get(name, 0):
            yield Finding("ck.generator", OK, f"{title}: {count} instances")
            continue
        cause = one_line(report.reasons.get(name, "")) or "it returned an empty list"
        words = f"{title}: the generator is empty, so no candidate is rendered"
        yield Finding("ck.generator", PROBLEM, words, cause, f"install {_WHEEL} in the version of this torch")
