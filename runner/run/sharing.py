"""``--isolation auto``: which cases share a worker, learnt from comparisons of shared workers with own processes.

``docs/design/process-per-case.md`` has the rules, ``core/sharing`` what they are made of.
"""

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from runner import __version__
from runner.core.case import Case
from runner.core.diagnostics import UsageError
from runner.core.matching.generated_code import code_of
from runner.core.matching.time_limit import PatternTooSlow
from runner.core.observation import Observation, ObservedStep
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult, Verdict
from runner.core.sharing import NOTHING, Known, Place, Print, differences, place_of, sample
from runner.execute.base import SHARED, Execution
from runner.judge.reading import read_observation
from runner.plan.isolation import why_alone
from runner.plan.worker_plan import digest_of
from runner.record.evidence import CaseFiles
from runner.record.history import sharing as recorded
from runner.record.history.database import file_of, opened
from runner.record.history.sharing import Key
from runner.system import output
from runner.system.installed_torch import InstalledTorch


class Sharing:
    """What is known of the cases of a run, and what the run adds to it."""

    def __init__(self, file: Path, state: str, cases: Sequence[Case], word: str) -> None:
        self._file = file
        self._state = state
        self._known = _read(file, state)
        keys: dict[str, Key] = {case.id: _key(case) for case in cases if not why_alone(case)}
        cleared = [case_id for case_id, key in keys.items() if self._known.get(key, NOTHING).is_cleared]
        sampled = sample(cleared, word)
        self._keys = keys
        self._places = {case_id: place_of(self._known.get(key, NOTHING), is_sampled=case_id in sampled) for case_id, key in keys.items()}
        self._company: dict[int, list[str]] = {}
        """By worker, the cases that it has run."""
        self._accused: dict[str, _Difference] = {}
        """By the case that differed in a shared worker and is run again."""
        self._changed: dict[Key, Known] = {}
        self._forbidden: dict[str, str] = {}

    def may_share(self, case: Case) -> bool:
        """Whether a case is given a shared worker."""
        place = self._places.get(case.id)
        return place is not None and place.shares

    def take(self, result: CaseResult, execution: Execution, folder: Path) -> str:
        """Take note of an execution; return why it does not count and the case is run again alone, empty where it counts."""
        if result.case_id not in self._keys:
            return ""
        found = print_of(result, execution, folder)
        if execution.isolation != SHARED:
            self._take_own(result.case_id, found)
            return ""
        before = self._company.setdefault(execution.worker, [])
        known = self._of(result.case_id)
        after = known.after_shared(found)
        if result.outcome is not Outcome.PASS:
            after = known.forbid(f"in a shared worker it was {result.outcome.label}")
        if execution.contaminated:
            after = known.forbid(f"it changed its worker: {execution.contaminated}")
        self._set(result.case_id, after)
        if after.forbidden:
            self._accused[result.case_id] = _Difference(print=found, before=tuple(before), is_of_print=after == known.after_shared(found))
        count = len(before)
        before.append(str(result.case_id))
        if not after.forbidden:
            return ""
        return f"{result.outcome.label} after {count} other case{'' if count == 1 else 's'} in a shared worker: {after.forbidden}"

    def _take_own(self, case_id: str, found: Print) -> None:
        known, difference = self._of(case_id), self._accused.pop(case_id, None)
        if difference is not None and not differences(known.own, found):
            for other in difference.before:
                self._set(other, self._of(other).forbid(f"{case_id} ran after it in a shared worker, and differed there only"))
        if difference is not None and difference.is_of_print and not differences(difference.print, found):
            # alone it is as in the shared worker: what was recorded is out of date, and nothing speaks against sharing
            self._forbidden.pop(case_id, None)
            known = NOTHING
        self._set(case_id, known.after_own(found))

    def _of(self, case_id: str) -> Known:
        key = self._keys[case_id]
        return self._changed.get(key, self._known.get(key, NOTHING))

    def _set(self, case_id: str, known: Known) -> None:
        if known.forbidden and not self._of(case_id).forbidden:
            self._forbidden[case_id] = known.forbidden
            self._places[case_id] = Place.FORBIDDEN
        self._changed[self._keys[case_id]] = known

    @property
    def summary(self) -> str:
        """How many of the cases that may share were executed where; empty without such a case."""
        counts = Counter(self._places.values())
        return "sharing: " + ", ".join(f"{counts[place]} {place.value}" for place in Place if counts[place]) if counts else ""

    @property
    def warnings(self) -> Iterator[str]:
        """What the run has forbidden."""
        yield from (f"sharing: {case_id} no longer shares a worker: {why}" for case_id, why in self._forbidden.items())

    def close(self) -> None:
        """Write what was learnt to the history. A problem with the file is a warning: the next run learns it again."""
        if not self._changed:
            return
        try:
            with opened(self._file, writes=True) as connection:
                recorded.write(connection, self._state, self._changed)
        except (UsageError, OSError) as error:
            output.note(f"warning: what this run learnt of sharing is lost: {error}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Difference:
    """A case in a shared worker that was not as it is alone."""

    print: Print
    before: tuple[str, ...]
    """The cases that ran before it in that worker."""
    is_of_print: bool
    """Whether its print alone speaks against it, and neither its outcome nor a contamination."""


def print_of(result: CaseResult, execution: Execution, folder: Path) -> Print:
    """Return the print of an execution: a digest for each part that must be equal in a shared worker and in an own process."""
    observation = read_observation(execution.observation)
    steps = observation.steps if isinstance(observation, Observation) else ()
    return {
        "outcome": _digest([result.outcome.label, result.failure_type]),
        "verdicts": _digest(list(map(_verdict, result.verdicts))),
        "counters": _digest(list(map(_counters, steps))),
        "code": _digest([_code(folder / execution.job.folder, number, step.code_pieces) for number, step in enumerate(steps)]),
    }


def _verdict(verdict: Verdict) -> list[object]:
    return [verdict.kind, verdict.status.value, asdict(verdict.position), verdict.expected, verdict.observed]


def _counters(step: ObservedStep) -> list[object]:
    kinds = [
        {name: dict(found) for name, found in step.counters.items()},
        dict(step.metrics),
        dict(step.executed),
        dict(step.executed_others),
    ]
    return [*kinds, step.entered, list(map(list, step.graphs)), list(step.abandoned), list(step.uncompiled), sorted(step.unmeasured)]


def _code(folder: Path, step: int, pieces: int) -> list[str]:
    files = CaseFiles(folder)
    try:
        return [code_of(files.code(step, piece)).text for piece in range(pieces)]
    except (OSError, PatternTooSlow) as error:
        return [f"unread: {error}"]


def _digest(value: Sequence[object]) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode("utf-8", "surrogatepass")).hexdigest()


def _key(case: Case) -> Key:
    return case.id, digest_of(case)


def state_of(torch: InstalledTorch | None) -> str:
    """Return what knowledge is for: one build of torch and one version of the runner."""
    build = f"{torch.version} {torch.git}" if torch is not None else "none"
    return f"torch {build}, runner {__version__}"


def _read(file: Path, state: str) -> dict[Key, Known]:
    if not file.exists():
        return {}
    try:
        with opened(file) as connection:
            return recorded.read(connection, state)
    except (UsageError, OSError) as error:
        output.note(f"warning: what is known of sharing cannot be read, so cases run alone: {error}")
        return {}


def of_run(isolation: str, named: Path | None, state: str, cases: Sequence[Case], word: str) -> Sharing | None:
    """Return the sharing of a run; None without ``--isolation auto``."""
    return Sharing(file_of(named), state, cases, word) if isolation == "auto" else None
