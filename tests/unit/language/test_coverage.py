"""Coverage is a fact: the committed list of upstream tests, which cases cover each instance, and
what ``covers`` may name.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import Draft202012Validator

from tests.conftest import GOOD, LoadSuite
from tests.fakes import case, shipped_suite, used, write_specs
from torch_conformance.cli.parser import main
from torch_conformance.language.backends import load_backends
from torch_conformance.language.load import Suite
from torch_conformance.language.upstream import (
    KINDS,
    SAME,
    Comparison,
    Covered,
    SeedTest,
    Upstream,
    UpstreamTest,
    coverage,
    load,
    seeds,
)
from torch_conformance.machine import schemas
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


# -- what our specs claim of each seed test --------------------------------------------------------

LEDGER = Path(__file__).resolve().parents[3] / "specs" / "ledger.txt"


def seed_problems(
    tests: Mapping[str, SeedTest],
    files: Mapping[str, Sequence[Comparison]],
    covered: Sequence[Covered],
    ledger: str,
) -> list[str]:
    """Return what is wrong with the data of the seed tests, beside what the specs cover."""
    rows = {row.test.name: row for row in covered}
    problems = [f"{name}: no such row" for name in tests.keys() - rows.keys()]
    problems += [f"{name}: missing" for name in rows.keys() - tests.keys()]
    problems += [f"{name}: files" for name in files.keys() ^ {row.test.file for row in covered}]
    for name in tests.keys() & rows.keys():
        test, cases = tests[name], rows[name].covering
        specs = {f"{case.area}/{case.name}" for case in cases}
        problems += [f"{name}: {spec}" for spec in specs ^ {*test.specs}]
        problems += [f"{name}: {spec} gone" for spec in test.specs if f"\n{spec}[" not in ledger]
        problems += [] if test.reason.endswith(".") else [f"{name}: reason"]
        backends = {case.backend for case in cases}
        entries = (*test.assertions, *test.conditions, *files.get(rows[name].test.file, ()))
        problems += [
            f"{name}: {one}"
            for one in entries
            if one.kind not in KINDS or bool(one.ours) is (one.kind == SAME)
        ]
        named = {place for one in entries for place in one.on}
        problems += [f"{name}: on {place}" for place in named - load_backends().by_name.keys()]
        judged: dict[str, set[str]] = {}
        for one in test.assertions:
            judged.setdefault(one.seed, set()).update(one.on or backends)
        problems += [
            f"{name}: '{seed}' on {', '.join(sorted(backends - on))}"
            for seed, on in judged.items()
            if not seed.startswith("nothing") and backends - on
        ]
    return sorted(problems)


def test_each_seed_test_is_compared_with_the_specs_that_cover_it(suite: Suite) -> None:
    """A row that is missing or stale fails, and an assertion that a backend's case leaves open."""
    tests, files = seeds()
    covered = coverage(suite.cases, load())
    assert seed_problems(tests, files, covered, LEDGER.read_text("utf-8")) == []


CHANGES: Mapping[str, tuple[Callable[[SeedTest], SeedTest], str]] = {
    "another spec": (
        lambda row: replace(row, specs=("codecache/gone",)),
        "codecache/fx-cache-clear",
    ),
    "a further spec": (
        lambda row: replace(row, specs=(*row.specs, "codecache/gone")),
        "codecache/gone gone",
    ),
    "an unknown backend": (
        lambda row: replace(
            row, assertions=(*row.assertions, Comparison("same", "x", "", ("cup",)))
        ),
        "on cup",
    ),
    "an open backend": (
        lambda row: replace(row, assertions=(Comparison("same", "x", "", ("cpu", "cuda")),)),
        "'x' on rocm",
    ),
    "no word of ours": (
        lambda row: replace(row, assertions=(Comparison("looser", "x"),)),
        "kind='looser'",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_stale_row_is_a_problem(suite: Suite, change: str) -> None:
    tests, files = seeds()
    planted, problem = CHANGES[change]
    problems = seed_problems(
        {**tests, CLEAR: planted(tests[CLEAR])},
        files,
        coverage(suite.cases, load()),
        LEDGER.read_text("utf-8"),
    )
    assert problems
    assert any(problem in found and found.startswith(CLEAR) for found in problems)


def test_a_row_that_is_missing_or_unknown_is_a_problem(suite: Suite) -> None:
    tests, _ = seeds()
    others = {**{name: row for name, row in tests.items() if name != CLEAR}, "x": tests[CLEAR]}
    found = seed_problems(others, {}, coverage(suite.cases, load()), LEDGER.read_text("utf-8"))
    assert {f"{CLEAR}: missing", "x: no such row", "test_padding.py: files"} <= {*found}


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
    Draft202012Validator(schemas.load("coverage")).validate(said)
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
        "differences": [],  # the data are about the shipped specs
    }


CLONES = "test_redundant_clone_for_layout_convert"
CLOSE, CONTIGUOUS = "both are close to eager's, atol and rtol 1e-4", "both are contiguous"


@pytest.mark.parametrize(
    ("backend", "joined", "differ"),
    [
        ("cpu", "", {CLOSE, CONTIGUOUS}),
        ("cuda", "", {CLOSE}),
        # what joins a backend differs as it does
        ("ours", "cpu", {CLOSE, CONTIGUOUS}),
        ("ours", "cuda", {CLOSE}),
    ],
)
def test_list_says_in_which_assertions_a_device_differs_from_the_seed(
    here: Path, capsys: pytest.CaptureFixture[str], backend: str, joined: str, differ: set[str]
) -> None:
    options = ["--coverage", f"--backend={backend}"]
    if joined:
        text = XPU.replace("device: xpu", f"device: {joined}").replace("[cuda]", f"[{joined}]")
        Path("ours.yaml").write_text(text)
        options.append("--backends=ours.yaml")
    spec = str(LEDGER.parent / "freezing" / "layout-conversion-single-clone.yaml")
    assert main(["list", "--json", *options, spec]) == ExitCode.OK
    said = json.loads(capsys.readouterr().out)
    Draft202012Validator(schemas.load("coverage")).validate(said)
    (row,) = [test for test in said["tests"] if test["test"].endswith(CLONES)]
    assert {one["seed"] for one in row["differences"]} & {CLOSE, CONTIGUOUS} == differ
    assert {tuple(one["backends"]) for one in row["differences"]} == {(backend,)}
    assert main(["list", *options, spec]) == ExitCode.OK
    printed = capsys.readouterr().out
    assert f"        tighter on {backend}: {CLOSE}; ours: " in printed
    assert printed.count(f" on {backend}: ") == len(row["differences"])
