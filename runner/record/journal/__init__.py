"""The run's journal: JSON lines written as the run goes, and read back by every report.

A header, one line for each case that ended, a footer. A journal without a footer is a truncated run; only its last line may be torn.
Of a case that is run several times each attempt has a line as soon as it ended, so that none is lost with the run; the case's own line
follows.
A run that is gone on with loses what stands for nothing once more is written: the torn line, the cases that were not run, the footer of
an interrupt. So a journal has one line for a case and one footer, however often its run was cut off.
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
