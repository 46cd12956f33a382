"""The files of the module that a backend names, and their digest: what was tested.

A worker describes them, ``submit`` packs those of Python, and ``verify`` compares both.
"""

from collections.abc import Iterable, Mapping
from hashlib import sha256
from pathlib import Path


def files_of(module: str, folders: Iterable[str], file: str | None) -> dict[str, bytes]:
    """Return Python and libraries of the package that a module is in, by their names below its
    parent; ``folders`` and ``file`` are those of the package.
    """
    top = module.partition(".")[0]
    paths = {
        f"{top}/{path.relative_to(folder)}": path
        for folder in folders
        for path in Path(folder).rglob("*")
        if path.suffix in (".py", ".so")
    }
    if not paths and file is not None:
        paths = {Path(file).name: Path(file)}
    return {name: paths[name].read_bytes() for name in sorted(paths)}


def described(module: str, files: Mapping[str, bytes]) -> str:
    """Return the fact of a module: how many files of Python and other ones it has, and the sha256
    of both.
    """
    python = {name: data for name, data in files.items() if name.endswith(".py")}
    kinds = {"files of Python": python, "libraries": files.keys() - python.keys()}
    return ", ".join(
        [
            module,
            *(
                f"{len(names)} {kind}, sha256 {_digest({name: files[name] for name in names})}"
                for kind, names in kinds.items()
                if names
            ),
        ]
    )


def _digest(files: Mapping[str, bytes]) -> str:
    lines = (f"{sha256(data).hexdigest()} {name}\n" for name, data in sorted(files.items()))
    return sha256("".join(lines).encode()).hexdigest()
