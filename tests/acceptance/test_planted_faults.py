"""Specs that cannot fail prove nothing: with a fault planted in the workers' torch the right cases turn red, and no others.

A fault is a patch that an import hook makes in the workers alone: nothing of torch on the disk is touched.
Three runs plant one fault each; each of three cases is red under its own fault, and green under another.
"""

import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from runner.model import CaseResult
from runner.outcomes import Outcome
from runner.record import read_run
from tests.fakes import ROOT, environment, program

pytestmark = pytest.mark.torch

HOOK = '''
"""Plants a fault: changes one module of torch after its import."""

import importlib.abc
import importlib.machinery
import os
import sys


def cache_that_never_hits(module):
    module.FxGraphCache._lookup_graph = staticmethod(lambda *args, **kwargs: (None, {}))


def freezing_that_does_nothing(module):
    module.freeze = lambda dynamo_gm, aot_autograd_gm, inputs: (aot_autograd_gm, list(range(len(inputs))))


def relu_that_is_wrong(module):
    import torch

    module.lowerings[torch.ops.aten.relu.default] = lambda x: module.maximum(x, 0.1)


FAULTS = {
    "cache": ("torch._inductor.codecache", cache_that_never_hits),
    "freezing": ("torch._inductor.freezing", freezing_that_does_nothing),
    "relu": ("torch._inductor.lowering", relu_that_is_wrong),
}


class Planter(importlib.abc.MetaPathFinder):
    def __init__(self, name, plant):
        self.name, self.plant = name, plant

    def find_spec(self, name, path, target=None):
        if name != self.name:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        execute = spec.loader.exec_module

        def execute_and_plant(module):
            execute(module)
            self.plant(module)

        spec.loader.exec_module = execute_and_plant
        return spec


if os.environ.get("PLANTED_FAULT"):
    sys.meta_path.insert(0, Planter(*FAULTS[os.environ["PLANTED_FAULT"]]))
'''

SPECS = ROOT / "specs"
RELU = ROOT / "tests" / "specs" / "judged" / "relu.yaml"


@dataclass(frozen=True)
class Subject:
    """A case that a fault must turn red: where it is, and what it must complain of."""

    path: Path
    glob: str
    complaint: str


SUBJECTS = {
    "cache": Subject(
        SPECS / "codecache", "codecache/a-second-compile-is-served-from-the-cache[backend=cpu,dtype=float32,dynamic=false]", "counter"
    ),
    "freezing": Subject(
        SPECS / "freezing", "freezing/a-batch-norm-folds-into-its-convolution[backend=cpu,bias=true,dtype=float32]", "counter"
    ),
    "relu": Subject(RELU, "relu[backend=cpu]", "close"),
}
HEALTHY = {"cache": "relu", "relu": "freezing", "freezing": "cache"}
"""For each fault, the subject that it does not concern."""


@pytest.fixture(scope="module", params=SUBJECTS)
def planted(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Mapping[str, CaseResult], int, str]:
    """Return a fault, the results of its own subject and of a healthy one, the exit code, and what was printed."""
    fault = request.param
    folder = tmp_path_factory.mktemp(fault)
    (folder / "sitecustomize.py").write_text(textwrap.dedent(HOOK))
    variables = environment(PLANTED_FAULT=fault)
    variables["PYTHONPATH"] = f"{folder}:{variables['PYTHONPATH']}"
    subjects = [SUBJECTS[fault], SUBJECTS[HEALTHY[fault]]]
    selection = [word for subject in subjects for word in ("--select", subject.glob)]
    done = program("run", *[subject.path for subject in subjects], *selection, "--out", folder / "out", env=variables)
    results = {str(result.case_id): result for result in read_run(folder / "out" / "run.jsonl").results}
    return fault, results, done.returncode, done.stdout


def test_a_fault_turns_its_own_cases_red_and_no_others(planted):
    fault, results, code, printed = planted
    own, healthy = SUBJECTS[fault], SUBJECTS[HEALTHY[fault]]
    assert set(results) == {own.glob, healthy.glob}, printed
    assert (results[own.glob].outcome, results[own.glob].failure_type) == (Outcome.FAIL, own.complaint), printed
    assert results[healthy.glob].outcome is Outcome.PASS, printed
    assert code == 1


def test_the_complaint_tells_what_the_fault_did(planted):
    fault, results, _, _ = planted
    observed = {verdict.expected: verdict.observed for verdict in results[SUBJECTS[fault].glob].failed}
    if fault == "cache":
        assert observed == {
            "inductor.fxgraph_cache_miss 1": "2",
            "inductor.fxgraph_cache_hit 1": "0",
            "inductor.fxgraph_lookup_write_file 1": "0",
        }
    if fault == "freezing":
        assert observed["inductor.binary_folding 4"] == "0"
    if fault == "relu":
        assert list(observed.values()) == ["greatest difference 0.1; at [0]: 0.10000000149011612 against 0.0"]


def test_every_subject_is_seen_red_and_green():
    assert set(HEALTHY) == set(HEALTHY.values()) == set(SUBJECTS)
    assert all(fault != healthy for fault, healthy in HEALTHY.items())
