"""Make the pictures of the tutorial: ``python tools/make_pictures.py`` writes ``docs/tutorial/pictures``. Needs the extra ``browser``.

The files are those of the pages. A run of them is judged and reported as any run, in a process of its own below a terminal; in place of
workers, it takes what workers observed when ``python tools/make_pictures.py --record`` ran the same commands with torch.
"""

import argparse
import json
import os
import pty
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from io import StringIO
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import tests.fakes
from runner.cli.parser import main as runner_main
from runner.core.observation import Ending
from runner.execute.base import Execution, Job
from runner.execute.executors import EXECUTORS, LOCAL
from runner.record.journal import read_run
from runner.system.availability import ANSWERS
from tests.fences import FILES, Fence, fences, write

ROOT = Path(__file__).resolve().parents[1]
PAGES = [ROOT / "docs" / "tutorial" / f"{name}.md" for name in ("first-spec", "first-red-case", "first-backend")]
PICTURES = ROOT / "docs" / "tutorial" / "pictures"
RECORDED = ROOT / "tests" / "data" / "tutorial.json"

TERMINAL = {"TERM": "xterm-256color", "COLUMNS": "110", "CI": "", "NO_COLOR": "", "PYTHONPATH": str(ROOT)}
WIDTH = 110
"""Columns of the terminal in a picture."""

# rich's own form loads a font from another host
SVG = """\
<svg class="rich-terminal" viewBox="0 0 {width} {height}" xmlns="http://www.w3.org/2000/svg">
<style>
.{unique_id}-matrix {{ font-family: monospace; font-size: {char_height}px; line-height: {line_height}px }}
{styles}
</style>
<defs>
<clipPath id="{unique_id}-clip-terminal"><rect x="0" y="0" width="{terminal_width}" height="{terminal_height}"/></clipPath>
{lines}
</defs>
{chrome}
<g transform="translate({terminal_x}, {terminal_y})" clip-path="url(#{unique_id}-clip-terminal)">
{backgrounds}
<g class="{unique_id}-matrix">
{matrix}
</g>
</g>
</svg>
"""


@dataclass(frozen=True)
class Shown:
    """One run of the tutorial, with the pages' files as the reader has them then."""

    command: str
    of_first: bool
    """Whether a file that is on the pages twice is as it is there first."""
    terminal: str = ""
    """The name of the picture of the first failure that the terminal shows."""
    views: tuple[tuple[str, str, int], ...] = ()
    """Pictures of the page of the run: name, address within the page, and height."""


RUNS = {
    "red": Shown(
        "run first --out red",
        of_first=True,
        terminal="failure.svg",
        views=(("summary.png", "#/summary", 520), ("case.png", "#/case?id=scaled-softmax[backend=cpu]", 812)),
    ),
    "fell-back": Shown(
        "run first --backends ours.yaml --backend cpu-ours --select relu* --out bare",
        of_first=True,
        terminal="fell-back.svg",
    ),
    "ours": Shown("run first --backends ours.yaml --out ours", of_first=False, views=(("matrix.png", "#/matrix", 370),)),
}

NAMES = tuple(name for run in RUNS.values() for name in (run.terminal, *(view for view, _, _ in run.views)) if name)
"""The pictures that are made."""


def write_files(folder: Path, *, of_first: bool) -> None:
    """Write the files of the pages; of one that is there twice, the first or the last text."""
    found: dict[str, Fence] = {}
    for fence in (fence for page in PAGES for fence in fences(page) if fence.mark in FILES):
        if not (of_first and fence.name in found):
            found[fence.name] = fence
    for fence in found.values():
        write(fence, folder)


def start(name: str, folder: Path, *, with_torch: bool = False) -> str:
    """Carry out a run in a folder, below a terminal; return what it printed, with colours."""
    write_files(folder, of_first=RUNS[name].of_first)
    words = RUNS[name].command.split()
    command = [sys.executable, "-m", "runner", *words] if with_torch else [sys.executable, str(Path(__file__).resolve()), "--replay", name]
    own, its = pty.openpty()
    with (
        open(own, "rb", buffering=0) as screen,
        open(folder / "stderr", "wb") as errors,
        subprocess.Popen(command, cwd=folder, stdout=its, stderr=errors, env={**os.environ, **TERMINAL}) as process,
    ):
        os.close(its)
        text = b"".join(iter(lambda: _read(screen.fileno()), b"")).decode()
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{' '.join(words)}: exit code {process.returncode}\n{text}\n{(folder / 'stderr').read_text()}")
    return text.replace("\r\n", "\n")


def _read(screen: int) -> bytes:
    try:
        return os.read(screen, 65536)
    except OSError:  # Linux: every writer has closed the terminal
        return b""


def replay(name: str) -> int:
    """Run with the recorded observations in place of workers."""
    recorded = json.loads(RECORDED.read_text("utf-8"))
    tests.fakes.FACTS = {key: value for key, value in recorded["facts"].items() if key != ANSWERS}
    words = RUNS[name].command.split()
    folder, waited, clock = Path(words[-1]), 0.0, time.monotonic
    time.monotonic = lambda: clock() + waited  # the run takes as long as its cases took

    def answer(job: Job) -> Execution:
        nonlocal waited
        assert job.plan is not None
        kept = recorded[name][str(job.plan["id"])]
        waited += kept["seconds"]
        place = folder / job.folder
        place.mkdir(parents=True, exist_ok=True)
        for file, text in kept["files"].items():
            (place / file).write_text(text, encoding="utf-8")
        files = tuple(file for file in kept["files"] if file.startswith("code-"))
        return Execution(
            job=job,
            observation=kept["observation"],
            ending=Ending(exit_code=0, phase="compare"),
            seconds=kept["seconds"],
            isolation="fork",
            files=files,
        )

    EXECUTORS[LOCAL] = tests.fakes.FakeExecutor(answer).started
    return int(runner_main(words))


def record() -> None:
    """Carry out the runs with torch, and keep what their workers observed."""
    kept: dict[str, Any] = {}
    for name in RUNS:
        with tempfile.TemporaryDirectory() as folder:
            start(name, Path(folder), with_torch=True)
            kept[name] = observed(Path(folder) / RUNS[name].command.split()[-1], folder)
            kept["facts"] = {"torch": "2.13.0+cpu", "gpus": 0}
    RECORDED.write_text(json.dumps(kept, sort_keys=True) + "\n", encoding="utf-8")


def observed(run: Path, scratch: str) -> Mapping[str, Any]:
    """Return what the workers of a run observed, without the name of the scratch folder."""
    return {
        str(result.case_id): {
            "seconds": round(result.seconds, 2),
            "observation": json.loads((run / result.folder / "observation.json").read_text("utf-8").replace(scratch + "/", "")),
            "files": {
                path.name: path.read_text("utf-8").replace(scratch + "/", "")
                for path in sorted((run / result.folder).glob("*.txt"))
                if path.stat().st_size
            },
        }
        for result in read_run(run / "run.jsonl").results
        if result.folder
    }


def first_failure(text: str) -> str:
    """Return the block of the first failure in what a terminal shows."""
    lines = text.split("\n")
    plain = [re.sub(r"\x1b\[[0-9;]*m", "", line) for line in lines]
    begin = next(index for index, line in enumerate(plain) if re.match(r"(FAIL|FELL_BACK)  '", line))
    end = next(index for index in range(begin + 1, len(plain)) if re.match(r"[A-Z_]+(  '|$)| +[0-9]+  [A-Z]", plain[index]))
    return "\n".join(lines[begin:end]).rstrip()


def terminal_picture(text: str) -> str:
    """Return the first failure that a terminal shows, as SVG."""
    from rich.console import Console
    from rich.text import Text

    block = first_failure(text)
    console = Console(record=True, width=WIDTH, file=StringIO(), force_terminal=True, color_system="standard", legacy_windows=False)
    console.print(Text.from_ansi(block), soft_wrap=False)
    return console.export_svg(title="torch-conformance", code_format=SVG, unique_id="terminal")


@contextmanager
def browser_page() -> Iterator[Any]:
    """Lend a page of a headless Chromium."""
    from playwright.sync_api import sync_playwright

    program = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield browser.new_page(color_scheme="light")
        browser.close()


def make(out: Path, scratch: Path) -> dict[str, str]:
    """Write the pictures; return the text that each shows."""
    out.mkdir(parents=True, exist_ok=True)
    shown: dict[str, str] = {}
    folders = {name: scratch / name for name in RUNS}
    for name, folder in folders.items():
        folder.mkdir(parents=True)
        text = start(name, folder)
        if RUNS[name].terminal:
            picture = terminal_picture(text)
            (out / RUNS[name].terminal).write_text(picture, encoding="utf-8")
            shown[RUNS[name].terminal] = " ".join(re.findall(r"<text[^>]*>([^<]*)</text>", picture)).replace("&#160;", " ")
    with browser_page() as page:
        for name, folder in folders.items():
            for picture, address, height in RUNS[name].views:
                index = folder / RUNS[name].command.split()[-1] / "index.html"
                page.set_viewport_size({"width": 1200, "height": height})
                page.goto("about:blank")
                page.goto(index.as_uri() + address)
                page.wait_for_function("() => typeof T === 'object' && T.renderedAt")
                page.wait_for_timeout(500)
                page.screenshot(path=str(out / picture))
                shown[picture] = page.inner_text("body")
    return shown


def main(arguments: Sequence[str]) -> int:
    """Make the pictures; with ``--record``, of new observations."""
    parser = argparse.ArgumentParser(description="Make the pictures of the tutorial.")
    parser.add_argument("--record", action="store_true", help="run with torch first, and keep what the workers observed")
    parser.add_argument("--replay", choices=RUNS, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.replay:
        return replay(options.replay)
    if options.record:
        record()
    with tempfile.TemporaryDirectory() as scratch:
        make(PICTURES, Path(scratch))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
