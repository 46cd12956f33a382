"""What a node reports of itself: its machine as files show it, where verdicts come from, and its state at a health check."""

import dataclasses
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

from runner.core.protocol import Json
from runner.execute.ray.frames import Message
from runner.plan.resources import Capacity
from runner.system import availability
from runner.system.capabilities import Machine
from runner.system.installed_torch import installed_torch

IMAGE = "TORCH_CONFORMANCE_IMAGE"
"""The variable with the name of a node's image or virtual environment."""

_QUERY_SECONDS = 20.0
_QUERIES = (("nvidia-smi", "--query-gpu=serial,uuid,name,driver_version,memory.used,memory.total", "--format=csv,noheader,nounits"),)
"""Programs that name the GPUs without a context on them. A serial number that a driver does not have is ``[N/A]``: the UUID follows it."""

_MIB = 1 << 20


def machine(message: Message) -> Machine:
    """Return what files show of this machine, with which of the packages that cases need are installed."""
    glance = availability.inspect_files(installed_torch(), message["servers"])
    packages = {str(name): _is_installed(str(name)) for name in message["packages"]}
    return dataclasses.replace(glance, packages=packages)


def _is_installed(name: str) -> bool:
    try:
        return importlib.util.find_spec(name) is not None
    except ValueError:  # __main__ and hand-made entries of sys.modules have no spec
        return False


def machine_as_json(machine: Machine) -> dict[str, Json]:
    """Return a machine as JSON."""
    return {**dataclasses.asdict(machine), "servers": sorted(machine.servers)}


def machine_from_json(found: Message) -> Machine:
    """Return the machine that ``machine_as_json`` wrote."""
    release, packages = found["release"], found["packages"]
    changed = {
        "python": tuple(map(int, found["python"])),
        "release": None if release is None else tuple(map(int, release)),
        "found": {str(name): tuple(map(str, values)) for name, values in found["found"].items()},
        "servers": frozenset(map(str, found["servers"])),
        "packages": None if packages is None else {str(name): bool(there) for name, there in packages.items()},
    }
    return Machine(**{**found, **changed})


def share_of(capacity: Capacity, message: Message) -> Capacity:
    """Return what one of several shares of this machine has: whole GPUs are its own already, cores and memory are divided."""
    shares = max(1, int(message.get("shares", 1)))
    if shares == 1:
        return capacity
    return dataclasses.replace(
        capacity, jobs=max(1, capacity.jobs // shares), cores=max(1.0, capacity.cores / shares), memory=capacity.memory // shares
    )


def provenance(message: Message) -> dict[str, str]:
    """Return where the verdicts of this node come from: host, image, GPUs."""
    gpus = _gpus()
    image = os.environ.get(IMAGE, "") or str(message.get("image", ""))
    found = {
        "host": socket.gethostname(),
        "image": image,
        "python": platform.python_version(),
        "gpu_serial": ", ".join(gpu["serial"] for gpu in gpus),
        "driver": ", ".join(dict.fromkeys(gpu["driver"] for gpu in gpus)),
    }
    return {name: value[:300] for name, value in found.items() if value}


def state(folder: Path) -> dict[str, Json]:
    """Return what a health check compares: the clock, free space, the memory that is used of each GPU."""
    gpus = [{"serial": gpu["serial"], "used": gpu["used"], "total": gpu["total"]} for gpu in _gpus()]
    return {"clock": time.time(), "free": shutil.disk_usage(folder).free, "gpus": gpus}


def _gpus() -> list[dict[str, Json]]:
    """Return the GPUs that this process may use, as their driver's program names them; empty where there is none."""
    found: list[dict[str, Json]] = []
    for query in _QUERIES:
        for line in _printed(query).splitlines():
            cells = [cell.strip() for cell in line.split(",")]
            if len(cells) == 6:
                found.append(_gpu(cells))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None or not all(index.strip().isdecimal() for index in visible.split(",") if index.strip()):
        return found
    chosen = [int(index) for index in visible.split(",") if index.strip()]
    return [found[index] for index in chosen if index < len(found)]


def _gpu(cells: Sequence[str]) -> dict[str, Json]:
    serial, uuid, name, driver, used, total = cells
    return {
        "serial": uuid if serial.startswith("[") or not serial else serial,
        "name": name,
        "driver": driver,
        "used": int(used) * _MIB if used.isdecimal() else None,
        "total": int(total) * _MIB if total.isdecimal() else None,
    }


def _printed(command: Sequence[str]) -> str:
    if shutil.which(command[0]) is None:
        return ""
    try:
        done = subprocess.run(command, capture_output=True, timeout=_QUERY_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""
