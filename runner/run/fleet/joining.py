"""``node join``: the facts of this machine, compared with its entry in the lab, become the labels with which it joins a Ray cluster."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.core.options import NodeOptions
from runner.execute.ray import labels
from runner.execute.ray.head import host_and_port
from runner.execute.ray.node_facts import IMAGE
from runner.language.lab import LabNode, read_lab
from runner.run.fleet.lab_check import CPU, differences
from runner.run.fleet.options import require_ray
from runner.run.machine_report import ask_worker
from runner.system import availability, hardware, output
from runner.system.capabilities import Machine
from runner.system.installed_torch import installed_torch

_AGAIN_SECONDS = 10.0
_RAY = "from ray.scripts.scripts import main; main()"
_KEPT = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "OMP_NUM_THREADS")
"""Variables that Ray changes for its actors: the agent gets them as they are here."""


_OF_RAY = {"RAY_worker_niceness": "0"}
"""Ray lowers the priority of its workers, and with it that of the cases, which have deadlines."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Joining:
    """The command line of ``ray start``, and the name of the node."""

    name: str
    labels: Mapping[str, str]
    resources: Mapping[str, float]
    command: tuple[str, ...]


def join(options: NodeOptions) -> ExitCode:
    """Join, and stay until the head is gone or the process is stopped; raise ``UsageError`` for a machine that is not what the lab says."""
    require_ray()
    host_and_port(options.address)
    name = options.name or re.sub(r"[^a-z0-9-]+", "-", socket.gethostname().partition(".")[0].lower()).strip("-")
    node = _entry(options, name)
    if node is not None and node.environment and not _is_here(node):
        return _in_environment(node)
    machine = machine_of_node()
    if node is not None and (problem := next(differences(node, machine), "")):
        raise UsageError(f"this machine is not '{name}' of the lab: {problem}")
    image = options.image or (node.image if node else "")
    joining = joining_of(options.address, name, node, machine, image)
    for label, value in sorted(joining.labels.items()):
        output.note(f"{label}={value}")
    if options.dry:
        output.line(" ".join(joining.command))
        return ExitCode.OK
    return _stay(joining, image, once=options.once)


def machine_of_node() -> Machine:
    """Return the facts of this machine, of a worker in this environment; raise ``UsageError`` where there is none."""
    torch = installed_torch()
    glance = availability.inspect_files(torch)
    report = ask_worker(glance)
    if report.problem:
        raise UsageError(f"this machine cannot be a node, because its worker reported no facts: {report.problem}")
    return replace(report.machine, facts=dict(report.facts or {}))


def joining_of(address: str, name: str, node: LabNode | None, machine: Machine, image: str) -> Joining:
    """Return how a machine joins."""
    split = node.split if node else "none"
    shares = node.shares if node else 1
    vendor = machine.vendor if machine.gpus and machine.vendor else CPU
    facts = {
        "vendor": vendor,
        "arch": machine.arch or "",
        "torch": machine.torch or "",
        "python": ".".join(map(str, machine.python)),
        "gpus": str(machine.gpus or 0),
        "memory": f"{hardware.available_memory() >> 30}GiB",
        "gpu-memory": f"{(machine.gpu_memory or 0) >> 30}GiB" if machine.gpus else "",
        "driver": str(machine.facts.get("driver") or ""),
        "image": image,
    }
    found = labels.labels_of(name, shares, split, facts)
    resources = labels.resources_of(shares)
    text = ",".join(f"{label}={value}" for label, value in sorted(found.items()))
    command = [sys.executable, "-P", "-c", _RAY, "start", "--address", address, "--block", "--disable-usage-stats"]
    command += ["--labels", text, "--resources", json.dumps(resources)]
    return Joining(name=name, labels=found, resources=resources, command=tuple(command))


def _entry(options: NodeOptions, name: str) -> LabNode | None:
    if options.lab is None:
        return None
    lab = read_lab(options.lab)
    if name not in lab.nodes:
        raise UsageError(f"--as {name}: {options.lab} has no such node (nodes there: {', '.join(lab.nodes)})")
    return lab.nodes[name]


def _is_here(node: LabNode) -> bool:
    return os.path.realpath(sys.prefix) == os.path.realpath(os.path.expanduser(node.environment))


def _in_environment(node: LabNode) -> ExitCode:
    """Run the same command with the Python of the node's environment."""
    python = os.path.join(os.path.expanduser(node.environment), "bin", "python")
    if shutil.which(python) is None:
        raise UsageError(f"{node.position('environment')}: {node.environment} has no bin/python (name the folder of a virtual environment)")
    done = subprocess.run([python, "-P", "-m", "runner", *sys.argv[1:]], check=False)
    return ExitCode.OK if done.returncode == 0 else ExitCode.USAGE


def _stay(joining: Joining, image: str, *, once: bool) -> ExitCode:
    """Run ``ray start`` until it is stopped; join again where the head of the cluster went away."""
    kept = {f"TORCH_CONFORMANCE_NODE_{name}": os.environ[name] for name in _KEPT if name in os.environ}
    environ = {**os.environ, **kept, IMAGE: image, "RAY_USAGE_STATS_ENABLED": "0", **_OF_RAY}
    while True:
        output.note(f"node {joining.name}: joining")
        process = subprocess.Popen(joining.command, env=environ)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            return ExitCode.OK
        if once:
            return ExitCode.OK if code == 0 else ExitCode.FAILED
        output.note(f"node {joining.name}: 'ray start' ended with {code}; joining again in {_AGAIN_SECONDS:g} s")
        time.sleep(_AGAIN_SECONDS)
