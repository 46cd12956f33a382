"""Which facts of a machine contradict each other, or the day of its run."""

import pytest

from torch_conformance.tools.attest.contradictions import of_machine

H200 = {
    "torch": "2.11.0+cu130",
    "cuda": "13.0",
    "gpus": "1",
    "device": "NVIDIA H200",
    "arch": "sm_90",
}
MI300 = {
    "torch": "2.13.0+rocm7.1",
    "hip": "7.1.25424",
    "gpus": "8",
    "device": "AMD Instinct MI300X",
    "arch": "gfx942:sramecc+:xnack-",
}
CPU = {"torch": "2.13.0+cpu", "gpus": "0", "cpu": "x86_64"}


@pytest.mark.parametrize(
    "facts",
    [
        H200,
        MI300,
        CPU,
        {},
        {**H200, "torch": "2.11.0a0+gitabc"},
        {**H200, "device": "Tesla X999", "arch": "sm_99"},
    ],
)
def test_what_a_machine_can_have_is_no_contradiction(facts: dict[str, str]) -> None:
    assert not [*of_machine(facts, "2026-11-28")]


@pytest.mark.parametrize(
    ("facts", "day", "why"),
    [
        ({**CPU, "gpus": "1", "device": "NVIDIA GB300"}, "2026-11-28", "is built for no GPU"),
        ({**CPU, "arch": "sm_103"}, "2026-11-28", "it is a GPU"),
        ({**CPU, "cuda": "13.0"}, "2026-11-28", "built as cpu, and for {'cuda': '13.0'}"),
        ({**H200, "cuda": "12.8"}, "2026-11-28", "built as cu130"),
        ({**H200, "arch": "gfx942"}, "2026-11-28", "is gfx942, and its torch is built for cuda"),
        ({**H200, "device": "NVIDIA GB300"}, "2026-11-28", "is NVIDIA GB300, and sm_90"),
        ({**MI300, "device": "AMD Instinct MI355X"}, "2026-11-28", "and gfx942"),
        ({**CPU, "torch": "2.15.0.dev20261001+cpu"}, "2026-09-30", "not made before 2026-10-01"),
    ],
)
def test_made_up_machines_contradict_themselves(facts: dict[str, str], day: str, why: str) -> None:
    assert why in "; ".join(of_machine(facts, day))
