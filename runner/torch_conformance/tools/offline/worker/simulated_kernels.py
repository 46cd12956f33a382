"""Carries out cases of a simulated target: Inductor lowers functions on fake tensors, and what it
generated is compiled.

Its canaries.
"""

import contextlib
import os
import re
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch._subclasses import FakeTensorMode

from torch_conformance.model.targets import DEVICE, TARGETS, Level, Target
from torch_conformance.tools.offline import problems_of_texts
from torch_conformance.tools.offline.simulated_gpus import PROPERTIES
from torch_conformance.tools.offline.simulated_options import FIXED, refusals
from torch_conformance.tools.offline.worker import compile_case, kernels
from torch_conformance.tools.offline.worker import simulated_codegen as codegen
from torch_conformance.tools.offline.worker.kernels import Compiled, artifacts_of, printed
from torch_conformance.tools.offline.worker.simulated_codegen import Graph, Recording, Source
from torch_conformance.vocabulary.expectations.compiled_kernels import code_of_stage
from torch_conformance.worker.case.scope import STEPS, Scope, resolved
from torch_conformance.worker.case.source_module import SpecModule
from torch_conformance.worker.process.channel import Channel, Phases, exception
from torch_conformance.worker.process.seal import Seal
from torch_conformance.worker.torch_compat import choice_census, imports, torch_state


class Lowering:
    """The functions and arguments of a case, on a simulated device."""

    def __init__(self, plan: Mapping[str, Any], closing: contextlib.ExitStack) -> None:
        self._plan = plan
        body = plan["body"]
        params = types.SimpleNamespace(**plan["params"], backend=plan["backend"], device=DEVICE)
        module = SpecModule(plan["module_key"], {"torch": torch, "params": params})
        self._scope = Scope(module.namespace, DEVICE, closing)
        self._fake = FakeTensorMode(allow_non_fake_inputs=True)
        self._backward: list[Graph] = []
        for block in body["preludes"]:
            module.execute(block)
        with self._fake:
            self._functions = {
                name: self._scope.function(value, module)
                for name, value in body["functions"].items()
            }
            self._arguments = self._scope.make_all(body["inputs"])

    def step(self, step: Mapping[str, Any]) -> Recording:
        """Return what a step generated; raise what torch raises, and ``Unfaithful`` for what a
        simulated device does not show.
        """
        if step["kind"] == "backward":
            recording = Recording(graphs=self._backward)
            self._backward = []
            if not recording.graphs:
                raise codegen.Unfaithful(
                    "no backward graph was compiled with the call: does an input or a "
                    "parameter require gradients?"
                )
            return recording
        arguments: Any = STEPS["call"].parse(step["arguments"])
        body = self._plan["body"]
        context = body["context"] if arguments.context is None else arguments.context
        options = resolved(body["compile"], self._scope.named)
        function = self._functions[arguments.function or next(iter(self._functions))]
        torch._dynamo.reset()
        codegen.take()
        with self._fake:
            values = (
                self._arguments
                if arguments.inputs is None
                else self._scope.make_all(arguments.inputs)
            )
            keywords = self._scope.value(arguments.kwargs or {})
            try:
                # a graph break would call the first graph, and nothing can be called
                with self._scope.entering(context)():
                    torch.compile(function, **{**options, "fullgraph": True})(*values, **keywords)
            except codegen.Lowered:
                pass
            except Exception:
                # torch may raise anything when it meets what the simulation refuses: the refusal is
                # the cause
                _raise_refused(codegen.take())
                raise
        recording = codegen.take()
        _raise_refused(recording)
        self._backward = [graph for graph in recording.graphs if graph.is_backward]
        recording.graphs = [graph for graph in recording.graphs if not graph.is_backward]
        return recording


def _raise_refused(recording: Recording) -> None:
    """Raise ``Unfaithful`` for what was refused, whatever torch did with the exception."""
    if recording.refused:
        raise codegen.Unfaithful(f"not shown by a simulated GPU: {'; '.join(recording.refused)}")


def run_steps(
    plan: Mapping[str, Any], phases: Phases, channel: Channel, facts: dict[str, Any]
) -> None:
    """Run the steps of a plan."""
    imports.refuse_other_torch(plan.get("torch_root"))
    torch_state.use_cache_dir(
        os.path.join(plan["cache"], "cache")
    )  # invented ranks must not outlive the case
    torch_state.begin_in_case(plan["folder"], plan["cache"])
    body = plan["body"]
    for why in refusals(body["config"], body["compile"]):
        raise codegen.Unfaithful(why)
    torch_state.set_torch_state(body["torch"])
    torch.manual_seed(plan["seed"])
    options = {
        section: {**body[section], **FIXED.get(section, {})} for section in torch_state.OPTIONS
    }
    seal = Seal(compile_case.SEALED)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch_state.patched_options(options))
        lowering = Lowering(plan, stack)
        seal.check()
        for index, step in enumerate(plan["steps"]):
            channel.send({"step": index})
            raised, compilation, recording, texts, phase = None, None, Recording(), [], "trace"
            try:
                with phases(phase):
                    recording = lowering.step(step)
                phase = "kernel build"
                with phases(phase):
                    compilation = compiled(recording.graphs, TARGETS[plan["target"]])
                # without a kernel only the wrappers are sent: the runner does not judge them
                texts = (
                    list(compilation.texts)
                    if compilation
                    else [graph.wrapper for graph in recording.graphs]
                )
            except codegen.Unfaithful:
                raise
            except Exception as error:
                # torch, Inductor or the compiler may raise anything: it is the result of the step
                raised = exception(error, phase)
            tunings = [
                tuning.to_json() for tuning in recording.tunings[: choice_census.MOST_TUNINGS]
            ]
            of_step = compile_case.facts_of_step(plan, index, step, raised, texts, compilation)
            facts["steps"].append(
                {**of_step, "tunings": {"count": len(recording.tunings), "found": tunings}}
            )
            seal.check()
            if raised:
                break
    # generated text, a binary, and its instructions
    facts["offline"] = compile_case.summary(
        plan, facts["steps"], Level.RENDERED, Level.COMPILED, Level.INSTRUCTIONS
    )


# -- kernels ---------------------------------------------------------------------------------------


def compiled(graphs: Sequence[Graph], target: Target) -> Compiled | None:
    """Compile every kernel of some graphs; None where they have none.

    Raise what the compiler raises.

    The texts of each stage are joined in the order of the kernels; the wrappers are the last text.
    Metadata on which the kernels differ are a map by kernel.
    """
    from triton import knobs

    knobs.nvidia.dump_ptxas_log = True
    # a candidate may be the same kernel: without a compile there is no report of the assembler
    knobs.compilation.always_compile = True
    by_name = {
        source.name: _kernel(source, target)
        for graph in graphs
        for source in codegen.sources(graph.wrapper)
    }
    wrapper = "\n".join(graph.wrapper for graph in graphs)
    if not by_name:
        return None
    stages = zip(*(kernel.texts for kernel in by_name.values()), strict=True)
    return Compiled(
        texts=(*map("\n".join, stages), wrapper),
        metadata=merged({name: kernel.metadata for name, kernel in by_name.items()}),
    )


def _kernel(source: Source, target: Target) -> Compiled:
    """Return what became of the first configuration that compiles, as Inductor lists them; each is
    compiled.
    """
    kernel, first, errors = codegen.load(source), None, []
    configs = list(kernel.configs)
    for config in configs:
        try:
            with printed() as report:
                compiled_kernel = kernel._precompile_config(config).kernel
        except Exception as error:
            # the compiler may raise anything: torch drops such a configuration, as long as one is
            # left
            errors.append(error)
            continue
        first = first or artifacts_of(compiled_kernel, target, report.getvalue())
    if first is None:
        raise (
            errors[0]
            if errors
            else codegen.Unfaithful(f"the kernel {source.name} has no configuration")
        )
    return Compiled(
        texts=first.texts,
        metadata={**first.metadata, "configs": len(configs), "configs_failed": len(errors)},
    )


def merged(metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return metadata of several kernels: each value that all have, else a map by kernel."""
    names = dict.fromkeys(name for of_kernel in metadata.values() for name in of_kernel)
    by_name: dict[str, Any] = {}
    for name in names:
        values = {kernel: of_kernel.get(name) for kernel, of_kernel in metadata.items()}
        kinds = {(type(value), repr(value)) for value in values.values()}
        by_name[name] = next(iter(values.values())) if len(kinds) == 1 else values
    return by_name


# -- canaries: functions with a known result, lowered and compiled before any case of a target -----

CANARIES = ("device", "target", "instruction", "mutant")
"""What is tried, in order: the wrapper names the device's properties; the code names the target; a
matrix product has its instruction; another dtype gives other instructions."""

_ONE_TEMPLATE = {
    "max_autotune": True,
    "max_autotune_gemm_backends": "TRITON",
    "test_configs.autotune_choice_desc_regex": r"BLOCK_M=128, BLOCK_N=(128|64)\b.*num_warps=(4|8)",
}
"""Options that leave, of a GEMM, only the template with the largest blocks."""
_NUMBERS = (
    "multi_processor_count",
    "major",
    "regs_per_multiprocessor",
    "max_threads_per_multi_processor",
    "warp_size",
)


def canary_problems(target: Target) -> Iterator[str]:
    """Yield why the code for a simulated target cannot be trusted."""
    graphs = lowered(lambda x, y: (x + y,), [(64, 64), (64, 64)], "float32")
    yield from (
        f"canary '{CANARIES[0]}': {problem}"
        for problem in device_problems(target, "\n".join(graph.wrapper for graph in graphs))
    )
    compilation = compiled(graphs, target)
    if compilation is None:
        yield f"canary '{CANARIES[1]}': no kernel was generated for a sum"
        return
    names = [source.name for graph in graphs for source in codegen.sources(graph.wrapper)]
    yield from (
        f"canary '{CANARIES[1]}': {problem}"
        for problem in problems_of_texts(target, names, compilation.texts)
    )
    instructions = []
    for dtype in ("bfloat16", "float16"):
        product = compiled(
            lowered(lambda x, y: (x @ y,), [(256, 128), (128, 256)], dtype, _ONE_TEMPLATE), target
        )
        text = product.texts[target.stages.index(target.isa)] if product else ""
        instructions.append(code_of_stage(text, target.isa).text)
    yield from kernels.problems_of_products(target, *instructions)


def device_problems(target: Target, wrapper: str) -> Iterator[str]:
    """Yield what a wrapper says of the device otherwise than the table."""
    match = re.search(r"DeviceProperties\(type='(\w+)', ([^)]*)\)", wrapper)
    if match is None:
        yield "the wrapper names no device"
        return
    printed = dict(part.split("=", 1) for part in match[2].split(", "))
    cc = str(target.compiler_arch) if target.backend == "cuda" else f"'{target.arch}'"
    expected = {
        "type": target.backend,
        "cc": cc,
        **{name: str(PROPERTIES[target.name][name]) for name in _NUMBERS},
    }
    for name, value in expected.items():
        if (printed_value := {**printed, "type": match[1]}.get(name)) != value:
            yield f"the wrapper has {name} {printed_value}, the table {value}"


def lowered(
    function: Callable[..., Any],
    shapes: list[tuple[int, ...]],
    dtype: str,
    config: Mapping[str, Any] | None = None,
) -> list[Graph]:
    """Return the graphs of a function of tensors."""
    torch._dynamo.reset()
    codegen.take(compiles_candidates=False)
    options = {**FIXED, "config": {**FIXED["config"], **(config or {})}}
    with (
        torch_state.patched_options(options),
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.no_grad(),
    ):
        tensors = [
            torch.empty(shape, dtype=getattr(torch, dtype), device="cuda") for shape in shapes
        ]
        with contextlib.suppress(codegen.Lowered):
            torch.compile(function, fullgraph=True)(*tensors)
        return codegen.take().graphs
