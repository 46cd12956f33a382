"""Runs something before a worker's case: for the folders ``site`` whose ``sitecustomize`` plants
faults or mutants.
"""

import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

RUNS_CASES = "torch_conformance.worker.case.run_case"

Run = Callable[..., None]


class Planter(importlib.abc.MetaPathFinder):
    """Wraps the function ``run`` of the worker's module that runs a case, when that module is
    imported.
    """

    def __init__(self, around: Callable[[Run], Run]) -> None:
        self._around = around

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Find that module alone."""
        if name != RUNS_CASES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        assert spec is not None
        loader: Any = spec.loader
        execute = loader.exec_module

        def execute_and_wrap(module: Any) -> None:
            execute(module)
            module.run = self._around(module.run)

        loader.exec_module = execute_and_wrap
        return spec


def install(around: Callable[[Run], Run]) -> None:
    """Wrap what runs a case in each worker that this process becomes or starts."""
    imported: Any = sys.modules.get(RUNS_CASES)
    if imported is None:
        sys.meta_path.insert(0, Planter(around))
    else:  # a prestarted zygote, which has warmed up, and has sealed the module as it was
        imported.run = around(imported.run)
        sys.modules["torch_conformance.worker.process.seal"]._prepared.pop(RUNS_CASES, None)
