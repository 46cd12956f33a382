"""The table of all expectations; ARCHITECTURE.md says what a new one touches."""

from collections.abc import Mapping

from torch_conformance.model.optional import OnDemand
from torch_conformance.vocabulary.expectations.expectation_base import (
    BadExpectation as BadExpectation,
)
from torch_conformance.vocabulary.expectations.expectation_base import Kind

_CLASSES: Mapping[str, str] = {
    "close": "close:Close",
    "counter": "counters:Counter",
    "metric": "counters:Metric",
    "filecheck": "filecheck:FileCheck",
    "raises": "texts:Raises",
    "equals": "values:Equals",
    "differs": "values:Differs",
    "strides": "values:Strides",
    "generated_files": "counters:GeneratedFiles",
    "runs": "counters:Runs",
    "calls": "counters:Calls",
    "exit": "texts:Exit",
    "text": "texts:Text",
    "log": "texts:Log",
    "dead": "values:Dead",
    "remote_cache": "counters:RemoteCache",
    "kernels": "compilation:Kernels",
    "graph": "compilation:GraphOfStage",
    "guards": "compilation:Guards",
    "recompiles": "compilation:Recompiles",
    "graph_breaks": "compilation:GraphBreaks",
    "deterministic": "additional_calls:Deterministic",
    "batch_invariant": "additional_calls:BatchInvariant",
    "poisoned": "additional_calls:Poisoned",
    "peak_memory": "additional_calls:PeakMemory",
    "candidates": "additional_calls:Candidates",
    "served": "served:Served",
    "residue": "served:Residue",
    "sound": "soundness:Sound",
    "choices": "counters:Choices",
    "resources": "compiled_kernels:Resources",
    "metadata": "compiled_kernels:Metadata",
}
"""The module and the class of each expectation, by its key in a spec."""

_PLACES = {kind: f"{__name__}.{place}" for kind, place in _CLASSES.items()}

EXPECTATIONS: Mapping[str, type[Kind]] = OnDemand(_PLACES)

OF_SAMPLES = "samples"
"""The expectation of a spec with a ``source``, which no spec writes: another one holds for each
sample of an operator.
"""

MEASURED = OnDemand(
    {**_PLACES, OF_SAMPLES: "torch_conformance.vocabulary.steps.samples:EachSample"}
)
"""The same with that one: all that a worker measures."""
