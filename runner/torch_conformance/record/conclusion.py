"""What the results of a run say together: its statement on a profile, and its exit code."""

from collections.abc import Iterable, Sequence
from typing import Protocol

from torch_conformance.model.case import Case
from torch_conformance.model.header import ProfileRecord, RunHeader, problems
from torch_conformance.model.outcomes import ExitCode, exit_code
from torch_conformance.model.results import Redacted
from torch_conformance.model.statement import Statement
from torch_conformance.optional.tools import hooks


class Statements(Protocol):
    """What is asked of the tool for profiles."""

    def statement_of_run(self, header: RunHeader, results: Iterable[Redacted]) -> Statement:
        """Return what results say of the profile of their run."""

    def problem_of_record(self, profile: ProfileRecord) -> str:
        """Return why no run recorded this profile; empty where one may have."""


def statements() -> Statements:
    """Return the tool; raise ``UsageError`` where it was not installed."""
    attest: Statements = hooks("attest")
    return attest


def profile_statement(header: RunHeader, results: Iterable[Redacted]) -> Statement | None:
    """Return what these results say of the run's profile; None for a run without one."""
    return statements().statement_of_run(header, results) if header.profile else None


def conclusion_of(
    header: RunHeader, results: Sequence[Redacted], whole: Sequence[Case] = ()
) -> tuple[ExitCode, tuple[str, ...]]:
    """Return the exit code of an uninterrupted run, and a line for each name of ``--require``
    that turns it into NOTHING.

    ``whole`` is the selection of all shards, where it is known: what a shard must exercise
    depends on it.
    """
    if (statement := profile_statement(header, results)) is not None:
        return ExitCode(statement.conformance.exit_code), ()
    outcomes = (result.outcome for result in results)
    code = exit_code(
        outcomes,
        header.number("min-executed"),
        lets_flaky_pass=header.lets_flaky_pass,
        executed=header.counted(results),
    )
    if code not in (ExitCode.OK, ExitCode.NOTHING) or (header.shard and not whole):
        return code, ()
    unexercised = tuple(
        problems(
            header.required_names,
            whole or results,
            results,
            {result.case_id: result for result in results},
        )
    )
    return (ExitCode.NOTHING if unexercised else code), unexercised
