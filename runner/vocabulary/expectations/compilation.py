"""What dynamo and Inductor did in a step: ``guards``, ``recompiles``, ``graph_breaks``, ``graph``, ``kernels``."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

from runner.core.conditions import Surroundings
from runner.core.expectation import Judgement, Mutant, Status, StepFacts
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import (
    COUNT_MUTATIONS,
    BadExpectation,
    Conditional,
    Recorded,
    check_count,
    count_mutants,
    judge_count,
)
from runner.vocabulary.expectations.filecheck import ALL, COMMENTED_OUT, WHOLE, FileCheck
from runner.vocabulary.expectations.texts import (
    TEXT_MUTATIONS,
    check_guards,
    check_specific,
    check_specific_pattern,
    check_text,
    judge_text,
    parts_of,
    text_mutants,
)

COMPILATION = "<compilation>."
"""The beginning of the name of what was recorded of the compiles of a step; no value of a spec can have this name."""

AT_LEAST_ONE = {"min": 1}


def check_counts(body: Mapping[str, Any], *keys: str) -> None:
    """Check the counts at some keys; raise ``BadExpectation``."""
    for key in keys:
        if key in body:
            check_count(body[key], key)


def judge_checks(checks: FileCheck, text: str, here: Surroundings) -> Judgement:
    """Judge directives on a text; the leaf is ``checks``."""
    (judged,) = checks.judge(StepFacts(code=(text,)), here)
    return replace(judged, leaf="checks")


def checks_mutants(checks: FileCheck, text: str, here: Surroundings, changed: Callable[[str], StepFacts]) -> Iterator[Mutant]:
    """Yield the mutants of directives. ``changed`` makes facts with a text."""
    for mutant in checks.mutants(StepFacts(code=(text,)), here):
        facts = None if mutant.facts is None else changed(mutant.facts.code[0])
        yield replace(mutant, facts=facts, leaf="checks")


@dataclass(frozen=True, slots=True, kw_only=True)
class Events(Recorded, Conditional):
    """What is expected of events of a step that have a reason: ``{count: 1, reason: {contains: TEXT}}``. A kind of them is a subclass."""

    kind: ClassVar[str]
    what: ClassVar[str]
    """The events, in words."""
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, *TEXT_MUTATIONS)
    count: Any = None
    reason: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> Self:
        """Read count and reason; raise ``BadExpectation``."""
        made = cls(**body)
        made._check()
        return made

    @property
    def _wanted(self) -> tuple[tuple[str, ...], str | None]:
        """The parts and the pattern of a reason."""
        reason = self.reason or {}
        return parts_of(reason.get("contains")), reason.get("matches")

    def _check(self) -> None:
        """Raise ``BadExpectation`` for a wrong count or pattern, and for a reason where none may occur."""
        if self.count is not None:
            check_counts({"count": self.count}, "count")
        if self.reason is not None:
            try:
                check_text(self.reason)
                check_specific(self.reason)
            except BadExpectation as error:
                raise BadExpectation(str(error), error.hint, path=("reason", *error.path)) from error
            if self.count == 0:
                raise BadExpectation(f"a reason of 0 {self.what}", "expect at least 1, or remove the reason", path=("reason",))

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge how many there were, then the reason of each."""
        if not facts.measured["recorded"]:
            return [Judgement.error("the backend of the case compiles nothing", expected=f"the {self.what} of the step")]
        events = facts.measured["events"]
        required = AT_LEAST_ONE if self.count is None else self.count
        judged = judge_count(required, facts.measured["count"], here, leaf="count", absent="")
        counted = replace(judged, expected=f"{self.what}: {judged.expected.removeprefix('count ')}", detail=_shown(events))
        return [counted] if self.reason is None else [counted, self._judge_reasons(events)]

    def _judge_reasons(self, events: Sequence[Mapping[str, str]]) -> Judgement:
        assert self.reason is not None
        judged = Judgement.failed(expected=f"{self.what} with a reason", observed="there were none", leaf="reason")
        for event in events:
            text = event["reason"]
            judged = judge_text(
                text, parts_of(self.reason.get("contains")), self.reason.get("matches"), what=f"a reason in {event['frame']}"
            )
            judged = replace(judged, leaf="reason")
            if judged.status is not Status.HELD:
                break
        return judged

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Yield more of them and fewer, and each reason without what is expected of it."""
        required, events = AT_LEAST_ONE if self.count is None else self.count, facts.measured["events"]
        observed = facts.measured["count"]
        yield from count_mutants(required, observed, here, lambda number: facts.with_measured(count=int(number)), leaf="count")
        for index, event in enumerate(events if self.reason is not None else ()):
            for mutant in text_mutants(event["reason"], *self._wanted, _Changed(facts, index)):
                yield replace(mutant, leaf="reason", where=f"{event['frame']}: {mutant.where}")


@dataclass(frozen=True, slots=True)
class _Changed:
    """Makes facts in which one event has another reason."""

    facts: StepFacts
    index: int

    def __call__(self, text: str) -> StepFacts:
        events = [{**event, "reason": text} if at == self.index else event for at, event in enumerate(self.facts.measured["events"])]
        return self.facts.with_measured(events=events)


def _shown(events: Sequence[Mapping[str, str]]) -> str:
    more = [f"and {len(events) - _MOST} more"] if len(events) > _MOST else []
    return "\n".join([*(f"{event['frame']}: {_cut(event['reason'])}" for event in events[:_MOST]), *more])


def _cut(reason: str) -> str:
    return reason if len(reason) <= _LONGEST else f"{reason[: _LONGEST - 3]}..."


_MOST, _LONGEST = 10, 1_000
"""Events in a detail, and characters of a reason: torch's own reasons end with a link."""


_OF_CHECKS = tuple(name for name in FileCheck.mutations if name not in (COMMENTED_OUT, *TEXT_MUTATIONS))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guards(Recorded, Conditional):
    """``guards: {contains: "L['x'].size()[0]", checks: "CHECK-NOT: DUPLICATE"}``."""

    kind: ClassVar[str] = "guards"
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, *TEXT_MUTATIONS, *_OF_CHECKS)
    count: Any = None
    contains: str | list[str] | None = None
    matches: str | None = None
    checks: FileCheck | None = None

    @classmethod
    def parse(cls, body: Any) -> "Guards":
        """Read count, parts, pattern and directives; raise ``BadExpectation``."""
        check_counts(body, "count")
        check_text(body)
        check_specific_pattern(body, "matches")
        # a guard is no program: a mark of a comment in it is a part of it
        checks = FileCheck.parse({"checks": body["checks"], "text": WHOLE}) if "checks" in body else None
        check_guards(body, checks.checks if checks else None)
        return cls(**{**body, "checks": checks})

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the number of guards, then their text."""
        found, what = facts.measured, "guards of the step"
        if not found["frames"]:
            why = "dynamo compiled no frame of the case's function in the step: there are no new guards"
            return [Judgement.error(why, expected=what)]
        if found["problem"]:
            return [Judgement.error(found["problem"], expected=what)]
        judged = [] if self.count is None else [judge_count(self.count, found["count"], here, leaf="count", absent="")]
        if self.contains is None and self.matches is None and self.checks is None:
            return judged
        if len(found["texts"]) < found["count"]:
            return [*judged, Judgement.error(f"only {len(found['texts'])} of {found['count']} guards were recorded", expected=what)]
        text = _guards_text(facts)
        if self.contains is not None:
            judged.append(replace(judge_text(text, parts_of(self.contains), None, what="guards"), leaf="contains"))
        if self.matches is not None:
            judged.append(replace(judge_text(text, (), self.matches, what="guards"), leaf="matches"))
        return judged if self.checks is None else [*judged, judge_checks(self.checks, text, here)]

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """More guards and fewer; the text without what is expected in it."""
        if self.count is not None:
            observed = facts.measured["count"]
            yield from count_mutants(self.count, observed, here, lambda number: facts.with_measured(count=int(number)), leaf="count")
        text, put = _guards_text(facts), lambda text: facts.with_measured(texts=[text], count=1)
        for mutant in text_mutants(text, parts_of(self.contains), None, put):
            yield replace(mutant, leaf="contains")
        for mutant in text_mutants(text, (), self.matches, put):
            yield replace(mutant, leaf="matches")
        if self.checks is not None:
            found = checks_mutants(self.checks, text, here, put)
            yield from (mutant for mutant in found if mutant.name != COMMENTED_OUT)


def _guards_text(facts: StepFacts) -> str:
    return "\n".join(facts.measured["texts"])


def measure_guards(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the guards of the case's own functions in the step."""
    return value(f"{COMPILATION}guards")


_AGAIN = "judge a later call of the same function: add a call above this step, or remove recompiles here"


class Recompiles(Events):
    """``recompiles: {count: 1, reason: {contains: size mismatch at index 0}}``."""

    __slots__ = ()
    kind: ClassVar[str] = "recompiles"
    what: ClassVar[str] = "recompiles"

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge as other events. That there were none means something only where compiled code was found again by its guards."""
        found = super().judged(facts, here)
        if all(one.status is Status.HELD for one in found) and facts.measured["count"] == 0 and facts.measured["reused"] == 0:
            return [Judgement.error(_why_hollow(facts), expected=found[0].expected)]
        return found


def _why_hollow(facts: StepFacts) -> str:
    if facts.measured["frames"]:
        return f"dynamo compiled the functions of the step for the first time, so nothing could be compiled again: {_AGAIN}"
    return f"no code that dynamo had compiled ran in the step, so nothing could be compiled again: {_AGAIN}"


def measure_recompiles(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the recompiles of the case's own functions in the step."""
    return value(f"{COMPILATION}recompiles")


_NOTHING_TRACED = (
    "dynamo traced no frame of the case's functions in the step: the code of an earlier compile ran, and may have graph breaks"
)


class GraphBreaks(Events):
    """``graph_breaks: {count: 1, reason: {contains: User-inserted graph break}}``."""

    __slots__ = ()
    kind: ClassVar[str] = "graph_breaks"
    what: ClassVar[str] = "graph breaks"

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge as other events. That there are none means something only where dynamo traced a frame in the step."""
        found = super().judged(facts, here)
        if all(one.status is Status.HELD for one in found) and facts.measured["frames"] == 0:
            return [Judgement.error(_NOTHING_TRACED, expected=found[0].expected)]
        return found


def measure_graph_breaks(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the graph breaks of the case's own functions in the step."""
    return value(f"{COMPILATION}graph_breaks")


Graph = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOfStage(Recorded, Conditional):
    """``graph: {stage: post_grad, ops: {aten.mm.default: 1}, checks: "CHECK: aten.mm"}``."""

    kind: ClassVar[str] = "graph"
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, *FileCheck.mutations)
    stage: str
    index: int | str | None = None
    count: Any = None
    ops: Mapping[str, Any] = field(default_factory=dict)
    checks: FileCheck | None = None

    @classmethod
    def parse(cls, body: Any) -> "GraphOfStage":
        """Read counts and directives; raise ``BadExpectation``."""
        check_counts(body, "count")
        for name, count in body.get("ops", {}).items():
            check_count(count, "ops", name)
        if "index" in body and not body.keys() & {"ops", "checks"}:
            raise BadExpectation("'index' chooses a graph of which nothing is expected", "add ops or checks", path=("index",))
        checks = FileCheck.parse({"checks": body["checks"]}) if "checks" in body else None
        return cls(**{**body, "checks": checks})

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker sends the graphs of the stage, and which of the operators torch does not have."""
        return {"stage": self.stage, "ops": list(self.ops)}

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the number of graphs, then each operator and the directives for the chosen graph."""
        what = f"the {self.stage} graph of the step"
        graphs = facts.measured["graphs"]
        if not facts.measured["available"]:
            return [Judgement.error(f"this torch has no graphs of the stage {self.stage}", expected=what)]
        if not graphs:
            why = "no graph of the case's function was made at this stage: it was compiled before, served from a cache, or not compiled"
            return [Judgement.error(why, expected=what)]
        judged = [] if self.count is None else [judge_count(self.count, len(graphs), here, leaf="count", absent="")]
        return [*judged, *self._judge_chosen(facts, here)] if self.ops or self.checks else judged

    def _judge_chosen(self, facts: StepFacts, here: Surroundings) -> Iterator[Judgement]:
        chosen = self._choose(facts.measured["graphs"])
        if isinstance(chosen, str):
            yield Judgement.error(f"{len(facts.measured['graphs'])} graphs", expected=chosen)
            return
        if problem := next((graph["problem"] for graph in chosen if graph["problem"]), ""):
            yield Judgement.error(problem, expected=f"the {self.stage} graph of the step")
            return
        for name, count in self.ops.items():
            leaf = f"ops {name}"
            if name in facts.measured["unknown"]:
                judged = Judgement.error(f"torch has no operator {name}{_similar(name, chosen)}", expected=leaf, leaf=leaf)
                yield replace(judged, detail=_operators(chosen))
            elif why := _of_another_level(self.stage, name, chosen):
                yield Judgement.error(why, expected=leaf, leaf=leaf)
            else:
                judged = judge_count(count, _count_of_nodes(chosen, name), here, leaf=leaf, absent="")
                yield replace(judged, detail=_operators(chosen))
        if self.checks is not None:
            if any(graph["cut"] for graph in chosen):
                yield Judgement.error("the graph is too large: its text was cut off", expected="the text of the graph", leaf="checks")
            else:
                yield judge_checks(self.checks, _graph_text(chosen), here)

    def _choose(self, graphs: Sequence[Graph]) -> Sequence[Graph] | str:
        """Return the chosen graphs, or what was expected instead of these."""
        if self.index == ALL:
            return graphs
        if self.index is None:
            return graphs if len(graphs) == 1 else "one graph, or index: INDEX, or index: all"
        at = int(self.index)
        return graphs[at : at + 1] or f"a graph with the index {at}"

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Another number of graphs; each operator more often and less often; the mutants of the directives."""
        graphs = facts.measured["graphs"]
        if self.count is not None:
            yield from count_mutants(self.count, len(graphs), here, functools.partial(_with_graphs, facts), leaf="count")
        chosen = self._choose(graphs)
        if isinstance(chosen, str):
            return
        at = int(self.index) if isinstance(self.index, int) else 0
        for name, count in self.ops.items():
            changed = functools.partial(_with_operator, facts, at, name, _count_of_nodes(chosen, name))
            yield from count_mutants(count, _count_of_nodes(chosen, name), here, changed, leaf=f"ops {name}")
        if self.checks is not None:
            # the directives are matched against one text: one graph takes the place of the chosen ones
            rest = functools.partial(_with_graph_text, facts, chosen[0], graphs[:at], graphs[at + len(chosen) :])
            yield from checks_mutants(self.checks, _graph_text(chosen), here, rest)


def _count_of_nodes(graphs: Sequence[Graph], name: str) -> int:
    """Return how many nodes call an operator; a name without an overload stands for all overloads."""
    return sum(count for graph in graphs for found, count in graph["ops"].items() if found == name or found.startswith(f"{name}."))


_OF_OPERATORS = ("joint", "post_grad")
"""The stages whose nodes call operators; those of the others call functions, as the user's code does."""


def _of_another_level(stage: str, name: str, graphs: Sequence[Graph]) -> str:
    """Return why a name that occurs nowhere cannot occur at a stage; empty if it can."""
    if _count_of_nodes(graphs, name):
        return ""
    level = name.partition(".")[0]
    if stage in _OF_OPERATORS:
        if level in _OF_FUNCTIONS and not name.startswith(_OF_EVERY_STAGE):
            return f"the nodes of a {stage} graph call operators, such as aten.mm.default, and never {name}"
        return ""
    if level in _LOWERED and not any(found.startswith(f"{level}.") for graph in graphs for found in graph["ops"]):
        return f"the nodes of this {stage} graph call functions, such as torch.sort or operator.matmul, and no operator of {level}"
    return ""


_OF_FUNCTIONS = ("torch", "Tensor")
_OF_EVERY_STAGE = ("torch.sym_", "torch.ops.")
_LOWERED = ("aten", "prims")


def _graph_text(graphs: Sequence[Graph]) -> str:
    texts: list[str] = [graph["text"] for graph in graphs]
    return texts[0] if len(texts) == 1 else "\n".join(texts)  # join would remove the mark of a text without comments


def _similar(name: str, graphs: Sequence[Graph]) -> str:
    """Return which operators of the graphs have the last part of a name."""
    found = sorted({one for graph in graphs for one in graph["ops"] if name.rpartition(".")[2] in one.split(".")})
    return f"; the graph has {', '.join(found)}" if found else "; the graph's operators are listed below"


def _operators(graphs: Sequence[Graph]) -> str:
    return "\n".join(f"{name}: {count}" for graph in graphs for name, count in sorted(graph["ops"].items()))[:4000]


def _with_graph_text(facts: StepFacts, graph: Graph, before: Sequence[Graph], after: Sequence[Graph], text: str) -> StepFacts:
    return _with_graph(facts, [*before, {**graph, "text": text}, *after])


def _with_graph(facts: StepFacts, graphs: Sequence[Graph]) -> StepFacts:
    return facts.with_measured(graphs=list(graphs))


def _with_graphs(facts: StepFacts, number: float) -> StepFacts:
    graphs = facts.measured["graphs"]
    return _with_graph(facts, [*graphs, *[graphs[-1]] * int(number)][: int(number)])


def _with_operator(facts: StepFacts, at: int, name: str, before: int, number: float) -> StepFacts:
    graphs = list(facts.measured["graphs"])
    ops = graphs[at]["ops"]
    graphs[at] = {**graphs[at], "ops": {**ops, name: ops.get(name, 0) + int(number) - before}}
    return _with_graph(facts, graphs)


def measure_graph(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the graphs of the stage, and the operators that torch does not have."""
    found, stage = value(f"{COMPILATION}graph"), arguments["stage"]
    unknown: list[Json] = [name for name in arguments["ops"] if not found["is_known"](name)]
    return {"available": found["is_available"](stage), "graphs": found["stages"].get(stage, []), "unknown": unknown}


KINDS = ("fused", "extern", "user")
"""The kinds of kernel calls; ``launched`` is their sum."""

COUNTS = ("launched", *KINDS, "compiled")


@dataclass(frozen=True, slots=True, kw_only=True)
class Kernels(Recorded, Conditional):
    """``kernels: {launched: 1, compiled: 1}``, or by kind: ``kernels: {fused: 1, extern: 0}``."""

    kind: ClassVar[str] = "kernels"
    mutations: ClassVar[tuple[str, ...]] = COUNT_MUTATIONS
    launched: Any = None
    fused: Any = None
    extern: Any = None
    user: Any = None
    compiled: Any = None

    @classmethod
    def parse(cls, body: Any) -> "Kernels":
        """Read the counts; raise ``BadExpectation``."""
        check_counts(body, *COUNTS)
        return cls(**body)

    @property
    def _counts(self) -> Mapping[str, Any]:
        return {key: getattr(self, key) for key in COUNTS if getattr(self, key) is not None}

    def judged(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge each count on its own. What could not be counted is an ERROR."""
        judged = []
        for key, count in self._counts.items():
            why = _why_not(key, facts)
            found = judge_count(count, None if why else _count_of_kernels(key, facts), here, leaf=key, absent=why)
            if found.status is Status.HELD and key == "compiled" and not facts.measured["compiled"] and not facts.measured["ran"]:
                found = Judgement.error(_NOTHING_RAN, expected=found.expected, leaf=key)
            judged.append(found if why or key == "compiled" else replace(found, detail="\n".join(facts.measured["names"][:50])))
        return judged

    def mutants(self, facts: StepFacts, here: Surroundings) -> Iterator[Mutant]:
        """Each count on its own, with another number."""
        for key, count in self._counts.items():
            yield from count_mutants(count, _count_of_kernels(key, facts), here, functools.partial(_with_kernels, facts, key), leaf=key)


_NOTHING_RAN = "the step ran no compiled graph of the case's function"


def _why_not(key: str, facts: StepFacts) -> str:
    found = facts.measured
    if not found["recorded"]:
        return "the backend of the case compiles nothing"
    reasons = found["uncompiled"] if key == "compiled" else found["uncounted"]
    if not reasons and not found["ran"] and key != "compiled":
        return _NOTHING_RAN
    return "; ".join(reasons)


def _count_of_kernels(key: str, facts: StepFacts) -> int:
    if key == "compiled":
        return int(facts.measured["compiled"])
    return sum(int(facts.measured["launched"][kind]) for kind in (KINDS if key == "launched" else (key,)))


def _with_kernels(facts: StepFacts, key: str, number: float) -> StepFacts:
    if key == "compiled":
        return facts.with_measured(compiled=int(number))
    launched = facts.measured["launched"]
    # a change of the sum is a change of the fused kernels, whatever their number is
    changed = {"fused": launched["fused"] + int(number) - sum(launched.values())} if key == "launched" else {key: int(number)}
    return facts.with_measured(launched={**launched, **changed})


def measure_kernels(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: kernel calls by kind, compiled kernels, and why something could not be counted."""
    return value(f"{COMPILATION}kernels")
