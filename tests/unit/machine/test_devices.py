"""Kinds of device: one table, of which every stage asks; a planted kind is known everywhere."""

from collections.abc import Mapping

import pytest

from tests.fakes import import_torch
from torch_conformance.language.check.spec import VENDORS
from torch_conformance.machine.capabilities import CAPABILITIES, Machine
from torch_conformance.model import devices
from torch_conformance.model.case import Availability
from torch_conformance.model.devices import ACCELERATORS, Accelerator, Build

PLANTED = Accelerator(
    module="planted",
    builds=(
        Build(
            capability="planted",
            version="planted",
            title="Planted",
            vendor="amd",
            device="a planted GPU",
            visible="PLANTED_VISIBLE_DEVICES",
        ),
    ),
    nodes=("/dev/planted0",),
    activity="PLANTED",
)


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> Mapping[str, Accelerator]:
    table = {**ACCELERATORS, "planted": PLANTED}
    monkeypatch.setattr(devices, "ACCELERATORS", table)
    return table


@pytest.mark.parametrize(
    ("device", "kind", "index"),
    [("cpu", "cpu", 0), ("cuda", "cuda", 0), ("cuda:3", "cuda", 3), ("host", "host", 0)],
)
def test_a_device_is_a_kind_and_a_number(device: str, kind: str, index: int) -> None:
    assert (devices.kind_of(device), devices.index_of(device)) == (kind, index)
    assert devices.is_accelerator(device) is (kind == "cuda")


@pytest.mark.parametrize("build", devices.builds(), ids=lambda build: build.capability)
def test_each_build_is_a_capability(build: Build) -> None:
    capability = CAPABILITIES[build.capability]
    machine = Machine(
        python=(3, 11), torch="2.13.0", release=(2, 13), builds={build.version: "1"}, gpus=1
    )
    assert capability.is_of_gpus
    assert capability.answer(machine, "") == (Availability.YES, "")
    assert machine.vendor == build.vendor
    assert build.vendor in VENDORS, (
        "a condition could not name it: VENDORS in "
        "runner/torch_conformance/language/check/spec.py, and the schema"
    )


@pytest.mark.torch
def test_torch_has_what_is_asked_of_each_kind() -> None:
    torch = import_torch()
    for kind, accelerator in ACCELERATORS.items():
        module = getattr(torch, accelerator.module)
        for name in (
            "is_available",
            "is_initialized",
            "device_count",
            "synchronize",
            "empty_cache",
            "memory_allocated",
            "Event",
        ):
            assert hasattr(module, name), f"torch.{kind}.{name}"
        for name in (
            "get_device_properties",
            "get_rng_state_all",
            "set_rng_state_all",
            "current_stream",
        ):
            assert hasattr(module, name), f"torch.{kind}.{name}"
        assert hasattr(torch.profiler.ProfilerActivity, accelerator.activity)


GPUS_OF_TORCH = {
    "T4": (7, 40, None, False),
    "L4": (8, 58, None, False),
    "RTX 3080": (8, 68, None, True),
    "H200": (9, 132, None, True),
    "MI300X": (9, 304, "7.0", True),
    "gfx1030": (10, 72, "7.0", False),
    "gfx1100": (11, 96, "7.0", True),
}
"""Major number, multiprocessors and version of HIP of GPUs, and whether they are big."""


@pytest.mark.torch
@pytest.mark.parametrize("name", GPUS_OF_TORCH)
def test_torch_is_asked_which_gpus_are_big(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from types import SimpleNamespace

    torch = import_torch()
    from torch._inductor import utils

    from torch_conformance.worker.torch_compat import device_modules

    major, count, hip, is_big = GPUS_OF_TORCH[name]
    known = SimpleNamespace(
        create=lambda _: SimpleNamespace(major=major, multi_processor_count=count)
    )
    monkeypatch.setattr(utils, "DeviceProperties", known)
    monkeypatch.setattr(torch.version, "hip", hip)
    utils.is_big_gpu.cache_clear()
    assert device_modules._is_each_big(2) is is_big
    utils.is_big_gpu.cache_clear()
    monkeypatch.delattr(utils, "is_big_gpu")
    assert device_modules._is_each_big(2) is None
