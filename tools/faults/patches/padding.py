"""Faults of padding: which strides are padded, and to what."""

from tools.faults.fault import (
    ARGUMENT_KEY,
    CHANNELS_LAST,
    CONFIG_KEY,
    NARROW_ROWS,
    NVCC,
    OPTIONS_KEY,
    THRESHOLD,
    VIEW,
    WIDE_ROWS,
    Fault,
)
from tools.planting import answers, bite, edits, replace

PAD_STRIDES = "torch._inductor.ir:Layout._pad_strides"


def padded_strides_not_used_by_readers() -> None:
    def contiguous(fixed_indexer):
        def indexer_of(size, stride=None, offset=0):
            from torch._inductor.ir import FlexibleLayout

            plain = FlexibleLayout.contiguous_strides(size)
            padded = (
                stride is not None and len(stride) > 1 and stride[-1] == 1 and stride[0] > plain[0]
            )
            return fixed_indexer(size, bite(plain) if padded else stride, offset)

        return indexer_of

    replace("torch._inductor.ir:_fixed_indexer", contiguous)


FAULTS = (
    Fault(
        "padding-without-threshold",
        edits(PAD_STRIDES, "stride > config.padding_stride_threshold", "stride > bite(0)"),
        "Strides are padded however small they are",
        (NARROW_ROWS,),
        WIDE_ROWS,
    ),
    Fault(
        "padding-at-the-threshold-itself",
        edits(
            PAD_STRIDES,
            "stride > config.padding_stride_threshold",
            "bite(stride >= config.padding_stride_threshold)",
        ),
        "A stride that is equal to the threshold is padded",
        (THRESHOLD,),
        WIDE_ROWS,
    ),
    Fault(
        "padded-alike-for-every-dtype",
        answers("torch._inductor.ir:get_align_for_dtype", 32),
        "The alignment counts numbers, not bytes",
        (THRESHOLD,),
        CHANNELS_LAST,
    ),
    Fault(
        "channels-last-padded",
        edits(PAD_STRIDES, "if not config.pad_channels_last and", "if bite(False) and"),
        "Strides in channels-last order are padded",
        (CHANNELS_LAST,),
        WIDE_ROWS,
    ),
    Fault(
        "nothing-is-padded",
        edits(PAD_STRIDES, "if len(in_strides) == 0:", "if bite(True):"),
        "No stride is padded",
        (WIDE_ROWS,),
        ARGUMENT_KEY,
    ),
    Fault(
        "padded-to-half-the-alignment",
        edits(
            PAD_STRIDES,
            "align = get_align_for_dtype(dtype)",
            "align = bite(get_align_for_dtype(dtype) // 2)",
        ),
        "Strides are padded to half the alignment",
        (CHANNELS_LAST,),
        WIDE_ROWS,
    ),
    Fault(
        "padded-by-a-whole-alignment-more",
        edits(
            PAD_STRIDES,
            "ceildiv(stride, align) * align",
            "bite(ceildiv(stride, align) + 1) * align",
        ),
        "Strides are padded to one multiple too many",
        (NARROW_ROWS,),
        CONFIG_KEY,
    ),
    Fault(
        "rounded-down-to-the-alignment",
        edits(PAD_STRIDES, "ceildiv(stride, align) * align", "bite(stride // align) * align"),
        "Strides are rounded down, and rows overlap",
        (CHANNELS_LAST,),
        OPTIONS_KEY,
    ),
    Fault(
        "enclosing-strides-not-padded",
        edits(
            PAD_STRIDES,
            "stride = new_strides[prev_idx] * size[prev_idx]",
            "stride = bite(in_strides[prev_idx]) * size[prev_idx]",
        ),
        "The stride that encloses padded rows does not grow",
        (WIDE_ROWS,),
        VIEW,
    ),
    Fault(
        "padding-not-counted",
        edits(PAD_STRIDES, "metrics.num_comprehensive_padding += 1", "bite()"),
        "A padded layout is not counted",
        (WIDE_ROWS,),
        ARGUMENT_KEY,
    ),
    Fault(
        "padded-strides-not-used-by-readers",
        padded_strides_not_used_by_readers,
        "Kernels index a padded buffer as if it had no holes",
        ("padding/attention-padded-strides[backend=cpu]",),
        NVCC,
    ),
)
