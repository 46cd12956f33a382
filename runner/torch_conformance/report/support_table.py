"""The support table of a compiler: for each operator and type whether the answer was right, and who
computed it.

It is made of the results of the operator suite, while a run goes on or of a recorded one. What ATen
ran counts as ATen's, whatever the entry of the backend allows.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import unquote

from torch_conformance.model.escaping import one_line
from torch_conformance.model.events import Listener, ResultsCompleted, RunEvent
from torch_conformance.model.header import RunHeader
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import NOT_CLAIMED, NOT_MEASURED, PROOF, CaseResult
from torch_conformance.report import ReportSetup, replace
from torch_conformance.report.causes import causes, has_raised, parts_of

FORMAT = 1
"""The number of the form of the JSON."""


class State(Enum):
    """What is known of an operator and a type. The order is that of every report."""

    SERVED = ("served", "right, and ATen ran none of its operators")
    PARTLY = ("partly", "right, and ATen ran some of the operators")
    BY_ATEN = ("by-aten", "right, and ATen ran as many operators as in eager")
    MOVES_DATA = (
        "moves-data",
        "right; it only moves or describes data: there is nothing to compute",
    )
    FELL_BACK = ("fell-back", "right, and not shown to be the compiler's")
    RIGHT = ("right", "right; the proof of the backend does not measure who computed it")
    WRONG = ("wrong", "another answer than eager's")
    RAISED = ("raised", "an exception, a crash, or no end in time")
    NOT_CLAIMED = ("not-claimed", "the compiler does not claim it")
    NOT_TRIED = ("not-tried", "not run here, or it could not be judged")

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One operator and type of a compiler: one case."""

    suite: str
    """The name of the spec, with the point of its matrix but for operator and type:
    ``operators/opinfo-functions[dynamic=false]``.
    """
    backend: str
    operator: str
    type: str
    state: State
    result: CaseResult

    @property
    def operators(self) -> str:
        """The operators that ATen ran for an answer that is right, with commas."""
        return (
            ", ".join(sorted(self.result.by_aten))
            if self.state in (State.PARTLY, State.BY_ATEN)
            else ""
        )


def cells_of(results: Iterable[CaseResult]) -> Iterator[Cell]:
    """Yield a cell for each case that names an operator and a type."""
    for result in results:
        point = parts_of(result.case_id)
        if {"backend", "op", "dtype"} <= point.keys():
            backend, operator, dtype = (
                unquote(point.pop(key)) for key in ("backend", "op", "dtype")
            )
            rest = ",".join(f"{key}={value}" for key, value in point.items())
            suite = result.case_id.partition("[")[0] + (f"[{rest}]" if rest else "")
            yield Cell(
                suite=suite,
                backend=backend,
                operator=operator,
                type=dtype,
                state=state_of(result),
                result=result,
            )


def measured_cells(results: Iterable[CaseResult]) -> list[Cell]:
    """Return the cells of the backends for which some case measured who computed it."""
    cells = list(cells_of(results))
    backends = {cell.backend for cell in cells if cell.result.eager_operators != NOT_MEASURED}
    return [cell for cell in cells if cell.backend in backends]


def state_of(result: CaseResult) -> State:
    """Return the state of a result.

    An answer is right where nothing but the proof failed; then what ATen ran decides. Of several
    failures a wrong answer comes first.
    """
    wrong = [verdict for verdict in result.failed if verdict.kind != PROOF]
    match result.outcome:
        case Outcome.UNAVAILABLE if NOT_CLAIMED in result.reason:
            return State.NOT_CLAIMED
        case (
            Outcome.UNAVAILABLE
            | Outcome.NOT_RUN
            | Outcome.ERROR
            | Outcome.OFFLINE_PASS
            | Outcome.OFFLINE_FAIL
        ):
            return State.NOT_TRIED
        case Outcome.CRASH | Outcome.TIMEOUT:
            return State.RAISED
        case _ if wrong:
            return State.RAISED if all(map(has_raised, wrong)) else State.WRONG
        case _ if not result.by_aten and result.outcome not in (Outcome.PASS, Outcome.XPASS):
            return State.FELL_BACK
        case _ if not result.by_aten:
            return {NOT_MEASURED: State.RIGHT, 0: State.MOVES_DATA}.get(
                result.eager_operators, State.SERVED
            )
        case _:
            return (
                State.BY_ATEN
                if sum(result.by_aten.values()) >= result.eager_operators
                else State.PARTLY
            )


# -- forms -----------------------------------------------------------------------------------------


def counts_of(states: Iterable[State]) -> dict[str, int]:
    """Return how often each state occurs, without zeros."""
    counts = Counter(states)
    return {state.word: counts[state] for state in State if counts[state]}


def suites_of(cells: Iterable[Cell]) -> Mapping[tuple[str, str], list[Cell]]:
    """Return the cells of each backend and suite, in an order that no run changes."""
    suites: defaultdict[tuple[str, str], list[Cell]] = defaultdict(list)
    for cell in sorted(
        cells, key=lambda cell: (cell.backend, cell.suite, cell.operator, cell.type)
    ):
        suites[cell.backend, cell.suite].append(cell)
    return suites


def lines_of(results: Iterable[CaseResult]) -> Iterator[str]:
    """Yield a line for each table: how many of its cells have each state."""
    for (backend, suite), cells in suites_of(measured_cells(results)).items():
        counts = ", ".join(
            f"{count} {word}" for word, count in counts_of(cell.state for cell in cells).items()
        )
        yield f"support by {one_line(backend)} of {one_line(suite)}: {counts}"


def entry_of(cell: Cell) -> dict[str, object]:
    """Return a cell as JSON."""
    return {
        "backend": cell.backend,
        "suite": cell.suite,
        "operator": cell.operator,
        "type": cell.type,
        "state": cell.state.word,
        "case": cell.result.case_id,
        "outcome": cell.result.outcome.label,
        "reason": cell.result.reason,
        "eager_operators": cell.result.eager_operators,
        "by_aten": dict(sorted(cell.result.by_aten.items())),
    }


def document_of(header: RunHeader, results: Sequence[CaseResult]) -> dict[str, object]:
    """Return the table of a run as JSON (``schemas/support.schema.json``)."""
    cells = list(cells_of(results))
    raised = [cell.result for cell in cells if cell.state is State.RAISED]
    return {
        "format": FORMAT,
        "run": header.run_id,
        "environment": dict(header.environment),
        "counts": [
            {
                "backend": backend,
                "suite": suite,
                "states": counts_of(cell.state for cell in of_suite),
            }
            for (backend, suite), of_suite in suites_of(cells).items()
        ],
        "cells": list(map(entry_of, cells)),
        "raised": [
            {"reason": group[0].reason, "cases": [case.case_id for case in group]}
            for group in causes(raised)
        ],
    }


def markdown_of(header: RunHeader, results: Sequence[CaseResult]) -> str:
    """Return the table of a run as Markdown."""
    cells = list(cells_of(results))
    facts = ", ".join(
        f"{name} {value}"
        for name in ("torch", "python", "device", "cpu")
        if (value := header.environment.get(name))
    )
    lines = [
        "# Support table",
        "",
        f"Run {_code(header.run_id)}, {_code(facts)}.",
        "",
        "| cell | is |",
        "|---|---|",
    ]
    lines += [f"| {state.word} | {state.meaning} |" for state in State]
    lines += [
        "",
        "An empty cell has no case in this run. What ATen ran is named, whatever the entry of "
        "the backend allows it.",
    ]
    for (backend, suite), of_suite in suites_of(cells).items():
        types = sorted({cell.type for cell in of_suite})
        rows: defaultdict[str, dict[str, Cell]] = defaultdict(dict)
        for cell in of_suite:
            rows[cell.operator][cell.type] = cell
        counts = ", ".join(
            f"{count} {word}" for word, count in counts_of(cell.state for cell in of_suite).items()
        )
        lines += ["", f"## {_code(backend)}: {_code(suite)}", "", f"{counts}.", ""]
        lines += [f"| operator | {' | '.join(map(_code, types))} |", f"|---|{'---|' * len(types)}"]
        lines += [
            f"| {_code(operator)} | {' | '.join(_shown(row.get(dtype)) for dtype in types)} |"
            for operator, row in rows.items()
        ]
        for state in (State.WRONG, State.RAISED, State.FELL_BACK, State.NOT_TRIED):
            groups = causes(cell.result for cell in of_suite if cell.state is state)
            lines += ["", f"### {state.word}: {state.meaning}", ""] if groups else []
            for group in groups:
                names = ", ".join(_code(f"{cell.operator} {cell.type}") for cell in cells_of(group))
                lines.append(f"- {len(group)} of one cause: {_code(group[0].reason)}: {names}")
    return "\n".join(lines) + "\n"


def _code(text: str) -> str:
    """Return a text that drives neither Markdown, its tables, nor HTML."""
    shown = one_line(text, 2_000).replace("`", "'").replace("|", "/")
    return f"`{shown}`" if shown.strip() else ""


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    return f"{cell.state.word}: {_code(cell.operators)}" if cell.operators else cell.state.word


def write(path: Path, header: RunHeader, results: Sequence[CaseResult]) -> None:
    """Write the table of a run to a file, as JSON or as Markdown by the ending of its name."""
    is_json = path.suffix == ".json"
    text = (
        json.dumps(document_of(header, results), indent=1) + "\n"
        if is_json
        else markdown_of(header, results)
    )
    replace(path, text.encode("utf-8", "replace"))


@dataclass
class SupportReporter(Listener):
    """Writes the table when a run has ended."""

    setup: ReportSetup

    def on_event(self, event: RunEvent) -> None:
        """Write the table of the results."""
        if isinstance(event, ResultsCompleted) and (path := self.setup.options.support) is not None:
            write(path, event.header, event.results)
