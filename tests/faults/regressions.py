"""The rows of the catalogue for ``specs/regressions``: each fix of torch taken back, and the specs that see it."""

from collections.abc import Callable

from tests.faults.patches import regressions as patches

Row = tuple[Callable[[], None], str, tuple[str, ...]]

ROWS: tuple[Row, ...] = (
    (patches.sums_promoted_to_int, "TODO sums_promoted_to_int", ('uint8-sum-wraps',)),
    (patches.differences_promoted_to_int, "TODO differences_promoted_to_int", ('int8-difference-wraps',)),
    (patches.products_promoted_to_int, "TODO products_promoted_to_int", ('int8-product-wraps', 'int8-product-then-abs',)),
    (patches.negatives_promoted_to_int, "TODO negatives_promoted_to_int", ('uint8-negation-wraps',)),
    (patches.left_shift_of_the_machine, "TODO left_shift_of_the_machine", ('left-shift-beyond-width',)),
    (patches.right_shift_of_the_machine, "TODO right_shift_of_the_machine", ('right-shift-beyond-width',)),
    (patches.arg_reductions_skip_nan, "TODO arg_reductions_skip_nan", ('argmax-first-nan',)),
    (patches.bounds_without_nan, "TODO bounds_without_nan", ('clamp-keeps-nan',)),
    (patches.libm_without_errno, "TODO libm_without_errno", ('nan-through-atan-sin',)),
    (patches.denormals_flushed, "TODO denormals_flushed", ('denormals-kept',)),
    (patches.half_precision_stored_before_use, "TODO half_precision_stored_before_use", ('bfloat16-with-extra-output',)),
    (patches.emulated_casts_skipped, "TODO emulated_casts_skipped", ('half-casts-emulated',)),
    (patches.masked_body_counted_as_vector, "TODO masked_body_counted_as_vector", ('masked-load-in-vector',)),
    (patches.removed_buffers_not_restored, "TODO removed_buffers_not_restored", ('local-buffer-restored',)),
    (patches.division_by_reciprocal, "TODO division_by_reciprocal", ('division-by-constant-rounds',)),
    (patches.indexed_values_read_late, "TODO indexed_values_read_late", ('overlapping-index-put',)),
    (patches.bfloat16_index_add_decomposed, "TODO bfloat16_index_add_decomposed", ('index-add-bfloat16',)),
    (patches.windows_of_full_size, "TODO windows_of_full_size", ('average-pool-ceil-mode',)),
    (patches.windows_outside_of_the_input, "TODO windows_outside_of_the_input", ('max-pool-ceil-mode',)),
    (patches.window_sums_times_an_integer_zero, "TODO window_sums_times_an_integer_zero", ('integer-average-pool',)),
    (patches.running_sums_of_the_same_dtype, "TODO running_sums_of_the_same_dtype", ('cumulative-sum-of-booleans',)),
    (patches.scatters_with_the_strides_of_an_expanded_base, "TODO scatters_with_the_strides_of_an_expanded_base", ('slice-scatter-gradient', 'diagonal-scatter-gradient',)),
    (patches.one_value_of_isin_has_no_shape, "TODO one_value_of_isin_has_no_shape", ('isin-of-one-value',)),
    (patches.shared_storage_written_twice, "TODO shared_storage_written_twice", ('operator-writes-two-views', 'operator-changes-two-rows',)),
    (patches.equal_outputs_merged, "TODO equal_outputs_merged", ('enable-grad-inside-no-grad',)),
    (patches.detached_output_is_its_source, "TODO detached_output_is_its_source", ('output-and-its-detached',)),
    (patches.constants_share_their_storage, "TODO constants_share_their_storage", ('constant-tensor-changed',)),
    (patches.global_state_not_guarded, "TODO global_state_not_guarded", ('default-dtype-guard',)),
    (patches.attributes_not_guarded, "TODO attributes_not_guarded", ('module-attribute-guard', 'renamed-attribute-of-model', 'attribute-of-plain-object',)),
    (patches.functions_not_guarded, "TODO functions_not_guarded", ('global-function-guard',)),
    (patches.defaults_not_guarded, "TODO defaults_not_guarded", ('default-argument-guard',)),
    (patches.iterators_over_a_copy, "TODO iterators_over_a_copy", ('list-grows-while-iterated',)),
    (patches.detached_tensor_keeps_its_state, "TODO detached_tensor_keeps_its_state", ('detach-in-place',)),
)
