"""One look at a file finds the problems of its form and of its meaning, and none that only follows from another."""

import copy
import random
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from runner.core.diagnostics import Diagnostic
from runner.language.load import inspect
from runner.language.read import schema
from runner.language.read.document import Document
from runner.language.read.follow_ups import _FOLLOW_UPS, gaps_of
from runner.language.read.kinds import KINDS, SPEC
from runner.language.read.repair import readable
from runner.language.read.source import parse, read
from runner.system.data_dirs import folder
from tests.conftest import GOOD

INVALID = Path(__file__).resolve().parents[1] / "specs" / "invalid"


def problems(tmp_path: Path, text: str) -> list[Diagnostic]:
    (tmp_path / "spec.yaml").write_text(text)
    return sorted(set(inspect([tmp_path / "spec.yaml"]).problems))


def messages(tmp_path: Path, text: str) -> list[str]:
    return [problem.message for problem in problems(tmp_path, text)]


def document(text: str) -> Document:
    return parse(text, path=Path("spec.yaml"), content=text.encode())


# -- kinds ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.name)
def test_keys_of_kind_equal_keys_of_its_schema(kind: Any) -> None:
    node = schema.resolved(kind.name)
    below = node.get("additionalProperties") or {}
    items = node.get("properties", {}).get("waivers", {}).get("items", {})
    known = {*node.get("properties", {}), *(below.get("properties", {}) if isinstance(below, dict) else {}), *items.get("properties", {})}
    assert kind.keys <= known, f"edit {kind.name} in runner/language/read/kinds.py"
    assert kind.marks <= kind.keys
    if not kind.anywhere:
        assert kind.keys == set(node["properties"])


@pytest.mark.parametrize("name", ["spec", "defaults", "backends", "waivers"])
def test_valid_documents_are_recognised(name: str) -> None:
    (kind,) = (kind for kind in KINDS if kind.name == name)
    for example in schema.load(name).get("examples", []):
        if example != {"waivers": []}:
            assert kind.recognises(yaml.safe_dump(example), kind.file_name, example)


# -- repairing ------------------------------------------------------------------------------------------------------


def test_misspelt_key_is_read_as_similar_key(tmp_path: Path) -> None:
    found = messages(tmp_path, GOOD + "conifg: {freezin: true}\n")
    assert found == ["unknown key 'conifg'", "unknown config 'freezin'"]
    assert messages(tmp_path, GOOD.replace("backends", "bakcends").replace("cpu", "cpx")) == [
        "unknown key 'bakcends'",
        "unknown backend 'cpx'",
    ]


def test_misspelt_expect_of_step_is_read(tmp_path: Path) -> None:
    found = messages(tmp_path, GOOD.replace("expect: [{close: {to: eager}}]", "steps: [{call: {}, expects: [{close: {to: egaer}}]}]"))
    assert found == ["unknown key 'expects' in step", "unknown name 'egaer'"]


def test_an_expect_beside_steps_is_checked_too(tmp_path: Path) -> None:
    found = messages(tmp_path, GOOD.replace("eager", "egaer") + "steps: [{call: {}, expect: [{close: {to: eagre}}]}]\n")
    assert found == ["'expect' beside 'steps'", "unknown name 'egaer'", "unknown name 'eagre'"]
    assert messages(tmp_path, GOOD + "steps: [{call: {}}]\n") == ["'expect' beside 'steps'"]


def test_remaining_values_keep_their_positions(tmp_path: Path) -> None:
    text = GOOD.replace("expect: [", "expect: [{metric: 3}, {clsoe: {to: eager}}, {metric: {generated_kernel_cont: 1}}, ")
    places = [(problem.position.line, problem.position.column) for problem in problems(tmp_path, text)]
    row = text.splitlines()[6]
    assert places == [(7, row.index(word) + 1) for word in ("3}", "clsoe", "generated_kernel_cont")]


def test_gaps_count_entries_of_the_file() -> None:
    found = readable(document(GOOD.replace("inputs: [", "inputs: [{a: 1}, {rand: x}, ")), SPEC)
    assert {path[:2] for path in found.cuts} == {("inputs", 0), ("inputs", 1)}
    assert "inputs" in gaps_of(found.cuts)
    assert found.document is not None
    assert found.document.data["inputs"] == document(GOOD).data["inputs"]


def test_valid_document_is_not_copied() -> None:
    whole = document(GOOD)
    assert readable(whole, SPEC).document is whole


@pytest.mark.parametrize("pattern", [pattern for pattern, _ in _FOLLOW_UPS], ids=lambda pattern: pattern.pattern[:40])
def test_each_follow_up_pattern_matches_a_real_message(pattern: re.Pattern[str]) -> None:
    """A message that is written in other words must change in the table too."""
    told = [line.split(": ", 1)[1] for golden in INVALID.glob("*.txt") for line in golden.read_text("utf-8").splitlines()]
    parts = set(pattern.pattern.split("|")) - {"nothing to time"}
    missing = [part for part in parts if not any(re.match(part, message) for message in told)]
    assert not missing


# -- nothing follows ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("function: |\n  def fn(x, y):\n      return x @ y\n", "function: [4]\n", ["expected text or a map, found a list"]),
        (
            "function: |\n  def fn(x, y):\n      return x",
            "prelude: [4]\nfunction: |\n  def fn(x, y):\n      return helper(x)",
            ["expected text, found"],
        ),
        ("inputs: [{rand: [4, 4]}, ", "inputs: [{rnd: [4, 4]}, {rand: x}, ", ["expected a list", "unknown input kind 'rnd'"]),
        ("expect: [{close: {to: eager}}]", "expect: [{close: 4}]", ["expected a map, found the number 4"]),
        ("expect: [{close: {to: eager}}]", "steps: 4", ["expected a list, found the number 4"]),
        (
            "expect: [{close: {to: eager}}]",
            "steps: [{calls: 4, expect: [{close: {to: last}}]}]",
            ["expected a map", "unknown step 'calls'"],
        ),
        ("expect: [{close: {to: eager}}]", "let: [a]\nsteps: [{call: {}, expect: [{close: {to: a}}]}]", ["expected a map, found a list"]),
        ("backends: [cpu]", "backends: [[cpu]]\nexclude: [{backend: cpu, reason: No reason at all}]", ["expected text, found a list"]),
        ("inputs: [{rand: [4, 4]}, {rand: [4, 4]}]", "inputs: [{rand: [4, 4], repeat: []}]", ["expected a whole number"]),
        ("inputs: [{rand: [4, 4]}, {rand: [4, 4]}]", "inputs: [{full: '', value: 0.1, requires_grad: true}, 1]", ["expected a list"]),
        ("rand: [4, 4]}, ", 'rand: ["{{ n }}", 4]}, ', ["expected a list, found the number 4"]),
    ],
)
def test_a_cut_makes_no_other_problem(old: str, new: str, expected: list[str], tmp_path: Path) -> None:
    text = GOOD.replace(old, new) + ("matrix: {n: 4}\n" if "{{ n" in new else "")
    assert text != GOOD
    found = messages(tmp_path, text)
    assert len(found) == len(expected), found
    assert all(any(message.startswith(start) for message in found) for start in expected), found


STRANGE = [None, True, 0, -1, 1.5, "", "x", "{{ x }}", [], ["x"], [[]], {}, {"x": 1}, {"when": {}}]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ():
        yield (*path, key)
        yield from places(item, (*path, key))


def mutated(data: Any, rng: random.Random) -> Any:
    """Return a copy in which one value is another, or is missing."""
    copied = copy.deepcopy(data)
    path = rng.choice(list(places(copied)))
    above = copied
    for key in path[:-1]:
        above = above[key]
    if rng.random() < 0.3:
        del above[path[-1]]
    else:
        above[path[-1]] = rng.choice(STRANGE)
    return copied


OTHER_SEEDS = pytest.mark.nightly(reason="forty more mutations each; two seeds are tested by every run of the tests")


@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(seed, marks=OTHER_SEEDS) for seed in (2, 3))])
def test_single_form_error_in_shipped_spec_is_reported_alone(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    specs = [
        path
        for path in sorted(folder("specs").glob("*/*.yaml"))
        if not path.name.startswith("_") and path.parent.name not in ("profiles", "offline")
    ]
    count = 0
    while count < 40:
        path = rng.choice(specs)
        data = mutated(read(path).data, rng)
        wrong = schema.describe(data, "spec")
        if not wrong or len(set(data) & SPEC.keys) < 2:
            continue
        count += 1
        above = path.parent / "_defaults.yaml"
        (tmp_path / "_defaults.yaml").write_bytes(above.read_bytes() if above.exists() else b"tags: [none]\n")
        (tmp_path / "spec.yaml").write_text(yaml.safe_dump(data, sort_keys=False))
        expected = {message for _, message, _, _ in wrong}
        found = {problem.message for problem in inspect([tmp_path / "spec.yaml"]).problems}
        assert found <= expected, (path.name, found - expected, (tmp_path / "spec.yaml").read_text())
        assert found
