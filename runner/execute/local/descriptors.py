"""What the loop of the engine sleeps on: sockets, pipes and processes, each with what is called when it is readable."""

import selectors
from collections.abc import Callable


class Descriptors:
    """The descriptors that are watched. Each must be open as long: the number of a closed one may be that of another worker's socket."""

    def __init__(self) -> None:
        self._selector = selectors.DefaultSelector()

    def watch(self, descriptor: int, on_readable: Callable[[], None]) -> None:
        """Call ``on_readable`` whenever a descriptor is readable; once a descriptor."""
        self._selector.register(descriptor, selectors.EVENT_READ, on_readable)

    def forget(self, descriptor: int) -> None:
        """Watch a descriptor no more, if it is watched. Call this before it is closed."""
        if descriptor in self._selector.get_map():
            self._selector.unregister(descriptor)

    def wait(self, seconds: float) -> None:
        """Sleep until a descriptor is readable, or for ``seconds``; then call what belongs to those that are."""
        for key, _ in self._selector.select(timeout=seconds):
            key.data()

    def close(self) -> None:
        """Watch nothing more."""
        self._selector.close()


def only_wake() -> None:
    """Do nothing: the loop is awake, and looks at what it watches."""
