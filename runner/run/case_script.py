"""``repro.py`` in the folder of a case that failed: the script that ``repro`` prints, for the facts that this run knows."""

import contextlib
import os
from pathlib import Path

from runner.language.read.templates import TemplateError
from runner.machine.capabilities import Machine
from runner.model.case import Case
from runner.model.conditions import Surroundings
from runner.model.outcomes import RETRIED
from runner.model.results import CaseResult
from runner.plan.selection import without_benches

NAME = "repro.py"


def write_script(case: Case, surroundings: Surroundings, machine: Machine, result: CaseResult, run_folder: Path) -> None:
    """Write the script of a failed case, where there is one. It is a help for people: without it the run goes on."""
    if result.outcome not in RETRIED or not result.folder or case.target:
        return
    from runner.plan.script import NothingChecked, script_of  # jinja2 costs too much for a run in which nothing fails

    with contextlib.suppress(NothingChecked, TemplateError, ValueError, OSError):
        text = script_of(without_benches(case), surroundings, machine.facts, machine.torch or "unknown").text
        path = run_folder / result.folder / NAME
        path.unlink(missing_ok=True)
        # the worker may have left a link under this name: only a new file is written
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="backslashreplace") as stream:
            stream.write(text)
