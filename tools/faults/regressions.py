"""The rows of the catalogue for ``specs/regressions``: each fix of torch taken back, and the specs
that see it.

``python -m tools.faults.corpus`` writes them, with the issues of ``corpus.py``, into
docs/reference/regressions.md.
"""

from collections.abc import Callable

from tools.faults.patches import regressions as patches

Row = tuple[Callable[[], None], str, tuple[str, ...]]

ROWS: tuple[Row, ...] = (
    (
        patches.sums_promoted_to_int,
        "A sum of small integers is promoted to int and not cast back",
        ("uint8-sum-wraps",),
    ),
    (
        patches.differences_promoted_to_int,
        "A difference of small integers is promoted to int and not cast back",
        ("int8-difference-wraps",),
    ),
    (
        patches.products_promoted_to_int,
        "A product of small integers is promoted to int and not cast back",
        (
            "int8-product-wraps",
            "int8-product-then-abs",
        ),
    ),
    (
        patches.negatives_promoted_to_int,
        "The negative of a small integer is promoted to int and not cast back",
        ("uint8-negation-wraps",),
    ),
    (
        patches.left_shift_of_the_machine,
        "A left shift by the width of the type is the machine's",
        ("left-shift-beyond-width",),
    ),
    (
        patches.right_shift_of_the_machine,
        "A right shift by the width of the type is the machine's",
        ("right-shift-beyond-width",),
    ),
    (
        patches.arg_reductions_skip_nan,
        "argmax and argmin compare NaN as any number",
        ("argmax-first-nan",),
    ),
    (patches.bounds_without_nan, "A maximum loses the NaN of one operand", ("clamp-keeps-nan",)),
    (
        patches.libm_without_errno,
        "The C++ compiler may rewrite calls of the math library",
        ("nan-through-atan-sin",),
    ),
    (
        patches.denormals_flushed,
        "Loading a kernel makes the processor flush denormals",
        ("denormals-kept",),
    ),
    (
        patches.half_precision_stored_before_use,
        "A bfloat16 value that is stored is read back rounded",
        ("bfloat16-with-extra-output", "float16-with-extra-output"),
    ),
    (
        patches.emulated_casts_skipped,
        "emulate_precision_casts does not reach the C++ code",
        ("half-casts-emulated",),
    ),
    (
        patches.division_by_reciprocal,
        "A division by a constant is a product with its reciprocal on the CPU",
        ("division-by-constant-rounds",),
    ),
    (
        patches.indexed_values_read_late,
        "Values of an indexed update are read while the update is written",
        ("overlapping-index-put",),
    ),
    (
        patches.bfloat16_index_add_decomposed,
        "index_add in bfloat16 is decomposed",
        ("index-add-bfloat16",),
    ),
    (
        patches.windows_of_full_size,
        "Border windows of an average pool are divided by the full size",
        ("average-pool-ceil-mode",),
    ),
    (
        patches.windows_outside_of_the_input,
        "A pool has a window that begins outside of the input",
        ("max-pool-ceil-mode",),
    ),
    (
        patches.window_sums_times_an_integer_zero,
        "The sum of a window of integers is multiplied by a fraction cut to zero",
        ("integer-average-pool",),
    ),
    (
        patches.positions_in_the_order_of_memory,
        "argmax counts in the order of memory",
        (
            "argmax-of-transposed-update",
            "argmin-of-transposed-update",
        ),
    ),
    (
        patches.scatters_with_the_strides_of_an_expanded_base,
        "A scatter into an expanded tensor keeps its zero strides",
        (
            "slice-scatter-gradient",
            "slice-scatter-gradient-vector",
            "slice-scatter-gradient-middle",
            "diagonal-scatter-gradient",
        ),
    ),
    (
        patches.one_value_of_isin_has_no_shape,
        "isin with one test value is reduced to one answer",
        ("isin-of-one-value",),
    ),
    (
        patches.casts_shortened_when_emulated,
        "A chain of casts is shortened under emulate_precision_casts",
        ("half-cast-chain-kept",),
    ),
    (
        patches.scaled_softmax_of_finite_numbers,
        "The stable form of a scaled softmax is used where the scaled input overflows",
        ("scaled-softmax-of-infinities",),
    ),
    (
        patches.equal_outputs_merged,
        "Equal outputs of a graph are computed once and returned twice",
        ("enable-grad-inside-no-grad",),
    ),
    (
        patches.detached_output_is_its_source,
        "A detached alias of an output is returned as that output",
        ("output-and-its-detached",),
    ),
    (
        patches.global_state_not_guarded,
        "The global state of torch is not guarded",
        ("default-dtype-guard",),
    ),
    (
        patches.attributes_not_guarded,
        "Constants in attributes are not guarded",
        (
            "module-attribute-guard",
            "renamed-attribute-of-model",
            "attribute-of-plain-object",
        ),
    ),
    (
        patches.functions_not_guarded,
        "The code of a global function is not guarded",
        ("global-function-guard",),
    ),
    (
        patches.defaults_not_guarded,
        "Default arguments of a function are not guarded",
        ("default-argument-guard",),
    ),
    (
        patches.iterators_over_a_copy,
        "A loop over a list iterates over a copy",
        ("list-grows-while-iterated",),
    ),
    (
        patches.detached_tensor_keeps_its_state,
        "detach_ does not change what is known of its tensor",
        ("detach-in-place",),
    ),
    (
        patches.changes_by_operators_not_noted,
        "What a custom operator writes is not noted",
        ("custom-op-changes-argument",),
    ),
)
