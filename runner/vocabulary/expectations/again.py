"""``deterministic``, ``batch_invariant``, ``poisoned``, ``candidates``: they call the compiled function again after the last step."""

import contextlib
import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Protocol

from runner.core.conditions import Surroundings
from runner.core.expectation import Judgement, Mutant, StepFacts
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import EAGER, OUTPUT, BadExpectation, Conditional
from runner.vocabulary.expectations.close import Close


class CannotRepeat(Exception):
    """The call of the step cannot be repeated so: the expectation is an ERROR."""


@dataclass
class Poison:
    """What was allocated while fresh memory was poisoned."""

    allocations: int = 0
    bytes: int = 0


class Again(Protocol):
    """The call of a step, in the worker. Values are ``Any``: this module does not import torch."""

    result: Any
    """A copy of the step's result."""

    @property
    def reference(self) -> Any:
        """A copy of eager's result; raises ``CannotRepeat`` where the step has none."""
        ...

    def arguments(self) -> list[Any]:
        """Return fresh copies of the arguments of the step's call."""
        ...

    def run(self, arguments: list[Any] | None = None) -> Any:
        """Call the compiled function again; return its result, or its gradients after a backward step."""
        ...

    def close(self, arguments: Mapping[str, Any], result: Any) -> Json:
        """Return the facts of ``close`` for a result and eager's, with a float64 reference where ``arguments`` need one; no stand-ins.

        Raises ``CannotRepeat`` where the step has no eager result.
        """
        ...

    def poisoned(self) -> AbstractContextManager[Poison]:
        """Return a context in which memory that generated code allocates is filled with bytes 255: NaN for every float."""
        ...

    def with_candidate(self, number: int) -> AbstractContextManager[list[list[str]]]:
        """Return a context in which ``run`` compiles anew, and each autotuning may choose only the candidate of this number.

        The context has the names of the candidates of each autotuning, the chosen one first; it is complete after ``run``.
        """
        ...


Repeat = Callable[[Mapping[str, Any], Again], Json]
"""Makes the additional calls and returns the facts."""


def differing_bits(value: Any, expected: Any) -> list[dict[str, Any]]:
    """Return a fact for each leaf of ``value`` whose bits differ from those of ``expected``. NaN equals NaN.

    Raise ``CannotRepeat`` for values that cannot be compared: that is no error of the additional call.
    """
    from torch.utils import _pytree as pytree

    leaves, structure = pytree.tree_flatten_with_path(value)
    others, other_structure = pytree.tree_flatten_with_path(expected)
    if structure != other_structure:
        return [{"path": "", "why": f"the structure {str(structure)[:300]} instead of {str(other_structure)[:300]}"}]
    pairs = ((pytree.keystr(path), leaf, other) for (path, leaf), (_, other) in zip(leaves, others, strict=True))
    with comparing():
        return [{"path": path, "why": why} for path, leaf, other in pairs if (why := _difference(leaf, other))]


@contextlib.contextmanager
def comparing() -> Iterator[None]:
    """Convert an exception to ``CannotRepeat``: it comes from a comparison, not from the additional call."""
    try:
        yield
    except CannotRepeat:
        raise
    except Exception as error:  # comparing values of a spec may raise anything
        raise CannotRepeat(f"the results cannot be compared: {type(error).__name__}: {error}") from error


def _difference(leaf: Any, other: Any) -> str:
    import torch

    from runner.vocabulary.expectations import values

    why = values.leaf_difference(leaf, other)
    if not why or not isinstance(leaf, torch.Tensor) or not isinstance(other, torch.Tensor) or leaf.shape != other.shape:
        return why
    if not leaf.numel() or leaf.dtype != other.dtype:
        return why
    wide = torch.complex128 if leaf.is_complex() else torch.float64
    one, two = leaf.detach().to(wide).reshape(-1), other.detach().to(wide).to(leaf.device).reshape(-1)
    distance = (one - two).abs()
    distance[distance.isnan() & ~(one.isnan() & two.isnan())] = torch.inf
    place = int(distance.nan_to_num(0.0, posinf=torch.inf).argmax())
    index = [int(part) for part in torch.unravel_index(torch.tensor(place), leaf.shape)]
    return f"{why}; at {index}: {one[place].item()!r} instead of {two[place].item()!r}"


def tensors_of(value: Any) -> int:
    """Return the number of tensors in a value."""
    import torch
    from torch.utils import _pytree as pytree

    return sum(isinstance(leaf, torch.Tensor) for leaf in pytree.tree_leaves(value))


def trouble(facts: StepFacts, expected: str) -> Judgement | None:
    """Return the judgement of facts that say nothing about the claim; None where the additional calls were made."""
    measured = facts.measured
    if "why_not" in measured:
        return Judgement.error(str(measured["why_not"]), expected=expected)
    if "raised" in measured:
        return Judgement.failed(expected=expected, observed=f"an additional call raised {measured['raised']}")
    if not measured.get("done"):
        return Judgement.error("the case ended before the additional calls", expected=expected)
    if not measured["tensors"]:
        return Judgement.error("nothing to compare: the result holds no tensor", expected=expected)
    if measured["eager_calls"]:
        observed = f"{measured['eager_calls']} of the additional calls ran no compiled graph, as the step's own call did"
        return Judgement.error(observed, expected=expected)
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deterministic(Conditional):
    """``deterministic: {runs: 5}``."""

    kind: ClassVar[str] = "deterministic"
    mutations: ClassVar[tuple[str, ...]] = ("other bits", "fewer runs")
    runs: int = 3

    @classmethod
    def parse(cls, body: Any) -> "Deterministic":
        """Read the arguments."""
        return cls(**body)

    @property
    def names(self) -> tuple[str, ...]:
        """The step's result."""
        return (OUTPUT,)

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker calls the function this often."""
        return {"runs": self.runs}

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge every run. The judgement shows the first difference."""
        expected = f"the same bits in {self.runs} more runs"
        if (problem := trouble(facts, expected)) is not None:
            return [problem]
        runs = facts.measured["runs"]
        for number, differences in enumerate(runs, 1):
            if differences:
                one = differences[0]
                return [Judgement.failed(expected=expected, observed=f"run {number}: {OUTPUT}{one['path']}: {one['why']}")]
        if len(runs) != self.runs:
            return [Judgement.error(f"{len(runs)} runs were made", expected=expected)]
        return [Judgement.passed(expected=expected, observed=f"{facts.measured['tensors']} tensors with the same bits in {len(runs)} runs")]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """A difference in the last run, and a run that is missing."""
        runs = facts.measured["runs"]
        changed = [*runs[:-1], [{"path": "", "why": "1 of 1 elements"}]]
        yield Mutant(name="other bits", facts=facts.with_measured(runs=changed))
        yield Mutant(name="fewer runs", facts=facts.with_measured(runs=runs[:-1]))


def repeat_deterministic(arguments: Mapping[str, Any], again: Again) -> Json:
    """Call the function again, from the same state, and compare each result with the step's result."""
    runs = [differing_bits(again.run(), again.result) for _ in range(arguments["runs"])]
    return {"runs": runs, "tensors": tensors_of(again.result)}


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInvariant(Conditional):
    """``batch_invariant: {dim: 0, inputs: [0], sizes: [1, 4]}``."""

    kind: ClassVar[str] = "batch_invariant"
    mutations: ClassVar[tuple[str, ...]] = ("other bits", "fewer parts")
    dim: int = 0
    inputs: tuple[int, ...] = (0,)
    sizes: tuple[int, ...] = (1,)

    @classmethod
    def parse(cls, body: Any) -> "BatchInvariant":
        """Read the arguments; raise ``BadExpectation`` for a list with an entry twice."""
        for word in ("inputs", "sizes"):
            given = body.get(word, [])
            if isinstance(given, list) and len(set(map(str, given))) != len(given):
                raise BadExpectation(f"{word} has an entry twice", "write each number once", path=(word,))
        lists = {word: tuple(body[word]) for word in ("inputs", "sizes") if word in body}
        return cls(**{**body, **lists})

    @property
    def names(self) -> tuple[str, ...]:
        """The step's result."""
        return (OUTPUT,)

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker calls the function with the first and the last elements of the batch."""
        return {"dim": self.dim, "inputs": list(self.inputs), "sizes": list(self.sizes)}

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge every part of the batch. The judgement shows the first difference."""
        sizes = ", ".join(map(str, self.sizes))
        expected = f"the same bits for parts of the batch (dim {self.dim}, sizes {sizes})"
        if (problem := trouble(facts, expected)) is not None:
            return [problem]
        parts = facts.measured["parts"]
        for part in parts:
            for one in part["differences"]:
                where = f"elements {part['start']} to {part['start'] + part['size'] - 1} of {facts.measured['batch']}"
                return [Judgement.failed(expected=expected, observed=f"{where}: {OUTPUT}{one['path']}: {one['why']}")]
        if [part["size"] for part in parts] != [size for size in self.sizes for _ in range(2)]:
            return [Judgement.error(f"{len(parts)} parts of the batch were tried", expected=expected)]
        return [
            Judgement.passed(expected=expected, observed=f"the same bits for {len(parts)} parts of a batch of {facts.measured['batch']}")
        ]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """A difference in the last part, and a part that is missing."""
        parts = facts.measured["parts"]
        changed = [*parts[:-1], {**parts[-1], "differences": [{"path": "", "why": "1 of 1 elements"}]}]
        yield Mutant(name="other bits", facts=facts.with_measured(parts=changed))
        yield Mutant(name="fewer parts", facts=facts.with_measured(parts=parts[:-1]))


def repeat_batch_invariant(arguments: Mapping[str, Any], again: Again) -> Json:
    """Call the function with the first and with the last elements of the batch, for each size."""
    dim, inputs = arguments["dim"], arguments["inputs"]
    batch = _batch(again.arguments(), inputs, dim)
    parts = []
    for size in arguments["sizes"]:
        if not 0 < size < batch:
            raise CannotRepeat(f"size {size} is no part of the batch of {batch}")
        for start in (0, batch - size):
            given = [_part(one, dim, start, size) if number in inputs else one for number, one in enumerate(again.arguments())]
            expected = _result_part(again.result, dim, start, size, batch)
            parts.append({"start": start, "size": size, "differences": differing_bits(again.run(given), expected)})
    return {"batch": batch, "parts": parts, "tensors": tensors_of(again.result)}


def _batch(arguments: list[Any], inputs: list[int], dim: int) -> int:
    """Return the size of the batch; raise ``CannotRepeat`` where the named inputs are not tensors with one batch size."""
    import torch

    if max(inputs) >= len(arguments):
        raise CannotRepeat(f"inputs names argument {max(inputs)}, and the call has {len(arguments)}")
    sizes = set()
    for number in inputs:
        one = arguments[number]
        if not isinstance(one, torch.Tensor) or one.ndim <= dim:
            raise CannotRepeat(f"argument {number} is no tensor with a dimension {dim}")
        sizes.add(int(one.shape[dim]))
    if len(sizes) != 1:
        raise CannotRepeat(f"the inputs have different sizes in dimension {dim}: {sorted(sizes)}")
    return sizes.pop()


def _part(tensor: Any, dim: int, start: int, size: int) -> Any:
    """Return a part of a tensor in memory of its own, as a caller with a smaller batch has it."""
    return tensor.detach().narrow(dim, start, size).clone().requires_grad_(tensor.requires_grad)


def _result_part(result: Any, dim: int, start: int, size: int, batch: int) -> Any:
    import torch
    from torch.utils import _pytree as pytree

    def part(leaf: Any) -> Any:
        if leaf.ndim <= dim or leaf.shape[dim] != batch:
            raise CannotRepeat(f"the result has a tensor of shape {list(leaf.shape)}: its dimension {dim} is not the batch of {batch}")
        return leaf.detach().narrow(dim, start, size)

    return pytree.tree_map_only(torch.Tensor, part, result)


@dataclass(frozen=True, slots=True, kw_only=True)
class Poisoned(Conditional):
    """``poisoned: true``, or ``poisoned: {when: {...}}``."""

    kind: ClassVar[str] = "poisoned"
    mutations: ClassVar[tuple[str, ...]] = ("other bits", "no memory was poisoned")

    @classmethod
    def parse(cls, body: Any) -> "Poisoned":
        """Read the condition; raise ``BadExpectation`` for false."""
        if body is False:
            raise BadExpectation("poisoned is false", "leave it out: only poisoned: true claims something")
        return cls(when=body.get("when") if isinstance(body, Mapping) else None)

    @property
    def names(self) -> tuple[str, ...]:
        """The step's result."""
        return (OUTPUT,)

    def measurement(self) -> Mapping[str, Json] | None:
        """No arguments."""
        return {}

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the result with poisoned memory. Without poisoned memory nothing is claimed."""
        expected = "the same bits where fresh memory holds NaN"
        if (problem := trouble(facts, expected)) is not None:
            return [problem]
        for one in facts.measured["differences"]:
            return [Judgement.failed(expected=expected, observed=f"{OUTPUT}{one['path']}: {one['why']}")]
        count = facts.measured["allocations"]
        if not count:
            return [Judgement.error("the generated code allocated no memory that could be poisoned", expected=expected)]
        return [
            Judgement.passed(expected=expected, observed=f"the same bits; {count} allocations of {facts.measured['bytes']} bytes poisoned")
        ]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """A difference; no allocation."""
        differences = [{"path": "", "why": "1 of 1 elements"}]
        yield Mutant(name="other bits", facts=facts.with_measured(differences=differences))
        yield Mutant(name="no memory was poisoned", facts=facts.with_measured(allocations=0))


def repeat_poisoned(arguments: Mapping[str, Any], again: Again) -> Json:
    """Call the function again while fresh memory is poisoned."""
    with again.poisoned() as poison:
        result = again.run()
    differences = differing_bits(result, again.result)
    facts: dict[str, Json] = {"allocations": poison.allocations, "bytes": poison.bytes}
    return {**facts, "differences": differences, "tensors": tensors_of(again.result)}


_SHOWN = 5
"""The maximum number of candidates that a verdict names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates(Conditional):
    """``candidates: {at_most: 4, min: 2, atol: 1e-2, rtol: 1e-2}``."""

    kind: ClassVar[str] = "candidates"
    mutations: ClassVar[tuple[str, ...]] = ("another answer", "no candidate ran")
    at_most: int = 16
    min: int = 2
    atol: float | None = None
    rtol: float | None = None

    @classmethod
    def parse(cls, body: Any) -> "Candidates":
        """Read the arguments; raise ``BadExpectation`` for tolerances that ``close`` rejects, and for a minimum above the maximum."""
        found = cls(**body)
        Close.parse({word: body[word] for word in ("atol", "rtol") if word in body})
        if found.min > found.at_most:
            raise BadExpectation(f"min is {found.min}, and at most {found.at_most} are tried", "raise at_most", path=("min",))
        return found

    @property
    def names(self) -> tuple[str, ...]:
        """The step's result and its reference."""
        return (OUTPUT, EAGER)

    @property
    def _close(self) -> Close:
        return Close(atol=self.atol, rtol=self.rtol)

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker compiles the function for each candidate, and measures as ``close`` does."""
        return {"at_most": self.at_most, "close": self._close.measurement()}

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the answer of each candidate by the rule of ``close``. The judgement shows the first that fails."""
        expected = f"each candidate of autotuning close to {EAGER}"
        if (problem := trouble(facts, expected)) is not None:
            return [problem]
        tried = facts.measured["tried"]
        ran = [one for one in tried if "raised" not in one]
        for one in ran:
            (judgement,) = self._close.judge(replace(facts, measured=one["measured"]), here)
            if judgement.status.value != "held":
                observed = f"candidate {_name(one)}: {judgement.observed}"
                return [dataclasses.replace(judgement, expected=f"{expected}: {judgement.expected}", observed=observed)]
        observed = _summary(facts.measured["seen"], tried, self.at_most)
        if len(ran) < self.min:
            return [Judgement.failed(expected=f"at least {self.min} candidates that run", observed=observed)]
        return [Judgement.passed(expected=expected, observed=observed)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """A wrong answer of the last candidate; candidates that could not run."""
        tried = facts.measured["tried"]
        last = max(number for number, one in enumerate(tried) if "raised" not in one)
        wrong = {**tried[last], "measured": _wrong(tried[last]["measured"])}
        yield Mutant(name="another answer", facts=facts.with_measured(tried=[*tried[:last], wrong, *tried[last + 1 :]]))
        yield Mutant(name="no candidate ran", facts=facts.with_measured(tried=[{**one, "raised": "an exception"} for one in tried]))


def _wrong(measured: Mapping[str, Any]) -> Mapping[str, Any]:
    return {**measured, "structure": f"{measured['structure']} of another answer"}


def _name(one: Mapping[str, Any]) -> str:
    return " and ".join(one["chosen"]) or "(none)"


def _summary(seen: int, tried: list[Any], at_most: int) -> str:
    """Describe how many candidates there were, which were tried, and which could not run."""
    if not seen:
        return "autotuning had no candidates"
    ran = [_name(one) for one in tried if "raised" not in one]
    failed = [f"{_name(one)} ({one['raised']})" for one in tried if "raised" in one]
    bound = f", at most {at_most} are tried" if seen > len(tried) else ""
    text = f"{len(ran)} of {seen} candidates ran{bound}: {_shown(ran)}"
    return f"{text}; {len(failed)} could not run: {_shown(failed)}" if failed else text


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more if names else "none"


def repeat_candidates(arguments: Mapping[str, Any], again: Again) -> Json:
    """Compile and call the function once for each candidate, and compare the result with eager's."""
    tried = [_tried(arguments, again, 0)]
    seen = tried[0].pop("seen")
    if not seen:
        return {"seen": 0, "tried": [], "tensors": tensors_of(again.result)}
    for number in _spread(seen, arguments["at_most"])[1:]:
        one = _tried(arguments, again, number)
        one.pop("seen")
        tried.append(one)
    return {"seen": seen, "tried": tried, "tensors": tensors_of(again.result)}


def _spread(count: int, most: int) -> list[int]:
    """Return at most ``most`` numbers below ``count``, evenly spread, the first and the last among them."""
    if count <= most:
        return list(range(count))
    return sorted({math.floor(index * (count - 1) / max(most - 1, 1)) for index in range(most)})


def _tried(arguments: Mapping[str, Any], again: Again, number: int) -> dict[str, Any]:
    result, raised = None, ""
    with again.with_candidate(number) as sites:
        try:
            result = again.run()
        except Exception as error:  # torch may raise anything while it compiles a candidate, and autotuning drops the candidate then
            raised = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:200]
    found: dict[str, Any] = {"number": number, "chosen": [names[0] for names in sites], "seen": max(map(len, sites), default=0)}
    if raised:
        return {**found, "raised": raised}
    if not sites:
        return found
    with comparing():
        return {**found, "measured": again.close(arguments["close"], result)}
