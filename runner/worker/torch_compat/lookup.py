"""Lookup of objects by dotted path, and the identity of the imported torch."""

import importlib
import os
from typing import Any


def resolve(path: str) -> Any:
    """Return the object at a dotted path after the import of its longest module prefix; raise ImportError or AttributeError."""
    parts = path.replace(":", ".").split(".")
    for end in range(len(parts), 0, -1):
        try:
            found: Any = importlib.import_module(".".join(parts[:end]))
        except ModuleNotFoundError as error:
            if error.name is None or not ".".join(parts[:end]).startswith(error.name):
                raise
            continue
        for part in parts[end:]:
            found = getattr(found, part)
        return found
    raise ImportError(f"no module for '{path}'")


def torch_root() -> str:
    """Return the folder of the imported torch."""
    import torch

    return os.path.dirname(os.path.abspath(str(torch.__file__)))


def refuse_other_torch(inspected: str | None) -> None:
    """Raise ``ImportError`` where the imported torch is not the one that the plan was made for. A case's ``env`` can cause that."""
    if inspected is not None and os.path.realpath(torch_root()) != os.path.realpath(inspected):
        raise ImportError(f"this worker imported torch from {torch_root()}, but the case was planned for the torch in {inspected}")
