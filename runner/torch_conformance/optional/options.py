"""How an option of the command line is written, and the options that several rooms read.

The options of a command are a frozen dataclass, where the command is carried out (``cli/parser``
says where): each field says how it is written, and ``cli/parser`` makes the parser of it. A field
has the name of its option, with underscores; one without a help text is not an option. No other
room sees argparse.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from torch_conformance.model.values import frozen

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

JUNIT_FLAVOURS = ("default", "strict")

Reads: TypeAlias = Callable[[str], object]
"""Makes a value of its text; raises ``ValueError`` with what is wrong."""


# -- how a field is written ------------------------------------------------------------------------


def option(
    metavar: str, help: str, default: object = None, reads: Reads = str, **more: object
) -> Any:
    """Return the field of an option with a value."""
    return field(
        default=default, metadata={"metavar": metavar, "help": help, "type": reads, **more}
    )


def may_differ(why: str, written: Any) -> Any:
    """Return the field of an option that may differ between parts of one run, and between a run and
    what resumes it, with the reason.
    """
    written.metadata = {**written.metadata, "may_differ": why}
    return written


def flag(help: str) -> Any:
    """Return the field of an option without a value."""
    return field(default=False, metadata={"help": help, "action": "store_true"})


def several(metavar: str, help: str, reads: Reads = str) -> Any:
    """Return the field of an option that may be repeated."""
    return field(
        default=(),
        metadata={
            "metavar": metavar,
            "help": f"{help} (repeatable)",
            "type": reads,
            "action": "append",
        },
    )


def report_file(help: str, reads: Reads = Path) -> Any:
    """Return the field of the file of a report, which is checked before anything runs, and locked
    (``record/run_folder``).
    """
    return option("FILE", help, reads=reads, is_report=True)


def table_file(text: str) -> Path:
    """Read the name of a table, whose ending says its form; raise ``ValueError``."""
    if not text.endswith((".json", ".md")):
        raise ValueError(
            f"'{text}' does not end with .json or .md, which says the form of the table"
        )
    return Path(text)


def report_files(options: "DataclassInstance") -> dict[str, Path]:
    """Return the files that options name for reports, by the options."""
    reports = {
        f"--{field.name}": getattr(options, field.name)
        for field in fields(options)
        if "is_report" in field.metadata
    }
    return {option: path for option, path in reports.items() if path is not None}


def one_of(words: Sequence[str], help: str) -> Any:
    """Return the field of an option with one of some words; the first is the default."""
    return field(default=words[0], metadata={"choices": list(words), "help": help})


def argument(metavar: str, help: str, reads: Reads = str, nargs: str | None = None) -> Any:
    """Return the field of a positional argument; with ``nargs`` ``*`` or ``+`` several."""
    default: Any = {"*": (), "?": ""}.get(nargs or "", MISSING)
    many = {"nargs": nargs} if nargs else {}
    return field(
        default=default,
        metadata={"metavar": metavar, "help": help, "type": reads, "positional": True, **many},
    )


# options that several commands have: each call makes a field of its own
backend_files = partial(several, "FILE", "file with additional backends", Path)
waiver_files = partial(several, "FILE", "file with additional waivers", Path)
shard_option = partial(option, "I/N", "select the I-th of N parts, which take about the same time")
durations = partial(
    option,
    "RUN|FILE",
    "make the shards by the durations of this run or table (default: durations.txt in the "
    "folder of the specs); all need the same",
)
github_option = partial(
    one_of,
    ("auto", "on", "off"),
    "annotations and a job summary for GitHub Actions (default: auto, on where GITHUB_ACTIONS "
    "is true)",
)


def profile_option(does: str) -> Any:
    """Return the field of a profile; ``does`` says what the command does with it."""
    return option("NAME|FILE", f"{does}: the name of a shipped profile, or a file")


# -- how a value is read ---------------------------------------------------------------------------


def _number(text: str, least: float, most: float, problem: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise ValueError(problem)
    return number


def positive(text: str) -> float:
    """Read a number above 0; raise ``ValueError``."""
    return _number(text, 5e-324, 1.7e308, f"'{text}' is not a number above 0")


def factor(text: str) -> float:
    """Read a number from 0.001 to 1000; raise ``ValueError``."""
    return _number(text, 0.001, 1000, f"{text} is not between 0.001 and 1000")


def times(text: str) -> int:
    """Read a whole number from 1 to 9999; raise ``ValueError``."""
    if re.fullmatch("[1-9][0-9]{0,3}", text) is None:
        raise ValueError(f"{text} is not between 1 and 9999")
    return int(text)


def natural(text: str) -> int:
    """Read a whole number from 0 on; raise ``ValueError``."""
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"'{text}' is not a whole number from 0 on")
    return int(text)


def _group_bound(text: str) -> str:
    if not re.fullmatch("[^=]+=[1-9][0-9]{0,5}", text):
        raise ValueError(f"'{text}' is not NAME=N: write the name of a group and a number from 1")
    return text


def _seed(text: str) -> int | str:
    if text == "random":
        return text
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ValueError(
            f"'{text}' is not a seed: write a whole number, or write --shuffle behind the paths"
        )
    return int(text)


# -- the options that several rooms read -----------------------------------------------------------
# bases have no slots: a class may have several of them


@dataclass(frozen=True, kw_only=True)
class SpecFiles:
    """Which files a command reads."""

    paths: tuple[Path, ...] = argument(
        "PATH",
        "spec files or folders (default: of conformance.yaml, else ./specs, else the shipped "
        "specs)",
        Path,
        "*",
    )
    backends: tuple[Path, ...] = backend_files()


@dataclass(frozen=True, kw_only=True)
class Selection:
    """Which of the cases that were read a command takes."""

    backend: tuple[str, ...] = several("NAME", "select the cases of this backend")
    select: tuple[str, ...] = several(
        "GLOB", "select the ids that match; * and ? are special; with !GLOB, leave these out"
    )
    tag: tuple[str, ...] = several(
        "NAME",
        "select the cases whose spec has this tag, also those on request; with !NAME, those whose "
        "spec does not have it",
    )


@dataclass(frozen=True, kw_only=True)
class ReportFiles:
    """The files of reports that a run writes, or a command of what it recorded."""

    junit: Path | None = may_differ(
        "the path of a report", report_file("also write the JUnit report to this file")
    )
    junit_flavour: str = may_differ(
        "the form of a report",
        one_of(
            JUNIT_FLAVOURS,
            "default: with file and line of each case; strict: valid against the schema of "
            "Jenkins' xunit plugin, which knows neither",
        ),
    )
    support: Path | None = may_differ(
        "the path of a report",
        report_file(
            "also write who computed each operator and type: to a file .json, or .md for Markdown",
            table_file,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class ExecutionOptions:
    """How cases are executed: what ``run`` and ``audit`` have in common."""

    jobs: str = may_differ(
        "the number of parallel cases changes no outcome",
        option(
            "N",
            "maximum number of cases that run in parallel (default: auto, by cores and memory)",
            "auto",
        ),
    )
    timeout: float = option("S", "deadline of a case in seconds (default: 300)", 300.0, positive)
    timeout_factor: float = option(
        "F", "multiply every deadline, including those that specs set (default: 1)", 1.0, factor
    )


@frozen
class RunOptions(ExecutionOptions, SpecFiles, Selection, ReportFiles):
    """The options of ``run``. The journal's header records all of them."""

    GROUPS: ClassVar[Mapping[str, str]] = {
        "choose the cases": "paths select backend tag profile last_failed failed_in shard "
        "durations",
        "find out what fails": "fail_fast max_failures resume retries repeat flaky shuffle bench",
        "use more or less of the machine": "jobs group timeout timeout_factor memory_limit",
        "bring your own files": "backends waivers",
        "write reports": "out junit junit_flavour support github",
        "decide the exit code in CI": "require min_executed count_offline challenge",
        "run on a lab": "executor address lab",
    }
    """The options in ``--help``, by what a person wants to do."""

    waivers: tuple[Path, ...] = waiver_files()
    shard: str | None = may_differ("differs between parts; checked separately", shard_option())
    durations: str | None = may_differ("how the shards share the cases is compared", durations())
    profile: str | None = profile_option(
        "run the cases of this profile and state CONFORMANT (exit 0), NOT CONFORMANT (1) or "
        "INCOMPLETE (4)"
    )
    group: tuple[str, ...] = may_differ(
        "the number of parallel cases changes no outcome",
        several("NAME=N", "let N cases of this group run at a time", _group_bound),
    )
    memory_limit: str = option(
        "SIZE",
        "memory limit of each case: 4GiB, 500MiB, none (default: auto, three quarters of the "
        "free memory at the start)",
        "auto",
    )
    shuffle: int | str | None = may_differ(
        "the order of the cases changes no outcome",
        option(
            "SEED",
            "run the cases in a random order that depends on SEED only (without SEED: one is "
            "chosen and printed)",
            reads=_seed,
            nargs="?",
            const="random",
        ),
    )
    challenge: str = option(
        "TEXT",
        "make the seeds of the cases depend on this text too, and name it in the statement: who "
        "asks for a run with a text of theirs knows that it is a new one",
        "",
    )
    github: str = may_differ(
        "annotations and summaries for GitHub change no outcome", github_option()
    )
    out: Path | None = may_differ(
        "the path of the run's folder",
        option("DIR", "folder of the run (default: reports/<utc>-<id>)", reads=Path),
    )
    require: tuple[str, ...] = several(
        "NAME", "a backend or capability that must be available; exit 4 if no executed case uses it"
    )
    bench: bool = flag(
        "also run the bench steps: no other case runs at the same time, their times are "
        "reported and never judged"
    )
    min_executed: int = option(
        "N", "exit 4 when fewer cases were executed (default: 1)", 1, natural
    )
    count_offline: bool = flag(
        "let OFFLINE_PASS count as executed for the exit code and --min-executed"
    )
    fail_fast: bool = flag("the same as --max-failures 1")
    max_failures: int = option("N", "stop after N cases failed (default: 0, never)", 0, natural)
    retries: int = option(
        "N",
        "run a failed case up to N more times, one at a time; a case that then passes is FLAKY",
        0,
        natural,
    )
    repeat: int = option(
        "N",
        "run every case N times; a case with different outcomes is FLAKY (default: 1)",
        1,
        times,
    )
    flaky: str = one_of(("fail", "pass"), "whether a FLAKY case fails the run (default: fail)")
    resume: str | None = may_differ(
        "a resumed part is a part like any other",
        option("RUN", "resume a run that was killed or interrupted: its folder, its id, or latest"),
    )
    last_failed: bool = flag("select the cases that failed in the last run of these specs")
    failed_in: str | None = option(
        "RUN", "select the cases that failed in this run: its folder, its id, or latest"
    )
    executor: str = may_differ(
        "the executor changes no outcome; the facts of its machine are compared",
        one_of(
            ("local", "ray"),
            "local: this machine (default); ray: the nodes that joined a Ray cluster (extra "
            "ray; the guide on labs)",
        ),
    )
    address: str | None = may_differ(
        "the address of the head; the facts of the nodes are compared",
        option(
            "HOST:PORT",
            "with --executor ray: the head of the cluster, of which this machine is a part",
        ),
    )
    lab: Path | None = may_differ(
        "the file of the lab; the facts of the nodes are compared",
        option(
            "FILE",
            "with --executor ray: the file of the lab; nodes that are not what it says are "
            "not used",
            reads=Path,
        ),
    )

    @property
    def most_failures(self) -> int:
        """After how many failed cases the run stops; 0 for never."""
        return 1 if self.fail_fast else self.max_failures

    @property
    def lets_flaky_pass(self) -> bool:
        """Whether a FLAKY case does not fail the run."""
        return self.flaky == "pass"


_NOT_WITH_PROFILE = {
    "the profile selects its cases": "paths backend select tag last_failed failed_in",
    "the profile says what must be executed": "require min_executed count_offline",
    "a case of a profile runs once": "retries flaky",
}
_DEFAULTS = {field.name: field.default for field in fields(RunOptions)}

REFUSED: Mapping[str, tuple[object, str]] = {
    name: (_DEFAULTS[name], reason)
    for reason, names in _NOT_WITH_PROFILE.items()
    for name in names.split()
}
"""Options of ``run`` that do not go with ``--profile``: the default of each, and the reason."""


@frozen
class MergeOptions(ReportFiles):
    """The options of ``merge``."""

    runs: tuple[str, ...] = argument(
        "RUN", "a run of a shard: its folder, its id, or latest", nargs="+"
    )
    out: Path | None = option(
        "DIR", "folder of the merged run (default: reports/<utc>-<id>)", reads=Path
    )
    github: str = github_option()
    json: bool = flag("print one object")


@frozen
class ReportOptions(ReportFiles):
    """The options of ``report``."""

    run: str = argument("RUN", "a run: its folder, its id, or latest")
    hud: Path | None = report_file(
        "write what PyTorch's cross-repository CI takes of the run to this file"
    )
    open: bool = flag("also open the page in a browser")


def written(options: type) -> Mapping[str, Mapping[str, Any]]:
    """Return how each option of a class is written, by its field: the arguments of
    ``add_argument``, and ``word`` or ``positional``. First come the positional ones,
    last of these the one that takes several words.

    A class may name those of its fields that are ``OFFERED``.
    """
    offered = getattr(options, "OFFERED", None)
    described = [
        field
        for field in fields(options)
        if "help" in field.metadata and (offered is None or field.name in offered)
    ]
    described.sort(
        key=lambda field: ("positional" not in field.metadata, "nargs" in field.metadata)
    )
    metadata = {field.name: {**field.metadata, "default": field.default} for field in described}
    return {
        name: {key: value for key, value in entry.items() if key not in ("may_differ", "is_report")}
        for name, entry in metadata.items()
    }


def free_options() -> frozenset[str]:
    """Return the options of ``run`` that may differ between parts of one run, by their names on the
    command line.
    """
    return frozenset(
        field.name.replace("_", "-")
        for field in fields(RunOptions)
        if "may_differ" in field.metadata
    )
