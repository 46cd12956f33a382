"""Specs that a credulous runner passes: what is seen of each, and the outcome that it must have."""

import pytest

from runner.core.outcomes import Outcome
from tests.fakes import ROOT, program
from tests.ran import Ran

pytestmark = pytest.mark.torch

SPECS = ROOT / "tests" / "specs" / "proof"

EXPECTED: dict[str, tuple[Outcome, str]] = {
    "past-the-recompile-limit": (Outcome.FELL_BACK, "step 3 (call, line 10) runs as it was compiled"),
    "helper-disabled": (Outcome.FELL_BACK, "it ran none: the call was eager"),
    "errors-suppressed": (Outcome.FELL_BACK, "no lowering today"),
    "compiled-in-the-prelude": (Outcome.FELL_BACK, "observed 0 graphs, 1 calls"),
    "compiled-by-a-helper": (Outcome.FELL_BACK, "it ran 1 for cpu that other code compiled"),
    "reference-compiled-by-a-helper": (Outcome.FAIL, "close: expected output within"),
    "reference-runs-a-graph": (Outcome.ERROR, "the eager reference executed 1 compiled graph"),
    "reference-overwritten": (Outcome.FAIL, "close: expected output within"),
    "argument-changed-otherwise": (Outcome.FAIL, "side-effects: expected argument [0] within"),
    "buffer-changed-otherwise": (Outcome.FAIL, "side-effects: expected function.seen within"),
    "list-changed-otherwise": (Outcome.FAIL, "side-effects: expected argument [1][1] is 2, observed 1"),
    "argument-resized": (Outcome.FAIL, "side-effects: expected argument [0] of shape [4], observed [1, 4]"),
    "difference-meant": (Outcome.PASS, ""),
    "running-statistics": (Outcome.PASS, ""),
    "one-object": (Outcome.ERROR, "'output' and 'inputs.0' are one object"),
    "named-values-are-copies": (Outcome.FAIL, "equals: expected before equal to the value of after"),
    "named-value-cannot-be-copied": (Outcome.ERROR, "which cannot be copied"),
    "subclass-lies": (Outcome.FAIL, "close: expected output within"),
    "measuring-replaced": (Outcome.ERROR, "code of the case replaced runner.vocabulary.expectations.close.differences"),
    "table-replaced": (Outcome.ERROR, "code of the case replaced runner.vocabulary.expectations.MEASURES.close"),
    "code-replaced": (Outcome.ERROR, "code of the case replaced runner.worker.torch_compat.compat.counters"),
    "method-replaced": (Outcome.ERROR, "code of the case replaced runner.worker.case.hooks.Witness.take"),
    "measuring-replaced-late": (Outcome.ERROR, "code of the case replaced runner.worker.case.effects.Effects.after"),
    "step-replaced": (Outcome.ERROR, "code of the case replaced runner.vocabulary.steps.call.Call.runs"),
    "trait-replaced": (Outcome.ERROR, "code of the case replaced runner.vocabulary.steps.delete_modules.DeleteModules.traits"),
    "comparison-replaced": (Outcome.ERROR, "code of the case replaced torch.isnan"),
    "comparison-of-tensors-replaced": (Outcome.ERROR, "code of the case replaced torch.Tensor.abs"),
    "backend-fails-after-a-break": (Outcome.FELL_BACK, "dynamo gave up a frame, which ran eagerly"),
    "given-up-in-a-script": (Outcome.FELL_BACK, "step 1 (script, line 12) runs as it was compiled"),
    "script-runs-eagerly": (Outcome.FELL_BACK, "step 2 (script"),
    "dataclass-changed-otherwise": (Outcome.FAIL, "side-effects: expected argument [1].k within"),
    "object-changed-otherwise": (Outcome.FAIL, "side-effects: expected argument [1].seen is {2}, observed {1}"),
    "set-returned": (Outcome.FAIL, "close: expected output[1] is {'eager'}, observed {'compiled'}"),
    "pytree-replaced": (Outcome.ERROR, "code of the case replaced torch.utils._pytree.tree_flatten_with_path"),
    "copy-is-the-original": (Outcome.ERROR, "is the object itself: see its __deepcopy__"),
    "argument-transposed": (Outcome.FAIL, "side-effects: expected argument [0] is strides [1, 3]"),
    "raises-in-one-call": (Outcome.PASS, ""),
    "dataclass-returned": (Outcome.PASS, ""),
    "array-returned": (Outcome.PASS, ""),
    "float-within-tolerance": (Outcome.PASS, ""),
    "sparse-returned": (Outcome.PASS, ""),
    "reference-does-not-count": (Outcome.PASS, ""),
}


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    out = tmp_path_factory.mktemp("proof") / "out"
    done = program("run", SPECS, "--out", out, timeout=500)
    return Ran(out, done.returncode, done.stdout, done.stderr)


def test_each_spec_has_its_row(ran: Ran) -> None:
    assert {result.name for result in ran.results.values()} == set(EXPECTED)


@pytest.mark.parametrize("name", EXPECTED)
def test_outcome(ran: Ran, name: str) -> None:
    (result,) = [result for result in ran.results.values() if result.name == name]
    outcome, words = EXPECTED[name]
    assert result.outcome is outcome, result.reason
    assert words in result.reason
