"""The session of a case while its steps run: functions, arguments and named values of the compiled and the eager side."""

import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from runner.vocabulary import inputs
from runner.vocabulary.expectations.texts import MOST
from runner.vocabulary.steps import STEPS
from runner.vocabulary.steps.session import Call, Changes, needed
from runner.worker.case import copies, generators, parts, spies
from runner.worker.case.answers import OtherAnswers
from runner.worker.case.calibration import Calibrations
from runner.worker.case.each_repetition import EachRepetition
from runner.worker.case.hooks import Witness
from runner.worker.case.names import Names
from runner.worker.case.phases import Phases
from runner.worker.case.reference import Reference, Unseen
from runner.worker.case.repeats import Repeats
from runner.worker.case.scope import Scope
from runner.worker.case.sides import Compiled, Enter, Side, entering
from runner.worker.case.source_module import SpecModule
from runner.worker.case.step_effects import StepEffects
from runner.worker.torch_compat import for_steps
from runner.worker.torch_compat.devices import DeviceApi


class Params:
    """The ``params`` of preludes: the case's matrix values, its backend and its device, as attributes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)


class Session:
    """The state of a case while its steps run. The protocol in ``vocabulary/steps/session.py`` is the part that steps may use."""

    def __init__(self, plan: Mapping[str, Any], phases: Phases, witness: Witness | None = None) -> None:
        self.plan = plan
        self.phases = phases
        self.folder: str = plan["folder"]
        self.cache: str = plan["cache"]
        self.torch = for_steps
        self.device_api = DeviceApi(plan["device"])
        self.kept: dict[str, Any] = {}
        """Storage of kinds of steps until the case ends, by kind."""
        self.output: Any = None
        self.exit: dict[str, Any] | None = None
        self.bench: dict[str, Any] | None = None
        self._step: Mapping[str, Any] = {}
        self._log_begin = 0
        self.compiled = Side({}, [])
        self.spies: dict[str, spies.Spy] = {}
        self.params = {**plan["params"], "backend": plan["backend"], "device": plan["device"]}
        self.module = SpecModule(plan["module_key"], {"torch": torch, "params": Params(self.params)})
        self.scope = Scope(self.module.namespace)
        witness = witness or Witness()
        self.compiled_functions = Compiled(plan["body"]["compile"], self.scope, witness)
        self.unseen = Unseen(witness, self.spies)
        self.reference = Reference(self.unseen, phases, self.device_api, self._is_of_a_call)
        self.names = Names(self.scope, self.reference, lambda: self.output, self.log_of_step)
        self.calibrations = Calibrations(plan, self.reference, self.unseen, phases)
        self.effects: Changes = StepEffects(plan["body"]["compile"], self.unseen, phases, self.calibrations)
        self.repetitions = EachRepetition(self.names, self.reference, self.calibrations)
        self.other_answers = OtherAnswers(plan, self.reference, self.unseen, phases, self.calibrations.comparers)
        self.repeats = Repeats(plan, self.scope, self.unseen, phases, self.calibrations)
        self._closing = contextlib.ExitStack()
        self.maker = inputs.Maker(device=plan["device"], scope=self.scope, closing=self._closing, value=inputs.value)

    @property
    def eager(self) -> Side | None:
        """The eager side; None where no expectation uses it."""
        return self.reference.side

    def function_of(self, block: Mapping[str, Any], entry: str) -> Callable[..., Any]:
        """Return the function ``entry`` that a block of Python defines."""
        found: Callable[..., Any] = self.module.function(block, entry)
        return found

    def reseed(self) -> None:
        """Set every generator to the case's seed."""
        generators.reseed(self.plan["seed"])

    def close(self) -> None:
        """Close the resources of ``let`` and of steps, the last first, and restore the handlers."""
        self._closing.close()

    def begin_step(self, step: Mapping[str, Any]) -> None:
        """Begin a step of the plan: reset its results, and store the position in standard error."""
        self._step = step
        self.exit, self.bench = None, None
        self.effects.begin_step(step)
        self.names.begin_step()
        self.repetitions.begin_step()
        sys.stderr.flush()
        self._log_begin = os.fstat(2).st_size

    def do(self, step: Mapping[str, Any]) -> None:
        """Run the step, and bind the name of its result."""
        kind = STEPS[step["kind"]]
        with needed("the plan of the step"):
            arguments = kind.parse(step["arguments"])
        kind.runs(self, arguments)
        if (name := arguments.bound) is not None:
            self.names.bind(name, self.output, is_compared=name in self.plan["compared"])
            self.reference.bind(name, is_differentiated=name in parts.differentiated(self.plan))

    def call(self, wanted: Call) -> None:
        """Call a function and set ``output``. Its reference runs first, from the same state of the generators."""
        with needed("the context"):
            enter = self.entered(wanted.context)
        with self.phases("inputs"), needed("the arguments"):
            given = None if wanted.inputs is None else inputs.make_all(wanted.inputs, self.maker)
        self.reference.is_there = False
        if self.eager is not None and wanted.has_reference:
            self._call_reference(self.eager, wanted, given, enter)
        target = wanted.target()
        self.repeats.record(target, self.compiled.calling(wanted.function, given), enter, is_package=wanted.is_package)
        with self.phases(wanted.phase):
            self.output = self.compiled.run(target, wanted.function, given, enter)
            self.device_api.synchronize()
        self.effects.finish(self.compiled.called, self.eager, self.output)

    def _call_reference(self, side: Side, wanted: Call, given: list[Any] | None, enter: Enter) -> None:
        name = wanted.function
        with needed("the eager reference"):
            copied = copies.apart(given)
        self.effects.begin(self.compiled.calling(name, given), side.calling(name, copied), is_package=wanted.is_package)
        may_raise = bool(self._step.get("expects_raise"))
        self.reference.call(side, name, copied, enter, may_raise=may_raise, done=self.effects.eager_done)

    def compiled_target(self, name: str) -> Callable[..., Any]:
        """Return ``torch.compile`` of a function. The compile happens at the first call."""
        return self.compiled_functions.target(self.compiled, name)

    def entered(self, context: Sequence[Any] | None) -> Enter:
        """Return a function that enters these contexts; None stands for the spec's contexts."""
        return entering(self.plan["body"]["context"] if context is None else context, self.scope, self.device_api.name)

    def copy(self, value: Any) -> Any:
        """Return a value with every tensor copied: later steps cannot change the copy."""
        return copies.snapshot(value)

    def _is_of_a_call(self) -> bool:
        return self.eager is not None and self.reference.is_there and self.output is self.compiled.result

    def log_of_step(self) -> str:
        """Return the text written to standard error since the step began, at most its last ``MOST`` bytes."""
        sys.stderr.flush()
        with open("/proc/self/fd/2", "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(self._log_begin, size - MOST))
            return stream.read().decode("utf-8", "backslashreplace")
