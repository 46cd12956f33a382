"""Which lines a case executes, which cases a mutant gets, and what came of it."""

import json
import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from tests.fakes import environment
from tools.mutants.named import source_of, torch_version
from tools.mutants.operators import Mutant, lines_of
from tools.running import Trial, run_trials
from torch_conformance.model.outcomes import Outcome

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


def executed(
    modules: Sequence[str],
    cases: Mapping[str, Path],
    folder: Path,
    file: Path | None = None,
    *,
    jobs: int = 2,
) -> Executed:
    """Return the lines of each case that passes without a mutant.

    Those of ``file`` are known; those of the other cases are noted in a run, and added to it.
    """
    noted = recorded(file, modules)
    missing = [name for name in cases if name not in noted]
    ended = run_trials(
        [Trial("", case_id) for case_id in missing],
        cases,
        folder,
        lines=modules,
        jobs=jobs,
        seconds=SECONDS_TO_NOTE_LINES,
        start=vectorizing,
    )
    noted |= {
        run.trial.case_id: Alone(run.result.seconds, run.lines)
        for run in ended
        if run.result.outcome is Outcome.PASS
    }
    if file is not None and missing:
        record_lines(file, modules, noted)
    return {case_id: passed for case_id, passed in noted.items() if case_id in cases}


def recorded(file: Path | None, modules: Sequence[str]) -> dict[str, Alone]:
    """Return the lines that an earlier run left in a file: nothing where it was of another torch,
    or noted fewer modules.
    """
    if file is None or not file.exists():
        return {}
    read = json.loads(file.read_bytes())
    if read["torch"] != torch_version() or not set(modules) <= set(read["modules"]):
        return {}
    return {
        case_id: Alone(
            case["seconds"],
            {module: frozenset(numbers) for module, numbers in case["lines"].items()},
        )
        for case_id, case in read["cases"].items()
    }


def record_lines(file: Path, modules: Sequence[str], lines: Executed) -> None:
    """Write the lines that cases execute, for later samples."""
    cases = {
        case_id: {
            "seconds": run.seconds,
            "lines": {module: sorted(numbers) for module, numbers in run.lines.items()},
        }
        for case_id, run in sorted(lines.items())
    }
    record = {"torch": torch_version(), "modules": [*modules], "cases": cases}
    file.write_text(json.dumps(record) + "\n", "utf-8")


def reached(mutants: Iterable[Mutant], lines: Executed) -> dict[Mutant, list[str]]:
    """Return the mutants whose line a case executes, with all of these cases."""
    by_line: dict[tuple[str, int], list[str]] = defaultdict(list)
    for case_id, run in lines.items():
        for module, numbers in run.lines.items():
            for number in numbers:
                by_line[module, number].append(case_id)
    executing = {mutant: by_line.get((mutant.module, mutant.line), []) for mutant in mutants}
    return {mutant: cases for mutant, cases in executing.items() if cases}


def tried(
    cases_of: Mapping[Mutant, Sequence[str]],
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
    trials = [Trial(mutant.name, case_id) for mutant, ids in cases_of.items() for case_id in ids]
    plain = [] if alone is None else [Trial("", trial.case_id) for trial in trials]
    changes = {m.name: [m.module, m.number, m.function, m.kind, m.line] for m in cases_of}
    outcomes: dict[str, dict[str, Outcome]] = defaultdict(dict)
    reasons: dict[str, dict[str, str]] = defaultdict(dict)
    for ended in run_trials(
        [*plain, *trials], cases, folder, changes=changes, jobs=jobs, start=start
    ):
        name, case_id, result = ended.trial.change, ended.trial.case_id, ended.result
        if not name and alone is not None:
            alone[case_id] = result.outcome
        elif ended.bites is not None:
            outcomes[name][case_id] = result.outcome
            reasons[name][case_id] = f"{result.failure_type}: {result.reason}"[:200]
    for mutant in cases_of:
        yield Tried(mutant, outcomes[mutant.name], reasons[mutant.name])


def in_turns(
    cases_of: Mapping[Mutant, Sequence[str]], cases: Mapping[str, Path], folder: Path, *, jobs: int
) -> Iterator[Tried]:
    """Run each mutant under its first case, and those that this case does not detect under their
    other cases; yield what came of each.
    """
    results: dict[Mutant, Tried] = {}
    for turn, part in enumerate((slice(0, 1), slice(1, None))):
        waiting = {
            mutant: ids[part]
            for mutant, ids in cases_of.items()
            if ids[part] and not (mutant in results and results[mutant].killed_by)
        }
        for result in tried(waiting, cases, folder / f"turn-{turn}", jobs=jobs) if waiting else ():
            before = results.get(result.mutant, Tried(result.mutant, {}, {}))
            results[result.mutant] = replace(
                result,
                outcomes={**before.outcomes, **result.outcomes},
                reasons={**before.reasons, **result.reasons},
            )
    yield from results.values()


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
    common = _words(" ".join(source[function.start - 1 : function.stop - 1])) & has.keys()
    weights = {
        word: (3 if word in changed else 1) * math.log(len(waiting) / has[word]) for word in common
    }
    chosen: list[str] = []
    while waiting and len(chosen) < most:
        best = min(
            waiting,
            key=lambda one: (
                -sum(sorted(weights[word] for word in waiting[one] & common)),
                lines[one].seconds,
                one,
            ),
        )
        for word in waiting.pop(best) & common:
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
