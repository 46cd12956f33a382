"""``python -m tools.faults``: plants every fault of the catalogue and prints which cases saw it."""

import argparse
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tools.faults.catalogue import CATALOGUE, FAULTS
from tools.faults.fault import Fault
from tools.running import Ended, Trial, cases_of, matching, run_trials


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 when every fault was seen, 1 when one was not, 2 for a name that is no
    fault's.
    """
    options = _parser().parse_args(arguments)
    if unknown := set(options.fault) - set(FAULTS):
        print(f"no fault is called {unknown}; there are: {', '.join(FAULTS)}", file=sys.stderr)
        return 2
    faults = [FAULTS[name] for name in options.fault] or CATALOGUE
    if options.list:
        for fault in faults:
            print(f"{fault.name}: {fault.breaks}")
        return 0
    cases = cases_of()
    trials = [
        Trial(fault.name, case_id)
        for fault in faults
        for glob in _globs(fault, options) or cases
        for case_id in matching(glob, cases)
    ]
    with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
        results = run_trials(trials, cases, Path(temporary), jobs=options.jobs)
    detected = [
        show(fault, [result for result in results if result.trial.change == fault.name])
        for fault in faults
    ]
    print(f"\n{sum(detected)} of {len(faults)} faults were seen, in {len(results)} trials")
    return 0 if all(detected) else 1


def _globs(fault: Fault, options: argparse.Namespace) -> Sequence[str]:
    if options.all_cases:
        return ()
    return options.case or [*fault.seen_by, *filter(None, [fault.spares])]


def show(fault: Fault, results: Sequence[Ended]) -> bool:
    """Print the row of a fault; return whether a case saw it."""
    red = [ended for ended in results if ended.is_red]
    green = [ended for ended in results if ended.is_green]
    print(f"\n{fault.name}: {fault.breaks}")
    for ended in results:
        if ended.is_green:
            continue
        executed = f"{ended.bites} executions"
        reason = ended.result.reason
        if not ended.is_red:
            executed = "not planted" if ended.bites is None else f"no detection, {executed}"
            reason = (ended.result.stderr.strip().splitlines() or [reason])[-1]
        print(f"  {ended.kind:<16} {ended.trial.case_id} ({executed})\n{'':<21}{reason[:200]}")
    if not red:
        planted = [ended.bites for ended in results if ended.bites is not None]
        print(
            f"  planted in {len(planted)} cases, executed {sum(planted)} times, seen by none"
            if planted
            else "  could not be planted"
        )
    for ended in green[:3]:
        print(f"  {'PASS':<16} {ended.trial.case_id} ({ended.bites} executions)")
    if len(green) > 3:
        print(f"  {'PASS':<16} {len(green) - 3} more")
    return bool(red)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    several = {"action": "append", "default": []}
    add = parser.add_argument
    add("--fault", **several, metavar="NAME", help="this fault only; may repeat")
    add("--all-cases", action="store_true", help="every case on a CPU under every fault")
    add("--case", **several, metavar="GLOB", help="these cases, not those of the row; may repeat")
    add("--jobs", type=int, default=2, metavar="N", help="cases at once (2)")
    add("--list", action="store_true", help="print what each fault breaks, and run nothing")
    return parser


if __name__ == "__main__":
    sys.exit(main())
