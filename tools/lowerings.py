"""``python -m tools.lowerings LINES...``: which lines of Inductor's lowerings shipped cases
execute, and which operators execute others.

``LINES`` are the files that ``python -m tools.mutants --lines`` writes. The operators are those of
torch's own database, on the CPU the first sample of each, static and dynamic; their kernels are not
built, so that the measure takes minutes.
"""

import argparse
import contextlib
import importlib
import json
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import CodeType

from tools.planting import noting
from tools.reports import table

MODULES = (
    "torch._inductor.lowering",
    "torch._inductor.decomposition",
    "torch._inductor.ir",
    "torch._inductor.codegen.cpp",
)
Lines = Mapping[str, set[int]]


def lines_of_functions(module: str) -> dict[str, set[int]]:
    """Return the functions of a module by their qualified names, each with the lines that can be
    executed, without its own functions.
    """
    file = Path(str(importlib.import_module(module).__file__))
    found: dict[str, set[int]] = {}

    def visit(code: CodeType) -> None:
        if code.co_flags & 2 and not code.co_name.startswith("<"):
            # CO_NEWLOCALS: a function, no class and no module
            own = {
                line
                for *_, line in code.co_lines()
                if line is not None and line != code.co_firstlineno
            }
            found[f"{code.co_qualname}:{code.co_firstlineno}"] = own
        for constant in code.co_consts:
            if isinstance(constant, CodeType):
                visit(constant)

    visit(compile(file.read_text("utf-8"), str(file), "exec"))
    return found


def operators() -> Iterator[tuple[str, Lines]]:
    """Yield each operator of the database with the lines that its first sample executes."""
    import torch
    from torch._inductor import async_compile, config

    from torch_conformance.worker.torch_compat.opinfo import database

    config.force_disable_caches = True
    config.compile_threads = 1
    # No kernel is built. Mypy rejects the assignment to a method, and ignores nothing where torch
    # is not installed.
    async_compile.AsyncCompile.cpp_pybinding = lambda *_, **__: lambda *_: None  # type: ignore[method-assign,assignment,unused-ignore]
    for op in database():
        dtype = next(
            (one for one in (torch.float32, torch.int64, torch.bool) if one in op.dtypes), None
        )
        if dtype is None:
            continue
        for dynamic in (False, True):
            torch._dynamo.reset()
            torch.manual_seed(0)
            random.seed(0)
            try:
                sample = next(iter(op.sample_inputs("cpu", dtype)))
            except Exception:  # generators of samples raise any class where a library is missing
                continue
            compiled = torch.compile(lambda *a, op=op, **k: op.op(*a, **k), dynamic=dynamic)
            # an operator that Inductor refuses raises any class; the lines until then count
            with noting(MODULES) as seen, contextlib.suppress(Exception):
                compiled(sample.input, *sample.args, **sample.kwargs)
            yield f"{op.formatted_name}{' dynamic' if dynamic else ''}", seen


def cover(
    wanted: set[tuple[str, int]], by: Mapping[str, set[tuple[str, int]]]
) -> Iterator[tuple[str, set[tuple[str, int]]]]:
    """Yield operators that execute all wanted lines together, the one with most new lines first,
    each with these.
    """
    left = set(wanted)
    while (
        left
        and (best := max(by, key=lambda name: (len(by[name] & left), name)))
        and by[best] & left
    ):
        yield best, by[best] & left
        left -= by[best]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.lowerings", description=__doc__)
    add = parser.add_argument
    add("lines", nargs="+", type=Path, metavar="LINES", help="what --lines of tools.mutants wrote")
    of_operators = "read the lines of the operators from FILE, or write them"
    add("--operators", type=Path, metavar="FILE", help=of_operators)
    without = "leave out the cases whose id has this; may repeat"
    add("--without", action="append", default=[], metavar="TEXT", help=without)
    options = parser.parse_args(arguments)
    if options.operators and options.operators.exists():
        known = json.loads(options.operators.read_bytes())
    else:
        known = {
            name: {module: sorted(lines) for module, lines in seen.items()}
            for name, seen in operators()
        }
        if options.operators:
            options.operators.write_text(json.dumps(known), "utf-8")
    by_operator, by_case = located(known), {}
    for file in options.lines:
        cases = json.loads(file.read_bytes())["cases"]
        by_case |= located({name: case["lines"] for name, case in cases.items()})
    ours = set().union(
        *(
            lines
            for name, lines in by_case.items()
            if not any(text in name for text in options.without)
        )
    )
    both = ours.union(*by_operator.values())
    rows, missed = [], set()
    for module in MODULES:
        functions = [
            {(module, line) for line in lines} for lines in lines_of_functions(module).values()
        ]
        every = set().union(*functions)
        entered = [sum(bool(lines & seen) for lines in functions) for seen in (ours, both)]
        counts = (len(every), len(every & ours), len(every & both))
        rows.append((module, len(functions), *entered, *counts))
        missed |= every & both - ours
    print("\n".join(table(COLUMNS, rows)))
    print(f"\noperators that execute the {len(missed)} lines that no case does:")
    for name, lines in cover(missed, by_operator):
        places = ", ".join(sorted(f"{module.rpartition('.')[2]}:{line}" for module, line in lines))
        print(f"  {name}: {len(lines)} {places[:300]}")
    return 0


COLUMNS = (
    *("module", "functions", "entered by cases", "by operators too"),
    *("lines", "executed by cases", "by operators too"),
)


def located(known: Mapping[str, Mapping[str, Sequence[int]]]) -> dict[str, set[tuple[str, int]]]:
    """Return the lines of each case or operator, with their modules."""
    return {
        name: {(module, line) for module, lines in seen.items() for line in lines}
        for name, seen in known.items()
    }


if __name__ == "__main__":
    sys.exit(main())
