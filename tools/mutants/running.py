"""Runs shipped cases with mutants of torch planted: which lines a case executes, which cases a
mutant gets, and what came of it.
"""

import json
import math
import os
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests.fakes import environment, program
from tools.faults.running import SPECS, Trial, copy_spec, runs_of, shipped_waivers
from tools.mutants.named import source_of
from tools.mutants.operators import Mutant, lines_of
from tools.mutants.planting import LINES, NOTES
from torch_conformance.language.load import load
from torch_conformance.model.outcomes import Outcome
from torch_conformance.model.results import CaseResult
from torch_conformance.record.journal import read_run

SITE = Path(__file__).with_name("site")

QUICK = "QUICK_COMPILER"
"""The variable that names a folder for precompiled headers: kernels are then built without
optimization (``compiler/g++``).
"""

SECONDS_PER_CASE = 240
"""How long a case may take under a mutant. On a busy machine many cases take a minute."""

SECONDS_TO_NOTE_LINES = 300
"""How long a case may take while its lines are noted, which makes it several times slower."""


@dataclass(frozen=True)
class Alone:
    """What a case does without a mutant: how long it took, and the lines of each module that it
    executed.
    """

    seconds: float
    lines: Mapping[str, frozenset[int]]


Executed = Mapping[str, Alone]
"""The cases that passed without a mutant, by their ids."""


@dataclass(frozen=True)
class Tried:
    """What came of one mutant: the outcome of each case that ran under it; of cases in which it
    could not be planted, nothing.
    """

    mutant: Mutant
    outcomes: Mapping[str, Outcome]
    reasons: Mapping[str, str]
    """What failed in each case (the kind of an expectation, or another type of failure), a colon,
    and the reason.
    """

    @property
    def killed_by(self) -> tuple[str, ...]:
        """The cases that passed without the mutant and failed with it.

        A busy machine is slow too: a timeout shows nothing.
        """
        return tuple(
            case_id
            for case_id, outcome in self.outcomes.items()
            if outcome not in (Outcome.PASS, Outcome.TIMEOUT)
        )

    @property
    def status(self) -> str:
        return status([outcome.label for outcome in self.outcomes.values()])


def status(labels: Collection[str]) -> str:
    """Return what came of a mutant whose cases have outcomes with these labels."""
    if not labels:
        return "not planted"
    if red := set(labels) - {Outcome.PASS.label}:
        return "timed out" if red == {Outcome.TIMEOUT.label} else "killed"
    return "survived"


def vectorizing(**changes: str) -> dict[str, str]:
    """Return variables for a run that generates vectors: the tests leave them out, and then half of
    the C++ backend never runs.
    """
    return {
        name: value
        for name, value in environment(**changes).items()
        if name != "TORCHINDUCTOR_VEC_ISA_OK"
    }


def cases_of(devices: Sequence[str], extra: Sequence[Path] = ()) -> dict[str, Path]:
    """Return the cases of these devices: their ids, and the files that they stand in."""
    suite = load([*SPECS, *extra])
    return {case.id: Path(case.spec).resolve() for case in suite.cases if case.device in devices}


def executed(
    modules: Sequence[str], cases: Mapping[str, Path], folder: Path, *, jobs: int
) -> Executed:
    """Run the cases without a mutant, and return the lines of each that passed."""
    assigned = {f"0/{case_id}": case_id for case_id in cases}
    found: dict[str, Alone] = {}
    wanted = {"lines": list(modules)}
    for name, result in _run(wanted, assigned, cases, folder, jobs, SECONDS_TO_NOTE_LINES).items():
        lines = folder / "out" / result.folder / LINES
        if result.outcome is Outcome.PASS and lines.exists():
            read = json.loads(lines.read_bytes())
            found[assigned[name]] = Alone(
                result.seconds, {module: frozenset(numbers) for module, numbers in read.items()}
            )
    return found


def recorded(file: Path | None, modules: Sequence[str], torch: str) -> Executed:
    """Return the lines that an earlier run left in a file: nothing where it was of another torch,
    or noted fewer modules.
    """
    if file is None or not file.exists():
        return {}
    read = json.loads(file.read_bytes())
    if read["torch"] != torch or not set(modules) <= set(read["modules"]):
        return {}
    return {
        case_id: Alone(
            one["seconds"], {module: frozenset(numbers) for module, numbers in one["lines"].items()}
        )
        for case_id, one in read["cases"].items()
    }


def record_lines(file: Path, modules: Sequence[str], torch: str, lines: Executed) -> None:
    """Write the lines that cases execute, for later samples."""
    cases = {
        case_id: {
            "seconds": alone.seconds,
            "lines": {module: sorted(numbers) for module, numbers in alone.lines.items()},
        }
        for case_id, alone in sorted(lines.items())
    }
    file.write_text(
        json.dumps({"torch": torch, "modules": list(modules), "cases": cases}) + "\n", "utf-8"
    )


def reached(mutants: Iterable[Mutant], lines: Executed) -> dict[Mutant, list[str]]:
    """Return the mutants whose line a case executes, with all of these cases."""
    by_line: dict[tuple[str, int], list[str]] = defaultdict(list)
    for case_id, alone in lines.items():
        for module, numbers in alone.lines.items():
            for number in numbers:
                by_line[module, number].append(case_id)
    found = {mutant: by_line.get((mutant.module, mutant.line), []) for mutant in mutants}
    return {mutant: cases for mutant, cases in found.items() if cases}


def tried(
    wanted: Mapping[Mutant, Sequence[str]],
    cases: Mapping[str, Path],
    folder: Path,
    *,
    jobs: int,
    alone: dict[str, Outcome] | None = None,
    start: Callable[..., dict[str, str]] = vectorizing,
) -> Iterator[Tried]:
    """Run each mutant under its cases, all in one run, and yield what came of each mutant.

    ``alone`` takes the outcome of each case in the same run without a mutant. ``start`` returns the
    variables of the run.
    """
    by_name = {mutant.name: mutant for mutant in wanted}
    trials = [Trial(mutant.name, case_id) for mutant, ids in wanted.items() for case_id in ids]
    planned = {
        f"{number}/{case}": Trial(fault, case)
        for number, one in enumerate(runs_of(trials))
        for case, fault in one.items()
    }
    plain = (
        {f"plain/{case_id}": case_id for ids in wanted.values() for case_id in ids}
        if alone is not None
        else {}
    )
    planted = {
        name: (m.module, m.number, m.function, m.kind, m.line)
        for name, trial in planned.items()
        for m in [by_name[trial.fault]]
    }
    assigned = {**plain, **{name: trial.case_id for name, trial in planned.items()}}
    results = _run({"cases": planted}, assigned, cases, folder, jobs, start=start)
    if alone is not None:
        alone.update({case_id: results[name].outcome for name, case_id in plain.items()})
    outcomes: dict[str, dict[str, Outcome]] = defaultdict(dict)
    reasons: dict[str, dict[str, str]] = defaultdict(dict)
    for name, trial in planned.items():
        if (folder / "out" / results[name].folder / NOTES).exists():
            outcomes[trial.fault][trial.case_id] = results[name].outcome
            reasons[trial.fault][trial.case_id] = (
                f"{results[name].failure_type}: {results[name].reason}"[:200]
            )
    for name, mutant in by_name.items():
        yield Tried(mutant, outcomes[name], reasons[name])


def in_turns(
    wanted: Mapping[Mutant, Sequence[str]], cases: Mapping[str, Path], folder: Path, *, jobs: int
) -> Iterator[Tried]:
    """Run each mutant under its first case, and those that this case does not detect under their
    other cases; yield what came of each.
    """
    found: dict[Mutant, Tried] = {}
    for turn, part in enumerate((slice(0, 1), slice(1, None))):
        waiting = {
            mutant: ids[part]
            for mutant, ids in wanted.items()
            if ids[part] and not (mutant in found and found[mutant].killed_by)
        }
        for one in tried(waiting, cases, folder / f"turn-{turn}", jobs=jobs) if waiting else ():
            before = found.get(one.mutant, Tried(one.mutant, {}, {}))
            found[one.mutant] = replace(
                one,
                outcomes={**before.outcomes, **one.outcomes},
                reasons={**before.reasons, **one.reasons},
            )
    yield from found.values()


def claiming(
    mutant: Mutant, ids: Iterable[str], cases: Mapping[str, Path], lines: Executed, most: int
) -> list[str]:
    """Return at most ``most`` of the cases: those that share most words with the mutated function
    first, of equals the quickest.

    A word that few cases have weighs more, a word of the mutated line or of the function's name
    three times as much, and one that a chosen case has half as much for the next.
    """
    source = source_of(mutant.module).splitlines()
    function = lines_of(source_of(mutant.module), mutant)
    changed = _words(f"{mutant.function} {source[mutant.line - 1]}")
    waiting = {
        case_id: _words(cases[case_id].read_text("utf-8")) | _words(case_id) for case_id in ids
    }
    has = Counter(word for text in waiting.values() for word in text)
    asked = _words(" ".join(source[function.start - 1 : function.stop - 1])) & has.keys()
    weights = {
        word: (3 if word in changed else 1) * math.log(len(waiting) / has[word]) for word in asked
    }
    chosen: list[str] = []
    while waiting and len(chosen) < most:
        best = min(
            waiting,
            key=lambda one: (
                -sum(sorted(weights[word] for word in waiting[one] & asked)),
                lines[one].seconds,
                one,
            ),
        )
        for word in waiting.pop(best) & asked:
            weights[word] /= 2
        chosen.append(best)
    return chosen


@cache
def _words(text: str) -> frozenset[str]:
    """Return the words of a text in small letters, the parts of a name each, without the ``s`` of a
    plural.
    """
    return frozenset(
        word.lower().rstrip("s") for word in re.findall(r"[A-Z]?[a-z0-9]{2,}|[A-Z]{2,}", text)
    )


def varied(
    mutant: Mutant,
    ids: Sequence[str],
    had: Collection[str],
    cases: Mapping[str, Path],
    lines: Executed,
    most: int,
) -> list[str]:
    """Return at most ``most`` of the cases: those that execute more lines of the function than the
    cases that the mutant had.
    """
    function = lines_of(source_of(mutant.module), mutant)
    seen = {
        line
        for case_id in had
        if case_id in lines
        for line in lines[case_id].lines.get(mutant.module, ())
        if line in function
    }
    waiting = {
        case_id: {line for line in lines[case_id].lines.get(mutant.module, ()) if line in function}
        for case_id in ids
        if case_id not in had
    }
    chosen: list[str] = []
    while waiting and len(chosen) < most:
        best = min(waiting, key=lambda one: (-len(waiting[one] - seen), lines[one].seconds, one))
        if not waiting[best] - seen:
            break
        seen |= waiting.pop(best)
        chosen.append(best)
    return [*chosen, *claiming(mutant, waiting, cases, lines, most - len(chosen))]


def _run(
    wanted: Mapping[str, object],
    assigned: Mapping[str, str],
    cases: Mapping[str, Path],
    folder: Path,
    jobs: int,
    limit: int = SECONDS_PER_CASE,
    start: Callable[..., dict[str, str]] = vectorizing,
) -> Mapping[str, CaseResult]:
    """Run the assigned cases, each from a copy of its spec below the number that its name begins
    with, and return their results.
    """
    for name, case_id in assigned.items():
        copy_spec(cases[case_id], folder / "specs" / name.partition("/")[0])
    plan = folder / "mutants.json"
    plan.write_text(json.dumps(wanted, indent=1), "utf-8")
    path = os.pathsep.join([str(SITE), environment()["PYTHONPATH"]])
    variables = start(PLANTED_MUTANTS=str(plan), PYTHONPATH=path)
    if variables.get(QUICK):
        variables["PATH"] = os.pathsep.join([str(SITE.with_name("compiler")), variables["PATH"]])
    selection = [word for name in assigned for word in ("--select", name)]
    options = [
        "--timeout",
        limit,
        "--waivers",
        shipped_waivers(folder),
        "--jobs",
        jobs,
        "--out",
        folder / "out",
    ]
    done = program(
        "run",
        folder / "specs",
        *selection,
        *options,
        env=variables,
        timeout=2 * limit * len(assigned),
    )
    journal = folder / "out" / "run.jsonl"
    results = (
        {result.case_id: result for result in read_run(journal).results} if journal.exists() else {}
    )
    if set(results) != set(assigned):
        raise RuntimeError(
            f"the run ended with {done.returncode}, and not with one result for each "
            f"case:\n{done.stdout}{done.stderr}"
        )
    return results
