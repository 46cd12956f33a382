"""Plants mutants in the workers of a run that has this folder on its PYTHONPATH, or notes the lines that its cases execute.

``PLANTED_MUTANTS`` names a file: ``{"lines": [module, ...]}`` or ``{"cases": {case id: [module, number, function, kind, line]}}``.
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
        from tests.mutants.planting import note_lines, plant, write_lines

        plan = json.loads(Path(plan_file).read_bytes())
        wanted = json.loads(Path(os.environ["PLANTED_MUTANTS"]).read_text("utf-8"))
        mutant = wanted.get("cases", {}).get(plan["id"])
        if mutant is not None:
            module, number, function, kind, line = mutant
            plant(module, number, function, Path(plan["folder"]), (kind, line))
        if wanted.get("lines"):
            note_lines(wanted["lines"], Path(plan["folder"]))
        try:
            run(plan_file, *rest)
        finally:
            write_lines()

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


if os.environ.get("PLANTED_MUTANTS"):
    sys.meta_path.insert(0, Planter())
