"""Checks of Python, torch, Triton, the YAML parser, and the packages that services of specs need."""

import ast
import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from runner.core import devices
from runner.core.case import Availability
from runner.core.escaping import one_line
from runner.system.capabilities import CAPABILITIES
from runner.system.doctor.findings import Finding, note, ok, problem, warning
from runner.system.doctor.scene import Scene

_PIN = re.compile(r"(?P<name>(?:pytorch[-_])?triton(?:[-_][a-z0-9]+)?)\s*\(?==\s*(?P<version>[^\s;,)]+)", re.IGNORECASE)


def python(scene: Scene) -> Iterator[Finding]:
    """Name the interpreter; the specs' conditions ask for its version."""
    yield ok("python.version", f"Python {platform.python_version()}, {sys.executable}")


def torch(scene: Scene) -> Iterator[Finding]:
    """Report the torch that files show, and what the worker that imported it said."""
    if scene.torch_problem:
        yield problem("torch.version", scene.torch_problem, remedy="reinstall torch, or remove the folder from PYTHONPATH")
        return
    if scene.torch is None:
        yield problem("torch.version", scene.machine.no_torch, "without torch no case can run", remedy="pip install torch")
        return
    built = [f"{build.title} {version}" for build in devices.builds() if (version := scene.built_for(build.version))]
    commit = f", commit {scene.torch.git[:12]}" if scene.torch.git else ""
    yield ok("torch.version", f"torch {scene.torch.version}{commit}, built for {' and '.join(built) or 'the CPU only'}, {scene.torch.root}")
    if scene.facts is not None:
        yield ok("torch.worker", "a worker imports torch and reports the facts of the machine")
        return
    yield problem(
        "torch.worker",
        "no worker with torch could report the facts of this machine",
        one_line(scene.worker_problem or "it sent nothing"),
        remedy=f"{sys.executable} -P -c 'import torch._inductor.compile_fx' shows the whole error",
    )


def triton(scene: Scene) -> Iterator[Finding]:
    """Compare the installed Triton with the version that this torch declares."""
    pins = _pins(scene)
    wanted = " or ".join(f"{name}=={version}" for name, version in pins)
    folder = next(iter(scene.machine.found.get("triton", ())), None)
    if folder is None:
        if pins and any(scene.built_for(build.version) for build in devices.builds()):
            yield problem(
                "triton.version", "Triton is not installed", f"torch declares {wanted}", remedy=f"pip install '{pins[0][0]}=={pins[0][1]}'"
            )
        else:
            yield note("triton.version", "Triton is not installed", "backends that compile for GPUs need it")
        return
    version = _version_in(Path(folder) / "__init__.py") or str((scene.facts or {}).get("triton") or "")
    if scene.facts is not None and scene.facts.get("triton") is None:
        yield problem("triton.import", f"Triton is in {folder}, and a worker cannot import it", remedy="reinstall the Triton of this torch")
        return
    if pins and version and not any(_is_same(version, pin) for _, pin in pins):
        cause = f"torch {scene.machine.torch} declares {wanted}: other versions compile other code"
        yield warning("triton.version", f"Triton {version}, {folder}", cause, f"pip install '{pins[0][0]}=={pins[0][1]}'")
        return
    against = "as torch declares" if pins else "torch declares no version of it"
    yield ok("triton.version", f"Triton {version or 'of unknown version'} ({against}), {folder}")


def _pins(scene: Scene) -> list[tuple[str, str]]:
    """Return the versions of Triton that the metadata of the installed torch name, by distribution."""
    try:
        found = importlib.metadata.distribution("torch")
    except importlib.metadata.PackageNotFoundError:
        return []
    if found.version != scene.machine.torch:  # the metadata of another torch: a checkout stands before it
        return []
    return [(match["name"], match["version"]) for line in found.requires or () if (match := _PIN.match(line))]


def _is_same(version: str, pin: str) -> bool:
    return version == pin or version.partition("+")[0] == pin or version == pin.partition("+")[0]


def _version_in(path: Path) -> str:
    """Return the ``__version__`` that a file assigns, without running it."""
    try:
        body = ast.parse(path.read_text("utf-8")).body
    except (OSError, SyntaxError, ValueError):
        return ""
    for statement in body:
        match statement:
            case ast.Assign(targets=[ast.Name(id="__version__")], value=ast.Constant(value=str() as text)):
                return text
    return ""


def yaml(scene: Scene) -> Iterator[Finding]:
    """Say whether specs are read by libyaml."""
    import yaml as pyyaml

    if hasattr(pyyaml, "CSafeLoader"):
        yield ok("yaml.loader", f"PyYAML {pyyaml.__version__} with libyaml")
        return
    cause = "specs are read by PyYAML's Python parser, eight times as slow"
    yield warning(
        "yaml.loader", f"PyYAML {pyyaml.__version__} without libyaml", cause, "pip install --force-reinstall pyyaml (a wheel has it)"
    )


def services(scene: Scene) -> Iterator[Finding]:
    """Say whether specs of remote caches have their server."""
    answer = CAPABILITIES["redis"].probe(scene.machine, "")
    if answer.availability is Availability.YES:
        yield ok("services.redis", "the Redis client of torch and an embedded server are installed")
    else:
        yield note("services.redis", answer.reason, "specs of remote caches are unavailable", "pip install 'torch-conformance[remote]'")
