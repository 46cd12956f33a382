"""What files and the environment of this machine show of capabilities, in milliseconds and without torch (``Capability.look``)."""

import importlib.util
import os
import shutil

from runner.system.installed_torch import installed_torch


def package(name: str) -> tuple[str, ...]:
    """Return the folder of a package, without importing it."""
    spec = importlib.util.find_spec(name)
    return tuple([*(spec.submodule_search_locations or [])][:1]) if spec else ()


def compiler() -> tuple[str, ...]:
    """Return the program that Inductor starts: the whole of ``$CXX``, and g++ only where it is not set (``config.cpp.cxx`` in torch)."""
    found = shutil.which(os.environ.get("CXX", "g++"))
    return (found,) if found else ()


def redis() -> tuple[str, ...]:
    """Return the folder of the client that torch uses."""
    return package("redis")


def libraries() -> tuple[str, ...]:
    """Return the names of the libraries in the folder of the installed torch."""
    torch = installed_torch()
    try:
        return tuple(sorted(os.listdir(torch.root / "lib"))) if torch is not None else ()
    except OSError:
        return ()
