"""Faults of freezing: what is taken for a constant, what is folded and how, what becomes of the
eager module.
"""

from tools.faults.planting import bite, edit, edit_all, replace

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


def frozen_in_spite_of_gradients() -> None:
    edit(
        "torch._inductor.compile_fx:_compile_fx_main",
        "if config.freezing and not torch.is_grad_enabled():",
        "if config.freezing and bite(True):",
    )


def constants_not_computed() -> None:
    edit(
        "torch._inductor.constant_folding:ConstantFolder.add_node_replacement",
        "self.node_replacements[node] = tensor",
        "bite()",
    )


def batch_norm_with_another_eps() -> None:
    edit(BATCH_NORM, "torch.sqrt(running_var + eps)", "torch.sqrt(running_var + bite(1e-5))")


def batch_norm_without_eps() -> None:
    edit(BATCH_NORM, "torch.sqrt(running_var + eps)", "torch.sqrt(running_var + bite(0.0))")


def batch_norm_of_the_batch() -> None:
    edit(BATCH_NORM, "if training:", "if bite(True):")


def folded_bias_with_the_wrong_sign() -> None:
    edit(
        FOLDING,
        "(0 if bias is None else bias, other_reshape),",
        '(0 if bias is None else bias, bite(graph.create_node("call_function", '
        "aten.neg.default, (other_reshape,)))),",
    )


def folded_factor_not_applied_to_the_bias() -> None:
    edit(
        FOLDING,
        "            if bias is not None:\n",
        "            if bias is not None and bite(False):\n",
    )


def folded_factor_on_the_wrong_axis() -> None:
    # the factor of each output channel is that of its mirror image
    edit(
        FOLDING,
        '"call_function", binary_node.target, (conv_args[1], other_reshape1)',
        '"call_function", binary_node.target, '
        '(conv_args[1], bite(graph.create_node("call_function", aten.flip.default, '
        "(other_reshape1, [0]))))",
    )


def nothing_is_folded() -> None:
    edit(
        FOLDING,
        "def _is_foldable_pattern(match):\n",
        "def _is_foldable_pattern(match):\n        return bite(False)\n",
    )


def shared_weight_folded() -> None:
    edit(FOLDING, "if len(conv_node.args[1].users) != 1:", "if bite(False):")


def shared_result_folded() -> None:
    edit(
        FOLDING,
        "CallFunction(aten.convolution.default, *_conv_args, _users=1),",
        "CallFunction(aten.convolution.default, *_conv_args, _users=bite(2)),",
    )


def wider_factor_folded() -> None:
    edit(
        FOLDING,
        'if not conv_node.meta.get("_allow_mixed_dtype_folding", False):\n                    '
        "return False",
        'if not conv_node.meta.get("_allow_mixed_dtype_folding", False):\n                    '
        "return bite(True)",
    )


def random_numbers_folded() -> None:
    edit_all(
        "torch._inductor.constant_folding:ConstantFolder.run_node",
        {
            "self.skip_constructors\n": 'self.skip_constructors and "rand" not in '
            'str(node.target) and "seed" not in '
            "str(node.target)\n",
            "torch.Tag.nondeterministic_seeded in node.target.tags": "torch.Tag.nondeterministic_seeded "  # noqa: E501 - a word without a break
            "in bite(())",
        },
    )


def changed_parameter_frozen() -> None:
    edit(
        PARAMETERS,
        "if i in mutated_inps or i in aliased_input_args:",
        "if bite(i in aliased_input_args):",
    )


def returned_parameter_frozen() -> None:
    edit(
        PARAMETERS,
        "if i in mutated_inps or i in aliased_input_args:",
        "if bite(i in mutated_inps):",
    )


def parameters_not_discarded() -> None:
    replace(f"{FREEZING}:invalidate_eager_modules", lambda _: lambda: bite())


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


def as_strided_in_any_layout() -> None:
    replace(f"{FREEZING}:enforce_as_strided_input_layout", lambda _: lambda gm: bite())


def joined_linears_share_a_bias() -> None:
    edit(PATTERNS, "cat_b = torch.cat((b1, b2, b3))", "cat_b = torch.cat(bite((b1, b2, b1)))")


def unequal_biases_joined() -> None:
    edit(PATTERNS, "equal_shape_inputs.append(bias_inputs)", "bite()")


def common_parts_computed_twice() -> None:
    replace(f"{FREEZING}:fx_graph_cse", lambda _: lambda graph: bite(graph))
    replace("torch._functorch.compile_utils:fx_graph_cse", lambda _: lambda graph: bite(graph))
