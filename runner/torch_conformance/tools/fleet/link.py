"""The runner's end of the gateway, the process that speaks to Ray.

Ray ends a driver whose head is gone, and the run and its journal must outlive that. No call waits
without an end.
"""

import asyncio
import contextlib
import itertools
import json
import os
import shutil
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path

from torch_conformance.machine import child_python
from torch_conformance.machine.scratch import tail
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.tools.fleet.lab import NAME

_CONNECT_SECONDS = 120.0
"""How long the head of a cluster may take to answer."""
_ALIVE_SECONDS = 60.0
"""A gateway that reports nothing for so long is lost."""
_READ_SECONDS = 1.0
"""To read what arrived while this program was stopped, before its gateway counts as lost."""
_CLOSE_SECONDS = 60.0
_MOST_BYTES = 1 << 30
"""The maximum size of an answer."""
_PACKAGE = Path(__file__).resolve().parents[2]


class Lost(Exception):
    """A node, or the connection to the head, is gone."""


@frozen
class Node:
    """A node of the cluster that joined a lab."""

    key: str
    """Unique in the cluster."""
    name: str
    """The name that it joined with, made unique."""
    labels: Mapping[str, str] = field(default_factory=dict)


class GatewayLink:
    """Calls the agents of nodes through the gateway."""

    _process: Process
    _stdin: asyncio.StreamWriter
    _stdout: asyncio.StreamReader

    def __init__(self, address: str) -> None:
        self._address = address
        self._scratch = tempfile.TemporaryDirectory(prefix="torch-conformance-gateway-")
        self._printed = Path(self._scratch.name) / "printed.txt"
        self._reader: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._calls: dict[int, asyncio.Future[Json]] = {}
        self._lost = ""

    async def nodes(self) -> Sequence[Node]:
        """Start the gateway, and return the nodes that joined; raise ``UsageError`` where no
        cluster answers.
        """
        scratch = Path(self._scratch.name)
        source = str(scratch / "source")
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(_PACKAGE, Path(source) / _PACKAGE.name, ignore=ignored)
        command = child_python.command(
            "torch_conformance.tools.fleet.gateway", self._address, source
        )
        with self._printed.open("wb") as printed:
            self._process = process = await asyncio.create_subprocess_exec(
                *command,
                stdin=PIPE,
                stdout=PIPE,
                stderr=printed,
                env=child_python.variables(os.environ, scratch),
                start_new_session=True,
                limit=_MOST_BYTES,
            )
        assert process.stdin is not None
        assert process.stdout is not None
        self._stdin, self._stdout = process.stdin, process.stdout
        try:
            listed = await self._line(_CONNECT_SECONDS)
        except (TimeoutError, ValueError) as error:
            await self._kill()
            raise UsageError(
                f"--address {self._address}: no Ray cluster answers "
                f"({self._last_words() or f'waited {_CONNECT_SECONDS:g} s'})"
            ) from error
        self._reader = asyncio.create_task(self._read())
        return named(listed)

    async def call(self, key: str, method: str, *arguments: Json, folder: str = "") -> Json:
        """Call a method of the agent of a node, and return its answer; its files are written to
        the folder. Raise ``Lost``.

        The agent starts with the first call, once no other run holds the node.
        """
        if self._lost:
            raise Lost(self._lost)
        number = next(self._numbers)
        answer = self._calls[number] = asyncio.get_running_loop().create_future()
        self._say(number, key, method, arguments, folder)
        return await answer

    def drop(self, key: str) -> None:
        """End the agent of a node."""
        self._say(0, key, "end", [], "")

    async def close(self) -> None:
        """Hang up: the gateway ends every agent."""
        if self._reader is not None:
            self._stdin.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._reader, _CLOSE_SECONDS)
            await self._kill()
        self._scratch.cleanup()

    def _say(self, *line: Json) -> None:
        self._stdin.write(json.dumps(line).encode("ascii") + b"\n")

    async def _line(self, seconds: float) -> Json:
        """Return the next line of the gateway; raise ``ValueError`` where it has ended."""
        line = asyncio.ensure_future(self._stdout.readline())
        for limit in (seconds, _READ_SECONDS):
            await asyncio.wait({line}, timeout=limit)
        if not line.done():
            line.cancel()
            raise TimeoutError
        return json.loads(line.result())

    async def _read(self) -> None:
        """Give answers to calls until the gateway is gone: then every node is lost."""
        with contextlib.suppress(TimeoutError, ValueError):
            while True:
                number, answer, problem = await self._line(_ALIVE_SECONDS)
                call = self._calls.pop(number, None)
                if call is None or call.done():  # a sign of life, or a node that was given up
                    continue
                if problem:
                    call.set_exception(Lost(problem))
                else:
                    call.set_result(answer)
        await self._kill()
        words = f"the connection to the head of the cluster was lost {self._last_words()}"
        self._lost = words.strip()
        for call in self._calls.values():
            if not call.done():
                call.set_exception(Lost(self._lost))

    async def _kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()

    def _last_words(self) -> str:
        return " ".join(tail(self._printed, 4000).strip().splitlines()[-1:])[:500]


def named(listed: Json) -> list[Node]:
    """Return the nodes of a cluster by their keys, each with the name that it joined with; a number
    follows where another node has this name.
    """
    nodes: dict[str, Node] = {}
    for key, labels in sorted(listed):
        label = labels[NAME]
        names = itertools.chain([label], (f"{label}-{number}" for number in itertools.count(2)))
        name = next(name for name in names if name not in nodes)
        nodes[name] = Node(key=key, name=name, labels=labels)
    return list(nodes.values())
