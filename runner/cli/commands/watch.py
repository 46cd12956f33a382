"""``watch``: run specs, and run them again when their files change. The loop is in ``run/watching``."""

import contextlib
import dataclasses
import os
import select
import sys

from runner.core.exit_codes import ExitCode
from runner.core.options import RunOptions, WatchOptions
from runner.report import table
from runner.run.watching import Watch
from runner.system.signals import Interrupts


def main(options: WatchOptions) -> ExitCode:
    """Run and watch until the user quits."""
    with Interrupts() as interrupts:
        return Watch(run_options(options), table.of_watch, Keys(interrupts).wait).run()


def run_options(options: WatchOptions) -> RunOptions:
    """Return the options of its runs: the defaults of ``run``, with those of the command line."""
    return RunOptions(**{field.name: getattr(options, field.name) for field in dataclasses.fields(options)})


class Keys:
    """Reads the lines that a user types; the first letter of each is a key."""

    def __init__(self, interrupts: Interrupts) -> None:
        self._interrupts = interrupts
        self._input: int | None = None
        with contextlib.suppress(AttributeError, ValueError, OSError):  # a program can be started without standard input
            self._input = sys.stdin.fileno()
        self._text = ""

    def wait(self, seconds: float) -> str | None:
        """Return the next key, or None after this time; raise ``KeyboardInterrupt`` for a signal."""
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
                self._input = self._input if data else None  # closed: the watch goes on without keys
                self._text += data.decode("utf-8", "replace")
        line, end, rest = self._text.partition("\n")
        if not end:
            return None
        self._text = rest
        return line.strip()[:1]
