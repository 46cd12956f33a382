"""The schema of observations: what a worker sends of a step is made of ``StepFacts`` and of the
dataclasses in it.

An annotation gives the form of a field, with further keywords in ``Annotated``, and the text below
the field its description. Numbers are not negative unless the keywords say otherwise. The rest of
the file (what a case has besides its steps, and what ``close`` measures) is edited there.
"""

import dataclasses
import json
import re
import types
import typing
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_conformance.model.case_facts import StepFacts
from torch_conformance.model.codec import COMPUTED, KEY

_ALWAYS = {
    "StepFacts": "raised counters metrics entered graphs executed executed_others abandoned "
    "choices code measured unmeasured",
    "Tunings": "count found",
}
"""The keys of a class that a worker always sends although their fields have defaults."""

_SIMPLE: Mapping[Any, Mapping[str, Any]] = {
    str: {"type": "string"},
    bool: {"type": "boolean"},
    int: {"type": "integer", "minimum": 0},
    float: {"type": "number", "minimum": 0},
}


def observation(path: Path, texts: Any) -> str:
    """Return the text of the schema at ``path`` with the definitions of a step made anew;
    ``texts`` yields the fields of a class with the texts below them.
    """
    schema = json.loads(path.read_text("utf-8"))
    definitions: dict[str, Any] = {}
    _define(StepFacts, definitions, texts)
    unchanged = {
        name: form for name, form in schema["$defs"].items() if name in ("leaf", "calibrated")
    }
    schema["$defs"] = {"step": definitions.pop("step_facts"), **definitions, **unchanged}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _define(cls: type[Any], definitions: dict[str, Any], texts: Any) -> str:
    """Add the definition of a class, and those that it refers to; return its name."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", cls.__name__).lower()
    if name in definitions:
        return name
    definitions[name] = {}
    hints, below = typing.get_type_hints(cls, include_extras=True), dict(texts(cls))
    required, properties = _ALWAYS.get(cls.__name__, "").split(), {}
    for field in dataclasses.fields(cls):
        if COMPUTED in field.metadata:
            continue
        key = field.metadata.get(KEY, field.name)
        if field.default is field.default_factory is dataclasses.MISSING:
            required.append(key)
        described = (
            {"description": below[field.name].replace("``", "`")} if field.name in below else {}
        )
        form = _form(hints[field.name], definitions, texts)
        if key in required and type(None) in typing.get_args(hints[field.name]):
            form = {"oneOf": [{"type": "null"}, form]}  # others are left out where they are None
        properties[key] = {**described, **form}
    definitions[name] = {
        "title": name,
        "description": " ".join((cls.__doc__ or "").replace("``", "`").split()),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return name


def _form(hint: Any, definitions: dict[str, Any], texts: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        form = _form(arguments[0], definitions, texts)
        for keywords in hint.__metadata__:
            form = dict(keywords) if "$ref" in keywords else {**form, **keywords}
        return form
    if origin in (types.UnionType, typing.Union) and type(None) in arguments:
        inner = next(argument for argument in arguments if argument is not type(None))
        return _form(inner, definitions, texts)
    if origin is tuple:
        return {"type": "array", "items": _form(arguments[0], definitions, texts)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _form(arguments[1], definitions, texts)}
    if dataclasses.is_dataclass(hint):
        return {"$ref": f"#/$defs/{_define(typing.cast('type[Any]', hint), definitions, texts)}"}
    return dict(_SIMPLE.get(hint, {}))
