"""The functions of a prelude that keep what a test sees at its assertions."""

import ast

from runner.language.authoring.values import Function, Known, Value

KEEP = "keep_seen"
KEEP_PAIR = "keep_pair"
KEEP_EQUAL = "keep_equal"
SEEN = "seen_values"
IS_WITHIN = "is_within"
HAS_DIRECTIVES = "has_directives"

_TEXT = r'''
def as_seen(value):
    """A copy that later code of the test does not change."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, (list, tuple)):
        return [as_seen(item) for item in value]
    if isinstance(value, dict):
        return {key: as_seen(item) for key, item in value.items()}
    if isinstance(value, (set, frozenset)):
        return sorted(map(repr, value))
    if value is None or isinstance(value, (bool, int, float, complex, str)):
        return value
    if type(value).__module__ == "numpy":
        return torch.as_tensor(value)
    text = repr(value)
    if " at 0x" in text:
        raise TypeError(f"a {type(value).__name__} cannot be compared")
    return text


def keep_seen(place, value):
    if place in seen_values:
        raise RuntimeError(f"{place} was reached twice")
    seen_values[place] = as_seen(value)


def as_compared(value):
    """The same as a part of a comparison, which has to see None and what is empty."""
    if isinstance(value, list) and value:
        return [as_compared(item) for item in value]
    if isinstance(value, dict) and value:
        return {key: as_compared(item) for key, item in value.items()}
    return str(value) if value is None or isinstance(value, (list, dict)) else value


def keep_pair(place, actual, expected, again=False):
    if place in seen_values and not again:
        raise RuntimeError(f"{place} was reached twice")
    actual, expected = as_compared(as_seen(actual)), as_compared(as_seen(expected))
    if not again:
        seen_values[place] = {"actual": actual, "expected": expected}
        return
    found = seen_values.setdefault(place, {"actual": [], "expected": []})
    found["actual"].append(actual)
    found["expected"].append(expected)


def keep_equal(place, actual, expected, again=False, exact_dtype=True):
    keep_pair(place, actual, like_actual(expected, actual, exact_dtype), again)


def is_within(actual, expected, equal_nan=True, exact_dtype=True, **tolerances):
    """Whether values are close with tolerances that the test computes, or that hold at one of several places."""
    tolerances["equal_nan"] = equal_nan
    if isinstance(actual, (list, tuple)) and isinstance(expected, (list, tuple)):
        pairs = list(zip(actual, expected))
        return len(actual) == len(expected) and all(is_within(*pair, exact_dtype=exact_dtype, **tolerances) for pair in pairs)
    if isinstance(actual, dict) and isinstance(expected, dict):
        return actual.keys() == expected.keys() and all(
            is_within(actual[key], expected[key], exact_dtype=exact_dtype, **tolerances) for key in actual)
    if not (isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor)):
        actual, expected = (torch.as_tensor(value) for value in (actual, expected))
        exact_dtype = False
    if actual.shape != expected.shape or (exact_dtype and actual.dtype != expected.dtype):
        return False
    if "atol" not in tolerances:
        try:
            torch.testing.assert_close(actual.cpu(), expected.cpu(), check_dtype=exact_dtype, **tolerances)
        except AssertionError:
            return False
        return True
    return torch.allclose(actual.cpu(), expected.cpu().to(actual.dtype), **tolerances)


def has_directives(text, directives):
    """Whether FileCheck finds directives one after the other, each at its first place."""
    import re

    start, forbidden = 0, []
    for kind, wanted, count in directives:
        if kind == "check_not":
            forbidden.append(wanted)
            continue
        for _ in range(abs(count)):
            found = re.compile(wanted if kind == "check_regex" else re.escape(wanted)).search(text, start)
            between = text[start : found.start()] if found else ""
            newlines = between.count("\n")
            if not found or any(other in between for other in forbidden):
                return False
            if (kind == "check_same" and newlines) or (kind == "check_next" and newlines != 1):
                return False
            start, forbidden = found.end(), []
        if count < 0:
            forbidden.append(wanted)
    return not any(other in text[start:] for other in forbidden)


def like_actual(expected, actual, exact_dtype):
    """The expected value where torch's assertEqual compares it: on the device of the other, a number as a tensor beside one."""
    if isinstance(actual, torch.Tensor) and isinstance(expected, torch.Tensor):
        return expected.to(actual.device) if exact_dtype else expected.to(actual.device, actual.dtype)
    if isinstance(actual, torch.Tensor) and isinstance(expected, (bool, int, float)):
        return torch.tensor(expected, dtype=actual.dtype, device=actual.device)
    if isinstance(actual, (bool, int, float)) and isinstance(expected, torch.Tensor) and expected.numel() == 1:
        return expected.item()
    if isinstance(actual, (list, tuple)) and isinstance(expected, (list, tuple)) and len(actual) == len(expected):
        return [like_actual(one, other, exact_dtype) for one, other in zip(expected, actual)]
    if isinstance(actual, dict) and isinstance(expected, dict) and actual.keys() == expected.keys():
        return {key: like_actual(expected[key], actual[key], exact_dtype) for key in actual}
    return expected
'''
NAMES = frozenset([SEEN, *(node.name for node in ast.parse(_TEXT).body if isinstance(node, ast.FunctionDef))])
"""The names that a spec's Python gets from here."""


def recorder() -> dict[str, Value]:
    """Return the functions by name, each in the scope of all."""
    scope: dict[str, Value] = {SEEN: Known({})}
    for node in ast.parse(_TEXT).body:
        assert isinstance(node, ast.FunctionDef)
        scope[node.name] = Function(node.name, node, scope)
    return scope
