"""The runs of the float64 reference: what they see and leave, where there are none, and that the
whole judge refuses wrong answers.
"""

import math
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import import_torch, observation, observed, reading, seen
from tests.sessions import prepared
from torch_conformance.model.expectation import Status
from torch_conformance.model.protocol import decode, dumps, encode, loads
from torch_conformance.vocabulary.expectations import EXPECTATIONS, close
from torch_conformance.vocabulary.expectations.calibrated import (
    NoReference,
    Sample,
    compare,
    problems,
    scale_of,
)

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

torch: Any = import_torch()


class Case:
    """One session of a spec, with the facts of each ``close`` of its steps."""

    def __init__(self, session: Any, plan: Any) -> None:
        self.session = session
        self.plan = plan
        self.facts: list[dict[str, Any]] = []

    def run(self, change: Callable[[Any], Any] = lambda output: output) -> list[dict[str, Any]]:
        """Carry out the steps; ``change`` makes the answer of the compiled side.

        Return the facts.
        """
        for step in self.plan["steps"]:
            self.session.begin_step(step)
            self.session.do(step)
            self.session.output = change(self.session.output)
            measured, unmeasured = self.session.measure(step)
            assert not unmeasured
            self.facts += measured.values()
        self.session.additional.run()
        return self.facts

    def answers(self, changes: Iterable[Callable[[Any], Any]]) -> list[dict[str, Any]]:
        """Carry out the one step, and return the facts of its answer with each change."""
        (step,) = self.plan["steps"]
        self.session.begin_step(step)
        self.session.do(step)
        answer = self.session.output
        for change in changes:
            self.session.output = change(answer)
            measured, unmeasured = self.session.measure(step)
            assert not unmeasured
            self.facts += measured.values()
        self.session.additional.run()
        return self.facts


@pytest.fixture
def start(tmp_path: Path) -> Callable[..., Case]:
    """Return what makes a prepared session of a spec; nothing of inductor is compiled."""
    torch._dynamo.reset()

    def make(text: str, **body: Any) -> Case:
        return Case(*prepared(tmp_path, text, body=body))

    return make


def spec(function: str, inputs: str, body: str = "{to: eager}") -> str:
    return (
        f"function: |\n  def fn(x, y):\n      {function}\ninputs: [{inputs}]\nexpect: [{{close: "
        f"{body}}}]\n"
    )


PAIR = "{randn: [32, 64], dtype: DTYPE}, {randn: [64, 24], dtype: DTYPE}"


def judged(facts: Any, body: Any = None) -> Any:
    """Send the facts as the worker does, hold them against the schema, and judge them."""
    sent = loads(dumps(encode(facts)))
    assert not observed(observation(seen(measured={"0": sent}))).nonsense
    (judgement,) = (
        EXPECTATIONS["close"].parse(body or {"to": "eager"}).judge(reading(measured=decode(sent)))
    )
    return judgement


@pytest.mark.parametrize("dtype", ["float64", "float32", "bfloat16", "float16"])
def test_every_dtype_has_a_reference_and_a_histogram(
    start: Callable[..., Case], dtype: str
) -> None:
    (facts,) = start(spec("return x @ y", PAIR.replace("DTYPE", dtype))).run()
    calibrated = facts["leaves"][0]["calibrated"]
    assert judged(facts).status is Status.HELD
    assert "by the float64 reference" in judged(facts).observed
    assert (
        sum(calibrated["histogram"]["compiled"])
        == sum(calibrated["histogram"]["eager"])
        == calibrated["numel"]
        == 768
    )
    assert all(stand_in for stand_in in facts["leaves"][0]["stand_ins"].values())


def one_element(output: Any) -> Any:
    return (
        output.flatten()
        .index_put((output.abs().argmax(),), torch.tensor(0.0, dtype=output.dtype))
        .view(output.shape)
    )


REORDERED = """
function: |
  calls = []
  def fn(x, y):
      calls.append(0)
      total = torch.zeros_like(y)
      for row in x.roll(7 * len(calls), 0):
          total = total + row
      return total
inputs: [{randn: [64, 256], dtype: DTYPE}, {randn: [256], dtype: DTYPE}]
expect: [{close: {to: eager}}]
"""
"""Eager adds in another order each time."""

SMALL = spec("return (x / 1000) @ y", PAIR)

WRONG: dict[str, Callable[[Any], Any]] = {
    "zeros": torch.zeros_like,
    "x 1.02": lambda output: (output.double() * 1.02).to(output.dtype),
    "x 1.1": lambda output: (output.double() * 1.1).to(output.dtype),
    "rows rotated": lambda output: output.roll(1, 0),
    "one element": one_element,
}


@pytest.mark.parametrize(
    ("text", "dtype"),
    [(SMALL, "float64"), (SMALL, "bfloat16"), (REORDERED, "float32"), (REORDERED, "bfloat16")],
)
def test_a_wrong_answer_is_refused(start: Callable[..., Case], text: str, dtype: str) -> None:
    wrong = {
        name: change
        for name, change in WRONG.items()
        if (text, dtype, name) != (REORDERED, "bfloat16", "x 1.02")
    }
    found = start(text.replace("DTYPE", dtype)).answers(wrong.values())
    for name, facts in zip(wrong, found, strict=True):
        judgement = judged(facts)
        assert judgement.status is Status.FAILED, name
        assert "float64" in judgement.expected, name
        assert text is REORDERED or (
            "ulp" in judgement.observed and "eager's" in judgement.detail
        ), name


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_eager_that_adds_in_another_order_each_time_has_a_reference(
    start: Callable[..., Case], dtype: str
) -> None:
    case = start(REORDERED.replace("DTYPE", dtype))
    right = case.session.eager.arguments[0].double().sum(0)
    (facts,) = case.run()
    assert facts["leaves"][0]["calibrated"]["eager_max_ulp"] > 1, (
        "the error of the order is eager's error"
    )
    rounded = start(REORDERED.replace("DTYPE", dtype)).run(lambda output: right.to(output.dtype))[0]
    assert judged(facts).status is judged(rounded).status is Status.HELD


BIASED: dict[str, Callable[[Any], Any]] = {
    "as eager": lambda right: right,
    "x 1.001": lambda right: right * 1.001,
    "toward 0": lambda right: right - right.abs() * right.sign() * 2**-8 * 0.4,
    "one row larger": lambda right: (
        right + (torch.arange(len(right)) == 5)[:, None] * right.abs() * 2**-8 * 0.6
    ),
}


@pytest.mark.parametrize("wrong", BIASED)
def test_what_is_a_little_wrong_in_one_direction_is_refused_in_bfloat16(
    start: Callable[..., Case], wrong: str
) -> None:
    case = start(
        spec(
            "return x @ y",
            "{randn: [96, 64], dtype: bfloat16}, {randn: [64, 160], dtype: bfloat16}",
        )
    )
    x, y = (argument.double() for argument in case.session.eager.arguments)
    (facts,) = case.run(lambda output: BIASED[wrong](x @ y).to(output.dtype))
    judgement = judged(facts)
    assert judgement.status is (Status.HELD if wrong == "as eager" else Status.FAILED)
    assert wrong == "as eager" or "bias of" in f"{judgement.observed}\n{judgement.detail}"


def test_equal_elements_are_one_rounding_and_no_bias(start: Callable[..., Case]) -> None:
    case = start(
        spec("return (x @ y).mean().expand(64, 64) * 1.0", PAIR.replace("DTYPE", "bfloat16"))
    )
    (facts,) = case.run(lambda output: torch.nextafter(output, output * 2))
    assert all(bias["distinct"] == 1 for bias in facts["leaves"][0]["calibrated"]["bias"])
    assert "bias" not in judged(facts).observed + judged(facts).detail


@pytest.mark.parametrize("count", [1, 16, 256])
def test_zeros_are_refused_where_eager_has_no_right_digit(
    start: Callable[..., Case], count: int
) -> None:
    text = spec("return torch.sin(x * 1e7) + y * 0", f"{{rand: [{count}]}}, {{rand: [{count}]}}")
    assert judged(start(text).run()[0]).status is Status.HELD
    assert judged(start(text).run(torch.zeros_like)[0]).status is Status.FAILED


def test_rounding_of_a_gradient_that_is_0_and_a_more_precise_answer_are_right(
    start: Callable[..., Case],
) -> None:
    text = (
        "function: {module: torch.nn.LayerNorm, args: [64]}\ninputs: [{randn: [16, 64], "
        "requires_grad: true}]\n"
        "steps: [{call: {}}, {backward: {loss: mean}, expect: [{close: {to: eager}}]}]"
    )
    facts = start(text).run(
        lambda output: [-output[0], *output[1:]] if isinstance(output, list) else output
    )[0]
    assert judged(facts).status is Status.HELD
    case = start(spec("return (x @ y).cos() + 1", PAIR.replace("DTYPE", "bfloat16")))
    x, y = case.session.eager.arguments
    (facts,) = case.run(lambda output: ((x.float() @ y.float()).cos() + 1).to(output.dtype))
    assert judged(facts).status is Status.HELD


def test_eager_of_a_narrower_computation_may_have_its_error(start: Callable[..., Case]) -> None:
    function = "return (x.bfloat16() @ torch.ones(64, 24, dtype=torch.bfloat16)).float() + y[:32]"
    (facts,) = start(spec(function, PAIR.replace("DTYPE", "float32"))).run()
    assert facts["leaves"][0]["calibrated"]["eager_max_ulp"] > 1000, (
        "eager rounds to bfloat16, the reference does not"
    )
    text = spec(
        "return (x.to(torch.float32) @ y.to(torch.float32)).to(torch.float64)",
        PAIR.replace("DTYPE", "float64"),
    )
    (facts,) = start(text).run()
    assert facts["leaves"][0]["calibrated"]["eager_max_ulp"] > 1e6
    assert judged(facts).status is Status.HELD
    assert judged(start(text).run(lambda output: output * 1.00001)[0]).status is Status.FAILED


@pytest.mark.parametrize(
    ("function", "why"),
    [
        ("return x.abs().argmax(-1) + y.numel()", "values of dtype int64 are exact"),
        (
            "return x * (__import__('time').perf_counter_ns() % 100003) + y.sum()",
            "a second run of eager gives another answer",
        ),
    ],
)
def test_where_there_is_none(start: Callable[..., Case], function: str, why: str) -> None:
    (facts,) = start(spec(function, PAIR.replace("DTYPE", "float32"))).run()
    assert why in facts["leaves"][0]["calibrated"]["why_not"]
    assert "excess" in facts["leaves"][0]


def half_negated(output: Any) -> Any:
    return torch.cat([output[:16], -output[16:]])


@pytest.mark.parametrize(
    ("function", "dtype", "why"),
    [
        ("y = x.view(torch.int32).view(torch.float32)", "float32", "reinterprets the bits"),
        ("assert x.element_size() == 4; y = x * 2", "float32", "refuses float64"),
        ("y = torch.nan_to_num(x / 0)", "float32", "beyond the range of float32"),
        ("y = torch.nn.functional.dropout(x, 0.1)", "float64", "draws random numbers"),
    ],
)
def test_without_float64_eager_with_other_roundings_judges(
    start: Callable[..., Case], function: str, dtype: str, why: str
) -> None:
    text = spec(f"{function}; return y * 4e-6", PAIR.replace("DTYPE", dtype))
    (facts,) = start(text).run()
    assert why in facts["leaves"][0]["calibrated"]["no_float64"]
    found = judged(facts)
    assert found.status is Status.HELD
    assert "1 values by eager with other roundings (greatest error" in found.observed
    assert why in found.observed
    wrong = judged(start(text).run(half_negated)[0])
    assert wrong.status is Status.FAILED
    assert why in wrong.expected


@pytest.mark.parametrize(
    ("wrong", "status"),
    [(lambda right: right * (1 + 1e-6), Status.HELD), (half_negated, Status.FAILED)],
)
def test_where_eager_is_not_run_again_small_values_have_a_small_tolerance(
    start: Callable[..., Case], wrong: Callable[[Any], Any], status: Status
) -> None:
    text = spec("return y.sum() * 0 + x * 1e-6", "{randn: [32, 64]}, {zeros: [17000000]}")
    (facts,) = start(text).run(wrong)
    assert facts["leaves"][0]["excess"] < 1e-5, "the tolerance hides it"
    assert judged(facts).status is status


@pytest.mark.parametrize(
    "function",
    [
        "return (x * 2 if x.dtype == torch.float32 else x * 3) + y.sum()",
        "return x / (y.sum() * 0 + torch.finfo(x.dtype).eps ** 0.25)",
    ],
)
def test_in_float64_a_function_reads_the_dtypes_of_the_case(
    start: Callable[..., Case], function: str
) -> None:
    (facts,) = start(spec(function, PAIR.replace("DTYPE", "float32"))).run()
    known = facts["leaves"][0]["calibrated"]
    assert known["eager_max_ulp"] < 64
    assert not known.keys() & {"unexplained", "no_float64"}


def test_a_function_of_float64_that_is_another_one_in_float32(start: Callable[..., Case]) -> None:
    function = "return (x * 3 if x.dtype == torch.float64 else x * 2) + y.sum()"
    text = spec(function, PAIR.replace("DTYPE", "float64"))
    (facts,) = start(text).run()
    assert facts["leaves"][0]["calibrated"]["unexplained"]
    assert judged(facts).status is Status.HELD
    assert judged(start(text).run(lambda output: output * 1.0001)[0]).status is Status.FAILED


@pytest.mark.parametrize(
    ("function", "dtype"),
    [
        ("torch.nn.functional.dropout(x)", "float32"),
        ("x * torch.rand_like(x)", "bfloat16"),
        ("torch.bernoulli(x.sigmoid()) * x", "float32"),
        ("x * torch.rand(3).sum() + torch.randn_like(x)", "float32"),
        ("x * torch.normal(x, x.abs())", "float32"),
        ("torch.empty_like(x).exponential_() / (x.abs() + 1)", "float32"),
        ("x[torch.randperm(len(x))] / 3", "float16"),
        ("torch.nn.functional.rrelu(x, training=True)", "float32"),
        ("x * __import__('random').random()", "float32"),
    ],
)
def test_float64_has_the_random_numbers_of_eager(
    start: Callable[..., Case], function: str, dtype: str
) -> None:
    text = spec(f"return {function} + y.mean()", PAIR.replace("DTYPE", dtype))
    (facts,) = start(text).run()
    known = facts["leaves"][0]["calibrated"]
    assert known["eager_quantiles"][0] < 4
    assert not known.keys() & {"unexplained", "no_float64"}
    assert judged(facts).status is Status.HELD
    wrong = judged(start(text).run(lambda output: output * 1.02)[0])
    assert wrong.status is Status.FAILED


@pytest.mark.parametrize(
    ("function", "without", "status"),
    [
        ("x - x.half().float()", lambda x: x - x, Status.FAILED),
        (
            "torch.cat([x, x - x.to(torch.bfloat16)])",
            lambda x: torch.cat([x, x - x]),
            Status.FAILED,
        ),
        ("x.half().float() * 1.5", lambda x: x * 1.5, Status.HELD),
        ("torch.relu(x.bfloat16().float() @ x.t())", lambda x: torch.relu(x @ x.t()), Status.HELD),
    ],
)
def test_a_cast_whose_loss_is_the_answer_is_one_in_float64(
    start: Callable[..., Case], function: str, without: Callable[[Any], Any], status: Status
) -> None:
    text = spec(f"return {function}", PAIR.replace("DTYPE", "float32"))
    (facts,) = start(text).run()
    assert judged(facts).status is Status.HELD
    case = start(text)
    x = case.session.eager.arguments[0].clone()
    (facts,) = case.run(lambda output: without(x))
    assert judged(facts).status is status


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "float8_e5m2"])
def test_a_rounding_to_float8_is_a_part_of_the_function(
    start: Callable[..., Case], dtype: str
) -> None:
    text = spec(
        f"return x.to(torch.{dtype}).float() @ y, y.to(torch.{dtype})",
        PAIR.replace("DTYPE", "float32"),
    )
    (facts,) = start(text).run()
    assert judged(facts).status is Status.HELD
    assert all("why_not" not in made for made in facts["leaves"][0]["stand_ins"].values())
    for wrong in (
        lambda output: (output[0] * 1.01, output[1]),
        lambda output: (output[0], output[1].float().mul(1.2).to(output[1].dtype)),
    ):
        assert judged(start(text).run(wrong)[0]).status is Status.FAILED


@pytest.mark.parametrize("beyond", [65504.0, 65513.4, 65530.0])
def test_a_result_at_the_greatest_number_of_its_dtype_has_a_reference(beyond: float) -> None:
    eager, reference = torch.full((64,), 2.0).half(), torch.full((64,), 2.0).double()
    eager[3], reference[3] = 65504.0, beyond
    scale = scale_of([Sample(eager, reference, 0.0)], eager, reference)
    assert not problems(compare(eager, scale), scale.form)
    for wrong in (32752.0, -65504.0, math.nan):
        answer = eager.clone()
        answer[3] = wrong
        assert problems(compare(answer, scale), scale.form)


@pytest.mark.parametrize("beyond", [math.nan, math.inf])
@pytest.mark.parametrize(
    ("value", "is_right"),
    [
        ("float64's", True),
        (2.0, True),
        (2.0 + 2.0**-6, True),
        (2.5, False),
        (-math.inf, False),
        ("another", False),
    ],
)
def test_a_single_number_that_is_finite_by_rounding_may_be_what_float64_has(
    beyond: float, value: float | str, is_right: bool
) -> None:
    eager, reference = torch.full((64,), 2.0).bfloat16(), torch.full((64,), 2.0).double()
    reference[3] = beyond
    scale = scale_of([Sample(eager, reference, 0.0)], eager, reference)
    answer = eager.clone()
    others = {"float64's": beyond, "another": math.nan if math.isinf(beyond) else math.inf}
    answer[3] = others[value] if isinstance(value, str) else value
    assert bool(problems(compare(answer, scale), scale.form)) != is_right
    answer[3], answer[4] = eager[3], beyond
    assert problems(compare(answer, scale), scale.form), "an element that is finite in float64"


@pytest.mark.parametrize(("numel", "count"), [(7, 1), (64, 2), (256, 5)])
def test_many_numbers_that_are_finite_in_eager_alone_are_of_another_function(
    numel: int, count: int
) -> None:
    eager, reference = torch.full((numel,), 2.0).bfloat16(), torch.full((numel,), 2.0).double()
    reference[:count] = math.nan
    with pytest.raises(
        NoReference, match=f"not finite in {count} of {numel} elements where eager is"
    ):
        scale_of([Sample(eager, reference, 0.0)], eager, reference)


@pytest.mark.parametrize(("shape", "is_right"), [((40, 5), True), ((25, 8), False)])
def test_a_slice_of_few_elements_is_no_group(shape: tuple[int, int], is_right: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    unit, reference = 2.0**-7, 1 + torch.rand(shape, generator=generator, dtype=torch.float64) / 2
    reference = (reference / unit).round() * unit

    def run_of_eager() -> Any:
        # errors of up to 20 ulp, but in the third row of 1/4 ulp at most
        errors = (
            torch.rand(shape, generator=generator, dtype=torch.float64) * 40 - 20
        ).round() * unit
        errors[2] = 0.0
        return (reference + errors).bfloat16()

    samples = [Sample(run_of_eager(), reference, 0.0) for _ in range(6)]
    scale = scale_of(samples, samples[0].answer, reference)
    answer = samples[0].answer.clone()
    answer[2, 3] += 4 * unit
    assert bool(problems(compare(answer, scale), scale.form)) != is_right
    answer[2, 3] += 60 * unit
    assert problems(compare(answer, scale), scale.form)


def test_a_small_element_of_a_small_result_has_a_bound_of_its_own() -> None:
    generator = torch.Generator().manual_seed(3)
    reference = torch.rand(20, generator=generator, dtype=torch.float64) + 1
    reference[:10] *= 2.0**-10

    def sample() -> Sample:
        nudged = reference * (1 + torch.rand(20, generator=generator, dtype=torch.float64) / 64)
        return Sample(nudged.bfloat16(), nudged, 2.0**-7)

    samples = [Sample(reference.bfloat16(), reference), *(sample() for _ in range(11))]
    scale = scale_of(samples, samples[0].answer, reference)
    answer = samples[0].answer.clone()
    assert not problems(compare(answer, scale), scale.form)
    answer[7] = 0
    assert problems(compare(answer, scale), scale.form)


def test_a_maximum_that_other_inputs_decide_otherwise_widens_no_bound() -> None:
    reference = torch.linspace(1, 2, 6, dtype=torch.float64)
    eager, flipped = reference.bfloat16(), reference.bfloat16()
    flipped[0] = 0
    samples = [Sample(eager, reference), *[Sample(flipped, reference, 2.0**-7)] * 11]
    jittered = [eager * (1 + 2.0**-7), eager * (1 - 2.0**-7)]
    scale = scale_of(samples, eager, reference, jittered=jittered)
    assert not problems(compare(eager, scale), scale.form)
    answer = eager.clone()
    answer[5] *= 1.25
    assert problems(compare(answer, scale), scale.form)


def test_a_case_that_observes_its_calls_is_not_called_again(start: Callable[..., Case]) -> None:
    case = start(spec("return x @ y", PAIR.replace("DTYPE", "float32")), handlers={}, dead=["x"])
    assert "observes calls" in case.run()[0]["leaves"][0]["calibrated"]["why_not"]


def test_a_spy_that_only_records_has_a_reference(start: Callable[..., Case]) -> None:
    spies = {"products": {"function": "torch.matmul"}}
    case = start(spec("return torch.matmul(x, y)", PAIR.replace("DTYPE", "float32")), spies=spies)
    assert "numel" in case.run()[0]["leaves"][0]["calibrated"]
    assert case.session.spies["products"].count == 1


def test_nothing_of_it_is_seen(start: Callable[..., Case]) -> None:
    case = start(
        "prelude: |\n  seen = []\nfunction: |\n  def fn(x):\n      seen.append(1)\n      "
        "return x.add_(1)\n"
        "inputs: [{rand: [64]}]\nsteps: [{call: {}, expect: [{close: {to: eager}}]}, {call: "
        "{}, expect: [{close: {to: eager}}]}]"
    )
    state = torch.get_rng_state()
    counters = {name: dict(found) for name, found in torch._dynamo.utils.counters.items()}
    arguments = case.session.compiled.arguments[0].clone()
    first, second = case.run()
    assert judged(first).status is judged(second).status is Status.HELD
    assert "why_not" not in second["leaves"][0]["calibrated"], (
        "the inputs are those before the call, although it changes them"
    )
    assert torch.equal(case.session.compiled.arguments[0], arguments + 2)
    assert torch.equal(torch.get_rng_state(), state)
    assert {
        name: dict(found) for name, found in torch._dynamo.utils.counters.items()
    }.keys() >= counters.keys()


def test_gradients_and_modules(start: Callable[..., Case]) -> None:
    case = start(
        "function: {module: torch.nn.Linear, args: [16, 4]}\ninputs: [{randn: [8, 16], "
        "requires_grad: true}]\n"
        "steps: [{call: {}, expect: [{close: {to: eager}}]}, {backward: {}, expect: [{close: "
        "{to: eager}}]}]"
    )
    kept = [parameter.clone() for parameter in case.session.eager.targets["function"].parameters()]
    results, gradients = case.run()
    assert all(
        "numel" in leaf["calibrated"] for facts in (results, gradients) for leaf in facts["leaves"]
    )
    assert len(gradients["leaves"]) == 3
    assert all(map(torch.equal, kept, case.session.eager.targets["function"].parameters())), (
        "float32, as they were"
    )


@pytest.mark.parametrize(
    ("body", "dtype", "names"),
    [
        ({"to": "eager", "exact": True}, "float32", set()),
        ({"to": "eager"}, "float32", set()),
        (
            {"to": "eager"},
            "bfloat16",
            {
                "zeros",
                "one element off",
                "one element zero",
                "lower precision",
                "other inputs",
                "NaN",
            },
        ),
    ],
    ids=["exact", "calibrated", "calibrated bfloat16"],
)
def test_each_word_accepts_right_answers_and_refuses_wrong_ones(
    start: Callable[..., Case], body: Any, dtype: str, names: set[str]
) -> None:
    whole = spec(
        "return x @ y",
        PAIR.replace("DTYPE", dtype),
        "{to: eager, exact: true}" if "exact" in body else "{to: eager}",
    )
    (facts,) = start(whole).run()
    assert judged(facts, body).status is Status.HELD
    check = EXPECTATIONS["close"].parse(body)
    tried = [
        mutant for mutant in check.mutants(reading(measured=facts)) if mutant.facts is not None
    ]
    assert len(tried) >= 7
    assert {mutant.name for mutant in tried} >= names
    assert not [
        mutant.name for mutant in tried if check.judge(mutant.facts)[0].status is Status.HELD
    ]
    (facts,) = start(whole).run(lambda output: output * (1.001 if dtype == "float32" else 1.02))
    assert judged(facts, body).status is Status.FAILED


def test_zeros_of_two_signs_differ_where_exactness_is_claimed(start: Callable[..., Case]) -> None:
    (facts,) = start(
        spec("return x * 0 + y.sum() * 0", "{ones: [3]}, {ones: [3]}", "{to: eager, exact: true}")
    ).run()
    assert judged(facts, {"to": "eager", "exact": True}).status is Status.HELD
    assert facts["leaves"][0]["stand_ins"]["sign of zero"]["bits"]["differing"] == 3


CALIBRATED = {
    "of": "output",
    "to": "eager",
    "rtol": None,
    "atol": None,
    "equal_nan": True,
    "judge": "calibrated",
}


@pytest.mark.parametrize(
    ("on_cpu", "words"), [(1.0, "eager is wrong on npu, in 64 of 64"), (2.0, "error of")]
)
def test_eager_in_float64_is_wrong_where_the_answer_is_that_of_the_cpu(
    on_cpu: float, words: str
) -> None:
    right = torch.linspace(0.1, 1, 64, dtype=torch.float64)
    eager = right * (1 + 3e-8)
    facts: Any = close.measure(CALIBRATED, {"output": right, "eager": eager}.__getitem__)
    facts["leaves"][0].update(device="npu", reference_device="npu")
    runs = close.Answers(
        eager,
        eager,
        [(eager.float(), eager, 0.0)] * 3,
        (),
        [eager] * 2,
        otherwise=lambda way: right * on_cpu,
    )
    values = {"of": right, "to": eager}
    close.add_reference(close.Comparison(facts, CALIBRATED, values, {}), lambda answer: runs)
    judgement = EXPECTATIONS["close"].parse({"to": "eager"}).problem(facts["leaves"][0])
    assert words in judgement.observed


@pytest.mark.parametrize(
    ("ours", "eager"), [([1, 3, 2], [2, 2, 2]), ([True, False], [False, False])]
)
def test_an_exact_stand_in_is_no_answer_of_a_run(ours: list[Any], eager: list[Any]) -> None:
    sides = {"output": torch.tensor(ours), "eager": torch.tensor(eager)}
    facts: Any = close.measure(CALIBRATED, sides.__getitem__)
    right = torch.tensor(eager)
    runs = close.Answers(right, right, [], exact=lambda: iter([sides["output"]]))
    values = {"of": sides["output"], "to": sides["eager"]}
    close.add_reference(close.Comparison(facts, CALIBRATED, values, {}), lambda answer: runs)
    (leaf,) = facts["leaves"]
    assert EXPECTATIONS["close"].parse({"to": "eager"}).problem(leaf) is None
    assert leaf["stand_ins"]["one element off"]["calibrated"] == {"others": 1}


@pytest.mark.parametrize(
    ("on_cpu", "words"), [(1.0, "eager is wrong on npu, in 64 of 64"), (2.0, ""), (0.0, "")]
)
def test_eager_that_is_wrong_on_its_device_alone_is_named(on_cpu: float, words: str) -> None:
    right, eager = torch.linspace(0.1, 1, 64), torch.linspace(0.1, 1, 64) * 2
    facts: Any = close.measure(CALIBRATED, {"output": eager, "eager": eager}.__getitem__)
    facts["leaves"][0].update(device="npu", reference_device="npu")
    runs = close.Answers(
        eager,
        right.double(),
        [(eager, right.double(), 0.0)],
        (),
        [eager],
        otherwise=lambda way: right * (on_cpu or 1 // 0),
    )
    close.add_reference(
        close.Comparison(facts, CALIBRATED, {"of": eager, "to": eager}, {}), lambda answer: runs
    )
    judgement = EXPECTATIONS["close"].parse({"to": "eager"}).problem(facts["leaves"][0])
    assert words in judgement.observed if words else judgement is None


REAL = "function: |\n  def fn(x):\n      {}\ninputs: [{}]\nexpect: [{{close: {{to: eager}}}}]\n"


def scaled(share: float, place: Any = slice(None)) -> Callable[[Any], Any]:
    """Return what changes a part of a result, or of each of several, by a share of it."""

    def change(output: Any) -> Any:
        if not isinstance(output, torch.Tensor):
            return tuple(map(change, output))
        output = output.clone()
        output[place if output.ndim else ...] *= 1 + share
        return output

    return change


def flipped(output: Any) -> Any:
    """Return a mask with one element changed."""
    return output.logical_xor(torch.arange(output.numel()).view(output.shape) == 7)


def quantised(_: Any) -> Any:
    """Return what a kernel gives that computes ``QUANTISE`` in float32."""
    t = torch.arange(4096.0) / 977
    return (t / (t.amax() / 127)).round().to(torch.int8)


QUANTISE = (
    "t = torch.arange(4096, dtype=x.dtype) * x / 977; "
    "return (t / (t.amax() / 127)).round().to(torch.int8)",
    "{ones: [4096], dtype: bfloat16}",
)
CONSTANT = "{full: [9, 12], value: 0.7}"
ROWS_OF = "{randn: [40, 24]}"
COMPLEX = "return torch.complex(x + 1, x * 1e-6)"
THROUGH_FLOAT = ("return x.float().sin().double()", "{randn: [256], dtype: float64}")
JUDGED = {
    "one column": ("return x.sin() + 2", ROWS_OF, scaled(4e-6, (..., 3)), False),
    "one row": ("return x.sin() + 2", ROWS_OF, scaled(4e-6, 5), False),
    "a row by 1 ulp": ("return x.sin() + 2", ROWS_OF, scaled(2**-23, 5), True),
    "a scalar": ("return (x * x).mean()", ROWS_OF, scaled(3e-6), False),
    "a scalar by 1 ulp": ("return (x * x).mean()", ROWS_OF, scaled(2**-23), True),
    "many small values": ("return x.mean(1).unbind(0)", "{rand: [40, 24]}", scaled(5e-6), False),
    "a long sum": ("return x.sum(1)", "{rand: [4, 65536]}", scaled(1.5e-6), False),
    "an imaginary part lost": (
        COMPLEX,
        "{rand: [64]}",
        lambda output: torch.complex(output.real, torch.zeros_like(output.real)),
        False,
    ),
    "an imaginary part negated": (COMPLEX, "{rand: [64]}", lambda output: output.conj(), False),
    "rounding of the real part": (
        "return torch.complex(x, x) * torch.complex(x, -x)",
        "{rand: [64]}",
        lambda output: output + 1j * output.real * 2**-24,
        True,
    ),
    "float64 through float32": (*THROUGH_FLOAT, scaled(1e-5, 5), False),
    "float64 through float32, rounded": (*THROUGH_FLOAT, scaled(2**-24, 5), True),
    "signs of zeros": (
        "return torch.where(x < 0, -0.0, x)",
        "{randn: [64]}",
        lambda output: output + 0.0,
        False,
    ),
    "signs of zeros that eager's sum of one term lost": (
        "return (x.abs() * -0.0).sum(0, keepdim=True) * x",
        "{randn: [1, 64]}",
        lambda output: -output,
        True,
    ),
    "a sign of zero that a sum has not": (
        "return x.relu()",
        "{randn: [64]}",
        lambda output: torch.where(output == 0, -0.0, output),
        True,
    ),
    "the variance of equal numbers": ("return x.var(1)", CONSTANT, lambda _: _ + 3e-14, True),
    "another variance": ("return x.var(1)", CONSTANT, lambda _: _ + 1e-6, False),
    "quantised in float32": (*QUANTISE, quantised, True),
    "quantised, and 1 more": (*QUANTISE, lambda _: (quantised(_) + 1).clamp(max=127), False),
    "a mask with a wrong element": (
        "return (x * 1.7 - 0.3) > 0.2",
        "{randn: [300], dtype: bfloat16}",
        flipped,
        False,
    ),
    "a tie that nothing rounds": (
        "return x * 2 > 1",
        "{values: [0.25, 0.5, 0.75, 0.5, 0.125]}",
        lambda output: torch.ones_like(output),
        False,
    ),
}


@pytest.mark.parametrize("row", JUDGED)
def test_parts_few_elements_and_exact_values_are_judged(
    start: Callable[..., Case], row: str
) -> None:
    function, inputs, change, is_right = JUDGED[row]
    (facts,) = start(REAL.format(function, inputs)).run(change)
    assert (judged(facts).status is Status.HELD) is is_right, judged(facts)
