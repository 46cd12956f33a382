"""A stand-in for the package ``ck4inductor`` of Composable Kernel, for tests: the modules and
functions that torch imports, and headers.

Its shape follows the import statements of torch 2.13 (``torch/_inductor/utils.py`` and
``codegen/rocm``); the contents are made up.
"""

import functools
import math
import random
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from torch_conformance.tools.attest import machine_checks

PACKAGE = "ck4inductor"

OPERATIONS = {
    "universal_gemm": "CKGemmOperation",
    "batched_universal_gemm": "CKBatchedGemmOperation",
    "grouped_conv_fwd": "CKGroupedConvFwdOp",
}
"""The parts of the package, each with the class of its instances."""

_OP = """\
from dataclasses import dataclass


@dataclass
class {name}:
    number: int = 0
"""

_INSTANCES = """\
from {package}.{part}.op import {name}


def {function}():
    return [{name}(number) for number in range({count})]
"""

_GUARDED = """\
// A header of the stand-in.
#ifndef {guard}
#define {guard}
{includes}
#ifdef NEVER_DEFINED
#include "ck/header_of_another_build.hpp"
#endif
#endif
"""


def make(
    folder: Path,
    torch_root: Path,
    *,
    without: Collection[str] = (),
    empty: Collection[str] = (),
    raises: str = "",
) -> Path:
    """Write the package below ``folder`` and return its folder.

    ``without`` names parts (``grouped_conv_fwd``) and headers (``ck/config.h``) that are left out,
    ``empty`` parts whose generators give nothing; ``raises`` is a statement with which the import
    of the package ends.
    """
    package = folder / PACKAGE
    package.mkdir(parents=True)
    (package / "__init__.py").write_text(f"{raises}\n" if raises else "")
    for part in OPERATIONS:
        if part not in without:
            _make_part(package / part, part, count=0 if part in empty else 3)
    _make_headers(
        package, [name for name in (*_wanted(torch_root), "ck/config.h") if name not in without]
    )
    return package


_wanted = functools.cache(machine_checks.headers_of_torch)


def _make_part(folder: Path, part: str, *, count: int) -> None:
    folder.mkdir()
    name = OPERATIONS[part]
    (folder / "__init__.py").write_text("")
    (folder / "op.py").write_text(_OP.format(name=name))
    names = (
        ["gen_conv_ops_library"]
        if part == "grouped_conv_fwd"
        else ["gen_ops_library", "gen_ops_preselected"]
    )
    bodies = [
        _INSTANCES.format(package=PACKAGE, part=part, name=name, function=function, count=count)
        for function in names
    ]
    (folder / "gen_instances.py").write_text("\n\n".join(bodies))


def _make_headers(package: Path, names: Iterable[str]) -> None:
    for name in names:
        path = package / ("library/include" if name.startswith("ck/library/") else "include") / name
        path.parent.mkdir(parents=True, exist_ok=True)
        includes = {"ck/ck.hpp": '#include "ck/config.h"'}.get(name, "")
        path.write_text(
            _GUARDED.format(
                guard=name.replace("/", "_").replace(".", "_").upper(), includes=includes
            )
        )


# -- candidates ------------------------------------------------------------------------------------


class Instance(NamedTuple):
    """What decides whether Composable Kernel runs an instance for a K."""

    k_per_block: int
    stages: int
    """Those of its pipeline; 1 for a pipeline that loads nothing ahead."""

    def is_refused(self, k: int) -> bool:
        """As its check does: a pipeline needs more blocks of K than it has stages."""
        return self.stages > 1 and math.ceil(k / self.k_per_block) <= self.stages


OFFERED: Mapping[str, Mapping[Instance, int]] = {
    "bfloat16": {
        Instance(32, 2): 4,
        Instance(32, 3): 4,
        Instance(32, 4): 12,
        Instance(64, 1): 84,
        Instance(64, 2): 132,
        Instance(64, 3): 36,
        Instance(64, 4): 4,
    },
    "float16": {
        Instance(32, 1): 16,
        Instance(32, 2): 8,
        Instance(32, 3): 8,
        Instance(32, 4): 24,
        Instance(64, 1): 68,
        Instance(64, 2): 134,
        Instance(64, 3): 20,
        Instance(64, 4): 4,
        Instance(128, 1): 16,
        Instance(128, 2): 8,
    },
    "float8": {
        Instance(64, 1): 8,
        Instance(64, 2): 4,
        Instance(64, 4): 24,
        Instance(128, 1): 52,
        Instance(128, 2): 214,
        Instance(128, 3): 36,
        Instance(128, 4): 4,
        Instance(256, 1): 32,
        Instance(256, 2): 32,
        Instance(512, 1): 16,
        Instance(512, 2): 16,
    },
}
"""How many instances the filter of torch 2.13 lets through, of Composable Kernel of October 2024:
for the sizes of the specs ``ck/mm-bfloat16``, ``addmm-bias-forms`` and ``scaled-mm-fnuz``, of which
the last had a K of 256.
"""


def sampled(offered: Sequence[Instance], most: int | None) -> list[Instance]:
    """Return the candidates that torch takes: at random, with the same seed each time."""
    return random.Random(-11).sample(offered, min(len(offered), most)) if most else [*offered]


def drawn(dtype: str, most: int | None) -> list[Instance]:
    """Return the candidates of a product that a perfect machine has."""
    return sampled(
        [instance for instance, count in OFFERED[dtype].items() for _ in range(count)], most
    )
