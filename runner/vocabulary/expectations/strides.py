"""``strides``: the strides of tensors in elements, or the memory format in which they are contiguous."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import OUTPUT, Judgement, Mutant, StepFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class Strides:
    """``strides: {output: [0, 1], contiguous: true}``."""

    kind: ClassVar[str] = "strides"
    mutations: ClassVar[tuple[str, ...]] = ("another stride", "another layout")
    of: str = OUTPUT
    output: int | list[int] | None = None
    equals: list[int] | None = None
    contiguous: bool | str | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "Strides":
        """Read the arguments."""
        return cls(**body)

    @property
    def names(self) -> tuple[str, ...]:
        """The name of the value."""
        return (self.of,)

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker sends the strides and formats of every tensor."""
        return {"of": self.of}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each selected tensor. The judgement shows the first that fails."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        if facts.measured is None:
            return [Judgement.error("nothing was measured", expected=f"strides of {self.of}")]
        tensors = facts.measured["tensors"]
        chosen = self._chosen(len(tensors))
        if not chosen or max(chosen) >= len(tensors):
            return [Judgement.error(f"{len(tensors)} tensors", expected=f"tensors {chosen or 'at all'} of {self.of}")]
        judgements = [self._judge(index, tensors[index]) for index in chosen]
        return [next((judgement for judgement in judgements if judgement.status.value != "held"), judgements[0])]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each selected tensor on its own, with other strides and formats."""
        tensors = facts.measured["tensors"]
        for index in self._chosen(len(tensors)):
            tensor = tensors[index]
            if self.equals is not None or self.contiguous is None:
                other = {**tensor, "strides": [stride + 1 for stride in tensor["strides"]] or [1]}
                yield Mutant(name="another stride", facts=_with(facts, index, other), where=f"{self.of}[{index}]")
            if self.contiguous is not None:
                lacks = [name for name in _FORMATS if name not in tensor["formats"]]
                yield Mutant(name="another layout", facts=_with(facts, index, {**tensor, "formats": lacks}), where=f"{self.of}[{index}]")

    def _chosen(self, count: int) -> list[int]:
        if self.output is None:
            return list(range(count))
        return [self.output] if isinstance(self.output, int) else list(self.output)

    def _judge(self, index: int, tensor: Mapping[str, Any]) -> Judgement:
        where = f"{self.of}[{index}]"
        observed = f"shape {tensor['shape']}, strides {tensor['strides']}"
        if self.equals is not None and tensor["strides"] != self.equals:
            return Judgement.failed(expected=f"{where} with strides {self.equals}", observed=observed)
        if self.contiguous is not None:
            format_ = self.contiguous if isinstance(self.contiguous, str) else "contiguous_format"
            required = self.contiguous is not False
            expected = f"{where} {'' if required else 'not '}contiguous as {format_}"
            return Judgement.of((format_ in tensor["formats"]) is required, expected=expected, observed=observed)
        return Judgement.passed(expected=f"{where} with strides {self.equals}", observed=observed)


_FORMATS = ("contiguous_format", "channels_last", "channels_last_3d")


def _with(facts: StepFacts, index: int, tensor: Mapping[str, Any]) -> StepFacts:
    tensors = facts.measured["tensors"]
    return facts.with_measured(tensors=[*tensors[:index], tensor, *tensors[index + 1 :]])


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: shape, strides and formats of every tensor of the value."""
    import torch
    from torch.utils import _pytree as pytree

    leaves = [leaf for leaf in pytree.tree_leaves(value(arguments["of"])) if isinstance(leaf, torch.Tensor)]
    return {"tensors": [{"shape": list(leaf.shape), "strides": list(leaf.stride()), "formats": _formats(leaf)} for leaf in leaves]}


def _formats(tensor: Any) -> list[str]:
    import torch

    by_rank = {4: "channels_last", 5: "channels_last_3d"}
    names = ["contiguous_format"] + ([by_rank[tensor.ndim]] if tensor.ndim in by_rank else [])
    return [name for name in names if tensor.is_contiguous(memory_format=getattr(torch, name))]
