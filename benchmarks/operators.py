"""The record of the operator suite: ``python benchmarks/operators.py RUN... --name NAME``.

Reads the journals of one or several runs (shards, dtypes, devices of one machine), and writes ``NAME.json`` and ``NAME.md`` below
``reports/operators``: outcomes by dtype and mode, each case with another outcome than PASS and its reason, and the slowest cases.
The journals are not copied.
"""

import argparse
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.journal import Run, read_run

ROOT = Path(__file__).resolve().parent.parent
FACTS = ("torch", "torch_git", "python", "device", "arch", "cuda")
_SLOWEST = 20
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


def summary(runs: Sequence[Run], cases: Sequence[Case], command: str) -> dict[str, object]:
    """Return the record as JSON."""
    environment = {name: runs[0].header.environment[name] for name in FACTS if name in runs[0].header.environment}
    groups = sorted({case.group for case in cases})
    return {
        "format": 1,
        "environment": environment,
        "command": command,
        "runs": [{"id": run.header.run_id, "started": run.header.started, "seconds": seconds_of(run)} for run in runs],
        "cases": len(cases),
        "samples": sum(case.samples for case in cases),
        "worker_seconds": round(sum(case.result.seconds for case in cases)),
        "groups": {group: dict(totals([case for case in cases if case.group == group])) for group in groups},
        "others": [
            {"id": case.result.case_id, "outcome": case.result.outcome.label, "reason": case.result.reason[:400]} for case in others(cases)
        ],
        "slowest": {case.result.case_id: round(case.result.seconds, 1) for case in slowest(cases)},
    }


def seconds_of(run: Run) -> float | None:
    """Return how long a run took; None for a truncated one."""
    return None if run.footer is None else round(run.footer.seconds)


def totals(cases: Sequence[Case]) -> Counter[str]:
    """Return the number of cases by outcome, and of compared samples."""
    found = Counter(case.result.outcome.label for case in cases)
    found["samples"] = sum(case.samples for case in cases)
    return found


def others(cases: Sequence[Case]) -> list[Case]:
    """Return the cases with another outcome than PASS, sorted by outcome and id, without those that were not executed."""
    wanted = [case for case in cases if case.result.outcome not in (Outcome.PASS, Outcome.UNAVAILABLE, Outcome.NOT_RUN)]
    return sorted(wanted, key=lambda case: (case.result.outcome.label, case.op, case.group))


def slowest(cases: Sequence[Case]) -> list[Case]:
    """Return the cases that took longest."""
    return sorted(cases, key=lambda case: -case.result.seconds)[:_SLOWEST]


def page(name: str, runs: Sequence[Run], cases: Sequence[Case], command: str) -> Iterator[str]:
    """Yield the lines of the record for people."""
    environment = runs[0].header.environment
    yield f"# Operator suite: {name}\n"
    yield f"{len(cases)} cases, {sum(case.samples for case in cases)} samples compared. "
    yield ", ".join(f"{fact} {environment[fact]}" for fact in FACTS if environment.get(fact)) + ".\n"
    yield f"```sh\n{command}\n```\n"
    outcomes = [one.label for one in Outcome if any(case.result.outcome is one for case in cases)]
    yield f"| cases | {' | '.join(outcomes)} | samples |"
    yield f"|---|{'---|' * (len(outcomes) + 1)}"
    for group in sorted({case.group for case in cases}):
        found = totals([case for case in cases if case.group == group])
        yield f"| {group} | {' | '.join(str(found[label]) for label in outcomes)} | {found['samples']} |"
    times = ("an unknown time (interrupted)" if (took := seconds_of(run)) is None else f"{took:.0f} s" for run in runs)
    yield f"\n{len(runs)} run{'' if len(runs) == 1 else 's'} of {', '.join(times)}; "
    yield f"{sum(case.result.seconds for case in cases):.0f} seconds of workers.\n"
    yield "## Cases that did not pass\n"
    yield "| outcome | operator | case | reason |\n|---|---|---|---|"
    for case in others(cases):
        yield f"| {case.result.outcome.label} | `{case.op}` | {case.group} | {_cell(case.result.reason)} |"
    yield "\n## Slowest\n"
    yield "| operator | case | seconds |\n|---|---|---|"
    yield from (f"| `{case.op}` | {case.group} | {case.result.seconds:.0f} |" for case in slowest(cases))


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")[:300]


def main() -> None:
    """Write the record of some runs."""
    parser = argparse.ArgumentParser(description="Write the record of runs of the operator suite.")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folders of runs")
    parser.add_argument("--name", required=True, help="name of the record: cpu-torch-2.13")
    parser.add_argument("--command", default="", help="the command of the runs, for the record")
    parser.add_argument("--out", type=Path, default=ROOT / "reports" / "operators", metavar="DIR")
    arguments = parser.parse_args()
    runs = [read_run(folder / "run.jsonl") for folder in arguments.runs]
    cases = cases_of(runs)
    command = arguments.command or " ".join(runs[0].header.command)
    arguments.out.mkdir(parents=True, exist_ok=True)
    text = json.dumps(summary(runs, cases, command), indent=1, sort_keys=False) + "\n"
    text = text.replace(f"{ROOT}/", "")  # a run in another folder names the files of this one by their whole paths
    (arguments.out / f"{arguments.name}.json").write_text(text, encoding="utf-8")
    lines = "\n".join(page(arguments.name, runs, cases, command)).replace(f"{ROOT}/", "") + "\n"
    (arguments.out / f"{arguments.name}.md").write_text(lines, encoding="utf-8")
    print(f"{len(cases)} cases of {len(runs)} runs: {arguments.out / arguments.name}.md")


if __name__ == "__main__":
    main()
