"""``schema``: copies the JSON schemas for editors to a folder, with the names of every supported
torch, or of the installed one.
"""

import copy
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch_conformance.language.backends import load_backends
from torch_conformance.language.torch_names import CONFIG_FILES, COUNTER, KINDS, METRIC, scan
from torch_conformance.machine import output, schemas
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.machine.installed_torch import installed_torch, no_torch_reason
from torch_conformance.model.diagnostics import UsageError, one_line, shown_path
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.problem_texts import shown_types
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import backend_files, flag, option

_TYPES = {
    "bool": "boolean",
    "int": "integer",
    "float": "number",
    "str": "string",
    "null": "null",
    "list": "array",
    "map": "object",
}
_WITH_TEMPLATE = {"type": "string", "pattern": r"\{\{"}
_REF = {"type": "object", "required": ["ref"]}


@frozen
class SchemaOptions:
    """The options of ``schema``."""

    with_torch: bool = flag(
        "with only the names of the installed torch: options, counters, metrics"
    )
    out: Path = option(
        "FOLDER", "write them to this folder (default: .schemas)", Path(".schemas"), reads=Path
    )
    backends: tuple[Path, ...] = backend_files()


def main(options: SchemaOptions) -> ExitCode:
    """Write all schemas to a folder."""
    out, published = options.out, folder("schemas")
    if out.resolve() == published.resolve():
        raise UsageError(
            f"--out {one_line(str(out))} has the schemas of the package: choose another folder"
        )
    texts = {path.name: path.read_text("utf-8") for path in published.glob("*.schema.json")}
    names = names_of(options.backends, with_torch=options.with_torch)
    texts["names.schema.json"] = json.dumps(names, indent=1) + "\n"
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {one_line(str(out))}: {error.strerror}") from error
    output.line(f"{len(texts)} schemas in {shown_path(out)}; begin a spec with:")
    output.line(f"# yaml-language-server: $schema={shown_path(out / 'spec.schema.json')}")
    return ExitCode.OK


def names_of(backends: Sequence[Path], *, with_torch: bool) -> dict[str, Any]:
    """Return the schema of names, with those of further backends; with torch, each option of the
    installed one with its values, and no other name of it; without torch ``UsageError``.
    """
    content: dict[str, Any] = copy.deepcopy(schemas.load("names"))
    parts = content["$defs"]
    parts["backend"]["anyOf"][0]["enum"] = sorted(load_backends(backends).by_name)
    if not with_torch:
        return content
    torch = installed_torch()
    if torch is None:
        raise UsageError(f"--with-torch: {no_torch_reason()}")
    content["description"] = f"Names of torch {torch.version}, for editors."
    parts["backend"]["anyOf"][1] = _WITH_TEMPLATE
    names = scan(torch.root)
    for kind in (*CONFIG_FILES, COUNTER, METRIC):
        part = parts[f"{kind}_names" if kind in CONFIG_FILES else kind]
        allowed = names.types.get(kind, {})
        part["properties"] = {
            name: {"description": f"torch {torch.minor}", **_values(allowed.get(name, ()))}
            for name in sorted(names.names[kind])
        }
    return content


def _values(allowed: Sequence[str]) -> dict[str, Any]:
    literals = [json.loads(word) for word in allowed if word not in KINDS]
    types = [_TYPES[word] for word in allowed if word in _TYPES]
    values = [*([{"enum": literals}] if literals else []), *([{"type": types}] if types else [])]
    description = {"description": f"Allowed: {shown_types(allowed)}"}
    return {**description, "anyOf": [*values, _WITH_TEMPLATE, _REF]} if allowed else {}
