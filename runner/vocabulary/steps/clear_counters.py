"""``clear_counters``: sets counters and metrics to zero, and clears spies."""

from dataclasses import dataclass
from typing import ClassVar

from runner.vocabulary.steps.base import StepKind
from runner.vocabulary.steps.session import Session


def run(session: Session, arguments: "ClearCounters") -> None:
    """Clear all three, or only counters, or only metrics."""
    if arguments.only is None:
        for spy in session.spies.values():
            spy.clear()
    if arguments.only in (None, "counters"):
        session.torch.clear_counters()
    if arguments.only in (None, "metrics"):
        session.torch.clear_metrics()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClearCounters(StepKind):
    """``clear_counters: {only: metrics}``."""

    kind: ClassVar[str] = "clear_counters"
    runs = staticmethod(run)
    only: str | None = None

    @property
    def clears_counters(self) -> bool:
        """Unless it clears only metrics."""
        return self.only != "metrics"
