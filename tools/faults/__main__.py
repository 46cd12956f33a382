"""``python -m tools.faults``: plants every fault of the catalogue and prints which cases saw it."""

import argparse
import sys
import tempfile
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from tools.faults.catalogue import CATALOGUE, HOLES, PLANTABLE, Fault
from tools.faults.running import Sighting, Trial, cpu_cases, matching, sightings


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 when every fault was seen, 1 when one was not, 2 for a name that is no
    fault's.
    """
    options = _parser().parse_args(arguments)
    for name in options.fault:
        if name not in PLANTABLE:
            print(
                f"no fault is called '{name}'; there are: {', '.join(PLANTABLE)}", file=sys.stderr
            )
            return 2
    faults = [PLANTABLE[name] for name in options.fault] or list(
        HOLES if options.holes else CATALOGUE
    )
    if options.list:
        for fault in faults:
            print(
                f"{fault.name}: {fault.breaks}"
                + (f" (missing: {fault.claim})" if fault.claim else "")
            )
        return 0
    sys.stdout.reconfigure(
        line_buffering=True
    )  # a row is to be seen when it is known, also in a log
    cases = cpu_cases()
    wanted = {
        fault.name: _globs(fault, list(cases) if options.all_cases else options.case) or list(cases)
        for fault in faults
    }
    trials = list(
        dict.fromkeys(
            Trial(name, case_id)
            for name, globs in wanted.items()
            for glob in globs
            for case_id in matching(glob, cases)
        )
    )
    left = Counter(trial.fault for trial in trials)
    found: dict[str, list[Sighting]] = {fault.name: [] for fault in faults}
    unseen = 0
    if options.out:
        Path(options.out).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="faults-") as temporary:
        # a new folder each time, which stays where the user has named one
        folder = (
            Path(tempfile.mkdtemp(prefix="table-", dir=options.out))
            if options.out
            else Path(temporary)
        )
        for sighting in sightings(trials, cases, folder, jobs=options.jobs):
            name = sighting.trial.fault
            found[name].append(sighting)
            if len(found[name]) == left[name]:
                unseen += not show(PLANTABLE[name], found[name])
    print(f"\n{len(faults) - unseen} of {len(faults)} faults were seen, in {len(trials)} trials")
    return 1 if unseen else 0


def _globs(fault: Fault, chosen: Sequence[str]) -> Sequence[str]:
    return chosen or [*fault.seen_by, *filter(None, [fault.spares])]


def show(fault: Fault, found: Sequence[Sighting]) -> bool:
    """Print the row of a fault; return whether a case saw it."""
    red = [sighting for sighting in found if sighting.is_red]
    odd = [sighting for sighting in found if not sighting.is_red and not sighting.is_green]
    print(f"\n{fault.name}: {fault.breaks}")
    for sighting in red:
        print(f"  {sighting.kind:<16} {sighting.trial.case_id} ({sighting.bites} executions)")
        print(f"  {'':<16}   {sighting.result.reason[:110]}")
    for sighting in odd:
        why = (
            "not planted"
            if sighting.bites is None
            else f"no detection, {sighting.bites} executions"
        )
        print(f"  {sighting.kind:<16} {sighting.trial.case_id} ({why})")
        print(
            f"  {'':<16}   "
            f"{(sighting.result.stderr.strip().splitlines() or [sighting.result.reason])[-1][:200]}"
        )
    if not red:
        bites = sum(sighting.bites or 0 for sighting in found)
        planted = sum(sighting.bites is not None for sighting in found)
        print(
            f"  planted in {planted} cases, executed {bites} times, seen by none"
            if planted
            else "  could not be planted"
        )
    green = [sighting for sighting in found if sighting.is_green]
    for sighting in green[:3]:
        print(f"  {'PASS':<16} {sighting.trial.case_id} ({sighting.bites} executions)")
    if len(green) > 3:
        print(f"  {'PASS':<16} {len(green) - 3} more")
    return bool(red)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.faults", description=__doc__)
    parser.add_argument(
        "--fault", action="append", default=[], metavar="NAME", help="this fault alone; may repeat"
    )
    parser.add_argument(
        "--all-cases",
        action="store_true",
        help="every case on a CPU under every fault, not only those of its row",
    )
    parser.add_argument(
        "--case",
        action="append",
        default=[],
        metavar="GLOB",
        help="these cases, not those of the row; may repeat",
    )
    parser.add_argument(
        "--holes",
        action="store_true",
        help="the faults that no case is known to see, under every case",
    )
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cases at once (2)")
    parser.add_argument("--out", metavar="DIR", help="keep the runs below this folder")
    parser.add_argument(
        "--list", action="store_true", help="print what each fault breaks, and run nothing"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
