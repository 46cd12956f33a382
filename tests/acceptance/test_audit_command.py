"""``audit`` as a person types it: of a recorded run, of files that are run for it, with controls;
and the warning that ``run`` gives.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.fakes import prestarted, write_specs
from tests.ran import called
from torch_conformance.model.outcomes import ExitCode

pytestmark = pytest.mark.torch

SPECS = {
    "sound": """
summary: An option of inductor reaches the worker
backends: [host]
config: {max_fusion_size: 7}
steps: [{api: {call: limit, as: size}, expect: [{equals: {size: 7}}]}]
control: {config: {max_fusion_size: 8}, fails: [equals]}
prelude: |
  from torch._inductor import config

  def limit():
      return config.max_fusion_size
""",
    "blind": """
summary: An index out of range is refused, by whatever exception
backends: [host]
matrix: {at: [7, 8]}
steps:
- api: {call: operator.getitem, args: [[1, "{{ at }}"], 1], as: item}
  expect: [{equals: {item: "{{ at }}"}}, {metric: {generated_kernel_count: {max: 99}}}]
""",
    "excused": """
summary: An index out of range is refused, by whatever exception
backends: [host]
steps:
- api: {call: operator.getitem, args: [[1, 2], 1], as: item}
  expect: [{equals: {item: 2}}, {metric: {generated_kernel_count: {max: 99}}, weak: each python has its own}]
""",  # noqa: E501 - text that is read by its lines
    "talkative": """
summary: A sum has a reason that it does not need
backends: [host]
steps: [{api: {call: operator.add, args: [1, 2], as: sum}, expect: [{equals: {sum: 3}, weak: there is none}]}]
""",  # noqa: E501 - text that is read by its lines
    "toothless": """
summary: A control that concerns nothing
backends: [host]
steps: [{api: {call: operator.add, args: [1, 2], as: sum}, expect: [{equals: {sum: 3}}]}]
control: {config: {max_fusion_size: 8}}
""",
    "failing": """
summary: One expectation fails and another holds
backends: [host]
steps: [{api: {call: operator.add, args: [1, 2], as: sum}, expect: [{equals: {sum: 4}}, {runs: {}}]}]
""",  # noqa: E501 - text that is read by its lines
}

SURVIVOR = (
    "specs/blind.yaml:6:52: metric generated_kernel_count: still passes with far more than "
    "observed (9)"
)
STALE = "specs/talkative.yaml:3:79: equals fails with every mutant: it is not weak (remove 'weak')"


@dataclass(frozen=True)
class Place:
    """A folder with specs and a run of them."""

    path: Path
    stderr: str

    def audit(self, *arguments: object) -> tuple[int, str, str]:
        done = called("audit", *arguments, cwd=self.path, env=prestarted())
        return done.returncode, done.stdout, done.stderr


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Place:
    path = write_specs(
        tmp_path_factory.mktemp("audit"), {name: text.lstrip("\n") for name, text in SPECS.items()}
    )
    done = called("run", "specs", cwd=path, env=prestarted())
    assert done.returncode == ExitCode.FAILED, done.stderr
    return Place(path, done.stderr)


def test_a_recorded_run(place: Place) -> None:
    code, out, err = place.audit("latest")
    assert (code, err) == (ExitCode.FAILED, "")
    lines = out.splitlines()
    assert lines[0].startswith(SURVIVOR)
    assert lines[0].endswith("'blind[backend=host,at=7]' and 1 more")
    assert lines[1] == STALE
    assert lines[2].startswith("specs/excused.yaml:5:")
    assert lines[2].endswith(": each python has its own")
    assert lines[-1].startswith("score 84.2%: 16 of 19 mutants refused")
    assert ", 2 survived, 1 with a written reason, 1 stale reasons" in lines[-1]
    assert place.audit() == (code, out, err), "the latest run is the one that is meant"


def test_files_are_run_with_their_controls(place: Place) -> None:
    code, out, err = place.audit("specs/sound.yaml", "specs/toothless.yaml", "--run")
    assert code == ExitCode.FAILED
    assert "PASS  1/2" in err
    controls = [line for line in out.splitlines() if ": control " in line]
    assert controls == [
        "specs/sound.yaml:5:1: control fails as it must with config max_fusion_size = 8: "
        "equals failed  'sound[backend=host]'",
        "specs/toothless.yaml:4:1: control does not fail as it must with config "
        "max_fusion_size = 8: no expectation failed (PASS)  "
        "'toothless[backend=host]'",
    ]
    assert out.splitlines()[-1].endswith("0 survived, 1 of 2 controls failed as they must")
    assert not (place.path / "specs" / "cases").exists()


def test_a_run_of_other_files_is_refused(place: Place, tmp_path: Path) -> None:
    shutil.copytree(place.path, tmp_path / "copy", symlinks=True)
    copy = Place(tmp_path / "copy", "")
    spec = copy.path / "specs" / "sound.yaml"
    spec.write_text(spec.read_text() + "# changed\n")
    code, out, err = copy.audit("latest")
    assert (code, out) == (ExitCode.USAGE, "")
    assert err.startswith("torch-conformance: specs/sound.yaml: not the file that the run ")
    spec.unlink()
    code, _, err = copy.audit("latest")
    assert code == ExitCode.USAGE
    assert "specs/sound.yaml of the run is not there" in err
