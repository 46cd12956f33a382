"""``diff``: what changed between two recorded runs, as text, as JSON
(``schemas/diff.schema.json``), and as one HTML page.

The page is one file, without a script and without a request to any host. Everything is escaped by
default.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_conformance.machine import output
from torch_conformance.model.codec import encode
from torch_conformance.model.diagnostics import UsageError, shown_path, unknown
from torch_conformance.model.escaping import one_line, plain
from torch_conformance.model.outcomes import ExitCode, Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.optional.options import argument, flag, report_file, report_files, several
from torch_conformance.record.journal import NamedRun
from torch_conformance.record.run_folder import require_free_reports
from torch_conformance.report import replace
from torch_conformance.report.page import rendered
from torch_conformance.report.support_table import Cell, entry_of, measured_cells
from torch_conformance.report.terminal import shown_id
from torch_conformance.run.compared_runs import (
    FAIL_ON,
    SPEC_CHANGED,
    CaseChange,
    Change,
    Comparison,
    compare,
    read_placed,
)

FORMAT = 2
"""The number of the form of the JSON."""

LOST = "lost-cells"
"""The word of ``--fail-on`` that counts cells of the support table, not cases."""

LISTED = 30
"""How many cases of one change the text lists; JSON and the page list all."""

_CODE_LINES = 60
"""How many lines of what differs in a text the terminal shows."""


def lines_of(comparison: Comparison, *, with_code: bool = False) -> Iterator[str]:
    """Yield the report; ``with_code`` adds what differs in the generated code and the graphs."""
    yield _side_line("first", comparison.before)
    yield _side_line("second", comparison.after)
    for difference in comparison.differences:
        yield f"differs: {one_line(difference)}"
    for change in Change:
        cases = comparison.listed(change)
        if cases:
            yield from ("", f"{change.word} ({len(cases)}): {change.meaning}")
        alone = [case for case in cases if case.words == (SPEC_CHANGED,)]
        for remark, count in Counter(remark for case in alone for remark in case.remarks).items():
            yield f"  {count} case{'' if count == 1 else 's'} [{SPEC_CHANGED}]: {one_line(remark)}"
        cases = [case for case in cases if case not in alone]
        for case in cases[:LISTED]:
            mark = f" [{SPEC_CHANGED}]" if case.spec_changed else ""
            yield f"  {shown_id(case.case_id)}  {', then '.join(case.outcomes)}{mark}"
            yield from (f"      {line}" for line in _details(case))
            if case.code:
                yield (
                    "      generated code and graphs that differ: "
                    f"{', '.join(map(one_line, case.code))}"
                )
            for lines in case.code.values() if with_code else ():
                yield from (f"      {plain(line)}" for line in lines[:_CODE_LINES])
        if len(cases) > LISTED:
            yield f"  and {len(cases) - LISTED} more (--json lists all)"
    if cells := changed_cells(comparison):
        yield from ("", f"cells of the support table that differ ({len(cells)}):")
        yield from (
            f"  {one_line(f'{_name(then, now)}: {_state(then)}, then {_state(now)}')}"
            + " [lost]" * is_lost(then, now)
            for then, now in cells[:LISTED]
        )
        yield from (
            [f"  and {len(cells) - LISTED} more (--json lists all)"] if len(cells) > LISTED else []
        )
    counts = ", ".join(f"{count} {word}" for word, count in comparison.counts.items() if count)
    yield from ("", f"{counts or 'no case'}; {comparison.both} cases have a result in both runs")


def changed_cells(comparison: Comparison) -> list[tuple[Cell | None, Cell | None]]:
    """Return the cells of the support tables of both runs that differ in their state, or in what
    ATen ran or how often; None where a run has no case.
    """
    sides = [
        {cell.key: cell for cell in measured_cells(side.run.results)}
        for side in (comparison.before, comparison.after)
    ]
    pairs = [(sides[0].get(key), sides[1].get(key)) for key in {**sides[1], **sides[0]}]
    return [
        (then, now)
        for then, now in pairs
        if (_state(then), _share(then)) != (_state(now), _share(now))
    ]


def is_lost(then: Cell | None, now: Cell | None) -> bool:
    """Whether the compiler computed more of a right answer in the first run than in the second."""
    return _share(now) < _share(then)


def _share(cell: Cell | None) -> float:
    return -1.0 if cell is None else cell.share


def _state(cell: Cell | None) -> str:
    if cell is None:
        return "no case"
    return f"{cell.state.word} ({cell.detail})" if cell.detail else cell.state.word


def _name(*cells: Cell | None) -> str:
    cell = next(cell for cell in cells if cell is not None)
    words = filter(None, (cell.backend, cell.operator, cell.type, cell.place))
    return f"{' '.join(words)}, {cell.suite}"


def _side_line(word: str, side: NamedRun) -> str:
    """Return one line about a run."""
    facts = side.run.header.environment
    about = [
        side.run.header.run_id or "without an id",
        *(f"{name} {facts[name]}" for name in ("torch", "device", "cpu") if facts.get(name)),
    ]
    totals = ", ".join(f"{count} {outcome.label}" for outcome, count in _totals(side).most_common())
    interrupted = "; it was interrupted" if side.run.footer and side.run.footer.interrupted else ""
    return (
        f"{word}: {one_line(side.name)} ({one_line(', '.join(about))}): "
        f"{totals or 'no case'}{interrupted}"
    )


def _details(case: CaseChange) -> Iterator[str]:
    """Yield the reasons and remarks of a change."""
    then, now = (
        "" if result is None else one_line(result.reason, 300)
        for result in (case.before, case.after)
    )
    if case.change in (Change.CHANGED, Change.FIXED) and then and then != now:
        yield f"was: {then}"
    if now and case.change is not Change.SAME:
        yield now
        if case.after is not None and case.after.failed:
            yield f"at {one_line(str(case.after.position))}"
    yield from map(one_line, case.remarks)


def document_of(
    comparison: Comparison, *, fail_on: Sequence[str], exit_code: int
) -> dict[str, object]:
    """Return the document. It lists every case that changed, and counts the others."""
    return {
        "format": FORMAT,
        "before": _side(comparison.before),
        "after": _side(comparison.after),
        "differences": list(comparison.differences),
        "compared": comparison.both,
        "counts": comparison.counts,
        "cases": [
            {
                "id": case.case_id,
                "change": case.change.word,
                "spec_changed": case.spec_changed,
                "before": _result(case.before),
                "after": _result(case.after),
                "remarks": list(case.remarks),
                "code": {name: list(lines) for name, lines in case.code.items()},
            }
            for case in comparison.changes
            if case.words
        ],
        "support": [
            {"before": then and entry_of(then), "after": now and entry_of(now)}
            for then, now in changed_cells(comparison)
        ],
        "fail_on": list(fail_on),
        "reached": _reached(comparison, fail_on),
        "exit_code": exit_code,
    }


def _side(side: NamedRun) -> dict[str, object]:
    return {
        "name": side.name,
        "run": side.run.header.run_id,
        "started": side.run.header.started,
        "merged": list(side.run.header.merged),
        "environment": dict(side.run.header.environment),
        "totals": {outcome.label: count for outcome, count in _totals(side).items()},
        "interrupted": side.run.footer is not None and side.run.footer.interrupted,
    }


def _totals(side: NamedRun) -> Counter[Outcome]:
    return Counter(result.outcome for result in side.run.results)


def _result(result: CaseResult | None) -> Mapping[str, object] | None:
    names = "outcome reason failure_type seconds position folder".split()
    return None if result is None else {name: encode(getattr(result, name)) for name in names}


def page_of(comparison: Comparison) -> str:
    """Return the page."""
    words = {
        "comparison": comparison,
        "sides": [_side_line("first", comparison.before), _side_line("second", comparison.after)],
        "groups": [
            (change, [(case, list(_details(case))) for case in comparison.listed(change)])
            for change in Change
        ],
        "cells": [(now or then, then, now) for then, now in changed_cells(comparison)],
    }
    return rendered("comparison.html.j2", words)


def _reached(comparison: Comparison, words: Sequence[str]) -> dict[str, int]:
    """Return how many cases or cells have each of these words, for those that some have."""
    lost = sum(is_lost(then, now) for then, now in changed_cells(comparison))
    return comparison.reached(words) | ({LOST: lost} if lost and LOST in words else {})


# -- the command -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The options of ``diff``."""

    before: str = argument(
        "RUN", "the first run: its folder, its id, latest, or only a journal (a .jsonl file)"
    )
    after: str = argument("RUN", "the second run")
    fail_on: tuple[str, ...] = several(
        "WORDS",
        "exit 1 if a case has one of these words, with commas between them: broken, "
        "new-failure, gone, no-longer-executed, waived, "
        "changed, still-failing, fixed, new, now-executed, spec-changed; or lost-cells, if the "
        "compiler computes less of the support table",
    )
    code: bool = flag("print what differs in the generated code and the graphs of changed cases")
    html: Path | None = report_file(
        "also write one HTML page, with what differs in generated code and graphs"
    )
    json: bool = flag("print one object")


def main(options: DiffOptions) -> ExitCode:
    """Compare two recorded runs; exit 1 for a change of ``--fail-on``, 4 where nothing could be
    compared.
    """
    require_free_reports(report_files(options))
    fail_on = [word.strip() for words in options.fail_on for word in words.split(",")]
    for word in fail_on:
        if word not in (*FAIL_ON, LOST):
            message, hint = unknown("change", word, (*FAIL_ON, LOST))
            raise UsageError(f"--fail-on: {message} ({hint})")
    comparison = compare(read_placed(options.before), read_placed(options.after))
    reached = _reached(comparison, fail_on)
    code = ExitCode.FAILED if reached else ExitCode.OK if comparison.both else ExitCode.NOTHING
    if options.html is not None:
        replace(options.html, page_of(comparison).encode("utf-8"))
        output.note(f"page: {shown_path(options.html)}")
    if options.json:
        output.document(document_of(comparison, fail_on=fail_on, exit_code=int(code)))
    else:
        output.lines(lines_of(comparison, with_code=options.code))
    for word, count in reached.items():
        output.note(f"--fail-on {word}: {count}")
    if code is ExitCode.NOTHING:
        output.note("nothing was compared: no case has a result in both runs")
    return code
