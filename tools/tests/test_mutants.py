"""Mutants of a source are found, made and planted as they are named; nothing here imports torch."""

import ast
import gc
import importlib
import sys
from collections import Counter

import pytest

from tests.fakes import ROOT
from tools.mutants import choosing
from tools.mutants.__main__ import chosen_cases, parser
from tools.mutants.choosing import Alone, Tried, claiming, reached, record_lines, recorded
from tools.mutants.named import (
    KINDS_OF_SURVIVORS,
    SURVIVED_IN,
    Named,
    minor,
    missing,
    survivors,
    torch_version,
)
from tools.mutants.operators import difference, mutants, mutated, only, sample
from tools.planting import noting, plant_mutant
from torch_conformance.model.outcomes import Outcome

SPECS = ROOT / "specs"

SOURCE = '''
"""A module."""
LIMIT = 3


def small(x, limit=LIMIT):
    """Return whether it is small."""
    if x is None:
        return False
    log.debug("seen %s", 7)
    assert x > 1, "text"
    total = sorted([x], reverse=True)
    total.append(x)
    return x < limit and not total[0] == 5


class Box:
    def __repr__(self):
        return "box" if 1 else ""

    def grow(self, by):
        def inner(k):
            return k + 1

        self.size = inner(by) if by else 0
        return self.size
'''


def test_each_kind_of_change_is_found_and_texts_are_left_alone() -> None:
    found = [(mutant.kind, mutant.function, mutant.line) for mutant in mutants("m", SOURCE)]
    assert found == [
        ("drop-guard", "small", 8),
        ("compare", "small", 8),
        ("drop-argument", "small", 12),
        ("constant", "small", 12),
        ("drop-statement", "small", 13),
        ("and-or", "small", 14),
        ("compare", "small", 14),
        ("not", "small", 14),
        ("compare", "small", 14),
        ("constant", "small", 14),
        ("constant", "small", 14),
        ("constant", "small", 9),
        ("swap-branches", "Box.grow", 25),
        ("constant", "Box.grow", 25),
        ("arithmetic", "Box.grow", 23),
        ("constant", "Box.grow", 23),
    ]


def test_every_mutant_differs_from_the_source_in_its_function_alone() -> None:
    for mutant in mutants("m", SOURCE):
        lines = difference(SOURCE, mutant).splitlines()
        assert {line[0] for line in lines} == {"-", "+"}, mutant
        compile(mutated(ast.parse(SOURCE), mutant.number), "m", "exec")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("drop-guard", ["-    if x is None:", "+    if False:"]),
        (
            "not",
            [
                "-    return x < limit and (not total[0] == 5)",
                "+    return x < limit and (not not total[0] == 5)",
            ],
        ),
        ("drop-argument", ["-    total = sorted([x], reverse=True)", "+    total = sorted([x])"]),
        ("drop-statement", ["-    total.append(x)", "+    pass"]),
    ],
)
def test_a_change_is_what_its_kind_says(kind: str, expected: list[str]) -> None:
    (mutant,) = [one for one in mutants("m", SOURCE) if one.kind == kind]
    assert difference(SOURCE, mutant).splitlines() == expected


FOR_PEOPLE = """
def work(x):
    with dynamo_timed("work", log_compile=True):
        why(x, verbose=True)
    if log.isEnabledFor(10):
        torch._logging.trace_structured("x", flag=True)
    found: int | None = x
    graph.lint(True)
    return found


def log_all(x):
    return x + 1


def debug_str(x):
    return x == 1
"""


def test_what_only_people_read_is_left_alone() -> None:
    assert mutants("m", FOR_PEOPLE) == []


def test_joined_texts_and_lists_are_no_arithmetic() -> None:
    source = "def f(x):\n    return [x] + x, 'a' + x, x + x\n"
    (mutant,) = mutants("m", source)
    assert difference(source, mutant).splitlines()[1] == "+    return ([x] + x, 'a' + x, x - x)"


def test_a_difference_is_that_of_its_number_where_a_name_stands_twice() -> None:
    source = (
        "if x:\n    def f(x):\n        return x == 1\nelse:\n    def f(x):\n        return x == 2\n"
    )
    compares = [mutant for mutant in mutants("m", source) if mutant.kind == "compare"]
    assert [difference(source, mutant).splitlines()[1] for mutant in compares] == [
        "+    return x != 1",
        "+    return x != 2",
    ]


def test_only_the_function_is_compiled_and_keeps_its_name_and_line() -> None:
    tree = only(mutated(ast.parse(SOURCE), 0), "Box.grow")
    assert [type(statement).__name__ for statement in tree.body] == ["ClassDef"]
    (box,) = [code for code in compile(tree, "m", "exec").co_consts if hasattr(code, "co_name")]
    (grow,) = [code for code in box.co_consts if hasattr(code, "co_name")]
    assert (grow.co_qualname, grow.co_firstlineno) == ("Box.grow", 21)


def test_each_module_has_its_share_of_a_sample() -> None:
    found = [*mutants("m", SOURCE), *mutants("n", SOURCE)[:2]]
    assert Counter(one.module for one in sample(found, 3, 1, each=True)) == {"m": 3, "n": 2}


def test_a_sample_is_drawn_by_its_seed() -> None:
    found = mutants("m", SOURCE)
    assert sample(found, 5, 1) == sample(found, 5, 1) != sample(found, 5, 2)
    assert sample(found, 100, 1) == found


def test_no_mutant_has_a_number_beyond_the_last() -> None:
    with pytest.raises(LookupError, match="no mutant 99"):
        mutated(ast.parse(SOURCE), 99)


def test_a_number_that_means_another_change_is_refused() -> None:
    first = mutants("m", SOURCE)[0]
    assert mutated(ast.parse(SOURCE), 0, (first.kind, first.line))
    with pytest.raises(LookupError, match="mutant 0 is drop-guard in line"):
        mutated(ast.parse(SOURCE), 0, ("compare", first.line))


@pytest.fixture
def module(tmp_path, monkeypatch):
    (tmp_path / "made_for_mutants.py").write_text(
        SOURCE.replace('    log.debug("seen %s", 7)\n', "    pass\n")
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(gc, "unfreeze", lambda: None)  # the test process keeps its heap as it is
    monkeypatch.setattr(gc, "freeze", lambda: None)
    yield importlib.import_module("made_for_mutants")
    sys.modules.pop("made_for_mutants")


def test_a_planted_mutant_reaches_references_that_were_taken_before(module, tmp_path) -> None:
    taken, method = module.small, module.Box().grow
    assert (taken(2), method(4)) == (True, 5)
    source = (tmp_path / "made_for_mutants.py").read_text()
    (compare,) = [
        one for one in mutants("made_for_mutants", source) if (one.kind, one.line) == ("and-or", 14)
    ]
    assert plant_mutant("made_for_mutants", compare.number, compare.function) == 1
    assert taken(9) is True
    (inner,) = [
        one
        for one in mutants("made_for_mutants", source)
        if (one.kind, one.line) == ("constant", 23)
    ]
    assert plant_mutant("made_for_mutants", inner.number, inner.function) == 1
    assert (method(4), taken(9)) == (6, True), (
        "a function inside of another is made anew, and the other function stays what it is"
    )


@pytest.mark.usefixtures("module")
def test_a_function_that_is_not_there_is_not_planted() -> None:
    assert plant_mutant("made_for_mutants", 0, "Box.nothing") == 0


def test_lines_are_noted_until_the_end(module) -> None:
    with noting(["made_for_mutants"]) as seen:
        module.small(None)
    module.small(2)
    assert seen == {"made_for_mutants": {6, 8, 9}}, "the line of def too"


def test_a_mutant_is_tried_where_a_case_executes_its_line() -> None:
    found = mutants("m", SOURCE)
    lines = {
        "a/x[b]": Alone(1.0, {"m": frozenset({8, 9})}),
        "a/y[b]": Alone(2.0, {"m": frozenset({25})}),
        "c/z[b]": Alone(9.0, {"n": frozenset({8})}),
    }
    assert {mutant.line: cases for mutant, cases in reached(found, lines).items()} == {
        8: ["a/x[b]"],
        9: ["a/x[b]"],
        25: ["a/y[b]"],
    }


def test_a_mutant_gets_the_cases_that_claim_what_its_function_says(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr(choosing, "source_of", lambda _: SOURCE)
    texts = {
        "a/all": "x < limit",
        "b/grows": "box.grow(by=1)",
        "c/quick": "size",
        "d/none": "y",
        "e/none": "z",
    }
    cases = {name: tmp_path / name.replace("/", "-") for name in texts}
    for name, file in cases.items():
        file.write_text(texts[name], "utf-8")
    lines = {name: Alone(seconds, {}) for seconds, name in enumerate(reversed(texts))}
    (mutant, *_) = [one for one in mutants("m", SOURCE) if one.function == "Box.grow"]
    assert claiming(mutant, list(texts), cases, lines, 3) == ["b/grows", "c/quick", "e/none"], (
        "of equals the quickest"
    )


def test_a_mutant_that_its_first_case_detects_gets_no_other(monkeypatch, tmp_path) -> None:
    first, second, third, *_ = mutants("m", SOURCE)
    asked = []

    def fake(wanted, cases, folder, *, jobs):
        asked.append(dict(wanted))
        for mutant, ids in wanted.items():
            red = mutant is first or ("b" in ids and mutant is second)
            planted = (
                {}
                if (mutant, ids) == (third, ["a"])
                else dict.fromkeys(ids, Outcome.FAIL if red else Outcome.PASS)
            )
            yield Tried(mutant, planted, dict.fromkeys(planted, "why"))

    monkeypatch.setattr(choosing, "tried", fake)
    wanted = {first: ["a", "b"], second: ["a", "b", "c"], third: ["a", "c"]}
    found = {one.mutant: one for one in choosing.in_turns(wanted, {}, tmp_path, jobs=1)}
    assert asked == [
        {first: ["a"], second: ["a"], third: ["a"]},
        {second: ["b", "c"], third: ["c"]},
    ]
    assert {mutant: (one.status, set(one.outcomes)) for mutant, one in found.items()} == {
        first: ("killed", {"a"}),
        second: ("killed", {"a", "b", "c"}),
        third: ("survived", {"c"}),
    }


def test_the_operator_suite_is_left_out_unless_its_cases_are_named(monkeypatch) -> None:
    cases = dict.fromkeys(("basics/x[b]", "operators/y[b]"), SPECS)
    monkeypatch.setattr("tools.mutants.__main__.cases_of", lambda devices: cases)
    named = parser().parse_args(["--case", "operators/y[b]"])
    assert list(chosen_cases(parser().parse_args([]))) == ["basics/x[b]"]
    assert list(chosen_cases(named)) == ["operators/y[b]"]


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        ({}, "not planted"),
        ({"a": Outcome.PASS}, "survived"),
        ({"a": Outcome.PASS, "b": Outcome.ERROR}, "killed"),
        ({"a": Outcome.PASS, "b": Outcome.TIMEOUT}, "timed out"),
        ({"a": Outcome.TIMEOUT, "b": Outcome.FAIL}, "killed"),
    ],
)
def test_what_came_of_a_mutant(outcomes: dict[str, Outcome], status: str) -> None:
    (mutant, *_) = mutants("m", SOURCE)
    assert Tried(mutant, outcomes, {}).status == status


def test_executed_lines_are_read_again_for_the_same_torch_and_modules(
    tmp_path, monkeypatch
) -> None:
    lines = {"a/x[b]": Alone(1.5, {"m": frozenset({3, 4})})}
    file = tmp_path / "lines.json"
    assert recorded(None, ["m"]) == recorded(file, ["m"]) == {}
    record_lines(file, ["m", "n"], lines)
    assert recorded(file, ["n"]) == lines
    assert recorded(file, ["m", "o"]) == {}
    monkeypatch.setattr(choosing, "torch_version", lambda: "1.0")
    assert recorded(file, ["m"]) == {}


def test_a_mutant_of_another_torch_is_excused_and_one_of_this_torch_is_not() -> None:
    gone = Named("torch._inductor.codecache", "gone", "not", "-    not x\n+    x")
    assert missing([gone], minor(torch_version())) == ""
    assert "not in torch" in missing([gone], "1.0")
    assert gone.find() is None


def test_every_survivor_is_classified_once_and_has_a_reason() -> None:
    found = survivors()
    assert len({one.mutant.text for one in found}) == len(found) >= 10
    for one in found:
        assert one.classified in KINDS_OF_SURVIVORS, one.mutant.text
        assert len(one.reason.split()) >= 4, one.mutant.text
        assert not one.claimed_by or list(SPECS.glob(f"{one.claimed_by}.yaml")), one.claimed_by


@pytest.mark.nightly(
    reason="it reads the source of the pinned torch; test_there_are_twenty and the acceptance test "
    "find mutants in it too"
)
def test_every_survivor_is_a_mutant_of_the_torch_that_it_was_found_in() -> None:
    gone = [
        one.mutant for one in survivors() if one.torch == SURVIVED_IN and one.mutant.find() is None
    ]
    if gone and (reason := missing(gone, SURVIVED_IN)):
        pytest.skip(reason)
    assert not gone, [one.text for one in gone]
