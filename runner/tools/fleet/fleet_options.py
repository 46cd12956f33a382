"""Checks the options of a fleet before anything is read or started."""

import importlib.util
import re
import socket

from runner.model.diagnostics import UsageError
from runner.model.options import RunOptions
from runner.tools.fleet.lab import read_lab

_ANSWER_SECONDS = 8.0
_HOW = "start a head with 'ray start --head --port=6379', and write --address HOST:PORT as it prints it"


def check_fleet(options: RunOptions) -> None:
    """Raise ``UsageError`` for options of a fleet that contradict each other, without Ray, or where no head listens."""
    if options.executor != "ray":
        for name, value in (("--address", options.address), ("--lab", options.lab)):
            if value is not None:
                raise UsageError(f"{name} has no effect with --executor {options.executor} (write --executor ray, or remove it)")
        return
    if options.address is None:
        raise UsageError("--executor ray: which cluster? (write --address HOST:PORT, as 'ray start --head' printed it)")
    require_ray()
    if options.lab is not None:
        read_lab(options.lab)
    require_head(options.address)


def require_ray() -> None:
    """Raise ``UsageError`` where Ray is not installed."""
    if importlib.util.find_spec("ray") is None:
        raise UsageError("Ray is not installed (pip install 'torch-conformance[ray]', with the same version on every node)")


def require_head(address: str) -> None:
    """Raise ``UsageError`` for a text that is no address, or where nothing listens. Ray tries for three minutes, and does not say why."""
    host, port = host_and_port(address)
    try:
        socket.create_connection((host, port), timeout=_ANSWER_SECONDS).close()
    except (OSError, UnicodeError) as error:
        raise UsageError(f"--address {address}: no Ray cluster answers ({getattr(error, 'strerror', '') or error}); {_HOW}") from error


def host_and_port(address: str) -> tuple[str, int]:
    """Return the parts of an address; raise ``UsageError``."""
    host, _, port = address.rpartition(":")
    is_port = port.isascii() and port.isdigit() and len(port) <= 5 and 0 < int(port) < 65_536
    if not host or not is_port or "://" in address:
        shown = re.sub(r"//.*@", "//", address)[:60]  # it may have a password
        raise UsageError(f"--address {shown}: no host and port (write --address HOST:PORT, for example 127.0.0.1:6379; {_HOW})")
    return host.removeprefix("[").removesuffix("]"), int(port)
