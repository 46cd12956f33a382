"""Compiled objects and probes of the CPU that outlive a run: real compilers, real torch, the same outcomes and counters."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from runner.core.outcomes import Outcome
from runner.core.results import CaseResult
from runner.record.journal import read_run
from tests.fakes import prestarted, program

pytestmark = pytest.mark.torch

needs_a_compiler = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ here")

SPEC = """\
summary: A kernel is built, loaded and right
backends: [cpu]
function: |
  def fn(x):
      return (x * 2).sin() + 1
inputs: [{rand: [16, 16]}]
config: {fx_graph_cache: true}
expect:
  - close: {to: eager}
  - counter: {inductor.fxgraph_cache_miss: 1, inductor.fxgraph_cache_hit: 0}
"""


class Ran:
    """A run of one case."""

    def __init__(self, folder: Path, name: str, *arguments: object, **variables: str) -> None:
        self.out = folder / name
        variables = {"TORCH_CONFORMANCE_CACHE": str(folder / "kept"), **variables}
        self.done = program("run", folder / "spec.yaml", *arguments, "--jobs", "1", "--out", self.out, env=prestarted(**variables))
        run = read_run(self.out / "run.jsonl")
        self.header = run.header
        self.result: CaseResult = run.results[0]

    @property
    def counted(self) -> tuple[int, int]:
        return self.result.objects_served, self.result.objects_built

    @property
    def facts(self) -> list[dict[str, Any]]:
        """What was counted and seen in each step; which code was generated, too."""
        observation = json.loads((self.out / self.result.folder / "observation.json").read_bytes())
        names = ("counters", "metrics", "entered", "graphs", "executed", "code", "measured")
        return [{name: step[name] for name in names} for step in observation["steps"]]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("objects")
    (made / "spec.yaml").write_text(SPEC)
    return made


@needs_a_compiler
@pytest.mark.nightly(reason="five compiles; tests/unit/test_objects.py serves and refuses objects without a run")
def test_a_second_run_is_served_and_a_changed_source_is_not(folder: Path) -> None:
    off, cold, warm = (
        Ran(folder, "off"),
        Ran(folder, "cold", "--object-cache"),
        Ran(folder, "warm", "--object-cache"),
    )
    assert [ran.result.outcome for ran in (off, cold, warm)] == [Outcome.PASS] * 3, warm.done.stdout
    assert off.counted == (0, 0)
    served, built = cold.counted
    assert served == 0
    assert built > 0
    assert warm.counted == (built, 0)
    assert off.facts == cold.facts == warm.facts
    where = folder / "kept" / "objects"
    assert f"{built} of {built} compiled objects were served from {where}: not a conformance run" in warm.done.stdout.splitlines()
    assert f"0 of {built} compiled objects were served from {where}" in cold.done.stdout.splitlines()
    assert "compiled objects" not in off.done.stdout
    assert "--object-cache" in warm.header.command

    (folder / "spec.yaml").write_text(SPEC.replace("+ 1", "+ 2"))
    changed = Ran(folder, "changed", "--object-cache")
    (folder / "spec.yaml").write_text(SPEC)
    assert changed.result.outcome is Outcome.PASS
    assert changed.counted == (0, built)


@pytest.mark.nightly(reason="three compiles; tests/unit/test_objects.py spoils entries in eight ways")
@needs_a_compiler
def test_a_spoilt_object_is_built_again(folder: Path) -> None:
    named = folder / "named"
    first = Ran(folder, "first", "--object-cache", named)
    for path in named.glob("*/*.object"):
        data = path.read_bytes()
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    again, served = Ran(folder, "again", "--object-cache", named), Ran(folder, "served", "--object-cache", named)
    assert first.counted == again.counted == (0, first.result.objects_built)
    assert again.result.outcome is Outcome.PASS
    assert served.counted == (first.result.objects_built, 0)


def test_a_folder_that_others_can_write_to_is_refused_before_anything_is_run(folder: Path) -> None:
    (folder / "open").mkdir()
    (folder / "open").chmod(0o777)
    done = program("run", folder / "spec.yaml", "--object-cache", folder / "open", "--out", folder / "refused")
    assert done.returncode == 2
    assert "other users can write to this folder (mode 0777); chmod 700 it" in done.stderr
    assert not (folder / "refused").exists()


@pytest.mark.nightly(
    reason="four compiles with probes; tests/unit/test_vector_isa.py tests the file, and each run without --no-kept uses it"
)
@needs_a_compiler
def test_the_next_template_knows_the_vector_instructions(folder: Path) -> None:
    """By the compiler's absence: the second run could not have probed."""
    probing = {"TORCH_CONFORMANCE_CACHE": str(folder / "probes"), "TORCHINDUCTOR_VEC_ISA_OK": ""}
    first = Ran(folder, "probed", **probing)
    kept = folder / "probes" / "vector-isa.json"
    if not kept.exists():
        pytest.skip("this CPU has no vector instructions that are kept")
    answers = kept.read_bytes()
    kept.write_text(json.dumps({"format": 1, "works": ["0" * 64]}))
    second, third = Ran(folder, "unknown", **probing), Ran(folder, "ignored", "--no-kept", **probing)
    assert [ran.result.outcome for ran in (first, second, third)] == [Outcome.PASS] * 3
    assert set(json.loads(answers)["works"]) < set(json.loads(kept.read_bytes())["works"]), "what was not known was probed again"
    assert first.header.environment["vec_isa"] == second.header.environment["vec_isa"] == third.header.environment["vec_isa"]
    before = kept.stat()
    fourth = Ran(folder, "known", **probing)
    assert fourth.header.environment["vec_isa"] == first.header.environment["vec_isa"]
    assert kept.stat().st_mtime_ns == before.st_mtime_ns, "it asked nothing that was not known"
