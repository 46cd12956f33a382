"""One scope for every place of a spec that takes a name: what is there, what is not available yet, and what nothing has."""

import pytest

SPEC = """\
summary: Every place that takes a name
backends: [cpu]
matrix: {{size: [4]}}
prelude: |
  def helper(*args): return args
  class Handler: ...
let:
  value: {{call: helper, args: [{let}, "{{{{ size }}}}"]}}
spies: {{spy: {{function: json.dumps, instead: {{returns: {returns}}}}}}}
handlers: {{debug: {handler}}}
config: {{post_grad_custom_post_pass: {config}}}
dynamo_config: [{{set: {{recompile_limit: {dynamo}}}}}]
compile: {{backend: {backend}, options: {{post_grad_custom_pre_pass: {option}}}}}
context: [{context}]
function: |
  def fn(x): return x, x
inputs: [{inputs}]
steps:
  - call: {{as: out}}
    expect:
      - close: {{of: {of}, to: {to}}}
      - equals: {{{equals}: {other}}}
      - differs: {{{differs}: 1}}
      - strides: {{of: {strides}, equals: [1]}}
      - text: {{of: {text}, contains: a}}
  - backward: {{of: {backward}}}
    expect: [{{close: {{to: eager}}}}]
  - api: {{call: {api}, args: [{argument}], as: later}}
    expect: [{{dead: [{dead}]}}]
  - script:
      code: |
        def s({parameter}): return 1
  - optimizer: {{call: {optimizer}}}
"""
GIVEN = {
    "let": "{ref: helper}",
    "returns": "{ref: helper}",
    "handler": "{ref: value}",
    "config": "{ref: helper}",
    "dynamo": "3",
    "backend": "{ref: helper}",
    "option": "{ref: value.0}",
    "context": "{ref: helper}",
    "inputs": "{rand: [4]}",
    "of": "output.0",
    "to": "eager.0",
    "equals": "out.0",
    "other": "{ref: output.0}",
    "differs": "helper",
    "strides": "out.1",
    "text": "value.0",
    "backward": "out.0",
    "api": "{ref: helper}",
    "argument": "{ref: output}",
    "dead": "value.x",
    "parameter": "later",
    "optimizer": "torch.optim.SGD",
}

AFTER_A_CALL = ("of", "to", "equals", "other", "differs", "strides", "text", "backward", "api", "argument", "parameter")
ALREADY_READY = (*AFTER_A_CALL, "config", "backend", "option", "context", "returns", "dead")
AS_REFERENCE = ("let", "returns", "handler", "config", "backend", "option", "context", "inputs", "other", "api", "argument", "optimizer")


def written(place: str, name: str) -> str:
    dotted = f"{name}.size" if place == "dead" and "." not in name else name
    return f"{{ref: {name}}}" if place in AS_REFERENCE else dotted


def spec(place: str, name: str) -> str:
    return SPEC.format(**{**GIVEN, place: written(place, name)})


@pytest.mark.parametrize("place", [*AS_REFERENCE, *AFTER_A_CALL, "dead"])
@pytest.mark.parametrize("name", ["helper", "Handler", "params", "torch.nn.functional.relu", "collections.OrderedDict", "function"])
def test_every_place_takes_names_of_the_prelude_of_packages_and_functions(place, name, problems_of):
    if place == "parameter" and "." in name:
        return  # no name of a parameter
    assert [line for line in problems_of(spec(place, name)) if "eager reference" not in line] == []


@pytest.mark.parametrize("place", ALREADY_READY)
@pytest.mark.parametrize("name", ["value", "inputs.0"])
def test_values_of_let_and_inputs_are_there_when_options_are_set(place, name, problems_of):
    if place == "parameter" and "." in name:
        return
    assert [line for line in problems_of(spec(place, name)) if "eager reference" not in line] == []


@pytest.mark.parametrize("place", AFTER_A_CALL)
@pytest.mark.parametrize("name", ["out", "output", "compiled"])
def test_results_are_there_after_their_step(place, name, problems_of):
    lines = [line for line in problems_of(spec(place, name)) if "eager reference" not in line and "compared with itself" not in line]
    assert lines == []


@pytest.mark.parametrize("place", [place for place in GIVEN if place != "dynamo"])
def test_a_typo_gets_a_position_and_a_hint_everywhere(place, problems_of):
    (line,) = [line for line in problems_of(spec(place, "helpr")) if "eager reference" not in line]
    assert "unknown name 'helpr'" in line
    assert "did you mean 'helper'?" in line


@pytest.mark.parametrize(
    "place", ["let", "inputs", "handler", "config", "backend", "option", "context", "of", "equals", "text", "backward"]
)
def test_what_is_made_later_is_said_to_be_not_there_yet(place, problems_of):
    (line,) = [line for line in problems_of(spec(place, "later")) if "eager reference" not in line]
    assert "the name 'later' is not available yet (it is the result of the step at line 28" in line


def test_what_the_options_make_cannot_be_one_of_them(problems_of):
    for place in ("backend", "option"):
        (line,) = problems_of(spec(place, "compiled"))
        assert "'compiled' cannot be named here" in line


def test_references_within_a_list_that_is_judged_here_are_refused(problems_of):
    (line,) = problems_of(SPEC.format(**{**GIVEN, "other": "[1, {ref: out}]"}))
    assert "{ref: out} within what is only data" in line


@pytest.mark.parametrize("name", ["value", "later"])
def test_a_backward_of_what_no_call_gave_has_no_eager_reference(name, good, problems_of):
    steps = (
        "let: {value: {rand: [4]}}\nsteps:\n  - call: {as: out}\n  - api: {call: torch.neg, args: [{ref: out}], as: later}\n"
        f"  - backward: {{of: {name}}}\n    expect: [{{close: {{to: eager}}}}]\n"
    )
    (line,) = problems_of(good.replace("expect: [{close: {to: eager}}]\n", steps))
    assert f"this backward has no eager reference: '{name}' is" in line
