"""The table of all expectations; ARCHITECTURE.md says what a new one touches. That of measurements, for the worker, is in ``measures``."""

from collections.abc import Mapping

from runner.model.expectation import Expectation
from runner.model.optional import OnDemand

_CLASSES: Mapping[str, str] = {
    "close": "close:Close",
    "counter": "counters:Counter",
    "metric": "counters:Metric",
    "filecheck": "filecheck:FileCheck",
    "raises": "raises:Raises",
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
    "candidates": "additional_calls:Candidates",
    "choices": "choices:Choices",
    "resources": "compiled_kernels:Resources",
    "metadata": "compiled_kernels:Metadata",
}
"""The module and the class of each expectation, by its key in a spec."""

EXPECTATIONS: Mapping[str, type[Expectation]] = OnDemand({kind: f"{__name__}.{place}" for kind, place in _CLASSES.items()})

REPEATED = ("deterministic", "batch_invariant", "poisoned", "candidates")
"""Kinds whose measurement calls the function of the step again."""
