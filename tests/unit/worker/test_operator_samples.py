"""The samples of torch's database in the worker, in this process: the committed table, the draws,
and what is compared of each sample.
"""

import contextlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import import_torch, observation, observed, reading, seen
from tests.sessions import prepared
from tools.generate_names import operators_of
from torch_conformance.language.load import load
from torch_conformance.language.operators import operators_for
from torch_conformance.language.torch_names import OPERATOR, committed_tables
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.model.expectation import Status
from torch_conformance.model.protocol import decode, dumps, encode, loads
from torch_conformance.vocabulary.steps import samples

pytestmark = [pytest.mark.torch, pytest.mark.filterwarnings("ignore")]


@pytest.fixture
def uncompiled() -> list[str]:
    """What the last call of ``measured`` recorded of samples that ran eagerly."""
    return []


@pytest.fixture
def measured(torch: Any, tmp_path: Path, uncompiled: list[str]) -> Callable[..., Any]:
    """Return a function that runs the samples of an operator, compiled by dynamo alone, and returns
    case and entries.
    """

    def run(
        op: str, dtype: str = "float32", source: str = "samples: 3"
    ) -> tuple[Any, list[dict[str, Any]]]:
        torch._dynamo.reset()
        source = (
            f"source: {{opinfo: {{dtypes: [{dtype}], {source}}}}}\nexpect: [{{close: {{to: "
            f"eager}}}}]\n"
        )
        session, _ = prepared(tmp_path, source, op=op)
        (case,) = [case for case in load([tmp_path / "spec.yaml"]).cases if case.params["op"] == op]
        session.begin_step({})
        (step,) = session.plan["steps"]
        session.do(step)
        uncompiled[:] = session.compiled_functions.witness.seen.uncompiled
        facts = session.measure(step)[0]["0"]
        session.additional.run()
        sent = loads(dumps(encode(facts)))
        assert not observed(observation(seen(measured={"0": sent}))).nonsense
        return case, decode(sent)["samples"]

    return run


def verdict(case: Any, entries: list[dict[str, Any]]) -> Any:
    (found,) = case.steps[0].expectations[0].check.judge(reading(measured={"samples": entries}))
    return found


def paths(entry: dict[str, Any]) -> list[str]:
    return [leaf["path"] for leaf in entry["value"]["leaves"]]


@pytest.mark.nightly(
    reason="reads all operators of torch, which CI pins; test_names reads its other names each time"
)
def test_the_operators_of_the_installed_torch_are_fresh() -> None:
    torch = installed_torch()
    assert torch is not None
    table = committed_tables().get(torch.minor)
    if table is None or torch.version.partition("+")[0] != table.version:
        pytest.skip(f"the list does not have torch {torch.version}")
    listed = {entry for entry in table.entries if entry[0] == OPERATOR}
    # what operators take on a GPU depends on the machine
    without_cuda = {
        (label, said.split("; ")[0], said.rpartition("; ")[2]) for _, said, label in listed
    }
    read = operators_of(torch.root)
    assert read is not None
    assert {
        (label, said.split("; ")[0], said.rpartition("; ")[2]) for _, said, label in read
    } == without_cuda
    if not import_torch().cuda.is_available():
        assert read == listed, f"run: python -m tools.generate_names {torch.root}"


@pytest.mark.nightly(
    reason="calls operators of torch, which CI pins; test_operators reads the same table each time"
)
def test_eager_refuses_each_call_that_has_no_case(torch: Any, tmp_path: Path) -> None:
    session, _ = prepared(
        tmp_path,
        "function: |\n  def fn(x):\n      return x\ninputs: [{rand: [1]}]\nexpect: [{close: "
        "{to: eager}}]\n",
    )
    calls = [
        (row, call, dtype)
        for row in operators_for(installed_torch().minor)
        for call in row.calls
        for dtype in ("float32", "int64")
        if dtype in row.dtypes["cpu"] and row.is_refused(call, dtype, "cpu")
    ]
    assert len(calls) > 45
    accepted = []
    for row, call, dtype in calls:
        found = session.opinfo.find(
            row.op, row.variant, dtype=dtype, device="cpu", call=call, gradients=False
        )
        for sample in found.samples(4):
            with contextlib.suppress(RuntimeError, TypeError, AssertionError):
                result = found.function(*sample.args, **sample.kwargs)
                if found.takes_out:
                    out = (
                        tuple(map(torch.ones_like, result))
                        if isinstance(result, tuple)
                        else torch.ones_like(torch.as_tensor(result))
                    )
                    found.function(*sample.args, **sample.kwargs, out=out)
                accepted.append((row.label(call), dtype))
    assert accepted == []


def test_a_sample_is_compared_with_its_gradients(measured: Callable[..., Any]) -> None:
    case, entries = measured("mul")
    numbers = [entry["index"] for entry in entries]
    assert (numbers[0], len(numbers)) == (0, 3)
    assert numbers[2] - numbers[1] > 1, "they are spread over all samples"
    observed = verdict(case, entries).observed
    assert observed.startswith(
        "3 samples compared, 3 without a compiled graph; 9 values by the float64 reference ("
    )  # inductor compiled none
    assert paths(entries[0]) == ["['result']", "['gradients'][0]", "['gradients'][1]"]
    assert (
        entries[0]["text"]
        == "0: float32[] strides [] requires_grad; 1: float32[] strides [] requires_grad"
    )
    assert "stand_ins" in entries[0]["value"]["leaves"][0]
    assert "stand_ins" not in entries[1]["value"]["leaves"][0]


def test_a_sample_that_dynamo_does_not_compile_is_named(
    measured: Callable[..., Any], uncompiled: list[str]
) -> None:
    for op in ("mul", "conj"):  # conj of a real tensor has no operation
        measured(op)
        assert uncompiled == []
    numbers = [entry["index"] for entry in measured("equal", source="samples: 2")[1]]
    assert [found.partition(":")[0] for found in uncompiled] == [
        f"sample {number}" for number in numbers
    ]
    assert all(": dynamo broke the graph: Data dependent operator" in found for found in uncompiled)


def test_the_same_case_draws_the_same_numbers(measured: Callable[..., Any]) -> None:
    first, again = measured("mul")[1], measured("mul")[1]
    assert first == again
    assert any(entry["value"]["leaves"][0]["worst_value"] for entry in first)


def test_random_operators_draw_as_eager_does(measured: Callable[..., Any]) -> None:
    case, entries = measured("bernoulli")
    assert verdict(case, entries).status is Status.HELD


def test_in_place_and_with_out(measured: Callable[..., Any]) -> None:
    in_place, entries = measured("mul_", source="samples: 2, calls: [inplace]")
    assert verdict(in_place, entries).status is Status.HELD
    assert paths(entries[0]) == ["['result']"]
    out, entries = measured("mul.out", source="samples: 2, calls: [out]")
    assert verdict(out, entries).status is Status.HELD
    assert paths(entries[0]) == ["['out']", "['result']"]


def test_a_wrong_result_fails_and_names_its_sample(
    torch: Any, measured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[int] = []

    def wrong(function: Callable[..., Any]) -> Callable[..., Any]:
        calls.append(len(calls))

        def call(*args: Any, **kwargs: Any) -> Any:
            # mypy knows no attributes of functions; the line below sets this one before a call
            # reads it
            return function(*args, **kwargs) * (1.5 if wrong.sample else 1)  # type: ignore[attr-defined]

        wrong.sample = calls[-1]  # type: ignore[attr-defined]
        return call

    monkeypatch.setattr(samples, "plain", wrong)
    case, entries = measured("mul")
    found = verdict(case, entries)
    assert found.status is Status.FAILED
    assert found.expected.startswith(f"sample {entries[1]['index']}: output['result'] within")
    assert "2 of 3 samples failed" in found.detail
    assert len(found.wrong) == 6  # a waiver must cover the result and the gradients of both


@pytest.mark.parametrize(
    ("operator", "dtype"), [("mul", "int64"), ("mul", "float32"), ("add_", "float32")]
)
def test_an_argument_that_only_the_compiled_call_changes_fails(
    torch: Any,
    measured: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
    operator: str,
    dtype: str,
) -> None:
    def changing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(first: Any, second: Any, *args: Any, **kwargs: Any) -> Any:
            found = function(first, second, *args, **kwargs)
            if isinstance(second, torch.Tensor):
                bits = second.data.view(
                    torch.int32 if second.dtype == torch.float32 else torch.int64
                )
                bits.copy_(bits + 1)
            return found

        return call

    monkeypatch.setattr(samples, "plain", changing)
    source = "samples: 3, calls: [inplace]" if operator.endswith("_") else "samples: 3"
    found = verdict(*measured(operator, dtype, source))
    assert found.status is Status.FAILED
    assert (
        "output['what eager leaves as it is']['1'] is 'as before the call: eager does not "
        "change it'" in found.expected
    )
    assert "changed" in found.observed


def test_an_argument_that_both_change_is_judged_as_a_result(
    torch: Any, measured: Callable[..., Any]
) -> None:
    case, entries = measured("add_", source="samples: 3, calls: [inplace]")
    assert verdict(case, entries).status is Status.HELD
    assert not any("arguments that eager" in path for entry in entries for path in paths(entry))


def test_an_exception_of_the_compiled_call_is_that_of_its_sample(
    measured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refusing(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            raise ValueError("no such lowering")

        return call

    monkeypatch.setattr(samples, "plain", refusing)
    case, entries = measured("mul")
    assert len(entries) == 3
    assert "ValueError in phase 'trace': no such lowering" in verdict(case, entries).observed


def forms_of(torch: Any, function: Any, *args: Any) -> dict[str, list[list[Any]]]:
    """Return shape, strides and offset of each tensor, by form."""
    from torch_conformance.worker.torch_compat.sample_forms import FORMS, in_forms

    made: dict[str, list[list[Any]]] = {}
    for _, form, called, _ in in_forms(function, [(args, {})], [*FORMS]):
        tensors = [leaf for leaf in called if isinstance(leaf, torch.Tensor)]
        made.setdefault(form, []).append(
            [(*leaf.shape, *leaf.stride(), leaf.storage_offset()) for leaf in tensors]
        )
    return made


def test_each_form_has_its_memory_and_its_sizes(torch: Any) -> None:
    dense = [(3, 4, 4, 1, 0), (4, 5, 5, 1, 0)]
    assert forms_of(torch, torch.mm, torch.rand(3, 4), torch.rand(4, 5)) == {
        "transposed": [[(3, 4, 1, 3, 0), (4, 5, 1, 4, 0)], [(3, 4, 1, 3, 0), dense[1]]],
        "expanded": [[(3, 4, 1, 0, 0), (4, 5, 1, 0, 0)], [(3, 4, 1, 0, 0), dense[1]]],
        "offset": [[(3, 4, 4, 1, 3), (4, 5, 5, 1, 3)], [(3, 4, 4, 1, 3), dense[1]]],
        "empty": [[(0, 4, 4, 1, 0), dense[1]], [(3, 0, 1, 1, 0), (0, 5, 5, 1, 0)]],
        "single": [[(1, 1, 1, 1, 0), (1, 1, 1, 1, 0)]],
        "odd": [[(7, 9, 9, 1, 0), (9, 11, 11, 1, 0)]],
        "nonfinite": [dense],
        "resized": [[(7, 9, 9, 1, 0), (9, 11, 11, 1, 0)]],
    }
    # rows have no transposed form of their own, and indices are never expanded
    assert forms_of(torch, torch.sin, torch.rand(5))["transposed"] == [[(2, 5, 1, 2, 0)]]
    of_index = forms_of(torch, torch.take, torch.rand(4), torch.tensor([0, 3]))
    assert of_index["expanded"] == [[(4, 0, 0), (2, 1, 0)]]
    # what an operator writes is not expanded, and a form that eager refuses is left out
    written = forms_of(torch, lambda x, y: x.add_(y), torch.rand(3, 4), torch.rand(3, 4))
    assert "expanded" not in written
    assert forms_of(torch, torch.arange, 5) == {}


def test_a_resized_sample_calls_what_was_compiled_for_the_one_before(
    measured: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    compiled, plain = [], samples.plain
    monkeypatch.setattr(samples, "plain", lambda function: compiled.append(1) or plain(function))
    source = "samples: first, gradients: false, forms: [offset, resized]"
    case, entries = measured("sin", source=source)
    texts = [entry["text"].partition(": ")[0] for entry in entries]
    assert texts == ["0", "offset", "0", "resized"]
    assert len(compiled) == 3
    assert verdict(case, entries).status is Status.HELD
    # each index is the number of a script: those of forms follow those of the database
    first, offset, before, resized = (entry["index"] for entry in entries)
    assert (first, before < offset, resized) == (0, True, offset + 1)
