"""Preparation of a case before its first step: preludes, spies, functions, values, inputs, and the eager side."""

import contextlib
import functools
import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from runner.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from runner.worker.case import making, spies
from runner.worker.case.sides import Side
from runner.worker.case.step_scope import Weak
from runner.worker.torch_compat import torch_state

if TYPE_CHECKING:
    from runner.worker.case.case_session import Session


def prepare(session: "Session", undo: contextlib.ExitStack) -> None:
    """Execute preludes, set spies, create functions, values and arguments, and copy them for the eager side.

    Each part may use the names of earlier parts. Changes of the process are registered with ``undo``.
    """
    session.reseed()
    body = session.plan["body"]
    if body["preludes"]:
        session.module.let_children_import(os.path.join(session.folder, "modules"), body["preludes"], session.params)
    for block in body["preludes"]:
        session.module.execute(block)
    _set_spies(session, undo, of_values=False)
    targets: dict[str, Any] = {}
    for name, value in body["functions"].items():
        if "block" in value:
            targets[name] = session.function_of(value["block"], value["entry"])
        elif "module" in value:
            targets[name] = making.module(value, session.maker)
        else:
            targets[name] = session.scope.find(value.get("ref") or value["api"])
    session.scope.parts.update({name: functools.partial(targets.__getitem__, name) for name in targets})
    # each handler of Inductor is set as soon as its value is there
    first_names = {handler: str(reference["ref"]).split(".")[0] for handler, reference in body["handlers"].items()}
    _set_handlers(session, [handler for handler, first in first_names.items() if first not in body["let"]])
    for name, entry in body["let"].items():
        session.scope.values[name] = session.value(entry)
        _set_handlers(session, [handler for handler, first in first_names.items() if first == name])
    _set_spies(session, undo, of_values=True)
    session.reseed()
    arguments = session.inputs(body["inputs"])
    session.compiled = Side(targets, arguments)
    if session.plan["needs_eager"]:
        session.reference.side = Side({}, [])
    session.scope.parts.update(inputs=lambda: arguments, compiled=lambda: session.compiled_functions.named(session.compiled))
    session.scope.parts.update({name: functools.partial(session.names.value, name) for name in (OUTPUT, EAGER)})
    if session.eager is not None:
        session.copy_for_eager()
    session.names.weak = {name: Weak(session.scope, name) for name in body["dead"]}
    session.reseed()


def _set_spies(session: "Session", undo: contextlib.ExitStack, *, of_values: bool) -> None:
    for name, spec in session.plan["body"]["spies"].items():
        if spies.needs_values(spec) is of_values:
            session.spies[name] = spies.set_spy(spec, session.scope, undo)


def _set_handlers(session: "Session", handlers: Sequence[str]) -> None:
    for handler in handlers:
        value = session.scope.named(session.plan["body"]["handlers"][handler]["ref"])
        session.maker.closing.enter_context(torch_state.virtualized(handler, value))
