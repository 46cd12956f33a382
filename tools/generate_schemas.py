"""The schemas of steps, expectations and inputs, made of their classes, and that of names; ``python
-m tools.generate_docs`` writes them.

- A class is a definition: its docstring is the description, the YAML in double backquotes below it
  are the examples, ``form`` has further
  keywords. Its fields are the keys. One whose ``form`` has ``type`` or ``$ref`` and that has no key
  with a form is no map.
- A field is a key: its annotation has the form, the text below it the description, and what follows
  "For example" there the examples. One
  without a default is required.
"""

import ast
import dataclasses
import inspect
import itertools
import json
import re
import textwrap
import types
import typing
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

import yaml

from tools import generate_editor_names, generate_observation
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.compilation import Reason
from torch_conformance.vocabulary.expectations.counters import RemoteCounts
from torch_conformance.vocabulary.expectations.texts import WantedCause
from torch_conformance.vocabulary.forms import TEMPLATE, common
from torch_conformance.vocabulary.inputs import Input
from torch_conformance.vocabulary.steps import SAMPLES, STEPS, TRITON

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"

OBSERVATION = "observation.schema.json"

_DIALECT = "https://json-schema.org/draft/2020-12/schema"

_KEYS = {"as_": "as", "as_eager": "as"}
"""Fields that are called otherwise than their keys, which are words of Python."""

_EXPECTATION = {
    "title": "weak",
    "description": "Why the expectation may hold for a wrong answer too. "
    "Without this reason a case that "
    "passes is an ERROR if zeros, a"
    " much greater count, the code of a trivial function and the like would also have passed. "
    "Every report shows the reason.",
    "type": "string",
    "minLength": 8,
    "examples": ["the result is smaller than what its rounding allows"],
}


def schemas() -> dict[str, Any]:
    """Return each schema by its name."""
    return {"expectations": _expectations(), "steps": _steps(), "inputs": _inputs()}


def written() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {
        f"{name}.schema.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas().items()
    } | {
        "names.schema.json": json.dumps(generate_editor_names.names(), indent=1) + "\n",
        OBSERVATION: generate_observation.observation(SCHEMAS / OBSERVATION, _texts),
    }


def _expectations() -> Any:
    kinds = {kind: EXPECTATIONS[kind] for kind in EXPECTATIONS}
    others = {"cause": WantedCause, "remote_counts": RemoteCounts, "reason": Reason}
    close = {"close": {"to": "eager"}}
    weak = {
        "close": {"to": "eager", "atol": 1.0, "rtol": 0.0},
        "weak": "only the order of magnitude is promised",
    }
    entry = {
        "title": "expectation",
        "description": "One expectation.",
        "type": "object",
        "minProperties": 1,
        "properties": {
            **{kind: {"$ref": f"#/$defs/{kind}"} for kind in kinds},
            "weak": _EXPECTATION,
        },
        "if": {"required": ["weak"]},
        "then": {
            "title": "expectation",
            "description": "One kind beside weak.",
            "minProperties": 2,
            "maxProperties": 2,
        },
        "else": {"title": "expectation", "description": "One kind.", "maxProperties": 1},
        "additionalProperties": False,
        "examples": [close, weak],
    }
    return {
        "$schema": _DIALECT,
        "title": "expectations",
        "description": "What must be seen after a step. Each is a map with one "
        "key, its kind, and perhaps "
        "the key weak.",
        "$defs": {
            **{name: _definition(name, made_of) for name, made_of in (kinds | others).items()},
            "expectation": entry,
            "list": _list("expect", "The expectations, in order.", "expectation", [close]),
        },
    }


def _steps() -> Any:
    kinds = {kind: STEPS[kind] for kind in STEPS if kind not in (SAMPLES, TRITON)}
    repeat = {
        "title": "repeat",
        "description": "How often the step is carried out, one after the other. "
        "close: {to: eager} is judged "
        "after each, other expectations"
        " after the last.",
        "type": ["integer", "string"],
        "minimum": 1,
        "maximum": 1000,
        **TEMPLATE,
        "examples": [3],
    }
    where = (
        "Where the step is carried out; everywhere when absent. Elsewhere its expectations do not "
        "apply."
    )
    beside = {
        "repeat": repeat,
        "when": {**common("when"), "description": where},
        "expect": {
            "$ref": "expectations.schema.json#/$defs/list",
            "description": "Expectations after this step.",
        },
    }
    entry = {
        "title": "step",
        "description": "One step.",
        "type": "object",
        "properties": {**{kind: {"$ref": f"#/$defs/{kind}"} for kind in kinds}, **beside},
        "additionalProperties": False,
        "oneOf": [{"required": [kind]} for kind in kinds],
        "examples": [{"call": {}, "expect": [{"close": {"to": "eager"}}]}],
    }
    return {
        "$schema": _DIALECT,
        "title": "steps",
        "description": "What is done, in order. Each step is a map with its kind "
        "and the expectations after "
        "it.",
        "$defs": {
            **{kind: _definition(kind, made_of) for kind, made_of in kinds.items()},
            "step": entry,
            "list": {
                **_list("steps", "The steps, in order.", "step", [{"call": {}}]),
                "maxItems": 200,
            },
        },
    }


def _inputs() -> Any:
    properties, _ = _properties(Input)
    return {
        "$schema": _DIALECT,
        "title": "inputs",
        "description": "Arguments of the function. They are made on the CPU from "
        "a seed that depends on the "
        "case's id without its backend,"
        " and then moved, so every backend gets the same numbers.",
        "$defs": {
            "input": {
                "title": "input",
                **_described(Input, ""),
                "properties": properties,
                "additionalProperties": False,
                **Input.form,
            },
            "list": {
                "title": "inputs",
                "description": "The arguments, in order; or one {{ expression }} "
                "whose value is such a list.",
                "type": ["array", "string"],
                **TEMPLATE,
                "items": {"$ref": "#/$defs/input"},
                "examples": [[{"rand": [25]}, {"rand": [5, 5]}], [{"rand": [4], "repeat": 3}]],
            },
        },
    }


def _list(title: str, description: str, entry: str, example: Any) -> dict[str, Any]:
    items = {"$ref": f"#/$defs/{entry}"}
    return {
        "title": title,
        "description": description,
        "type": "array",
        "minItems": 1,
        "items": items,
        "examples": [example],
    }


def _definition(name: str, made_of: Any) -> dict[str, Any]:
    properties, required = _properties(made_of)
    described = {"title": name, **_described(made_of, name)}
    if "$ref" in made_of.form or ("type" in made_of.form and not properties):
        return {**described, **made_of.form}
    needed = {"required": required} if required else {}
    return {
        **described,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **needed,
        **made_of.form,
    }


def _described(made_of: Any, name: str) -> dict[str, Any]:
    """Return the description and the examples of a class; those of a kind stand below its name."""
    paragraphs = inspect.cleandoc(made_of.__doc__).split("\n\n")
    prose = [
        " ".join(paragraph.split()) for paragraph in paragraphs if not paragraph.startswith("``")
    ]
    examples = [
        _yaml(example)
        for paragraph in paragraphs
        if paragraph.startswith("``")
        for example in _on_one_line(paragraph).strip("`").split("`` ``")
    ]
    description = " ".join([*prose, *filter(None, [getattr(made_of, "remark", "")])])
    return {
        "description": description,
        "examples": [example[name] if name else example for example in examples],
    }


def _properties(made_of: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the form of each key, and the keys that are required."""
    hints, texts = typing.get_type_hints(made_of, include_extras=True), dict(_texts(made_of))
    fields = dataclasses.fields(made_of) if dataclasses.is_dataclass(made_of) else []
    required = [
        field.name
        for field in fields
        if field.default is field.default_factory is dataclasses.MISSING
    ]
    properties = {}
    for name in [field.name for field in fields] or [name for name in hints if name != "form"]:
        form = _form(hints[name])
        if form is not None:
            description, _, examples = texts.get(name, "").partition("For example ``")
            shown = (
                [_yaml(example) for example in examples.removesuffix("``.").split("``, ``")]
                if examples
                else []
            )
            described = {"description": description.strip(), "examples": shown}
            properties[_KEYS.get(name, name)] = {
                **form,
                **{word: text for word, text in described.items() if text},
            }
    return properties, [name for name in required if name in properties]


def _form(hint: Any) -> Mapping[str, Any] | None:
    """Return the form of a key by the annotation of its field; None for a field that is no key."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        forms = map(_form, typing.get_args(hint))
        return next((form for form in forms if form is not None), None)
    if hasattr(hint, "__metadata__"):
        form: dict[str, Any] = {}
        for part in (_form(hint.__origin__) or {}, *hint.__metadata__):
            form.update(part or {})
        return None if hint.__metadata__ == (None,) else form
    if typing.get_origin(hint) is Literal:
        return {"enum": [word for word in typing.get_args(hint) if word]}
    return None


def _texts(made_of: Any) -> Iterator[tuple[str, str]]:
    """Yield each field with the text below it, those of base classes first."""
    for base in reversed(made_of.__mro__[:-1]):
        if not base.__module__.startswith("torch_conformance."):
            continue
        (node,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        statements = typing.cast("ast.ClassDef", node).body
        for statement, below in itertools.pairwise(statements):
            if (
                isinstance(statement, ast.AnnAssign)
                and isinstance(statement.target, ast.Name)
                and isinstance(below, ast.Expr)
            ):
                yield statement.target.id, _on_one_line(ast.literal_eval(below.value))


def _on_one_line(text: str) -> str:
    return re.sub(r"\s*\n\s*", " ", text.strip())


def _yaml(text: str) -> Any:
    return yaml.safe_load(text)
