"""The facts of a case, read from what its worker sent, and an expectation judged by those of a
step.
"""

import itertools
import os
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias, cast

from torch_conformance.model import codec
from torch_conformance.model.case import Case, Expected, Step
from torch_conformance.model.case_facts import Facts, Observation, StepWithCode
from torch_conformance.model.expectation import Reading, Verdict
from torch_conformance.model.values import values_of


class CarriedOut(NamedTuple):
    """A step that the worker carried out."""

    step: Step
    facts: StepWithCode


def carried_out(case: Case, steps: Sequence[StepWithCode]) -> Iterator[CarriedOut]:
    """Yield the steps that were carried out, each with its facts."""
    return map(CarriedOut, case.steps, steps)


def first_line(text: str) -> str:
    """Return the first line of a text, with white space folded, at most 500 characters."""
    return re.sub(r"\s+", " ", text.strip().split("\n")[0])[:500]


CALL = re.compile(r'  File "(?P<file>[^"\n]*)", line (?P<line>[0-9]+),? in (?P<function>.*)')
"""A frame of a traceback or a stack."""
_OWN = f"{os.path.dirname(os.path.dirname(os.path.abspath(__file__)))}{os.sep}"
_OF_TORCH = re.compile(r"(?:^|/)(?:torch|triton)/.*\.py(?:\Z|:)")
_BETWEEN = re.compile(r"/(?:contextlib|functools|threading)\.py\Z|<frozen runpy>\Z|<string>\Z")
"""Frames of the standard library between frames of torch, without information."""

_TORCH_FRAMES = 3
"""How many innermost frames of torch are shown; of the outermost ones, one is shown."""


def folded(text: str) -> str:
    """Return a traceback or a stack in which the frames of this program, and most frames of torch,
    are replaced by their count.
    """
    # a frame's lines with its file; every other line with an empty file name
    blocks: list[tuple[str, list[str]]] = []
    for line in text.split("\n"):
        if (call := CALL.fullmatch(line)) is not None:
            blocks.append((call["file"], [line]))
        elif blocks and blocks[-1][0] and line.startswith("    "):
            blocks[-1][1].append(line)
        else:
            blocks.append(("", [line]))
    is_inside, inside = False, []
    for file, _ in blocks:
        is_inside = bool(file) and (
            file.startswith(_OWN)
            or bool(_OF_TORCH.search(file))
            or (is_inside and bool(_BETWEEN.search(file)))
        )
        inside.append(is_inside)
    recent_first = "most recent call first" in text
    first, last = (_TORCH_FRAMES, 1) if recent_first else (1, _TORCH_FRAMES)
    shown: list[str] = []
    for is_inside, group in itertools.groupby(
        zip(inside, blocks, strict=True), key=lambda pair: pair[0]
    ):
        run = [block for _, block in group]
        of_torch = [
            index
            for index, (file, _) in enumerate(run)
            if _OF_TORCH.search(file) and not file.startswith(_OWN)
        ]
        kept = {*of_torch[:first], *of_torch[-last:]} if is_inside else {*range(len(run))}
        of = "torch and torch-conformance" if of_torch else "torch-conformance"
        for is_kept, part in itertools.groupby(range(len(run)), key=kept.__contains__):
            indices = list(part)
            if is_kept:
                shown += [line for index in indices for line in run[index][1]]
            else:
                shown.append(
                    f"  ... {len(indices)} frame{'' if len(indices) == 1 else 's'} of {of} ..."
                )
    return "\n".join(shown)


ReadCode: TypeAlias = Callable[[int, int, str], str]
"""(step, index, digest as the worker wrote it) to the text of a piece of generated code; raises
OSError where there is none.
"""


class NoObservation(ValueError):
    """A recorded observation is invalid."""


def observation_of(sent: object) -> Observation:
    """Return a worker's untrusted message; raise ``NoObservation`` where it is invalid."""
    from torch_conformance.machine.schemas import misfit  # reads the schemas

    if (problem := misfit(sent, "observation")) is None:
        assert isinstance(sent, dict), "the schema lets nothing else through"
        fields_of_facts = {name: sent[name] for name in _SENT if name in sent}
        try:
            return cast("Observation", codec.decode(Observation, fields_of_facts, "observation"))
        except ValueError as error:
            problem = str(error)
    raise NoObservation(f"the worker's observation makes no sense: {problem}")


_SENT = ("id", "digest", "steps", "error", "phases")
"""What of a worker's message the facts have."""


def read_facts(sent: object, code: ReadCode, **runner_facts: Any) -> Facts:
    """Return the facts of a worker's message, which is untrusted, with ``runner_facts``: the other
    fields of ``Facts``, which the runner observed itself.

    What ``code`` raises (``OSError``), and a message that is none, makes the facts ``nonsense``.
    """
    if sent is None:
        return Facts(is_answered=False, **runner_facts)
    try:
        observation = observation_of(sent)
    except NoObservation as error:
        return Facts(nonsense=str(error), **runner_facts)
    fields_of_facts = {**values_of(observation), **runner_facts}
    steps: list[StepWithCode] = []
    for index, step in enumerate(observation.steps):
        try:
            pieces = tuple(
                code(index, piece, "".join(step.code_digests[piece : piece + 1]))
                for piece in range(step.code_pieces)
            )
        except OSError as missing:
            pieces = ()
            why = f"the generated code cannot be judged: {missing}"
            fields_of_facts.setdefault("nonsense", why)
        steps.append(StepWithCode(**values_of(step), code=pieces))
    return Facts(**{**fields_of_facts, "steps": tuple(steps)})


ANOTHER_FORM = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError)
"""Exceptions while reading a measurement of an unexpected form."""


def judge_expectation(expected: Expected, facts: Reading) -> list[Verdict]:
    """Judge one expectation by what it reads, in which its own measurement is untrusted."""
    try:
        return list(expected.check.judge(facts))
    except ANOTHER_FORM as error:
        return [nonsense(error)]


def nonsense(error: Exception) -> Verdict:
    """Return the judgement of a measurement that cannot be read."""
    return Verdict.error("", f"the measurement makes no sense: {type(error).__name__}: {error}")
