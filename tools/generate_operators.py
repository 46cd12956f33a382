"""Prints the operators in the installed torch's database, OpInfo, as ``tools.generate_names`` adds
them to the list of names.
"""

import contextlib
import json
import warnings
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_conformance.language.operators import Operator
from torch_conformance.worker.torch_compat.opinfo import database, find, function_of
from torch_conformance.worker.torch_compat.residue import NO_COMPUTATION

_TRIED = 4
"""How many samples show which operator of ATen a function consists of."""


class _Dispatched(TorchDispatchMode):
    """Collects the names of the operators that reach ATen's kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Note the operator, and call it."""
        self.names.add(func.overloadpacket.__name__)
        return func(*args, **(kwargs or {}))


def core_kinds() -> dict[str, str]:
    """Return the kind of each operator that torch tags as core ATen: ``data`` (it moves or
    describes data), ``pointwise`` or ``other``.
    """
    tags: dict[str, set[Any]] = {}
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        if namespace == "aten":
            packet, _, overload = rest.partition(".")
            tags.setdefault(packet, set()).update(
                getattr(getattr(torch.ops.aten, packet), overload or "default").tags
            )
    kinds = {
        name: "data"
        if name in NO_COMPUTATION
        else "pointwise"
        if torch.Tag.pointwise in tags_of_name
        else "other"
        for name, tags_of_name in tags.items()
    }
    return {name: kind for name, kind in kinds.items() if torch.Tag.core in tags[name]}


def _core_of(entry: Any, kinds: Mapping[str, str], entry_names: Collection[str]) -> str:
    """Return the core operator that an entry calls: that of its name, or the only operator that its
    first samples compute with.

    The second holds for what no entry is named after, as ``_softmax`` and ``convolution``. Empty
    for any other entry.
    """
    if entry.aten_name in kinds:
        return str(entry.aten_name)
    dispatched = _Dispatched()
    with contextlib.suppress(Exception), torch.no_grad(), warnings.catch_warnings(action="ignore"):
        # not every sample is one of eager
        operator = find(
            entry.name,
            entry.variant_test_name,
            dtype="float32",
            device="cpu",
            call="function",
            gradients=False,
        )
        torch.manual_seed(0)
        for sample in operator.samples(_TRIED):
            with dispatched:
                operator.function(*sample.args, **sample.kwargs)
    computing = dispatched.names.difference(NO_COMPUTATION)
    return (
        computing.pop()
        if len(computing) == 1 and computing <= kinds.keys() - set(entry_names)
        else ""
    )


def said_of(operator: Operator) -> str:
    """Return what the list says of an operator: dtypes of the CPU; what CUDA takes besides (``+``)
    or lacks (``-``); calls and kind.
    """
    cpu, cuda = operator.dtypes["cpu"], operator.dtypes["cuda"]
    cuda_differences = [("+" if dtype in cuda else "-") + dtype for dtype in sorted(cpu ^ cuda)]
    words = [
        *operator.calls[1:],
        *(["promotes"] if operator.promotes else []),
        *([f"core-{operator.core}"] if operator.core else []),
    ]
    return "; ".join(map(" ".join, (sorted(cpu), cuda_differences, words)))


def operators() -> list[Operator]:
    """Return the operators of the installed torch."""
    kinds, entry_names = core_kinds(), {entry.aten_name for entry in database()}
    return [
        Operator(
            op=entry.name,
            variant=entry.variant_test_name,
            dtypes={
                device: frozenset(
                    str(dtype).removeprefix("torch.") for dtype in entry.supported_dtypes(device)
                )
                for device in ("cpu", "cuda")
            },
            calls=(
                "function",
                *(call for call in ("inplace", "out") if function_of(entry, call) is not None),
            ),
            promotes=function_of(entry, "inplace") is not None
            and bool(entry.promotes_int_to_float),
            core=kinds.get(_core_of(entry, kinds, entry_names), ""),
        )
        for entry in database()
    ]


if __name__ == "__main__":
    print(json.dumps([(said_of(operator), operator.label("function")) for operator in operators()]))
