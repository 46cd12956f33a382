"""``python -m tools.mutants MODULE...``: plants changes of torch's own source and prints which of
them a shipped case, or a sample of an operator, detects.
"""

import argparse
import json
import random
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tools.mutants.choosing import (
    Tried,
    claiming,
    executed,
    in_turns,
    reached,
    status,
    varied,
)
from tools.mutants.named import KINDS_OF_SURVIVORS, source_of, survivors, torch_version
from tools.mutants.operators import Mutant, difference, mutants, sample
from tools.mutants.table import rates, read
from tools.reports import write_record
from tools.running import SPECS, cases_of
from torch_conformance.language.load import load
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
"""The modules of the five test files that the shipped specs come from, and what they import."""

OPERATOR = """summary: Samples of an operator compute what eager computes
backends: [cpu]
source: {opinfo: {dtypes: [float32], samples: first}}
compile: {dynamic: "{{ dynamic }}"}
matrix: {dynamic: [false]}
expect: [{close: {to: eager}}]
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each survivor with its difference, and the rates; survivors are for people to read, so
    that the status is 0.
    """
    options = parser().parse_args(arguments)
    classified = [
        mutant
        for survivor in survivors()
        if survivor.classified in options.classified and (mutant := survivor.mutant.find())
    ]
    modules = options.modules or sorted({one.module for one in classified}) or FIVE_SEEDS
    every = classified or [
        mutant for module in modules for mutant in mutants(module, source_of(module))
    ]
    found: list[Tried] = []
    with tempfile.TemporaryDirectory(prefix="mutants-") as temporary:
        folder = Path(options.out or temporary)
        folder.mkdir(parents=True, exist_ok=True)
        cases = chosen_cases(options, folder)
        lines = executed(
            modules,
            cases,
            folder / "lines",
            options.lines,
            jobs=options.jobs,
            is_complete=options.lines_as_they_are,
        )
        known = reached(every, lines)
        print(f"{len(every)} mutants, {len(known)} in lines that {len(lines)} cases execute")
        had = survivors_of(options.again)
        drawn = chosen_mutants([*known], options)
        # each batch has some of each module
        random.Random(options.seed).shuffle(drawn)
        for number, batch in enumerate(batched(drawn, options.batch)):
            wanted = {
                mutant: varied(mutant, known[mutant], had[mutant.name], cases, lines, options.cases)
                if mutant.name in had
                else claiming(mutant, known[mutant], cases, lines, options.cases)
                for mutant in batch
            }
            for tried in in_turns(wanted, cases, folder / f"tried-{number}", jobs=options.jobs):
                found.append(tried)
                _show(tried)
            # after each batch, so that a run that is stopped leaves what it found
            write_record(options.json, _record(found, known, options))
    print("\n" + "\n".join(rates(read([_record(found, known, options)]), survivors())))
    return 0


def chosen_cases(options: argparse.Namespace, folder: Path) -> dict[str, Path]:
    """Return the named cases, or all of them without the thousands of the operator suite; with
    ``--operator`` a case of the first sample of each operator.
    """
    if options.operator:
        return operator_cases(folder / "operators", options.operator)
    return {
        name: file
        for name, file in cases_of(options.device or ["cpu"]).items()
        if (name in options.case if options.case else not name.startswith("operators/"))
    }


def operator_cases(folder: Path, operators: Sequence[str]) -> dict[str, Path]:
    """Write a spec of samples, and return its cases of these operators; raise ``LookupError`` for
    one that is not there.
    """
    folder.mkdir(parents=True)
    spec = folder / "operator-samples.yaml"
    spec.write_text(OPERATOR, "utf-8")
    defaults = SPECS[0] / "operators" / "_defaults.yaml"
    (folder / "_defaults.yaml").write_bytes(defaults.read_bytes())
    found = {str(case.params["op"]): case.id for case in load([spec]).cases if case.device == "cpu"}
    if unknown := [name for name in operators if name not in found]:
        raise LookupError(
            f"no operator has samples in float32 on the CPU and is called {', '.join(unknown)}"
        )
    return {found[name]: spec for name in operators}


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


def chosen_mutants(known: Sequence[Mutant], options: argparse.Namespace) -> list[Mutant]:
    """Return the named mutants, the survivors of records or of a class, or else a sample."""
    names = {*options.mutant, *survivors_of(options.again)}
    if names:
        drawn = [mutant for mutant in known if mutant.name in names]
    elif options.classified:
        drawn = [*known]
    else:
        number, each = options.each or options.sample, bool(options.each)
        drawn = sample(known, number, options.seed, each=each)
    tried = {name for name, _ in _rows(options.without)}
    return [mutant for mutant in drawn if mutant.name not in tried]


def _rows(records: Sequence[Path]) -> Iterator[tuple[str, Mapping[str, str]]]:
    for record in records:
        for row in json.loads(record.read_bytes())["mutants"]:
            yield row["name"], row["cases"]


def survivors_of(records: Sequence[Path]) -> dict[str, frozenset[str]]:
    """Return the mutants that no case of these records detects, each with the cases that it had;
    one that timed out can run again.
    """
    had: dict[str, frozenset[str]] = {}
    killed = set()
    for name, cases in _rows(records):
        ended = {case_id for case_id in cases if cases[case_id] != Outcome.TIMEOUT.label}
        had[name] = had.get(name, frozenset()) | ended
        if status(cases.values()) in ("killed", "not planted"):
            killed.add(name)
    return {name: cases for name, cases in had.items() if name not in killed}


def _record(
    found: Sequence[Tried], known: Mapping[Mutant, Sequence[str]], options: argparse.Namespace
) -> dict[str, object]:
    is_drawn = not (options.again or options.mutant or options.classified)
    return {
        "torch": torch_version(),
        "seed": options.seed if is_drawn else None,
        "most_cases": options.cases,
        "reached": dict(Counter(mutant.module for mutant in known)),
        "mutants": [
            {
                "name": tried.mutant.name,
                "function": tried.mutant.function,
                "status": tried.status,
                "difference": difference(source_of(tried.mutant.module), tried.mutant),
                "cases": {name: outcome.label for name, outcome in tried.outcomes.items()},
                "reason": next((tried.reasons[case_id] for case_id in tried.killed_by), ""),
            }
            for tried in found
        ],
    }


def parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(prog="python -m tools.mutants", description=__doc__)
    several = {"action": "append", "default": []}
    add = made.add_argument
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
        ("--operator", "NAME", "in place of shipped cases, the first sample of this operator"),
    ):
        add(option, **several, metavar=name, help=f"{text}; may repeat")
    for option, text in (
        ("--again", "the survivors of this record, under cases that they did not have"),
        ("--without", "leave out what this record has, to go on with a sample that was stopped"),
    ):
        add(option, **several, type=Path, metavar="RECORD", help=f"{text}; may repeat")
    of_class = "the survivors of survivors.json of this class; may repeat"
    add("--classified", **several, choices=KINDS_OF_SURVIVORS, help=of_class)
    of_lines = "read the executed lines of cases from FILE; add those of the others"
    add("--lines", type=Path, metavar="FILE", help=of_lines)
    missing = "leave out the cases that FILE does not have"
    add("--lines-as-they-are", action="store_true", help=missing)
    add("--out", metavar="DIR", help="keep the runs in this folder, which is new")
    add("--json", type=Path, metavar="FILE", help="write the record")
    return made


if __name__ == "__main__":
    sys.exit(main())
