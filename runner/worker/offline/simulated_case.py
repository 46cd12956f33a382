"""Carries out one case of a simulated target: Inductor lowers its functions on fake tensors, and what it generated is compiled."""

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from runner.core.simulated import refusals
from runner.core.targets import DEVICE, TARGETS, Level
from runner.vocabulary import inputs
from runner.vocabulary.expectations import MEASURES
from runner.vocabulary.inputs import objects
from runner.vocabulary.offline.levels import KERNEL
from runner.vocabulary.steps import STEPS
from runner.worker.case import own_files, parts
from runner.worker.case.phases import Phases
from runner.worker.case.scope import Scope
from runner.worker.case.session import Params
from runner.worker.case.sides import entering
from runner.worker.case.source_module import SpecModule
from runner.worker.offline import case, kernels, simulated_kernels
from runner.worker.offline.kernels import Compiled
from runner.worker.process.channel import Channel, exception
from runner.worker.process.seal import Seal
from runner.worker.torch_compat import choice_census, lookup, option_state, output_folders
from runner.worker.torch_compat import simulated_codegen as codegen
from runner.worker.torch_compat.simulated_codegen import Graph, Recording


class Lowering:
    """The functions and arguments of a case, on a simulated device."""

    def __init__(self, plan: Mapping[str, Any], closing: contextlib.ExitStack) -> None:
        self._plan = plan
        body = plan["body"]
        params = Params({**plan["params"], "backend": plan["backend"], "device": DEVICE})
        self._module = SpecModule(plan["module_key"], {"torch": torch, "params": params})
        self._scope = Scope(self._module.namespace)
        self._maker = inputs.Maker(device=DEVICE, scope=self._scope, closing=closing, value=inputs.value)
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._backward: list[Graph] = []
        for block in body["preludes"]:
            self._module.execute(block)
        with self._fake:
            self._functions = {name: self._function(value) for name, value in body["functions"].items()}
            self._arguments = inputs.make_all(body["inputs"], self._maker)

    def _function(self, value: Mapping[str, Any]) -> Any:
        if "block" in value:
            return self._module.function(value["block"], value["entry"])
        if "module" in value:
            return objects.module(value, self._maker)
        return self._scope.find(value.get("ref") or value["api"])

    def step(self, step: Mapping[str, Any]) -> Recording:
        """Return what a step generated; raise what torch raises, and ``Unfaithful`` for what a simulated device does not show."""
        if step["kind"] == "backward":
            recording = Recording(graphs=self._backward)
            self._backward = []
            if not recording.graphs:
                raise codegen.Unfaithful("no backward graph was compiled with the call: does an input or a parameter require gradients?")
            return recording
        recording = self._call(step["arguments"])
        self._backward = [graph for graph in recording.graphs if graph.is_backward]
        recording.graphs = [graph for graph in recording.graphs if not graph.is_backward]
        return recording

    def _call(self, given: Mapping[str, Any]) -> Recording:
        arguments: Any = STEPS["call"].parse(given)
        body = self._plan["body"]
        context = body["context"] if arguments.context is None else arguments.context
        options = parts.resolved(body["compile"], self._scope.named)
        function = self._functions[arguments.function or next(iter(self._functions))]
        torch._dynamo.reset()
        codegen.take()
        with self._fake:
            values = self._arguments if arguments.inputs is None else inputs.make_all(arguments.inputs, self._maker)
            try:
                # a graph break would call the first graph, and nothing can be called
                with entering(context, self._scope, DEVICE)():
                    torch.compile(function, **{**options, "fullgraph": True})(*values)
            except codegen.Lowered:
                pass
            except Exception:  # torch may raise anything when it meets what the simulation refuses: the refusal is the cause
                _raise_refused(codegen.take())
                raise
        recording = codegen.take()
        _raise_refused(recording)
        return recording


def _raise_refused(recording: Recording) -> None:
    """Raise ``Unfaithful`` for what was refused, whatever torch did with the exception."""
    if recording.refused:
        raise codegen.Unfaithful(f"not shown by a simulated GPU: {'; '.join(recording.refused)}")


def run_steps(plan: Mapping[str, Any], phases: Phases, channel: Channel, facts: dict[str, Any]) -> None:
    """Run the steps of a plan."""
    lookup.refuse_other_torch(plan.get("torch_root"))
    os.chdir(plan["folder"])
    output_folders.use_cache_dir(os.path.join(plan["cache"], "cache"))  # invented ranks must not outlive the case
    own_files.redirect(plan["folder"], plan["cache"])
    own_files.write_no_bytecode()
    body = plan["body"]
    for why in refusals(body["config"], body["compile"]):
        raise codegen.Unfaithful(why)
    option_state.set_torch_state(body["torch"])
    torch.manual_seed(plan["seed"])
    seal = Seal(case.SEALED)
    with contextlib.ExitStack() as stack:
        stack.enter_context(option_state.patched_options(_options(body)))
        lowering = Lowering(plan, stack)
        seal.check()
        for index, step in enumerate(plan["steps"]):
            channel.step(index)
            facts["steps"].append(_step(lowering, plan, index, step, phases))
            seal.check()
            if facts["steps"][-1]["raised"]:
                break
    facts["offline"] = {"target": plan["target"], "evidence": _evidence(facts["steps"]), **kernels.versions()}


def _options(body: Mapping[str, Any]) -> parts.Sections:
    return {section: {**body[section], **codegen.FIXED.get(section, {})} for section in ("config", "dynamo_config", "functorch_config")}


def _step(lowering: Lowering, plan: Mapping[str, Any], index: int, step: Mapping[str, Any], phases: Phases) -> dict[str, Any]:
    raised, made, recording, texts = None, None, Recording(), []
    phase = "trace"
    try:
        with phases(phase):
            recording = lowering.step(step)
        phase = "kernel build"
        with phases(phase):
            made = simulated_kernels.compiled(recording.graphs, TARGETS[plan["target"]])
        # without a kernel the wrappers alone are sent: the runner does not judge them
        texts = list(made.texts) if made else [graph.wrapper for graph in recording.graphs]
    except codegen.Unfaithful:
        raise
    except Exception as error:  # torch, Inductor or the compiler may raise anything: it is the result of the step
        raised = exception(error, phase)
    for piece, text in enumerate(texts):
        Path(plan["folder"], f"code-{index}-{piece}.txt").write_text(text, encoding="utf-8", errors="surrogatepass")
    tunings = {"count": len(recording.tunings), "found": [one.to_json() for one in recording.tunings[: choice_census.MOST_TUNINGS]]}
    measured = {str(one["index"]): _measured(one, made) for one in step["measure"]} if made else {}
    why = "the step raised" if raised else "no kernel of Triton was generated"
    unmeasured = {} if made else {str(one["index"]): why for one in step["measure"]}
    return {
        "raised": raised,
        **case.NOTHING,
        "tunings": tunings,
        "code": len(texts),
        "measured": measured,
        "unmeasured": unmeasured,
    }


def _measured(wanted: Mapping[str, Any], made: Compiled) -> Any:
    return MEASURES[wanted["kind"]](wanted["arguments"], {KERNEL: made.metadata}.__getitem__)


def _evidence(steps: list[dict[str, Any]]) -> list[str]:
    """Return the levels for which there is something to judge: generated text, a binary, and its instructions."""
    levels = (Level.RENDERED, Level.COMPILED, Level.INSTRUCTIONS)
    return [level.value for level in levels] if any(step["code"] for step in steps) else []
