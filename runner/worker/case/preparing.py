"""Preparation of a case before its first step: preludes, spies, functions, values, inputs, and the eager side."""

import contextlib
import functools
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from runner.vocabulary.expectations.base import EAGER, OUTPUT
from runner.worker.case import copies, making, spies
from runner.worker.case.sides import Side
from runner.worker.torch_compat import torch_state

if TYPE_CHECKING:
    from runner.worker.case.session import Session


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
    targets = {name: _target(session, value) for name, value in body["functions"].items()}
    session.scope.parts.update({name: functools.partial(targets.__getitem__, name) for name in targets})
    _make_values(session)
    _set_spies(session, undo, of_values=True)
    session.reseed()
    arguments = making.make_all(body["inputs"], session.maker)
    session.compiled = Side(targets, arguments)
    if session.plan["needs_eager"]:
        # one deepcopy for both, so that a module that is target and argument remains one object
        session.reference.side = Side(*copies.apart((targets, arguments)))
    session.scope.parts.update(inputs=lambda: arguments, compiled=lambda: session.compiled_functions.named(session.compiled))
    session.scope.parts.update({name: functools.partial(session.names.value, name) for name in (OUTPUT, EAGER)})
    session.names.weak = session.scope.weak(body["dead"])
    session.reseed()


def _set_spies(session: "Session", undo: contextlib.ExitStack, *, of_values: bool) -> None:
    for name, spec in session.plan["body"]["spies"].items():
        if spies.needs_values(spec) is of_values:
            session.spies[name] = spies.set_spy(spec, session.scope, undo)


def _make_values(session: "Session") -> None:
    handlers, let = session.plan["body"]["handlers"], session.plan["body"]["let"]
    _set_handlers(session, {handler: wanted for handler, wanted in handlers.items() if _first(wanted) not in let})
    for name, entry in let.items():
        session.scope.values[name] = making.value(entry, session.maker)
        _set_handlers(session, {handler: wanted for handler, wanted in handlers.items() if _first(wanted) == name})


def _first(wanted: Mapping[str, Any]) -> str:
    return str(wanted["ref"]).split(".")[0]


def _set_handlers(session: "Session", handlers: Mapping[str, Any]) -> None:
    for handler, wanted in handlers.items():
        session.maker.closing.enter_context(torch_state.virtualized(handler, session.scope.named(wanted["ref"])))


def _target(session: "Session", value: Mapping[str, Any]) -> Any:
    if "block" in value:
        return session.function_of(value["block"], value["entry"])
    if "module" in value:
        return making.module(value, session.maker)
    return session.scope.find(value.get("ref") or value["api"])
