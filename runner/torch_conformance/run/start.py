"""The start of ``run``: torch is imported while the specs are read."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from torch_conformance.execute.spawn import ProcessStarter
from torch_conformance.optional.options import RunOptions

if TYPE_CHECKING:
    from torch_conformance.execute.engine import LocalExecutor
    from torch_conformance.execute.executor_protocol import ExecutorSettings


@contextmanager
def early_zygotes(
    options: RunOptions,
) -> Iterator["Callable[[ExecutorSettings], LocalExecutor] | None"]:
    """Start the zygotes that most runs on this machine need; yield what makes the executor that
    takes them, None for a run on other machines.
    """
    if options.executor != "local":
        yield None
        return
    with ProcessStarter.early(options.jobs) as starter:
        # after the zygotes have started: this import takes as long as a small spec
        from torch_conformance.execute.engine import LocalExecutor

        yield None if starter is None else partial(LocalExecutor, starter=starter)
