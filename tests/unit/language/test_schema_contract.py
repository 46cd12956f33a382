"""The schemas themselves: each is one, with known keywords, references that lead somewhere and
examples that fit.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from tests.fakes import ROOT
from torch_conformance.machine import schemas

FILES = sorted(
    path.name.removesuffix(".schema.json") for path in (ROOT / "schemas").glob("*.schema.json")
)
LANGUAGE = [
    "backends",
    "claims",
    "common",
    "defaults",
    "expected",
    "expectations",
    "inputs",
    "profile",
    "spec",
    "steps",
    "waivers",
]
"""What people write, and editors complete and explain; the others are what programs exchange."""

KEYWORDS = frozenset(
    [
        "$schema",
        "$id",
        "$ref",
        "$defs",
        "title",
        "description",
        "examples",
        "type",
        "enum",
        "const",
        "properties",
        "additionalProperties",
    ]
    + [
        "propertyNames",
        "required",
        "dependentRequired",
        "dependentSchemas",
        "items",
        "uniqueItems",
        "pattern",
        "if",
        "then",
        "else",
        "allOf",
        "anyOf",
        "oneOf",
    ]
    + ["not", "contains", "patternProperties"]
    + [
        "minLength",
        "minItems",
        "maxItems",
        "minProperties",
        "maxProperties",
        "minimum",
        "maximum",
        "exclusiveMinimum",
    ]
)
IN_PLACE = (
    "additionalProperties",
    "propertyNames",
    "items",
    "contains",
    "if",
    "then",
    "else",
    "not",
)


def definition(file: str, name: str) -> Any:
    return schemas.load(file)["$defs"][name]


def nodes(node: Any, place: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every schema within a schema with its place; what is data (examples, enum, const) is
    passed over.
    """
    if not isinstance(node, dict):
        return
    yield place, node
    for key in ("properties", "$defs"):
        for name, part in node.get(key, {}).items():
            yield from nodes(part, f"{place}/{key}/{name}")
    for key in IN_PLACE:
        yield from nodes(node.get(key), f"{place}/{key}")
    for key in ("allOf", "anyOf", "oneOf"):
        for index, part in enumerate(node.get(key, [])):
            yield from nodes(part, f"{place}/{key}/{index}")


def every_node(files: list[str]) -> list[tuple[str, dict[str, Any]]]:
    return [
        found
        for file in files
        for found in nodes(schemas.load(file), f"schemas/{file}.schema.json")
    ]


# -- the schemas themselves ------------------------------------------------------------------------


@pytest.mark.parametrize("file", FILES)
def test_every_schema_is_one(file: str) -> None:
    Draft202012Validator.check_schema(schemas.load(file))
    assert schemas.load(file)["$schema"] == "https://json-schema.org/draft/2020-12/schema"


@pytest.mark.parametrize("file", FILES)
def test_every_keyword_is_known(file: str) -> None:
    """``additional_properties`` is no mistake to JSON Schema: it is ignored."""
    strange = {
        (place, key) for place, node in every_node([file]) for key in node if key not in KEYWORDS
    }
    assert not strange, f"edit these, or KEYWORDS here when the word is JSON Schema's: {strange}"


@pytest.mark.parametrize("file", FILES)
def test_every_reference_leads_to_a_definition(file: str) -> None:
    for place, node in every_node([file]):
        if "$ref" in node:
            target, _, pointer = node["$ref"].partition("#/$defs/")
            name = target.removesuffix(".schema.json") or file
            assert pointer in schemas.load(name)["$defs"], (
                f"edit {place}: no definition {node['$ref']}"
            )


@pytest.mark.parametrize("file", FILES)
def test_every_example_is_one(file: str) -> None:
    count = 0
    for place, node in nodes(schemas.resolved(file), f"schemas/{file}.schema.json"):
        for example in node.get("examples", []):
            errors = [error.message for error in Draft202012Validator(node).iter_errors(example)]
            assert not errors, f"edit {place}: the example {example!r} does not fit: {errors}"
            count += 1
    for name in schemas.load(file).get("$defs", {}):
        node = schemas.resolved(file, f"/$defs/{name}")
        for example in node.get("examples", []):
            errors = [error.message for error in Draft202012Validator(node).iter_errors(example)]
            assert not errors, (
                f"edit schemas/{file}.schema.json, $defs/{name}: the example {example!r} does "
                f"not fit: {errors}"
            )
            count += 1
    assert count or file not in LANGUAGE


def test_what_has_keys_of_its_own_takes_no_others() -> None:
    """Else a misspelt key would be ignored.

    ``exclude`` takes the keys of the matrix, which code checks.
    """
    for place, node in every_node(LANGUAGE):
        within = any(f"/{word}/" in f"{place}/" for word in ("if", "not", "anyOf", "oneOf", "else"))
        if "properties" in node and not within and not place.endswith("/exclude/items"):
            closed = node.get("additionalProperties", True) is not True
            assert closed, f'edit {place}: add "additionalProperties": false'
