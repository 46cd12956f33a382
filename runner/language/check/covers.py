"""What ``covers`` names: a test of the committed list where its file is one of the list's, with the values of a case put in."""

from collections.abc import Iterable, Iterator

from runner.core.diagnostics import Diagnostic
from runner.core.model import Case
from runner.language import upstream
from runner.language.read.document import Document


def covers_problems(document: Document, cases: Iterable[Case]) -> Iterator[Diagnostic]:
    """Return, for each entry of a spec, the first of its cases with which it names no upstream test or instance."""
    told: set[int] = set()
    for case in cases:
        for index, entry in enumerate(case.covers):
            problem = None if index in told else upstream.load().problem(entry, case.device)
            if problem is not None:
                told.add(index)
                yield document.problem(("covers", index), *problem)
