"""The reference: generated pages are fresh, and no key, word, outcome or exit code is left out."""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.fakes import shipped_suite
from tests.fences import ROOT, is_generated
from tools import generate_docs, generate_schemas
from torch_conformance.machine import schemas
from torch_conformance.model.outcomes import ExitCode, Outcome

REFERENCE = ROOT / "docs" / "reference"


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    return generate_docs.generated(shipped_suite().cases)


def test_committed_pages_are_fresh_and_the_others_are_not_committed(pages: dict[str, str]) -> None:
    for name in generate_docs.COMMITTED:
        assert (ROOT / "docs" / name).read_text("utf-8") == pages[name], (
            f"{name}: run python -m tools.generate_docs"
        )
    assert {name for name in pages if not is_generated(ROOT / "docs" / name)} == set(
        generate_docs.COMMITTED
    )
    assert len(pages) > 15


def test_committed_schemas_are_fresh() -> None:
    for name, text in generate_schemas.written().items():
        assert (ROOT / "schemas" / name).read_text("utf-8") == text, (
            f"{name}: run python -m tools.generate_docs"
        )


def test_the_pages_of_outcomes_name_every_outcome_and_exit_code() -> None:
    page, readme = (
        (REFERENCE / "exit-codes.md").read_text("utf-8"),
        (ROOT / "README.md").read_text("utf-8"),
    )
    for outcome in Outcome:
        assert re.search(rf"\b{outcome.label}\b", page), outcome
        assert outcome.label.startswith("OFFLINE") or re.search(rf"\b{outcome.label}\b", readme), (
            outcome
        )
    for code in ExitCode:
        assert f"\n| {code.value} | " in page, code


LANGUAGE = (
    "spec",
    "defaults",
    "inputs",
    "steps",
    "expectations",
    "common",
    "backends",
    "claims",
    "waivers",
    "profile",
)


def keys_of(node: Any) -> Iterator[str]:
    if isinstance(node, dict):
        if isinstance(node.get("properties"), dict):
            yield from node["properties"]
        for name, part in node.items():
            if name not in ("examples", "enum", "const", "required"):
                yield from keys_of(part)
    elif isinstance(node, list):
        for part in node:
            yield from keys_of(part)


@pytest.mark.parametrize("file", [*LANGUAGE, "journal", "observation"])
def test_every_key_of_a_schema_is_in_the_reference(file: str, pages: dict[str, str]) -> None:
    """A key stands in a table or in the text, as code."""
    names = ("language", "capabilities-and-backends") if file in LANGUAGE else ("journal",)
    text = "".join(pages[f"reference/{name}.md"] for name in names)
    code = set(re.findall(r"[$\w.]+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    missing = sorted(set(keys_of(schemas.load(file))) - code)
    assert missing == [], f"schemas/{file}.schema.json has keys that the reference does not name"


def test_every_enumerated_word_of_the_language_is_in_the_reference() -> None:
    text = (REFERENCE / "language.md").read_text("utf-8")
    words = {
        word
        for file in LANGUAGE
        for word in enumerated(schemas.load(file))
        if isinstance(word, str)
    }
    assert sorted(word for word in words if not re.search(rf"\b{re.escape(word)}\b", text)) == []


def enumerated(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from node.get("enum", []) if isinstance(node.get("enum"), list) else []
        for part in node.values():
            yield from enumerated(part)
    elif isinstance(node, list):
        for part in node:
            yield from enumerated(part)
