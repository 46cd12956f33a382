"""A prepared session of a spec, as tests use it that call the worker's parts in their own process.
torch is imported by its functions.
"""

import contextlib
import json
from pathlib import Path
from typing import Any

from tests.fakes import HERE, shipped
from torch_conformance.execute.executor_protocol import with_paths
from torch_conformance.language.expand import surroundings_for
from torch_conformance.language.load import load
from torch_conformance.model.protocol import decode
from torch_conformance.plan.worker_plan import make_plan


def prepared(
    folder: Path,
    text: str,
    *,
    backend: str = "cpu",
    compile_with: str = "eager",
    op: str = "",
    **changes: Any,
) -> tuple[Any, Any]:
    """Return the session and the plan of the one case of a spec, or of that of an operator;
    ``changes`` replace parts of the plan.
    """
    from torch_conformance.worker.case.case_session import Session, prepare

    path = folder / "spec.yaml"
    compiled = "" if backend == "host" else f"compile: {{backend: {compile_with}}}\n"
    path.write_text(f"summary: A case of one session\nbackends: [{backend}]\n{compiled}{text}")
    (case,) = [case for case in load([path]).cases if case.params.get("op", "") == op]
    plan = with_paths(
        make_plan(case, surroundings_for(shipped()[backend], HERE), {}), folder, folder / "cache"
    )
    plan = decode(json.loads(json.dumps(plan)))
    plan.update(
        {
            key: {**plan[key], **value} if isinstance(value, dict) else value
            for key, value in changes.items()
        }
    )
    session = Session(plan)
    try:
        prepare(session, contextlib.ExitStack())
    except BaseException:
        session.close()  # as the worker does
        raise
    return session, plan


def do(session: Any, number: int = 0) -> Any:
    """Carry out a step of the plan and return its result."""
    session.begin_step({})
    session.do(session.plan["steps"][number])
    return session.output
