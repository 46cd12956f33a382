"""``shrink`` without torch: a case as a document, the edits that are proposed, the search, and what
is the same failure.
"""

import dataclasses
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import HERE, case, place
from torch_conformance.cli.parser import parse
from torch_conformance.language.load import load
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.expectation import Verdict
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult, Judged, result_of
from torch_conformance.tools.author.commands import repro
from torch_conformance.tools.author.commands.repro import (
    PASSES,
    Document,
    OutOfBudget,
    ReproOptions,
    Search,
    applied,
    reduced_document_of,
    signature_of,
    text_of,
)

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


# -- documents -------------------------------------------------------------------------------------


HEAD = (
    "summary: A case of one kind\nbackends: [cpu]\nfunction: |\n  def fn(x):\n      return x "
    "+ 1\ninputs: [{ones: [3]}]\n"
)
ROWS = {
    "call-row": "config: {freezing: true}\nexpect: [{close: {to: eager, "
    "atol: 1, rtol: 0}}, {counter: "
    "{inductor.fxgraph_cache_miss: 1}}]\n",
    "text-row": "expect: [{filecheck: {code: all, checks: 'CHECK: tmp0'}}, {runs: {}}, {metric: "
    "{generated_kernel_count: {min: 1}}}]\n",
    "steps-row": "steps:\n  - call: {as: first}\n    expect: [{strides: "
    "{of: first, equals: [1]}}]\n  - "
    "reset: [dynamo]\n"
    "  - call: {as: second}\n    expect: [{close: {of: second, to: first}}]\n",
    "values-row": "let: {y: {ones: [3]}}\nsteps:\n  - api: {call: operator.add, "
    "args: [2, 1], as: z}\n    "
    "expect: [{equals: {z: 3}}]\n"
    "  - call: {}\n    expect: [{close: {to: eager}}]\n",
    "spies-row": "spies: {seen: {graph: before_inner_compile}}\nexpect: "
    "[{calls: {of: seen, count: 1}}, "
    "{close: {to: eager}}]\n",
}
"""Specs without a matrix, of several kinds."""


def test_a_document_is_a_spec_with_the_same_case(tmp_path: Path) -> None:
    for folder in ("rows", "again"):
        (tmp_path / folder).mkdir()
    for name, rest in ROWS.items():
        (tmp_path / "rows" / f"{name}.yaml").write_text(HEAD + rest)
    originals = {case.name: case for case in load([tmp_path / "rows"]).cases}
    assert originals.keys() == ROWS.keys()
    for name, one in originals.items():
        (tmp_path / "again" / f"{name}.yaml").write_text(text_of(reduced_document_of(one, HERE)))
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
        "summary: A case with conditions\nbackends: [cpu, cuda]\nmatrix: {size: [8, 9], used: "
        "[1]}\n"
        "function: |\n  def fn(x):\n      return x + params.used\ninputs: [{ones: ['{{ size "
        "}}']}]\n"
        "expect:\n  - counter: {stats.unique_graphs: [{when: {device: cuda}, value: 2}, "
        "{value: 1}]}\n"
        "  - close: {to: eager, when: {device: cuda}}\n"
    )
    found = reduced_document_of(load([spec]).cases[0], HERE)
    assert found["matrix"] == {"used": [1]}
    assert found["inputs"] == [{"ones": [8]}]
    assert found["steps"] == [{"call": {}, "expect": [{"counter": {"stats.unique_graphs": 1}}]}]
    assert "seed" in found["torch"]


# -- code ------------------------------------------------------------------------------------------


def edits_of(name: str, text: str, **changes: Any) -> dict[str, str]:
    """Return what the edits of a pass make of a function, by their words."""
    (one,) = [one for one in PASSES if one.name == name]
    start = document(function=text, **changes)
    return {
        edit.words.removeprefix("function: "): applied(start, [edit])["function"]
        for edit in one.propose(start)
    }


def test_every_statement_can_go_and_the_rest_is_python() -> None:
    texts = edits_of("statements", "def helper():\n    return 1\n\n\n" + FN)
    assert texts["without 'def helper():'"] == FN
    assert texts["without 'return 1'"].startswith("def helper():\n    pass\n")
    assert texts["without 'b = a.cos()'"].endswith("    a = torch.relu(x) + y\n    return b * 2\n")
    assert "without 'def fn(x, y):'" not in edits_of("statements", FN), (
        "the only function of a block stays"
    )
    assert edits_of("statements", "def fn(:\n") == {}


def test_a_call_becomes_one_of_its_parts() -> None:
    texts = edits_of("expressions", FN)
    assert {
        "'x' for 'torch.relu(x)'",
        "'a' for 'a.cos()'",
        "'b' for 'b * 2'",
        "'y' for 'torch.relu(x) + y'",
    } <= texts.keys()
    assert texts["'x' for 'torch.relu(x)'"] == FN.replace("torch.relu(x)", "x")
    assert edits_of("expressions", "def fn(x):\n    return (x + 1).cos()\n")[
        "'x + 1' for '(x + 1).cos()'"
    ].endswith("return x + 1\n")


def test_the_code_that_options_name_keeps_its_expressions() -> None:
    prelude = (
        "def planted(graph):\n    return graph.find(1)\n\n\ndef helper(x):\n    return x.cos()\n"
    )
    options = {
        "config": {"post_grad_custom_post_pass": {"ref": "planted"}},
        "context": [{"ref": "planted.inner"}],
    }
    words = [
        one
        for one in edits_of("expressions", FN, prelude=prelude, **options)
        if one.startswith("prelude")
    ]
    assert words == ["prelude: 'x' for 'x.cos()'"]


def test_a_parameter_goes_with_its_input() -> None:
    assert [text.splitlines()[0] for text in edits_of("inputs", FN).values()] == [
        "def fn(y):",
        "def fn(x):",
    ]
    assert list(edits_of("inputs", FN, entry="other").values()) == [FN, FN]


# -- edits -----------------------------------------------------------------------------------------


def aliased() -> Document:
    """Return a document with a second name of a value, a dtype and strides."""
    code = "def fn(x):\n    a = x.sin()\n    b = a\n    c = b + b\n    x = c\n    return c, x\n"
    return document(
        function=code, inputs=[{"randn": [4, 2], "dtype": "float64", "strides": [1, 4]}]
    )


def test_second_names_dtypes_and_strides_go() -> None:
    passes = [one for one in PASSES if one.name in ("aliases", "dtypes")]
    smaller = Search(aliased(), lambda _: True).run(passes)
    # x is bound twice: another value may be meant
    code = "def fn(x):\n    a = x.sin()\n    c = a + a\n    x = c\n    return (c, x)\n"
    assert smaller["function"] == code
    assert smaller["inputs"] == [{"randn": [4, 2], "dtype": "float32"}]


def test_every_pass_proposes_edits_that_leave_a_document() -> None:
    for one in PASSES:
        proposed = list(one.propose(mine := aliased()))
        applied(mine, proposed)
        assert mine == aliased()
        assert proposed, one.name
        for edit in proposed:
            made = applied(aliased(), [edit])
            assert made != aliased(), edit.words
            assert text_of(made)
    assert [one.name for one in PASSES][:2] == ["steps", "expectations"]


# -- the search ------------------------------------------------------------------------------------


def test_only_what_the_failure_needs_is_left() -> None:
    def fails(candidate: Document) -> bool:
        return "cos" in candidate["function"] and any(
            "close" in one for step in candidate["steps"] for one in step.get("expect", [])
        )

    found = Search(document(), fails).run()
    assert [next(iter(step)) for step in found["steps"]] == ["call"]
    assert found["steps"][0]["expect"] == [{"close": {"to": "eager"}}]
    assert "config" not in found
    assert found["torch"] == {"seed": 3}
    assert "relu" not in found["function"]


def test_sizes_become_small_together_where_they_must_agree() -> None:
    def fails(candidate: Document) -> bool:
        shapes = [one["randn"] for one in candidate["inputs"]]
        return len(shapes) == 2 and shapes[0] == shapes[1] and shapes[0][0] >= 4

    assert [one["randn"] for one in Search(document(), fails).run()["inputs"]] == [[4, 1], [4, 1]]


def test_the_search_is_deterministic_and_tries_nothing_twice() -> None:
    def tried() -> list[str]:
        seen: list[str] = []

        def fails(candidate: Document) -> bool:
            seen.append(text_of(candidate))
            return "fn" in candidate.get("function", "")

        Search(document(), fails).run()
        return seen

    seen = tried()
    assert seen == tried()
    assert len(seen) == len(set(seen)) < 80


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OutOfBudget("--tries 3 are made"), "--tries 3 are made"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_the_best_so_far_is_kept_when_the_search_ends_early(error: BaseException, why: str) -> None:
    answers = iter([False, True])

    def attempt(candidate: Document) -> bool:
        for answer in answers:
            return answer
        raise error

    search = Search(document(), attempt)
    assert len(search.run()["steps"]) < 3
    assert search.ended == why


# -- what is the same failure ----------------------------------------------------------------------


def failing(
    kind: str = "close",
    expected: str = "output within 2 x eager's error",
    observed: str = "1",
    **changes: Any,
) -> Any:
    verdict = dataclasses.replace(
        Verdict.failed(expected=expected, observed=observed), kind=kind, position=place(3)
    )
    return dataclasses.replace(
        result(Outcome.FAIL, reason="reason", failure_type=kind, verdicts=(verdict,)), **changes
    )


def result(outcome: Outcome, **judged: Any) -> CaseResult:
    known = {"reason": "", "failure_type": "", "position": case().position, **judged}
    return result_of(case(), Judged(outcome=outcome, **known))


def raised(text: str, kind: str = "raised", expected: str = "no exception") -> Any:
    return failing(kind, expected, f"builtins.{text}")


def wrapped(text: str) -> Any:
    detail = (
        "Traceback (most recent call last):\n  Explanation: Dynamo failed to run FX node: got "
        f"{text}\n  Hint: ..."
    )
    judged = Verdict.failed(
        expected="ValueError",
        observed="torch._dynamo.exc.TorchRuntimeError: while tracing",
        detail=detail,
    )
    return failing(verdicts=(dataclasses.replace(judged, kind="raises", position=place(3)),))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (
            failing(expected="output[0] within 2 x eager's error", observed="error of 7"),
            failing(observed="error of 9"),
        ),
        (
            failing("strides", "output[0] with strides [64, 1]"),
            failing("strides", "output[1] with strides [8, 1]"),
        ),
        (
            raised("KeyError in phase 'lower': planted 3"),
            raised("KeyError in phase 'trace': planted 8"),
        ),
        (wrapped("RuntimeError('size (3x4)')"), wrapped("RuntimeError('size (8x7)')")),
    ],
)
def test_observed_values_places_phases_and_numbers_do_not_count(one: Any, other: Any) -> None:
    assert signature_of(one) == signature_of(other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (failing(), failing("counter", "stats.unique_graphs 2")),
        (failing(), failing(expected="output of shape [3]")),
        (failing(), failing(outcome=Outcome.ERROR)),
        (failing(), raised("KeyError in phase 'lower': planted")),
        (
            failing(),
            failing(
                verdicts=(
                    *failing().verdicts,
                    *failing("side-effects", "output is memory of its own").verdicts,
                )
            ),
        ),
        (raised("KeyError in phase 'lower': planted 3"), raised("TypeError in phase 'x': a")),
        (wrapped("RuntimeError('size (3x4)')"), wrapped("RuntimeError('a must be 2D')")),
        (
            raised("KeyError: planted", "raises", "ValueError"),
            raised("IndexError: planted", "raises", "ValueError"),
        ),
    ],
)
def test_another_expectation_outcome_form_or_exception_is_another_failure(
    one: Any, other: Any
) -> None:
    assert signature_of(one) != signature_of(other)


@pytest.mark.parametrize(
    "outcome", [Outcome.PASS, Outcome.UNAVAILABLE, Outcome.NOT_RUN, Outcome.XFAIL]
)
def test_what_does_not_fail_has_no_signature(outcome: Outcome) -> None:
    assert signature_of(result(outcome, reason="why")) is None


# -- the cause of wrong numbers --------------------------------------------------------------------

GRAPH = """\
class GraphModule(torch.nn.Module):
    def forward(self, L_a_: "f32[2, 3][3, 1]cpu"):
        l_a_ = L_a_
        v: "f32[2, 3][3, 1]cpu" = l_a_ + 1;  l_a_ = None
        v_1: "f16[2, 3][3, 1]cpu" = v.index_add(0, arange, v);  v = arange = None
        gt: "b8[2, 3][3, 1]cpu" = v_1 > 0.5
        v_1[gt] = 0.25;  setitem = v_1;  gt = setitem = None
        part: "f16[2, 2][3, 1]cpu" = v_1[(Ellipsis, slice(1, None, None))]
        neg: "f16[2, 3][3, 1]cpu" = -v_1
        gelu: "f16[2, 3][3, 1]cpu" = torch._C._nn.gelu(neg);  neg = None
        again: "f16[2, 3][3, 1]cpu" = torch._C._nn.gelu(gelu)
        return (again, part)
"""
OPERATORS = "+(f32), index_add(f16), >(b8), setitem, getitem(f16), -(f16), gelu(f16)"


@pytest.mark.parametrize(
    ("wrong", "cure"),
    [
        (0, "right with max_fusion_size: 1"),
        (2, "right with decompositions only"),
        (3, "wrong with decompositions only"),
    ],
)
def test_a_cause_is_the_operators_left_and_the_first_switch_that_mends(
    wrong: int, cure: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "runs-0" / "cases" / "00001"
    folder.mkdir(parents=True)
    (folder / "graph-0-dynamo-0.txt").write_text(GRAPH)
    # another backend than inductor leaves a case without the proof of its backend
    mended = result(Outcome.FELL_BACK if wrong == 2 else Outcome.PASS)
    results = [failing(folder="cases/00001")] * wrong + [mended] * (3 - wrong)
    monkeypatch.setattr(Trials, "planned", results)
    trials: Any = Trials()
    trials.folder = tmp_path
    if wrong == 0:
        trials.results[0] = dataclasses.replace(mended, folder="cases/00001")
    assert repro.cause_of(document(), trials) == f"{OPERATORS}; {cure}"
    tried = [(one["config"].get("max_fusion_size"), one.get("compile")) for one in trials.tried]
    backend = {"backend": "aot_eager_decomp_partition"}
    assert tried == [(1, None), (None, None), (None, backend)][: min(wrong + 1, 3)]
    assert all("graph" in trials.tried[0]["steps"][place]["expect"][-1] for place in (0, 2))


# -- the command -----------------------------------------------------------------------------------


class Trials:
    """Stands for the workers: gives planned results, one after the other; the case as a document
    fails as the first one did.
    """

    planned: tuple[Any, ...] = ()

    def __init__(self, *given: Any) -> None:
        self.results = list(self.planned)
        self.tried: list[Document] = []

    def __enter__(self) -> "Trials":
        return self

    def __exit__(self, *error: object) -> None:
        """Nothing to end."""

    def run(self, one: Any) -> Any:
        return self.results.pop(0)

    def surroundings(self, one: Any) -> Any:
        return HERE

    def case_of(self, candidate: Document) -> Any:
        self.tried.append(candidate)
        return case()


def refused(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *results: Any,
    out: str = "new/folder",
    seconds: str = "60",
) -> str:
    """Return why a search is refused."""
    monkeypatch.setattr(Trials, "planned", results)
    monkeypatch.setattr(repro, "Trials", Trials)
    monkeypatch.setattr(repro, "reduced_document_of", lambda *given: document())
    _, options = parse(
        ["repro", "--shrink", "x", "--out", str(tmp_path / out), "--seconds", seconds]
    )
    assert isinstance(options, ReproOptions)
    with pytest.raises(UsageError) as error:
        repro.shrink(case(), None, options, tmp_path, lambda text: None)  # type: ignore[arg-type]  # the stand-in needs no suite
    return str(error.value)


PASSES_AGAIN = result(Outcome.PASS)


@pytest.mark.parametrize(
    ("results", "why"),
    [
        ((PASSES_AGAIN,), "is PASS: only a case that fails can be made smaller"),
        ((failing(), PASSES_AGAIN), "is flaky: FAIL (close), then PASS"),
        ((failing(), failing("counter", "a 1")), "is flaky: FAIL (close), then FAIL (counter)"),
        (
            (failing(), failing(), PASSES_AGAIN),
            "written as a spec of its own, does not fail in the same way",
        ),
    ],
)
def test_what_does_not_fail_twice_alike_is_refused(
    results: tuple[Any, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert why in refused(tmp_path, monkeypatch, *results)
    assert (tmp_path / "new" / "folder").is_dir()


def test_a_budget_that_ends_at_once_and_a_place_that_is_no_folder_are_wrong_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "--seconds 1e-09 are over before the search began" in refused(
        tmp_path, monkeypatch, failing(), failing(), seconds="1e-9"
    )
    (tmp_path / "file").write_text("")
    assert "cannot make the folder" in refused(tmp_path, monkeypatch, out="file/out")
