"""The texts of the stages: their comments, the target that they name, the kernels in them. Pure."""

import re
from collections.abc import Iterator, Sequence

from runner.core.matching.generated_code import Code
from runner.core.targets import Target

_COMMENTS = {"ttir": "//", "ttgir": "//", "llir": ";", "amdgcn": ";", "ptx": "//"}
"""How a comment begins, by stage; it ends with its line."""

_STRING = r'"(?:[^"\\\n]|\\.)*"'


def code_of_stage(text: str, stage: str) -> Code:
    """Return the text of a stage without comments, and without lines that are empty then."""
    mark = _COMMENTS[stage]
    token = re.compile(rf"{_STRING}|{re.escape(mark)}[^\n]*")
    stripped = token.sub(lambda found: "" if found[0].startswith(mark) else found[0], text.replace("\r\n", "\n"))
    kept = [(number, line.rstrip()) for number, line in enumerate(stripped.split("\n"), start=1) if line.strip()]
    return Code("\n".join(line for _, line in kept), tuple(number for number, _ in kept), text.count("\n") + 1)


def commented_out(text: str, stage: str) -> str:
    """Return a stage with every line commented out."""
    return "".join(f"{_COMMENTS[stage]} {line}" for line in text.splitlines(keepends=True))


def problems(target: Target, kernels: Sequence[str], texts: Sequence[str]) -> Iterator[str]:
    """Yield why the texts of the stages are not those of these kernels for a target."""
    if len(texts) < len(target.stages) or not all(text.strip() for text in texts):
        yield f"{sum(bool(text.strip()) for text in texts)} texts, where {', '.join(target.stages)} are made"
        return
    found = dict(zip(target.stages, texts, strict=False))
    module = f"{target.backend}:{target.compiler_arch}"
    if set(modules := _MODULE.findall(found["ttgir"])) != {module}:
        said = ", ".join(sorted(set(modules) - {module})) or "nothing"
        yield f'ttgir does not say ttg.target = "{module}" alone: it says {said}'
    isa = code_of_stage(found[target.isa], target.isa).text
    named = set(_NAMED[target.isa].findall(isa))
    if not named or not all(_is_for(target, one) for one in named):
        yield f"{target.isa} is for {', '.join(sorted(one for one in named if not _is_for(target, one))) or 'no target'}"
    there = entries(isa, target.isa)
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


def generated(wrapper: str) -> list[str]:
    """Return the names of the kernels of Triton that the text of generated wrappers defines, each once."""
    return list(dict.fromkeys(_GENERATED.findall(wrapper)))


_GENERATED = re.compile(r"^\w+ = async_compile\.triton\('(\w+)',", re.MULTILINE)


def entries(isa: str, stage: str) -> list[str]:
    """Return the names of the kernels."""
    return _ENTRIES[stage].findall(isa)
