"""What an expectation observed, and what it would have to say: counts and strides. Pure.

Numbers (``close``, ``equals``), exceptions, exits, texts and proofs have no entry in ``COUNTED``: they are never blessed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.case import Case, Expected
from runner.core.conditions import Surroundings, holds, is_conditional
from runner.core.expectation import Judgement, Status, StepFacts
from runner.judge.evidence import ANOTHER_FORM, CarriedOut, judge_expectation
from runner.judge.verdicts import facts_of, with_code
from runner.language.read.document import DataPath
from runner.vocabulary.expectations.base import BadExpectation, parse_count
from runner.vocabulary.expectations.values import Strides

COUNTED: Mapping[str, tuple[str, ...] | None] = {
    "counter": None,
    "metric": None,
    "kernels": None,
    "generated_files": (),
    "calls": ("count",),
    "graph_breaks": ("count",),
    "recompiles": ("count",),
}
"""Where the count of a kind stands below its body: below the leaf of its judgement for None."""

STRIDES = "strides"
FILECHECK = "filecheck"
KINDS = (*COUNTED, STRIDES, FILECHECK)
"""The kinds of expectations that can be blessed."""


@dataclass(frozen=True, slots=True, order=True)
class Leaf:
    """A leaf of an expectation, the same in all cases of a spec: the numbers of step and expectation, and its name."""

    step: int
    index: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A leaf in one case on one machine."""

    leaf: Leaf
    expected: Expected
    judgement: Judgement
    facts: StepFacts
    here: Surroundings


def observed(steps: Sequence[CarriedOut], here: Surroundings) -> Iterator[Observed]:
    """Yield what the expectations of carried-out steps observed, those of kinds that can be blessed."""
    for number, known in enumerate(steps):
        for index, expected in enumerate(known.step.expectations if known.step.runs(here) else ()):
            if expected.kind not in KINDS:
                continue
            try:
                facts = facts_of(index, known)
            except ANOTHER_FORM:
                continue
            known_here = with_code(expected, facts, here)
            if isinstance(known_here, Judgement):
                continue
            for judgement in judge_expectation(expected, facts, known_here):
                leaf = Leaf(number, index, judgement.leaf)
                yield Observed(leaf=leaf, expected=expected, judgement=judgement, facts=facts, here=known_here)


def body_path(kind: str, leaf: Leaf) -> DataPath | None:
    """Return where the value of a leaf stands below the body of its expectation; None where it cannot be changed."""
    if kind == STRIDES:
        return ("equals",)
    if kind not in COUNTED:
        return None
    below = COUNTED[kind]
    return (leaf.name,) if below is None else below


def value_at(body: object, path: DataPath) -> Any:
    """Return the value below a body; None where there is none."""
    for key in path:
        if not isinstance(body, Mapping) or key not in body:
            return None
        body = body[key]
    return body


def applies(case: Case, leaf: Leaf, here: Surroundings) -> Expected | None:
    """Return the expectation of a leaf where its conditions may hold for a case; None elsewhere."""
    if leaf.step >= len(case.steps) or leaf.index >= len(case.steps[leaf.step].expectations):
        return None
    expected = case.steps[leaf.step].expectations[leaf.index]
    when = expected.body.get("when") if isinstance(expected.body, Mapping) else None
    return expected if case.steps[leaf.step].runs(here) and holds(when if isinstance(when, Mapping) else None, here) else None


class NotBlessed(Exception):
    """Why a leaf cannot be blessed: in one case, or in all."""

    def __init__(self, why: str, case_id: str = "") -> None:
        super().__init__(why)
        self.case_id = case_id


def number_of(one: Observed) -> int:
    """Return the observed count; raise ``NotBlessed`` for anything else."""
    try:
        return int(one.judgement.observed)
    except ValueError as error:
        raise NotBlessed("what it observed is no whole number") from error


def counted(numbers: Sequence[int], old: object) -> Any:
    """Return the count to write for what one machine observed in all runs; raise ``NotBlessed`` where it would say less than before."""
    least, most = min(numbers), max(numbers)
    if least == 0 and not _allows_zero(old):
        raise NotBlessed("0 was observed: the claim would become that it never happens (change the claim by hand)")
    if least == most:
        return least
    if least == 0:
        raise NotBlessed(f"unstable: 0 to {most} in runs of one machine: the range would hold where nothing happens")
    return {"min": least, "max": most}


def _allows_zero(old: object) -> bool:
    try:
        return parse_count(old).holds(0)
    except (BadExpectation, TypeError, AttributeError):
        return False


def narrowed(old: object) -> bool:
    """Whether a count leaves several numbers open."""
    return isinstance(old, Mapping) and not is_conditional(old) and "value" not in old


def strides_of(one: Observed) -> list[int]:
    """Return the observed strides of the tensors that the expectation names; raise ``NotBlessed`` where they differ or none are claimed."""
    check = one.expected.check
    if not isinstance(check, Strides) or check.equals is None:
        raise NotBlessed("it claims a memory format, and no strides (change the claim by hand)")
    if check.contiguous is not None:
        raise NotBlessed("it claims strides and a memory format (write two expectations)")
    try:
        tensors = one.facts.measured["tensors"]
        chosen = range(len(tensors)) if check.output is None else [check.output] if isinstance(check.output, int) else check.output
        found = {tuple(int(stride) for stride in tensors[index]["strides"]) for index in chosen}
    except ANOTHER_FORM as error:
        raise NotBlessed("the recorded strides make no sense") from error
    if len(found) != 1:
        raise NotBlessed("its tensors have different strides (name one: output: 0)")
    if len(strides := list(found.pop())) > 64 or any(stride < 0 for stride in strides):
        raise NotBlessed("the recorded strides make no sense")
    return strides


def is_failed(one: Observed) -> bool:
    """Whether it speaks against the case."""
    return one.judgement.status in (Status.FAILED, Status.ERROR)
