"""What is recorded of a whole run: its header, known before the first case, its footer, known after
the last, and ``--require``.
"""

import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

from torch_conformance.model.case import Case
from torch_conformance.model.codec import REQUIRED
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult, Published, Redacted
from torch_conformance.model.values import frozen

DECLARES = ".declares"
"""Behind the name of a backend in the facts of a run: what its entry declares."""


@frozen
class ProfileLevel:
    """The cases of one level of a profile, by id. No id is in two levels, or in both lists."""

    name: str
    required: tuple[str, ...]
    optional: tuple[str, ...] = ()
    most_waived: float = field(default=2, metadata={REQUIRED: True})
    """How many of 100 required cases may be waived."""
    most_waived_because: str = field(default="", metadata={REQUIRED: True})
    """Why it may be more than usual."""


@frozen
class PermittedWaiver:
    """A waiver that a profile permits: the fields by which a result names it."""

    cases: str
    issue: str
    until: str
    is_shipped: bool = field(default=False, metadata={REQUIRED: True})
    """Whether every permitted waiver with these fields is a shipped one."""


@frozen
class ProfileRecord:
    """A profile as a run recorded it, with the cases that it requires and the waivers that it
    permits.
    """

    name: str
    version: str
    file: str
    digest: str
    """The sha256 of what it requires: each case with its digest, level and condition, the range of
    torch, and the limits of waived cases and of those that ATen computed.
    """
    torch: str
    """The range of versions that it is for."""
    levels: tuple[ProfileLevel, ...]
    conditions: Mapping[str, Any] = field(default_factory=dict, metadata={REQUIRED: True})
    """By id, the condition under which a case is required; cases that are required on every machine
    have none.
    """
    waivers: tuple[PermittedWaiver, ...] = ()
    most_by_aten: float = field(default=100, metadata={REQUIRED: True})
    """Of how many of 100 required cases ATen may have computed the whole answer."""
    without_waivers: str = ""
    """The minors of torch with which no permitted waiver holds for a case of the first level; empty
    where none ever does.
    """
    compiler: str = ""
    """Of a profile for any compiler the backend of --backend; empty for any other profile."""
    proof: str = ""
    """What the entry of that backend says that the compiler must compute, and what ATen may."""

    @property
    def required(self) -> tuple[str, ...]:
        """The required ids of all levels."""
        return tuple(case_id for level in self.levels for case_id in level.required)


@frozen
class RunHeader:
    """What is known of a run before its first case."""

    run_id: str
    started: str
    """UTC, ISO 8601."""
    version: str
    """Of this program."""
    command: tuple[str, ...]
    """The command line, without credentials."""
    environment: Mapping[str, str]
    """torch, torch_git, triton, python, platform, device, arch, driver, cuda, hip, ck ..."""
    variables: Mapping[str, str]
    """Environment variables of the committed list (``redaction``)."""
    specs: Mapping[str, str]
    """sha256 of each YAML file that was read."""
    selected: int
    shuffle: str = ""
    """The seed of a random order; empty for the usual one."""
    selected_whole: int = 0
    """How many cases were selected before the shard was taken."""
    not_requested: int = 0
    """How many cases on request match the selection, and were not run because nothing names them.
    """
    selection: str = ""
    """``digest_of_selection`` of those."""
    assignment: str = ""
    """Of a shard, the same digest of the numbers of the shards of all cases, in place of their
    digests; else empty.
    """
    options: Mapping[str, str] = field(default_factory=dict)
    """What the command line asked for, by the option's name; what it did not say, too."""
    merged: tuple[str, ...] = ()
    """The ids of the runs that this one was joined from."""
    profile: tuple[ProfileRecord, ...] = ()
    """The profile of ``--profile``; empty for any other run."""

    @property
    def shard(self) -> str:
        """``I/N``; empty for a whole run."""
        return self.options.get("shard", "")

    @property
    def retries(self) -> int:
        """How many more times what failed is run."""
        return self.number("retries")

    @property
    def repeat(self) -> int:
        """How many times every case is run."""
        return self.number("repeat")

    @property
    def required_names(self) -> list[str]:
        """The names of ``--require``."""
        try:
            return shlex.split(self.options.get("require", ""))
        except ValueError:  # not written by this program
            return [self.options["require"]]

    def lets_pass(self, result: CaseResult) -> bool:
        """Whether a case is FLAKY, and FLAKY cases may pass."""
        return result.outcome is Outcome.FLAKY and self.lets_flaky_pass

    @property
    def lets_flaky_pass(self) -> bool:
        """Whether a FLAKY case does not fail the run."""
        return self.options.get("flaky") == "pass"

    def counted(self, results: Iterable[CaseResult]) -> int:
        """Return how many results count as executed: with --count-offline those of OFFLINE_PASS
        too.
        """
        offline = Outcome.OFFLINE_PASS if self.options.get("count-offline") else None
        return sum(result.is_executed or result.outcome is offline for result in results)

    def number(self, option: str) -> int:
        """Return the value of an option; 0 where the header has no number."""
        text = self.options.get(option, "")
        return int(text) if text.isdecimal() else 0


@frozen
class MachineWarning:
    """What ``doctor`` says of a tool that red cases use."""

    text: str
    cases: tuple[str, ...]
    """The ids of those cases."""


@frozen
class RunFooter:
    """How a run ended."""

    ended: str
    seconds: float
    exit_code: int
    interrupted: bool = False
    costs: Mapping[str, float] = field(default_factory=dict)
    """What it cost, and what bounds it on its machine, in seconds (``run.costs``); empty for a run
    of few cases.
    """
    start_up: Mapping[str, float] = field(default_factory=dict)
    """The seconds of each phase until the first case began."""
    warnings: tuple[MachineWarning, ...] = ()

    def warned(self, results: Iterable[Redacted]) -> tuple[Published, ...]:
        """Return the results with the warnings of this footer."""
        texts: dict[str, tuple[str, ...]] = {}
        for warning in self.warnings:
            texts |= {case_id: (*texts.get(case_id, ()), warning.text) for case_id in warning.cases}
        return tuple(
            Published(replace(result, warnings=texts.get(result.case_id, ())) if texts else result)
            for result in results
        )


@frozen
class ReportedRun:
    """A run as a journal or a report has it."""

    header: RunHeader
    results: tuple[Redacted, ...] = ()
    footer: RunFooter | None = None
    """None for a run that did not reach its end."""
    why: str = ""
    """Why it did not, where that is known."""

    @property
    def failed(self) -> list[Redacted]:
        """The cases that fail the run, in their order."""
        return [
            result
            for result in self.results
            if result.outcome.is_failure and not self.header.lets_pass(result)
        ]


EVERY_CASE = "torch"
"""The capability that every case uses, even without ``requires``."""


def uses(case: Case | CaseResult, name: str) -> bool:
    """Whether a case runs on the backend with this name or requires the capability; a service is a
    capability too.
    """
    required = (
        case.requires
        if isinstance(case, CaseResult)
        else [requirement.name for requirement in case.requires]
    )
    return name in (EVERY_CASE, case.backend) or name in required


def problems(
    names: Collection[str],
    whole: Sequence[Case | CaseResult],
    selected: Sequence[Case | CaseResult],
    results: Mapping[str, CaseResult] | None,
) -> Iterator[str]:
    """Yield a line for each required name that the run does not use.

    ``whole`` is the selection of all shards, ``selected`` that of this one; both may be results.
    ``results`` is None before the run.
    """
    for name in dict.fromkeys(names):
        if not any(uses(case, name) for case in whole):
            yield (
                f"--require {name}: no selected case uses {name}, so it cannot be met (select "
                "other cases, or remove the option)"
            )
            continue
        using = [
            case.case_id if isinstance(case, CaseResult) else case.id
            for case in selected
            if uses(case, name)
        ]
        if (
            results is not None
            and using
            and not any(case_id in results and results[case_id].is_executed for case_id in using)
        ):
            which = "the one selected case that uses it was not"
            if len(using) > 1:
                which = f"none of the {len(using)} selected cases that use it was"
            yield f"--require {name}: {which} executed (the report has the reasons)"
