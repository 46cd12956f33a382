"""``python -m tools.judges``: compares judges of numbers: which wrong answers each accepts, and
which right ones it refuses.

The judges are ours (``close: {to: eager}``), ``torch.testing.assert_close``,
``torch._dynamo.utils.same`` and the cosine of the angle. The last column counts the wrong answers
that ours accepts although none of its statistics is greater than those of right answers of the same
row. Exit 1 where it refuses a right answer.
"""

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence

import torch

from tools.judges.families import DTYPES, FAMILIES, SCALES, cells
from tools.judges.judges import JUDGES
from tools.judges.table import Entry, entries, mistakes, totals
from tools.reports import table


def rows(entries: Sequence[Entry], judges: Sequence[str]) -> Iterator[list[object]]:
    """Yield for each answer in how many cells each judge is mistaken."""
    grouped: dict[tuple[bool, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.is_right or entry.is_wrong:
            grouped[entry.is_wrong, entry.answer].append(entry)
    for (is_wrong, answer), alike in sorted(grouped.items(), key=lambda item: item[0]):
        counts = [len(mistakes(alike, judge)) for judge in judges]
        kind = "wrong: accepted" if is_wrong else "right: refused"
        explained = sum(entry.is_shown for entry in alike) if is_wrong else ""
        yield [f"{kind}, {answer}", len(alike), *counts, explained]


def main() -> int:
    """Print the table, and our mistakes one by one."""
    parser = argparse.ArgumentParser(prog="python -m tools.judges", description=__doc__)
    add = parser.add_argument
    add("--device", choices=["cpu", "cuda"], default="cpu")
    for option, choices in (("--family", [*FAMILIES]), ("--dtype", DTYPES)):
        add(option, action="append", choices=choices, help="only these; may repeat")
    add("--scale", action="append", type=float, help=f"scales of the inputs {SCALES}")
    add("--only-ours", action="store_true", help="without the three other judges")
    add("--seed", type=int, default=0)
    options = parser.parse_args()
    chosen = cells(
        options.family or (),
        options.dtype or DTYPES,
        options.scale or SCALES,
        device=options.device,
        seed=options.seed,
    )
    judges = {"calibrated": JUDGES["calibrated"]} if options.only_ours else JUDGES
    judged = list(entries(chosen, judges))
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    facts = {"torch": torch.__version__, "device": name, "seed": options.seed}
    print(", ".join(f"{key} {value}" for key, value in facts.items()), end="\n\n")
    columns = ("answer", "cells", *judges, "calibrated, shown by right ones")
    print("\n".join(table(columns, rows(judged, [*judges]))), end="\n\n")
    counted = totals(judged, judges)
    print(
        "\n".join(
            table(
                ("judge", *counted["calibrated"]),
                ([judge, *counts.values()] for judge, counts in counted.items()),
            )
        )
    )
    ours = mistakes(judged, "calibrated")
    print("\nMistakes of the calibrated judge:")
    for entry in ours:
        explanation = ": right answers show as much" if entry.is_shown else ""
        print(
            f"- {'refuses' if entry.is_right else 'accepts'} {entry.family}, {entry.dtype}, "
            f"scale {entry.scale:g}: {entry.answer}{explanation}"
        )
    return int(any(entry.is_right for entry in ours))


if __name__ == "__main__":
    sys.exit(main())
