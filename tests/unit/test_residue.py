"""The operators and the kernels of ATen in what torch's profiler recorded."""

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
