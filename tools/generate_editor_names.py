"""The schema of the names of torch, for editors; ``python -m tools.generate_docs`` writes it.

The other schemas refer to it below ``allOf``, which the runner ignores: it looks names up in its
tables and in the installed torch, and gives better messages. The editor has only the tables, so it
accepts unknown names where the language allows them: a counter with ``unlisted: true`` or of a
run-time pattern, an option under a condition on torch's version, a vendor's backend.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from torch_conformance.language.backends import load_backends
from torch_conformance.language.check.names import GUARD_FILTER
from torch_conformance.language.torch_names import (
    CONFIG_FILES,
    COUNTER,
    METRIC,
    MODE,
    Names,
    committed_tables,
)
from torch_conformance.language.waivers import OUTSIDE_OF_EXPECTATIONS
from torch_conformance.machine.capabilities import CAPABILITIES
from torch_conformance.vocabulary.expectations import EXPECTATIONS

DYNAMO_BACKENDS = ("inductor", "eager", "aot_eager", "aot_eager_decomp_partition", "cudagraphs")
"""The backends of dynamo in torch; libraries may register others."""

_TEMPLATE = {"pattern": r"^\{\{.*\}\}$"}
_PARTS = ("eager", "output", "function", "compiled", "inputs")
"""The values that a spec with one function and no named values can compare."""


def names() -> dict[str, Any]:
    """Return the schema of names: of the committed list, for every supported torch."""
    tables = committed_tables()
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
        "description": "Names of every supported torch, for editors.",
        "$defs": {
            **{f"{section}_names": names for section, names in options.items()},
            **{section: _section(section) for section in CONFIG_FILES},
            "compile_options": _compile_options(),
            "counter": _counters(tables),
            "metric": _closed("A metric of inductor.", _by_minor(tables, METRIC)),
            "backend": {
                "description": "A shipped backend, or one of a vendor's own file.",
                "anyOf": [
                    {"enum": sorted(load_backends([]).by_name)},
                    {"pattern": "^[a-z][a-z0-9_-]*$"},
                ],
            },
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
