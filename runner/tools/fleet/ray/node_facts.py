"""What a node reports of itself: its machine as files show it, where verdicts come from, and its state at a health check."""

import dataclasses
import importlib.util
import os
import platform
import shutil
import socket
import subprocess
import time
from pathlib import Path

from runner.machine import capabilities
from runner.machine.capabilities import Machine
from runner.machine.installed_torch import installed_torch
from runner.model.protocol import Json
from runner.tools.fleet.ray.frames import Message

IMAGE = "TORCH_CONFORMANCE_IMAGE"
"""The variable with the name of a node's image or virtual environment."""

_QUERY_SECONDS = 20.0
_QUERY = ("nvidia-smi", "--query-gpu=serial,uuid,driver_version,memory.used", "--format=csv,noheader,nounits")
"""Names the GPUs without a context on them. A serial number that a driver does not have is ``[N/A]``: the UUID is used then."""


def machine(message: Message) -> Machine:
    """Return what files show of this machine, with which of the packages that cases need are installed."""
    packages: dict[str, bool] = {}
    for name in map(str, message["packages"]):
        try:
            packages[name] = importlib.util.find_spec(name) is not None
        except ValueError:  # __main__ and hand-made entries of sys.modules have no spec
            packages[name] = False
    return dataclasses.replace(capabilities.inspect_files(installed_torch()), packages=packages)


def machine_from_json(content: Message) -> Machine:
    """Return the machine of its fields as JSON."""
    release, packages = content["release"], content["packages"]
    changed = {
        "python": tuple(map(int, content["python"])),
        "release": None if release is None else tuple(map(int, release)),
        "found": {str(name): tuple(map(str, values)) for name, values in content["found"].items()},
        "packages": None if packages is None else {str(name): bool(there) for name, there in packages.items()},
    }
    return Machine(**{**content, **changed})


def provenance(message: Message) -> dict[str, str]:
    """Return where the verdicts of this node come from: host, image, GPUs."""
    gpus = _gpus()
    facts = {
        "host": socket.gethostname(),
        "image": os.environ.get(IMAGE, "") or str(message.get("image", "")),
        "python": platform.python_version(),
        "gpu_serial": ", ".join(str(gpu["serial"]) for gpu in gpus),
        "driver": ", ".join(dict.fromkeys(str(gpu["driver"]) for gpu in gpus)),
    }
    return {name: value[:300] for name, value in facts.items() if value}


def state(folder: Path) -> dict[str, Json]:
    """Return what a health check compares: the clock, free space, the memory that is used of each GPU."""
    return {"clock": time.time(), "free": shutil.disk_usage(folder).free, "gpus": _gpus()}


def _gpus() -> list[dict[str, Json]]:
    """Return the GPUs that this process may use, as their driver's program names them; empty where there is none."""
    if shutil.which(_QUERY[0]) is None:
        return []
    try:
        done = subprocess.run(_QUERY, capture_output=True, timeout=_QUERY_SECONDS, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    gpus: list[dict[str, Json]] = []
    for line in done.stdout.decode("utf-8", "replace").splitlines():
        cells = [cell.strip() for cell in line.split(",")]
        if len(cells) == 4:
            serial, uuid, driver, used = cells
            name = uuid if serial.startswith("[") or not serial else serial
            gpus.append({"serial": name, "driver": driver, "used": int(used) << 20 if used.isdecimal() else None})
    visible = [index.strip() for index in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",") if index.strip()]
    if "CUDA_VISIBLE_DEVICES" not in os.environ or not all(map(str.isdecimal, visible)):
        return gpus
    return [gpus[index] for index in map(int, visible) if index < len(gpus)]
