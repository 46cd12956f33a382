"""The tests' own short way to a zygote: it is taken where torch would behave the same, and not where it would not."""

import json
import os

import pytest

from runner.core.outcomes import Outcome
from runner.record.journal import read_run
from tests import prestart
from tests.fakes import ROOT, environment, prestarted, prestarted_program
from tests.prestart.server import refusal

PASSES = ROOT / "tests" / "specs" / "judged" / "host-pass.yaml"
HERE = {"TORCH_LOGS": "", "PYTHONPATH": str(ROOT), "HOME": "/home"}
PACKAGE = "/scratch/package-1"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({}, ""),
        ({"HOME": "/elsewhere", "MARKS": "x", "TMPDIR": "/scratch", "TORCHINDUCTOR_CACHE_DIR": "/scratch"}, ""),
        ({"TORCH_CONFORMANCE_THREADS": "2"}, ""),
        ({"PYTHONPATH": os.pathsep.join([PACKAGE, str(prestart.SITE), str(ROOT)])}, ""),
        ({"TORCH_PAT": "x", "TORCH_AUTH": "y", prestart.UNREAD: "TORCH_PAT TORCH_AUTH"}, ""),
        ({"TORCH_PAT": "x", "TORCH_AUTH": "y", prestart.UNREAD: "TORCH_PAT"}, "TORCH_AUTH is 'y', and None in the server"),
        ({"TORCH_LOGS": "output_code"}, "TORCH_LOGS is 'output_code', and '' in the server"),
        ({"TORCHINDUCTOR_FREEZING": "1"}, "TORCHINDUCTOR_FREEZING is '1', and None in the server"),
        ({"CXX": "clang++"}, "CXX is 'clang++', and None in the server"),
        ({"PYTHONPATH": os.pathsep.join([PACKAGE, "/fakes", str(ROOT)])}, "/fakes is on PYTHONPATH"),
    ],
)
def test_an_environment_in_which_torch_would_behave_differently_is_refused(changes: dict[str, str], why: str) -> None:
    assert refusal({**HERE, "PYTHONPATH": os.pathsep.join([PACKAGE, str(ROOT)]), **changes}, HERE) == why


def test_an_environment_with_another_compiler_is_refused(tmp_path):
    compiler = tmp_path / "g++"
    compiler.write_text("#!/bin/sh\n")
    compiler.chmod(0o755)
    assert refusal({**HERE, "PATH": str(tmp_path)}, HERE) == f"g++ is {compiler}, and None in the server"


def test_one_server_serves_all_who_ask(tmp_path, monkeypatch):
    """The lock says that there is one: no other process starts a second, and a server that has ended is replaced."""
    started = []
    monkeypatch.setattr(prestart, "_folder", lambda: str(tmp_path))
    monkeypatch.setattr(prestart, "_start", lambda address, given, alive: started.append(os.dup(alive)))
    assert prestart._address({}) == prestart._address({}) == str(tmp_path / "socket")
    assert len(started) == 1
    os.close(started[0])
    prestart._address({})
    assert len(started) == 2
    os.close(started[1])


@pytest.mark.nightly(reason="it tests the server of the tests, which most acceptance tests use")
@pytest.mark.torch
def test_a_run_with_a_prestarted_zygote_is_like_any_other(tmp_path):
    done = prestarted_program("run", PASSES, "--out", tmp_path / "first", env=prestarted(MARK="here"))
    before = prestart.log()
    assert done.returncode == 0, done.stderr
    assert "forked: " in before
    assert {result.outcome for result in read_run(tmp_path / "first" / "run.jsonl").results} == {Outcome.PASS}
    refused = prestarted_program("run", PASSES, "--select", "*=1]", "--out", tmp_path / "second", env=prestarted(TORCH_LOGS="+dynamo"))
    assert refused.returncode == 0, refused.stderr
    assert "refused: TORCH_LOGS is '+dynamo'" in prestart.log().removeprefix(before)
    (result,) = read_run(tmp_path / "second" / "run.jsonl").results
    assert result.outcome is Outcome.PASS
    assert json.loads((tmp_path / "second" / result.folder / "plan.json").read_text())["id"] == result.case_id
    assert "PRESTARTED_ZYGOTES" not in environment()
