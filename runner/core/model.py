"""What passes between the stages: cases, plans, verdicts, results. Frozen values and their JSON forms.

Nothing here imports another room but ``outcomes`` and ``diagnostics``; everything may import this.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NewType

from runner.core.diagnostics import Position
from runner.core.outcomes import Outcome

CaseId = NewType("CaseId", str)
"""``area/spec-name[backend=cpu,dtype=float32]``."""

Json = Any
"""A value that JSON can say (see ``protocol`` for what it cannot)."""


class Status(Enum):
    """How one expectation was judged."""

    HELD = "held"
    FAILED = "failed"
    ERROR = "error"
    """The facts are missing or cannot be judged: nothing is claimed."""
    NOT_APPLICABLE = "not-applicable"
    """Its ``when`` does not hold here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """One expectation judged.

    ``kind`` is the word of the language (``close``), or ``proof``, ``raised``, ``crash`` ... for what no line of the
    spec asks for. ``detail`` may have many lines: the excerpt of generated code, a traceback.
    """

    kind: str
    status: Status
    position: Position
    expected: str = ""
    observed: str = ""
    detail: str = ""

    @property
    def message(self) -> str:
        """One line for a table or an attribute."""
        return f"{self.kind}: expected {self.expected}, observed {self.observed}" if self.expected else self.observed


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One entry of ``requires``: a capability and its argument (None when it takes none)."""

    name: str
    argument: str | None
    position: Position

    def __str__(self) -> str:
        return self.name if self.argument is None else f"{self.name} {self.argument}"


@dataclass(frozen=True, slots=True, kw_only=True)
class CodeBlock:
    """Python written in a spec.

    ``line`` is the line of the YAML file (from 1) on which the first line of ``text`` stands.
    """

    name: str
    file: str
    line: int
    text: str
    exact: bool = True
    """False where YAML folds lines, so that only the first line's number is true."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of a case: its kind, its arguments (plain data), what is expected after it."""

    kind: str
    arguments: Mapping[str, Json]
    expectations: tuple["Expected", ...]
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """An expectation where it stands in the spec. ``check`` is an instance of a class in ``expectations``."""

    kind: str
    check: Any
    position: Position
    leaves: Mapping[str, Position] = field(default_factory=dict)
    """Where each key of its body stands: a counter's line is more than the expectation's."""
    body: Json = None
    """Its arguments as the spec has them, for people."""

    def place(self, leaf: str) -> Position:
        """Return where a leaf stands, else the key that it is below (``KEY word``), else the expectation itself."""
        return self.leaves.get(leaf) or self.leaves.get(leaf.partition(" ")[0], self.position)


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """A patch of a case under which its expectations must fail."""

    patch: Mapping[str, Mapping[str, Json]]
    """By section, what is set otherwise."""
    fails: tuple[str, ...]
    """Kinds of which one expectation each must fail; when empty, any expectation."""
    position: Position


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenReason:
    """Why a mutant of an expectation may survive; said in the spec."""

    expectation: str
    mutant: str
    leaf: str | None
    """A counter's name, where the reason is for that alone."""
    reason: str
    position: Position


class Availability(Enum):
    """Whether a case can run here."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"
    """Only the run can know."""

    def as_json(self) -> bool | None:
        """Return true, false or null, as ``list --json`` says it."""
        return {Availability.YES: True, Availability.NO: False, Availability.UNKNOWN: None}[self]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A spec expanded for one backend and one point of its matrix."""

    id: CaseId
    spec: str
    """The YAML file as shown to people: relative to the working folder where that is possible."""
    area: str
    name: str
    position: Position
    summary: str
    covers: tuple[str, ...]
    tags: tuple[str, ...]
    backend: str
    device: str
    params: Mapping[str, Json]
    requires: tuple[Requirement, ...]
    body: Mapping[str, Json]
    """What the worker needs, as data: functions, inputs, compile, config, env, torch, context, blocks."""
    steps: tuple[Step, ...]
    missing_names: tuple[str, ...] = ()
    """Config, counter and metric names that only another torch has, each as a reason."""
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """For ``explain``: each option of each section with where it was set (``language.options.Option``)."""
    control: Control | None = None
    survivors: tuple[WrittenReason, ...] = ()
    exclusive: bool = False
    """Whether its spec says that nothing may run beside it."""
    left_out: tuple[Step, ...] = ()
    """Its bench steps, where this run times nothing: they stood below ``steps``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a worker's process ended."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    phase: str = ""
    """The last phase that the worker announced."""
    step: int | None = None
    """The last step, from 0; None before the first, and for a number that is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServiceReport:
    """What a service's own process says of the case that it served: no worker can have written it."""

    name: str
    answered: Mapping[str, int] = field(default_factory=dict)
    """How often each command was answered without an error, for keys of the form that torch's remote caches give theirs."""
    foreign: int = 0
    """How many commands were answered for other keys: of another client."""
    left: int = 0
    """Keys of the case that could not be deleted from a server that is not ours."""
    problem: str = ""
    """Why it cannot be trusted to have served the case; empty when nothing was wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningCase:
    """A case that runs just now, or the engine's name for it."""

    name: str
    since: float
    """As ``time.monotonic`` counts."""
    phase: str
    """What its worker said last; it may say anything."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity:
    """What an engine waits for just now."""

    starting: float | None = None
    """Since when a template warms up: the longest of several; None where none does."""
    warming: float | None = None
    """Since when a worker for a GPU warms up while no case runs: the longest of several; None where none does."""
    running: tuple[RunningCase, ...] = ()


class WaiverEffect(Enum):
    """What became of a waiver that is for a case."""

    MATCHED = "matched"
    """The failure is the one that it names."""
    PASSED = "passed"
    """Nothing failed."""
    OTHER_FAILURE = "other-failure"
    """What failed looks otherwise."""
    TOO_SLOW = "too-slow"
    """Its pattern gave no answer in time."""
    EXPIRED = "expired"
    """Its last day is past: it is void."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AppliedWaiver:
    """A waiver that is for a case, where that ran, and what became of it."""

    effect: WaiverEffect
    cases: str
    """Its glob."""
    position: Position
    reason: str
    issue: str
    until: str
    """Its last day: ``2027-03-01``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """How long a function took in a bench step; times are milliseconds. Reported, never judged."""

    name: str
    form: str
    """``compiled`` or ``eager``."""
    median_ms: float
    least_ms: float
    most_ms: float
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """One of several attempts of a case."""

    outcome: Outcome
    reason: str
    """One line; blank for a PASS alone."""
    failure_type: str
    seconds: float
    isolation: str
    folder: str
    """Below the run's folder."""
    evidence: Mapping[str, str] = field(default_factory=dict)
    """As of ``CaseResult``."""
    verdicts: tuple[Verdict, ...] = ()
    """Those that speak against the case."""
    stdout: str = ""
    stderr: str = ""
    """Ends of what the worker printed; empty for a PASS."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseResult:
    """A case's outcome with everything a report says about it."""

    case_id: CaseId
    spec: str
    area: str
    name: str
    backend: str
    outcome: Outcome
    reason: str
    """One line: why it is not a PASS. Never blank for any other outcome."""
    failure_type: str
    """JUnit's ``type``: counter, close, filecheck, raised, fell-back, crash, unavailable ..."""
    verdicts: tuple[Verdict, ...]
    position: Position
    """The line that a report points to: the failing expectation's, or the spec's."""
    seconds: float
    phases: Mapping[str, float] = field(default_factory=dict)
    isolation: str = ""
    """How the worker was made: ``fork`` or ``process``, or ``shared`` for one that may run several cases; empty when there was none."""
    after: int = 0
    """How many cases its worker had run before."""
    company: str = ""
    """What it came to after others in a worker, where that was no pass: it was run again alone, and that is what counts."""
    folder: str = ""
    """The case's folder below the run's folder; empty when nothing was run."""
    evidence: Mapping[str, str] = field(default_factory=dict)
    """sha256 of each file in it that the case was judged by: the observation, generated code, reports of services."""
    repro: str = ""
    summary: str = ""
    """What the spec claims; empty for a PASS, as are the next two."""
    options: tuple[str, ...] = ()
    """The options in force, a line each: ``config.freezing: true``."""
    code: tuple[str, ...] = ()
    """The files of generated code in the case's folder."""
    stdout: str = ""
    stderr: str = ""
    """Ends of what the worker printed."""
    digest: str = ""
    covers: tuple[str, ...] = ()
    requires: tuple[str, ...] = ()
    """The names of the capabilities that the case requires: what ``--require`` of a merged run is judged by."""
    waivers: tuple[AppliedWaiver, ...] = ()
    timings: tuple[Timing, ...] = ()
    attachments: tuple[str, ...] = ()
    """Files in the case's folder that belong to its report: chrome traces."""
    notes: tuple[str, ...] = ()
    """What a person should know of timings and attachments: why one is missing."""
    benches_left_out: int = 0
    """How many bench steps of the case were not run, because the run was started without ``--bench``."""
    objects_served: int = 0
    """Commands of the C++ compiler whose output came from the folder of ``--object-cache``; then the case is no conformance run's."""
    objects_built: int = 0
    """Those that it ran; both are 0 where that is off, and where the case died before it could say."""
    attempts: tuple[Attempt, ...] = ()
    """Every attempt, in the order in which they ended, of a case that was run several times; ``seconds`` is what they took together."""

    @property
    def failed(self) -> tuple[Verdict, ...]:
        """The verdicts that speak against the case."""
        return tuple(v for v in self.verdicts if v.status in (Status.FAILED, Status.ERROR))
