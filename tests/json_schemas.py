"""Validators of the published schemas, as an editor has them: draft 2020-12, every file with its
references.
"""

import functools
import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

SCHEMAS = Path(__file__).resolve().parents[1] / "schemas"
NAMES = "names.schema.json"


@functools.cache
def validator(name: str, *, any_name: bool = False) -> Draft202012Validator:
    """Return the validator of a schema; with ``any_name`` no name is unknown."""
    files = {
        path.name: json.loads(path.read_text("utf-8")) for path in SCHEMAS.glob("*.schema.json")
    }
    if any_name:
        files[NAMES] = {**files[NAMES], "$defs": dict.fromkeys(files[NAMES]["$defs"], True)}
    registry: Registry[Any] = Registry().with_resources(
        (file, Resource.from_contents(content)) for file, content in files.items()
    )
    return Draft202012Validator({"$ref": f"{name}.schema.json"}, registry=registry)
