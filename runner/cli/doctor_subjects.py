"""What this machine allows, for ``doctor``: how many cases of each backend can run, which profiles a run could complete, and why not.

``SUBJECTS`` is the table: an entry turns the loaded specs and profiles and the machine into rows.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from runner.cli.profiles import Loaded, load_profile, load_shipped, prospect_of
from runner.core.case import Availability, Case
from runner.core.options import DoctorOptions
from runner.language.load import Suite, load
from runner.system import availability
from runner.system.capabilities import Machine


@dataclass(frozen=True, slots=True, kw_only=True)
class Read:
    """The specs and profiles that were read."""

    suite: Suite
    profiles: tuple[Loaded, ...] = ()


def read(options: DoctorOptions) -> Read:
    """Load what the options name: one profile; or the specs of PATH; or the shipped specs with every shipped profile."""
    if options.profile is not None:
        loaded = load_profile(options.profile, options.paths, options.backends)
        return Read(suite=loaded.suite, profiles=(loaded,))
    suite = load(options.paths, options.backends)
    return Read(suite=suite, profiles=() if options.paths else tuple(load_shipped(suite)))


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendRow:
    """A backend, and what becomes of its cases on this machine."""

    name: str
    summary: str
    specs: int
    """How many specs its cases come from."""
    cases: int
    """How many cases it has: the sum of the next three."""
    can_run: int
    perhaps: int
    """Cases of which only a run can know."""
    unavailable: int
    on_request: int
    """How many of all its cases run only when they are named."""
    reasons: Mapping[str, int]
    """Why cases cannot run, or perhaps cannot, with their numbers; the most frequent first."""

    @property
    def runs(self) -> bool | None:
        """Whether some case can run here; None where only a run can know."""
        return True if self.can_run else None if self.perhaps else False

    @property
    def heading(self) -> str:
        """The name, and what it is."""
        return f"{self.name}: {self.summary}"

    @property
    def numbers(self) -> str:
        """The counts in words."""
        if not self.cases:
            return "no spec here names it"
        parts = [f"{self.can_run} of {self.cases} cases can run, of {self.specs} specs"]
        parts += [f"{count} {word}" for count, word in ((self.perhaps, "perhaps"), (self.on_request, "only on request")) if count]
        return ", ".join(parts)

    @property
    def shown_by(self) -> str:
        """The command that shows each case with its reason."""
        return f"torch-conformance list --backend {self.name}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileRow:
    """A profile, and what becomes of its required cases on this machine."""

    name: str
    version: str
    summary: str
    required: int
    """How many cases it requires: the sum of the next three."""
    can_run: int
    perhaps: int
    """Required cases of which only a run can know."""
    unavailable: int
    can_be_complete: bool | None
    """Whether a run here could execute every required case; None where only a run can know."""
    reasons: Mapping[str, int]
    """Why required cases cannot run, or perhaps cannot, with their numbers; the most frequent first."""
    problem: str
    """Why no run here is possible, whatever the cases; empty where one is."""
    shown_by: str
    """The command that shows each case with its reason."""

    @property
    def runs(self) -> bool | None:
        """Whether a run here could be complete."""
        return self.can_be_complete

    @property
    def heading(self) -> str:
        """The name with its version, and what it requires."""
        return f"{self.name} {self.version}: {self.summary}"

    @property
    def numbers(self) -> str:
        """The counts in words."""
        parts = [f"{self.can_run} of {self.required} required cases can run"]
        parts += [f"{count} {word}" for count, word in ((self.perhaps, "perhaps"), (self.unavailable, "cannot")) if count]
        end = "; a run here is INCOMPLETE" if self.can_be_complete is False and not self.problem else ""
        return ", ".join(parts) + end + (f"; {self.problem}" if self.problem else "")


Row: TypeAlias = BackendRow | ProfileRow


def row_of(name: str, summary: str, cases: Sequence[Case], machine: Machine) -> BackendRow:
    """Return what becomes of some cases, by the same rules as ``list``."""
    verdicts = [availability.of_case(case, machine) for case in cases]
    counts = Counter(verdict.availability for verdict in verdicts)
    reasons = Counter(verdict.reason for verdict in verdicts if verdict.reason)
    return BackendRow(
        name=name,
        summary=summary,
        specs=len({case.spec for case in cases}),
        cases=len(cases),
        can_run=counts[Availability.YES],
        perhaps=counts[Availability.UNKNOWN],
        unavailable=counts[Availability.NO],
        on_request=sum(case.on_request for case in cases),
        reasons=dict(reasons.most_common()),
    )


def of_backends(found: Read, machine: Machine) -> list[BackendRow]:
    """Return a row for each backend of the backends files."""
    backends = found.suite.backends.by_name
    by_backend: dict[str, list[Case]] = {name: [] for name in backends}
    for case in found.suite.cases:
        by_backend[case.backend].append(case)
    return [row_of(name, backends[name].summary, cases, machine) for name, cases in by_backend.items()]


def of_profiles(found: Read, machine: Machine) -> list[ProfileRow]:
    """Return a row for each profile that was read."""
    return [_row_of_profile(loaded, machine) for loaded in found.profiles]


def _row_of_profile(loaded: Loaded, machine: Machine) -> ProfileRow:
    expected = prospect_of(loaded, machine)
    return ProfileRow(
        name=expected.profile,
        version=expected.version,
        summary=loaded.profile.summary,
        required=expected.required,
        can_run=expected.possible,
        perhaps=expected.perhaps,
        unavailable=sum(expected.missing.values()),
        can_be_complete=expected.can_be_complete,
        reasons=dict(Counter({**expected.missing, **expected.uncertain}).most_common()),
        problem=expected.problem,
        shown_by=f"torch-conformance list --profile {loaded.word}",
    )


SUBJECTS: Mapping[str, Callable[[Read, Machine], Sequence[Row]]] = {"backends": of_backends, "profiles": of_profiles}
"""What selects cases, by the key of ``--json``."""
