"""One scope for every place of a spec that takes a name: what is there, what is not available yet,
and what nothing has.
"""

from collections.abc import Callable

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

AFTER_A_CALL = (
    "of",
    "to",
    "equals",
    "other",
    "differs",
    "strides",
    "text",
    "backward",
    "api",
    "argument",
    "parameter",
)
ALREADY_READY = (*AFTER_A_CALL, "config", "backend", "option", "context", "returns", "dead")
AS_REFERENCE = (
    "let",
    "returns",
    "handler",
    "config",
    "backend",
    "option",
    "context",
    "inputs",
    "other",
    "api",
    "argument",
    "optimizer",
)


def written(place: str, name: str) -> str:
    dotted = f"{name}.size" if place == "dead" and "." not in name else name
    return f"{{ref: {name}}}" if place in AS_REFERENCE else dotted


def spec(place: str, name: str) -> str:
    return SPEC.format(**{**GIVEN, place: written(place, name)})


def codes(place: str, name: str, codes_of: Callable[..., list[str]]) -> list[str]:
    """Return the codes of the problems of a name at a place, but for those of a step without a
    reference.
    """
    lines = codes_of(spec(place, name))
    return [
        line.split()[1]
        for line in lines
        if line.split()[1] not in ("step-without-reference", "expectation")
    ]


EVERYWHERE = (
    "helper",
    "Handler",
    "params",
    "torch.nn.functional.relu",
    "collections.OrderedDict",
    "function",
)


@pytest.mark.parametrize(
    ("place", "names"),
    [
        *((place, EVERYWHERE) for place in (*AS_REFERENCE, *AFTER_A_CALL, "dead")),
        *((place, ("value", "inputs.0")) for place in ALREADY_READY),
        *((place, ("out", "output", "compiled")) for place in AFTER_A_CALL),
    ],
)
def test_a_place_takes_the_names_that_are_there_at_its_moment(
    place: str, names: tuple[str, ...], codes_of: Callable[..., list[str]]
) -> None:
    for name in names:
        if place != "parameter" or "." not in name:  # no name of a parameter
            assert codes(place, name, codes_of) == [], name


@pytest.mark.parametrize("place", [place for place in GIVEN if place != "dynamo"])
def test_a_typo_gets_a_position_and_a_hint_everywhere(
    place: str, problems_of: Callable[..., list[str]]
) -> None:
    (line,) = [line for line in problems_of(spec(place, "helpr")) if "eager reference" not in line]
    assert "unknown name 'helpr'" in line
    assert "did you mean 'helper'?" in line


LATER = (
    "let",
    "inputs",
    "handler",
    "config",
    "backend",
    "option",
    "context",
    "of",
    "equals",
    "text",
    "backward",
)


def test_what_is_made_later_is_said_to_be_not_there_yet(codes_of: Callable[..., list[str]]) -> None:
    for place in LATER:
        assert codes(place, "later", codes_of) == [
            "step" if place == "backward" else "before-its-step"
        ], place
    for place in ("backend", "option"):
        assert codes(place, "compiled", codes_of) == ["name-of-what-is-made"], place


@pytest.mark.parametrize("name", ["value", "later"])
def test_a_backward_of_what_no_call_gave_has_no_eager_reference(
    name: str, good: str, codes_of: Callable[..., list[str]]
) -> None:
    steps = (
        "let: {value: {rand: [4]}}\nsteps:\n  - call: {as: out}\n  - api: {call: torch.neg, "
        "args: [{ref: out}], as: later}\n"
        f"  - backward: {{of: {name}}}\n    expect: [{{close: {{to: eager}}}}]\n"
    )
    assert codes_of(good.replace("expect: [{close: {to: eager}}]\n", steps)) == [
        "12:15 step-without-reference"
    ]
