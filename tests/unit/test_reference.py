"""The reference: generated pages are fresh, and no key, word, outcome or exit code is left out."""

import importlib
import json
import re
from collections.abc import Iterator
from typing import Any

import pytest

from runner.core.exit_codes import ExitCode
from runner.core.outcomes import Outcome
from runner.language.read import schema
from runner.language.reference import folder, reference
from tests.fakes import shipped_suite
from tests.fences import ROOT

GENERATED = sorted(path.name.removesuffix(".in.md") for path in folder().glob("*.in.md"))


@pytest.mark.parametrize("page", GENERATED)
def test_generated_pages_are_fresh(page: str) -> None:
    committed = (folder() / f"{page}.md").read_text(encoding="utf-8")
    command = f"python -m runner.language.reference{'' if page == 'language' else ' ' + page}"
    assert committed == reference(page), f"run: {command} > docs/reference/{page}.md"


def test_the_reference_of_the_command_line_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    generator = importlib.import_module("generate_command_line")
    committed = (folder() / "command-line.md").read_text(encoding="utf-8")
    assert committed == generator.page(), "run: python tools/generate_command_line.py > docs/reference/command-line.md"


def test_the_gallery_is_fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "tools"))
    generator = importlib.import_module("generate_gallery")
    wanted = generator.pages(shipped_suite().cases)
    committed = {path.name: path.read_text("utf-8") for path in (ROOT / "docs" / "gallery").glob("*.md")}
    assert sorted(committed) == sorted(wanted)
    assert [name for name in wanted if wanted[name] != committed[name]] == [], "run: python tools/generate_gallery.py"


def test_the_pages_of_outcomes_name_every_outcome_and_exit_code() -> None:
    page, readme = (folder() / "exit-codes.md").read_text("utf-8"), (ROOT / "README.md").read_text("utf-8")
    for outcome in Outcome:
        assert re.search(rf"\b{outcome.label}\b", page), outcome
        assert outcome.label.startswith("OFFLINE") or re.search(rf"\b{outcome.label}\b", readme), outcome
    for code in ExitCode:
        assert f"\n| {code.value} | " in page, code


def test_the_page_of_exit_codes_lists_what_counts_as_executed() -> None:
    page = (folder() / "exit-codes.md").read_text("utf-8")
    (sentence,) = re.findall(r"^Executed are (.*?)\.", page, re.MULTILINE)
    assert set(re.findall(r"[A-Z_]+", sentence)) == {outcome.label for outcome in Outcome if outcome.is_executed}


LANGUAGE = ("spec", "defaults", "inputs", "steps", "expectations", "common", "backends", "waivers", "profile")


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
def test_every_key_of_a_schema_is_in_the_reference(file: str) -> None:
    """A key stands in a table or in the text, as code."""
    names = ("language", "capabilities-and-backends") if file in LANGUAGE else ("journal",)
    text = "".join((folder() / f"{page}.md").read_text("utf-8") for page in names)
    code = set(re.findall(r"[\w.]+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    missing = sorted(set(keys_of(schema.load(file))) - code)
    assert missing == [], f"schemas/{file}.schema.json has keys that the reference does not name"


def test_every_enumerated_word_of_the_language_is_in_the_reference() -> None:
    text = (folder() / "language.md").read_text("utf-8")
    words = {word for file in LANGUAGE for word in enumerated(schema.load(file)) if isinstance(word, str)}
    assert sorted(word for word in words if not re.search(rf"\b{re.escape(word)}\b", text)) == []


def enumerated(node: Any) -> Iterator[Any]:
    if isinstance(node, dict):
        yield from node.get("enum", []) if isinstance(node.get("enum"), list) else []
        for part in node.values():
            yield from enumerated(part)
    elif isinstance(node, list):
        for part in node:
            yield from enumerated(part)


def useful_names() -> set[str]:
    text = (folder() / "language.md").read_text("utf-8")
    section = text.partition("## Useful counters and metrics")[2].partition("\n## ")[0]
    return {name for row in re.findall(r"^\| (`[^|]+) \|", section, re.MULTILINE) for name in re.findall(r"`([\w.]+)`", row)}


def test_useful_names_are_explained_and_torch_has_them() -> None:
    found = useful_names()
    assert {"stats.unique_graphs", "stats.calls_captured", "generated_kernel_count", "inductor.fxgraph_cache_hit"} <= found
    table = json.loads(max((ROOT / "runner").rglob("names-2.*.json")).read_text("utf-8"))
    known = {f"{space}.{name}" for space, names in table["counter"].items() for name in names["names"]} | set(table["metric"])
    assert found <= known, found - known
