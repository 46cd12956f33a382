"""What a case does: each kind of step in one table."""

import inspect
import multiprocessing
import os
from collections.abc import Callable, Mapping
from typing import Any

from runner.worker.case.bench import bench
from runner.worker.case.session import Session, needed
from runner.worker.case.training import take_step
from runner.worker.torch_compat import compat

Arguments = Mapping[str, Any]


def _call(session: Session, arguments: Arguments) -> None:
    names = list(session.compiled.targets)
    name = arguments.get("function", names[0])
    eager = bool(arguments.get("eager", False))
    session.call(name, arguments.get("inputs"), arguments.get("context"), eager=eager, effects=session.effects_wanted)
    session.bind(arguments.get("as"))


def _aot(session: Session, arguments: Arguments) -> None:
    name = arguments.get("function", next(iter(session.compiled.targets)))
    session.call(name, arguments.get("inputs"), arguments.get("context"), ahead=True, effects=session.effects_wanted)
    session.bind(arguments.get("as"))


def _backward(session: Session, arguments: Arguments) -> None:
    session.backward(arguments.get("of"))
    session.bind(arguments.get("as"))


def _optimizer(session: Session, arguments: Arguments) -> None:
    take_step(session, arguments)
    session.bind(arguments.get("as"))


def _reset(session: Session, arguments: Arguments) -> None:
    for word in arguments["items"]:
        if word == "rng":
            session.reseed()
        else:
            compat.RESETS[word]()


def _clear_counters(session: Session, arguments: Arguments) -> None:
    only = arguments.get("only")
    if only is None:
        for spy in session.spies.values():
            spy.clear()
    if only in (None, "counters"):
        compat.clear_counters()
    if only in (None, "metrics"):
        compat.clear_metrics()


def _delete_modules(session: Session, arguments: Arguments) -> None:
    if compat.delete_generated_files() == 0:
        raise RuntimeError("no generated module was loaded: nothing was deleted")


def _fresh_cache(session: Session, arguments: Arguments) -> None:
    session.cache_folders += 1
    compat.reset_inductor()
    compat.use_cache_dir(os.path.join(session.plan["cache"], f"fresh-{session.cache_folders}"))


def _api(session: Session, arguments: Arguments) -> None:
    function = session.called(arguments)
    args, kwargs = session.arguments(arguments)
    with session.phases("api"):
        session.output = function(*args, **kwargs)
    session.bind(arguments.get("as"))


def _spawn(session: Session, arguments: Arguments) -> None:
    function = session.called(arguments)
    args, kwargs = session.arguments(arguments)
    with session.phases("spawn"):
        child = multiprocessing.get_context("spawn").Process(target=function, args=args, kwargs=kwargs)
        child.start()
        child.join()
    session.exit = {"code": child.exitcode, "stderr": session.log_of_step()}


def _script(session: Session, arguments: Arguments) -> None:
    function = session.module.function(arguments["code"], arguments["entry"])
    with needed("what the script names"):
        given = {name: session.scope.named(name) for name in inspect.signature(function).parameters}
    with session.phases("script"):
        session.output = function(**given)
    session.bind(arguments.get("as"))


def _bench(session: Session, arguments: Arguments) -> None:
    session.benches += 1
    bench(session, arguments, f"trace-{session.benches}.json")


STEPS: Mapping[str, Callable[[Session, Arguments], None]] = {
    "call": _call,
    "aot": _aot,
    "backward": _backward,
    "optimizer": _optimizer,
    "reset": _reset,
    "clear_counters": _clear_counters,
    "delete_modules": _delete_modules,
    "fresh_cache": _fresh_cache,
    "api": _api,
    "spawn": _spawn,
    "script": _script,
    "bench": _bench,
}
"""The words of a step."""

CLAIMING = ("call", "aot", "backward", "optimizer", "api", "script")
"""Steps whose exception is torch's answer; in any other an exception means that the case could not be carried out."""
