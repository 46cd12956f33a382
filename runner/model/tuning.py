"""The census of autotuning: each operation that inductor selected a kernel for, and what became of its candidates."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

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
