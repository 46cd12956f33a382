"""The two sides of a case: the compiled one, and eager, which runs first on copies."""

import contextlib
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torch_conformance.vocabulary import worker_session
from torch_conformance.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from torch_conformance.vocabulary.picture import Picture
from torch_conformance.vocabulary.steps.call import (
    Differentiate,
    differentiable,
    gradient_leaves,
    gradients_of,
)
from torch_conformance.vocabulary.steps.step_base import NotCarriedOut, needed
from torch_conformance.worker.case import copies, spies
from torch_conformance.worker.case.copies import Called
from torch_conformance.worker.case.scope import Enter, Scope, follow, resolved
from torch_conformance.worker.case.state import Generators, Modes
from torch_conformance.worker.process.channel import Phases, exception
from torch_conformance.worker.torch_compat import compiler_hooks, compiling, torch_state
from torch_conformance.worker.torch_compat.compiler_hooks import Seen, Witness
from torch_conformance.worker.torch_compat.device_modules import DeviceApi


@dataclass
class Side:
    """The functions, the arguments and the latest result of one side."""

    targets: dict[str, Any]
    arguments: list[Any]
    result: Any = None
    called: Called = field(default_factory=list)
    """The target and the arguments of the last call, for its gradients."""
    is_differentiated: bool = False
    """Whether a step ran backward on a result of the last call."""

    def calling(self, name: str, own_arguments: tuple[list[Any] | None, copies.Keywords]) -> Called:
        """Return a function followed by its arguments: its own by position, else those of the
        spec; then those by keyword.
        """
        inputs, keywords = own_arguments
        arguments = self.arguments if inputs is None else inputs
        return [self.targets[name], *arguments, *([keywords] if keywords else [])]

    def forget_gradients(self) -> None:
        """Delete the gradients that a backward step left.

        Those that the spec's own Python made are state of the case.
        """
        for leaf in gradient_leaves(self.called) if self.is_differentiated else ():
            leaf.grad = None
        self.is_differentiated = False

    def run(self, target: compiling.Function, called: Called, enter: Enter) -> object:
        """Call ``target``, which is ``called[0]`` or was compiled of it, with the other values of
        ``called``, and return the result.
        """
        self.called = called
        with enter():
            self.result = copies.invoke(target, called)
        return self.result


class Watched:
    """Whether a call ran compiled: what was counted since this was made."""

    def __init__(self, witness: Witness) -> None:
        self._witness = witness
        self._graphs = witness.seen.own_calls
        self._frames = torch_state.frames()

    @property
    def graphs(self) -> int:
        """How many compiled graphs were called."""
        return self._witness.seen.own_calls - self._graphs

    def end(self, what: str) -> None:
        """Record the call, under this name, where it ran eagerly though it had operations."""
        if not self.graphs and (why := torch_state.why_eager(self._frames)):
            self._witness.seen.uncompiled.append(f"{what}: {why}")


@dataclass
class Compiled:
    """``torch.compile`` of the functions; each is compiled at its first call."""

    options: Mapping[str, Any]
    """The arguments of ``torch.compile``, with references."""
    scope: Scope
    witness: Witness
    by_name: dict[str, compiling.Function] = field(default_factory=dict)

    def target(self, side: worker_session.Side, name: str) -> compiling.Function:
        """Return ``torch.compile`` of a function of a side; the same object for each call."""
        if name not in self.by_name:
            self.by_name[name] = self.of(side.targets[name])
        return self.by_name[name]

    def of(self, function: compiling.Function) -> compiling.Function:
        """Return ``torch.compile`` of any function; its graphs count as the case's own."""
        with needed("an option of compile"):
            options = resolved(self.options, self.scope.named)
        if compiling.has_ignored_mark(function):
            name = getattr(function, "__name__", "the module")
            raise NotCarriedOut(
                f"{name} is marked torch.compiler.disable, and torch.compile of {name} itself "
                "ignores the mark: take it off, or call it from another function"
            )
        compiled, backend = compiling.compiled(function, options)
        compiler_hooks.claim(backend)
        return compiled

    def watched(self) -> Watched:
        """Begin to watch a call of something compiled."""
        return Watched(self.witness)

    def differentiates(self, tensors: Sequence[Any]) -> None:
        """Count a graph where there is nothing to compile: results that are views of arguments."""
        if compiling.are_views(tensors):
            self.witness.seen.count(tensor.device.type for tensor in tensors)

    def named(self, side: Side) -> object:
        """Return the value of ``compiled``: the compiled function, or a namespace of several."""
        targets = {name: self.target(side, name) for name in side.targets}
        return (
            next(iter(targets.values())) if len(targets) == 1 else types.SimpleNamespace(**targets)
        )


@dataclass(frozen=True)
class ReferenceCall:
    """The conditions of a reference call, so that it can be repeated."""

    generators: Generators
    enter: Enter
    inputs: Called | str
    """Copies of the target and its arguments before the call, or why there are none."""
    differentiate: Differentiate | None = None
    """How backward was run on its result; None where only the call was made."""
    then: tuple[Callable[[Called], Any], ...] = ()
    """The optimizer's steps after the backward: each receives the target and its arguments, and
    returns the result of the step.
    """
    is_apart: bool = False
    """Whether the two sides may have begun the call with other numbers, because an earlier call was
    not compared.
    """
    shared: Picture | None = None
    """The state that both sides share, before the call; None where the call is not repeated."""

    def stages(self, called: Called, context: worker_session.Context) -> Iterator[Any]:
        """Repeat the call within ``context``, then its backward and the optimizer's steps; yield
        the result of each.
        """
        with self.enter(), context:
            result = copies.invoke(called[0], called)
        yield result
        if self.differentiate:
            yield gradients_of(result, called, self.differentiate)
        for step in self.then:
            yield step(called)


@dataclass(frozen=True)
class Unseen:
    """Runs work of the runner itself. The witness, counters, metrics and spies do not record it."""

    witness: Witness
    spies: Mapping[str, spies.Spy]

    @contextlib.contextmanager
    def __call__(self) -> Iterator[Seen]:
        """Suspend the records until the context ends; yield a separate record of the hooks."""
        with (
            self.witness.paused() as witnessed,
            torch_state.counts_kept(),
            spies.paused(self.spies.values()),
        ):
            yield witnessed


@dataclass
class Reference(worker_session.Reference):
    """The result of the eager side in a step."""

    unseen: Unseen
    phases: Phases
    device_api: DeviceApi
    is_of_a_call: Callable[[], bool]
    """Whether the latest result of the case is that of the last call, on both sides."""
    shared: Callable[[], Picture]
    """Returns the kept picture of the state that both sides share."""
    side: Side | None = None
    """None where no expectation uses it."""
    output: Any = None
    is_there: bool = False
    """Whether ``output`` is the result of this step."""
    raised: dict[str, Any] | None = None
    """The exception of the eager side in this step, as an observation has it."""
    latest_call: ReferenceCall | None = None
    is_apart: bool = False
    """Whether the two sides may have other numbers: those that an earlier call left were not
    compared.
    """
    copied: Callable[[Called], Called | str] = lambda called: "the inputs were not copied"
    """Copies a target and its arguments before a call, where a call is repeated with the same
    inputs; else says why there are none.
    """
    _may_raise: bool = False
    _named: dict[str, Any] = field(default_factory=dict)
    """The eager side's results under the names that a backward step uses."""

    def begin_step(self, *, may_raise: bool) -> None:
        """Begin a step.

        With ``may_raise`` it expects an exception of the compiled side: eager may raise too, and
        has no result then.
        """
        self.raised, self._may_raise = None, may_raise

    @contextlib.contextmanager
    def _raising(self) -> Iterator[None]:
        """Keep an exception of the eager side in this context where the step may raise."""
        try:
            yield
        except NotCarriedOut as error:
            if not self._may_raise:
                raise
            self.raised = None if error.__cause__ is None else exception(error.__cause__, "eager")

    def forget(self) -> None:
        """Discard the result, and the conditions under which it was computed."""
        self.is_there = False
        self.latest_call = None

    def stepped(self, result: object, update: Callable[[Called], Any]) -> None:
        """Store the result of an optimizer's step on what the last backward left; ``update`` makes
        it on a target and its arguments.
        """
        call = self.latest_call
        self.latest_call = (
            None
            if call is None or call.differentiate is None
            else replace(call, then=(*call.then, update))
        )
        self.keep(result)

    def keep(self, result: object) -> None:
        """Store a copy of a result as the result of this step."""
        # the compiled call may write to an object that both sides share, such as a global buffer
        self.output = copies.frozen(result)
        self.is_there = True

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        """Run the eager side in this context.

        Compilation is disabled, and counters and spies do not record.

        Raise ``NotCarriedOut`` after any exception, and when a compiled graph ran: then the result
        is not a reference.
        """
        with (
            self.unseen() as witnessed,
            needed("the eager reference"),
            compiling.reference_stance(),
        ):
            yield
            self.device_api.synchronize()
        count = sum({**witnessed.executed, **witnessed.executed_others}.values())
        if count:
            raise NotCarriedOut(
                f"the eager reference executed {count} compiled graph{'s' * (count != 1)}: "
                "code of the spec compiled a part of it"
            )

    def call(
        self,
        side: Side,
        called: Called,
        enter: Enter,
        *,
        done: Callable[[Called, Any], None],
    ) -> None:
        """Call a function of the eager side, then restore generators and modes.

        ``done`` receives what was called and the result.
        """
        inputs = self.copied(called)
        state, modes, shared = Generators.now(), Modes(), self.shared()
        self.latest_call = ReferenceCall(
            state,
            enter,
            inputs,
            is_apart=self.is_apart,
            shared=None if isinstance(inputs, str) else shared,
        )
        result = None
        with self._raising():
            with self.phases("eager"), self.running():
                result = side.run(called[0], called, enter)
                self.keep(result)
            done(side.called, result)
        state.restore()
        modes.restore()
        shared.restore()
        if not differentiable(result):
            side.result = None  # no backward can use it, and the copy is sufficient

    def backward(self, name: str | None, differentiate: Differentiate) -> None:
        """Run backward where the eager side has a result of this name, and store the gradients as
        the result.
        """
        first, _, rest = (name or OUTPUT).partition(".")
        has_reference = name is None or (
            self.is_of_a_call() if first == OUTPUT else first in self._named
        )
        if self.side is not None and has_reference:
            call = self.latest_call
            self.latest_call = (
                None
                if call is None or name is not None
                else replace(call, differentiate=differentiate)
            )
            with self._raising(), self.phases("eager"), self.running():
                reference = follow(
                    self.side.result if first == OUTPUT else self._named[first], rest, EAGER
                )
                self.keep(gradients_of(reference, self.side.called, differentiate))
        self.is_there = self.side is not None and has_reference and self.raised is None

    def bind(self, name: str, *, is_differentiated: bool) -> None:
        """Bind a name to the eager side's latest result where a backward step differentiates that
        name.
        """
        self._named.pop(name, None)
        if self.side is not None and is_differentiated and self.is_of_a_call():
            self._named[name] = self.side.result
