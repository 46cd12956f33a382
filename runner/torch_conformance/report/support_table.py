"""The support table of a compiler: for each operator whether the answer was right, and who computed
it.

It is made of results, while a run goes on or of a recorded one. What ATen ran counts as ATen's,
whatever the entry of the backend allows.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from urllib.parse import unquote

from torch_conformance.model.escaping import counted, one_line
from torch_conformance.model.expectation import (
    ALIASING,
    NO_EXCEPTION,
    OF_GENERATOR,
    RANDOM_STREAM,
    WrongValue,
)
from torch_conformance.model.header import ReportedRun, RunHeader
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import (
    NOT_CLAIMED,
    NOT_MEASURED,
    PROOF,
    OperatorCalls,
    Redacted,
)
from torch_conformance.report import FileReport, replace
from torch_conformance.report.causes import causes, has_raised, parts_of

FORMAT = 2
"""The number of the form of the JSON."""

BY_OVERLOAD = " by ATen overload"
"""How the name of a suite ends whose rows are ATen's operators."""

_MOST_SAMPLES = 3
"""How many samples that fell back the Markdown shows of a cell."""


class State(Enum):
    """What is known of an operator. The order is that of every report."""

    SERVED = ("served", "right, and ATen ran none of its operators")
    SOME_SAMPLES = (
        "some-samples",
        "right; ATen ran operators of some samples, and none of the others",
    )
    PARTLY = ("partly", "right, and ATen ran some of the operators")
    BY_ATEN = ("by-aten", "right, and ATen ran as many operators as in eager")
    MOVES_DATA = (
        "moves-data",
        "right; it only moves or describes data: there is nothing to compute",
    )
    FELL_BACK = ("fell-back", "right, and not shown to be the compiler's")
    RIGHT = ("right", "right; the proof of the backend does not measure who computed it")
    WRONG = ("wrong", "an answer that differs from eager's")
    RAISED = ("raised", "an exception, a crash, or no end in time")
    NOT_CLAIMED = ("not-claimed", "the compiler does not claim it")
    NOT_TRIED = ("not-tried", "not run here, or it could not be judged")

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning


_UNKNOWN = (State.WRONG, State.RAISED, State.NOT_CLAIMED, State.NOT_TRIED)
"""The states without a right answer."""


@dataclass(frozen=True, slots=True)
class Cell:
    """One operator and type of a compiler, which is one case; or the calls of an ATen overload."""

    backend: str
    suite: str
    """The name of the spec, with the point of its matrix but for operator and type:
    ``operators/opinfo-functions[dynamic=false]``.
    """
    operator: str
    type: str
    """Empty for a spec that is not a suite of operators."""
    place: str
    """The line of such a spec."""
    state: State
    calls: int
    """How many operators eager runs."""
    by_aten: Mapping[str, int]
    result: Redacted
    """Of calls in several cases one in which ATen ran some, if there is one."""

    @property
    def key(self) -> tuple[str, ...]:
        """What is the same of it in another run."""
        return self.backend, self.suite, self.operator, self.type, self.place

    @property
    def is_of_calls(self) -> bool:
        """Whether it is the calls of an ATen overload."""
        return bool(self.place) or self.suite.endswith(BY_OVERLOAD)

    @property
    def share(self) -> float:
        """The share of the operators that the compiler computed; -1 without a right answer."""
        if self.state in _UNKNOWN:
            return -1.0
        if self.state in (State.BY_ATEN, State.FELL_BACK):
            return 0.0
        return 1.0 - sum(self.by_aten.values()) / max(self.calls, 1)

    @property
    def detail(self) -> str:
        """What it says in addition to its state, and another run of the same compiler says too."""
        if self.is_of_calls:
            left = sum(self.by_aten.values())
            is_whole = left in (0, self.calls) and self.state not in _UNKNOWN
            return counted(self.calls, "call") if is_whole else f"{left} of {self.calls} by ATen"
        if self.state in (State.WRONG, State.RAISED):
            return ", ".join(aspects_of(self.result))
        names = ", ".join(sorted(self.result.by_aten))
        if self.state is State.PARTLY:
            return f"{sum(self.by_aten.values())} of {self.calls}: {names}"
        if self.state is State.SOME_SAMPLES:
            count, by_aten = samples_of(self.result)
            return f"{len(by_aten)} of {count} samples: {names}"
        return names if self.state is State.BY_ATEN else ""

    @property
    def error(self) -> float | None:
        """The greatest error of a right answer, in units of its bound."""
        if self.is_of_calls or self.state in _UNKNOWN:
            return None
        errors = [verdict.worst for verdict in self.result.verdicts if verdict.worst is not None]
        return max(errors, default=None)


def cells_of(results: Iterable[Redacted]) -> Iterator[Cell]:
    """Yield a cell for each case that names an operator and a type; then those of the overloads
    that eager runs, of suites of operators and of each other case.
    """
    overloads = defaultdict[
        tuple[str, str, str, str, str], list[tuple[OperatorCalls, State, Redacted]]
    ](list)
    for result in results:
        point, state = parts_of(result.case_id), state_of(result)
        is_operator = {"backend", "op", "dtype"} <= point.keys()
        operator, dtype = (
            unquote(point.pop(key)) if is_operator else "" for key in ("op", "dtype")
        )
        rest = ",".join(f"{key}={value}" for key, value in point.items() if key != "backend")
        suite = result.case_id.partition("[")[0] + (f"[{rest}]" if rest else "")
        if is_operator:
            about = state, result.eager_operators, result.by_aten, result
            yield Cell(result.backend, suite, operator, dtype, "", *about)
        for calls in result.operators:
            table = (suite + BY_OVERLOAD, "") if is_operator else (suite, calls.place)
            key = (result.backend, table[0], calls.operator, dtype, table[1])
            overloads[key].append((calls, state, result))
    for key, entries in overloads.items():
        right = [entry for entry in entries if entry[1] not in _UNKNOWN] or entries
        count = sum(calls.calls for calls, _, _ in right)
        count_by_aten = sum(calls.by_aten for calls, _, _ in right)
        _, of_case, result = next((entry for entry in right if entry[0].by_aten), right[0])
        of_calls = (
            State.BY_ATEN
            if count_by_aten == count
            else State.PARTLY
            if count_by_aten
            else State.SERVED
        )
        is_known = of_case not in (*_UNKNOWN, State.FELL_BACK)
        by_aten = {key[2]: count_by_aten} if count_by_aten else {}
        yield Cell(*key, of_calls if is_known else of_case, count, by_aten, result)


def measured_cells(results: Iterable[Redacted]) -> list[Cell]:
    """Return the cells of the backends for which some case measured who computed it."""
    cells = list(cells_of(results))
    backends = {cell.backend for cell in cells if cell.result.eager_operators != NOT_MEASURED}
    return [cell for cell in cells if cell.backend in backends]


def state_of(result: Redacted) -> State:
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
        case _ if sum(result.by_aten.values()) >= result.eager_operators:
            return State.BY_ATEN
        case _:
            count, by_aten = samples_of(result)
            return State.SOME_SAMPLES if 0 < len(by_aten) < count else State.PARTLY


def samples_of(result: Redacted) -> tuple[int, list[str]]:
    """Return how many samples of an operator compute something; and those in which ATen ran an
    operator, with their arguments.
    """
    places = [calls.place for calls in result.operators if calls.place.startswith("sample ")]
    by_aten = [calls.place for calls in result.operators if calls.by_aten]
    short = {place.partition(": ")[0] for place in places}
    return len(short), [place for place in dict.fromkeys(places) if place in by_aten]


def aspects_of(result: Redacted) -> tuple[str, ...]:
    """Return what is wrong in a case, or how it raised: each once, in a word or two."""
    aspects = (
        _aspect(verdict.kind, value)
        for verdict in result.failed
        if verdict.kind != PROOF
        for value in verdict.wrong or (WrongValue(message=verdict.message),)
    )
    return tuple(dict.fromkeys(aspects))


_PHASE = re.compile(rf"{NO_EXCEPTION}, observed \S+ in phase '([^']*)'")


def _aspect(kind: str, value: WrongValue) -> str:
    if raised := _PHASE.search(value.message):
        return "while running" if raised[1] == "run" else "while compiling"
    if kind == "side-effects" and value.aspect != ALIASING:
        return RANDOM_STREAM if OF_GENERATOR in value.message else "side effect"
    return value.aspect or {"close": "structure", "timeout": "hang"}.get(kind, kind)


# -- forms -----------------------------------------------------------------------------------------


def counts_of(states: Iterable[State]) -> dict[str, int]:
    """Return how often each state occurs, without zeros."""
    counts = Counter(states)
    return {state.word: counts[state] for state in State if counts[state]}


def suites_of(cells: Iterable[Cell]) -> Mapping[tuple[str, str], list[Cell]]:
    """Return the cells of each backend and suite, in an order that no run changes."""
    suites: defaultdict[tuple[str, str], list[Cell]] = defaultdict(list)
    # shorter places first: so those of one file are in the order of their lines
    for cell in sorted(
        cells, key=lambda cell: (*cell.key[:2], len(cell.place), cell.place, cell.key)
    ):
        suites[cell.backend, cell.suite].append(cell)
    return suites


def lines_of(results: Iterable[Redacted]) -> Iterator[str]:
    """Yield a line for each suite of operators, and one for all other specs of a backend: how many
    of its cells have each state.
    """
    tables = defaultdict[tuple[str, str], list[State]](list)
    for cell in measured_cells(results):
        if not cell.suite.endswith(BY_OVERLOAD):
            name = "the operators of other specs" if cell.place else cell.suite
            tables[cell.backend, name].append(cell.state)
    for (backend, name), states in sorted(tables.items()):
        yield f"support by {one_line(backend)} of {one_line(name)}: {_words(states)}"


def _words(states: Iterable[State]) -> str:
    return ", ".join(f"{count} {word}" for word, count in counts_of(states).items())


def entry_of(cell: Cell) -> dict[str, object]:
    """Return a cell as JSON."""
    samples = (0, []) if cell.is_of_calls else samples_of(cell.result)
    return {
        **dict(zip(("backend", "suite", "operator", "type", "place"), cell.key, strict=True)),
        "state": cell.state.word,
        "aspects": list(aspects_of(cell.result)),
        "error": cell.error,
        "case": cell.result.case_id,
        "outcome": cell.result.outcome.label,
        "reason": cell.result.reason,
        "eager_operators": cell.calls,
        "by_aten": dict(sorted(cell.by_aten.items())),
        "samples": samples[0],
        "samples_by_aten": [
            {"sample": int(name.removeprefix("sample ")), "arguments": arguments}
            for name, _, arguments in (place.partition(": ") for place in samples[1])
        ],
    }


def compilers_of(header: RunHeader) -> Mapping[str, str]:
    """Return the packages of the compilers of a run, with their versions, by their names."""
    return {
        name.removesuffix(_PACKAGE): version
        for name, version in header.environment.items()
        if name.endswith(_PACKAGE)
    }


_PACKAGE = ".package"


def document_of(run: ReportedRun) -> dict[str, object]:
    """Return the table of a run as JSON (``schemas/support.schema.json``)."""
    cells = list(cells_of(run.results))
    raised = [cell.result for cell in cells if cell.state is State.RAISED and not cell.is_of_calls]
    return {
        "format": FORMAT,
        "run": run.header.run_id,
        "truncated": run.footer is None,
        "environment": dict(run.header.environment),
        "compilers": dict(compilers_of(run.header)),
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


def markdown_of(run: ReportedRun) -> str:
    """Return the table of a run as Markdown."""
    header = run.header
    cells = list(cells_of(run.results))
    facts = ", ".join(
        f"{name} {value}"
        for name in ("torch", "python", "device", "cpu")
        if (value := header.environment.get(name))
    )
    lines = [
        "# Support table",
        "",
        f"Run {_code(header.run_id)}, {_code(facts)}.",
        *(["**The run did not reach its end: cases are missing.**"] if run.footer is None else []),
        *(f"Compiler {_code(name)}: {_code(text)}." for name, text in compilers_of(header).items()),
        "",
        "| cell | is |",
        "|---|---|",
        *(f"| {state.word} | {state.meaning} |" for state in State),
        "",
        "An empty cell has no case in this run. What ATen ran is named, whatever the entry of "
        "the backend allows it. In brackets: the greatest error of a right answer, in units of its "
        "bound.",
    ]
    for (backend, suite), of_suite in suites_of(cells).items():
        counts = _words(cell.state for cell in of_suite)
        lines += ["", f"## {_code(backend)}: {_code(suite)}", "", f"{counts}.", ""]
        lines += _by_place(of_suite) if of_suite[0].place else _by_type(of_suite)
        names = {
            cell.result.case_id: _code(f"{cell.operator} {cell.type}")
            for cell in of_suite
            if not cell.is_of_calls
        }
        for state in _LISTED:
            results = [cell.result for cell in of_suite if cell.state is state]
            entries = [
                f"- {len(group)} of one cause: {_code(group[0].reason)}: "
                + ", ".join(names[result.case_id] for result in group)
                for group in causes(results if names else [])
            ]
            if names and state is State.SOME_SAMPLES:
                entries = [
                    f"- {names[result.case_id]}: {_fallen_back(result)}" for result in results
                ]
            lines += ["", f"### {state.word}: {state.meaning}", "", *entries] if entries else []
    return "\n".join(lines) + "\n"


_LISTED = (State.SOME_SAMPLES, State.WRONG, State.RAISED, State.FELL_BACK, State.NOT_TRIED)
"""The states whose cells are listed below a table, with more than fits into it."""


def _by_type(cells: Sequence[Cell]) -> Iterator[str]:
    types = sorted({cell.type for cell in cells})
    rows: defaultdict[str, dict[str, Cell]] = defaultdict(dict)
    for cell in cells:
        rows[cell.operator][cell.type] = cell
    yield f"| operator | {' | '.join(map(_code, types))} |"
    yield f"|---|{'---|' * len(types)}"
    for operator, row in rows.items():
        yield f"| {_code(operator)} | {' | '.join(_shown(row.get(dtype)) for dtype in types)} |"


def _by_place(cells: Sequence[Cell]) -> Iterator[str]:
    result = cells[0].result
    yield f"The case is {result.outcome.label}. {_code(result.reason)}"
    yield from ("", "| operator | place | calls |", "|---|---|---|")
    for cell in cells:
        yield f"| {_code(cell.operator)} | {_code(cell.place)} | {_shown(cell)} |"


def _fallen_back(result: Redacted) -> str:
    texts = list(map(_code, samples_of(result)[1]))
    return ", ".join([*texts[:_MOST_SAMPLES], "..."][: len(texts)])


def _code(text: str) -> str:
    """Return a text that drives neither Markdown, its tables, nor HTML."""
    shown = one_line(text, 2_000).replace("`", "'").replace("|", "/")
    return f"`{shown}`" if shown.strip() else ""


def _shown(cell: Cell | None) -> str:
    if cell is None:
        return ""
    error = "" if cell.error is None else f" ({cell.error:.2g})"
    return cell.state.word + (f": {_code(cell.detail)}" if cell.detail else "") + error


class SupportReporter(FileReport):
    """Writes the table where ``--support`` says."""

    def files(self) -> Iterable[Path]:
        """Return the file that the option names."""
        return filter(None, (self.setup.options.support,))

    def write(self, path: Path, run: ReportedRun) -> None:
        """Write the table of the results, as JSON or Markdown by the ending of the file's name."""
        text = markdown_of(run)
        if path.suffix == ".json":
            text = json.dumps(document_of(run), indent=1) + "\n"
        replace(path, text.encode("utf-8", "replace"))
