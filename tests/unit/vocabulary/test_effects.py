"""Side effects: what the worker compares of a call, and how the runner judges it.

Nothing of inductor is compiled.
"""

import collections
import copy
import dataclasses
import random
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest

from tests.compared_effects import DEFAULTS, compared
from tests.fakes import close_leaf, import_torch
from torch_conformance.model.expectation import Status

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

torch: Any = import_torch()
numpy: Any = pytest.importorskip("numpy")


class Box:
    """An object of a class that pytree does not know."""

    __slots__ = ("held", "seen", "slot")

    def __init__(self) -> None:
        self.held = [torch.zeros(2)]
        self.seen = {1}
        self.slot = 0


class Words(dict[str, Any]):
    """A subclass of dict, which is a leaf for pytree."""


@dataclass
class Pair:
    first: Any = field(default_factory=lambda: torch.zeros(2))
    second: int = 0


class Module(torch.nn.Module):  # type: ignore[misc]  # mypy does not follow torch
    def __init__(self) -> None:
        super().__init__()
        self.inner = torch.nn.Linear(2, 2, dtype=torch.float64)
        self.register_buffer("hidden", torch.zeros(2), persistent=False)
        self.count = 0
        self.cache = {"last": [torch.zeros(2)]}
        self.maybe = None

    def forward(self, x: Any) -> Any:
        return self.inner(x)

    def method(self, x: Any) -> Any:
        return x


def other(path: Callable[[Any], Any]) -> Callable[..., None]:
    """Return a change that adds 2 to a tensor in eager mode, and 1 in the compiled call."""

    def change(eager: bool, _: Any, argument: Any) -> None:
        path(argument).add_(2 if eager else 1)

    return change


def assigned(owner: Callable[[Any], Any], name: str) -> Callable[..., None]:
    def change(eager: bool, target: Any, *arguments: Any) -> None:
        setattr(
            owner(arguments[0] if arguments else target), name, "eager" if eager else "compiled"
        )

    return change


VALUES: dict[str, tuple[Callable[..., Any], Callable[[], Any], str]] = {
    "tensor": (other(lambda x: x), lambda: torch.zeros(2), "argument [0]"),
    "nested containers": (
        other(lambda x: x["a"][1][0]),
        lambda: {"a": [1, (torch.zeros(2),)]},
        "argument [0]['a'][1][0]",
    ),
    "subclass of dict": (
        other(lambda x: x["a"][0]),
        lambda: Words(a=[torch.zeros(2)]),
        "argument [0]['a'][0]",
    ),
    "slots": (other(lambda x: x.held[0]), Box, "argument [0].held[0]"),
    "slot": (assigned(lambda x: x, "slot"), Box, "argument [0].slot"),
    "dataclass": (other(lambda x: x.first), Pair, "argument [0].first"),
    "parameter": (
        lambda e, _, m: m.inner.weight.data.add_(2 if e else 1),
        Module,
        "argument [0].inner.weight",
    ),
    "buffer that is not persistent": (other(lambda m: m.hidden), Module, "argument [0].hidden"),
    "attribute": (assigned(lambda m: m, "count"), Module, "argument [0].count"),
    "attribute that was None": (
        lambda e, _, m: setattr(m, "maybe", torch.ones(2) if e else None),
        Module,
        "argument [0].maybe",
    ),
    "attribute of a submodule": (
        assigned(lambda m: m.inner, "in_features"),
        Module,
        "argument [0].inner.in_features",
    ),
    "tensor of an attribute": (
        other(lambda m: m.cache["last"][0]),
        Module,
        "argument [0].cache['last'][0]",
    ),
    "mode": (lambda e, _, m: m.train(e), Module, "argument [0].training"),
    "grad of an argument": (
        lambda e, _, x: setattr(x, "grad", torch.ones(2) if e else None),
        lambda: torch.zeros(2, requires_grad=True),
        "argument [0].grad",
    ),
    "grad of a parameter": (
        lambda e, _, m: setattr(
            m.inner.bias, "grad", torch.full((2,), 2.0 if e else 1.0, dtype=torch.float64)
        ),
        Module,
        "argument [0].inner.bias.grad",
    ),
    "requires_grad": (lambda e, _, x: x.requires_grad_(e), lambda: torch.zeros(2), "argument [0]"),
    "requires_grad beside rounding": (
        lambda e, _, x: x.requires_grad_(e).data.add_(0 if e else 1e-7),
        lambda: torch.zeros(2),
        "argument [0]",
    ),
    "requires_grad of a parameter": (
        lambda e, _, m: m.inner.weight.requires_grad_(e),
        Module,
        "argument [0].inner.weight",
    ),
    "strides": (lambda e, _, x: x.t_() if e else x, lambda: torch.zeros(2, 2), "argument [0]"),
    "version counter": (
        lambda e, _, x: x.add_(0) if e else x,
        lambda: torch.zeros(2),
        "version counter of argument [0]",
    ),
}


@pytest.mark.parametrize("name", VALUES)
def test_another_change_fails_and_is_named_and_the_same_change_passes(name: str) -> None:
    change, argument, path = VALUES[name]
    judgement, _ = compared(lambda *given: (change(*given), None)[1], argument)
    assert judgement.status is Status.FAILED
    assert path in judgement.expected, judgement
    judgement, facts = compared(lambda eager, *given: (change(True, *given), None)[1], argument)
    assert judgement.status is Status.HELD, judgement
    assert facts["compared"] >= 1
    assert not facts["apart"]


def hidden(eager: bool, module: Any) -> None:
    module.hidden.add_(2 if eager else 1)


@pytest.mark.parametrize(
    ("change", "options", "expected"),
    [
        (
            lambda eager, method: hidden(eager, method.__self__),
            {"target": lambda: Module().method},
            "function.hidden",
        ),
        (hidden, {"target": Module, "is_package": True}, None),  # it has its own parameters
        (
            lambda eager, m: None if eager else setattr(m, "_is_torch_compile", True),
            {"target": Module},
            None,
        ),
    ],
    ids=["bound method", "package", "attribute that the compiler sets"],
)
def test_what_of_the_target_is_compared(change: Any, options: Any, expected: str | None) -> None:
    judgement, _ = compared(change, **options)
    assert judgement.status is Status.HELD if expected is None else expected in judgement.expected


def test_a_write_that_autograd_notices_once_more_than_eager_passes() -> None:
    judgement, _ = compared(
        lambda eager, _, x: None if eager else (x.add_(0), None)[1], lambda: torch.zeros(2)
    )
    assert judgement.status is Status.HELD


ALIASES: dict[str, tuple[Callable[[Any], Any], Callable[[Any], Any], str]] = {
    "itself": (lambda x: x, lambda x: x.clone(), "output is the tensor argument [0]"),
    "view": (
        lambda x: [x.view(-1)],
        lambda x: [x.reshape(-1).clone()],
        "output[0] is a view of the memory of argument [0]",
    ),
    "copy": (lambda x: x.clone(), lambda x: x.view(2, 2), "output is memory of its own"),
    "view for itself": (lambda x: x, lambda x: x.view(2, 2), "output is the tensor argument [0]"),
}


@pytest.mark.parametrize("name", ALIASES)
def test_a_result_with_other_memory_fails(name: str) -> None:
    eager, compiled, expected = ALIASES[name]
    judgement, _ = compared(
        lambda is_eager, _, x: eager(x) if is_eager else compiled(x), lambda: torch.zeros(2, 2)
    )
    assert judgement.expected == expected
    assert judgement.status is Status.FAILED
    for same in (eager, compiled):
        held, _ = compared(lambda is_eager, _, x, same=same: same(x), lambda: torch.zeros(2, 2))
        assert held.status is Status.HELD


def test_a_result_that_autograd_cannot_follow_fails() -> None:
    judgement, facts = compared(
        lambda e, _, x: (x * 2 if e else (x * 2).detach(), x + 1),
        lambda: torch.ones(2, requires_grad=True),
    )
    assert judgement.status is Status.FAILED
    assert [(leaf["path"], leaf["value"]) for leaf in facts["leaves"]] == [
        ("output[0] as an object", "torch.Tensor")
    ]


def test_gradients_that_close_judges_are_left_to_it() -> None:
    from torch_conformance.worker.case.effects import Effects

    sides = [[None, torch.ones(2, requires_grad=True)] for _ in range(2)]
    for wanted, paths in ((True, ["argument [0].grad"]), (False, [])):
        effects = Effects({**DEFAULTS, "gradients": wanted}, {})
        for number, (_, x) in enumerate(sides):
            x.grad = None
            if not number:
                effects.before(*sides)
            x.grad = torch.full((2,), 1.0 + number)
        assert [leaf["path"] for leaf in effects.after(*sides, None)["leaves"]] == paths


def test_empty_tensors_share_no_memory() -> None:
    judgement, _ = compared(
        lambda eager, _, x: x.view(0) if eager else x.clone(), lambda: torch.zeros(0)
    )
    assert judgement.status is Status.HELD


FALLBACK = {"options": {"fallback_random": True}}


@pytest.mark.parametrize(
    ("eager", "compiled", "settings", "status"),
    [
        (0, 0, {}, Status.HELD),
        (0, 1, {}, Status.FAILED),
        (1, 2, {}, Status.HELD),  # inductor draws seeds
        (1, 0, {}, Status.HELD),  # inductor removes unused random operators
        (1, 1, FALLBACK, Status.HELD),
        (1, 2, FALLBACK, Status.FAILED),
        (1, 0, FALLBACK, Status.FAILED),
        (1, 2, {"backend": "eager"}, Status.FAILED),
        (1, 2, {"backend": "inductor"}, Status.HELD),
    ],
)
def test_generators(eager: int, compiled: int, settings: Any, status: Status) -> None:
    def draw(is_eager: bool, _: Any) -> None:
        for _ in range(eager if is_eager else compiled):
            torch.rand(1)

    judgement, _ = compared(draw, settings=settings)
    assert judgement.status is status
    assert status is Status.HELD or "RNG state of cpu" in judgement.expected


def test_the_generator_of_python_is_compared() -> None:
    judgement, _ = compared(lambda eager, _: None if eager else (random.random(), None)[1])
    assert judgement.expected == "RNG state of python as eager leaves it (unchanged)"
    assert judgement.observed == "advanced"
    judgement, _ = compared(lambda eager, _: (random.random(), None)[1])
    assert judgement.status is Status.HELD


def test_the_generator_of_numpy_is_compared_where_eager_leaves_it_alone() -> None:
    judgement, _ = compared(lambda eager, _: None if eager else (numpy.random.rand(), None)[1])
    assert (judgement.expected, judgement.observed) == (
        "RNG state of numpy unchanged, as eager leaves it",
        "advanced",
    )
    for draws in (
        lambda eager, _: (numpy.random.rand(), None)[1],
        lambda eager, _: (eager and numpy.random.rand(), None)[1],
    ):
        assert compared(draws)[0].status is Status.HELD, (
            "dynamo may draw by torch what eager draws by numpy"
        )


def test_both_sides_begin_with_the_same_generators_of_python_and_numpy() -> None:
    from torch_conformance.worker.case.effects import Generators, state

    def draws() -> list[float]:
        return [random.random(), float(numpy.random.rand()), float(torch.rand(()))]

    state.reseed(2**40 + 3)
    begun, first = Generators.now(), draws()
    begun.restore()
    assert draws() == first
    state.reseed(2**40 + 3)
    assert draws() == first
    state.reseed(4)
    assert [one == other for one, other in zip(draws(), first, strict=True)] == [False] * 3


MODES: dict[str, tuple[Callable[[], Any], str, str]] = {
    "grad mode": (
        lambda: torch.set_grad_enabled(False),
        "grad mode is True, as eager leaves it",
        "False",
    ),
    "default dtype": (
        lambda: torch.set_default_dtype(torch.float64),
        "default dtype is torch.float32, as eager leaves it",
        "torch.float64",
    ),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "threads is ", ""),
    "autocast": (lambda: torch.set_autocast_enabled("cpu", True), "autocast of cpu is ", ""),
    "deterministic": (
        lambda: torch.use_deterministic_algorithms(True),
        "deterministic algorithms is (False, False)",
        "(True, False)",
    ),
    "matmul precision": (
        lambda: torch.set_float32_matmul_precision("medium"),
        "cublas allow tf32 is False",
        "True",
    ),
    "check sparse tensor invariants": (
        lambda: torch.sparse.check_sparse_tensor_invariants.enable(),
        "",
        "True",
    ),
    "torch.backends.mkldnn.matmul.fp32_precision": (
        lambda: setattr(torch.backends.mkldnn.matmul, "fp32_precision", "bf16"),
        "",
        "bf16",
    ),
    "options of Inductor": (
        lambda: setattr(torch._inductor.config, "max_fusion_size", 3),
        "",
        "",
    ),
    "numpy's handling of errors": (lambda: numpy.seterr(all="raise"), "", "raise"),
    "default device": (lambda: torch.set_default_device("meta"), "default device is None", "meta"),
    "hooks of saved tensors": (
        lambda: torch._C._autograd._push_saved_tensors_default_hooks(lambda x: x, lambda x: x),
        "",
        "",
    ),
    "plain attention": (lambda: torch.backends.cuda.enable_math_sdp(False), "", ""),
    "multithreading enabled": (lambda: torch._C._set_multithreading_enabled(False), "", ""),
    "torch function state": (
        lambda: torch._C._set_torch_function_state(torch._C._TorchFunctionState.ALL_DISABLED),
        "",
        "",
    ),
    "autocast's cache": (lambda: torch.set_autocast_cache_enabled(False), "", ""),
    "deterministic fill uninitialized memory": (
        lambda: torch._C._set_deterministic_fill_uninitialized_memory(False),
        "",
        "",
    ),
}
"""What changes a mode, how the expectation of it begins where that is not its name, and what is
observed.
"""


@pytest.mark.parametrize("name", MODES)
def test_a_mode_that_only_the_compiled_call_changes_is_seen(name: str) -> None:
    change, expected, observed = MODES[name]
    is_stack = name == "hooks of saved tensors"
    try:
        judgement, _ = compared(lambda eager, _: None if eager else (change(), None)[1])
        assert judgement.status is Status.FAILED
        assert judgement.expected.startswith(expected or f"{name} is "), judgement.expected
        assert observed in judgement.observed
    finally:
        if is_stack:
            torch._C._autograd._pop_saved_tensors_default_hooks()
    if not is_stack:
        lost, _ = compared(lambda eager, _: (change(), None)[1] if eager else None)
        assert lost.status is Status.FAILED, "the change of eager is lost"
        both, _ = compared(lambda eager, _: (change(), None)[1])
        assert both.status is Status.HELD


# -- objects ---------------------------------------------------------------------------------------


class Key:
    """A key whose text is its address."""


def held(**attributes: Any) -> Callable[[], Any]:
    return lambda: SimpleNamespace(**copy.deepcopy(attributes))


def again(given: Any) -> None:
    given.a["x"] = given.a.pop("x")


CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "order of a dict": (held(a={"x": 1, "y": 2}), again),
    "order of an OrderedDict": (
        held(a=collections.OrderedDict(x=1, y=2)),
        lambda one: one.a.move_to_end("x"),
    ),
    "kind of a container": (held(a=[1]), lambda one: setattr(one, "a", (1,))),
    "an empty container": (held(a=[]), lambda one: delattr(one, "a")),
    "an empty container within": (held(a=[[], 1]), lambda one: one.a.__setitem__(0, {})),
    "a function": (held(a=max), lambda one: setattr(one, "a", min)),
    "a module of Python": (lambda: SimpleNamespace(a=numpy), lambda one: setattr(one, "a", random)),
    "a generator of random": (held(a=random.Random(3)), lambda one: one.a.random()),
    "a generator of torch": (
        lambda: SimpleNamespace(a=torch.Generator().manual_seed(3)),
        lambda one: torch.rand(1, generator=one.a),
    ),
    "an array beside NaN": (
        lambda: numpy.array([float("nan"), 1.0]),
        lambda one: one.__setitem__(1, 2.0),
    ),
    "the dtype of an array": (
        held(a=numpy.ones(3)),
        lambda one: setattr(one, "a", one.a.astype("float32")),
    ),
    "an array of texts": (held(a=numpy.array(["a", "b"])), lambda one: one.a.__setitem__(0, "c")),
    "a reversed array": (lambda: numpy.arange(4.0)[::-1], lambda one: one.__setitem__(0, 9.0)),
    "a value by a key without a text": (
        lambda: {Key(): 1.0, Key(): 2.0},
        lambda one: one.__setitem__(list(one)[1], 3.0),
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_one_side_is_seen_and_that_of_both_passes(name: str) -> None:
    make, change = CHANGES[name]
    for is_lost, side in ((False, "compiled"), (True, "eager")):
        judgement, _ = compared(
            lambda eager, _, given, is_lost=is_lost: (
                (change(given), None)[1] if eager is is_lost else None
            ),
            make,
        )
        assert judgement.status is Status.FAILED, f"the change of {side}"
    both, facts = compared(lambda eager, _, given: (change(given), None)[1], make)
    assert (both.status, facts["apart"]) == (Status.HELD, ()), both
    assert compared(lambda *given: None, make)[0].status is Status.HELD


def test_the_sign_of_zero_in_an_array_that_eager_only_reads_is_kept() -> None:
    judgement, _ = compared(
        lambda eager, _, given: None if eager else given.__setitem__(1, -0.0),
        lambda: numpy.zeros(3),
    )
    assert judgement.observed == "changed in 1 of 3 elements: [1] from 0.0 to -0.0"


def test_computed_numbers_of_an_array_are_judged_as_those_of_a_tensor() -> None:
    def change(eager: bool, _: Any, given: Any) -> None:
        given[:] = 1 / 3 if eager else 1 / 3 + 2**-53

    judgement, facts = compared(change, lambda: numpy.ones(3))
    assert (judgement.status, len(facts["leaves"])) == (Status.HELD, 1)


def state() -> Any:
    module = torch.nn.Module()
    module.register_buffer("kept", torch.ones(3))
    return module


def replaced(eager: bool, module: Any) -> None:
    module.kept = module.kept * 2 if not eager else (module.kept + 1).add_(0)


def written(_: bool, module: Any) -> None:
    module.kept.mul_(2)


def test_a_tensor_that_eager_replaces_has_no_version_counter_of_before() -> None:
    assert compared(replaced, target=state)[0].status is Status.HELD
    assert compared(written, target=state)[0].status is Status.HELD


def test_a_tensor_that_eager_writes_must_be_written() -> None:
    def change(eager: bool, module: Any) -> None:
        (written if eager else replaced)(eager, module)

    judgement, _ = compared(change, target=state)
    assert (judgement.expected, judgement.observed) == (
        "function.kept is written in place, as by eager",
        "replaced by another tensor",
    )

    def unnoticed(eager: bool, module: Any) -> None:
        if eager:
            written(eager, module)
        else:
            module.kept.data.mul_(2)

    judgement, _ = compared(unnoticed, target=state)
    assert judgement.expected == "version counter of function.kept is advanced"


def test_the_gaps_of_a_tensor_that_eager_writes_in_part_keep_their_bits() -> None:
    def change(eager: bool, _: Any, given: Any) -> None:
        given[0, 0] = 5.0
        if not eager:
            given.as_strided((1,), (1,), 5).fill_(9.0)

    judgement, _ = compared(change, lambda: torch.ones(4, 8)[:, :4])
    assert judgement.observed == "changed in 2 of 64 elements: [6] from 128 to 16"
    assert "outside of the tensors of the call" in judgement.expected
    assert (
        compared(
            lambda eager, _, given: (given[0].fill_(5.0), None)[1], lambda: torch.ones(4, 8)[:, :4]
        )[0].status
        is Status.HELD
    )


@pytest.mark.parametrize("where", ["buffer", "attribute", "object"])
def test_gradients_that_close_does_not_judge_are_compared(where: str) -> None:
    def made() -> Any:
        module, tensor = torch.nn.Module(), torch.ones(2, requires_grad=True)
        module.weight = torch.nn.Parameter(torch.ones(2))
        if where == "buffer":
            module.register_buffer("it", tensor)
        else:
            module.it = tensor if where == "attribute" else SimpleNamespace(it=tensor)
        return module

    def change(eager: bool, module: Any) -> None:
        tensor = module.it.it if where == "object" else module.it
        tensor.grad = torch.full((2,), 1.0 if eager else 3.0)

    judgement, _ = compared(change, target=made, tolerance={"gradients": False})
    assert judgement.status is Status.FAILED
    assert ".grad " in judgement.expected

    def of_a_parameter(eager: bool, module: Any) -> None:
        module.weight.grad = torch.full((2,), 1.0 if eager else 3.0)

    assert (
        compared(of_a_parameter, target=made, tolerance={"gradients": False})[0].status
        is Status.HELD
    ), "close judges it"


@dataclasses.dataclass
class Out:
    value: Any


def test_results_in_dataclasses_share_memory_and_have_histories() -> None:
    def change(eager: bool, _: Any, given: Any) -> Any:
        return Out(given if eager else given.clone())

    judgement, _ = compared(change, lambda: torch.ones(3))
    assert judgement.expected == "output['value'] is the tensor argument [0]"
    judgement, _ = compared(
        lambda eager, _, given: Out(given * 2 if eager else (given * 2).detach()),
        lambda: torch.ones(3, requires_grad=True),
    )
    assert (judgement.expected, judgement.observed) == (
        "output.value as an object is torch.Tensor, with a grad_fn",
        "torch.Tensor",
    )


# -- repetitions -----------------------------------------------------------------------------------


def differing(path: str, mismatches: int = 1) -> dict[str, Any]:
    """Return the facts of a tensor that differs from eager's, by more than the tolerance where
    there are mismatches.
    """
    return {**close_leaf(excess=1.0, mismatches=mismatches), "path": path}


def facts(
    *paths: str, apart: tuple[str, ...] = (), generators: tuple[str, ...] = ()
) -> dict[str, Any]:
    return {
        "compared": 3,
        "changes": 1,
        "apart": list(apart),
        "leaves": [differing(path) for path in paths],
        "generators": list(generators),
    }


def test_what_differs_after_one_of_several_repetitions_counts() -> None:
    from torch_conformance.worker.case.effects import with_repetition

    kept = with_repetition(facts("argument [0]"), facts(apart=("argument [0]", "argument [1]")))
    assert kept["leaves"] == [differing("argument [0]")], "although it is apart before the second"
    assert kept["apart"] == ["argument [1]"]
    both = with_repetition(
        facts("a", generators=("first",)), facts("a", "b", generators=("second",))
    )
    assert [leaf["path"] for leaf in both["leaves"]] == ["a", "b"], "each path once"
    assert both["generators"] == ["first", "second"]
    near = {**facts(), "leaves": [differing("a", mismatches=0)]}
    assert with_repetition(near, facts("a", apart=("b",)))["leaves"] == [
        differing("a", mismatches=0),
        differing("a"),
    ]
    assert with_repetition(facts("a"), near)["leaves"] == [differing("a")]
    assert with_repetition(None, facts("a")) == facts("a")
