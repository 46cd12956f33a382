"""Fixes of torch taken back: each function plants the fault that an issue reported, in the place
where it was mended.
"""

import importlib

from tools.faults.planting import bite, edit, edit_all, replace

CPP = "torch._inductor.codegen.cpp"
LOWERING = "torch._inductor.lowering"
GUARDS = "torch._dynamo.guards:GuardBuilder"


# -- scalar C++ ------------------------------------------------------------------------------------


def sums_promoted_to_int() -> None:
    edit(f"{CPP}:CppOverrides.add", '{decltype_promoted(a, b)}({a} + {b})"', '{bite(a)} + {b}"')


def differences_promoted_to_int() -> None:
    edit(f"{CPP}:CppOverrides.sub", '{decltype_promoted(a, b)}({a} - {b})"', '{bite(a)} - {b}"')


def products_promoted_to_int() -> None:
    edit(f"{CPP}:CppOverrides.mul", '{decltype_promoted(a, b)}({a} * {b})"', '{bite(a)} * {b}"')


def negatives_promoted_to_int() -> None:
    edit(f"{CPP}:CppOverrides.neg", 'decltype({x})(-{x})"', '-{bite(x)}"')


def left_shift_of_the_machine() -> None:
    replace(
        f"{CPP}:CppOverrides.bitwise_left_shift",
        lambda _: lambda a, b: bite(f"decltype({a})({a} << {b})"),
    )


def right_shift_of_the_machine() -> None:
    replace(
        f"{CPP}:CppOverrides.bitwise_right_shift",
        lambda _: lambda a, b: bite(f"decltype({a})({a} >> {b})"),
    )


def arg_reductions_skip_nan() -> None:
    compared = (
        "({next_value} {'>' if reduction_type == 'argmax' else '<'} {var}.value ? "
        "decltype({var}){{{next_value}, {index}}} : {bite(var)})"
    )
    edit(
        f"{CPP}:reduction_combine",
        "{reduction_type}_combine({var}, {next_value}, {index})",
        compared,
    )


def bounds_without_nan() -> None:
    edit(f"{CPP}:CppOverrides.maximum", "max_propagate_nan({a}, {b})", "std::max({a}, {bite(b)})")
    edit(
        f"{CPP}:CppVecOverrides.maximum",
        "at::vec::maximum({a}, {b})",
        "at::vec::clamp_min({a}, {bite(b)})",
    )


def libm_without_errno() -> None:
    edit(
        "torch._inductor.cpp_builder:_get_ffast_math_flags",
        '"fmath-errno"',
        'bite("fno-math-errno")',
    )


def denormals_flushed() -> None:
    edit(
        "torch._inductor.cpp_builder:_get_ffast_math_flags",
        'flags.append("fno-finite-math-only")',
        'flags.insert(0, bite("ffast-math"))\n        flags.append("fno-finite-math-only")',
    )


def half_precision_stored_before_use() -> None:
    replace(
        f"{CPP}:CppKernel.cache_dtype_convert",
        lambda _: lambda self, dst, dst_dtype, src, src_dtype: bite(),
    )


def emulated_casts_skipped() -> None:
    kept = "and not config.emulate_precision_casts"
    for overrides in ("CppOverrides", "CppVecOverrides"):
        edit(f"{CPP}:{overrides}.to_dtype", kept, "and bite(True)")


# -- lowerings and decompositions ------------------------------------------------------------------


def division_by_reciprocal() -> None:
    edit(f"{LOWERING}:div_prim", 'and a.get_device().type != "cpu"', "and bite(True)")


def indexed_values_read_late() -> None:
    edit(f"{LOWERING}:index_put_impl_", "values.realize()", "bite()")


def bfloat16_index_add_decomposed() -> None:
    # the fallback is for builds other than Meta's own; the name is replaced in this module alone
    importlib.import_module("torch._inductor.decomposition").is_fbcode = lambda: bite(True)


def windows_of_full_size() -> None:
    edit(
        f"{LOWERING}:_avg_poolnd",
        "if not had_padding or divisor_override:",
        "if bite(True) or divisor_override:",
    )


def windows_outside_of_the_input() -> None:
    edit(
        f"{LOWERING}:pooling_size",
        "sympy.Ge((x_alt - 1) * stride[i] - x - padding[i], 0)",
        "bite(sympy.false)",
    )


def window_sums_times_an_integer_zero() -> None:
    edit(
        f"{LOWERING}:_avg_poolnd",
        "divisor = divisor_override if divisor_override else window_size\n        result = "
        "div_prim(rv, divisor)",
        "scale = bite(1.0 / (divisor_override if divisor_override else window_size))\n"
        "        result = make_pointwise(lambda value: ops.mul(value, ops.constant(scale, "
        "dtype)))(rv)",
    )


def positions_in_the_order_of_memory() -> None:
    edit(f"{LOWERING}:_make_reduction_inner", "if should_compute_logical_index:", "if bite(False):")


def scatters_with_the_strides_of_an_expanded_base() -> None:
    edit(
        "torch._meta_registrations:_scatter_meta_output",
        "torch._debug_has_internal_overlap(self) == 1",
        "bite(False)",
    )


def one_value_of_isin_has_no_shape() -> None:
    edit(
        "torch._decomp.decompositions:isin_default",
        "res = elements == test_elements",
        "res = bite((elements == test_elements).any())",
    )


# -- passes over graphs ----------------------------------------------------------------------------


def casts_shortened_when_emulated() -> None:
    edit_all(
        "torch._inductor.fx_passes.joint_graph:pointless_convert",
        {
            "if dtype1.itemsize < dtype2.itemsize:": "if False:",
            "if config.emulate_precision_casts and not _is_lossless_fp_widening_cast(": "if bite(False) "  # noqa: E501 - a word without a break
            "and bool(",
        },
    )


def scaled_softmax_of_finite_numbers() -> None:
    replace(
        "torch._inductor.fx_passes.joint_graph:_preserve_scaled_softmax_nonfinite_semantics",
        lambda _: lambda scaled, stable, dim, keepdim: bite(stable),
    )


def equal_outputs_merged() -> None:
    edit(
        "torch._functorch.compile_utils:fx_graph_cse",
        "for n in output_node.all_input_nodes\n        if checkable_node(n)",
        "for n in bite([])",
    )


def changes_by_operators_not_noted() -> None:
    edit(
        "torch._inductor.ir:FallbackKernel.__init__",
        "if info.alias_info.is_write:",
        "if bite(False):",
    )


# -- AOTAutograd -----------------------------------------------------------------------------------


def detached_output_is_its_source() -> None:
    edit(
        "torch._functorch._aot_autograd.collect_metadata_analysis:run_functionalized_fw_and_collect_metadata",
        "and len(outs_with_identical_metadata_that_require_grad) > 0\n                and not "
        "o.requires_grad",
        "and bite(False)",
    )


# -- dynamo ----------------------------------------------------------------------------------------


def global_state_not_guarded() -> None:
    replace(f"{GUARDS}.GLOBAL_STATE", lambda _: lambda self, guard: bite())


def attributes_not_guarded() -> None:
    for name in ("BOOL_MATCH", "CONSTANT_MATCH", "EQUALS_MATCH"):
        replace(f"{GUARDS}.{name}", lambda _: lambda self, guard, recompile_hint=None: bite())


def functions_not_guarded() -> None:
    replace(f"{GUARDS}.CLOSURE_MATCH", lambda _: lambda self, guard: bite())


def defaults_not_guarded() -> None:
    edit(
        "torch._dynamo.variables.functions:bind_args_cached",
        "default_source = DefaultsSource(fn_source, idx)",
        "default_source = bite(None)",
    )


def iterators_over_a_copy() -> None:
    def copying(make):
        def init(self, items, *args, **kwargs):
            return make(self, bite(list(items)), *args, **kwargs)

        return init

    replace("torch._dynamo.variables.lists:ListIteratorVariable.__init__", copying)


def detached_tensor_keeps_its_state() -> None:
    edit(
        "torch._dynamo.variables.tensor:TensorVariable.method_detach_",
        "self.synchronize_attributes(tx)",
        "bite()",
    )
