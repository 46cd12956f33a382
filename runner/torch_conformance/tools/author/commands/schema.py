"""``schema``: writes the JSON schemas for editors, with the names of every supported torch, or of
the installed one.

The hand-written schemas refer to the schema of names below ``allOf``, which the runner ignores: it
looks names up in its tables and in the installed torch, and gives better messages. The editor has
only the tables, so it accepts unknown names where the language allows them: a counter with
``unlisted: true`` or of a run-time pattern, an option under a condition on torch's version, a
vendor's backend.
"""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_conformance.language.backends import load_backends
from torch_conformance.language.check.names import GUARD_FILTER
from torch_conformance.language.torch_names import (
    CONFIG_FILES,
    COUNTER,
    KINDS,
    METRIC,
    MODE,
    Names,
    committed_tables,
    scan,
)
from torch_conformance.language.waivers import OUTSIDE_OF_EXPECTATIONS
from torch_conformance.machine import output
from torch_conformance.machine.cache_dirs import folder
from torch_conformance.machine.capabilities import CAPABILITIES
from torch_conformance.machine.installed_torch import installed_torch, no_torch_reason
from torch_conformance.model.diagnostics import UsageError, one_line, shown_path
from torch_conformance.model.options import backend_files, flag, option
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.problem_texts import shown_types
from torch_conformance.vocabulary.expectations import EXPECTATIONS

DYNAMO_BACKENDS = ("inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "cudagraphs")
"""The backends of dynamo in torch; libraries may register others."""

_TEMPLATE = {"pattern": r"^\{\{.*\}\}$"}
_PARTS = ("eager", "output", "function", "compiled", "inputs")
"""The values that a spec with one function and no named values can compare."""


def schema(
    tables: Mapping[str, Names] | None = None,
    files: Sequence[Path] = (),
    *,
    is_closed: bool = False,
) -> dict[str, Any]:
    """Return the schema of names: of the committed list, or of the given tables.

    ``files`` are those of further backends. With ``is_closed`` there are no other backends than
    these.
    """
    if tables is None:
        tables = committed_tables()
    backends = load_backends(files).by_name
    modes = sorted(
        {name for table in tables.values() for kind, _, name in table.entries if kind == MODE}
    )
    backend = {"$ref": "#/$defs/backend"}
    options = {
        section: _closed(
            f"The options of torch/{CONFIG_FILES[section]}.", _by_minor(tables, section)
        )
        for section in CONFIG_FILES
    }
    plain = sorted(name for name, capability in CAPABILITIES.items() if not capability.takes)
    taking = {
        name: {"description": f"{c.summary}: for example {c.takes}"}
        for name, c in sorted(CAPABILITIES.items())
        if c.takes
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "names",
        "description": "Written by torch-conformance schema.",
        "$defs": {
            **{f"{section}_names": names for section, names in options.items()},
            **{section: _section(section) for section in CONFIG_FILES},
            "compile_options": _compile_options(),
            "counter": _counters(tables),
            "metric": _closed("A metric of inductor.", _by_minor(tables, METRIC)),
            "backend": _backend(backends, is_closed=is_closed),
            "backends": {
                "description": "A backend, or several.",
                "if": {"type": "array"},
                "then": {"items": backend},
                "else": backend,
            },
            "capability": {
                "description": "A capability by name, or with its argument.",
                "if": {"type": "object"},
                "then": {"properties": taking, "additionalProperties": False},
                "else": {"anyOf": [{"enum": plain}, _TEMPLATE]},
            },
            "mode": {
                "description": "A mode of torch.compile.",
                "anyOf": [{"enum": [*modes, None]}, _TEMPLATE],
            },
            "dynamo_backend": {
                "description": "A backend of dynamo. Libraries may register others.",
                "anyOf": [{"enum": [*DYNAMO_BACKENDS]}, True],
            },
            "compared": {
                "description": "eager, or the name of a value.",
                "anyOf": [{"enum": [*_PARTS]}, {"type": "string"}],
            },
            "failure_type": {
                "description": "A type of failure.",
                "enum": sorted({*EXPECTATIONS, *OUTSIDE_OF_EXPECTATIONS}),
            },
        },
    }


def _by_minor(tables: Mapping[str, Names], kind: str) -> dict[str, list[str]]:
    """Return the sorted names of a kind, each with the minor versions that have it."""
    names = sorted({name for table in tables.values() for name in table.names[kind]})
    return {
        name: [minor for minor, table in tables.items() if name in table.names[kind]]
        for name in names
    }


def _closed(
    description: str, names: Mapping[str, Iterable[str]], others: Any = False
) -> dict[str, Any]:
    properties = {
        name: {"description": f"torch {', '.join(minors)}"} for name, minors in names.items()
    }
    return {"description": description, "properties": properties, "additionalProperties": others}


def _compile_options() -> dict[str, Any]:
    """Return the names below ``options`` of ``compile``: those of Inductor, and one that
    torch.compile takes itself.
    """
    reference = {
        "description": "A function that takes the guards and returns for each whether it is kept.",
        "required": ["ref"],
    }
    properties = {
        GUARD_FILTER: {**reference, "type": "object", "examples": [{"ref": "keep_guards"}]}
    }
    others = {"if": {"required": [GUARD_FILTER]}, "else": {"$ref": "#/$defs/config_names"}}
    return {"description": "The options of one compile.", "properties": properties, **others}


def _section(section: str) -> dict[str, Any]:
    names = {"$ref": f"#/$defs/{section}_names"}
    depends_on_torch = {"required": ["when"], "properties": {"when": {"required": ["torch"]}}}
    conditional = {"if": depends_on_torch, "else": {"properties": {"set": names}}}
    entry = {"if": {"required": ["set"]}, "then": conditional, "else": names}
    description = (
        f"Options of {section}. Under a condition on torch's version, names of future versions "
        "are allowed."
    )
    return {
        "description": description,
        "if": {"type": "object"},
        "then": names,
        "else": {"items": entry},
    }


def _counters(tables: Mapping[str, Names]) -> dict[str, Any]:
    patterns_of_all = {
        (space, pattern)
        for table in tables.values()
        for space, patterns in table.patterns.items()
        for pattern in patterns
    }
    unlisted = {"required": ["unlisted"]}
    listed = {
        "type": "array",
        "contains": {"properties": {"value": {"type": "object", **unlisted}}},
    }
    others = {"anyOf": [{"type": "object", **unlisted}, listed]}
    counters = _closed(
        "Counters of dynamo. A counter that is in no table needs unlisted: true.",
        _by_minor(tables, COUNTER),
        others,
    )
    # their dots also match line ends, as in the runner
    any_line = [
        (space, re.sub(r"(?<!\\)\.([*+])", r"[\\s\\S]\1", pattern))
        for space, pattern in sorted(patterns_of_all)
    ]
    return {
        **counters,
        "patternProperties": {
            f"^{re.escape(space)}\\.(?:{pattern})$": True for space, pattern in any_line
        },
    }


def _backend(backends: Iterable[str], *, is_closed: bool) -> dict[str, Any]:
    known = sorted(backends)
    if is_closed:
        return {"description": "A backend.", "anyOf": [{"enum": known}, _TEMPLATE]}
    vendor = {"pattern": "^[a-z][a-z0-9_-]*$"}
    return {
        "description": "A shipped backend, or one of a vendor's own file.",
        "anyOf": [{"enum": known}, vendor],
    }


# -- the names of the installed torch --------------------------------------------------------------


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


def schema_of_installed(backends: Sequence[Path] = ()) -> dict[str, Any]:
    """Return the schema of names of the installed torch, each option with its values; without torch
    ``UsageError``.
    """
    torch = installed_torch()
    if torch is None:
        raise UsageError(f"--with-torch: {no_torch_reason()}")
    names = scan(torch.root)
    content = schema({torch.minor: names}, backends, is_closed=True)
    content["description"] = (
        f"Generated by torch-conformance schema --with-torch from torch {torch.version}. Do "
        "not edit."
    )
    for section in CONFIG_FILES:
        properties = content["$defs"][f"{section}_names"]["properties"]
        for name in properties:
            allowed = names.types.get(section, {}).get(name, ())
            properties[name] = {
                "description": f"torch {torch.minor}"
                + (f"; allowed: {shown_types(allowed)}" if allowed else "")
            }
            if allowed:
                literals = [json.loads(word) for word in allowed if word not in KINDS]
                types = [_TYPES[word] for word in allowed if word in _TYPES]
                values = [
                    *([{"enum": literals}] if literals else []),
                    *([{"type": types}] if types else []),
                ]
                properties[name]["anyOf"] = [*values, _WITH_TEMPLATE, _REF]
    return content


# -- the command -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaOptions:
    """The options of ``schema``."""

    with_torch: bool = flag(
        "with the names of the installed torch alone: options, counters, metrics"
    )
    out: Path | None = option(
        "FOLDER",
        "write all schemas to this folder (default: print the schema of names)",
        reads=Path,
    )
    backends: tuple[Path, ...] = backend_files()


_NAMES = "names.schema.json"


def main(options: SchemaOptions) -> ExitCode:
    """Print the schema of names, or write all schemas to a folder."""
    document = (
        schema_of_installed(options.backends)
        if options.with_torch
        else schema(files=options.backends)
    )
    if options.out is None:
        output.document(document)
        return ExitCode.OK
    count = _write(options.out, json.dumps(document, indent=1) + "\n")
    output.line(f"{count} schemas in {shown_path(options.out)}; begin a spec with:")
    output.line(f"# yaml-language-server: $schema={shown_path(options.out / 'spec.schema.json')}")
    return ExitCode.OK


def _write(out: Path, text_of_names: str) -> int:
    published = folder("schemas")
    if out.resolve() == published.resolve():
        raise UsageError(
            f"--out {one_line(str(out))} has the schemas of the package: choose another folder"
        )
    texts = {
        file.name: file.read_text("utf-8") for file in sorted(published.glob("*.schema.json"))
    } | {_NAMES: text_of_names}
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, text in texts.items():
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {one_line(str(out))}: {error.strerror}") from error
    return len(texts)
