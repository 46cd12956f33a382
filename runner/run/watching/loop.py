"""The loop of ``watch``: run, wait for a change or a key, run again. Nothing that a case or a spec does ends it."""

import shutil
import time
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Protocol

from runner.core.diagnostics import InvalidSpecs, JournalAltered, UsageError, shown_path
from runner.core.exit_codes import ExitCode
from runner.execute.local.kept_zygotes import ZygoteStore
from runner.run.watching import machine_state
from runner.run.watching.changes import Changes, Snapshot, snapshot
from runner.run.watching.outcomes import Outcomes
from runner.run.watching.tries import Tried, Tries, Wanted
from runner.system import output

MOST_RUNS = 10
"""How many runs of a watch are kept in ``reports/``; older ones are removed when another ends."""

_POLL_SECONDS = 0.01
_SHARE_OF_POLLING = 20
"""Between two polls, at least this many times the time of a poll passes."""

_SHOWN = 3
"""How many changed files are named."""


class Key(Enum):
    """What the user can type."""

    AGAIN = "\n"
    FAILED = "f"
    ALL = "a"
    QUIT = "q"


class Keyboard(Protocol):
    """Where keys and interrupts come from."""

    def wait(self, seconds: float) -> Key | None:
        """Return the next key, or None after this time; raise ``KeyboardInterrupt`` for a signal."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Watched:
    """What a watch looks at."""

    paths: tuple[Path, ...]
    backends: tuple[Path, ...]


class Watch:
    """One watch, until the user ends it."""

    def __init__(self, watched: Watched, tries: Tries, store: ZygoteStore, keyboard: Keyboard) -> None:
        self._watched = watched
        self._tries = tries
        self._store = store
        self._keyboard = keyboard
        self._outcomes = Outcomes()
        self._files: set[Path] = set()
        self._runs: list[Path] = []
        self._last = Wanted()
        self._unread: set[str] = set()
        """Changed files whose specs could not be run, because something was invalid."""
        self._owes_all = False
        """Whether the last run of all specs could not begin."""

    def run(self) -> ExitCode:
        """Run until the user quits; return the exit code of what is known then. Raise ``KeyboardInterrupt`` for a signal."""
        self._files = self._tries.files()
        changes = Changes(self._snapshot)
        self._try(Wanted())
        while True:
            wanted = self._next(changes)
            if wanted is None:
                return self._exit_code()
            self._try(wanted)

    def _snapshot(self) -> Snapshot:
        return snapshot(self._watched.paths, self._files)

    def _next(self, changes: Changes) -> Wanted | None:
        """Wait for a change or a key; return what to run, None to quit."""
        while True:
            if changed := changes.poll():
                return self._of_change(changed)
            pause = max(_POLL_SECONDS, _SHARE_OF_POLLING * changes.seconds)
            match self._keyboard.wait(pause):
                case Key.QUIT:
                    return None
                case Key.ALL:
                    return Wanted()
                case Key.AGAIN:
                    return self._last
                case Key.FAILED if failing := self._outcomes.failing:
                    return Wanted(cases=failing)
                case Key.FAILED:
                    output.note("nothing fails")

    def _of_change(self, changed: frozenset[str]) -> Wanted:
        gone = [name for name in sorted(changed) if not Path(name).exists()]
        self._outcomes.keep_only([shown_path(Path(name)) for name in gone], ())
        words = [f"{shown_path(Path(name))}{' is gone' if name in gone else ''}" for name in sorted(changed)]
        more = f" and {len(words) - _SHOWN} more" if len(words) > _SHOWN else ""
        output.note(f"changed: {', '.join(words[:_SHOWN])}{more}")
        return Wanted() if self._owes_all else Wanted(files=changed)

    def _try(self, wanted: Wanted) -> None:
        """Run a try, and print what became of it. Only a signal ends the watch."""
        self._last = wanted
        begun = time.monotonic()
        try:
            tried = self._run(wanted)
        except InvalidSpecs as error:
            output.lines(map(str, error.diagnostics))
            count = len(error.diagnostics)
            self._after(f"{count} problem{'' if count == 1 else 's'}; nothing was run", wanted)
        except (UsageError, JournalAltered) as error:
            output.notes(f"torch-conformance: {error}")
            self._after("nothing was run", wanted)
        except Exception as error:  # a bug of this program must not lose the warm processes and what is remembered
            output.traceback()
            self._after(f"this is a bug of torch-conformance: {type(error).__name__}", wanted)
        else:
            self._take(tried, wanted, time.monotonic() - begun)

    def _run(self, wanted: Wanted) -> Tried:
        machine_state.forget_cached()
        if self._store.require(machine_state.state(self._watched.backends)):
            output.note("torch, a package, a variable or a file of backends changed: torch starts anew")
        tried = self._tries.run(wanted)
        self._files = self._tries.files()
        return tried

    def _after(self, words: str, wanted: Wanted) -> None:
        self._unread |= wanted.files or frozenset()
        self._owes_all |= wanted == Wanted()
        output.note(f"{words}; waiting for a change")

    def _take(self, tried: Tried, wanted: Wanted, seconds: float) -> None:
        if tried.code is ExitCode.INTERRUPTED:
            raise KeyboardInterrupt
        if wanted == Wanted():
            self._owes_all = False
            self._unread.clear()
        self._unread -= wanted.files or frozenset()
        self._outcomes.keep_only(tried.specs, tried.cases)
        fixed = self._outcomes.take(tried.results)
        output.lines(self._outcomes.lines(fixed, [result.case_id for result in tried.results]))
        if not tried.results:
            output.note("no case of the changed files is selected")
        output.note(f"{seconds:.1f}s; waiting for a change (Enter: again, f: failed, a: all, q: quit)")
        self._remove_old_runs(tried.folder)

    def _remove_old_runs(self, newest: Path | None) -> None:
        self._runs += [newest] if newest is not None else []
        while len(self._runs) > MOST_RUNS:
            shutil.rmtree(self._runs.pop(0), ignore_errors=True)

    def _exit_code(self) -> ExitCode:
        if self._outcomes.failing or self._unread or self._owes_all:
            return ExitCode.FAILED
        return ExitCode.OK if self._outcomes.executed else ExitCode.NOTHING
