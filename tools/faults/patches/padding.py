"""Faults of padding: which strides are padded, and to what."""

from tools.faults.planting import bite, edit, replace

PAD_STRIDES = "torch._inductor.ir:Layout._pad_strides"


def padding_without_threshold() -> None:
    edit(PAD_STRIDES, "stride > config.padding_stride_threshold", "stride > bite(0)")


def padding_at_the_threshold_itself() -> None:
    edit(
        PAD_STRIDES,
        "stride > config.padding_stride_threshold",
        "bite(stride >= config.padding_stride_threshold)",
    )


def channels_last_padded() -> None:
    edit(PAD_STRIDES, "if not config.pad_channels_last and", "if bite(False) and")


def nothing_is_padded() -> None:
    edit(PAD_STRIDES, "if len(in_strides) == 0:", "if bite(True):")


def padded_to_half_the_alignment() -> None:
    edit(
        PAD_STRIDES,
        "align = get_align_for_dtype(dtype)",
        "align = bite(get_align_for_dtype(dtype) // 2)",
    )


def padded_alike_for_every_dtype() -> None:
    replace("torch._inductor.ir:get_align_for_dtype", lambda _: lambda dtype: bite(32))


def padded_by_a_whole_alignment_more() -> None:
    edit(PAD_STRIDES, "ceildiv(stride, align) * align", "bite(ceildiv(stride, align) + 1) * align")


def rounded_down_to_the_alignment() -> None:
    edit(PAD_STRIDES, "ceildiv(stride, align) * align", "bite(stride // align) * align")


def enclosing_strides_not_padded() -> None:
    edit(
        PAD_STRIDES,
        "stride = new_strides[prev_idx] * size[prev_idx]",
        "stride = bite(in_strides[prev_idx]) * size[prev_idx]",
    )


def padding_not_counted() -> None:
    edit(PAD_STRIDES, "metrics.num_comprehensive_padding += 1", "bite()")


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
