"""What a compiler wrote for a target, read without running anything: the target and the kernels in it, registers, spills, levels. Pure."""

import re
from collections.abc import Iterator, Mapping, Sequence

from runner.model.matching.generated_code import Code
from runner.model.targets import ISA, STAGES, STAGES_OF_VENDOR, WRAPPER, Level, Target

LEVELS: Mapping[str, Level] = {
    "filecheck": Level.COMPILED,
    "resources": Level.COMPILED,
    "metadata": Level.COMPILED,
    "runs": Level.COMPILED,
    "raises": Level.COMPILED,
}
"""The level of each kind of expectation. Other kinds need a device."""

OF_SIMULATED: Mapping[str, Level] = {**LEVELS, "choices": Level.COMPILED}
"""The same for code that Inductor generates for a simulated target."""


KERNEL = "<kernel>"
"""The name of what the compiler recorded of a kernel; no value of a spec can have this name."""


def level_of(kind: str, stage: str | None = None, *, is_compiled: bool = True) -> Level:
    """Return the level of an expectation; ``stage`` is what a ``filecheck`` reads. Candidates that are only counted are text."""
    if stage == WRAPPER or not is_compiled:
        return Level.RENDERED
    return Level.INSTRUCTIONS if stage in ISA.values() else OF_SIMULATED[kind]


# -- the texts of the stages ----------------------------------------------------------------------------------------

_COMMENTS = {"ttir": "//", "ttgir": "//", "llir": ";", "amdgcn": ";", "ptx": "//"}
"""How a comment begins, by stage; it ends with its line."""

_STRING = r'"(?:[^"\\\n]|\\.)*"'


def code_of_stage(text: str, stage: str) -> Code:
    """Return the text of a stage without comments, and without lines that are empty then."""
    mark = _COMMENTS[stage]
    token = re.compile(rf"{_STRING}|{re.escape(mark)}[^\n]*")
    stripped = token.sub(lambda match: "" if match[0].startswith(mark) else match[0], text.replace("\r\n", "\n"))
    kept = [(number, line.rstrip()) for number, line in enumerate(stripped.split("\n"), start=1) if line.strip()]
    return Code("\n".join(line for _, line in kept), tuple(number for number, _ in kept), text.count("\n") + 1)


def commented_out(text: str, stage: str) -> str:
    """Return a stage with every line commented out."""
    return "".join(f"{_COMMENTS[stage]} {line}" for line in text.splitlines(keepends=True))


def problems_of_texts(target: Target, kernels: Sequence[str], texts: Sequence[str]) -> Iterator[str]:
    """Yield why the texts of the stages are not those of these kernels for a target."""
    if len(texts) < len(target.stages) or not all(text.strip() for text in texts):
        yield f"{sum(bool(text.strip()) for text in texts)} texts, where {', '.join(target.stages)} are made"
        return
    by_stage = dict(zip(target.stages, texts, strict=False))
    module = f"{target.backend}:{target.compiler_arch}"
    if set(modules := _MODULE.findall(by_stage["ttgir"])) != {module}:
        said = ", ".join(sorted(set(modules) - {module})) or "nothing"
        yield f'ttgir does not say ttg.target = "{module}" alone: it says {said}'
    isa = code_of_stage(by_stage[target.isa], target.isa).text
    named = set(_NAMED[target.isa].findall(isa))
    if not named or not all(_is_for(target, name) for name in named):
        yield f"{target.isa} is for {', '.join(sorted(name for name in named if not _is_for(target, name))) or 'no target'}"
    there = kernels_of(isa, target.isa)
    yield from (f"{target.isa} has no kernel '{kernel}'" for kernel in kernels if kernel not in there)
    if len(modules) != len(set(there)):
        yield f"ttgir has {len(modules)} modules, {target.isa} has {len(set(there))} kernels"


_MODULE = re.compile(r'\bttg\.target = "([^"\n]*)"')

_NAMED = {
    "amdgcn": re.compile(r'^\s*\.amdgcn_target\s+"amdgcn-amd-amdhsa--([\w:+-]+)"', re.MULTILINE),
    "ptx": re.compile(r"^\.target\s+(\w+)", re.MULTILINE),
}
_ENTRIES = {
    "amdgcn": re.compile(r"^\s*\.amdhsa_kernel\s+(\w+)", re.MULTILINE),
    "ptx": re.compile(r"^(?:\.visible\s+)?\.entry\s+(\w+)", re.MULTILINE),
}


def _is_for(target: Target, named: str) -> bool:
    """Whether a named architecture is the target's. NVIDIA's names have a letter for features of that one architecture: ``sm_90a``."""
    return named == target.arch or (target.backend == "cuda" and re.fullmatch(rf"{re.escape(target.arch)}[af]?", named) is not None)


def generated_kernels(wrapper: str) -> list[str]:
    """Return the names of the kernels of Triton that the text of generated wrappers defines, each once."""
    return list(dict.fromkeys(_GENERATED.findall(wrapper)))


_GENERATED = re.compile(r"^\w+ = async_compile\.triton\('(\w+)',", re.MULTILINE)


def kernels_of(isa: str, stage: str) -> list[str]:
    """Return the names of the kernels."""
    return _ENTRIES[stage].findall(isa)


# -- registers, spills and stack ------------------------------------------------------------------------------------

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
    amounts = [[int(match[1]) for match in _each(pattern, report, kernels)] for pattern in _patterns(name, vendor)]
    return max(map(sum, zip(*amounts, strict=True)))


def with_amount(name: str, vendor: str, texts: Sequence[str], number: int) -> tuple[str, ...]:
    """Return the texts with another amount for each kernel."""
    index, kernels = _place(vendor, texts), _kernels(vendor, texts)
    report = texts[index]
    for place, pattern in enumerate(_patterns(name, vendor)):
        for match in reversed(_each(pattern, report, kernels)):
            report = report[: match.start(1)] + str(0 if place else number) + report[match.end(1) :]
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
    return max(1, len(kernels_of(texts[len(stages) - 1], stages[-1])))


def _each(pattern: str, text: str, kernels: int) -> list[re.Match[str]]:
    matches = list(re.finditer(pattern, text, re.MULTILINE))
    if len(matches) != kernels:
        of = "" if kernels == 1 else f", for {kernels} kernels"
        raise NotReported(f"the compiler reported it {len(matches)} times{of}")
    return matches
