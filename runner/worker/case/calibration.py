"""Runs of eager and of its float64 reference for the calibrated judge. They are made after the last step."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from runner.vocabulary.expectations import close
from runner.vocabulary.expectations.calibrated_measure import NoReference
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.close_measure import Answers, Comparison, add_reference
from runner.vocabulary.expectations.close_rules import Judge
from runner.vocabulary.expectations.stand_ins import Comparer
from runner.vocabulary.steps.samples import Done
from runner.worker.case import copies, other_inputs
from runner.worker.case.eager_runs import EagerRuns, Repeatable, of_call, of_state
from runner.worker.case.effects import MOST, Inexact
from runner.worker.case.generators import Generators
from runner.worker.case.phases import Phases
from runner.worker.case.reference import Reference, ReferenceCall, Unseen
from runner.worker.torch_compat import for_steps

Calibrate = Callable[[dict[str, Any], Mapping[str, Any], Any, Any], None]
"""Completes the facts of ``close`` for an answer and eager's; the arguments are those of ``close``."""


class Calibrations:
    """The deferred runs of a case."""

    def __init__(self, plan: Mapping[str, Any], reference: Reference, unseen: Unseen, phases: Phases) -> None:
        self._plan = plan
        self._reference = reference
        self._unseen = unseen
        self._phases = phases
        self._bytes = 0
        self._known_call: object = None
        self._deferred: list[Callable[[], None]] = []
        self.comparers: dict[int, Comparer] = {}
        """What compares stand-ins with the reference of a leaf, by the identity of the leaf's facts."""
        wanted = [one["arguments"] for step in plan["steps"] for one in step["measure"] if one["kind"] in ("close", "candidates")]
        effects = [step["effects"] for step in plan["steps"] if step.get("effects") is not None]
        if any(close.needs_reference(one.get("close", one)) for one in wanted) or any(one["rtol"] is None for one in effects):
            reference.copied = self._copied

    def _copied(self, called: Sequence[Any]) -> list[Any] | str:
        """Return copies of a target and its arguments before a call, or why there are none."""
        if why := other_inputs.why_observed(self._plan):
            return why
        size = other_inputs.bytes_of(called)
        if size > other_inputs.MOST_BYTES:
            return f"modules and arguments are larger than {other_inputs.MOST_BYTES >> 20} MiB"
        if self._bytes + size > other_inputs.MOST_BYTES_OF_CASE:
            return f"the copies for earlier steps are larger than {other_inputs.MOST_BYTES_OF_CASE >> 20} MiB"
        try:
            return list(copies.apart(list(called)))
        except Exception as error:  # copying modules and arguments of a spec may raise anything
            return f"the inputs cannot be copied: {type(error).__name__}"

    def _latest(self) -> ReferenceCall | None:
        """Return the reference call of the step, whose copies are alive until the case has ended."""
        call = self._reference.latest_call
        if call is not None and call.inputs is not self._known_call:
            self._known_call = call.inputs
            self._bytes += other_inputs.bytes_of(call.inputs) if isinstance(call.inputs, list) else 0
        return call

    def defer(
        self, facts: dict[str, Any], arguments: Mapping[str, Any], value: Callable[[str], Any], *, with_stand_ins: bool = True
    ) -> None:
        """Schedule the measurements that need a float64 reference; they complete the facts of ``close``."""
        if not close.needs_reference(arguments):
            return
        names = {word: arguments[word] for word in ("of", "to", "no_worse_than") if arguments.get(word)}
        values = {word: copies.frozen(copies.measured(value(name))) for word, name in names.items()}
        call = self._latest()
        if not with_stand_ins:  # a repetition, of which there may be many
            self._bytes += other_inputs.bytes_of(list(values.values()))
        runs = EagerRuns(self._unseen, of_call(call, arguments["to"].partition(".")[2]))
        comparison = Comparison(facts, arguments, values, self.comparers, with_stand_ins=with_stand_ins)
        self._deferred.append(functools.partial(add_reference, comparison, functools.partial(runs.answers, values["to"])))

    def defer_effects(self, facts: dict[str, Any], inexact: Sequence[Inexact], *, parameters: bool) -> None:
        """Schedule the same for values that a call left beside its result; ``facts`` are those of the step's effects."""
        if inexact:
            call = self._latest()
            self._bytes += 2 * other_inputs.bytes_of([one.ours for one in inexact])
            arguments = {"judge": Judge.CALIBRATED.value, "equal_nan": inexact[0].equal_nan}
            values = {"of": [one.ours for one in inexact], "to": [one.theirs for one in inexact]}
            leaves, unwritten = [one.facts for one in inexact], [one.unwritten for one in inexact]
            comparison = Comparison({"leaves": leaves}, arguments, values, {}, with_stand_ins=False, unwritten=unwritten)
            runs = EagerRuns(self._unseen, of_state(call, [one.path for one in inexact], parameters=parameters))
            self._deferred.append(functools.partial(add_reference, comparison, functools.partial(runs.answers, values["to"])))
        self._deferred.append(functools.partial(_keep_worst, facts))

    def of_step(self) -> Calibrate:
        """Return what completes the facts of further answers of this step's call, after the last step. Eager is run for the first."""
        runs = EagerRuns(self._unseen, of_call(self._latest(), ""))
        known: list[Answers | NoReference] = []

        def answers(eager: Any) -> Answers:
            if not known:
                try:
                    known.append(runs.answers(eager))
                except NoReference as why:
                    known.append(why)
            if isinstance(known[0], NoReference):
                raise known[0]
            return known[0]

        def complete(facts: dict[str, Any], arguments: Mapping[str, Any], answer: Any, eager: Any) -> None:
            if close.needs_reference(arguments):
                comparison = Comparison(facts, arguments, {"of": answer, "to": eager}, {}, with_stand_ins=False)
                with torch.no_grad():
                    add_reference(comparison, functools.partial(answers, eager))

        return complete

    def defer_samples(self, facts: Mapping[str, Any], arguments: Mapping[str, Any], samples: Sequence[Done]) -> None:
        """Schedule the same for each sample of an operator: they complete its entry in the facts."""
        if not close.needs_reference(arguments):
            return
        why = other_inputs.why_observed(self._plan)
        for entry, done in zip(facts["samples"], samples, strict=True):
            if entry["value"] is None:
                continue
            is_large = other_inputs.bytes_of(done.inputs) > other_inputs.MOST_BYTES
            why_not = why or (f"the arguments are larger than {other_inputs.MOST_BYTES >> 20} MiB" if is_large else "")
            call = Repeatable(why_not or done.inputs, self._generators(done), done.again)
            has_stand_ins = any("stand_ins" in leaf for leaf in entry["value"]["leaves"])
            comparison = Comparison(entry["value"], arguments, {"of": done.compiled, "to": done.eager}, {}, with_stand_ins=has_stand_ins)
            self._deferred.append(functools.partial(self._add_sample, comparison, EagerRuns(self._unseen, call), done))

    def _generators(self, done: Done) -> Generators:
        """Return the generators as they are before the call of a sample."""
        done.caller.reseed()
        return Generators.now()

    def _add_sample(self, comparison: Comparison, runs: EagerRuns, done: Done) -> None:
        for_steps.announce_sample(done.index, f"again, in eager and in float64: {done.text}")
        add_reference(comparison, functools.partial(runs.answers, done.eager))

    def add_all(self) -> None:
        """Run them, after the last step."""
        with self._phases("compare"), torch.no_grad():
            while self._deferred:
                self._deferred.pop(0)()


def _keep_worst(facts: dict[str, Any]) -> None:
    """Keep the values that differ most, where there are too many: those that the judge refuses stand first."""
    check = Close()
    refused = [check.problem(leaf) is not None for leaf in facts["leaves"]]
    ordered = sorted(range(len(refused)), key=lambda index: not refused[index])
    facts["leaves"] = [facts["leaves"][index] for index in ordered[:MOST]]
