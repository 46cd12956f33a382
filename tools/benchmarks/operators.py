"""``python tools/benchmarks/operators.py RUN...`` prints the record of runs of the operator suite,
for ``reports/operators.md``.

Reads the journals of one or several runs (shards, dtypes, devices of one machine) and prints the
outcomes by dtype and mode, and each case with another outcome than PASS, with its reason.
"""

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import Run, read_run

FACTS = ("torch", "torch_git", "python", "device", "arch", "cuda")
_ID = re.compile(r".*\[backend=([^,]+),op=([^,]+),dtype=([^,]+)(?:,(.*))?\]")
_SAMPLES = re.compile(r"([0-9]+) samples? compared")


@dataclass(frozen=True)
class Case:
    """One case of the suite, as its id and its result say."""

    backend: str
    op: str
    dtype: str
    point: str
    result: CaseResult

    @property
    def group(self) -> str:
        """What a row of the table is of."""
        return " ".join(filter(None, [self.backend, self.dtype, self.point]))

    @property
    def samples(self) -> int:
        """How many samples were compared; 0 for a case in which one failed."""
        found = (_SAMPLES.search(verdict.observed) for verdict in self.result.verdicts)
        return sum(int(match[1]) for match in found if match)


def cases_of(runs: Iterable[Run]) -> list[Case]:
    """Return the cases of operators in some runs; of a case that stands in several the last."""
    found: dict[str, Case] = {}
    for run in runs:
        for result in run.results:
            match = _ID.fullmatch(result.case_id)
            if match is not None:
                found[result.case_id] = Case(match[1], match[2], match[3], match[4] or "", result)
    return list(found.values())


def totals(cases: Sequence[Case]) -> Counter[str]:
    """Return the number of cases by outcome, and of compared samples."""
    found = Counter(case.result.outcome.label for case in cases)
    found["samples"] = sum(case.samples for case in cases)
    return found


def others(cases: Sequence[Case]) -> list[Case]:
    """Return the cases with another outcome than PASS, sorted by outcome and id, without those that
    were not executed.
    """
    wanted = [
        case
        for case in cases
        if case.result.outcome not in (Outcome.PASS, Outcome.UNAVAILABLE, Outcome.NOT_RUN)
    ]
    return sorted(wanted, key=lambda case: (case.result.outcome.label, case.op, case.group))


def record(runs: Sequence[Run], cases: Sequence[Case]) -> Iterator[str]:
    """Yield the lines of the record."""
    environment = runs[0].header.environment
    yield (
        ", ".join(f"{fact} {environment[fact]}" for fact in FACTS if environment.get(fact)) + ".\n"
    )
    outcomes = [
        outcome.label
        for outcome in Outcome
        if any(case.result.outcome is outcome for case in cases)
    ]
    yield f"| cases | executed | {' | '.join(outcomes)} | samples |"
    yield f"|---|---|{'---|' * (len(outcomes) + 1)}"
    for group in sorted({case.group for case in cases}):
        members = [case for case in cases if case.group == group]
        counts = totals(members)
        yield (
            f"| {group} | {len(members)} | {' | '.join(str(counts[label]) for label in outcomes)} "
            f"| {counts['samples']} |"
        )
    yield "\n| outcome | operator | case | reason |\n|---|---|---|---|"
    for case in others(cases):
        yield (
            f"| {case.result.outcome.label} | `{case.op}` | {case.group} | "
            f"{_cell(case.result.reason)} |"
        )


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")[:300]


def main() -> None:
    """Print the record of some runs."""
    parser = argparse.ArgumentParser(description="Print the record of runs of the operator suite.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    runs = [read_run(folder / "run.jsonl") for folder in parser.parse_args().runs]
    print("\n".join(record(runs, cases_of(runs))))


if __name__ == "__main__":
    main()
