"""What torch this machine has, read from torch's own files: nothing here imports torch."""

import ast
import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from runner.core import devices
from runner.core.diagnostics import UsageError

_RELEASE = re.compile(r"\d+(?:\.\d+)*")
_FINISHED = re.compile(r"\d+(?:\.\d+)*(?:\.post\d+)?(?:\+.*)?")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledTorch:
    """The torch that a worker would import."""

    version: str
    """As torch says it: ``2.13.0+cu130``."""
    minor: str
    """``2.13``."""
    root: Path
    """The folder of the package ``torch``."""
    builds: Mapping[str, str | None]
    """The versions of what it was built for, by their names in ``torch.version``: ``cuda``, ``hip``."""
    git: str
    """The commit that it was built from; empty when it does not say."""

    @property
    def is_release(self) -> bool:
        """Whether it is a published version, so that its minor says which names it has."""
        return _FINISHED.fullmatch(self.version) is not None


def installed_torch() -> InstalledTorch | None:
    """Return the torch on this interpreter's path, or None."""
    spec = find_spec("torch")  # a name without a dot: found, not imported
    folders = spec.submodule_search_locations if spec else None
    return next((torch_at(Path(folder)) for folder in folders or () if (Path(folder) / "version.py").is_file()), None)


def why_no_torch() -> str:
    """Return why there is no torch: none was found, or something of its name that is none."""
    spec = find_spec("torch")
    if spec is None:
        return "torch is not installed"
    found = next(iter(spec.submodule_search_locations or ()), None) or spec.origin or "an unknown place"
    return f"torch is not installed: {found} is not it, which has no version.py (remove it, or correct PYTHONPATH)"


def facts_of_files(torch: InstalledTorch | None) -> dict[str, str]:
    """Return what files alone say of this machine, by the names under which a worker tells it."""
    facts = {"python": platform.python_version()}
    if torch is not None:
        facts |= {"torch": torch.version, "torch_git": torch.git, **{name: version or "" for name, version in torch.builds.items()}}
    return {name: value for name, value in facts.items() if value}


def torch_at(root: Path) -> InstalledTorch:
    """Return the torch whose package folder is ``root``; raise UsageError when it does not say its version."""
    facts = version_facts((root / "version.py").read_text("utf-8"), str(root))
    version = facts["__version__"] or ""
    return InstalledTorch(
        version=version,
        minor=minor(version),
        root=root,
        builds={build.version: facts.get(build.version) for build in devices.builds()},
        git=facts.get("git_version") or "",
    )


def version_facts(text: str, where: str) -> dict[str, str | None]:
    """Return the strings and Nones that a ``torch/version.py`` assigns; ``__version__`` is a version, or UsageError."""
    facts: dict[str, str | None] = {}
    try:
        body = ast.parse(text).body
    except SyntaxError as problem:
        raise UsageError(f"the torch in {where} has a version.py that is not Python: {problem}") from problem
    for statement in body:
        match statement:
            case (
                ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str() | None as value))
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.Constant(value=str() | None as value))
            ):
                facts[name] = value
    if not _RELEASE.match(facts.get("__version__") or ""):
        raise UsageError(f"the torch in {where} does not say its version: its version.py assigns no usable __version__")
    return facts


def release(version: str) -> tuple[int, ...]:
    """Return the release numbers: ``2.14.0a0+gitabc`` is (2, 14, 0). Dev, alpha and local parts do not count."""
    match = _RELEASE.match(version)
    if match is None:
        raise ValueError(f"'{version}' is no version: it does not begin with a number")
    return tuple(int(number) for number in match[0].split("."))


def minor(version: str) -> str:
    """Return ``2.13`` of ``2.13.1+cpu``."""
    return ".".join(str(number) for number in release(version)[:2])
