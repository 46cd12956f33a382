"""Which devices a worker sees: the driver reads a variable when it is initialized."""

import os
from types import SimpleNamespace

import pytest

from runner.model import devices
from runner.worker.process import entry


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


@pytest.fixture
def unpinned(monkeypatch):
    monkeypatch.setattr(entry, "_seen", [])
    for name in ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.setitem(os.environ, name, "restored afterwards")
        monkeypatch.delitem(os.environ, name)


def built_for(monkeypatch, **versions):
    monkeypatch.setitem(entry.sys.modules, "torch", SimpleNamespace(version=SimpleNamespace(**versions)))


@pytest.mark.parametrize(
    ("version", "variable"), [("cuda", "CUDA_VISIBLE_DEVICES"), ("hip", "HIP_VISIBLE_DEVICES"), ("xpu", "ZE_AFFINITY_MASK")]
)
def test_a_worker_sees_what_it_is_pinned_to_and_says_it_once(monkeypatch, unpinned, version, variable):
    built_for(monkeypatch, **{version: "1.0"})
    monkeypatch.setenv(variable, "4,6")
    entry._see([1])
    assert os.environ[variable] == "6"
    entry._see([1])  # the same again, with the plan: the variable names one device now
    assert os.environ[variable] == "6"
    others = {"CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ZE_AFFINITY_MASK"} - {variable}
    assert others.isdisjoint(os.environ)


def test_a_worker_that_sees_all_sets_nothing(monkeypatch, unpinned):
    built_for(monkeypatch, cuda="13.0")
    entry._see([])
    assert "CUDA_VISIBLE_DEVICES" not in os.environ
