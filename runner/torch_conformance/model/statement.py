"""What a run says of its profile, as a value, and in which words reports say so."""

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum

from torch_conformance.model.diagnostics import Position
from torch_conformance.model.escaping import one_line
from torch_conformance.model.folded_ids import fold
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.values import frozen


class Conformance(Enum):
    """What a run says of a profile, or of one of its levels."""

    CONFORMANT = "CONFORMANT"
    NOT_CONFORMANT = "NOT CONFORMANT"
    INCOMPLETE = "INCOMPLETE"

    @classmethod
    def of(cls, *, failed: bool, missing: bool) -> "Conformance":
        """Return what cases that failed, or were not executed, make of a level or a profile."""
        return cls.NOT_CONFORMANT if failed else cls.INCOMPLETE if missing else cls.CONFORMANT

    @property
    def exit_code(self) -> ExitCode:
        """The exit code of a run with this statement."""
        codes = (ExitCode.OK, ExitCode.FAILED, ExitCode.NOTHING)
        return dict(zip(Conformance, codes, strict=True))[self]


@frozen
class LevelStatement:
    """What a run says of one level."""

    level: str
    conformance: Conformance
    words: str
    """The same, with the number of its waivers: ``CONFORMANT with 15 waivers``."""
    required: int
    executed: int
    passed: int
    waived: int
    flaky: int
    failed: Mapping[str, str] = field(default_factory=dict)
    """The reason of each failed case, by id."""
    not_executed: Mapping[str, str] = field(default_factory=dict)
    """The reason of each case that was not executed, by id."""
    not_required: Mapping[str, str] = field(default_factory=dict)
    """Why a case that the profile requires under a condition is not required on this machine, by
    id.
    """
    optional: Mapping[str, int] = field(default_factory=dict)
    """How many cases that are optional, or not required here, have each outcome; they change no
    statement.
    """


@dataclass(frozen=True, slots=True)
class UsedWaiver:
    """A permitted waiver with the required cases whose failure it waived; of a flaky one, those
    that passed too.
    """

    cases: str
    position: Position
    reason: str
    issue: str
    until: str
    flaky: bool
    used_by: tuple[str, ...]


_SHOWN = 3
"""How many reasons the one line of ``why`` has."""


@frozen
class Statement:
    """What a run says of a profile."""

    profile: str
    version: str
    digest: str
    conformance: Conformance
    words: str
    required: int
    executed: int
    passed: int
    waived: int
    flaky: int
    levels: tuple[LevelStatement, ...]
    waivers: tuple[UsedWaiver, ...] = ()
    problems: tuple[str, ...] = ()
    """Reasons that concern no single case: a torch that the profile is not for, too many waived
    cases.
    """
    remarks: tuple[str, ...] = ()
    """What the statement leaves out: how many cases are not required here, and why; how many are
    waived.
    """
    by_aten: int = 0
    """Of how many required cases ATen computed the whole answer."""
    compiler: str = ""
    """The backend of a profile for any compiler; empty for any other profile, as are the next two.
    """
    proof: str = ""
    """What its entry says that the compiler must compute, and what ATen may."""
    computed: Mapping[str, int] = field(default_factory=dict)
    """How many required cases have each state of the support table."""

    @property
    def about_compiler(self) -> tuple[str, ...]:
        """Who computed the required cases, and what the entry of the backend says; empty for a
        profile that is not for any compiler.
        """
        counts = ", ".join(f"{count} {word}" for word, count in self.computed.items())
        return (
            (f"{self.compiler}: {counts or 'no case was run'}", f"its entry: {self.proof}")
            if self.compiler
            else ()
        )

    @property
    def failed(self) -> Mapping[str, str]:
        """The reason of each failed case of all levels."""
        return self._reasons("failed")

    @property
    def not_executed(self) -> Mapping[str, str]:
        """The reason of each required case that was not executed."""
        return self._reasons("not_executed")

    def _reasons(self, name: str) -> dict[str, str]:
        return dict(pair for level in self.levels for pair in getattr(level, name).items())

    @property
    def why(self) -> str:
        """Why a profile is not CONFORMANT, on one line; empty where it is."""
        if self.conformance is Conformance.CONFORMANT:
            return ""
        by_case = self.failed or self.not_executed
        reasons = Counter(one_line(reason, 200) for reason in by_case.values())
        shown = [f"{count} x {reason}" for reason, count in reasons.most_common(_SHOWN)]
        more = [f"and {len(reasons) - _SHOWN} more reasons"] if len(reasons) > _SHOWN else []
        verb = "failed" if self.failed else "not executed"
        counted = [f"{len(by_case)} of {self.required} required cases {verb}"] if by_case else []
        because = f": {'; '.join([*shown, *more])}" if shown else ""
        words = f"{'; '.join([*self.problems, *counted])}{because}"
        return one_line(f"profile {self.profile} {self.version} is {self.words}: {words}", 2_000)

    @property
    def optional_failures(self) -> str:
        """What the failures of optional cases change; empty where none of them failed."""
        failures = [
            outcome.label
            for outcome in Outcome
            if outcome.is_failure and outcome is not Outcome.NOT_RUN
        ]
        count = sum(level.optional.get(label, 0) for level in self.levels for label in failures)
        cases = f"{count} optional case{'' if count == 1 else 's'} of the profile failed"
        return f"{cases}, which changes neither the statement nor the exit code." if count else ""

    @property
    def remark(self) -> str:
        """Why the statement and the number of failed cases go together; empty where both need no
        explanation.
        """
        sentences = [f"{text}." for text in (self.why, *self.remarks) if text]
        return " ".join(filter(None, [*sentences, self.optional_failures]))

    def lines(self) -> Iterator[str]:
        """Yield the lines of a report for people."""
        yield f"\nprofile {one_line(self.profile)} {one_line(self.version)}, sha256 {self.digest}"
        for level in self.levels:
            optional = ", ".join(f"{count} {label}" for label, count in level.optional.items())
            yield (
                f"  {level.level}  {in_words(level)}{f'; optional: {optional}' if optional else ''}"
            )
        yield from (
            f"  {one_line(remark, 2_000)}"
            for remark in (*self.about_compiler, *self.problems, *self.remarks)
        )
        for group in ("failed", "not executed", "not required here"):
            reasons = self._reasons(group.removesuffix(" here").replace(" ", "_"))
            if reasons:
                yield f"  {group}:"
            for reason in dict.fromkeys(reasons.values()):
                yield f"    {one_line(reason)}"
                ids = fold(case_id for case_id, why in reasons.items() if why == reason)
                yield from (f"      {one_line(line, limit=10_000)}" for line in ids)
        if self.waivers:
            yield "  waivers:"
        for waiver in self.waivers:
            flaky = ", flaky" * waiver.flaky
            words = (
                f"{waiver.position} until {waiver.until}{flaky}, {len(waiver.used_by)} cases: "
                f"{waiver.reason} ({waiver.issue})"
            )
            yield f"    {one_line(words)}"
        yield in_words(self)
        yield from filter(None, [self.optional_failures])

    def properties(self) -> dict[str, str]:
        """Return the properties of a suite of JUnit."""
        counts = ("required", "executed", "passed", "waived", "flaky", "by_aten")
        return {
            "profile": f"{self.profile} {self.version}",
            "profile.sha256": self.digest,
            "statement": self.words,
            **{f"statement.{name}": str(getattr(self, name)) for name in counts},
            "statement.remarks": "; ".join(self.remarks),
            "statement.waivers": " ".join(waiver.issue for waiver in self.waivers),
            **{f"profile.{level.level}": in_words(level, ", ") for level in self.levels},
            **{f"statement.{word}": str(count) for word, count in self.computed.items()},
            **({"statement.proof": self.proof} if self.compiler else {}),
        }


def words_of(conformance: Conformance, waived: int) -> str:
    """Return a conformance with the number of its waivers."""
    is_excused = waived and conformance is Conformance.CONFORMANT
    return conformance.value + f" with {waived} waiver{'s' * (waived > 1)}" * bool(is_excused)


def in_words(part: "LevelStatement | Statement", mark: str = ": ") -> str:
    """Return what is stated, with how many required cases passed, are waived, failed and were not
    executed.
    """
    counts = {"passed": part.passed, "waived": part.waived, "waived as flaky": part.flaky}
    counts |= {"failed": len(part.failed), "not executed": len(part.not_executed)}
    standings = ", ".join(
        f"{count} {word}" for word, count in counts.items() if count or word == "passed"
    )
    return f"{part.words}{mark}{standings} of {part.required} required"
