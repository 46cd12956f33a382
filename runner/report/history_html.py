"""The history as one HTML page, with trends drawn as inline SVG."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from runner.core.outcomes import Outcome
from runner.record.history.queries import HistoryCase, HistoryRun
from runner.report.history_text import first_bad, percent
from runner.report.pages import rendered

MOST_CASES = 500
MOST_RUNS = 200
"""Runs of a machine that a plot shows: the latest."""

_WIDTH, _HEIGHT, _LEFT, _TOP = 720, 130, 60, 14


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """One point of a plot."""

    x: float
    y: float
    title: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """A trend as SVG shows it."""

    title: str
    marks: tuple[Mark, ...]
    ticks: tuple[tuple[float, str], ...]
    """The height and the text of each line of the grid."""
    versions: tuple[tuple[float, str], ...]
    """Where torch is another one than in the run before, and its version."""
    width: int = _WIDTH
    height: int = _HEIGHT
    left: int = _LEFT

    @property
    def line(self) -> str:
        """The points of the line."""
        return " ".join(f"{mark.x:.1f},{mark.y:.1f}" for mark in self.marks)


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One outcome of a case's strip."""

    kind: str
    """``good``, ``bad``, ``warn`` or ``faint``."""
    label: str


def page_of(
    file: str,
    runs: Sequence[HistoryRun],
    *,
    failing: Sequence[HistoryCase],
    flaky: Sequence[HistoryCase],
    slowest: Sequence[HistoryCase],
) -> str:
    """Return the page."""
    names = {run.number: run for run in runs}
    machines = {machine: [run for run in runs if run.machine == machine] for machine in dict.fromkeys(run.machine for run in runs)}
    return rendered(
        "history.html.j2",
        file=file,
        runs=list(reversed(runs))[:MOST_RUNS],
        count=len(runs),
        plots={machine: list(_plots(found[-MOST_RUNS:])) for machine, found in machines.items()},
        groups=[
            ("Failing", "failed, and have not passed since", _rows(failing, names), len(failing)),
            ("Flaky", "were FLAKY, or failed and passed more often than once", _rows(flaky, names), len(flaky)),
            ("Slowest", "by the mean time of the runs in which they passed", _rows(slowest, names), len(slowest)),
        ],
        percent=percent,
    )


def _rows(cases: Sequence[HistoryCase], names: Mapping[int, HistoryRun]) -> list[tuple[HistoryCase, str, tuple[Cell, ...]]]:
    return [(case, first_bad(case, names), strip(case.stats.recent)) for case in cases[:MOST_CASES]]


_KINDS = {outcome.glyph: ("bad" if outcome.is_failure else "faint", outcome.label) for outcome in Outcome}
_KINDS |= {Outcome.PASS.glyph: ("good", Outcome.PASS.label)}
_KINDS |= {outcome.glyph: ("warn", outcome.label) for outcome in (Outcome.XFAIL, Outcome.XPASS, Outcome.FLAKY)}
_KINDS |= {Outcome.NOT_RUN.glyph: ("faint", Outcome.NOT_RUN.label)}


def strip(recent: str) -> tuple[Cell, ...]:
    """Return the cells of the last outcomes of a case."""
    return tuple(Cell(kind=kind, label=label) for kind, label in (_KINDS.get(glyph, ("faint", "unknown")) for glyph in recent))


def _plots(runs: Sequence[HistoryRun]) -> Iterator[Plot]:
    rates = [(run, 100 * run.pass_rate) for run in runs if run.pass_rate is not None]
    yield _plot("Executed cases that passed, in percent", rates, unit=" %", top=100.0)
    yield _plot("Seconds of a run", [(run, run.seconds) for run in runs], unit=" s")
    yield _plot("Executed cases", [(run, float(run.executed)) for run in runs], unit="")


def _plot(title: str, points: Sequence[tuple[HistoryRun, float]], *, unit: str, top: float | None = None) -> Plot:
    values = [value for _, value in points]
    high = top if top is not None else max(values, default=1.0) or 1.0
    low = min(values, default=0.0) if top is not None else 0.0
    low = min(low, high - 1.0)
    wide = _WIDTH - _LEFT - 10

    def height(value: float) -> float:
        return _TOP + (high - value) / (high - low) * (_HEIGHT - 2 * _TOP)

    step = wide / max(len(points) - 1, 1)
    marks = tuple(
        Mark(x=_LEFT + index * step, y=height(value), title=f"{run.started[:16]} {run.id}, torch {run.torch}: {value:.4g}{unit}")
        for index, (run, value) in enumerate(points)
    )
    ticks = tuple((height(value), f"{value:.3g}{unit}") for value in (high, (high + low) / 2, low))
    pairs = zip(points, points[1:], marks[1:], strict=False)
    versions = tuple((mark.x - step / 2, now.torch) for (then, _), (now, _), mark in pairs if then.torch != now.torch)
    return Plot(title=title, marks=marks, ticks=ticks, versions=versions)
