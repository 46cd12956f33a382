"""Compiles the kernels of generated code for a simulated target, with Inductor's own options: the texts of the stages, and metadata."""

import contextlib
import io
import sys
from collections.abc import Mapping, Sequence
from typing import Any

from runner.core.targets import Target
from runner.worker.offline.kernels import Compiled, taken
from runner.worker.torch_compat import simulated_codegen as codegen
from runner.worker.torch_compat.simulated_codegen import Graph, Source


def compiled(graphs: Sequence[Graph], target: Target) -> Compiled | None:
    """Compile every kernel of some graphs; None where they have none. Raise what the compiler raises.

    The texts of each stage are joined in the order of the kernels; the wrappers are the last text. Metadata on which the kernels differ
    are a map by kernel.
    """
    from triton import knobs

    knobs.nvidia.dump_ptxas_log = True
    knobs.compilation.always_compile = True  # a candidate may be the same kernel: without a compile there is no report of the assembler
    made = {source.name: _kernel(source, target) for graph in graphs for source in codegen.sources(graph.wrapper)}
    wrapper = "\n".join(graph.wrapper for graph in graphs)
    if not made:
        return None
    stages = zip(*(one.texts for one in made.values()), strict=True)
    return Compiled(texts=(*map("\n".join, stages), wrapper), metadata=merged({name: one.metadata for name, one in made.items()}))


def _kernel(source: Source, target: Target) -> Compiled:
    """Return what became of the first configuration that compiles, as Inductor lists them; each is compiled."""
    kernel, first, errors, count = codegen.load(source), None, [], 0
    for config in kernel.configs:
        count += 1
        printed = io.StringIO()
        try:
            with contextlib.redirect_stdout(printed):
                made = kernel._precompile_config(config).kernel
        except Exception as error:  # the compiler may raise anything: torch drops such a configuration, as long as one is left
            errors.append(error)
            continue
        finally:
            sys.stdout.write(printed.getvalue())
        first = first or taken(made, target, printed.getvalue())
    if first is None:
        raise errors[0] if errors else codegen.Unfaithful(f"the kernel {source.name} has no configuration")
    return Compiled(texts=first.texts, metadata={**first.metadata, "configs": count, "configs_failed": len(errors)})


def merged(metadata: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Return metadata of several kernels: each value that all have, else a map by kernel."""
    names = dict.fromkeys(name for one in metadata.values() for name in one)
    found: dict[str, Any] = {}
    for name in names:
        values = {kernel: one.get(name) for kernel, one in metadata.items()}
        kinds = {(type(value), repr(value)) for value in values.values()}
        found[name] = next(iter(values.values())) if len(kinds) == 1 else values
    return found
