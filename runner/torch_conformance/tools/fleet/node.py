"""``python -m torch_conformance.tools.fleet.node``: make this machine a node of a lab.

A worker is asked for the facts of this machine, which are compared with its entry in the file of
the lab; with these facts as labels the machine joins a Ray cluster. The Python and the torch of
this environment run the cases. Ctrl-C leaves the cluster.
"""

import os
import re
import socket
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from torch_conformance.cli.parser import Parser, add_options, answered, guarded_code, values_of
from torch_conformance.machine import capabilities, output
from torch_conformance.machine.child_python import leave_out_working_folder
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import flag, option
from torch_conformance.run.pipeline import ask_worker
from torch_conformance.tools.fleet.agent import IMAGE
from torch_conformance.tools.fleet.lab import (
    LABEL,
    as_label,
    facts_of,
    host_and_port,
    read_lab,
    require_ray,
)


@frozen
class NodeOptions:
    """The options of ``python -m torch_conformance.tools.fleet.node``, which is not a command of
    the program.
    """

    address: str = option("HOST:PORT", "the head of the Ray cluster", required=True)
    lab: Path | None = option("FILE", "the file of the lab, which has the node's entry", reads=Path)
    name: str = option(
        "NAME",
        "the name of the node, in the lab (default: the name of this machine)",
        "",
        word="as",
    )
    image: str = option(
        "NAME", "the image that this machine runs, for the reports (default: that of the lab)", ""
    )
    once: bool = flag("end when the head of the cluster is gone, and do not join again")


_AGAIN_SECONDS = 10.0
_RAY = "from ray.scripts.scripts import main; main()"
_OF_RAY = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""Ray lowers the priority of its workers, and with it that of the cases, which have deadlines."""


def join(options: NodeOptions) -> ExitCode:
    """Join, and stay until the process is stopped, joining again where the head went away.

    Raise ``UsageError`` for a machine that is not what the lab says.
    """
    require_ray()
    host_and_port(options.address)
    name = options.name or re.sub(
        r"[^a-z0-9-]+", "-", socket.gethostname().partition(".")[0].lower()
    ).strip("-")
    entry = None
    if options.lab is not None:
        entry = read_lab(options.lab).node(name)
    report = ask_worker(capabilities.inspect_files(installed_torch()))
    if report.problem:
        raise UsageError(
            f"this machine cannot be a node, because its worker reported no facts: {report.problem}"
        )
    machine = replace(report.machine, facts=dict(report.facts or {}))
    image = options.image
    if entry is not None:
        entry.require(machine)
        image = image or entry.image
    facts = {
        "name": name,
        "image": image,
        **{key: text for key, (text, _) in facts_of(machine).items()},
    }
    # its name, and what ``ray list nodes`` shows of it
    labels = [f"{LABEL}{fact}={as_label(text)}" for fact, text in facts.items() if text]
    output.note(", ".join(labels))
    command = [sys.executable, "-P", "-c", _RAY, "start", "--address", options.address]
    command += ["--block", "--disable-usage-stats", "--labels", ",".join(labels)]
    # an empty number of threads counts as none, and keeps Ray from setting one
    environ = {"OMP_NUM_THREADS": "", **os.environ, IMAGE: image, **_OF_RAY}
    while True:
        output.note(f"node {name}: joining")
        process = subprocess.Popen(command, env=environ)
        try:
            code = process.wait()
        except KeyboardInterrupt:
            process.terminate()
            process.wait()
            return ExitCode.OK
        if options.once:
            return ExitCode.OK if code == 0 else ExitCode.FAILED
        output.note(
            f"node {name}: 'ray start' ended with {code}; joining again in {_AGAIN_SECONDS:g} s"
        )
        time.sleep(_AGAIN_SECONDS)


def main(argv: Sequence[str]) -> int:
    """Join a cluster; return when the node leaves it."""

    def answer() -> int:
        command = Parser(prog="python -m torch_conformance.tools.fleet.node", description=__doc__)
        add_options(command, NodeOptions)
        options = NodeOptions(**values_of(command.parse_args(argv)))
        return answered(lambda: join(options), argv)

    return guarded_code(answer)


if __name__ == "__main__":
    leave_out_working_folder()
    sys.exit(main(sys.argv[1:]))
