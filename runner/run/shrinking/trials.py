"""Runs candidates through the usual pipeline: validated as any spec, in workers of their own, under the usual deadlines."""

import contextlib
import shlex
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from runner.core.case import Case
from runner.core.conditions import Surroundings
from runner.core.diagnostics import InvalidSpecs, UsageError
from runner.core.options import ExecutionOptions
from runner.core.results import CaseResult
from runner.judge.waivers import Waivers
from runner.language.expand.cases import surroundings
from runner.language.load import Suite, load, surroundings_of
from runner.language.waivers import WaiverFiles
from runner.plan import schedule
from runner.plan.case_document import Document, text_of
from runner.plan.selection import without_benches
from runner.record.run_folder import RunFolder
from runner.run.pipeline import CaseRunner
from runner.run.shrinking.search import OutOfBudget
from runner.run.shrinking.signature import Signature, signature_of
from runner.system import availability
from runner.system.capabilities import Machine
from runner.system.installed_torch import installed_torch

NAME = "shrunk"
"""The name of the spec that a search writes."""


class Trials:
    """Runs cases and documents; a context manager. One warm process for each environment serves all of them."""

    def __init__(self, options: ExecutionOptions, suite: Suite, backends: Sequence[Path], folder: Path) -> None:
        self._options = options
        self._suite = suite
        self._backends = tuple(backends)
        self._folder = folder
        self._stack = contextlib.ExitStack()
        self._runners: dict[str, tuple[CaseRunner, Machine]] = {}
        self._number = 0

    def __enter__(self) -> "Trials":
        return self

    def __exit__(self, *error: object) -> None:
        self._stack.close()

    def run(self, case: Case) -> CaseResult:
        """Run one case; raise ``UsageError`` where this machine cannot run it."""
        runner, machine = self._runner(case)
        verdict = availability.of_case(case, machine)
        if verdict.reason:
            raise UsageError(f"{case.id} cannot run here: {verdict.reason}")
        (result,) = runner.run([without_benches(case)], surroundings_of(machine.torch, machine), _repro)
        return result

    def here(self, case: Case) -> Surroundings:
        """Return what the conditions of a case ask for."""
        machine = self._runner(case)[1]
        return surroundings(self._suite.backends.by_name[case.backend], surroundings_of(machine.torch, machine), case.target)

    def machine_of(self, case: Case) -> Machine:
        """Return the facts of the machine."""
        return self._runner(case)[1]

    def _runner(self, case: Case) -> tuple[CaseRunner, Machine]:
        key = repr(schedule.environment_of(case).key)
        if key not in self._runners:
            waivers = Waivers(WaiverFiles(waivers=(), documents=(), given=frozenset()), today=datetime.now(UTC).date())
            folder = RunFolder(path=self._folder / f"runs-{len(self._runners)}", run_id="shrink")
            scheduling = schedule.SchedulingOptions(memory_limit=schedule.memory_limit("auto"))
            glance = availability.inspect_files(installed_torch())
            runner = CaseRunner(self._options, self._suite, waivers, [case], folder, 1, glance, scheduling)
            self._stack.enter_context(runner)
            self._runners[key] = (runner, runner.look_at_machine())
        return self._runners[key]

    def case_of(self, document: Document) -> Case | None:
        """Return the one case of a document; None where it is no valid spec of one case."""
        self._number += 1
        path = self._folder / "candidates" / str(self._number) / f"{NAME}.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(text_of(document), encoding="utf-8")
        return self.case_in(path)

    def case_in(self, path: Path) -> Case | None:
        """Return the one case of a file; None where it is no valid spec of one case."""
        try:
            cases = load([path], self._backends).cases
        except InvalidSpecs:
            return None
        return cases[0] if len(cases) == 1 else None

    def problems_of(self, document: Document) -> str:
        """Return why a document is no valid spec; empty for a valid one."""
        path = self._folder / "candidates" / "first" / f"{NAME}.yaml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text_of(document), encoding="utf-8")
        try:
            load([path], self._backends)
        except InvalidSpecs as error:
            return "; ".join(f"{one.message}" for one in error.diagnostics[:3])
        return ""


def _repro(case: Case) -> str:
    return shlex.join(["torch-conformance", "run", case.spec, "--select", case.id])


class Attempts:
    """Judges documents by a signature, within a budget of seconds and of runs."""

    def __init__(self, trials: Trials, wanted: Signature, seconds: float, tries: int) -> None:
        self._trials = trials
        self._wanted = wanted
        self._end = time.monotonic() + seconds
        self._seconds = seconds
        self._tries = tries
        self.made = 0

    def __call__(self, document: Document) -> bool:
        """Whether a document fails in the same way; raise ``OutOfBudget``."""
        if time.monotonic() >= self._end:
            raise OutOfBudget(f"--seconds {self._seconds:g} are over")
        case = self._trials.case_of(document)
        if case is None:
            return False
        if self.made >= self._tries:
            raise OutOfBudget(f"--tries {self._tries} are made")
        self.made += 1
        try:
            return signature_of(self._trials.run(case)) == self._wanted
        except UsageError:  # a candidate that cannot run here is none
            return False
