"""The schema of the names of torch, for editors; ``python -m tools.generate_docs`` writes it: the
names are made anew, and the rest of the file is edited there.

The other schemas refer to it below ``allOf``, which the runner ignores: it looks names up in its
tables and in the installed torch, and gives better messages. The editor has only the tables, so it
accepts unknown names where the language allows them: a counter with ``unlisted: true`` or of a
run-time pattern, an option under a condition on torch's version, a vendor's backend.
"""

import json
import re
from pathlib import Path

from torch_conformance.language.backends import load_backends
from torch_conformance.language.torch_names import (
    CONFIG_FILES,
    COUNTER,
    METRIC,
    MODE,
    committed_tables,
)
from torch_conformance.language.waivers import OUTSIDE_OF_EXPECTATIONS
from torch_conformance.machine.capabilities import CAPABILITIES
from torch_conformance.model.protocol import Json
from torch_conformance.vocabulary.expectations import EXPECTATIONS


def names(path: Path) -> Json:
    """Return the schema at ``path`` with the names of the committed list, of every supported
    torch.
    """
    schema, tables = json.loads(path.read_text("utf-8")), committed_tables()
    parts = schema["$defs"]
    for kind in (*CONFIG_FILES, COUNTER, METRIC):
        of_kind = sorted({name for table in tables.values() for name in table.names[kind]})
        parts[f"{kind}_names" if kind in CONFIG_FILES else kind]["properties"] = {
            name: {"description": f"torch {', '.join(minors)}"}
            for name in of_kind
            if (minors := [of for of, table in tables.items() if name in table.names[kind]])
        }
    patterns = {
        (space, pattern)
        for table in tables.values()
        for space, of_space in table.patterns.items()
        for pattern in of_space
    }
    # their dots also match line ends, as in the runner
    any_line = [
        (space, re.sub(r"(?<!\\)\.([*+])", r"[\\s\\S]\1", pattern))
        for space, pattern in sorted(patterns)
    ]
    parts[COUNTER]["patternProperties"] = {
        f"^{re.escape(space)}\\.(?:{pattern})$": True for space, pattern in any_line
    }
    modes = {name for table in tables.values() for kind, _, name in table.entries if kind == MODE}
    parts["mode"]["anyOf"][0]["enum"] = [*sorted(modes), None]
    parts["backend"]["anyOf"][0]["enum"] = sorted(load_backends([]).by_name)
    parts["capability"]["then"]["properties"] = {
        name: {"description": f"{capability.summary}: for example {capability.takes}"}
        for name, capability in sorted(CAPABILITIES.items())
        if capability.takes
    }
    parts["capability"]["else"]["anyOf"][0]["enum"] = sorted(
        name for name, capability in CAPABILITIES.items() if not capability.takes
    )
    parts["failure_type"]["enum"] = sorted({*EXPECTATIONS, *OUTSIDE_OF_EXPECTATIONS})
    return schema
