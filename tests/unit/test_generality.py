"""What is looked for in a text and found in any text is refused; what names something is not."""

from typing import Any

import pytest

from runner.model.matching.filecheck import parse
from runner.model.matching.patterns import are_general, is_general_pattern
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.expectations.expectation_base import BadExpectation


@pytest.mark.parametrize("pattern", ["e", ".", ".+", "[a-z]", r"\w+", r"\d+", r"\S", "a|woof", r"\w\w", "[^x]+"])
def test_a_pattern_of_any_character_is_general(pattern: str) -> None:
    assert is_general_pattern(pattern)


@pytest.mark.parametrize("pattern", ["woof", r"^\d+ kernels$", "size=.4.", "(size|dtype) mismatch", r"at .5.: 0\.0", "(a+)+$b"])
def test_a_pattern_with_a_word_is_not(pattern: str) -> None:
    assert not is_general_pattern(pattern)


@pytest.mark.parametrize("checks", ["CHECK: e", "CHECK: {{.*e.*}}", "CHECK: a\nCHECK: b", "CHECK: (\nCHECK-NOT: woof", "CHECK: {{[0-9]}}"])
def test_directives_of_single_characters_are_general(checks: str) -> None:
    assert are_general(parse(checks))


@pytest.mark.parametrize("checks", ["CHECK: mm", "CHECK: a\nCHECK: relu", "CHECK: def {{.*}}(", "CHECK: {{add|sub}}", "CHECK: buf0 = a"])
def test_directives_with_one_that_names_something_are_not(checks: str) -> None:
    assert not are_general(parse(checks))


@pytest.mark.parametrize(
    ("kind", "body", "path"),
    [
        ("log", {"contains": "e"}, ("contains",)),
        ("log", {"contains": ["woof", "."]}, ("contains", 1)),
        ("log", {"contains": "woof", "matches": "."}, ("matches",)),
        ("exit", {"nonzero": True, "stderr": "e"}, ("stderr",)),
        ("exit", {"code": 1, "stderr": ["woof", ":"]}, ("stderr", 1)),
        ("filecheck", "CHECK: e", ()),
        ("filecheck", {"code": "all", "checks": "CHECK: ="}, ("checks",)),
        ("graph", {"stage": "joint", "checks": "CHECK: e"}, ("checks",)),
        ("graph_breaks", {"reason": {"contains": "a"}}, ("reason", "contains")),
    ],
)
def test_the_expectation_is_refused_at_its_place(kind: str, body: Any, path: Any) -> None:
    with pytest.raises(BadExpectation, match="cannot fail") as caught:
        EXPECTATIONS[kind].parse(body)
    assert caught.value.path == path
    assert caught.value.hint


def test_a_value_may_have_one_character() -> None:
    assert EXPECTATIONS["text"].parse({"of": "found", "contains": "1"})
    assert EXPECTATIONS["exit"].parse({"code": 0, "stdout": "7"})
