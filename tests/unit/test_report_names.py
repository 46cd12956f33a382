"""The reports that documents name are in the repository: ``reports/*`` is ignored, so that a new one is easily left out of a commit."""

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fences import ROOT

WRITTEN_BY_COMMANDS = {
    "latest": "points to the newest run",
    "20260301T120000Z-1a2b3c": "an example of a run's folder",
    "ci": "what the examples of a workflow write",
    "history.sqlite": "where runs are kept, once the user has made it",
    "operators-cpu": "what a command of the operator suite writes",
    "operators-cuda": "what a command of the operator suite writes",
}
"""Names below ``reports`` that documents use for what a reader's own run leaves."""

PLACEHOLDER = re.compile(r"\bNAME\b")


def tracked() -> frozenset[str]:
    """Return the files of the repository; a test that asks is skipped where there is none."""
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout: an sdist has no records")
    done = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60)
    return frozenset(done.stdout.split("\0")) - {""}


def missing(text: str, page: str, files: frozenset[str]) -> Iterator[str]:
    """Yield the names of reports in a page that no file of the repository has, or stands below."""
    for name in sorted(_names(text, page)):
        if not any(file == name or file.startswith(f"{name}/") for file in files):
            yield name


def _names(text: str, page: str) -> Iterator[str]:
    for found in re.findall(r"(?<![\w-])reports/([\w.-]+(?:/[\w.-]+)*)", text):
        if found.partition("/")[0] not in WRITTEN_BY_COMMANDS and not PLACEHOLDER.search(found):
            yield f"reports/{found.rstrip('.')}"
    if page.startswith("reports/") and page.endswith("README.md"):  # its tables and paragraphs begin with what they describe
        for found in re.findall(r"^(?:\| )?`([\w.-]+)/?` ", text, re.MULTILINE):
            if found not in WRITTEN_BY_COMMANDS:
                yield f"{Path(page).parent.as_posix()}/{found}"


def test_every_report_that_a_document_names_is_in_the_repository() -> None:
    files = tracked()
    records = frozenset(str(Path(name).with_suffix("")) for name in files if name.startswith("reports/"))  # named without their suffixes
    pages = sorted(name for name in files if name.endswith(".md"))
    assert {"README.md", "CHANGELOG.md", "reports/README.md", "tests/mutants/README.md", "docs/design/torch-mutants.md"} <= set(pages)
    found = {page: names for page in pages if (names := list(missing((ROOT / page).read_text("utf-8"), page, files | records)))}
    assert found == {}, "name what the repository has, or add the folder to .gitignore as an exception (!/reports/FOLDER/)"


def test_no_report_is_ignored_by_git_and_tracked_all_the_same() -> None:
    """A changed record of such a folder would be committed, and a new one would not."""
    tracked()
    command = ["git", "ls-files", "-z", "--cached", "--ignored", "--exclude-standard", "reports"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=60).stdout == ""


def test_every_name_of_a_readers_own_run_is_used() -> None:
    text = "".join((ROOT / name).read_text("utf-8") for name in tracked() if name.endswith(".md"))
    assert [name for name in WRITTEN_BY_COMMANDS if f"reports/{name}" not in text] == []


@pytest.mark.parametrize(
    ("text", "page", "expected"),
    [
        ("`reports/gone` has it", "CHANGELOG.md", ["reports/gone"]),
        ("[the table](../../reports/kept/gone.md).", "docs/design/x.md", ["reports/kept/gone.md"]),
        ("`reports/kept/` and reports/kept/a.md.", "README.md", []),
        ("cat reports/latest/junit.xml", "README.md", []),
        ("`reports/gone/NAME.md`", "README.md", []),
        ("`gone/` has records.\n\n`kept/` too.", "reports/README.md", ["reports/gone"]),
        ("| `gone` | nothing |", "reports/kept/README.md", ["reports/kept/gone"]),
    ],
)
def test_what_is_missing(text: str, page: str, expected: list[str]) -> None:
    assert list(missing(text, page, frozenset({"reports/kept/a.md"}))) == expected
