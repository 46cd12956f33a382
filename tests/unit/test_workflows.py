"""The pipelines of the documents: valid for their CI systems, and their commands make the files that they publish."""

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from runner.cli.parser import main
from runner.core.case import Case
from runner.core.exit_codes import ExitCode
from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.run import execution
from tests.fences import CI, ROOT, Fence, every_fence
from tests.readers import XSD, jenkins_junit
from tests.unit.test_ci_formats import is_green
from tests.unit.test_events import Runner
from tests.unit.test_export import done
from tests.unit.test_junit import etree
from tests.workflows import jobs_of

PIPELINES = [fence for fence in every_fence() if fence.mark in CI]
SPEC = next(fence for fence in every_fence() if fence.page == "docs/guides/ci.md" and fence.mark == "spec")
SCHEMAS = {"workflow": "vendor.github-workflows", "gitlab": "vendor.gitlab-ci"}


def named(mark: str) -> Fence:
    (found,) = [fence for fence in PIPELINES if fence.mark == mark]
    return found


def test_there_is_one_of_each() -> None:
    assert sorted(fence.mark for fence in PIPELINES) == sorted(CI)


@pytest.mark.parametrize("mark", SCHEMAS)
def test_a_pipeline_fits_the_schema_of_its_system(tmp_path: Path, mark: str) -> None:
    """The schemas are those that check-jsonschema brings: no network."""
    files = [tmp_path / "pipeline.yml"]
    files[0].write_text(named(mark).text)
    if mark == "workflow":
        files += (ROOT / ".github" / "workflows").glob("*.yml")
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SCHEMAS[mark]]
    assert checked([*command, *map(str, files)]).returncode == 0
    files[0].write_text(
        named(mark).text.replace("  script:\n" if mark == "gitlab" else "    runs-on:", "    wrong: [{}]\n    wrong_too:", 1)
    )
    assert checked([*command, str(files[0])]).returncode == 1


def checked(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def play(runner: Runner, case: Case) -> Iterator[CaseResult]:
    yield replace(done(runner, case, Outcome.FAIL if "dynamic=false" in case.id else Outcome.PASS))


@pytest.mark.parametrize("fence", PIPELINES, ids=lambda fence: fence.mark)
def test_the_commands_of_a_pipeline_make_what_it_publishes(fence: Fence, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In this process, with results instead of torch: both shards, then the merge of a red run."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(execution, "CaseRunner", Runner)
    monkeypatch.setattr(Runner, "play", staticmethod(play), raising=False)
    Path("specs").mkdir()
    Path(SPEC.name).write_text(SPEC.text)
    shards, report = jobs_of(fence)
    codes = [run(line) for variables in shards.copies for line in program_lines(shards.lines, variables)]
    assert sorted(codes) == [ExitCode.OK, ExitCode.FAILED], "each shard has one of the two cases"
    if fence.mark == "workflow":  # what the action that downloads artifacts does
        for number in ("1", "2"):
            shutil.move(f"shard.{number}", f"shards/shard-{number}")
    shutil.rmtree("specs")  # the observations are no real ones: nothing is judged again
    assert [run(line) for line in program_lines(report.lines, {})] == [ExitCode.FAILED]
    assert {one.status for one in jenkins_junit(Path("junit.xml").read_bytes())} == {"passed", "failed"}
    assert Path("reports/latest/run.jsonl").is_file()
    assert XSD.validate(etree.parse("junit.xml")) == (fence.mark == "jenkins")
    for name, file in {"sarif": "results.sarif", "badge": "badge.json", "code_quality": "gl-code-quality-report.json"}.items():
        assert Path(file).is_file() == (file in fence.text)
        if Path(file).is_file():
            assert not is_green(name, json.loads(Path(file).read_text()))


def program_lines(lines: list[str], variables: dict[str, str]) -> list[list[str]]:
    """Return the commands of this program, with the variables of a copy of the job."""
    found = []
    for line in lines:
        filled = re.sub(r"\$(\w+)", lambda name: variables[name[1]], line)
        words = shlex.split(filled)
        if words[0].endswith("/torch-conformance"):
            found.append([word if word != "shard" else f"shard.{variables['SHARD'][0]}" for word in words[1:]])
    return found


def run(words: list[str]) -> int:
    return main(words)


def test_artifacts_are_what_the_commands_write() -> None:
    """A name that no command writes would be published as nothing."""
    github = yaml.safe_load(named("workflow").text)["jobs"]["report"]["steps"]
    published = next(step["with"]["path"] for step in github if step.get("with", {}).get("name") == "report").split("\n")
    (command,) = [step["run"] for step in github if "merge" in step.get("run", "")]
    assert set(published) == {"junit.xml", "badge.json", "reports/latest/run.jsonl"}
    assert all(name in command for name in ("junit.xml", "badge.json", "results.sarif", "--out reports/latest"))


# -- the real programs --------------------------------------------------------------------------------------------------


def npm(folder: Path, *packages: str) -> Path:
    """Install programs of npm into a folder; skip where there is no npm, or no registry."""
    if shutil.which("npm") is None:
        pytest.skip("no npm")
    command = ["npm", "install", "--no-audit", "--no-fund", "--prefix", str(folder), *packages]
    installed = subprocess.run(command, capture_output=True, text=True, check=False, timeout=600)
    if installed.returncode:
        pytest.skip(f"npm installs nothing here: {installed.stderr[-300:]}")
    return folder / "node_modules" / ".bin"


@pytest.mark.nightly(reason="installs a program of npm and runs torch; the test above runs the same commands without torch")
@pytest.mark.torch
@pytest.mark.timeout(1200)
def test_gitlab_ci_local_runs_the_pipeline(tmp_path: Path) -> None:
    """The jobs as GitLab would run them, on this machine; the lines that install become a link to this program."""
    program = npm(tmp_path / "npm", "gitlab-ci-local") / "gitlab-ci-local"
    place = Path(tempfile.mkdtemp(dir=tmp_path))
    text = named("gitlab").text
    install = [line for line in text.splitlines() if ".venv/bin/pip" in line or "-m venv" in line]
    wrapper = f'exec env PYTHONPATH="{ROOT}" "{sys.executable}" -m runner "$@"'
    (place / "program").write_text(f"#!/bin/sh\n{wrapper}\n")
    text = text.replace(install[0], "    - mkdir -p .venv/bin").replace(
        install[1], "    - install -m 755 program .venv/bin/torch-conformance"
    )
    (place / ".gitlab-ci.yml").write_text(text.replace("  image: python:3.12\n", ""))
    (place / "specs").mkdir()
    (place / SPEC.name).write_text(SPEC.text)
    for command in (
        ["git", "init", "-q"],
        ["git", "add", "-A"],
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "-qm", "all"],
    ):
        subprocess.run(command, cwd=place, check=True, timeout=60)
    environment = {**os.environ, "HOME": str(tmp_path)}
    command = [str(program), "--force-shell-executor", "--cwd", str(place)]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=1000)
    assert ran.returncode == 0, ran.stdout[-3000:] + ran.stderr[-3000:]
    (junit,) = place.rglob("junit.xml") if not (place / "junit.xml").exists() else [place / "junit.xml"]
    assert {one.status for one in jenkins_junit(junit.read_bytes())} == {"passed"}
