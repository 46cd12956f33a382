"""``list --shards``: shards of a selection as a work order, for Slurm arrays and CI matrices. ``run --shard I/N`` executes one."""

import shlex
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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


def show(options: ListOptions) -> ExitCode:
    """Print the work order as JSON, or as a Slurm script; raise ``UsageError`` for a selection of nothing, or more labels than shards."""
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

    command = ["torch-conformance", "run", *map(str, options.paths)]
    named = (("--backends", options.backends), ("--backend", options.backend), ("--select", options.select), ("--tag", options.tag))
    for word, values in named:
        for value in values:
            command += [word, str(value)]
    is_by_label = options.shard_by == BY_LABEL
    command += ["--shard-by", options.shard_by] if is_by_label else []
    # what the cases of a shard require of their machine; empty where shards are made by id
    labels = [shard.label for shard in label_shards(whole, count)] if is_by_label else [""] * count
    shards: list[dict[str, Any]] = []
    for index, label in enumerate(labels, start=1):
        name, out = f"{index}/{count}", f"shard-{index}"
        cases = sum(map(member_of(whole, Shard.parse(name), options.shard_by), whole))
        shards.append({"shard": name, "cases": cases, "label": label, "out": out, "command": [*command, "--shard", name, "--out", out]})
    merge = ["torch-conformance", "merge", *(shard["out"] for shard in shards), "--out", "whole"]
    if not options.slurm:
        output.document({"format": FORMAT, "cases": len(whole), "by": options.shard_by, "shards": shards, "merge": merge})
        return ExitCode.OK
    output.lines(
        [
            "#!/bin/bash",
            "#SBATCH --job-name=torch-conformance",
            f"#SBATCH --array=1-{count}",
            f"# {len(whole)} cases in {count} shards.",
            "# With labels: submit each shard alone, with --array=I and its own --constraint.",
            *(f"# {part['shard']}: {part['cases']} cases{', which require: ' if part['label'] else ''}{part['label']}" for part in shards),
            f'{shlex.join(command)} --shard "$SLURM_ARRAY_TASK_ID/{count}" --out "shard-$SLURM_ARRAY_TASK_ID"',
            "# after the array:",
            f"# {shlex.join(merge)}",
        ]
    )
    return ExitCode.OK
