"""``verify --against``: an archive compared with somebody else's run of the same profile,
requirement by requirement.

The reader's run decides what must agree: what its machine chose by time may differ on another one.
Numbers of errors are judged on each side, and not compared.
"""

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torch_conformance.model.case_facts import StepFacts
from torch_conformance.model.codec import encode
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.escaping import one_line
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.record.comparison import machine_differences
from torch_conformance.record.journal import NamedRun
from torch_conformance.run.compared_runs import Change, change_of, differing, recorded_of


@dataclass(frozen=True, slots=True)
class Deviation:
    """Something that the archive and the reader observed otherwise."""

    case: str
    step: int
    """From 1; 0 for the case as a whole."""
    what: str
    archive: str
    reader: str

    def __str__(self) -> str:
        """Return it on one line."""
        where = f"{self.case}, step {self.step}" if self.step else self.case
        return f"{where}: {self.what}: {self.archive} in the archive, {self.reader} here"


@frozen
class Agreement:
    """What became of the required cases in both runs."""

    run: str
    """The id of the reader's run."""
    machines: tuple[str, ...]
    """How the machines differ."""
    required: int
    agree: int
    """How many were executed in both, and in the same way."""
    differ: tuple[Deviation, ...]
    lacking: Mapping[str, str]
    """Which side did not execute a case, by id."""
    not_compared: Mapping[str, str]
    """Why code, kernels and counters need not agree, by id."""

    def lines(self) -> Iterator[str]:
        """Yield what a person reads."""
        yield f"compared with the run {self.run}:"
        yield from (f"  {difference}" for difference in self.machines)
        yield from grouped("code, kernels and counters not compared", self.not_compared)
        yield from grouped("not executed", self.lacking)
        yield from (f"  differs: {differing}" for differing in self.differ)
        less = (
            f", {count} of them in their outcome only" if (count := len(self.not_compared)) else ""
        )
        yield f"  {self.agree} of {self.required} required cases agree{less}"


def grouped(title: str, reasons: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each reason, with the first cases that have it."""
    for why in dict.fromkeys(reasons.values()):
        ids = [case_id for case_id, reason in reasons.items() if reason == why]
        more = f" and {len(ids) - _NAMED} more" if len(ids) > _NAMED else ""
        yield f"  {title} ({len(ids)}), {why}: {', '.join(ids[:_NAMED])}{more}"


_NAMED = 5
"""How many cases of one reason are printed."""

_OF_BUILD = "torch triton cuda hip arch sms cpu vec_isa".split()
"""The facts of a machine that generated code, and the counters of its compilation, depend on."""

_COMPARED = "counters metrics entered graphs executed executed_others runtime_calls code_graphs"
"""What is the same in each run of a case by one torch for one kind of machine."""

_THREADS = re.compile(r"num_threads\(\d+\)")


_SHOWN = 120
"""How many characters of an observation are kept."""


def agreement(archive: NamedRun, other: NamedRun, required: Collection[str]) -> Agreement:
    """Compare the required cases of two runs; raise ``UsageError`` where they are not of one
    profile, or are one run.
    """
    first, second = archive.run.header, other.run.header
    if first.run_id == second.run_id:
        raise UsageError(f"--against {other.name}: this is the run of the archive itself")
    profiles = (
        ", ".join(f"{one.name} {one.version} ({one.digest[:12]})" for one in header.profile)
        for header in (first, second)
    )
    for what, theirs, ours in (
        ("profile", *profiles),
        ("version of this program", first.version, second.version),
    ):
        if theirs != ours:
            raise UsageError(
                f"--against {other.name}: its {what} is {ours}, and that of the archive {theirs}"
            )
    sides = [{str(one.case_id): one for one in side.run.results} for side in (archive, other)]
    agree, differ = 0, list[Deviation]()
    lacking, not_compared = dict[str, str](), dict[str, str]()
    for case_id in required:
        then, now = (side.get(case_id) for side in sides)
        there, here = (one is not None and one.is_executed for one in (then, now))
        if then is None or now is None or not (there and here):
            lacking[case_id] = "in your run" if there else "in the archive" if here else "in both"
            continue
        differences = list[Deviation]()
        if change_of(then, now) not in (Change.SAME, Change.STILL_FAILING):
            outcomes = (f"{one.outcome.label} {one.reason}".strip() for one in (then, now))
            differences = [_deviation(case_id, 0, "outcome", *outcomes)]
        else:
            (old_texts, old), (texts, steps) = recorded_of(archive, then), recorded_of(other, now)
            machines = then.node or first.environment, now.node or second.environment
            if why := _why_not(machines, (old_texts, texts), steps):
                not_compared[case_id] = why
            else:
                differences = [
                    *_of_texts(case_id, old_texts, texts),
                    *_of_steps(case_id, old, steps),
                ]
        differ += differences
        agree += not differences
    return Agreement(
        run=second.run_id,
        machines=tuple(
            difference.between("in the archive", "here")
            for difference in machine_differences(first.environment, second.environment)
        ),
        required=len(required),
        agree=agree,
        differ=tuple(differ),
        lacking=lacking,
        not_compared=not_compared,
    )


def _why_not(
    machines: Sequence[Mapping[str, str]],
    texts: Sequence[Mapping[str, str]],
    steps: Sequence[StepFacts],
) -> str:
    """Return why two runs of a case may have other code; empty where they may not."""
    then, now = ({name: facts.get(name, "none") for name in _OF_BUILD} for facts in machines)
    other = [
        f"{name} {then[name]} and {now[name]}" for name in _OF_BUILD if then[name] != now[name]
    ]
    if other:
        return f"other code is right for {', '.join(other)}"
    if any(step.choices or any(one.how == "timed" for one in step.tunings.found) for step in steps):
        return "kernels are chosen by their time"
    threads = [set(_THREADS.findall("".join(side.values()))) for side in texts]
    return "" if threads[0] == threads[1] else "the code is for other numbers of threads"


def _of_texts(case_id: str, old: Mapping[str, str], new: Mapping[str, str]) -> Iterator[Deviation]:
    for name, diff in differing(old, new):
        lines = (
            next((line[1:].strip() for line in diff[2:] if line[0] == sign), "nothing")
            for sign in "-+"
        )
        number = re.search(r"[0-9]+", name.partition(" of step ")[2] or name)
        yield _deviation(case_id, int(number[0]) + 1 if number else 0, name, *lines)


def _of_steps(
    case_id: str, old: Sequence[StepFacts], new: Sequence[StepFacts]
) -> Iterator[Deviation]:
    if len(old) != len(new):
        yield _deviation(case_id, 0, "steps carried out", str(len(old)), str(len(new)))
    for number, pair in enumerate(zip(old, new, strict=False), start=1):
        then, now = (dict(_observed(step)) for step in pair)
        for fact in sorted(then.keys() | now.keys()):
            if then.get(fact) != now.get(fact):
                yield _deviation(
                    case_id, number, fact, *(side.get(fact, "none") for side in (then, now))
                )


def _observed(step: StepFacts) -> Iterator[tuple[str, str]]:
    """Yield the name and the text of each fact of a step that is the same in each run."""
    for name in _COMPARED.split():
        yield from _named(name, encode(getattr(step, name)))
    for index, measured in step.measurements.items():
        if isinstance(measured, dict) and "launched" in measured:
            yield from _named(f"calls of kernels, expectation {index}", measured["launched"])
            yield f"kernels, expectation {index}", str(measured.get("names"))


def _named(name: str, value: Json) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for key, part in value.items():
            yield from _named(f"{name}.{key}", part)
    else:
        yield name, str(value)


def _deviation(case_id: str, step: int, fact: str, archive: str, reader: str) -> Deviation:
    texts = (one_line(text, _SHOWN) for text in (archive, reader))
    return Deviation(case_id, step, fact, *texts)
