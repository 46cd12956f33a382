"""The process of a worker before its case: the devices that it sees, the files that torch writes,
the facts of its machine.
"""

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.fakes import import_torch
from torch_conformance.model import devices
from torch_conformance.model.protocol import loads
from torch_conformance.worker.process import entry
from torch_conformance.worker.torch_compat import torch_state

# -- devices: the driver reads a variable when it is initialized -----------------------------------


@pytest.mark.parametrize(
    ("gpus", "inherited", "value"),
    [
        ([0], None, "0"),
        ([1], "", "1"),
        ([1], "5,3", "3"),
        ([0, 2], "7, GPU-1a2b ,4", "7,4"),
        ([1], "GPU-1a2b,MIG-3c", "MIG-3c"),
        ([3], "0,1", "3"),
    ],
)
def test_numbers_are_among_those_that_the_run_sees(gpus, inherited, value):
    assert devices.visible_to(gpus, inherited) == value


@pytest.mark.parametrize(
    ("variables", "own"),
    [
        ({}, False),
        ({"A": "1"}, False),
        ({"CUDA_VISIBLE_DEVICES": None}, True),
        ({"HIP_VISIBLE_DEVICES": "0"}, True),
        ({"ROCR_VISIBLE_DEVICES": "0"}, True),
    ],
)
def test_a_spec_may_say_itself_which_devices_are_seen(variables, own):
    assert devices.sees_own(variables) is own


VARIABLES = {
    "cuda": "CUDA_VISIBLE_DEVICES",
    "hip": "HIP_VISIBLE_DEVICES",
    "xpu": "ZE_AFFINITY_MASK",
}


@pytest.mark.parametrize("version", VARIABLES)
def test_a_worker_sees_what_it_is_pinned_to_and_says_it_once(
    monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(entry, "_seen", [])
    monkeypatch.setattr(os, "environ", {VARIABLES[version]: "4,6"})
    monkeypatch.setitem(
        entry.sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(**{version: "1.0"}))
    )
    # none is named: it sees all; the second time, with the plan, the variable names one device
    for gpus, seen in (([], "4,6"), ([1], "6"), ([1], "6")):
        entry._see(gpus)
        assert os.environ == {VARIABLES[version]: seen}


# -- files -----------------------------------------------------------------------------------------


def test_what_a_variable_names_lies_in_the_folder_whatever_it_named_and_nothing_is_asked_for() -> (
    None
):
    always = {*torch_state.ALWAYS, *torch_state.CACHES}
    environ = {name: f"/elsewhere/{name}" for name in (*torch_state.WHERE_NAMED, *always)} | {
        "PATH": "/bin"
    }
    torch_state.redirect("/case", "/cache", environ)
    assert environ.pop("PATH") == "/bin"
    assert all(value.startswith(("/case", "/cache/")) for value in environ.values()), environ
    environ = {"TORCH_TRACE": "", "TORCH_COMPILE_DYNAMO_PROFILER": "1"}
    torch_state.redirect("/case", "/cache", environ)
    assert (environ.pop("TORCH_TRACE"), environ.pop("TORCH_COMPILE_DYNAMO_PROFILER")) == (
        "",
        "1",
    ), "a switch is no path"
    assert set(environ) == always


def test_a_process_leaves_the_folder_in_which_the_runner_was_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir("/")
    monkeypatch.setattr(os, "environ", {"TMPDIR": str(tmp_path), "TORCH_TRACE": "traces"})
    monkeypatch.setattr(torch_state.redirect, "__defaults__", (os.environ,))
    torch_state.begin_in_scratch()
    assert Path.cwd() == tmp_path
    assert os.environ["TORCH_TRACE"] == f"{tmp_path}/torch_trace"


# -- facts -----------------------------------------------------------------------------------------

ANSWERS = {
    "torch.distributed.is_available": devices.HOLDS,
    "torch.is_inference_mode_enabled": "returned False",
    "torch:is_inference_mode_enabled": "returned False",
    "torch.get_num_threads": "returned a value of type int, not True or False",
    "torch.no_such_predicate": "raised AttributeError: module 'torch' has no "
    "attribute 'no_such_predicate'",
    "operator.add": "raised TypeError: add expected 2 arguments, got 0",
}


@pytest.mark.torch
def test_the_facts_have_the_answers_of_predicates_and_the_dtypes_of_onednn() -> None:
    torch = import_torch()
    reading, writing = os.pipe()
    entry.work(" ".join(["facts", *ANSWERS]), writing, "word")
    os.close(writing)
    with os.fdopen(reading, "rb") as pipe:
        sent = loads(pipe.read())
    facts = sent["observation"]
    assert (sent["word"], facts["answers"]) == ("word", ANSWERS)
    dtypes = facts["mkldnn"].split()
    assert (dtypes[:1] == ["float32"]) is torch.backends.mkldnn.is_available()
    assert set(dtypes) <= {"float32", "bfloat16", "float16"}
