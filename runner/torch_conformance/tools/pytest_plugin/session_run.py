"""The run of a session of pytest: a process of its own, which sends each result through a pipe when
it is known.

``python -m torch_conformance.tools.pytest_plugin.session_run DESCRIPTOR`` is that process: it runs
the cases of the request as ``run`` does.
"""

import ctypes
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from torch_conformance.cli.parser import answered, parse
from torch_conformance.language.load import load_specs
from torch_conformance.language.read.spec_files import SpecPath
from torch_conformance.machine import child_python
from torch_conformance.machine.output import guarded
from torch_conformance.machine.scratch import tail
from torch_conformance.model import codec
from torch_conformance.model.case import Case
from torch_conformance.model.escaping import plain
from torch_conformance.model.events import CaseFinished, Listener, RunEvent
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.results import Redacted
from torch_conformance.optional.options import RunOptions
from torch_conformance.record.run_folder import RunFolder
from torch_conformance.report.reporters import Reporters
from torch_conformance.run.controller import run_prepared
from torch_conformance.run.preparation import prepare

_PR_SET_PDEATHSIG = 1

_END_SECONDS = 20.0
"""How long a run may take to end its workers after SIGTERM."""

_PRINTED_BYTES = 4_000


class RunEndedError(RuntimeError):
    """The run ended, and has no result of a case."""


class SessionRun:
    """The run of these cases (file, root and name of each), with these options of ``run``."""

    def __init__(self, options: str, cases: Sequence[tuple[str, str, str]], rootdir: Path) -> None:
        self._scratch = tempfile.TemporaryDirectory(prefix="conformance-")
        self._log = Path(self._scratch.name) / "log.txt"
        self._results: dict[str, Redacted] = {}
        self.folder: Path | None = None
        """The folder of the run; None before it is open."""
        ours, theirs = os.pipe()
        with tempfile.TemporaryFile() as request, self._log.open("wb") as log:
            request.write(json.dumps({"options": options, "cases": cases}).encode("ascii"))
            request.seek(0)
            self._process = subprocess.Popen(
                child_python.command(
                    "torch_conformance.tools.pytest_plugin.session_run", str(theirs)
                ),
                cwd=rootdir,
                env=child_python.variables(os.environ, Path(self._scratch.name)),
                stdin=request,
                stdout=log,
                stderr=log,
                pass_fds=[theirs],
                start_new_session=True,  # Ctrl-C is for pytest, which ends the run
            )
        os.close(theirs)
        self._answers = os.fdopen(ours, "rb")

    def result(self, case_id: str) -> Redacted:
        """Return the result of a case as soon as it is known; raise ``RunEndedError`` when the run
        ended without it.
        """
        while case_id not in self._results:
            line = self._answers.readline()
            if not line.endswith(b"\n"):
                words = plain(tail(self._log, _PRINTED_BYTES)).strip()
                raise RunEndedError(
                    "the run ended without a result of this case; it "
                    f"printed:\n{words or 'nothing'}"
                )
            answer = json.loads(line)
            self.folder = Path(answer["folder"])
            result = codec.decode(Redacted, answer["result"], "case")
            self._results[result.case_id] = result
        return self._results[case_id]

    def end(self) -> None:
        """End the run, if it goes on: its workers first."""
        self._answers.close()
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_END_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
        self._scratch.cleanup()


# -- the process of the run ------------------------------------------------------------------------


def name_in_file(case: Case) -> str:
    """Return the name of a case below its file: its id without the area."""
    return case.id.removeprefix(f"{case.area}/") if case.area else case.id


@dataclass(frozen=True, slots=True)
class _Sending:
    """Sends each result to pytest, after the reporters of a run have it."""

    reporters: Listener
    folder: Path
    stream: BinaryIO

    def on_event(self, event: RunEvent) -> None:
        self.reporters.on_event(event)
        if isinstance(event, CaseFinished):
            answer = {"folder": str(self.folder), "result": codec.encode(event.result)}
            self.stream.write(json.dumps(answer).encode("ascii") + b"\n")
            self.stream.flush()

    def close(self) -> None:
        self.reporters.close()


def main(descriptor: int) -> ExitCode:
    """Run the cases of the request on standard input."""
    request = json.load(sys.stdin)
    _, options = parse(["run", *shlex.split(request["options"])])
    assert isinstance(options, RunOptions)
    requested = {(Path(file), name) for file, _, name in request["cases"]}
    specs = {
        Path(file): SpecPath(path=Path(file), root=Path(root)) for file, root, _ in request["cases"]
    }
    root = Path.cwd()
    roots = [
        spec.root.relative_to(root) if spec.root.is_relative_to(root) else spec.root
        for spec in specs.values()
    ]
    suite = load_specs(list(specs.values()), options.backends, None)
    ids = {
        str(case.id)
        for case in suite.cases
        if (Path(case.spec).absolute(), name_in_file(case)) in requested
    }
    prepared = prepare(replace(options, paths=tuple(dict.fromkeys(roots))), suite, ids)

    def opened(options: RunOptions, folder: RunFolder) -> Listener:
        return _Sending(Reporters("run", options, folder), folder.path, os.fdopen(descriptor, "wb"))

    return run_prepared(prepared, opened)


if __name__ == "__main__":
    # pytest reads the results: when it ends, this process ends too
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    with guarded():
        code = answered(lambda: main(int(sys.argv[1])), ())
    sys.exit(code)
