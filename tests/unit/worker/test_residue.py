"""The operators and the kernels of ATen in what torch's profiler recorded."""

import platform
import warnings
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

pytestmark = pytest.mark.torch

ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, ...)"
)
SCAN = (
    "void at::native::(anonymous namespace)::tensor_kernel_scan_outer_dim<float, "
    "std::plus<float> >(float*, ...)"
)
COPY = (
    "void "
    "at::native::unrolled_elementwise_kernel<at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)>(int, "  # noqa: E501 - a word without a break
    "...)"
)
TRITON = "triton_poi_fused_add_0"


@pytest.mark.parametrize(
    ("of_operator", "of_other_code", "names"),
    [
        ([], [], []),
        ([ADD], [], []),
        ([], [ADD], ["at::native::CUDAFunctor_add"]),
        # the same kernel, once by an operator and once by a graph
        (
            [ADD],
            [ADD, SCAN],
            ["at::native::CUDAFunctor_add", "at::native::tensor_kernel_scan_outer_dim"],
        ),
        ([], [COPY, TRITON], []),
        # not seen: a library's kernel, of the compiler's own call perhaps
        ([], ["sm90_xmma_gemm_f32f32_tf32f32_f32_tn_n_tilesize64x64x32"], []),
    ],
)
def test_a_kernel_of_aten_that_no_operator_started_is_residue(
    of_operator: list[str], of_other_code: list[str], names: list[str]
) -> None:
    from torch.autograd import DeviceType

    from torch_conformance.worker.torch_compat import residue

    def event(name: str, *kernels: str, parent: Any = None, device: Any = DeviceType.CPU) -> Any:
        started = [SimpleNamespace(name=kernel) for kernel in kernels]
        return SimpleNamespace(name=name, kernels=started, cpu_parent=parent, device_type=device)

    operator = event("aten::add")
    events = [
        operator,
        event("cudaLaunchKernel", *of_operator, parent=operator),
        event("cudaGraphLaunch", *of_other_code),
    ]
    events += [event(name, device=DeviceType.CUDA) for name in of_operator + of_other_code]
    assert list(residue._kernels_without_operator(events)) == names


def annotated(torch: Any, name: str) -> None:
    with torch.profiler.record_function(name), torch._C._profiler._RecordFunctionFast(name):
        pass


def timed(torch: Any, x: Any) -> Any:
    from torch._dynamo.utils import dynamo_timed

    with dynamo_timed("of a vendor"), torch.profiler.record_function("aten::cos"):
        return x.exp()


def within_its_name(torch: Any, x: Any) -> Any:
    with torch.profiler.record_function("aten::exp"):
        return x.exp()


def in_thread(torch: Any, x: Any) -> Any:
    import threading

    thread = threading.Thread(target=x.exp)
    thread.start()
    thread.join()


def by_fbgemm(torch: Any, x: Any) -> Any:
    if platform.machine() != "x86_64":
        pytest.skip("fbgemm is a library for x86")
    packed = torch.fbgemm_pack_gemm_matrix_fp16(x)
    return torch.fbgemm_linear_fp16_weight_fp32_activation(x, packed, x[0])


@pytest.mark.parametrize(
    ("call", "names"),
    [
        (lambda torch, x: x.exp(), ["aten.exp"]),
        (lambda torch, x: x.exp_(), ["aten.exp_"]),
        (lambda torch, x: torch.prod(x, 0, out=x.new_empty(4)), ["aten.prod"]),
        # composite operators: what they call
        (lambda torch, x: x.nanmean(), [*"ne logical_not_ sum nansum div".split()]),
        (lambda torch, x: torch.nn.functional.linear(x, x), ["aten.mm"]),
        (lambda torch, x: x.softmax(-1), ["aten._softmax"]),
        (lambda torch, x: torch.std(x), ["aten.std"]),
        (  # composite, and calls an operator of its own name
            lambda torch, x: torch.nn.functional.interpolate(
                x[None, None], (3, 3), mode="bilinear"
            ),
            ["aten.upsample_bilinear2d"],
        ),
        (lambda torch, x: torch.where(x > 0, x, 0.0), [*"gt scalar_tensor where".split()]),
        (lambda torch, x: x.flatten().unflatten(0, (2, 8)).moveaxis(0, 1).mT, []),
        (lambda torch, x: torch.broadcast_tensors(x, x[0]), []),
        # composite by name, with a kernel of its own, or with code of its own
        (lambda torch, x: torch.ops.aten.silu_backward(x, x), ["aten.silu_backward"]),
        (by_fbgemm, ["fbgemm_pack_gemm_matrix_fp16", "fbgemm_linear_fp16_weight_fp32_activation"]),
        # what others register: what they call
        (lambda torch, x: torch.ops.prims.exp(x), ["aten.exp"]),
        (lambda torch, x: torch.ops.tests_residue.exp(x), ["aten.exp"]),
        (lambda torch, x: torch.ops.tests_residue.composite(x), ["aten.exp"]),
        (lambda torch, x: torch.vmap(lambda row: row.exp())(x), ["aten.exp"]),
        (lambda torch, x: torch.jit.script(torch.nn.Tanh())(x), ["aten.tanh"]),
        (
            lambda torch, x: torch.ops.mkldnn._linear_pointwise(x, x, None, "none", [], ""),
            ["mkldnn._linear_pointwise"],
        ),
        # names of events are no operators
        (lambda torch, x: annotated(torch, "aten::exp"), []),
        (timed, ["aten.exp"]),
        (within_its_name, ["aten.exp"]),
        (in_thread, ["aten.exp"]),
        # not seen: below or past the dispatcher, or while nothing is recorded
        (
            lambda torch, x: torch.ops.aten.exp.default.redispatch(
                torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), x
            ),
            [],
        ),
    ],
)
def test_operators_that_compute_are_recorded(
    call: Callable[[Any, Any], Any], names: list[str]
) -> None:
    import torch

    from torch_conformance.worker.torch_compat import residue

    with torch.library._scoped_library("tests_residue", "DEF") as library, torch.no_grad():
        for name, key in (("exp", "CPU"), ("composite", "CompositeImplicitAutograd")):
            library.define(f"{name}(Tensor x) -> Tensor")
            library.impl(name, lambda x: x.exp(), key)
        x = torch.rand(4, 4)
        with (
            warnings.catch_warnings(action="ignore"),  # torch deprecates some of these
            residue.recorded(record := residue.Record()),
        ):
            call(torch, x)
    assert [operator.name.removeprefix("aten.") for operator in record.operators] == [
        name.removeprefix("aten.") for name in names
    ]
    assert not record.compiles


@pytest.mark.parametrize(
    ("eager", "residue_of_call", "replaces"),
    [
        ("mm44 exp4", "exp4", {"exp": [1]}),
        ("mm44 exp4", "exp_4", {"exp_": [1]}),
        ("mm44 mm44 mm44", "mm44", {"mm": [0]}),
        ("mm44 mm44 mm44", "mm444 mm44", {"mm": [0, 1]}),  # the first with out=
        ("mm44 mm44", "mm44 mm44 mm44", {"mm": [0, 1]}),
        ("mm44 mm44 exp4 mm44", "mm49", {"mm": [0, 1, 3]}),  # one wide product
        ("mm44 mul4 softmax4 mm44", "sdpa444", {"sdpa": [0, 1, 2, 3]}),
        ("mm44 mul4", "fused4 mm44", {"fused": [0, 1], "mm": [0]}),
        ("", "mm44", {"mm": []}),
    ],
)
def test_an_operator_replaces_those_of_eager_whose_work_it_may_have_done(
    eager: str, residue_of_call: str, replaces: dict[str, list[int]]
) -> None:
    from torch_conformance.worker.torch_compat import residue

    def record(text: str) -> Any:
        return residue.Record(
            [
                residue.Operator(
                    name.rstrip("0123456789"), [[int(size)] for size in name if size.isdigit()]
                )
                for name in text.split()
            ]
        )

    calls = [(record(eager), record(residue_of_call))] * 2
    calls[0][0].places = lambda operator: f"at {operator.name}"
    facts, count = residue.facts(calls), len(eager.split())
    assert facts["replaces"] == {
        name: [*places, *(place + count for place in places)] for name, places in replaces.items()
    }
    assert sum(number for _, number in facts["places"]) == len(facts["overloads"]) == 2 * count
    assert [place for place, _ in facts["places"]][:1] == [
        f"at {name}" for name in facts["eager"][:1]
    ]
    assert (len(facts["eager"]), facts["residue"][0]) == (
        2 * count,
        residue_of_call.split()[0].rstrip("0123456789"),
    )


def test_lines_of_a_spec_that_call_operators_are_noted_in_their_order() -> None:
    import torch

    from torch_conformance.worker.torch_compat import residue

    source = "def fn(x):\n    y = x.exp() + 1\n    return torch.nn.functional.linear(y, y).exp()\n"
    names: dict[str, Any] = {"torch": torch}
    exec(compile(f"\n\n{source}", "/some/folder/model.yaml", "exec"), names)
    lines = residue.Lines()
    with torch.no_grad(), lines:
        names["fn"](torch.rand(2, 2))
        torch.rand(2).cos()
    asked = ["exp default", "exp default", "exp default", "mm default", "add Tensor", "cos default"]
    found = [
        lines.of(residue.Operator(f"aten.{name}", [], overload))
        for name, overload in map(str.split, asked)
    ]
    assert found == ["model.yaml:4", "model.yaml:5", "", "model.yaml:5", "model.yaml:4", ""]


@pytest.mark.parametrize(
    ("values", "dtype", "changed"),
    [
        ([1.0, -3.0], "float64", [0.5, -1.5]),
        ([0.0, 0.0], "float32", [0.25, 0.25]),
        ([1 + 2j], "complex64", [0.5 + 1j]),
        ([0, 2, 2, 7], "int64", [0, 5, 5, 7]),  # sorted, as unique as before, with the same ends
        ([3, 1, 1, 9], "uint8", [1, 9, 9, 7]),
        ([0, 1, 2, 3], "int32", [3, 0, 1, 2]),
        ([6, 6], "int64", [3, 3]),
        (5, "int64", 2),
        ([True, False, False], "bool", [True, True, False]),
        ([True, True], "bool", [False, False]),
        ([[0, 8], [1, 9], [3, 9]], "int64", [[0, 8], [2, 8], [3, 9]]),  # each in its own range
        ([], "int64", []),
    ],
)
def test_every_number_is_another_one_in_the_recorded_call(
    values: Any, dtype: str, changed: Any
) -> None:
    import torch

    from torch_conformance.worker.case import additional

    tensor = torch.tensor(values, dtype=getattr(torch, dtype))
    arguments = [tensor, {"again": tensor.clone()[None].expand(3, *tensor.shape)}, "text"]
    other, nested, text = additional._changed(lambda: arguments, torch.is_tensor, 1)
    assert other.tolist() == changed
    assert nested["again"].tolist() == [changed] * 3
    assert text == "text"


def test_a_call_that_compiles_is_recorded_again_with_other_numbers() -> None:
    import torch

    from torch_conformance.worker.case import additional

    known, calls, x = list[float](), list[tuple[float, int]](), torch.tensor([8.0])

    def call(arguments: list[Any], around: Any) -> Any:
        number = float(arguments[0])
        calls.append((number, arguments[0].data_ptr()))
        with around():
            if not known:
                known.append(number)
            elif len(known) == 1 and number != known[0]:
                known.append(number)
                torch._dynamo.callback_handler.run_start_callbacks(None)  # type: ignore[arg-type]
                x.cos()
            return arguments[0].exp()

    _, expected, result, (of_eager, of_call) = additional.with_other_numbers(
        lambda: [x.clone()],
        lambda arguments, around: _within(around, arguments[0].exp),
        call,
    )
    assert [number for number, _ in calls] == [8, 4, 8, 2]
    assert (calls[0][1], calls[2][1]) == (calls[1][1], calls[3][1])
    assert [operator.name for operator in of_call.operators] == ["aten.exp"]
    assert [operator.name for operator in of_eager.operators] == ["aten.exp"]
    assert bool(expected == result)


def _within(around: Any, call: Callable[[], Any]) -> Any:
    with around():
        return call()


def test_numbers_that_eager_refuses_are_not_used() -> None:
    import torch

    from torch_conformance.vocabulary.expectations.additional_calls import CannotRepeat
    from torch_conformance.worker.case import additional

    def own() -> list[Any]:
        return [torch.tensor([2.0]), torch.tensor([0, 4, 6])]

    def taken(is_taken: Callable[[list[Any]], bool]) -> list[Any]:
        def call(arguments: list[Any], around: Any) -> Any:
            if not is_taken(arguments):
                raise IndexError("no such row")
            return arguments[0]

        others, *_ = additional.with_other_numbers(own, call, call)
        return [tensor.tolist() for tensor in others()]

    assert taken(lambda arguments: True) == [[1.0], [0, 2, 6]]
    assert taken(lambda arguments: int(arguments[1][1]) == 4) == [[1.0], [0, 4, 6]]
    assert taken(lambda arguments: float(arguments[0]) == 2.0) == [[2.0], [0, 4, 6]]
    with pytest.raises(CannotRepeat, match="eager raised IndexError: no such row"):
        taken(lambda arguments: False)
