"""The sample of upstream tests: it is what the rule draws, and the page, the specs and the totals agree. No test imports torch."""

import json
import re
from hashlib import sha256

from tests.fakes import ROOT

PAGE = (ROOT / "docs" / "reference" / "upstream-sample.md").read_text("utf-8")
SAMPLE = json.loads((ROOT / "tests" / "data" / "upstream_sample.json").read_text("utf-8"))
SPECS = ROOT / "specs" / "upstream"
ROW = re.compile(r"^\| `(?P<test>\S+)` \| (?P<said>whole|in part) \| (?P<specs>[^|]*) \| (?P<ran>cpu|) ?\| (?P<note>.*) ?\|$", re.MULTILINE)
EACH = 20
"""How many files are drawn of each folder."""


def rows() -> list[dict[str, str]]:
    return [found.groupdict() for found in ROW.finditer(PAGE)]


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def drawn(folder: str) -> list[str]:
    """Return the tests that the rule draws of a folder, as FOLDER/FILE::NAME, in the order of the page."""
    paths = sorted((f"test/{folder}/test_{name}.py" for name in SAMPLE["files"][folder]), key=digest)[:EACH]
    candidates = SAMPLE["tests"]
    names = {path: [f"test_{name}" for name in candidates[f"{folder}/{path.split('/test_')[1].removesuffix('.py')}"]] for path in paths}
    return [f"{path.removeprefix('test/')}::{min(names[path], key=lambda name, path=path: digest(f'{path}::{name}'))}" for path in paths]


def restated() -> dict[str, str]:
    """Return the test that each spec names in its second line."""
    found = {path.stem: path.read_text("utf-8").splitlines()[1] for path in SPECS.glob("[!_]*.yaml")}
    assert all(line.startswith("# restates ") for line in found.values())
    return {spec: line.removeprefix("# restates ") for spec, line in found.items()}


def test_the_sample_is_what_the_rule_draws() -> None:
    # without the class, which is no part of the rule
    assert [re.sub(r"::\w+::", "::", row["test"]) for row in rows()] == [*drawn("dynamo"), *drawn("inductor")]


def test_each_spec_stands_in_the_row_of_its_test() -> None:
    of_page = {spec: row["test"] for row in rows() for spec in re.findall(r"`([^`]+)`", row["specs"])}
    assert of_page == restated()


def test_the_totals_are_those_of_the_rows() -> None:
    whole = [row for row in rows() if row["said"] == "whole"]
    assert f"**{len(whole)} of {len(rows())} are said whole, {len(rows()) - len(whole)} in part**" in PAGE
    assert len(whole) >= 36


def test_a_test_that_is_said_in_part_has_a_reason_and_a_whole_one_a_spec() -> None:
    assert [row["test"] for row in rows() if not (row["specs"] if row["said"] == "whole" else row["note"])] == []


def test_no_spec_has_free_python() -> None:
    assert [path.stem for path in SPECS.glob("[!_]*.yaml") if "script:" in path.read_text("utf-8")] == []
