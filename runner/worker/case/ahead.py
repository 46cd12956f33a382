"""A function compiled ahead of time: exported, built into a package, loaded from there, and run."""

import os
from collections.abc import Callable
from typing import Any

import torch


class _AsModule(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    """A module that is one function: torch exports nothing else."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self._function = function

    def forward(self, *arguments: Any) -> Any:
        return self._function(*arguments)


class Ahead:
    """Builds packages in a folder. What was loaded stays loaded until ``close``: a result may lie in its memory."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._loaded: list[Any] = []

    def target(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """Return what exports a function for the arguments of its call, builds, loads, and gives the loaded package's result."""

        def build_and_run(*arguments: Any) -> Any:
            from torch._inductor import aoti_compile_and_package, aoti_load_package

            module = function if isinstance(function, torch.nn.Module) else _AsModule(function)
            os.makedirs(self._folder, exist_ok=True)
            file = os.path.join(self._folder, f"{len(self._loaded)}.pt2")
            package = aoti_load_package(aoti_compile_and_package(torch.export.export(module, arguments), package_path=file))
            self._loaded.append(package)
            return package(*arguments)

        return build_and_run

    def close(self) -> None:
        """Unload every package; that deletes what torch unpacked of it."""
        self._loaded.clear()
