"""The descriptors on which the engine's loop sleeps: sockets, pipes and processes, each with a callback."""

import selectors
from collections.abc import Callable


class Descriptors:
    """The watched descriptors. Remove a descriptor before it is closed: its number may be reused for another worker's socket."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """Call ``on_readable`` whenever a descriptor is readable; once a descriptor."""
        self._selector.register(descriptor, selectors.EVENT_READ, on_readable)

    def forget(self, descriptor: int) -> None:
        """Stop watching a descriptor, if it is watched. Call this before it is closed."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def wait(self, seconds: float) -> None:
        """Sleep until a descriptor is readable, or for ``seconds``; then call the callbacks of readable descriptors."""
        for key, _ in self._selector.select(timeout=seconds):
            key.data()

    def close(self) -> None:
        """Stop watching all descriptors."""
        self._selector.close()


def only_wake() -> None:
    """Do nothing: the call only wakes the loop."""
