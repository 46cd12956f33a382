"""Generates the table of the operators in the installed torch's database, OpInfo (``runner/language/data/operators-X.Y.json``)."""

import argparse
import contextlib
import json
import warnings
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from runner.language.operators import TABLES
from runner.worker.torch_compat.opinfo import database, find, function_of
from runner.worker.torch_compat.residue import NO_COMPUTATION

DEVICES = ("cpu", "cuda")

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
    """Return the kind of each operator that torch tags as core ATen: ``data`` (it moves or describes data), ``pointwise`` or ``other``."""
    tags: dict[str, set[Any]] = {}
    for name in torch._C._dispatch_get_all_op_names():
        namespace, _, rest = name.partition("::")
        if namespace == "aten":
            packet, _, overload = rest.partition(".")
            tags.setdefault(packet, set()).update(getattr(getattr(torch.ops.aten, packet), overload or "default").tags)
    kinds = {
        name: "data" if name in NO_COMPUTATION else "pointwise" if torch.Tag.pointwise in own else "other" for name, own in tags.items()
    }
    return {name: kind for name, kind in kinds.items() if torch.Tag.core in tags[name]}


def _core_of(entry: Any, kinds: Mapping[str, str], named: Collection[str]) -> str:
    """Return the core operator that an entry calls: that of its name, or the only operator that its first samples compute with.

    The second holds for what no entry is named after, as ``_softmax`` and ``convolution``. Empty for any other entry.
    """
    if entry.aten_name in kinds:
        return str(entry.aten_name)
    dispatched = _Dispatched()
    with contextlib.suppress(Exception), torch.no_grad(), warnings.catch_warnings(action="ignore"):  # not every sample is one of eager
        operator = find(entry.name, entry.variant_test_name, dtype="float32", device="cpu", call="function", gradients=False)
        torch.manual_seed(0)
        for sample in operator.samples(_TRIED):
            with dispatched:
                operator.function(*sample.args, **sample.kwargs)
    computing = dispatched.names.difference(NO_COMPUTATION)
    return computing.pop() if len(computing) == 1 and computing <= kinds.keys() - set(named) else ""


def table() -> dict[str, Any]:
    """Return the table of the installed torch."""
    operators = []
    kinds, named = core_kinds(), {entry.aten_name for entry in database()}
    for entry in sorted(database(), key=lambda entry: (entry.name, entry.variant_test_name)):
        row: dict[str, Any] = {"op": entry.name}
        if entry.variant_test_name:
            row["variant"] = entry.variant_test_name
        for device in DEVICES:
            row[device] = " ".join(sorted(str(dtype).removeprefix("torch.") for dtype in entry.supported_dtypes(device)))
        if calls := [call for call in ("inplace", "out") if function_of(entry, call) is not None]:
            row["calls"] = calls
        if "inplace" in calls and entry.promotes_int_to_float:
            row["promotes"] = True
        if core := _core_of(entry, kinds, named):
            row["core"] = kinds[core]
        operators.append(row)
    return {"torch": ".".join(torch.__version__.split(".")[:2]), "has_cuda": torch.cuda.is_available(), "operators": operators}


def text(facts: Mapping[str, Any]) -> str:
    """Return the file's text: one line for each operator, so that a difference of two tables can be read.

    Most operators share few sets of dtypes: these stand once, and an operator names them by their index.
    """
    sets = sorted({entry[device] for entry in facts["operators"] for device in DEVICES})
    rows = [{**entry, **{device: sets.index(entry[device]) for device in DEVICES}} for entry in facts["operators"]]
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    shared = ",\n".join(f"    {json.dumps(dtypes)}" for dtypes in sets)
    head = f'  "torch": {json.dumps(facts["torch"])},\n  "has_cuda": {json.dumps(facts["has_cuda"])}'
    return f'{{\n{head},\n  "dtypes": [\n{shared}\n  ],\n  "operators": [\n{lines}\n  ]\n}}\n'


def main() -> None:
    """Write the table of the installed torch."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate_operators", description="Write the table of the operators (OpInfo).")
    parser.add_argument("-o", "--output", type=Path, metavar="FILE", help="default: operators-X.Y.json among the tables")
    output = parser.parse_args().output
    installed = table()
    file = output or TABLES / f"operators-{installed['torch']}.json"
    file.write_text(text(installed), encoding="utf-8")
    print(f"{len(installed['operators'])} operators of torch {installed['torch']} written to {file}")


if __name__ == "__main__":
    main()
