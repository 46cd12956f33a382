"""The names that the published schemas complete and check: ``python -m runner.language.names.published > schemas/names.schema.json``.

The hand-written schemas refer to them below ``allOf``, which the runner itself passes over: it looks names up in its tables and in
the installed torch, and says more about one that is unknown. For the editor the tables are all there is, so a name may be unknown
where the language allows it: a counter with ``unlisted: true`` or of a run-time pattern, an option under a condition on torch's
version, a vendor's backend.
"""

import json
import re
import sys
from collections.abc import Iterable, Mapping
from typing import Any

from runner.language.backends import load_backends
from runner.language.names._name_table import CONFIG_FILES, Names
from runner.language.names.torch_names import TABLES, read_table
from runner.language.waivers import OUTSIDE_OF_EXPECTATIONS
from runner.system.capabilities import CAPABILITIES
from runner.system.installed_torch import release
from runner.vocabulary.expectations import EXPECTATIONS

MODES = ("default", "lite", "max-autotune", "max-autotune-no-cudagraphs", "reduce-overhead")
"""The modes of ``torch.compile``."""

DYNAMO_BACKENDS = ("inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "cudagraphs")
"""The backends of dynamo that come with torch; a library may register others."""

_TEMPLATE = {"pattern": r"^\{\{.*\}\}$"}
_PARTS = ("eager", "output", "function", "compiled", "inputs")
"""What a spec with one function and no named values can compare."""


def schema() -> dict[str, Any]:
    """Return the schema of names."""
    tables = {minor: read_table(TABLES / f"names-{minor}.json") for minor in _minors()}
    backends = load_backends().by_name
    options = {section: _options(section, tables) for section in CONFIG_FILES}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "names",
        "description": "Made by python -m runner.language.names.published from the tables of names; not to be edited.",
        "$defs": {
            **{f"{section}_names": names for section, names in options.items()},
            **{section: _section(section) for section in CONFIG_FILES},
            "counter": _counters(tables),
            "metric": _closed("A metric of inductor.", _by_minor({minor: table.metrics for minor, table in tables.items()})),
            "backend": _backend(backends),
            "backends": {"description": "A backend, or several.", **_one_or_list("backend")},
            "capability": _capability(),
            "mode": {"description": "A mode of torch.compile.", "anyOf": [{"enum": [*MODES, None]}, _TEMPLATE]},
            "dynamo_backend": {
                "description": "A backend of dynamo; others may be registered.",
                "anyOf": [{"enum": [*DYNAMO_BACKENDS]}, True],
            },
            "compared": {"description": "eager, or the name of a value.", "anyOf": [{"enum": [*_PARTS]}, {"type": "string"}]},
            "failure_type": {"description": "A type of failure.", "enum": sorted({*EXPECTATIONS, *OUTSIDE_OF_EXPECTATIONS})},
            "expects": _expects(),
        },
    }


def _minors() -> list[str]:
    return sorted((file.stem.removeprefix("names-") for file in TABLES.glob("names-*.json")), key=release)


def _by_minor(names: Mapping[str, Iterable[str]]) -> dict[str, list[str]]:
    """Return the names in order, each with the minors that have it."""
    found: dict[str, list[str]] = {}
    for minor, known in names.items():
        for name in known:
            found.setdefault(name, []).append(minor)
    return dict(sorted(found.items()))


def _closed(description: str, names: Mapping[str, Iterable[str]], others: Any = False) -> dict[str, Any]:
    properties = {name: {"description": f"torch {', '.join(minors)}"} for name, minors in names.items()}
    return {"description": description, "properties": properties, "additionalProperties": others}


def _options(section: str, tables: Mapping[str, Names]) -> dict[str, Any]:
    names = _by_minor({minor: table.options[section] for minor, table in tables.items()})
    return _closed(f"The options of torch/{CONFIG_FILES[section]}.", names)


def _section(section: str) -> dict[str, Any]:
    names = {"$ref": f"#/$defs/{section}_names"}
    depends_on_torch = {"required": ["when"], "properties": {"when": {"required": ["torch"]}}}
    conditional = {"if": depends_on_torch, "else": {"properties": {"set": names}}}
    entry = {"if": {"required": ["set"]}, "then": conditional, "else": names}
    description = f"Options of {section}; under a condition on torch's version also those of a version to come."
    return {"description": description, "if": {"type": "object"}, "then": names, "else": {"items": entry}}


def _counters(tables: Mapping[str, Names]) -> dict[str, Any]:
    spaces = {minor: table.counters for minor, table in tables.items()}
    names = {minor: [f"{space}.{name}" for space, found in known.items() for name in found.names] for minor, known in spaces.items()}
    made = {(space, pattern) for known in spaces.values() for space, found in known.items() for pattern in found.patterns}
    unlisted = {"required": ["unlisted"]}
    listed = {"type": "array", "contains": {"properties": {"value": {"type": "object", **unlisted}}}}
    others = {"anyOf": [{"type": "object", **unlisted}, listed]}
    counters = _closed("Counters of dynamo; one that is in no table needs unlisted: true.", _by_minor(names), others)
    patterns = {f"^{re.escape(space)}\\.(?:{_any_line(pattern)})$": True for space, pattern in sorted(made)}
    return {**counters, "patternProperties": patterns}


def _any_line(pattern: str) -> str:
    """Return a pattern whose dots also stand for line ends, as they do for the runner."""
    return re.sub(r"(?<!\\)\.([*+])", r"[\\s\\S]\1", pattern)


def _backend(backends: Iterable[str]) -> dict[str, Any]:
    known = sorted(backends)
    near = sorted({wrong for name in known for wrong in _slips(name)} - set(known))
    vendor = {"pattern": "^[a-z][a-z0-9_-]*$", "not": {"enum": near}}
    return {"description": "A shipped backend, or one of a vendor's own file.", "anyOf": [{"enum": known}, vendor]}


def _slips(name: str) -> Iterable[str]:
    """Yield what a slip of the finger makes of a name: letters swapped, doubled or left out; in a longer name also another letter."""
    for index in range(len(name)):
        yield name[:index] + name[index + 1 :]
        yield name[: index + 1] + name[index:]
        yield name[:index] + name[index + 1 : index + 2] + name[index] + name[index + 2 :]
        if len(name) > _SHORT:
            yield from (name[:index] + letter + name[index + 1 :] for letter in "abcdefghijklmnopqrstuvwxyz_")


_SHORT = 3
"""Letters of a name of which each other letter may make a vendor's: npu is no misspelt cpu."""


def _one_or_list(definition: str) -> dict[str, Any]:
    one = {"$ref": f"#/$defs/{definition}"}
    return {"if": {"type": "array"}, "then": {"items": one}, "else": one}


def _capability() -> dict[str, Any]:
    plain = sorted(name for name, capability in CAPABILITIES.items() if not capability.takes)
    taking = {name: {"description": f"{c.summary}: for example {c.takes}"} for name, c in sorted(CAPABILITIES.items()) if c.takes}
    return {
        "description": "A capability by name, or with its argument.",
        "if": {"type": "object"},
        "then": {"properties": taking, "additionalProperties": False},
        "else": {"enum": plain},
    }


def _expects() -> dict[str, Any]:
    """Return what holds for a whole spec: something is expected, and in the short form of what there is."""
    some = {"description": "One of them expects something.", "contains": {"type": "object", "required": ["expect"]}}
    steps = {"properties": {"steps": some}}
    named = [{"required": [section]} for section in ("steps", "let", "functions")]
    pattern = rf"^({'|'.join(_PARTS)})(\.[A-Za-z0-9_]+)*$"
    to = {"description": "eager, or a part of the case: nothing else has a name.", "pattern": pattern}
    close = {"description": "What is compared.", "properties": {"to": to}}
    short = {"properties": {"expect": {"description": "What is expected of the call.", "items": {"properties": {"close": close}}}}}
    return {
        "description": "A spec expects something: in expect, or in a step.",
        "if": {"required": ["steps"]},
        "then": steps,
        "else": {"required": ["expect"], "if": {"not": {"anyOf": named}}, "then": short},
    }


def text() -> str:
    """Return the committed form."""
    return json.dumps(schema(), indent=1) + "\n"


if __name__ == "__main__":
    sys.stdout.write(text())
