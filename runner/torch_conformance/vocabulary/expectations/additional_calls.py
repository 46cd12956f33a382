"""``deterministic``, ``batch_invariant``, ``poisoned``, ``peak_memory``, ``candidates``: they call
the compiled function again after the last step.
"""

import contextlib
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from torch_conformance.model.expectation import About, Mutant, Reading, Status, Verdict
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.close import TOLERANCES, Close
from torch_conformance.vocabulary.expectations.comparing import structure
from torch_conformance.vocabulary.expectations.expectation_base import (
    EAGER,
    OUTPUT,
    BadExpectation,
    Conditional,
)
from torch_conformance.vocabulary.expectations.values import leaf_difference
from torch_conformance.vocabulary.forms import TEMPLATE, Form, Number, common, some_of, whole
from torch_conformance.vocabulary.worker_session import Again, Facts, NewFacts
from torch_conformance.vocabulary.worker_torch import Tensor, pytree, torch


class CannotRepeat(Exception):
    """The call of the step cannot be repeated so: the expectation is an ERROR."""


@dataclass
class Poison:
    """What was allocated while fresh memory was poisoned."""

    allocations: int = 0
    bytes: int = 0


@contextlib.contextmanager
def comparing() -> Iterator[None]:
    """Convert an exception to ``CannotRepeat``: it comes from a comparison, not from the additional
    call.
    """
    try:
        yield
    except CannotRepeat:
        raise
    except Exception as error:  # comparing values of a spec may raise anything
        raise CannotRepeat(
            f"the results cannot be compared: {type(error).__name__}: {error}"
        ) from error


def differing_bits(value: object, expected: object) -> list[NewFacts]:
    """Return a fact for each leaf of ``value`` whose bits differ from those of ``expected``.

    NaN equals NaN.

    Raise ``CannotRepeat`` for values that cannot be compared: that is no error of the additional
    call.
    """
    leaves, form = pytree.tree_flatten_with_path(value)
    others, other_form = pytree.tree_flatten_with_path(expected)
    if form != other_form:
        return [
            {"path": "", "why": f"{structure(form)[:300]} instead of {structure(other_form)[:300]}"}
        ]
    differences = []
    with comparing():
        for (path, leaf), (_, other) in zip(leaves, others, strict=True):
            if why := leaf_difference(leaf, other):
                differences.append({"path": pytree.keystr(path), "why": why})
    return differences


def _failed(expected: str, difference: Facts, call: str = "") -> Verdict:
    """Return the judgement of the first difference of an additional call."""
    observed = f"{call}{OUTPUT}{difference['path']}: {difference['why']}"
    return Verdict.failed(expected, observed)


def tensors_of(value: object) -> int:
    """Return the number of tensors in a value."""
    return sum(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


class Repeated(Conditional):
    """What is expected of more calls of the step's function."""

    calls_again = True
    remark: ClassVar[str] = (
        "The additional calls run after the last step of the case: counters, spies and caches "
        "of the steps do not see them. They begin from"
        " the arguments, parameters, buffers and random generators of the step's own call. "
        "The step is a call, or a backward of the last"
        " call, whose gradients are then compared."
    )
    """What the description of each kind ends with."""

    @property
    def names(self) -> tuple[str, ...]:
        """The step's result."""
        return (OUTPUT,)

    words: ClassVar[str]
    """What is expected, a format of the expectation."""

    @property
    def expected(self) -> str:
        """What is expected, in words."""
        return self.words.format(self)

    def judged(self, facts: Reading) -> list[Verdict]:
        """Judge the calls, where they were made and say something of the claim."""
        measured, expected = facts.measured, self.expected
        if "why_not" in measured:
            return [Verdict.error(expected, str(measured["why_not"]))]
        if "raised" in measured:
            return [Verdict.failed(expected, f"an additional call raised {measured['raised']}")]
        if not measured.get("done"):
            return [Verdict.error(expected, "the case ended before the additional calls")]
        if not measured["tensors"]:
            return [Verdict.error(expected, "nothing to compare: the result holds no tensor")]
        if measured["eager_calls"]:
            observed = (
                f"{measured['eager_calls']} of the additional calls ran no compiled graph, as the "
                "step's own call did"
            )
            return [Verdict.error(expected, observed)]
        return [self.judged_calls(facts)]

    def judged_calls(self, facts: Reading) -> Verdict:
        """Judge what the calls gave. A judgement shows the first difference."""
        raise NotImplementedError


_ANOTHER_ANSWER: list[Json] = [{"path": "", "why": "1 of 1 elements"}]


def repeat_deterministic(arguments: Facts, again: Again) -> Json:
    """Call the function again, from the same state, and compare each result with the step's
    result.
    """
    runs = [differing_bits(again.run(), again.result) for _ in range(arguments["runs"])]
    return {"runs": runs, "tensors": tensors_of(again.result)}


@frozen
class Deterministic(Repeated):
    """More calls of the compiled function on the same inputs give the same bits as the step's
    result (NaN equals NaN).

    ``deterministic: {runs: 5}``
    """

    measure = staticmethod(repeat_deterministic)
    words = "the same bits in {0.runs} more runs"
    about = About.ANYTHING
    runs: Annotated[int, whole(1, 1000)] = 3
    """How often it is called again; 3 when absent. For example ``5``."""

    def measurement(self) -> Facts:
        """The worker calls the function this often."""
        return {"runs": self.runs}

    def judged_calls(self, facts: Reading) -> Verdict:
        """Judge every run."""
        runs = facts.measured["runs"]
        for number, differences in enumerate(runs, 1):
            for first in differences:
                return _failed(self.expected, first, f"run {number}: ")
        if len(runs) != self.runs:
            return Verdict.error(self.expected, f"{len(runs)} runs were made")
        observed = f"{facts.measured['tensors']} tensors with the same bits in {len(runs)} runs"
        return Verdict.passed(self.expected, observed)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """A difference in the last run, and a run that is missing."""
        runs = facts.measured["runs"]
        yield Mutant("other bits", facts.with_measured(runs=[*runs[:-1], _ANOTHER_ANSWER]))
        yield Mutant("fewer runs", facts.with_measured(runs=runs[:-1]))


_UNITS = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}

_BYTES = Form(
    {
        "title": "size of memory",
        "type": ["integer", "string"],
        "minimum": 0,
        "pattern": rf"^[0-9]+(\.[0-9]+)? ?({'|'.join(_UNITS)})$|{TEMPLATE['pattern']}",
    }
)


def _bytes(size: int | str) -> int:
    if isinstance(size, int):
        return size
    unit = size.lstrip("0123456789. ")
    return int(float(size.removesuffix(unit)) * _UNITS[unit])


def repeat_peak_memory(arguments: Facts, again: Again) -> Json:
    """Measure the memory of one more call of the compiled function, and of eager."""
    return {"compiled": again.peak_memory(), "eager": again.peak_memory(eager=True), "tensors": 1}


@frozen
class PeakMemory(Repeated):
    """The most memory that a call of the compiled function holds at one time, beyond what is
    allocated before it: work space and results, without the arguments and without what a compile
    takes.

    On the CPU the allocations of torch's allocator are counted, as its profiler records them for
    the calling thread; on a GPU its own statistics of the peak. Buffers on the stack of generated
    code, memory of libraries and of CUDA graphs are not in it. A bound up to eager's memory
    is accepted whatever is observed; a greater one must exclude twice what is observed, else it is
    an ERROR.

    ``peak_memory: {max: 64 MiB}``
    ``peak_memory: {of_eager: 0.8}``
    """

    about = About.ANYTHING
    form = some_of("max", "of_eager")
    measure = staticmethod(repeat_peak_memory)
    max: Annotated[int | str, _BYTES] | None = None
    """The most, in bytes or with a unit: B, KiB, MiB, GiB. For example ``64 MiB``."""
    of_eager: Annotated[float, common("number"), Form({"exclusiveMinimum": 0})] | None = None
    """The most, as a multiple of what the same call takes in eager mode. For example ``0.8``."""

    @property
    def expected(self) -> str:
        """The bounds, in words."""
        bounds = [
            *([] if self.max is None else [f"{self.max} bytes".replace("B bytes", "B")]),
            *([] if self.of_eager is None else [f"{self.of_eager:g} times eager's"]),
        ]
        return f"peak memory of a call: at most {' and '.join(bounds)}"

    def _bound(self, eager: int) -> int:
        bounds = [] if self.max is None else [_bytes(self.max)]
        return min([*bounds, *([] if self.of_eager is None else [int(self.of_eager * eager)])])

    def judged_calls(self, facts: Reading) -> Verdict:
        """Judge the memory of the compiled call."""
        compiled, eager = facts.measured["compiled"], facts.measured["eager"]
        if self.of_eager is not None and not eager:
            return Verdict.error(self.expected, "eager allocates nothing: write max")
        observed = f"{compiled:,} bytes; eager {eager:,} bytes"
        return Verdict.of(compiled <= self._bound(eager), self.expected, observed)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """More memory than eager, where the bound excludes that; else far more than observed."""
        compiled, eager = facts.measured["compiled"], facts.measured["eager"]
        name, size = "more than eager has", eager + 1
        if self._bound(eager) > eager:
            name, size = "twice the memory", 2 * compiled + 9
        yield Mutant(name, facts.with_measured(compiled=size))


def repeat_batch_invariant(arguments: Facts, again: Again) -> Json:
    """Call the function with the first and with the last elements of the batch, for each size.

    Raise ``CannotRepeat`` where the named inputs are not tensors with one batch size, and where the
    result has no such dimension.
    """
    dim, inputs = arguments["dim"], arguments["inputs"]
    called = again.arguments()
    if max(inputs) >= len(called):
        raise CannotRepeat(f"inputs names argument {max(inputs)}, and the call has {len(called)}")
    for number in inputs:
        if not isinstance(called[number], torch.Tensor) or called[number].ndim <= dim:
            raise CannotRepeat(f"argument {number} is not a tensor with a dimension {dim}")
    lengths = {int(called[number].shape[dim]) for number in inputs}
    if len(lengths) != 1:
        raise CannotRepeat(f"the inputs have different sizes in dimension {dim}: {sorted(lengths)}")
    (batch,) = lengths
    parts = []
    for size in arguments["sizes"]:
        if not 0 < size < batch:
            raise CannotRepeat(f"size {size} is not smaller than the batch of {batch}")
        for start in (0, batch - size):
            called = again.arguments()
            for number in inputs:
                # in memory of their own, as a caller with a smaller batch has them
                whole = called[number]
                called[number] = (
                    whole.detach()
                    .narrow(dim, start, size)
                    .clone()
                    .requires_grad_(whole.requires_grad)
                )

            def part(leaf: Tensor, start: int = start, size: int = size) -> Tensor:
                if leaf.ndim <= dim or leaf.shape[dim] != batch:
                    shape = list(leaf.shape)
                    raise CannotRepeat(
                        f"the result has a tensor of shape {shape}: its dimension {dim} is "
                        f"not the batch of {batch}"
                    )
                return leaf.detach().narrow(dim, start, size)

            expected = pytree.tree_map_only(torch.Tensor, part, again.result)
            parts.append(
                {
                    "start": start,
                    "size": size,
                    "differences": differing_bits(again.run(called), expected),
                }
            )
    return {"batch": batch, "parts": parts, "tensors": tensors_of(again.result)}


_NUMBERS = Form({"type": "array", "minItems": 1, "uniqueItems": True})


@frozen
class BatchInvariant(Repeated):
    """The result for a part of the batch equals that part of the step's result, bit for bit.

    The compiled function is called with the first and with the last elements of the batch, for each
    size, in memory of their own. This is a call with other sizes: the function is compiled again,
    unless it was compiled for dynamic sizes; so the claim is that no kernel's order of summation
    depends on the size of the batch.

    ``batch_invariant: {dim: 0}``
    ``batch_invariant: {inputs: [0, 1, 2], sizes: [1, 4]}``
    """

    about = About.ANYTHING
    measure = staticmethod(repeat_batch_invariant)
    words = "the same bits for parts of the batch (dim {0.dim}, sizes {0.sizes})"
    dim: Annotated[int, whole(0, 63)] = 0
    """The dimension of the batch, in the inputs and in every tensor of the result; 0 when absent.

    For example ``0``.
    """
    inputs: Annotated[tuple[int, ...], _NUMBERS, Form({"items": whole(0, 1000)})] = (0,)
    """The positions of the arguments that have the batch; [0] when absent.

    The others are passed whole. For example ``[0, 1, 2]``.
    """
    sizes: Annotated[tuple[int, ...], _NUMBERS, Form({"items": whole(1)})] = (1,)
    """The sizes of the parts; [1] when absent. For example ``[1, 4]``."""

    @classmethod
    def read(cls, body: Json) -> "BatchInvariant":
        """Read the arguments; raise ``BadExpectation`` for a list with an entry twice."""
        for word in ("inputs", "sizes"):
            entries = body.get(word, [])
            if isinstance(entries, list) and len(set(map(str, entries))) != len(entries):
                raise BadExpectation(f"{word} has an entry twice", "write each number once", word)
        lists = {word: tuple(body[word]) for word in ("inputs", "sizes") if word in body}
        return cls(**{**body, **lists})

    def measurement(self) -> Facts:
        """The worker calls the function with the first and the last elements of the batch."""
        return {"dim": self.dim, "inputs": list(self.inputs), "sizes": list(self.sizes)}

    def judged_calls(self, facts: Reading) -> Verdict:
        """Judge every part of the batch."""
        parts, batch = facts.measured["parts"], facts.measured["batch"]
        for part in parts:
            for first in part["differences"]:
                where = f"elements {part['start']} to {part['start'] + part['size'] - 1} of {batch}"
                return _failed(self.expected, first, f"{where}: ")
        if [part["size"] for part in parts] != [size for size in self.sizes for _ in range(2)]:
            return Verdict.error(self.expected, f"{len(parts)} parts of the batch were tried")
        return Verdict.passed(
            self.expected, f"the same bits for {len(parts)} parts of a batch of {batch}"
        )

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """A difference in the last part, and a part that is missing."""
        parts = facts.measured["parts"]
        yield Mutant(
            "other bits",
            facts.with_measured(parts=[*parts[:-1], {**parts[-1], "differences": _ANOTHER_ANSWER}]),
        )
        yield Mutant("fewer parts", facts.with_measured(parts=parts[:-1]))


def repeat_poisoned(arguments: Facts, again: Again) -> Json:
    """Call the function again while fresh memory is poisoned."""
    with again.poisoned() as poison:
        result = again.run()
    facts: NewFacts = {"allocations": poison.allocations, "bytes": poison.bytes}
    return {
        **facts,
        "differences": differing_bits(result, again.result),
        "tensors": tensors_of(again.result),
    }


@frozen
class Poisoned(Repeated):
    """The result has the same bits when each buffer that the generated code allocates is filled
    with bytes 255 first: NaN for every float.

    A kernel that leaves an element unwritten, or reads one before it is written, then shows. Memory
    that operators of ATen allocate themselves is not reached, nor that of cpp_wrapper; a case in
    which nothing could be poisoned is an ERROR.

    ``poisoned: true``
    ``poisoned: {when: {device: cpu}}``
    """

    form = Form({"type": ["boolean", "object"]})
    measure = staticmethod(repeat_poisoned)
    words = "the same bits where fresh memory holds NaN"

    @classmethod
    def read(cls, body: Json) -> "Poisoned":
        """Read the condition; raise ``BadExpectation`` for false."""
        if body is False:
            raise BadExpectation(
                "poisoned is false", "leave it out: only poisoned: true claims something"
            )
        return cls(when=body.get("when") if isinstance(body, Mapping) else None)

    def judged_calls(self, facts: Reading) -> Verdict:
        """Judge the result with poisoned memory. Without poisoned memory nothing is claimed."""
        for first in facts.measured["differences"]:
            return _failed(self.expected, first)
        count = facts.measured["allocations"]
        if not count:
            return Verdict.error(
                self.expected, "the generated code allocated no memory that could be poisoned"
            )
        observed = f"the same bits; {count} allocations of {facts.measured['bytes']} bytes poisoned"
        return Verdict.passed(self.expected, observed)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """A difference; no allocation."""
        yield Mutant("other bits", facts.with_measured(differences=_ANOTHER_ANSWER))
        yield Mutant("no memory was poisoned", facts.with_measured(allocations=0))


def repeat_candidates(arguments: Facts, again: Again) -> Json:
    """Compile and call the function once for each candidate, and compare the result with
    eager's.
    """
    tried: list[NewFacts] = []
    numbers, seen = [0], 0
    while len(tried) < len(numbers):
        number, result, raised = numbers[len(tried)], None, ""
        with again.with_candidate(number) as sites:
            try:
                result = again.run()
            except Exception as error:
                # torch may raise anything while it compiles a candidate, and autotuning drops the
                # candidate then
                raised = (
                    f"{type(error).__name__}: "
                    f"{str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]
                )
        if not tried:
            seen = max(map(len, sites), default=0)
            if not seen:
                break
            numbers = spread(seen, arguments["at_most"])
        candidate: NewFacts = {"number": number, "chosen": [names[0] for names in sites]}
        if raised:
            candidate["raised"] = raised
        elif sites:
            with comparing():
                candidate["measured"] = again.close(arguments["close"], result)
        tried.append(candidate)
    return {"seen": seen, "tried": tried, "tensors": tensors_of(again.result)}


@frozen
class Candidates(Repeated):
    """Each candidate of autotuning computes what eager computes, also one that loses.

    It does by eager's own error against a float64 reference, as close does, or within atol and
    rtol. The function is compiled and called once for each candidate, with caches off; every
    autotuning of the function may then choose only this one. A candidate that cannot be compiled is
    named and not judged, because autotuning drops it.

    ``candidates: {at_most: 4}``
    ``candidates: {at_most: 4, atol: 0.01, rtol: 0.01}``
    """

    form = TOLERANCES
    measure = staticmethod(repeat_candidates)
    words = "each candidate of autotuning close to eager"
    at_most: Annotated[int, whole(1, 1000)] = 16
    """How many candidates are tried; 16 when absent. Of more, as many are tried, evenly spread,
    with the first and the last; the verdict says so. For example ``4``."""
    min: Annotated[int, whole(1, 1000)] = 2
    """How many candidates must run; 2 when absent. For example ``2``."""
    atol: Number | None = None
    """Absolute tolerance. Stated together with rtol."""
    rtol: Number | None = None
    """Relative tolerance. Stated together with atol."""

    @classmethod
    def read(cls, body: Json) -> "Candidates":
        """Read the arguments; raise ``BadExpectation`` for tolerances that ``close`` rejects, and
        for a minimum above the maximum.
        """
        candidates = cls(**body)
        Close.parse({word: body[word] for word in ("atol", "rtol") if word in body})
        if candidates.min > candidates.at_most:
            raise BadExpectation(
                f"min is {candidates.min}, and at most {candidates.at_most} are tried",
                "raise at_most",
                "min",
            )
        return candidates

    @property
    def names(self) -> tuple[str, ...]:
        """The step's result and its reference."""
        return (OUTPUT, EAGER)

    @property
    def _close(self) -> Close:
        return Close(atol=self.atol, rtol=self.rtol)

    def measurement(self) -> Facts:
        """The worker compiles the function for each candidate, and measures as ``close`` does."""
        return {"at_most": self.at_most, "close": self._close.measurement()}

    def judged_calls(self, facts: Reading) -> Verdict:
        """Judge the answer of each candidate by the rule of ``close``, then how many there were,
        and how many could not run.
        """
        tried, seen = facts.measured["tried"], facts.measured["seen"]
        ran = [candidate for candidate in tried if "raised" not in candidate]
        for candidate in ran:
            (judgement,) = self._close.judge(replace(facts, measured=candidate["measured"]))
            if judgement.status is not Status.HELD:
                expected = f"{self.expected}: {judgement.expected}"
                return replace(
                    judgement,
                    expected=expected,
                    observed=f"candidate {_name(candidate)}: {judgement.observed}",
                )
        failed = [
            f"{_name(candidate)} ({candidate['raised']})"
            for candidate in tried
            if "raised" in candidate
        ]
        bound = f", at most {self.at_most} are tried" if seen > len(tried) else ""
        observed = (
            f"{len(ran)} of {seen} candidates ran{bound}: {_shown([*map(_name, ran)])}"
            if seen
            else "autotuning had no candidates"
        )
        if seen and failed:
            observed += f"; {len(failed)} could not run: {_shown(failed)}"
        if len(ran) < self.min:
            return Verdict.failed(f"at least {self.min} candidates that run", observed)
        return Verdict.passed(self.expected, observed)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """A wrong answer of the last candidate; candidates that could not run."""
        tried = facts.measured["tried"]
        last = max(number for number, candidate in enumerate(tried) if "raised" not in candidate)
        measured = tried[last]["measured"]
        wrong = {
            **tried[last],
            "measured": {**measured, "structure": f"{measured['structure']} of another answer"},
        }
        yield Mutant(
            "another answer", facts.with_measured(tried=[*tried[:last], wrong, *tried[last + 1 :]])
        )
        raised = [{**candidate, "raised": "an exception"} for candidate in tried]
        yield Mutant("no candidate ran", facts.with_measured(tried=raised))


_SHOWN = 5
"""The maximum number of candidates that a verdict names."""


def _name(candidate: Facts) -> str:
    return " and ".join(candidate["chosen"]) or "(none)"


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none"


def spread(count: int, most: int) -> list[int]:
    """Return at most ``most`` numbers below ``count``, evenly spread, the first and the last among
    them.
    """
    if count <= most:
        return list(range(count))
    return sorted({math.floor(index * (count - 1) / max(most - 1, 1)) for index in range(most)})
