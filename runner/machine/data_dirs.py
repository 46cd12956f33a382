"""The project's data folders: beside the package in a checkout, inside it in an installed wheel."""

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def folder(name: str) -> Path:
    """Return the folder ``specs``, ``schemas`` or ``templates``; raise ``FileNotFoundError`` if neither place has it."""
    for base in (_PACKAGE.parent, _PACKAGE / "_data"):
        if (base / "schemas" / "spec.schema.json").is_file() and (base / name).is_dir():
            return base / name
    raise FileNotFoundError(f"the data folder '{name}' is missing from the installation")
