"""Fixes of torch taken back: each function plants the fault that an issue reported, in the place
where it was mended.
"""

import importlib
from collections.abc import Callable
from functools import partial

from tools.faults.fault import CONFIG_KEY, Fault
from tools.planting import answers, bite, edit, edits, replace

CPP = "torch._inductor.codegen.cpp"
LOWERING = "torch._inductor.lowering"
GUARDS = "torch._dynamo.guards:GuardBuilder"


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


def emulated_casts_skipped() -> None:
    condition = "and not config.emulate_precision_casts"
    for overrides in ("CppOverrides", "CppVecOverrides"):
        edit(f"{CPP}:{overrides}.to_dtype", condition, "and bite(True)")


def bfloat16_index_add_decomposed() -> None:
    # the fallback is for builds other than Meta's own; the name is replaced only in this module
    importlib.import_module("torch._inductor.decomposition").is_fbcode = lambda: bite(True)


def attributes_not_guarded() -> None:
    for name in ("BOOL_MATCH", "CONSTANT_MATCH", "EQUALS_MATCH"):
        replace(f"{GUARDS}.{name}", lambda _: lambda self, guard, recompile_hint=None: bite())


def iterators_over_a_copy() -> None:
    def copying(make):
        def init(self, items, *args, **kwargs):
            return make(self, bite(list(items)), *args, **kwargs)

        return init

    replace("torch._dynamo.variables.lists:ListIteratorVariable.__init__", copying)


def regression(name: str, plant: Callable[[], None], breaks: str, *specs: str) -> Fault:
    """Return the fault that specs of ``specs/regressions`` were written for."""
    return Fault(
        name, plant, breaks, tuple(f"regressions/{spec}[backend=cpu]" for spec in specs), CONFIG_KEY
    )


FAULTS = (
    regression(
        "sums-promoted-to-int",
        edits(
            f"{CPP}:CppOverrides.add", '{decltype_promoted(a, b)}({a} + {b})"', '{bite(a)} + {b}"'
        ),
        "A sum of small integers is promoted to int and not cast back",
        "uint8-sum-wraps",
    ),
    regression(
        "differences-promoted-to-int",
        edits(
            f"{CPP}:CppOverrides.sub", '{decltype_promoted(a, b)}({a} - {b})"', '{bite(a)} - {b}"'
        ),
        "A difference of small integers is promoted to int and not cast back",
        "int8-difference-wraps",
    ),
    regression(
        "products-promoted-to-int",
        edits(
            f"{CPP}:CppOverrides.mul", '{decltype_promoted(a, b)}({a} * {b})"', '{bite(a)} * {b}"'
        ),
        "A product of small integers is promoted to int and not cast back",
        "int8-product-wraps",
        "int8-product-then-abs",
    ),
    regression(
        "negatives-promoted-to-int",
        edits(f"{CPP}:CppOverrides.neg", 'decltype({x})(-{x})"', '-{bite(x)}"'),
        "The negative of a small integer is promoted to int and not cast back",
        "uint8-negation-wraps",
    ),
    regression(
        "left-shift-of-the-machine",
        partial(
            replace,
            f"{CPP}:CppOverrides.bitwise_left_shift",
            lambda _: lambda a, b: bite(f"decltype({a})({a} << {b})"),
        ),
        "A left shift by the width of the type is the machine's",
        "left-shift-beyond-width",
    ),
    regression(
        "right-shift-of-the-machine",
        partial(
            replace,
            f"{CPP}:CppOverrides.bitwise_right_shift",
            lambda _: lambda a, b: bite(f"decltype({a})({a} >> {b})"),
        ),
        "A right shift by the width of the type is the machine's",
        "right-shift-beyond-width",
    ),
    regression(
        "arg-reductions-skip-nan",
        arg_reductions_skip_nan,
        "argmax and argmin compare NaN as any number",
        "argmax-first-nan",
    ),
    regression(
        "bounds-without-nan",
        bounds_without_nan,
        "A maximum loses the NaN of one operand",
        "clamp-keeps-nan",
    ),
    regression(
        "libm-without-errno",
        edits(
            "torch._inductor.cpp_builder:_get_ffast_math_flags",
            '"fmath-errno"',
            'bite("fno-math-errno")',
        ),
        "The C++ compiler may rewrite calls of the math library",
        "nan-through-atan-sin",
    ),
    regression(
        "denormals-flushed",
        edits(
            "torch._inductor.cpp_builder:_get_ffast_math_flags",
            'flags.append("fno-finite-math-only")',
            'flags.insert(0, bite("ffast-math"))\n        flags.append("fno-finite-math-only")',
        ),
        "Loading a kernel makes the processor flush denormals",
        "denormals-kept",
    ),
    regression(
        "half-precision-stored-before-use",
        answers(f"{CPP}:CppKernel.cache_dtype_convert"),
        "A bfloat16 value that is stored is read back rounded",
        "bfloat16-with-extra-output",
        "float16-with-extra-output",
    ),
    regression(
        "emulated-casts-skipped",
        emulated_casts_skipped,
        "emulate_precision_casts does not reach the C++ code",
        "half-casts-emulated",
    ),
    regression(
        "division-by-reciprocal",
        edits(f"{LOWERING}:div_prim", 'and a.get_device().type != "cpu"', "and bite(True)"),
        "A division by a constant is a product with its reciprocal on the CPU",
        "division-by-constant-rounds",
    ),
    regression(
        "indexed-values-read-late",
        edits(f"{LOWERING}:index_put_impl_", "values.realize()", "bite()"),
        "Values of an indexed update are read while the update is written",
        "overlapping-index-put",
    ),
    regression(
        "bfloat16-index-add-decomposed",
        bfloat16_index_add_decomposed,
        "index_add in bfloat16 is decomposed",
        "index-add-bfloat16",
    ),
    regression(
        "windows-of-full-size",
        edits(
            f"{LOWERING}:_avg_poolnd",
            "if not had_padding or divisor_override:",
            "if bite(True) or divisor_override:",
        ),
        "Border windows of an average pool are divided by the full size",
        "average-pool-ceil-mode",
    ),
    regression(
        "windows-outside-of-the-input",
        edits(
            f"{LOWERING}:pooling_size",
            "sympy.Ge((x_alt - 1) * stride[i] - x - padding[i], 0)",
            "bite(sympy.false)",
        ),
        "A pool has a window that begins outside of the input",
        "max-pool-ceil-mode",
    ),
    regression(
        "window-sums-times-an-integer-zero",
        edits(
            f"{LOWERING}:_avg_poolnd",
            "divisor = divisor_override if divisor_override else window_size\n        result = "
            "div_prim(rv, divisor)",
            "scale = bite(1.0 / (divisor_override if divisor_override else window_size))\n"
            "        result = make_pointwise(lambda value: ops.mul(value, ops.constant(scale, "
            "dtype)))(rv)",
        ),
        "The sum of a window of integers is multiplied by a fraction cut to zero",
        "integer-average-pool",
    ),
    regression(
        "positions-in-the-order-of-memory",
        edits(
            f"{LOWERING}:_make_reduction_inner",
            "if should_compute_logical_index:",
            "if bite(False):",
        ),
        "argmax counts in the order of memory",
        "argmax-of-transposed-update",
        "argmin-of-transposed-update",
    ),
    regression(
        "scatters-with-the-strides-of-an-expanded-base",
        edits(
            "torch._meta_registrations:_scatter_meta_output",
            "torch._debug_has_internal_overlap(self) == 1",
            "bite(False)",
        ),
        "A scatter into an expanded tensor keeps its zero strides",
        "slice-scatter-gradient",
        "slice-scatter-gradient-vector",
        "slice-scatter-gradient-middle",
        "diagonal-scatter-gradient",
    ),
    regression(
        "one-value-of-isin-has-no-shape",
        edits(
            "torch._decomp.decompositions:isin_default",
            "res = elements == test_elements",
            "res = bite((elements == test_elements).any())",
        ),
        "isin with one test value is reduced to one answer",
        "isin-of-one-value",
    ),
    regression(
        "casts-shortened-when-emulated",
        edits(
            "torch._inductor.fx_passes.joint_graph:pointless_convert",
            "if dtype1.itemsize < dtype2.itemsize:",
            "if False:",
            "if config.emulate_precision_casts and not _is_lossless_fp_widening_cast(",
            "if bite(False) and bool(",
        ),
        "A chain of casts is shortened under emulate_precision_casts",
        "half-cast-chain-kept",
    ),
    regression(
        "scaled-softmax-of-finite-numbers",
        partial(
            replace,
            "torch._inductor.fx_passes.joint_graph:_preserve_scaled_softmax_nonfinite_semantics",
            lambda _: lambda scaled, stable, dim, keepdim: bite(stable),
        ),
        "The stable form of a scaled softmax is used where the scaled input overflows",
        "scaled-softmax-of-infinities",
    ),
    regression(
        "equal-outputs-merged",
        edits(
            "torch._functorch.compile_utils:fx_graph_cse",
            "for n in output_node.all_input_nodes\n        if checkable_node(n)",
            "for n in bite([])",
        ),
        "Equal outputs of a graph are computed once and returned twice",
        "enable-grad-inside-no-grad",
    ),
    regression(
        "detached-output-is-its-source",
        edits(
            "torch._functorch._aot_autograd.collect_metadata_analysis:"
            "run_functionalized_fw_and_collect_metadata",
            "and len(outs_with_identical_metadata_that_require_grad) > 0\n                and not "
            "o.requires_grad",
            "and bite(False)",
        ),
        "A detached alias of an output is returned as that output",
        "output-and-its-detached",
    ),
    regression(
        "global-state-not-guarded",
        answers(f"{GUARDS}.GLOBAL_STATE"),
        "The global state of torch is not guarded",
        "default-dtype-guard",
    ),
    regression(
        "attributes-not-guarded",
        attributes_not_guarded,
        "Constants in attributes are not guarded",
        "module-attribute-guard",
        "renamed-attribute-of-model",
        "attribute-of-plain-object",
    ),
    regression(
        "functions-not-guarded",
        answers(f"{GUARDS}.CLOSURE_MATCH"),
        "The code of a global function is not guarded",
        "global-function-guard",
    ),
    regression(
        "defaults-not-guarded",
        edits(
            "torch._dynamo.variables.functions:bind_args_cached",
            "default_source = DefaultsSource(fn_source, idx)",
            "default_source = bite(None)",
        ),
        "Default arguments of a function are not guarded",
        "default-argument-guard",
    ),
    regression(
        "iterators-over-a-copy",
        iterators_over_a_copy,
        "A loop over a list iterates over a copy",
        "list-grows-while-iterated",
    ),
    regression(
        "detached-tensor-keeps-its-state",
        edits(
            "torch._dynamo.variables.tensor:TensorVariable.method_detach_",
            "self.synchronize_attributes(tx)",
            "bite()",
        ),
        "detach_ does not change what is known of its tensor",
        "detach-in-place",
    ),
    regression(
        "changes-by-operators-not-noted",
        edits(
            "torch._inductor.ir:FallbackKernel.__init__",
            "if info.alias_info.is_write:",
            "if bite(False):",
        ),
        "What a custom operator writes is not noted",
        "custom-op-changes-argument",
    ),
)
