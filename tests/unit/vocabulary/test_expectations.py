"""Each expectation on facts alone: both sides of each bound, its mutants, and bodies that mean
nothing.

One table, by kind.
"""

import dataclasses
import math
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from tests.fakes import (
    ELSEWHERE,
    close_facts,
    close_leaf,
    expected,
    judged,
    observation,
    reading,
    seen,
    step,
    verdict_of,
)
from tests.fakes import case as make_case
from torch_conformance.matching import filecheck, patterns
from torch_conformance.model.case_facts import (
    Cause,
    ChildExit,
    Raised,
    SpyCalls,
    Tally,
    Tuning,
    Tunings,
)
from torch_conformance.model.expectation import Status
from torch_conformance.vocabulary.expectations import EXPECTATIONS, BadExpectation
from torch_conformance.vocabulary.expectations.additional_calls import spread
from torch_conformance.vocabulary.expectations.close import contradiction
from torch_conformance.vocabulary.expectations.comparing import DEFAULTS, default_tolerance

HELD, FAILED, ERROR, NOT = Status.HELD, Status.FAILED, Status.ERROR, Status.NOT_APPLICABLE
Facts = dict[str, Any]
MOST = 1_000_000
"""The length of a text from the worker at most."""
Row = tuple[Any, Facts, Any]
"""A body, facts, and the status of the only judgement, or of each leaf."""


def measured(facts: Any) -> Facts:
    return {"measured": facts}


# -- counts ----------------------------------------------------------------------------------------

RANGES: list[tuple[Any, list[int], list[int]]] = [
    (2, [2], [1, 3, 0]),
    (0, [0], [1]),
    ({"min": 1}, [1, 2, 100], [0]),
    ({"max": 3}, [0, 3], [4]),
    ({"min": 2, "max": 3}, [2, 3], [1, 4]),
    ({"min": 2, "max": 2}, [2], [1, 3]),
    ({"value": 2, "unlisted": True}, [2], [1, 3]),
    ({"any": [4, 2]}, [2, 4], [1, 3, 5]),
    ({"any": [4, 3], "unlisted": True}, [3, 4], [0, 2, 5]),
    ([{"when": ELSEWHERE, "value": 9}, {"value": {"any": [1, 3]}}], [1, 3], [2, 9]),
    (
        [{"when": ELSEWHERE, "value": 1}, {"when": {"device": "cpu"}, "value": 2}, {"value": 3}],
        [2],
        [1, 3],
    ),
]
COUNTED = [
    (body, number, status)
    for body, *sides in RANGES
    for status, side in zip((HELD, FAILED), sides, strict=True)
    for number in side
]
NOWHERE = [{"when": ELSEWHERE, "value": 1}]
CACHE = "RemoteFxGraphCache"
REMOTE = {"remote": {CACHE: {"hit": 3, "miss": 1, "put": 1, "exception": 0}}}


def remote(**statuses: Status) -> dict[str, Status]:
    return {f"{CACHE} {word}": status for word, status in statuses.items()}


COUNTS: dict[str, list[Row]] = {
    "counter": [
        *(
            ({"inductor.hits": body}, {"counters": {"inductor": {"hits": number}}}, status)
            for body, number, status in COUNTED
        ),
        (
            {"inductor.hits": 0},
            {"counters": {"inductor": {"other": 5}}},
            HELD,
        ),  # torch never touched it
        (
            {"inductor.hits": 1},
            {"counters": {"aot_autograd": {"hits": 1}, "inductor": {"aot_autograd.hits": 1}}},
            FAILED,
        ),
        ({"graph_break.a.b": 1}, {"counters": {"graph_break": {"a.b": 1}}}, HELD),
        ({"a.b": NOWHERE}, {}, NOT),
    ],
    "metric": [
        *(
            ({"kernels": body}, {"metrics": {"kernels": number}}, status)
            for body, number, status in COUNTED
        ),
        *(({"gone": body}, {"metrics": {"kernels": 1}}, ERROR) for body in (0, {"max": 5}, 1)),
        ({"gone": NOWHERE}, {}, NOT),
    ],
    "generated_files": [
        *((body, {"code": ("x",) * number}, status) for body, number, status in COUNTED),
        (NOWHERE, {}, NOT),
    ],
    "remote_cache": [
        ({CACHE: {"hit": 3, "miss": 1, "put": 1}}, REMOTE, remote(hit=HELD, miss=HELD, put=HELD)),
        ({CACHE: {"hit": 2, "miss": 1}}, REMOTE, remote(hit=FAILED, miss=HELD)),
        ({CACHE: {"hit": 4, "put": {"min": 2}}}, REMOTE, remote(hit=FAILED, put=FAILED)),
        ({CACHE: {"hit": {"min": 3, "max": 3}}}, REMOTE, HELD),
        ({CACHE: {"put": 1, "exception": {"min": 1}}}, REMOTE, remote(put=HELD, exception=FAILED)),
        ({"RemoteAutotuneCache": {"hit": 1}}, REMOTE, FAILED),
        (
            {CACHE: {"hit": 3}, "RemoteAutotuneCache": {"put": 0}},
            REMOTE,
            {**remote(hit=HELD), "RemoteAutotuneCache put": HELD},
        ),
        ({CACHE: {"hit": 1}}, {}, ERROR),
        ({CACHE: {"hit": [{"when": ELSEWHERE, "value": 7}]}}, REMOTE, remote(hit=NOT)),
    ],
}

# -- calls, exit, text, log, dead, raises, runs ----------------------------------------------------

ENTRIES = [
    {"same": True, "size": 1},
    {"same": False, "size": {"$float": "inf"}},
    {"argv": ["nvcc", "-Wx"], "text": "nvcc -Wx"},
]
CALLS = {
    "calls": {
        "order": SpyCalls(count=3, entries=tuple(ENTRIES)),
        "never": SpyCalls(count=0, entries=()),
    }
}
MANY = {"calls": {"order": SpyCalls(count=5, entries=({"same": True},))}}


def exited(code: int, stderr: str = "", stdout: str | None = None) -> Facts:
    return {"exit": ChildExit(code=code, stderr=stderr, stdout=stdout)}


TEXTS: list[tuple[Any, str, Status]] = [
    ({"contains": "nvcc"}, "nvcc -Wx a.cu", HELD),
    ({"contains": "nvcc"}, "", FAILED),
    ({"contains": ["nvcc", "-Wx"]}, "-Wx nvcc", HELD),
    ({"contains": ["nvcc", "-Wy"]}, "nvcc -Wx", FAILED),
    ({"matches": "^nvcc .*cu$"}, "nvcc -Wx a.cu", HELD),
    ({"matches": "^nvcc$"}, "nvcc -Wx", FAILED),
    ({"contains": "nvcc", "matches": "-Wy"}, "nvcc -Wx", FAILED),
    ({"contains": "nvcc", "matches": "-Wx"}, "nvcc -Wx", HELD),
    ({"contains": "nvcc", "lacks": "-Wy"}, "nvcc -Wx", HELD),
    ({"contains": "nvcc", "lacks": ["-Wy", "-Wx"]}, "nvcc -Wx", FAILED),
    ({"contains": "nvcc", "lacks": "-Wy"}, "-Wx", FAILED),
    ({"matches": "^nvcc", "lacks": "-Wy"}, "nvcc -Wx", HELD),
    ({"contains": "ld", "count": 2}, "nvcc ldx ldy", HELD),
    ({"contains": "ld", "count": 2}, "nvcc ldx", FAILED),
    ({"contains": "ld", "count": 2}, "ldx ldy ldz", FAILED),
    ({"contains": ["ld", "nvcc"], "count": {"min": 2}}, "nvcc nvcc ldx ldy ldz", HELD),
    ({"contains": ["ld", "nvcc"], "count": 2}, "nvcc ldx ldy", FAILED),  # each part, so nvcc too
    ({"contains": "ld", "count": {"max": 2}}, "ldx ldy ldz", FAILED),
    ({"contains": "ld", "count": {"any": [1, 3]}}, "ldx ldy", FAILED),
    ({"contains": "ld", "count": [{"when": ELSEWHERE, "value": 7}, {"value": 1}]}, "ldx", HELD),
    (
        {"contains": "ld", "count": [{"when": ELSEWHERE, "value": 7}]},
        "ldx",
        HELD,
    ),  # that it is there still applies
    ({"contains": "ana", "count": 1}, "anana", HELD),  # without overlaps
    ({"contains": "ld", "count": 1, "matches": "^nvcc"}, "ldx", FAILED),
    ({"contains": "ld", "count": 1, "lacks": "y"}, "ldy", FAILED),
    # only the end of a long text is kept: a part may have been in what is gone
    *(
        ({"contains": text[:2], "lacks": "-Wy"}, text, ERROR)
        for text in ("x" * MOST, "x" * (MOST - 3), "\u20ac" * (MOST // 3))
    ),
    ({"contains": "xx", "lacks": "-Wy"}, "x" * MOST + "-Wy", FAILED),
    ({"contains": "ld", "count": 2}, "x" * MOST + "ldld", ERROR),
    ({"contains": "ld", "count": 1}, "x" * MOST + "ldld", FAILED),
    ({"contains": "ld", "count": {"min": 3}}, "x" * MOST + "ldld", ERROR),
]


def text_rows() -> list[Row]:
    return [
        (body, measured({"text": text, "type": "a str"}), status) for body, text, status in TEXTS
    ]


def raised(
    type_: str = "builtins.KeyError",
    message: str = "'no such key'",
    *ancestors: str,
    causes: tuple[Cause, ...] = (),
) -> Facts:
    every = (
        type_,
        *ancestors,
        "builtins.LookupError",
        "builtins.Exception",
        "builtins.BaseException",
        "builtins.object",
    )
    return {
        "raised": Raised(
            type=type_,
            ancestors=every,
            message=message,
            traceback="Traceback ...",
            phase="trace",
            causes=causes,
        )
    }


BY_ZERO = Cause(
    type="builtins.ZeroDivisionError",
    ancestors=("builtins.ZeroDivisionError", "builtins.ArithmeticError"),
    message="by zero",
)
NO_KEY = Cause(
    type="builtins.KeyError", ancestors=("builtins.KeyError", "builtins.LookupError"), message="'x'"
)
CHAIN = raised("builtins.RuntimeError", "no answer", causes=(BY_ZERO, NO_KEY))
OF_BACKEND = raised(
    "torch._dynamo.exc.BackendCompilerFailed", "x", "torch._dynamo.exc.TorchDynamoException"
)

SEEN: dict[str, list[Row]] = {
    "calls": [
        ({"of": "order"}, CALLS, HELD),
        ({"of": "never"}, CALLS, FAILED),
        ({"of": "never", "count": 0}, CALLS, HELD),
        ({"of": "order", "count": 0}, CALLS, FAILED),
        ({"of": "order", "count": 3}, CALLS, HELD),
        ({"of": "order", "count": 2}, CALLS, FAILED),
        ({"of": "order", "count": {"min": 4}}, CALLS, FAILED),
        ({"of": "order", "where": {"same": True}, "count": 1}, CALLS, HELD),
        ({"of": "order", "where": {"same": 7}, "count": 0}, CALLS, HELD),
        ({"of": "order", "where": {"same": 1}}, CALLS, FAILED),  # 1 is not true
        ({"of": "order", "where": {"same": True, "size": 2}}, CALLS, FAILED),
        ({"of": "order", "where": {"size": math.inf}}, CALLS, HELD),
        ({"of": "order", "where": {"absent": None}}, CALLS, FAILED),
        ({"of": "order", "where": {"argv": {"contains": ["-Wx", "nvcc"]}}}, CALLS, HELD),
        (
            {"of": "order", "where": {"argv": {"contains": ["-W"]}}},
            CALLS,
            FAILED,
        ),  # a part of a list is an item
        ({"of": "order", "where": {"argv": {"contains": "q"}}, "count": {"max": 1}}, CALLS, HELD),
        ({"of": "order", "where": {"text": {"contains": "-W"}}}, CALLS, HELD),
        ({"of": "order", "where": {"text": {"contains": "-Y"}}}, CALLS, FAILED),
        ({"of": "order", "where": {"same": {"contains": "x"}}}, CALLS, FAILED),
        ({"of": "order", "count": [{"when": ELSEWHERE, "value": 9}]}, CALLS, NOT),
        ({"of": "stranger"}, CALLS, ERROR),
        ({"of": "order", "count": 5}, MANY, HELD),
        (
            {"of": "order", "where": {"same": True}, "count": 1},
            MANY,
            ERROR,
        ),  # entries that were not kept are not guessed
    ],
    "exit": [
        ({"code": 0}, exited(0), HELD),
        ({"code": 0}, exited(1), FAILED),
        ({"code": 0}, exited(-11), FAILED),
        ({"code": 3, "stderr": "planted"}, exited(3, "planted"), HELD),
        ({"code": 3, "stderr": "planted"}, exited(1, "planted"), FAILED),
        ({"code": 3, "stderr": "planted"}, exited(3, "ImportError"), FAILED),
        ({"nonzero": True, "stderr": "planted"}, exited(-9, "it was planted here"), HELD),
        ({"nonzero": True, "stderr": "planted"}, exited(0, "planted"), FAILED),
        ({"nonzero": True, "stderr": ["planted", "here"]}, exited(1, "planted"), FAILED),
        ({"code": 0, "stdout": "ready"}, exited(0, "", "it is ready\n"), {"stdout": HELD}),
        ({"code": 0, "stdout": "ready"}, exited(0, "", ""), {"stdout": FAILED}),
        (
            {"code": 0, "stdout": ["it", "ready"], "stderr": "warned"},
            exited(0, "warned", "it is ready"),
            {"": HELD, "stdout": HELD},
        ),
        ({"code": 0, "stdout": "ready"}, exited(0), {"stdout": ERROR}),
        ({"code": 1, "stdout": "ready"}, exited(0, "", "ready"), FAILED),
        ({"code": 0}, {}, ERROR),
    ],
    "text": [
        *text_rows(),
        ({"of": "found", "contains": "1"}, measured({"text": None, "type": "a list"}), FAILED),
    ],
    "log": text_rows(),
    "dead": [
        (
            ["a.b"],
            measured({"a.b": {"was": True, "type": "Parameter", "alive": False}}),
            {"a.b": HELD},
        ),
        (
            ["a.b"],
            measured({"a.b": {"was": True, "type": "Parameter", "alive": True}}),
            {"a.b": FAILED},
        ),
        (
            ["a.b"],
            measured({"a.b": {"was": False, "type": "AttributeError: no", "alive": False}}),
            {"a.b": ERROR},
        ),
    ],
    "runs": [({}, {}, HELD), ({}, raised(), FAILED)],
    "raises": [
        *(
            ({"type": type_}, raised(), HELD)
            for type_ in ("KeyError", "builtins.KeyError", "LookupError", "Exception")
        ),
        *(({"type": type_}, raised(), FAILED) for type_ in ("ValueError", "Key", "other.KeyError")),
        *(
            ({"type": "KeyError", "match": pattern}, raised(), HELD)
            for pattern in ("such key", "^'no")
        ),
        *(
            ({"type": "KeyError", "match": pattern}, raised(), FAILED)
            for pattern in ("^such", "another")
        ),
        ({"type": "ValueError", "match": "such key"}, raised(), FAILED),
        ({"type": "KeyError", "match": "x"}, {}, FAILED),
        ({"type": "torch._dynamo.exc.TorchDynamoException"}, OF_BACKEND, HELD),
        ({"type": "BackendCompilerFailed"}, OF_BACKEND, FAILED),
        ({"type": "RuntimeError", "cause": {"type": "ZeroDivisionError"}}, CHAIN, HELD),
        (
            {"type": "RuntimeError", "cause": {"type": "ArithmeticError", "match": "zero$"}},
            CHAIN,
            HELD,
        ),
        (
            {"type": "RuntimeError", "cause": {"type": "KeyError"}},
            CHAIN,
            HELD,
        ),  # anywhere in the chain
        ({"type": "RuntimeError", "cause": {"type": "ValueError"}}, CHAIN, FAILED),
        ({"type": "RuntimeError", "cause": {"type": "KeyError", "match": "zero"}}, CHAIN, FAILED),
        (
            {"type": "KeyError", "cause": {"type": "KeyError"}},
            raised(),
            FAILED,
        ),  # it is no cause of itself
    ],
}

# -- code ------------------------------------------------------------------------------------------

CODE = {"code": ("def call(args):\n    buf0 = empty()\n    kernel.run(buf0)\n    return buf0\n",)}
TWO_PIECES = {"code": ("one", "two")}
DIRECTIVES = [
    ("CHECK: kernel.run", HELD),
    ("CHECK: other.run", FAILED),
    ("CHECK: return\nCHECK: kernel.run", FAILED),
    ("CHECK: kernel.run\nCHECK-NOT: kernel.run\nCHECK: return", HELD),
    ("CHECK: def\nCHECK-NOT: kernel.run\nCHECK: return", FAILED),
    ("CHECK-COUNT-2: buf0", HELD),
    ("CHECK-COUNT-4: buf0", FAILED),
]
CODES: dict[str, list[Row]] = {
    "filecheck": [
        *(
            (form, CODE, status)
            for checks, status in DIRECTIVES
            for form in (checks, {"checks": checks}, {"checks": checks, "code": "all"})
        ),
        *(
            ({"checks": "CHECK: one", **choice}, {}, ERROR)
            for choice in ({}, {"code": "all"}, {"code": 0})
        ),
        ({"checks": "CHECK: one"}, TWO_PIECES, ERROR),
        ({"checks": "CHECK: one", "code": 0}, TWO_PIECES, HELD),
        ({"checks": "CHECK: one", "code": 1}, TWO_PIECES, FAILED),
        ({"checks": "CHECK: two", "code": 1}, TWO_PIECES, HELD),
        ({"checks": "CHECK: two", "code": 2}, TWO_PIECES, ERROR),
        ({"checks": "CHECK: one\nCHECK: two", "code": "all"}, TWO_PIECES, HELD),
        ({"checks": "CHECK: two\nCHECK: one", "code": "all"}, TWO_PIECES, FAILED),
        *(
            ({"checks": "CHECK: one\nCHECK-NOT: two"}, {"code": (blank,)}, ERROR)
            for blank in ("", " \n ")
        ),
    ]
}

# -- values ----------------------------------------------------------------------------------------

SAME: list[tuple[Any, Any]] = [
    *(
        (value, value)
        for value in (
            1,
            "a",
            None,
            True,
            math.nan,
            math.inf,
            [],
            [1, [2.5, math.nan]],
            {"a": math.nan},
            2**62 + 1,
        )
    ),
    (1, 1.0),
    ({"a": [1], "b": None}, {"b": None, "a": [1]}),
]
DIFFERENT: list[tuple[Any, Any]] = [
    *(
        (1, 2),
        (True, 1),
        (1, True),
        (False, 0),
        (0, None),
        ("1", 1),
        (math.nan, 0.0),
        (math.inf, -math.inf),
        ([1], [1, 2]),
        ([1, 2], [1]),
    ),
    *(
        ([1], 1),
        ([], {}),
        ([True], [1]),
        ({"a": 1}, {"a": 2}),
        ({"a": 1}, {"a": True}),
        ({"a": 1}, {"b": 1}),
        ({}, None),
    ),
    *(({"a": 1}, {"a": 1, "b": 1}), (2**62 + 1, 2**62)),
]


def pairs(of_same: Status, of_different: Status) -> list[Row]:
    """Return rows of values, and of two named values; what was not measured or is neither true nor
    false holds nothing.
    """
    rows: list[Row] = [
        ({"x": other}, measured({"x": {"value": value}}), {"x": status})
        for status, side in ((of_same, SAME), (of_different, DIFFERENT))
        for value, other in side
    ]
    named = {"first": {"ref": "second"}}
    for equal, status in (
        (True, of_same),
        (False, of_different),
        *((lie, FAILED) for lie in (1, 0, "yes", None, [True])),
    ):
        rows.append(
            (
                named,
                measured(
                    {
                        "first": {
                            "comparable": True,
                            "equal": equal,
                            "why": "" if equal else "leaf 0",
                        }
                    }
                ),
                {"first": status},
            )
        )
    return [
        *rows,
        (
            named,
            measured({"first": {"comparable": False, "equal": False, "why": "both are empty"}}),
            {"first": ERROR},
        ),
        ({"a": 1, "c": 3}, measured({"a": {"value": 1}}), {"a": of_same, "c": ERROR}),
    ]


def tensor(*strides: int, formats: tuple[str, ...] = ("contiguous_format",)) -> Facts:
    return {"shape": [2] * len(strides), "strides": list(strides), "formats": list(formats)}


def strided(*tensors: Facts) -> Facts:
    return measured({"tensors": list(tensors)})


GOOD, BAD = tensor(2, 1), tensor(1, 2)
VALUES: dict[str, list[Row]] = {
    "equals": pairs(HELD, FAILED),
    "differs": pairs(FAILED, HELD),
    "strides": [
        ({"equals": [2, 1]}, strided(GOOD), HELD),
        *(({"equals": wrong}, strided(GOOD), FAILED) for wrong in ([2, 2], [3, 1], [2], [2, 1, 1])),
        ({"contiguous": True}, strided(GOOD), HELD),
        *(
            ({"contiguous": True}, strided(tensor(2, 1, formats=other)), FAILED)
            for other in ((), ("channels_last",))
        ),
        ({"contiguous": False}, strided(GOOD), FAILED),
        ({"contiguous": False}, strided(tensor(2, 1, formats=("channels_last",))), HELD),
        ({"contiguous": "channels_last"}, strided(tensor(2, 1, formats=("channels_last",))), HELD),
        ({"contiguous": "channels_last"}, strided(GOOD), FAILED),
        ({"equals": [2, 1], "contiguous": True}, strided(GOOD), HELD),
        ({"equals": [2, 1], "contiguous": True}, strided(tensor(2, 1, formats=())), FAILED),
        ({"equals": [2, 1]}, strided(GOOD, GOOD), HELD),
        ({"equals": [2, 1]}, strided(GOOD, BAD), FAILED),
        ({"equals": [2, 1], "output": 0}, strided(GOOD, BAD), HELD),
        ({"equals": [2, 1], "output": 1}, strided(GOOD, BAD), FAILED),
        ({"equals": [2, 1], "output": [0, 2]}, strided(GOOD, BAD, GOOD), HELD),
        ({"equals": [2, 1], "output": [0, 1]}, strided(GOOD, BAD, GOOD), FAILED),
        ({"equals": [2, 1]}, strided(), ERROR),
        ({"equals": [2, 1], "output": [0, 1]}, strided(GOOD), ERROR),
        ({"to": "eager"}, measured({"tensors": [GOOD], "others": [GOOD]}), HELD),
        ({"to": "eager"}, measured({"tensors": [GOOD], "others": [BAD]}), FAILED),
        ({"to": "eager"}, measured({"tensors": [GOOD], "others": []}), FAILED),
    ],
}

# -- close -----------------------------------------------------------------------------------------

EAGER = {"to": "eager"}


def close(**changes: Any) -> Facts:
    return measured(close_facts(close_leaf(**changes)))


def no_tensor(equal: Any) -> Facts:
    described = {"type": "int", "shape": None, "dtype": None, "device": None}
    leaf = {
        **described,
        **{f"reference_{fact}": value for fact, value in described.items()},
        "path": "[1]",
        "equal": equal,
    }
    return measured(close_facts({**leaf, "value": "3", "reference_value": "4"}))


def shaped(shape: list[int], numel: int) -> Facts:
    return close(shape=shape, reference_shape=shape, numel=numel)


OTHERS = {
    "shape": ([3, 1], [3]),
    "dtype": ("float32", "float64"),
    "device": ("cpu", "cuda"),
    "type": ("tensor", "NoneType"),
}
WIDE = {"to": "eager", "atol": 1e300, "rtol": 0.0}
EXACT = {"to": "eager", "exact": True}
SAME_BITS = {"differing": 0, "index": [], "value": None, "reference": None}
OTHER_BITS = {"differing": 1, "index": [0], "value": "0.0", "reference": "-0.0"}
CLOSE: dict[str, list[Row]] = {
    "close": [
        (EAGER, measured(close_facts(close_leaf(), close_leaf())), HELD),
        *(
            (EAGER, close(excess=excess, mismatches=1), HELD)
            for excess in (0.0, 1e-5, math.nextafter(1e-5, 0))
        ),
        *(
            (EAGER, close(excess=excess, mismatches=1), FAILED)
            for excess in (math.nextafter(1e-5, 1), math.inf, math.nan)
        ),
        *(
            (
                {"to": "eager", "atol": 0.25, "rtol": 0.5},
                close(atol=0.25, rtol=0.5, excess=excess),
                status,
            )
            for excess, status in ((0.25, HELD), (math.nextafter(0.25, 1), FAILED))
        ),
        (WIDE, close(atol=1e300, rtol=0.0), HELD),
        *(
            (WIDE, close(atol=1e300, rtol=0.0, **{fact: 1}), FAILED)
            for fact in ("nan_mismatches", "inf_mismatches")
        ),
        *(
            (EAGER, close(**{fact: value, f"reference_{fact}": reference}), FAILED)
            for fact, (value, reference) in OTHERS.items()
        ),
        (EAGER, measured(close_facts(structure="[*, *]", reference_structure="(*, *)")), FAILED),
        (EXACT, close(bits=SAME_BITS), HELD),
        (EXACT, close(bits=OTHER_BITS), FAILED),
        (EXACT, close(bits=OTHER_BITS, numel=2), ERROR),
        (EAGER, no_tensor(True), HELD),
        *((EAGER, no_tensor(equal), FAILED) for equal in (False, 1, "no")),
        (EAGER, measured(close_facts()), ERROR),  # there is nothing to compare
        # measured with another tolerance
        *(
            (EAGER, close(rtol=rtol, atol=atol), ERROR)
            for rtol, atol in ((0.5, 1e-5), (1.3e-6, 0.5), (0.0, 0.0))
        ),
        ({"to": "eager", "atol": 1.0, "rtol": 1.0}, close(), ERROR),
        # not as many elements as the shape has
        *(
            (EAGER, shaped(shape, numel), ERROR)
            for shape, numel in (([3], 0), ([3], 2), ([3], 4), ([], 0), ([0], 3), ([2, 2], 3))
        ),
        *((EAGER, shaped(shape, 0), HELD) for shape in ([0], [2, 0, 3])),
        *(
            (
                EAGER,
                close(dtype=dtype, reference_dtype=dtype, rtol=rtol, atol=atol, excess=excess),
                status,
            )
            for dtype in (*DEFAULTS, "int64", "bool", "uint8", "float8_e4m3fn")
            for rtol, atol in [default_tolerance(dtype)]
            for excess, status in ((atol, HELD), (math.nextafter(atol, 1), FAILED))
        ),
    ]
}

# -- what dynamo and inductor did ------------------------------------------------------------------


def kernels(fused: int = 1, extern: int = 0, user: int = 0, **more: Any) -> Facts:
    launched = {"fused": fused, "extern": extern, "user": user}
    known = {
        "recorded": True,
        "ran": 1,
        "uncounted": [],
        "uncompiled": [],
        "compiled": 1,
        "names": ["fused cpp_fused_add_0"],
    }
    return measured({"launched": launched, **known, **more})


TEXT = """\
class <lambda>(torch.nn.Module):
    def forward(self, x: "f32[4, 4][4, 1]cpu"):
        # File: spec.yaml:5 in fn, code: return torch.relu(x @ x)
        mm: "f32[4, 4][4, 1]cpu" = torch.ops.aten.mm.default(x, x);  x = None
        return (mm,)
"""


def graph(text: str = TEXT, **ops: int) -> Facts:
    return {
        "ops": {name.replace("_", "."): count for name, count in ops.items()},
        "text": text,
        "cut": False,
        "problem": "",
    }


def graphs(*of_stage: Facts, unknown: tuple[str, ...] = (), available: bool = True) -> Facts:
    return measured({"available": available, "unknown": list(unknown), "graphs": list(of_stage)})


ONE = graphs(graph(aten_mm_default=1, aten_add_Tensor=2, aten_add_Scalar=1))
TWO = graphs(
    graph(aten_mm_default=1),
    graph(text="other = torch.ops.aten.sin.default(x)\n", aten_sin_default=2),
)
OF_MM = graphs(graph(aten_mm=1))
GUARDS = {
    "frames": 1,
    "problem": "",
    "count": 2,
    "texts": [
        "TENSOR_MATCH: check_tensor(L['x'], size=[4])",
        "LAMBDA_GUARD: 2 <= L['x'].size()[0]",
    ],
}


def events(*reasons: str, count: int | None = None, **changes: Any) -> Facts:
    found = [{"frame": "fn", "reason": reason} for reason in reasons]
    known = {
        "recorded": True,
        "frames": 1,
        "reused": 1,
        "count": len(found) if count is None else count,
        "events": found,
    }
    return measured({**known, **changes})


SIZE, DTYPE = "0/0: tensor 'x' size mismatch at index 0", "0/1: tensor 'x' dtype mismatch"
EVENTS: list[Row] = [
    ({"count": 0}, events(), {"count": HELD}),
    ({"count": 0}, events(SIZE), {"count": FAILED}),
    ({"count": 1}, events(SIZE), {"count": HELD}),
    ({"count": 1}, events(SIZE, SIZE), {"count": FAILED}),
    ({"count": 201}, events(SIZE, count=201), {"count": HELD}),
    ({"reason": {"contains": "size mismatch"}}, events(SIZE), {"count": HELD, "reason": HELD}),
    ({"reason": {"contains": "size mismatch"}}, events(), {"count": FAILED, "reason": FAILED}),
    (
        {"reason": {"contains": "size mismatch"}},
        events(SIZE, DTYPE),
        {"count": HELD, "reason": FAILED},
    ),
    (
        {"count": 2, "reason": {"contains": "mismatch"}},
        events(SIZE, DTYPE),
        {"count": HELD, "reason": HELD},
    ),
    (
        {"count": 2, "reason": {"matches": "(size|dtype) mismatch"}},
        events(SIZE, DTYPE),
        {"count": HELD, "reason": HELD},
    ),
    (
        {"reason": {"contains": "size", "matches": "index [12]"}},
        events(SIZE),
        {"count": HELD, "reason": FAILED},
    ),
    ({"count": 0}, events(recorded=False), ERROR),
]
MAY_BE_NONE: list[Any] = [{"count": 0}, {"count": {"max": 2}}, {"count": {"any": [0, 2]}}]
COMPILED: dict[str, list[Row]] = {
    "kernels": [
        *(({"launched": 1}, kernels(*counts), {"launched": HELD}) for counts in ((1,), (0, 1))),
        *(
            ({"launched": 1}, kernels(*counts), {"launched": FAILED})
            for counts in ((2,), (0,), (1, 1), (1, 0, 1))
        ),
        ({"launched": 0}, kernels(0), {"launched": HELD}),
        ({"launched": {"min": 2}}, kernels(1, 1), {"launched": HELD}),
        ({"fused": 1}, kernels(1, 3, 2), {"fused": HELD}),
        ({"extern": 0}, kernels(1, 1), {"extern": FAILED}),
        ({"user": 1}, kernels(1, 0, 1), {"user": HELD}),
        ({"compiled": 1}, kernels(5), {"compiled": HELD}),
        ({"compiled": 1}, kernels(compiled=0), {"compiled": FAILED}),
        ({"compiled": 0}, kernels(compiled=0), {"compiled": HELD}),
        *(
            (({"compiled": count}), kernels(compiled=0, ran=0), {"compiled": ERROR})
            for count in (0, {"max": 2})
        ),
        ({"compiled": 1}, kernels(compiled=0, ran=0), {"compiled": FAILED}),
        ({"compiled": 1}, kernels(compiled=1, ran=0), {"compiled": HELD}),
        *(
            ({key: 1}, kernels(**why), {key: ERROR})
            for key in ("launched", "fused", "extern", "user")
            for why in ({"ran": 0}, {"uncounted": ["a C++ wrapper"]}, {"recorded": False})
        ),
        (
            {"launched": 1, "compiled": 1},
            kernels(uncompiled=["a C++ wrapper"]),
            {"launched": HELD, "compiled": ERROR},
        ),
    ],
    "graph": [
        ({"stage": "post_grad", **body}, facts, statuses)
        for body, facts, statuses in (
            ({"count": 1}, ONE, {"count": HELD}),
            ({"count": 1}, TWO, {"count": FAILED}),
            ({"ops": {"aten.mm.default": 1}}, ONE, {"ops aten.mm.default": HELD}),
            ({"ops": {"aten.mm.default": 2}}, ONE, {"ops aten.mm.default": FAILED}),
            ({"ops": {"aten.sin": 0}}, ONE, {"ops aten.sin": HELD}),
            (
                {"ops": {"aten.add": 3, "aten.add.Tensor": 2}},
                ONE,
                {"ops aten.add": HELD, "ops aten.add.Tensor": HELD},
            ),
            ({"ops": {"aten.ad": 0}}, ONE, {"ops aten.ad": HELD}),
            (
                {"index": 1, "ops": {"aten.sin": 2, "aten.mm": 0}},
                TWO,
                {"ops aten.sin": HELD, "ops aten.mm": HELD},
            ),
            (
                {"index": "all", "ops": {"aten.sin": 2, "aten.mm": 1}},
                TWO,
                {"ops aten.sin": HELD, "ops aten.mm": HELD},
            ),
            ({"ops": {"aten.sin": 2}}, TWO, ERROR),
            ({"index": 2, "ops": {"aten.sin": 2}}, TWO, ERROR),
            ({"count": 2, "checks": "CHECK: mm"}, TWO, {"count": HELD, "": ERROR}),
            ({"checks": "CHECK: aten.mm.default"}, ONE, {"checks": HELD}),
            (
                {"checks": "CHECK: torch.relu"},
                ONE,
                {"checks": FAILED},
            ),  # the user's code beside a graph is no part of it
            ({"index": 0, "checks": "CHECK: aten.sin"}, TWO, {"checks": FAILED}),
            ({"index": "all", "checks": "CHECK: aten.mm\nCHECK: aten.sin"}, TWO, {"checks": HELD}),
            ({"ops": {"torch.matmul": 0}}, OF_MM, {"ops torch.matmul": ERROR}),
            ({"ops": {"torch.sym_max": 0}}, OF_MM, {"ops torch.sym_max": HELD}),
            (
                {"ops": {"aten.mmm": 0}},
                graphs(graph(aten_mm=1), unknown=("aten.mmm",)),
                {"ops aten.mmm": ERROR},
            ),
            ({"checks": "CHECK: aten.mm"}, graphs({**graph(), "cut": True}), {"checks": ERROR}),
            (
                {"count": 1, "ops": {"aten.mm": 0}},
                graphs({**graph(), "problem": "it cannot be read"}),
                {"count": HELD, "": ERROR},
            ),
            ({"count": 0}, graphs(), ERROR),
            ({"count": 1}, graphs(available=False), ERROR),
        )
    ],
    "guards": [
        ({"count": 2}, measured(GUARDS), {"count": HELD}),
        ({"count": 1}, measured(GUARDS), {"count": FAILED}),
        ({"contains": "L['x'].size()[0]"}, measured(GUARDS), {"contains": HELD}),
        ({"contains": ["L['x']", "L['y']"]}, measured(GUARDS), {"contains": FAILED}),
        ({"contains": "check_tensor(L['x']"}, measured(GUARDS), {"contains": HELD}),
        ({"matches": "size=.4."}, measured(GUARDS), {"matches": HELD}),
        ({"matches": "size=.5."}, measured(GUARDS), {"matches": FAILED}),
        (
            {"checks": "CHECK: TENSOR_MATCH\nCHECK-NEXT: 2 <= L['x']"},
            measured(GUARDS),
            {"checks": HELD},
        ),
        (
            {"checks": "CHECK: TENSOR_MATCH\nCHECK-NOT: LAMBDA_GUARD"},
            measured(GUARDS),
            {"checks": FAILED},
        ),
        (
            {"count": 2, "contains": "L['x']", "matches": "L.'x'"},
            measured(GUARDS),
            dict.fromkeys(("count", "contains", "matches"), HELD),
        ),
        (
            {"count": {"max": 3}},
            measured({"frames": 0, "problem": "", "count": 0, "texts": []}),
            ERROR,
        ),
        ({"count": {"max": 9}}, measured({**GUARDS, "problem": "guards cannot be read"}), ERROR),
        (
            {"count": 9, "checks": "CHECK: check_tensor(L['x']"},
            measured({**GUARDS, "count": 9}),
            {"count": HELD, "": ERROR},
        ),
    ],
    "recompiles": [
        *EVENTS,
        (
            {"count": 0},
            events(frames=0),
            {"count": HELD},
        ),  # a call that is served compiles nothing again
        *(
            (body, events(frames=frames, reused=0), ERROR)
            for body in MAY_BE_NONE
            for frames in (0, 1)
        ),
        ({"count": 1}, events(reused=0), {"count": FAILED}),
    ],
    "graph_breaks": [
        *EVENTS,
        ({"count": 0}, events(frames=0), ERROR),
        ({"count": 1}, events(frames=0), {"count": FAILED}),
    ],
}

# -- more calls, and candidates --------------------------------------------------------------------

DONE = {"done": True, "tensors": 1, "eager_calls": 0}
OTHER = {"path": "[0]", "why": "1 of 3 elements; at [2]: nan instead of 1.0"}
BROKEN = {"number": 1, "chosen": ["broken"], "raised": "CppCompileError: no"}
WRONG = close_facts(close_leaf(mismatches=1, excess=1.0, max_abs=1.0))


def done(**facts: Any) -> Facts:
    return measured({**DONE, **facts})


def ran(residue: list[str], *, eager: list[str], **replaces: list[int]) -> Facts:
    """Return the facts of a call in which ATen ran operators; of each, those of eager that it may
    have run in place of.
    """
    by_name = {f"aten.{name}": indices for name, indices in replaces.items()}
    return done(eager=eager, residue=residue, replaces=by_name)


def parts(*differences: list[Any]) -> Facts:
    found = [
        {"start": start, "size": 2, "differences": other}
        for start, other in zip((0, 3), differences, strict=False)
    ]
    return done(batch=5, parts=found)


def tried(*names: str, facts: Any = None) -> list[Facts]:
    return [
        {"number": number, "chosen": [name], "measured": facts or close_facts(close_leaf())}
        for number, name in enumerate(names)
    ]


NOTHING_SHOWN: list[tuple[Any, Status]] = [
    ({}, ERROR),
    ({"why_not": "a package would be built again"}, ERROR),
    ({"raised": "RuntimeError: no"}, FAILED),
    ({**DONE, "tensors": 0}, ERROR),
    ({**DONE, "eager_calls": 1}, ERROR),
]


def varied(*fates: str, left: int = 0, limit: str = "", **more: Any) -> Facts:
    """Return the facts of a call between which facts changed, by what became of each."""
    row = {"difference": "eager 5, compiled 2", "recompiled": False, "guards": [], **more}
    rows = [
        {"fact": f"global k{number}", "fate": fate, "limit": limit * (fate == "unsound"), **row}
        for number, fate in enumerate(fates)
    ]
    return done(facts=rows, left=left)


def nothing(body: Any) -> list[Row]:
    return [(body, measured(facts), status) for facts, status in NOTHING_SHOWN]


AGAIN: dict[str, list[Row]] = {
    "deterministic": [
        *nothing({"runs": 2}),
        ({"runs": 2}, done(runs=[[], []]), HELD),
        ({"runs": 2}, done(runs=[[], [OTHER]]), FAILED),
        ({"runs": 2}, done(runs=[[]]), ERROR),
    ],
    "batch_invariant": [
        *nothing({"sizes": [2]}),
        ({"sizes": [2]}, parts([], []), HELD),
        ({"sizes": [2]}, parts([], [OTHER]), FAILED),
        ({"sizes": [2]}, parts([]), ERROR),
    ],
    "poisoned": [
        *nothing(True),
        (True, done(differences=[], allocations=2, bytes=8), HELD),
        (True, done(differences=[OTHER], allocations=1, bytes=8), FAILED),
        (True, done(differences=[], allocations=0, bytes=0), ERROR),
    ],
    "peak_memory": [
        *nothing({"max": 1}),
        ({"max": 4096}, done(compiled=4096, eager=1), HELD),
        ({"max": "4 KiB"}, done(compiled=4096, eager=1), HELD),
        ({"max": 999}, done(compiled=100, eager=999), HELD),  # far above, and excludes eager + 1
        ({"max": "1.5 KiB"}, done(compiled=1537, eager=1), FAILED),
        ({"max": "0.5 GiB"}, done(compiled=1 << 29, eager=1), HELD),
        ({"of_eager": 0.8}, done(compiled=800, eager=1000), HELD),
        ({"of_eager": 0.8}, done(compiled=801, eager=1000), FAILED),
        ({"of_eager": 1, "max": "2 MiB"}, done(compiled=1 << 20, eager=1000), FAILED),
        ({"of_eager": 1}, done(compiled=0, eager=0), ERROR),
    ],
    "sound": [
        *nothing({"vary": "all"}),
        ({"vary": "all"}, varied("sound", "unobserved"), HELD),
        ({"vary": "all"}, varied("sound", "sound", left=2), ERROR),
        ({"vary": "all"}, varied("unobserved", "not tried"), ERROR),
        ({"vary": "all"}, varied(), ERROR),
        ({"vary": "all"}, varied("sound", "unsound"), FAILED),
        ({"vary": "all"}, varied("sound", "wrong anew"), FAILED),
        ({"vary": "all"}, varied("sound", "unsound", limit="module_hooks"), HELD),
        ({"vary": "all"}, varied("unsound", limit="module_hooks"), ERROR),
        (
            {"change": "redefine", "processes": True},
            varied("unsound", cache="FX graph hit", keys=["abc"]),
            FAILED,
        ),
    ],
    "served": [
        *nothing({"min": 1}),
        ({"min": 1}, ran([], eager=["aten.mm", "aten.relu"]), HELD),
        ("all", ran(["aten.mm"], eager=["aten.mm", "aten.relu"], mm=[0]), FAILED),
        ({"min": 0.5}, ran(["aten.mm"], eager=["aten.mm", "aten.relu"], mm=[0]), HELD),
        ({"min": 0.51}, ran(["aten.mm"], eager=["aten.mm", "aten.relu"], mm=[0]), FAILED),
        # one operator may do the work of several, and two that of the same one
        ({"min": 0.5}, ran(["aten.sdpa"], eager=["aten.mm", "aten.mm"], sdpa=[0, 1]), FAILED),
        (
            {"min": 0.5},
            ran(["aten.mm", "aten.add"], eager=["aten.addmm", "aten.cos"], mm=[0], add=[0]),
            HELD,
        ),
        ({"allow": ["aten.mm"]}, ran(["aten.mm"], eager=["aten.mm", "aten.mul"], mm=[0]), HELD),
        (
            {"allow": ["aten.mm"]},
            ran(["aten.mm", "aten.relu"], eager=["aten.mm"], mm=[0], relu=[0]),
            FAILED,
        ),
        ({"min": 0.1}, ran(["aten.mm"], eager=[], mm=[]), FAILED),  # eager only moves data
        ("all", ran([], eager=[]), ERROR),  # nothing could be left
    ],
    "residue": [
        *nothing({"operators": ["aten.sort"]}),
        (
            {"operators": ["aten.sort"]},
            ran(["aten.sort", "aten.sort"], eager=["aten.sort", "aten.mul"], sort=[0]),
            HELD,
        ),
        (["aten.sort", "aten.mm"], ran(["aten.sort"], eager=["aten.sort"], sort=[0]), FAILED),
        (
            ["aten.sort"],
            ran(["aten.sort", "aten.mm"], eager=["aten.sort"], sort=[0], mm=[0]),
            FAILED,
        ),
    ],
    "candidates": [
        *nothing({}),
        ({}, done(seen=2, tried=tried("mm", "cpp_1")), HELD),
        ({"at_most": 2}, done(seen=7, tried=tried("mm", "cpp_1")), HELD),
        ({"min": 1}, done(seen=2, tried=[*tried("mm"), BROKEN]), HELD),
        ({}, done(seen=2, tried=[*tried("mm"), *tried("cpp_1", facts=WRONG)]), FAILED),
        ({}, done(seen=0, tried=[]), FAILED),
        ({}, done(seen=1, tried=tried("mm")), FAILED),
        ({"min": 1}, done(seen=1, tried=[BROKEN]), FAILED),
    ],
}


def tally(rendered: int = 0, failed: int = 0, won: int = 0, refused: int = 0) -> Tally:
    compiled = rendered - failed
    return Tally(
        rendered=rendered,
        compiled=compiled,
        failed=failed,
        refused=refused,
        timed=compiled - refused,
        won=won,
        error="",
    )


def tuning(op: str = "mm", won_by: str = "TRITON", **backends: Tally) -> Tuning:
    return Tuning(
        op=op,
        how="timed",
        winner="best",
        won_by=won_by,
        by_backend=backends or {"ATEN": tally(1), "TRITON": tally(4, won=1)},
    )


def selected(*tunings: Tuning, count: int | None = None) -> Facts:
    return {"tunings": Tunings(count=len(tunings) if count is None else count, found=tunings)}


ADDMM = selected(tuning(), tuning("addmm", TRITON=tally(3, 1, won=1)))
CHOICES: dict[str, list[Row]] = {
    "choices": [
        (
            {
                "backend": "TRITON",
                "rendered": {"min": 3},
                "timed": {"min": 2},
                "won": 1,
                "tuned": 2,
            },
            ADDMM,
            dict.fromkeys(("tuned", "rendered", "timed", "won"), HELD),
        ),
        (
            {"backend": "TRITON", "failed": 0},
            ADDMM,
            {"tuned": HELD, "rendered": HELD, "failed": FAILED},
        ),
        ({"backend": "TRITON", "rendered": 4}, ADDMM, {"tuned": HELD, "rendered": FAILED}),
        *(
            (
                {"backend": "CK", "timed": {"min": 1}, "failed": 0, **word},
                selected(tuning(CK=tally(4, won=1, refused=refused))),
                {"tuned": HELD, "timed": timed, "failed": HELD, **said},
            )
            for refused, timed in ((0, HELD), (3, HELD), (4, FAILED))
            for word, said in (({}, {}), ({"refused": refused}, {"refused": HELD}))
        ),
        (
            {"backend": "CK", "refused": 0},
            selected(tuning(CK=tally(4, refused=1))),
            {"tuned": HELD, "rendered": HELD, "refused": FAILED},
        ),
        # no failure of nothing is no claim
        ({"backend": "CK", "of": "gemm", "failed": 0}, selected(), {"tuned": FAILED}),
        (
            {"backend": "CK", "of": "gemm", "failed": 0},
            selected(tuning("convolution")),
            {"tuned": FAILED},
        ),
        (
            {"backend": "CK", "of": "gemm", "failed": 0},
            selected(tuning(won_by="ATEN", ATEN=tally(1, won=1))),
            {"tuned": HELD, "rendered": FAILED, "failed": HELD},
        ),
        ({"backend": "CK", "rendered": 0}, selected(tuning()), {"tuned": HELD, "rendered": HELD}),
        (
            {"backend": "CK", "rendered": 0},
            selected(tuning(CK=tally(1))),
            {"tuned": HELD, "rendered": FAILED},
        ),
        (
            {"rendered": 5, "timed": 5},
            selected(tuning()),
            dict.fromkeys(("tuned", "rendered", "timed"), HELD),
        ),
        *(
            (
                {"of": of, "tuned": count},
                selected(tuning("addmm"), tuning("flex_attention")),
                {"tuned": status},
            )
            for of in ("gemm", "addmm", ["bmm", "addmm"], ["convolution", "gemm"])
            for count, status in ((1, HELD), (2, FAILED))
        ),
        (
            {"backend": "TRITON", "failed": 0},
            selected(tuning(), count=201),
            ERROR,
        ),  # what was not recorded
    ]
}

ROWS = {**COUNTS, **SEEN, **CODES, **VALUES, **CLOSE, **COMPILED, **AGAIN, **CHOICES}
ALL = [
    pytest.param(kind, *row, id=f"{kind}-{number}")
    for kind, rows in ROWS.items()
    for number, row in enumerate(rows)
]
HOLDING = [
    row
    for row in ALL
    if set(row.values[3].values() if isinstance(row.values[3], dict) else [row.values[3]]) == {HELD}
]

SURVIVING: dict[str, set[str]] = {
    "raises": {"another type"},
    "generated_files": {"what x + 1 has"},
    "filecheck": {"the code of a trivial function"},
}
"""Mutants that a row of the table may let pass: ``type: Exception`` says nothing of the type,
``{min: 1}`` nothing of the function.
"""


def mutants(kind: str, body: Any, facts: Facts) -> Iterator[tuple[str, bool]]:
    """Yield each mutant that can be made, with whether the expectation holds for it."""
    check = EXPECTATIONS[kind].parse(body)
    for mutant in check.mutants(reading(**facts)):
        if mutant.facts is not None:
            yield (
                mutant.name,
                [other.status for other in check.judge(mutant.facts) if other.leaf == mutant.leaf]
                == [HELD],
            )


def test_every_kind_has_rows() -> None:
    assert set(ROWS) | {"resources", "metadata"} == set(EXPECTATIONS), (
        "those of offline targets are in test_offline"
    )
    assert {row.values[0] for row in HOLDING if list(mutants(*row.values[:3]))} == set(ROWS), (
        "and mutants"
    )


@pytest.mark.parametrize(("kind", "body", "facts", "outcome"), ALL)
def test_each_side_of_each_bound(kind: str, body: Any, facts: Facts, outcome: Any) -> None:
    judgements = judged(kind, body, **facts)
    if isinstance(outcome, dict):
        assert {judgement.leaf: judgement.status for judgement in judgements} == outcome
    else:
        assert [judgement.status for judgement in judgements] == [outcome]


@pytest.mark.parametrize(("kind", "body", "facts", "outcome"), HOLDING)
def test_each_mutant_is_seen(kind: str, body: Any, facts: Facts, outcome: Any) -> None:
    assert {name for name, is_held in mutants(kind, body, facts) if is_held} <= SURVIVING.get(
        kind, set()
    )


@pytest.mark.parametrize("kind", ROWS)
def test_nothing_is_claimed_without_facts_and_elsewhere(kind: str) -> None:
    body = next(row.values[1] for row in HOLDING if row.values[0] == kind)
    if EXPECTATIONS[kind].parse(body).measurement() is not None:
        assert {judgement.status for judgement in judged(kind, body)} == {ERROR}
    if "when" in {field.name for field in dataclasses.fields(EXPECTATIONS[kind])}:  # type: ignore[arg-type]
        options = body if isinstance(body, dict) else {} if body is True else {"checks": body}
        assert [judgement.status for judgement in judged(kind, {**options, "when": ELSEWHERE})] == [
            NOT
        ]


def test_a_wrong_count_of_a_cache_shows_what_bypassed_it() -> None:
    facts = {"counters": {"inductor": {"fxgraph_cache_bypass": 1, "other": 5}}}
    assert (
        judged("counter", {"inductor.fxgraph_cache_miss": 1}, **facts)[0].observed
        == "0 (inductor.fxgraph_cache_bypass: 1)"
    )


def test_a_failure_points_to_the_line_of_its_leaf() -> None:
    check = expected("remote_cache", {CACHE: {"hit": 1}}, line=12)
    assert (
        check.place(f"{CACHE} hit")
        == check.leaves[CACHE]
        != check.position
        == check.place("something else")
    )


@pytest.mark.parametrize(
    ("count", "most", "numbers"),
    [(3, 5, [0, 1, 2]), (7, 2, [0, 6]), (10, 4, [0, 3, 6, 9]), (5, 1, [0])],
)
def test_of_many_candidates_some_are_tried_evenly_spread(
    count: int, most: int, numbers: list[int]
) -> None:
    assert spread(count, most) == numbers


SLOW: list[tuple[str, Any, Facts, str]] = [
    (
        "raises",
        {"type": "KeyError", "match": "(a+)+$"},
        raised(message="a" * 40 + "b"),
        "texts.search",
    ),
    (
        "text",
        {"matches": "(a+)+$"},
        measured({"text": "a" * 40 + "b", "type": "a str"}),
        "texts.search",
    ),
    ("filecheck", "CHECK: {{(aa+)+$}}", {"code": ("a" * 40 + "b",)}, "filecheck.run"),
]


@pytest.mark.parametrize(("kind", "body", "facts", "name"), SLOW)
def test_a_pattern_that_takes_for_ever_is_an_error(
    kind: str, body: Any, facts: Facts, name: str, monkeypatch: Any
) -> None:
    function = filecheck.run if kind == "filecheck" else patterns.search
    monkeypatch.setattr(
        f"torch_conformance.vocabulary.expectations.{name}", partial(function, seconds=0.2)
    )
    assert [judgement.observed for judgement in judged(kind, body, **facts)] == ["pattern too slow"]


# -- bodies that mean nothing ----------------------------------------------------------------------

EMPTY_COUNTS = [
    {},
    {"min": 3, "max": 2},
    {"min": 0},
    {"value": 1, "min": 1},
    {"any": [3]},
    {"any": [1, 2, 4, 5, 13]},
]
EMPTY_COUNTS += [
    {"any": [1, 2], "min": 1},
    {"any": [1, -2]},
    -1,
    {"value": -1},
    {"min": -1, "max": 3},
    {"max": -1},
]
OF_TEXTS = ("text", "log")
OF_EVENTS = ("recompiles", "graph_breaks")
REFUSED: list[tuple[str, Any, tuple[Any, ...]]] = [
    *((kind, {"a.b": body}, ("a.b",)) for body in EMPTY_COUNTS for kind in ("counter", "metric")),
    *(("generated_files", body, ()) for body in EMPTY_COUNTS),
    ("counter", {"a.b": [{"value": 1}, {"value": {"min": 0}}]}, ("a.b", 1, "value")),
    ("counter", {"hits": {"value": 1, "unlisted": True}}, ("hits",)),
    *(
        ("counter", {"a.b": {**body, "unlisted": True}}, ("a.b",))
        for body in ({"value": 0}, {"max": 3})
    ),
    ("counter", {"a.b": [{"value": {"value": 1, "unlisted": True}}, {"value": 0}]}, ("a.b",)),
    *(
        ("remote_cache", {CACHE: counts}, ())
        for counts in ({"hit": 0}, {"hit": 0, "miss": {"max": 3}}, {"hit": [{"value": 0}]})
    ),
    ("remote_cache", {CACHE: {"hit": -1}}, (CACHE, "hit")),
    ("remote_cache", {CACHE: {"hit": [{"value": {"min": 0}}]}}, (CACHE, "hit", 0, "value")),
    ("remote_cache", {"RemoteCache": {"hit": 1}}, ("RemoteCache",)),
    *(("exit", body, ()) for body in ({"code": 1}, {"code": -6}, {"nonzero": True})),
    ("exit", {"nonzero": True, "stderr": "Traceback (most recent call last)"}, ("stderr",)),
    *((kind, {"matches": "an", "count": 1}, ("count",)) for kind in OF_TEXTS),
    *((kind, {"contains": "an", "count": 0}, ("count",)) for kind in OF_TEXTS),
    *((kind, {"contains": "an", "count": [{"value": 0}]}, ("count",)) for kind in OF_TEXTS),
    *((kind, {"contains": "an", "count": {"min": 1}}, ("count",)) for kind in OF_TEXTS),
    *(
        (
            kind,
            {"contains": "an", "count": [{"value": {"min": 3, "max": 2}}]},
            ("count", 0, "value"),
        )
        for kind in OF_TEXTS
    ),
    *((kind, {"contains": ["gcc", "nvcc"], "lacks": ["x", "cc"]}, ("lacks",)) for kind in OF_TEXTS),
    *(("text", {"matches": pattern}, ("matches",)) for pattern in ("x*", "(a|)", "^", "(")),
    ("log", {"contains": "e"}, ("contains",)),
    ("log", {"contains": "torchdynamo start tracing"}, ("contains",)),
    ("raises", {"type": "KeyError", "match": "(unclosed"}, ("match",)),
    (
        "raises",
        {"type": "KeyError", "cause": {"type": "KeyError", "match": "("}},
        ("cause", "match"),
    ),
    ("raises", {"type": "KeyError", "as": "eager"}, ("type",)),
    *(
        ("filecheck", checks, ())
        for checks in ("", "not a directive", "CHECK-NOT: only", "CHEK: misspelt")
    ),
    ("filecheck", {"checks": "CHECK-NOT: only"}, ("checks",)),
    *((kind, {"x": {"ref": "x"}}, ("x",)) for kind in ("equals", "differs")),
    ("strides", {"to": "output"}, ("to",)),
    ("strides", {"to": "eager", "equals": [1]}, ("to",)),
    *(
        ("close", {"to": "eager", "atol": 0, "rtol": 0, word: value}, (word,))
        for word in ("atol", "rtol")
        for value in (math.inf, math.nan, -1e-9)
    ),
    *(("close", body, ("to",)) for body in ({"of": "first", "to": "first"}, {"to": "output"})),
    ("close", {"to": "eager", "exact": True, "atol": 0, "rtol": 0}, ("exact",)),
    ("close", {"to": "eager", "exact": True, "equal_nan": True}, ("equal_nan",)),
    ("close", {"to": "first", "strides": "any"}, ("strides",)),
    ("kernels", {"launched": 1, "fused": {"min": 0}}, ("fused",)),
    ("graph", {"stage": "dynamo", "index": 1, "count": 2}, ("index",)),
    ("graph", {"stage": "dynamo", "ops": {"aten.mm": {"min": 0}}}, ("ops", "aten.mm")),
    *(
        ("graph", {"stage": "dynamo", "checks": checks}, ("checks",))
        for checks in ("CHEKC: x", "CHECK-NOT: x")
    ),
    ("graph", {"stage": "dynamo", "count": {"min": 0}}, ("count",)),
    *(
        ("guards", {"matches": pattern}, ("matches",))
        for pattern in ("(", "x*", ".", "[A-Z_]+", "[A-Z]+_MATCH: .*", "size=.*")
    ),
    ("guards", {"count": -1}, ("count",)),
    *(
        ("guards", {"contains": part}, ("contains",))
        for part in (
            *("e", "_GUARD", "grad_mode", "GLOBAL_STATE", "LAMBDA_GUARD", "_MATCH"),
            *("TENSOR_MATCH", "DIMENSION_DYNAMIC_MARKING_GUARD"),
        )
    ),
    *(("guards", {"contains": part}, ("contains",)) for part in ("check_tensor", "torch.float32")),
    ("guards", {"contains": ["L['x']", "']"]}, ("contains", 1)),
    *(
        ("guards", {"checks": f"CHECK: {text}"}, ("checks",))
        for text in ("e", "{{.+}}", "check_tensor\nCHECK-NOT: DUPLICATE", "STATE", "TENSOR_MATCH")
    ),
    *((kind, {"count": 0, "reason": {"contains": "size"}}, ("reason",)) for kind in OF_EVENTS),
    *(
        (kind, {"reason": {"contains": ["size", ": "]}}, ("reason", "contains", 1))
        for kind in OF_EVENTS
    ),
    *(
        (kind, {"reason": {"matches": pattern}}, ("reason", "matches"))
        for kind in OF_EVENTS
        for pattern in ("[a-z]+", "(")
    ),
    *((kind, {"count": {"min": 0}}, ("count",)) for kind in OF_EVENTS),
    ("poisoned", False, ()),
    ("sound", {"change": ""}, ("change",)),
    ("batch_invariant", {"sizes": [1, 1]}, ("sizes",)),
    ("candidates", {"at_most": 1}, ("min",)),
    ("candidates", {"atol": -1, "rtol": 0}, ("atol",)),
    ("choices", {"won": 1}, ("won",)),
    ("residue", {"operators": []}, ("operators",)),
]


@pytest.mark.parametrize(("kind", "body", "path"), REFUSED)
def test_a_body_that_means_nothing_is_refused_where_it_stands(
    kind: str, body: Any, path: tuple[Any, ...]
) -> None:
    with pytest.raises(BadExpectation) as caught:
        EXPECTATIONS[kind].parse(body)
    assert caught.value.path == path


# -- facts of another form -------------------------------------------------------------------------

LEAF = close_leaf()
FORMS: dict[str, tuple[list[Any], list[Any]]] = {
    "close": (
        [EAGER],
        [
            *(
                7,
                "text",
                [],
                {},
                {"structure": "*", "reference_structure": "*"},
                close_facts({}),
            ),
            *(close_facts(close_leaf(excess=excess)) for excess in ("0", None)),
            *(close_facts(close_leaf(atol=atol)) for atol in ("1e-5", 10**400)),
            *(
                close_facts({key: value for key, value in LEAF.items() if key != left_out})
                for left_out in ("excess", "rtol")
            ),
            close_facts(close_leaf(shape=None, reference_shape=None)),
            *(
                {**close_facts(), "leaves": leaves}
                for leaves in ("abc", {"$float": "no number"}, {"$bytes": 5})
            ),
        ],
    ),
    **dict.fromkeys(
        ("equals", "differs"),
        (
            [{"x": 5}, {"x": {"ref": "y"}}],
            [
                *(7, "x", [], ["x"]),
                *(
                    {"x": odd}
                    for odd in (
                        7,
                        None,
                        {},
                        [],
                        "value",
                        {"value": {"$float": []}},
                        {"value": {"$bytes": "!"}},
                    )
                ),
            ],
        ),
    ),
    "strides": (
        [{"equals": [2, 1]}, {"contiguous": True}],
        [7, [], {}, *({"tensors": odd} for odd in (7, [7], [{}], {"0": {}}, "ab"))],
    ),
}


@pytest.mark.parametrize(
    ("kind", "body", "facts"),
    [
        (kind, body, facts)
        for kind, (bodies, forms) in FORMS.items()
        for body in bodies
        for facts in forms
    ],
)
def test_facts_of_another_form_are_an_error_and_no_traceback(
    kind: str, body: Any, facts: Any
) -> None:
    result = verdict_of(
        make_case(step(expected(kind, body))), observation(seen(measured={"0": facts}))
    )
    assert [verdict.status for verdict in result.verdicts if verdict.kind == kind] == [ERROR]
    assert result.outcome.label == "ERROR"


@pytest.mark.parametrize("leaf", [7, []])
def test_an_observation_with_a_leaf_that_is_no_map_is_refused_as_a_whole(leaf: Any) -> None:
    sent = observation(seen(measured={"0": close_facts(leaf)}))
    result = verdict_of(make_case(step(expected("close", EAGER))), sent)
    assert result.outcome.label == "ERROR"
    assert "leaves" in result.reason


@pytest.mark.parametrize(
    "changes",
    [
        {"mismatches": 1, "max_abs": 1.0},
        {"excess": 1.0, "max_abs": 1.0},
        {"excess": 1.0, "mismatches": 1, "max_abs": 0.5},
        {"bits": {"differing": 0}, "max_abs": 1.0},
        {"bits": {"differing": 4}, "max_abs": 1.0},
        {"sides": {"NaN": [1, 0, 1]}},
        {"size": 0.0},
    ],
)
def test_facts_of_a_value_that_contradict_each_other(changes: Facts) -> None:
    assert not contradiction({**close_leaf(), "size": 1.0, "bits": {"differing": 0}})
    assert "contradict each other" in contradiction(close_leaf(**changes))
