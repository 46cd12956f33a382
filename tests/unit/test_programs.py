"""``spawn: {program: ...}`` in the worker: what is run, and what is read of it. No torch."""

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torch_conformance.vocabulary.expectations.texts import MOST
from torch_conformance.vocabulary.steps import NotCarriedOut, actions


@pytest.fixture
def session(tmp_path: Path) -> Any:
    return SimpleNamespace(
        phases=contextlib.nullcontext,
        cache=str(tmp_path),
        log_of_step=lambda: "what it wrote",
        scope=SimpleNamespace(value=lambda entry: entry),
    )


def test_code_and_outputs(session: Any):
    code = "import sys; print(sys.stdin.read() + '|'.join(sys.argv[1:])); sys.exit(4)"
    assert actions.run_program(session, "python", ["-c", code, "a b", 7]) == {
        "code": 4,
        "stderr": "what it wrote",
        "stdout": "a b|7\n",
    }


def test_a_signal_is_a_negative_code(session: Any):
    assert (
        actions.run_program(session, "python", ["-c", "import os; os.kill(os.getpid(), 9)"])["code"]
        == -9
    )


def test_no_shell_reads_the_arguments(session: Any, tmp_path: Path):
    there = tmp_path / "there"
    assert (
        actions.run_program(
            session, "python", ["-c", "import sys; print(sys.argv[1])", f"; touch {there}"]
        )["stdout"]
        == f"; touch {there}\n"
    )
    assert not there.exists()


def test_only_the_end_of_a_long_output_is_kept(session: Any):
    found = actions.run_program(session, "python", ["-c", f"print('x' * {MOST} + 'end')"])["stdout"]
    assert len(found) == MOST
    assert found.endswith("xend\n")


def test_a_program_that_is_not_there_is_an_error_of_the_case(
    session: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotCarriedOut, match="nvcc is not on PATH"):
        actions.run_program(session, "nvcc", [])
