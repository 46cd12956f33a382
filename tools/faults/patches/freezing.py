"""Faults of freezing: what is taken for a constant, what is folded and how, what becomes of the
eager module.
"""

from tools.faults.fault import NARROW_ROWS, NO_CANDIDATE, OPTIONS_KEY, RELU, THRESHOLD, VIEW, Fault
from tools.planting import answers, bite, edits, replace

FREEZING = "torch._inductor.freezing"
FOLDING = "torch._inductor.fx_passes.binary_folding:binary_folding_init"
PATTERNS = "torch._inductor.fx_passes.freezing_patterns:addmm_patterns_init"
PARAMETERS = f"{FREEZING}:replace_params_with_constants"
BATCH_NORM = "torch._decomp.decompositions:native_batch_norm_helper"


def freezing_skipped() -> None:
    def unfrozen(_):
        return lambda dynamo_gm, aot_autograd_gm, inputs: bite(
            (aot_autograd_gm, list(range(len(inputs))))
        )

    replace(f"{FREEZING}:freeze", unfrozen)


def discarded_parameters_read_as_zero() -> None:
    def silent(_):
        def dispatch(cls, func, types, args=(), kwargs=None):
            import torch
            from torch.utils import _pytree

            def zeros(value):
                return (
                    torch.zeros(value.shape, dtype=value.dtype) if isinstance(value, cls) else value
                )

            return bite(
                func(*_pytree.tree_map(zeros, args), **_pytree.tree_map(zeros, kwargs or {}))
            )

        return dispatch

    replace(f"{FREEZING}:ErasedTensor.__torch_dispatch__", silent)


def common_parts_computed_twice() -> None:
    replace(f"{FREEZING}:fx_graph_cse", lambda _: lambda graph: bite(graph))
    replace("torch._functorch.compile_utils:fx_graph_cse", lambda _: lambda graph: bite(graph))


FAULTS = (
    Fault(
        "freezing-skipped",
        freezing_skipped,
        "A frozen graph is compiled as it is",
        ("freezing/rng-not-folded[backend=cpu]",),
        NO_CANDIDATE,
    ),
    Fault(
        "constants-not-computed",
        edits(
            "torch._inductor.constant_folding:ConstantFolder.add_node_replacement",
            "self.node_replacements[node] = tensor",
            "bite()",
        ),
        "What depends only on constants is left to each call",
        ("freezing/batch-norm-without-conv[backend=cpu]",),
        RELU,
    ),
    Fault(
        "batch-norm-with-another-eps",
        edits(BATCH_NORM, "torch.sqrt(running_var + eps)", "torch.sqrt(running_var + bite(1e-5))"),
        "A batch norm is folded with the default eps, not its own",
        ("freezing/conv-bn-folds[backend=cpu,bias=true,dtype=bfloat16]",),
        NO_CANDIDATE,
    ),
    Fault(
        "batch-norm-without-eps",
        edits(BATCH_NORM, "torch.sqrt(running_var + eps)", "torch.sqrt(running_var + bite(0.0))"),
        "A batch norm is folded without its eps",
        ("freezing/conv-bn-folds[backend=cpu,bias=false,dtype=bfloat16]",),
        NARROW_ROWS,
    ),
    Fault(
        "batch-norm-of-the-batch",
        edits(BATCH_NORM, "if training:", "if bite(True):"),
        "A batch norm in eval takes the statistics of the batch",
        ("freezing/conv-bn-folds[backend=cpu,bias=true,dtype=float32]",),
        VIEW,
    ),
    Fault(
        "folded-bias-with-the-wrong-sign",
        edits(
            FOLDING,
            "(0 if bias is None else bias, other_reshape),",
            '(0 if bias is None else bias, bite(graph.create_node("call_function", '
            "aten.neg.default, (other_reshape,)))),",
        ),
        "What is added is folded into a bias with the wrong sign",
        ("freezing/conv-bn-folds[backend=cpu,bias=false,dtype=float32]",),
        RELU,
    ),
    Fault(
        "folded-factor-not-applied-to-the-bias",
        edits(
            FOLDING,
            "            if bias is not None:\n",
            "            if bias is not None and bite(False):\n",
        ),
        "A factor is folded into the weight and not into the bias",
        ("freezing/conv-bn-folds[backend=cpu,bias=true,dtype=float32]",),
        "freezing/batch-norm-without-conv[backend=cpu]",
    ),
    # the factor of each output channel is that of its mirror image
    Fault(
        "folded-factor-on-the-wrong-axis",
        edits(
            FOLDING,
            '"call_function", binary_node.target, (conv_args[1], other_reshape1)',
            '"call_function", binary_node.target, '
            '(conv_args[1], bite(graph.create_node("call_function", aten.flip.default, '
            "(other_reshape1, [0]))))",
        ),
        "Factors are folded into the channels in reverse",
        ("freezing/conv-bn-folds[backend=cpu,bias=false,dtype=bfloat16]",),
        NO_CANDIDATE,
    ),
    Fault(
        "nothing-is-folded",
        edits(
            FOLDING,
            "def _is_foldable_pattern(match):\n",
            "def _is_foldable_pattern(match):\n        return bite(False)\n",
        ),
        "No operation is folded into a convolution",
        ("freezing/conv-bn-folds[backend=cpu,bias=true,dtype=bfloat16]",),
        NARROW_ROWS,
    ),
    Fault(
        "shared-weight-folded",
        edits(FOLDING, "if len(conv_node.args[1].users) != 1:", "if bite(False):"),
        "A weight with two uses is folded into",
        ("freezing/shared-conv-weight-not-folded[backend=cpu]",),
        "freezing/conv-bn-folds[backend=cpu,bias=false,dtype=bfloat16]",
    ),
    Fault(
        "shared-result-folded",
        edits(
            FOLDING,
            "CallFunction(aten.convolution.default, *_conv_args, _users=1),",
            "CallFunction(aten.convolution.default, *_conv_args, _users=bite(2)),",
        ),
        "A convolution whose result has two uses is folded into",
        ("freezing/multi-functional-bn-share-conv[backend=cpu]",),
        "freezing/batch-norm-without-conv[backend=cpu]",
    ),
    Fault(
        "wider-factor-folded",
        edits(
            FOLDING,
            'if not conv_node.meta.get("_allow_mixed_dtype_folding", False):\n                    '
            "return False",
            'if not conv_node.meta.get("_allow_mixed_dtype_folding", False):\n                    '
            "return bite(True)",
        ),
        "A factor is folded into a convolution of a narrower dtype",
        ("freezing/wider-dtype-not-folded[backend=cpu,dtype=bfloat16]",),
        "freezing/conv-bn-folds[backend=cpu,bias=true,dtype=bfloat16]",
    ),
    Fault(
        "random-numbers-folded",
        edits(
            "torch._inductor.constant_folding:ConstantFolder.run_node",
            "self.skip_constructors\n",
            'self.skip_constructors and "rand" not in '
            'str(node.target) and "seed" not in '
            "str(node.target)\n",
            "torch.Tag.nondeterministic_seeded in node.target.tags",
            "torch.Tag.nondeterministic_seeded in bite(())",
        ),
        "Random numbers are drawn while compiling, once for all",
        ("freezing/rng-with-input-not-folded[backend=cpu]",),
        VIEW,
    ),
    Fault(
        "changed-parameter-frozen",
        edits(
            PARAMETERS,
            "if i in mutated_inps or i in aliased_input_args:",
            "if bite(i in aliased_input_args):",
        ),
        "A parameter that the graph changes is taken for a constant",
        ("freezing/mutated-parameter-not-returned[backend=cpu]",),
        "freezing/mutated-parameter-not-frozen[backend=cpu]",
    ),
    Fault(
        "returned-parameter-frozen",
        edits(
            PARAMETERS,
            "if i in mutated_inps or i in aliased_input_args:",
            "if bite(i in mutated_inps):",
        ),
        "A parameter that the graph returns is taken for a constant",
        (
            "freezing/returned-parameter-not-frozen[backend=cpu]",
            "freezing/discarded-parameter-views[backend=cpu]",
        ),
        "freezing/rng-not-folded[backend=cpu]",
    ),
    Fault(
        "parameters-not-discarded",
        answers(f"{FREEZING}:invalidate_eager_modules"),
        "The eager module keeps its parameters, and can be called",
        ("freezing/eager-call-after-freezing[backend=cpu,inline=false]",),
        RELU,
    ),
    Fault(
        "discarded-parameters-read-as-zero",
        discarded_parameters_read_as_zero,
        "A discarded parameter reads as zeros, in silence",
        ("freezing/eager-call-after-freezing[backend=cpu,inline=true]",),
        NO_CANDIDATE,
    ),
    Fault(
        "as-strided-in-any-layout",
        answers(f"{FREEZING}:enforce_as_strided_input_layout"),
        "as_strided reads a result in whichever layout it has",
        ("freezing/conv-as-strided[backend=cpu,groups=1]",),
        NARROW_ROWS,
    ),
    Fault(
        "common-parts-computed-twice",
        common_parts_computed_twice,
        "Equal parts of a frozen graph stay apart",
        ("freezing/conv-bn-module-sharing[backend=cpu]",),
        OPTIONS_KEY,
    ),
    Fault(
        "joined-linears-share-a-bias",
        edits(PATTERNS, "cat_b = torch.cat((b1, b2, b3))", "cat_b = torch.cat(bite((b1, b2, b1)))"),
        "Joined linears give the third the bias of the first",
        ("freezing/linear-fusion-unequal-bias[backend=cpu]",),
        THRESHOLD,
    ),
    Fault(
        "unequal-biases-joined",
        edits(PATTERNS, "equal_shape_inputs.append(bias_inputs)", "bite()"),
        "Linears are joined whatever the shapes of their biases",
        ("freezing/linear-fusion-unequal-bias[backend=cpu]",),
        RELU,
    ),
)
