"""The workflows of the guide, in a repository that has specs and no program."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from check_jsonschema import main as check_jsonschema

from tests.fakes import ROOT, prestarted
from tests.fences import FILES, fences, write

PAGE = fences(ROOT / "docs" / "guides" / "ci.md")
SCHEMAS = {"workflow": "vendor.github-workflows", "gitlab": "vendor.gitlab-ci"}


@pytest.mark.parametrize("mark", SCHEMAS)
def test_a_workflow_fits_the_schema_of_its_system(mark: str, tmp_path: Path) -> None:
    (fence,) = (fence for fence in PAGE if fence.mark == mark)
    (tmp_path / "workflow.yml").write_text(fence.text, "utf-8")
    with pytest.raises(SystemExit) as ended:
        check_jsonschema(["--builtin-schema", SCHEMAS[mark], str(tmp_path / "workflow.yml")])
    assert ended.value.code == 0


@pytest.mark.nightly(
    reason="three runs, which compile; test_merged_runs merges shards, and test_doc_commands "
    "parses the lines of the workflow"
)
def test_two_shards_and_their_report(tmp_path: Path) -> None:
    """The ``run:`` lines of both jobs, without the one that installs: a red case is red in one
    shard and in the whole, and the reports are there. Rows of other projects run beside it.
    """
    for fence in PAGE:
        if fence.mark in FILES:
            write(fence, tmp_path)
    for fence in fences(ROOT / "docs" / "guides" / "data-of-others.md"):
        if fence.name.startswith(("gemm", "conv")):
            write(fence, tmp_path / "specs")
    green = (tmp_path / "specs" / "relu.yaml").read_text("utf-8")
    red = green.replace("matrix: {dynamic: [true, false]}\n", "").replace(
        '"{{ dynamic }}"', "false"
    )
    red = red.replace(
        "[{close: {to: eager}}]", "[{close: {to: eager}}, {graph_breaks: {count: 1}}]"
    )
    (tmp_path / "specs" / "broken.yaml").write_text(red, "utf-8")
    program = tmp_path / ".venv" / "bin" / "torch-conformance"
    program.parent.mkdir(parents=True)
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m torch_conformance "$@"\n', "utf-8")
    program.chmod(0o755)
    (workflow,) = (yaml.safe_load(fence.text) for fence in PAGE if fence.mark == "workflow")
    jobs = workflow["jobs"]
    environment = prestarted()

    def ended(job: str, **variables: str) -> int:
        lines = [step["run"] for step in jobs[job]["steps"] if "run" in step]
        (line,) = (line for line in lines if "pip install" not in line)
        command = ["bash", "-eo", "pipefail", "-c", line]
        variables = {**environment, **variables}
        return subprocess.run(command, cwd=tmp_path, env=variables, check=False).returncode

    codes = []
    for shard in jobs["run"]["strategy"]["matrix"]["shard"]:
        template = jobs["run"]["env"]["SHARD"]
        codes.append(ended("run", SHARD=template.replace("${{ matrix.shard }}", str(shard))))
        shutil.move(tmp_path / "shard", tmp_path / "shards" / f"shard-{shard}")
    assert sorted(codes) == [0, 1]
    assert ended("report") == 1
    upload = jobs["report"]["steps"][-1]["with"]["path"]
    assert all((tmp_path / path).exists() for path in upload.splitlines())
    report = (tmp_path / "junit.xml").read_text("utf-8")
    assert (report.count("<testcase"), report.count("<failure")) == (7, 1)
