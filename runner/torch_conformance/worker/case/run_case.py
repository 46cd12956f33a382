"""Runs one case, from its plan to its facts: sets up torch and the files, runs the steps,
measures.
"""

import contextlib
import json
import os
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_conformance.model import protocol
from torch_conformance.vocabulary.expectations.additional_calls import CannotRepeat
from torch_conformance.vocabulary.steps.step_base import NotCarriedOut, referenced
from torch_conformance.worker.case import ranks
from torch_conformance.worker.case.additional import KINDS
from torch_conformance.worker.case.case_session import Session, prepare
from torch_conformance.worker.case.scope import STEPS, resolved
from torch_conformance.worker.case.spies import OF_PROOF
from torch_conformance.worker.process.channel import (
    Channel,
    Observed,
    Phases,
    Plan,
    carry_out,
    exception,
    keep_code,
)
from torch_conformance.worker.process.seal import take_seal
from torch_conformance.worker.torch_compat import (
    compiler_hooks,
    device_modules,
    imports,
    torch_state,
)

Sections = Mapping[str, Mapping[str, Any]]


_undo = contextlib.ExitStack()
"""Holds what the case changed until the process ends."""


def run(plan_file: str, descriptor: int, word: str) -> None:
    """Run the case of a plan, and send its observation."""
    carry_out(plan_file, descriptor, word, _run_steps)


def _run_steps(plan: Plan, phases: Phases, channel: Channel, facts: Observed) -> None:
    imports.refuse_other_torch(plan.get("torch_root"))
    with ranks.process_group(plan, facts):
        _run_in_process_group(plan, phases, channel, facts)


def _run_in_process_group(plan: Plan, phases: Phases, channel: Channel, facts: Observed) -> None:
    """Run the steps of a plan and the additional calls, and check the seal after each."""
    seal = take_seal()
    if plan.get("module"):
        device_modules.register_module(plan["device"], plan["module"])
        seal.check(f"the module {plan['module']}")
    witness = compiler_hooks.Witness()
    naming = _set_up(plan, phases, witness)
    session = Session(plan, phases, witness)
    try:
        # preludes and values may use the process group, which this process is not in
        steps = [step for step in plan["steps"] if not step.get("skipped")]
        is_empty = all("processes" in step["arguments"] for step in steps)
        if not is_empty:
            prepare(session, _undo)
        seal.settle()
        if plan.get("module"):  # it may undo its replacement before the end of the step
            phases.before["compare"] = seal.check
        if not is_empty:
            _undo.enter_context(torch_state.patched_options(resolved(naming, session.scope.named)))
        # graphs and counts of preludes and values are not those of the case's functions
        witness.take()
        torch_state.clear_counters()
        torch_state.clear_metrics()
        for index, step in enumerate(plan["steps"]):
            if step.get("rank"):
                continue  # carried out with rank 0
            channel.send({"step": index})
            begin = len(facts["steps"])
            if step["arguments"].keys().isdisjoint(("process", "processes")):
                facts["steps"].append(_run_step(session, index, step, witness))
            else:
                with phases("spawn"):
                    _run_elsewhere(plan, index, facts)
            if facts["error"] is not None:
                return
            seal.check()
            raised = any(
                facts_of_step["raised"] is not None for facts_of_step in facts["steps"][begin:]
            )
            if raised and not step["expects_raise"]:
                session.additional.run(references_only=True)
                return
        session.additional.run()
        seal.check()
    finally:
        session.close()


def _run_elsewhere(plan: Plan, index: int, facts: Observed) -> None:
    """Carry out a step in new processes, and add what they observed."""
    if count := plan["steps"][index]["arguments"].get("processes"):
        observations = ranks.in_ranks(plan, index, count)
    else:
        observations = [ranks.in_new_process(plan, index)]
    for number, observed in enumerate(observations, index):
        facts["steps"] += observed["steps"][number:]
        if (error := observed["error"]) is not None:
            name = f"rank {number - index}: " if count else ""
            facts["error"] = {**error, "message": f"{name}{error['message']}"}
            return


def _set_up(plan: Plan, phases: Phases, witness: compiler_hooks.Witness) -> Sections:
    """Redirect all files of the case and of torch to the case's folders; set hooks, threads,
    torch's state and options.

    Return the options with a ``{ref: NAME}``: they can be set only after the value is made.
    """
    torch_state.use_cache_dir(os.path.join(plan["cache"], "cache"))
    torch_state.begin_in_case(plan["folder"], plan["cache"])
    paths: Sections = torch_state.follow_variables(plan["folder"])
    body = plan["body"]
    measures = (request for step in plan["steps"] for request in step["measure"])
    forks = any(KINDS[request["kind"]].needs_one_thread for request in measures)
    threads = "1" if forks else os.environ.get(protocol.THREADS, "1")
    imports.set_threads(int(threads))
    # a child has as many as its case: generated code, and so the keys of caches, depend on them
    os.environ.update(dict.fromkeys(protocol.THREADS_OF_LIBRARIES, threads))
    questions = compiler_hooks.asked_by(plan)
    compiler_hooks.watch(phases, witness, questions)
    if body["compiles"]:
        compiler_hooks.install()
        if questions:
            compiler_hooks.install_asked()
    torch_state.set_torch_state(body["torch"])
    options = {
        "config": {"compile_threads": 1, **body["config"]},
        **{k: body[k] for k in ("dynamo_config", "functorch_config")},
    }
    plain, naming = (defaultdict[str, dict[str, Any]](dict) for _ in range(2))
    for section, values in options.items():
        for name, value in {**paths.get(section, {}), **values}.items():
            (naming if any(referenced(value)) else plain)[section][name] = value
    _undo.enter_context(torch_state.patched_options(plain))
    if body.get("services"):
        where = json.loads(Path(plan["cache"], protocol.SERVICES_FILE).read_bytes())
        # torch reads it at each compile
        os.environ["TORCHINDUCTOR_REDIS_URL"] = where["redis"]["url"]
    return naming


def _run_step(
    session: Session, index: int, step: Plan, witness: compiler_hooks.Witness
) -> Observed:
    """Run one step; return its facts, what was measured, and the exception that it raised."""
    raised = None
    session.begin_step(step)
    try:
        session.carry_out(step)
    except (NotCarriedOut, CannotRepeat):
        raise  # a failure of the measurement is none of torch
    except BaseException as error:
        # torch may raise any exception, and code of the case may raise SystemExit
        phase = str(getattr(error, "_conformance_phase", step["kind"]))
        if not STEPS[step["kind"]].traits.claims or (
            not isinstance(error, Exception) and phase in ("inputs", "eager")
        ):
            raise
        raised = exception(error, phase)
    witnessed = witness.take()
    session.names.compilation = witnessed.compilation()
    facts = {
        "raised": raised,
        "counters": torch_state.counters(),
        "metrics": torch_state.metrics(),
        **witnessed.facts(),
    }
    facts["remote"] = torch_state.remote_caches()
    facts.update(keep_code(session.folder, index, witnessed.code))
    for stage, graphs in witnessed.stages.items():
        # for people: expectations are judged by the observation
        for number, graph in enumerate(graphs):
            Path(session.folder, f"graph-{index}-{stage}-{number}.txt").write_text(
                graph["text"], "utf-8", "surrogatepass"
            )
    facts["calls"] = {name: spy.facts() for name, spy in session.spies.items() if name != OF_PROOF}
    if session.runtime.least is not None:
        facts["runtime_calls"] = session.runtime.least
    optional = {
        "exit": session.exit,
        "bench": session.bench,
        "effects": session.effects.facts,
        "origins": session.origins,
        "repetitions": session.repetitions.facts or None,
    }
    facts.update({name: fact for name, fact in optional.items() if fact is not None})
    with session.phases("compare"), session.unseen():
        facts["measured"], facts["unmeasured"] = session.measure(step, raised, witnessed.own_calls)
    return facts
