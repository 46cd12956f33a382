"""Check what is in an sdist and a wheel: ``python tools/distributions.py FOLDER``.

Needs only the standard library.
"""

import sys
import tarfile
import zipfile
from collections.abc import Collection, Iterator
from pathlib import Path

IN_WHEEL = (
    "torch_conformance/py.typed",
    "torch_conformance/_data/specs/backends.yaml",
    "torch_conformance/_data/schemas/spec.schema.json",
    "torch_conformance/machine/data/variables.txt",
)
IN_SDIST = (
    "pyproject.toml",
    "README.md",
    "constraints.txt",
    "mkdocs.yml",
    "noxfile.py",
    "docs/index.md",
    "tools/distributions.py",
    "runner/torch_conformance/py.typed",
)
REFUSED = (".whl", ".pyc", ".so", ".zip", ".tar.gz")
"""Suffixes of files that are built, and belong into no distribution."""


def main(folder: Path) -> int:
    """Print every problem; return 1 when there is one."""
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    with zipfile.ZipFile(wheel) as archive:
        inside = archive.namelist()
    with tarfile.open(sdist) as archive:
        sources = [name.partition("/")[2] for name in archive.getnames()]
    errors = [*problems(wheel.name, inside, IN_WHEEL), *problems(sdist.name, sources, IN_SDIST)]
    print(
        *errors or [f"{wheel.name}: {len(inside)} files; {sdist.name}: {len(sources)} files"],
        sep="\n",
    )
    return 1 if errors else 0


def problems(name: str, inside: Collection[str], required: Collection[str]) -> Iterator[str]:
    """Yield a line for each file that is missing, and for each that must not be there."""
    yield from (f"{name}: {path} is missing" for path in required if path not in inside)
    yield from (f"{name}: holds {path}" for path in inside if path.endswith(REFUSED))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
