"""The catalogue: each fault, what it breaks, the cases that go red under it, and one beside it that
stays green.

Nothing here imports torch; a patch does, in the worker.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tools.faults.patches import autotune, cache, compiling, freezing, padding, properties
from tools.faults.regressions import ROWS


@dataclass(frozen=True)
class Fault:
    """One row.

    ``seen_by`` and ``spares`` are ids of cases, or globs over them; a hole has neither, and the
    claim that would see it.
    """

    plant: Callable[[], None]
    breaks: str
    seen_by: tuple[str, ...] = ()
    spares: str = ""
    claim: str = ""

    @property
    def name(self) -> str:
        return self.plant.__name__.replace("_", "-")


# -- cases that many rows name ---------------------------------------------------------------------

CLEARED = "codecache/fx-cache-clear[backend=cpu]"
FRESH = "codecache/fresh-cache-empty[backend=cpu]"
INTEGER_GUARD = "codecache/symint-non-input-guard-hit[backend=cpu]"
KERNELS = "codecache/cache-hit-kernel-count[backend=cpu]"
OTHER_BRANCH = "codecache/integer-branch-guard-miss[backend=cpu]"
OTHER_CONSTANTS = "codecache/constant-value-cache-miss[backend=cpu]"
SECOND_COMPILE = "codecache/fx-cache-hit[backend=cpu,dtype={},dynamic={}]"
SECOND = SECOND_COMPILE.format("float32", "false")
SECOND_BFLOAT16_DYNAMIC = SECOND_COMPILE.format("bfloat16", "true")
NEW_SIZES = "codecache/static-size-guard-miss[backend=cpu,dtype=float32]"
BROKEN_MODEL = "codecache/graph-break-forward-backward-hit[backend=cpu,dtype=float32,dynamic=false]"

CONFIG_KEY = "codecache/fx-key-inductor-config[backend=host]"
OPTIONS_KEY = "codecache/fx-key-option-order[backend=host]"
ARGUMENT_KEY = "codecache/fx-key-tensor-metadata[backend=host]"
NVCC = "codecache/nvcc-command-flags[backend=host]"
CONSTANT_KEY = "codecache/fx-key-constant-tensor[backend=host]"

FOLD = "freezing/conv-bn-folds[backend=cpu,bias={},dtype={}]"
FOLDED = FOLD.format("true", "float32")
FOLDED_BFLOAT16 = FOLD.format("true", "bfloat16")
FOLDED_WITHOUT_BIAS = FOLD.format("false", "float32")
FOLDED_WITHOUT_BIAS_BFLOAT16 = FOLD.format("false", "bfloat16")
NORM_ALONE = "freezing/batch-norm-without-conv[backend=cpu]"
TWICE = "freezing/conv-bn-module-sharing[backend=cpu]"
LINEARS = "freezing/linear-fusion-unequal-bias[backend=cpu]"
RANDOM = "freezing/rng-not-folded[backend=cpu]"
CHANGED = "freezing/mutated-parameter-not-frozen[backend=cpu]"
WINDOWS = "freezing/conv-as-strided[backend=cpu,groups={}]"

VIEW = "padding/view-not-padded[backend=cpu]"
ATTENTION = "padding/unfused-attention[backend=cpu]"
PADDED_ATTENTION = "padding/attention-padded-strides[backend=cpu]"
CHANNELS_LAST = "padding/channels-last-not-padded[backend=host]"
NARROW_ROWS = "padding/strides-below-threshold[backend=host]"
WIDE_ROWS = "padding/wide-strides-padded[backend=host]"
THRESHOLD = "padding/stride-threshold-and-dtypes[backend=host]"
NO_CANDIDATE = "max_autotune/no-valid-choices-error[backend=cpu]"
DROPOUT = "max_autotune/mm-dropout-mask[backend=cpu]"
RELU = "relu[backend=cpu]"

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

CATALOGUE = (
    # -- caches ------------------------------------------------------------------------------------
    Fault(
        cache.key_without_constants,
        "The key of a graph leaves out the values of its constants",
        (OTHER_CONSTANTS, CONSTANT_KEY),
        OPTIONS_KEY,
    ),
    Fault(
        cache.key_without_graph, "The key of a graph leaves out the graph", (OTHER_BRANCH,), SECOND
    ),
    Fault(
        cache.key_without_config,
        "The key of a graph leaves out inductor's configuration",
        (CONFIG_KEY,),
        VIEW,
    ),
    Fault(
        cache.key_without_sizes,
        "The key of a graph leaves out the sizes of its arguments",
        (ARGUMENT_KEY,),
        CONFIG_KEY,
    ),
    Fault(
        cache.key_without_dtype,
        "The key of a graph leaves out the dtypes of its arguments",
        (ARGUMENT_KEY,),
        OPTIONS_KEY,
    ),
    Fault(
        cache.key_that_never_repeats,
        "The same graph has another key each time",
        (INTEGER_GUARD,),
        OTHER_CONSTANTS,
    ),
    Fault(
        cache.code_files_named_without_their_content,
        "Every file of generated code has one name",
        (OTHER_BRANCH,),
        NVCC,
    ),
    Fault(
        cache.guards_dropped_on_a_hit,
        "An entry is served without a look at its guards",
        (NEW_SIZES,),
        VIEW,
    ),
    Fault(cache.guards_not_saved, "An entry is saved without its guards", (NEW_SIZES,), NVCC),
    Fault(
        cache.guarded_entries_never_served,
        "An entry with guards is never served",
        (INTEGER_GUARD,),
        SECOND,
    ),
    Fault(
        cache.only_the_first_entry_is_tried,
        "Of several entries under one key only the first is tried",
        (NEW_SIZES,),
        OPTIONS_KEY,
    ),
    Fault(
        cache.lookup_that_finds_nothing,
        "No graph is ever found in the cache",
        (KERNELS,),
        CONSTANT_KEY,
    ),
    Fault(
        cache.nothing_is_saved,
        "No graph is written into the cache",
        (SECOND_BFLOAT16_DYNAMIC,),
        NVCC,
    ),
    Fault(
        cache.hit_without_kernel_count,
        "A hit does not raise the count of kernels",
        (KERNELS,),
        SECOND_BFLOAT16_DYNAMIC,
    ),
    Fault(
        cache.hit_counted_as_miss,
        "A hit is counted as a miss",
        (SECOND_BFLOAT16_DYNAMIC,),
        OTHER_CONSTANTS,
    ),
    Fault(cache.miss_not_counted, "A miss is not counted", (OTHER_CONSTANTS,), NVCC),
    Fault(
        cache.hit_that_writes_no_file,
        "A hit does not write the code file that is gone",
        (SECOND_BFLOAT16_DYNAMIC,),
        INTEGER_GUARD,
    ),
    Fault(
        cache.clear_that_clears_nothing,
        "Clearing the FX graph cache leaves its files",
        (CLEARED,),
        CONFIG_KEY,
    ),
    Fault(
        cache.aot_autograd_clear_that_clears_nothing,
        "Clearing the AOTAutograd cache leaves its files",
        (CLEARED,),
        NVCC,
    ),
    Fault(
        cache.code_cache_that_keeps_its_modules,
        "Clearing the cache of code leaves its modules loaded",
        (FRESH,),
        CONSTANT_KEY,
    ),
    Fault(
        cache.fresh_cache_in_the_old_folder,
        "fresh_cache goes on in the folder that was in use",
        (FRESH,),
        ARGUMENT_KEY,
    ),
    # -- freezing ----------------------------------------------------------------------------------
    Fault(
        freezing.freezing_skipped, "A frozen graph is compiled as it is", (RANDOM,), NO_CANDIDATE
    ),
    Fault(
        freezing.constants_not_computed,
        "What depends on constants alone is left to each call",
        (NORM_ALONE,),
        RELU,
    ),
    Fault(
        freezing.batch_norm_with_another_eps,
        "A batch norm is folded with the default eps, not its own",
        (FOLDED_BFLOAT16,),
        NO_CANDIDATE,
    ),
    Fault(
        freezing.batch_norm_without_eps,
        "A batch norm is folded without its eps",
        (FOLDED_WITHOUT_BIAS_BFLOAT16,),
        NARROW_ROWS,
    ),
    Fault(
        freezing.batch_norm_of_the_batch,
        "A batch norm in eval takes the statistics of the batch",
        (FOLDED,),
        VIEW,
    ),
    Fault(
        freezing.folded_bias_with_the_wrong_sign,
        "What is added is folded into a bias with the wrong sign",
        (FOLDED_WITHOUT_BIAS,),
        RELU,
    ),
    Fault(
        freezing.folded_factor_not_applied_to_the_bias,
        "A factor is folded into the weight and not into the bias",
        (FOLDED,),
        NORM_ALONE,
    ),
    Fault(
        freezing.folded_factor_on_the_wrong_axis,
        "Factors are folded into the channels in reverse",
        (FOLDED_WITHOUT_BIAS_BFLOAT16,),
        NO_CANDIDATE,
    ),
    Fault(
        freezing.nothing_is_folded,
        "No operation is folded into a convolution",
        (FOLDED_BFLOAT16,),
        NARROW_ROWS,
    ),
    Fault(
        freezing.shared_weight_folded,
        "A weight with two uses is folded into",
        ("freezing/shared-conv-weight-not-folded[backend=cpu]",),
        FOLDED_WITHOUT_BIAS_BFLOAT16,
    ),
    Fault(
        freezing.shared_result_folded,
        "A convolution whose result has two uses is folded into",
        ("freezing/multi-functional-bn-share-conv[backend=cpu]",),
        NORM_ALONE,
    ),
    Fault(
        freezing.wider_factor_folded,
        "A factor is folded into a convolution of a narrower dtype",
        ("freezing/wider-dtype-not-folded[backend=cpu,dtype=bfloat16]",),
        FOLDED_BFLOAT16,
    ),
    Fault(
        freezing.random_numbers_folded,
        "Random numbers are drawn while compiling, once for all",
        ("freezing/rng-with-input-not-folded[backend=cpu]",),
        VIEW,
    ),
    Fault(
        freezing.changed_parameter_frozen,
        "A parameter that the graph changes is taken for a constant",
        ("freezing/mutated-parameter-not-returned[backend=cpu]",),
        CHANGED,
    ),
    Fault(
        freezing.returned_parameter_frozen,
        "A parameter that the graph returns is taken for a constant",
        (
            "freezing/returned-parameter-not-frozen[backend=cpu]",
            "freezing/discarded-parameter-views[backend=cpu]",
        ),
        RANDOM,
    ),
    Fault(
        freezing.parameters_not_discarded,
        "The eager module keeps its parameters, and can be called",
        ("freezing/eager-call-after-freezing[backend=cpu,inline=false]",),
        RELU,
    ),
    Fault(
        freezing.discarded_parameters_read_as_zero,
        "A discarded parameter reads as zeros, in silence",
        ("freezing/eager-call-after-freezing[backend=cpu,inline=true]",),
        NO_CANDIDATE,
    ),
    Fault(
        freezing.as_strided_in_any_layout,
        "as_strided reads a result in whichever layout it has",
        (WINDOWS.format(1),),
        NARROW_ROWS,
    ),
    Fault(
        freezing.common_parts_computed_twice,
        "Equal parts of a frozen graph stay apart",
        (TWICE,),
        OPTIONS_KEY,
    ),
    Fault(
        freezing.joined_linears_share_a_bias,
        "Joined linears give the third the bias of the first",
        (LINEARS,),
        THRESHOLD,
    ),
    Fault(
        freezing.unequal_biases_joined,
        "Linears are joined whatever the shapes of their biases",
        (LINEARS,),
        RELU,
    ),
    # -- padding -----------------------------------------------------------------------------------
    Fault(
        padding.padding_without_threshold,
        "Strides are padded however small they are",
        (NARROW_ROWS,),
        WIDE_ROWS,
    ),
    Fault(
        padding.padding_at_the_threshold_itself,
        "A stride that is equal to the threshold is padded",
        (THRESHOLD,),
        WIDE_ROWS,
    ),
    Fault(
        padding.padded_alike_for_every_dtype,
        "The alignment counts numbers, not bytes",
        (THRESHOLD,),
        CHANNELS_LAST,
    ),
    Fault(
        padding.channels_last_padded,
        "Strides in channels-last order are padded",
        (CHANNELS_LAST,),
        WIDE_ROWS,
    ),
    Fault(padding.nothing_is_padded, "No stride is padded", (WIDE_ROWS,), ARGUMENT_KEY),
    Fault(
        padding.padded_to_half_the_alignment,
        "Strides are padded to half the alignment",
        (CHANNELS_LAST,),
        WIDE_ROWS,
    ),
    Fault(
        padding.padded_by_a_whole_alignment_more,
        "Strides are padded to one multiple too many",
        (NARROW_ROWS,),
        CONFIG_KEY,
    ),
    Fault(
        padding.rounded_down_to_the_alignment,
        "Strides are rounded down, and rows overlap",
        (CHANNELS_LAST,),
        OPTIONS_KEY,
    ),
    Fault(
        padding.enclosing_strides_not_padded,
        "The stride that encloses padded rows does not grow",
        (WIDE_ROWS,),
        VIEW,
    ),
    Fault(
        padding.padding_not_counted, "A padded layout is not counted", (WIDE_ROWS,), ARGUMENT_KEY
    ),
    Fault(
        padding.padded_strides_not_used_by_readers,
        "Kernels index a padded buffer as if it had no holes",
        (PADDED_ATTENTION,),
        NVCC,
    ),
    # -- autotuning --------------------------------------------------------------------------------
    Fault(
        autotune.named_backend_ignored,
        "Every backend may propose kernels, whichever were named",
        (NO_CANDIDATE,),
        DROPOUT,
    ),
    Fault(
        autotune.the_first_of_infinitely_slow_candidates_picked,
        "Of candidates that are all infinitely slow the first is picked",
        ("max_autotune/infinite-timings-error[backend=cpu,multi_template=false*",),
        OPTIONS_KEY,
    ),
    Fault(
        autotune.crashed_candidate_counted_as_fastest,
        "A candidate that crashed is counted as the fastest",
        ("max_autotune/tuning-pool-crash[backend=host]",),
        OPTIONS_KEY,
    ),
    # -- between the function and its kernels ------------------------------------------------------
    Fault(
        compiling.silent_eager,
        "Nothing is compiled, and eager answers in silence",
        (RELU,),
        CONSTANT_KEY,
    ),
    Fault(
        compiling.nothing_compiled_after_a_graph_break,
        "What follows a graph break runs in eager, in silence",
        (BROKEN_MODEL,),
        CONFIG_KEY,
    ),
    Fault(
        compiling.reset_that_forgets_nothing,
        "Resetting dynamo leaves its graphs",
        (KERNELS,),
        THRESHOLD,
    ),
    Fault(
        compiling.options_of_compile_ignored,
        "The options given to torch.compile are dropped",
        ("freezing/cpp-wrapper-second-call[backend=cpu]",),
        NO_CANDIDATE,
    ),
    Fault(
        compiling.sizes_not_guarded,
        "A compiled graph is called with sizes that it was not compiled for",
        (NEW_SIZES,),
        CONSTANT_KEY,
    ),
    Fault(
        compiling.a_gradient_dropped,
        "A compiled backward leaves out a gradient",
        (DROPOUT,),
        CONFIG_KEY,
    ),
    Fault(
        compiling.gradients_doubled,
        "A compiled backward returns each gradient twice as large",
        (DROPOUT,),
        ARGUMENT_KEY,
    ),
    Fault(
        compiling.results_a_little_too_large,
        "A compiled graph returns numbers that are a little too large, by one factor",
        FACTORS,
        ARGUMENT_KEY,
    ),
    Fault(
        compiling.changes_of_arguments_dropped,
        "What a graph writes into its arguments is lost",
        (CHANGED,),
        NO_CANDIDATE,
    ),
    Fault(compiling.relu_above_zero, "relu answers 0.1 below 0.1", (RELU,), VIEW),
    Fault(compiling.convolution_without_bias, "A convolution drops its bias", (FOLDED,), THRESHOLD),
    Fault(
        compiling.view_with_swapped_strides,
        "A view in another shape swaps its last two strides",
        (ATTENTION,),
        CHANNELS_LAST,
    ),
    Fault(
        compiling.windows_that_begin_one_late,
        "as_strided begins one element late",
        (WINDOWS.format(1),),
        CONFIG_KEY,
    ),
    Fault(
        compiling.border_of_ones,
        "Padding a tensor puts ones around it",
        (WINDOWS.format(2),),
        ARGUMENT_KEY,
    ),
    Fault(
        compiling.softmax_along_another_axis,
        "softmax is taken along another axis",
        (ATTENTION,),
        THRESHOLD,
    ),
    Fault(
        compiling.product_with_a_transposed_matrix,
        "A product of square matrices transposes the second",
        (SECOND,),
        VIEW,
    ),
    Fault(
        compiling.random_numbers_of_one_seed,
        "Compiled random numbers have one seed for all calls",
        (RANDOM,),
        RELU,
    ),
    Fault(
        compiling.sine_written_as_cosine,
        "Generated code computes a cosine for a sine",
        (OTHER_BRANCH,),
        CONSTANT_KEY,
    ),
    Fault(
        compiling.loop_without_its_last_element,
        "Generated loops end one element early",
        (SECOND_BFLOAT16_DYNAMIC,),
        NARROW_ROWS,
    ),
    Fault(
        compiling.kernels_counted_twice,
        "Each generated kernel is counted twice",
        (KERNELS,),
        CHANNELS_LAST,
    ),
    # basics
    Fault(
        compiling.constants_not_guarded,
        "A graph compiled for one integer is called for another",
        ("basics/integer-argument-guard[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        compiling.tensors_not_guarded,
        "A graph compiled for one dtype is called for another",
        ("basics/dtype-guard[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        compiling.grad_mode_not_guarded,
        "A graph compiled without gradients is called where they are wanted",
        ("basics/grad-mode-guard[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        compiling.dynamic_sizes_taken_for_static,
        "dynamic=True is taken for dynamic=False",
        ("basics/dynamic-graph-all-sizes[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        compiling.reduction_without_its_last_element,
        "Generated reductions end one element early",
        ("basics/odd-length-reductions[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        compiling.bfloat16_cut_off,
        "bfloat16 is cut off where it must be rounded",
        ("basics/half-precision-rounding[backend=cpu,dtype=bfloat16]",),
        CONFIG_KEY,
    ),
    # -- side effects ------------------------------------------------------------------------------
    Fault(
        properties.random_number_drawn_by_each_graph,
        "Each call of a graph advances the generator of random numbers",
        ("padding/mm-zero-padded-inner-size[backend=cpu]",),
        CONFIG_KEY,
    ),
    Fault(
        properties.writes_hidden_from_autograd,
        "A write to an argument does not advance its version counter",
        ("basics/indexing-writes[backend=cpu]",),
        OPTIONS_KEY,
    ),
    # -- fixes taken back --------------------------------------------------------------------------
    *(
        Fault(
            plant, breaks, tuple(f"regressions/{spec}[backend=cpu]" for spec in specs), CONFIG_KEY
        )
        for plant, breaks, specs in ROWS
    ),
)

HOLES = (
    Fault(
        freezing.frozen_in_spite_of_gradients,
        "A graph is frozen although gradients are enabled",
        claim="none is missing: dynamo asks too, and the patch alone freezes nothing",
    ),
)
"""Faults that a person may plant and that no case sees yet.

Once one is seen, its row belongs into the catalogue.
"""

PLANTABLE: Mapping[str, Fault] = {fault.name: fault for fault in (*CATALOGUE, *HOLES)}
FAULTS: Mapping[str, Fault] = {fault.name: fault for fault in CATALOGUE}

IN_CI = (
    # caches
    "key-without-dtype",
    # freezing
    "freezing-skipped",
    # padding
    "padding-at-the-threshold-itself",
    "nothing-is-padded",
    "padded-alike-for-every-dtype",
    # autotuning
    "crashed-candidate-counted-as-fastest",
    # between the function and its kernels
    "silent-eager",
    # side effects
    "random-number-drawn-by-each-graph",
    # fixes taken back
    "sums-promoted-to-int",
)
"""Faults that every run of the tests plants: of each area those whose cases are quick.

The nightly tests plant all others.
"""
