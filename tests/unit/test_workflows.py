"""The pipelines of the documents: valid for their CI systems, and their commands make the files that they publish."""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
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
from tests.unit.test_events import Runner, evident
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
    key = "  script:\n" if mark == "gitlab" else "    runs-on:"
    files[0].write_text(named(mark).text.replace(key, "    wrong: [{}]\n    wrong_too:", 1))
    assert checked([*command, str(files[0])]).returncode == 1


def checked(command: list[str]) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=240)


def play(runner: Runner, case: Case) -> Iterator[CaseResult]:
    yield evident(runner, case, Outcome.FAIL if "dynamic=false" in case.id else Outcome.PASS)


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
    assert Path("reports/latest/report/index.js").is_file()
    assert {one.status for one in jenkins_junit(Path("junit.xml").read_bytes())} == {"passed", "failed"}
    assert Path("reports/latest/run.jsonl").is_file()
    assert XSD.validate(etree.parse("junit.xml")) == (fence.mark == "jenkins")


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
    assert set(published) == {"junit.xml", *(f"reports/latest/{name}" for name in ("run.jsonl", "index.html", "report"))}
    assert all(name in command for name in ("junit.xml", "--out reports/latest"))
