"""What crosses the pipe: every value comes back or is said to be a repr, and whatever a worker may
send is refused or read.
"""

import json
import math
import time
from typing import Any

import pytest

from torch_conformance.model.protocol import MAX_DEPTH, decode, dumps, encode, loads

PLAIN = [
    None,
    True,
    False,
    0,
    -1,
    2**63 - 1,
    -(2**63),
    2**64 - 1,
    0.1,
    -0.0,
    5e-324,
    1.7976931348623157e308,
    "",
    "text",
    "\u2028\x00\ud800 \N{SNOWMAN}",
    [],
    {},
    [1, [2, {"a": [None]}]],
    math.inf,
    -math.inf,
    b"",
    bytes(range(256)),
]


@pytest.mark.parametrize("value", PLAIN, ids=range(len(PLAIN)))
def test_a_plain_value_comes_back(value: Any):
    line = dumps(encode(value))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    found = decode(loads(line))
    assert (found, type(found)) == (value, type(value))
    assert math.copysign(1, found) == math.copysign(1, value) if isinstance(value, float) else True


def test_nan_comes_back():
    assert math.isnan(decode(loads(dumps(encode(math.nan)))))


def test_encoding_twice_is_encoding_once():
    value = {"a": [math.nan, b"x", 2**70, object]}
    assert encode(encode(value)) == encode(value)


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ((1, (2,)), [1, [2]]),
        ({3, 1, 2}, [1, 2, 3]),
        (frozenset("ba"), ["a", "b"]),
        (bytearray(b"x"), {"$bytes": "eA=="}),
        ({1: 2, None: 3, "a": 4}, {"1": 2, "None": 3, "a": 4}),
        (2**64, {"$type": "builtins.int", "$repr": hex(2**64)}),
        (-(2**63) - 1, {"$type": "builtins.int", "$repr": hex(-(2**63) - 1)}),
        (1j, {"$type": "builtins.complex", "$repr": "1j"}),
    ],
)
def test_what_json_lacks_has_a_form_of_its_own(value: Any, written: Any):
    assert encode(value) == written
    json.dumps(encode(value), allow_nan=False)


class Nasty:
    def __repr__(self) -> str:
        raise KeyError("no")


class Long:
    def __repr__(self) -> str:
        return "x" * 10_000


def test_an_object_is_its_type_and_a_repr_of_bounded_length():
    assert encode(Nasty())["$repr"] == "<no repr: KeyError>"
    assert encode(Nasty())["$type"] == f"{__name__}.Nasty"
    assert len(encode(Long())["$repr"]) == 1000
    assert len(encode(1 << 10_000)["$repr"]) == 200


@pytest.mark.parametrize(
    "value",
    [
        {"$float": "NaN"},
        {"$float": 1.0},
        {"$float": None},
        {"$float": []},
        {"$float": "1.5"},
        {"$bytes": "!"},
        {"$bytes": "eA="},
        {"$bytes": 7},
        [{"$bytes": None}],
    ],
)
def test_what_encode_never_writes_is_not_read(value: Any):
    with pytest.raises((LookupError, TypeError, ValueError)):
        decode(value)


@pytest.mark.parametrize(
    "value", [{"$float": "nan", "more": 1}, {"$type": "a", "$repr": "b"}, {"$other": 1}]
)
def test_a_map_that_only_looks_alike_stays_a_map(value: Any):
    assert decode(value) == value


@pytest.mark.parametrize(
    ("line", "what"),
    [
        (b"", "not JSON"),
        (b"{", "not JSON"),
        (b"\xff\xfe", "not JSON"),
        (b"{} {}", "not JSON"),
        (b"NaN", "not JSON"),
        (b'{"a": Infinity}', "not JSON"),
        (b'{"a": -Infinity}', "not JSON"),
        (b"1e400", "not JSON"),
        (b"9" * 5000, "not JSON"),
        (b"\x7fELF" + bytes(100), "not JSON"),
        (b"[" * 100_000, "nested too deep"),
        (b"[" * 100_000 + b"]" * 100_000, "nested too deep"),
        (b'{"a":' * (MAX_DEPTH + 1) + b"1" + b"}" * (MAX_DEPTH + 1), "nested too deep"),
        (b"[" * (MAX_DEPTH + 1) + b"]" * (MAX_DEPTH + 1), "nested too deep"),
    ],
    ids=range(14),
)
def test_a_line_that_is_no_message_is_refused_with_a_word(line: bytes, what: str):
    with pytest.raises(ValueError, match=f"^{what}$"):
        loads(line)


@pytest.mark.parametrize(
    "line",
    [
        b"[" * MAX_DEPTH + b"]" * MAX_DEPTH,
        b'{"a":' * (MAX_DEPTH - 1) + b"[1]" + b"}" * (MAX_DEPTH - 1),
        b"1e308",
        b" 7 ",
    ],
)
def test_a_line_up_to_the_bound_is_read_and_can_be_walked(line: bytes):
    assert encode(decode(loads(line))) == json.loads(line)


def test_a_wide_message_is_read_quickly():
    line = dumps(list(range(200_000)))
    begun = time.process_time()
    assert len(loads(line)) == 200_000
    assert time.process_time() - begun < 5


def test_nan_never_leaves_unsaid():
    with pytest.raises(ValueError, match="JSON compliant"):
        dumps({"a": math.nan})
