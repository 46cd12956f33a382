"""Samples of operators by the calibrated judge: small functions in place of operators, answers in
place of compiled code.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fakes import import_torch, observation, observed, reading, seen
from tests.sessions import prepared
from torch_conformance.model.expectation import Status
from torch_conformance.model.protocol import decode, dumps, encode, loads
from torch_conformance.vocabulary.expectations.close import Close
from torch_conformance.vocabulary.steps.samples import FORM, EachSample

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]

torch: Any = import_torch()

SPEC = (
    "function: |\n  def fn(x):\n      return x\ninputs: [{rand: [2]}]\nexpect: [{close: {to: "
    "eager}}]\n"
)

Judged = tuple[Any, list[dict[str, Any]]]


@pytest.fixture
def judge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Judged]:
    """Return what runs samples of a function, compares them with what another function answers, and
    judges them.
    """
    from torch_conformance.vocabulary.steps import samples

    session, _ = prepared(tmp_path, SPEC)
    monkeypatch.setattr(session.opinfo, "announce_sample", lambda index, text: None)

    def run(
        function: Any,
        answer: Any,
        *given: Any,
        rule: str = "close",
        body: Any = None,
        count: int = 1,
        **kinds: Any,
    ) -> Judged:
        named = {
            "takes_gradients": any(
                one.requires_grad for one in given if isinstance(one, torch.Tensor)
            ),
            "takes_out": False,
            **kinds,
        }
        operator = SimpleNamespace(function=function, **named)
        compiled = SimpleNamespace(
            of=lambda plain: answer,
            watched=lambda: SimpleNamespace(graphs=0, end=lambda what: None),
        )
        session.compiled_functions = compiled
        done = [
            samples._run(session, operator, index, session.opinfo.Sample(given, {}))
            for index in range(count)
        ]
        check = EachSample(check=Close.parse(body or {"to": "eager"}), rule=rule)
        wanted = check.measurement()
        assert wanted is not None
        facts: Any = samples.measure_samples(wanted, lambda name: done)
        session.output = done
        session.additional.of_measurement({"kind": "samples", "arguments": wanted}, facts)
        session.additional.run()
        sent = loads(dumps(encode(facts)))
        assert not observed(observation(seen(measured={"0": sent}))).nonsense
        (judgement,) = check.judge(reading(measured=decode(sent)))
        return judgement, decode(sent)["samples"]

    return run


def made(*shape: int, dtype: Any = torch.float32, seed: int = 0, needs: bool = True) -> Any:
    generator = torch.Generator().manual_seed(seed)
    return (
        torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_(needs)
    )


def product(x: Any, y: Any) -> Any:
    return x @ y


def hooked(change: Callable[[Any], Any]) -> Callable[..., Any]:
    """Return a product whose result is right, and whose gradient is changed."""

    def call(x: Any, y: Any) -> Any:
        found = x @ y
        if found.requires_grad:
            found.register_hook(change)
        return found

    return call


def one_wrong(value: Any) -> Any:
    places = torch.zeros_like(value)
    places[3, 3] = 1
    return value - value * places


def narrow(x: Any, y: Any) -> Any:
    """Multiply with an accumulator of bfloat16."""
    total = torch.zeros((x.shape[0], y.shape[1]), dtype=torch.bfloat16)
    for k in range(x.shape[1]):
        total = (total.float() + x[:, k : k + 1].float() * y[k : k + 1].float()).bfloat16()
    return total.to(x.dtype)


WRONG: dict[str, Callable[..., Any]] = {
    "x 1.02": lambda x, y: (x @ y) * 1.02,
    "one element": lambda x, y: one_wrong(x @ y),
    "an accumulator of bfloat16": narrow,
    "NaN": lambda x, y: torch.where(torch.arange(24 * 24).reshape(24, 24) == 7, torch.nan, x @ y),
    "gradient halved": hooked(lambda gradient: gradient / 2),
    "one element of a gradient": hooked(one_wrong),
    "a gradient of NaN": hooked(lambda gradient: gradient * torch.nan),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["float32", "bfloat16"])
@pytest.mark.parametrize("wrong", WRONG)
def test_a_wrong_sample_is_refused(judge: Callable[..., Judged], dtype: Any, wrong: str) -> None:
    left, right = made(24, 128, dtype=dtype), made(128, 24, dtype=dtype, seed=1)
    found, _ = judge(product, WRONG[wrong], left, right)
    assert found.status is Status.FAILED
    assert found.expected.startswith(
        "sample 0: output['gradients']" if "gradient" in wrong else "sample 0: output['result']"
    )
    assert "error against float64" in found.expected
    assert (
        "float32[24, 128] strides [128, 1]".replace("float32", str(dtype).removeprefix("torch."))
        in found.detail
    )


def exp(x: Any) -> Any:
    return x.exp()


def writing(x: Any) -> Any:
    answer = x.exp()
    x.add_(1)
    return answer


ASPECTS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "numbers": (exp, lambda x: x.exp() * 1.02),
    "strides": (exp, lambda x: x.exp().t().contiguous().t()),
    "dtype": (exp, lambda x: x.exp().double()),
    "shape": (exp, lambda x: x.exp()[None]),
    "structure": (exp, lambda x: (x.exp(), x.exp())),
    "aliasing": (torch.clone, lambda x: x),
    "side effect": (exp, writing),
    "random stream": (torch.rand_like, lambda x: torch.rand(2, *x.shape)[1]),
}


@pytest.mark.parametrize("aspect", ASPECTS)
def test_what_of_a_sample_is_wrong_is_told(judge: Callable[..., Judged], aspect: str) -> None:
    function, answer = ASPECTS[aspect]
    found, _ = judge(function, answer, made(8, 16, needs=False))
    assert {value.aspect for value in found.wrong} == {aspect}
    assert found.worst is None


def test_a_sample_that_was_called_again_counts_once(judge: Callable[..., Judged]) -> None:
    given, check = made(8, 16, needs=False), EachSample(check=Close.parse({"to": "eager"}))
    _, right = judge(exp, exp, given, count=2)
    _, (wrong,) = judge(exp, ASPECTS["numbers"][1], given)
    entries = [*right, {**right[0], "text": "again"}]
    (held,) = check.judge(reading(measured={"samples": entries}))
    assert held.observed.startswith("2 samples compared")
    assert held.worst is not None
    assert 0 <= held.worst <= 1
    entries += [{**wrong, "index": 1, "text": text} for text in ("first", "again")]
    (failed,) = check.judge(reading(measured={"samples": entries}))
    assert failed.detail.startswith("1 of 2 samples failed")


def cancelling(x: Any) -> Any:
    """Lose most digits in the dtype of the input, in the result and in the gradient."""
    return torch.sigmoid(x) * (1 + torch.tanh(x)) - torch.sigmoid(x) * torch.tanh(x)


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float32], ids=["bfloat16", "float16", "float32"]
)
def test_a_sample_with_an_error_like_eagers_is_right(
    judge: Callable[..., Judged], dtype: Any
) -> None:
    given = made(64, 32, dtype=dtype)
    wide = torch.float64 if dtype is torch.float32 else torch.float32
    found, entries = judge(cancelling, lambda x: cancelling(x.to(wide)).to(x.dtype), given)
    assert found.status is Status.HELD, found
    assert "2 values by the float64 reference (greatest error" in found.observed
    if dtype is torch.bfloat16:
        leaf = entries[0]["value"]["leaves"][1]
        assert (leaf["path"], leaf["excess"] > leaf["atol"]) == ("['gradients'][0]", True), (
            "the dtype's tolerance refuses it"
        )
    found, _ = judge(cancelling, lambda x: cancelling(x.to(wide)).to(x.dtype) * 1.02, given)
    assert found.status is Status.FAILED


def test_the_float64_run_begins_from_the_same_gradient(judge: Callable[..., Judged]) -> None:
    _, entries = judge(product, product, made(24, 128), made(128, 24, seed=1))
    for leaf in entries[0]["value"]["leaves"]:
        assert leaf["calibrated"]["eager_max_error"] < 1e-4, (
            "another gradient would give an error of about 10"
        )


def test_no_mutant_of_a_right_sample_survives(judge: Callable[..., Judged]) -> None:
    check = EachSample(check=Close.parse({"to": "eager"}))
    _, entries = judge(product, product, made(24, 128), made(128, 24, seed=1))
    tried = [
        one
        for one in check.mutants(reading(measured={"samples": entries}))
        if one.facts is not None
    ]
    assert {one.name for one in tried} >= {
        "zeros",
        "one element off",
        "one element zero",
        "lower precision",
        "NaN",
    }
    assert not [
        one.name for one in tried if one.facts and check.judge(one.facts)[0].status is Status.HELD
    ]


TOLERANCE, ROUNDINGS = "1 values within tolerance (", "1 values by eager with other roundings ("

WITHOUT: dict[str, tuple[Callable[..., Any], Any, str, str]] = {
    "integers": (lambda x: x.abs().argmax(-1), 1, TOLERANCE, "values of dtype int64 are exact"),
    "bits": (
        lambda x: x.view(torch.int32).view(torch.float32) * 1,
        1.5,
        ROUNDINGS,
        "reinterprets the bits",
    ),
}


@pytest.mark.parametrize("kind", WITHOUT)
def test_without_a_reference_another_judge_is_named(
    judge: Callable[..., Judged], kind: str
) -> None:
    function, off, way, why = WITHOUT[kind]
    given = made(16, 32, needs=False)
    found, _ = judge(function, function, given)
    assert found.status is Status.HELD
    assert way in found.observed
    assert why in found.observed
    found, _ = judge(function, lambda x: function(x) + off, given)
    assert found.status is Status.FAILED
    assert why in found.expected


def test_a_sample_that_draws_random_numbers_has_a_reference(judge: Callable[..., Judged]) -> None:
    given = made(16, 32, needs=False)
    found, _ = judge(torch.nn.functional.dropout, torch.nn.functional.dropout, given)
    assert found.status is Status.HELD
    assert "1 values by the float64 reference" in found.observed
    found, _ = judge(
        torch.nn.functional.dropout, lambda x: torch.nn.functional.dropout(x) * 1.001, given
    )
    assert found.status is Status.FAILED


def test_in_place_and_out_have_a_reference(judge: Callable[..., Judged]) -> None:
    given = made(16, 64, needs=False)
    found, entries = judge(lambda x: x.exp_(), lambda x: x.exp_(), given)
    assert found.status is Status.HELD
    assert "1 values by the float64 reference" in found.observed
    found, entries = judge(
        lambda x: x.exp_(), lambda x: x.copy_(x.double().exp().mul(1.001)), given
    )
    assert found.status is Status.FAILED
    assert [leaf["path"] for leaf in entries[0]["value"]["leaves"]] == [
        "['result']",
        "['arguments']['0']",
    ]
    assert all("numel" in leaf["calibrated"] for leaf in entries[0]["value"]["leaves"])

    def into(x: Any, out: Any = None) -> Any:
        return torch.exp(x, out=out)

    assert judge(into, into, given, takes_out=True)[0].status is Status.HELD
    wrong = judge(into, lambda x, out: out.copy_(x.exp() * 1.001), given, takes_out=True)[0]
    assert wrong.status is Status.FAILED
    assert wrong.expected.startswith(
        "sample 0: output['out'] within 2 x eager's error against float64"
    )


def test_complex_values_have_a_reference(judge: Callable[..., Judged]) -> None:
    given = made(64, needs=False)
    found, _ = judge(torch.fft.fft, torch.fft.fft, given)
    assert "1 values by the float64 reference" in found.observed
    assert (
        judge(torch.fft.fft, lambda x: torch.fft.fft(x) * 1.0005, given)[0].status is Status.FAILED
    )


@pytest.mark.parametrize(
    ("view", "strides"),
    [
        (lambda x: x.t(), (40, 3)),
        (lambda x: x[::2], (40, 3)),
        (lambda x: x[:1].expand(4, 32), (6, 3)),
    ],
    ids=["transposed", "gaps", "expanded"],
)
def test_the_reference_reads_memory_as_the_case_does(
    judge: Callable[..., Judged], view: Any, strides: tuple[int, int]
) -> None:
    def strided(x: Any) -> Any:
        return torch.as_strided(x, (4, 4), strides) * 3

    found, entries = judge(strided, strided, view(made(16, 32, needs=False)))
    assert found.status is Status.HELD
    assert entries[0]["value"]["leaves"][0]["calibrated"]["eager_max_error"] < 1e-6


def test_a_tensor_without_elements_leaves_the_others_their_reference(
    judge: Callable[..., Judged],
) -> None:
    def scaled(x: Any, y: Any) -> Any:
        return x * 3 + y.sum(), y * 2

    found, entries = judge(scaled, scaled, made(8, 64), made(0, 4))
    assert found.status is Status.HELD
    assert found.observed.startswith(
        "1 sample compared, 1 without a compiled graph; 4 values by the float64 reference ("
    )
    assert [leaf["numel"] for leaf in entries[0]["value"]["leaves"]] == [512, 0, 512, 0]
    wrong, _ = judge(scaled, lambda x, y: (x * 3.01 + y.sum(), y * 2), made(8, 64), made(0, 4))
    assert wrong.status is Status.FAILED


def test_the_form_needs_no_reference(judge: Callable[..., Judged]) -> None:
    found, entries = judge(torch.empty_like, torch.empty_like, made(4, needs=False), rule=FORM)
    assert found.status is Status.HELD
    assert "calibrated" not in entries[0]["value"]["leaves"][0]


def test_the_words_of_close_choose_the_judge(judge: Callable[..., Judged]) -> None:
    left, right = made(24, 128), made(128, 24, seed=1)
    loose, _ = judge(
        product, WRONG["x 1.02"], left, right, body={"to": "eager", "atol": 5.0, "rtol": 0.1}
    )
    assert loose.status is Status.HELD
    body = {"to": "eager", "atol": 1e-2, "rtol": 1e-2}
    assert judge(product, product, left, right, body=body)[0].status is Status.HELD
    assert judge(product, WRONG["x 1.02"], left, right, body=body)[0].status is Status.FAILED
