"""``python -m tools.benchmarks.operators RUN...`` prints the record of runs of the operator suite,
for ``reports/operators.md``.

Reads the journals of one or several runs (shards, dtypes, devices of one machine) and prints the
outcomes by dtype and mode, and each case with another outcome than PASS, with its reason.
"""

import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.reports import table
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


def record(runs: Sequence[Run], cases: Sequence[Case]) -> Iterator[str]:
    """Yield the lines of the record."""
    environment = runs[0].header.environment
    facts = [f"{fact} {environment[fact]}" for fact in FACTS if environment.get(fact)]
    yield f"{', '.join(facts)}.\n"
    outcomes = [
        outcome for outcome in Outcome if any(case.result.outcome is outcome for case in cases)
    ]
    groups: dict[str, list[Case]] = {}
    for case in sorted(cases, key=lambda case: case.group):
        groups.setdefault(case.group, []).append(case)
    yield from table(
        ("cases", "executed", *(outcome.label for outcome in outcomes), "samples"),
        [
            (
                group,
                len(members),
                *(sum(case.result.outcome is outcome for case in members) for outcome in outcomes),
                sum(case.samples for case in members),
            )
            for group, members in groups.items()
        ],
    )
    yield ""
    executed = [case for case in cases if case.result.outcome not in NOT_LISTED]
    rows = [
        (case.result.outcome.label, f"`{case.op}`", case.group, case.result.reason[:300])
        for case in executed
    ]
    yield from table(("outcome", "operator", "case", "reason"), sorted(rows))


NOT_LISTED = (Outcome.PASS, Outcome.UNAVAILABLE, Outcome.NOT_RUN)


def main() -> None:
    """Print the record of some runs."""
    runs = [read_run(Path(folder) / "run.jsonl") for folder in sys.argv[1:]]
    print("\n".join(record(runs, cases_of(runs))))


if __name__ == "__main__":
    main()
