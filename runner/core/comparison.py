"""What two runs say of the same cases: how each case changed, and how the runs differ as a whole. Frozen values, without JSON of their own.

``run/comparison`` makes them of two journals; ``report/comparison`` prints them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from runner.core.header import RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult


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
    SAME = ("same", "no change")

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning


class Mark(Enum):
    """What is said of a case besides its change."""

    SLOWER = "slower"
    """It took longer than noise explains."""
    SPEC_CHANGED = "spec-changed"
    """It is not the same case in both runs: its spec or its expansion changed."""

    @property
    def word(self) -> str:
        """The mark as reports and ``--fail-on`` name it."""
        return self.value


FAIL_ON: tuple[str, ...] = (*(change.word for change in Change if change is not Change.SAME), *(mark.word for mark in Mark))
"""The words of ``--fail-on``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChange:
    """One case of two runs."""

    change: Change
    before: CaseResult | None
    """The result of the first run; None where it has none."""
    after: CaseResult | None
    marks: tuple[Mark, ...] = ()
    remarks: tuple[str, ...] = ()
    """What a person should know of the change, a line each."""

    @property
    def case_id(self) -> str:
        """The id in the second run; of a case that is gone, that in the first."""
        result = self.after or self.before
        assert result is not None, "a change is of a case of some run"
        return result.case_id

    @property
    def words(self) -> tuple[str, ...]:
        """The words of ``--fail-on`` that are true of the case."""
        return (*(() if self.change is Change.SAME else (self.change.word,)), *(mark.word for mark in self.marks))

    @property
    def is_listed(self) -> bool:
        """Whether reports list the case."""
        return bool(self.words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two runs."""

    name: str
    """As the command line names it."""
    header: RunHeader
    totals: Mapping[Outcome, int]
    """How many of the compared cases had each outcome."""
    interrupted: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Pace:
    """How long the cases took that passed in both runs, compared."""

    cases: int
    ratio: float
    """The median over these cases of the second time divided by the first; 1 where there are too few to tell."""
    is_slower: bool
    """Whether the second run as a whole was slower than noise explains."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs compared."""

    before: Side
    after: Side
    changes: tuple[CaseChange, ...]
    """Every case of either run, in the order of the second run; then those that are gone."""
    differences: tuple[str, ...]
    """How the machines, versions and options of the runs differ, a line each."""
    pace: Pace
    backends: tuple[tuple[str, str], ...] = ()
    """The pairs of ``--map-backend``; only cases of these are compared."""
    both: int = 0
    """How many cases have a result in both runs: executed, or checked for a target."""

    @property
    def listed(self) -> tuple[CaseChange, ...]:
        """The cases that reports list."""
        return tuple(change for change in self.changes if change.is_listed)

    @property
    def counts(self) -> dict[str, int]:
        """How many cases have each word, and how many none."""
        found = Counter(word for change in self.changes for word in change.words)
        same = sum(change.change is Change.SAME for change in self.changes)
        return {**{word: found[word] for word in FAIL_ON}, Change.SAME.word: same}

    def reached(self, words: Sequence[str]) -> dict[str, int]:
        """Return how many cases have each of these words, for those that some case has. A run that is slower as a whole is 1 more."""
        counts = self.counts
        slower = Mark.SLOWER.word
        found = {word: counts[word] + int(word == slower and self.pace.is_slower) for word in dict.fromkeys(words)}
        return {word: count for word, count in found.items() if count}


@dataclass(frozen=True, slots=True, kw_only=True)
class FilePair:
    """A recorded text of a case in both runs: generated code, or a captured graph."""

    name: str
    before: str | None
    """None where the run has none."""
    after: str | None
    is_same: bool
    """Whether the texts are equal but for addresses, paths and names of cached files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseTexts:
    """The recorded texts of a case in both runs."""

    case_id: str
    pairs: tuple[FilePair, ...] = ()
    missing: str = ""
    """Why texts could not be read; empty where all could."""

    @property
    def differing(self) -> tuple[FilePair, ...]:
        """The texts that are not equal."""
        return tuple(pair for pair in self.pairs if not pair.is_same)
