"""One case in the worker while its steps run: its functions, arguments and named values, compiled and eager side by side."""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from runner.vocabulary import inputs
from runner.vocabulary.expectations.texts import MOST
from runner.vocabulary.steps import STEPS
from runner.vocabulary.steps.session import Call, needed
from runner.worker.case import copies, parts, preparing, spies
from runner.worker.case.answers import OtherAnswers
from runner.worker.case.effects import Effects
from runner.worker.case.hooks import Phases, Witness
from runner.worker.case.names import Names
from runner.worker.case.reference import Reference, Unseen
from runner.worker.case.scope import Scope
from runner.worker.case.sides import Compiled, Enter, Side, entering
from runner.worker.case.source_module import SpecModule
from runner.worker.torch_compat import for_steps
from runner.worker.torch_compat.devices import DeviceApi


class Params:
    """What preludes see as ``params``: the case's matrix values, its backend and its device, as attributes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)


class Session:
    """The state of a case while its steps run. ``vocabulary/steps/session.py`` says what a step may use of it."""

    def __init__(self, plan: Mapping[str, Any], phases: Phases, undo: contextlib.ExitStack, witness: Witness | None = None) -> None:
        self.plan = plan
        self._undo = undo
        self.phases = phases
        self.folder: str = plan["folder"]
        self.cache: str = plan["cache"]
        self.torch = for_steps
        self.device_api = DeviceApi(plan["device"])
        self.kept: dict[str, Any] = {}
        """What kinds of steps keep until the case ends, by their names."""
        self.output: Any = None
        self.exit: dict[str, Any] | None = None
        self.bench: dict[str, Any] | None = None
        self.effects: dict[str, Any] | None = None
        """What the current step's call changed, compared with what eager's changed."""
        self._step: Mapping[str, Any] = {}
        self._log_begin = 0
        self.compiled = Side({}, [])
        self.spies: dict[str, spies.Spy] = {}
        self.params = {**plan["params"], "backend": plan["backend"], "device": plan["device"]}
        self.module = SpecModule(plan["module_key"], {"torch": torch, "params": Params(self.params)})
        self.scope = Scope(self.module.namespace)
        self.compiled_functions = Compiled(plan["body"]["compile"], self.scope)
        self.unseen = Unseen(witness or Witness(), self.spies)
        self.reference = Reference(self.unseen, phases, self.device_api, self._is_of_a_call)
        self.names = Names(self.scope, self.reference, lambda: self.output, self.log_of_step)
        self.other_answers = OtherAnswers(plan, self.reference, self.unseen, phases)
        self._closing = contextlib.ExitStack()
        self.maker = inputs.Maker(device=plan["device"], scope=self.scope, closing=self._closing)

    @property
    def eager(self) -> Side | None:
        """The eager side; None where nothing compares with it."""
        return self.reference.side

    def prepare(self) -> None:
        """Execute the preludes, set spies, make functions, values and arguments, and the copies for the eager side."""
        preparing.prepare(self, self._undo)

    def function_of(self, block: Mapping[str, Any], entry: str) -> Callable[..., Any]:
        """Return the function that a block of Python defines."""
        found: Callable[..., Any] = self.module.function(block, entry)
        return found

    def reseed(self) -> None:
        """Set every generator to the case's seed."""
        torch.manual_seed(self.plan["seed"])

    def close(self) -> None:
        """Close what let and the steps made, the last first, and give back the handlers."""
        self._closing.close()

    def begin_step(self, step: Mapping[str, Any]) -> None:
        """Note what a step of the plan wants, and where its part of standard error begins."""
        self._step = step
        self.exit, self.bench, self.effects = None, None, None
        self.names.begin_step()
        sys.stderr.flush()
        self._log_begin = os.fstat(2).st_size

    def do(self, step: Mapping[str, Any]) -> None:
        """Do the step, and give its result its name."""
        kind = STEPS[step["kind"]]
        with needed("the plan of the step"):
            arguments = kind.parse(step["arguments"])
        kind.runs(self, arguments)
        if (name := arguments.bound) is not None:
            self.names.bind(name, self.output, is_compared=name in self.plan["compared"])
            self.reference.bind(name, is_differentiated=name in parts.differentiated(self.plan))

    def call(self, wanted: Call) -> None:
        """Call a function: its reference first, from the same state of the generators. Its result is ``output``."""
        with needed("the context"):
            enter = self.entered(wanted.context)
        with self.phases("inputs"), needed("the arguments"):
            given = None if wanted.inputs is None else [inputs.make(entry, self.maker) for entry in wanted.inputs]
        self.reference.is_there = False
        effects = self._call_reference(self.eager, wanted, given, enter) if self.eager is not None and wanted.has_reference else None
        target = wanted.target()
        with self.phases(wanted.phase):
            self.output = self.compiled.run(target, wanted.function, given, enter)
            self.device_api.synchronize()
        if effects is not None and self.eager is not None:
            with self.phases("compare"), self.unseen():
                self.effects = effects.after(self.compiled.called, self.eager.called)

    def _call_reference(self, side: Side, wanted: Call, given: list[Any] | None, enter: Enter) -> Effects | None:
        """Call the reference; return what compares side effects, None where the step compares none."""
        name = wanted.function
        with needed("the eager reference"):
            copied = copies.apart(given)
        effects = None
        if (tolerance := self._step.get("effects")) is not None:
            effects = Effects(tolerance, parameters=wanted.compares_parameters)
            with self.phases("compare"):
                effects.before(self.compiled.calling(name, given), side.calling(name, copied))
        self.reference.call(side, name, copied, enter, may_raise=bool(self._step.get("expects_raise")))
        return effects

    def compiled_target(self, name: str) -> Callable[..., Any]:
        """Return a function as ``torch.compile`` gives it; it is compiled when it is first called."""
        return self.compiled_functions.target(self.compiled, name)

    def entered(self, context: Sequence[Any] | None) -> Enter:
        """Return what enters these contexts; the spec's for None."""
        return entering(self.plan["body"]["context"] if context is None else context, self.scope, self.device_api.name)

    def copy(self, value: Any) -> Any:
        """Return a copy of a value's tensors that later steps cannot change."""
        return copies.snapshot(value)

    def _is_of_a_call(self) -> bool:
        return self.eager is not None and self.reference.is_there and self.output is self.compiled.result

    def log_of_step(self) -> str:
        """Return the end of what was written to standard error since the step began."""
        sys.stderr.flush()
        with open("/proc/self/fd/2", "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(self._log_begin, size - MOST))
            return stream.read().decode("utf-8", "backslashreplace")
