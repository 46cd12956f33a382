"""What a key of a spec may hold, as types: the type is followed by the keywords that
``tools/generate_schemas`` writes for the key.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

Keywords = Mapping[str, Any]
"""Keywords of JSON Schema."""


class Word:
    """What a word of the language means; ``kind`` is the word: that of the class's name, unless it
    says another one.
    """

    __slots__ = ()
    kind: ClassVar[str]

    def __init_subclass__(cls) -> None:
        """Set ``kind``: ``graph_breaks`` of ``GraphBreaks``."""
        if "kind" not in vars(cls):
            cls.kind = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()


class Form(dict[str, Any]):
    """Keywords of JSON Schema in an annotation, which must be hashable."""

    __hash__ = object.__hash__  # type: ignore[assignment]


TEMPLATE = Form({"pattern": r"^\{\{.*\}\}$"})
"""A text that is one expression."""


def common(name: str) -> Form:
    """Return the form of a definition in ``common.schema.json``."""
    return Form({"$ref": f"common.schema.json#/$defs/{name}"})


def some_of(*keys: str) -> Form:
    """Return that at least one of the keys must be there."""
    return Form({"anyOf": [{"required": [key]} for key in keys]})


def one_of_keys(*keys: str) -> Form:
    """Return that exactly one of the keys must be there."""
    return Form({"oneOf": [{"required": [key]} for key in keys]})


def whole(least: int, most: int | None = None) -> Form:
    """Return the form of a whole number."""
    return Form(
        {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})}
    )


def among(*words: str) -> Form:
    """Return the form of one of some words, or of a template."""
    return Form({"anyOf": [{"enum": list(words)}, TEMPLATE]})


Name = Annotated[str, common("name")]
ValueName = Annotated[str, common("value_name")]
Number = Annotated[float, common("number")]
Integer = Annotated[int, common("integer")]
Boolean = Annotated[bool, common("boolean")]
Count = Annotated[Any, common("count")]
CountsByName = Annotated[
    Mapping[str, Any],
    Form({"type": "object", "minProperties": 1, "additionalProperties": common("count")}),
]
Texts = Annotated[str | list[str], common("texts")]
Pattern = Annotated[str, Form({"type": "string", "minLength": 1})]
_EXCEPTION = rf"^[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*$|{TEMPLATE['pattern']}"
Exception_ = Annotated[str, Form({"title": "exception", "type": "string", "pattern": _EXCEPTION})]
When = Annotated[Mapping[str, Any] | None, common("when")]
WhenJudged = Annotated[Mapping[str, Any] | None, common("when_judged")]
Callable_ = Annotated[Any, common("callable")]
Arguments = Annotated[Any, Form({"type": ["array", "string"], **TEMPLATE})]
KeywordArguments = Annotated[Any, Form({"type": ["object", "string"], **TEMPLATE})]
Contexts = Annotated[list[Any], common("context_or_template")]
Inputs = Annotated[list[Any], Form({"$ref": "inputs.schema.json#/$defs/list"})]
MemoryFormat = among("contiguous_format", "channels_last", "channels_last_3d")
Shape = Annotated[Sequence[int], common("shape")]
