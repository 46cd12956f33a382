"""``watch``: run specs, and run them again when their files change. The loop is in ``tools/author/watching``."""

import contextlib
import dataclasses
import os
import select
import sys
from dataclasses import dataclass
from pathlib import Path

from runner.machine.signals import Interrupts
from runner.model.options import RunOptions, backend_files, backends_chosen, factor, globs, option, paths, positive, tags, waiver_files
from runner.model.outcomes import ExitCode
from runner.report import reporters
from runner.tools.author.watching import Watch


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of ``watch``. Its runs have the defaults of ``run`` for the others."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    waivers: tuple[Path, ...] = waiver_files()
    backend: tuple[str, ...] = backends_chosen()
    select: tuple[str, ...] = globs()
    tag: tuple[str, ...] = tags()
    jobs: str = option("N", "maximum number of cases that run in parallel (default: auto, by cores and memory)", "auto")
    timeout: float = option("S", "deadline of a case in seconds (default: 300)", 300.0, positive)
    timeout_factor: float = option("F", "multiply every deadline (default: 1)", 1.0, factor)


def main(options: WatchOptions) -> ExitCode:
    """Run and watch until the user quits."""
    with Interrupts() as interrupts:
        return Watch(run_options(options), reporters.of_watch, Keys(interrupts).wait).run()


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
