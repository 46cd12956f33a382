"""Skips of tests: decorators and early raises become requirements and backends."""

import ast
import re
from collections.abc import Callable
from dataclasses import dataclass

from runner.language.authoring.naming import atom
from runner.language.authoring.reading import Reading, line_of


@dataclass(frozen=True, slots=True)
class Effect:
    """What a skip does to a spec."""

    drops: frozenset[str] = frozenset()
    requires: tuple[object, ...] = ()
    always: bool = False
    is_known: bool = True


NOTHING = Effect()
UNKNOWN = Effect(is_known=False)
_GPUS = frozenset(["cuda", "rocm"])
_CPU = frozenset(["cpu"])


def effect_of(test: ast.expr, *, negated: bool = False) -> Effect:
    """Return what ``skip where TEST`` does; with ``negated`` what ``skip where not TEST`` does."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return effect_of(test.operand, negated=not negated)
    if isinstance(test, ast.Constant):
        return Effect(always=True) if bool(test.value) != negated else NOTHING
    if isinstance(test, ast.BoolOp):
        return _of_several(test, negated=negated)
    device = _of_device(test, negated=negated)
    return device if device is not None else _of_atom(atom(test), negated=negated)


def _of_several(test: ast.BoolOp, *, negated: bool) -> Effect:
    parts = [effect_of(part, negated=negated) for part in test.values]
    any_skips = isinstance(test.op, ast.Or) != negated
    if any_skips:
        if not all(part.is_known for part in parts):
            return UNKNOWN
        drops = frozenset().union(*(part.drops for part in parts))
        requires = tuple(entry for part in parts for entry in part.requires)
        return Effect(drops, requires, any(part.always for part in parts))
    # all must hold for a skip: one that never holds makes the whole harmless
    if any(part == NOTHING for part in parts):
        return NOTHING
    wanted = [part for part in parts if not part.always]
    if len(wanted) == 1:
        return wanted[0]
    if all(part.is_known and not part.requires for part in wanted):
        return Effect(drops=frozenset.intersection(*(part.drops for part in wanted)))
    return UNKNOWN


def _of_device(test: ast.expr, *, negated: bool) -> Effect | None:
    """Return the effect of a comparison of the test's device with a constant."""
    if not (isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq | ast.NotEq)):
        return None
    left = ast.unparse(test.left).replace(".type", "")
    right = ast.unparse(test.comparators[0]).strip("'\"")
    if left not in ("self.device", "device", "self.device_type", "device_type"):
        return None
    is_gpu = right in ("cuda", "GPU_TYPE", "gpu")
    if not is_gpu and right not in ("cpu", "xpu", "mps"):
        return None
    if right in ("xpu", "mps"):
        return Effect(always=True) if isinstance(test.ops[0], ast.NotEq) != negated else NOTHING
    named, others = (_GPUS, _CPU) if is_gpu else (_CPU, _GPUS)
    return Effect(drops=named if isinstance(test.ops[0], ast.Eq) != negated else others)


def _of_atom(word: str, *, negated: bool) -> Effect:
    """Return the effect of skipping where an atom holds, or with ``negated`` where it does not."""
    if word in ("true", "false"):
        return Effect(always=True) if (word == "true") != negated else NOTHING
    if word == "gpu":
        return Effect(drops=_CPU if negated else _GPUS)
    if word in ("rocm", "cuda"):
        other = frozenset(["cuda", "cpu"]) if word == "rocm" else frozenset(["rocm", "cpu"])
        return Effect(drops=other if negated else frozenset([word]))
    if not negated or not word:
        return UNKNOWN
    wanted = {"sms": {"sms": ">=68"}, "gpus": {"gpus": ">=2"}, "transformers": {"module": "transformers"}}
    if word.startswith(">="):
        return Effect(drops=_CPU, requires=({"arch": word},))
    return Effect(drops=frozenset() if word == "transformers" else _CPU, requires=(wanted[word],)) if word in wanted else UNKNOWN


def apply(effect: Effect, reading: Reading, node: ast.AST, text: str) -> None:
    """Change a spec by the effect of a skip."""
    if not effect.is_known:
        reading.note(line_of(node), f"the test is skipped where {text}; the spec is not")
        return
    if effect.always:
        reading.note(line_of(node), f"the test is always skipped on Linux ({text})")
        return
    reading.vendors -= effect.drops
    reading.requires += [entry for entry in effect.requires if entry not in reading.requires]


_DECORATORS: dict[str, Callable[[ast.expr], Effect]] = {
    **dict.fromkeys(
        (
            "requires_gpu",
            "requires_cuda",
            "onlyCUDA",
            "requires_cuda_and_triton",
            "requires_gpu_and_triton",
            "requires_cuda_with_enough_memory",
        ),
        lambda node: Effect(drops=_CPU),
    ),
    "requires_triton": lambda node: Effect(requires=("triton",)),
    "skipIfRocm": lambda node: Effect(drops=frozenset(["rocm"])),
    "skipCUDAIfRocm": lambda node: Effect(drops=frozenset(["rocm"])),
    "runOnRocm": lambda node: Effect(drops=frozenset(["cuda", "cpu"])),
    "onlyCPU": lambda node: Effect(drops=_GPUS),
    "requires_multigpu": lambda node: Effect(drops=_CPU, requires=({"gpus": ">=2"},)),
    "skipCPUIf": lambda node: Effect(drops=_CPU) if effect_of(_first(node)).always else NOTHING,
    "skipCUDAIf": lambda node: NOTHING if effect_of(_first(node)).drops >= _GPUS or effect_of(_first(node)).drops == _CPU else UNKNOWN,
    "skipIf": lambda node: effect_of(_first(node)),
    "skipUnless": lambda node: effect_of(_first(node), negated=True),
    "skipif": lambda node: effect_of(_first(node)),
    "largeTensorTest": lambda node: _memory(node),
    **dict.fromkeys(
        (
            *(
                "skipIfXpu",
                "skipIfWindows",
                "skipIfNoXPU",
                "serialTest",
                "slowTest",
                "slowTestIf",
                "skipIfTorchDynamo",
                "requires_x86",
                "skipIfMPS",
            ),
            *(
                "skipIfNNModuleInlined",
                "skipIfTorchInductor",
                "skip_if_halide",
                "skip_if_triton_cpu",
                "skip_if_not_triton",
                "skip_if_pallas",
            ),
            *(
                "skipIfLegacyJitExecutor",
                "expectedFailureCodegenDynamic",
                "skipIfRocmArch",
                "staticmethod",
                "classmethod",
                "maybe_skip_size_asserts",
            ),
            *("expectedFailureXPU", "skip_if_gpu_halide", "xfail_if_triton_cpu", "skip_if_cpp_wrapper", "skip_if_x86_mac", "skipIfPy312"),
            *(
                "xfailIfS390X",
                "unMarkDynamoStrictTest",
                "markDynamoStrictTest",
                "skipIfMps",
                "skipIfMPS",
                "skipXPUIf",
                "usefixtures",
                "timeout",
            ),
        ),
        lambda node: NOTHING,
    ),
}
"""Decorators that skip a test, by the last word of their names."""


def decorator_effect(node: ast.expr) -> Effect | None:
    """Return what a decorator does to a spec; None for a decorator that skips nothing."""
    function = node.func if isinstance(node, ast.Call) else node
    word = ast.unparse(function).rpartition(".")[2]
    known = _DECORATORS.get(word)
    if known is None and _SKIPS.match(word):
        return UNKNOWN
    return None if known is None else known(node)


_SKIPS = re.compile(r"_?(skip|xfail|requires?|only)(_?(if|unless|on|no|without|not|xpu|hip|rocm|[A-Z])|_)", re.IGNORECASE)
"""Decorators that restrict where a test runs, by the way torch names them. The spec does not have the restriction, and says so."""


def is_skip(path: str) -> bool:
    """Whether an imported decorator restricts where a test runs, by its name."""
    word = path.rpartition(".")[2]
    return bool(_SKIPS.match(word)) or word.endswith("supported_platform")


def _first(node: ast.expr) -> ast.expr:
    return node.args[0] if isinstance(node, ast.Call) and node.args else ast.Constant(value=False)


def _memory(node: ast.expr) -> Effect:
    size = _first(node)
    if isinstance(size, ast.Constant) and isinstance(size.value, str) and size.value.upper().endswith("GB"):
        return Effect(drops=_CPU, requires=({"gpu_memory": f">={size.value[:-2].strip()}GiB"},))
    return UNKNOWN
