"""The reports and the pipeline in the programs that read them, as npm has them.

Nightly: they need a registry, and the readers of the default tests are written from what these programs do.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from runner.core.outcomes import JUnitTag, Outcome
from runner.report.formats import FORMATS, text_of
from tests.fences import ROOT, every_fence
from tests.readers import jenkins_junit
from tests.unit.test_ci_formats import NOT_GREEN, hostile_case, run
from tests.unit.test_junit import result
from tests.unit.test_junit_readers import FLAVOURS, every_outcome, report

pytestmark = pytest.mark.nightly(reason="installs programs of npm; tests/unit has readers and schemas of the same formats")


def npm(folder: Path, package: str, program: str) -> Path:
    """Install a program of npm into a folder; skip where there is no npm, or no registry."""
    if shutil.which("npm") is None:
        pytest.skip("there is no npm")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), package]
    installed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if installed.returncode:
        pytest.skip(f"npm cannot install {package} here: {installed.stderr[-300:]}")
    return folder / "node_modules" / ".bin" / program


def said(command: list[str], **more: Any) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=1000, **more)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    return str(done.stdout) + str(done.stderr)


@pytest.mark.parametrize("flavour", FLAVOURS)
def test_xunit_viewer_counts_what_the_report_has(tmp_path: Path, flavour: str) -> None:
    program = npm(tmp_path / "npm", "xunit-viewer", "xunit-viewer")
    report(tmp_path, *every_outcome(), flavour=flavour)
    text = said([str(program), "-r", str(tmp_path / "junit.xml"), "-o", str(tmp_path / "page.html"), "-c"])
    assert all(result(number).case_id in text for number, _ in enumerate(Outcome)), text
    assert "it did not hold" in text
    tags = [outcome.junit for outcome in Outcome]
    counts = {"failure": JUnitTag.FAILURE, "error": JUnitTag.ERROR, "passed": JUnitTag.NONE, "skipped": JUnitTag.SKIPPED}
    assert ", ".join(f"{tags.count(tag)} {word}" for word, tag in counts.items()) in text
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_sarif_multitool_finds_no_error(tmp_path: Path) -> None:
    program = npm(tmp_path / "npm", "@microsoft/sarif-multitool", "sarif-multitool")
    for binary in (tmp_path / "npm").rglob("Sarif.Multitool"):
        binary.chmod(0o755)  # its installer does so, where npm lets it run
    reports = [run(*(result(number, outcome) for number, outcome in enumerate(Outcome))), *NOT_GREEN.values()]
    reports.append(run(hostile_case("<b>&\n::error::x %0A\x1b[0m")))
    for number, one in enumerate(reports):
        (tmp_path / f"{number}.sarif").write_bytes(text_of(FORMATS["sarif"], one))
    text = said([str(program), "validate", *(str(path) for path in sorted(tmp_path.glob("*.sarif")))])
    assert f"{len(reports)} files scanned" in text
    assert ": error " not in text


@pytest.mark.torch
@pytest.mark.timeout(1200)
def test_gitlab_ci_local_runs_the_pipeline_of_the_guide(tmp_path: Path) -> None:
    """Its jobs on real torch, in a shell of this machine; the two lines that install become a link to this program."""
    if shutil.which("rsync") is None:
        pytest.skip("gitlab-ci-local copies files with rsync, and there is none")
    program = npm(tmp_path / "npm", "gitlab-ci-local@4.64", "gitlab-ci-local")  # newer ones need Node 22
    (pipeline,) = [fence for fence in every_fence() if fence.mark == "gitlab"]
    (spec,) = [fence for fence in every_fence() if (fence.page, fence.mark) == (pipeline.page, "spec")]
    place = tmp_path / "project"
    (place / "specs").mkdir(parents=True)
    (place / spec.name).write_text(spec.text)
    (place / "program").write_text(f'#!/bin/sh\nexec env PYTHONPATH="{ROOT}" "{sys.executable}" -m runner "$@"\n')
    linked = iter(("mkdir -p .venv/bin", "install -m 755 program .venv/bin/torch-conformance"))
    lines = [f"    - {next(linked)}" if "-m venv" in line or "bin/pip" in line else line for line in pipeline.text.splitlines()]
    (place / ".gitlab-ci.yml").write_text("\n".join(line for line in lines if "image:" not in line) + "\n")
    author = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        [*author, "commit", "-qm", "all"],
        ["remote", "add", "origin", "https://example.org/a/b.git"],
    ):
        said(["git", *words], cwd=place)
    said([str(program), "--force-shell-executor"], cwd=place, env={**os.environ, "HOME": str(tmp_path)})
    (junit,) = {path.resolve() for path in place.rglob("junit.xml") if "reports" not in path.parts and "shard" not in str(path)}
    assert [one.status for one in jenkins_junit(junit.read_bytes())] == ["passed", "passed"]
