"""Completes the header of a run: a new run records the machine; a resumed run needs a machine compatible with its header."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from runner.core.events import HeaderCompleted, RunEvent
from runner.core.header import RunHeader
from runner.record.run_folder import RunFolder
from runner.run.preparation import Prepared
from runner.system.capabilities import Machine
from runner.system.redaction import redacted_texts


class HeaderStage:
    """Holds the current header."""

    def __init__(self, prepared: Prepared, folder: RunFolder, emit: Callable[[RunEvent], None]) -> None:
        self._emit = emit
        self._resume = prepared.options.resume or ""
        self.header: RunHeader = folder.header or replace(prepared.header, run_id=folder.run_id)
        self.is_resumed = folder.header is not None
        self._is_recorded = self.is_resumed

    def complete(self, machine: Machine, of_files: Mapping[str, str], *, is_compared: bool = True) -> None:
        """Add the facts of the machine that a worker reported; raise ``UsageError`` where the run cannot be resumed on it.

        ``of_files`` are the facts that files show. ``is_compared`` is False where the nodes of a fleet were compared before.
        """
        reported = {name: str(value) for name, value in machine.facts.items() if value is not None}
        environment = redacted_texts({**of_files, **reported})
        if self.is_resumed:
            if is_compared:
                from runner.run.resume import check_machine

                check_machine(self._resume, environment, self.header.environment)
            self._emit(HeaderCompleted(header=self.header, is_resumed=True))
        else:
            self.header = replace(self.header, environment=environment)
            self.require()

    def require(self) -> None:
        """Record the header if it is not recorded yet: a run may end before the machine is known."""
        if not self._is_recorded:
            self._is_recorded = True
            self._emit(HeaderCompleted(header=self.header, is_resumed=False))
