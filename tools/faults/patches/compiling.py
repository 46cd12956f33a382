"""Faults between the function and its kernels: dynamo, AOTAutograd, lowerings, generated code."""

import importlib

from tools.faults.planting import bite, edit, replace, replace_item

LOWERINGS = "torch._inductor.lowering:lowerings"
CPP = "torch._inductor.codegen.cpp"


# -- dynamo ----------------------------------------------------------------------------------------


def silent_eager() -> None:
    replace(
        "torch._inductor.compile_fx:compile_fx",
        lambda _: lambda model_, *args, **kwargs: bite(model_.forward),
    )


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
    # a static size stands in the guard of its tensor, a relation between dynamic ones in that of
    # the shapes
    replace("torch._dynamo.guards:GuardBuilder.SHAPE_ENV", lambda _: lambda self, guard: bite())
    replace(
        "torch._dynamo.guards:GuardBuilder.TENSOR_MATCH",
        lambda _: lambda self, guard, value=None: bite(),
    )


def constants_not_guarded() -> None:
    replace(
        "torch._dynamo.guards:GuardBuilder.EQUALS_MATCH",
        lambda _: lambda self, guard, recompile_hint=None: bite(),
    )


def grad_mode_not_guarded() -> None:
    # the state is taken anew at each check, and so is always the same
    replace("torch._dynamo.guards:GuardBuilder.GLOBAL_STATE", lambda _: lambda self, guard: bite())


def tensors_not_guarded() -> None:
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


def reset_that_forgets_nothing() -> None:
    replace("torch._dynamo:reset", lambda _: lambda: bite())


def options_of_compile_ignored() -> None:
    replace(
        "torch:_TorchCompileInductorWrapper.apply_options", lambda _: lambda self, options: bite()
    )


# -- AOTAutograd -----------------------------------------------------------------------------------


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
        found = [index for index, gradient in enumerate(gradients) if gradient is not None]
        if found:
            gradients[found[0]] = bite(None)
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


# -- compiled graphs -------------------------------------------------------------------------------


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


# -- lowerings -------------------------------------------------------------------------------------


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


def random_numbers_of_one_seed() -> None:
    edit(
        "torch._inductor.codegen.common:OpOverrides.load_seed",
        "return ops.load(name, sympy.Integer(offset))",
        "return ops.constant(bite(7), torch.int64)",
    )


def convolution_without_bias() -> None:
    edit(
        "torch._inductor.mkldnn_ir:ConvolutionUnary.create",
        "cls, x, weight, bias, padding_",
        "cls, x, weight, bite(None), padding_",
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


# -- generated code --------------------------------------------------------------------------------


def sine_written_as_cosine() -> None:
    edit(f"{CPP}:CppOverrides.sin", "std::sin", "{bite('std::cos')}")


def reduction_without_its_last_element() -> None:
    edit(
        f"{CPP}:LoopLevel.lines",
        "size_expr = cexpr_index(self.size)",
        "size_expr = cexpr_index(self.size - bite(1) if self.is_reduction else self.size)",
    )


def loop_without_its_last_element() -> None:
    edit(
        f"{CPP}:LoopLevel.lines",
        "size_expr = cexpr_index(self.size)",
        "size_expr = cexpr_index(self.size - bite(1))",
    )


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


def kernels_counted_twice() -> None:
    edit(
        "torch._inductor.codegen.common:Kernel.__init__",
        "metrics.generated_kernel_count += 1",
        "metrics.generated_kernel_count += bite(2)",
    )
