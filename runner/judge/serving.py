"""Whether inductor backends served each GEMM, convolution or attention of a case. Pure."""

import re
from collections.abc import Iterator, Sequence

from runner.core.matching.generated_code import code_of
from runner.core.matching.time_limit import time_limit
from runner.core.tuning import Tuning
from runner.judge.evidence import CarriedOut
from runner.language.backends import Serves

_SECONDS = 5.0

_LIBRARY: dict[str, str] = {
    "gemm": r"(?:b?addb?mm|b?mm|_int_mm|_scaled_mm(?:_v2)?|_?(?:scaled_)?grouped_mm|_linear_pointwise|_weight_int\w+_mm\w*|addmv|mv|dot)",
    "convolution": r"(?:_?convolution\w*|cudnn_convolution\w*|miopen_convolution\w*|conv[123]d)",
    "attention": r"(?:_?scaled_dot_product_\w*attention\w*|_flash_attention\w*|_efficient_attention\w*)",
}
"""The functions of libraries and of ATen that compute an operation of a group."""

_CALL = (
    r"(?<![\w.])(?:extern_kernels\.{name}\(|aoti_torch_\w*?_(?:mkldnn_)?{name}(?:_out)?\(|at::(?:native::)?{name}(?:_out)?\("
    r"|(?:torch\.)?ops\.\w+\.{name}[.(])"
)


def unserved(wanted: Serves, steps: Sequence[CarriedOut]) -> str:
    """Return why the steps do not show that the backends served each operation of the group; empty if they do.

    A library kernel in the generated code is one that runs, whoever selected it. A graph that was served from a cache has no selection:
    its code must show the same kernels, which is what the ``code`` of a proof is for.
    """
    selected = [one for known in steps for one in known.facts.tunings.of([wanted.group])]
    if any(known.facts.tunings.count > len(known.facts.tunings.found) for known in steps):
        return "more operations were selected for than are recorded"
    others = [one for one in selected if one.won_by not in wanted.by]
    if others:
        return f"{_of(others[0])}{_why(others[0], wanted)}"
    for call in _library_calls(wanted.group, steps):
        return f"the generated code calls the library: {call}"
    if not selected:
        return f"inductor selected no kernel for any {wanted.group}"
    return ""


def _of(tuning: Tuning) -> str:
    return f"{tuning.op} was served by {tuning.won_by}" if tuning.won_by else f"what serves {tuning.op} is not known"


def _why(tuning: Tuning, wanted: Serves) -> str:
    """Explain what became of the candidates that should have won."""
    found = []
    for backend in wanted.by:
        tally = tuning.tally(backend)
        if not tally.rendered:
            found.append(f"{backend} had no candidate")
        elif tally.failed == tally.rendered:
            error = f": {tally.error}" if tally.error else ""
            found.append(f"all {tally.failed} candidates of {backend} failed{error}")
        else:
            found.append(f"{backend} had {tally.rendered} candidates, {tally.timed} timed")
    return "; " + "; ".join(found)


def _library_calls(group: str, steps: Sequence[CarriedOut]) -> Iterator[str]:
    pattern = re.compile(_CALL.replace("{name}", _LIBRARY[group]))
    for known in steps:
        for piece in known.facts.code:
            text = code_of(piece, strings=False).text
            with time_limit(_SECONDS):
                match = pattern.search(text)
            if match is not None:
                yield match[0].rstrip("(.")
