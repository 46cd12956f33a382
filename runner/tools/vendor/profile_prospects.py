"""``--profile`` of the commands that run nothing: the specs and cases of a profile, and whether a machine could execute them."""

import functools
import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from runner.language.load import Suite, load
from runner.language.waivers import load_waivers
from runner.machine import availability
from runner.machine.capabilities import Machine
from runner.model.case import Availability
from runner.model.conformance import ProfileRecord, wrong_torch
from runner.model.diagnostics import UsageError, one_line
from runner.tools.vendor.profile_cases import Resolved, cases_of
from runner.tools.vendor.profile_file import Profile, read_profile, shipped_profiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Prospect:
    """Whether a machine could execute every required case of a profile."""

    required: int
    possible: int
    """How many required cases can run here."""
    missing: Mapping[str, int] = field(default_factory=dict)
    """How many required cases this machine cannot run, by reason."""
    uncertain: Mapping[str, int] = field(default_factory=dict)
    """Why only the run can decide: how many cases have each reason."""
    problem: str = ""
    """Why no run here is possible, whatever the cases: a torch that the profile is not for."""

    @property
    def can_be_complete(self) -> bool | None:
        """Whether a run here can be complete; None where only the run can know."""
        if self.missing or self.problem or not self.required:
            return False
        return None if self.uncertain else True


def prospect(profile: ProfileRecord, available: Mapping[str, tuple[Availability, str]], *, torch: tuple[int, ...] | None) -> Prospect:
    """Return whether a machine can execute what a profile requires.

    ``available`` has availability and reason of each case by id; ``torch`` is the installed release, if there is one.
    """
    by_kind: dict[Availability, Counter[str]] = {kind: Counter() for kind in Availability}
    for case_id in profile.required:
        kind, reason = available.get(case_id, (Availability.NO, "lost: no spec has this case"))
        by_kind[kind][reason] += 1
    return Prospect(
        required=len(profile.required),
        possible=by_kind[Availability.YES].total(),
        missing=dict(by_kind[Availability.NO].most_common()),
        uncertain=dict(by_kind[Availability.UNKNOWN].most_common()),
        problem=wrong_torch(profile, torch),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A profile with everything that it names."""

    profile: Profile
    suite: Suite
    resolved: Resolved
    word: str
    """The name or the path by which ``--profile`` finds it, quoted for a shell."""


def load_profile(name: str, paths: Sequence[Path], backend_files: Sequence[Path]) -> Loaded:
    """Load a profile and its specs; raise ``UsageError`` for paths beside it, ``InvalidSpecs`` for what is wrong with the files."""
    if paths:
        raise UsageError(f"--profile {one_line(name)}: PATH does not go with it: the profile names its specs (remove PATH)")
    profile = read_profile(name)
    suite = load(profile.specs, tuple(dict.fromkeys([*profile.backends, *backend_files])))
    resolved = cases_of(profile, suite, load_waivers(profile.waivers, suite.backends))
    return Loaded(profile=profile, suite=suite, resolved=resolved, word=shlex.quote(name))


def levels_of(record: ProfileRecord) -> dict[str, dict[str, Any]]:
    """Return the level of each case of a profile, as ``--json`` has it."""
    required = {case_id: {"level": level.name, "required": True} for level in record.levels for case_id in level.required}
    optional = {case_id: {"level": level.name, "required": False} for level in record.levels for case_id in level.optional}
    return {**optional, **required}


def load_shipped(suite: Suite) -> Iterator[Loaded]:
    """Yield the shipped profiles, with the shipped specs as they were loaded."""
    waivers = functools.cache(lambda files: load_waivers(files, suite.backends))
    for name in shipped_profiles():
        profile = read_profile(name)
        yield Loaded(profile=profile, suite=suite, resolved=cases_of(profile, suite, waivers(profile.waivers)), word=name)


def prospect_of(loaded: Loaded, machine: Machine) -> Prospect:
    """Return whether a machine could execute what a profile requires."""
    verdicts = {str(case.id): availability.of_case(case, machine) for case in loaded.resolved.cases}
    availabilities = {case_id: (verdict.availability, verdict.reason) for case_id, verdict in verdicts.items()}
    return prospect(loaded.resolved.record, availabilities, torch=machine.release)


def lines_of(record: ProfileRecord, outlook: Prospect) -> Iterator[str]:
    """Yield the profile, how many cases each level has, and whether a run here could be complete."""
    yield ""
    yield f"profile {record.name} {record.version}, for torch {record.torch}, sha256 {record.digest}"
    for level in record.levels:
        yield f"  {level.name}  {len(level.required)} required, {len(level.optional)} optional"
    words = {True: "a run here can be complete", False: "a run here is INCOMPLETE", None: "only a run here can show whether it is complete"}
    perhaps = sum(outlook.uncertain.values())
    counts = f"{outlook.possible} can run here" + (f", {perhaps} perhaps" if perhaps else "")
    yield f"  {words[outlook.can_be_complete]}: of {outlook.required} required cases {counts}"
    if outlook.problem:
        yield f"  {one_line(outlook.problem)}"
    for word, reasons in (("perhaps", outlook.uncertain), ("unavailable", outlook.missing)):
        yield from (f"  {count:5}  {word}: {one_line(reason)}" for reason, count in reasons.items())
