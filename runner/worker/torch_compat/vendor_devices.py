"""Whether torch sees a device that a vendor's module registers. A process of its own imports the module: it may crash, hang or print."""

import os
import select
import signal
import time

from runner.core.devices import VendorDevice

_SECONDS = 240.0
"""How long the import of a vendor's module and the look at its devices may take."""

_BYTES = 2000

HOLDS = "returned True"
"""The answer where there is a device, in the words of predicates."""


def is_question(text: str) -> bool:
    """Whether a question is about a device of a vendor, and not the path of a predicate."""
    return "=" in text


def answer(question: str, seconds: float = _SECONDS) -> str:
    """Return ``HOLDS`` where torch sees a device, else the reason, from a fork of this process."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.setsid()
            os.close(read)
            os.write(write, _looked(question).encode("utf-8", "replace")[:_BYTES])
        finally:  # a fork never returns into the worker
            os._exit(0)
    os.close(write)
    try:
        text = _read(read, time.monotonic() + seconds)
    finally:
        os.close(read)
        _end(child)
    if text is None:
        return f"the import of its module did not end within {seconds:.0f} s"
    return text or "the process that imported its module ended without an answer"


def _looked(question: str) -> str:
    import torch

    from runner.worker.torch_compat import devices

    vendor = VendorDevice.parse(question)
    try:
        devices.register(vendor)
        module = getattr(torch, vendor.kind)
        if not module.is_available():
            return f"torch.{vendor.kind}.is_available() returned False"
        return HOLDS if module.device_count() > 0 else f"torch.{vendor.kind}.device_count() returned 0"
    except BaseException as error:  # a vendor's module may raise anything, also SystemExit; the answer says what
        return f"its import raised {type(error).__name__}: {str(error).strip().partition(chr(10))[0]}"[:300]


def _read(descriptor: int, until: float) -> str | None:
    """Return what the fork wrote before its end; None at the deadline."""
    found = b""
    while (left := until - time.monotonic()) > 0:
        if not select.select([descriptor], [], [], left)[0]:
            break
        piece = os.read(descriptor, _BYTES)
        if not piece:
            return found.decode("utf-8", "replace")
        found += piece
    return None


def _end(child: int) -> None:
    for kill, target in ((os.killpg, child), (os.kill, child)):
        try:
            kill(target, signal.SIGKILL)
        except OSError:
            continue
    os.waitpid(child, 0)
