"""The process that speaks to Ray: it makes the calls that the runner names, and writes the files of
cases.

A call is a line of JSON on standard input: ``[number, node, method, arguments, folder]``. A line on
standard output, ``[number, answer, problem]``, answers it. The first line has the nodes.
"""

import json
import os
import queue
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_conformance.machine.output import naming
from torch_conformance.model.protocol import Json
from torch_conformance.tools.fleet.agent import Agent
from torch_conformance.tools.fleet.lab import NAME

_ALIVE_EVERY = 5.0
_FILES_SECONDS = 60.0
_END_SECONDS = 20.0
_NETWORK_RETRIES = 3
"""How often Ray makes a call again that the network lost."""
_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


def serve(address: str, source: str) -> None:
    """Connect, then serve one runner until it hangs up. Nodes run the package in ``source``."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    outlet = os.fdopen(os.dup(1), "w", encoding="ascii")
    os.dup2(2, 1)  # what Ray prints

    def say(*line: Json) -> None:
        outlet.write(json.dumps(line) + "\n")
        outlet.flush()

    ray.init(
        address=address,
        log_to_driver=False,
        configure_logging=False,
        runtime_env={"working_dir": source},
    )
    nodes = {
        node["NodeID"]: node
        for node in ray.nodes()
        if node["Alive"] and NAME in node.get("Labels", {})
    }
    say(*([key, node["Labels"]] for key, node in nodes.items()))
    actors: dict[str, Any] = {}
    done: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def actor(key: str) -> Any:
        """Return the actor of a node: it has all of the node, so that no other run has it too."""
        has = nodes[key]["Resources"]
        return (
            ray.remote(Agent)
            .options(
                num_cpus=has.get("CPU", 0),
                num_gpus=has.get("GPU", 0),
                scheduling_strategy=NodeAffinitySchedulingStrategy(node_id=key, soft=False),
                max_restarts=0,
            )
            .remote()
        )

    def call(key: str, method: str, *arguments: Json) -> Any:
        retries = _NETWORK_RETRIES if method == "run" else 0
        options = {"num_returns": 2, "max_task_retries": retries}
        return getattr(actors[key], method).options(**options).remote(*arguments)

    def take(number: int, key: str, method: str, arguments: list[Json], folder: str) -> None:
        actors[key] = actors.get(key) or actor(key)
        answer, files = call(key, method, *arguments)
        ended = actors.pop(key) if method == "end" else None
        answer.future().add_done_callback(
            lambda future: done.put((number, future, files, folder, ended))
        )

    def take_all() -> None:
        try:
            for line in sys.stdin:
                take(*json.loads(line))
        finally:
            done.put(None)

    threading.Thread(target=take_all, daemon=True).start()
    while True:
        try:
            answered = done.get(timeout=_ALIVE_EVERY)
        except queue.Empty:
            say(0, None, "")
            continue
        if answered is None:
            break
        number, future, files, folder, ended = answered
        content: Mapping[str, bytes] = {}
        try:
            answer, problem = future.result(), ""
            content = ray.get(files, timeout=_FILES_SECONDS)
        except Exception as error:
            # what Ray and gRPC raise has no common class below Exception; each means that this node
            # is lost
            answer, problem = None, f"{type(error).__name__}: {error}"[:2000]
        if ended is not None:
            ray.kill(ended)
        _write(Path(folder), content)
        say(number, answer, problem)
    if ending := [call(key, "end")[0] for key in actors]:
        ray.wait(ending, num_returns=len(ending), timeout=_END_SECONDS)


def _is_name(name: str) -> bool:
    """Whether the name of a file, which a node may have made up, stays in its folder."""
    return (
        name not in ("", ".", "..") and not {"/", "\0"} & {*name} and len(os.fsencode(name)) < 256
    )


def _write(folder: Path, files: Mapping[str, bytes]) -> None:
    """Write the files of a case; without those whose name leads out of the folder."""
    for name in filter(_is_name, files):
        folder.mkdir(parents=True, exist_ok=True)
        with (
            naming(folder / name),
            os.fdopen(os.open(folder / name, _FLAGS, 0o644), "wb") as stream,
        ):
            stream.write(files[name])


if __name__ == "__main__":
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    serve(*sys.argv[1:])
