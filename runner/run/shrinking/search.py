"""The search for the smallest document with a failure: delta debugging over the edits of each pass. Deterministic, and without torch."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from runner.plan.case_document import Document, text_of
from runner.run.shrinking.edits import PASSES, Edit, Pass, applied

Attempt = Callable[[Document], bool]
"""Whether a document fails as the first one did."""


class OutOfBudget(Exception):
    """No further attempt may be made; the text says why."""


@dataclass(slots=True)
class Search:
    """A search. ``best`` is the smallest document so far, whenever the search ends; ``ended`` says why it ended early."""

    best: Document
    attempt: Attempt
    taken: Callable[[str], None] = lambda words: None
    """Hears of each edit that was kept."""
    ended: str = ""
    _known: set[str] = field(default_factory=set)

    def run(self, passes: Sequence[Pass] = PASSES) -> Document:
        """Repeat the passes until none changes the document, or an attempt ends the search."""
        try:
            before = None
            while before != text_of(self.best):
                before = text_of(self.best)
                for one in passes:
                    self._reduce(one)
        except OutOfBudget as error:
            self.ended = str(error)
        except KeyboardInterrupt:
            self.ended = "interrupted"
        return self.best

    def _reduce(self, one: Pass) -> None:
        """Try all edits of a pass at once, then halves, down to single ones. Edits that were kept change what is proposed."""
        size = len(one.propose(self.best)) if one.together else 1
        while size >= 1:
            at = 0
            while at < len(edits := one.propose(self.best)):
                if not self._takes(edits[at : at + size]):
                    at += size
                elif not one.together:
                    at = 0  # alternatives: another list, of which the first ones are the smallest
            size //= 2

    def _takes(self, edits: Sequence[Edit]) -> bool:
        candidate = applied(self.best, edits)
        text = text_of(candidate)
        if text in self._known or candidate == self.best:
            return False
        self._known.add(text)
        if not self.attempt(candidate):
            return False
        self.best = candidate
        self.taken("; ".join(edit.words for edit in edits[:3]) + (f"; and {len(edits) - 3} more" if len(edits) > 3 else ""))
        return True
