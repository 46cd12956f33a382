"""Generates the schema of names for editors.

The hand-written schemas refer to it below ``allOf``, which the runner ignores: it looks names up in its tables and in the installed torch,
and gives better messages. The editor has only the tables, so it accepts unknown names where the language allows them: a counter with
``unlisted: true`` or of a run-time pattern, an option under a condition on torch's version, a vendor's backend.
"""

import ast
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any

from runner.core.diagnostics import UsageError
from runner.language.backends import load_backends
from runner.language.check.names import GUARD_FILTER
from runner.language.names.name_table import CONFIG_FILES, COUNTER, KINDS, METRIC, Names, read_table, shown
from runner.language.names.scan import scan
from runner.language.names.tables import TABLES
from runner.language.waivers import OUTSIDE_OF_EXPECTATIONS
from runner.system.capabilities import CAPABILITIES
from runner.system.installed_torch import installed_torch, no_torch_reason, release
from runner.vocabulary.expectations import EXPECTATIONS

MODES = ("default", "lite", "max-autotune", "max-autotune-no-cudagraphs", "reduce-overhead")
"""The modes of ``torch.compile``."""

DYNAMO_BACKENDS = ("inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "cudagraphs")
"""The backends of dynamo in torch; libraries may register others."""

_TEMPLATE = {"pattern": r"^\{\{.*\}\}$"}
_PARTS = ("eager", "output", "function", "compiled", "inputs")
"""The values that a spec with one function and no named values can compare."""


def schema(tables: Mapping[str, Names] | None = None, files: Sequence[Path] = (), *, is_closed: bool = False) -> dict[str, Any]:
    """Return the schema of names: of the committed tables, or of the given ones.

    ``files`` are those of further backends. With ``is_closed`` there are no other backends than these.
    """
    if tables is None:
        tables = {
            minor: read_table(TABLES / f"names-{minor}.json")
            for minor in sorted((file.stem.removeprefix("names-") for file in TABLES.glob("names-*.json")), key=release)
        }
    backends = load_backends(files).by_name
    one = {"$ref": "#/$defs/backend"}
    options = {section: _options(section, tables) for section in CONFIG_FILES}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "names",
        "description": "Written by torch-conformance schema.",
        "$defs": {
            **{f"{section}_names": names for section, names in options.items()},
            **{section: _section(section) for section in CONFIG_FILES},
            "compile_options": _compile_options(),
            "counter": _counters(tables),
            "metric": _closed("A metric of inductor.", _by_minor({minor: table.names[METRIC] for minor, table in tables.items()})),
            "backend": _backend(backends, is_closed=is_closed),
            "backends": {"description": "A backend, or several.", "if": {"type": "array"}, "then": {"items": one}, "else": one},
            "capability": _capability(),
            "mode": {"description": "A mode of torch.compile.", "anyOf": [{"enum": [*MODES, None]}, _TEMPLATE]},
            "dynamo_backend": {
                "description": "A backend of dynamo. Libraries may register others.",
                "anyOf": [{"enum": [*DYNAMO_BACKENDS]}, True],
            },
            "compared": {"description": "eager, or the name of a value.", "anyOf": [{"enum": [*_PARTS]}, {"type": "string"}]},
            "failure_type": {"description": "A type of failure.", "enum": sorted({*EXPECTATIONS, *OUTSIDE_OF_EXPECTATIONS})},
            "expects": _expects(),
        },
    }


def _by_minor(names: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return the sorted names, each with the minor versions that have it."""
    minors_of: dict[str, list[str]] = {}
    for minor, known in names.items():
        for name in known:
            minors_of.setdefault(name, []).append(minor)
    return dict(sorted(minors_of.items()))


def _closed(description: str, names: Mapping[str, Iterable[str]], others: Any = False) -> dict[str, Any]:
    properties = {name: {"description": f"torch {', '.join(minors)}"} for name, minors in names.items()}
    return {"description": description, "properties": properties, "additionalProperties": others}


def _options(section: str, tables: Mapping[str, Names]) -> dict[str, Any]:
    names = _by_minor({minor: table.names[section] for minor, table in tables.items()})
    return _closed(f"The options of torch/{CONFIG_FILES[section]}.", names)


def _compile_options() -> dict[str, Any]:
    """Return the names below ``options`` of ``compile``: those of Inductor, and one that torch.compile takes itself."""
    reference = {"description": "A function that takes the guards and returns for each whether it is kept.", "required": ["ref"]}
    properties = {GUARD_FILTER: {**reference, "type": "object", "examples": [{"ref": "keep_guards"}]}}
    others = {"if": {"required": [GUARD_FILTER]}, "else": {"$ref": "#/$defs/config_names"}}
    return {"description": "The options of one compile.", "properties": properties, **others}


def _section(section: str) -> dict[str, Any]:
    names = {"$ref": f"#/$defs/{section}_names"}
    depends_on_torch = {"required": ["when"], "properties": {"when": {"required": ["torch"]}}}
    conditional = {"if": depends_on_torch, "else": {"properties": {"set": names}}}
    entry = {"if": {"required": ["set"]}, "then": conditional, "else": names}
    description = f"Options of {section}. Under a condition on torch's version, names of future versions are allowed."
    return {"description": description, "if": {"type": "object"}, "then": names, "else": {"items": entry}}


def _counters(tables: Mapping[str, Names]) -> dict[str, Any]:
    names = {minor: table.names[COUNTER] for minor, table in tables.items()}
    patterns_of_all = {(space, pattern) for table in tables.values() for space, patterns in table.patterns.items() for pattern in patterns}
    unlisted = {"required": ["unlisted"]}
    listed = {"type": "array", "contains": {"properties": {"value": {"type": "object", **unlisted}}}}
    others = {"anyOf": [{"type": "object", **unlisted}, listed]}
    counters = _closed("Counters of dynamo. A counter that is in no table needs unlisted: true.", _by_minor(names), others)
    patterns = {f"^{re.escape(space)}\\.(?:{_any_line(pattern)})$": True for space, pattern in sorted(patterns_of_all)}
    return {**counters, "patternProperties": patterns}


def _any_line(pattern: str) -> str:
    """Return a pattern whose dots also match line ends, as in the runner."""
    return re.sub(r"(?<!\\)\.([*+])", r"[\\s\\S]\1", pattern)


def _backend(backends: Iterable[str], *, is_closed: bool) -> dict[str, Any]:
    known = sorted(backends)
    if is_closed:
        return {"description": "A backend.", "anyOf": [{"enum": known}, _TEMPLATE]}
    near = sorted({wrong for name in known for wrong in _slips(name)} - set(known))
    vendor = {"pattern": "^[a-z][a-z0-9_-]*$", "not": {"enum": near}}
    return {"description": "A shipped backend, or one of a vendor's own file.", "anyOf": [{"enum": known}, vendor]}


def _slips(name: str) -> Iterable[str]:
    """Yield probable typing errors of a name: letters swapped, doubled or omitted; in a longer name also one other letter."""
    for index in range(len(name)):
        yield name[:index] + name[index + 1 :]
        yield name[: index + 1] + name[index:]
        yield name[:index] + name[index + 1 : index + 2] + name[index] + name[index + 2 :]
        if len(name) > _SHORT:
            yield from (name[:index] + letter + name[index + 1 :] for letter in "abcdefghijklmnopqrstuvwxyz_")


_SHORT = 3
"""The maximum length of a name without replaced letters: npu may be a vendor's backend and not a misspelt cpu."""


def _capability() -> dict[str, Any]:
    plain = sorted(name for name, capability in CAPABILITIES.items() if not capability.takes)
    taking = {name: {"description": f"{c.summary}: for example {c.takes}"} for name, c in sorted(CAPABILITIES.items()) if c.takes}
    return {
        "description": "A capability by name, or with its argument.",
        "if": {"type": "object"},
        "then": {"properties": taking, "additionalProperties": False},
        "else": {"anyOf": [{"enum": plain}, _TEMPLATE]},
    }


def _expects() -> dict[str, Any]:
    """Return the rules for a whole spec: it expects something, and the short form compares only existing values."""
    with_expectations = {"description": "At least one step has expectations.", "contains": {"type": "object", "required": ["expect"]}}
    steps = {"properties": {"steps": with_expectations}}
    named = [{"required": [section]} for section in ("steps", "let", "functions")]
    pattern = rf"^({'|'.join(_PARTS)})(\.[A-Za-z0-9_]+)*$"
    to = {"description": "eager, or a part of the case; there are no other names.", "pattern": pattern}
    close = {"description": "The compared values.", "properties": {"to": to}}
    short = {"properties": {"expect": {"description": "The expectations of the call.", "items": {"properties": {"close": close}}}}}
    return {
        "description": "A spec has expectations, in expect or in a step.",
        "if": {"required": ["steps"]},
        "then": steps,
        "else": {"required": ["expect"], "if": {"not": {"anyOf": named}}, "then": short},
    }


# -- descriptions of options ------------------------------------------------------------------------------------------


_LONGEST_DEFAULT = 200
"""Characters of the expression of a default."""


def described(root: Path, section: str) -> Mapping[str, str]:
    """Return the default and the comment above each option of a section (a key of ``CONFIG_FILES``), by its dotted name."""
    try:
        source = (root / CONFIG_FILES[section]).read_text("utf-8")
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):
        return {}
    lines = source.split("\n")
    descriptions: dict[str, str] = {}
    remaining: list[tuple[str, ast.stmt]] = [("", node) for node in reversed(tree.body)]
    while remaining:
        prefix, node = remaining.pop()
        match node:
            case ast.ClassDef(name=name, body=body):
                remaining.extend((f"{prefix}{name}.", inner) for inner in reversed(body))
            case ast.If(body=body):
                remaining.extend((prefix, inner) for inner in reversed(body))
            case (
                ast.Assign(targets=[ast.Name(id=name), *_], value=ast.expr() as value)
                | ast.AnnAssign(target=ast.Name(id=name), value=ast.expr() as value)
            ):
                default = " ".join(ast.unparse(value).split())
                shortened = default if len(default) <= _LONGEST_DEFAULT else f"{default[:_LONGEST_DEFAULT]}..."
                above = takewhile(lambda line: line.strip().startswith("#"), reversed(lines[: node.lineno - 1]))
                comment = [line.strip().lstrip("#").strip() for line in above]
                descriptions[f"{prefix}{name}"] = "\n".join([f"default: {shortened}", *reversed(comment)])
    return descriptions


# -- the names of the installed torch ---------------------------------------------------------------------------------


_TYPES = {"bool": "boolean", "int": "integer", "float": "number", "str": "string", "null": "null", "list": "array", "map": "object"}
_WITH_TEMPLATE = {"type": "string", "pattern": r"\{\{"}
_REF = {"type": "object", "required": ["ref"]}


def schema_of_installed(backends: Sequence[Path] = ()) -> dict[str, Any]:
    """Return the schema of names of the installed torch, each option with its default, comment and values; without torch ``UsageError``."""
    torch = installed_torch()
    if torch is None:
        raise UsageError(f"--with-torch: {no_torch_reason()}")
    names = scan(torch.root)
    content = schema({torch.minor: names}, backends, is_closed=True)
    content["description"] = f"Generated by torch-conformance schema --with-torch from torch {torch.version}. Do not edit."
    for section in CONFIG_FILES:
        descriptions = described(torch.root, section)
        properties = content["$defs"][f"{section}_names"]["properties"]
        for name in properties:
            allowed = names.types.get(section, {}).get(name, ())
            words = [f"torch {torch.minor}", descriptions.get(name, ""), f"allowed: {shown(allowed)}" if allowed else ""]
            properties[name] = {"description": "\n".join(filter(None, words))}
            if allowed:
                literals = [json.loads(word) for word in allowed if word not in KINDS]
                types = [_TYPES[word] for word in allowed if word in _TYPES]
                values = [*([{"enum": literals}] if literals else []), *([{"type": types}] if types else [])]
                properties[name]["anyOf"] = [*values, _WITH_TEMPLATE, _REF]
    return content
