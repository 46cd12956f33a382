"""The session of a case: what its steps may use, what is kept of each, and what is measured of
it.
"""

import contextlib
import functools
import os
import sys
import types
import weakref
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_conformance.vocabulary import worker_session
from torch_conformance.vocabulary.expectations.close import is_eager, measure
from torch_conformance.vocabulary.expectations.compilation import COMPILATION
from torch_conformance.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from torch_conformance.vocabulary.expectations.texts import MOST, RAISED, STDERR
from torch_conformance.vocabulary.expectations.values import WEAK
from torch_conformance.vocabulary.picture import Picture, shared_state
from torch_conformance.vocabulary.steps.call import Calling
from torch_conformance.vocabulary.steps.step_base import needed
from torch_conformance.worker.case import copies, spies, state
from torch_conformance.worker.case.additional import KINDS, AdditionalCalls
from torch_conformance.worker.case.effects import StepEffects
from torch_conformance.worker.case.ranks import IN_NEW_PROCESS
from torch_conformance.worker.case.scope import STEPS, Enter, Scope, follow
from torch_conformance.worker.case.sides import Compiled, Reference, Side, Unseen
from torch_conformance.worker.case.source_module import SpecModule
from torch_conformance.worker.process.channel import Observed, Phases, Plan, exception_text
from torch_conformance.worker.torch_compat import compiling, opinfo, torch_state
from torch_conformance.worker.torch_compat.compiler_hooks import Witness
from torch_conformance.worker.torch_compat.device_modules import DeviceApi


@dataclass
class Names:
    """Looks up the names of expectations."""

    scope: Scope
    reference: Reference
    output: Callable[[], Any]
    """Returns the result of the current step."""
    log: Callable[[], str]
    """Returns what the current step wrote to standard error."""
    weak: Mapping[str, Any] = field(default_factory=dict)
    """Weak references to objects that must be dead at some step."""
    snapshots: dict[str, Any] = field(default_factory=dict)
    """Copies of the values of names that steps bound and that an expectation uses."""
    compilation: Mapping[str, Any] = field(default_factory=dict)
    """What was recorded of the compiles of the step, by the kind of expectation that asks for
    it.
    """
    results: list[str] = field(default_factory=list)
    """The names of the results of steps."""
    bound: str | None = None
    """The name of the current step's result; None before it is bound."""

    def bind(self, name: str, value: object, *, is_compared: bool) -> None:
        """Bind a name to a result. With ``is_compared``, later comparisons use a copy made now."""
        self.scope.values[name] = value
        self.bound = name
        self.results.append(name)
        if is_compared:
            self.snapshots[name] = copies.frozen(value)

    def values(self) -> Callable[[str], Any]:
        """Return the lookup for one expectation.

        It raises ``LookupError`` for two names of one mutable object, and for unknown names.
        """
        objects: dict[str, Any] = {}

        def value(name: str) -> object:
            named_value = self.value(name)
            current = self.scope.values[name] if name == self.bound else named_value
            for other, value in objects.items():
                if other != name and copies.same_object(current, value):
                    raise LookupError(
                        f"'{other}' and '{name}' are one object: a comparison of the two "
                        "cannot fail"
                    )
            objects[name] = current
            return copies.measured(named_value)

        return value

    def value(self, name: str) -> Any:
        """Return the value of a name: output, eager, the copy of a named value, or a part of one of
        them.
        """
        first, _, rest = name.partition(".")
        if first == OUTPUT:
            return follow(self.output(), rest, first)
        if first == EAGER:
            if not self.reference.is_there:
                raise LookupError("no eager reference was run in this step")
            return _known(first, follow(self.reference.output, rest, first))
        if name == STDERR:
            return self.log()
        if name == RAISED:
            return self.reference.raised
        if name == WEAK:
            return self.weak
        if name.startswith(COMPILATION):
            return self.compilation[name.removeprefix(COMPILATION)]
        if first not in self.snapshots:
            return self.scope.named(name)
        snapshot = self.snapshots[first]
        return _known(
            first, snapshot if isinstance(snapshot, copies.Live) else follow(snapshot, rest, first)
        )


def _known(name: str, value: object) -> object:
    """Return the value; raise ``LookupError`` where a part of it could not be copied."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, copies.Live):
            raise leaf.refuse(name)
    return value


class Weak:
    """A weak reference to a named object, or the reason why there is none."""

    def __init__(self, scope: Scope, name: str) -> None:
        self._reference: Callable[[], Any] | None = None
        try:
            value = scope.named(name)
            self._type = type(value).__name__
            self._reference = weakref.ref(value)
        except Exception as error:  # an attribute of a spec's object may raise anything
            self._type = exception_text(error)

    def state(self) -> Observed:
        """Return ``was`` (whether there was such an object), its ``type``, and ``alive``."""
        was = self._reference is not None
        return {
            "was": was,
            "type": self._type,
            "alive": self._reference is not None and self._reference() is not None,
        }


MOST_VALUES = 10_000
"""The maximum number of values of earlier repetitions of a step that are sent; a repetition above
it is an ERROR.
"""


class EachRepetition:
    """The repetitions of the current step before the last."""

    def __init__(self, session: "Session") -> None:
        self._session = session
        self._values = 0
        self._known: dict[tuple[str, str], Observed] = {}
        self.facts: dict[str, list[Observed]] = {}
        """For each expectation, by its index, the repetitions that differ: ``first``, ``times``,
        and ``measured`` or ``why_not``.
        """

    def measure(self, step: Plan, number: int) -> None:
        """Measure what the repetition left."""
        for request in step["measure"]:
            key, arguments = str(request["index"]), request["arguments"]
            if request["kind"] != "close" or not is_eager(arguments["to"]):
                continue
            with torch.no_grad(), compiling.reference_stance():
                digest = self._digest(arguments)
                if digest is not None and (key, digest) in self._known:
                    self._known[key, digest]["times"] += 1
                    continue
                entry: Observed = {"first": number, "times": 1}
                self.facts.setdefault(key, []).append(entry)
                if digest is not None:
                    self._known[key, digest] = entry
                if self._values > MOST_VALUES:
                    entry["why_not"] = (
                        f"the repetitions before have more than {MOST_VALUES:,} values"
                    )
                    continue
                try:
                    facts = measure(arguments, self._session.names.values(), with_stand_ins=False)
                    self._values += len(facts["leaves"])
                    self._session.additional.calibrate(facts, arguments, with_stand_ins=False)
                    entry["measured"] = facts
                except Exception as error:  # comparing values of a spec may raise anything
                    entry["why_not"] = exception_text(error)[:500]

    def _digest(self, arguments: Plan) -> str | None:
        """Return a text that is equal for repetitions with equal inputs and results; None where
        that cannot be known.
        """
        call = self._session.reference.latest_call
        names = [arguments[word] for word in ("of", "to") if arguments.get(word)]
        try:
            inputs = call.inputs if call is not None and isinstance(call.inputs, list) else []
            picture = Picture().add("inputs", inputs)
            for name in names:
                picture.add(name, self._session.names.value(name))
            return picture.digest()
        except Exception:
            # names and values of a spec may raise anything: the repetition is measured then, which
            # reports it
            return None


class Session(worker_session.Session):
    """The state of a case while its steps run."""

    def __init__(
        self, plan: Plan, phases: Phases | None = None, witness: Witness | None = None
    ) -> None:
        self.plan = plan
        self.phases = phases = phases or Phases()
        self.folder: str = plan["folder"]
        self.cache: str = plan["cache"]
        self.compiling, self.torch_state, self.opinfo = compiling, torch_state, opinfo
        self.device_api = DeviceApi(plan["device"])
        self.kept: dict[str, Any] = {}
        """Storage of kinds of steps until the case ends, by kind."""
        self.output: Any = None
        self.exit: Observed | None = None
        self.origins: Observed | None = None
        """The operators that the answer of a call comes from, where dynamo broke a graph."""
        self._is_broken = False
        self.bench: Observed | None = None
        self._log_begin = 0
        self._twins = copies.Twins()
        self._were_compared = False
        """Whether the side effects of the step before were compared."""
        self._may_have_changed = False
        """Whether code of the spec ran since the eager side was copied: it may have changed the
        compiled side only.
        """
        self.compiled = Side({}, [])
        self.spies: dict[str, spies.Spy] = {}
        self.runtime = spies.RuntimeCalls()
        self.params = {**plan["params"], "backend": plan["backend"], "device": plan["device"]}
        self.module = SpecModule(
            plan["module_key"], {"torch": torch, "params": types.SimpleNamespace(**self.params)}
        )
        self.scope = Scope(self.module.namespace, plan["device"], contextlib.ExitStack())
        witness = witness or Witness()
        self.compiled_functions = Compiled(plan["body"]["compile"], self.scope, witness)
        self.unseen = Unseen(witness, self.spies)
        self.reference = Reference(
            self.unseen, phases, self.device_api, self._is_of_a_call, self.shared_state
        )
        self.names = Names(self.scope, self.reference, lambda: self.output, self.log_of_step)
        self.additional = AdditionalCalls(self)
        self.effects = StepEffects(self)
        self.repetitions = EachRepetition(self)
        steps = [
            STEPS[step["kind"]].parse(step["arguments"])
            for step in plan["steps"]
            if not step.get("skipped")
        ]
        self._differentiated = {step.differentiated for step in steps}
        """The names of results that a backward step differentiates: the eager side stores its own
        results of these.
        """

    def shared_state(self) -> Picture:
        """Return the kept picture of the state that both sides share: the spec's globals."""
        return shared_state(reversed(self.module.globals()), keeps=True)

    @property
    def eager(self) -> Side | None:
        """The eager side; None where no expectation uses it."""
        return self.reference.side

    def reseed(self) -> None:
        """Set every generator to the case's seed."""
        state.reseed(self.plan["seed"])

    def has_drawn(self) -> bool:
        """Whether a generator has another state than the case's seed gives; seed it again."""
        state_before = state.Generators.now()
        self.reseed()
        return state_before.differs_from(state.Generators.now())

    def close(self) -> None:
        """Close the resources of ``let`` and of steps, the last first, and restore the handlers."""
        self.scope.closing.close()

    def begin_step(self, step: Plan) -> None:
        """Begin a step of the plan: reset its results, and store the position in standard error."""
        self.exit, self.bench, self.runtime.least, self.origins = None, None, None, None
        self._were_compared = self.effects.facts is not None
        self.reference.begin_step(may_raise=bool(step.get("expects_raise")))
        self.effects.begin_step(step)
        self.names.bound = None
        self.repetitions = EachRepetition(self)
        sys.stderr.flush()
        self._log_begin = os.fstat(2).st_size

    def carry_out(self, step: Plan) -> None:
        """Run the step as often as it says.

        What is compared of the last repetition is measured after the step, of the others here.
        """
        count = 0 if step.get("skipped") else step.get("repeat", 1)
        for number in range(count):
            self.do(step)
            if number < count - 1 and not step["expects_raise"]:
                with self.phases("compare"), self.unseen():
                    self.repetitions.measure(step, number)

    def measure(
        self, step: Plan, raised: object = None, own_calls: int = 0
    ) -> tuple[Observed, dict[str, str]]:
        """Return what the expectations of a step measure, by their index, and why others are not
        measured.
        """
        measured: Observed = {}
        unmeasured: dict[str, str] = {}
        for request in step["measure"]:
            key, kind, value = str(request["index"]), request["kind"], self.names.values()
            if raised is not None and KINDS[kind].needs_result:
                unmeasured[key] = "the step raised"
                continue
            try:
                with torch.no_grad(), compiling.reference_stance():
                    if KINDS[kind].calls_again:
                        measured[key] = self.additional.repeat(request, step, own_calls, value)
                        continue
                    measured[key] = KINDS[kind].measure(request["arguments"], value)
                    self.additional.of_measurement(request, measured[key])
            except Exception as error:  # comparing values of a spec may raise anything
                unmeasured[key] = exception_text(error)
        return measured, unmeasured

    def do(self, step: Plan) -> None:
        """Run the step once, and bind the name of its result."""
        kind = STEPS[step["kind"]]
        with needed("the plan of the step"):
            arguments = kind.parse(step["arguments"])
        with self.runtime.counted():
            arguments.run(self)
        is_on_both_sides = kind.traits.has_reference or kind.traits.gives_gradients
        self._may_have_changed |= not is_on_both_sides or bool(getattr(arguments, "eager", False))
        if (name := arguments.bound) is not None:
            self.names.bind(name, self.output, is_compared=name in self.plan["compared"])
            self.reference.bind(name, is_differentiated=name in self._differentiated)

    def call(
        self,
        function: str,
        arguments: Calling,
        target_of: Callable[[], Callable[..., Any]],
        *,
        phase: str = "trace",
        has_reference: bool = True,
        is_package: bool = False,
    ) -> None:
        """Call a function with the inputs and the context of a step, and set ``output``.

        With ``has_reference`` its reference runs first, from the same state of the generators; then
        ``target_of`` returns what is called. A package has parameters and buffers of its own: their
        side effects are not compared.
        """
        with needed("the context"):
            enter = self.entered(arguments.context)
        for side in (self.compiled, self.eager):
            if side is not None:
                side.forget_gradients()
        with self.phases("inputs"), needed("the arguments"):
            inputs = None if arguments.inputs is None else self.scope.make_all(arguments.inputs)
            arguments_of_call = inputs, copies.Keywords(self.scope.value(arguments.kwargs or {}))
        called = self.compiled.calling(function, arguments_of_call)
        self.reference.is_there = False
        if self.eager is not None and has_reference:
            with needed("the eager reference"):
                entries = [*(arguments.inputs or []), *(arguments.kwargs or {}).values()]
                theirs = self.eager.calling(
                    function, self._given_to_eager(entries, arguments_of_call)
                )
            self.effects.begin(called, theirs, is_package=is_package)
            self.reference.is_apart |= is_package
            self.reference.call(self.eager, theirs, enter, done=self.effects.eager_done)
        target = target_of()
        self.additional.record(target, called, enter, is_package=is_package)
        with self.phases(phase):
            # nothing is compiled before the trials of a new process
            is_eager_too = IN_NEW_PROCESS in self.plan
            self.output = self.compiled.run(called[0] if is_eager_too else target, called, enter)
            self.device_api.synchronize()
        self._is_broken |= self.plan.get("origins", True) and bool(self.unseen.witness.seen.broken)
        if self._is_broken and not is_package and target is not called[0]:
            self.origins = self.additional.origins(target, called, enter)
        self.effects.finish(self.compiled.called, self.eager, self.output)
        self.reference.is_apart |= self.effects.facts is None

    def _given_to_eager(self, entries: Sequence[Any], call_arguments: object) -> Any:
        """Bring the eager side to the compiled side's state, and return copies of a call's own
        arguments for it.
        """
        is_plain = all(
            not isinstance(entry, Mapping) or not {"call", "module", "ref"} & set(entry)
            for entry in entries
        )
        if self._may_have_changed or not is_plain:
            return self.copy_for_eager(call_arguments)
        if self._were_compared or self.effects.facts is not None:
            # what was judged in an earlier step is not judged again: both sides go on from one
            # value
            self._twins.adopt(only_judged=True)
            self.reference.is_apart = False
        return copies.independent(call_arguments, self._twins)

    def copy_for_eager(self, call_arguments: object = None) -> Any:
        """Copy functions and arguments of the compiled side, as they are now, for the eager side;
        return copies of a call's own arguments.
        """
        assert self.eager is not None
        for name, target in self.eager.targets.items():
            # parameters that freezing has erased remain those of eager
            ours, theirs = (
                copies.changeable([function], parameters=True).leaves
                for function in (self.compiled.targets[name], target)
            )
            self._twins.add(
                (leaf, theirs[path])
                for path, leaf in ours.items()
                if compiling.is_erased(leaf) and path in theirs
            )
        self._twins.adopt(only_judged=False)
        # one copy, so that a module that is target and argument remains one object
        parts: dict[str, Any] = {
            "function": self.compiled.targets,
            "inputs": self.compiled.arguments,
            "arguments": call_arguments,
        }
        copied = copies.independent(parts, self._twins)
        self.eager.targets, self.eager.arguments = copied["function"], copied["inputs"]
        self._may_have_changed = False
        return copied["arguments"]

    def entered(self, context: Sequence[Any] | None) -> Enter:
        """Return a function that enters these contexts; None means the spec's contexts."""
        return self.scope.entering(self.plan["body"]["context"] if context is None else context)

    copy = staticmethod(copies.frozen)
    """Returns a copy of a value, which later steps cannot change."""

    def _is_of_a_call(self) -> bool:
        return (
            self.eager is not None
            and self.reference.is_there
            and self.output is self.compiled.result
        )

    def log_of_step(self) -> str:
        """Return the text written to standard error since the step began, at most its last ``MOST``
        bytes.
        """
        sys.stderr.flush()
        with open("/proc/self/fd/2", "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(self._log_begin, size - MOST))
            return stream.read().decode("utf-8", "backslashreplace")


def prepare(session: Session, undo: contextlib.ExitStack) -> None:
    """Execute preludes, set spies, create functions, values and arguments, and copy them for the
    eager side.

    Each part may use the names of earlier parts. Changes of the process are registered with
    ``undo``.
    """
    session.reseed()
    body = session.plan["body"]
    if body["preludes"]:
        session.module.let_children_import(
            os.path.join(session.folder, "modules"), body["preludes"], session.params
        )
    for block in body["preludes"]:
        session.module.execute(block)
    _set_spies(session, undo, of_values=False)
    if runtime := session.plan.get("runtime"):
        with needed(f"the witness of the proof, {runtime},"):
            session.runtime.spy = session.spies[spies.OF_PROOF] = spies.set_spy(
                {"method": runtime}, session.scope, undo
            )
    targets = {
        name: session.scope.function(value, session.module)
        for name, value in body["functions"].items()
    }
    session.scope.parts.update(
        {name: functools.partial(targets.__getitem__, name) for name in targets}
    )
    # each handler of Inductor is set as soon as its value is there
    first_names = {
        handler: str(reference["ref"]).split(".")[0]
        for handler, reference in body["handlers"].items()
    }
    _set_handlers(
        session, [handler for handler, first in first_names.items() if first not in body["let"]]
    )
    for name, entry in body["let"].items():
        session.scope.values[name] = session.scope.value(entry)
        _set_handlers(session, [handler for handler, first in first_names.items() if first == name])
    _set_spies(session, undo, of_values=True)
    session.reseed()
    arguments = session.scope.make_all(body["inputs"])
    session.compiled = Side(targets, arguments)
    if session.plan["needs_eager"]:
        session.reference.side = Side({}, [])
    session.scope.parts.update(
        inputs=lambda: arguments,
        compiled=lambda: session.compiled_functions.named(session.compiled),
    )
    session.scope.parts.update(
        {name: functools.partial(session.names.value, name) for name in (OUTPUT, EAGER)}
    )
    if session.eager is not None:
        session.copy_for_eager()
    session.names.weak = {name: Weak(session.scope, name) for name in body["dead"]}
    session.reseed()


def _set_spies(session: Session, undo: contextlib.ExitStack, *, of_values: bool) -> None:
    for name, spec in session.plan["body"]["spies"].items():
        if spies.needs_values(spec) is of_values:
            session.spies[name] = spies.set_spy(spec, session.scope, undo)


def _set_handlers(session: Session, handlers: Sequence[str]) -> None:
    for handler in handlers:
        value = session.scope.named(session.plan["body"]["handlers"][handler]["ref"])
        session.scope.closing.enter_context(torch_state.virtualized(handler, value))
