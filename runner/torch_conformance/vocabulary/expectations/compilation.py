"""What dynamo and Inductor did in a step: ``guards``, ``recompiles``, ``graph_breaks``, ``graph``,
``kernels``.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Annotated, Any, ClassVar, Literal, Self

from torch_conformance.model.case_facts import StepFacts
from torch_conformance.model.expectation import About, Mutant, Reading, Status, Verdict
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.expectations.expectation_base import (
    BadExpectation,
    Conditional,
    Counts,
    allows_zero,
    count_mutants,
    judge_count,
    or_some,
)
from torch_conformance.vocabulary.expectations.filecheck import (
    ALL,
    CHOICE,
    COMMENTED_OUT,
    TRIVIAL,
    WHOLE,
    FileCheck,
    never_written,
)
from torch_conformance.vocabulary.expectations.texts import (
    check_guards,
    check_searched,
    check_specific,
    judge_text,
    text_mutants,
)
from torch_conformance.vocabulary.forms import (
    Count,
    CountsByName,
    Form,
    Keywords,
    Pattern,
    Texts,
    some_of,
)
from torch_conformance.vocabulary.worker_session import Facts, Lookup

COMPILATION = "<compilation>."
"""The beginning of the name of what was recorded of the compiles of a step; no value of a spec can
have this name.
"""


def judge_checks(checks: FileCheck, text: str, facts: Reading) -> Verdict:
    """Judge directives on a text; the leaf is ``checks``."""
    (judged,) = checks.judge(replace(facts, code=(text,)))
    return replace(judged, leaf="checks")


def checks_mutants(
    checks: FileCheck,
    text: str,
    facts: Reading,
    changed: Callable[[str], Reading],
) -> Iterator[Mutant]:
    """Yield the mutants of directives on a text, some of whose words are ``never`` in one.
    ``changed`` makes facts with a text.
    """
    known = {"unknown": facts.measured.get("never", ())}
    for mutant in checks.mutants(replace(facts, code=(text,), measured=known)):
        if mutant.name != TRIVIAL:  # of guards and graphs it is another text
            put = None if mutant.facts is None else changed(mutant.facts.code[0])
            yield replace(mutant, facts=put, leaf="checks")


@frozen
class Reason:
    """What torch says of each of them.

    ``reason: {contains: size mismatch at index 0}``
    """

    form: ClassVar[Keywords] = some_of("contains", "matches")
    contains: Texts | None = None
    """Parts of it, in any order."""
    matches: Pattern | None = None
    """A regular expression, searched in it. For example ``size mismatch at index [01]``."""


@frozen
class _Events(Conditional):
    """What is expected of events of a step that have a reason."""

    form = some_of("count", "reason")
    is_of_compiles = True
    may_be_blessed = True
    needs_result = False
    patterns = (("reason", "matches"),)
    what: ClassVar[str]
    """The events, in words."""
    count: Count = None
    """How many; at least 1 when absent."""
    reason: Annotated[Mapping[str, Any], Form({"$ref": "#/$defs/reason"})] | None = None
    """What each of them has as its reason."""

    @classmethod
    def check(cls, body: Json) -> None:
        """Refuse a wrong pattern, and a reason where none may occur."""
        if "reason" in body:
            try:
                check_searched(body["reason"].get("matches"), "matches")
                check_specific(body["reason"])
            except BadExpectation as error:
                raise BadExpectation(str(error), error.hint, "reason", *error.path) from error
            if body.get("count") == 0:
                raise BadExpectation(
                    f"a reason of 0 {cls.what}", "expect at least 1, or remove the reason", "reason"
                )

    def why_hollow(self, measured: Facts) -> str:
        """Return why the facts say nothing where they show no event; empty where they do."""
        raise NotImplementedError

    def most(self, facts: Reading) -> float | None:
        """Return how many there can be; None where it is not known."""
        return None

    def judged(self, facts: Reading) -> list[Verdict]:
        """Judge how many there were, then the reason of each.

        That there were none may mean nothing.
        """
        if not facts.measured["recorded"]:
            return [
                Verdict.error(
                    f"the {self.what} of the step", "the backend of the case compiles nothing"
                )
            ]
        events = facts.measured["events"]
        reasons = [event["reason"] for event in events[:_MOST]]
        reasons = [
            reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}..."
            for reason in reasons
        ]
        shown = [
            f"{event['frame']}: {reason}" for event, reason in zip(events, reasons, strict=False)
        ]
        more = [f"and {len(events) - _MOST} more"] if len(events) > _MOST else []
        counted = judge_count(or_some(self.count), facts.measured["count"], facts, leaf="count")
        expected = f"{self.what}: {counted.expected.removeprefix('count ')}"
        judged = [replace(counted, expected=expected, detail="\n".join([*shown, *more]))]
        if self.reason is not None:
            contains, pattern = self.reason.get("contains"), self.reason.get("matches")
            of_reason = Verdict.failed(f"{self.what} with a reason", "there were none")
            for event in events:
                of_reason = judge_text(
                    event["reason"], contains, pattern, what=f"a reason in {event['frame']}"
                )
                if of_reason.status is not Status.HELD:
                    break
            judged.append(replace(of_reason, leaf="reason"))
        if all(judgement.status is Status.HELD for judgement in judged) and (
            why := self.why_hollow(facts.measured)
        ):
            return [Verdict.error(expected, why)]
        return judged

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Yield more of them and fewer, and each reason without what is expected of it."""
        events = facts.measured["events"]
        yield from count_mutants(
            or_some(self.count),
            facts.measured["count"],
            facts,
            lambda number: facts.with_measured(count=int(number)),
            leaf="count",
            most=self.most(facts),
        )
        reason = self.reason or {}
        for index, event in enumerate(events):

            def changed(text: str, index: int = index, event: Mapping[str, str] = event) -> Reading:
                return facts.with_measured(
                    events=[*events[:index], {**event, "reason": text}, *events[index + 1 :]]
                )

            for mutant in text_mutants(
                event["reason"], reason.get("contains"), reason.get("matches"), changed, "reason"
            ):
                yield replace(mutant, where=f"{event['frame']}: {mutant.where}")


_MOST, _LONGEST = 10, 1_000
"""Events in a detail, and characters of a reason: torch's own reasons end with a link."""


@frozen
class Guards(Conditional):
    r"""Guards of the frames of the case's own functions that Dynamo compiled in the step.

    Each is a line 'TYPE: CODE', as TORCH_LOGS=guards shows it, without the line of the user's code
    behind it. Number and text differ between versions of torch.

    ``guards: {contains: "LAMBDA_GUARD: 2 <= L['x'].size()[0]"}``
    ``guards: {count: {min: 1}, checks: "CHECK: TENSOR_MATCH\nCHECK-NOT: DUPLICATE_INPUT\n"}``
    """

    about = About.DYNAMO
    form = some_of("count", "contains", "matches", "checks")
    patterns = (("checks",), ("matches",))
    is_of_compiles = True
    measure = staticmethod(
        lambda arguments, value: {
            **value(f"{COMPILATION}guards"),
            "never": never_written(arguments["words"]),
        }
    )
    needs_result = False
    count: Count = None
    """How many guards."""
    contains: Texts | None = None
    """Parts of their text, in any order."""
    matches: Pattern | None = None
    """A regular expression, searched in their text.

    For example ``"TENSOR_MATCH: check_tensor.L..x... .*size=.None"``.
    """
    checks: Annotated[FileCheck, Form({"type": "string"})] | None = None
    r"""LLVM FileCheck directives on their text. For example ``"CHECK: L['x'].size()[0]\n"``."""

    @classmethod
    def read(cls, body: Json) -> Self:
        """Read parts, pattern and directives; raise ``BadExpectation``."""
        check_searched(body.get("matches"), "matches")
        check_specific({"matches": body.get("matches")})
        # a guard is no program: a mark of a comment in it is a part of it
        checks = (
            FileCheck.parse({"checks": body["checks"], "text": WHOLE}) if "checks" in body else None
        )
        check_guards(body, checks.checks if checks else None)
        return cls(**{**body, "checks": checks})

    def measurement(self) -> Facts:
        """The worker sends also which of the forbidden words nothing emits."""
        return {"words": self.checks.forbidden if self.checks else []}

    def judged(self, facts: Reading) -> Iterator[Verdict]:
        """Judge the number of guards, then their text."""
        texts, count, what = facts.measured["texts"], facts.measured["count"], "guards of the step"
        why = facts.measured["problem"]
        if not facts.measured["frames"]:
            why = (
                "dynamo compiled no frame of the case's function in the step: there are no new "
                "guards"
            )
        if why:
            yield Verdict.error(what, why)
            return
        if self.count is not None:
            yield judge_count(self.count, count, facts, leaf="count")
        if self.contains is None and self.matches is None and self.checks is None:
            return
        if len(texts) < count:
            yield Verdict.error(what, f"only {len(texts)} of {count} guards were recorded")
            return
        text = "\n".join(texts)
        if self.contains is not None:
            judged = judge_text(text, self.contains, None, what="guards")
            yield replace(judged, leaf="contains")
        if self.matches is not None:
            yield replace(judge_text(text, None, self.matches, what="guards"), leaf="matches")
        if self.checks is not None:
            yield judge_checks(self.checks, text, facts)

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """More guards and fewer; the text without what is expected in it."""
        if self.count is not None:
            observed = facts.measured["count"]
            yield from count_mutants(
                self.count,
                observed,
                facts,
                lambda number: facts.with_measured(count=int(number)),
                leaf="count",
                trivial=_GUARDS,
            )
        text, put = (
            "\n".join(facts.measured["texts"]),
            lambda text: facts.with_measured(texts=[text], count=1),
        )
        yield from text_mutants(text, self.contains, None, put, "contains")
        yield from text_mutants(text, None, self.matches, put, "matches")
        if self.checks is not None:
            mutants = checks_mutants(self.checks, text, facts, put)
            yield from (mutant for mutant in mutants if mutant.name != COMMENTED_OUT)


_GUARDS = 10
"""How many guards ``x + 1`` has in torch 2.13."""

_AGAIN = (
    "so nothing could be compiled again: judge a later call of the same function: add a call "
    "above this step, or remove recompiles here"
)


class Recompiles(_Events):
    """How often Dynamo compiled frames of the case's own functions again in the step, because the
    guards of their compiled code failed.

    ``recompiles: {count: 1, reason: {contains: size mismatch at index 0}}``
    ``recompiles: {count: 0}``
    """

    about = About.DYNAMO
    measure = staticmethod(lambda arguments, value: value(f"{COMPILATION}recompiles"))
    what = "recompiles"

    def why_hollow(self, measured: Facts) -> str:
        """That there were none means something only where compiled code was found again by its
        guards.
        """
        if measured["count"] or measured["reused"]:
            return ""
        if measured["frames"]:
            return f"dynamo compiled the functions of the step for the first time, {_AGAIN}"
        return f"no code that dynamo had compiled ran in the step, {_AGAIN}"

    def most(self, facts: Reading) -> float | None:
        """One for each compiled code that ran or no longer fitted."""
        return max(1, int(facts.measured["count"]) + int(facts.measured["reused"]))


class GraphBreaks(_Events):
    """Graph breaks in frames of the case's own functions that Dynamo compiled in the step, as
    torch._dynamo.explain counts them.

    Frames that it left to Python because it cannot continue after the break count too. Count 0 of a
    step in which Dynamo traced no frame is an ERROR.

    ``graph_breaks: {count: 1, reason: {contains: User-inserted graph break}}``
    ``graph_breaks: {count: 0}``
    """

    about = About.DYNAMO
    measure = staticmethod(lambda arguments, value: value(f"{COMPILATION}graph_breaks"))
    what = "graph breaks"

    @property
    def claims_capture(self) -> bool:
        """Where there must be some."""
        return not allows_zero(or_some(self.count))

    def why_hollow(self, measured: Facts) -> str:
        """That there are none means something only where dynamo traced a frame in the step."""
        if measured["frames"]:
            return ""
        return (
            "dynamo traced no frame of the case's functions in the step: the code of an earlier "
            "compile ran, and may have graph breaks"
        )

    def most(self, facts: Reading) -> float | None:
        """One for each frame that dynamo traced: each ends at its first break."""
        return max(1, int(facts.measured["frames"]), int(facts.measured["count"]))


def measure_graph(arguments: Facts, value: Lookup) -> Json:
    """Measure in the worker: the graphs of the stage, the operators that torch does not have, and
    those that it decomposes.
    """
    recording, stage = value(f"{COMPILATION}graph"), arguments["stage"]
    unknown: list[Json] = [name for name in arguments["ops"] if not recording["is_known"](name)]
    return {
        "available": recording["is_available"](stage),
        "graphs": recording["stages"].get(stage, []),
        "unknown": unknown,
        "never": never_written(arguments["words"]),
        "decomposed": [
            name
            for name in arguments["ops"]
            if stage in _OF_OPERATORS and recording["is_decomposed"](name)
        ],
    }


@frozen
class GraphOfStage(Conditional):
    """Graphs that were made in the step while the case's own functions were compiled, after the
    passes of a stage.

    A step in which no graph of the stage was made, as after a cache hit, is an ERROR.

    ``graph: {stage: post_grad, ops: {aten.mm.default: 1}}``
    ``graph: {stage: dynamo, count: 2, index: 0, checks: "CHECK: torch.sin"}``
    """

    kind = "graph"
    form = some_of("count", "ops", "checks")
    patterns = (("checks",),)
    instead = "name what only the graph of this function has, or count its operators"
    is_of_compiles = True
    measure = staticmethod(measure_graph)
    needs_result = False
    stage: Literal["dynamo", "pre_grad", "joint", "post_grad"]
    """dynamo: what Dynamo gives to the backend; pre_grad: before AOTAutograd; joint: forward and
    backward in one graph, or only the forward where nothing needs a gradient; post_grad: what
    Inductor lowers."""
    index: Annotated[int | str, CHOICE, Form({"title": "choice of graph"})] | None = None
    """Which of several graphs ops and checks are about: its index in the order of compilation, or
    all. The only one when absent. For example ``all``, ``0``."""
    count: Count = None
    """How many graphs of this stage were made in the step."""
    ops: CountsByName = field(default_factory=dict)
    """How many nodes call each operator, in graphs within the graph too. A name without an overload
    counts all of its overloads; a name that torch does not have is an ERROR. For example
    ``{aten.mm.default: 1, aten.relu: 0}``."""
    checks: Annotated[FileCheck, Form({"type": "string"})] | None = None
    r"""LLVM FileCheck directives on the graph as torch prints it, with shapes, strides and devices,
    without comments. For example ``"CHECK: torch.ops.aten.mm.default\nCHECK-NOT:
    torch.ops.aten.t.default\n"``."""

    @property
    def subject(self) -> About:
        """Dynamo, where the graph is what dynamo gives to the compiler."""
        return About.DYNAMO if self.stage == "dynamo" else About.INDUCTOR

    @classmethod
    def read(cls, body: Json) -> "GraphOfStage":
        """Read the directives; raise ``BadExpectation``."""
        if "index" in body and not body.keys() & {"ops", "checks"}:
            raise BadExpectation(
                "'index' chooses a graph of which nothing is expected", "add ops or checks", "index"
            )
        checks = FileCheck.parse({"checks": body["checks"]}) if "checks" in body else None
        return cls(**{**body, "checks": checks})

    def measurement(self) -> Facts:
        """The worker sends the graphs of the stage, and which of the operators torch does not
        have.
        """
        words = self.checks.forbidden if self.checks else []
        return {"stage": self.stage, "ops": list(self.ops), "words": words}

    def judged(self, facts: Reading) -> Iterator[Verdict]:
        """Judge the number of graphs, then each operator and the directives for the chosen
        graph.
        """
        what = f"the {self.stage} graph of the step"
        graphs = facts.measured["graphs"]
        if not facts.measured["available"]:
            yield Verdict.error(what, f"this torch has no graphs of the stage {self.stage}")
            return
        if not graphs:
            why = (
                "no graph of the case's function was made at this stage: it was compiled before, "
                "served from a cache, or not compiled"
            )
            yield Verdict.error(what, why)
            return
        if self.count is not None:
            yield judge_count(self.count, len(graphs), facts, leaf="count")
        if not self.ops and not self.checks:
            return
        chosen = self._choose(graphs)
        if isinstance(chosen, str):
            yield Verdict.error(chosen, f"{len(graphs)} graphs")
            return
        if problem := next((graph["problem"] for graph in chosen if graph["problem"]), ""):
            yield Verdict.error(what, problem)
            return
        yield from self._judged_operators(facts, chosen)
        if self.checks is not None:
            if any(graph["cut"] for graph in chosen):
                why = "the graph is too large: its text was cut off"
                yield Verdict.error("the text of the graph", why, leaf="checks")
            else:
                yield judge_checks(self.checks, _graph_text(chosen), facts)

    def _judged_operators(self, facts: Reading, chosen: Sequence[Facts]) -> Iterator[Verdict]:
        """Judge how often each operator is in the chosen graphs."""
        operators = "\n".join(
            f"{name}: {count}" for graph in chosen for name, count in sorted(graph["ops"].items())
        )[:4000]
        for name, count in self.ops.items():
            leaf = f"ops {name}"
            decomposed = facts.measured.get("decomposed", ())
            if name in facts.measured["unknown"]:
                word = name.rpartition(".")[2]
                similar = {op for graph in chosen for op in graph["ops"] if word in op.split(".")}
                hint = (
                    f"the graph has {', '.join(sorted(similar))}"
                    if similar
                    else "the graph's operators are listed below"
                )
                why = f"torch has no operator {name}; {hint}"
                yield Verdict.error(leaf, why, leaf=leaf, detail=operators)
            elif why := _of_another_level(self.stage, name, chosen, decomposed):
                yield Verdict.error(leaf, why, leaf=leaf)
            else:
                number = _count_of_nodes(chosen, name)
                judged = judge_count(count, number, facts, leaf=leaf)
                yield replace(judged, detail=operators)

    def is_reached(self, leaf: str, steps: Sequence[StepFacts], others: Sequence[Self]) -> bool:
        """A graph of the case has an operator of the name, the expectation counts others, or the
        spec expects another number elsewhere.
        """
        name = leaf.removeprefix("ops ")
        word = (name.partition("aten.")[2] or name.rpartition(".")[2]).partition(".")[0]
        return (
            leaf == "count"
            or not all(map(allows_zero, self.ops.values()))
            or any(other.ops.get(name, 0) != 0 for other in others)
            or any(
                word in known.split(".")
                for facts in steps
                for measured in facts.measurements.values()
                if isinstance(measured, Mapping)
                for graph in measured.get("graphs", ())
                for known in graph["ops"]
            )
        )

    def _choose(self, graphs: Sequence[Facts]) -> Sequence[Facts] | str:
        """Return the chosen graphs, or what was expected instead of these."""
        if self.index == ALL:
            return graphs
        if self.index is None:
            return graphs if len(graphs) == 1 else "one graph, or index: INDEX, or index: all"
        at = int(self.index)
        return graphs[at : at + 1] or f"a graph with the index {at}"

    def mutants(self, facts: Reading) -> Iterator[Mutant]:
        """Another number of graphs; each operator more often and less often; the mutants of the
        directives.
        """
        graphs = facts.measured["graphs"]
        if self.count is not None:

            def more_or_fewer(number: float) -> Reading:
                return facts.with_measured(
                    graphs=[*graphs, *[graphs[-1]] * int(number)][: int(number)]
                )

            yield from count_mutants(
                self.count, len(graphs), facts, more_or_fewer, leaf="count", trivial=1
            )
        chosen = self._choose(graphs)
        if isinstance(chosen, str):
            return
        at = int(self.index) if isinstance(self.index, int) else 0
        before, graph, after = graphs[:at], graphs[at], graphs[at + 1 :]
        for name, count in self.ops.items():
            observed = _count_of_nodes(chosen, name)

            def with_operator(number: float, name: str = name, observed: int = observed) -> Reading:
                ops = {**graph["ops"], name: graph["ops"].get(name, 0) + int(number) - observed}
                return facts.with_measured(graphs=[*before, {**graph, "ops": ops}, *after])

            yield from count_mutants(
                count,
                observed,
                facts,
                with_operator,
                leaf=f"ops {name}",
                trivial=1 if name == "placeholder" else None,
            )
        if self.checks is not None:

            def with_text(text: str) -> Reading:
                # the directives are matched against one text: one graph takes the place of the
                # chosen ones
                return facts.with_measured(
                    graphs=[*before, {**graph, "text": text}, *graphs[at + len(chosen) :]]
                )

            yield from checks_mutants(self.checks, _graph_text(chosen), facts, with_text)
            yield from (
                replace(mutant, leaf="checks")
                for mutant in self.checks.trivial_mutants(self.stage, with_text)
            )


def _count_of_nodes(graphs: Sequence[Facts], name: str) -> int:
    """Return how many nodes call an operator; a name without an overload stands for all
    overloads.
    """
    return sum(
        count
        for graph in graphs
        for op, count in graph["ops"].items()
        if op == name or op.startswith(f"{name}.")
    )


_OF_OPERATORS = ("joint", "post_grad")
"""The stages whose nodes call operators; those of the others call functions, as the user's code
does.
"""


def _of_another_level(
    stage: str, name: str, graphs: Sequence[Facts], decomposed: Sequence[str]
) -> str:
    """Return why a name that occurs nowhere cannot occur at a stage; empty if it can."""
    if _count_of_nodes(graphs, name):
        return ""
    level = name.partition(".")[0]
    if name in decomposed:
        return (
            f"torch decomposes {name}, or makes a functional operator of it, before the {stage} "
            "graph: name what it becomes, or another stage"
        )
    if stage in _OF_OPERATORS:
        if level in _OF_FUNCTIONS and not name.startswith(_OF_EVERY_STAGE):
            return (
                f"the nodes of a {stage} graph call operators, such as aten.mm.default, and never "
                f"{name}"
            )
        return ""
    if level in _LOWERED and not any(
        op.startswith(f"{level}.") for graph in graphs for op in graph["ops"]
    ):
        return (
            f"the nodes of this {stage} graph call functions, such as torch.sort or "
            f"operator.matmul, and no operator of {level}"
        )
    return ""


_OF_FUNCTIONS = ("torch", "Tensor")
_OF_EVERY_STAGE = ("torch.sym_", "torch.ops.")
_LOWERED = ("aten", "prims")


def _graph_text(graphs: Sequence[Facts]) -> str:
    texts: list[str] = [graph["text"] for graph in graphs]
    return (
        texts[0] if len(texts) == 1 else "\n".join(texts)
    )  # join would remove the mark of a text without comments


KINDS = ("fused", "extern", "user")
"""The kinds of kernel calls; ``launched`` is their sum."""


@frozen
class Kernels(Conditional, Counts):
    """Kernel calls of the step, and kernels compiled in it, of the case's own functions, counted
    while the generated wrapper runs.

    What cannot be counted is an ERROR: a wrapper in C++, a replayed CUDA graph, a package that was
    compiled ahead of time.

    ``kernels: {launched: 1, compiled: 1}``
    ``kernels: {fused: 1, extern: {max: 1}}``
    """

    form = some_of("launched", *KINDS, "compiled")
    is_of_compiles = True
    may_be_blessed = True
    needs_python_wrapper = True
    measure = staticmethod(lambda arguments, value: value(f"{COMPILATION}kernels"))
    needs_result = False
    of_trivial_function: ClassVar[Mapping[str, int]] = {"launched": 1, "compiled": 1}
    launched: Count = None
    """All kernel calls: fused, extern and user together."""
    fused: Count = None
    """Calls of kernels that Inductor generated, templates included."""
    extern: Count = None
    """Calls of operators and of library kernels: extern_kernels.mm, torch.ops.aten.sort, copy_.

    Views do not count.
    """
    user: Count = None
    """Calls of Triton kernels that the spec's own Python defines."""
    compiled: Count = None
    """Distinct kernels that Inductor generated in the step. A graph that is served from a cache has
    none; neither has the second call of a compiled function."""

    def judged(self, facts: Reading) -> Iterator[Verdict]:
        """Judge each count on its own. What could not be counted is an ERROR."""
        measured = facts.measured
        nothing_ran = "the step ran no compiled graph of the case's function"
        for key, count in self.by_leaf.items():
            is_of_compiles = key == "compiled"
            why = "; ".join(measured["uncompiled" if is_of_compiles else "uncounted"])
            if not measured["recorded"]:
                why = "the backend of the case compiles nothing"
            elif not why and not measured["ran"] and not is_of_compiles:
                why = nothing_ran
            number = None if why else self.number(facts, key)
            judged = judge_count(count, number, facts, leaf=key, absent=why)
            nothing_was_made = is_of_compiles and not measured["compiled"] and not measured["ran"]
            if judged.status is Status.HELD and nothing_was_made:
                judged = Verdict.error(judged.expected, nothing_ran, leaf=key)
            if not why and not is_of_compiles:
                judged = replace(judged, detail="\n".join(measured["names"][:50]))
            yield judged

    def number(self, facts: Reading, leaf: str) -> float | None:
        """Return how many kernels were called of a kind, or compiled."""
        if leaf == "compiled":
            return int(facts.measured["compiled"])
        return sum(
            int(facts.measured["launched"][kind])
            for kind in (KINDS if leaf == "launched" else (leaf,))
        )

    def with_number(self, facts: Reading, leaf: str, number: float) -> Reading:
        """Return the facts with more kernels or fewer."""
        if leaf == "compiled":
            return facts.with_measured(compiled=int(number))
        launched = facts.measured["launched"]
        # a change of the sum is a change of the fused kernels, whatever their number is
        changed = (
            {"fused": launched["fused"] + int(number) - sum(launched.values())}
            if leaf == "launched"
            else {leaf: int(number)}
        )
        return facts.with_measured(launched={**launched, **changed})
