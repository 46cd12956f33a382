"""``watch``: run specs, and run them again when their files change. The loop is in ``run/watching``."""

import contextlib
import dataclasses
import os
import select
import sys
import termios
import tty
from typing import Any, Self

from runner.core.exit_codes import ExitCode
from runner.core.options import RunOptions, WatchOptions
from runner.report import table
from runner.run.watching.loop import Key, Watch, Watched
from runner.run.watching.stores import opened_store
from runner.run.watching.tries import Tries, makers_of
from runner.system.data_dirs import folder
from runner.system.signals import Interrupts


def main(options: WatchOptions) -> ExitCode:
    """Run and watch until the user quits."""
    run = run_options(options)
    with opened_store() as store, Interrupts() as interrupts, TypedKeys(interrupts) as keys:
        tries = Tries(run, table.of_watch, makers_of(store))
        return Watch(Watched(paths=options.paths or (folder("specs"),), backends=options.backends), tries, store, keys).run()


def run_options(options: WatchOptions) -> RunOptions:
    """Return the options of its runs: the defaults of ``run``, with what was given."""
    return RunOptions(**{field.name: getattr(options, field.name) for field in dataclasses.fields(options)})


_KEYS = {key.value: key for key in Key} | {"\r": Key.AGAIN}


class TypedKeys:
    """Reads keys that a user types: single ones on a terminal, lines elsewhere. Its exit gives the terminal its settings back."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._input: int | None = None
        self._settings: list[Any] | None = None
        self._text = ""

    def __enter__(self) -> Self:
        with contextlib.suppress(AttributeError, ValueError, OSError):  # a program can be started without standard input
            self._input = sys.stdin.fileno()
            # a background job that changes the terminal is stopped by the system
            if os.isatty(self._input) and os.tcgetpgrp(self._input) == os.getpgrp():
                self._settings = termios.tcgetattr(self._input)
                tty.setcbreak(self._input)  # Ctrl-C still sends its signal
        return self

    def __exit__(self, *_: object) -> None:
        if self._settings is not None and self._input is not None:
            with contextlib.suppress(termios.error):  # the terminal may be gone
                termios.tcsetattr(self._input, termios.TCSADRAIN, self._settings)

    def wait(self, seconds: float) -> Key | None:
        """Return the next key, or None after this time; raise ``KeyboardInterrupt`` for a signal."""
        if key := self._next():
            return key
        sources = [self._interrupts.wake, *([] if self._input is None else [self._input])]
        ready, _, _ = select.select(sources, [], [], seconds)
        self._interrupts.clear_wake()
        if self._interrupts.asked:
            raise KeyboardInterrupt
        if self._input in ready:
            self._read(self._input)
        return self._next()

    def _read(self, descriptor: int) -> None:
        try:
            data = os.read(descriptor, 1 << 12)
        except OSError:
            data = b""
        if not data:  # closed: the watch goes on without keys
            self._input = None
        self._text += data.decode("utf-8", "replace")

    def _next(self) -> Key | None:
        """Return the first key that was typed; without a terminal, the first of a line."""
        while self._text:
            if self._settings is not None:
                typed, self._text = self._text[0], self._text[1:]
            else:
                line, end, rest = self._text.partition("\n")
                if not end:
                    return None
                typed, self._text = line.strip()[:1] or "\n", rest
            if key := _KEYS.get(typed):
                return key
        return None
