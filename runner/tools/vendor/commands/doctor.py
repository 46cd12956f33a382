"""``doctor``: what this machine has, what it lacks, and which cases and profiles that allows."""

import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import groupby
from pathlib import Path

from runner.language.load import Suite, load
from runner.machine import capabilities, child_python, output, scratch
from runner.machine.capabilities import Machine
from runner.machine.installed_torch import InstalledTorch, installed_torch
from runner.machine.redaction import redacted
from runner.model import protocol
from runner.model.case import Availability
from runner.model.diagnostics import UsageError
from runner.model.escaping import one_line
from runner.model.options import backend_files, flag, paths, profile_option
from runner.model.outcomes import ExitCode
from runner.run.machine_report import SHOWN_BYTES, WorkerReport, ask_worker
from runner.tools.vendor.doctor import examine
from runner.tools.vendor.doctor.composable_kernel import GENERATORS
from runner.tools.vendor.doctor.findings import PROBLEM, WARNING, Finding, GeneratorReport, Scene, run_program
from runner.tools.vendor.profiles import Loaded, load_profile, load_shipped, prospect_of


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """The options of ``doctor``."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    profile: str | None = profile_option("look at this profile alone, with the specs and backends that it names")
    json: bool = flag("print one object")


FORMAT = 2
"""The number of the form of ``--json``."""

_WORDS = {True: "runs", None: "perhaps", False: "cannot"}
"""What the machine allows."""
_MOST_REASONS = 3

_GENERATORS_SECONDS = 300.0
"""A first import of torch from a slow disk takes minutes."""

_MOST_ANSWER_BYTES = 1 << 16


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A backend or a profile, and what becomes of its cases on this machine; of a profile, the required ones."""

    name: str
    summary: str
    cases: int
    """How many cases: the sum of the next three."""
    can_run: int
    perhaps: int
    """Cases of which only a run can know."""
    unavailable: int
    runs: bool | None
    """Whether a case of the backend can run here, or every required case of the profile; None where only a run can know."""
    reasons: Mapping[str, int]
    """Why cases cannot run, or perhaps cannot, with their numbers; the most frequent first."""
    problem: str = ""
    """Why no run of a profile is possible here, whatever the cases."""
    shown_by: str
    """The command that shows each case with its reason."""


Report = Sequence[tuple[str, Finding]]
"""Findings, each with its group."""


def main(options: DoctorOptions) -> ExitCode:
    """Look at the machine and print what was found; exit 1 when something that the machine claims to have does not work."""
    torch: InstalledTorch | None = None
    torch_problem = ""
    try:
        torch = installed_torch()
    except (UsageError, OSError) as error:
        torch_problem = str(error)
    suite, profiles = (None, ()) if torch_problem else _read(options)
    machine = capabilities.inspect_files(torch)
    worker = _ask(machine, suite)
    scene = Scene(
        machine=worker.machine,
        torch=torch,
        torch_problem=torch_problem,
        facts=worker.facts,
        worker_problem=worker.problem,
        generators=_ask_generators() if machine.found.get("ck") and torch else None,
    )
    report = [(group, shown(finding)) for group, finding in examine(scene)]
    allows: dict[str, list[Row]] = {}
    if suite is not None:
        allows = {"backends": rows_of_backends(suite, worker.machine), "profiles": [_row_of_profile(p, worker.machine) for p in profiles]}
    if options.json:
        output.document(as_json(report, allows))
    else:
        output.lines(lines(report, allows, f"the specs were not looked at: {_shown_text(torch_problem)}" if torch_problem else ""))
    return ExitCode.OK if _is_healthy(report) else ExitCode.FAILED


def _read(options: DoctorOptions) -> tuple[Suite, Sequence[Loaded]]:
    """Load what the options name: one profile; or the specs of PATH; or the shipped specs with every shipped profile."""
    if options.profile is not None:
        loaded = load_profile(options.profile, options.paths, options.backends)
        return loaded.suite, (loaded,)
    suite = load(options.paths, options.backends)
    return suite, () if options.paths else tuple(load_shipped(suite))


def _ask(machine: Machine, suite: Suite | None) -> WorkerReport:
    """Return the report of a worker; without torch there is none."""
    if machine.torch is None:
        return WorkerReport(machine=machine)
    output.note("a worker imports torch and looks at the devices")
    try:
        return ask_worker(machine, capabilities.questions_of(suite.cases if suite else ()))
    except (UsageError, OSError) as error:  # no folder for temporary files, for example: a check of its own reports it
        return WorkerReport(machine=machine, problem=str(error))


def _ask_generators() -> GeneratorReport:
    """Let a process with torch count the instances of each generator of Composable Kernel."""
    space = scratch.make()
    try:
        answer = space.path / "generators.json"
        variables = child_python.variables(os.environ, space.path)
        command = child_python.command("runner.tools.vendor.ck_generators", str(answer))
        printed = run_program(command, seconds=_GENERATORS_SECONDS, environ=variables)
        if printed.problem:
            return GeneratorReport(problem=f"{printed.problem}: {printed.text.strip()[-SHOWN_BYTES:]}")
        with answer.open("rb") as stream:
            report = protocol.loads(stream.read(_MOST_ANSWER_BYTES))
        return GeneratorReport(
            inductor=str(report["inductor"]),
            counts={name: int(report["counts"].get(name, 0)) for name in GENERATORS},
            reasons={name: str(reason) for name, reason in report["reasons"].items()},
        )
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:  # not the file that ck_generators writes
        return GeneratorReport(problem=f"the answer cannot be read: {type(error).__name__}: {error}")
    finally:
        space.close()


def rows_of_backends(suite: Suite, machine: Machine) -> list[Row]:
    """Return a row for each backend of the backends files, by the same rules as ``list``."""
    rows: list[Row] = []
    for name, backend in suite.backends.by_name.items():
        verdicts = capabilities.availabilities_of([case for case in suite.cases if case.backend == name], machine)
        counts = Counter(verdict.availability for verdict in verdicts)
        rows.append(
            Row(
                name=name,
                summary=backend.summary,
                cases=len(verdicts),
                can_run=counts[Availability.YES],
                perhaps=counts[Availability.UNKNOWN],
                unavailable=counts[Availability.NO],
                runs=True if counts[Availability.YES] else None if counts[Availability.UNKNOWN] else False,
                reasons=dict(Counter(verdict.reason for verdict in verdicts if verdict.reason).most_common()),
                shown_by=f"torch-conformance list --backend {name}",
            )
        )
    return rows


def _row_of_profile(loaded: Loaded, machine: Machine) -> Row:
    prospect = prospect_of(loaded, machine)
    return Row(
        name=f"{loaded.profile.name} {loaded.profile.version}",
        summary=loaded.profile.summary,
        cases=prospect.required,
        can_run=prospect.possible,
        perhaps=sum(prospect.uncertain.values()),
        unavailable=sum(prospect.missing.values()),
        runs=prospect.can_be_complete,
        reasons=dict(Counter({**prospect.missing, **prospect.uncertain}).most_common()),
        problem=prospect.problem,
        shown_by=f"torch-conformance list --profile {loaded.word}",
    )


# -- what is printed ------------------------------------------------------------------------------------------------


def as_json(report: Report, allows: Mapping[str, Sequence[Row]]) -> dict[str, object]:
    """Return what ``--json`` prints."""
    return {
        "format": FORMAT,
        "healthy": _is_healthy(report),
        "findings": [{"group": group, **asdict(finding), "level": finding.level.value} for group, finding in report],
        "allows": {
            name: [{**asdict(row), "reasons": [{"reason": _shown_text(r), "cases": n} for r, n in row.reasons.items()]} for row in rows]
            for name, rows in allows.items()
        },
    }


def lines(report: Report, allows: Mapping[str, Sequence[Row]], unread: str) -> Iterator[str]:
    """Yield the report for people: findings by group, what the machine allows, and at the end what to do."""
    for group, findings in groupby(report, key=lambda entry: entry[0]):
        yield group
        yield from (_line(finding) for _, finding in findings)
        yield ""
    for title, rows in ((title, rows) for title, rows in allows.items() if rows):
        yield title.capitalize()
        for row in rows:
            yield f"  {_WORDS[row.runs]:8}{row.name}: {row.summary}"
            counts = [f"{row.can_run} of {row.cases} cases can run", *([f"{row.perhaps} perhaps"] if row.perhaps else [])]
            yield f"          {', '.join(counts)}{f'; {row.problem}' if row.problem else ''}"
            for reason, count in list(row.reasons.items())[:_MOST_REASONS]:
                yield f"          {count} case{'' if count == 1 else 's'}: {_shown_text(reason)}"
            if len(row.reasons) > _MOST_REASONS:
                yield f"          and {len(row.reasons) - _MOST_REASONS} other reasons ({row.shown_by})"
        yield ""
    if unread:
        yield from (unread, "")
    by_level = {level: [finding for _, finding in report if finding.level is level] for level in (WARNING, PROBLEM)}
    for finding in (finding for findings in by_level.values() for finding in findings):
        yield _line(finding)
        yield from (f"          {word}{text}" for word, text in (("because ", finding.cause), ("next: ", finding.remedy)) if text)
    yield ", ".join(f"{len(by_level[level])} {level.value}{'' if len(by_level[level]) == 1 else 's'}" for level in (PROBLEM, WARNING))


def _line(finding: Finding) -> str:
    return f"  {finding.level.value:8}{finding.found}"


def shown(finding: Finding) -> Finding:
    """Return a finding whose texts can be shown: one line each, escaped, without secrets."""
    return replace(finding, found=_shown_text(finding.found), cause=_shown_text(finding.cause), remedy=_shown_text(finding.remedy))


def _shown_text(text: str) -> str:
    return redacted(one_line(text, limit=1000))


def _is_healthy(report: Report) -> bool:
    return not any(finding.level is PROBLEM for _, finding in report)
