"""Specs that a credulous runner passes: what is seen of each, and the outcome that it must have."""

import pytest

from tests.fakes import ROOT, prestarted_program
from tests.ran import Ran
from torch_conformance.model.outcomes import Outcome

pytestmark = pytest.mark.torch

SPECS = ROOT / "tests" / "specs" / "proof"

EXPECTED: dict[str, tuple[Outcome, str]] = {
    "recompile-limit-exceeded": (
        Outcome.FELL_BACK,
        "step 3 (call, line 10) runs as it was compiled",
    ),
    "disabled-helper": (Outcome.FELL_BACK, "it ran none: the call was eager"),
    "suppressed-lowering-error": (Outcome.FELL_BACK, "no lowering today"),
    "compiled-in-prelude": (Outcome.FELL_BACK, "observed 0 graphs, 1 calls"),
    "helper-compiles-itself": (Outcome.FELL_BACK, "it ran 1 for cpu that other code compiled"),
    "backward-by-helper": (Outcome.FELL_BACK, "step 2 (backward, line 25)"),
    "backward-compiled-late": (Outcome.PASS, ""),
    "backward-without-nodes": (Outcome.PASS, ""),
    "noise-in-bfloat16": (Outcome.PASS, ""),
    "backward-with-nodes-eager": (Outcome.FELL_BACK, "step 2 (backward, line 13)"),
    "nothing-to-compile-at-all": (Outcome.FELL_BACK, "observed 0 graphs, 0 calls"),
    "refused-before-backend": (Outcome.PASS, ""),
    "refused-as-eager": (Outcome.PASS, ""),
    "refused-after-backend": (Outcome.FAIL, "the backend had got 1 graphs of the function"),
    "refused-by-eager": (Outcome.FAIL, "dynamo traced no function of the case: the call was eager"),
    "captured-only-disabled": (
        Outcome.FELL_BACK,
        "it ran eagerly: Skip calling `torch.compiler.disable()`d function",
    ),
    "compiled-though-disabled": (
        Outcome.ERROR,
        "is marked torch.compiler.disable, and torch.compile of fn itself ignores the mark",
    ),
    "captured-dynamo-off": (
        Outcome.FELL_BACK,
        "dynamo traced no frame, and no graph that it had captured was called",
    ),
    "captured-raise-dynamo-off": (
        Outcome.FELL_BACK,
        "it captured none and traced no function of the case",
    ),
    "captured-eager-stance": (
        Outcome.FELL_BACK,
        "step 2 (call, line 12) runs a graph that dynamo captured",
    ),
    "captured-no-operation": (
        Outcome.FELL_BACK,
        "step 1 (call, line 7) runs a graph that dynamo captured",
    ),
    "captured-whole-without-tensors": (Outcome.PASS, ""),
    "captured-around-disabled": (Outcome.PASS, ""),
    "captured-break-is-claimed": (Outcome.PASS, ""),
    "eager-behind-a-graph": (
        Outcome.FELL_BACK,
        "of 4 ran outside of compiled graphs: aten.mm, aten.relu",
    ),
    "eager-part-is-claimed": (Outcome.PASS, ""),
    "small-part-in-eager": (Outcome.PASS, ""),
    "captured-by-own-backend": (Outcome.PASS, ""),
    "labels-of-whole-numbers": (Outcome.FAIL, "close: expected output within"),
    "compiled-helper-in-reference": (Outcome.FAIL, "close: expected output within"),
    "reference-runs-graph": (Outcome.ERROR, "eager: the eager reference executed 1 compiled graph"),
    "code-file-overwritten": (Outcome.ERROR, "code-0-0.txt is not the text that the worker wrote"),
    "overwritten-reference": (Outcome.FAIL, "close: expected output within"),
    "mutated-argument-differs": (Outcome.FAIL, "side-effects: expected argument [0] within"),
    "mutated-buffer-differs": (Outcome.FAIL, "side-effects: expected function.seen within"),
    "mutated-list-differs": (
        Outcome.FAIL,
        "side-effects: expected argument [1][1] is 2, observed 1",
    ),
    "resized-argument": (
        Outcome.FAIL,
        "side-effects: expected argument [0] of shape [4], observed [1, 4]",
    ),
    "side-effects-may-differ": (Outcome.PASS, ""),
    "batch-norm-running-statistics": (Outcome.PASS, ""),
    "output-aliases-input": (Outcome.ERROR, "'output' and 'inputs.0' are one object"),
    "named-value-snapshot": (Outcome.FAIL, "equals: expected before equal to the value of after"),
    "uncopyable-named-value": (Outcome.ERROR, "which cannot be copied"),
    "lying-tensor-subclass": (Outcome.FAIL, "close: expected output within"),
    "replaced-measure-in-prelude": (
        Outcome.ERROR,
        "code of the case replaced torch_conformance.vocabulary.expectations.comparing.differences",
    ),
    "replaced-measure-table": (
        Outcome.ERROR,
        "code of the case replaced torch_conformance.worker.case.additional.KINDS.close",
    ),
    "replaced-code-object": (
        Outcome.ERROR,
        "code of the case replaced torch_conformance.worker.torch_compat.torch_state.counters",
    ),
    "replaced-runner-method": (
        Outcome.ERROR,
        "code of the case replaced "
        "torch_conformance.worker.torch_compat.compiler_hooks.Witness.take",
    ),
    "replaced-measure-in-function": (
        Outcome.ERROR,
        "code of the case replaced torch_conformance.worker.case.effects.Effects.after",
    ),
    "replaced-step-method": (
        Outcome.ERROR,
        "code of the case replaced torch_conformance.vocabulary.steps.call.Call.run",
    ),
    "replaced-step-trait": (
        Outcome.ERROR,
        "code of the case replaced torch_conformance.vocabulary.steps.actions.DeleteModules.traits",
    ),
    "replaced-torch-function": (Outcome.ERROR, "code of the case replaced torch.isnan"),
    "replaced-identity-of-operator": (
        Outcome.ERROR,
        "code of the case replaced torch_conformance.vocabulary.expectations.comparing.differences",
    ),
    "replaced-nonzero": (Outcome.ERROR, "code of the case replaced torch.Tensor.nonzero"),
    "backend-error-after-break": (Outcome.FELL_BACK, "dynamo gave up a frame, which ran eagerly"),
    "script-gives-up-frame": (
        Outcome.FELL_BACK,
        "step 1 (script, line 12) runs as it was compiled",
    ),
    "script-runs-eagerly": (Outcome.FELL_BACK, "step 2 (script"),
    "mutated-dataclass-differs": (Outcome.FAIL, "side-effects: expected argument [1].k within"),
    "mutated-object-differs": (
        Outcome.FAIL,
        "side-effects: expected argument [1].seen as an object is set of int 2, observed set of int 1",  # noqa: E501 - a word without a break
    ),
    "set-output-differs": (
        Outcome.FAIL,
        "close: expected output[1] is {'eager'}, observed {'compiled'}",
    ),
    "replaced-pytree-flatten": (
        Outcome.ERROR,
        "code of the case replaced torch.utils._pytree.tree_flatten_with_path",
    ),
    "deepcopy-returns-self": (
        Outcome.ERROR,
        "with the original: see __deepcopy__ there or above it",
    ),
    "argument-by-keyword-differs": (Outcome.FAIL, "side-effects: expected argument [scale] within"),
    "argument-by-keyword-is-used": (Outcome.FAIL, "close: expected output within"),
    "sum-over-ranks": (Outcome.PASS, ""),
    "wrong-in-rank-one": (Outcome.FAIL, "close: expected rank 1: "),
    "memory-over-its-bound": (Outcome.FAIL, "peak_memory: expected peak memory of a call"),
    "memory-far-below-its-bound": (Outcome.ERROR, "twice the memory"),
    "package-wrong-for-second-size": (Outcome.FAIL, "close: expected output within"),
    "momentum-of-compiled-step-differs": (
        Outcome.FAIL,
        "argument [0].state[Parameter #0]['momentum_buffer'] within",
    ),
    "instances-compiled-once": (Outcome.PASS, ""),
    "transposed-argument": (Outcome.FAIL, "side-effects: expected argument [0] is strides [1, 3]"),
    "expected-raise-in-one-call": (Outcome.PASS, ""),
    "dataclass-output": (Outcome.PASS, ""),
    "numpy-array-output": (Outcome.PASS, ""),
    "float-output-tolerance": (Outcome.PASS, ""),
    "sparse-output": (Outcome.PASS, ""),
    "spy-ignores-reference": (Outcome.PASS, ""),
    "generator-advanced-by-compiled-call": (
        Outcome.FAIL,
        "expected RNG state of cpu unchanged, as eager leaves it, observed advanced",
    ),
    "element-left-unwritten": (
        Outcome.FAIL,
        "poisoned: expected the same bits where fresh memory holds NaN, observed output: 8 of 1000",
    ),
    "detached-output": (
        Outcome.FAIL,
        "side-effects: expected output as an object is torch.Tensor, with a grad_fn, observed "
        "torch.Tensor",
    ),
    "repeated-effect-differs": (Outcome.FAIL, "side-effects: expected function.mean within"),
    "function-of-its-dtype": (Outcome.FAIL, "the function depends on the dtype of its tensors"),
    "no-right-digit": (
        Outcome.FAIL,
        "close: expected output within 2 x eager's error against float64",
    ),
    "absent-at-this-stage": (Outcome.ERROR, "and no operator of aten"),
    "autocast-gradients": (Outcome.PASS, ""),
    "gradient-of-buffer-differs": (
        Outcome.FAIL,
        "side-effects: expected function.scale.grad within",
    ),
    "replaced-state": (Outcome.PASS, ""),
    "optimizer-in-argument": (Outcome.PASS, ""),
    "scheduler-in-argument": (Outcome.PASS, ""),
    "sound-order-unguarded": (Outcome.FAIL, "observed global K: move_to_end: eager"),
    "sound-overlap-unguarded": (Outcome.FAIL, "argument [0] and [1]: overlapping views: eager"),
    "sound-operator-on-disk": (Outcome.FAIL, "for both values of change correct"),
    "sound-nothing-cached": (Outcome.ERROR, "nothing was cached"),
    "sound-module-passes": (Outcome.PASS, ""),
    "sound-nothing-observed": (Outcome.ERROR, "no fact was observed: the call has none"),
    "dict-order-differs": (Outcome.FAIL, "is dict('a', 'b'), observed dict('b', 'a')"),
    "nan-only-in-eager": (
        Outcome.FAIL,
        "observed eager has NaN in 64 of 64 elements, compiled in none",
    ),
    "layout-other-than-eager": (Outcome.FAIL, "strides [1, 8]"),
    "raises-other-than-eager": (Outcome.FAIL, "raises: expected"),
    "dropout-draws-other-numbers": (
        Outcome.FAIL,
        "Inductor draws others: write config: {fallback_random: true}",
    ),
    "losing-candidate-is-wrong": (Outcome.FAIL, "candidate off_by_one: error of "),
    "norm-in-place-on-float": (
        Outcome.FAIL,
        "float64 is farther from eager than rounding explains",
    ),
    "double-copy-is-work-space": (
        Outcome.FAIL,
        "float64 is farther from eager than rounding explains",
    ),
    "float-noop-alias": (Outcome.FAIL, "float64 is farther from eager than rounding explains"),
    "float64-noop-alias": (Outcome.FAIL, "float64 is farther from eager than rounding explains"),
    "float32-of-bfloat16": (Outcome.FAIL, "eager has no error"),
    "mean-under-autocast": (Outcome.FAIL, "within 2 x eager's error against float64"),
    "float8-within-the-function": (Outcome.FAIL, "eager's error against float64"),
    "dropped-cast-is-the-answer": (Outcome.FAIL, "eager's error against float64"),
    "small-values-after-random-numbers": (Outcome.FAIL, "eager's error against float64"),
    "small-value-among-large": (Outcome.FAIL, "eager's error against float64"),
    "slightly-wrong-beside-zeros": (Outcome.FAIL, "the median error of"),
    "small-values-beside-a-sparse-input": (
        Outcome.FAIL,
        "within 2 x what other roundings change of eager (no float64 reference: ",
    ),
    "element-size-decides": (Outcome.FAIL, "float64 is farther from eager than rounding explains"),
    "buffers-share-memory": (Outcome.FAIL, "within 2 x eager's error against float64"),
    "arguments-of-a-step-share-memory": (Outcome.FAIL, "within 2 x eager's error against float64"),
    "overlapping-arguments-stale": (Outcome.FAIL, "within 2 x eager's error against float64"),
    "small-normal-zeros": (Outcome.FAIL, "6.38 times the bound"),
    "small-python-float": (Outcome.FAIL, "observed 0.0"),
    "layer-norm-large-mean": (Outcome.PASS, ""),
    "softmax-sum-gradient": (Outcome.PASS, ""),
    "residual-block-sgd": (Outcome.PASS, ""),
    "bias-before-batch-norm": (Outcome.PASS, ""),
    "result-strides-differ": (
        Outcome.FAIL,
        "close: expected output of strides [6, 1], observed [1, 4]",
    ),
    "results-share-memory": (
        Outcome.FAIL,
        "expected output[1] is memory of its own, observed the tensor output[0]",
    ),
    "view-at-another-offset": (Outcome.FAIL, "16 bytes from its first element"),
    "earlier-result-overwritten": (
        Outcome.FAIL,
        "as it was when the earlier call returned it, observed changed in 16 of 16",
    ),
    "tuple-for-size": (Outcome.FAIL, "[1] of class torch.Size"),
    "object-always-equal": (Outcome.FAIL, "expected output[1]['loss'] is 3.0, observed 2.0"),
    "strided-for-jagged": (Outcome.FAIL, "nested torch.jagged with offsets [0, 3, 5]"),
    "leaf-for-result": (Outcome.FAIL, "with a grad_fn, observed torch.Tensor, a leaf"),
    "expanded-result-differs": (
        Outcome.FAIL,
        "close: expected output of strides [0], observed [1]",
    ),
    "results-no-longer-share": (
        Outcome.FAIL,
        "expected output[1] is a view of the memory of output[0], observed memory of its own",
    ),
    "overwritten-in-repetition": (Outcome.FAIL, "expected global kept[0] of type Absent"),
    "memory-of-earlier-result": (Outcome.FAIL, "the result of an earlier call"),
    "closure-differs": (
        Outcome.FAIL,
        "expected output[1]['<scale>'] is 3.0, observed 2.0",
    ),
    "class-attribute-differs": (
        Outcome.FAIL,
        "expected global Counted.calls is 1, observed 0",
    ),
    "deep-object-differs": (Outcome.FAIL, "child.count is 1, observed 0"),
    "array-differs": (Outcome.FAIL, "expected argument [1] content is \"array('i', [1, 0])\""),
    "memory-beside-a-view": (
        Outcome.FAIL,
        "outside of the tensors of the call is as before the call",
    ),
    "state-of-bound-method-differs": (
        Outcome.FAIL,
        "expected function.put.__self__.n is 1, observed 2",
    ),
    "list-of-class-differs": (
        Outcome.FAIL,
        "expected global M.log[0]",
    ),
    "hook-of-argument-differs": (
        Outcome.FAIL,
        "a leaf with requires_grad, backward hook keep, observed",
    ),
    "uncoalesced-result": (Outcome.FAIL, "[0] torch.sparse_coo uncoalesced, observed"),
    "strides-of-buffer-differ": (Outcome.FAIL, "expected function.w is strides [6, 1]"),
    "attribute-of-result-differs": (
        Outcome.FAIL,
        "output['scale'] is 4, observed 3",
    ),
    "class-of-dict-differs": (Outcome.FAIL, "the value of class Out('logits'), observed"),
    "pytree-class-output": (Outcome.PASS, ""),
    "dict-subclass-output": (Outcome.PASS, ""),
    "namespace-output": (Outcome.PASS, ""),
    "closure-output": (Outcome.PASS, ""),
    "views-as-results": (Outcome.PASS, ""),
    "complex-result": (Outcome.PASS, ""),
    "views-with-gradients": (Outcome.PASS, ""),
    "quantized-output": (Outcome.PASS, ""),
    "state-in-closures-and-classes": (Outcome.PASS, ""),
    "state-in-globals": (Outcome.PASS, ""),
    "global-average-slightly-wrong": (Outcome.FAIL, "global state['average'] within"),
    "global-changed-by-compiled-alone": (Outcome.FAIL, "global seen[0] of type Absent"),
    "generator-cannot-be-set-back": (
        Outcome.ERROR,
        "another answer: global numbers (generator) cannot be set back",
    ),
    "parameter-of-global-module-replaced": (
        Outcome.FAIL,
        "identity of global net.weight is the object at global net.weight",
    ),
    "state-of-every-kind": (Outcome.PASS, ""),
    "storage-freed-in-call": (Outcome.PASS, ""),
    "global-counter-forgotten": (
        Outcome.FAIL,
        "expected global counter is 1, observed 0",
    ),
    "global-tensor-forgotten": (Outcome.FAIL, "expected global total within"),
    "global-object-forgotten": (
        Outcome.FAIL,
        "expected global stats.n is 1, observed 0",
    ),
    "global-module-differs": (Outcome.FAIL, "global norm.running_mean within"),
    "global-model-trained": (Outcome.PASS, ""),
    "global-made-by-the-function": (Outcome.PASS, ""),
    "globals-of-the-compiler": (Outcome.PASS, ""),
    "class-counts-passes": (Outcome.PASS, ""),
    "zip-output": (Outcome.PASS, ""),
    "iterator-output": (Outcome.PASS, ""),
    "buffer-as-result": (Outcome.PASS, ""),
    "class-attribute-counted": (Outcome.PASS, ""),
    "flush-denormal-left-on": (Outcome.FAIL, "expected flushing of subnormal numbers is False"),
    "tiny-update-dropped": (Outcome.FAIL, "the median error of tensor"),
    "factor-left-out-in-a-block": (
        Outcome.FAIL,
        "the median error of neighbours, 3 of 4 is",
    ),
    "right-small-updates": (Outcome.PASS, ""),
    "small-update-of-result-dropped": (Outcome.FAIL, "the median error of tensor"),
    "decay-beside-update-dropped": (Outcome.FAIL, "the median error of tensor"),
    "group-norm-before-instance-norm": (Outcome.PASS, ""),
    "float64-bias-before-batch-norm": (Outcome.PASS, ""),
    "equal-gradients-of-batch-norm": (Outcome.PASS, ""),
    "quantised-in-float32": (Outcome.PASS, ""),
    "scalars-slightly-wrong": (Outcome.FAIL, "median error of 30 elements of small values"),
    "sign-of-zero-in-other-rows": (
        Outcome.FAIL,
        "112 of 128 elements changed that eager does not write",
    ),
    "default-argument-is-state": (
        Outcome.FAIL,
        "expected function(seen=)[0] of type int, observed Absent",
    ),
    "closure-is-state": (
        Outcome.FAIL,
        "expected function.inner<seen>[0] of type int, observed Absent",
    ),
    "hook-registered-between-calls": (Outcome.FAIL, "close: expected output[0] within"),
    "weight-filled-between-calls": (Outcome.FAIL, "close: expected output within"),
    "attribute-set-between-calls": (Outcome.PASS, ""),
    "eval-between-calls": (Outcome.PASS, ""),
    "let-value-changed-between-calls": (Outcome.PASS, ""),
    "momentum-across-a-change": (Outcome.PASS, ""),
    "judged-value-left-alone": (Outcome.PASS, ""),
    "input-with-hook": (Outcome.PASS, ""),
    "lambda-closes-over-module": (Outcome.PASS, ""),
    "closures-in-a-list": (Outcome.PASS, ""),
    "references-to-the-module": (Outcome.PASS, ""),
    "subclass-without-deepcopy": (Outcome.PASS, ""),
    "bound-far-above": (
        Outcome.ERROR,
        "this kernels cannot fail: it also holds with far more than observed of launched",
    ),
    "misspelt-name-raises": (
        Outcome.ERROR,
        "this raises cannot fail: it also holds with another text",
    ),
    "differs-from-another-class": (
        Outcome.ERROR,
        "this differs cannot fail: it also holds with any value of its form of output: "
        "list against number",
    ),
    "forbidden-word-misspelt": (Outcome.ERROR, "the word cpp_fused_sqrtt; observed here: "),
    "differs-in-length": (
        Outcome.ERROR,
        "this differs cannot fail: it also holds with any value of its form of first: 4 "
        "elements against 3",
    ),
    "differs-between-objects": (Outcome.ERROR, "this differs cannot fail"),
    "node-of-every-graph": (
        Outcome.ERROR,
        "this graph cannot fail: it also holds with what x + 1 has of ops placeholder",
    ),
    "child-exits-early": (
        Outcome.ERROR,
        "the child exited with code 0 before its function returned",
    ),
    "python-values-differ": (Outcome.FAIL, "close: expected output[1]"),
    "python-values": (Outcome.PASS, ""),
    "update-is-all": (Outcome.PASS, ""),
    "update-that-is-all-lost": (Outcome.FAIL, "side-effects: expected argument [0] within"),
    "nothing-returned-or-changed": (Outcome.ERROR, "nothing to compare"),
    "gradients-of-the-spec": (Outcome.PASS, ""),
    "gradient-of-the-spec-kept": (
        Outcome.FAIL,
        "argument [0].grad of type Absent, observed tensor",
    ),
    "dataclass-differentiated": (Outcome.PASS, ""),
    "attribute-made-by-eager-alone": (
        Outcome.FAIL,
        "expected global Counted.calls of type int, observed Absent",
    ),
    "closure-of-a-global-differs": (
        Outcome.FAIL,
        "count> is 1, observed 0",
    ),
    "forms-of-inputs": (Outcome.PASS, ""),
    "lock-in-a-module": (Outcome.PASS, ""),
}


IN_CI = (
    # what ran was not what was compiled
    "disabled-helper refused-before-backend refused-after-backend refused-by-eager "
    "captured-only-disabled captured-dynamo-off eager-behind-a-graph "
    "compiled-though-disabled misspelt-name-raises child-exits-early "
    "captured-raise-dynamo-off captured-eager-stance "
    "captured-no-operation compiled-in-prelude script-runs-eagerly suppressed-lowering-error "
    # the reference, or what a call changes, is not what it seems
    "overwritten-reference mutated-buffer-differs resized-argument repeated-effect-differs "
    "gradient-of-buffer-differs replaced-state "
    "result-strides-differ results-share-memory memory-of-earlier-result "
    "class-attribute-differs global-counter-forgotten "
    "update-that-is-all-lost python-values-differ gradient-of-the-spec-kept "
    "output-aliases-input uncopyable-named-value "
    "float-noop-alias buffers-share-memory "
    # code of the case lies to the judge
    "lying-tensor-subclass replaced-measure-table replaced-step-method replaced-step-trait "
    "replaced-torch-function "
    "deepcopy-returns-self "
    # what is right passes
    "captured-whole-without-tensors captured-around-disabled captured-break-is-claimed "
    "small-part-in-eager eager-part-is-claimed "
    "captured-by-own-backend "
    "expected-raise-in-one-call dataclass-output pytree-class-output dict-subclass-output "
    "views-as-results python-values state-of-every-kind storage-freed-in-call "
    "generator-cannot-be-set-back global-average-slightly-wrong "
    "update-is-all gradients-of-the-spec dataclass-differentiated forms-of-inputs "
).split()
"""Specs that every run of the tests runs: of each class those that compile little.

The nightly tests run all others.
"""

NIGHTLY = pytest.mark.nightly(reason="every run of the tests runs other specs of its class")
ROWS = [pytest.param(name, marks=() if name in IN_CI else NIGHTLY) for name in EXPECTED]


@pytest.fixture(scope="module")
def ran(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Return one run of the specs of the selected tests."""
    mine = (
        item
        for item in request.session.items
        if item.path == request.path and "ran" in getattr(item, "fixturenames", ())
    )
    names = sorted({item.callspec.params["name"] for item in mine})
    out = tmp_path_factory.mktemp("proof") / "out"
    done = prestarted_program(
        "run", *(SPECS / f"{name}.yaml" for name in names), "--out", out, timeout=500
    )
    return Ran(out, done.returncode, done.stdout, done.stderr)


def test_each_spec_has_its_row() -> None:
    assert {path.stem for path in SPECS.glob("*.yaml")} == set(EXPECTED)
    assert set(IN_CI) <= set(EXPECTED)


@pytest.mark.parametrize("name", ROWS)
def test_outcome(ran: Ran, name: str) -> None:
    outcome, words = EXPECTED[name]
    results = [result for result in ran.results.values() if result.name == name]
    assert results
    for result in results:
        assert result.outcome is outcome, result.reason
        assert words in result.reason
