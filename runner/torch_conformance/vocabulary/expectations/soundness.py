"""``sound``: guards and caches see each fact that the answer of a call depends on."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Annotated

from torch_conformance.model.expectation import About, Mutant, Reading, Verdict
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.additional_calls import Repeated
from torch_conformance.vocabulary.expectations.expectation_base import OUTPUT, BadExpectation
from torch_conformance.vocabulary.forms import Boolean, ValueName, among, one_of_keys
from torch_conformance.vocabulary.worker_session import Facts

UNSOUND, WRONG, SOUND, UNOBSERVED = "unsound", "wrong anew", "sound", "unobserved"
"""What became of a fact; a fact may also be "not tried"."""

_DOCS = "https://docs.pytorch.org/docs/main"

LIMITS: Mapping[str, str] = {
    "module_hooks": f"{_DOCS}/user_guide/torch_compiler/torch.compiler_nn_module.html",
    "freezing": f"{_DOCS}/user_guide/torch_compiler/torch.compiler_inductor_freezing.html",
    "allow_in_graph": f"{_DOCS}/generated/torch.compiler.allow_in_graph.html",
}
"""Limits that torch documents, with their documents: a fact that is subject to one does not
fail."""


def reports(measured: Facts) -> Iterator[tuple[bool, str]]:
    """Yield for each wrong answer whether it is one of guards or caches, and its words."""
    for row in measured["facts"]:
        if row["fate"] == WRONG:
            yield (
                False,
                f"{row['fact']}: {row['difference']}; a new compile with empty caches too: "
                "a failure of close",
            )
        elif row["fate"] == UNSOUND and not row["limit"]:
            why = f"{'recompiled' if row['recompiled'] else 'no recompile'}; guards that name it: "
            why += ", ".join(row["guards"]) or "none"
            if row.get("own"):
                why += f"; on aot_eager; on the backend of the case: {row['own']}"
            if "cache" in row:
                key = "".join(row["keys"][:1])
                why = f"{row['cache']}, key {key}, for both values of {row['fact']}"
            yield True, f"{row['fact']}: {row['difference']}; {why}"


def summary(measured: Facts) -> str:
    """Return how many facts had each fate."""
    fates = Counter(
        f"documented limits ({row['limit']}: {LIMITS[row['limit']]})"
        if row["limit"] and row["fate"] == UNSOUND
        else row["fate"]
        for row in measured["facts"]
    )
    fates["left for lack of time"] = measured["left"]
    return ", ".join(f"{count} {fate}" for fate, count in sorted(fates.items()) if count)


@frozen
class Sound(Repeated):
    """After one change between two calls, the compiled function gives eager's answer.

    The function is called once, and each fact is tried in a fork after it: the change, then eager
    and the compiled function. A difference is compiled again in a fork with empty caches: an
    answer that is wrong there too is reported as a failure of ``close``. The case has one thread.
    Guards are tried on ``aot_eager``; where something differs, the backend of the case is tried
    too. A fact without an effect (eager's answer stays, and nothing is compiled again) is not
    observed, and a step in which no fact was observed is an ERROR.

    ``sound: {vary: all}``
    ``sound: {vary: python}``
    ``sound: {change: redefine, processes: true}``
    """

    form = one_of_keys("vary", "change")
    about = About.ANYTHING
    needs_one_thread = True
    measure = staticmethod(lambda arguments, again: again.varied(arguments))
    vary: Annotated[str, among("all", "arguments", "torch", "python")] = ""
    """Which facts change: ``arguments`` (dtype, sizes, strides, aliases), ``torch`` (its global
    state), ``python`` (values that the bytecode of the function reads), or ``all``. For example
    ``all``.
    """
    change: ValueName = ""
    """A function of the prelude that makes the change in place of a fact. For example
    ``redefine``.
    """
    processes: Boolean = False
    """Whether the change is between new processes with one cache on disk: one fills it, a second
    must have a hit, and a third has the change. For example ``true``.
    """

    @classmethod
    def check(cls, body: Json) -> None:
        """Raise ``BadExpectation`` for a change that is an empty name."""
        if body.get("change") == "":
            raise BadExpectation("the change has no name", "name a function", "change")

    @property
    def names(self) -> tuple[str, ...]:
        """The step's result, and the function that makes the change."""
        return (OUTPUT, *filter(None, (self.change,)))

    @property
    def expected(self) -> str:
        """What is expected, in words."""
        what = f"change {self.change}" if self.change else f"facts of {self.vary}"
        return f"eager's answers after {what}{' between processes' * self.processes}"

    def measurement(self) -> Facts:
        """The worker tries these facts."""
        return {"vary": self.vary, "change": self.change, "processes": self.processes}

    def judged(self, facts: Reading) -> list[Verdict]:
        """Judge each fact: a waiver must name each that fails."""
        if not facts.measured.get("facts"):
            return Repeated.judged(self, facts)
        found = [Verdict.failed(self.expected, words) for _, words in reports(facts.measured)]
        return found or [self.judged_calls(facts)]

    def judged_calls(self, facts: Reading) -> Verdict:
        """Judge facts without a wrong answer: one must have been observed."""
        found = summary(facts.measured)
        if facts.measured["left"]:
            return Verdict.error(self.expected, f"not every fact was tried: {found}")
        if all(row["fate"] != SOUND for row in facts.measured["facts"]):
            why = f"no fact was observed: {found or 'the call has none'}"
            return Verdict.error(self.expected, why)
        return Verdict.passed(self.expected, found)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """A fact that no guard saw, and none that was observed."""
        rows = facts.measured["facts"]
        for name, fate in (("a stale answer", UNSOUND), ("no effect", UNOBSERVED)):
            changed = [{**row, "fate": fate, "limit": ""} for row in rows]
            yield Mutant(name, facts.with_measured(facts=changed))
