"""``graph``: the graphs of a compile at one stage: how many there were, their operators, directives on their text."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from runner.core.conditions import Surroundings, holds
from runner.core.protocol import Json
from runner.vocabulary.expectations.base import BadExpectation, Judgement, Mutant, Recorded, StepFacts
from runner.vocabulary.expectations.compile_facts import COMPILATION, NOT_MEASURED, check_counts, checks_mutants, judge_checks
from runner.vocabulary.expectations.counts import COUNT_MUTATIONS, check_count, count_mutants, judge_count
from runner.vocabulary.expectations.filecheck import ALL, FileCheck

Graph = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class GraphOfStage(Recorded):
    """``graph: {stage: post_grad, ops: {aten.mm.default: 1}, checks: "CHECK: aten.mm"}``."""

    kind: ClassVar[str] = "graph"
    mutations: ClassVar[tuple[str, ...]] = (*COUNT_MUTATIONS, *FileCheck.mutations)
    stage: str
    index: int | str | None = None
    count: Any = None
    ops: Mapping[str, Any] = field(default_factory=dict)
    checks: FileCheck | None = None
    when: Mapping[str, Any] | None = None

    @classmethod
    def parse(cls, body: Any) -> "GraphOfStage":
        """Read counts and directives; raise ``BadExpectation``."""
        check_counts(body, "count")
        for name, count in body.get("ops", {}).items():
            try:
                check_count(count)
            except BadExpectation as error:
                raise BadExpectation(str(error), error.hint, path=("ops", name, *error.path)) from error
        if "index" in body and not body.keys() & {"ops", "checks"}:
            raise BadExpectation("'index' chooses a graph of which nothing is expected", "add ops or checks", path=("index",))
        checks = FileCheck.parse({"checks": body["checks"]}) if "checks" in body else None
        return cls(**{**body, "checks": checks})

    def measurement(self) -> Mapping[str, Json] | None:
        """The worker sends the graphs of the stage, and which of the operators torch does not have."""
        return {"stage": self.stage, "ops": list(self.ops)}

    def judge(self, facts: StepFacts, here: Surroundings) -> list[Judgement]:
        """Judge the number of graphs, then each operator and the directives for the chosen graph."""
        if not holds(self.when, here):
            return [Judgement.not_applicable()]
        what = f"the {self.stage} graph of the step"
        if facts.measured is None:
            return [Judgement.error(NOT_MEASURED, expected=what)]
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
                judged = judge_count(count, _number(chosen, name), here, leaf=leaf, absent="")
                yield replace(judged, detail=_operators(chosen))
        if self.checks is not None:
            if any(graph["cut"] for graph in chosen):
                yield Judgement.error("the graph is too large: its text was cut off", expected="the text of the graph", leaf="checks")
            else:
                yield judge_checks(self.checks, _text(chosen), here)

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
        if not holds(self.when, here):
            return
        graphs = facts.measured["graphs"]
        if self.count is not None:
            yield from count_mutants(self.count, len(graphs), here, functools.partial(_with_graphs, facts), leaf="count")
        chosen = self._choose(graphs)
        if isinstance(chosen, str):
            return
        at = int(self.index) if isinstance(self.index, int) else 0
        for name, count in self.ops.items():
            changed = functools.partial(_with_operator, facts, at, name, _number(chosen, name))
            yield from count_mutants(count, _number(chosen, name), here, changed, leaf=f"ops {name}")
        if self.checks is not None:
            # the directives are matched against one text: one graph takes the place of the chosen ones
            rest = functools.partial(_with_text, facts, chosen[0], graphs[:at], graphs[at + len(chosen) :])
            yield from checks_mutants(self.checks, _text(chosen), here, rest)


def _number(graphs: Sequence[Graph], name: str) -> int:
    """Return how many nodes call an operator; a name without an overload stands for all overloads."""
    return sum(count for graph in graphs for found, count in graph["ops"].items() if found == name or found.startswith(f"{name}."))


_OF_OPERATORS = ("joint", "post_grad")
"""The stages whose nodes call operators; those of the others call functions, as the user's code does."""


def _of_another_level(stage: str, name: str, graphs: Sequence[Graph]) -> str:
    """Return why a name that occurs nowhere cannot occur at a stage; empty if it can."""
    if _number(graphs, name):
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


def _text(graphs: Sequence[Graph]) -> str:
    texts: list[str] = [graph["text"] for graph in graphs]
    return texts[0] if len(texts) == 1 else "\n".join(texts)  # join would remove the mark of a text without comments


def _similar(name: str, graphs: Sequence[Graph]) -> str:
    """Return which operators of the graphs have the last part of a name."""
    found = sorted({one for graph in graphs for one in graph["ops"] if name.rpartition(".")[2] in one.split(".")})
    return f"; the graph has {', '.join(found)}" if found else "; the graph's operators are listed below"


def _operators(graphs: Sequence[Graph]) -> str:
    return "\n".join(f"{name}: {count}" for graph in graphs for name, count in sorted(graph["ops"].items()))[:4000]


def _with_text(facts: StepFacts, graph: Graph, before: Sequence[Graph], after: Sequence[Graph], text: str) -> StepFacts:
    return _with(facts, [*before, {**graph, "text": text}, *after])


def _with(facts: StepFacts, graphs: Sequence[Graph]) -> StepFacts:
    return facts.with_measured(graphs=list(graphs))


def _with_graphs(facts: StepFacts, number: float) -> StepFacts:
    graphs = facts.measured["graphs"]
    return _with(facts, [*graphs, *[graphs[-1]] * int(number)][: int(number)])


def _with_operator(facts: StepFacts, at: int, name: str, before: int, number: float) -> StepFacts:
    graphs = list(facts.measured["graphs"])
    ops = graphs[at]["ops"]
    graphs[at] = {**graphs[at], "ops": {**ops, name: ops.get(name, 0) + int(number) - before}}
    return _with(facts, graphs)


def measure(arguments: Mapping[str, Any], value: Callable[[str], Any]) -> Json:
    """Measure in the worker: the graphs of the stage, and the operators that torch does not have."""
    found, stage = value(f"{COMPILATION}graph"), arguments["stage"]
    unknown: list[Json] = [name for name in arguments["ops"] if not found["is_known"](name)]
    return {"available": found["is_available"](stage), "graphs": found["stages"].get(stage, []), "unknown": unknown}
