"""The comparison of a simulated GPU with the real one: what is equal, what is normalized, and that the page shows the record."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from benchmarks import calibration
from tests.fences import ROOT

RECORD = ROOT / "reports/simulation/h200-torch-2.11.json"
PAGE = ROOT / "docs/design/offline-targets.md"

PTX = "// Generated\n.version 8.7\n.target sm_90a\nadd.f32 %r1, %r2, %r3;"
WRAPPER = "# Topologically sorted\nmeta={'backend_hash': 'A1', 'autotune_local_cache': False, 'no_x_dim': False}\ncall()"


def kernel(**changed: Any) -> dict[str, Any]:
    return {"graph": 0, "name": "triton_poi_one", "config": "{'XBLOCK': 64} warps 4 stages 1", "shared": 0, "ptx": PTX, **changed}


def dump(*kernels: dict[str, Any], wrapper: str = WRAPPER, **changed: Any) -> dict[str, Any]:
    case = {"wrappers": [wrapper], "choices": [["mm extern"]], "kernels": list(kernels or [kernel()]), **changed}
    return {"torch": "2.11", "triton": "3.6", "properties": {"name": "H200", "major": 9}, "cases": {"one": case}}


def found(real: Mapping[str, Any], simulated: Mapping[str, Any]) -> tuple[bool, dict[str, Any], str]:
    record, details = calibration.compared(real, simulated)
    return calibration.is_whole(record["cases"]["one"]), record, "\n".join(details)


def test_equal_dumps_are_equal_and_nothing_is_normalized() -> None:
    whole, record, details = found(dump(), dump())
    assert whole
    assert set(record["normalized"].values()) == {0}
    assert details.strip() == "## one"
    assert list(calibration.table(record))[2:] == ["| `one` | 1 | equal | 1 equal | 1 equal | 1 equal | 1 of 1 |"]


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("comments", lambda text: text.replace("Topologically", "In order")),
        ("backend_hash", lambda text: text.replace("A1", "B2")),
        ("cache options", lambda text: text.replace("_cache': False", "_cache': True")),
    ],
)
def test_what_is_normalized_is_counted_by_name(name: str, change: Callable[[str], str]) -> None:
    whole, record, _ = found(dump(wrapper=change(WRAPPER)), dump())
    assert whole
    assert {one for one, count in record["normalized"].items() if count} == {name}


def test_the_version_of_the_assembler_is_normalized_and_nothing_else_of_ptx() -> None:
    whole, record, _ = found(dump(kernel(ptx=PTX.replace("8.7", "9.0"))), dump())
    assert whole
    assert record["normalized"]["ptx version"] == 1
    whole, record, details = found(dump(kernel(ptx=PTX.replace("sm_90a", "sm_90"))), dump())
    assert not whole
    assert record["cases"]["one"]["ptx"] == {"equal": 0, "of": 1}
    assert "-.target sm_90\n+.target sm_90a" in details


@pytest.mark.parametrize(
    ("simulated", "said"),
    [
        (dump(wrapper=WRAPPER.replace("no_x_dim': False", "no_x_dim': True")), "-meta"),
        (dump(choices=[["mm triton"]]), "+mm triton"),
        (dump(kernel(), kernel(config="{'XBLOCK': 32} warps 4 stages 1")), "configurations: real"),
        (dump(kernel(shared=64)), "configurations: real"),
        (dump(kernel(name="triton_poi_two")), "triton_poi_two"),
        (dump(kernel(ptx="")), "ptx of"),
        (dump(raised="Traceback: no kernel"), "simulated raised: Traceback: no kernel"),
        ({**dump(), "cases": {}}, "simulated raised: absent"),
    ],
)
def test_a_case_that_differs_is_not_whole(simulated: dict[str, Any], said: str) -> None:
    whole, _, details = found(dump(), simulated)
    assert not whole
    assert said in details


def test_ptx_that_neither_side_has_is_not_equal() -> None:
    assert not found(dump(kernel(ptx="")), dump(kernel(ptx="")))[0]


def test_a_configuration_that_was_added_when_a_kernel_was_loaded_is_a_difference() -> None:
    whole, record, details = found(dump(launched={"triton_poi_one": ["{'XBLOCK': 32} warps 4 stages 1"]}), dump())
    assert not whole
    assert record["cases"]["one"]["loaded"] == {"recorded": 1, "added": 1}
    assert "added when loaded: triton_poi_one" in details


def test_other_properties_are_a_difference() -> None:
    other = dump()
    other["properties"]["major"] = 8
    assert found(dump(), other)[1]["properties"] == {"compared": 2, "differ": ["major"]}


def test_the_page_shows_the_record() -> None:
    record, page = json.loads(RECORD.read_text("utf-8")), PAGE.read_text("utf-8").splitlines()
    assert record["format"] == calibration.FORMAT
    start = page.index(next(calibration.table(record)))
    assert page[start : start + len(record["cases"]) + 2] == list(calibration.table(record))
    rows = [f"| {name} | {record['normalized'][name]} |" for name in calibration.NORMALIZED]
    assert [row for row in rows if not any(line.startswith(row) for line in page)] == []
    assert list(record["normalized"]) == list(calibration.NORMALIZED)


def test_the_record_is_of_the_target_of_the_table() -> None:
    from runner.core.simulated import PROPERTIES

    record = json.loads(RECORD.read_text("utf-8"))
    assert record["device"] == PROPERTIES["cuda:sm_90"]["name"].value
    assert record["properties"] == {"compared": 14, "differ": []}
    assert record["real"] == record["simulated"], "both sides are of one torch and one Triton"
    assert "/" not in RECORD.read_text("utf-8"), "a record has no paths"
