"""Generates the table of names of a torch: options, counters and metrics (``runner/language/data/names-X.Y.json``)."""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from runner.language.torch_names import CONFIG_FILES, COUNTER, METRIC, Names, scan
from runner.model.diagnostics import UsageError


def table_text(table: Names) -> str:
    """Return the committed form: one name a line, sorted."""
    counters: dict[str, dict[str, list[str]]] = {
        space: {"names": [], "patterns": [*table.patterns[space]]} for space in sorted(table.patterns)
    }
    for counter in sorted(table.names[COUNTER]):
        space, _, name = counter.partition(".")
        counters[space]["names"].append(name)
    types = {kind: {name: " | ".join(table.types[kind][name]) for name in sorted(table.types[kind])} for kind in table.types}
    form = {
        "torch": table.version,
        **{kind: sorted(table.names[kind]) for kind in (*CONFIG_FILES, METRIC)},
        COUNTER: counters,
        **({"types": types} if types else {}),
        **({"modes": list(table.modes)} if table.modes else {}),
    }
    return json.dumps(form, indent=1) + "\n"


def main(arguments: Sequence[str] | None = None) -> int:
    """Generate the table of one torch."""
    parser = argparse.ArgumentParser(prog="python -m tools.generate_names", description="Generate the table of names of a torch.")
    parser.add_argument("source", type=Path, help="the folder of the package torch, or its parent")
    parser.add_argument("-o", "--output", type=Path, help="the file to write (default: standard output)")
    options = parser.parse_args(arguments)
    try:
        names = scan(options.source)
        if options.output:
            options.output.write_text(table_text(names), "utf-8")
    except (UsageError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    for place in names.unresolved:
        print(f"{place}: the namespace is not constant; the table may lack its counters", file=sys.stderr)
    if not options.output:
        sys.stdout.write(table_text(names))
    return 0


if __name__ == "__main__":
    sys.exit(main())
