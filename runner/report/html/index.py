"""The index: a column for each thing that the page filters by. A column holds numbers of small tables, so 150,000 cases take some MB."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from runner.core.escaping import one_line
from runner.core.outcomes import Outcome
from runner.core.protocol import Json
from runner.core.results import CaseResult
from runner.report.html.scripts import shown

_REASON = 240
"""Characters of a reason in a list; the page of the case has all of it."""

_FIRST = (
    Outcome.CRASH,
    Outcome.FAIL,
    Outcome.FELL_BACK,
    Outcome.ERROR,
    Outcome.TIMEOUT,
    Outcome.OFFLINE_FAIL,
    Outcome.XPASS,
    Outcome.FLAKY,
    Outcome.NOT_RUN,
    Outcome.XFAIL,
    Outcome.UNAVAILABLE,
    Outcome.OFFLINE_PASS,
    Outcome.PASS,
)
"""The order of the page: what needs a person first."""


_Value = TypeVar("_Value", str, tuple[str, ...])


@dataclass
class _Table(Generic[_Value]):
    """The different values of a column."""

    numbers: dict[_Value, int] = field(default_factory=dict)

    def of(self, value: _Value) -> int:
        """Return the number of a value."""
        return self.numbers.setdefault(value, len(self.numbers))


def index_of(results: Sequence[CaseResult], chunks: Sequence[int]) -> dict[str, Json]:
    """Return the index; ``chunks`` has the number of the first case of each chunk of details."""
    places = {outcome: place for place, outcome in enumerate(_FIRST)}
    specs, reasons, tags = _Table[tuple[str, ...]](), _Table[tuple[str, ...]](), _Table[tuple[str, ...]]()
    backends, points = _Table[str](), _Table[str]()
    columns: dict[str, list[int]] = {name: [] for name in ("outcome", "spec", "backend", "point", "reason", "tags", "ms")}
    odd: dict[str, str] = {}
    for number, result in enumerate(results):
        spec = (result.spec, result.area, result.name)
        columns["outcome"].append(places[result.outcome])
        columns["spec"].append(specs.of(spec))
        columns["backend"].append(backends.of(result.backend))
        point = _point(result)
        if point is None:
            odd[str(number)] = shown(result.case_id)
        columns["point"].append(points.of(point or ""))
        columns["reason"].append(reasons.of((result.failure_type, one_line(result.reason, _REASON))))
        columns["tags"].append(tags.of(tuple(result.tags)))
        columns["ms"].append(round(result.seconds * 1000))
    return {
        "outcomes": [[one.label, one.is_failure, one.is_executed, one.glyph] for one in _FIRST],
        "specs": [[*map(shown, spec)] for spec in specs.numbers],
        "backends": [shown(name) for name in backends.numbers],
        "points": [shown(point) for point in points.numbers],
        "reasons": [[shown(kind), shown(reason)] for kind, reason in reasons.numbers],
        "tags": [[*map(shown, found)] for found in tags.numbers],
        "odd": odd,
        "chunks": list(chunks),
        "columns": columns,
    }


def _point(result: CaseResult) -> str | None:
    """Return the part of an id behind its backend; None for an id of another form."""
    head = f"{result.area}/{result.name}" if result.area else result.name
    begin = f"{head}[backend={result.backend}"
    rest = result.case_id.removeprefix(begin)
    if len(rest) == len(result.case_id) or not rest.endswith("]") or (rest != "]" and not rest.startswith(",")):
        return None
    return rest[1:-1]


def totals_of(results: Sequence[CaseResult]) -> Mapping[Outcome, int]:
    """Count the results, in the order of the page."""
    counts = dict.fromkeys(_FIRST, 0)
    for result in results:
        counts[result.outcome] += 1
    return counts
