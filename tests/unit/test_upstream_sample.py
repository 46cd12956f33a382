"""The sample of upstream tests: it is what the rule draws, and the page, the specs and the totals agree. No test imports torch."""

import json
import re
from hashlib import sha256

import pytest

from tests.fakes import ROOT

PAGE = (ROOT / "docs" / "reference" / "upstream-sample.md").read_text("utf-8")
SAMPLE = json.loads((ROOT / "tests" / "data" / "upstream_sample.json").read_text("utf-8"))
SPECS = ROOT / "specs" / "upstream"
ROW = re.compile(r"^\| `(?P<test>\S+)` \| (?P<said>whole|in part) \| (?P<specs>[^|]*) \| (?P<ran>cpu|) ?\| (?P<note>.*) ?\|$", re.MULTILINE)
FIRST, _, REST = PAGE.partition("## Second draw")
SECOND, _, THIRD = REST.partition("## Third draw")
FILES: dict[str, dict[str, tuple[int, int]]] = {
    "first": {"dynamo": (0, 20), "inductor": (0, 20)},
    "second": {"dynamo": (20, 29), "inductor": (20, 29)},
    "third": {"dynamo": (29, 40), "inductor": (29, 42)},
}
"""Of each draw and folder the index of the first file and of the one after the last."""
DRAWS = [(FIRST, FILES["first"], 37), (SECOND, FILES["second"], 14), (THIRD, FILES["third"], 20)]
"""For each draw the text with its rows, its files, and how many tests are whole at least."""


def rows(text: str = PAGE) -> list[dict[str, str]]:
    return [found.groupdict() for found in ROW.finditer(text)]


def digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()


def drawn(folder: str, first: int, last: int) -> list[str]:
    """Return the tests that the rule draws of some files of a folder, as FOLDER/FILE::NAME, in the order of the page."""
    paths = sorted((f"test/{folder}/test_{name}.py" for name in SAMPLE["files"][folder]), key=digest)[first:last]
    candidates = SAMPLE["tests"]
    names = {path: [f"test_{name}" for name in candidates[f"{folder}/{path.split('/test_')[1].removesuffix('.py')}"]] for path in paths}
    return [
        f"{path.removeprefix('test/')}::{min(names[path], key=lambda name, path=path: digest(f'{path}::{name}'))}"
        for path in paths
        if names[path]
    ]


def restated() -> dict[str, str]:
    """Return the test that each spec names in its second line."""
    found = {path.stem: path.read_text("utf-8").splitlines()[1] for path in SPECS.glob("[!_]*.yaml")}
    assert all(line.startswith("# restates ") for line in found.values())
    return {spec: line.removeprefix("# restates ") for spec, line in found.items()}


@pytest.mark.parametrize(("text", "files", "least"), DRAWS, ids=FILES)
def test_the_sample_is_what_the_rule_draws(text: str, files: dict[str, tuple[int, int]], least: int) -> None:
    # without the class, which is no part of the rule
    found = [re.sub(r"::\w+::", "::", row["test"]) for row in rows(text)]
    assert found == [*drawn("dynamo", *files["dynamo"]), *drawn("inductor", *files["inductor"])]


def test_each_spec_stands_in_the_row_of_its_test() -> None:
    of_page = {spec: row["test"] for row in rows() for spec in re.findall(r"`([^`]+)`", row["specs"])}
    assert of_page == restated()


@pytest.mark.parametrize(("text", "files", "least"), DRAWS, ids=FILES)
def test_the_totals_are_those_of_the_rows(text: str, files: dict[str, tuple[int, int]], least: int) -> None:
    found = rows(text)
    whole = [row for row in found if row["said"] == "whole"]
    assert f"**{len(whole)} of {len(found)} are said whole, {len(found) - len(whole)} in part**" in text
    assert len(whole) >= least


def test_a_test_that_is_said_in_part_has_a_reason_and_a_whole_one_a_spec() -> None:
    assert [row["test"] for row in rows() if not (row["specs"] if row["said"] == "whole" else row["note"])] == []


def test_no_spec_has_free_python() -> None:
    assert [path.stem for path in SPECS.glob("[!_]*.yaml") if "script:" in path.read_text("utf-8")] == []


def test_second_and_third_draw_replace_the_first_sample() -> None:
    found = [*rows(SECOND), *rows(THIRD)]
    assert len(found) == 36
    assert f"**of these {len(found)}, {sum(row['said'] == 'whole' for row in found)} are said whole**" in FIRST
    assert all(len([row for row in found if row["test"].startswith(folder)]) == 18 for folder in ("dynamo/", "inductor/"))


def test_held_out_tests_of_from_python_are_of_the_files_of_the_rule() -> None:
    page = (ROOT / "docs" / "reference" / "from-python-draw.md").read_text("utf-8")
    order = sorted((f"test/dynamo/test_{name}.py" for name in SAMPLE["files"]["dynamo"]), key=digest)[40:]
    counted = re.findall(r"^\| `(test_\w+\.py)` \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", page, re.MULTILINE)
    passed_over = set(re.findall(r"`(test_\w+\.py)`", page.partition("## First group")[2].partition("\n**")[0])) - {
        row[0] for row in counted
    }
    assert [row[0] for row in counted] == [name for path in order if (name := path.rpartition("/")[2]) not in passed_over][:12]
    assert all(int(row[2]) == min(int(row[1]), 10) == sum(map(int, row[3:])) for row in counted)
    totals = [sum(int(row[index]) for row in counted) for index in (2, 3, 4)]
    assert f"**{totals[1] + totals[2]} of {totals[0]} tests are whole (70 %): {totals[1]} as calls, {totals[2]} driven.**" in page
