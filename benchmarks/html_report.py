"""Measures the HTML report of a large run: how long it takes to write, to open in headless Chromium, and to filter.

    python benchmarks/html_report.py --cases 150000 --chromium /usr/bin/chromium

The results are synthetic: specs with a matrix of dtypes and sizes on four backends; 2 % of the cases failed, each with a reason of
its own. A time in the browser is the whole of it, from the change of a filter to the frame that shows its effect. Needs
``pip install playwright`` and a Chromium.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from runner.core.case import CaseId
from runner.core.diagnostics import Position
from runner.core.expectation import Status
from runner.core.header import RunFooter, RunHeader
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult, Verdict
from runner.record.journal import totals
from runner.report.html.writing import write_page

BACKENDS = ("cpu", "cuda", "rocm", "xpu")
DTYPES = ("float32", "bfloat16", "float16", "float64", "int64")
AREAS = ("basics", "codecache", "freezing", "max_autotune", "operators", "padding", "properties", "upstream")
FAILED = (Outcome.FAIL, Outcome.ERROR, Outcome.CRASH, Outcome.TIMEOUT, Outcome.FELL_BACK, Outcome.XFAIL)
OPEN_LIMIT_S, FILTER_LIMIT_MS = 3.0, 100.0
REPEATS = 7

FRAME = """async () => {
  const frame = () => new Promise((done) => requestAnimationFrame(() => setTimeout(done)));
  await frame();
  const begun = performance.now();
  ACT;
  while (T.renderedAt < begun) await frame();
  await frame();
  return performance.now() - begun;
}"""


IDLE = "() => new Promise((done) => requestIdleCallback(() => requestIdleCallback(done)))"
"""Waits for the rest of the action before: a timeline is painted after its view is shown."""


def results(count: int) -> Iterator[CaseResult]:
    """Yield synthetic results: 40 points of a matrix for each spec."""
    for number in range(count):
        spec, point = divmod(number, 40)
        area, backend = AREAS[spec % len(AREAS)], BACKENDS[point % 4]
        name, file = f"claim-number-{spec}", f"specs/{AREAS[spec % len(AREAS)]}/claim-number-{spec}.yaml"
        params = f"dtype={DTYPES[point % 5]},size={point // 4}"
        outcome = (
            FAILED[number // 50 % len(FAILED)] if number % 50 == 7 else Outcome.UNAVAILABLE if backend in ("rocm", "xpu") else Outcome.PASS
        )
        yield result(number, f"{area}/{name}[backend={backend},{params}]", outcome, (file, area, name, backend))


def result(number: int, case_id: str, outcome: Outcome, place: tuple[str, str, str, str]) -> CaseResult:
    """Return one result with the verdicts of an ordinary case."""
    file, area, name, backend = place
    at = Position(file=file, line=14 + number % 9, column=9)
    ran = outcome is not Outcome.UNAVAILABLE
    bad = ran and outcome is not Outcome.PASS
    error = f"error of {number} ulp ({number / 7:.3g} times eager's greatest error), at [{number % 64}]"
    verdicts = (
        Verdict(kind="close", status=Status.FAILED if bad else Status.HELD, position=at, expected="output close to eager", observed=error),
        Verdict(kind="counter", status=Status.HELD, position=at, expected="stats.unique_graphs 1", observed="1"),
        Verdict(kind="proof", status=Status.HELD, position=at, expected=f"backend {backend} ran", observed="shown"),
    )
    why = f"close: expected output close to eager, observed {error}" if bad else f"this machine has no {backend} device" if not ran else ""
    return CaseResult(
        case_id=CaseId(case_id),
        spec=file,
        area=area,
        name=name,
        backend=backend,
        outcome=outcome,
        reason=why,
        failure_type="close" if bad else "" if ran else "unavailable",
        verdicts=verdicts if ran else (),
        position=at,
        seconds=0.1 + number % 977 / 100 if ran else 0.0,
        phases={"inputs": 0.01, "eager": 0.002, "trace": 0.2, "codegen": 0.1, "kernel build": number % 977 / 100} if ran else {},
        begun=time.strftime("%Y-%m-%dT%H:%M:%S+00:00", time.gmtime(1_790_000_000 + number)) if ran else "",
        worker=1 + number % 12 if ran else 0,
        repro=f"torch-conformance run --select '{case_id}'",
        covers=(f"test_torchinductor.py::CpuTests::test_{area}_{number % 900}",),
        tags=(area, "slow") if number % 11 == 0 else (area,),
        summary="A claim" if bad else "",
        stderr="x" * 2000 if bad else "",
    )


def written(folder: Path, count: int) -> float:
    """Write the report of a run with so many cases; return the seconds that it took."""
    made = list(results(count))
    header = RunHeader(
        run_id="20261123T000000Z-000000",
        started="2026-11-23T00:00:00+00:00",
        version="0",
        command=("torch-conformance", "run"),
        environment={"torch": "2.13.0", "device": "synthetic"},
        variables={},
        specs={},
        selected=count,
    )
    footer = RunFooter(ended="2026-11-23T09:00:00+00:00", seconds=32_400.0, totals=totals(made), exit_code=1)
    begun = time.perf_counter()
    write_page(folder, header, made, footer)
    return time.perf_counter() - begun


def opened(page: Any, address: str) -> float:
    """Open the page anew; return the seconds until its first view is in the document and painted."""
    page.goto("about:blank")
    page.goto(address)
    page.wait_for_function("() => typeof T === 'object' && T.renderedAt")
    shown = page.evaluate("() => new Promise((done) => requestAnimationFrame(() => setTimeout(() => done(performance.now()))))")
    return float(shown) / 1000


ACTIONS = {
    "outcome FAIL": "location.hash = '#/cases?outcome=FAIL'",
    "outcome PASS and backend cuda": "location.hash = '#/cases?outcome=PASS&backend=cuda'",
    "area, dtype and tag": "location.hash = '#/cases?area=padding&dtype=bfloat16&tag=slow'",
    "text in ids": "T.search.value = 'number-37'; T.searched()",
    "text in reasons": "T.search.value = 'device'; T.searched()",
    "two words": "T.search.value = 'float16 claim-number-21'; T.searched()",
    "text across the parts of an id": "T.search.value = '-37[backend=cuda,dtype=float16'; T.searched()",
    "slowest first": "location.hash = '#/cases?sort=time'",
    "matrix": "location.hash = '#/matrix'",
    "matrix of failures": "location.hash = '#/matrix?outcome=FAIL'",
    "matrix of a text": "location.hash = '#/matrix?q=dtype%3Dfloat16'",
    "end of the list": "T.keys.End && T.keys.End(); T.renderedAt = performance.now()",
    "summary": "location.hash = '#/summary'",
    "run": "location.hash = '#/run'",
}
"""What a person does, as a script of the page."""


def cpu_seconds(session: Any) -> float:
    """Return the CPU seconds of the page's main thread: they do not depend on what else the machine does."""
    return float(next(one["value"] for one in session.send("Performance.getMetrics")["metrics"] if one["name"] == "TaskDuration"))


def measured(folder: Path, chromium: str) -> dict[str, Any]:
    """Open the report and filter it; return the median and the greatest of the times."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1440, "height": 900})
        problems: list[str] = []
        page.on("pageerror", lambda error: problems.append(str(error)))
        opening = [opened(page, (folder / "index.html").as_uri()) for _ in range(REPEATS)]
        page.wait_for_timeout(1000)  # the ids for searches are made when nothing else is to do
        times: dict[str, list[float]] = {name: [] for name in ACTIONS}
        cpu: dict[str, list[float]] = {name: [] for name in ACTIONS}
        session = page.context.new_cdp_session(page)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        for _ in range(REPEATS):
            for name, act in ACTIONS.items():
                page.evaluate("() => { T.search.value = ''; location.hash = '#/cases'; }")
                page.wait_for_timeout(200)
                page.evaluate(IDLE)
                before = cpu_seconds(session)
                times[name].append(page.evaluate(FRAME.replace("ACT", act)))
                cpu[name].append(1000 * (cpu_seconds(session) - before))
        version = browser.version
        browser.close()
    return {
        "chromium": version,
        "open_s": {"median": round(statistics.median(opening), 3), "most": round(max(opening), 3)},
        "filter_ms": {name: {"median": round(statistics.median(found), 1), "most": round(max(found), 1)} for name, found in times.items()},
        "cpu_ms": {name: round(statistics.median(found), 1) for name, found in cpu.items()},
        "errors": problems,
    }


def main() -> int:
    """Print the figures as JSON; exit 1 where one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=150_000)
    parser.add_argument("--chromium", default="/usr/bin/chromium", help="the browser's program")
    parser.add_argument("--out", type=Path, help="keep the report in this folder")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = (options.out or Path(scratch)).absolute()
        folder.mkdir(parents=True, exist_ok=True)
        seconds = written(folder, options.cases)
        size = sum(path.stat().st_size for path in (folder / "report").iterdir())
        index = (folder / "report" / "index.js").stat().st_size
        found = {
            "cases": options.cases,
            "write_s": round(seconds, 2),
            "bytes": size,
            "index_bytes": index,
            **measured(folder, options.chromium),
        }
    json.dump(found, sys.stdout, indent=2)
    print()
    slow = [name for name, one in found["filter_ms"].items() if one["median"] > FILTER_LIMIT_MS]
    return 1 if slow or found["open_s"]["median"] > OPEN_LIMIT_S or found["errors"] else 0


if __name__ == "__main__":
    raise SystemExit(main())
