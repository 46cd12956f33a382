"""``watch``: run specs, and run them again when their files change. The loop is in ``run/watching``."""

import dataclasses
from pathlib import Path

from runner.cli.keyboard import TypedKeys
from runner.core.exit_codes import ExitCode
from runner.core.options import RunOptions, WatchOptions
from runner.report import table
from runner.run.watching.loop import Watch, Watched
from runner.run.watching.stores import opened_store
from runner.run.watching.tries import Tries, makers_of
from runner.system.data_dirs import folder
from runner.system.signals import Interrupts


def main(options: WatchOptions) -> ExitCode:
    """Run and watch until the user quits."""
    run = _run_options(options)
    with opened_store() as store, Interrupts() as interrupts, TypedKeys(interrupts) as keys:
        tries = Tries(run, table.of_watch, makers_of(store))
        return Watch(Watched(paths=_paths(options), backends=options.backends), tries, store, keys).run()


def _paths(options: WatchOptions) -> tuple[Path, ...]:
    return options.paths or (folder("specs"),)


def _run_options(options: WatchOptions) -> RunOptions:
    """Return the options of its runs: the defaults of ``run``, with what was given."""
    return RunOptions(**{field.name: getattr(options, field.name) for field in dataclasses.fields(options)})
