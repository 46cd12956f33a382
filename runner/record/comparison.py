"""What differs between two recordings: between parts of a run, where most of it must not, and between two runs that ``diff`` compares.

``run/compared_runs`` makes a ``Comparison`` of two journals, ``report/comparison_report`` prints it.
"""

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from runner.model import devices
from runner.model.header import RunHeader
from runner.model.options import free_options
from runner.model.results import CaseResult
from runner.record.journal import NamedRun

# -- of two parts of one run: what is in no table here must be equal ---------------------------------------------------

FREE_FACTS: Mapping[str, str] = {
    "gpu_memory": "follows from the device; a driver reserves a little more or less of it",
    "platform": "the kernel's release; versions that matter to a case are separate facts",
}
"""Facts of a machine that may differ; its host name is never recorded."""

FREE_VARIABLES: Mapping[str, str] = {
    "CUDA_VISIBLE_DEVICES": "which of the machine's GPUs; what they are and how many is compared",
    "HIP_VISIBLE_DEVICES": "which of the machine's GPUs; what they are and how many is compared",
    "ROCM_PATH": "the path of ROCm on that machine; its version is compared",
    "CUDA_HOME": "the path of CUDA on that machine; its version is compared",
    "CUDA_PATH": "the path of CUDA on that machine; its version is compared",
    "TORCHINDUCTOR_CACHE_DIR": "every case gets a folder of its own",
    "TRITON_CACHE_DIR": "every case gets a folder of its own",
}
"""Environment variables that may differ."""

FACTS_OF_SOME: Mapping[str, str] = {"vec_isa": "torch's vector instructions are probed only by a worker that is warmed up for the CPU"}
"""Facts of a machine that are compared only if both sides have them."""

_OF_FILES = frozenset({"torch", "torch_git", "python", *(build.version for build in devices.builds())})
"""Facts that are recorded for every machine. The other facts are recorded only if some case could run: a worker reports them."""

_REPORTED = "gpus"
"""A fact that every worker reports."""

_AS_COMPARED: Mapping[str, Callable[[str], str]] = {
    "python": lambda version: ".".join(version.split(".")[:2]),
    "ck_dir": lambda folder: "installed" if folder else "",
}
"""Facts that are compared in part: Python's minor version, and whether Composable Kernel is installed."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A difference that should not be: the name, and the value of each side; empty where a side has none."""

    what: str
    first: str
    second: str

    def between(self, first: str, second: str) -> str:
        """Return the difference in words; ``first`` and ``second`` are the names of the two sides."""
        return f"{self.what} is {_shown(self.first)} {first}, {_shown(self.second)} {second}"


def differences(first: RunHeader, second: RunHeader, *, same_machine: bool = True) -> list[Difference]:
    """Return every difference between two parts of one run that should not be; those of machines only with ``same_machine``."""
    profiles = [
        ", ".join(f"{profile.name} {profile.version} with {len(profile.required)} required cases" for profile in header.profile)
        for header in (first, second)
    ]
    read = [{file: digest[:12] for file, digest in header.specs.items()} for header in (first, second)]
    return [
        *_differing("the version of this program", {"": first.version}, {"": second.version}),
        *command_differences(first, second),
        *([] if first.profile == second.profile else [Difference("the profile", profiles[0], profiles[1])]),
        *_differing("the file ", read[0], read[1]),
        *(machine_differences(first.environment, second.environment) if same_machine else ()),
    ]


def command_differences(first: RunHeader, second: RunHeader) -> list[Difference]:
    """Return the options and environment variables that differ and may not."""
    options = _differing("--", first.options, second.options, free_options())
    return [*options, *_differing("$", first.variables, second.variables, FREE_VARIABLES)]


def machine_differences(first: Mapping[str, str], second: Mapping[str, str]) -> list[Difference]:
    """Return the facts that differ and are not in ``FREE_FACTS``; only the facts of files if no worker reported on one of the machines."""
    names = first.keys() | second.keys() if _REPORTED in first and _REPORTED in second else _OF_FILES
    names -= {name for name in FACTS_OF_SOME if not (name in first and name in second)}
    sides = [{name: _AS_COMPARED.get(name, str)(facts[name]) for name in facts if name in names} for facts in (first, second)]
    return list(_differing("the machine's ", sides[0], sides[1], FREE_FACTS))


def _differing(what: str, first: Mapping[str, str], second: Mapping[str, str], free: Container[str] = ()) -> Iterator[Difference]:
    for name in sorted(first.keys() | second.keys()):
        if name not in free and first.get(name, "") != second.get(name, ""):
            yield Difference(what + name, first.get(name, ""), second.get(name, ""))


def _shown(value: str) -> str:
    return f"'{value}'" if value else "none"


# -- of two runs ----------------------------------------------------------------------------------------------------


class Change(Enum):
    """What became of a case between two runs. The order is that of every report: what needs attention first."""

    BROKEN = ("broken", "executed in both runs, and only the second fails")
    NEW_FAILURE = ("new-failure", "fails in the second run, and the first has no result of it")
    GONE = ("gone", "in the first run alone")
    NO_LONGER_EXECUTED = ("no-longer-executed", "executed or checked in the first run, and not in the second")
    WAIVED = ("waived", "fails in the second run as a waiver says, and no waiver excused it in the first")
    CHANGED = ("changed", "neither better nor worse, but with another failure, reason, outcome or level of evidence")
    STILL_FAILING = ("still-failing", "fails in both runs in the same way")
    FIXED = ("fixed", "fails in the first run, and passes in the second")
    NEW = ("new", "in the second run alone, and does not fail")
    NOW_EXECUTED = ("now-executed", "not executed in the first run, and does not fail in the second")
    SAME = ("same", "no change of the outcome")

    def __init__(self, word: str, meaning: str) -> None:
        self.word = word
        self.meaning = meaning


SPEC_CHANGED = "spec-changed"
"""The word of a case whose spec or expansion differs between the two runs. It stands beside a change."""

FAIL_ON: tuple[str, ...] = (*(change.word for change in Change if change is not Change.SAME), SPEC_CHANGED)
"""The words of ``--fail-on``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseChange:
    """One case of two runs."""

    change: Change
    before: CaseResult | None
    """The result of the first run; None where it has none."""
    after: CaseResult | None
    spec_changed: bool = False
    remarks: tuple[str, ...] = ()
    """What a person should know of the change, a line each."""
    code: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """What differs in generated code and captured graphs: the lines of a unified diff, by the name of the text."""

    @property
    def case_id(self) -> str:
        """The id of the case."""
        result = self.after or self.before
        assert result is not None, "a change is of a case of some run"
        return result.case_id

    @property
    def words(self) -> tuple[str, ...]:
        """The words of ``--fail-on`` that are true of the case; reports list the cases that have one."""
        return (*([] if self.change is Change.SAME else [self.change.word]), *([SPEC_CHANGED] if self.spec_changed else []))

    @property
    def outcomes(self) -> tuple[str, ...]:
        """The outcomes of both runs; once where they are the same."""
        sides = [result.outcome.label if result is not None else "absent" for result in (self.before, self.after)]
        return tuple(dict.fromkeys(sides))


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two runs compared."""

    before: NamedRun
    after: NamedRun
    changes: tuple[CaseChange, ...]
    """Every case of either run, in the order of the second run; then those that are gone."""
    differences: tuple[str, ...]
    """How the machines, versions and options of the runs differ, a line each."""
    both: int = 0
    """How many cases have a result in both runs: executed, or checked for a target."""

    @property
    def counts(self) -> dict[str, int]:
        """How many cases have each word, and how many none."""
        counts = Counter(word for change in self.changes for word in change.words)
        same = sum(change.change is Change.SAME for change in self.changes)
        return {**{word: counts[word] for word in FAIL_ON}, Change.SAME.word: same}

    def listed(self, change: Change) -> list[CaseChange]:
        """Return the cases of a change that reports list."""
        return [case for case in self.changes if case.change is change and case.words]

    def reached(self, words: Sequence[str]) -> dict[str, int]:
        """Return how many cases have each of these words, for those that some case has."""
        return {word: count for word, count in self.counts.items() if count and word in words}
