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

from tools.mutants.choosing import Tried, claiming, executed, in_turns, reached
from tools.mutants.named import source_of, survivors, torch_version
from tools.mutants.operators import Mutant, difference, mutants, sample
from tools.mutants.table import rates, read
from tools.running import cases_of

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
"""The modules of the five test files that the shipped specs come from, and what they import."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each survivor with its difference, and the rates; survivors are for people to read, so
    that the status is 0.
    """
    options = parser().parse_args(arguments)
    modules = options.modules or FIVE_SEEDS
    every = [mutant for module in modules for mutant in mutants(module, source_of(module))]
    results: list[Tried] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        folder = Path(temporary)
        cases = chosen_cases(options)
        lines = executed(modules, cases, folder / "lines", options.lines, jobs=options.jobs)
        cases_of = reached(every, lines)
        print(f"{len(every)} mutants, {len(cases_of)} in lines that {len(lines)} cases execute")
        drawn = chosen_mutants([*cases_of], options)
        # each batch has some of each module
        random.Random(options.seed).shuffle(drawn)
        for number, batch in enumerate(batched(drawn, options.batch)):
            cases_of_mutant = {
                mutant: claiming(mutant, cases_of[mutant], cases, lines, options.cases)
                for mutant in batch
            }
            for tried in in_turns(
                cases_of_mutant, cases, folder / f"tried-{number}", jobs=options.jobs
            ):
                results.append(tried)
                _show(tried)
            # after each batch, so that a run that is stopped leaves what it found
            if options.json is not None:
                record = json.dumps(_record(results, cases_of, options), indent=1)
                options.json.write_text(f"{record}\n", "utf-8")
    print("\n" + "\n".join(rates(read([_record(results, cases_of, options)]), survivors())))
    return 0


def chosen_cases(options: argparse.Namespace) -> dict[str, Path]:
    """Return the named cases, or all of them without the thousands of the operator suite."""
    return {
        name: file
        for name, file in cases_of(options.device or ["cpu"]).items()
        if (name in options.case if options.case else not name.startswith("operators/"))
    }


def batched(drawn: Sequence[Mutant], size: int) -> Iterator[Sequence[Mutant]]:
    """Yield the mutants in groups of a size."""
    for begin in range(0, len(drawn), size):
        yield drawn[begin : begin + size]


def _show(tried: Tried) -> None:
    mutant = tried.mutant
    if tried.status != "killed":
        print(f"\n{tried.status}: {mutant.name} in {mutant.function}, {len(tried.outcomes)} cases")
        print(difference(source_of(mutant.module), mutant), flush=True)
    for case_id in tried.killed_by:
        print(f"killed: {mutant.name} by {case_id}: {tried.reasons[case_id]}", flush=True)


def chosen_mutants(mutants: Sequence[Mutant], options: argparse.Namespace) -> list[Mutant]:
    """Return the named mutants, or else a sample."""
    if options.mutant:
        return [mutant for mutant in mutants if mutant.name in options.mutant]
    number, each = options.each or options.sample, bool(options.each)
    return sample(mutants, number, options.seed, each=each)


def _record(
    results: Sequence[Tried], cases_of: Mapping[Mutant, Sequence[str]], options: argparse.Namespace
) -> dict[str, object]:
    return {
        "torch": torch_version(),
        "seed": None if options.mutant else options.seed,
        "most_cases": options.cases,
        "reached": dict(Counter(mutant.module for mutant in cases_of)),
        "mutants": [
            {
                "name": tried.mutant.name,
                "function": tried.mutant.function,
                "status": tried.status,
                "difference": difference(source_of(tried.mutant.module), tried.mutant),
                "cases": {name: outcome.label for name, outcome in tried.outcomes.items()},
                "reason": next((tried.reasons[case_id] for case_id in tried.killed_by), ""),
            }
            for tried in results
        ],
    }


def parser() -> argparse.ArgumentParser:
    command_line = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    several = {"action": "append", "default": []}
    add = command_line.add_argument
    add("modules", nargs="*", metavar="MODULE", help="modules of torch (those of the five seeds)")
    for option, default, name, text in (
        ("--sample", 60, "N", "mutants that are drawn of those that cases execute"),
        ("--each", 0, "N", "draw N mutants of each module instead"),
        ("--seed", 0, "S", "what the sample is drawn with"),
        ("--cases", 8, "N", "cases under each mutant at most; after a detection no other"),
        ("--batch", 40, "N", "mutants in one run; the record is written after each"),
        ("--jobs", 2, "N", "cases at once"),
    ):
        add(option, type=int, default=default, metavar=name, help=f"{text} (%(default)s)")
    for option, name, text in (
        ("--mutant", "NAME", "this mutant only"),
        ("--case", "ID", "these cases only"),
        ("--device", "NAME", "cases of this device (cpu)"),
    ):
        add(option, **several, metavar=name, help=f"{text}; may repeat")
    of_lines = "read the executed lines of cases from FILE; add those of the others"
    add("--lines", type=Path, metavar="FILE", help=of_lines)
    add("--json", type=Path, metavar="FILE", help="write the record")
    return command_line


if __name__ == "__main__":
    sys.exit(main())
