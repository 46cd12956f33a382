"""``doctor``: what this machine has, what it lacks, and which cases and profiles that allows."""

import contextlib
import os
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import Any, TypeAlias

from torch_conformance.language.load import Suite, load
from torch_conformance.machine import capabilities, child_python, output, scratch
from torch_conformance.machine.capabilities import Machine
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.model import protocol
from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import SpecFiles, flag, profile_option
from torch_conformance.plan.profile import Resolved
from torch_conformance.run.pipeline import SHOWN_BYTES, WorkerReport, ask_worker
from torch_conformance.tools.attest.machine_checks import (
    PROBLEM,
    WARNING,
    Finding,
    Scene,
    examine,
    run_program,
    shown_text,
)
from torch_conformance.tools.attest.profiles import (
    Prospect,
    load_profile,
    load_shipped,
    prospect_of,
    prospect_of_cases,
)


@frozen
class DoctorOptions(SpecFiles):
    """The options of ``doctor``."""

    profile: str | None = profile_option(
        "look only at this profile, with the specs and backends that it names"
    )
    json: bool = flag("print one object")


FORMAT = 2
"""The number of the form of ``--json``."""

_WORDS = {True: "runs", None: "perhaps", False: "cannot"}
"""What the machine allows."""
_MOST_REASONS = 3


Report = Sequence[tuple[str, Finding]]
"""Findings, each with its group."""


def main(options: DoctorOptions) -> ExitCode:
    """Look at the machine and print what was found; exit 1 when something that the machine claims
    to have does not work.
    """
    torch, torch_problem, suite, profiles = None, "", None, list[Resolved]()
    try:
        torch = installed_torch()
    except (UsageError, OSError) as error:
        torch_problem = str(error)
    else:  # one profile; or the specs of PATH; or the shipped specs with every shipped profile
        if options.profile is not None:
            profiles = [load_profile(options.profile, options.paths, options.backends)]
            suite = profiles[0].suite
        else:
            suite = load(options.paths, options.backends)
            profiles = [] if options.paths else list(load_shipped(suite))
    machine = capabilities.inspect_files(torch)
    worker = WorkerReport(machine=machine)
    if machine.torch is not None:
        output.note("a worker imports torch and looks at the devices")
        try:
            worker = ask_worker(machine, capabilities.questions_of(suite.cases if suite else ()))
        except (UsageError, OSError) as error:
            # no folder for temporary files, for example: a check of its own reports it
            worker = WorkerReport(machine=machine, problem=str(error))
    scene = Scene(
        machine=worker.machine,
        torch=torch,
        torch_problem=torch_problem,
        facts=worker.facts,
        worker_problem=worker.problem,
        generators=_ask_generators() if machine.found.get("ck") and torch else {},
    )
    report = [(group, shown(finding)) for group, finding in examine(scene)]
    allows = {}
    if suite is not None:
        # one profile: its cases
        cases = profiles[0].cases if options.profile else suite.cases
        rows = rows_of_backends(suite, cases, worker.machine)
        allows = {"backends": rows, "profiles": []}
        for resolved in profiles:
            profile, prospect = resolved.profile, prospect_of(resolved, worker.machine)
            selected_by = f"--profile {shlex.quote(options.profile or profile.name)}"
            name, runs = f"{profile.name} {profile.version}", prospect.can_be_complete
            allows["profiles"].append(row_of(name, profile.summary, prospect, runs, selected_by))
    if options.json:
        output.document(as_json(report, allows))
    else:
        output.lines(
            lines(
                report,
                allows,
                f"the specs were not looked at: {shown_text(torch_problem)}"
                if torch_problem
                else "",
            )
        )
    return ExitCode.OK if _is_healthy(report) else ExitCode.FAILED


def _ask_generators() -> Mapping[str, Any]:
    """Let a process with torch count the instances of each generator of Composable Kernel; return
    why it did not as ``problem``.
    """
    with contextlib.closing(scratch.make()) as space:
        answer = space.path / "generators.json"
        command = child_python.command("torch_conformance.tools.attest.ck_generators", str(answer))
        # a first import of torch from a slow disk takes minutes
        printed = run_program(
            command, seconds=300.0, environ=child_python.variables(os.environ, space.path)
        )
        if printed.problem:
            return {"problem": f"{printed.problem}: {printed.text.strip()[-SHOWN_BYTES:]}"}
        try:
            report: Mapping[str, Any] = protocol.loads(answer.read_bytes())
        except (OSError, ValueError) as error:  # code of the package wrote something else
            return {"problem": f"the answer cannot be read: {type(error).__name__}: {error}"}
        return report


# -- what the machine allows -----------------------------------------------------------------------

Row: TypeAlias = Mapping[str, Any]
"""A backend or a profile, and what becomes of its cases on this machine, as ``doctor.schema.json``
describes it.
"""


def rows_of_backends(suite: Suite, cases: Sequence[Case], machine: Machine) -> list[Row]:
    """Return a row for each backend with some of the cases, by the same rules as ``list``."""
    rows: list[Row] = []
    for name, backend in suite.backends.by_name.items():
        if not (cases_of_backend := [case for case in cases if case.backend == name]):
            continue
        verdicts = capabilities.availabilities_of(cases_of_backend, machine)
        prospect = prospect_of_cases((verdict.availability, verdict.reason) for verdict in verdicts)
        runs = bool(prospect.possible) or (None if prospect.uncertain else False)
        rows.append(row_of(name, backend.summary, prospect, runs, f"--backend {name}"))
    return rows


def row_of(name: str, summary: str, prospect: Prospect, runs: bool | None, selected_by: str) -> Row:
    """Return the row of some cases.

    ``runs`` is None where only a run can know whether they can run here.
    """
    reasons = Counter({**prospect.missing, **prospect.uncertain}).most_common()
    return {
        "name": name,
        "summary": summary,
        "cases": prospect.required,
        "can_run": prospect.possible,
        "perhaps": sum(prospect.uncertain.values()),
        "unavailable": sum(prospect.missing.values()),
        "runs": runs,
        "reasons": [{"reason": shown_text(reason), "cases": count} for reason, count in reasons],
        "problem": prospect.problem,
        "shown_by": f"torch-conformance list {selected_by}",
    }


# -- what is printed -------------------------------------------------------------------------------


def as_json(report: Report, allows: Mapping[str, Sequence[Row]]) -> dict[str, object]:
    """Return what ``--json`` prints."""
    return {
        "format": FORMAT,
        "healthy": _is_healthy(report),
        "findings": [
            {"group": group, **asdict(finding), "level": finding.level.value}
            for group, finding in report
        ],
        "allows": dict(allows),
    }


def lines(report: Report, allows: Mapping[str, Sequence[Row]], unread: str) -> Iterator[str]:
    """Yield the report for people: findings by group, what the machine allows, and at the end what
    to do.
    """
    for group, findings in groupby(report, key=lambda entry: entry[0]):
        yield group
        yield from (_line(finding) for _, finding in findings)
        yield ""
    for title, rows in ((title, rows) for title, rows in allows.items() if rows):
        yield title.capitalize()
        for row in rows:
            yield f"  {_WORDS[row['runs']]:8}{row['name']}: {row['summary']}"
            parts = f", {row['perhaps']} perhaps" * bool(
                row["perhaps"]
            ) + f"; {row['problem']}" * bool(row["problem"])
            yield f"          {row['can_run']} of {row['cases']} cases can run{parts}"
            for reason in row["reasons"][:_MOST_REASONS]:
                yield (
                    f"          {reason['cases']} case{'' if reason['cases'] == 1 else 's'}: "
                    f"{reason['reason']}"
                )
            if len(row["reasons"]) > _MOST_REASONS:
                yield (
                    f"          and {len(row['reasons']) - _MOST_REASONS} other reasons "
                    f"({row['shown_by']})"
                )
        yield ""
    if unread:
        yield from (unread, "")
    by_level = {
        level: [finding for _, finding in report if finding.level is level]
        for level in (WARNING, PROBLEM)
    }
    for finding in (finding for findings in by_level.values() for finding in findings):
        yield _line(finding)
        yield from (
            f"          {word}{text}"
            for word, text in (("because ", finding.cause), ("next: ", finding.remedy))
            if text
        )
    yield ", ".join(
        f"{len(by_level[level])} {level.value}{'' if len(by_level[level]) == 1 else 's'}"
        for level in (PROBLEM, WARNING)
    )


def _line(finding: Finding) -> str:
    return f"  {finding.level.value:8}{finding.found}"


def shown(finding: Finding) -> Finding:
    """Return a finding whose texts can be shown: one line each, escaped, without secrets."""
    return replace(
        finding,
        found=shown_text(finding.found),
        cause=shown_text(finding.cause),
        remedy=shown_text(finding.remedy),
    )


def _is_healthy(report: Report) -> bool:
    return not any(finding.level is PROBLEM for _, finding in report)
