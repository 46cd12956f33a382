"""The cases that ``list`` prints: lines with totals, or JSON."""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from runner.core import escaping
from runner.core.case import Availability, Case
from runner.core.diagnostics import one_line
from runner.core.exit_codes import ExitCode
from runner.core.options import ListOptions
from runner.core.protocol import encode
from runner.language.backends import Backends
from runner.plan.operator_script import is_of_operator
from runner.plan.selection import Shard, select, unmatched, why_nothing_selected
from runner.system import availability, output
from runner.system.availability import Verdict
from runner.system.capabilities import Machine
from runner.system.installed_torch import installed_torch

_NONE: Mapping[str, Mapping[str, Any]] = {}


def show(
    options: ListOptions,
    read: Sequence[Case],
    backends: Backends,
    levels: Mapping[str, Mapping[str, Any]] = _NONE,
    more: Callable[[Machine], Iterable[str]] = lambda machine: (),
) -> ExitCode:
    """Print the selected ones of the cases that were read. ``levels`` adds keys to cases, and ``more`` lines after the totals."""
    cases = selected(options, read, backends)
    machine = availability.inspect_files(installed_torch())
    judged = list(zip(cases, availability.of_cases(cases, machine), strict=True))
    if options.json:
        for part in _array({**as_json(case, verdict), **levels.get(case.id, {})} for case, verdict in judged):
            output.raw(part)
    else:
        output.lines(_lines(judged, whole=bool(options.paths or options.select or options.tag or options.profile)))
        if judged:
            output.lines(_totals(judged))
        output.lines(more(machine))
    if not cases:
        output.note(why_nothing_selected(len(read), names=options.backend, globs=options.select, tags=options.tag, shard=options.shard))
    return ExitCode.OK if cases else ExitCode.NOTHING


def selected(options: ListOptions, read: Sequence[Case], backends: Backends) -> list[Case]:
    """Return the selected cases, and print a hint for each glob that selects none."""
    shard = Shard.parse(options.shard) if options.shard else None
    cases = select(read, backends, names=options.backend, globs=options.select, tags=options.tag, shard=shard)
    for hint in unmatched(options.select, read):
        output.note(hint)
    return cases


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
    endings: dict[int, str] = {}
    for case, verdict in judged:
        if whole or not is_of_operator(case):
            ending = endings.get(id(verdict))
            if ending is None:
                ending = endings[id(verdict)] = _ending(verdict)
            yield case.id + ending
        else:
            folded[case.spec] += 1
    yield from (
        f"{one_line(spec)}: {_counted(count, 'case')} of a source (list {one_line(spec)} prints them)" for spec, count in folded.items()
    )


def _ending(verdict: Verdict) -> str:
    """Return what follows the id of a case; thousands of cases share a verdict."""
    word = {Availability.YES: "", Availability.NO: "  unavailable: ", Availability.UNKNOWN: "  perhaps: "}[verdict.availability]
    return f"{word}{verdict.reason if word else ''}"


def _counted(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _totals(judged: Sequence[tuple[Case, Verdict]]) -> Iterator[str]:
    """Yield how many cases and specs there are, how many can run here, and why the others cannot."""
    verdicts = {id(verdict): verdict for _, verdict in judged}
    found = [(verdicts[one], count) for one, count in Counter([id(verdict) for _, verdict in judged]).items()]
    counts: Counter[Availability] = Counter()
    for verdict, count in found:
        counts[verdict.availability] += count
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
        reasons: Counter[str] = Counter()
        for verdict, count in found:
            if verdict.availability is kind:
                reasons[verdict.reason] += count
        yield from (f"  {count:5}  {word}: {reason}" for reason, count in reasons.most_common())
