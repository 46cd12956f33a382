"""``list --shards``: shards of a selection as a work order, for Slurm arrays and CI matrices. ``run --shard I/N`` executes one."""

import shlex
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from runner.core.case import Case
from runner.core.diagnostics import UsageError
from runner.core.exit_codes import ExitCode
from runner.core.options import (
    backend_files,
    backends_chosen,
    flag,
    globs,
    natural,
    option,
    paths,
    profile_option,
    shard_by_option,
    shard_option,
    tags,
)
from runner.language.load import load
from runner.plan.selection import BY_LABEL, Shard, label_shards, member_of, requested, select, why_nothing_selected, without_benches
from runner.system import output


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
        reads=natural,
    )
    shard_by: str = shard_by_option()
    slurm: bool = flag("with --shards: print a script with a Slurm array instead of JSON")


FORMAT = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderedShard:
    """One shard of a work order."""

    shard: str
    cases: int
    label: str
    """What its cases require of their machine; empty where shards are made by id."""
    out: str
    command: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkOrder:
    """The shards of a selection."""

    cases: int
    by: str
    shards: tuple[OrderedShard, ...]
    merge: tuple[str, ...]


def show(options: ListOptions) -> ExitCode:
    """Print the work order as JSON, or as a Slurm script."""
    order = work_order(options)
    if options.slurm:
        output.lines(slurm_script(order).splitlines())
    else:
        output.document({"format": FORMAT, **asdict(order)})
    return ExitCode.OK


def work_order(options: ListOptions) -> WorkOrder:
    """Return the work order; raise ``UsageError`` for a selection of nothing, or more labels than shards."""
    suite = load(options.paths, options.backends)
    matching = select(suite.cases, suite.backends, names=options.backend, globs=options.select, tags=options.tag)
    whole = [
        without_benches(case) for case in requested(matching, suite.cases, paths=options.paths, globs=options.select, tags=options.tag)
    ]
    if not whole:
        why = why_nothing_selected(len(suite.cases), names=options.backend, globs=options.select, tags=options.tag, shard=None, of=0)
        raise UsageError(f"--shards: {why}")
    count = options.shards or 0
    if count < 1:
        raise UsageError("--shards 0: write a number from 1")
    shards = tuple(_shard(options, whole, index, count) for index in range(1, count + 1))
    merge = ("torch-conformance", "merge", *(shard.out for shard in shards), "--out", "whole")
    return WorkOrder(cases=len(whole), by=options.shard_by, shards=shards, merge=merge)


def _shard(options: ListOptions, whole: Sequence[Case], index: int, count: int) -> OrderedShard:
    name = f"{index}/{count}"
    holds = member_of(whole, Shard.parse(name), options.shard_by)
    label = label_shards(whole, count)[index - 1].label if options.shard_by == BY_LABEL else ""
    command = ("torch-conformance", "run", *_selection(options), "--shard", name, "--out", f"shard-{index}")
    return OrderedShard(shard=name, cases=sum(map(holds, whole)), label=label, out=f"shard-{index}", command=command)


def _selection(options: ListOptions) -> list[str]:
    named = [("--backends", options.backends), ("--backend", options.backend), ("--select", options.select), ("--tag", options.tag)]
    words = [str(path) for path in options.paths]
    for word, values in named:
        for value in values:
            words += [word, str(value)]
    return [*words, *(["--shard-by", options.shard_by] if options.shard_by == BY_LABEL else [])]


def slurm_script(order: WorkOrder) -> str:
    """Return a script for ``sbatch``: an array with one task for each shard."""
    shards = order.shards
    command = shards[0].command
    common = shlex.join(command[: command.index("--shard")])
    lines = [
        "#!/bin/bash",
        "#SBATCH --job-name=torch-conformance",
        f"#SBATCH --array=1-{len(shards)}",
        f"# {order.cases} cases in {len(shards)} shards.",
        "# With labels: submit each shard alone, with --array=I and its own --constraint.",
        *(f"# {shard.shard}: {shard.cases} cases{f', which require: {shard.label}' if shard.label else ''}" for shard in shards),
        f'{common} --shard "$SLURM_ARRAY_TASK_ID/{len(shards)}" --out "shard-$SLURM_ARRAY_TASK_ID"',
        "# after the array:",
        f"# {shlex.join(order.merge)}",
    ]
    return "\n".join(lines) + "\n"
