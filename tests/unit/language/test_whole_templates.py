"""Templates that stand for lists, maps and words: expanded, and checked like values that are
written out.
"""

from collections.abc import Callable

import pytest

from torch_conformance.language.load import Suite
from torch_conformance.model.diagnostics import InvalidSpecs
from torch_conformance.plan.worker_plan import digest_of

LoadSuite = Callable[..., Suite]

ROWS = """\
summary: The rows of a matrix say inputs, options and counts
backends: [eager]
matrix:
  row:
    - {id: one, value: {inputs: [{rand: [2]}, 1], config: {verbose: true}, counts: {stats.unique_graphs: 1}, context: [no_grad]}}
    - {id: two, value: {inputs: [{rand: [3], repeat: 2}], config: [{verbose: false}], counts: {stats.unique_graphs: 2}, context: []}}
function: |
  def fn(x, y):
      return x + y
inputs: "{{ row.inputs }}"
context: "{{ row.context }}"
dynamo_config: "{{ row.config }}"
expect: [{close: {to: eager}}, {counter: "{{ row.counts }}"}]
"""  # noqa: E501 - text that is read by its lines


def test_each_case_has_the_values_of_its_row(load_suite: LoadSuite) -> None:
    one, two = load_suite(ROWS).cases
    assert (one.body.inputs, two.body.inputs) == (({"rand": [2]}, 1), ({"rand": [3], "repeat": 2},))
    assert (one.body.context, two.body.context) == (("no_grad",), ())
    assert [dict(case.body.settings.dynamo_config) for case in (one, two)] == [
        {"verbose": True},
        {"verbose": False},
    ]
    assert [case.steps[0].expectations[1].body for case in (one, two)] == [
        {"stats.unique_graphs": 1},
        {"stats.unique_graphs": 2},
    ]


def test_a_template_and_the_value_that_it_gives_are_one_case(load_suite: LoadSuite) -> None:
    """The digest of a case is that of its values."""
    template, _ = load_suite(ROWS).cases
    written = ROWS.replace('"{{ row.inputs }}"', "[{rand: [2]}, 1]").replace(
        '"{{ row.context }}"', "[no_grad]"
    )
    assert digest_of(template) == digest_of(load_suite(written).cases[0])


@pytest.mark.parametrize(
    ("row", "code"),
    [
        ("inputs: [{rand: [2]}]", "10:9 arity"),
        ("inputs: [{rand: [2], repeat: 3}]", "10:9 arity"),
        ("inputs: [{rand: [2], bias: 1}, 1]", "10:9 unknown-key"),
        ("inputs: [{randn: [2], low: 1}, 1]", "10:9 misplaced-key"),
        ("inputs: [{ref: missing}, 1]", "10:9 unknown-name"),
        ("config: {verbos: true}", "12:16 unknown-option"),
        ("counts: {stats.unique_graps: 1}", "13:42 unknown-counter"),
        ("counts: {stats.unique_graphs: {min: 0}}", "13:42 expectation"),
        ("counts: {}", "13:42 empty"),
        ("context: [{ref: missing}]", "11:10 unknown-name"),
        ("context: no_grad", "11:10 wrong-type"),
    ],
)
def test_a_value_is_checked_as_if_it_were_written_there(
    load_suite: LoadSuite, row: str, code: str
) -> None:
    (second,) = [line for line in ROWS.splitlines() if "id: two" in line]
    parts = [
        "inputs: [{rand: [3], repeat: 2}]",
        "config: [{verbose: false}]",
        "counts: {stats.unique_graphs: 2}",
        "context: []",
    ]
    (other,) = [part for part in parts if part.startswith(row.partition(":")[0])]
    with pytest.raises(InvalidSpecs) as caught:
        load_suite(ROWS.replace(second, second.replace(other, row)))
    (problem,) = caught.value.diagnostics
    assert f"{problem.position.line}:{problem.position.column} {problem.code}" == code
    assert dict(problem.arguments)["point"] == "[backend=eager,row=two]"


def test_a_template_of_the_first_case_that_fits_nothing_hides_no_other_problem(
    codes_of: Callable[..., list[str]],
) -> None:
    text = ROWS.replace("inputs: [{rand: [2]}, 1]", "inputs: 3").replace(
        "{close: {to: eager}}", "{close: {to: egger}}"
    )
    assert codes_of(text) == ["10:9 wrong-type", "13:23 unknown-name"]


def test_text_with_braces_in_a_value_is_text(load_suite: LoadSuite) -> None:
    braces = "inputs: [{rand: [2]}, '{' ]".replace("'{'", "{value: '{{ no }}'}")
    one, _ = load_suite(ROWS.replace("inputs: [{rand: [2]}, 1]", braces)).cases
    assert one.body.inputs[1] == {"value": "{{ no }}"}


# -- requires --------------------------------------------------------------------------------------

NEEDS = """\
summary: Each row of the matrix needs what it names
backends: [eager]
matrix:
  row:
    - {id: one, value: {name: cxx, dtype: float16, all: [cxx]}}
    - {id: two, value: {name: triton, dtype: bfloat16, all: [{mkldnn: float16}, triton]}}
requires: REQUIRES
function: "def fn(x): return x + 1"
inputs: [{rand: [3]}]
expect: [{close: {to: eager}}]
"""


@pytest.mark.parametrize(
    ("written", "needed"),
    [
        ('["{{ row.name }}", redis]', [["cxx", "redis"], ["triton", "redis"]]),
        ('[{mkldnn: "{{ row.dtype }}"}]', [["mkldnn float16"], ["mkldnn bfloat16"]]),
        ('"{{ row.all }}"', [["cxx"], ["mkldnn float16", "triton"]]),
        ('["{{ row.all if backend == 1 else row.name }}"]', [["cxx"], ["triton"]]),
    ],
)
def test_each_case_requires_what_its_row_names(
    load_suite: LoadSuite, written: str, needed: list[list[str]]
) -> None:
    found = [
        [f"{one.name} {one.argument or ''}".strip() for one in case.requires]
        for case in load_suite(NEEDS.replace("REQUIRES", written)).cases
    ]
    assert found == needed


SOME = """\
summary: A requirement of some cases
backends: [eager, cuda]
matrix: {dtype: [float32, bfloat16]}
requires: REQUIRES
function: |
  def fn(x):
      return x + 1
inputs: [{rand: [2], dtype: "{{ dtype }}"}]
expect: [{close: {to: eager}}]
"""
BIG = "\"{{ 'big_gpu' if device == 'cuda' else '' }}\""
NEWER = "{arch: \"{{ '>=sm_80' if backend == 'cuda' and dtype == 'bfloat16' else '' }}\"}"


def test_what_a_template_leaves_empty_is_not_required(load_suite: LoadSuite) -> None:
    cases = load_suite(SOME.replace("REQUIRES", f"[{BIG}, {NEWER}]")).cases
    own = {"cuda", "triton", "arch >=sm_70"}
    assert [[str(need) for need in case.requires if str(need) not in own] for case in cases] == [
        [],
        [],
        ["big_gpu"],
        ["big_gpu", "arch >=sm_80"],
    ]


@pytest.mark.parametrize(
    "written", ['[""]', '[{arch: ""}]', f'["", {BIG}]', "[\"{{ 'big' if dtype else '' }}\"]"]
)
def test_what_is_written_empty_or_unknown_is_a_problem(load_suite: LoadSuite, written: str) -> None:
    with pytest.raises(InvalidSpecs):
        load_suite(SOME.replace("REQUIRES", written))
