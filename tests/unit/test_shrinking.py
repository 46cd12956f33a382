"""``shrink`` without torch: a case as a document, the edits that are proposed, the search, and what is the same failure."""

import ast
import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from runner.core.expectation import Judgement
from runner.core.outcomes import Outcome
from runner.core.results import Verdict, result_of
from runner.language.load import load
from runner.plan.case_document import Document, document_of, text_of
from runner.run.shrinking.code_edits import expressions, inlined, parameters, statements, without_passes
from runner.run.shrinking.edits import PASSES, applied
from runner.run.shrinking.search import OutOfBudget, Search
from runner.run.shrinking.signature import signature_of
from tests.fakes import HERE, case, place
from tests.repro_cases import rows

FN = "def fn(x, y):\n    a = torch.relu(x) + y\n    b = a.cos()\n    return b * 2\n"


def document(**changes: Any) -> Document:
    """Return a document with a bit of everything."""
    return {
        "summary": "A planted failure",
        "backends": ["cpu"],
        "config": {"max_autotune": False, "epilogue_fusion": True},
        "torch": {"seed": 3},
        "function": FN,
        "inputs": [{"randn": [64, 32], "requires_grad": True}, {"randn": [64, 32]}],
        "steps": [
            {"call": {}, "expect": [{"close": {"to": "eager"}}, {"counter": {"a.b": 1, "c.d": 2}}]},
            {"reset": ["dynamo"]},
            {"call": {"as": "second"}, "expect": [{"runs": {}}]},
        ],
        **changes,
    }


# -- documents ---------------------------------------------------------------------------------------------------------


def test_a_document_is_a_spec_with_the_same_case(tmp_path: Path) -> None:
    (tmp_path / "rows").mkdir()
    for word, row in rows().items():
        (tmp_path / "rows" / f"{word.replace('_', '-')}-row.yaml").write_text(row.spec(row.good))
    (tmp_path / "again").mkdir()
    originals = {one.name: one for one in load([tmp_path / "rows"]).cases}
    for name, one in originals.items():
        (tmp_path / "again" / f"{name}.yaml").write_text(text_of(document_of(one, HERE)))
    again = {one.name: one for one in load([tmp_path / "again"]).cases}
    assert again.keys() == originals.keys()
    for name, one in originals.items():
        assert [step.kind for step in again[name].steps] == [step.kind for step in one.steps]
        assert [[e.check for e in step.expectations] for step in again[name].steps] == [
            [e.check for e in s.expectations] for s in one.steps
        ]
        assert list(again[name].body.inputs) == list(one.body.inputs)
        assert again[name].body.settings.config == one.body.settings.config


def test_the_matrix_and_conditions_are_decided(tmp_path: Path) -> None:
    spec = tmp_path / "planted.yaml"
    spec.write_text(
        "summary: A case with conditions\nbackends: [cpu, cuda]\nmatrix: {size: [8, 9], used: [1]}\n"
        "function: |\n  def fn(x):\n      return x + params.used\ninputs: [{ones: ['{{ size }}']}]\n"
        "expect:\n  - counter: {stats.unique_graphs: [{when: {device: cuda}, value: 2}, {value: 1}]}\n"
        "  - close: {to: eager, when: {device: cuda}}\n"
    )
    found = document_of(load([spec]).cases[0], HERE)
    assert found["matrix"] == {"used": [1]}
    assert found["inputs"] == [{"ones": [8]}]
    assert found["steps"] == [{"call": {}, "expect": [{"counter": {"stats.unique_graphs": 1}}]}]
    assert "seed" in found["torch"]


# -- code --------------------------------------------------------------------------------------------------------------


def test_every_statement_can_go_and_the_rest_is_python() -> None:
    found = statements("def helper():\n    return 1\n\n\n" + FN)
    assert [one.words for one in found][:2] == ["without 'def helper():'", "without 'return 1'"]
    for one in found:
        ast.parse(without_passes(one.within("def helper():\n    return 1\n\n\n" + FN)))
    assert not any(one.words == "without 'def fn(x, y):'" for one in statements(FN)), "the only function of a block stays"


def test_a_call_becomes_one_of_its_parts() -> None:
    words = {one.words for one in expressions(FN)}
    assert {"'x' for 'torch.relu(x)'", "'a' for 'a.cos()'", "'b' for 'b * 2'", "'y' for 'torch.relu(x) + y'"} <= words
    for one in expressions(FN):
        ast.parse(one.within(FN))


def test_a_name_that_is_used_once_becomes_its_value() -> None:
    one, two = inlined(FN)
    assert one.words == "'torch.relu(x) + y' for the name a"
    assert without_passes(one.within(FN)) == "def fn(x, y):\n    b = (torch.relu(x) + y).cos()\n    return b * 2\n"
    assert without_passes(two.within(FN)) == "def fn(x, y):\n    a = torch.relu(x) + y\n    return a.cos() * 2\n"
    (whole,) = inlined("def fn(x, y):\n    b = x * y\n    return b\n")
    assert without_passes(whole.within("def fn(x, y):\n    b = x * y\n    return b\n")) == "def fn(x, y):\n    return x * y\n"


@pytest.mark.parametrize(
    "body",
    [
        "    b = x * y\n    return b + b\n",
        "    b = x\n    b = b + 1\n    return 3\n",
        "    b, c = x\n    return b\n",
        "    x = x + 1\n    return y\n",
        "    for i in x:\n        b = y\n    return x\n",
        "    def inner():\n        return b\n    b = x\n    return inner()\n",
    ],
)
def test_a_name_with_another_number_of_uses_stays(body: str) -> None:
    assert inlined(f"def fn(x, y):\n{body}") == []


def test_the_code_that_options_name_keeps_its_expressions() -> None:
    prelude = "def planted(graph):\n    return graph.find(1)\n\n\ndef helper(x):\n    return x.cos()\n"
    changed = document(prelude=prelude, config={"post_grad_custom_post_pass": {"ref": "planted"}}, context=[{"ref": "planted.inner"}])
    (found,) = [one for one in PASSES if one.name == "expressions"]
    words = [edit.words for edit in found.propose(changed) if edit.words.startswith("prelude")]
    assert words == ["prelude: 'x' for 'x.cos()'"]


def test_a_parameter_goes_with_its_comma() -> None:
    assert [one.within(FN).splitlines()[0] for one in parameters(FN, None)] == ["def fn(y):", "def fn(x):"]
    assert parameters(FN, "other") == []
    assert parameters("def fn(:\n", None) == []


# -- edits -------------------------------------------------------------------------------------------------------------


def test_every_pass_proposes_edits_that_leave_a_document() -> None:
    for one in PASSES:
        proposed = one.propose(document())
        if one.name != "keys of inputs":
            assert proposed, one.name
        for edit in proposed:
            made = applied(document(), [edit])
            assert made != document(), edit.words
            assert text_of(made)
    assert [one.name for one in PASSES][:2] == ["steps", "expectations"]


# -- the search --------------------------------------------------------------------------------------------------------


def shrunk(needs: Callable[[Document], bool], start: Document | None = None) -> tuple[Document, int]:
    made = 0

    def attempt(candidate: Document) -> bool:
        nonlocal made
        made += 1
        return needs(candidate)

    return Search(start or document(), attempt).run(), made


def test_only_what_the_failure_needs_is_left() -> None:
    def fails(candidate: Document) -> bool:
        return "cos" in candidate["function"] and any("close" in one for step in candidate["steps"] for one in step.get("expect", []))

    found, made = shrunk(fails)
    assert [next(iter(step)) for step in found["steps"]] == ["call"]
    assert found["steps"][0]["expect"] == [{"close": {"to": "eager"}}]
    assert "config" not in found
    assert found["torch"] == {"seed": 3}
    assert "relu" not in found["function"]
    assert made < 80


def test_sizes_become_small_together_where_they_must_agree() -> None:
    def fails(candidate: Document) -> bool:
        shapes = [one["randn"] for one in candidate["inputs"]]
        return len(shapes) == 2 and shapes[0] == shapes[1] and len(shapes[0]) == 2 and shapes[0][0] >= 4

    found, _ = shrunk(fails)
    assert [one["randn"] for one in found["inputs"]] == [[4, 1], [4, 1]]


def test_the_search_is_deterministic_and_tries_nothing_twice() -> None:
    seen: list[str] = []

    def fails(candidate: Document) -> bool:
        seen.append(text_of(candidate))
        return "fn" in candidate.get("function", "")

    first = Search(document(), fails).run()
    again = [*seen]
    seen.clear()
    assert Search(document(), fails).run() == first
    assert seen == again
    assert len(set(seen)) == len(seen)


@pytest.mark.parametrize(
    ("error", "why"), [(OutOfBudget("--tries 3 are made"), "--tries 3 are made"), (KeyboardInterrupt(), "interrupted")]
)
def test_the_best_so_far_is_kept_when_the_search_ends_early(error: BaseException, why: str) -> None:
    made = 0

    def attempt(candidate: Document) -> bool:
        nonlocal made
        made += 1
        if made == 3:
            raise error
        return made == 2

    search = Search(document(), attempt)
    found = search.run()
    assert search.ended == why
    assert len(found["steps"]) < 3
    assert found == search.best


# -- what is the same failure ------------------------------------------------------------------------------------------


def failing(kind: str = "close", expected: str = "output within 2 x eager's error", observed: str = "1", **changes: Any) -> Any:
    verdict = Verdict.of(Judgement.failed(expected=expected, observed=observed), kind=kind, position=place(3))
    found = result_of(case(), Outcome.FAIL, "reason", kind, verdicts=(verdict,))
    return dataclasses.replace(found, **changes)


def also_with_side_effects() -> Any:
    one = failing()
    effect = Verdict.of(Judgement.failed(expected="output is memory of its own", observed="x"), kind="side-effects", position=place(3))
    return dataclasses.replace(one, verdicts=(*one.verdicts, effect))


def test_observed_values_places_and_numbers_do_not_count() -> None:
    one = signature_of(failing(expected="output[0] within 2 x eager's error", observed="error of 7"))
    assert one == signature_of(failing(expected="output within 2 x eager's error", observed="error of 9"))
    assert signature_of(failing("strides", "output[0] with strides [64, 1]")) == signature_of(
        failing("strides", "output[1] with strides [8, 1]")
    )


@pytest.mark.parametrize(
    "other",
    [
        failing("counter", "stats.unique_graphs 2"),
        failing(expected="output of shape [3]"),
        failing(outcome=Outcome.ERROR),
        failing("raised", "no exception", "builtins.KeyError in phase 'lower': planted"),
        also_with_side_effects(),
    ],
)
def test_another_expectation_another_outcome_or_another_form_is_another_failure(other: Any) -> None:
    assert signature_of(other) not in (None, signature_of(failing()))


@pytest.mark.parametrize("kind", ["raised", "raises"])
def test_an_error_that_dynamo_wraps_is_known_by_what_it_wraps(kind: str) -> None:
    def wrapped(text: str) -> Any:
        observed = "torch._dynamo.exc.TorchRuntimeError: RuntimeError when making fake tensor call"
        detail = f"Traceback (most recent call last):\n  Explanation: Dynamo failed to run FX node: got {text}\n  Hint: ..."
        verdict = Verdict.of(Judgement.failed(expected="ValueError", observed=observed, detail=detail), kind=kind, position=place(3))
        return signature_of(dataclasses.replace(failing(kind), verdicts=(verdict,)))

    assert wrapped("RuntimeError('size (3x4)')") == wrapped("RuntimeError('size (8x7)')")
    assert wrapped("RuntimeError('size (3x4)')") != wrapped("RuntimeError('a must be 2D')")


# -- the command -------------------------------------------------------------------------------------------------------


class Place:
    """Stands for the trials of a search that finds nothing smaller."""

    def __init__(self, *given: Any) -> None:
        self.made = 1
        self.best = document()

    def __enter__(self) -> "Place":
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to end."""

    def __call__(self, candidate: Document) -> bool:
        return True

    def here(self, one: Any) -> None:
        """Return no machine."""

    def run(self) -> None:
        """Find nothing smaller."""
