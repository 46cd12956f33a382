"""The schemas of steps, expectations and inputs, made of their classes, and that of names; ``python
-m tools.generate_docs`` writes them.

- A class is a definition: its docstring is the description, the YAML in double backquotes below it
  are the examples, ``form`` has further
  keywords. Its fields are the keys. One whose ``form`` has ``type`` or ``$ref`` and that has no key
  with a form is not a map.
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
from torch_conformance.model.protocol import Json
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.compilation import Reason
from torch_conformance.vocabulary.expectations.counters import RemoteCounts
from torch_conformance.vocabulary.expectations.texts import WantedCause
from torch_conformance.vocabulary.forms import common
from torch_conformance.vocabulary.inputs import Input
from torch_conformance.vocabulary.steps import SAMPLES, STEPS, TRITON

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"

OBSERVATION = "observation.schema.json"
NAMES = "names.schema.json"

_KEYS = {"as_": "as", "as_eager": "as"}
"""Fields that are called otherwise than their keys, which are words of Python."""


def schemas() -> dict[str, Json]:
    """Return each schema by its name: the file, with the definitions of the classes made anew."""
    steps = {kind: STEPS[kind] for kind in STEPS if kind not in (SAMPLES, TRITON)}
    nested = {"cause": WantedCause, "remote_counts": RemoteCounts, "reason": Reason}
    schemas_by_name = {
        "expectations": _regenerated("expectations", "expectation", EXPECTATIONS, nested),
        "steps": _regenerated("steps", "step", steps),
        "inputs": _regenerated("inputs", "input", {}),
    }
    step, definitions = (
        schemas_by_name["steps"]["$defs"]["step"],
        schemas_by_name["inputs"]["$defs"],
    )
    step["properties"]["when"] |= common("when") | {
        "description": step["properties"]["when"]["description"]
    }
    step["oneOf"] = [{"required": [kind]} for kind in steps]
    definitions["input"] = {
        "title": "input",
        **_described(Input, ""),
        "properties": _properties(Input)[0],
        "additionalProperties": False,
        **Input.form,
    }
    return schemas_by_name


def _regenerated(
    name: str, entry: str, kinds: Mapping[str, type], nested: Mapping[str, type] = {}
) -> Json:
    """Return a schema with a definition of each kind and of other classes, and with the kinds as
    the first properties of the definition ``entry``.
    """
    schema = json.loads((SCHEMAS / f"{name}.schema.json").read_text("utf-8"))
    unchanged = {key: schema["$defs"][key] for key in (entry, "list")}
    if kinds:
        references = {key: {"$ref": f"#/$defs/{key}"} for key in kinds}
        further = {
            key: form
            for key, form in unchanged[entry]["properties"].items()
            if form != {"$ref": f"#/$defs/{key}"}
        }
        unchanged[entry]["properties"] = references | further
    defined = {key: _definition(key, cls) for key, cls in {**kinds, **nested}.items()}
    schema["$defs"] = defined | unchanged
    return schema


def written() -> dict[str, str]:
    """Return the text of each file by its name."""
    return {
        f"{name}.schema.json": json.dumps(schema, indent=2, ensure_ascii=False) + "\n"
        for name, schema in schemas().items()
    } | {
        NAMES: json.dumps(generate_editor_names.names(SCHEMAS / NAMES), indent=1) + "\n",
        OBSERVATION: generate_observation.observation(SCHEMAS / OBSERVATION, _texts),
    }


def _definition(name: str, cls: Any) -> dict[str, Any]:
    properties, required = _properties(cls)
    described = {"title": name, **_described(cls, name)}
    if "$ref" in cls.form or ("type" in cls.form and not properties):
        return {**described, **cls.form}
    needed = {"required": required} if required else {}
    return {
        **described,
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
        **needed,
        **cls.form,
    }


def _described(cls: Any, name: str) -> dict[str, Any]:
    """Return the description and the examples of a class; those of a kind are below its name."""
    paragraphs = inspect.cleandoc(cls.__doc__).split("\n\n")
    prose = [
        " ".join(paragraph.split()) for paragraph in paragraphs if not paragraph.startswith("``")
    ]
    examples = [
        _yaml(example)
        for paragraph in paragraphs
        if paragraph.startswith("``")
        for example in _on_one_line(paragraph).strip("`").split("`` ``")
    ]
    description = " ".join([*prose, *filter(None, [getattr(cls, "remark", "")])])
    return {
        "description": description,
        "examples": [example[name] if name else example for example in examples],
    }


def _properties(cls: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the form of each key, and the keys that are required."""
    hints, texts = typing.get_type_hints(cls, include_extras=True), dict(_texts(cls))
    fields = dataclasses.fields(cls) if dataclasses.is_dataclass(cls) else []
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
    """Return the form of a key from the annotation of its field; None if the field is not a key."""
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


def _texts(cls: Any) -> Iterator[tuple[str, str]]:
    """Yield each field with the text below it, those of base classes first."""
    for base in reversed(cls.__mro__[:-1]):
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
