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
    made: dict[str, Any] = {}
    _define(StepFacts, made, texts)
    kept = {name: form for name, form in schema["$defs"].items() if name in ("leaf", "calibrated")}
    schema["$defs"] = {"step": made.pop("step_facts"), **made, **kept}
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _define(made_of: type[Any], made: dict[str, Any], texts: Any) -> str:
    """Add the definition of a class, and those that it refers to; return its name."""
    name = re.sub(r"(?<!^)(?=[A-Z])", "_", made_of.__name__).lower()
    if name in made:
        return name
    made[name] = {}
    hints, below = typing.get_type_hints(made_of, include_extras=True), dict(texts(made_of))
    required, properties = _ALWAYS.get(made_of.__name__, "").split(), {}
    for field in dataclasses.fields(made_of):
        if COMPUTED in field.metadata:
            continue
        key = field.metadata.get(KEY, field.name)
        if field.default is field.default_factory is dataclasses.MISSING:
            required.append(key)
        described = (
            {"description": below[field.name].replace("``", "`")} if field.name in below else {}
        )
        form = _form(hints[field.name], made, texts)
        if key in required and type(None) in typing.get_args(hints[field.name]):
            form = {"oneOf": [{"type": "null"}, form]}  # others are left out where they are None
        properties[key] = {**described, **form}
    made[name] = {
        "title": name,
        "description": " ".join((made_of.__doc__ or "").replace("``", "`").split()),
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return name


def _form(hint: Any, made: dict[str, Any], texts: Any) -> dict[str, Any]:
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if origin is typing.Annotated:
        form = _form(arguments[0], made, texts)
        for keywords in hint.__metadata__:
            form = dict(keywords) if "$ref" in keywords else {**form, **keywords}
        return form
    if origin in (types.UnionType, typing.Union) and type(None) in arguments:
        inner = next(argument for argument in arguments if argument is not type(None))
        return _form(inner, made, texts)
    if origin is tuple:
        return {"type": "array", "items": _form(arguments[0], made, texts)}
    if origin is Mapping:
        return {"type": "object", "additionalProperties": _form(arguments[1], made, texts)}
    if dataclasses.is_dataclass(hint):
        return {"$ref": f"#/$defs/{_define(typing.cast('type[Any]', hint), made, texts)}"}
    return dict(_SIMPLE.get(hint, {}))
