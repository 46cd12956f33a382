"""Converts a case to the plan that a worker runs: plain data, with the measurements that its
expectations need.
"""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import Any

from torch_conformance.language.read.templates import as_text, resolve_facts
from torch_conformance.model.case import Case, Step, WrittenFunction
from torch_conformance.model.conditions import Surroundings
from torch_conformance.model.expectation import Expectation
from torch_conformance.model.protocol import Json, encode
from torch_conformance.model.results import PROOF
from torch_conformance.vocabulary.expectations import side_effects
from torch_conformance.vocabulary.expectations.expectation_base import EAGER
from torch_conformance.vocabulary.steps import (
    STEPS,
    calls_compiler,
    expects_raise,
    needs_eager,
    python_of,
    traits_of,
)


def seed_of(case: Case) -> int:
    """Return the case's seed: a hash of its id without the backend, so that every backend gets the
    same random numbers.
    """
    seed = case.body.settings.torch.get("seed")
    if seed is not None:
        return int(seed)
    return int.from_bytes(
        hashlib.sha256(
            f"{case.seed_key}{case.challenge}".encode("utf-8", "surrogatepass")
        ).digest()[:4],
        "big",
    )


def digest_of(case: Case) -> str:
    """Return the sha256 of a case's content, which ties a recorded result to the case.

    File paths and line numbers do not count. ``--bench`` does not change the digest.
    """
    excluded = (
        "isolation",
        "preludes",
        "functions",
    )  # isolation is not part of the claim; the text of the others is added below
    body = {name: value for name, value in body_as_json(case).items() if name not in excluded}
    preludes = [block.text for block in case.body.preludes]
    functions = {
        name: code.block.text if isinstance(code, WrittenFunction) else code
        for name, code in case.body.functions.items()
    }
    judged = [
        [
            step.kind,
            # of a Python block only its text counts
            {
                **step.arguments,
                **(
                    {traits_of(step).python: code["text"]}
                    if (code := python_of(step)) is not None
                    else {}
                ),
            },
            [
                (expected.kind, _claim(expected.check), *filter(None, [expected.weak]))
                for expected in step.expectations
            ],
            *(
                [step.repeat, dict(step.when or {})]
                if step.repeat != 1 or step.when is not None
                else []
            ),
        ]
        for step in (*case.steps, *case.left_out)
    ]
    whole: list[Any] = [body, preludes, functions, judged, dict(case.params), case.backend]
    if case.module:
        whole.append({"module": case.module})
    if case.control is not None:
        whole.append([case.control.patch, case.control.fails])
    text = json.dumps(as_text(whole), sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _claim(check: Any) -> dict[str, str]:
    """Return what an expectation says; a word that a later version adds changes no digest of a spec
    without it.
    """
    return {
        field.name: repr(value)
        for field in fields(check)
        if (value := getattr(check, field.name)) != field.default
    }


def body_as_json(case: Case) -> dict[str, Json]:
    """Return the body of a case as JSON for the plan; templates over facts are not evaluated
    yet.
    """
    body = case.body
    return {
        **body.settings.by_section,
        "preludes": [asdict(block) for block in body.preludes],
        "functions": {
            name: asdict(code) if isinstance(code, WrittenFunction) else code
            for name, code in body.functions.items()
        },
        "let": body.let,
        "spies": body.spies,
        "handlers": body.handlers,
        "dead": list(body.dead),
        "inputs": list(body.inputs),
        "context": list(body.context),
        "services": list(body.services),
        "timeout": body.timeout,
        "isolation": body.isolation,
        "compiles": body.compiles,
        "seed_key": case.seed_key,
    }


def make_plan(
    case: Case,
    surroundings: Surroundings,
    facts: Mapping[str, object],
    served: Expectation | None = None,
    runtime: str = "",
    declared: Mapping[str, Json] | None = None,
) -> dict[str, Any]:
    """Return the plan as JSON data; raise ``templates.TemplateError`` for a fact that this machine
    does not have.

    The plan has no path that a worker opens: the executor adds those of the worker's machine
    (``executor_protocol.with_paths``). The ``file`` of a Python block is only its name in
    tracebacks. ``served`` is what the proof of its backend measures of each call, ``runtime``
    the function whose calls it counts, and ``declared`` what the backend does otherwise than eager.
    """
    plan = {
        "format": 1,
        "id": case.id,
        "digest": digest_of(case),
        "backend": case.backend,
        "device": case.device,
        **{
            name: value
            for name, value in {
                "module": case.module,
                "runtime": runtime,
                "declared": declared,
                "target": case.target,
            }.items()
            if value
        },
        # which operators the answer comes from decides nothing where that is claimed
        **(
            {"origins": False}
            if any(
                expected.check.claims_capture
                for step in case.steps
                if step.runs(surroundings)
                for expected in step.expectations
            )
            else {}
        ),
        "params": case.params,
        "body": resolve_facts(body_as_json(case), facts),
        "seed": seed_of(case),
        "module_key": case.spec,
        "needs_eager": needs_eager(case),
        # the names that expectations refer to, without the paths below them
        "compared": sorted(
            {
                name.partition(".")[0]
                for step in case.steps
                for expected in step.expectations
                for name in expected.check.names
            }
        ),
        "steps": [
            _plan_step(case, step, surroundings, facts, served, declared or {})
            for step in case.steps
        ],
    }
    return dict(encode(plan))


def _plan_step(
    case: Case,
    step: Step,
    surroundings: Surroundings,
    facts: Mapping[str, object],
    served: Expectation | None,
    declared: Mapping[str, Json],
) -> dict[str, Any]:
    if not step.runs(surroundings):
        return {
            "kind": step.kind,
            "skipped": True,
            "effects": None,
            "arguments": {},
            "expects_raise": False,
            "measure": [],
        }
    checks: list[tuple[int | str, Expectation]] = [
        (index, expected.check) for index, expected in enumerate(step.expectations)
    ]
    if served is not None and calls_compiler(step) and not expects_raise(step, surroundings):
        checks.append((PROOF, served))
    measures = [(index, check.kind, check.measurement()) for index, check in checks]
    if declared.get("layout"):  # close measures no strides then, and judges none
        measures = [
            (index, kind, {**words, "strides": "any"})
            if words and EAGER in str(words.get("to"))
            else (index, kind, words)
            for index, kind, words in measures
        ]
    effects = side_effects.of_step(step, case.steps, surroundings) if needs_eager(case) else None
    return {
        "kind": step.kind,
        "effects": None if effects is None else effects.measurement(),
        "arguments": resolve_facts(
            dict(STEPS[step.kind].planned(step.arguments, surroundings)), facts
        ),
        **({"repeat": step.repeat} if step.repeat != 1 else {}),
        **({} if step.rank is None else {"rank": step.rank}),
        "expects_raise": expects_raise(step, surroundings),
        "measure": [
            {"index": index, "kind": kind, "arguments": arguments}
            for index, kind, arguments in measures
            if arguments is not None
        ],
    }
