"""``repro --shrink`` on a planted pass that makes a product a sum: a smaller spec with the same
failure, a script, and the stage.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.fakes import environment, prestarted_program, program

SPEC = """\
summary: A planted pass of the compiler makes products wrong
backends: [cpu]
config: {post_grad_custom_post_pass: {ref: planted}, epilogue_fusion: true}
prelude: |
  def planted(graph):
      for node in graph.nodes:
          if node.op == "call_function" and "mul" in str(node.target):
              node.target = torch.ops.aten.add.Tensor
function: |
  def fn(x, y, z):
      a = torch.relu(x) + z
      b = (x * y).cos()
      return b.relu() + a.sum()
inputs: [{randn: [64, 64]}, {randn: [64, 64]}, {randn: [64, 64]}]
steps:
  - call: {}
    expect: [{close: {to: eager}}, {counter: {stats.unique_graphs: 1}}]
  - reset: [dynamo]
  - call: {}
    expect: [{close: {to: eager}}]
"""


@pytest.mark.nightly(
    reason="about fifty runs of a case; the unit tests hold the search, the edits and the refusals"
)
def test_a_planted_pass_is_shrunk_and_its_stage_is_named(tmp_path: Path) -> None:
    spec = tmp_path / "planted-pass.yaml"
    spec.write_text(SPEC)
    own = tmp_path / "own-cache"
    own.mkdir()
    variables = {**environment(), "TORCHINDUCTOR_CACHE_DIR": str(own)}
    done = program(
        "repro",
        "--shrink",
        "planted-pass*",
        spec,
        "--out",
        tmp_path / "out",
        cwd=tmp_path,
        env=variables,
        timeout=1200,
    )
    assert done.returncode == 0, done.stderr
    assert "stage: inductor, post_grad_passes, " in done.stdout
    assert "post_grad_custom_post_pass" in done.stdout
    assert not [path for path in own.rglob("*") if "bisect" in path.name], (
        "the state of the bisector is in the cache of the user"
    )
    text = (tmp_path / "out" / "shrunk.yaml").read_text()
    assert len(text) < len(SPEC)
    assert "[1" in text
    assert "epilogue_fusion" not in text
    assert "cos" not in text
    assert "reset" not in text
    again = program("run", tmp_path / "out", "--out", tmp_path / "run", cwd=tmp_path)
    assert again.returncode == 1
    assert "close failed" in again.stdout
    ran = subprocess.run(
        [sys.executable, str(tmp_path / "out" / "repro.py")],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 1, ran.stdout + ran.stderr
    assert "AssertionError" in ran.stderr


def test_what_cannot_be_shrunk_is_refused_before_anything_runs(tmp_path: Path) -> None:
    spec = tmp_path / "planted-pass.yaml"
    spec.write_text(SPEC)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "shrunk.yaml").write_text("kept")
    done = prestarted_program(
        "repro", "--shrink", "planted-pass*", spec, "--out", tmp_path / "out", cwd=tmp_path
    )
    assert done.returncode == 2
    assert "is there already" in done.stderr
    assert (tmp_path / "out" / "shrunk.yaml").read_text() == "kept"
    done = prestarted_program("repro", "--shrink", "nothing*", spec, cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing*" in done.stderr
