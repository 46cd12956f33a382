"""``verify --recompute``: a real run, its archive, and archives whose numbers somebody changed."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fakes import prestarted, write_specs
from tests.ran import called
from tests.submissions import Archive
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.tools.attest.archive import packed, unpacked

pytestmark = pytest.mark.torch

SPEC = """\
summary: A softmax and a sum are right
backends: [cpu]
tags: [mine]
function: |
  def fn(x, y):
      return torch.softmax(x * 2, -1), y.sum(0)
inputs: [{randn: [4, 40]}, {randint: [5, 3], high: 9}]
expect: [{close: {to: eager}}]
"""
COUNTED = """\
summary: Nothing is compared with eager
backends: [host]
tags: [mine]
prelude: |
  def one():
      return 1
steps: [{api: {call: one, as: found}, expect: [{equals: {found: 1}}]}]
"""
OPERATOR = """\
summary: Samples of an operator
backends: [cpu]
tags: [mine]
on_request: a table of operators
source: {opinfo: {operators: core, dtypes: [float32], samples: 2}}
expect: [{close: {to: eager}}]
"""
SCALED = """\
summary: A number of Python is an input of the graph
backends: [cpu]
tags: [mine]
matrix: {alpha: [1.5]}
compile: {dynamic: true}
function: |
  def fn(x):
      return params.alpha * x.sum()
inputs: [{randn: [4, 40]}]
expect: [{close: {to: eager}}]
"""
PROFILE = """\
profile: small
version: "1.0"
summary: A few cases
torch: ">=2.11"
specs: [specs]
backend: [cpu, host]
levels:
  P0:
    required:
      - {cases: area/sums*}
      - {cases: area/counted*}
      - {cases: 'area/op[*op=sin,*'}
      - {cases: area/scaled*}
"""
SUMS, SIN = "area/sums[backend=cpu]", "area/op[backend=cpu,op=sin,dtype=float32]"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("author")
    write_specs(
        place,
        {"area/sums": SPEC, "area/counted": COUNTED, "area/op": OPERATOR, "area/scaled": SCALED},
    )
    (place / "small.yaml").write_text(PROFILE)
    ran = called("run", "--profile", "small.yaml", "--out", "out", cwd=place, env=prestarted())
    assert ran.returncode == ExitCode.OK, ran.stdout + ran.stderr
    assert called("submit", "out", "--out", "a.tar.zst", cwd=place).returncode == ExitCode.OK
    return place / "a.tar.zst"


def leaves(sent: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for measured in sent["steps"][0]["measured"].values():
        for sample in measured.get("samples", [{"value": measured}]):
            yield from sample["value"]["leaves"]


def numbers(change: Callable[[float], float], *names: str) -> Callable[[dict[str, Any]], None]:
    """Change the numbers of these names at the worst element of each value in floating point."""

    def act(sent: dict[str, Any]) -> None:
        for leaf in leaves(sent):
            if worst := leaf["calibrated"].get("worst"):
                worst.update({name: change(worst[name]) for name in names})

    return act


def whole(sent: dict[str, Any]) -> None:
    for leaf in leaves(sent):
        if leaf["dtype"] == "int64":
            leaf.update(
                worst_value=leaf["worst_value"] + 1, worst_reference=leaf["worst_value"] + 1
            )


def test_honest_numbers_are_computed_again(archive: Path) -> None:
    done = called("verify", archive, "--recompute", "9", "--seed", "5", env=prestarted())
    assert done.returncode == ExitCode.OK, done.stdout + done.stderr
    assert (
        "(--seed 5):\n  cannot be (1), it compares no number with eager: area/counted"
        in done.stdout
    )
    assert "numbers of eager and float64 in 3 cases: " in done.stdout.splitlines()[-1]
    assert "that your torch computes the recorded numbers of 3 cases" in done.stdout


def test_changed_numbers_are_found(archive: Path, tmp_path: Path) -> None:
    forged = Archive(unpacked(archive.read_bytes()))
    forged.observation(SUMS, numbers(lambda number: number * 1.001, "eager_value"))
    forged.observation(SUMS, whole)
    invented = ("value", "eager_value", "reference_value")
    forged.observation(SIN, numbers(lambda number: number + 0.5, *invented))
    (tmp_path / "b.tar.zst").write_bytes(packed(forged.repaired().members))
    assert called("verify", tmp_path / "b.tar.zst").returncode == ExitCode.OK
    done = called("verify", tmp_path / "b.tar.zst", "--recompute", "9", env=prestarted())
    assert done.returncode == ExitCode.FAILED, done.stdout + done.stderr
    assert "numbers: NOT so: what eager and float64 give" in done.stdout
    found = [line for line in done.stdout.splitlines() if "  differs: " in line]
    for case, words, count in (
        (SUMS, "eager's number at", 2),
        (SIN, "eager's number at", 2),
        (SIN, "the float64 reference at", 2),
    ):
        assert sum(f"{case}, step 1: {words}" in line for line in found) == count, found
    assert len(found) == 6
