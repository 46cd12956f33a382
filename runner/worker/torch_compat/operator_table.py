"""Writes the table of operators of the installed torch: ``python -m runner.worker.torch_compat.operator_table -o FILE``.

The table names what torch's database of operators (OpInfo) has, so that cases can be listed without torch. ``language/operators.py`` reads
it. Dtypes that depend on the machine (bfloat16 of some operators on CUDA) are those of the machine that writes the table.
"""

import argparse
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from runner.worker.torch_compat import operators

DEVICES = ("cpu", "cuda")


def table() -> dict[str, Any]:
    """Return the table of the installed torch."""
    found = sorted(operators.database(), key=lambda entry: (entry.name, entry.variant_test_name))
    entries = [_entry(entry) for entry in found]
    minor = ".".join(torch.__version__.split(".")[:2])
    return {"torch": minor, "has_cuda": torch.cuda.is_available(), "operators": entries}


def _entry(entry: Any) -> dict[str, Any]:
    calls = [call for call in ("inplace", "out") if operators.function_of(entry, call) is not None]
    return {
        "op": entry.name,
        **({"variant": entry.variant_test_name} if entry.variant_test_name else {}),
        **{device: _dtypes(entry, device) for device in DEVICES},
        **({"calls": calls} if calls else {}),
        **({"promotes": True} if "inplace" in calls and entry.promotes_int_to_float else {}),
    }


def _dtypes(entry: Any, device: str) -> str:
    return " ".join(sorted(str(dtype).removeprefix("torch.") for dtype in entry.supported_dtypes(device)))


def text(found: Mapping[str, Any]) -> str:
    """Return the file's text: one line for each operator, so that a difference of two tables can be read.

    Most operators share few sets of dtypes: these stand once, and an operator names them by their index.
    """
    sets = sorted({entry[device] for entry in found["operators"] for device in DEVICES})
    rows = [{**entry, **{device: sets.index(entry[device]) for device in DEVICES}} for entry in found["operators"]]
    lines = ",\n".join(f"    {json.dumps(row)}" for row in rows)
    shared = ",\n".join(f"    {json.dumps(one)}" for one in sets)
    head = f'  "torch": {json.dumps(found["torch"])},\n  "has_cuda": {json.dumps(found["has_cuda"])}'
    return f'{{\n{head},\n  "dtypes": [\n{shared}\n  ],\n  "operators": [\n{lines}\n  ]\n}}\n'


def main() -> None:
    """Write the table of the installed torch."""
    parser = argparse.ArgumentParser(description="Write the table of the operators in torch's database (OpInfo).")
    default = Path(__file__).parents[2] / "language" / "data"
    parser.add_argument(
        "-o", "--output", type=Path, metavar="FILE", help=f"default: operators-X.Y.json in {default.name}/ of the language room"
    )
    arguments = parser.parse_args()
    found = table()
    file = arguments.output or default / f"operators-{found['torch']}.json"
    file.write_text(text(found), encoding="utf-8")
    print(f"{len(found['operators'])} operators of torch {found['torch']} written to {file}")


if __name__ == "__main__":
    main()
