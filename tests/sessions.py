"""A prepared session of a spec, as tests use it that call the worker's parts in their own process. torch is imported by its functions."""

import contextlib
import json
from pathlib import Path
from typing import Any

from runner.execute.executor_protocol import with_paths
from runner.language.expand.cases import surroundings_for
from runner.language.load import load
from runner.model.protocol import decode
from runner.plan.worker_plan import make_plan
from tests.fakes import HERE, shipped


def prepared(folder: Path, text: str, *, compile_with: str = "eager", **changes: Any) -> tuple[Any, Any]:
    """Return the session and the plan of the one case of a spec; ``changes`` replace parts of the plan."""
    from runner.worker.case.case_session import Session, prepare

    path = folder / "spec.yaml"
    path.write_text(f"summary: A case of one session\nbackends: [cpu]\ncompile: {{backend: {compile_with}}}\n{text}")
    (one,) = load([path]).cases
    plan = with_paths(make_plan(one, surroundings_for(shipped()["cpu"], HERE), {}), folder, folder / "cache")
    plan = decode(json.loads(json.dumps(plan)))
    plan.update({key: {**plan[key], **value} if isinstance(value, dict) else value for key, value in changes.items()})
    session = Session(plan)
    prepare(session, contextlib.ExitStack())
    return session, plan
