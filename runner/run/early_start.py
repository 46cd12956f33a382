"""Starts torch while the specs are read: reading those that are shipped takes seconds, and so does a zygote."""

import contextlib
from collections.abc import Iterator

from runner.core import devices
from runner.execute.executors import EXECUTORS, LOCAL
from runner.execute.local.early import EarlyZygote
from runner.execute.routing import Makers
from runner.language.read.files import discover
from runner.plan import schedule
from runner.plan.jobs import Environment, Isolation
from runner.run.preparation import Checked
from runner.system import cache_dirs
from runner.system.installed_torch import installed_torch

LEAST_SPECS = 64
"""Fewer specs are read before a zygote has imported torch's first modules, and may all be for other devices."""


@contextlib.contextmanager
def executors_of(checked: Checked) -> Iterator[Makers]:
    """Yield the executors of a run; that of this machine has a zygote that starts now, if many specs are read before it is needed."""
    if not _helps(checked):
        yield EXECUTORS
        return
    options = checked.options
    kept = None if options.no_kept else cache_dirs.probe_cache_folder()
    with EarlyZygote(Environment(kinds=frozenset([devices.CPU])), schedule.threads(checked.workers), kept) as zygote:
        yield {**EXECUTORS, LOCAL: zygote.executor}


def _helps(checked: Checked) -> bool:
    """Whether the run has a zygote on this machine, and reads many specs first."""
    options = checked.options
    if options.executor != LOCAL or Isolation(options.isolation) is Isolation.PROCESS or installed_torch() is None:
        return False
    return len(discover(options.paths, [])) >= LEAST_SPECS
