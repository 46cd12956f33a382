"""What does not fit a schema: where, what kind of problem, and nothing twice."""

import copy
import json
import math
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from tests.fakes import ROOT, observation
from tests.json_schemas import validator
from torch_conformance.language.read import spec_schema
from torch_conformance.language.read.yaml_source import read
from torch_conformance.machine import schemas

SPEC: dict[str, Any] = {
    "summary": "A product of two matrices is right",
    "backends": ["cpu"],
    "function": "def fn(x): return x",
    "inputs": [{"rand": [4]}],
    "expect": [{"close": {"to": "eager"}}],
}


def said(changes: dict[str, Any], name: str = "spec") -> list[str]:
    """Return the problems of a spec with changes, as path: code."""
    return [
        shown(one)
        for one in spec_schema.describe({**SPEC, **changes} if name == "spec" else changes, name)
    ]


def shown(problem: schemas.Problem) -> str:
    return f"{'.'.join(map(str, problem.path))}{' (key)' if problem.at_key else ''}: {problem.code}"


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"conifg": {"a": 1}}, "conifg (key): unknown-key"),
        ({"expect": [{"close": {"too": "eager"}}]}, "expect.0.close.too (key): unknown-key"),
        ({"expect": [{"closs": {}}]}, "expect.0.closs (key): unknown-key"),
        ({"expect": [{}]}, "expect.0: empty"),
        ({"expect": [{"runs": {}, "close": {}}]}, "expect.0: too-many-keys"),
        ({"inputs": [{"rnad": [4]}]}, "inputs.0.rnad (key): unknown-key"),
        ({"inputs": [{"rand": [4], "ones": [4]}]}, "inputs.0: not-one-of"),
        ({"inputs": [{"dtype": "int8"}]}, "inputs.0: not-one-of"),
        ({"inputs": [{"full": [4]}]}, "inputs.0.full (key): incomplete"),
        ({"inputs": [{"rand": [4.0]}]}, "inputs.0.rand.0: wrong-type"),
        ({"inputs": [{"rand": [True]}]}, "inputs.0.rand.0: wrong-type"),
        ({"inputs": [{"rand": "4"}]}, "inputs.0.rand: wrong-type"),
        ({"inputs": [{"rand": [-1]}]}, "inputs.0.rand.0: out-of-range"),
        ({"inputs": None}, "inputs: wrong-type"),
        ({"timeout": True}, "timeout: wrong-type"),
        ({"timeout": 0}, "timeout: out-of-range"),
        ({"timeout": 86401}, "timeout: out-of-range"),
        ({"summary": "short"}, "summary: too-few"),
        ({"backends": ["cpu", "cuda", "cpu"]}, "backends.2: repeated-entry"),
        ({"tags": ["a b"]}, "tags.0: wrong-text"),
        ({"tags": ["cache\n"]}, "tags.0: wrong-text"),
        ({"context": ["nograd"]}, "context.0: unknown-word"),
        ({"context": [{"autocast": {"dtype": "half"}}]}, "context.0.autocast.dtype: unknown-word"),
        ({"env": {"torch_logs": "1"}}, "env.torch_logs (key): bad-name"),
        ({"env": {"A\n": "1"}}, "env.A\n (key): bad-name"),
        ({"matrix": {"a": [[1]]}}, "matrix.a.0: wrong-type"),
        ({"matrix": {"a": [{"id": "x"}]}}, "matrix.a.0: missing-key"),
        ({"exclude": [{"a": 1}]}, "exclude.0: missing-key"),
        ({"steps": ["call"]}, "steps.0: wrong-type"),
        ({"steps": [{"cal": {}}]}, "steps.0.cal (key): unknown-key"),
        ({"expect": [{"strides": {}}]}, "expect.0.strides: none-of"),
        ({"expect": [{"choices": {"of": 3}}]}, "expect.0.choices.of: wrong-type"),
        ({"on_request": False}, "on_request: wrong-value"),
        ({"on_request": 3}, "on_request: wrong-type"),
        ({"timeout": math.nan}, "timeout: out-of-range"),
        ({"timeout": math.inf}, "timeout: out-of-range"),
        (
            {"expect": [{"counter": {"a.b": {"value": 1, "unlisted": False}}}]},
            "expect.0.counter.a.b.unlisted: wrong-value",
        ),
    ],
)
def test_one_mistake_is_one_problem(changes: dict[str, Any], problem: str) -> None:
    assert said(changes) == [problem]


def test_every_mistake_is_told() -> None:
    changes = {
        "summary": 1,
        "backends": [],
        "conifg": 1,
        "inputs": [{"rnad": []}],
        "expect": [{"closs": 1}, {"runs": 1}],
    }
    assert len(said(changes)) == 6


# -- what a template gave --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("path", "value", "code"),
    [
        (("inputs", 0, "rand", 0), "four", "wrong-type"),
        (("inputs", 0, "rand", 0), -4, "out-of-range"),
        (("inputs", 0, "rand"), [4, -4], "out-of-range"),
        (("inputs", 0, "rand", 0), 4, ""),
        (("inputs", 0, "rand"), [4, 4], ""),
        (("expect", 0, "close", "atol"), "small", "wrong-type"),
        (("expect", 0, "close", "atol"), 1e-3, ""),
        (("summary",), "short", "too-few"),
    ],
)
def test_a_value_is_judged_where_it_stands(path: tuple[Any, ...], value: Any, code: str) -> None:
    data = {
        **SPEC,
        "inputs": [{"rand": [1]}],
        "expect": [{"close": {"to": "eager", "atol": 0, "rtol": 0}}],
    }
    target: Any = data
    for key in path[:-1]:
        target = target[key]
    target[path[-1]] = value
    found = spec_schema.describe(data, "spec", path)
    assert [(one.code, one.path[: len(path)]) for one in found] == ([(code, path)] if code else [])


def test_a_key_is_not_missing_where_a_misspelt_one_stands() -> None:
    data = {key: value for key, value in SPEC.items() if key != "backends"} | {"bakcends": ["cpu"]}
    assert list(map(shown, spec_schema.describe(data, "spec"))) == ["bakcends (key): unknown-key"]


# -- values that are in no file --------------------------------------------------------------------


def deep(depth: int) -> Any:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, None),
        ({"id": 3}, "$.id: expected text, found the number 3"),
        ({"phases": {"run": math.nan}}, "$.phases.run: nan is out of range: at least 0"),
        ({"phases": {"run": -math.inf}}, "$.phases.run: -inf is out of range: at least 0"),
        ({"phases": {"b": "x", "a": "y"}}, "$.phases.a: expected a number, found the text 'y'"),
        ({"phases": {1: "x", "a": "y"}}, "$.phases[1]: expected a number, found the text 'x'"),
        ({"\udfff": "\ud800"}, "$.\udfff: unknown key '\udfff' in observation"),
        ({"steps": deep(100_000)}, "$: nested too deep"),
        ({"steps": [1] * 100_000}, "$.steps[0]: expected a map, found the number 1"),
    ],
)
def test_what_a_worker_sent_is_judged_as_a_whole(changes: Any, said: str | None) -> None:
    begun = time.process_time()
    assert schemas.misfit(observation() | changes, "observation") == said
    assert time.process_time() - begun < 5


# -- an editor agrees: on every example, every shipped spec, and mutations of both -----------------

STRANGE = [
    None,
    True,
    0,
    -1,
    1.5,
    10**30,
    "",
    "x",
    "{{ x }}",
    [],
    ["x"],
    [[]],
    {},
    {"x": 1},
    {"when": {}},
]


def _documents() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    specs = (ROOT / "specs").rglob("*.yaml")
    for path in sorted(path for path in specs if path.name != "_seeds.yaml"):
        kinds = {"backends": "backends", "_defaults": "defaults", "waivers": "waivers"}
        name = "profile" if path.parent.name == "profiles" else kinds.get(path.stem, "spec")
        found.append((name, read(path).data))
    for name in ("spec", "defaults", "backends", "claims", "waivers", "profile"):
        found.extend((name, example) for example in schemas.load(name)["examples"])
    return found


def _mutations(value: Any) -> Iterator[Any]:
    """Yield copies in which one value, somewhere, is another, is missing, or stands under a wrong
    key.
    """
    yield from STRANGE
    keys = (
        list(value)
        if isinstance(value, dict)
        else range(len(value))
        if isinstance(value, list)
        else []
    )
    for key in keys:
        for inner in _mutations_of_one(value[key]):
            mutated = copy.copy(value)
            mutated[key] = inner
            yield mutated
        without = copy.copy(value)
        del without[key]
        yield without
        if isinstance(value, dict):
            yield {**without, f"{key}x": value[key]}
            yield {**value, "stranger": value[key]}
        else:
            yield [*value, value[key]]


def _mutations_of_one(value: Any) -> Iterator[Any]:
    yield from _mutations(value) if isinstance(value, dict | list) else STRANGE


DOCUMENTS = _documents()

SAMPLE = 10
"""About as many mutations of one document are compared."""


def _agree(name: str, document: Any, mutations: Sequence[Any]) -> None:
    authority = validator(name, any_name=True)
    verdicts = set()
    for mutated in [document, *mutations]:
        expected = authority.is_valid(mutated)
        verdicts.add(expected)
        found = spec_schema.describe(mutated, name)
        assert (not found) is expected, json.dumps(mutated, default=str)[:500]
        assert (schemas.misfit(mutated, name) is None) is expected
    assert verdicts == {True, False}, (
        "the mutations must include documents that fit and documents that do not"
    )


NIGHTLY = pytest.mark.nightly(
    reason="every run has one of three documents of each schema, which are much alike"
)
SEEN: Counter[str] = Counter()
ROWS = []
for _number, (_name, _document) in enumerate(DOCUMENTS):
    _marks = NIGHTLY if SEEN[_name] % 3 else ()
    ROWS.append(pytest.param(_name, _document, _number, marks=_marks, id=f"{_name}-{_number}"))
    SEEN[_name] += 1


@pytest.mark.parametrize(("name", "document", "number"), ROWS)
def test_an_editor_agrees(name: str, document: Any, number: int) -> None:
    """Each document has other mutations compared than its neighbours, which are much like it."""
    mutations = list(_mutations(document))
    step = max(1, len(mutations) // SAMPLE)
    _agree(name, document, mutations[number % step :: step])
