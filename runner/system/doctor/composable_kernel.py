"""Checks of Composable Kernel: the package, each header that torch includes, and the generators of instances.

When a header is missing, every candidate of Composable Kernel fails to compile, torch drops them one by one, and another library
serves the operation: a run stays green. When a package is missing, torch's generators are empty, with the same effect.
"""

import importlib.metadata
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from runner.core.escaping import one_line
from runner.system.doctor import ck_headers, rocm
from runner.system.doctor.findings import Finding, note, ok, problem, warning
from runner.system.doctor.scene import GeneratorReport, Scene

PACKAGE = "ck4inductor"

GENERATORS: Mapping[str, str] = {
    "universal_gemm": "universal GEMM",
    "batched_gemm": "batched GEMM",
    "grouped_conv": "grouped convolution",
    "ck_tile": "CK tile GEMM",
}
"""The generators of torch's templates, with their titles. The worker's side is ``worker/torch_compat/ck_generators.py``."""

_WHEEL = "the wheel of Composable Kernel (rocm-composable-kernel, which has ck4inductor)"
_BUILT = "composablekernel-dev of ROCm (its build writes the header)"


def check(scene: Scene) -> Iterator[Finding]:
    """Report package, headers and generators; nothing of the package is run in this process."""
    folder = next(iter(scene.machine.found.get("ck", ())), None)
    if folder is None:
        hint = "pip install the wheel rocm-composable-kernel of your ROCm" if scene.built_for("hip") else ""
        yield note("ck.package", f"Composable Kernel (the package {PACKAGE}) is not installed", "its backends are unavailable", hint)
        return
    yield ok("ck.package", f"{PACKAGE} {_version(Path(folder))}, {folder}")
    yield from _headers(scene, Path(folder))
    yield from _generators(scene.generators or GeneratorReport(problem="nothing asked for it"))


def _version(folder: Path) -> str:
    """Return name and version of the distribution that installed a package."""
    for found in importlib.metadata.distributions(path=[str(folder.parent)]):
        listed = found.read_text("top_level.txt") or found.read_text("RECORD") or ""
        if any(line.partition("/")[0].strip() == PACKAGE for line in listed.splitlines()):
            return f"of {found.metadata['Name']} {found.version}"
    return "without a version (no distribution on this path has it)"


def folders(scene: Scene, package: Path) -> list[Path]:
    """Return the folders in which torch lets the compiler look for headers, in their order."""
    home, _ = rocm.home(scene)
    return [package / "include", package / "library" / "include", *([home / "include"] if home else [])]


def _headers(scene: Scene, package: Path) -> Iterator[Finding]:
    if scene.torch is None:
        return
    wanted = ck_headers.wanted(scene.torch.root)
    if not wanted:
        yield note("ck.headers", f"torch {scene.torch.version} has no templates for Composable Kernel")
        return
    named = scene.environ.get("TORCHINDUCTOR_CK_DIR")
    if named and Path(named).resolve() != package.resolve():
        cause = f"torch replaces it by {package} when it renders a GEMM"
        yield warning("ck.folder", f"TORCHINDUCTOR_CK_DIR={named} has no effect", cause, "unset TORCHINDUCTOR_CK_DIR")
    places = folders(scene, package)
    lost = ck_headers.missing(wanted, places)
    for one in lost:
        cause = f"{one.included_by} includes it: no candidate that needs it compiles, and torch drops each without an error"
        brings = _BUILT if one.header == ck_headers.GENERATED else _WHEEL
        yield problem("ck.header", f"the header {one.header} is not in {', '.join(map(str, places))}", cause, remedy=f"install {brings}")
    if not lost:
        yield ok("ck.headers", f"all {len(wanted)} headers that torch includes for CK and CK tile are found, and {ck_headers.GENERATED}")


def _generators(report: GeneratorReport) -> Iterator[Finding]:
    if report.problem:
        remedy = f"{sys.executable} -P -c 'import {PACKAGE}.universal_gemm.gen_instances' shows the whole error"
        yield problem("ck.generators", "the generators of instances could not be asked", one_line(report.problem), remedy=remedy)
        return
    if report.inductor:
        remedy = f"install the whole package {PACKAGE}, or remove it: a part of it disables torch.compile"
        yield problem(
            "ck.import", "torch._inductor cannot be imported", f"{PACKAGE} is incomplete: {one_line(report.inductor)}", remedy=remedy
        )
    for name, title in GENERATORS.items():
        count = report.counts.get(name, 0)
        if count:
            yield ok("ck.generator", f"{title}: {count} instances")
            continue
        cause = one_line(report.reasons.get(name, "")) or "it returned an empty list"
        remedy = f"install {_WHEEL} in the version of this torch"
        yield problem("ck.generator", f"{title}: the generator is empty, so no candidate is rendered", cause, remedy=remedy)
