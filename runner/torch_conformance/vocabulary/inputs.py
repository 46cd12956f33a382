"""The table of the kinds of inputs; ARCHITECTURE.md says what a new one touches."""

from collections.abc import Mapping
from typing import Annotated, Any, NamedTuple

from torch_conformance.model.protocol import Json
from torch_conformance.vocabulary.forms import (
    TEMPLATE,
    Arguments,
    Boolean,
    Callable_,
    Form,
    KeywordArguments,
    MemoryFormat,
    Number,
    Shape,
    common,
)

Entry = Mapping[str, Json]
"""A map of a spec that describes an input."""

OF_TENSORS = (
    "dtype",
    "device",
    "requires_grad",
    "strides",
    "storage_offset",
    "memory_format",
    "on_device",
    "mark_dynamic",
)
"""The keys of most kinds that make a tensor."""

OF_CALLS = ("args", "kwargs")
"""The keys of an input that may contain other inputs."""


class InputKind(NamedTuple):
    """What the stages know of a kind of input."""

    keys: tuple[str, ...] = ()
    """The keys that are allowed next to the word of the kind."""
    names: bool = False
    """Whether the value of its word is the name of a class or a function."""
    is_finished: bool = False
    """Whether the made value is final: strides and device are not changed."""
    dtype: str = ""
    """The dtype of an entry that names none, where torch's default dtype is float32; empty where it
    depends on values.
    """


INPUTS: Mapping[str, InputKind] = {
    "rand": InputKind(("low", "high", *OF_TENSORS), dtype="float32"),
    "randn": InputKind(OF_TENSORS, dtype="float32"),
    "zeros": InputKind(OF_TENSORS, dtype="float32"),
    "ones": InputKind(OF_TENSORS, dtype="float32"),
    "full": InputKind(("value", *OF_TENSORS)),
    "randint": InputKind(("low", "high", *OF_TENSORS), dtype="int64"),
    "arange": InputKind(OF_TENSORS),
    "values": InputKind(OF_TENSORS),
    "jagged": InputKind(("dtype", "device", "requires_grad", "on_device")),
    "module": InputKind((*OF_CALLS, "eval", "dtype", "device"), names=True),
    "call": InputKind((*OF_CALLS, "close"), names=True, is_finished=True),
    "ref": InputKind(is_finished=True),
    "value": InputKind(is_finished=True),
}
"""The kinds by the word of the language. ``value`` is last: it is also a key of ``full``."""

REPEAT = "repeat"
"""The key of an entry of a list that describes several inputs of one description."""

_LIST = Form({"type": ["array", "string"], **TEMPLATE})

_RANGE = Form(
    {
        "type": ["integer", "array", "string"],
        **TEMPLATE,
        "items": common("number"),
        "minItems": 1,
        "maxItems": 3,
    }
)

_DIMENSION = Form(
    {
        "title": "dynamic dimension",
        "description": "The number of the dimension, or a map with the range of its sizes.",
        "type": ["integer", "string", "object"],
        **TEMPLATE,
        "properties": {
            "dim": {**common("integer"), "description": "The number of the dimension."},
            "min": {
                **common("size"),
                "description": "The least size. Torch 2.13 wants both bounds, or none.",
            },
            "max": {**common("size"), "description": "The greatest size."},
        },
        "additionalProperties": False,
        "required": ["dim"],
        "examples": [0, {"dim": 0, "min": 2, "max": 64}],
    }
)


class Input:
    """One argument: exactly one kind, and its keys.

    A bare number, text, true, false or null is that value; a list is a list of arguments.

    ``{rand: [25], dtype: float32}``
    ``{rand: [25], low: -3, high: 3}``
    ``[{rand: [2]}, {rand: [3]}]``
    ``{full: [2, 3], value: 7}``
    ``{randint: [4], low: 0, high: 10}``
    ``{arange: [0, 12]}``
    ``{values: [[1.0, 2.0], [3.0, 4.0]]}``
    ``{zeros: [2, 3]}``
    ``{ones: [2]}``
    ``{randn: [3], strides: [2]}``
    ``{value: [1, 2]}``
    ``{module: ConvBN, args: [3, 32], eval: true}``
    ``{ref: first}``
    ``22``
    ``{jagged: [[19, 8], [20, 8]]}``
    ``{call: make_request, args: [true]}``
    ``{rand: [4], mark_dynamic: [0]}``
    ``{rand: [4], repeat: 3}``
    """

    form = Form(
        {
            "type": ["object", "array", "string", "number", "boolean", "null"],
            "if": {"type": "object"},
            "then": {
                "title": "input",
                # of a filled tensor it is a key next to the kind
                "oneOf": [
                    {
                        "required": [kind],
                        **({"properties": {"full": False}} if kind == "value" else {}),
                    }
                    for kind in INPUTS
                ],
            },
            "dependentRequired": {"full": ["value"], "randint": ["high"]},
            "dependentSchemas": {
                "randint": {"properties": dict.fromkeys(("low", "high"), common("integer"))}
            },
        }
    )
    rand: Shape
    """Uniform numbers from [low, high), of this shape; from [0, 1) when they are absent."""
    randn: Shape
    """Normal numbers, of this shape."""
    zeros: Shape
    """Zeros, of this shape."""
    ones: Shape
    """Ones, of this shape."""
    full: Shape
    """One number, value, everywhere."""
    randint: Shape
    """Whole numbers from [low, high), of this shape."""
    arange: Annotated[Any, _RANGE]
    """A range: its end, or [start, end], or [start, end, step]. For example ``[0, 12]``."""
    values: Annotated[Any, Form({"type": ["array", "number", "boolean", "string"], **TEMPLATE})]
    """A tensor written out as nested lists. For example ``[[1.0, 2.0], [3.0, 4.0]]``."""
    value: Annotated[Any, Form({})]
    """A value that is not a tensor; with full, the number to fill with. For example ``7``."""
    module: Annotated[str, common("path")]
    """A torch.nn.Module: a class, or a function that makes one, of the prelude or by dotted path.
    """
    ref: Annotated[str, Form({"type": "string"})]
    """A named value; a path of attributes can follow. For example ``first``."""
    dtype: Annotated[str, common("dtype")]
    """The dtype; torch's default for the kind when absent."""
    device: Annotated[str, common("device")]
    """The device, when it is not the backend's."""
    requires_grad: Boolean
    """Whether the tensor requires a gradient."""
    strides: Annotated[list[int], _LIST, Form({"items": common("size")})]
    """Explicit strides, in elements; 0 for an expanded dimension.

    The storage is as large as they need. For example ``[1, 50304]``.
    """
    memory_format: Annotated[str, Form({"title": "memory format", "type": "string"}), MemoryFormat]
    """The memory format. For example ``channels_last``."""
    on_device: Boolean
    """Made on the device itself, for tensors that are too large for the CPU.

    Other backends then get other numbers.
    """
    storage_offset: Annotated[int, common("size")]
    """How many elements of the tensor's memory are before its first one, so that it is not
    aligned. For example ``1``."""
    low: Number
    """The least number of rand or randint; 0 when absent."""
    high: Number
    """The bound of rand or randint, not included; rounding to the dtype may give it."""
    args: Arguments
    """Arguments of the module's constructor. For example ``[3, 32]``."""
    kwargs: KeywordArguments
    """Keyword arguments of the module's constructor. For example ``{bias: false}``."""
    eval: Boolean
    """Whether the module is put into evaluation mode."""
    jagged: Annotated[Any, _LIST, Form({"minItems": 1, "items": common("shape")})]
    """A jagged nested tensor: the shapes of its components, each of uniform numbers.

    For example ``[[19, 8], [20, 8]]``.
    """
    call: Callable_
    """The result of this callable, called with args and kwargs, which may contain inputs of every
    kind.
    """
    close: Annotated[str, Form({"type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"})]
    """With call: the method of the result that is called when the case ends, also after a failure.

    For example ``shutdown``.
    """
    mark_dynamic: Annotated[Any, _LIST, Form({"uniqueItems": True, "items": _DIMENSION})]
    """Dimensions that are marked with torch._dynamo.mark_dynamic: each by its number, or as {dim:
    0, min: 2, max: 64} with the range of its sizes. For example ``[0]``, ``[{dim: 0, min: 2, max:
    64}]``."""
    repeat: Annotated[
        Any,
        Form({"title": "repeat", "type": ["integer", "string"], "minimum": 1, "maximum": 1000}),
        TEMPLATE,
    ]
    """In a list: so many inputs of this description, one after the other, with numbers of their
    own.

    For example ``3``.
    """


def kind_of(entry: Entry) -> str | None:
    """Return the kind of input that a map describes; None if it is data."""
    return next((word for word in INPUTS if word in entry), None)


def times(entry: Json) -> int:
    """Return how many arguments an entry of a list of inputs describes."""
    return (
        int(entry.get(REPEAT, 1))
        if isinstance(entry, Mapping) and kind_of(entry) is not None
        else 1
    )
