"""Runs one case: reads its plan, runs its steps, measures, and sends the facts."""

import contextlib
import json
import os
import resource
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from runner.model import protocol
from runner.model.devices import VendorDevice, kind_of
from runner.worker.case import compiled_functions, compiler_hooks, own_files, step_scope
from runner.worker.case.compiler_hooks import Witness
from runner.worker.case.phases import Phases
from runner.worker.process.channel import Channel, exception
from runner.worker.process.seal import Broken, Seal
from runner.worker.torch_compat import compiling, device_modules, imports, torch_state


def run(plan_file: str, descriptor: int, word: str) -> None:
    """Run the case of a plan, and send its observation, also after an exception of any kind.

    The observation carries ``word``, a token that only this worker received.
    """
    from runner.vocabulary.steps.step_session import NotCarriedOut

    channel = Channel(descriptor, word)
    phases = Phases(channel.phase)
    plan = json.loads(Path(plan_file).read_bytes())
    facts: dict[str, Any] = {"format": 2, "id": plan["id"], "steps": [], "error": None}
    undo = contextlib.ExitStack()  # holds what the case changed until the process ends
    with phases("inputs"):
        try:
            _run_steps(protocol.decode(plan), phases, channel, facts, undo)
        except Broken as error:
            facts["error"] = exception(error, "compare")
        except BaseException as error:  # the worker's boundary: code of a spec may raise anything, SystemExit too
            cause = error.__cause__ if isinstance(error, NotCarriedOut) else None
            facts["error"] = exception(cause or error, getattr(error, "_conformance_phase", "inputs"))
    facts["phases"] = phases.seconds
    facts["peak_bytes"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    channel.observation(facts)


def _run_steps(plan: Mapping[str, Any], phases: Phases, channel: Channel, facts: dict[str, Any], undo: contextlib.ExitStack) -> None:
    from runner.worker.case.case_session import Session, prepare

    imports.refuse_other_torch(plan.get("torch_root"))
    if plan.get("module"):
        device_modules.register(VendorDevice(kind_of(plan["device"]), plan["module"]))
    witness = Witness()
    naming = _set_up(plan, phases, witness, undo)
    session = Session(plan, phases, witness)
    seal = Seal()
    try:
        prepare(session, undo)
        seal.check()
        undo.enter_context(torch_state.patched_options(step_scope.resolved(naming, session.scope.named)))
        # graphs and counts of preludes and values are not those of the case's functions
        witness.take()
        compiled_functions.take()
        torch_state.clear_counters()
        torch_state.clear_metrics()
        for index, step in enumerate(plan["steps"]):
            channel.step(index)
            known, goes_on = _run_step(session, plan, index, step, witness)
            facts["steps"].append(known)
            seal.check()
            if not goes_on:
                session.additional.run(references_only=True)
                return
        session.additional.run()
        seal.check()
    finally:
        session.close()


def _set_up(plan: Mapping[str, Any], phases: Phases, witness: Witness, undo: contextlib.ExitStack) -> step_scope.Sections:
    """Redirect all files of the case and of torch to the case's folders; set hooks, threads, torch's state and options.

    Return the options that name a value of the case.
    """
    os.chdir(plan["folder"])  # files that code of a spec writes to its working folder stay with the case
    torch_state.use_cache_dir(os.path.join(plan["cache"], "cache"))
    own_files.redirect(plan["folder"], plan["cache"])
    own_files.write_no_bytecode()
    paths: step_scope.Sections = torch_state.follow_variables(plan["folder"])
    body = plan["body"]
    imports.set_threads(int(os.environ.get(protocol.THREADS, "1")))
    compiler_hooks.watch(phases, witness)
    watched = compiled_functions.wanted_by(plan)
    compiled_functions.watch(watched)
    if body["compiles"]:
        compiler_hooks.install()
        if watched:
            compiled_functions.install()
    torch_state.set_torch_state(body["torch"])
    options = {"config": {"compile_threads": 1, **body["config"]}, **{k: body[k] for k in ("dynamo_config", "functorch_config")}}
    options = {section: {**paths.get(section, {}), **values} for section, values in options.items()}
    plain, naming = step_scope.parted(options)
    undo.enter_context(torch_state.patched_options(plain))
    if body.get("services"):
        where = json.loads(Path(plan["cache"], protocol.SERVICES_FILE).read_bytes())
        os.environ["TORCHINDUCTOR_REDIS_URL"] = where["redis"]["url"]  # torch reads it at each compile
    return naming


def _run_step(session: Any, plan: Mapping[str, Any], index: int, step: Mapping[str, Any], witness: Witness) -> tuple[dict[str, Any], bool]:
    """Return the step's facts, and whether the case continues after it."""
    from runner.vocabulary.steps.step_session import NotCarriedOut

    raised = None
    session.begin_step(step)
    try:
        _repeat(session, step)
    except NotCarriedOut:
        raise
    except BaseException as error:  # torch may raise any exception, and code of the case may raise SystemExit
        phase = getattr(error, "_conformance_phase", step["kind"])
        if not step_scope.STEPS[step["kind"]].traits.claims or (not isinstance(error, Exception) and phase in ("inputs", "eager")):
            raise
        raised = exception(error, phase)
    seen, compiled = witness.take(), compiled_functions.take()
    session.names.compilation = compiled.facts()
    facts = {"raised": raised, "counters": torch_state.counters(), "metrics": torch_state.metrics(), **compiler_hooks.as_facts(seen)}
    facts["remote"] = torch_state.remote_caches()
    facts.update(own_files.keep_code(plan["folder"], index, seen.code))
    for stage, graphs in compiled.graphs.items():  # for people: expectations are judged by the observation
        for number, graph in enumerate(graphs):
            Path(plan["folder"], f"graph-{index}-{stage}-{number}.txt").write_text(graph["text"], encoding="utf-8", errors="surrogatepass")
    facts["calls"] = {name: spy.facts() for name, spy in session.spies.items()}
    own = {"exit": session.exit, "bench": session.bench, "effects": session.effects.facts}
    facts.update({name: fact for name, fact in own.items() if fact is not None})
    if session.repetitions.facts:
        facts["repetitions"] = session.repetitions.facts
    with session.phases("compare"), session.unseen():
        facts["measured"], facts["unmeasured"] = _measure(session, step, raised, seen.own_calls)
    return facts, raised is None or bool(step["expects_raise"])


def _repeat(session: Any, step: Mapping[str, Any]) -> None:
    """Carry out the step as often as it says. What is compared of the last repetition is measured after the step, of the others here."""
    count = 0 if step.get("skipped") else step.get("repeat", 1)
    for number in range(count):
        session.do(step)
        if number < count - 1 and not step["expects_raise"]:
            with session.phases("compare"), session.unseen():
                session.repetitions.measure(step, number)


def _measure(session: Any, step: Mapping[str, Any], raised: Any, own_calls: int) -> tuple[dict[str, Any], dict[str, str]]:
    import torch

    from runner.vocabulary.expectations import sample_results
    from runner.vocabulary.expectations.measures import ALWAYS_MEASURED, MEASURES, REPEATS

    measured: dict[str, Any] = {}
    unmeasured: dict[str, str] = {}
    for request in step["measure"]:
        key = str(request["index"])
        if raised is not None and request["kind"] not in ALWAYS_MEASURED:
            unmeasured[key] = "the step raised"
            continue
        try:
            with torch.no_grad(), compiling.reference_stance():
                if request["kind"] in REPEATS:
                    measured[key] = session.additional.repeat(request, step, own_calls, session.names.values())
                    continue
                measured[key] = MEASURES[request["kind"]](request["arguments"], session.names.values())
            if request["kind"] == "close":
                session.additional.calibrate(measured[key], request["arguments"], session.names.value)
                session.additional.compare_other_inputs(measured[key], request["arguments"], session.names.value)
            if request["kind"] == sample_results.KIND:
                session.additional.calibrate_samples(measured[key], request["arguments"], session.names.value("output"))
        except Exception as error:  # comparing values of a spec may raise anything
            unmeasured[key] = f"{type(error).__name__}: {error}"
    return measured, unmeasured
