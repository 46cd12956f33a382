"""The run of a session of pytest: a process of its own, whose journal is read line by line while it goes on.

``python -m runner.tools.pytest_plugin.session_run FOLDER`` is that process: it runs the cases of the request as ``run`` does.
"""

import contextlib
import ctypes
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from runner.cli.parser import answered, parse
from runner.language.load import load_specs
from runner.language.read.spec_files import SpecPath
from runner.machine import child_python
from runner.machine.output import guarded
from runner.model.case import Case
from runner.model.events import Listener
from runner.model.options import RunOptions
from runner.model.outcomes import ExitCode
from runner.model.results import CaseResult
from runner.record import journal
from runner.record.run_folder import JOURNAL
from runner.report import plain, reporters
from runner.run.controller import run_prepared
from runner.run.preparation import prepare

if TYPE_CHECKING:
    from runner.record.run_folder import RunFolder


REQUEST, PLACE, LOG = "request.json", "run.json", "log.txt"
"""Files of a temporary folder: what to run, where the run is, what it prints."""

_PR_SET_PDEATHSIG = 1

_POLL_SECONDS = 0.05
_END_SECONDS = 20.0
"""How long a run may take to end its workers after SIGTERM."""

_PRINTED_BYTES = 4_000


class RunEndedError(RuntimeError):
    """The run ended, and has no result of a case."""


class SessionRun:
    """The run of a session, with these options of ``run``."""

    def __init__(self, options: str, rootdir: Path) -> None:
        self._options = options
        self._rootdir = rootdir
        self._folder = Path()
        self._process: subprocess.Popen[bytes] | None = None
        self._offset = 0
        self._results: dict[str, CaseResult] = {}
        self.folder: Path | None = None
        """The folder of the run; None before it is open."""

    @property
    def is_started(self) -> bool:
        """Whether the run was started."""
        return self._process is not None

    def start(self, cases: Sequence[tuple[str, str, str]]) -> None:
        """Start the run of these cases: file, root and name of each."""
        self._folder = Path(tempfile.mkdtemp(prefix="conformance-"))
        (self._folder / REQUEST).write_text(json.dumps({"options": self._options, "cases": cases}), "utf-8")
        with (self._folder / LOG).open("wb") as log:
            self._process = subprocess.Popen(
                child_python.command("runner.tools.pytest_plugin.session_run", str(self._folder)),
                cwd=self._rootdir,
                env=child_python.variables(os.environ, self._folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for pytest, which ends the run
            )

    def result(self, case_id: str) -> CaseResult:
        """Return the result of a case as soon as the journal has it; raise ``RunEndedError`` when the run ended without it."""
        assert self._process is not None
        while True:
            is_over = self._process.poll() is not None
            self._read()
            if (result := self._results.get(case_id)) is not None:
                return result
            if is_over:
                words = plain((self._folder / LOG).read_bytes()[-_PRINTED_BYTES:].decode("utf-8", "replace")).strip()
                raise RunEndedError(f"the run ended without a result of this case; it printed:\n{words or 'nothing'}")
            time.sleep(_POLL_SECONDS)

    def _read(self) -> None:
        """Take the whole lines that the journal got since the last call."""
        with contextlib.suppress(FileNotFoundError):
            if self.folder is None:
                self.folder = Path(json.loads((self._folder / PLACE).read_text("utf-8"))["folder"])
            with (self.folder / JOURNAL).open("rb") as stream:
                stream.seek(self._offset)
                lines = [line for line in stream if line.endswith(b"\n")]
            records = [journal.record_of(0, journal.parse(line)) for line in lines]
            self._results.update({record.case_id: record for kind, record in records if kind == "case"})
            self._offset += sum(map(len, lines))

    def end(self) -> None:
        """End the run, if it goes on: its workers first."""
        if self._process is None:
            return
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        shutil.rmtree(self._folder, ignore_errors=True)


# -- the process of the run -----------------------------------------------------------------------------------------------


def name_in_file(case: Case) -> str:
    """Return the name of a case below its file: its id without the area."""
    return case.id.removeprefix(f"{case.area}/") if case.area else case.id


def main(folder: Path) -> ExitCode:
    """Run the cases of the request."""
    request = json.loads((folder / REQUEST).read_text("utf-8"))
    _, options = parse(["run", *shlex.split(request["options"])])
    assert isinstance(options, RunOptions)
    requested = {(Path(file), name) for file, _, name in request["cases"]}
    specs = {Path(file): SpecPath(path=Path(file), root=Path(root)) for file, root, _ in request["cases"]}
    root = Path.cwd()
    roots = [spec.root.relative_to(root) if spec.root.is_relative_to(root) else spec.root for spec in specs.values()]
    suite = load_specs(list(specs.values()), options.backends, None)
    ids = {str(case.id) for case in suite.cases if (Path(case.spec).absolute(), name_in_file(case)) in requested}
    prepared = prepare(replace(options, paths=tuple(dict.fromkeys(roots))), suite, ids)

    def opened(options: RunOptions, run: "RunFolder") -> Listener:
        temporary = folder / f".{PLACE}"
        temporary.write_text(json.dumps({"folder": str(run.path)}), "utf-8")
        temporary.rename(folder / PLACE)
        return reporters.of_run(options, run)

    return run_prepared(prepared, opened)


if __name__ == "__main__":
    # pytest reads the results: when it ends, this process ends too
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    with guarded():
        code = answered(lambda: main(Path(sys.argv[1])), ())
    sys.exit(code)
