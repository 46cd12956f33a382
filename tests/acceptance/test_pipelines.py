"""The pipelines of the guide, executed whole on real torch: shards with one red case, the merge, and what is published.

GitLab's jobs run in gitlab-ci-local. ``tests/github_runner.py`` stands in place of GitHub's runner, and
``tests/data/jenkins/pipeline.groovy``, executed by Groovy, in place of Jenkins: neither is in a registry. The lines that install become
a link to this program.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.acceptance.test_ci_programs import npm, said
from tests.fakes import prestarted
from tests.fences import ROOT, Fence, every_fence
from tests.github_runner import GitHub
from tests.readers import FAILED, PASSED, SKIPPED, XSD, github_commands, jenkins_junit
from tests.unit.test_junit import etree

pytestmark = [
    pytest.mark.nightly(reason="whole pipelines on real torch; tests/unit/test_workflows.py runs their commands without"),
    pytest.mark.torch,
    pytest.mark.timeout(1200),
]

RED = """\
summary: One function is captured as two graphs
backends: [cpu]
function: |
  def fn(x):
      return x + 1
inputs: [{randn: [8]}]
expect: [{counter: {stats.unique_graphs: 2}}]
"""

ANNOTATED = "specs/red.yaml"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return a project with the spec of the guide, a red one, and this program as ``program``."""
    place = tmp_path / "project"
    (place / "specs").mkdir(parents=True)
    (spec,) = [fence for fence in every_fence() if (fence.page, fence.mark) == (pipeline("gitlab").page, "spec")]
    (place / spec.name).write_text(spec.text)
    (place / "specs" / "red.yaml").write_text(RED)
    (place / "program").write_text(f'#!/bin/sh\nexec env PYTHONPATH="{ROOT}" "{sys.executable}" -m runner "$@"\n')
    (place / "program").chmod(0o755)
    return place


def pipeline(mark: str) -> Fence:
    (fence,) = [fence for fence in every_fence() if fence.mark == mark]
    return fence


def reads_as_red(place: Path) -> None:
    """The reports of the whole: two passes, one failure, and the cases of the GPUs that this machine lacks; the HTML report is whole."""
    statuses = [one.status for one in jenkins_junit((place / "junit.xml").read_bytes())]
    assert (statuses.count(PASSED), statuses.count(FAILED)) == (2, 1), statuses
    assert set(statuses) <= {PASSED, FAILED, SKIPPED}
    assert (place / "reports/latest/run.jsonl").is_file()
    assert {path.name for path in (place / "reports/latest/report").iterdir()} >= {"index.js", "app.js", "app.css", "cases-0.js"}
    assert (place / "reports/latest/index.html").is_file()


def test_github(project: Path, tmp_path: Path) -> None:
    linked = {"-m venv": "mkdir -p .venv/bin", "bin/pip": "cp program .venv/bin/torch-conformance"}
    github = GitHub(project, tmp_path / "github", prestarted(), linked)
    assert github.workflow(pipeline("workflow").text) == {"run": False, "report": False}
    artifact = github.artifacts["report"]
    reads_as_red(artifact)
    annotations = [one for one in github_commands(github.logs["report"]) if one.name == "error"]
    assert [one.properties["file"] for one in annotations] == [ANNOTATED]
    assert "red" in github.summaries["report"]
    assert not any(github.summaries[name] or [*github_commands(github.logs[name])] for name in ("run", "run1")), (
        "the shards say --github off"
    )
    assert not github.warnings
    (project / ANNOTATED).unlink()
    again = GitHub(project, tmp_path / "github-2", prestarted(), linked, run_id="2", caches=github.caches)
    assert again.workflow(pipeline("workflow").text) == {"run": True, "report": True}


def test_gitlab(project: Path, tmp_path: Path) -> None:
    if shutil.which("rsync") is None:
        pytest.skip("gitlab-ci-local copies files with rsync, and there is none")
    program = npm(tmp_path / "npm", "gitlab-ci-local@4.64", "gitlab-ci-local")  # newer ones need Node 22
    linked = iter(("mkdir -p .venv/bin", "install -m 755 program .venv/bin/torch-conformance"))
    text = pipeline("gitlab").text.splitlines()
    lines = [f"    - {next(linked)}" if "-m venv" in line or "bin/pip" in line else line for line in text]
    (project / ".gitlab-ci.yml").write_text("\n".join(line for line in lines if "image:" not in line) + "\n")
    author = ["-c", "user.name=someone", "-c", "user.email=someone@example.org"]
    for words in (
        ["init", "-q"],
        ["add", "-A"],
        [*author, "commit", "-qm", "all"],
        ["remote", "add", "origin", "https://example.org/a/b.git"],
    ):
        said(["git", *words], cwd=project)
    environment = {**prestarted(), "HOME": str(tmp_path)}
    done = subprocess.run(
        [str(program), "--force-shell-executor"], cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=1000
    )
    assert done.returncode == 1, done.stdout[-3000:] + done.stderr[-3000:]
    reads_as_red(project)
    (published,) = project.glob(".gitlab-ci-local/artifacts/report*/reports/latest/run.jsonl")
    assert published.is_file()


def test_jenkins(project: Path, tmp_path: Path) -> None:
    if shutil.which("java") is None:
        pytest.skip("Groovy needs Java, and there is none")
    npm(tmp_path / "npm", "npm-groovy-lint@18", "npm-groovy-lint")
    jars = [str(path) for path in (tmp_path / "npm").rglob("groovy/lib/*.jar")]
    (project / "Jenkinsfile").write_text(pipeline("jenkins").text)
    home = tmp_path / "jenkins"
    command = ["java", "-cp", os.pathsep.join(jars), "groovy.ui.GroovyMain", str(ROOT / "tests/data/jenkins/pipeline.groovy")]
    done = subprocess.run(
        [*command, str(project / "Jenkinsfile"), str(home), str(project / "program")],
        env=prestarted(),
        capture_output=True,
        text=True,
        check=False,
        timeout=1000,
    )
    assert done.stdout.rstrip().endswith("Finished: FAILURE"), done.stdout[-3000:] + done.stderr[-3000:]
    reads_as_red(home / "published")
    assert XSD.validate(etree.parse(home / "published" / "junit.xml"))
