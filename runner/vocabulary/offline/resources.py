"""Registers, spills and stack of a kernel, read from what its compiler wrote: metadata of amdgcn, or the report of ptxas."""

import re
from collections.abc import Mapping, Sequence

from runner.core.targets import STAGES

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
    """The compiler reported no such quantity, or several."""


def of_compiler(name: str, vendor: str, texts: Sequence[str]) -> int:
    """Return registers, spills or stack of the one kernel in the texts of the stages; raise ``NotReported``."""
    report = texts[_place(vendor, texts)]
    return sum(int(_only(pattern, report)[1]) for pattern in _patterns(name, vendor))


def with_amount(name: str, vendor: str, texts: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the texts with another amount."""
    index = _place(vendor, texts)
    report = texts[index]
    for place, pattern in enumerate(_patterns(name, vendor)):
        found = _only(pattern, report)
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


def _only(pattern: str, text: str) -> re.Match[str]:
    found = list(re.finditer(pattern, text, re.MULTILINE))
    if len(found) != 1:
        raise NotReported(f"the compiler reported it {len(found)} times")
    return found[0]
