"""Faults between the function and its kernels: dynamo, AOTAutograd, lowerings, generated code."""

import importlib
from functools import partial

from tools.faults.fault import (
    ARGUMENT_KEY,
    CHANNELS_LAST,
    CONFIG_KEY,
    CONSTANT_KEY,
    KERNELS,
    NARROW_ROWS,
    NEW_SIZES,
    NO_CANDIDATE,
    RELU,
    SECOND_BFLOAT16_DYNAMIC,
    THRESHOLD,
    VIEW,
    Fault,
)
from tools.planting import answers, bite, edit, edits, replace, replace_item

LOWERINGS = "torch._inductor.lowering:lowerings"
CPP = "torch._inductor.codegen.cpp"


def nothing_compiled_after_a_graph_break() -> None:
    def skipping(convert):
        def convert_or_skip(self, frame, *args, **kwargs):
            from torch._dynamo.types import ConvertFrameReturn

            if "resume" in frame.f_code.co_name:
                return bite(ConvertFrameReturn())
            return convert(self, frame, *args, **kwargs)

        return convert_or_skip

    replace("torch._dynamo.convert_frame:ConvertFrameAssert.__call__", skipping)


def sizes_not_guarded() -> None:
    # the guard of a tensor contains a static size, a relation between dynamic ones in that of
    # the shapes
    replace("torch._dynamo.guards:GuardBuilder.SHAPE_ENV", lambda _: lambda self, guard: bite())
    replace(
        "torch._dynamo.guards:GuardBuilder.TENSOR_MATCH",
        lambda _: lambda self, guard, value=None: bite(),
    )


def dynamic_sizes_taken_for_static() -> None:
    def static(compile_):
        def compile_static(*args, dynamic=None, **kwargs):
            return compile_(*args, dynamic=bite(False) if dynamic else dynamic, **kwargs)

        return compile_static

    replace("torch:compile", static)


def _gradients(change):
    """Change the gradients that a compiled backward returns: a list in, a list out."""

    def changing(make):
        def epilogue_of(*args, **kwargs):
            epilogue = make(*args, **kwargs)
            return lambda out, *more: tuple(change(list(epilogue(out, *more))))

        return epilogue_of

    replace("torch._functorch._aot_autograd.runtime_wrappers:_codegen_backward_epilogue", changing)


def a_gradient_dropped() -> None:
    def without_the_first(gradients):
        indices = [index for index, gradient in enumerate(gradients) if gradient is not None]
        if indices:
            gradients[indices[0]] = bite(None)
        return gradients

    _gradients(without_the_first)


def gradients_doubled() -> None:
    _gradients(
        lambda gradients: [
            None if gradient is None else bite(gradient * 2) for gradient in gradients
        ]
    )


def changes_of_arguments_dropped() -> None:
    replace_item(
        LOWERINGS, _aten().copy_.default, lambda _: lambda dst, src, non_blocking=False: bite(dst)
    )


def results_a_little_too_large() -> None:
    """A factor that each tolerance that a spec wrote must refuse: 1.0001, or two units in the last
    place where that is more.
    """

    def scaled(value):
        torch = _torch()
        if not isinstance(value, torch.Tensor) or not value.is_floating_point():
            return value
        larger = value * (1 + max(1e-4, 2 * torch.finfo(value.dtype).eps))
        # compiled backward code reads padded rows as they were
        result = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        return bite(result.copy_(larger))

    replace(
        "torch._inductor.output_code:CompiledFxGraph.__call__",
        lambda call: lambda self, inputs: [scaled(value) for value in call(self, inputs)],
    )


def _torch():
    import torch
    import torch._inductor.lowering

    return torch


def _aten():
    return _torch().ops.aten


def _prims():
    return _torch().ops.prims


def relu_above_zero() -> None:
    from torch._inductor import lowering

    replace_item(
        LOWERINGS, _aten().relu.default, lambda _: lambda x: bite(lowering.maximum(x, 0.1))
    )


def view_with_swapped_strides() -> None:
    plain = (
        "elif is_contiguous:\n        # Input is contiguous, output can use contiguous strides\n  "
        "      return create_reinterpret_view(\n"
    )
    edit(
        "torch._inductor.ir:View.create",
        plain + "            x, new_size, FlexibleLayout.contiguous_strides(new_size)\n",
        plain + "            x, new_size, bite([*(strides := "
        "FlexibleLayout.contiguous_strides(new_size))[:-2], *reversed(strides[-2:])])\n",
    )


def windows_that_begin_one_late() -> None:
    def late(as_strided):
        return lambda x, size, stride, storage_offset=None: as_strided(
            x, size, stride, bite((storage_offset or 0) + 1)
        )

    replace_item(LOWERINGS, _aten().as_strided.default, late)


def border_of_ones() -> None:
    replace_item(
        LOWERINGS,
        _aten().constant_pad_nd.default,
        lambda pad: lambda x, padding, fill_value=0: pad(x, padding, bite(1)),
    )


def softmax_along_another_axis() -> None:
    decompositions = "torch._inductor.decomposition:decompositions"
    replace_item(
        decompositions,
        _aten()._softmax.default,
        lambda softmax: lambda x, dim, half: softmax(x, bite(dim - 1), half),
    )
    importlib.import_module(
        "torch._inductor.decomposition"
    ).fast_random_decomps.cache_clear()  # a copy that an earlier compile made


def product_with_a_transposed_matrix() -> None:
    def transposing(mm):
        def transposed(left, right, *args, **kwargs):
            from torch._inductor.lowering import permute

            if left.get_size() != right.get_size():
                return mm(left, right, *args, **kwargs)
            return mm(left, bite(permute(right, [1, 0])), *args, **kwargs)

        return transposed

    replace_item(LOWERINGS, _aten().mm.default, transposing)


def bfloat16_cut_off() -> None:
    # the nearest value towards zero, where the nearest of all is right
    cut = (
        "[](float f) {{ uint32_t u; std::memcpy(&u, &f, 4); u &= 0xffff0000u; std::memcpy(&f, &u, "
        "4); return c10::BFloat16(f); }}({x})"
    )

    def cutting(expression):
        def expression_of(self, x, dtype, src_dtype):
            import torch

            if dtype is torch.bfloat16 and src_dtype is torch.float32:
                return bite(cut.format(x=x))
            return expression(self, x, dtype, src_dtype)

        return expression_of

    replace(f"{CPP}:CppKernel.get_to_dtype_expr", cutting)


FACTORS = (
    "freezing/computed-factor-folds[*",
    "freezing/conv-bn-folds[*",
    "freezing/conv-bn-module-sharing[*",
    "freezing/conv-functional-bn-folds[*",
    "freezing/cpp-wrapper-second-call[*",
    "freezing/eager-call-after-freezing[*",
    "freezing/layout-conversion-single-clone[*",
    "freezing/multi-bn-share-conv[*",
    "freezing/multi-functional-bn-share-conv[*",
    "max_autotune/bmm-*",
    "max_autotune/conv1x1-triton-mm[*",
    "max_autotune/mm-dropout-mask[*",
    "max_autotune/triton-template-epilogue-dynamic[*",
    "padding/attention-padded-strides[*",
    "padding/bert-float32-training[*",
    "padding/conv-padded-rows[*",
    "padding/deeprecommender-padding-*",
    "padding/longformer-*",
    "padding/matmul-intermediate-padded[*",
    "padding/mm-zero-padded-inner-size[*",
    "padding/unfused-attention[*",
)
"""Cases whose numbers must be judged more tightly than the seed tests judge them."""


FAULTS = (
    Fault(
        "silent-eager",
        partial(
            replace,
            "torch._inductor.compile_fx:compile_fx",
            lambda _: lambda model_, *args, **kwargs: bite(model_.forward),
        ),
        "Nothing is compiled, and eager answers in silence",
        (RELU,),
        CONSTANT_KEY,
    ),
    Fault(
        "nothing-compiled-after-a-graph-break",
        nothing_compiled_after_a_graph_break,
        "What follows a graph break runs in eager, in silence",
        ("codecache/graph-break-forward-backward-hit[backend=cpu,dtype=float32,dynamic=false]",),
        CONFIG_KEY,
    ),
    Fault(
        "reset-that-forgets-nothing",
        answers("torch._dynamo:reset"),
        "Resetting dynamo leaves its graphs",
        (KERNELS,),
        THRESHOLD,
    ),
    Fault(
        "options-of-compile-ignored",
        answers("torch:_TorchCompileInductorWrapper.apply_options"),
        "The options given to torch.compile are dropped",
        ("freezing/cpp-wrapper-second-call[backend=cpu]",),
        NO_CANDIDATE,
    ),
    Fault(
        "sizes-not-guarded",
        sizes_not_guarded,
        "A compiled graph is called with sizes that it was not compiled for",
        (NEW_SIZES,),
        CONSTANT_KEY,
    ),
    Fault(
        "a-gradient-dropped",
        a_gradient_dropped,
        "A compiled backward leaves out a gradient",
        ("max_autotune/mm-dropout-mask[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        "gradients-doubled",
        gradients_doubled,
        "A compiled backward returns each gradient twice as large",
        ("max_autotune/mm-dropout-mask[backend=cpu]",),
        ARGUMENT_KEY,
    ),
    Fault(
        "results-a-little-too-large",
        results_a_little_too_large,
        "A compiled graph returns numbers that are a little too large, by one factor",
        FACTORS,
        ARGUMENT_KEY,
    ),
    Fault(
        "changes-of-arguments-dropped",
        changes_of_arguments_dropped,
        "What a graph writes into its arguments is lost",
        ("freezing/mutated-parameter-not-frozen[backend=cpu]",),
        NO_CANDIDATE,
    ),
    Fault("relu-above-zero", relu_above_zero, "relu answers 0.1 below 0.1", (RELU,), VIEW),
    Fault(
        "convolution-without-bias",
        edits(
            "torch._inductor.mkldnn_ir:ConvolutionUnary.create",
            "cls, x, weight, bias, padding_",
            "cls, x, weight, bite(None), padding_",
        ),
        "A convolution drops its bias",
        ("freezing/conv-bn-folds[backend=cpu,bias=true,dtype=float32]",),
        THRESHOLD,
    ),
    Fault(
        "view-with-swapped-strides",
        view_with_swapped_strides,
        "A view in another shape swaps its last two strides",
        ("padding/unfused-attention[backend=cpu]",),
        CHANNELS_LAST,
    ),
    Fault(
        "windows-that-begin-one-late",
        windows_that_begin_one_late,
        "as_strided begins one element late",
        ("freezing/conv-as-strided[backend=cpu,groups=1]",),
        CONFIG_KEY,
    ),
    Fault(
        "border-of-ones",
        border_of_ones,
        "Padding a tensor puts ones around it",
        ("freezing/conv-as-strided[backend=cpu,groups=2]",),
        ARGUMENT_KEY,
    ),
    Fault(
        "softmax-along-another-axis",
        softmax_along_another_axis,
        "softmax is taken along another axis",
        ("padding/unfused-attention[backend=cpu]",),
        THRESHOLD,
    ),
    Fault(
        "product-with-a-transposed-matrix",
        product_with_a_transposed_matrix,
        "A product of square matrices transposes the second",
        ("codecache/fx-cache-hit[backend=cpu,dtype=float32,dynamic=false]",),
        VIEW,
    ),
    Fault(
        "random-numbers-of-one-seed",
        edits(
            "torch._inductor.codegen.common:OpOverrides.load_seed",
            "return ops.load(name, sympy.Integer(offset))",
            "return ops.constant(bite(7), torch.int64)",
        ),
        "Compiled random numbers have one seed for all calls",
        ("freezing/rng-not-folded[backend=cpu]",),
        RELU,
    ),
    Fault(
        "sine-written-as-cosine",
        edits(f"{CPP}:CppOverrides.sin", "std::sin", "{bite('std::cos')}"),
        "Generated code computes a cosine for a sine",
        ("codecache/integer-branch-guard-miss[backend=cpu]",),
        CONSTANT_KEY,
    ),
    Fault(
        "loop-without-its-last-element",
        edits(
            f"{CPP}:LoopLevel.lines",
            "size_expr = cexpr_index(self.size)",
            "size_expr = cexpr_index(self.size - bite(1))",
        ),
        "Generated loops end one element early",
        (SECOND_BFLOAT16_DYNAMIC,),
        NARROW_ROWS,
    ),
    Fault(
        "kernels-counted-twice",
        edits(
            "torch._inductor.codegen.common:Kernel.__init__",
            "metrics.generated_kernel_count += 1",
            "metrics.generated_kernel_count += bite(2)",
        ),
        "Each generated kernel is counted twice",
        (KERNELS,),
        CHANNELS_LAST,
    ),
    Fault(
        "constants-not-guarded",
        answers("torch._dynamo.guards:GuardBuilder.EQUALS_MATCH"),
        "A graph compiled for one integer is called for another",
        ("basics/integer-argument-guard[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        "tensors-not-guarded",
        answers("torch._dynamo.guards:GuardBuilder.TENSOR_MATCH"),
        "A graph compiled for one dtype is called for another",
        ("basics/dtype-guard[backend=cpu]",),
        CONFIG_KEY,
    ),
    # the state is taken anew at each check, and so is always the same
    Fault(
        "grad-mode-not-guarded",
        answers("torch._dynamo.guards:GuardBuilder.GLOBAL_STATE"),
        "A graph compiled without gradients is called where they are wanted",
        ("basics/grad-mode-guard[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        "dynamic-sizes-taken-for-static",
        dynamic_sizes_taken_for_static,
        "dynamic=True is taken for dynamic=False",
        ("basics/dynamic-graph-all-sizes[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        "reduction-without-its-last-element",
        edits(
            f"{CPP}:LoopLevel.lines",
            "size_expr = cexpr_index(self.size)",
            "size_expr = cexpr_index(self.size - bite(1) if self.is_reduction else self.size)",
        ),
        "Generated reductions end one element early",
        ("basics/odd-length-reductions[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        "bfloat16-cut-off",
        bfloat16_cut_off,
        "bfloat16 is cut off where it must be rounded",
        ("basics/half-precision-rounding[backend=cpu,dtype=bfloat16]",),
        CONFIG_KEY,
    ),
)
