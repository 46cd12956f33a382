"""``list``: the expanded cases, and whether each can run here; or what they cover of the upstream
tests, or of a ledger.
"""

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch_conformance.language.backends import Backends
from torch_conformance.language.load import load
from torch_conformance.machine import capabilities, output
from torch_conformance.machine.capabilities import CaseAvailability
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.model import escaping
from torch_conformance.model.case import Availability, Case
from torch_conformance.model.diagnostics import UsageError, one_line, shown_path
from torch_conformance.model.escaping import counted
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.protocol import encode
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import (
    Selection,
    SpecFiles,
    durations,
    flag,
    option,
    profile_option,
    shard_option,
)
from torch_conformance.plan.profile import profiles
from torch_conformance.plan.selection import (
    is_of_operator,
    requested,
    select,
    taken,
    unmatched,
    why_nothing_selected,
)


@frozen
class ListOptions(SpecFiles, Selection):
    """The options of ``list``."""

    shard: str | None = shard_option()
    durations: str | None = durations()
    profile: str | None = profile_option("show the cases of this profile by level")
    coverage: bool = flag(
        "print which specs and cases cover each upstream test, and in which assertions they "
        "differ, instead of the cases"
    )
    json: bool = flag("print an array of objects; with --coverage one object")
    against: Path | None = option(
        "LEDGER",
        "instead of the cases, print the ids of this ledger that no spec has any more; exit 1 "
        "if there are some",
        reads=Path,
    )
    update: Path | None = option(
        "LEDGER",
        "instead of printing the cases, rewrite this ledger, and print the ids that are gone",
        reads=Path,
    )


def main(options: ListOptions) -> ExitCode:
    """Print the selected cases; exit 4 when there are none."""
    if options.against is not None and options.update is not None:
        raise UsageError("--against compares a ledger and --update changes it: give one of them")
    is_ledger = options.against is not None or options.update is not None
    if is_ledger and (
        options.select or options.backend or options.shard or options.coverage or options.json
    ):
        raise UsageError(
            "a ledger has all cases of the paths: leave out --select, --backend, --shard, "
            "--coverage and --json"
        )
    levels: Mapping[str, Mapping[str, Any]] = {}
    if not options.profile:
        suite = load(options.paths, options.backends)
        read = suite.cases
        output.note(taken(options.paths, len(read)))
    else:
        vendor = profiles()
        profile = vendor.load_profile(
            options.profile, options.paths, options.backends, options.backend
        )
        suite, read, levels = (profile.suite, profile.cases, vendor.levels_of(profile.record))
    if is_ledger:
        return _ledger(options, suite.cases)
    cases = select(read, suite.backends, options)
    if options.shard:  # those that a run with it runs
        if not options.profile:
            cases = requested(cases, read, options, paths=options.paths)
        from torch_conformance.run.preparation import known_durations, take_shard

        cases, _ = take_shard(
            cases, options.shard, known_durations(options.durations, options.paths)[1]
        )
    elif options.durations:
        raise UsageError("--durations is for shards: add --shard I/N, or leave it out")
    for hint in unmatched(options.select, read):
        output.note(hint)
    if options.coverage:
        return _coverage(options, cases, suite.backends)
    machine = capabilities.inspect_files(installed_torch())
    verdicts = capabilities.availabilities_of(cases, machine)
    if options.json:
        for part in _array(
            {**as_json(case, verdict), **levels.get(case.id, {})}
            for case, verdict in zip(cases, verdicts, strict=True)
        ):
            output.raw(part)
    else:
        output.lines(
            _lines(
                cases,
                verdicts,
                whole=bool(options.paths or options.select or options.tag or options.profile),
            )
        )
        if cases:
            output.lines(_totals(cases, verdicts))
        if options.profile:
            output.lines(vendor.outlook_of(profile, machine))
    if not cases:
        output.note(why_nothing_selected(len(read), options, shard=options.shard))
    return ExitCode.OK if cases else ExitCode.NOTHING


def _array(values: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield an indented JSON array value by value: as one string, many cases would take a
    gigabyte.
    """
    before = "[\n  "
    for value in values:
        # JSON text has line ends only between values
        yield before + escaping.json_text(encode(value)).replace("\n", "\n  ")
        before = ",\n  "
    yield "[]\n" if before.startswith("[") else "\n]\n"


def as_json(case: Case, verdict: CaseAvailability) -> Mapping[str, Any]:
    """Return a case as ``list --json`` prints it."""
    return {
        "id": case.id,
        "spec": case.spec,
        "line": case.position.line,
        **{word: getattr(case, word) for word in ("summary", "area", "name", "backend", "params")},
        "requires": list(dict.fromkeys(map(str, case.requires))),
        "covers": list(case.covers),
        "tags": list(case.tags),
        "on_request": case.on_request,
        "available": {"yes": True, "no": False, "unknown": None}[verdict.availability.value],
        "reason": verdict.reason,
    }


_WORDS = {Availability.YES: "", Availability.UNKNOWN: "perhaps", Availability.NO: "unavailable"}


def _lines(
    cases: Sequence[Case], verdicts: Sequence[CaseAvailability], *, whole: bool
) -> Iterator[str]:
    """Yield a line for each case; unless ``whole``, one line for all cases of a source, which are
    thousands.
    """
    folded: Counter[str] = Counter()
    for case, verdict in zip(cases, verdicts, strict=True):
        if whole or not is_of_operator(case):
            word = _WORDS[verdict.availability]
            yield f"{case.id}  {word}: {verdict.reason}" if word else case.id
        else:
            folded[case.spec] += 1
    for spec, count in folded.items():
        yield (
            f"{one_line(spec)}: {counted(count, 'case')} of a source (list {one_line(spec)} "
            "prints them)"
        )


def _totals(cases: Sequence[Case], verdicts: Sequence[CaseAvailability]) -> Iterator[str]:
    """Yield how many cases and specs there are, how many can run here, and why the others
    cannot.
    """
    counts = Counter(verdict.availability for verdict in verdicts)
    parts = [
        f"{counts[kind]} {word or 'can run here'}"
        for kind, word in _WORDS.items()
        if counts[kind] or not word
    ]
    yield ""
    yield (
        f"{counted(len(cases), 'case')} of {counted(len({case.spec for case in cases}), 'spec')}: "
        f"{', '.join(parts)}"
    )
    backends = Counter(case.backend for case in cases)
    if len(backends) > 1:
        yield f"  by backend: {', '.join(f'{name} {count}' for name, count in backends.items())}"
    if count := sum(case.on_request for case in cases):
        yield f"  {count:5}  on request: run only when a path, --tag or --select names them"
    for kind, word in _WORDS.items():
        reasons = [verdict.reason for verdict in verdicts if verdict.availability is kind and word]
        yield from (f"  {count:5}  {word}: {cause}" for cause, count in causes_of(reasons))


_PLACE = re.compile(r" \(line \d+\)| of \S+:\d+:\d+(?= )")
_OF_INDUCTOR = re.compile(r" is about Inductor, [^;]*")


def causes_of(reasons: Iterable[str]) -> Iterable[tuple[str, int]]:
    """Return the causes of reasons and how many have each, most first: they are reasons without
    their places, and one for all words about Inductor.
    """
    causes = Counter[str]()
    for text in (_PLACE.sub("", reason) for reason in reasons):
        word = _OF_INDUCTOR.search(text)
        causes[f"a word of the spec{word[0]}" if word else text] += 1
    return causes.most_common()


# -- the upstream tests ----------------------------------------------------------------------------


def _coverage(options: ListOptions, cases: Sequence[Case], backends: Backends) -> ExitCode:
    """Print each upstream test with its cases, each instance that is missing, and the assertions
    that differ on each backend; then the totals.
    """
    from torch_conformance.language import upstream

    covered = upstream.coverage(cases, upstream.load())
    tests_of_seeds, _ = upstream.seeds()
    differences = {
        row.test.row: tests_of_seeds[row.test.name].differences(row.covering, backends)
        for row in covered
    }
    totals = {
        "tests": len(covered),
        "covered_tests": sum(not row.missing for row in covered),
        "instances": sum(len(row.cases) for row in covered),
        "covered_instances": sum(len(row.cases) - len(row.missing) for row in covered),
    }
    if options.json:
        tests = [
            {
                "row": row.test.row,
                "test": row.test.name,
                "covered": not row.missing,
                "instances": [
                    {"id": identity, "cases": [case.id for case in cases]}
                    for identity, cases in row.cases.items()
                ],
                "specs": row.specs,
                "differences": [
                    {
                        "kind": assertion.kind,
                        "seed": assertion.seed,
                        "ours": assertion.ours,
                        "backends": backends,
                    }
                    for assertion, backends in differences[row.test.row]
                ],
            }
            for row in covered
        ]
        output.document({"format": 1, "tests": tests, "totals": totals})
        return ExitCode.OK
    for row in covered:
        parts = [f"row {row.test.row:2}", row.test.name]
        parts.append(
            f"{len(row.cases) - len(row.missing)} of {counted(len(row.cases), 'instance')}"
        )
        parts += [f"{spec} ({counted(count, 'case')})" for spec, count in row.specs.items()]
        output.line("  ".join(parts if row.specs else [*parts, "missing"]))
        if row.specs:
            output.lines(f"        missing {identity}" for identity in row.missing)
            output.lines(
                f"        {assertion.kind} on {', '.join(backends)}: {assertion.seed}"
                + (f"; ours: {assertion.ours}" if assertion.ours else "")
                for assertion, backends in differences[row.test.row]
            )
    tests_covered = f"{totals['covered_tests']} of {totals['tests']} tests"
    output.line(
        f"{tests_covered}, {totals['covered_instances']} of {totals['instances']} instances covered"
    )
    return ExitCode.OK


# -- a ledger --------------------------------------------------------------------------------------


def _ledger(options: ListOptions, cases: Sequence[Case]) -> ExitCode:
    """Compare the ledger of ``--against``, or write that of ``--update`` again; FAILED when cases
    of the first are gone.
    """
    from torch_conformance.model.folded_ids import fold
    from torch_conformance.plan.case_ledger import compare, problems, read_ledger, text_of

    path = options.update or options.against
    assert path is not None
    shown_ledger = one_line(shown_path(path))
    ids = {} if options.update is not None and not path.exists() else read_ledger(path)
    compared = compare(ids, path.parent, cases)
    if options.update is not None:
        gone_ids = set(compared.gone)
        remaining = [*(case_id for case_id in ids if case_id not in gone_ids), *compared.new]
        try:
            path.write_text(text_of(remaining, cases), "utf-8")
        except OSError as error:
            raise UsageError(
                f"cannot write the ledger {shown_path(path)}: {error.strerror}"
            ) from error
        first = (
            f"{shown_ledger}: {counted(len(remaining), 'case')}, {len(compared.new)} of them new; "
            f"{len(compared.gone)} gone"
        )
        output.lines([first, *fold(compared.gone)])
        return ExitCode.OK
    if not ids:  # a comparison with it could not fail
        raise UsageError(
            f"the ledger {shown_ledger} lists no case: restore it, or rewrite it with list "
            f"--update {shown_ledger}"
        )
    output.lines(map(str, problems(path, ids, compared.gone)))
    output.line(
        f"{counted(len(ids), 'case')} in {shown_ledger}: {len(compared.gone)} gone, "
        f"{len(compared.outside)} outside the paths"
    )
    if compared.new:
        output.note(
            f"{counted(len(compared.new), 'case')} not in the ledger yet: list --update "
            f"{shown_ledger} adds them"
        )
    return ExitCode.FAILED if compared.gone else ExitCode.OK
