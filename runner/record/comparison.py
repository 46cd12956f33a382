"""What two runs say of the same cases: ``run/compared_runs`` makes it of two journals, ``report/comparison_report`` prints it."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

from runner.model.header import RunHeader
from runner.model.outcomes import Outcome
from runner.model.results import CaseResult


class Change(Enum):
    """What became of a case between two runs. The order is that of every report: what needs attention first."""

    BROKEN = ("broken", "executed in both runs, and only the second fails")
    NEW_FAILURE = ("new-failure", "fails in the second run, and the first has no result of it")
    GONE = ("gone", "in the first run alone")
    NO_LONGER_EXECUTED = ("no-longer-executed", "executed or checked in the first run, and not in the second")
    WAIVED = ("waived", "fails in the second run as a waiver says, and no waiver excused it in the first")
    CHANGED = ("changed", "neither better nor worse, but with another failure, reason, outcome or level of evidence")
    STILL_FAILING = ("still-failing", "fails in both runs in the same way")
    FIXED = ("fixed", "fails in the first run, and passes in the second")
    NEW = ("new", "in the second run alone, and does not fail")
    NOW_EXECUTED = ("now-executed", "not executed in the first run, and does not fail in the second")
    SAME = ("same", "no change of the outcome")

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning


SPEC_CHANGED = "spec-changed"
"""The word of a case whose spec or expansion differs between the two runs. It stands beside a change."""

FAIL_ON: tuple[str, ...] = (*(change.word for change in Change if change is not Change.SAME), SPEC_CHANGED)
"""The words of ``--fail-on``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChange:
    """One case of two runs."""

    change: Change
    before: CaseResult | None
    """The result of the first run; None where it has none."""
    after: CaseResult | None
    spec_changed: bool = False
    remarks: tuple[str, ...] = ()
    """What a person should know of the change, a line each."""
    code: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What differs in generated code and captured graphs: the lines of a unified diff, by the name of the text."""

    @property
    def case_id(self) -> str:
        """The id of the case."""
        result = self.after or self.before
        assert result is not None, "a change is of a case of some run"
        return result.case_id

    @property
    def words(self) -> tuple[str, ...]:
        """The words of ``--fail-on`` that are true of the case; reports list the cases that have one."""
        return (*([] if self.change is Change.SAME else [self.change.word]), *([SPEC_CHANGED] if self.spec_changed else []))

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The outcomes of both runs; once where they are the same."""
        sides = [result.outcome.label if result is not None else "absent" for result in (self.before, self.after)]
        return tuple(dict.fromkeys(sides))


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs."""

    name: str
    """As the command line names it."""
    header: RunHeader
    results: tuple[CaseResult, ...]
    interrupted: bool = False
    folder: Path | None = None
    """None where there is the journal alone: then no generated code is compared."""

    @property
    def totals(self) -> Mapping[Outcome, int]:
        """How many cases had each outcome."""
        return Counter(result.outcome for result in self.results)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs compared."""

    before: Side
    after: Side
    changes: tuple[CaseChange, ...]
    """Every case of either run, in the order of the second run; then those that are gone."""
    differences: tuple[str, ...]
    """How the machines, versions and options of the runs differ, a line each."""
    both: int = 0
    """How many cases have a result in both runs: executed, or checked for a target."""

    @property
    def counts(self) -> dict[str, int]:
        """How many cases have each word, and how many none."""
        counts = Counter(word for change in self.changes for word in change.words)
        same = sum(change.change is Change.SAME for change in self.changes)
        return {**{word: counts[word] for word in FAIL_ON}, Change.SAME.word: same}

    def listed(self, change: Change) -> list[CaseChange]:
        """Return the cases of a change that reports list."""
        return [case for case in self.changes if case.change is change and case.words]

    def reached(self, words: Sequence[str]) -> dict[str, int]:
        """Return how many cases have each of these words, for those that some case has."""
        return {word: count for word, count in self.counts.items() if count and word in words}
