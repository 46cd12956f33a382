"""A compiler other than Inductor: which cases of the specs that it joins it runs, and what it does not claim."""

import pytest

from tests.conftest import LoadSuite

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
BACKWARD = "steps: [{call: {}, expect: [{close: {to: eager}}]}, {backward: {}, expect: [{close: {to: eager}}]}]\n"
CLOSE = "expect: [{close: {to: eager}}]\n"


def reasons(load_suite: LoadSuite, spec: str, claims: str = "") -> list[str]:
    """Return why the other compiler does not run the one case of a spec, a reason each; the same spec runs on Inductor."""
    cases = {case.backend: case for case in load_suite(PLAIN + spec, backends=OTHER.format(claims)).cases}
    assert not cases["cpu"].missing_names
    return list(cases["other"].missing_names)


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (CLOSE, []),
        ("expect: [{close: {to: eager}}, {strides: {contiguous: true}}, {deterministic: {runs: 2}}, {served: all}]\n", []),
        ("expect: [{close: {to: eager}}, {counter: {stats.unique_graphs: 1}}, {graph_breaks: {count: 0}}]\n", []),
        ("config: {fallback_random: true}\n" + CLOSE, []),
        ("dynamo_config: {capture_scalar_outputs: true}\n" + CLOSE, []),
        ("expect: [{close: {to: eager}}, {counter: {inductor.fxgraph_cache_miss: 1}}]\n", ["counter (line 5)"]),
        ("expect: [{close: {to: eager}}, {metric: {generated_kernel_count: 1}}]\n", ["metric (line 5)"]),
        ('expect: [{filecheck: "CHECK: cpp_fused_mm"}]\n', ["filecheck (line 5)"]),
        ("config: {freezing: true}\n" + CLOSE, ["config.freezing (line 5)"]),
        ("compile: {mode: max-autotune}\n" + CLOSE, ["compile.mode (line 5)"]),
    ],
)
def test_words_about_inductor_make_a_joined_case_unavailable(load_suite: LoadSuite, spec: str, words: list[str]) -> None:
    assert reasons(load_suite, spec) == [f"{word} is about Inductor, and other compiles with other" for word in words]


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
        (CLOSE.replace("expect", "let: {other: {rand: [2], dtype: float16}}\nexpect"), "  dtypes: [float32, float16]\n", None),
    ],
)
def test_what_a_compiler_does_not_claim_is_unavailable(load_suite: LoadSuite, spec: str, claims: str, what: str | None) -> None:
    assert reasons(load_suite, spec, claims) == ([] if what is None else [f"not claimed by other: {what}"])


def test_a_compiler_that_does_not_train_is_compared_forward_alone(load_suite: LoadSuite) -> None:
    cases = load_suite(PLAIN + CLOSE, backends=OTHER.format("  trains: false\n")).cases
    assert {case.backend: case.body.context for case in cases} == {"cpu": (), "other": ("no_grad",)}
