"""Templates that stand for lists, maps and words: expanded, and checked like values that are written out."""

from collections.abc import Callable

import pytest

from runner.language.load import Suite
from runner.model.diagnostics import InvalidSpecs
from runner.plan.worker_plan import digest_of

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
"""


def test_each_case_has_the_values_of_its_row(load_suite: LoadSuite) -> None:
    one, two = load_suite(ROWS).cases
    assert (one.body.inputs, two.body.inputs) == (({"rand": [2]}, 1), ({"rand": [3], "repeat": 2},))
    assert (one.body.context, two.body.context) == (("no_grad",), ())
    assert [dict(case.body.settings.dynamo_config) for case in (one, two)] == [{"verbose": True}, {"verbose": False}]
    assert [case.steps[0].expectations[1].body for case in (one, two)] == [{"stats.unique_graphs": 1}, {"stats.unique_graphs": 2}]


def test_a_template_and_the_value_that_it_gives_are_one_case(load_suite: LoadSuite) -> None:
    """The digest of a case is that of its values."""
    template, _ = load_suite(ROWS).cases
    written = ROWS.replace('"{{ row.inputs }}"', "[{rand: [2]}, 1]").replace('"{{ row.context }}"', "[no_grad]")
    assert digest_of(template) == digest_of(load_suite(written).cases[0])


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("inputs: [{rand: [2]}]", "fn takes 2 arguments, 1 input is given (at [backend=eager,row=two])"),
        ("inputs: [{rand: [2], repeat: 3}]", "fn takes 2 arguments, 3 inputs are given (at [backend=eager,row=two])"),
        ("inputs: [{rand: [2], bias: 1}, 1]", "unknown key 'bias' in input (at [backend=eager,row=two])"),
        ("inputs: [{rand: [2], low: 1}, 1]", "'low' does not go with 'rand' (at [backend=eager,row=two])"),
        ("inputs: [{ref: missing}, 1]", "unknown name 'missing' (at [backend=eager,row=two])"),
        ("config: {verbos: true}", "unknown dynamo_config 'verbos' (at [backend=eager,row=two])"),
        ("counts: {stats.unique_graps: 1}", "unknown counter 'stats.unique_graps' (at [backend=eager,row=two])"),
        ("counts: {stats.unique_graphs: {min: 0}}", "{min: 0} is true for every count (at [backend=eager,row=two])"),
        ("context: [{ref: missing}]", "unknown name 'missing' (at [backend=eager,row=two])"),
        ("context: no_grad", "expected a list (or one {{ expression }}), found the text 'no_grad' (at [backend=eager,row=two])"),
    ],
)
def test_a_value_is_checked_as_if_it_were_written_there(load_suite: LoadSuite, row: str, message: str) -> None:
    key = row.partition(":")[0]
    rows = {
        "inputs": "inputs: [{rand: [3], repeat: 2}]",
        "config": "config: [{verbose: false}]",
        "counts": "counts: {stats.unique_graphs: 2}",
        "context": "context: []",
    }
    place = {"inputs": (10, 9), "context": (11, 10), "config": (12, 16), "counts": (13, 42)}[key]
    with pytest.raises(InvalidSpecs) as caught:
        load_suite(ROWS.replace(rows[key], row))
    found = [(one.message, (one.position.line, one.position.column)) for one in caught.value.diagnostics]
    assert found == [(message, place)]


def test_a_template_of_the_first_case_that_fits_nothing_hides_no_other_problem(load_suite: LoadSuite) -> None:
    text = ROWS.replace("inputs: [{rand: [2]}, 1]", "inputs: 3").replace("{close: {to: eager}}", "{close: {to: egger}}")
    with pytest.raises(InvalidSpecs) as caught:
        load_suite(text)
    messages = [one.message for one in caught.value.diagnostics]
    assert sorted(messages) == [
        "expected a list (or one {{ expression }}), found the number 3 (at [backend=eager,row=one])",
        "unknown name 'egger' (at [backend=eager,row=two])",
    ]


def test_text_with_braces_in_a_value_is_text(load_suite: LoadSuite) -> None:
    braces = "inputs: [{rand: [2]}, '{' ]".replace("'{'", "{value: '{{ no }}'}")
    one, _ = load_suite(ROWS.replace("inputs: [{rand: [2]}, 1]", braces)).cases
    assert one.body.inputs[1] == {"value": "{{ no }}"}


# -- requires -----------------------------------------------------------------------------------------------------------

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
def test_each_case_requires_what_its_row_names(load_suite: LoadSuite, written: str, needed: list[list[str]]) -> None:
    found = [
        [f"{one.name} {one.argument or ''}".strip() for one in case.requires]
        for case in load_suite(NEEDS.replace("REQUIRES", written)).cases
    ]
    assert found == needed


def test_a_template_of_what_is_expected_is_not_empty(load_suite: LoadSuite) -> None:
    with pytest.raises(InvalidSpecs) as caught:
        load_suite(ROWS.replace("counts: {stats.unique_graphs: 2}", "counts: {}"))
    assert "counter is empty (at [backend=eager,row=two])" in [problem.message for problem in caught.value.diagnostics]
