"""Types for a newcomer: ``python benchmarks/newcomer.py [--tries N] [--json FILE]``.

Writes a first spec, tries it with ``run``, then with ``watch``: saves changes, among them a mistake, and measures from each save to the
line that says that the watch waits again. The case's own time is what the journal records of its worker.

Bounds: a try takes under 2 s, and at most 1 s longer than the case's own time. Both are of the median.
"""

import argparse
import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import cast

MOST_SECONDS = 2.0
MOST_OVERHEAD = 1.0

SPEC = """\
summary: relu of a product equals eager and is captured as one graph
backends: [cpu]
function: |
  def fn(x, y):
      return (x * y).relu() + {constant}
inputs:
  - {{randn: [64, 64]}}
  - {{randn: [64, 64]}}
expect:
  - close: {{to: eager}}
  - counter: {{stats.unique_graphs: {graphs}}}
"""

BARE = """\
import torch
def fn(x, y):
    return (x * y).relu() + 1
x, y = torch.randn(64, 64), torch.randn(64, 64)
torch.testing.assert_close(torch.compile(fn)(x, y), fn(x, y))
"""

COMPILE = ("trace", "lower", "codegen", "kernel build")
"""The phases of a case that are its compile."""


@dataclass(frozen=True)
class Try:
    """One save, and what it took."""

    what: str
    seconds: float
    """From the save to the line that says that the watch waits."""
    case: float | None = None
    """The case's own time; None where nothing was run."""
    compiling: float | None = None
    """The part of it that is the compile."""

    @property
    def overhead(self) -> float | None:
        """The seconds besides the case's own."""
        return None if self.case is None else self.seconds - self.case

    @property
    def ratio(self) -> float | None:
        """The seconds, as a multiple of the case's compile."""
        return None if not self.compiling else self.seconds / self.compiling


class Watch:
    """A running ``watch``."""

    def __init__(self, folder: Path) -> None:
        command = [sys.executable, "-u", "-m", "runner", "watch", "first", "--backend", "cpu"]
        self.process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, encoding="utf-8"
        )

    def until_it_waits(self) -> str:
        """Return the output up to the line that says that it waits."""
        assert self.process.stdout is not None
        bound = threading.Timer(300, self.process.kill)
        bound.start()
        lines: list[str] = []
        while not lines or "waiting for a change" not in lines[-1]:
            lines.append(self.process.stdout.readline())
            if not lines[-1]:
                raise SystemExit(f"the watch ended:\n{''.join(lines)}")
        bound.cancel()
        return "".join(lines)

    def quit(self) -> int:
        """Type q; return the exit code."""
        self.process.communicate("q\n", timeout=60)
        return self.process.returncode


def timed(command: list[str], folder: Path) -> float:
    """Return the seconds of a command that must succeed."""
    begun = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=600)
    return time.perf_counter() - begun


def case_of(folder: Path) -> dict[str, object]:
    """Return the line of the case in the journal of the latest run."""
    lines = (folder / "reports" / "latest" / "run.jsonl").read_text("utf-8").splitlines()
    return next(line for line in map(json.loads, lines) if line["kind"] == "case")


def tried(watch: Watch, folder: Path, what: str, text: str, expected: str) -> Try:
    """Save a text, and measure until the watch waits; the output must have the expected words."""
    begun = time.perf_counter()
    (folder / "first" / "relu.yaml").write_text(text, "utf-8")
    output = watch.until_it_waits()
    seconds = time.perf_counter() - begun
    if not re.search(expected, output):
        raise SystemExit(f"{what}: no '{expected}' in:\n{output}")
    if "nothing was run" in output:
        return Try(what, seconds)
    case = case_of(folder)
    phases = cast("dict[str, float]", case["phases"])
    return Try(what, seconds, float(str(case["seconds"])), sum(phases.get(name, 0.0) for name in COMPILE))


def session(folder: Path, tries: int) -> tuple[dict[str, float], list[Try]]:
    """Return the seconds of what is cold, and the tries."""
    (folder / "first").mkdir()
    (folder / "bare.py").write_text(BARE, "utf-8")
    spec = folder / "first" / "relu.yaml"
    spec.write_text(SPEC.format(constant=0, graphs=1), "utf-8")
    cold = {"bare script": timed([sys.executable, "bare.py"], folder)}
    cold["run"] = timed([sys.executable, "-m", "runner", "run", "first"], folder)
    begun = time.perf_counter()
    watch = Watch(folder)
    watch.until_it_waits()
    cold["watch, first try"] = time.perf_counter() - begun
    made = [tried(watch, folder, "a mistake in the YAML", SPEC.replace("close", "clsoe").format(constant=0, graphs=1), "did you mean")]
    made.append(tried(watch, folder, "a wrong claim", SPEC.format(constant=1, graphs=2), "FAIL"))
    made += [tried(watch, folder, "a change", SPEC.format(constant=number + 2, graphs=1), r"1  PASS") for number in range(tries)]
    if code := watch.quit():
        raise SystemExit(f"the watch ended with {code}")
    return cold, made


def main() -> int:
    """Print the table; return 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tries", type=int, default=10)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="newcomer-") as folder:
        cold, made = session(Path(folder), given.tries)
    for name, seconds in cold.items():
        print(f"{name:24} {seconds:6.2f} s")
    print(f"\n{'try':24} {'s':>6} {'case s':>7} {'compile s':>10} {'besides s':>10} {'ratio':>6}")
    for one in made:
        figures = [one.seconds, one.case, one.compiling, one.overhead, one.ratio]
        print(
            f"{one.what:24}"
            + "".join(
                f"{'-' if found is None else f'{found:.2f}':>{width}}" for found, width in zip(figures, (7, 8, 11, 11, 7), strict=True)
            )
        )
    changes = [one for one in made if one.what == "a change"]
    seconds = statistics.median(one.seconds for one in changes)
    overhead = statistics.median(one.overhead or 0.0 for one in changes)
    ratio = statistics.median(one.ratio or 0.0 for one in changes)
    print(f"\nmedian of the changes: {seconds:.2f} s, {ratio:.2f} times the compile, {overhead:.2f} s besides the case")
    if given.json is not None:
        given.json.write_text(json.dumps({"cold": cold, "tries": [asdict(one) for one in made]}, indent=1), "utf-8")
    missed = [
        name for name, found, bound in (("a try", seconds, MOST_SECONDS), ("besides the case", overhead, MOST_OVERHEAD)) if found > bound
    ]
    for name in missed:
        print(f"bound missed: {name}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
