"""Carries out one case of a target: executes the Python of its spec, compiles its kernel, and sends
what the compiler made of it.
"""

import os
import types
from collections.abc import Mapping, Sequence
from typing import Any

from torch_conformance.model.targets import TARGETS, Level
from torch_conformance.tools.offline.worker import kernels
from torch_conformance.tools.offline.worker.kernels import Compiled
from torch_conformance.vocabulary.expectations.compiled_kernels import KERNEL
from torch_conformance.vocabulary.steps import MEASURED
from torch_conformance.worker.case.source_module import SpecModule
from torch_conformance.worker.process.channel import Channel, Phases, exception, keep_code
from torch_conformance.worker.process.seal import Seal
from torch_conformance.worker.torch_compat import torch_state

SEALED = ("torch_conformance", "triton.compiler", "triton.backends")
"""What code of a spec must not replace."""

NOTHING: Mapping[str, Any] = {
    "counters": {},
    "metrics": {},
    "entered": 0,
    "graphs": [],
    "executed": {},
    "executed_others": {},
    "abandoned": [],
    "choices": [],
}
"""What is observed of torch: it is not imported."""


def run_steps(
    plan: Mapping[str, Any], phases: Phases, channel: Channel, facts: dict[str, Any]
) -> None:
    """Compile the kernels of a plan."""
    torch_state.begin_in_case(plan["folder"], plan["cache"])
    os.environ["TRITON_CACHE_DIR"] = os.path.join(
        plan["cache"], "triton"
    )  # thrown away with the case
    seal = Seal(SEALED)
    module = SpecModule(plan["module_key"], {"params": types.SimpleNamespace(**plan["params"])})
    for block in plan["body"]["preludes"]:
        module.execute(block)
    for index, step in enumerate(plan["steps"]):
        channel.send({"step": index})
        arguments = step["arguments"]
        kernel = module.function(arguments["source"], arguments["kernel"])
        seal.check()
        raised, compiled = None, None
        try:
            with phases("kernel build"):
                compiled = kernels.compiled(kernel, arguments, TARGETS[plan["target"]])
        except Exception as error:
            # the compiler, or the Python of the kernel, may raise anything: it is the result of the
            # step
            raised = exception(error, "kernel build")
        facts["steps"].append(
            facts_of_step(plan, index, step, raised, compiled.texts if compiled else (), compiled)
        )
        seal.check()
    # a binary, and its instructions
    facts["offline"] = summary(plan, facts["steps"], Level.COMPILED, Level.INSTRUCTIONS)


def facts_of_step(
    plan: Mapping[str, Any],
    index: int,
    step: Mapping[str, Any],
    raised: object,
    texts: Sequence[str],
    compiled: Compiled | None,
) -> dict[str, Any]:
    """Return the facts of a step, whose texts are written to files; ``compiled`` is None where
    there is no kernel.
    """
    why = "the step raised" if raised else "no kernel of Triton was generated"
    values = {KERNEL: compiled.metadata if compiled else {}}
    return {
        "raised": raised,
        **NOTHING,
        **keep_code(plan["folder"], index, texts),
        # what expectations measure of a kernel
        "measured": {
            str(request["index"]): MEASURED[request["kind"]].measure(
                request["arguments"], values.__getitem__
            )
            for request in (step["measure"] if compiled else ())
        },
        "unmeasured": {}
        if compiled
        else {str(request["index"]): why for request in step["measure"]},
    }


def summary(
    plan: Mapping[str, Any], steps: Sequence[Mapping[str, Any]], *levels: Level
) -> dict[str, Any]:
    """Return the facts of a target: the versions, and the levels for which there is something to
    judge.
    """
    evidence = [level.value for level in levels] if any(step["code"] for step in steps) else []
    return {"target": plan["target"], "evidence": evidence, **kernels.versions()}
