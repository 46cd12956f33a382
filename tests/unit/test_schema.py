"""What does not fit a schema, in words: what was found, what is allowed, and nothing twice."""

from typing import Any

import pytest

from runner.language.read import schema
from runner.language.read.compiled_schema import compile_schema

SPEC: dict[str, Any] = {
    "summary": "A product of two matrices is right",
    "backends": ["cpu"],
    "function": "def fn(x): return x",
    "inputs": [{"rand": [4]}],
    "expect": [{"close": {"to": "eager"}}],
}


def said(changes: dict[str, Any], name: str = "spec") -> list[str]:
    """Return the problems of a spec with changes, as path: message (hint)."""
    found = schema.describe({**SPEC, **changes} if name == "spec" else changes, name)
    return [f"{'.'.join(map(str, path))}{' (key)' if key else ''}: {message}" for path, message, _, key in found]


def test_a_spec_that_fits() -> None:
    assert said({}) == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"conifg": {}}, "conifg (key): unknown key 'conifg'"),
        ({"expect": [{"close": {"too": "eager"}}]}, "expect.0.close.too (key): unknown key 'too' in close"),
        ({"expect": [{"closs": {}}]}, "expect.0.closs (key): unknown expectation 'closs'"),
        ({"expect": [{}]}, "expect.0: expectation is empty"),
        ({"expect": [{"runs": {}, "close": {}}]}, "expect.0: expectation takes one key, found runs and close"),
        ({"inputs": [{"rnad": [4]}]}, "inputs.0.rnad (key): unknown input kind 'rnad'"),
        ({"inputs": [{"rand": [4], "ones": [4]}]}, f"inputs.0: input needs exactly one of {'{kinds}'}; found rand and ones"),
        ({"inputs": [{"dtype": "int8"}]}, f"inputs.0: input needs exactly one of {'{kinds}'}; found none"),
        ({"inputs": [{"full": [4]}]}, "inputs.0.full (key): 'full' requires 'value'"),
        ({"inputs": [{"rand": [4.0]}]}, "inputs.0.rand.0: expected a whole number (or one {{ expression }}), found the number 4.0"),
        ({"inputs": [{"rand": [True]}]}, "inputs.0.rand.0: expected a whole number (or one {{ expression }}), found true"),
        ({"inputs": [{"rand": "4"}]}, "inputs.0.rand: expected a list (or one {{ expression }}), found the text '4'"),
        ({"inputs": [{"rand": [-1]}]}, "inputs.0.rand.0: -1 is out of range: at least 0"),
        ({"inputs": [[4]]}, "inputs.0: expected a map or text or a number or true or false or null, found a list"),
        ({"inputs": None}, "inputs: expected a list (or one {{ expression }}), found nothing"),
        ({"timeout": True}, "timeout: expected a number, found true"),
        ({"timeout": 0}, "timeout: 0 is out of range: more than 0"),
        ({"timeout": 86401}, "timeout: 86401 is out of range: at most 86400"),
        ({"summary": "short"}, "summary: summary needs at least 8 characters"),
        ({"backends": ["cpu", "cuda", "cpu"]}, "backends.2: the text 'cpu' is repeated"),
        ({"tags": ["a b"]}, "tags.0: the text 'a b' is not a valid tag"),
        ({"tags": ["cache\n"]}, "tags.0: the text 'cache\n' is not a valid tag"),
        ({"context": ["nograd"]}, "context.0: unknown context 'nograd'"),
        ({"context": [{"autocast": {"dtype": "half"}}]}, "context.0.autocast.dtype: unknown dtype 'half'"),
        ({"env": {"torch_logs": "1"}}, "env.torch_logs (key): 'torch_logs' is not a valid name here"),
        ({"env": {"A\n": "1"}}, "env.A\n (key): 'A\n' is not a valid name here"),
        ({"matrix": {"a": [[1]]}}, "matrix.a.0: expected text or a number or true or false or null or a map, found a list"),
        ({"matrix": {"a": [{"id": "x"}]}}, "matrix.a.0: matrix value needs the key 'value'"),
        ({"exclude": [{"a": 1}]}, "exclude.0: exclusion needs the key 'reason'"),
        ({"steps": ["call"]}, "steps.0: expected a map, found the text 'call'"),
        ({"steps": [{"cal": {}}]}, "steps.0.cal (key): unknown step 'cal'"),
        ({"expect": [{"strides": {}}]}, "expect.0.strides: strides needs one of contiguous, equals"),
        ({"expect": [{"counter": {"a.b": {"value": 1, "unlisted": False}}}]}, "expect.0.counter.a.b.unlisted: expected true, found false"),
    ],
)
def test_one_mistake_is_one_problem(changes: dict[str, Any], message: str) -> None:
    kinds = "arange, call, full, jagged, module, ones, rand, randint, randn, ref, value, values, ... (13 in all)"
    assert said(changes) == [message.replace("{kinds}", kinds)]


def test_every_mistake_is_told() -> None:
    changes = {"summary": 1, "backends": [], "conifg": 1, "inputs": [{"rnad": []}], "expect": [{"closs": 1}, {"runs": 1}]}
    assert len(said(changes)) == 6


def test_missing_keys_come_with_what_they_are() -> None:
    found = {message: hint for _, message, hint, _ in schema.describe({}, "spec")}
    assert found == {
        "spec needs the key 'summary'": "The claim, as a sentence.",
        "spec needs the key 'backends'": "Where it holds: names of specs/backends.yaml, or of a vendor's own file.",
    }


@pytest.mark.parametrize("value", [None, 1, "text", [], True])
def test_what_is_no_map_at_all(value: Any) -> None:
    ((path, message, _, _),) = schema.describe(value, "spec")
    assert (path, message.split(",")[0]) == ((), "expected a map")


# -- what a template gave -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (("inputs", 0, "rand", 0), "four", "expected a whole number"),
        (("inputs", 0, "rand", 0), -4, "out of range"),
        (("inputs", 0, "rand"), [4, -4], "out of range"),
        (("inputs", 0, "rand", 0), 4, ""),
        (("inputs", 0, "rand"), [4, 4], ""),
        (("expect", 0, "close", "atol"), "small", "expected a number"),
        (("expect", 0, "close", "atol"), 1e-3, ""),
        (("summary",), "short", "at least 8"),
    ],
)
def test_a_value_is_judged_where_it_stands(path: tuple[Any, ...], value: Any, message: str) -> None:
    data = {**SPEC, "inputs": [{"rand": [1]}], "expect": [{"close": {"to": "eager", "atol": 0, "rtol": 0}}]}
    target: Any = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    found = schema.describe_at(data, "spec", path)
    assert [message in text and place[: len(path)] == path for place, text, _, _ in found] == ([True] if message else [])


def test_the_conditional_parts_of_a_schema_are_found() -> None:
    data = {**SPEC, "function": {"module": "ConvBN", "eval": 1}, "expect": [{"filecheck": {"checks": "CHECK: a", "code": -1}}]}
    assert [text for _, text, _, _ in schema.describe_at(data, "spec", ("function", "eval"))] == [
        "expected true or false (or one {{ expression }}), found the number 1"
    ]
    found = schema.describe_at(data, "spec", ("expect", 0, "filecheck", "code"))
    assert [text for _, text, _, _ in found] == ["-1 is out of range: at least 0"]


# -- the two validators ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("value", "whole"), [(4, True), (4.0, False), (True, False), ("4", False), (0, True), (-1, True), (10**30, True)])
def test_a_whole_number(value: Any, whole: bool) -> None:
    assert compile_schema({"type": "integer"})(value) is whole
    assert schema._validator_of({"type": "integer"}).is_valid(value) is whole


@pytest.mark.parametrize(("value", "fits"), [("abc", True), ("abc\n", False), ("\nabc", False), ("xabc", False), ("", False), (5, True)])
def test_the_end_of_a_pattern_is_the_end_of_the_text(value: Any, fits: bool) -> None:
    assert compile_schema({"pattern": "^abc$"})(value) is fits
    assert schema._validator_of({"pattern": "^abc$"}).is_valid(value) is fits


@pytest.mark.parametrize(
    ("items", "unique"),
    [
        (["a", "b"], True),
        (["a", "a"], False),
        ([{"a": 1}, {"a": 2}], True),
        ([{"a": 1, "b": 2}, {"b": 2, "a": 1}], False),
        ([1, True], True),
    ],
)
def test_unique_items(items: list[Any], unique: bool) -> None:
    assert compile_schema({"uniqueItems": True})(items) is unique
    assert schema._validator_of({"uniqueItems": True}).is_valid(items) is unique


def test_many_items_are_compared_in_no_time() -> None:
    tags = [f"t{index}" for index in range(50_000)]
    assert schema.fits("spec")({**SPEC, "tags": tags})
    assert said({"tags": [*tags, "t0"]}) == ["tags.50000: the text 't0' is repeated"]
