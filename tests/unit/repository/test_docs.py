"""What the documents say is true: every fence has a test, every spec is valid, every command
exists, generated pages are fresh.
"""

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
import yaml
from jsonschema import Draft202012Validator

from tests.fences import FILES, ROOT, Fence, every_fence, home, is_generated, pages, run_in, write
from tests.json_schemas import validator
from torch_conformance.cli.parser import main
from torch_conformance.machine import schemas
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.tools.fleet.lab import read_lab

FENCES = every_fence()
TESTED = {
    "yaml": (*FILES, "examples", "lint", "workflow", "gitlab", "shipped"),
    "groovy": ("jenkins",),
    "sh": ("commands", "command-run", "command-test"),
    "json": ("journal",),
    "python": ("", "program", "module", "sketch"),
    "cpp": ("module",),
    "lua": ("editor",),
    "csv": ("rows",),
    "text": ("", "rows"),
    "": ("failure",),
}
"""The marks that tests claim, by the language of their fences; each mark has a test here or in the
module of its name.
"""


def fences(*marks: str) -> list[Fence]:
    found = [fence for fence in FENCES if fence.mark in marks]
    assert found, f"no fence is marked {marks}"
    return found


def block(mark: str) -> str:
    (found,) = {fence.text for fence in fences(mark)}
    return found


# fences


@pytest.mark.parametrize("fence", FENCES, ids=str)
def test_every_fence_is_tested(fence: Fence) -> None:
    assert fence.language in TESTED, f"{fence}: no test knows the language '{fence.language}'"
    assert fence.mark in TESTED[fence.language], (
        f"{fence}: mark the fence with one of {TESTED[fence.language]} (tests/fences.py)"
    )


# files of a page


PAGES = sorted({fence.page for fence in FENCES if fence.mark in (*FILES, "commands")})


def named(page: str, mark: str) -> list[Path]:
    """Return the files of a page with this mark; one that it shows twice is written once, as it is
    last.
    """
    return list(
        dict.fromkeys(
            Path(fence.name) for fence in FENCES if (fence.page, fence.mark) == (page, mark)
        )
    )


@pytest.mark.parametrize("page", PAGES)
def test_files_of_a_page_are_valid(
    page: str, site: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(home(site, page))
    specs = named(page, "spec")
    files = [str(path) for path in (*specs, *(path.parent for path in named(page, "defaults")))]
    options = [
        part
        for mark in ("backends", "waivers")
        for path in named(page, mark)
        for part in (f"--{mark}", str(path))
    ]
    if files or options:
        code = main(["validate", *files, *options])
        said = capsys.readouterr()
        assert (code, said.err) == (ExitCode.OK, ""), said.out
        assert "no problem" in said.out


@pytest.mark.parametrize("fence", fences("lab"), ids=str)
def test_labs_are_read(fence: Fence, tmp_path: Path) -> None:
    path = tmp_path / fence.name
    path.write_text(fence.text, encoding="utf-8")
    assert read_lab(path).nodes


@pytest.mark.parametrize("fence", fences("examples"), ids=str)
def test_examples_fit_their_schema(fence: Fence) -> None:
    file, _, name = fence.name.partition("/")
    definition = schemas.resolved(file, f"/$defs/{name}")
    entries = yaml.safe_load(fence.text)
    for entry in entries:
        value = entry[name] if file != "inputs" else entry
        assert list(Draft202012Validator(definition).iter_errors(value)) == [], f"{fence}: {entry}"


def test_ten_upstream_tests_are_beside_the_specs_that_name_them() -> None:
    sketches, specs = fences("sketch"), fences("shipped")
    assert len(sketches) == len({spec.name for spec in specs}) == 10
    for sketch, spec in zip(sketches, specs, strict=True):
        assert sketch.line < spec.line, f"{sketch}: its spec comes next"
        text = (ROOT / "specs" / f"{spec.name}.yaml").read_text("utf-8")
        assert spec.text.strip()
        assert text.rstrip("\n").endswith(spec.text.rstrip("\n"))
        assert sketch.name.partition("/")[2] in text or sketch.name in text, sketch


# the README


@pytest.mark.parametrize("mark", ["command-run", "command-test"])
def test_the_commands_of_the_readme_are_what_ci_runs(mark: str) -> None:
    command = block(mark).strip()
    assert "\n" not in command
    assert command.startswith("python3 -m venv .venv && ")
    runs = {"command-run": "tests/acceptance/test_suite.py", "command-test": ".ci/run"}
    assert mark in (ROOT / runs[mark]).read_text(encoding="utf-8")


@pytest.mark.nightly(
    reason="compiles for one picture of a failure; test_run tests the lines of a failure"
)
@pytest.mark.torch
def test_the_failure_shown_is_real(site: Path, tmp_path: Path) -> None:
    right = (home(site, "README.md") / "first" / "relu.yaml").read_text("utf-8")
    wrong = right.replace("stats.unique_graphs: 1", "stats.unique_graphs: 2")
    assert wrong != right
    place = tmp_path / "first"
    place.mkdir()
    (place / "relu.yaml").write_text(wrong, encoding="utf-8")
    done = run_in(tmp_path, "run", "first", "--backend", "cpu", "--select", "*dynamic=true?")
    assert done.returncode == ExitCode.FAILED, done.stderr
    assert block("failure") in re.sub(
        r"reports/[0-9TZ]+-[0-9a-f]+/", "reports/20260301T120000Z-1a2b3c/", done.stdout
    )


@pytest.mark.nightly(
    reason="runs and audits every spec of the documents; the tests above validate them all"
)
@pytest.mark.torch
@pytest.mark.timeout(1200)
def test_every_spec_of_the_documents_passes_and_can_fail(tmp_path: Path) -> None:
    """Run all of them but those for a vendor's backend: each passes, each control fails, each
    written reason is needed.
    """
    vendors = {fence.page for fence in fences("backends")}
    seen: set[tuple[str, str]] = set()
    for fence in fences("spec", "defaults", "rows"):
        if fence.page not in vendors and (fence.name, fence.text) not in seen:
            seen.add((fence.name, fence.text))
            write(fence, home(tmp_path / "specs", fence.page))
    done = run_in(
        tmp_path,
        "run",
        "specs",
        "--backend",
        "cpu",
        "--backend",
        "host",
        "--backend",
        "eager",
        "--out",
        "all",
        timeout=800,
    )
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert {
        line.split()[1] for line in done.stdout.splitlines() if re.match(r" +[0-9]+  [A-Z]", line)
    } == {"PASS"}, done.stdout
    audited = run_in(tmp_path, "audit", "all", "--run", timeout=400)
    assert audited.returncode == ExitCode.OK, audited.stdout + audited.stderr
    assert "0 survived" in audited.stdout
    assert "stale reasons" not in audited.stdout


@pytest.mark.parametrize(
    "page",
    [
        *pages(),
        *(
            ROOT / name
            for name in ("ARCHITECTURE.md", "CONTRIBUTING.md", "SECURITY.md", "tools/README.md")
        ),
    ],
    ids=lambda page: page.relative_to(ROOT).as_posix(),
)
def test_links_lead_to_files(page: Path) -> None:
    """Check files alone: ``mkdocs build --strict`` checks anchors, within the site."""
    text = re.sub(r"```.*?```|`[^`\n]*`", "", page.read_text("utf-8"), flags=re.DOTALL)
    for target in re.findall(r"\]\(([^)#\s]+)", text):
        ours = "https://github.com/torch-conformance/torch-conformance/blob/main/"
        if target.startswith(ours):
            assert (ROOT / target.removeprefix(ours)).is_file(), target
        elif not target.startswith("https://"):
            file = Path(os.path.normpath(page.parent / target))
            assert file.exists(), target
            assert not is_generated(file), f"{target} is not in a clone"


@pytest.mark.parametrize("fence", fences("journal"), ids=str)
def test_lines_of_a_journal_fit_its_schema(fence: Fence) -> None:
    journal = validator("journal")
    for line in fence.text.splitlines():
        assert list(journal.iter_errors(json.loads(line))) == []


def test_python_of_the_documents_compiles() -> None:
    for fence in FENCES:
        if fence.language == "python":
            compile(fence.text, str(fence), "exec")


# what no document holds


def test_no_document_holds_a_machine_path() -> None:
    files = subprocess.run(
        ["git", "ls-files", "-z"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    ).stdout.split("\0")
    assert any(files) or not (ROOT / ".git").exists()
    paths = re.compile(r"(?<![\w.])/(?:work|root|home/\w+)/[\w.-]+")
    for name in filter(None, files):
        path = ROOT / name
        if path.is_file() and path.suffix in (
            ".py",
            ".md",
            ".yaml",
            ".json",
            ".toml",
            ".txt",
            ".jsonl",
            ".xml",
        ):
            found = paths.search(path.read_text(encoding="utf-8", errors="replace"))
            assert found is None, f"{name}: {found[0]}"
