"""How fast ``list`` and ``validate`` answer for 10,000 specs: ``python benchmarks/many_specs.py``.

The specs are copies of the shipped ones, without those of operators, in folders of other names; so their ids differ, and their shapes are
real. Each command runs as a process of its own, with a cache folder of its own:

| measured | is |
|---|---|
| off | ``--no-cache``: what the commands cost without the cache |
| cold | with an empty cache: everything is read, and the cache is written |
| warm | nothing changed since |
| one | one spec changed since |

Bounds, in CPU seconds: warm is under ``WARM``, and cold is at most ``COLD`` times off. The commands have one thread, so that on an idle
machine the clock shows about the same; on a shared one it also counts what others do. ``list`` prints to a file.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SPECS = 10_000
WARM = 2.0
COLD = 1.05
_LEFT_OUT = shutil.ignore_patterns("operators", "profiles", "backends.yaml", "waivers.yaml")


@dataclass(frozen=True, slots=True)
class Reading:
    """What one command took."""

    seconds: float
    cpu: float
    """User and system seconds."""
    resident: int
    """The peak, in bytes."""


def generate(folder: Path, specs: int) -> int:
    """Copy the shipped specs until there are at least ``specs``; return their number."""
    made = 0
    while made < specs:
        copy = folder / f"copy-{made:06d}"
        shutil.copytree(ROOT / "specs", copy, ignore=_LEFT_OUT)
        for path in copy.rglob("*.yaml"):
            if not path.name.startswith("_"):
                made += 1
                with path.open("a", encoding="utf-8") as stream:
                    stream.write(f"# copy {made}\n")
    return made


def read(command: str, specs: Path, cache: Path, *options: str) -> Reading:
    """Run a command; one that ends otherwise than with 0 is no measurement."""
    # as a user has it: with the bytecode that the first run leaves
    kept = {name: value for name, value in os.environ.items() if name not in ("PYTHONDONTWRITEBYTECODE", "PYTHONUNBUFFERED")}
    environment = {**kept, "PYTHONPATH": str(ROOT), "TORCH_CONFORMANCE_CACHE": str(cache)}
    begin = time.perf_counter()
    with tempfile.TemporaryFile() as printed:
        process = subprocess.Popen(
            [sys.executable, "-m", "runner", command, *options, str(specs)], cwd=ROOT, stdout=printed, env=environment
        )
    _, status, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - begin
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{command} ended with {process.returncode}")
    return Reading(seconds=seconds, cpu=usage.ru_utime + usage.ru_stime, resident=usage.ru_maxrss * 1024)


def change_one(specs: Path) -> None:
    """Change one spec."""
    path = next(path for path in sorted(specs.rglob("*.yaml")) if not path.name.startswith("_"))
    with path.open("a", encoding="utf-8") as stream:
        stream.write("# changed\n")


def main() -> int:
    """Measure, print a table, and return 1 when a bound is passed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--specs", type=int, default=SPECS, metavar="N", help=f"number of specs (default: {SPECS})")
    arguments = parser.parse_args()
    holds = True
    with tempfile.TemporaryDirectory(prefix="many-specs-") as name:
        specs = Path(name) / "specs"
        print(f"{generate(specs, arguments.specs)} specs")
        print(f"{'command':<10}{'':<6}{'seconds':>9}{'CPU s':>8}{'peak MiB':>10}")
        for command in ("validate", "list"):
            cache = Path(name) / f"cache-{command}"
            found = {
                "off": read(command, specs, cache, "--no-cache"),
                "cold": read(command, specs, cache),
                "warm": read(command, specs, cache),
            }
            change_one(specs)
            found["one"] = read(command, specs, cache)
            for state, one in found.items():
                print(f"{command:<10}{state:<6}{one.seconds:>9.2f}{one.cpu:>8.2f}{one.resident >> 20:>10}", flush=True)
            warm, cold = found["warm"].cpu, found["cold"].cpu / found["off"].cpu
            print(
                f"{command}: warm {warm:.2f} CPU seconds, bound {WARM}; cold {cold:.3f} of the CPU seconds without the cache, bound {COLD}"
            )
            holds = holds and warm <= WARM and cold <= COLD
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
