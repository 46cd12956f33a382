"""The run's journal: JSON lines that are written during the run, and read by every report.

A header, one line for each case that ended, a footer. A journal without a footer is a truncated run; only its last line may be torn.
Each attempt of a case that is run several times has a line, written when the attempt ends, so that a killed run keeps it; the case's own
line follows.
A resumed run first removes the lines that no longer apply: the torn line, the cases that were not run, the footer of an interrupt. So a
journal has one line for a case and one footer, however often its run was cut off.
"""

from runner.core.header import RunFooter, RunHeader
from runner.record.journal.contents import Run, digest_of_selection, totals
from runner.record.journal.lines import FORMAT, JournalError
from runner.record.journal.reading import lines_of, read_form, read_run
from runner.record.journal.writing import JournalWriter

__all__ = [
    "FORMAT",
    "JournalError",
    "JournalWriter",
    "Run",
    "RunFooter",
    "RunHeader",
    "digest_of_selection",
    "lines_of",
    "read_form",
    "read_run",
    "totals",
]
