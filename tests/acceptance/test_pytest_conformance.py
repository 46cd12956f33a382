"""``pytest --conformance`` with real workers: a library call, and a function that is compiled."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import GOOD
from tests.fakes import prestarted, write_specs

pytestmark = [
    pytest.mark.torch,
    pytest.mark.nightly(
        reason="the engine is that of run; the plugin is always tested with a fake executor"
    ),
]

CALL = """\
summary: A call returns what it returns
backends: [host]
matrix: {want: [1, 2]}
prelude: |
  def value():
      return 1
steps: [{api: {call: value, as: found}, expect: [{equals: {found: "{{ want }}"}}]}]
"""


def test_real_cases(tmp_path: Path) -> None:
    weak = GOOD.replace(
        "{to: eager}", "{to: eager, atol: 1.0e+30, rtol: 1}, weak: the reason of its author"
    )
    write_specs(tmp_path, {"compiled": GOOD, "call": CALL, "weak": weak})
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    environment = prestarted(PYTEST_DISABLE_PLUGIN_AUTOLOAD="1", PYTEST_ADDOPTS="")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "torch_conformance.tools.pytest_plugin",
        "-rA",
        "--conformance",
        "specs",
    ]
    found = subprocess.run(
        command,
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert "PASSED specs/compiled.yaml::compiled[backend=cpu]" in found.stdout, (
        found.stdout + found.stderr
    )
    assert re.search("(?m)^weak: .*: the reason of its author$", found.stdout)
    assert "PASSED specs/call.yaml::call[backend=host,want=1]" in found.stdout
    assert "FAILED specs/call.yaml::call[backend=host,want=2] - FAIL: equals" in found.stdout
    assert found.returncode == pytest.ExitCode.TESTS_FAILED
