"""How a script carries out each kind of step. A step that a script cannot carry out has a reason instead."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from runner.plan.script.values import Values, attribute, literal, resolved
from runner.vocabulary.steps.actions import PROGRAMS


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """What the writers of steps need of a plan."""

    values: Values
    uses: Callable[[str], None]
    device: str
    seed: int
    context: tuple[Any, ...]
    targets: tuple[str, ...]
    place: str
    expects_raise: bool
    effects: Mapping[str, Any] | None
    block: Callable[[Mapping[str, Any], str], str]
    """Returns the expression of a function that a block of Python defines."""


Arguments = Mapping[str, Any]
Writer = Callable[[StepContext, Arguments], str]


class NotSaid(Exception):
    """A part of a case that a script cannot say; the text is the reason."""


def _contexts(step: StepContext, own: Any) -> str:
    entries = step.context if own is None else own
    return f"[{', '.join(_context(entry, step.device) for entry in entries)}]"


def _context(entry: Any, device: str) -> str:
    if isinstance(entry, str):
        return f"{attribute('torch', entry)}()"
    if "autocast" in entry:
        given = entry["autocast"] or {}
        dtype = f", dtype={attribute('torch', given['dtype'])}" if "dtype" in given else ""
        return f"torch.autocast({literal(device.partition(':')[0])}{dtype})"
    return f"repro_entered({resolved(entry)})"


def _calling(step: StepContext, arguments: Arguments, more: str) -> str:
    step.uses("call")
    name = arguments.get("function") or step.targets[0]
    inputs = f", inputs=lambda: {step.values.list_of(arguments['inputs'])}" if arguments.get("inputs") is not None else ""
    contexts = _contexts(step, arguments.get("context"))
    words = f"{inputs}{'' if contexts == '[]' else f', contexts=lambda: {contexts}'}{more}"
    if step.effects is not None:
        words += f", effects=({literal(step.effects['rtol'])}, {literal(step.effects['atol'])}), place={literal(step.place)}"
    return f"repro_call({literal(name)}{words}{', may_raise=True' if step.expects_raise else ''})"


def _call(step: StepContext, arguments: Arguments) -> str:
    return _calling(step, arguments, ", is_eager=True" if arguments.get("eager") else "")


def _aot(step: StepContext, arguments: Arguments) -> str:
    step.uses("aot")
    return _calling(step, arguments, f", target=repro_package({literal(arguments.get('strict'))})")


def _backward(step: StepContext, arguments: Arguments) -> str:
    step.uses("backward")
    words = [f"{word}={literal(arguments[word])}" for word in ("of", "loss", "gradient") if arguments.get(word) is not None]
    return f"repro_backward({', '.join(words)})"


def _optimizer(step: StepContext, arguments: Arguments) -> str:
    step.uses("optimizer")
    kwargs = step.values.value(arguments.get("kwargs") or {})
    key = literal(literal([arguments["call"], arguments.get("kwargs") or {}]))
    return f"repro_optimizer({key}, lambda parameters: {step.values.callable(arguments['call'])}(list(parameters), **{kwargs}))"


def _reset(step: StepContext, arguments: Arguments) -> str:
    step.uses("resets")
    words = arguments["items"] if isinstance(arguments, Mapping) else arguments
    return f"repro_reset({literal(list(words))}, {step.seed})"


def _clear_counters(step: StepContext, arguments: Arguments) -> str:
    step.uses("resets")
    only = arguments.get("only")
    spies = "" if only is not None else "; [entries.clear() for entries in repro_now.spies.values()]"
    return f"repro_clear_counters(counters={only != 'metrics'}, metrics={only != 'counters'}){spies}"


def _delete_modules(step: StepContext, arguments: Arguments) -> str:
    step.uses("resets")
    return "repro_delete_modules()"


def _fresh_cache(step: StepContext, arguments: Arguments) -> str:
    step.uses("resets")
    return "repro_fresh_cache()"


def _api(step: StepContext, arguments: Arguments) -> str:
    return f"repro_now.output = {step.values.callable(arguments['call'])}({step.values.called(arguments)})"


def _spawn(step: StepContext, arguments: Arguments) -> str:
    step.uses("spawn")
    if arguments.get("program") is not None:
        argv = step.values.value(arguments.get("argv") or [])
        return f"repro_program({literal(list(PROGRAMS[arguments['program']]))}, {argv})"
    args, kwargs = (step.values.value(arguments.get(word) or empty) for word, empty in (("args", []), ("kwargs", {})))
    return f"repro_spawn({step.values.callable(arguments['call'])}, {args}, {kwargs})"


def _script(step: StepContext, arguments: Arguments) -> str:
    step.uses("scripts")
    return f"repro_now.output = repro_script({step.block(arguments['code'], arguments['entry'])})"


def _not_said(reason: str) -> Writer:
    def refuse(step: StepContext, arguments: Arguments) -> str:
        raise NotSaid(reason)

    return refuse


WRITERS: Mapping[str, Writer] = {
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
    "bench": _not_said("a bench is reported and never judged: it is left out"),
    "samples": _not_said("samples of an operator have a script of their own: repro CASE --sample N"),
    "triton": _not_said("a kernel that is compiled for a target and never executed: only the runner has its compilers"),
}
"""The statement of each kind of step."""
