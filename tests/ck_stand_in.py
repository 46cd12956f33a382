"""A stand-in for the package ``ck4inductor`` of Composable Kernel, for tests: the modules and
functions that torch imports, and headers.

Its shape follows the import statements of torch 2.13 (``torch/_inductor/utils.py`` and
``codegen/rocm``); the contents are made up.
"""

import functools
from collections.abc import Collection, Iterable
from pathlib import Path

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
