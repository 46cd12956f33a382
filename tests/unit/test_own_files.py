"""Where torch writes what nobody asked a path for."""

import os
from pathlib import Path

import pytest

from runner.worker.torch_compat import torch_state as own_files


def test_what_a_variable_names_lies_in_the_folder_whatever_it_named() -> None:
    named = {name: f"/elsewhere/{name}" for name in (*own_files.WHERE_NAMED, *own_files.ALWAYS, *own_files.CACHES)}
    environ = {**named, "TORCH_COMPILE_DYNAMO_PROFILER": "relative.prof", "PATH": "/bin"}
    own_files.redirect("/case", "/cache", environ)
    assert environ.pop("PATH") == "/bin"
    assert all(value.startswith(("/case", "/cache/")) for value in environ.values()), environ


def test_what_nobody_asked_for_is_not_asked_for() -> None:
    environ = {"TORCH_TRACE": "", "TORCH_COMPILE_DYNAMO_PROFILER": "1"}
    own_files.redirect("/case", "/cache", environ)
    assert environ.pop("TORCH_TRACE") == ""
    assert environ.pop("TORCH_COMPILE_DYNAMO_PROFILER") == "1"
    assert set(environ) == {*own_files.ALWAYS, *own_files.CACHES}


def test_a_process_leaves_the_folder_in_which_the_runner_was_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setattr(os, "environ", {"TMPDIR": str(tmp_path), "TORCH_TRACE": "traces"})
    monkeypatch.setattr(own_files.redirect, "__defaults__", (os.environ,))
    own_files.begin_in_scratch()
    assert Path.cwd() == tmp_path
    assert os.environ["TORCH_TRACE"] == f"{tmp_path}/torch_trace"
