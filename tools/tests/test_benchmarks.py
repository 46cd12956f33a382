"""The benchmarks measure what they say: both forms of the cases are the same, and figures come out
as defined.
"""

import ast
import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from torch_conformance.language.read.yaml_source import read

BENCHMARKS = Path(__file__).resolve().parents[2] / "tools" / "benchmarks"


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], ModuleType]:
    monkeypatch.syspath_prepend(BENCHMARKS)
    return lambda name: __import__(name)


# -- the cases, in two forms -----------------------------------------------------------------------


def plain_tests() -> dict[str, ast.FunctionDef]:
    tree = ast.parse((BENCHMARKS / "cases" / "test_cases.py").read_text("utf-8"))
    found = (
        node
        for node in tree.body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    )
    return {node.name.removeprefix("test_").replace("_", "-"): node for node in found}


def specs() -> dict[str, Any]:
    return {path.stem: read(path).data for path in (BENCHMARKS / "specs").glob("*.yaml")}


def as_input(node: ast.expr) -> dict[str, Any]:
    """Return the input of a spec that ``normal(...)`` or ``whole(...)`` of a test stands for."""
    assert isinstance(node, ast.Call)
    if isinstance(node.func, ast.Attribute):
        assert node.func.attr == "requires_grad_"
        return {**as_input(node.func.value), "requires_grad": True}
    assert isinstance(node.func, ast.Name)
    numbers = [ast.literal_eval(argument) for argument in node.args]
    return (
        {"randn": numbers}
        if node.func.id == "normal"
        else {"randint": numbers[1:], "low": 0, "high": numbers[0]}
    )


def as_spec(test: ast.FunctionDef) -> dict[str, Any]:
    """Return the spec that a plain test would be."""
    function, call = test.body[1], test.body[2]
    assert isinstance(function, ast.FunctionDef)
    assert isinstance(call, ast.Expr)
    assert isinstance(call.value, ast.Call)
    options = {keyword.arg: ast.literal_eval(keyword.value) for keyword in call.value.keywords}
    tolerance = options.get("tolerance")
    close = {
        "close": {"to": "eager"}
        if tolerance is None
        else {"to": "eager", "atol": tolerance, "rtol": tolerance}
    }
    backward = options.get("backward", False)
    counter = {
        "counter": {"inductor.fxgraph_cache_miss": 1 + backward, "inductor.fxgraph_cache_hit": 0}
    }
    calls = [
        [as_input(item) for item in argument.elts]
        for argument in call.value.args[1:]
        if isinstance(argument, ast.List)
    ]
    spec: dict[str, Any] = {"summary": ast.get_docstring(test)[:-1], "backends": ["cpu", "cuda"]}  # type: ignore[index]  # each has one
    spec["function"] = ast.unparse(function)
    if options.get("dynamic"):
        spec["compile"] = {"dynamic": True}
    if len(calls) > 1:
        return {
            **spec,
            "steps": [{"call": {"inputs": inputs}, "expect": [close, counter]} for inputs in calls],
        }
    spec["inputs"] = calls[0]
    if backward:
        return {
            **spec,
            "steps": [
                {"call": {}, "expect": [close]},
                {"backward": {}, "expect": [close, counter]},
            ],
        }
    return {**spec, "expect": [close, counter]}


def test_there_are_cases_enough_and_each_has_both_forms() -> None:
    assert len(plain_tests()) >= 24
    assert plain_tests().keys() == specs().keys()


@pytest.mark.parametrize("name", plain_tests())
def test_a_test_and_its_spec_check_the_same(name: str) -> None:
    spec = specs()[name]
    spec["function"] = ast.unparse(ast.parse(spec["function"]))
    assert spec == as_spec(plain_tests()[name])


def test_no_two_cases_compile_the_same_function() -> None:
    assert len({spec["function"] for spec in specs().values()}) == len(specs())


# -- isolation -------------------------------------------------------------------------------------


def turn(
    module: Callable[[str], ModuleType],
    wall: float,
    seconds: dict[str, float] | None = None,
    **sizes: int,
) -> Any:
    cost = {"peak": 0, "first_peak": 0, "template_peak": 0, "template_own": 0, **sizes}
    return module("isolation").Turn(
        cost=module("processes").Cost(wall=wall, cpu=wall, **cost),
        seconds=seconds or {},
        outside={},
        before_first=None,
    )


def test_a_ratio_is_the_median_of_the_rounds_ratios_and_not_that_of_the_medians(
    module: Callable[[str], ModuleType],
) -> None:
    isolation = module("isolation")
    turns = {
        "a": [turn(module, s) for s in (1.0, 10.0, 3.0)],
        "b": [turn(module, s) for s in (2.0, 40.0, 3.0)],
    }
    assert isolation.ratio("a", "b", turns) == 0.5
    assert isolation.ratio("a", "c", turns) is None


def test_the_overhead_is_taken_case_by_case(module: Callable[[str], ModuleType]) -> None:
    isolation = module("isolation")
    ours = turn(module, 9.0, {"x": 1.5, "y": 2.0, "first": 9.0})
    theirs = turn(module, 9.0, {"first": 1.0, "y": 1.75, "x": 1.0})
    assert (
        isolation.overhead({isolation.ONE_AT_A_TIME: [ours], isolation.ONE_PROCESS: [theirs]})
        == 0.5
    )


ORPHAN = """\
import os, sys, time
if os.fork() == 0:
    os.setsid()
    end = time.process_time() + 0.4
    while time.process_time() < end:
        pass
    os._exit(0)
"""

MEASURE = """\
import json, os, sys
from pathlib import Path
from processes import adopt_orphans, measure
adopt_orphans()
cost = measure([[sys.executable, "-c", sys.argv[1]]] * 2, cwd=Path("."), environment=os.environ, cores=frozenset(os.sched_getaffinity(0)),
    interval=0.02, log=Path(sys.argv[2]))
print(json.dumps([cost.wall, cost.cpu, cost.peak, cost.first_peak]))
"""  # noqa: E501 - text that is read by its lines


def test_cpu_seconds_of_what_nobody_waited_for_are_counted(tmp_path: Path) -> None:
    command = [sys.executable, "-c", MEASURE, ORPHAN, str(tmp_path / "log")]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(BENCHMARKS)},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    _, cpu, peak, first = json.loads(done.stdout)
    assert cpu >= 0.8  # two programs, 0.4 s each
    assert peak > 1_000_000
    assert first > 1_000_000


def test_a_contestant_that_fails_is_no_measurement(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-c",
        MEASURE,
        "print('why'); raise SystemExit(3)",
        str(tmp_path / "log"),
    ]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={"PYTHONPATH": str(BENCHMARKS)},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 1
    assert "ended with 3:\nwhy" in done.stderr
