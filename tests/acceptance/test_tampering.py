"""Runs whose cases or neighbours write to the run's folder, and secrets that workers print: what
real processes do.
"""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest
from junitparser import JUnitXml

from tests.fakes import ROOT, prestarted, write_specs
from tests.prestart import UNREAD
from tests.ran import called
from torch_conformance.model.outcomes import Outcome
from torch_conformance.record.journal import read_run

pytestmark = pytest.mark.torch

HONEST = """\
summary: A case that does nothing else
backends: [host]
prelude: |
  def act():
      return 1
steps: [{api: {call: act, as: found}, expect: [{equals: {found: 1}}]}]
"""
HARM = {
    "append": "journal.open('a').write(line.replace('honest', 'forged') + chr(10))",
    "replace": "copy = run / 'copy'; copy.write_text(journal.read_text()); copy.replace(journal)",
    "truncate": "os.truncate(journal, 100)",
    "observation": "(run / json.loads(line)['folder'] / 'observation.json').write_text('{}')",
    "remove": "(run / json.loads(line)['folder'] / 'observation.json').unlink()",
}
TAMPERS = """\
summary: A case that waits for another's line and then harms the run's folder
backends: [host]
prelude: |
  def act():
      import json, os, pathlib, time
      run = pathlib.Path(os.environ["VICTIM"])
      journal = run / "run.jsonl"
      while True:
          lines = [line for line in journal.read_text().splitlines() if '"kind": "case"' in line]
          if lines:
              break
          time.sleep(0.05)
      line = lines[0]
      {harm}
      return 1
steps: [{{api: {{call: act, as: found}}, expect: [{{equals: {{found: 1}}}}]}}]
"""


NIGHTLY = pytest.mark.nightly(
    reason="two other ways to harm the records are tested by every run of the tests"
)


@pytest.mark.parametrize(
    "harm",
    [
        pytest.param(harm, marks=() if harm in ("append", "observation") else NIGHTLY)
        for harm in HARM
    ],
)
def test_a_case_that_harms_the_records_fails_the_run(tmp_path: Path, harm: str) -> None:
    write_specs(tmp_path, {"honest": HONEST, "tampers": TAMPERS.format(harm=HARM[harm])})
    out = tmp_path / "out"
    done = called(
        "run", tmp_path / "specs", "--out", out, "--jobs", "2", env=prestarted(VICTIM=str(out))
    )
    assert done.returncode == 1, done.stderr
    assert "Traceback" not in done.stderr
    last = done.stderr.splitlines()[-1]
    assert (
        "observation.json"
        if harm in ("observation", "remove")
        else f"{out}/run.jsonl: the journal was changed"
    ) in last
    report = {
        case.name: case.result
        for suite in JUnitXml.fromfile(str(out / "junit.xml"))
        for case in suite
    }
    assert "changed" in report["run"][0].message
    assert report.keys() <= {"run", "honest[backend=host]", "tampers[backend=host]"}
    for command in (
        ["run", tmp_path / "specs", "--resume", out],
        ["audit", out],
        ["merge", out, "--out", tmp_path / "merged"],
    ):
        assert called(*command, env=prestarted(VICTIM=str(out))).returncode == 2


WAITS = HONEST.replace(
    "return 1\n",
    "import time, os\n      while not os.path.exists(os.environ['GO']):\n          "
    "time.sleep(0.02)\n      return 1\n",
    1,
)


def test_two_runs_into_one_folder(tmp_path: Path) -> None:
    (tmp_path / "honest.yaml").write_text(WAITS)
    out, go = tmp_path / "out", tmp_path / "go"
    first = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "torch_conformance",
            "run",
            str(tmp_path / "honest.yaml"),
            "--out",
            str(out),
        ],
        cwd=ROOT,
        env=prestarted(GO=str(go)),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 60
    while not (out / "run.lock").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    for command in (
        ["run", tmp_path / "honest.yaml", "--out", out],
        ["run", tmp_path / "honest.yaml", "--resume", out],
    ):
        done = called(*command, env=prestarted(GO=str(out)))
        assert done.returncode == 2
        assert (
            f"{out}: process {first.pid} is writing a run there" in done.stderr
            or "no run" in done.stderr
        )
    while not (out / "run.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    for command in (
        ["audit", out],
        ["merge", out, "--out", tmp_path / "merged"],
        ["merge", out, "--out", out],
    ):
        done = called(*command)
        assert (
            done.returncode,
            f"process {first.pid} is still writing this run" in done.stderr,
        ) == (2, True), done.stderr
    go.touch()
    _, err = first.communicate(timeout=120)
    assert first.returncode == 0, err
    assert [result.outcome for result in read_run(out / "run.jsonl").results] == [Outcome.PASS]
    assert not (out / "run.lock").exists()


LOUD = HONEST.replace(
    "return 1\n",
    "import os\n      print(dict(os.environ))\n      raise RuntimeError(os.environ['TORCH_PAT'])\n",
    1,
)
SECRETS = {
    "TORCH_AUTH": "planted-auth",
    "TORCH_PAT": "planted-pat",
    "TORCH_X": "https://bucket/x?X-Amz-Signature=planted-signature",
    "TORCHINDUCTOR_REDIS_URL": "redis://:planted/slash@host:6379",
    "TRITON_PROXY": "planted-user:planted-pass@proxy:8080",
    "CUDA_KEY": "planted-key",
    "OMP_PASSWORD": "planted-password",
    "MY_SECRET": "planted-secret",
    "TORCH_CUDA_ARCH_LIST": "https://planted-token@host/x",
}


def test_no_secret_stands_in_a_record(tmp_path: Path) -> None:
    (tmp_path / "loud.yaml").write_text(LOUD)
    out = tmp_path / "out"
    selected = [
        "--select",
        "*",
        "--select",
        "https://u:planted-url@h/?planted=1",
        "--select=--token=planted-option",
    ]
    done = called(
        "run",
        tmp_path / "loud.yaml",
        "--out",
        out,
        *selected,
        env=prestarted(**SECRETS, **{UNREAD: " ".join(SECRETS)}),
    )
    assert done.returncode == 1
    for text in (
        done.stdout,
        done.stderr,
        (out / "run.jsonl").read_text(),
        (out / "junit.xml").read_text(),
    ):
        assert "planted" not in text


WAIVER = """\
waivers:
  - cases: "*"
    failure: {type: equals, match: "1"}
    reason: Known since long
    issue: https://example.org/issues/1
    until: 2999-12-31
"""


def test_what_failed_as_expected_was_executed_and_what_did_not_run_is_said(tmp_path: Path) -> None:
    (tmp_path / "honest.yaml").write_text(HONEST.replace("return 1", "return 2"))
    (tmp_path / "waivers.yaml").write_text(WAIVER)
    done = called(
        "run",
        tmp_path / "honest.yaml",
        "--waivers",
        tmp_path / "waivers.yaml",
        "--out",
        tmp_path / "out",
        env=prestarted(),
    )
    assert done.returncode == 0, done.stderr
    assert [
        json.loads(line).get("exit_code")
        for line in (tmp_path / "out" / "run.jsonl").read_text().splitlines()
    ][-1] == 0
    more = ["--waivers", tmp_path / "waivers.yaml", "--min-executed", "3"]
    done = called(
        "run", tmp_path / "honest.yaml", *more, "--out", tmp_path / "more", env=prestarted()
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        4,
        "1 of 1 selected were executed, fewer than --min-executed 3",
    )
    (tmp_path / "gpus.yaml").write_text(
        HONEST.replace("backends: [host]", 'backends: [host]\nrequires: [{gpus: ">=99"}]')
    )
    done = called("run", tmp_path / "gpus.yaml", "--out", tmp_path / "none", env=prestarted())
    assert done.returncode == 4
    assert done.stderr.splitlines()[-1].startswith("nothing was executed, of 1 selected: 1 x ")
