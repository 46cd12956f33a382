"""What is known of a case that was carried out: what its worker observed, how its process ended, what its services saw.

``judge.evidence`` makes an ``Observation`` of what a worker sent, once; everything after it reads attributes. What an expectation asked its
worker to measure stays the JSON that the expectation's own ``measure`` wrote: no other module knows its form.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field

from runner.model.protocol import Json

GROUPS: Mapping[str, frozenset[str]] = {
    "gemm": frozenset(
        "mm addmm bmm baddbmm int_mm scaled_mm mm_plus_mm grouped_mm scaled_grouped_mm grouped_gemm b2b_gemm packed_linear linear_unary"
        " linear_binary qlinear_unary qlinear_binary _weight_int8pack_mm _weight_int4pack_mm_for_cpu sparse_semi_structured_mm".split()
    ),
    "convolution": frozenset("convolution convolution_bwd_weight convolution_bwd_input".split()),
    "attention": frozenset(
        "flex_attention flex_attention_backward flex_decoding flex_flash_attention flex_flash_attention_backward".split()
    ),
}
"""Operations of one kind, by the names that inductor gives its selections."""

TALLIED = ("rendered", "compiled", "failed", "timed", "won")
"""The counts of a tally."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tally:
    """How many candidates of one inductor backend came how far in one selection."""

    rendered: int
    """Those that inductor wrote."""
    compiled: int
    failed: int
    """Those that could not be compiled or timed, and were discarded."""
    timed: int
    won: int
    """1 where one of them was selected."""
    error: str
    """The first exception of one that failed."""


NONE = Tally(rendered=0, compiled=0, failed=0, timed=0, won=0, error="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Tuning:
    """One operation that inductor selected a kernel for: a GEMM, a convolution, an attention."""

    op: str
    """The name that inductor gives it, such as ``mm`` and ``convolution``."""
    how: str
    """``timed``; ``only`` where there was one candidate, which is not timed; ``untimed`` for any other selection."""
    winner: str
    """The name of the selected candidate; empty where it is not known."""
    won_by: str
    """Its inductor backend, one of ``by_backend``; empty where it is not known."""
    by_backend: Mapping[str, Tally]

    def tally(self, backend: str) -> Tally:
        """Return the tally of a backend; that of all of them for an empty name."""
        if backend:
            return self.by_backend.get(backend, NONE)
        tallies = self.by_backend.values()
        errors = (tally.error for tally in tallies if tally.error)
        return Tally(**{name: sum(getattr(tally, name) for tally in tallies) for name in TALLIED}, error=next(errors, ""))

    def __str__(self) -> str:
        """Return a line that shows every count."""
        parts = []
        for name, tally in self.by_backend.items():
            counts = ", ".join(f"{getattr(tally, count)} {count}" for count in TALLIED if getattr(tally, count)) or "none"
            parts.append(f"{name} {counts} (first error: {tally.error})" if tally.error else f"{name} {counts}")
        won = f"{self.winner} of {self.won_by} won" if self.won_by else "no candidate is known to have won"
        return f"{self.op}: {'; '.join(parts) or 'no candidates'}; {won} ({self.how})"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tunings:
    """The census of a step."""

    count: int = 0
    """How many operations there were."""
    found: tuple[Tuning, ...] = ()
    """The first of them: a bounded number."""

    def of(self, operations: Collection[str]) -> Iterator[Tuning]:
        """Yield those of some operations; all of them if none is named. A name may be that of a group."""
        names = frozenset().union(*(GROUPS.get(name, frozenset([name])) for name in operations))
        return (tuning for tuning in self.found if not operations or tuning.op in names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """An exception in the chain below another one: its ``__cause__``, or else its ``__context__``."""

    type: str
    """Its dotted path."""
    ancestors: tuple[str, ...]
    """The dotted paths of its type and of every type that it inherits from."""
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Raised:
    """An exception that a step, or a case before its steps, ended with."""

    type: str
    """Its dotted path."""
    ancestors: tuple[str, ...]
    """The dotted paths of its type and of every type that it inherits from."""
    message: str
    traceback: str
    phase: str
    causes: tuple[Cause, ...] = ()
    """The chain below it, the nearest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A kernel that autotuning timed."""

    name: str
    """Which a user may have chosen."""
    of_class: str
    """The dotted path of the class of its template, or of the choice itself; empty where no module has that class."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpyCalls:
    """What a spy saw."""

    count: int
    entries: tuple[Mapping[str, Json], ...]
    """The first of them, as maps of plain values."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildExit:
    """How the child of a spawn step ended."""

    code: int
    stderr: str
    """The end of its standard error."""
    stdout: str | None = None
    """The end of its standard output; None where that is the worker's own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """What a call did to a generator of random numbers, compiled and eager."""

    name: str
    exact: bool
    """Whether the compiled call must leave the state that eager leaves."""
    eager_advanced: bool
    compiled_advanced: bool
    same: bool
    """Whether both left the same state."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mode:
    """A mode of torch that a call left otherwise than eager did, with both values as text."""

    name: str
    eager: str
    compiled: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Effects:
    """What a call changed beside its result, compared with what eager changed."""

    compared: int
    """How many values were compared."""
    apart: tuple[str, ...]
    """Paths of values that differed before the call, and were not compared."""
    leaves: tuple[Mapping[str, Json], ...]
    """The facts of values that differ, as ``close`` measures them."""
    generators: tuple[Generator, ...] = ()
    """The generators of random numbers; empty where the eager call raised."""
    modes: tuple[Mode, ...] = ()
    """The modes of torch that the two calls left otherwise."""
    changes: int = 0
    """How many values beside its result the eager call changed."""


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
class Bench:
    """What a bench step timed and left."""

    timings: tuple[Timing, ...]
    attachments: tuple[str, ...]
    """Names of files that it left in the case's folder."""
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traced:
    """What dynamo did in a step with the functions of a case, whichever backend compiles them."""

    frames: int
    """How many frames it converted, or began to."""
    broken: tuple[str, ...]
    """Why it did not convert some of them as a whole."""
    graphs: int
    """How many graphs it captured and handed to the backend."""
    calls: int
    """Calls of graphs that it captured for a backend other than inductor."""
    calls_others: int
    """The same of other functions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Repetition:
    """Equal repetitions of a step before the last, as one expectation measured them."""

    first: int
    """The first of them, from 0."""
    times: int
    measured: Json = None
    """What the expectation's own ``measure`` wrote; None where it was not measured."""
    why_not: str = "it was not measured"


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedStep:
    """What was measured in and after one step."""

    raised: Raised | None
    counters: Mapping[str, Mapping[str, int]]
    metrics: Mapping[str, float]
    remote: Mapping[str, Mapping[str, int]] | None
    """torch's statistics of its remote caches, by the name of the cache; None where they were not read."""
    entered: int
    """Calls of inductor's entry."""
    graphs: tuple[tuple[str, ...], ...]
    """For each graph that was compiled or served from a cache, its devices."""
    executed: Mapping[str, int]
    """Calls, by device, of graphs that the case's own ``torch.compile`` compiled."""
    executed_others: Mapping[str, int]
    """Calls of all other compiled graphs."""
    dynamo: Traced | None
    """None in runs of before it was recorded."""
    abandoned: tuple[str, ...]
    """A reason for each frame that dynamo gave up."""
    uncompiled: tuple[str, ...]
    """Samples of an operator whose compiled call ran eagerly though it had operations, the first ones, each with the reason."""
    choices: tuple[Choice, ...]
    """What autotuning timed, of one tuning after the other."""
    tunings: Tunings
    """What became of every candidate, of each operation of the case's own functions."""
    code_pieces: int
    """How many pieces of generated code lie beside the observation."""
    code_digests: tuple[str, ...]
    """The sha256 of each piece as the worker wrote it; empty in runs of before it was recorded."""
    facts: Mapping[str, Json]
    """What expectations asked for, by their index: the JSON that each kind's ``measure`` wrote, not decoded."""
    repetitions: Mapping[str, tuple[Repetition, ...]]
    """The repetitions of the step before the last, by the index of the expectation that judges each."""
    unmeasured: Mapping[str, str]
    """Why something could not be measured, by the expectation's index."""
    effects: Effects | None
    """None where they were not compared."""
    calls: Mapping[str, SpyCalls]
    exit: ChildExit | None
    bench: Bench | None

    def executed_for(self, kind: str) -> int:
        """Return how many graphs for a kind of device it ran, whoever compiled them."""
        return self.executed.get(kind, 0) + self.executed_others.get(kind, 0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Observation:
    """What a worker sent of one case: facts, no verdicts."""

    case_id: str
    steps: tuple[ObservedStep, ...]
    """Those that were carried out, in order."""
    error: Raised | None
    """Why the case could not be carried out."""
    phases: Mapping[str, float]
    """Seconds spent in each phase."""


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
    problem: str = ""
    """Why it cannot be trusted to have served the case; empty when nothing was wrong."""
