"""The quick predicate and jsonschema agree: on every example, every shipped spec, and mutations of both."""

import copy
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from runner.language.read import schema
from runner.language.read.compiled_schema import compile_schema
from runner.language.read.source import read

ROOT = Path(__file__).resolve().parents[2]
STRANGE = [None, True, 0, -1, 1.5, 2.0, 10**30, "", "x", "{{ x }}", [], ["x"], [[]], {}, {"x": 1}, {"when": {}}]


def _documents() -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for path in sorted((ROOT / "specs").rglob("*.yaml")):
        kinds = {"backends": "backends", "_defaults": "defaults", "waivers": "waivers"}
        name = "profile" if path.parent.name == "profiles" else kinds.get(path.stem, "spec")
        found.append((name, read(path).data))
    for name in ("spec", "defaults", "backends", "waivers", "profile"):
        found.extend((name, example) for example in schema.load(name)["examples"])
    return found


def _mutations(value: Any) -> Iterator[Any]:
    """Yield copies in which one value, somewhere, is another, is missing, or stands under a wrong key."""
    yield from STRANGE
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else []
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
"""About as many mutations of one document are compared by every run of the tests; the nightly tests compare more."""


def _agree(name: str, document: Any, mutations: Sequence[Any]) -> None:
    fits, authority = schema.fits(name), schema.validator(name)
    verdicts = set()
    for mutated in [document, *mutations]:
        expected = authority.is_valid(mutated)
        verdicts.add(expected)
        assert fits(mutated) is expected, json.dumps(mutated, default=str)[:500]
    assert verdicts == {True, False}, "the mutations must include documents that fit and documents that do not"


@pytest.mark.parametrize("number", range(len(DOCUMENTS)), ids=lambda number: f"{DOCUMENTS[number][0]}-{number}")
def test_predicate_and_jsonschema_agree(number: int) -> None:
    """Each document has other mutations compared than its neighbours, which are much like it."""
    name, document = DOCUMENTS[number]
    mutations = list(_mutations(document))
    step = max(1, len(mutations) // SAMPLE)
    _agree(name, document, mutations[number % step :: step])


@pytest.mark.nightly(reason="the same comparison with more mutations")
@pytest.mark.parametrize(("name", "document"), DOCUMENTS, ids=lambda value: value if isinstance(value, str) else "")
def test_predicate_and_jsonschema_agree_on_many_mutations(name: str, document: Any) -> None:
    # every mutation of a small document, each seventh of a large one
    _agree(name, document, [mutated for number, mutated in enumerate(_mutations(document), 1) if number <= 200 or number % 7 == 0])


def test_a_keyword_that_is_not_known_is_an_error() -> None:
    with pytest.raises(ValueError, match="additional_properties"):
        compile_schema({"type": "object", "additional_properties": False})


@pytest.mark.parametrize("value", [True, 1, 1.0, "1", None])
@pytest.mark.parametrize("word", [True, 1, "1"])
def test_true_is_not_one(value: Any, word: Any) -> None:
    from jsonschema import Draft202012Validator

    for part in ({"const": word}, {"enum": [word, "other"]}):
        assert compile_schema(part)(value) is Draft202012Validator(part).is_valid(value)
