"""``watch``: runs specs, waits for a changed file or a key, and runs again on warm zygotes.

Nothing that a case or a spec does ends it.
"""

import contextlib
import functools
import hashlib
import importlib
import os
import select
import shutil
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeAlias

from torch_conformance.execute.engine import LocalExecutor
from torch_conformance.execute.executor_protocol import ExecutorSettings
from torch_conformance.language.load import load_specs
from torch_conformance.language.read.rows import files_named
from torch_conformance.language.read.spec_files import SpecPath, discover, files_of_defaults
from torch_conformance.machine import output
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.machine.signals import Interrupts
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    JournalAltered,
    UsageError,
    shown_path,
)
from torch_conformance.model.escaping import counted
from torch_conformance.model.events import Listener
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import RunOptions
from torch_conformance.record.journal import read_run
from torch_conformance.record.run_folder import JOURNAL, RunFolder
from torch_conformance.report.reporters import Reporters
from torch_conformance.run.controller import OpenReporters, run_prepared
from torch_conformance.run.preparation import prepare

MOST_RUNS = 10
"""How many runs of a watch are kept in ``reports/``; older ones are removed when another ends."""

AGAIN, FAILED, ALL, QUIT = "", "f", "a", "q"
"""What the user can type before Enter."""

SETTLE_SECONDS = 0.03
"""How long no file may have changed before a change is reported: editors write in several steps."""

_MOST_SECONDS = 1.0
"""A change is reported after this time even if files go on changing."""

_POLL_SECONDS = 0.01
_SHARE_OF_POLLING = 10
"""Between two polls, at least this many times the time of a poll passes."""

_SHOWN = 5
"""How many files or cases are named in a list."""

Stamps: TypeAlias = Mapping[str, tuple[int, int, int] | None]
"""The time of the last change, size and inode of each watched file: an editor that writes by rename
changes the inode.

None: no file.
"""


class LastingExecutor(LocalExecutor):
    """Serves one run after another with its warm zygotes; ``close`` ends its processes only where
    another run could not use them.
    """

    has_ended = False

    def close(self) -> None:
        """Get ready for another run, or end."""
        if not self.has_ended and not self.rest():
            self.end()

    def end(self) -> None:
        """End its processes, and remove the scratch folder."""
        if not self.has_ended:
            self.has_ended = True
            super().close()

    def serves(self, settings: ExecutorSettings) -> bool:
        """Whether it can run cases with these settings; they go to the folder of these."""
        is_alive = not self.has_ended and all(
            zygote.process.poll() is None for zygote in self._zygotes.values()
        )
        is_same = settings == replace(self._settings, folder=settings.folder)
        self._settings = settings
        return is_alive and is_same


class KeptExecutor:
    """Keeps the executor of a run for the next run. Each case still gets a fork of its own."""

    _executor: LastingExecutor | None = None

    def of(self, settings: ExecutorSettings) -> LocalExecutor:
        """Return the executor of a run: that of the run before, where it can serve this one."""
        if self._executor is None or not self._executor.serves(settings):
            self.close()
            self._executor = LastingExecutor(settings)
        return self._executor

    def close(self) -> bool:
        """End all processes; return whether there were any."""
        executor, self._executor = self._executor, None
        if executor is not None:
            executor.end()
        return executor is not None


class Request(NamedTuple):
    """What to run: all specs, those that depend on one of the files that changed, or only some
    cases.
    """

    files: frozenset[str] | None = None
    cases: tuple[str, ...] = ()


class Watch:
    """One watch, until the user ends it.

    ``wait`` returns a key, or None after some seconds; it raises ``KeyboardInterrupt``.
    """

    def __init__(
        self,
        options: RunOptions,
        open_reporters: OpenReporters,
        wait: Callable[[float], str | None],
    ) -> None:
        self._options = options
        self._open_reporters = open_reporters
        self._wait = wait
        self._everywhere = {str(path.absolute()) for path in (*options.backends, *options.waivers)}
        """Files that every case depends on."""
        self._files = set(self._everywhere)
        self._stamps: Stamps = {}
        self._known: dict[str, CaseResult] = {}
        """The last result of each case."""
        self._runs: list[Path] = []
        self._last = Request()
        self._owed: set[Request] = set()
        """Requests that could not be run, because something was invalid."""
        self._kept = KeptExecutor()
        self._state = ""
        """The state of the installed packages with which the executor started."""

    def run(self) -> ExitCode:
        """Run until the user quits; return the exit code of the last result of each case.

        Raise ``UsageError`` for a path without specs.
        """
        discover(self._options.paths, [])
        self._stamps = self._snapshot()
        request: Request | None = Request()
        try:
            while request is not None:
                self._try(request)
                request = self._next()
        finally:
            self._kept.close()
        if self._failing() or self._owed:
            return ExitCode.FAILED
        return (
            ExitCode.OK
            if any(result.outcome.is_executed for result in self._known.values())
            else ExitCode.NOTHING
        )

    def _failing(self) -> list[str]:
        return [case_id for case_id, result in self._known.items() if result.outcome.is_failure]

    # -- what to run next --------------------------------------------------------------------------

    def _next(self) -> Request | None:
        """Wait for a change or a key; return what to run, None to quit."""
        while True:
            begun = time.monotonic()
            if changed := self._changed():
                gone = {name for name in changed if self._stamps[name] is None}
                specs = {shown_path(Path(name)) for name in gone}
                self._known = {
                    case_id: result
                    for case_id, result in self._known.items()
                    if result.spec not in specs
                }
                words = [
                    f"{shown_path(Path(name))}{' is gone' if name in gone else ''}"
                    for name in sorted(changed)
                ]
                more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
                output.note(f"changed: {', '.join(words[:_SHOWN])}{more}")
                return Request() if Request() in self._owed else Request(changed)
            key = self._wait(max(_POLL_SECONDS, _SHARE_OF_POLLING * (time.monotonic() - begun)))
            if key == QUIT:
                return None
            if key in (AGAIN, ALL):
                return self._last if key == AGAIN else Request()
            if key == FAILED:
                if failing := self._failing():
                    return Request(None, tuple(failing))
                output.note("nothing fails")

    def _changed(self) -> frozenset[str]:
        """Return the files that changed, appeared or went since the last call, once no more
        change.
        """
        before, now = self._stamps, self._snapshot()
        until = time.monotonic() + _MOST_SECONDS
        while now != before and time.monotonic() < until:
            time.sleep(SETTLE_SECONDS)
            if (later := self._snapshot()) == now:
                break
            now = later
        self._stamps = now
        return frozenset(name for name, stamp in now.items() if stamp != before.get(name))

    def _snapshot(self) -> Stamps:
        """Return the stamps of the specs that are there, and of all files that were watched
        before.
        """
        with contextlib.suppress(UsageError):  # no spec is left
            for spec in discover(self._options.paths, []):
                self._files.update(_files_of(spec))
        return {name: _stamp(name) for name in self._files}

    # -- one run -----------------------------------------------------------------------------------

    def _try(self, request: Request) -> None:
        """Run what is requested, and print the failures that were fixed or are left.

        Only a signal ends the watch.
        """
        self._last, begun = request, time.monotonic()
        failed = set(self._failing())
        try:
            results = self._run(request)
        except InvalidSpecs as error:
            output.lines(map(str, error.diagnostics))
            why = f"{counted(len(error.diagnostics), 'problem')}; nothing was run"
        except (UsageError, JournalAltered) as error:
            output.notes(f"torch-conformance: {error}")
            why = "nothing was run"
        except Exception as error:
            # a bug of this program must not lose the warm processes and what is remembered
            output.traceback()
            why = f"this is a bug of torch-conformance: {type(error).__name__}"
        else:
            if request == Request():
                self._owed.clear()
            self._owed = {
                other
                for other in self._owed
                if other.files is None or not other.files <= (request.files or frozenset())
            }
            ids = {str(result.case_id) for result in results}
            output.lines(
                f"fixed: {case_id}"
                for case_id in sorted(failed & ids & self._known.keys() - set(self._failing()))
                if self._known[case_id].outcome.is_executed
            )
            still_failing = [case_id for case_id in self._failing() if case_id not in ids]
            output.lines(f"still failing: {case_id}" for case_id in still_failing[:_SHOWN])
            if len(still_failing) > _SHOWN:
                output.lines([f"still failing: {len(still_failing) - _SHOWN} more"])
            if not results:
                output.note("no case of the changed files is selected")
            output.note(
                f"{time.monotonic() - begun:.1f}s; waiting for a change (Enter: again, f: "
                "failed, a: all, q: quit)"
            )
            return
        self._owed.add(request)
        output.note(f"{why}; waiting for a change")

    def _run(self, request: Request) -> tuple[CaseResult, ...]:
        """Run the requested cases as ``run`` does; return their results."""
        forget_cached()
        state, before = installed_state(), self._state
        self._state = state
        if state != before and self._kept.close():
            output.note("torch or another package changed: torch is restarted")
        problems: list[Diagnostic] = []
        specs = discover(self._options.paths, problems)
        if problems:
            raise InvalidSpecs(problems)
        files = {spec.path: _files_of(spec) for spec in specs}
        if request.files is not None and not request.files & self._everywhere:
            # those that depend on a changed file
            specs = [spec for spec in specs if request.files & files[spec.path]]
        if not specs:
            return ()
        suite = load_specs(specs, self._options.backends, None)
        names, ids = {case.spec for case in suite.cases}, {str(case.id) for case in suite.cases}
        # cases of these specs that are not there any more were renamed or removed
        self._known = {
            case_id: result
            for case_id, result in self._known.items()
            if result.spec not in names or case_id in ids
        }
        prepared = prepare(self._options, suite, request.cases or None)
        if not prepared.selected:
            return ()
        folders: list[Path] = []

        def opened(options: RunOptions, folder: RunFolder) -> Listener:
            folders.append(folder.path)
            return self._open_reporters(options, folder)

        if (
            run_prepared(replace(prepared, make_executor=self._kept.of), opened)
            is ExitCode.INTERRUPTED
        ):
            raise KeyboardInterrupt
        results = read_run(folders[0] / JOURNAL).results
        self._known.update(
            {
                str(result.case_id): result
                for result in results
                if result.outcome is not Outcome.NOT_RUN
            }
        )
        self._runs += folders
        while len(self._runs) > MOST_RUNS:
            shutil.rmtree(self._runs.pop(0), ignore_errors=True)
        return tuple(results)


def _files_of(spec: SpecPath) -> set[str]:
    """Return the files that the cases of a spec depend on."""
    rows = _rows_of(spec.path, _stamp(str(spec.path)))
    return {str(file) for file in (spec.path, *files_of_defaults(spec), *rows)}


@functools.lru_cache(maxsize=1 << 12)
def _rows_of(path: Path, _stamp_of_file: object) -> Sequence[Path]:
    return files_named(path)


def _stamp(file: str) -> tuple[int, int, int] | None:
    try:
        status = os.stat(file)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size, status.st_ino


def forget_cached() -> None:
    """Forget what this process has cached of files, so that each run reads them as a new process
    would.
    """
    for name, module in list(sys.modules.items()):
        if name.split(".")[0] == "torch_conformance":
            for value in list(vars(module).values()):
                # functools exports no public name for its type
                if isinstance(value, functools._lru_cache_wrapper):  # noqa: SLF001
                    value.cache_clear()


def installed_state() -> str:
    """Return a digest of the installed packages and of torch's own files: a zygote is not used
    after any of them changed.
    """
    importlib.invalidate_caches()
    files = [
        str(entry)
        for place in sys.path
        for entry in Path(place).glob("*")  # none of an archive, or of a folder that is gone
        if entry.suffix in (".dist-info", ".egg-info", ".egg-link", ".pth")
    ]
    if (torch := installed_torch()) is not None:
        for folder, below, names in os.walk(torch.root):
            below[:] = [
                name
                for name in below
                if name not in ("__pycache__", "include", "share", "test", "testing")
            ]
            files += [os.path.join(folder, name) for name in names if name.endswith((".py", ".so"))]
    return hashlib.sha256(
        repr([(file, _stamp(file)) for file in sorted(files)]).encode("utf-8", "surrogateescape")
    ).hexdigest()


@frozen
class WatchOptions(RunOptions):
    """The options of ``watch``: some of those of ``run``.

    Its runs have the defaults of ``run`` for the others.
    """

    OFFERED: ClassVar[Sequence[str]] = (
        "jobs timeout timeout_factor paths backends waivers backend select tag".split()
    )


def main(options: WatchOptions) -> ExitCode:
    """Run and watch until the user quits."""
    with Interrupts() as interrupts:
        return Watch(options, functools.partial(Reporters, "watch"), Keys(interrupts).wait).run()


class Keys:
    """Reads the lines that a user types; the first letter of each is a key."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._input: int | None = None
        with contextlib.suppress(AttributeError, ValueError, OSError):
            # a program can be started without standard input
            self._input = sys.stdin.fileno()
        self._text = ""

    def wait(self, seconds: float) -> str | None:
        """Return the next key, or None after this time; raise ``KeyboardInterrupt`` for a
        signal.
        """
        if "\n" not in self._text:
            sources = [self._interrupts.wake, *([] if self._input is None else [self._input])]
            ready, _, _ = select.select(sources, [], [], seconds)
            self._interrupts.clear_wake()
            if self._interrupts.asked:
                raise KeyboardInterrupt
            if self._input is not None and self._input in ready:
                data = b""
                with contextlib.suppress(OSError):
                    data = os.read(self._input, 1 << 12)
                if not data:  # closed: the watch goes on without keys
                    self._input = None
                self._text += data.decode("utf-8", "replace")
        line, end, rest = self._text.partition("\n")
        if not end:
            return None
        self._text = rest
        return line.strip()[:1]
