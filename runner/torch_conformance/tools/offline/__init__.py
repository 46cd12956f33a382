"""Compiles for GPUs that the machine lacks."""

import re
from collections.abc import Iterator, Sequence

from torch_conformance.model.targets import Target
from torch_conformance.vocabulary.expectations.compiled_kernels import code_of_stage, kernels_of


def problems_of_texts(
    target: Target, kernels: Sequence[str], texts: Sequence[str]
) -> Iterator[str]:
    """Yield why the texts of the stages are not those of these kernels for a target."""
    if len(texts) < len(target.stages) or not all(text.strip() for text in texts):
        yield (
            f"{sum(bool(text.strip()) for text in texts)} texts, where {', '.join(target.stages)} "
            "are made"
        )
        return
    by_stage = dict(zip(target.stages, texts, strict=False))
    module = f"{target.backend}:{target.compiler_arch}"
    if set(modules := _MODULE.findall(by_stage["ttgir"])) != {module}:
        modules_found = ", ".join(sorted(set(modules) - {module})) or "nothing"
        yield f'ttgir does not say ttg.target = "{module}" only: it says {modules_found}'
    isa = code_of_stage(by_stage[target.isa], target.isa).text
    targets = set(_NAMED[target.isa].findall(isa))
    if not targets or not all(_is_for(target, name) for name in targets):
        others = sorted(name for name in targets if not _is_for(target, name))
        yield f"{target.isa} is for {', '.join(others) or 'no target'}"
    there = kernels_of(isa, target.isa)
    yield from (
        f"{target.isa} has no kernel '{kernel}'" for kernel in kernels if kernel not in there
    )
    if len(modules) != len(set(there)):
        yield f"ttgir has {len(modules)} modules, {target.isa} has {len(set(there))} kernels"


_MODULE = re.compile(r'\bttg\.target = "([^"\n]*)"')

_NAMED = {
    "amdgcn": re.compile(r'^\s*\.amdgcn_target\s+"amdgcn-amd-amdhsa--([\w:+-]+)"', re.MULTILINE),
    "ptx": re.compile(r"^\.target\s+(\w+)", re.MULTILINE),
}


def _is_for(target: Target, name: str) -> bool:
    """Whether a named architecture is the target's.

    NVIDIA's names have a letter for features of that one architecture: ``sm_90a``.
    """
    return name == target.arch or (
        target.backend == "cuda"
        and re.fullmatch(rf"{re.escape(target.arch)}[af]?", name) is not None
    )


def generated_kernels(wrapper: str) -> list[str]:
    """Return the names of the kernels of Triton that the text of generated wrappers defines, each
    once.
    """
    return list(dict.fromkeys(_GENERATED.findall(wrapper)))


_GENERATED = re.compile(r"^\w+ = async_compile\.triton\('(\w+)',", re.MULTILINE)
