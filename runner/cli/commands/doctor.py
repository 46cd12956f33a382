"""``doctor``: what this machine has, what it lacks, and which backends, specs and profiles that allows."""

import dataclasses
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from runner.cli import doctor_report
from runner.cli.doctor_report import Report
from runner.cli.doctor_subjects import SUBJECTS, Read, Row, read
from runner.core.diagnostics import UsageError
from runner.core.escaping import one_line
from runner.core.exit_codes import ExitCode
from runner.core.options import DoctorOptions
from runner.report.console import wants_color
from runner.run.machine_report import WorkerReport, ask_generators, ask_worker
from runner.system import availability, output
from runner.system.capabilities import Machine
from runner.system.doctor.checks import examine
from runner.system.doctor.findings import Finding, has_problem
from runner.system.doctor.scene import Scene
from runner.system.installed_torch import InstalledTorch, installed_torch
from runner.system.redaction import redacted

FORMAT = 1
"""The number of the form of ``--json``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Torch:
    """The installed torch, or why its files cannot be read."""

    installed: InstalledTorch | None
    problem: str = ""


def main(options: DoctorOptions) -> ExitCode:
    """Look at the machine and print what was found; exit 1 when something that the machine claims to have does not work."""
    torch = _torch()
    specs = None if torch.problem else read(options)
    machine = availability.inspect_files(torch.installed)
    report = _ask(machine, specs)
    scene = Scene(
        machine=report.machine,
        torch=torch.installed,
        torch_problem=torch.problem,
        facts=report.facts,
        worker_problem=report.problem,
        generators=ask_generators() if machine.found.get("ck") and torch.installed else None,
    )
    found = [(group, _shown(finding)) for group, finding in examine(scene)]
    allows = {} if specs is None else {name: rows(specs, report.machine) for name, rows in SUBJECTS.items()}
    if options.json:
        output.document(_as_json(found, allows))
    else:
        color = wants_color(output.stdout(), os.environ)
        text = "\n".join(doctor_report.lines(found, allows, _shown_text(torch.problem), color=color))
        output.paint(output.stdout(), text + "\n")
    return ExitCode.FAILED if has_problem(finding for _, finding in found) else ExitCode.OK


def _torch() -> _Torch:
    try:
        return _Torch(installed=installed_torch())
    except (UsageError, OSError) as error:
        return _Torch(installed=None, problem=str(error))


def _ask(machine: Machine, found: Read | None) -> WorkerReport:
    """Return the report of a worker; without torch there is none."""
    if machine.torch is None:
        return WorkerReport(machine=machine)
    output.note("a worker imports torch and looks at the devices")
    try:
        return ask_worker(machine, availability.questions_of(found.suite.cases if found else ()))
    except (UsageError, OSError) as error:  # no folder for temporary files, for example: a check of its own reports it
        return WorkerReport(machine=machine, problem=str(error))


def _shown(finding: Finding) -> Finding:
    """Return a finding whose texts can be shown: one line each, escaped, without secrets."""
    found, cause, remedy = map(_shown_text, (finding.found, finding.cause, finding.remedy))
    return dataclasses.replace(finding, found=found, cause=cause, remedy=remedy)


def _shown_text(text: str) -> str:
    return redacted(one_line(text, limit=1000))


def _as_json(found: Report, allows: Mapping[str, Sequence[Row]]) -> dict[str, object]:
    return {
        "format": FORMAT,
        "healthy": not has_problem(finding for _, finding in found),
        "findings": [{"group": group, **dataclasses.asdict(finding), "level": finding.level.value} for group, finding in found],
        "allows": {name: [_row_as_json(row) for row in rows] for name, rows in allows.items()},
    }


def _row_as_json(row: Row) -> dict[str, object]:
    reasons = [{"reason": _shown_text(reason), "cases": count} for reason, count in row.reasons.items()]
    return {**dataclasses.asdict(row), "reasons": reasons}
