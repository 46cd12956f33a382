"""``batch_invariant``: the answer for a part of the batch equals that part of the answer for the whole batch, bit for bit."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.again import Again, CannotRepeat, differing_bits, tensors_of, trouble
from runner.vocabulary.expectations.base import OUTPUT, BadExpectation, Judgement, Mutant, StepFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInvariant:
    """``batch_invariant: {dim: 0, inputs: [0], sizes: [1, 4]}``."""

    kind: ClassVar[str] = "batch_invariant"
    mutations: ClassVar[tuple[str, ...]] = ("other bits", "fewer parts")
    dim: int = 0
    inputs: tuple[int, ...] = (0,)
    sizes: tuple[int, ...] = (1,)
    when: Mapping[str, Any] | None = None

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

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge every part of the batch. The judgement shows the first difference."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
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


def repeat(arguments: Mapping[str, Any], again: Again) -> Json:
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
