"""Compare judges of numbers: which wrong answers each accepts, and which right ones it refuses.

The judges are ours (``close: {to: eager}``), ``torch.testing.assert_close``,
``torch._dynamo.utils.same`` and the cosine of the angle. The families, their right variants and
their defects are those of ``tools/judges/families.py``. The last column counts the wrong answers
that ours accepts although none of its statistics is greater than those of right answers of the same
row. Exit 1 where it refuses a right answer.
"""

import argparse
import json
import sys
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from tools.judges.families import DTYPES, FAMILIES, SCALES, cells
from tools.judges.judges import JUDGES
from tools.judges.table import Entry, mistakes, totals
from tools.judges.table import entries as judged


def rows(entries: Sequence[Entry], judges: Sequence[str]) -> list[str]:
    """Return a table in Markdown: for each answer, in how many cells each judge is mistaken."""
    grouped: dict[tuple[bool, str], list[Entry]] = defaultdict(list)
    for entry in entries:
        if entry.is_right or entry.is_wrong:
            grouped[not entry.is_right, entry.answer].append(entry)
    lines = [
        f"| answer | cells | {' | '.join(judges)} | calibrated, shown by right ones |",
        f"|---|---|{'---|' * len(judges)}---|",
    ]
    for (is_wrong, answer), found in sorted(grouped.items(), key=lambda item: item[0]):
        counts = [len(mistakes(found, judge)) for judge in judges]
        kind = "wrong: accepted" if is_wrong else "right: refused"
        shown = sum(entry.is_shown for entry in found) if is_wrong else ""
        lines.append(
            f"| {kind}, {answer} | {len(found)} | {' | '.join(map(str, counts))} | {shown} |"
        )
    return lines


def main() -> int:
    """Print the table, and our mistakes one by one."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument(
        "--family",
        action="append",
        choices=sorted(FAMILIES),
        help="only these families (repeatable)",
    )
    parser.add_argument(
        "--dtype", action="append", choices=DTYPES, help="only these dtypes (repeatable)"
    )
    parser.add_argument(
        "--scale",
        action="append",
        type=float,
        help=f"scales of the inputs (default: {', '.join(f'{one:g}' for one in SCALES)})",
    )
    parser.add_argument("--only-ours", action="store_true", help="without the three other judges")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", metavar="FILE", help="write every answer with its judgements")
    options = parser.parse_args()
    chosen = cells(
        options.family or (),
        options.dtype or DTYPES,
        options.scale or SCALES,
        device=options.device,
        seed=options.seed,
    )
    judges = {"calibrated": JUDGES["calibrated"]} if options.only_ours else JUDGES
    entries = list(judged(chosen, judges))
    name = torch.cuda.get_device_name() if options.device == "cuda" else "CPU"
    print(f"torch {torch.__version__}, {name}, seed {options.seed}\n")
    print("\n".join(rows(entries, list(judges))))
    for judge, counts in totals(entries, judges).items():
        print(
            f"\n{judge}: {counts['wrong accepted']} of {counts['wrong']} wrong answers accepted, ",
            end="",
        )
        print(
            f"{counts['right refused']} of {counts['right']} right ones refused; "
            f"{counts['within rounding']} defects are within rounding",
            end="",
        )
    print(
        f"\n\n{sum(entry.is_shown for entry in entries)} of the wrong answers that ours "
        "accepts are within what right answers show"
    )
    print("\nMistakes of the calibrated judge:")
    ours = mistakes(entries, "calibrated")
    for entry in ours:
        shown = ": right answers show as much" if entry.is_shown else ""
        print(
            f"- {'refuses' if entry.is_right else 'accepts'} {entry.family}, {entry.dtype}, "
            f"scale {entry.scale:g}: {entry.answer}{shown}"
        )
    if options.json:
        data = {
            "torch": torch.__version__,
            "device": name,
            "seed": options.seed,
            "answers": [entry.to_json() for entry in entries],
        }
        Path(options.json).write_text(json.dumps(data, indent=1) + "\n", encoding="utf-8")
    return 1 if any(entry.is_right for entry in ours) else 0


if __name__ == "__main__":
    sys.exit(main())
