"""A whole run as the reports for CI systems see it: its cases, and what is wrong with the run itself.

A list of cases alone can look green: a run that was killed has few of them, and a run in which nothing was executed has no failure. So a
report also shows ``problems``.
"""

import functools
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.conformance import Conformance
from runner.core.exit_codes import ExitCode
from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult, executed
from runner.report import one_line, slug, statement, visible_name
from runner.report.console import why_nothing

NAME = "torch-conformance"
TRUNCATED = "the run did not reach its end; cases that are not in this report were not judged"

_TEXT = 2_000
"""Characters of a problem of the run."""


@dataclass(frozen=True, slots=True)
class Problem:
    """Why a run as a whole is no success, besides its failed cases."""

    kind: str
    """``truncated``, ``interrupted``, ``nothing-executed``, ``too-few-executed``, ``incomplete``, ``not-conformant`` or ``exit-code``."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RunReport:
    """What a report is made of."""

    header: RunHeader
    results: tuple[CaseResult, ...]
    footer: RunFooter | None = None
    """None for a run that did not reach its end."""
    why: str = ""
    """Why it did not."""
    folder: Path | None = None
    """The folder of the run."""

    def is_red(self, result: CaseResult) -> bool:
        """Whether a case fails the run."""
        return result.outcome.is_failure and not self.is_let_pass(result)

    def is_let_pass(self, result: CaseResult) -> bool:
        """Whether a case is FLAKY, and FLAKY cases may pass."""
        return result.outcome is Outcome.FLAKY and self.header.lets_flaky_pass

    @property
    def red(self) -> list[CaseResult]:
        """The cases that fail the run, in their order."""
        return [result for result in self.results if self.is_red(result)]

    @property
    def executed(self) -> int:
        """How many cases were executed."""
        return executed(self.results)

    @property
    def problems(self) -> list[Problem]:
        """What is wrong with the run itself."""
        return _problems(self)


def _problems(report: RunReport) -> list[Problem]:
    footer = report.footer
    if footer is None:
        return [Problem("truncated", one_line(report.why or TRUNCATED, _TEXT))]
    found = [Problem("interrupted", "the run was interrupted; its other cases were not run")] if footer.interrupted else []
    stated = [one for one in footer.statement if one.conformance is not Conformance.CONFORMANT]
    found += [Problem(one.conformance.value.lower().replace(" ", "-"), statement.why(one)) for one in stated]
    if not found and not footer.statement:
        found += _nothing(report, footer)
    if not found and not report.red and (footer.exit_code != ExitCode.OK or not report.executed):
        found.append(Problem("exit-code", f"the run exited with {footer.exit_code}, {report.executed} cases were executed"))
    return found


def _nothing(report: RunReport, footer: RunFooter) -> list[Problem]:
    least = report.header.options.get("min-executed", "1")
    text = one_line(why_nothing(report.results, int(least) if least.isdecimal() else 1, report.header.selected), _TEXT)
    if not report.executed:
        return [Problem("nothing-executed", text)]
    if footer.exit_code != ExitCode.NOTHING:
        return []
    if least.isdecimal() and report.executed < int(least):
        return [Problem("too-few-executed", text)]
    required = one_line(report.header.options.get("require", ""))
    return [Problem("too-few-executed", f"no executed case uses what --require names: {required}")]


def failure_type(result: CaseResult) -> str:
    """Return what failed as one word: ``counter``, ``crash``, ``flaky``."""
    word = "" if result.outcome is Outcome.FLAKY else one_line(result.failure_type)
    return word or slug(result.outcome)


def reason_of(result: CaseResult, limit: int = 500) -> str:
    """Return why a case is not a PASS, on one line. Never empty."""
    return one_line(result.reason, limit) or slug(result.outcome)


def shown_file(file: str) -> str:
    """Return a file relative to the root of the repository, or else as it is named."""
    return visible_name(spec_file(file))


def file_of(result: CaseResult) -> str:
    """Return the file that a report of a case points to."""
    return shown_file(result.position.file or result.spec)


def first_words(results: Sequence[CaseResult], most: int) -> str:
    """Return the first ids of some cases, and how many more there are."""
    shown = ", ".join(visible_name(result.case_id) for result in results[:most])
    return f"{shown} and {len(results) - most} more" if len(results) > most else shown


def seconds_of(result: CaseResult) -> float:
    """Return the duration of a case; 0 for a value that cannot be summed."""
    return result.seconds if math.isfinite(result.seconds) and result.seconds > 0 else 0.0


def spec_file(shown: str) -> str:
    """Return a file relative to the repository's root, as CI systems need it, or else as shown."""
    here = Path.cwd()
    root = next((folder for folder in (here, *here.parents) if (folder / ".git").exists()), here)
    whole = Path(os.path.abspath(here / shown))
    # a path of another folder or machine is not changed, nor a name that no file can have
    return whole.relative_to(root).as_posix() if whole.is_relative_to(root) and os.path.exists(whole) else shown


cached_file = functools.lru_cache(maxsize=1 << 16)(spec_file)
"""Cached during one report: many cases share few files."""


def forget_files() -> None:
    """Clear the cache of ``spec_file``: files may have appeared since the last report."""
    cached_file.cache_clear()
