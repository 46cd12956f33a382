"""Writes the table of the cases that differ between minors of torch
(``docs/reference/torch-minors.md``) from a run with each.

``nox -s suite-2.11 suite-2.12 suite-2.13 suite-2.14`` makes the runs; ``python -m
tools.torch_minors RUN RUN ...`` reads their journals.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from tools.reports import table
from torch_conformance.model.folded_ids import fold
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import Run, read_run

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "torch-minors.md"

_HEAD = """\
# What differs between minors of torch

The default suite on the CPU, run once with each minor, as `nox -s {sessions}` does. `python -m tools.torch_minors RUN ...` wrote this
page from their journals. A case that has the same outcome with each is not listed. XFAIL is a known defect, with the reason and the
issue of its waiver. UNAVAILABLE says what that torch lacks. An empty cell: no such case. `torch-conformance diff RUN RUN` compares two of
the runs in full ([Compare two runs](../guides/compare-runs.md)).

"""  # noqa: E501 - text that is read by its lines


def minor_of(run: Run) -> str:
    """Return the minor of the torch of a run, such as 2.14."""
    return ".".join(run.header.environment["torch"].split(".")[:2])


def cause_of(results: Sequence[CaseResult | None]) -> str:
    """Return why the results of a case differ: the reasons of those that did not pass, each
    once.
    """
    reasons: list[str] = []
    for result in results:
        if result is not None and result.outcome is not Outcome.PASS:
            waived = [f"{waiver.reason} ({waiver.issue})" for waiver in result.waivers]
            reasons += waived or [result.reason]
    return "; ".join(dict.fromkeys(reasons))


def lines(runs: Sequence[Run]) -> Iterator[str]:
    """Yield the lines of the page."""
    minors = [minor_of(run) for run in runs]
    yield _HEAD.format(sessions=" ".join(f"suite-{minor}" for minor in minors))
    counts = {
        outcome: [sum(result.outcome is outcome for result in run.results) for run in runs]
        for outcome in Outcome
    }
    yield from table(
        ("torch", *(run.header.environment["torch"] for run in runs)),
        [(outcome.label, *numbers) for outcome, numbers in counts.items() if any(numbers)],
    )
    by_id = [{result.case_id: result for result in run.results} for run in runs]
    rows: dict[tuple[tuple[str, ...], str], list[str]] = {}
    for case_id in sorted({case_id for by_case in by_id for case_id in by_case}):
        results = [by_case.get(case_id) for by_case in by_id]
        outcomes = tuple(result.outcome.label if result is not None else "" for result in results)
        if len(set(outcomes)) > 1:
            rows.setdefault((outcomes, cause_of(results)), []).append(case_id)
    yield ""
    yield from table(
        ("case", *minors, "cause"),
        [
            ("<br>".join(f"`{text}`" for text in fold(ids)), *outcomes, cause)
            for (outcomes, cause), ids in sorted(rows.items(), key=lambda row: row[1])
        ],
    )


def main(arguments: Sequence[str]) -> None:
    """Write the page from the folders of runs, which are put in the order of their minors."""
    runs = [read_run(Path(folder) / "run.jsonl") for folder in arguments]
    runs.sort(key=lambda run: [int(part) for part in minor_of(run).split(".")])
    PAGE.write_text("\n".join(lines(runs)) + "\n")


if __name__ == "__main__":
    main(sys.argv[1:])
