"""The code fences of README.md and docs/: each has a mark, an HTML comment on the line above it,
that says what it is.

``<!-- spec: NAME.yaml -->``       a whole spec, a file of its page ``<!-- red-spec: NAME.yaml -->``
the same, whose case fails: the tutorial shows the failure ``<!-- defaults: NAME.yaml -->``   a
``_defaults.yaml``, a file of its page ``<!-- backends: NAME.yaml -->``   a file for ``--backends``
``<!-- waivers: NAME.yaml -->``    a file for ``--waivers`` ``<!-- profile: NAME.yaml -->``    a
file for ``--profile`` ``<!-- lab: NAME.yaml -->``        a file for ``--lab``
``<!-- rows: NAME -->``            rows that a spec of the page names
``<!-- settings: NAME.yaml -->``   the settings of a folder ``<!-- module:
PACKAGE/NAME -->``   a file of a vendor's package, whose device ``tests/vendor_device.py`` builds
``<!-- examples: FILE/NAME -->``   entries of a definition in ``schemas/FILE.schema.json`` ``<!--
workflow: NAME.yml -->``    a GitHub workflow, whose ``run:`` lines are commands ``<!-- gitlab:
NAME.yml -->``       a pipeline of GitLab, whose ``script`` lines are commands ``<!-- jenkins: NAME
-->``          a pipeline of Jenkins, whose ``sh`` steps are commands ``<!-- commands -->``
lines of a shell, which find the files of their page ``<!-- program: NAME.py -->``      Python that
fails as long as torch has the defect of that name ``<!-- journal -->``               lines of
``run.jsonl`` ``<!-- lint -->``                  what a rule of ``lint`` finds, and what it does not
``<!-- editor -->``                settings of an editor, which start the YAML language server
``<!-- shipped: AREA/NAME -->``    a shipped spec, written by ``tools.generate_docs``
``<!-- sketch: TEST -->``          the shape of an upstream test; it is not run

The files of one page are written to one folder, in which its commands run. The pages of the
tutorial share one: each continues the one before.
"""

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

from tests.fakes import ROOT

CI = ("workflow", "gitlab", "jenkins")
"""Marks of fences that are files of a CI system."""

FILES = (
    "spec",
    "red-spec",
    "defaults",
    "backends",
    "claims",
    "expected",
    "waivers",
    "profile",
    "lab",
    "rows",
    "settings",
    "module",
)
"""Marks of fences that are files of their page."""

TUTORIAL = "docs/tutorial/"
"""The pages that share one folder."""

_FENCE = re.compile(r"^ *```([a-z]*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_MARK = re.compile(r"<!-- ([a-z-]+)(?:: (\S+))? -->\Z")


@dataclass(frozen=True, slots=True)
class Fence:
    """One code fence: its page, its line, its language, its mark, and its text."""

    page: str
    line: int
    language: str
    mark: str
    name: str
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def pages() -> list[Path]:
    """Return README.md and the pages of the site that git has: of a generated page the source,
    where git has not the page.
    """
    docs = sorted((ROOT / "docs").rglob("*.md"))
    sources = {
        path.with_name(path.name.replace(".in.md", ".md")): path
        for path in docs
        if path.name.endswith(".in.md")
    }
    whole = {path for path in docs if path not in sources.values() and not is_generated(path)}
    return [
        ROOT / "README.md",
        *sorted(whole | {source for page, source in sources.items() if page not in whole}),
    ]


def is_generated(path: Path) -> bool:
    """Return whether ``tools.generate_docs`` makes a page when the site is built: .gitignore lists
    these pages and folders.
    """
    ignored = [
        line
        for line in (ROOT / ".gitignore").read_text("utf-8").splitlines()
        if line.startswith("/docs/")
    ]
    return f"/{_name(path)}".startswith(tuple(ignored))


def fences(page: Path) -> list[Fence]:
    """Return the fences of a page, in order."""
    text = page.read_text(encoding="utf-8")
    found = []
    for match in _FENCE.finditer(text):
        before = text[: match.start()].rstrip("\n").rpartition("\n")[2].strip()
        mark = (
            _MARK.fullmatch(before)
            if text[: match.start()].endswith("\n") and not text[: match.start()].endswith("\n\n")
            else None
        )
        kind, name = (mark[1], mark[2] or "") if mark else ("", "")
        found.append(
            Fence(
                _name(page), text.count("\n", 0, match.start()) + 1, match[1], kind, name, match[2]
            )
        )
    return found


def every_fence() -> list[Fence]:
    """Return the fences of every page."""
    return [fence for page in pages() for fence in fences(page)]


def home(site: Path, page: str) -> Path:
    """Return the folder of a page's files."""
    if page.startswith(TUTORIAL):
        return site / TUTORIAL
    return site / page.removesuffix(".md").lower()


def write_site(site: Path) -> Path:
    """Write the files of every page, each page in a folder of its own."""
    for page in pages():
        own = home(site, _name(page))
        own.mkdir(parents=True, exist_ok=True)
        for fence in fences(page):
            if fence.mark in FILES:
                write(fence, own)
    return site


def write(fence: Fence, folder: Path) -> None:
    """Write a file of a page."""
    path = folder / fence.name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(fence.text, encoding="utf-8")


def run_in(place: Path, *arguments: str, timeout: int = 240) -> subprocess.CompletedProcess[str]:
    """Run the program in a folder."""
    return subprocess.run(
        [sys.executable, "-m", "torch_conformance", *arguments],
        cwd=place,
        env={**os.environ, "PYTHONPATH": str(ROOT / "runner")},
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout,
    )


def _name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()
