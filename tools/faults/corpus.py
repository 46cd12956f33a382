"""The corpus of historical wrong answers: which issues were tried, what sees them, and the page
that says so.

``python -m tools.generate_docs`` writes the page. A test compares the two.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import yaml

from tools.faults.regressions import ROWS

SPECS = Path(__file__).resolve().parents[2] / "specs" / "regressions"
_ISSUE = re.compile(r"(.*) \(pytorch/pytorch#([0-9]+)\)")


class Why(Enum):
    """Why an issue has no spec that is shown to see it."""

    NO_PATCH = (
        "passes, detection not shown: the fix is not one place of torch's Python that can be "
        "taken back"
    )
    GPU = "passes nowhere yet: only GPUs had the fault, and the spec has not been run on one"
    NOT_REACHED = (
        "no spec: what we tried does not reach the place that was wrong, on this CPU or on torch "
        "2.13"
    )
    WRONG = "still wrong on torch 2.13: the spec is in `specs/defects`, and its failure is waived"


@dataclass(frozen=True)
class Tried:
    """An issue without a fault that its spec sees."""

    issue: int
    what: str
    """The wrong answer, in our words."""
    why: Why


NOT_SHOWN: Mapping[str, Why] = {
    "argmin-with-index-tie": Why.NO_PATCH,
    "argument-view-changed-before": Why.NO_PATCH,
    "as-strided-of-slice": Why.NO_PATCH,
    "attention-after-convolution": Why.NO_PATCH,
    "attention-own-scale": Why.NO_PATCH,
    "average-pool-one-element": Why.GPU,
    "boolean-min-index": Why.NO_PATCH,
    "cat-then-minimum": Why.NO_PATCH,
    "comparison-as-factor": Why.NO_PATCH,
    "cumulative-product-gradient": Why.NO_PATCH,
    "cumulative-sum-of-booleans": Why.NO_PATCH,
    "flipped-before-in-place-relu": Why.NO_PATCH,
    "function-with-in-place-backward": Why.NO_PATCH,
    "gradient-of-double-update": Why.NO_PATCH,
    "index-add-alpha": Why.NO_PATCH,
    "index-add-into-rows": Why.NO_PATCH,
    "log-before-in-place-log": Why.NO_PATCH,
    "mutated-buffer-reset": Why.NO_PATCH,
    "nested-list-written": Why.NO_PATCH,
    "operator-changes-two-rows": Why.NO_PATCH,
    "pad-one-element": Why.GPU,
    "reciprocal-in-place": Why.NO_PATCH,
    "replaced-buffer-guard": Why.NO_PATCH,
    "rrelu-in-evaluation": Why.NO_PATCH,
    "shared-module-called-twice": Why.NO_PATCH,
    "shared-relu-in-sequence": Why.NO_PATCH,
    "softmax-decomposed-gradient": Why.NO_PATCH,
    "squeeze-then-branch": Why.NO_PATCH,
    "trailing-copy-of-slices": Why.NO_PATCH,
    "unrolled-loop-updates": Why.NO_PATCH,
    "view-of-transposed-update": Why.NO_PATCH,
}
"""The specs that no planted fault is shown to turn red."""

WITHOUT_SPEC: Sequence[Tried] = (
    Tried(
        111506, "A constant tensor that is changed in the graph keeps the change", Why.NOT_REACHED
    ),
    Tried(122291, "slice_scatter writes another slice", Why.NOT_REACHED),
    Tried(132196, "An operator that writes two equal buffers gets one", Why.NOT_REACHED),
    Tried(144186, "A buffer that outer loop fusion removed is read", Why.NOT_REACHED),
    Tried(169253, "An append to a list of a class is dropped", Why.NOT_REACHED),
    Tried(173626, "A masked value is taken for a vector", Why.NOT_REACHED),
    Tried(
        174187, "A sum with zero is removed although its operand is changed later", Why.NOT_REACHED
    ),
    Tried(
        185382,
        "In-place ternary updates after a graph break in a loop use old numbers",
        Why.NOT_REACHED,
    ),
    Tried(185702, "Rows of a stack of slices share a local buffer", Why.NOT_REACHED),
    Tried(190764, "A chain of integer matrix products loses a term", Why.NOT_REACHED),
    Tried(194976, "A float that became dynamic is read once", Why.NOT_REACHED),
    Tried(163932, "A softmax of very large scaled numbers is NaN", Why.NOT_REACHED),
    Tried(
        120861,
        "A list that was also a global in the first call is taken for the global in the next",
        Why.WRONG,
    ),
    Tried(186875, "fmod and remainder with a scalar do not round it to bfloat16", Why.WRONG),
    Tried(
        187018,
        "The absolute value of a uint8 tensor is promoted to int before it is negated and summed",
        Why.WRONG,
    ),
    Tried(189518, "cumsum of ones ignores the dtype that it is given", Why.WRONG),
    Tried(
        195320,
        "Attention whose keys are permuted at once is taken for the pattern of the fused kernel",
        Why.WRONG,
    ),
    Tried(
        195422,
        "A change through the result of an inactive dropout does not reach the argument",
        Why.WRONG,
    ),
    Tried(
        196468,
        "Attention with a softmax over another dimension is replaced by the fused kernel",
        Why.WRONG,
    ),
    Tried(197895, "Floor division of floats is one too high below an integer", Why.WRONG),
    Tried(198057, "The remainder by infinity is NaN in vector code", Why.WRONG),
    Tried(
        198094,
        "The result of slice_scatter is overwritten by a later change of its argument",
        Why.WRONG,
    ),
    Tried(
        198102, "A change through an unfolded view with gaps writes zeros into the gaps", Why.WRONG
    ),
    Tried(
        198119,
        "The gradient of avg_pool2d with ceil_mode divides border windows by the full size",
        Why.WRONG,
    ),
)
"""Issues that were tried and have no spec that passes."""


def issues() -> dict[str, tuple[int, str]]:
    """Return the issue and the claim of each spec, by the name of the spec."""
    found: dict[str, tuple[int, str]] = {}
    for path in sorted(SPECS.glob("[!_]*.yaml")):
        match = _ISSUE.fullmatch(yaml.safe_load(path.read_text("utf-8"))["summary"])
        assert match is not None, (
            f"{path.name}: the summary does not end with (pytorch/pytorch#NUMBER)"
        )
        found[path.stem] = int(match[2]), match[1]
    return found


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    claims = issues()
    seen = [
        (spec, plant.__name__.replace("_", "-"), breaks)
        for plant, breaks, specs in ROWS
        for spec in specs
    ]
    tried = len(claims) + len(WITHOUT_SPEC)
    yield "# Historical wrong answers"
    yield ""
    yield (
        "`specs/regressions` restates issues in which `torch.compile` silently gave a wrong "
        "answer. This page is generated by"
    )
    yield "`python -m tools.generate_docs`; do not edit it."
    yield ""
    yield (
        f"**Seen: {len(seen)} of {tried} issues tried.** An issue is seen when its spec passes on "
        "torch 2.13 and fails, because the"
    )
    yield (
        "fault was executed, once the fix is taken back in the running torch (`tools/faults`; the "
        "nightly tests plant all of them)."
    )
    yield (
        f"{sum(one.why is Why.WRONG for one in WITHOUT_SPEC)} of the others are still wrong on "
        "torch 2.13."
    )
    yield ""
    yield "## Seen"
    yield ""
    yield "| issue | spec | the fix taken back: fault, and what it breaks |"
    yield "|---|---|---|"
    yield from (
        f"| {_link(claims[spec][0])} | `{spec}` | `{fault}`: {breaks} |"
        for spec, fault, breaks in sorted(seen, key=lambda one: claims[one[0]])
    )
    yield ""
    yield "## Not seen"
    for why in Why:
        yield ""
        yield f"{why.value[0].upper()}{why.value[1:]}:"
        yield ""
        rows = [
            (claims[spec][0], f"`{spec}`: {claims[spec][1]}")
            for spec, of in NOT_SHOWN.items()
            if of is why
        ]
        rows += [(one.issue, one.what) for one in WITHOUT_SPEC if one.why is why]
        yield from (f"- {_link(issue)} {text}" for issue, text in sorted(rows))


def _link(issue: int) -> str:
    return f"[#{issue}](https://github.com/pytorch/pytorch/issues/{issue})"
