"""The facts of a case: what its worker measured in each step, how its process ended, what its
services saw.

No verdicts.

``judge.evidence`` makes them of what a worker sent, by the annotations here; everything after it
reads attributes. ``StepWithCode`` and ``Facts`` are the next states of what was sent. What an
expectation asked its worker to measure stays the JSON that the expectation's own ``measure`` wrote:
no other module knows its form.
"""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import field
from typing import Annotated

from torch_conformance.model.codec import KEY
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen

# ``schemas/observation.schema.json`` is made of the annotations: ``Annotated`` has further keywords

Reasons = Annotated[tuple[str, ...], {"maxItems": 20}]
Pieces = {"maxItems": 10_000}
Milliseconds = Annotated[float, {"maximum": 10**9}]
Leaf = Annotated[Mapping[str, Json], {"$ref": "#/$defs/leaf"}]
"""What ``close`` measured of one value."""
Measured = Annotated[Json, {"properties": {"leaves": {"items": {"$ref": "#/$defs/leaf"}}}}]
"""What the ``measure`` of an expectation returned."""

GROUPS: Mapping[str, frozenset[str]] = {
    "gemm": frozenset(
        "mm addmm bmm baddbmm int_mm scaled_mm mm_plus_mm grouped_mm scaled_grouped_mm "
        "grouped_gemm b2b_gemm packed_linear linear_unary"
        " linear_binary qlinear_unary qlinear_binary _weight_int8pack_mm "
        "_weight_int4pack_mm_for_cpu sparse_semi_structured_mm".split()
    ),
    "convolution": frozenset("convolution convolution_bwd_weight convolution_bwd_input".split()),
    "attention": frozenset(
        "flex_attention flex_attention_backward flex_decoding flex_flash_attention "
        "flex_flash_attention_backward".split()
    ),
}
"""Operations of one kind, by the names that inductor gives its selections."""

TALLIED = ("rendered", "compiled", "failed", "refused", "timed", "won")


@frozen
class Tally:
    """How many candidates of one inductor backend came how far in one selection."""

    rendered: int
    """Those that inductor wrote."""
    compiled: int
    """Those that were compiled."""
    failed: int
    """Those that could not be compiled or timed, and were discarded."""
    refused: int = 0
    """Those that were compiled, and that their library refused to run for these sizes."""
    timed: int
    """Those that were timed."""
    won: int
    """1 where one of them was selected."""
    error: str
    """The first exception of one that failed."""


NONE = Tally(rendered=0, compiled=0, failed=0, timed=0, won=0, error="")


@frozen
class Tuning:
    """One operation that inductor selected a kernel for: a GEMM, a convolution, an attention."""

    op: str
    """The name that inductor gives it, such as ``mm`` and ``convolution``."""
    how: Annotated[str, {"enum": ["timed", "only", "untimed"]}]
    """``timed``; ``only`` where there was one candidate, which is not timed; ``untimed`` for any
    other selection.
    """
    winner: str
    """The name of the selected candidate; empty where it is not known."""
    won_by: str
    """Its inductor backend, one of ``by_backend``; empty where it is not known."""
    by_backend: Annotated[Mapping[str, Tally], {"maxProperties": 50}] = field(
        metadata={KEY: "backends"}
    )
    """The candidates, by inductor backend."""

    def tally(self, backend: str) -> Tally:
        """Return the tally of a backend; that of all of them for an empty name."""
        if backend:
            return self.by_backend.get(backend, NONE)
        tallies = self.by_backend.values()
        errors = (tally.error for tally in tallies if tally.error)
        return Tally(
            **{name: sum(getattr(tally, name) for tally in tallies) for name in TALLIED},
            error=next(errors, ""),
        )

    def __str__(self) -> str:
        """Return a line that shows every count."""
        parts = []
        for name, tally in self.by_backend.items():
            counts = (
                ", ".join(
                    f"{getattr(tally, count)} {count}" for count in TALLIED if getattr(tally, count)
                )
                or "none"
            )
            parts.append(
                f"{name} {counts} (first error: {tally.error})"
                if tally.error
                else f"{name} {counts}"
            )
        won = (
            f"{self.winner} of {self.won_by} won"
            if self.won_by
            else "no candidate is known to have won"
        )
        return f"{self.op}: {'; '.join(parts) or 'no candidates'}; {won} ({self.how})"


@frozen
class Tunings:
    """The census of a step."""

    count: int = 0
    """How many operations there were."""
    found: Annotated[tuple[Tuning, ...], {"maxItems": 200}] = ()
    """The first of them: a bounded number."""

    def of(self, operations: Collection[str]) -> Iterator[Tuning]:
        """Yield those of some operations; all of them if none is named.

        A name may be that of a group.
        """
        names = frozenset().union(*(GROUPS.get(name, frozenset([name])) for name in operations))
        return (tuning for tuning in self.found if not operations or tuning.op in names)


@frozen
class Cause:
    """An exception in the chain below another one: its ``__cause__``, or else its
    ``__context__``.
    """

    type: str
    """Its dotted path."""
    ancestors: tuple[str, ...]
    """The dotted paths of its type and of every type that it inherits from."""
    message: str
    """Its text."""


@frozen
class Raised(Cause):
    """An exception that a step, or a case before its steps, ended with."""

    traceback: str
    """The end of its traceback."""
    phase: str
    """The phase it left."""
    causes: tuple[Cause, ...] = ()
    """The chain below it, the nearest first."""


@frozen
class Choice:
    """A kernel that autotuning timed."""

    name: str
    """Which a user may have chosen."""
    of_class: str = field(metadata={KEY: "class"})
    """The dotted path of the class of its template, or of the choice itself; empty where no module
    has that class.
    """


@frozen
class SpyCalls:
    """What a spy saw."""

    count: int
    """How many entries there were."""
    entries: tuple[Mapping[str, Json], ...]
    """The first of them, as maps of plain values."""


@frozen
class ChildExit:
    """How the child of a spawn step ended."""

    code: Annotated[int, {"minimum": -(2**31)}]
    """Its exit code; a negative one is a signal's."""
    stderr: str
    """The end of its standard error."""
    stdout: str | None = None
    """The end of its standard output; None where that is the worker's own."""


@frozen
class Generator:
    """What a call did to a generator of random numbers, compiled and eager."""

    name: str
    """``cpu``, a device with its index, or ``python`` for the module random."""
    exact: bool
    """Whether the compiled call must leave the state that eager leaves."""
    eager_advanced: bool
    """Whether the eager call changed its state."""
    compiled_advanced: bool
    """Whether the compiled call changed its state."""
    same: bool
    """Whether both left the same state."""


@frozen
class Mode:
    """A mode of torch that a call left otherwise than eager did, with both values as text."""

    name: str
    """The mode."""
    eager: str
    """What the eager call left."""
    compiled: str
    """What the compiled call left."""


@frozen
class Effects:
    """The side effects of a call, compared with those of eager."""

    compared: int
    """How many values were compared."""
    apart: Annotated[tuple[str, ...], {"maxItems": 50}]
    """Paths of values that differed before the call, and were not compared."""
    leaves: Annotated[tuple[Leaf, ...], {"maxItems": 50}]
    """The facts of values that differ, as ``close`` measures them."""
    generators: Annotated[tuple[Generator, ...], {"maxItems": 100}] = ()
    """The generators of random numbers; empty where the eager call raised."""
    modes: Annotated[tuple[Mode, ...], {"maxItems": 1000}] = ()
    """The modes of torch (grad mode, default dtype, autocast ...)
    that it left otherwise than eager.
    """
    changes: int = 0
    """How many values the eager call changed, apart from its result."""


@frozen
class Timing:
    """How long a function took in a bench step; times are milliseconds. Reported, never judged."""

    name: str
    """The function."""
    form: Annotated[str, {"enum": ["compiled", "eager"]}]
    """``compiled`` or ``eager``."""
    median_ms: Milliseconds
    """The median, in milliseconds."""
    least_ms: Milliseconds
    """The least, in milliseconds."""
    most_ms: Milliseconds
    """The most, in milliseconds."""
    count: Annotated[int, {"minimum": 1, "maximum": 1000}]
    """How often it was timed."""


@frozen
class Bench:
    """What a bench step timed and left."""

    timings: Annotated[tuple[Timing, ...], {"maxItems": 1000}]
    """What was timed, in order."""
    attachments: Annotated[
        tuple[Annotated[str, {"pattern": "^[A-Za-z0-9][A-Za-z0-9_.-]*$"}], ...], {"maxItems": 100}
    ]
    """Names of files that it left in the case's folder."""
    notes: Annotated[tuple[str, ...], {"maxItems": 100}]
    """What the report says of the step besides its verdicts, as why it has no trace."""


@frozen
class Traced:
    """What dynamo did in a step with the functions of a case, whichever backend compiles them."""

    frames: int
    """How many frames it converted, or began to."""
    broken: Reasons
    """Why it did not convert some of them as a whole."""
    graphs: int
    """How many graphs it captured and handed to the backend."""
    calls: int
    """Calls of graphs that it captured for a backend other than inductor."""
    calls_others: int
    """The same of other functions."""
    is_backward_idle: bool = False
    """Whether a compiler other than inductor got backward graphs until now, and none calls
    anything: they return tangents or saved tensors.
    """


@frozen
class Origins:
    """The operators that compute the answer of a call."""

    eager: tuple[str, ...] = ()
    """In eager; none where that is not known."""
    outside: tuple[str, ...] = ()
    """Those that ran outside of the compiled graphs in the compiled call."""


@frozen
class Repetition:
    """Equal repetitions of a step before the last, as one expectation measured them."""

    first: int
    """The first of them, from 0."""
    times: Annotated[int, {"minimum": 1}]
    """How many repetitions had these inputs and results."""
    measured: Measured = None
    """What the expectation's own ``measure`` wrote; None where it was not measured."""
    why_not: str = "it was not measured"
    """Why it was not measured."""


@frozen
class GraphOfCode:
    """The graph that a piece of code was generated for; without entries where a cache had the
    code.
    """

    arguments: tuple[str, ...] | None = None
    """Dtype, shape and strides of each tensor, ``float32[2, ?][?, 1]``, and ``?`` for other values.
    """
    operators: tuple[str, ...] = ()
    """The operators, before decompositions, that it came from."""


@frozen
class StepFacts:
    """What was measured in and after one step."""

    raised: Raised | None = None
    """The exception that ended the step, or null."""
    counters: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """torch._dynamo.utils.counters, by namespace and name."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """torch._inductor.metrics that are numbers."""
    remote: Mapping[str, Mapping[str, int]] | None = None
    """torch's statistics of its remote caches: hit, miss, put and exception, by the name of the
    cache; None where they were not read.
    """
    entered: int = 0
    """Calls of inductor's entry."""
    graphs: tuple[tuple[str, ...], ...] = ()
    """For each graph that was compiled or served from a cache, its devices."""
    executed: Mapping[str, int] = field(default_factory=dict)
    """Calls, by device, of graphs that the case's own ``torch.compile`` compiled."""
    executed_others: Mapping[str, int] = field(default_factory=dict)
    """Calls of all other compiled graphs, by device: backward graphs that were compiled late,
    packages, and what code of the spec compiled itself.
    """
    dynamo: Traced | None = None
    """What dynamo did with the case's functions; None in runs of before it was recorded."""
    abandoned: Reasons = ()
    """A reason for each frame that dynamo gave up."""
    uncompiled: Reasons = ()
    """Samples of an operator whose compiled call ran eagerly though it had operations, the first
    ones, each with the reason.
    """
    origins: Origins | None = None
    """Where dynamo broke a graph of the case's functions."""
    runtime_calls: int | None = None
    """The fewest calls of the vendor's function that the proof names, in one compiled call; None
    where none were counted.
    """
    choices: tuple[tuple[Choice, ...], ...] = ()
    """What autotuning timed, by tuning."""
    tunings: Tunings = field(default_factory=Tunings)
    """The outcome of every autotuning candidate, by tuned operator of the case's own functions."""
    code_pieces: Annotated[int, {"maximum": 10_000}] = field(default=0, metadata={KEY: "code"})
    """How many pieces of generated code the worker wrote, in addition to its message."""
    code_digests: Annotated[tuple[str, ...], Pieces] = ()
    """The sha256 of each piece as the worker wrote it; empty in runs of before it was recorded."""
    code_graphs: Annotated[tuple[GraphOfCode, ...], Pieces] = ()
    """The graph that each piece of code was generated for."""
    measurements: Mapping[str, Measured] = field(default_factory=dict, metadata={KEY: "measured"})
    """What expectations asked for, by their index: the JSON that each kind's ``measure`` wrote, not
    decoded.
    """
    repetitions: Mapping[str, Annotated[tuple[Repetition, ...], {"maxItems": 1000}]] = field(
        default_factory=dict
    )
    """The repetitions of the step before the last, by the index of the expectation that judges
    each.
    """
    unmeasured: Mapping[str, str] = field(default_factory=dict)
    """Why something could not be measured, by the expectation's index."""
    effects: Effects | None = None
    """Side effects of a call, of backward or of an optimizer's step, compared with those of eager;
    None where they were not compared.
    """
    calls: Mapping[str, SpyCalls] = field(default_factory=dict)
    """The entries of each spy, by name."""
    exit: ChildExit | None = None
    """How the child of a spawn step ended; None for other steps."""
    bench: Bench | None = None
    """The times of a bench step; None for other steps."""

    def executed_for(self, kind: str) -> int:
        """Return how many graphs for a kind of device it ran, whoever compiled them."""
        return self.executed.get(kind, 0) + self.executed_others.get(kind, 0)


@frozen
class StepWithCode(StepFacts):
    """The same with the code that the step generated."""

    code: tuple[str, ...] = ()
    """The pieces, in order."""


@frozen
class Ending:
    """How a worker's process ended."""

    exit_code: int | None = None
    signal: int | None = None
    timed_out: bool = False
    phase: str = ""
    """The last phase that the worker announced."""
    step: int | None = None
    """The last step, from 0; None before the first, and for a number that is none."""


@frozen
class ServiceReport:
    """What a service's own process says of the case that it served: no worker can have written
    it.
    """

    name: str
    answered: Mapping[str, int] = field(default_factory=dict)
    """How often each command was answered without an error, for keys of the form that torch's
    remote caches give theirs.
    """
    foreign: int = 0
    """How many commands were answered for other keys: of another client."""
    problem: str = ""
    """Why it cannot be trusted to have served the case; empty when nothing was wrong."""


@frozen
class Observation:
    """What a worker sent of a case."""

    case_id: str = field(default="", metadata={KEY: "id"})
    digest: str = ""
    """That of the case, as the plan of the worker had it."""
    steps: tuple[StepFacts, ...] = ()
    """Those that were carried out, in order."""
    error: Raised | None = None
    """Why the case could not be carried out."""
    phases: Mapping[str, float] = field(default_factory=dict)
    """Seconds spent in each phase."""


@frozen
class Facts(Observation):
    """What is known of a case that was carried out."""

    steps: tuple[StepWithCode, ...] = ()
    ending: Ending = field(default_factory=Ending)
    is_answered: bool = True
    """Whether the worker sent a message."""
    nonsense: str = ""
    """Why its message, or the code beside it, cannot be judged; empty where they can be."""
    services: tuple[ServiceReport, ...] = ()
    note: str = ""
    """A note about its process for the user."""
    problem: str = ""
    """How the worker broke the protocol; empty if it did not."""
    stderr: str = ""
    """The end of the worker's standard error, with its stack; used only after a timeout or a crash.
    """
