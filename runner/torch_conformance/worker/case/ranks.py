"""A step in new processes: one Python, or several that are the ranks of a process group."""

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from datetime import timedelta
from pathlib import Path

import torch

from torch_conformance.model import protocol
from torch_conformance.vocabulary.steps.step_base import NotCarriedOut
from torch_conformance.worker.process.channel import Observed, Plan

RANKS = "ranks"
"""The key of the plan of a rank: how many seconds all of them have."""

IN_NEW_PROCESS = "in_new_process"
"""The key of the plan of a process that repeats a call of this one, and compiles nothing before."""

_SECONDS = 300.0
"""The deadline of a case that names none."""

_ORDER = "raised_as"
"""The key of the facts of a rank that raised: its number among those that did."""

_HOST = "127.0.0.1"
_ENTRY = "torch_conformance.worker.process.entry"


class NewProcess:
    """A new Python that carries out one step of a plan, with the folders and the environment of
    this process.
    """

    def __init__(self, plan: Plan, index: int, variables: Mapping[str, str] | None = None) -> None:
        *others, step = plan["steps"][: index + 1]
        fields = {"expects_raise": False, "measure": [], "effects": None, "arguments": {}}
        steps = [{"kind": other["kind"], "skipped": True, **fields} for other in others]
        process_keys = {"process", "processes"}
        arguments = {
            key: value for key, value in step["arguments"].items() if key not in process_keys
        }
        steps.append({**step, "arguments": arguments, "rank": None})
        file = os.path.join(plan["cache"], f"step-{index}.json")
        Path(file).write_bytes(protocol.dumps(protocol.encode({**plan, "steps": steps})))
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        reading, writing = os.pipe()
        with ours, theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", _ENTRY, str(theirs.fileno()), str(os.getpid())],
                pass_fds=[theirs.fileno()],
                env={**os.environ, **(variables or {})},
                start_new_session=True,
            )
            message = protocol.dumps({"plan": file, "word": "", "gpus": []})
            socket.send_fds(ours, [message], [writing, 1, 2])
        os.close(writing)
        self._reading = reading

    def observation(self) -> Observed | None:
        """Wait until it ends; return its observation, None where it sent none."""
        with open(self._reading, "rb") as lines:
            sent = next((line for line in lines if line.startswith(b'{"observation"')), None)
        self.process.wait()
        return None if sent is None else protocol.decode(json.loads(sent)["observation"])

    def kill(self) -> None:
        """End it, with what it started in its session."""
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def in_new_process(plan: Plan, index: int) -> Observed:
    """Carry out one step of a plan in a new process; return its observation. This process ends as
    that one where that one sends none.
    """
    child = NewProcess(plan, index)
    observed, code = child.observation(), child.process.returncode
    if observed is None:
        if code < 0:
            signal.signal(-code, signal.SIG_DFL)
            os.kill(os.getpid(), -code)
        os._exit(code)
    return observed


def in_ranks(plan: Plan, index: int, count: int) -> list[Observed]:
    """Carry out the steps of the ranks, which begin at ``index``, at the same time; return their
    observations. Raise ``NotCarriedOut`` where a rank dies or does not end.
    """
    # so that a rank that waits for another one, and this process, end before the case's deadline
    seconds = (plan["body"].get("timeout") or _SECONDS) / 2
    store = torch.distributed.TCPStore(_HOST, 0, is_master=True, wait_for_workers=False)
    variables = {
        "WORLD_SIZE": str(count),
        "LOCAL_WORLD_SIZE": str(count),
        "MASTER_ADDR": _HOST,
        "MASTER_PORT": str(store.port),
        "GLOO_SOCKET_IFNAME": "lo",
    }
    children: list[NewProcess] = []
    try:
        for rank in range(count):
            environment = {**variables, "RANK": str(rank), "LOCAL_RANK": str(rank)}
            children.append(NewProcess({**plan, RANKS: seconds}, index + rank, environment))
        observed = observations(children, seconds)
    finally:
        for child in children:
            child.kill()
    if not plan["steps"][index]["expects_raise"]:
        add_first_exception(observed)
    return observed


def observations(children: Sequence[NewProcess], seconds: float) -> list[Observed]:
    """Return the observations of ranks, by rank. Raise ``NotCarriedOut`` for the first that sends
    none, and for those that have sent none after ``seconds``; then no rank is left.
    """
    by_rank: dict[int, Observed] = {}
    with ThreadPoolExecutor(len(children)) as pool:
        ranks = {pool.submit(child.observation): rank for rank, child in enumerate(children)}
        try:
            for process in as_completed(ranks, seconds):
                rank = ranks[process]
                if (observed := process.result()) is None:
                    code = children[rank].process.returncode
                    ending = f"by {signal.Signals(-code).name}" if code < 0 else f"with code {code}"
                    raise NotCarriedOut(f"rank {rank} ended {ending}, and sent no result")
                by_rank[rank] = observed
        except TimeoutError:
            late = [rank for rank in range(len(children)) if rank not in by_rank]
            for rank in late:
                children[rank].process.send_signal(signal.SIGUSR1)  # it prints its stack
            time.sleep(0.5)
            names = ", ".join(f"rank {rank}" for rank in late)
            raise NotCarriedOut(f"{names} did not end within {seconds:g} s") from None
        finally:
            for child in children:
                child.kill()
    return [observed for _, observed in sorted(by_rank.items())]


def add_first_exception(observed_ranks: Sequence[Observed]) -> None:
    """Add the exception of the rank that raised first to those of others: where it left, their
    collectives raise too.
    """
    raised = [
        (observed.get(_ORDER, 0), rank, exception)
        for rank, observed in enumerate(observed_ranks)
        if (exception := observed["error"] or observed["steps"][-1]["raised"])
    ]
    if not raised:
        return
    _, first, cause = min(raised, key=lambda entry: entry[0])
    text = f" (rank {first} raised before it: {cause['type']}: {cause['message']})"
    for _, rank, exception in raised:
        if rank != first:
            exception["message"] += text


@contextlib.contextmanager
def process_group(plan: Plan, facts: Observed) -> Iterator[None]:
    """Be a rank of the process group in this context, where the plan is that of one. Where the
    rank raises, the others learn it at once.
    """
    if RANKS not in plan:
        yield
        return
    rank, size = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE"))
    waits = timedelta(seconds=plan[RANKS] * 0.6)
    port = int(os.environ["MASTER_PORT"])
    store = torch.distributed.TCPStore(_HOST, port, is_master=False, timeout=waits)
    torch.distributed.init_process_group(
        "gloo", store=store, rank=rank, world_size=size, timeout=waits
    )
    try:
        yield
    finally:
        if sys.exc_info()[0] is not None or any(step["raised"] for step in facts["steps"]):
            facts[_ORDER] = store.add(_ORDER, 1)
        else:
            # it takes the answers of its collectives along, which others may wait for
            store.set(f"done-{rank}", "")
            with contextlib.suppress(Exception):  # another rank raised, or waits for this one
                store.wait([f"done-{other}" for other in range(size)])
        torch.distributed.destroy_process_group()
