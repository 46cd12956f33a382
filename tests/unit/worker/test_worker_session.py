"""One case in the worker, in this process: both sides of a case, its steps, and the facts that a
step leaves.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.sessions import do, prepared
from torch_conformance.model.protocol import decode
from torch_conformance.vocabulary.steps import NotCarriedOut
from torch_conformance.worker.process.channel import exception

# what torch warns of while it compiles is not ours
pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def session(torch: Any, tmp_path: Path) -> Callable[..., Any]:
    """Return a maker of prepared sessions; nothing of inductor is compiled."""
    torch._dynamo.reset()

    def start(text: str, *, eager: bool | None = None, compile_with: str = "eager") -> Any:
        changes = {} if eager is None else {"needs_eager": eager}
        return prepared(tmp_path, text, compile_with=compile_with, **changes)[0]

    return start


CLOSE = "expect: [{close: {to: eager}}]"


def test_both_sides_start_from_the_same_generators(torch, session):
    one = session(
        f"function: |\n  def fn(x):\n      return x + torch.rand(3)\ninputs: [{{zeros: "
        f"[3]}}]\n{CLOSE}"
    )
    first = do(one)
    assert torch.equal(first, one.reference.output)
    second = do(one)
    assert torch.equal(second, one.reference.output)
    assert not torch.equal(first, second)


def test_the_reference_does_not_change_what_is_compiled(torch, session):
    one = session(
        "function: |\n  def fn(x):\n      x.add_(1)\n      return x.clone()\ninputs: "
        f"[{{zeros: [3]}}]\n{CLOSE}"
    )
    for expected in (1.0, 2.0):
        assert do(one).tolist() == [expected] * 3
        assert one.reference.output.tolist() == [expected] * 3
    assert one.compiled.arguments[0] is not one.eager.arguments[0]


def test_arguments_by_keyword_are_copied_and_get_gradients_as_others(torch, session):
    one = session(
        "function: |\n  def fn(x, *, scale):\n      return x * scale['by']\n"
        "inputs: [{ones: [2], requires_grad: true}]\nsteps:\n"
        "  - call: {kwargs: {scale: {by: {full: [2], value: 3.0, requires_grad: true}}}}\n"
        f"    {CLOSE}\n  - {{backward: {{}}, {CLOSE}}}"
    )
    assert do(one).tolist() == one.reference.output.tolist() == [3, 3]
    assert [gradient.tolist() for gradient in do(one, 1)] == [[3, 3], [1, 1]]
    ours, theirs = (side.called[-1]["scale"]["by"] for side in (one.compiled, one.eager))
    assert ours is not theirs
    assert theirs.grad.tolist() == [1, 1]


COUNTS = """\
prelude: |
  class Counts(torch.nn.Module):
      def __init__(self):
          super().__init__()
          self.weight = torch.nn.Parameter(torch.zeros(2))
          self.register_buffer("calls", torch.zeros(1))
      def forward(self, x):
          with torch.no_grad():
              self.weight.add_(1)
              self.calls.add_(1)
          return x + self.weight + self.calls
function: {module: Counts}
inputs: [{zeros: [2]}]
"""


def test_a_parameter_that_is_changed_in_place_stays_on_its_side(torch, session):
    one = session(COUNTS + CLOSE)
    for expected in (2.0, 4.0):
        assert do(one).tolist() == [expected] * 2
        assert one.reference.output.tolist() == [expected] * 2
    compiled, eager = one.compiled.targets["function"], one.eager.targets["function"]
    assert compiled.weight.tolist() == eager.weight.tolist() == [2.0, 2.0]
    assert compiled.weight is not eager.weight


def test_a_reference_of_an_earlier_step_is_not_taken(session):
    one = session(
        "functions:\n  one: |\n    def fn(x):\n        return x\n  two: |\n    def fn(x):\n   "
        "     return x\n"
        f"inputs: [{{zeros: [1]}}]\nsteps: [{{call: {{function: one}}, {CLOSE}}}, {{call: "
        f"{{function: two, eager: true}}}}]"
    )
    do(one)
    one.names.value("eager")
    do(one, 1)
    with pytest.raises(LookupError):
        one.names.value("eager")


@pytest.mark.parametrize("body", ["raise ValueError('only here')", "return x @ torch.zeros(7)"])
def test_a_reference_that_raises_is_no_answer_of_torch(session, body):
    one = session(f"function: |\n  def fn(x):\n      {body}\ninputs: [{{zeros: [1]}}]\n{CLOSE}")
    with pytest.raises(NotCarriedOut, match="the eager reference raised"):
        do(one)


@pytest.mark.parametrize(
    "entry",
    [
        "{rand: [2], strides: [1, 1]}",
        "{ref: no_such_name}",
        "{module: no_such_module}",
        "{rand: [-0], dtype: float32, memory_format: channels_last}",
    ],
)
def test_arguments_that_cannot_be_made_are_no_answer_of_torch(session, entry):
    one = session(
        "function: |\n  def fn(x):\n      return x\ninputs: [{zeros: [1]}]\nsteps: [{call: "
        "{}, expect: [{runs: {}}]}]"
    )
    one.plan["steps"][0]["arguments"] = {
        "inputs": [decode(json.loads(json.dumps(yaml.safe_load(entry))))]
    }
    with pytest.raises(NotCarriedOut, match="the arguments raised"):
        do(one)


def test_a_result_with_a_history_is_an_argument_of_the_next_call(torch, session):
    one = session(
        "function: |\n  def fn(x):\n      return x * 2\ninputs: [{ones: [1], requires_grad: "
        "true}]\n"
        f"steps: [{{call: {{as: first}}, {CLOSE}}}, {{call: {{inputs: [{{ref: first}}]}}, "
        f"{CLOSE}}}, {{backward: {{}}, {CLOSE}}}]"
    )
    do(one)
    assert do(one, 1).tolist() == one.reference.output.tolist() == [4.0]
    assert do(one, 2) == one.reference.output == [], "only leaves have gradients"
    assert one.compiled.arguments[0].grad.tolist() == [4.0], (
        "the compiled side differentiates through both calls"
    )


# -- backward --------------------------------------------------------------------------------------

LAYER = """\
prelude: |
  class Layer(torch.nn.Module):
      def __init__(self):
          super().__init__()
          self.weight = torch.nn.Parameter(torch.full((2,), 3.0))
          self.bias = torch.nn.Parameter(torch.full((2,), 5.0))
          self.unused = torch.nn.Parameter(torch.zeros(1))
          self.frozen = torch.nn.Parameter(torch.ones(2), requires_grad=False)
      def forward(self, x, scale, y):
          return (x * self.weight + self.bias) * scale * self.frozen + y * 7
function: {module: Layer}
inputs: [{full: [2], value: 2.0, requires_grad: true}, {value: 10.0}, {full: [2], value: 1.0, requires_grad: true}]
steps:
  - call: {}
    expect: [{close: {to: eager}}]
  - backward: {as: gradients}
    expect: [{close: {to: eager}}]
"""  # noqa: E501 - text that is read by its lines


@pytest.mark.parametrize("compiler", ["eager", "aot_eager"])
def test_gradients_come_in_order_arguments_first(torch, session, compiler):
    one = session(LAYER, compile_with=compiler)
    do(one)
    for _ in range(2):  # gradients of an earlier call do not add up
        do(one)
        gradients = do(one, 1)
        for side in (gradients, one.reference.output):
            x, y, weight, bias, unused = side
            assert x.tolist() == [30.0, 30.0]
            assert y.tolist() == [7.0, 7.0]
            assert weight.tolist() == [20.0, 20.0]
            assert bias.tolist() == [10.0, 10.0]
            assert unused is None
        assert gradients[0] is not one.reference.output[0]
    assert one.scope.values["gradients"][0].tolist() == [30.0, 30.0]
    assert "gradients" not in one.names.snapshots, "nothing compares it"


# -- names -----------------------------------------------------------------------------------------


def test_a_named_value_is_a_copy_of_its_moment(torch, session):
    one = session(
        "function: |\n  def fn(x):\n      return x.add_(1)\ninputs: [{zeros: [2]}]\n"
        "steps: [{call: {as: first}}, {call: {as: second}, expect: [{differs: {first: {ref: "
        "second}}}]}]"
    )
    do(one)
    do(one, 1)
    assert one.names.value("first").tolist() == [1.0, 1.0]
    assert one.names.value("second").tolist() == [2.0, 2.0]
    assert one.scope.named("first") is one.scope.named("second")


def test_contexts_are_entered_in_order(torch, session):
    text = (
        "prelude: |\n  def state():\n"
        "      return torch.is_grad_enabled(), torch.is_inference_mode_enabled(), "
        "torch.is_autocast_enabled('cpu')\n"
        "function: |\n  def fn(x):\n      return x\ninputs: [{zeros: [1]}]\n"
    )
    cases = {
        "[]": (True, False, False),
        "[no_grad]": (False, False, False),
        "[no_grad, enable_grad]": (True, False, False),
        "[inference_mode]": (False, True, False),
        "[{autocast: {dtype: bfloat16}}]": (True, False, True),
    }
    for context, expected in cases.items():
        one = session(
            text
            + f"context: {context}\nsteps: [{{call: {{eager: true}}, expect: [{{runs: {{}}}}]}}]"
        )
        one.compiled.targets["function"] = lambda x, one=one: one.scope.find("state")()
        assert do(one) == expected, context
    assert one.scope.find("state")() == (True, False, False)


# -- facts -----------------------------------------------------------------------------------------


class Untold(Exception):
    def __str__(self) -> str:
        raise KeyError("no")


def test_an_exception_is_told_with_its_ancestors_and_the_chain_below_it(torch):
    told = exception(torch._dynamo.exc.Unsupported("why", "case"), "trace")
    assert (told["type"], told["phase"], told["causes"]) == (
        "torch._dynamo.exc.Unsupported",
        "trace",
        [],
    )
    assert (told["ancestors"][0], told["ancestors"][-1]) == (told["type"], "builtins.object")
    assert "torch._dynamo.exc.TorchDynamoException" in told["ancestors"]
    first = OSError("disk")
    first.__cause__ = second = KeyError("key")
    second.__cause__ = first  # a chain that ends nowhere
    error = RuntimeError("no answer")
    error.__context__, error.__suppress_context__ = first, True
    causes = exception(error, "run")["causes"]
    assert [(cause["type"], cause["message"]) for cause in causes] == [
        ("builtins.OSError", "disk"),
        ("builtins.KeyError", "'key'"),
    ]
    assert exception(Untold(), "run")["message"] == "<no text: KeyError>"
    long = exception(ValueError("x" * 10_000_000), "run")
    assert len(long["message"]) == 200_000
    assert 20_000 <= len(long["traceback"]) < 20_100


BACKWARD = """\
prelude: |
  def pair(x, y):
      return x, y
  def squared(result):
      return (result[0] * result[0]).sum()
  def twice(result):
      return result[0] * 2
let:
  tangents: {value: [1, 2]}
  one: {call: torch.ones, args: [3]}
  both: {call: pair, args: [{rand: [3]}, {rand: [3]}]}
function: |
  def fn(x):
      return x * x, x * 3
inputs: [{values: [1.0, 2.0, 3.0], requires_grad: true}]
"""


@pytest.mark.parametrize(
    ("arguments", "gradient"),
    [
        ("{}", [5.0, 7.0, 9.0]),
        ("{loss: sum}", [5.0, 7.0, 9.0]),
        ("{loss: mean}", [5 / 3, 7 / 3, 3.0]),
        ("{loss: squared}", [4.0, 32.0, 108.0]),
        ("{of: out.1, loss: mean}", [1.0, 1.0, 1.0]),
        ("{of: out.0, gradient: one}", [2.0, 4.0, 6.0]),
        ("{gradient: both}", None),
    ],
)
def test_backward_begins_where_it_is_said_on_both_sides(torch, session, arguments, gradient):
    one = session(
        f"{BACKWARD}steps: [{{call: {{as: out}}, {CLOSE}}}, {{backward: {arguments}, {CLOSE}}}]"
    )
    do(one)
    (found,) = do(one, 1)
    if gradient is None:
        x, (a, b) = one.compiled.arguments[0], one.scope.named("both")
        gradient = (2 * x * a + 3 * b).tolist()
    assert found.tolist() == pytest.approx(gradient)
    assert torch.equal(one.reference.output[0], found)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            "{loss: twice}",
            "the loss 'twice' returned a tensor of shape \\[3\\], not a tensor of one number",
        ),
        (
            "{gradient: one}",
            "the gradient 'one' holds 1 values, the result 2 tensors that require a gradient",
        ),
        ("{loss: inputs.0.sum}", "sum"),
    ],
)
def test_a_loss_that_is_none_makes_the_case_an_error(session, arguments, words):
    one = session(
        f"{BACKWARD}steps: [{{call: {{as: out}}, {CLOSE}}}, {{backward: {arguments}, {CLOSE}}}]"
    )
    do(one)
    with pytest.raises(NotCarriedOut, match=words):
        do(one, 1)


def test_a_choice_that_could_not_be_timed_was_not_timed(torch):
    from torch_conformance.worker.torch_compat.compiler_hooks import Seen

    seen = Seen(
        choices=[
            {("rocm_ck_0", ""): float("inf"), ("mm", ""): 1.0},
            {("rocm_ck_1", ""): float("nan")},
        ]
    )
    assert seen.facts()["choices"] == [[{"name": "mm", "class": ""}], []]


def test_the_class_of_a_choice_is_one_that_its_module_has(torch):
    from torch._inductor.codegen.rocm.ck_universal_gemm_template import CKGemmTemplate
    from torch._inductor.codegen.rocm.rocm_kernel import ROCmTemplateCaller
    from torch._inductor.select_algorithm import (
        DataProcessorChoiceCallerWrapper,
        ExternKernelCaller,
    )

    from torch_conformance.worker.torch_compat.choice_census import class_of_choice

    def choice(of: Any, **parts: Any) -> Any:
        made = object.__new__(of)
        vars(made).update(parts)
        return made

    ck = choice(
        ROCmTemplateCaller, name="rocm_ck_gemm_template_0", template=object.__new__(CKGemmTemplate)
    )
    path = "torch._inductor.codegen.rocm.ck_universal_gemm_template.CKGemmTemplate"
    assert class_of_choice(ck) == path
    assert class_of_choice(DataProcessorChoiceCallerWrapper(ck, None, None)) == path
    assert (
        class_of_choice(choice(ExternKernelCaller, name="rocm_ck_0"))
        == "torch._inductor.select_algorithm.ExternKernelCaller"
    )
    forged = type(
        "CKGemmTemplate", (ExternKernelCaller,), {"__module__": CKGemmTemplate.__module__}
    )
    assert class_of_choice(choice(forged, name="rocm_ck_0")) == ""
    gone = type("X", (ExternKernelCaller,), {"__module__": "no.such.module"})
    assert class_of_choice(choice(gone)) == ""


PARTS = """\
prelude: |
  import contextlib
  entered = []
  @contextlib.contextmanager
  def noted():
      entered.append(torch.is_grad_enabled())
      yield
  def as_it_is(graph, examples):
      return graph.forward
let:
  backend: {call: functools.partial, args: [{ref: as_it_is}]}
context: [{ref: noted}]
function: |
  def fn(x):
      return {"double": x * 2, "pair": (x + 1, x.sum() * 3)}
inputs: [{rand: [3], requires_grad: true}]
steps:
  - call: {as: out}
  - backward: {of: out.pair.1}
    expect: [{close: {of: output.0, to: eager.0}}]
  - call: {}
  - backward: {of: output.double}
  - api: {call: torch.neg, args: [{ref: output.0}], as: negative}
  - api: {call: torch.neg, args: [{ref: eager.0}]}
"""


def test_both_sides_run_backward_of_the_same_part_of_the_same_result(torch, session):
    one = session(PARTS, compile_with="{ref: backend}")
    do(one)
    assert torch.equal(one.names.value("output.pair.0"), one.names.value("eager.pair.0"))
    assert torch.equal(one.names.value("out.double"), one.names.value("inputs.0") * 2)
    for gradient in do(one, 1), one.reference.output:
        assert torch.equal(gradient[0], torch.full((3,), 3.0))
    assert one.reference.is_there
    do(one, 2)
    for gradient in do(one, 3), one.reference.output:
        assert torch.equal(gradient[0], torch.full((3,), 2.0))
    assert torch.equal(do(one, 4), torch.full((3,), -2.0))
    assert torch.equal(do(one, 5), torch.full((3,), -2.0))
    assert len(one.scope.named("entered")) == 2  # those of eager are set back


def test_what_no_call_gave_has_no_reference_for_a_backward(torch, session):
    one = session(
        "function: |\n  def fn(x):\n      return x * 2\ninputs: [{rand: [3], requires_grad: "
        "true}]\nsteps:\n"
        f"  - call: {{as: out}}\n    {CLOSE}\n  - api: {{call: torch.sin, args: [{{ref: "
        f"out}}], as: later}}\n  - backward: {{of: later}}\n"
    )
    do(one)
    do(one, 1)
    do(one, 2)
    assert one.eager is not None
    with pytest.raises(LookupError, match="no eager reference was run in this step"):
        one.names.value("eager.0")


HOOKED = """prelude: |
  @torch._dynamo.disable
  def hook(x):
      x.register_hook(lambda grad: grad * 3)
function: |
  def fn(x):
      if torch.compiler.is_compiling(): hook(x)
      return x * 2
inputs: [{rand: [3], requires_grad: true}]
"""


def effects_of(session: Any, number: int) -> Any:
    session.begin_step(session.plan["steps"][number])
    session.do(session.plan["steps"][number])
    return session.effects.facts


def test_gradients_are_side_effects_of_backward(torch, session):
    one = session(
        f"{HOOKED}steps: [{{call: {{}}, {CLOSE}}}, {{backward: {{}}, expect: [{{runs: {{}}}}]}}]"
    )
    assert [leaf["path"] for leaf in effects_of(one, 0)["leaves"]] == [
        "argument [0] as an object",
        "argument [0].hook[0] as an object",
    ]
    (leaf,) = effects_of(one, 1)["leaves"]
    assert (leaf["path"], leaf["worst_value"], leaf["worst_reference"]) == (
        "argument [0].grad",
        6.0,
        2.0,
    )


def test_parameters_and_gradients_are_side_effects_of_an_optimizer(torch, session):
    text = "function: {module: torch.nn.Linear, args: [3, 2]}\ninputs: [{rand: [3, 3]}]\n"
    steps = (
        f"{{call: {{}}, {CLOSE}}}, {{backward: {{}}, {CLOSE}}}, {{optimizer: {{call: "
        f"torch.optim.SGD, kwargs: {{lr: 0.1}}}}, {CLOSE}}}"
    )
    one = session(f"{text}steps: [{steps}]")
    assert [effects_of(one, number)["leaves"] for number in range(2)] == [[], []]
    one.compiled.targets["function"].bias.grad += 1
    facts = effects_of(one, 2)
    assert facts["apart"] == ["function.bias.grad"]
    assert [leaf["path"] for leaf in facts["leaves"]] == ["function.bias"]
