"""The table of all expectations; ARCHITECTURE.md says what a new one touches."""

from collections.abc import Mapping

from torch_conformance.vocabulary.expectations.additional_calls import (
    BatchInvariant,
    Candidates,
    Deterministic,
    PeakMemory,
    Poisoned,
)
from torch_conformance.vocabulary.expectations.close import Close
from torch_conformance.vocabulary.expectations.compilation import (
    GraphBreaks,
    GraphOfStage,
    Guards,
    Kernels,
    Recompiles,
)
from torch_conformance.vocabulary.expectations.compiled_kernels import Metadata, Resources
from torch_conformance.vocabulary.expectations.counters import (
    Calls,
    Choices,
    Counter,
    GeneratedFiles,
    Metric,
    RemoteCache,
    Runs,
)
from torch_conformance.vocabulary.expectations.expectation_base import (
    BadExpectation as BadExpectation,
)
from torch_conformance.vocabulary.expectations.expectation_base import Kind
from torch_conformance.vocabulary.expectations.filecheck import FileCheck
from torch_conformance.vocabulary.expectations.served import Residue, Served
from torch_conformance.vocabulary.expectations.soundness import Sound
from torch_conformance.vocabulary.expectations.texts import Exit, Log, Raises, Text
from torch_conformance.vocabulary.expectations.values import Dead, Differs, Equals, Strides

_CLASSES: tuple[type[Kind], ...] = (
    Close,
    Counter,
    Metric,
    FileCheck,
    Raises,
    Equals,
    Differs,
    Strides,
    GeneratedFiles,
    Runs,
    Calls,
    Exit,
    Text,
    Log,
    Dead,
    RemoteCache,
    Kernels,
    GraphOfStage,
    Guards,
    Recompiles,
    GraphBreaks,
    Deterministic,
    BatchInvariant,
    Poisoned,
    PeakMemory,
    Candidates,
    Served,
    Residue,
    Sound,
    Choices,
    Resources,
    Metadata,
)

EXPECTATIONS: Mapping[str, type[Kind]] = {expectation.kind: expectation for expectation in _CLASSES}
"""The class of each expectation, by its key in a spec."""

OF_SAMPLES = "samples"
"""The expectation of a spec with a ``source``, which no spec writes: another one holds for each
sample of an operator.
"""
