"""Plants mutants in the workers of a run that has this folder on its PYTHONPATH, or notes the lines
that its cases execute.

``PLANTED_MUTANTS`` names a file: ``{"lines": [module, ...]}`` or ``{"cases": {case id: [module,
number, function, kind, line]}}``.
"""

import json
import os
from pathlib import Path


def plant_before(run):
    from tools.mutants.planting import note_lines, parse_before_forks, plant, write_lines

    wanted = json.loads(Path(os.environ["PLANTED_MUTANTS"]).read_text("utf-8"))
    parse_before_forks({module for module, *_ in wanted.get("cases", {}).values()})

    def planted(plan_file, *rest):
        plan = json.loads(Path(plan_file).read_bytes())
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


if os.environ.get("PLANTED_MUTANTS"):
    # the folder of the project is on PYTHONPATH wherever this folder is
    from tools.planter import install

    install(plant_before)
