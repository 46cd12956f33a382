"""A compiler other than Inductor: which cases of the specs that it joins it runs, and what it does
not claim.
"""

from datetime import date
from pathlib import Path

import pytest

from tests.conftest import LoadSuite
from tests.fakes import HERE
from torch_conformance.cli.list import causes_of
from torch_conformance.judge.waiving import Waivers, apply
from torch_conformance.language.backends import load_backends
from torch_conformance.language.expand import surroundings_for
from torch_conformance.language.load import load
from torch_conformance.language.waivers import load_waivers
from torch_conformance.model.diagnostics import InvalidSpecs
from torch_conformance.model.expectation import Status, Verdict
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import Judged

OTHER = """\
other:
  summary: Another compiler
  joins: [cpu]
  device: cpu
  compile: {{backend: other}}
  proof: {{served: {{min: 0.8, allow: [aten.mm]}}}}
{}"""
PLAIN = """\
summary: A product is right
backends: [cpu]
function: "def fn(x): return x @ x"
inputs: [{rand: [4, 4]}]
"""
BACKWARD = (
    "steps: [{call: {}, expect: [{close: {to: eager}}]}, {backward: {}, expect: [{close: {to: "
    "eager}}]}]\n"
)
CLOSE = "expect: [{close: {to: eager}}]\n"


def reasons(load_suite: LoadSuite, spec: str, claims: str = "") -> list[str]:
    """Return why the other compiler does not run the one case of a spec, a reason each; the same
    spec runs on Inductor.
    """
    cases = {
        case.backend: case for case in load_suite(PLAIN + spec, backends=OTHER.format(claims)).cases
    }
    assert not cases["cpu"].missing_names
    return list(cases["other"].missing_names)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (CLOSE, []),
        (
            "expect: [{close: {to: eager}}, {strides: {contiguous: true}}, {deterministic: "
            "{runs: 2}}]\n",
            [],
        ),
        (
            "expect: [{close: {to: eager}}, {counter: {stats.unique_graphs: 1}}, "
            "{graph_breaks: {count: 0}}]\n",
            [],
        ),
        ("config: {fallback_random: true}\n" + CLOSE, []),
        ("dynamo_config: {capture_scalar_outputs: true}\n" + CLOSE, []),
        (
            "expect: [{close: {to: eager}}, {counter: {inductor.fxgraph_cache_miss: 1}}]\n",
            ["counter (line 5)"],
        ),
        ("expect: [{close: {to: eager}}, {served: all}]\n", ["served (line 5)"]),
        ("expect: [{close: {to: eager}}, {residue: [aten.mm]}]\n", ["residue (line 5)"]),
        (
            "expect: [{close: {to: eager}}, {metric: {generated_kernel_count: 1}}]\n",
            ["metric (line 5)"],
        ),
        ('expect: [{filecheck: "CHECK: cpp_fused_mm"}]\n', ["filecheck (line 5)"]),
        ("config: {freezing: true}\n" + CLOSE, ["config.freezing (line 5)"]),
        ("compile: {mode: max-autotune}\n" + CLOSE, ["compile.mode (line 5)"]),
    ],
)
def test_words_about_inductor_make_a_joined_case_unavailable(
    load_suite: LoadSuite, spec: str, words: list[str]
) -> None:
    assert reasons(load_suite, spec) == [
        f"{word} is about Inductor, and other compiles with other" for word in words
    ]


def test_a_joined_spec_with_a_compiler_of_its_own_stops_nothing(load_suite: LoadSuite) -> None:
    assert len(reasons(load_suite, "compile: {backend: aot_eager}\n" + CLOSE)) == 1


@pytest.mark.parametrize(
    ("spec", "claims", "what"),
    [
        (BACKWARD, "", None),
        (BACKWARD, "  trains: false\n", "gradients (line 5)"),
        ("compile: {dynamic: true}\n" + CLOSE, "  trains: false\n", None),
        ("compile: {dynamic: true}\n" + CLOSE, "  dynamic: false\n", "dynamic shapes"),
        (CLOSE, "  dtypes: [float32]\n", None),
        (CLOSE, "  dtypes: [int64]\n", "the dtype float32"),
        (
            CLOSE.replace("expect", "let: {other: {rand: [2], dtype: float16}}\nexpect"),
            "  dtypes: [float32, float16]\n",
            None,
        ),
        (
            CLOSE.replace("expect", "let: {other: {rand: [2], dtype: float16}}\nexpect"),
            "  dtypes: [float32]\n",
            "the dtype float16",
        ),
    ],
)
def test_what_a_compiler_does_not_claim_is_unavailable(
    load_suite: LoadSuite, spec: str, claims: str, what: str | None
) -> None:
    assert reasons(load_suite, spec, claims) == (
        [] if what is None else [f"not claimed by other: {what}"]
    )


def test_a_compiler_that_does_not_train_is_compared_forward_alone(load_suite: LoadSuite) -> None:
    cases = load_suite(PLAIN + CLOSE, backends=OTHER.format("  trains: false\n")).cases
    assert {case.backend: case.body.context for case in cases} == {"cpu": (), "other": ("no_grad",)}


BY_ATEN = "observed 0% of 8 operators; by ATen: aten.add"
RAISED = "expected sample 0: no exception, observed E in phase 'trace': broken"


@pytest.mark.parametrize(
    ("operator", "outcome", "kind", "message", "by_aten", "expected"),
    [
        ("add", Outcome.FELL_BACK, "proof", BY_ATEN, {"aten.add": 1}, Outcome.XFAIL),
        # a gap that is none any more, and one that the entry allows
        ("add", Outcome.PASS, "close", "", {}, Outcome.XPASS),
        ("add", Outcome.PASS, "close", "", {"aten.add": 1}, Outcome.PASS),
        # another failure than the known one
        ("add", Outcome.FAIL, "close", "observed 2", {}, Outcome.FAIL),
        ("abs", Outcome.FAIL, "close", "observed 2", {}, Outcome.XFAIL),
        ("abs", Outcome.FAIL, "close", RAISED, {}, Outcome.FAIL),
        ("mul", Outcome.FAIL, "close", RAISED, {}, Outcome.XFAIL),
        ("mul", Outcome.FAIL, "close", "observed 2", {}, Outcome.FAIL),
        ("mul", Outcome.FELL_BACK, "proof", BY_ATEN, {"aten.mul": 1}, Outcome.FELL_BACK),
        # what no line names, and another type
        ("sin", Outcome.FELL_BACK, "proof", BY_ATEN, {"aten.sin": 1}, Outcome.FELL_BACK),
    ],
)
def test_a_known_gap_fails_as_expected_and_in_no_other_way(
    tmp_path: Path,
    operator: str,
    outcome: Outcome,
    kind: str,
    message: str,
    by_aten: dict[str, int],
    expected: Outcome,
) -> None:
    (tmp_path / "e.yaml").write_text(
        "float32: {by-aten: [add], wrong: {abs: '#7'}, raised: {mul: '#8'}}\n"
        "int64: {by-aten: [sin]}\n"
    )
    (tmp_path / "b.yaml").write_text(OTHER.format("  expected: e.yaml\n"))
    source = "source: {opinfo: {dtypes: [float32], operators: core, samples: 8}}\n"
    (tmp_path / "s.yaml").write_text(PLAIN.partition("function")[0] + source + CLOSE)
    suite = load([tmp_path / "s.yaml"], [tmp_path / "b.yaml"])
    (case,) = [
        case for case in suite.cases if case.backend == "other" and case.params["op"] == operator
    ]
    status = Status.HELD if outcome is Outcome.PASS else Status.FAILED
    verdict = Verdict(kind=kind, status=status, expected="right", observed=message)
    judged = Judged(
        outcome=outcome,
        reason=message,
        failure_type="",
        position=case.position,
        verdicts=(verdict,),
        by_aten=by_aten,
        eager_operators=8,
    )
    waivers = Waivers(load_waivers((), suite.backends), date(2026, 11, 28))
    around = surroundings_for(suite.backends.by_name["other"], HERE)
    assert apply(judged, case, around, waivers).outcome is expected


@pytest.mark.parametrize("compiler", ["other", "inductor"])
def test_operators_that_the_file_of_claims_does_not_name_are_not_claimed(
    tmp_path: Path, compiler: str
) -> None:
    (tmp_path / "claims.yaml").write_text('float32: [add, "ab*"]\nint64: [add]\n')
    (tmp_path / "b.yaml").write_text(
        OTHER.format("  claims: claims.yaml\n").replace("backend: other", f"backend: {compiler}")
    )
    source = "source: {opinfo: {dtypes: [float32, int64, float16], operators: core}}\n"
    (tmp_path / "s.yaml").write_text(PLAIN.partition("function")[0] + source + CLOSE)
    suite = load([tmp_path / "s.yaml"], [tmp_path / "b.yaml"])
    cases = [case for case in suite.cases if case.backend == "other"]
    claimed = {
        (case.params["op"], case.params["dtype"]) for case in cases if not case.missing_names
    }
    assert claimed == {("add", "float32"), ("abs", "float32"), ("add", "int64")}
    unclaimed = {
        (f"not claimed by other: the operator in {dtype}",)
        for dtype in ("float32", "int64", "float16")
    }
    assert {case.missing_names for case in cases if case.missing_names} == unclaimed
    assert suite.backends.by_name["other"].claims.file.path.name == "claims.yaml"


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        (
            "float32: [add, addd]\n",
            "claims.yaml:1:16",
            "no operator 'addd' (ids have it after op=, such as add)",
        ),
        ("int64: [aten.mm]\n", "claims.yaml:1:9", "such as mm)"),
        ("float32: [add]\nflaot64: [add]\n", "claims.yaml:2:1", "did you mean 'float64'?"),
        ("float32: []\n", "claims.yaml:1:10", "is empty"),
        ("", "claims.yaml:1:1", "the file is empty"),
        (None, "b.yaml:7:11", "no such file: claims.yaml"),
    ],
)
def test_what_is_wrong_with_claims_has_its_place(
    tmp_path: Path, text: str | None, place: str, words: str
) -> None:
    (tmp_path / "b.yaml").write_text(OTHER.format("  claims: claims.yaml\n"))
    if text is not None:
        (tmp_path / "claims.yaml").write_text(text)
    with pytest.raises(InvalidSpecs) as raised:
        load_backends([tmp_path / "b.yaml"])
    (problem,) = map(str, raised.value.diagnostics)
    assert place in problem
    assert words in problem


@pytest.mark.parametrize(
    ("gradients", "claimed"), [("true", True), ("false", True), ("required", False)]
)
def test_operators_whose_gradients_are_required_are_for_compilers_that_train(
    load_suite: LoadSuite, gradients: str, claimed: bool
) -> None:
    source = f"source: {{opinfo: {{dtypes: [float32], operators: core, gradients: {gradients}}}}}\n"
    cases = load_suite(
        PLAIN.partition("function")[0] + source + CLOSE, backends=OTHER.format("  trains: false\n")
    ).cases
    assert {case.missing_names for case in cases if case.backend == "other"} == {
        () if claimed else ("not claimed by other: gradients (line 3)",)
    }


ENTRY = """\
other:
  summary: Another compiler
  device: cpu
  module: json.tool
  compile: {backend: other}
  proof: {served: all}
"""


def test_an_entry_asks_for_its_compiler_and_says_whether_its_module_forks(
    load_suite: LoadSuite,
) -> None:
    spec = PLAIN.replace("[cpu]", "[other]") + CLOSE
    (case,) = load_suite(spec, backends=ENTRY + "  fork: false\n").cases
    assert [(need.name, need.argument) for need in case.requires] == [
        ("compiler", "other@json.tool")
    ]
    assert (case.module, case.body.isolation) == ("json.tool", "process")
    (case,) = load_suite(spec, backends=ENTRY).cases
    assert case.body.isolation == "case"


@pytest.mark.parametrize(
    ("old", "new", "place", "near"),
    [
        ("json.tool", "json.toool", (4, 11), "tool"),
        ("compile: {backend: other}", "compile: {dynamic: false}", (4, 11), "compiler"),
        ("served: all", "calls: {of: json.decoder.JSONDecodr}", (6, 23), "JSONDecoder"),
        pytest.param(
            "served: all",
            "served: {allow: [aten.mm, aten.addmn]}",
            (6, 37),
            "aten.addm",
            marks=pytest.mark.torch,
        ),
    ],
)
def test_what_is_wrong_with_an_entry_has_its_place(
    tmp_path: Path, old: str, new: str, place: tuple[int, int], near: str
) -> None:
    (tmp_path / "b.yaml").write_text(ENTRY.replace(old, new))
    with pytest.raises(InvalidSpecs) as raised:
        load_backends([tmp_path / "b.yaml"])
    (problem,) = raised.value.diagnostics
    assert (problem.position.line, problem.position.column) == place
    assert near in problem.hint


@pytest.mark.torch
@pytest.mark.parametrize(
    "body",
    [
        "residue: [aten.sorrt]",
        "served: {allow: [aten.sorrt]}",
        "residue: {operators: [aten.sorrt]}",
    ],
)
def test_an_unknown_operator_of_a_spec_has_its_place(load_suite: LoadSuite, body: str) -> None:
    line = f"expect: [{{close: {{to: eager}}}}, {{{body}}}]"
    with pytest.raises(InvalidSpecs) as raised:
        load_suite(f"{PLAIN}{line}\n")
    (problem,) = raised.value.diagnostics
    assert (problem.position.line, problem.position.column) == (5, line.index("aten") + 1)
    assert "aten.sort" in problem.hint


def test_list_groups_reasons_by_cause() -> None:
    word, claim = "{} (line {}) is about Inductor, and x compiles with y", "not claimed by x: {}"
    reasons = [
        f"{word.format('config.freezing', 6)}; {word.format('counter', 9)}",
        f"{word.format('config.cpp.simdlen', 7)}; {word.format('config.freezing', 7)}",
        f"the spy lowered is about Inductor, and x compiles with y; {claim.format('gradients')}",
        *(claim.format(f"gradients (line {line})") for line in (5, 7)),
        "compile of specs/a.yaml:19:11 is its own",
        "no torch",
    ]
    assert list(causes_of(reasons)) == [
        ("a word of the spec is about Inductor, and x compiles with y", 3),
        ("not claimed by x: gradients", 2),
        ("compile is its own", 1),
        ("no torch", 1),
    ]
