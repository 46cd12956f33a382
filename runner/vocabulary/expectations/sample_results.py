"""How an expectation of a spec with ``source: {opinfo: ...}`` is measured and judged: for each sample of an operator."""

import itertools
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from runner.model.conditions import Surroundings
from runner.model.expectation import Expectation, Judgement, Mutant, Status, StepFacts, WrongValue
from runner.model.protocol import Json
from runner.vocabulary.expectations.close import Close, told
from runner.vocabulary.expectations.expectation_base import EAGER, OUTPUT

KIND = "samples"

FORM = "form"
"""The rule that compares type, shape, dtype and device, and no values."""

_MOST_VALUES = 20_000
"""The greatest number of values of a case that are compared; a sample above it is an ERROR."""

_MOST_NAMED = 10
"""How many more failed samples a judgement names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EachSample(Expectation):
    """An expectation that holds where it holds for every sample that eager computes."""

    kind: ClassVar[str] = KIND
    mutations: ClassVar[tuple[str, ...]] = Close.mutations
    check: Expectation
    rule: str = ""
    """How values are judged; ``form`` compares none."""
    parts: tuple[str, ...] = ()
    """The paths of values of which only the form is compared."""
    reason: str = ""
    """Why the rule, or that of the parts, is not ``close``."""

    @classmethod
    def parse(cls, body: object) -> "EachSample":
        """Read the body of ``close``."""
        return cls(check=Close.parse(body))

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the expectation."""
        return self.check.names

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker measures each sample as it would measure the expectation; of the form it needs no further run of eager."""
        arguments = self.check.measurement()
        if self.rule != FORM or arguments is None:
            return arguments
        return {word: value for word, value in arguments.items() if word != "judge"}

    def judge(self, facts: StepFacts, surroundings: Surroundings) -> list[Judgement]:
        """Judge every sample; the judgement shows the first that failed, and names the others."""
        if facts.measured is None:
            return [Judgement.error("nothing was measured", expected="every sample close to eager")]
        entries = facts.measured["samples"]
        judged = [(entry, judgement) for entry in entries if (judgement := self._judged(entry, facts, surroundings)) is not None]
        if not judged:
            first = entries[0]["refused"] or "its result holds no tensor and no number" if entries else "there is none"
            return [Judgement.error(f"no sample can be compared: {first}", expected="every sample close to eager")]
        wrong = [(entry, judgement) for entry, judgement in judged if judgement.status in (Status.FAILED, Status.ERROR)]
        if wrong:
            entry, first = wrong[0]
            lines = [f"{len(wrong)} of {len(judged)} samples failed", f"sample {entry['index']}: {entry['text']}"]
            lines += [first.detail] if first.detail else []
            lines += [f"sample {other['index']}: {one.observed[:200]}; {other['text'][:200]}" for other, one in wrong[1 : 1 + _MOST_NAMED]]
            if len(wrong) > 1 + _MOST_NAMED:
                lines.append(f"and {len(wrong) - 1 - _MOST_NAMED} more")
            # a waiver is compared with every wrong sample
            values = tuple(itertools.chain.from_iterable(judgement.wrong or (_unlike(bad, judgement),) for bad, judgement in wrong))
            return [replace(first, expected=f"sample {entry['index']}: {first.expected}", detail="\n".join(lines), wrong=values)]
        if all(judgement.status is Status.NOT_APPLICABLE for _, judgement in judged):
            return [Judgement.not_applicable()]
        others = {
            "refused by eager": sum(bool(entry["refused"]) for entry in entries),
            "without a value": sum(_is_empty(entry["value"]) for entry in entries),
            "without gradients": sum(bool(entry["no_gradients"]) for entry in entries),
            "without a compiled graph": sum(not entry["graphs"] and not entry["refused"] for entry in entries),
        }
        parts = [f"{len(judged)} sample{'' if len(judged) == 1 else 's'} compared"]
        observed = ", ".join([*parts, *(f"{number} {what}" for what, number in others.items() if number)])
        if self.rule != FORM:
            leaves = [leaf for entry in entries if entry["value"] is not None for leaf in entry["value"]["leaves"]]
            by_value = [leaf for leaf in leaves if leaf["path"] not in self.parts]
            left = len(leaves) - len(by_value)
            by_form = f", {left} value{'' if left == 1 else 's'} by the form ({self.reason})" if left else ""
            observed += f"; {told(by_value)}{by_form}"
        return [Judgement.passed(expected="every sample close to eager", observed=observed)]

    def _judged(self, entry: Mapping[str, Any], facts: StepFacts, surroundings: Surroundings) -> Judgement | None:
        """Return the judgement of a sample; None where eager refuses it, or where both results are equally empty."""
        if entry["refused"] or _is_empty(entry["value"]):
            return None
        raised = entry["raised"]
        if raised is not None:
            first = next(iter(raised["message"].strip().splitlines()), "")
            observed = f"{raised['type']} in phase '{raised['phase']}': {first}"
            return Judgement.failed(expected="no exception", observed=observed, detail=raised["message"])
        if entry["why_not"]:
            return Judgement.error(entry["why_not"], expected="a value that can be compared")
        if self.rule == FORM:
            return _judge_form(entry["value"])
        if self.parts and (form := _judge_form(_leaves(entry["value"], lambda path: path in self.parts))).status is not Status.HELD:
            return form
        judgements = self.check.judge(replace(facts, measured=_leaves(entry["value"], lambda path: path not in self.parts)), surroundings)
        return next((judgement for judgement in judgements if judgement.status is not Status.HELD), judgements[0])

    def mutants(self, facts: StepFacts, surroundings: Surroundings) -> Iterator[Mutant]:
        """Those of the first sample with elements; for the others no stand-ins are measured."""
        entries = facts.measured["samples"]
        compared = [number for number, entry in enumerate(entries) if entry["value"] is not None]
        index = next((number for number in compared if _has_elements(entries[number]["value"])), next(iter(compared), None))
        if index is None or self.rule == FORM:
            return
        for mutant in self.check.mutants(
            replace(facts, measured=_leaves(entries[index]["value"], lambda path: path not in self.parts)), surroundings
        ):
            if mutant.facts is None:
                yield mutant
            else:
                changed = [*entries[:index], {**entries[index], "value": mutant.facts.measured}, *entries[index + 1 :]]
                yield replace(mutant, facts=facts.with_measured(samples=changed))


def _unlike(entry: Mapping[str, Any], judged: Judgement) -> WrongValue:
    """Return what a waiver sees of a sample that raised, or whose result has another form."""
    return WrongValue(message=f"expected sample {entry['index']}: {judged.expected}, observed {judged.observed}")


def _is_empty(measured: Mapping[str, Any] | None) -> bool:
    """Whether two results of one structure hold no value: an empty tuple."""
    return measured is not None and not measured["leaves"] and measured["structure"] == measured["reference_structure"]


def _has_elements(measured: Mapping[str, Any]) -> bool:
    """Whether a tensor of a sample has elements, so that another value could stand in its place."""
    return any(leaf.get("numel") for leaf in measured["leaves"])


def _leaves(measured: Mapping[str, Any], is_chosen: Callable[[str], bool]) -> Mapping[str, Any]:
    """Return a measurement with the leaves of some paths."""
    return {**measured, "leaves": [leaf for leaf in measured["leaves"] if is_chosen(leaf["path"])]}


def _judge_form(measured: Mapping[str, Any]) -> Judgement:
    """Judge structure, type, shape, dtype and device."""
    expected = "type, shape, dtype and device of eager"
    if measured["structure"] != measured["reference_structure"]:
        return Judgement.failed(expected=f"{measured['reference_structure']}", observed=measured["structure"])
    for leaf in measured["leaves"]:
        for fact in ("type", "shape", "dtype", "device"):
            if leaf[fact] != leaf[f"reference_{fact}"]:
                where = f"{OUTPUT}{leaf['path']}"
                return Judgement.failed(expected=f"{where} of {fact} {leaf[f'reference_{fact}']}", observed=str(leaf[fact]))
    return Judgement.passed(expected=expected, observed=f"{len(measured['leaves'])} values")


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: one entry for each sample. ``value`` returns the result of the step, a list of ``steps.samples.Done``."""
    entries: list[dict[str, Any]] = []
    count, has_elements = 0, False
    for done in value(OUTPUT):
        entry = {name: getattr(done, name) for name in ("index", "text", "refused", "no_gradients", "raised", "graphs")}
        entry.update(value=None, why_not="")
        if not done.refused and done.raised is None:
            if count > _MOST_VALUES:
                entry["why_not"] = f"the samples before have more than {_MOST_VALUES:,} values"
            else:
                entry.update(_compared(arguments, done, with_stand_ins=not has_elements))
                count += len(entry["value"]["leaves"]) if entry["value"] else 0
                has_elements = has_elements or (entry["value"] is not None and _has_elements(entry["value"]))
        entries.append(entry)
    return {"samples": entries}


def _compared(arguments: Mapping[str, Any], done: Any, *, with_stand_ins: bool) -> dict[str, Any]:
    """Return the facts of one sample as ``close`` measures them. The only place where a sample is compared."""
    from runner.vocabulary.expectations import close_measure  # only a worker imports it

    sides = {OUTPUT: done.compiled, EAGER: done.eager}
    try:
        measured: Any = close_measure.measure(arguments, sides.__getitem__)
        for leaf in measured["leaves"]:
            if leaf["path"].startswith("['gradients']"):  # torch.autograd.grad promises no layout
                leaf.pop("strides", None)
                leaf.pop("reference_strides", None)
    except Exception as error:  # comparing values of an operator may raise anything
        return {"why_not": f"{type(error).__name__}: {error}"[:500]}
    if not with_stand_ins:
        for leaf in measured["leaves"]:
            leaf.pop("stand_ins", None)
    return {"value": measured}
