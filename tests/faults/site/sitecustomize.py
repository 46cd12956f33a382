"""Plants faults in the workers of a run that has this folder on its PYTHONPATH. ``PLANTED_FAULTS`` names a file: case id -> fault.

Under ``*`` stands the fault of every case that is not named. The fault is planted in the worker, which is a fork: the template, and
the worker of the next case, know nothing of it.
"""

import importlib.abc
import importlib.machinery
import json
import os
import sys
from pathlib import Path

RUNS_CASES = "runner.worker.case.case"


def plant_before(run):
    def planted(plan_file, *rest):
        from tests.faults.catalogue import PLANTABLE
        from tests.faults.planting import begin

        plan = json.loads(Path(plan_file).read_bytes())
        assigned = json.loads(Path(os.environ["PLANTED_FAULTS"]).read_text("utf-8"))
        name = assigned.get(plan["id"], assigned.get("*"))
        if name is not None:
            PLANTABLE[name].plant()
            begin(Path(plan["folder"]))
        run(plan_file, *rest)

    return planted


class Planter(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != RUNS_CASES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def execute_and_wrap(module):
            execute(module)
            module.run = plant_before(module.run)

        spec.loader.exec_module = execute_and_wrap
        return spec


if os.environ.get("PLANTED_FAULTS"):
    sys.meta_path.insert(0, Planter())
