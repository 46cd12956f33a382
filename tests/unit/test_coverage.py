"""Coverage is a fact: the committed list of upstream tests, which cases cover each instance, and
what ``covers`` may name.
"""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.conftest import GOOD, LoadSuite
from tests.fakes import case, shipped_suite, used, write_specs
from torch_conformance.cli.parser import main
from torch_conformance.language.load import Suite
from torch_conformance.language.read import spec_schema
from torch_conformance.language.upstream import Upstream, UpstreamTest, coverage, load
from torch_conformance.model.outcomes import ExitCode

CLEAR = "test_codecache.py::TestFxGraphCache::test_cache_clear"
CONSTANT = "test_codecache.py::TestFxGraphCache::test_constant_handling"
BOUNDS = "test_codecache.py::TestFxGraphCache::test_cache_load_with_guards_static_bounds"
XPU = (
    "ours:\n  summary: A backend of a vendor\n  device: xpu\n  joins: [cuda]\n  proof: "
    "{graphs: {min: 1}}\n"
)


# -- the shipped specs -----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def suite() -> Suite:
    return shipped_suite()


def test_every_instance_is_covered(suite: Suite) -> None:
    """The one that fails until the last spec is written, and names what is missing."""
    found = coverage(suite.cases, load())
    missing = [f"row {one.test.row}: {identity}" for one in found for identity in one.missing]
    assert not missing, (
        f"{len(missing)} of {sum(len(one.cases) for one in found)} instances are missing:\n"
        + "\n".join(missing)
    )


def test_the_shipped_backends_have_the_devices_of_the_list(suite: Suite) -> None:
    """So that no shipped case falls under the rule for the devices of vendors."""
    known = {
        entry
        for case in suite.cases
        for entry in case.covers
        if entry.split("::")[0] in load().files
    }
    assert known - load().ids == set()
    rocm = {entry for case in suite.cases if case.backend == "rocm" for entry in case.covers}
    assert f"{CONSTANT}[cuda]" in rocm


# -- what covers may name --------------------------------------------------------------------------


INT32 = "test_codecache.py::TestFxGraphCache::test_cache_load_with_guards_int32_bounds"


@pytest.mark.parametrize(
    ("entry", "device", "code", "near"),
    [
        (CLEAR.replace("clear", "claer"), "cpu", "unknown-upstream-test", CLEAR),
        (CLEAR.replace("TestFxGraphCache::", ""), "cpu", "unknown-upstream-test", CLEAR),
        ("test_codecache.py", "cpu", "unknown-upstream-test", None),
        *(
            (f"{CLEAR}{bracket}", "cpu", "upstream-test-without-instances", None)
            for bracket in ("[cpu]", "[]")
        ),
        (CONSTANT, "cpu", "no-upstream-instance", None),
        (f"{CONSTANT}[cpu", "cpu", "unknown-upstream-instance", f"{CONSTANT}[cpu]"),
        (f"{CONSTANT}[gpu]", "cuda", "unknown-upstream-instance", f"{CONSTANT}[cpu]"),
        (f"{CONSTANT}[xpu]", "cuda", "unknown-upstream-instance", None),
        (f"{BOUNDS}[cpu, float32]", "cpu", "unknown-upstream-instance", f"{BOUNDS}[cpu,float32]"),
        *(
            (f"{BOUNDS}[{values}]", "cpu", "unknown-upstream-instance", None)
            for values in ("cpu,float16", "float32,cpu")
        ),
        (f"{BOUNDS}[xpu,float16]", "xpu", "unknown-upstream-instance", None),
        *(
            (entry, "cpu", "", None)
            for entry in (
                CLEAR,
                f"{INT32}[cpu,float16]",
                "test_of_a_vendor.py::Test::test_codecache[nothing]",
            )
        ),
        ("ours/test_codecache.py::TestFxGraphCache::test_nothing", "cpu", "", None),
        *(
            (f"{BOUNDS}[cuda,bfloat16]", "cuda", "", None),
            (f"{BOUNDS}[xpu,float32]", "xpu", "", None),
        ),
        ("test_codecache.py::test_codecache_spawn", "cuda", "", None),
        (
            "test_ck_backend.py::TestCKBackend::test_max_autotune_precompile[ATen,Triton,CK]",
            "cuda",
            "",
            None,
        ),
        (f"{CONSTANT}[cuda:1]", "cuda:1", "", None),
    ],
)
def test_what_covers_may_name(entry: str, device: str, code: str, near: str | None) -> None:
    problem = load().problem(entry, device)
    assert (problem.code if problem else "") == code
    assert near is None or (problem is not None and dict(problem.arguments)["near"] == near)


def test_a_device_that_upstream_does_not_test_covers_nothing(load_suite: LoadSuite) -> None:
    spec = GOOD.replace("[cpu]", "[cuda]") + f'covers: ["{CONSTANT}[{{{{ device }}}}]"]\n'
    cases = load_suite(spec, backends=XPU).cases
    assert [case.covers for case in cases if case.backend == "ours"] == [(f"{CONSTANT}[xpu]",)]
    (found,) = (one for one in coverage(cases, load()) if one.test.name == CONSTANT)
    assert {
        identity: {case.backend for case in covering} for identity, covering in found.cases.items()
    } == {
        f"{CONSTANT}[cpu]": set(),
        f"{CONSTANT}[cuda]": {case.backend for case in cases} - {"ours"},
    }
    assert found.missing == (f"{CONSTANT}[cpu]",)


# -- the mechanism ---------------------------------------------------------------------------------

TWO = Upstream(
    (
        UpstreamTest(1, "test_x.py", "test_x.py::A::test_one", (), ("",)),
        UpstreamTest(
            2,
            "test_x.py",
            "test_x.py::A::test_two",
            ("device", "dynamic"),
            ("cpu,true", "cuda,true"),
        ),
    )
)


def test_coverage_counts_cases_and_names_what_is_missing() -> None:
    first = case(
        id="a[backend=cpu]",
        covers=("test_x.py::A::test_two[cpu,true]", "test_x.py::A::test_two[cpu,true]"),
    )
    second = case(
        id="b[backend=rocm]",
        covers=("test_y.py::B::test", "test_x.py::A::test_two[cpu,true]"),
        spec="specs/other.yaml",
    )
    third = replace(first, id=second.id, covers=("test_x.py::A::test_two[cpu,false]",))
    one, two = coverage([first, second, third], TWO)
    assert (one.missing, one.specs) == (("test_x.py::A::test_one",), {})
    assert two.missing == ("test_x.py::A::test_two[cuda,true]",)
    assert two.cases["test_x.py::A::test_two[cpu,true]"] == (first, second)
    assert two.specs == {first.spec: 1, "specs/other.yaml": 1}


# -- the command -----------------------------------------------------------------------------------


@pytest.fixture
def listed(here: Path) -> Path:
    text = (
        f'{GOOD}{used("n")}matrix: {{n: [1, 2]}}\ncovers: [{CLEAR}, "{CONSTANT}[{{{{ device '
        f'}}}}]"]\n'
    )
    return write_specs(Path(), {"one": text}) / "specs"


def test_list_says_the_same_as_json(listed: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["list", "--coverage", "--json", str(listed)]) == ExitCode.OK
    said = json.loads(capsys.readouterr().out)
    Draft202012Validator(spec_schema.load("coverage")).validate(said)
    assert said["totals"] == {
        "tests": 89,
        "covered_tests": 1,
        "instances": 150,
        "covered_instances": 2,
    }
    assert said["tests"][37] == {
        "row": 38,
        "test": CONSTANT,
        "covered": False,
        "instances": [
            {"id": f"{CONSTANT}[cpu]", "cases": ["one[backend=cpu,n=1]", "one[backend=cpu,n=2]"]},
            {"id": f"{CONSTANT}[cuda]", "cases": []},
        ],
        "specs": {"specs/one.yaml": 2},
    }
