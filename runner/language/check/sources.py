"""Checks of ``source``: what may stand beside it, and the operators that it selects."""

from collections.abc import Iterator

from runner.core.diagnostics import Diagnostic
from runner.core.template_form import is_template
from runner.language import operators
from runner.language.backends import Backends
from runner.language.expand.operators import KEYS
from runner.language.read.anatomy import SOURCE, Anatomy
from runner.vocabulary.expectations.base import EAGER, OUTPUT
from runner.vocabulary.expectations.close import Close

_BESIDE = ("function", "functions", "entry", "inputs", "steps", "let", "spies", "handlers", "services", "covers", "control", "audit")
"""Keys without a meaning beside a source: its cases have functions, inputs and one step of their own."""


def source_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of a source."""
    document, data = anatomy.document, anatomy.data
    if SOURCE not in data:
        return
    for key in _BESIDE:
        if key in data:
            yield document.problem(
                (key,), f"'{key}' beside 'source'", "the cases of a source have functions and inputs of their own", key=True
            )
    for key in KEYS:
        if key in data.get("matrix", {}):
            yield document.problem(("matrix", key), f"the matrix key '{key}' is the source's", "remove it, or rename it", key=True)
    for step in anatomy.steps:
        for one in step.expectations:
            body = one.body if one.kind == Close.kind and isinstance(one.body, dict) else None
            if body is None or body.get("to", EAGER) != EAGER or body.get("of", OUTPUT) != OUTPUT:
                yield document.problem(one.path, f"'{one.kind}' of each sample of an operator", "write close: {to: eager}", key=True)
    yield from _dtype_problems(anatomy)


def _dtype_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    table, _ = operators.table_for(None)
    known = {dtype for operator in table.operators for dtypes in operator.dtypes.values() for dtype in dtypes}
    for index, dtype in enumerate(anatomy.data[SOURCE]["opinfo"]["dtypes"]):
        if is_template(dtype):
            hint = "write all dtypes in the list: each is a case of its own, and a part of its id"
            yield anatomy.document.problem((SOURCE, "opinfo", "dtypes", index), "a template in the dtypes of a source", hint)
        elif dtype not in known:
            message = f"no operator has samples of {dtype}"
            yield anatomy.document.problem((SOURCE, "opinfo", "dtypes", index), message, f"dtypes: {', '.join(sorted(known))}")
