"""The corpus of historical wrong answers: which issues were tried, what sees them, and the page
that says so.

``python -m tools.generate_docs`` writes the page. A test compares the two.
"""

import re
from collections.abc import Iterator, Mapping
from enum import Enum
from pathlib import Path

import yaml

from tools.faults.fault import Fault
from tools.faults.patches.regressions import FAULTS
from tools.reports import table

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


NOT_SHOWN: Mapping[str, Why] = {
    **dict.fromkeys(
        (
            "argmin-with-index-tie",
            "argument-view-changed-before",
            "as-strided-of-slice",
            "attention-after-convolution",
            "attention-own-scale",
            "boolean-min-index",
            "cat-then-minimum",
            "comparison-as-factor",
            "cumulative-product-gradient",
            "cumulative-sum-of-booleans",
            "flipped-before-in-place-relu",
            "function-with-in-place-backward",
            "gradient-of-double-update",
            "index-add-alpha",
            "index-add-into-rows",
            "log-before-in-place-log",
            "mutated-buffer-reset",
            "nested-list-written",
            "operator-changes-two-rows",
            "reciprocal-in-place",
            "replaced-buffer-guard",
            "rrelu-in-evaluation",
            "shared-module-called-twice",
            "shared-relu-in-sequence",
            "softmax-decomposed-gradient",
            "squeeze-then-branch",
            "trailing-copy-of-slices",
            "unrolled-loop-updates",
            "view-of-transposed-update",
        ),
        Why.NO_PATCH,
    ),
    **dict.fromkeys(("average-pool-one-element", "pad-one-element"), Why.GPU),
}
"""The specs that no planted fault is shown to turn red."""

WITHOUT_SPEC: Mapping[Why, Mapping[int, str]] = {
    Why.NOT_REACHED: {
        111506: "A constant tensor that is changed in the graph keeps the change",
        122291: "slice_scatter writes another slice",
        132196: "An operator that writes two equal buffers gets one",
        144186: "A buffer that outer loop fusion removed is read",
        169253: "An append to a list of a class is dropped",
        173626: "A masked value is taken for a vector",
        174187: "A sum with zero is removed although its operand is changed later",
        185382: "In-place ternary updates after a graph break in a loop use old numbers",
        185702: "Rows of a stack of slices share a local buffer",
        190764: "A chain of integer matrix products loses a term",
        194976: "A float that became dynamic is read once",
        163932: "A softmax of very large scaled numbers is NaN",
    },
    Why.WRONG: {
        120861: (
            "A list that was also a global in the first call is taken for the global in the next"
        ),
        186875: "fmod and remainder with a scalar do not round it to bfloat16",
        187018: (
            "The absolute value of a uint8 tensor is promoted to int before it is negated "
            "and summed"
        ),
        189518: "cumsum of ones ignores the dtype that it is given",
        195320: (
            "Attention whose keys are permuted at once is taken for the pattern of the fused kernel"
        ),
        195422: "A change through the result of an inactive dropout does not reach the argument",
        196468: "Attention with a softmax over another dimension is replaced by the fused kernel",
        197895: "Floor division of floats is one too high below an integer",
        198057: "The remainder by infinity is NaN in vector code",
        198094: "The result of slice_scatter is overwritten by a later change of its argument",
        198102: "A change through an unfolded view with gaps writes zeros into the gaps",
        198119: "The gradient of avg_pool2d with ceil_mode divides border windows by the full size",
    },
}
"""Issues that were tried and have no spec that passes, with the wrong answer in our words."""


def issues() -> dict[str, tuple[int, str]]:
    """Return the issue and the claim of each spec, by the name of the spec."""
    issues: dict[str, tuple[int, str]] = {}
    for path in sorted(SPECS.glob("[!_]*.yaml")):
        match = _ISSUE.fullmatch(yaml.safe_load(path.read_text("utf-8"))["summary"])
        assert match is not None, (
            f"{path.name}: the summary does not end with (pytorch/pytorch#NUMBER)"
        )
        issues[path.stem] = int(match[2]), match[1]
    return issues


def seen() -> dict[str, Fault]:
    """Return the fault that each spec sees, by the name of the spec."""
    return {
        case_id.partition("/")[2].partition("[")[0]: fault
        for fault in FAULTS
        for case_id in fault.seen_by
    }


HEAD = """\
# Historical wrong answers

`specs/regressions` restates issues in which `torch.compile` silently gave a wrong answer. This page
is generated by `python -m tools.generate_docs`; do not edit it.

**Seen: {seen} of {tried} issues tried.** An issue is seen when its spec passes on torch 2.13 and
fails, because the fault was executed, once the fix is taken back in the running torch
(`tools/faults`; the nightly tests plant all of them). {wrong} of the others are still wrong on
torch 2.13.

## Seen
"""


def page() -> str:
    """Return the page as Markdown."""
    return "\n".join(_lines()) + "\n"


def _lines() -> Iterator[str]:
    claims, faults = issues(), seen()
    yield HEAD.format(
        seen=len(faults),
        tried=len(claims) + sum(map(len, WITHOUT_SPEC.values())),
        wrong=len(WITHOUT_SPEC[Why.WRONG]),
    )
    yield from table(
        ("issue", "spec", "the fix taken back: fault, and what it breaks"),
        [
            (_link(claims[spec][0]), f"`{spec}`", f"`{fault.name}`: {fault.breaks}")
            for spec, fault in sorted(faults.items(), key=lambda row: claims[row[0]])
        ],
    )
    yield "\n## Not seen"
    for why in Why:
        yield f"\n{why.value[0].upper()}{why.value[1:]}:\n"
        rows = [
            (claims[spec][0], f"`{spec}`: {claims[spec][1]}")
            for spec, of in NOT_SHOWN.items()
            if of is why
        ]
        rows += WITHOUT_SPEC.get(why, {}).items()
        yield from (f"- {_link(issue)} {text}" for issue, text in sorted(rows))


def _link(issue: int) -> str:
    return f"[#{issue}](https://github.com/pytorch/pytorch/issues/{issue})"
