"""``list``: the expanded cases, and whether each can run here; or what they cover of the upstream tests."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from runner.cli import ledger_listing
from runner.cli.profiles import levels_of, lines_of, load_profile, prospect_of
from runner.core import escaping
from runner.core.case import Availability, Case
from runner.core.diagnostics import one_line
from runner.core.exit_codes import ExitCode
from runner.core.options import ListOptions
from runner.core.protocol import encode
from runner.language import coverage_report, upstream
from runner.language.load import load
from runner.plan.operator_script import is_of_operator
from runner.plan.selection import Shard, select, unmatched, why_nothing_selected
from runner.system import availability, output
from runner.system.availability import Verdict
from runner.system.installed_torch import installed_torch


def main(options: ListOptions) -> ExitCode:
    """Print the selected cases; exit 4 when there are none. With ``--coverage``, print the coverage and exit 0.

    With ``--against`` or ``--update``, ``ledger_listing`` answers.
    """
    wants_ledger = ledger_listing.wants_ledger(options)
    profile = load_profile(options.profile, options.paths, options.backends) if options.profile else None
    suite = load(options.paths, options.backends) if profile is None else profile.suite
    if wants_ledger:
        return ledger_listing.main(options, suite.cases)
    shard = Shard.parse(options.shard) if options.shard else None
    read = suite.cases if profile is None else profile.resolved.cases
    cases = select(read, suite.backends, names=options.backend, globs=options.select, tags=options.tag, shard=shard)
    for hint in unmatched(options.select, read):
        output.note(hint)
    if options.coverage:
        found = upstream.coverage(cases, upstream.load())
        if options.json:
            output.document(coverage_report.as_json(found))
        else:
            output.lines(coverage_report.lines(found))
        return ExitCode.OK
    machine = availability.inspect_files(installed_torch())
    judged = [(case, availability.of_case(case, machine)) for case in cases]
    if options.json:
        levels = {} if profile is None else levels_of(profile.resolved.record)
        for part in _array({**as_json(case, verdict), **levels.get(case.id, {})} for case, verdict in judged):
            output.raw(part)
    else:
        names_cases = bool(options.paths or options.select or options.tag or profile)
        output.lines(_lines(judged, whole=names_cases))
        if judged:
            output.lines(_totals(judged))
        if profile is not None:
            output.lines(lines_of(profile.resolved.record, prospect_of(profile, machine)))
    if not cases:
        output.note(why_nothing_selected(len(read), names=options.backend, globs=options.select, tags=options.tag, shard=options.shard))
    return ExitCode.OK if cases else ExitCode.NOTHING


def _array(values: Iterable[Mapping[str, Any]]) -> Iterator[str]:
    """Yield an indented JSON array value by value: as one string, many cases would take a gigabyte."""
    before = "[\n  "
    for value in values:
        # JSON text has line ends only between values
        yield before + escaping.json_text(encode(value)).replace("\n", "\n  ")
        before = ",\n  "
    yield "[]\n" if before.startswith("[") else "\n]\n"


def as_json(case: Case, verdict: Verdict) -> Mapping[str, Any]:
    """Return a case as ``list --json`` prints it."""
    return {
        "id": case.id,
        "spec": case.spec,
        "line": case.position.line,
        "summary": case.summary,
        "area": case.area,
        "name": case.name,
        "backend": case.backend,
        "params": case.params,
        "requires": list(dict.fromkeys(map(str, case.requires))),
        "covers": list(case.covers),
        "tags": list(case.tags),
        "on_request": case.on_request,
        "available": verdict.availability.as_json(),
        "reason": verdict.reason,
    }


def _lines(judged: Sequence[tuple[Case, Verdict]], *, whole: bool) -> Iterator[str]:
    """Yield a line for each case; unless ``whole``, one line for all cases of a source, which are thousands."""
    folded: Counter[str] = Counter()
    for case, verdict in judged:
        if whole or not is_of_operator(case):
            yield _line(case, verdict)
        else:
            folded[case.spec] += 1
    yield from (
        f"{one_line(spec)}: {_counted(count, 'case')} of a source (list {one_line(spec)} prints them)" for spec, count in folded.items()
    )


def _line(case: Case, verdict: Verdict) -> str:
    word = {Availability.YES: "", Availability.NO: "  unavailable: ", Availability.UNKNOWN: "  perhaps: "}[verdict.availability]
    return f"{case.id}{word}{verdict.reason if word else ''}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _totals(judged: Sequence[tuple[Case, Verdict]]) -> Iterator[str]:
    """Yield how many cases and specs there are, how many can run here, and why the others cannot."""
    counts = Counter(verdict.availability for _, verdict in judged)
    specs = len({case.spec for case, _ in judged})
    parts = [f"{counts[Availability.YES]} can run here"]
    parts += [
        f"{counts[kind]} {word}" for kind, word in ((Availability.UNKNOWN, "perhaps"), (Availability.NO, "unavailable")) if counts[kind]
    ]
    yield ""
    yield f"{_counted(len(judged), 'case')} of {_counted(specs, 'spec')}: {', '.join(parts)}"
    backends = Counter(case.backend for case, _ in judged)
    if len(backends) > 1:
        yield f"  by backend: {', '.join(f'{name} {count}' for name, count in backends.items())}"
    if count := sum(case.on_request for case, _ in judged):
        yield f"  {count:5}  on request: run only when a path, --tag or --select names them"
    for kind, word in ((Availability.UNKNOWN, "perhaps"), (Availability.NO, "unavailable")):
        reasons = Counter(verdict.reason for _, verdict in judged if verdict.availability is kind)
        yield from (f"  {count:5}  {word}: {reason}" for reason, count in reasons.most_common())
