"""``verify --recompute``: what eager computes of some cases that the reader draws, made again by
the reader's torch on the CPU, from the same inputs.

The worker makes the inputs from the seed of the case, calls eager and the float64 reference, and
sends their numbers at the places that the archive names (``at`` in ``close``). Nothing is compiled.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, ClassVar

from torch_conformance.language.load import Suite
from torch_conformance.machine.installed_torch import installed_torch, no_torch_reason
from torch_conformance.model.case import Case, Step
from torch_conformance.model.devices import CPU, kind_of
from torch_conformance.model.diagnostics import UsageError
from torch_conformance.model.escaping import one_line
from torch_conformance.model.protocol import Json, decode
from torch_conformance.model.results import CaseResult
from torch_conformance.model.values import frozen, values_of
from torch_conformance.optional.options import ExecutionOptions
from torch_conformance.record.case_files import digest
from torch_conformance.run.auditing import recorded_steps, run_cases
from torch_conformance.tools.attest.against import Deviation, grouped
from torch_conformance.vocabulary.expectations.close import Close, is_eager
from torch_conformance.vocabulary.steps.samples import EachSample

_ON_DEVICE = "its random numbers may be drawn on the device, which draws other numbers than a CPU"
_NO_NUMBER = "it compares no number with eager"

_MADE_THERE = re.compile(r"'on_device'|'call'")
_DRAWS = re.compile(r"\bdevice=|rand|dropout|normal_|uniform_|bernoulli", re.IGNORECASE)
"""What may draw random numbers on the device of a case, in its inputs and in its Python; all other
inputs are drawn on the CPU, and copied.
"""

_LONGEST = 200

_TF32 = 2.0**-8
"""Of the greatest number: the error of a device whose products round their operands to ten bits."""


@frozen
class Recomputation:
    """What was made again."""

    seed: int
    """Of the draw."""
    torch: str
    cases: tuple[str, ...] = ()
    numbers: int = 0
    """How many of their numbers were compared."""
    differ: tuple[Deviation, ...] = ()
    left: Mapping[str, str] = field(default_factory=dict)
    """Why other cases could not be made again, by id."""

    def lines(self) -> Iterator[str]:
        """Yield what a person reads."""
        yield f"computed again by torch {self.torch} on this CPU (--seed {self.seed}):"
        yield from grouped("cannot be", self.left)
        yield from (f"  differs: {difference}" for difference in self.differ)
        yield (
            f"  {self.numbers} numbers of eager and float64 in {len(self.cases)} cases: "
            f"{self.numbers - len(self.differ)} agree"
        )


@frozen
class _At(Close):
    """A comparison with eager that also asks for numbers at some places."""

    kind: ClassVar[str] = Close.kind
    at: Mapping[str, Any] = field(default_factory=dict)

    def measurement(self) -> Mapping[str, Json]:
        return {**(Close.measurement(self) or {}), "at": dict(self.at)}


def recomputed(
    suite: Suite,
    cases: Mapping[str, Case],
    results: Sequence[CaseResult],
    place: Path,
    *,
    count: int,
    seed: int,
) -> Recomputation:
    """Draw ``count`` of the results, whose files lie in the folder ``place``, and compare; raise
    ``UsageError`` without torch.
    """
    if (torch := installed_torch()) is None:
        raise UsageError(f"--recompute: {no_torch_reason()}")
    recorded, skipped = dict[str, list[_Number]](), dict[str, str]()
    for result in results:
        case = cases[result.case_id]
        recorded[case.id] = list(_numbers(case, place, result))
        if not recorded[case.id] or _is_drawn_on_device(case):
            skipped[case.id] = _ON_DEVICE if recorded.pop(case.id) else _NO_NUMBER
    drawn = sorted(recorded, key=lambda name: digest(f"{seed} {name}".encode()))[:count]
    rerun = [_as_run(cases[name], recorded[name]) for name in drawn]
    computed, differ, numbers = list[str](), list[Deviation](), 0
    with TemporaryDirectory(prefix="torch-conformance-recompute-") as folder:
        results_here, _ = run_cases(rerun, suite, ExecutionOptions(), Path(folder), label="again")
        for case, result in results_here:
            mine = {number.key: number for number in _numbers(case, Path(folder), result)}
            if not mine:
                skipped[case.id] = one_line(
                    f"{result.outcome.label} here: {result.reason}", _LONGEST
                )
                continue
            computed.append(case.id)
            for theirs in recorded[case.id]:
                compared = list(_compared(case.id, theirs, mine.get(theirs.key)))
                numbers += len(compared)
                differ += filter(None, compared)
    return Recomputation(
        seed=seed,
        torch=torch.version,
        cases=tuple(computed),
        numbers=numbers,
        differ=tuple(differ),
        left=skipped,
    )


@frozen
class _Number:
    """A value that was compared with eager, and what its leaf says of one element."""

    step: int
    check: int
    """The number of the comparison in its step."""
    sample: str
    leaf: Mapping[str, Any]

    @property
    def key(self) -> tuple[object, ...]:
        return self.step, self.check, self.sample, self.leaf["path"]

    @property
    def worst(self) -> tuple[list[int], Any, Any] | None:
        """The place of the worst element, eager's number, and that of float64; None for a number
        that was not recorded.
        """
        calibrated = self.leaf.get("calibrated", {})
        if worst := calibrated.get("worst"):
            is_eager = "no_float64" in calibrated or calibrated.get("unexplained")
            right = None if is_eager else worst["reference_value"]
            return worst["index"], worst["eager_value"], right
        eager = self.leaf.get("worst_reference")
        return (self.leaf["worst_index"], eager, None) if isinstance(eager, int | float) else None


def _numbers(case: Case, run: Path, result: CaseResult) -> Iterator[_Number]:
    """Yield what was compared with eager in a recorded case; ``run`` is the folder of its run."""
    steps = recorded_steps(case, result, run)
    for number, (step, observed) in enumerate(steps):
        for check, index in enumerate(_compares(step)):
            measured: Any = decode(observed.measurements.get(str(index)))
            whole = [{"index": "", "value": measured}]
            for sample in (measured or {}).get("samples", whole):
                for leaf in (sample["value"] or {}).get("leaves", ()):
                    recorded = _Number(
                        step=number, check=check, sample=str(sample["index"]), leaf=leaf
                    )
                    if leaf.get("numel") and recorded.worst:
                        yield recorded


def _compares(step: Step) -> list[int]:
    """Return the indices of the expectations of a step that compare numbers with eager."""
    return [
        index
        for index, expected in enumerate(step.expectations)
        if isinstance(check := _close_of(expected.check), Close) and is_eager(check.to)
    ]


def _close_of(check: object) -> object:
    return check.check if isinstance(check, EachSample) else check


def _is_drawn_on_device(case: Case) -> bool:
    if kind_of(case.device) == CPU:
        return False
    has_samples = any(
        isinstance(expected.check, EachSample)
        for step in case.steps
        for expected in step.expectations
    )
    body, arguments = case.body, [step.arguments for step in case.steps]
    data = f"{body.inputs}{body.let}{arguments}"
    code = f"{body.functions}{[block.text for block in body.blocks]}"
    return has_samples or bool(_MADE_THERE.search(data) or _DRAWS.search(code))


def _as_run(case: Case, recorded: Sequence[_Number]) -> Case:
    """Return a case on the CPU, of which nothing is compiled, and whose comparisons with eager ask
    for the recorded places.
    """

    def asking(check: object, number: int, place: int) -> EachSample | _At:
        at = dict[str, Any]()
        for entry in recorded:
            if (entry.step, entry.check) == (number, place) and entry.worst:
                of_sample = at.setdefault(entry.sample, {}) if entry.sample else at
                of_sample[entry.leaf["path"]] = entry.worst[0]
        close = _close_of(check)
        asks = _At(**values_of(close, Close), at=at)
        return replace(check, check=asks) if isinstance(check, EachSample) else asks

    def changed(number: int, step: Step) -> Step:
        expectations = [
            replace(expected, check=asking(expected.check, number, place))
            for place, expected in enumerate(step.expectations[index] for index in _compares(step))
        ]
        expectations += [
            expected for expected in step.expectations if expected.check.expects_exception
        ]
        return replace(step, expectations=tuple(expectations))

    settings = replace(case.body.settings, compile={"disable": True}, config={})
    return replace(
        case,
        backend=CPU,
        device=CPU,
        module="",
        requires=(),
        control=None,
        body=replace(case.body, settings=settings, spies={}, handlers={}),
        steps=tuple(changed(number, step) for number, step in enumerate(case.steps)),
    )


def _compared(case_id: str, theirs: _Number, mine: _Number | None) -> Iterator[Deviation | None]:
    """Yield for each number that both sides have how it differs, or None."""
    where = f"the result{theirs.leaf['path']}"
    forms = [
        f"{number.leaf['reference_dtype']}{number.leaf['reference_shape']}"
        if number
        else "no tensor"
        for number in (theirs, mine)
    ]
    if mine is None or forms[0] != forms[1]:
        yield Deviation(case_id, theirs.step + 1, f"eager's form of {where}", *forms)
        return
    place, eager, right = theirs.worst or ([], None, None)
    if not (at := mine.leaf.get("at")):
        yield Deviation(case_id, theirs.step + 1, f"an element {place} of {where}", "one", "none")
        return
    leaf, calibrated = mine.leaf, mine.leaf.get("calibrated", {})
    tolerance = at.get("bound", leaf["rtol"] * abs(at["eager"]) + leaf["atol"])
    if theirs.leaf["reference_device"] != CPU and leaf["reference_dtype"] in (
        "float32",
        "complex64",
    ):
        tolerance = max(tolerance, _TF32 * calibrated.get("most", abs(at["eager"])))
    pairs = {"eager's number": (eager, at["eager"])}
    if right is not None and "reference" in at and not calibrated.get("unexplained"):
        pairs["the float64 reference"] = right, at["reference"]
    for source, (there, here) in pairs.items():
        is_same = (
            there == here or (there != there and here != here) or abs(there - here) <= tolerance
        )
        text = f"{source} at {place} of {where}"
        yield (
            None if is_same else Deviation(case_id, theirs.step + 1, text, repr(there), repr(here))
        )
