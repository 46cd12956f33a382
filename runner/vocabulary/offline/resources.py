"""Registers, spills and stack of a kernel, read from what its compiler wrote: metadata of amdgcn, or the report of ptxas."""

import re
from collections.abc import Mapping, Sequence

from runner.core.targets import STAGES, STAGES_OF_VENDOR
from runner.vocabulary.offline import isa

RESOURCES: Mapping[str, str] = {
    "registers": "vector registers of a thread, as the compiler counts them",
    "spills": "what did not fit into registers: registers for AMD, bytes of stores and loads for NVIDIA",
    "stack": "bytes of memory of a thread for its stack",
    "shared": "bytes of shared memory (LDS) of a block",
}
"""The words of ``resources``."""

_AMD = {
    "registers": (r"^\s*\.vgpr_count:\s+(\d+)$",),
    "spills": (r"^\s*\.vgpr_spill_count:\s+(\d+)$", r"^\s*\.sgpr_spill_count:\s+(\d+)$"),
    "stack": (r"^\s*\.private_segment_fixed_size:\s+(\d+)$",),
}
_NVIDIA = {
    "registers": (r"\bUsed (\d+) registers\b",),
    "spills": (r"\b(\d+) bytes spill stores\b", r"\b(\d+) bytes spill loads\b"),
    "stack": (r"\b(\d+) bytes stack frame\b",),
}


class NotReported(ValueError):
    """The compiler reported no such quantity, or not once for each kernel."""


def of_compiler(name: str, vendor: str, texts: Sequence[str]) -> int:
    """Return registers, spills or stack of the kernel in the texts that has most of it; raise ``NotReported``."""
    report, kernels = texts[_place(vendor, texts)], _kernels(vendor, texts)
    amounts = [[int(found[1]) for found in _each(pattern, report, kernels)] for pattern in _patterns(name, vendor)]
    return max(map(sum, zip(*amounts, strict=True)))


def with_amount(name: str, vendor: str, texts: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the texts with another amount for each kernel."""
    index, kernels = _place(vendor, texts), _kernels(vendor, texts)
    report = texts[index]
    for place, pattern in enumerate(_patterns(name, vendor)):
        for found in reversed(_each(pattern, report, kernels)):
            report = report[: found.start(1)] + str(0 if place else number) + report[found.end(1) :]
    return (*texts[:index], report, *texts[index + 1 :])


def _patterns(name: str, vendor: str) -> Sequence[str]:
    return (_AMD if vendor == "amd" else _NVIDIA)[name]


def _place(vendor: str, texts: Sequence[str]) -> int:
    """Return the text with the report: amdgcn is the last stage of AMD; for NVIDIA the report of ptxas follows the stages."""
    index = len(STAGES["hip"]) - 1 if vendor == "amd" else len(STAGES["cuda"])
    if len(texts) <= index:
        raise NotReported("the compiler's report is missing")
    return index


def _kernels(vendor: str, texts: Sequence[str]) -> int:
    """Return how many kernels the instructions have."""
    stages = STAGES_OF_VENDOR[vendor]
    return max(1, len(isa.entries(texts[len(stages) - 1], stages[-1])))


def _each(pattern: str, text: str, kernels: int) -> list[re.Match[str]]:
    found = list(re.finditer(pattern, text, re.MULTILINE))
    if len(found) != kernels:
        of = "" if kernels == 1 else f", for {kernels} kernels"
        raise NotReported(f"the compiler reported it {len(found)} times{of}")
    return found
