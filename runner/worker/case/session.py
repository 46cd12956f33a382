"""One case in the worker: its functions, arguments and named values, compiled and eager side by side."""

import contextlib
import functools
import os
import sys
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils import _pytree as pytree

from runner.vocabulary.expectations import close
from runner.vocabulary.expectations.base import EAGER, OUTPUT
from runner.vocabulary.expectations.dead import WEAK
from runner.vocabulary.expectations.log import STDERR
from runner.vocabulary.expectations.texts import MOST
from runner.worker.case import copies, hooks, inputs, other_inputs, parts, spies
from runner.worker.case.ahead import Ahead
from runner.worker.case.effects import Effects
from runner.worker.case.hooks import Phases, Witness
from runner.worker.case.parts import follow
from runner.worker.case.scope import Scope
from runner.worker.case.source_module import SpecModule
from runner.worker.torch_compat import compat


class Params:
    """What preludes see as ``params``: the case's matrix values, its backend and its device, as attributes."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self.__dict__.update(values)


class NotCarriedOut(Exception):
    """What a step needs could not be had: its arguments, or the eager reference. The case claims nothing here."""


@dataclass(frozen=True)
class Asked:
    """How the reference of a step was had: for asking it again."""

    generators: tuple[torch.Tensor, list[torch.Tensor]]
    contexts: Sequence[Any]
    gradients: bool = False


@dataclass
class Side:
    """One of the two worlds of a case: what is compiled, or its eager reference. Each has its own modules and arguments."""

    targets: dict[str, Any]
    arguments: list[Any]
    result: Any = None
    called: list[Any] = field(default_factory=list)
    """Target and arguments of the last call, for its gradients."""
    optimizers: dict[str, Any] = field(default_factory=dict)
    """By the words that made each, and the parameters that it changes."""


class Session:
    """The state of a case while its steps run."""

    def __init__(self, plan: Mapping[str, Any], phases: Phases, undo: contextlib.ExitStack, witness: Witness | None = None) -> None:
        self.plan = plan
        self._undo = undo
        self._witness = witness or Witness()
        self.phases = phases
        self.device: str = plan["device"]
        self.seed: int = plan["seed"]
        self.cache_folders = 0
        self.snapshots: dict[str, Any] = {}
        """What names bound by steps stood for then; of those that an expectation names."""
        self._bound: str | None = None
        """The name that the current step gave its result."""
        self.effects_wanted: Mapping[str, Any] | None = None
        """The tolerance with which the current step's side effects are compared; None where they are not."""
        self.expects_raise = False
        """Whether an exception in the current step is what the spec wants to see."""
        self.effects: dict[str, Any] | None = None
        """What the current step's call changed, compared with what eager's changed."""
        self.spies: dict[str, spies.Spy] = {}
        self.exit: dict[str, Any] | None = None
        self.bench: dict[str, Any] | None = None
        self.benches = 0
        self.output: Any = None
        self.eager_output: Any = None
        self.has_eager_output = False
        self.asked: Asked | None = None
        self._drawn_bytes = 0
        self._deferred: list[Callable[[], None]] = []
        self.references: dict[str, Any] = {}
        """What the eager side has in the place of a named result that a backward step names."""
        self.params = {**plan["params"], "backend": plan["backend"], "device": plan["device"]}
        self.module = SpecModule(plan["module_key"], {"torch": torch, "params": Params(self.params)})
        self.scope = Scope(self.module.namespace)
        self._compiled: dict[str, Callable[..., Any]] = {}
        self._closing = contextlib.ExitStack()
        self._ahead = Ahead(os.path.join(plan["cache"], "ahead"))
        self._closing.callback(self._ahead.close)
        self.maker = inputs.Maker(device=self.device, scope=self.scope, closing=self._closing)

    # -- setting up ---------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        """Execute the preludes, set spies, make functions, values and arguments, and the copies for the eager side."""
        self.reseed()
        body = self.plan["body"]
        if body["preludes"]:
            self.module.let_children_import(os.path.join(self.plan["folder"], "modules"), body["preludes"], self.params)
        for block in body["preludes"]:
            self.module.execute(block)
        self._set_spies(of_values=False)
        targets = {name: self._target(value) for name, value in body["functions"].items()}
        self.scope.parts.update({name: functools.partial(targets.__getitem__, name) for name in targets})
        self._make_values()
        self._set_spies(of_values=True)
        self.reseed()
        arguments = [inputs.make(entry, self.maker) for entry in body["inputs"]]
        self.compiled = Side(targets, arguments)
        self.eager = None
        if self.plan["needs_eager"]:
            # one deepcopy, so that a module that is both target and argument stays one
            self.eager = Side(*copies.apart((targets, arguments)))
        self.scope.parts.update(inputs=lambda: arguments, compiled=self._only_compiled)
        self.scope.parts.update({name: functools.partial(self.value, name) for name in (OUTPUT, EAGER)})
        self.weak = self.scope.weak(body["dead"])
        self.reseed()

    def _set_spies(self, *, of_values: bool) -> None:
        for name, spec in self.plan["body"]["spies"].items():
            if spies.needs_values(spec) is of_values:
                self.spies[name] = spies.set_spy(spec, self.scope, self._undo)

    def _make_values(self) -> None:
        handlers = self.plan["body"]["handlers"]
        for handler, wanted in handlers.items():
            if wanted["ref"].split(".")[0] not in self.plan["body"]["let"]:
                self._closing.enter_context(compat.virtualized(handler, self.scope.named(wanted["ref"])))
        for name, entry in self.plan["body"]["let"].items():
            self.scope.values[name] = inputs.value(entry, self.maker)
            for handler, wanted in handlers.items():
                if wanted["ref"].split(".")[0] == name:
                    self._closing.enter_context(compat.virtualized(handler, self.scope.named(wanted["ref"])))

    def close(self) -> None:
        """Close what let made, the last first, and give back the handlers."""
        self._closing.close()

    def reseed(self) -> None:
        """Set every generator to the case's seed."""
        torch.manual_seed(self.seed)

    def _target(self, value: Mapping[str, Any]) -> Any:
        if "block" in value:
            return self.module.function(value["block"], value["entry"])
        if "module" in value:
            return inputs.module(value, self.maker)
        return self.scope.find(value.get("ref") or value["api"])

    def arguments(self, step: Mapping[str, Any]) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a step that calls something."""
        with needed("the arguments"):
            return inputs.value(step.get("args", []), self.maker), inputs.value(step.get("kwargs", {}), self.maker)

    def called(self, step: Mapping[str, Any]) -> Any:
        """Return what a step calls."""
        with needed("the name of what is called"):
            return self.scope.callable(step["call"])

    # -- calling ------------------------------------------------------------------------------------------------

    def call(
        self,
        name: str,
        arguments: Sequence[Any] | None,
        contexts: Sequence[Any] | None,
        *,
        eager: bool = False,
        ahead: bool = False,
        effects: Mapping[str, Any] | None = None,
    ) -> None:
        """Call a function: its reference first, where one is wanted, from the same state of the generators.

        ``eager`` calls the function itself, ``ahead`` what it becomes when it is compiled ahead of time. ``effects`` is the tolerance with
        which its side effects are compared with those of the reference; None where they are not.
        """
        with needed("the context"):
            contexts = parts.resolved(self.plan["body"]["context"] if contexts is None else contexts, self.scope.named)
        with self.phases("inputs"), needed("the arguments"):
            given = None if arguments is None else [inputs.make(entry, self.maker) for entry in arguments]
        self.has_eager_output = False
        compared = None
        if self.eager is not None and not eager:
            with needed("the eager reference"):
                copied = copies.apart(given)
            if effects is not None:
                compared = Effects(effects, parameters=not ahead)
                with self.phases("compare"):
                    compared.before(self._called(self.compiled, name, given), self._called(self.eager, name, copied))
            self._call_reference(self.eager, name, copied, contexts)
        target = self.compiled.targets[name] if eager or ahead else self.compiled_target(name)
        if ahead:
            target = self._ahead.target(target)
        with self.phases("eager" if eager else "trace"):
            self.output = self._run(self.compiled, target, name, given, contexts)
            synchronize(self.device)
        if compared is not None and self.eager is not None:
            with self.phases("compare"), self.unseen():
                self.effects = compared.after(self.compiled.called, self.eager.called)

    @staticmethod
    def _called(side: Side, name: str, given: list[Any] | None) -> list[Any]:
        return [side.targets[name], *(side.arguments if given is None else given)]

    def _call_reference(self, side: Side, name: str, given: list[Any] | None, contexts: Sequence[Any]) -> None:
        state = _generator_state()
        self.asked = Asked(state, contexts)
        result = None
        try:
            with self.phases("eager"), self.reference():
                result = self._run(side, side.targets[name], name, given, contexts)
                self._keep_reference(result)
        except NotCarriedOut:
            if not self.expects_raise:  # else eager may raise too: the compiled call shows what the spec wants to see
                raise
        _restore_generators(state)
        if not _has_history(result):
            side.result = None  # no backward will ask for it, and the copy is enough

    def _keep_reference(self, result: Any) -> None:
        # a copy: the compiled call may write to what the reference returned, a buffer or a set that both sides share
        self.eager_output = copies.frozen(result)
        self.has_eager_output = True

    @contextlib.contextmanager
    def reference(self) -> Iterator[None]:
        """Run the eager reference: compilation is off, and neither counters nor spies see it.

        A compiled graph that runs all the same makes it no reference; then, as after any exception, ``NotCarriedOut`` is raised.
        """
        with self.unseen() as seen, needed("the eager reference"), compat.reference_stance():
            yield
            synchronize(self.device)
        count = sum({**seen.executed, **seen.executed_others}.values())
        if count:
            raise NotCarriedOut(
                f"the eager reference executed {count} compiled graph{'s' * (count != 1)}: code of the spec compiled a part of it"
            )

    @contextlib.contextmanager
    def unseen(self) -> Iterator[hooks.Seen]:
        """Do what is no doing of the case: the witness, counters, metrics and spies do not record it."""
        with self._witness.paused() as seen, compat.counts_kept(), spies.paused(self.spies.values()):
            yield seen

    def _run(self, side: Side, target: Any, name: str, given: list[Any] | None, contexts: Sequence[Any]) -> Any:
        arguments = side.arguments if given is None else given
        side.called = [side.targets[name], *arguments]
        for tensor in gradient_leaves(side.called):
            tensor.grad = None
        with contextlib.ExitStack() as stack:
            for context in contexts:
                stack.enter_context(context_of(context, self.device))
            side.result = target(*arguments)
        return side.result

    def compiled_target(self, name: str) -> Callable[..., Any]:
        """Return a function as ``torch.compile`` gives it; it is compiled when it is first called."""
        if name not in self._compiled:
            with needed("an option of compile"):
                options = parts.resolved(self.plan["body"]["compile"], self.scope.named)
            self._compiled[name], backend = compat.compiled(self.compiled.targets[name], options)
            hooks.claim(backend)
        return self._compiled[name]

    def _only_compiled(self) -> Any:
        """Return what ``compiled`` names: the compiled function, or the compiled functions by name."""
        made = {name: self.compiled_target(name) for name in self.compiled.targets}
        return next(iter(made.values())) if len(made) == 1 else types.SimpleNamespace(**made)

    def backward(self, of: str | None) -> None:
        """Run backward on both sides; the results are the gradients of arguments, then of parameters."""
        with needed("what backward runs on"):
            result = self.compiled.result if of is None else self.scope.named(of)
        has_reference = of is None or self._has_reference(of)
        if self.eager is not None and has_reference:
            self.asked = None if self.asked is None or of is not None else replace(self.asked, gradients=True)
            with self.phases("eager"), self.reference():
                reference = self.eager.result if of is None else self._reference_of(of)
                self._keep_reference(gradients_of(reference, self.eager.called))
        self.has_eager_output = self.eager is not None and has_reference
        with self.phases("trace"):  # the backward graph is compiled when it is first run
            self.output = gradients_of(result, self.compiled.called)
            synchronize(self.device)

    def _has_reference(self, of: str) -> bool:
        first = of.split(".")[0]
        return self._is_of_a_call() if first == OUTPUT else first in self.references

    def _is_of_a_call(self) -> bool:
        """Whether the latest result is what the last call gave on both sides."""
        return self.eager is not None and self.has_eager_output and self.output is self.compiled.result

    def _reference_of(self, of: str) -> Any:
        assert self.eager is not None
        first, _, rest = of.partition(".")
        return follow(self.eager.result if first == OUTPUT else self.references[first], rest, EAGER)

    def other_answer(self) -> Callable[[], Any]:
        """Return what gives the reference's answer to other inputs, which ``close`` must refuse; raise ``LookupError`` where there is none.

        The copies are made now and called when the case has ended: code of the case that counts its calls must not see one more.
        """
        if self.eager is None or self.asked is None or not self.has_eager_output:
            raise LookupError("no eager reference was run in this step")
        called = other_inputs.drawn(self.eager.called, self.plan)
        self._drawn_bytes += other_inputs.bytes_of(called)
        if self._drawn_bytes > other_inputs.MOST_BYTES_OF_CASE:
            raise LookupError(f"the copies for earlier steps are larger than {other_inputs.MOST_BYTES_OF_CASE >> 20} MiB")
        return functools.partial(self._answer, called, self.asked)

    def defer_other_inputs(self, facts: dict[str, Any], arguments: Mapping[str, Any]) -> None:
        """Complete what ``close`` measured with the stand-in "other inputs", when the case has ended."""
        if not close.has_other_inputs(arguments):
            return
        reference = self.value(arguments["to"])
        part = arguments["to"].partition(".")[2]
        try:
            answer = self.other_answer()
        except Exception as error:  # copying modules and arguments of a spec may raise anything
            close.add_other_inputs(facts, arguments, reference, functools.partial(_raise, error))
        else:
            asked = functools.partial(_part_of, answer, part)
            self._deferred.append(functools.partial(close.add_other_inputs, facts, arguments, reference, asked))

    def add_other_answers(self) -> None:
        """Call the functions with other inputs, after the last step."""
        with self.phases("compare"), torch.no_grad():
            for add in self._deferred:
                add()

    def _answer(self, called: list[Any], asked: Asked) -> Any:
        # from the state in which the reference began: what differs is the inputs' doing
        _restore_generators(asked.generators)
        with self.unseen(), compat.reference_stance(), torch.enable_grad():
            for tensor in gradient_leaves(called):
                tensor.grad = None
            with contextlib.ExitStack() as stack:
                for context in asked.contexts:
                    stack.enter_context(context_of(context, self.device))
                result = called[0](*called[1:])
            return gradients_of(result, called) if asked.gradients else result

    # -- naming -------------------------------------------------------------------------------------------------

    def bind(self, name: str | None) -> None:
        """Give the step's result a name; what later comparisons see is a copy made now."""
        if name is not None:
            self.scope.values[name] = self.output
            self._bound = name
            if name in self.plan["compared"]:
                self.snapshots[name] = copies.frozen(self.output)
            self.references.pop(name, None)
            if self.eager is not None and self._is_of_a_call() and name in parts.differentiated(self.plan):
                self.references[name] = self.eager.result

    def values(self) -> Callable[[str], Any]:
        """Return what gives the values that one expectation names; it refuses two names for one object that can change."""
        objects: dict[str, Any] = {}

        def value(name: str) -> Any:
            found = self.value(name)
            now = self.scope.values[name] if name == self._bound else found
            for other, known in objects.items():
                if other != name and copies.same_object(now, known):
                    raise LookupError(f"'{other}' and '{name}' are one object: a comparison of the two cannot fail")
            objects[name] = now
            return copies.measured(found)

        return value

    def value(self, name: str) -> Any:
        """Return what an expectation names: output, eager, the copy of a named value, or a part of one of them."""
        first, _, rest = name.partition(".")
        if first == OUTPUT:
            return follow(self.output, rest, first)
        if first == EAGER:
            if not self.has_eager_output:
                raise LookupError("no eager reference was run in this step")
            return _known(first, follow(self.eager_output, rest, first))
        if name == STDERR:
            return self.log_of_step()
        if name == WEAK:
            return self.weak
        return self._snapshot(first, rest) if first in self.snapshots else self.scope.named(name)

    def _snapshot(self, first: str, rest: str) -> Any:
        found = self.snapshots[first]
        if not isinstance(found, copies.Live):
            found = follow(found, rest, first)
        return _known(first, found)

    def log_of_step(self) -> str:
        """Return the end of what was written to standard error since the step began."""
        sys.stderr.flush()
        with open("/proc/self/fd/2", "rb") as stream:
            size = stream.seek(0, os.SEEK_END)
            stream.seek(max(self.log_begin, size - MOST))
            return stream.read().decode("utf-8", "backslashreplace")

    def begin_step(self, step: Mapping[str, Any]) -> None:
        """Note what the step wants, and where its part of standard error begins."""
        self.effects_wanted = step.get("effects")
        self.expects_raise = bool(step.get("expects_raise"))
        self.exit = None
        self.bench = None
        self.effects = None
        self._bound = None
        sys.stderr.flush()
        self.log_begin = os.fstat(2).st_size


def gradient_leaves(called: Sequence[Any]) -> list[torch.Tensor]:
    """Return what gets gradients: tensor arguments that want them, then the parameters of modules, each once."""
    tensors = [leaf for leaf in pytree.tree_leaves(list(called)) if isinstance(leaf, torch.Tensor)]
    modules = [leaf for leaf in pytree.tree_leaves(list(called)) if isinstance(leaf, torch.nn.Module)]
    parameters = [parameter for module in modules for parameter in module.parameters()]
    wanted = [tensor for tensor in [*tensors, *parameters] if tensor.requires_grad and tensor.is_leaf]
    return list({id(tensor): tensor for tensor in wanted}.values())


def _known(name: str, value: Any) -> Any:
    """Return a copy, or raise where a part of it could not be copied."""
    for leaf in pytree.tree_leaves(value):
        if isinstance(leaf, copies.Live):
            raise leaf.refuse(name)
    return value


def _raise(error: Exception) -> None:
    raise error


def _part_of(answer: Callable[[], Any], part: str) -> Any:
    return follow(answer(), part, EAGER)


def _has_history(result: Any) -> bool:
    return any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in pytree.tree_leaves(result))


def total_of(result: Any) -> Any:
    """Return the sum of all tensors of a result that have a history; raise ``RuntimeError`` when there is none."""
    tensors = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, torch.Tensor) and leaf.requires_grad]
    if not tensors:
        raise RuntimeError("nothing to run backward on: no tensor of the result requires a gradient")
    return sum(tensor.sum() for tensor in tensors)


def gradients_of(result: Any, called: Sequence[Any]) -> list[torch.Tensor | None]:
    """Sum what a call gave, run backward, and return a copy of each gradient in the order of ``gradient_leaves``."""
    total_of(result).backward()
    return [None if leaf.grad is None else leaf.grad.clone() for leaf in gradient_leaves(called)]


@contextlib.contextmanager
def needed(what: str) -> Iterator[None]:
    """Turn an exception into ``NotCarriedOut``: it says nothing of what is compiled."""
    try:
        yield
    except Exception as error:  # code of a spec may raise anything: the case is an ERROR
        raise NotCarriedOut(f"{what} raised {type(error).__name__}: {error}") from error


def context_of(entry: Any, device: str) -> Any:
    """Return the context manager that an entry of ``context`` means."""
    if isinstance(entry, Mapping):
        arguments = entry["autocast"]
        dtype = getattr(torch, arguments["dtype"]) if "dtype" in arguments else None
        return torch.autocast(torch.device(device).type, dtype=dtype)
    return CONTEXTS[entry]() if isinstance(entry, str) else parts.entered_as(entry)


CONTEXTS: Mapping[str, Callable[[], Any]] = {
    "no_grad": torch.no_grad,
    "enable_grad": torch.enable_grad,
    "inference_mode": torch.inference_mode,
}
"""The words of ``context`` that take no arguments."""


def _generator_state() -> tuple[torch.Tensor, list[torch.Tensor]]:
    return torch.get_rng_state(), torch.cuda.get_rng_state_all() if torch.cuda.is_initialized() else []


def _restore_generators(state: tuple[torch.Tensor, list[torch.Tensor]]) -> None:
    torch.set_rng_state(state[0])
    if state[1]:
        torch.cuda.set_rng_state_all(state[1])


def synchronize(device: str) -> None:
    """Wait until a device has done all it was given."""
    # a kernel's error must be seen in the step that launched it
    if torch.device(device).type == "cuda":
        torch.cuda.synchronize()
