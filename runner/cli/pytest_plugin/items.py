"""Specs and cases as nodes of pytest: what is collected, and how the outcome of a case becomes one of a test."""

import shlex
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Protocol, Self

import pytest
from _pytest._code.code import ReprEntryNative, ReprExceptionInfo, ReprFileLocation, ReprTraceback

from runner.cli.pytest_plugin.library import Library, name_of
from runner.cli.pytest_plugin.session_run import SessionRun
from runner.core.case import Case
from runner.core.options import RunOptions
from runner.core.outcomes import JUnitTag, Outcome
from runner.core.results import CaseResult
from runner.language.read.files import SpecPath
from runner.report import one_line, plain, verdict_text

if TYPE_CHECKING:
    from _pytest._code.code import TracebackStyle


class NotPassedError(Exception):
    """A case did not pass. Carries what a report shows."""

    def __init__(self, result: CaseResult, text: str) -> None:
        super().__init__(text)
        self.result = result
        self.text = text


class CaseSource(Protocol):
    """The session of the plugin, as its nodes use it."""

    options: RunOptions
    library: Library
    run: SessionRun

    def result_of(self, item: "CaseItem") -> CaseResult:
        """Return the result of a case, once the run has it."""
        ...


class SpecCollector(pytest.File):
    """A spec file: its cases are the items."""

    spec: SpecPath
    conformance: CaseSource

    @classmethod
    def of(cls, parent: pytest.Collector, *, spec: SpecPath, session: CaseSource) -> Self:
        """Return the collector of a spec file."""
        made: Self = cls.from_parent(parent, path=spec.path)
        made.spec, made.conformance = spec, session
        return made

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the cases; an invalid spec is an error of collection with every position."""
        cases = self.conformance.library.cases(self.spec)
        if problems := self.conformance.library.problems(self.spec):
            raise self.CollectError("\n".join(map(str, problems)))
        for case in cases:
            yield CaseItem.of(self, case)


class CaseItem(pytest.Item):
    """A case."""

    case_id: str
    line: int
    conformance: CaseSource
    result: CaseResult | None

    @classmethod
    def of(cls, parent: SpecCollector, case: Case) -> Self:
        """Return the item of a case."""
        name = name_of(case)
        # pytest reads an id that it has stored as name and parameters; one made of parent and name has the brackets in the name
        made: Self = cls.from_parent(parent, name=name, nodeid=f"{parent.nodeid}::{name}")
        made.case_id, made.line, made.conformance, made.result = case.id, case.position.line, parent.conformance, None
        made.extra_keyword_matches.update((case.backend, *case.tags))
        return made

    def reportinfo(self) -> tuple[Any, int, str]:
        """Return the place of the spec."""
        return self.path, self.line - 1, self.name

    def runtest(self) -> None:
        """Wait for the result of the case, and raise what pytest takes for its outcome."""
        result: CaseResult = self.conformance.result_of(self)
        self.result = result
        self.user_properties += [("outcome", result.outcome.label), ("case", one_line(result.case_id))]
        if result.outcome is Outcome.XFAIL:
            pytest.xfail(one_line(result.reason))  # returns under --runxfail: the case is then the failure that it is
        elif result.outcome.junit is JUnitTag.SKIPPED:
            raise pytest.skip.Exception(one_line(result.reason), _use_item_location=True)
        if result.outcome is not Outcome.PASS and not self._is_let(result):
            raise NotPassedError(result, verdict_text(self._repeatable(result), folder=self.conformance.run.folder))

    def _repeatable(self, result: CaseResult) -> CaseResult:
        """Return a result whose command works where the session was started: its run is in the root of pytest."""
        root = self.config.rootpath
        if not result.repro or self.config.invocation_params.dir == root:
            return result
        return replace(result, repro=f"cd {shlex.quote(str(root))} && {result.repro}")

    def _is_let(self, result: CaseResult) -> bool:
        return result.outcome is Outcome.FLAKY and self.conformance.options.lets_flaky_pass

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: "TracebackStyle | None" = None) -> Any:
        """Return the text of a failure, with the line of the first expectation that failed."""
        error = excinfo.value
        if not isinstance(error, NotPassedError):
            return super().repr_failure(excinfo, style) if not isinstance(error, RuntimeError) else str(error)
        result = error.result
        place = result.failed[0].position if result.failed else result.position
        words = one_line(result.reason) or result.outcome.label
        crash = ReprFileLocation(path=place.file, lineno=place.line, message=f"{result.outcome.label}: {words}")
        lines = [f"{result.outcome.label}  {one_line(result.case_id)}\n", *(f"{line}\n" for line in error.text.splitlines())]
        trace = ReprTraceback(reprentries=[ReprEntryNative(lines)], extraline=None, style="native")
        return ReprExceptionInfo(reprtraceback=trace, reprcrash=crash)

    def complete(self, report: pytest.TestReport) -> None:
        """Add the time of the case and its output to a report."""
        if self.result is None:
            return
        report.duration = self.result.seconds
        for name in ("stdout", "stderr"):
            if text := plain(getattr(self.result, name)).strip("\n"):
                report.sections.append((f"Captured {name} of the case", text))
