"""``python -m tools.mutants MODULE...``: plants changes of torch's own source and prints which of
them a shipped case detects.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.mutants.named import source_of, torch_version
from tools.mutants.operators import Mutant, difference, mutants, sample, sample_of_each
from tools.mutants.running import (
    Executed,
    Tried,
    cases_of,
    claiming,
    executed,
    in_turns,
    reached,
    record_lines,
    recorded,
    status,
    varied,
)
from torch_conformance.model.outcomes import Outcome

FIVE_SEEDS = (
    "torch._inductor.codecache",
    "torch._inductor.freezing",
    "torch._inductor.fx_passes.freezing_patterns",
    "torch._inductor.fx_passes.pad_mm",
    "torch._inductor.select_algorithm",
    "torch._inductor.autotune_process",
    "torch._inductor.ir",
    "torch._inductor.scheduler",
    "torch._inductor.lowering",
    "torch._inductor.codegen.cpp",
    "torch._dynamo.output_graph",
    "torch._dynamo.guards",
)
"""The modules of the five test files that the shipped specs come from, and what they stand on."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each survivor with its difference, and the rates; survivors are for people to read, so
    that the status is 0.
    """
    given = options().parse_args(arguments)
    modules = given.modules or FIVE_SEEDS
    sources = {module: source_of(module) for module in modules}
    every = [mutant for module, source in sources.items() for mutant in mutants(module, source)]
    if given.out:
        Path(given.out).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        folder = (
            Path(tempfile.mkdtemp(prefix="table-", dir=given.out)) if given.out else Path(temporary)
        )
        cases = chosen_cases(cases_of(given.device or ["cpu"]), given.case)
        lines = _lines(modules, cases, folder / "lines", given)
        known = reached(every, lines)
        print(
            f"{len(every)} mutants, {len(known)} of them in lines that {len(lines)} cases execute",
            flush=True,
        )
        found: list[Tried] = []
        had = _survivors(given.again)
        drawn = random.Random(given.seed).sample(
            chosen := _drawn(known, given), len(chosen)
        )  # each batch has some of each module
        for number, some_of_them in enumerate(batched(drawn, given.batch)):
            wanted = {
                mutant: varied(mutant, known[mutant], had[mutant.name], cases, lines, given.cases)
                if mutant.name in had
                else claiming(mutant, known[mutant], cases, lines, given.cases)
                for mutant in some_of_them
            }
            for one in in_turns(wanted, cases, folder / f"tried-{number}", jobs=given.jobs):
                found.append(one)
                _show(one, sources)
            if given.json:  # after each batch, so that a run that is stopped leaves what it found
                given.json.write_text(
                    json.dumps(_record(found, sources, known, given), indent=1) + "\n", "utf-8"
                )
    print("\n" + "\n".join(_rates(found)))
    return 0


def chosen_cases(cases: Mapping[str, Path], named: Sequence[str]) -> dict[str, Path]:
    """Return the named cases; where none is named all of them, without the thousands of the
    operator suite.
    """
    return {
        name: file
        for name, file in cases.items()
        if (name in named if named else not name.startswith("operators/"))
    }


def _lines(
    modules: Sequence[str], cases: Mapping[str, Path], folder: Path, options: argparse.Namespace
) -> Executed:
    """Return the lines that the cases execute: those of the file that are known, those of the other
    cases from a run without mutants.
    """
    known = recorded(options.lines, modules, torch_version())
    missing = (
        {}
        if options.lines_as_they_are
        else {case_id: file for case_id, file in cases.items() if case_id not in known}
    )
    noted = {**known, **(executed(modules, missing, folder, jobs=options.jobs) if missing else {})}
    if options.lines and missing:
        record_lines(options.lines, modules, torch_version(), noted)
    return {case_id: alone for case_id, alone in noted.items() if case_id in cases}


def batched(drawn: Sequence[Mutant], size: int) -> Iterator[Sequence[Mutant]]:
    """Yield the mutants in groups of a size."""
    for begin in range(0, len(drawn), size):
        yield drawn[begin : begin + size]


def _show(one: Tried, sources: Mapping[str, str]) -> None:
    if one.status != "killed":
        print(
            f"\n{one.status}: {one.mutant.name} in {one.mutant.function}, {len(one.outcomes)} cases"
        )
        print(difference(sources[one.mutant.module], one.mutant), flush=True)


def _drawn(known: Mapping[Mutant, Sequence[str]], options: argparse.Namespace) -> list[Mutant]:
    tried = {
        one["name"]
        for record in options.without
        for one in json.loads(record.read_bytes())["mutants"]
    }
    return [mutant for mutant in _sample(known, options) if mutant.name not in tried]


def _sample(known: Mapping[Mutant, Sequence[str]], options: argparse.Namespace) -> list[Mutant]:
    if options.mutant:
        return [mutant for mutant in known if mutant.name in options.mutant]
    if options.again:
        return [mutant for mutant in known if mutant.name in _survivors(options.again)]
    if options.each:
        return sample_of_each(list(known), options.each, options.seed)
    return sample(list(known), options.sample, options.seed)


def _survivors(records: Sequence[Path]) -> dict[str, frozenset[str]]:
    """Return the mutants that no case of these records detects, each with the cases that it had;
    one that timed out can run again.
    """
    had: dict[str, frozenset[str]] = {}
    killed: set[str] = set()
    for one in [one for record in records for one in json.loads(record.read_bytes())["mutants"]]:
        ended = {
            case_id for case_id, label in one["cases"].items() if label != Outcome.TIMEOUT.label
        }
        had[one["name"]] = had.get(one["name"], frozenset()) | ended
        killed |= (
            {one["name"]} if status(one["cases"].values()) in ("killed", "not planted") else set()
        )
    return {name: cases for name, cases in had.items() if name not in killed}


def _rates(found: Sequence[Tried]) -> list[str]:
    lines = []
    modules = sorted({one.mutant.module for one in found})
    for module in [*modules, "all"]:
        mine = Counter(one.status for one in found if module in ("all", one.mutant.module))
        counted = mine["killed"] + mine["survived"]
        rate = f"{100 * mine['killed'] / counted:.0f} %" if counted else "-"
        lines.append(
            f"{module:<48} {mine['killed']:>4} killed of {counted:>4} ({rate}), "
            f"{mine['not planted']} not planted"
        )
    return lines


def _record(
    found: Sequence[Tried],
    sources: Mapping[str, str],
    known: Mapping[Mutant, Sequence[str]],
    options: argparse.Namespace,
) -> object:
    return {
        "torch": torch_version(),
        "seed": None
        if options.again or options.mutant
        else options.seed,  # what was not drawn has no seed
        "most_cases": options.cases,
        "reached": dict(Counter(mutant.module for mutant in known)),
        "mutants": [
            {
                "name": one.mutant.name,
                "function": one.mutant.function,
                "status": one.status,
                "difference": difference(sources[one.mutant.module], one.mutant),
                "cases": {case_id: outcome.label for case_id, outcome in one.outcomes.items()},
                "reason": next((one.reasons[case_id] for case_id in one.killed_by), ""),
            }
            for one in found
        ],
    }


def options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    parser.add_argument(
        "modules",
        nargs="*",
        metavar="MODULE",
        help="modules of torch (the modules of the five seed files)",
    )
    parser.add_argument(
        "--sample",
        type=int,
        default=60,
        metavar="N",
        help="mutants that are drawn of those that cases execute (60)",
    )
    parser.add_argument(
        "--each", type=int, default=0, metavar="N", help="draw N mutants of each module instead"
    )
    parser.add_argument(
        "--seed", type=int, default=0, metavar="S", help="what the sample is drawn with (0)"
    )
    parser.add_argument(
        "--mutant",
        action="append",
        default=[],
        metavar="NAME",
        help="this mutant alone; may repeat",
    )
    help_of_again = "the survivors of this record, under cases that they did not have; may repeat"
    parser.add_argument(
        "--again", action="append", default=[], type=Path, metavar="RECORD", help=help_of_again
    )
    help_of_without = (
        "leave out what this record has, to go on with a sample that was stopped; may repeat"
    )
    parser.add_argument(
        "--without", action="append", default=[], type=Path, metavar="RECORD", help=help_of_without
    )
    parser.add_argument(
        "--cases",
        type=int,
        default=8,
        metavar="N",
        help="cases under each mutant at most (8); a mutant that the first detects gets no other",
    )
    parser.add_argument(
        "--batch",
        type=int,
        default=40,
        metavar="N",
        help="mutants in one run (40); the record is written after each",
    )
    parser.add_argument(
        "--case", action="append", default=[], metavar="ID", help="these cases alone; may repeat"
    )
    parser.add_argument(
        "--device",
        action="append",
        default=[],
        metavar="NAME",
        help="cases of this device (cpu); may repeat",
    )
    parser.add_argument(
        "--lines",
        type=Path,
        metavar="FILE",
        help="read the executed lines of cases from FILE; add those of the others",
    )
    parser.add_argument(
        "--lines-as-they-are",
        action="store_true",
        help="leave out the cases that FILE does not have",
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cases at once (2)")
    parser.add_argument("--out", metavar="DIR", help="keep the runs below this folder")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record")
    return parser


if __name__ == "__main__":
    sys.exit(main())
