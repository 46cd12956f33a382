"""The zygotes of a watch, in a scratch folder of their own."""

import contextlib
from collections.abc import Iterator

from runner.execute.local.kept_zygotes import ZygoteStore
from runner.system import scratch


@contextlib.contextmanager
def opened_store() -> Iterator[ZygoteStore]:
    """Yield a store; end its zygotes and remove the folder at the end."""
    with scratch.make() as made, contextlib.closing(ZygoteStore(made.path)) as store:
        yield store
