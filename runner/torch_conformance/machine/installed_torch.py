"""Facts about the installed torch, read from its files without importing it."""

import ast
import platform
import re
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from torch_conformance.model import devices
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.values import frozen

_RELEASE = re.compile(r"\d+(?:\.\d+)*")


@frozen
class InstalledTorch:
    """The torch that a worker imports."""

    version: str
    """The full version: ``2.13.0+cu130``."""
    minor: str
    """``2.13``."""
    root: Path
    """The folder of the package ``torch``."""
    builds: Mapping[str, str | None]
    """The versions of what it was built for, by their names in ``torch.version``: ``cuda``,
    ``hip``.
    """
    git: str
    """The commit of the build; empty if it is not recorded."""


def installed_torch() -> InstalledTorch | None:
    """Return the torch on this interpreter's path, or None."""
    spec = find_spec("torch")  # a name without a dot is found without an import
    folders = spec.submodule_search_locations if spec else None
    return next(
        (
            torch_at(Path(folder))
            for folder in folders or ()
            if (Path(folder) / "version.py").is_file()
        ),
        None,
    )


def no_torch_reason() -> str:
    """Return the reason why there is no torch: nothing was found, or a package ``torch`` without
    version.py.
    """
    if (spec := find_spec("torch")) is None:
        return "torch is not installed"
    location = (
        next(iter(spec.submodule_search_locations or ()), None) or spec.origin or "an unknown place"
    )
    return (
        f"torch is not installed: {location} has no version.py (remove it, or correct PYTHONPATH)"
    )


def facts_of_files(torch: InstalledTorch | None) -> dict[str, str]:
    """Return the facts that files give, by the names of a worker's facts."""
    facts = {"python": platform.python_version()}
    if torch is not None:
        facts |= {
            "torch": torch.version,
            "torch_git": torch.git,
            **{name: version or "" for name, version in torch.builds.items()},
        }
    return {name: value for name, value in facts.items() if value}


def torch_at(root: Path) -> InstalledTorch:
    """Return the torch in the package folder ``root``; raise ``UsageError`` if its version cannot
    be read.
    """
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
    """Return the strings and Nones that a ``torch/version.py`` assigns; raise ``UsageError`` if
    ``__version__`` is not a version.
    """
    facts: dict[str, str | None] = {}
    try:
        body = ast.parse(text).body
    except SyntaxError as problem:
        raise UsageError(
            f"the torch in {where} has a version.py that is not Python: {problem}"
        ) from problem
    for statement in body:
        match statement:
            case (
                ast.Assign(
                    targets=[ast.Name(id=name)], value=ast.Constant(value=str() | None as value)
                )
                | ast.AnnAssign(
                    target=ast.Name(id=name), value=ast.Constant(value=str() | None as value)
                )
            ):
                facts[name] = value
    if not _RELEASE.match(facts.get("__version__") or ""):
        raise UsageError(
            f"the torch in {where} has no readable version: its version.py assigns no usable "
            "__version__"
        )
    return facts


def release(version: str) -> tuple[int, ...]:
    """Return the release numbers: ``2.14.0a0+gitabc`` gives (2, 14, 0).

    Dev, alpha and local parts are dropped.
    """
    if (match := _RELEASE.match(version)) is None:
        raise ValueError(f"'{version}' is not a version: it does not begin with a number")
    return tuple(map(int, match[0].split(".")))


def minor(version: str) -> str:
    """Return the minor version: ``2.13`` for ``2.13.1+cpu``."""
    return ".".join(map(str, release(version)[:2]))
