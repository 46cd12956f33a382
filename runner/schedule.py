"""In which order cases run, and how many at once."""

import os
import re
from collections.abc import Sequence

from runner.diagnostics import UsageError
from runner.execute.jobs import Environment
from runner.model import Case

_BYTES_PER_WORKER = 3 << 30
"""What a worker with g++ may need; memory bounds the workers as cores do."""


def environment_of(case: Case) -> Environment:
    """Return what the case's template must have been started with."""
    variables = {name: None if value is None else _as_variable(value) for name, value in case.body["env"].items()}
    # what compiles nothing needs no compiler warm: that alone takes longer than importing torch
    kinds = frozenset([case.device.split(":")[0]]) if case.body["compiles"] else frozenset[str]()
    return Environment(variables=variables, kinds=kinds)


def _as_variable(value: object) -> str:
    return ("1" if value else "0") if isinstance(value, bool) else str(value)


def environments(cases: Sequence[Case]) -> dict[str, Environment]:
    """Return one environment for each set of variables, warm for every kind of device that its cases use."""
    found: dict[str, Environment] = {}
    for case in cases:
        mine = environment_of(case)
        other = found.get(mine.key)
        found[mine.key] = mine if other is None else Environment(variables=mine.variables, kinds=mine.kinds | other.kinds)
    return found


def order(cases: Sequence[Case]) -> list[Case]:
    """Return the cases with those of one environment together: each template is started once."""
    keys = list(dict.fromkeys(environment_of(case).key for case in cases))
    return sorted(cases, key=lambda case: keys.index(environment_of(case).key))


def workers(jobs: str) -> int:
    """Read ``--jobs``: a number, or auto; raise ``UsageError``."""
    if jobs == "auto":
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
        return max(1, min(_cores(), memory // _BYTES_PER_WORKER))
    if re.fullmatch("[1-9][0-9]{0,5}", jobs) is None:
        raise UsageError(f"--jobs {jobs}: write a number from 1, or auto")
    return int(jobs)


def threads(count: int) -> int:
    """Return the OpenMP threads of each of ``count`` workers."""
    return max(1, _cores() // count)


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
