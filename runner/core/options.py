"""The command line as frozen values, one class for each command; each field says how it is written: ``cli/parser`` makes the parser of it.

A field has the name of its option, with underscores; one without a help text is no option. No other room sees argparse.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, TypeAlias

JUNIT_FLAVOURS = ("default", "strict")

Reads: TypeAlias = Callable[[str], object]
"""Makes a value of its text; raises ``ValueError`` with what is wrong."""


# -- how a field is written -----------------------------------------------------------------------------------------


def option(metavar: str, help: str, default: object = None, reads: Reads = str, **more: object) -> Any:
    """Return the field of an option with a value."""
    return field(default=default, metadata={"metavar": metavar, "help": help, "type": reads, **more})


def flag(help: str) -> Any:
    """Return the field of an option without a value."""
    return field(default=False, metadata={"help": help, "action": "store_true"})


def several(metavar: str, help: str, reads: Reads = str) -> Any:
    """Return the field of an option that may be repeated."""
    return field(default=(), metadata={"metavar": metavar, "help": f"{help} (repeatable)", "type": reads, "action": "append"})


def one_of(words: Sequence[str], help: str) -> Any:
    """Return the field of an option with one of some words; the first is the default."""
    return field(default=words[0], metadata={"choices": list(words), "help": help})


def argument(metavar: str, help: str, reads: Reads = str, nargs: str | None = None) -> Any:
    """Return the field of what stands without an option; with ``nargs`` ``*`` or ``+`` several."""
    default: Any = {"*": (), "?": ""}.get(nargs or "", MISSING)
    many = {"nargs": nargs} if nargs else {}
    return field(default=default, metadata={"metavar": metavar, "help": help, "type": reads, "positional": True, **many})


def paths() -> Any:
    """Return the field of the files and folders of specs."""
    return argument("PATH", "spec files or folders (default: the shipped specs)", Path, "*")


def backend_files() -> Any:
    """Return the field of files with further backends."""
    return several("FILE", "file with additional backends", Path)


def waiver_files() -> Any:
    """Return the field of files with further waivers."""
    return several("FILE", "file with additional waivers", Path)


def backends_chosen() -> Any:
    """Return the field of the backends whose cases are selected."""
    return several("NAME", "select the cases of this backend")


def globs() -> Any:
    """Return the field of the globs that select ids."""
    return several("GLOB", "select the ids that match; * and ? are special")


def tags() -> Any:
    """Return the field of the tags that select specs."""
    return several("NAME", "select the cases whose spec has this tag, also those on request; with !NAME, those whose spec does not have it")


def shard_option() -> Any:
    """Return the field of a part of the cases."""
    return option("I/N", "select the I-th of N parts, by a hash of the id")


def shard_by_option() -> Any:
    """Return the field of the way in which cases are divided."""
    return one_of(("id", "label"), "id: parts by a hash of the ids (default); label: parts of cases with the same requirements")


def profile_option(does: str) -> Any:
    """Return the field of a profile; ``does`` says what the command does with it."""
    return option("NAME|FILE", f"{does}: the name of a shipped profile, or a file")


def sample_option() -> Any:
    """Return the field of a sample of an operator."""
    return option("N", "the sample with this number, of a case of torch's database of operators", reads=_natural)


def flavour_option() -> Any:
    """Return the field of the flavour of JUnit."""
    return one_of(
        JUNIT_FLAVOURS,
        "default: with file and line of each case; strict: valid against the schema of Jenkins' xunit plugin, which knows neither",
    )


def github_option() -> Any:
    """Return the field of what GitHub Actions reads."""
    return one_of(
        ("auto", "on", "off"), "annotations and a job summary for GitHub Actions (default: auto, on where GITHUB_ACTIONS is true)"
    )


def _number(text: str, least: float, most: float, problem: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = float("nan")
    if not least <= number <= most:
        raise ValueError(problem)
    return number


def _positive(text: str) -> float:
    return _number(text, 5e-324, 1.7e308, f"'{text}' is no number above 0")


def _factor(text: str) -> float:
    return _number(text, 0.001, 1000, f"{text} is not between 0.001 and 1000")


def _over_one(text: str) -> float:
    return _number(text, 1 + 1e-9, 1000, f"{text} is not more than 1, and at most 1000")


def _times(text: str) -> int:
    if re.fullmatch("[1-9][0-9]{0,3}", text) is None:
        raise ValueError(f"{text} is not between 1 and 9999")
    return int(text)


def _natural(text: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10):
        raise ValueError(f"'{text}' is no whole number from 0 on")
    return int(text)


def _seed(text: str) -> int | str:
    if text == "random":
        return text
    if not (text.isascii() and text.isdecimal() and len(text) < 20):
        raise ValueError(f"'{text}' is no seed: write a whole number, or write --shuffle behind the paths")
    return int(text)


# -- the commands that read and write specs -------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidateOptions:
    """The options of ``validate``."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    waivers: tuple[Path, ...] = waiver_files()
    profile: str | None = profile_option("also check this profile, with the specs, backends and waivers that it names")
    json: bool = flag("print the problems as JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOptions:
    """The options of ``list``."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    backend: tuple[str, ...] = backends_chosen()
    select: tuple[str, ...] = globs()
    tag: tuple[str, ...] = tags()
    shard: str | None = shard_option()
    profile: str | None = profile_option("show the cases of this profile by level")
    coverage: bool = flag("print which specs and cases cover each upstream test, instead of the cases")
    json: bool = flag("print an array of objects; with --coverage one object")
    against: Path | None = option(
        "LEDGER", "instead of the cases, print the ids of this ledger that no spec has any more; exit 1 if there are some", reads=Path
    )
    update: Path | None = option("LEDGER", "instead of printing the cases, write this ledger again, and print what is gone", reads=Path)
    shards: int | None = option(
        "N",
        "instead of the cases, print the work order of N parts as JSON: the command of each, and its number of cases",
        reads=_natural,
    )
    shard_by: str = shard_by_option()
    slurm: bool = flag("with --shards: print a script with a Slurm array instead of JSON")


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The options of ``explain``."""

    case: str = argument("CASE", "a case's id, or a glob that selects cases")
    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    sample: int | None = sample_option()
    profile: str | None = profile_option("name the case's level in this profile")
    json: bool = flag("print an array of objects")


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOptions:
    """The options of ``new``."""

    area: Path = argument("AREA", "the folder of the new spec; it is made if it does not exist", Path)
    name: str = argument("NAME", "the name of the file, in field words: conv-bn-folds", nargs="?")
    template: str = option("NAME", "function, module or steps (default: function)", "function")
    backend: tuple[str, ...] = several("NAME", "a backend of the new spec; default: cpu, cuda, rocm")
    from_python: str = option("FILE[::CLASS][::TEST]", "make specs from the tests of a Python file: one test, those of a class, or all", "")
    allow_partial: bool = flag("exit 0 also when a part of a test was not carried; the specs still say so")


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions:
    """The options of ``schema``."""

    with_torch: bool = flag("with the names of the installed torch alone: options, counters, metrics")
    out: Path | None = option("FOLDER", "write all schemas to this folder (default: print the schema of names)", reads=Path)
    backends: tuple[Path, ...] = backend_files()


@dataclass(frozen=True, slots=True, kw_only=True)
class LintOptions:
    """The options of ``lint``."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    waivers: tuple[Path, ...] = waiver_files()
    select: tuple[str, ...] = several("RULE", "apply this rule alone")
    ignore: tuple[str, ...] = several("RULE", "do not apply this rule")
    json: bool = flag("print one object")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlessOptions:
    """The options of ``bless``."""

    targets: tuple[str, ...] = argument(
        "RUN", "recorded runs: a folder, an id, or latest; of several machines or versions, if there are", nargs="+"
    )
    write: bool = flag("change the specs instead of printing the patch")
    json: bool = flag("print one object")
    backends: tuple[Path, ...] = backend_files()
    backend: tuple[str, ...] = several("NAME", "bless the cases of this backend alone")
    select: tuple[str, ...] = several("GLOB", "bless the ids that match; * and ? are special")
    tag: tuple[str, ...] = several("NAME", "bless the cases whose spec has this tag")


# -- the commands that execute cases --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class ExecutionOptions:
    """How cases are executed: what ``run`` and ``audit`` have in common."""

    jobs: str = option("N", "maximum number of cases that run in parallel (default: auto, by cores and memory)", "auto")
    timeout: float = option("S", "deadline of a case in seconds (default: 300)", 300.0, _positive)
    timeout_factor: float = option("F", "multiply every deadline, including those that specs set (default: 1)", 1.0, _factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions(ExecutionOptions):
    """The options of ``run``. The journal's header records all of them."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    waivers: tuple[Path, ...] = waiver_files()
    backend: tuple[str, ...] = backends_chosen()
    select: tuple[str, ...] = globs()
    tag: tuple[str, ...] = tags()
    shard: str | None = shard_option()
    shard_by: str = shard_by_option()
    profile: str | None = profile_option(
        "run the cases of this profile and state CONFORMANT (exit 0), NOT CONFORMANT (1) or INCOMPLETE (4)"
    )
    memory_limit: str = option(
        "SIZE", "memory limit of each case: 4GiB, 500MiB, none (default: auto, three quarters of the free memory at the start)", "auto"
    )
    shuffle: int | str | None = option(
        "SEED",
        "run the cases in a random order that depends on SEED only (without SEED: one is chosen and printed)",
        reads=_seed,
        nargs="?",
        const="random",
    )
    order: str = one_of(
        ("longest-first", "failed-first"),
        "the cases that start first: those that took longest in the run 'latest' (default), or those that failed in it",
    )
    junit: Path | None = option("FILE", "also write the JUnit report to this file", reads=Path)
    junit_flavour: str = flavour_option()
    github: str = github_option()
    out: Path | None = option("DIR", "folder of the run (default: reports/<utc>-<id>)", reads=Path)
    require: tuple[str, ...] = several("NAME", "a backend or capability that must be available; exit 4 if no executed case uses it")
    bench: bool = flag("also run the bench steps: their cases run alone, their times are reported and never judged")
    min_executed: int = option("N", "exit 4 when fewer cases were executed (default: 1)", 1, _natural)
    fail_fast: bool = flag("stop after the first failure")
    retries: int = option("N", "run a failed case up to N more times, alone; a case that then passes is FLAKY", 0, _natural)
    repeat: int = option("N", "run every case N times; a case with different outcomes is FLAKY (default: 1)", 1, _times)
    flaky: str = one_of(("fail", "pass"), "whether a FLAKY case fails the run (default: fail)")
    resume: str | None = option("RUN", "resume a run that was killed or interrupted: its folder, its id, or latest")
    last_failed: bool = flag("select the cases that failed in the run 'latest'")
    failed_in: str | None = option("RUN", "select the cases that failed in this run: its folder, its id, or latest")
    executor: str = one_of(
        ("local", "ray"), "local: this machine (default); ray: the nodes that joined a Ray cluster (extra ray; the guide on labs)"
    )
    address: str | None = option("HOST:PORT", "with --executor ray: the head of the cluster, of which this machine is a part")
    lab: Path | None = option("FILE", "with --executor ray: the file of the lab; nodes that are not what it says are not used", reads=Path)

    @property
    def lets_flaky_pass(self) -> bool:
        """Whether a FLAKY case does not fail the run."""
        return self.flaky == "pass"


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditOptions(ExecutionOptions):
    """The options of ``audit``."""

    targets: tuple[str, ...] = argument(
        "RUN|PATH", "a run (its folder, its id, or latest, the default), or spec files and folders", nargs="*"
    )
    run: bool = flag("also run the controls: the cases with the patch of their spec's 'control', which must fail")
    json: bool = flag("print one object")
    backends: tuple[Path, ...] = backend_files()
    backend: tuple[str, ...] = backends_chosen()
    select: tuple[str, ...] = globs()
    tag: tuple[str, ...] = tags()
    shard: str | None = shard_option()


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchOptions:
    """The options of ``watch``. Its runs have the defaults of ``run`` for the others."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    waivers: tuple[Path, ...] = waiver_files()
    backend: tuple[str, ...] = backends_chosen()
    select: tuple[str, ...] = globs()
    tag: tuple[str, ...] = tags()
    jobs: str = option("N", "maximum number of cases that run in parallel (default: auto, by cores and memory)", "auto")
    timeout: float = option("S", "deadline of a case in seconds (default: 300)", 300.0, _positive)
    timeout_factor: float = option("F", "multiply every deadline (default: 1)", 1.0, _factor)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReproOptions(ExecutionOptions):
    """The options of ``repro``. Each candidate of ``--shrink`` runs alone, in a process of its own."""

    case: str = argument("CASE", "a case's id")
    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    sample: int | None = sample_option()
    shrink: bool = flag(
        "instead of the script, run the case and write a smaller one that fails in the same way (fewer steps, options and inputs, a "
        "smaller function, smaller shapes), as a spec and a script; torch's bisector then names the stage that breaks. Ctrl-C keeps the "
        "best so far"
    )
    out: Path = option("DIR", "with --shrink: folder of the spec and the script (default: shrunk)", Path("shrunk"), Path)
    seconds: float = option("S", "with --shrink: end the search after this many seconds (default: 600)", 600.0, _positive)
    tries: int = option("N", "with --shrink: run at most N candidates (default: 200)", 200, _times)
    no_stage: bool = flag("with --shrink: do not look for the stage of the compiler that breaks")
    timeout: float = option("S", "with --shrink: deadline of a candidate in seconds (default: 300)", 300.0, _positive)
    jobs: str = "1"
    timeout_factor: float = 1.0


# -- the commands that read recorded runs ---------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class MergeOptions:
    """The options of ``merge``."""

    runs: tuple[str, ...] = argument("RUN", "a run of a shard: its folder, its id, or latest", nargs="+")
    out: Path | None = option("DIR", "folder of the merged run (default: reports/<utc>-<id>)", reads=Path)
    junit: Path | None = option("FILE", "also write the JUnit report to this file", reads=Path)
    junit_flavour: str = flavour_option()
    github: str = github_option()
    json: bool = flag("print one object")


@dataclass(frozen=True, slots=True, kw_only=True)
class DiffOptions:
    """The options of ``diff``."""

    before: str = argument("RUN", "the first run: its folder, its id, latest, or a journal (a .jsonl file) alone")
    after: str = argument("RUN", "the second run")
    map_backend: tuple[str, ...] = several(
        "A=B",
        "compare the cases of backend A of the first run with those of backend B of the second, and no others; the two runs may be one",
    )
    fail_on: tuple[str, ...] = several(
        "WORDS",
        "exit 1 if a case has one of these words, with commas between them: broken, new-failure, gone, no-longer-executed, waived, "
        "changed, still-failing, fixed, new, now-executed, slower, spec-changed",
    )
    slower: float = option(
        "F",
        "a case is slower if it took more than F times as long, and a second more, after the pace of the whole run is taken out "
        "(default: 2)",
        2.0,
        _over_one,
    )
    code: bool = flag("print what differs in the generated code and the graphs of changed cases")
    html: Path | None = option("FILE", "also write one HTML page, with what differs in generated code and graphs", reads=Path)
    json: bool = flag("print one object")


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportOptions:
    """The options of ``report``."""

    run: str = argument("RUN", "a run: its folder, its id, or latest")
    junit: Path | None = option("FILE", "write the JUnit report of the run to this file", reads=Path)
    junit_flavour: str = flavour_option()
    open: bool = flag("also open the page in a browser")


@dataclass(frozen=True, slots=True, kw_only=True)
class WaiveOptions:
    """The options of ``waive``."""

    targets: tuple[str, ...] = argument("RUN", "recorded runs: a folder, an id, or latest", nargs="+")
    to: Path | None = option("FILE", "add the waivers at the end of this file, and leave the rest of it as it is", reads=Path)
    remove: bool = flag("print a unified diff that removes waivers that ended, or whose cases passed")
    issue: str = option("ID", "the issue that tracks the defect: a link or an id", "")
    reason: str = option("TEXT", "the defect, as a sentence", "")
    until: str = option("DATE", "the last day of the waivers (default: 90 days from now)", "")
    waivers: tuple[Path, ...] = waiver_files()


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmitOptions:
    """The options of ``submit``."""

    run: str = argument("RUN", "a recorded run: a folder, an id, or latest")
    out: Path | None = option("FILE", "the file to write (default: submission-<run>.tar.zst in the working folder)", reads=Path)
    key: Path | None = option("FILE", "sign with this private key: Ed25519, PEM, without a passphrase", reads=Path)
    replace: bool = flag("replace the file if it exists")
    json: bool = flag("print one object")


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """The options of ``verify``."""

    archive: Path = argument("ARCHIVE", "the file that 'submit' wrote", Path)
    profile: str | None = profile_option("state whether the run conforms to this profile of yours, not to the author's copy of it")
    specs: tuple[Path, ...] = several(
        "PATH",
        "published files of the author (specs, backends, waivers, profile) that those in the archive must equal: a file or a folder; the "
        "shipped ones are always compared",
        Path,
    )
    key: Path | None = option("FILE", "the author's public key (Ed25519, PEM): the archive must have a valid signature of it", reads=Path)
    json: bool = flag("print one object")


# -- the commands about machines ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorOptions:
    """The options of ``doctor``."""

    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    profile: str | None = profile_option("look at this profile alone, with the specs and backends that it names")
    json: bool = flag("print one object")


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeOptions:
    """The options of ``python -m runner.cli.node``, which is no command of the program."""

    address: str = option("HOST:PORT", "the head of the Ray cluster", required=True)
    lab: Path | None = option("FILE", "the file of the lab, which has the node's entry", reads=Path)
    name: str = option("NAME", "the name of the node, in the lab (default: the name of this machine)", "", word="as")
    image: str = option("NAME", "the image that this machine runs, for the reports (default: that of the lab)", "")
    once: bool = flag("end when the head of the cluster is gone, and do not join again")
    dry: bool = field(
        default=False, metadata={"help": "print the facts and the command, and do not join", "action": "store_true", "word": "print"}
    )


Options: TypeAlias = (
    AuditOptions
    | BlessOptions
    | DiffOptions
    | DoctorOptions
    | ExplainOptions
    | LintOptions
    | ListOptions
    | MergeOptions
    | NewOptions
    | ReportOptions
    | ReproOptions
    | RunOptions
    | SchemaOptions
    | SubmitOptions
    | ValidateOptions
    | VerifyOptions
    | WaiveOptions
    | WatchOptions
)


def written(options: type) -> Mapping[str, Mapping[str, Any]]:
    """Return how each option of a class is written, by its field: the arguments of ``add_argument``, and ``word`` or ``positional``."""
    return {one.name: {**one.metadata, "default": one.default} for one in fields(options) if "help" in one.metadata}
