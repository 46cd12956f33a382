"""Adds torches to the committed list of names
(``runner/torch_conformance/language/data/names.json``): options, counters, metrics and operators.
"""

import argparse
import json
import os
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from torch_conformance.language.torch_names import LIST, OPERATOR, Entry, committed_tables, scan
from torch_conformance.machine.installed_torch import minor, release
from torch_conformance.model.diagnostics import UsageError

_LONGEST = 200
"""The maximum number of characters of a line."""

Entries = Mapping[str, Iterable[Entry]]
"""What each minor has."""


def list_text(versions: Mapping[str, str], entries: Entries) -> str:
    """Return the list: a row for the names of one kind that the same minors have, with the same
    said of them.

    A row begins with the kind, the minors (``2.11-`` since 2.11, ``2.11-2.12`` until 2.12) and what
    is said. Names that do not fit into one line are on a line for each first letter, so that a
    further name changes few lines.
    """
    minors = sorted(versions, key=release)
    minors_of: dict[Entry, list[str]] = defaultdict(list)
    for of in minors:
        for entry in entries[of]:
            minors_of[entry].append(of)
    rows: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    for (kind, attribute, name), having in minors_of.items():
        for span in _spans(having, minors):
            rows[kind, attribute, span].append(name)
    lines = ",\n".join(
        _row(kind, span, attribute, sorted(names))
        for (kind, attribute, span), names in sorted(rows.items())
    )
    return f'{{"torch": {json.dumps([versions[of] for of in minors])},\n"names": [\n{lines}\n]}}\n'


def _spans(having: Sequence[str], minors: Sequence[str]) -> list[str]:
    """Return the spans of minors without a gap."""
    spans: list[list[str]] = []
    for of in having:
        if spans and minors.index(of) == minors.index(spans[-1][-1]) + 1:
            spans[-1].append(of)
        else:
            spans.append([of])
    return [
        f"{span[0]}-" if span[-1] == minors[-1] else "-".join(dict.fromkeys((span[0], span[-1])))
        for span in spans
    ]


def _row(kind: str, span: str, attribute: str, names: Sequence[str]) -> str:
    head = json.dumps([kind, span, attribute])[:-1]
    line = f"{head}, {json.dumps(names)}],"
    if len(line) <= _LONGEST:
        return line[:-1]
    lines = [""]
    for before, name in zip(["", *names], names, strict=False):
        word = json.dumps(name)
        if lines[-1] and (name[0] != before[0] or len(lines[-1]) + len(word) + 5 > _LONGEST):
            lines.append("")
        lines[-1] += f", {word}" if lines[-1] else f" {word}"
    return f"{head}, [\n" + ",\n".join(lines) + "]]"


def operators_of(package: Path) -> set[Entry] | None:
    """Return the operators of the torch in a package folder, which another process imports; None
    where that fails.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(package.parent), str(Path(__file__).parents[1])]),
    }
    command = [sys.executable, "-m", "tools.generate_operators"]
    child = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    return (
        {(OPERATOR, attribute, label) for attribute, label in json.loads(child.stdout)}
        if child.returncode == 0
        else None
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Add the torches to the list, or replace what it says of their minors."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.generate_names", description="Add torches to the list of names."
    )
    parser.add_argument(
        "sources",
        type=Path,
        nargs="+",
        metavar="PATH_OF_TORCH",
        help="the folder of a package torch, or its parent",
    )
    parser.add_argument(
        "-o",
        "--output",
        type=Path,
        default=LIST,
        metavar="FILE",
        help=f"the list to write (default: {LIST.name})",
    )
    parser.add_argument(
        "--without-operators",
        action="store_true",
        help="import no torch: the list keeps the operators that it has",
    )
    options = parser.parse_args(arguments)
    versions = {of: table.version for of, table in committed_tables().items()}
    entries: dict[str, Iterable[Entry]] = {
        of: table.entries for of, table in committed_tables().items()
    }
    try:
        for source in options.sources:
            names = scan(source)
            of = minor(names.version)
            operators = (
                None
                if options.without_operators
                else operators_of(source if (source / "version.py").is_file() else source / "torch")
            )
            if operators is None:
                operators = {entry for entry in entries.get(of, ()) if entry[0] == OPERATOR}
                print(
                    f"torch {names.version}: not imported; the list has {len(operators)} "
                    f"operators of {of}",
                    file=sys.stderr,
                )
            versions[of], entries[of] = names.version, {*names.entries, *operators}
            for place in names.unresolved:
                print(
                    f"{place}: the namespace is not constant; the list may lack its counters",
                    file=sys.stderr,
                )
        options.output.write_text(list_text(versions, entries), "utf-8")
    except (UsageError, OSError) as problem:
        print(problem, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
