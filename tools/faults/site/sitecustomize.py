"""Plants faults in the workers of a run that has this folder on its PYTHONPATH.

``PLANTED_FAULTS`` names a file: case id -> fault.

Under ``*`` stands the fault of every case that is not named. The fault is planted in the worker,
which is a fork: the template, and the worker of the next case, know nothing of it.
"""

import json
import os
from pathlib import Path


def plant_before(run):
    def planted(plan_file, *rest):
        from tools.faults.catalogue import PLANTABLE
        from tools.faults.planting import begin

        plan = json.loads(Path(plan_file).read_bytes())
        assigned = json.loads(Path(os.environ["PLANTED_FAULTS"]).read_text("utf-8"))
        name = assigned.get(plan["id"], assigned.get("*"))
        if name is not None:
            PLANTABLE[name].plant()
            begin(Path(plan["folder"]))
        run(plan_file, *rest)

    return planted


if os.environ.get("PLANTED_FAULTS"):
    # the folder of the project is on PYTHONPATH wherever this folder is
    from tools.planter import install

    install(plant_before)
