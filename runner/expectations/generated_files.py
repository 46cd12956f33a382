"""``generated_files``: how many pieces of code a step generated or loaded from a cache."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from runner.conditions import Surroundings
from runner.expectations.base import Judgement, StepFacts
from runner.expectations.counts import check_count, judge_count
from runner.model import Json


@dataclass(frozen=True, slots=True, kw_only=True)
class GeneratedFiles:
    """``generated_files: 1``."""

    kind: ClassVar[str] = "generated_files"
    count: Any

    @classmethod
    def parse(cls, body: Any) -> "GeneratedFiles":
        """Read the count."""
        check_count(body)
        return cls(count=body)

    @property
    def names(self) -> tuple[str, ...]:
        """No named values."""
        return ()

    def measurement(self) -> Mapping[str, Json] | None:
        """Every step has its code."""
        return None

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the number of pieces."""
        return [judge_count(self.count, len(facts.code), here, leaf="", absent="")]
