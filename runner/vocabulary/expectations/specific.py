"""Refuses what is looked for in a text and found in any text of its kind: a letter, a dot, a part that all guards have."""

import re
from typing import Any

from runner.core.matching.filecheck import CheckFile
from runner.core.matching.generality import are_general, finds, is_general, is_general_pattern
from runner.vocabulary.expectations.base import BadExpectation
from runner.vocabulary.expectations.texts import parts_of

_LONGER = "name more of what is expected: at least two letters or digits beside each other"
_NARROWER = "name a word that only the expected text has"


def check_specific(body: Any, *keys: str) -> None:
    """Check that parts and pattern are in no text by chance; raise ``BadExpectation``. ``keys`` are those of parts."""
    for key in keys or ("contains",):
        for place, part in _placed(body, key):
            if is_general(part):
                raise BadExpectation(f"almost every text contains {part!r}: this cannot fail", _LONGER, path=place)
    check_specific_pattern(body, "matches")


def check_specific_pattern(body: Any, key: str) -> None:
    """Check that a pattern matches no text by chance; raise ``BadExpectation``."""
    pattern = body.get(key)
    if pattern is not None and is_general_pattern(pattern):
        raise BadExpectation(f"almost every text matches /{pattern}/: this cannot fail", _NARROWER, path=(key,))


def check_specific_checks(checks: CheckFile) -> None:
    """Check that directives do not pass on any text; raise ``BadExpectation``."""
    if are_general(checks):
        raise BadExpectation("the directives pass on almost every text: they cannot fail", _NARROWER)


def _placed(body: Any, key: str) -> list[tuple[tuple[str | int, ...], str]]:
    """Return the parts at a key, each with its path."""
    given = body.get(key)
    return [((key, index) if isinstance(given, list) else (key,), part) for index, part in enumerate(parts_of(given))]


# -- guards ---------------------------------------------------------------------------------------------------------

EVERY_FRAME = """\
LAMBDA_GUARD: torch._functorch.aot_autograd.utils.top_saved_tensors_hooks ids == None
GLOBAL_STATE: ___check_global_state() against {"allow_bf16_reduce":0,"allow_fp16_reduce":0,"allow_tf32":false,"autocast_state":\
{"cached_enabled":true,"dtype":[15,5,5,15,5,5,15,15,5,5],"enabled":[false,false,false,false,false,false,false,false,false,false]},\
"default_dtype":6,"deterministic_algorithms":false,"deterministic_algorithms_warn_only":false,"grad_mode":true,"num_threads":2,\
"torch_function":true,"torch_function_all_disabled":false}
TORCH_FUNCTION_MODE_STACK: ___check_torch_function_mode_stack()
DEFAULT_DEVICE: utils_device.CURRENT_DEVICE == None
ID_MATCH: ___check_obj_id(G['torch'], 139000000000001), type=<class 'module'>
ID_MATCH: ___check_obj_id(G['torch'].ones, 139000000000002), type=<class 'builtin_function_or_method'>
"""
"""The guards of a function without arguments, as torch 2.13 writes them: every frame has these."""

OTHER_FRAMES = """\
TYPE_MATCH: ___check_type_id(L['gadgets'], 139000000000003), type=<class 'dict'>
TYPE_MATCH: ___check_type_id(L['gadgets']['widget'], 139000000000004), type=<class 'int'>
LENGTH_CHECK: len(L['gadgets']) == 97
EQUALS_MATCH: L['gadgets']['widget'] == 1009
TENSOR_MATCH: check_tensor(L['voltage'], Tensor, DispatchKeySet(CPU, BackendSelect, ADInplaceOrView, AutogradCPU), torch.float32, \
device=None, requires_grad=False, size=[97, 89], stride=[89, 1])
DIMENSION_DYNAMIC_MARKING_GUARD: hasattr(L['voltage'], '_dynamo_dynamic_indices') == False
ID_MATCH: ___check_obj_id(G['gauge'], 139000000000005), type=<class 'function'>
DICT_CONTAINS: not ___dict_contains('forward', G['gauge'].__dict__)
"""
"""Guards of functions that a spec does not mean."""

_KINDS = tuple(line.partition(":")[0] for line in OTHER_FRAMES.splitlines())
_HINT = "name a guard by its kind and its source, as in TENSOR_MATCH: check_tensor(L['x']"


def check_guards(body: Any, checks: CheckFile | None) -> None:
    """Refuse parts, patterns and directives of any guards, with ``BadExpectation``. A kind that not every frame has may be named alone."""
    for place, part in _placed(body, "contains"):
        if is_general(part):
            raise BadExpectation(f"{part!r} is in the guards of every function: this cannot fail", _HINT, path=place)
        _refuse(repr(part), place, lambda text, part=part: part in text, names_kind=_names_kind(part))
    if (pattern := body.get("matches")) is not None:
        _refuse(f"a match of /{pattern}/", ("matches",), lambda text: finds(pattern, [text]), names_kind=_names_kind(pattern))
    if checks is not None:
        named = any(_names_kind(one.pattern) for one in checks.directives if one.positive)
        _refuse("what the directives match", ("checks",), lambda text: are_general(checks, [text]), names_kind=named)


def _refuse(what: str, path: tuple[str | int, ...], is_in: Any, *, names_kind: bool) -> None:
    if is_in(EVERY_FRAME):
        raise BadExpectation(f"{what} is in the guards of every function: this cannot fail", _HINT, path=path)
    if not names_kind and is_in(EVERY_FRAME + OTHER_FRAMES):
        raise BadExpectation(f"{what} is in the guards of most functions", _HINT, path=path)


def _names_kind(text: str) -> bool:
    return any(re.search(rf"(?<!\w){kind}(?!\w)", text) for kind in _KINDS)
