"""Checks ``covers``, with the values of each case: entries for files of the committed list must name a test of the list."""

from collections.abc import Iterable, Iterator

from runner.core.case import Case
from runner.core.diagnostics import Diagnostic
from runner.language import upstream
from runner.language.read.document import Document


def covers_problems(document: Document, cases: Iterable[Case]) -> Iterator[Diagnostic]:
    """Yield, for each entry of a spec, the problem of the first case in which it names no upstream test or instance."""
    reported: set[int] = set()
    for case in cases:
        for index, entry in enumerate(case.covers):
            problem = None if index in reported else upstream.load().problem(entry, case.device)
            if problem is not None:
                reported.add(index)
                yield document.problem(("covers", index), *problem)
