"""``python -m tests.mutants.differential [OPERATOR...]``: looks for wrong answers that survivors give.

A survivor is a mutant that its shipped cases did not detect. The first float32 sample of each operator is compared with eager under each
survivor.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from runner.core.outcomes import Outcome
from runner.language.load import load
from tests.faults.running import SPECS
from tests.mutants.named import KINDS_OF_SURVIVORS, Named, source_of, survivors, torch_version
from tests.mutants.operators import Mutant, difference
from tests.mutants.running import tried
from tests.mutants.table import named

OPERATORS = ("addmm", "bmm", "cat", "cumsum", "index_add", "nn.functional.conv2d", "nn.functional.layer_norm", "softmax", "std", "where")
"""What is compiled where no operators are named: matmuls, reductions, a scan, indexing, a convolution."""

SPEC = """summary: The first sample of an operator computes what eager computes
backends: [cpu]
source: {opinfo: {dtypes: [float32], samples: first}}
compile: {dynamic: "{{ dynamic }}"}
matrix: {dynamic: [false]}
expect: [{close: {to: eager}}]
"""


def operator_cases(folder: Path, operators: Sequence[str]) -> dict[str, Path]:
    """Write the spec of the first samples, and return its cases of these operators; raise ``LookupError`` for one that is not there."""
    folder.mkdir(parents=True)
    spec = folder / "first-samples.yaml"
    spec.write_text(SPEC, "utf-8")
    (folder / "_defaults.yaml").write_bytes((SPECS[0] / "operators" / "_defaults.yaml").read_bytes())
    found = {str(case.params["op"]): case.id for case in load([spec]).cases if case.device == "cpu"}
    if unknown := [name for name in operators if name not in found]:
        raise LookupError(f"no operator has samples in float32 on the CPU and is called {', '.join(unknown)}")
    return {found[name]: spec for name in operators}


def wanted(options: argparse.Namespace) -> dict[Mutant, Named]:
    """Return the mutants to search with: the survivors of a record, or the classified ones of some classes."""
    if options.record is not None:
        found = [named(one) for one in json.loads(options.record.read_bytes())["mutants"] if one["status"] == "survived"]
    else:
        found = [one.mutant for one in survivors() if one.classified in (options.classified or ("unclaimed", "wrong answer"))]
    return {mutant: one for one in found if (mutant := one.find()) is not None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each survivor under which an operator's answer is wrong or that ends loudly; 1 where an answer is wrong."""
    options = _parser().parse_args(arguments)
    mutants = wanted(options)
    with tempfile.TemporaryDirectory(prefix="differential-") as temporary:
        cases = operator_cases(Path(temporary) / "first", options.operators or OPERATORS)
        alone: dict[str, Outcome] = {}
        pairs: Mapping[Mutant, Sequence[str]] = {mutant: list(cases) for mutant in mutants}
        found = list(tried(pairs, cases, Path(temporary) / "tried", jobs=options.jobs, alone=alone))
    sound = {case_id for case_id, outcome in alone.items() if outcome is Outcome.PASS}
    if not sound:
        print(
            f"no operator passes without a mutant: {', '.join(f'{case_id} {one.label}' for case_id, one in alone.items())}", file=sys.stderr
        )
        return 2
    print(f"torch {torch_version()}: {len(found)} survivors under {len(sound)} operators that pass without them")
    wrong = 0
    for one in found:
        red = {case_id: outcome for case_id, outcome in one.outcomes.items() if case_id in sound and outcome is not Outcome.PASS}
        wrong += Outcome.FAIL in red.values()
        if red:
            print(f"\n{mutants[one.mutant].module}, {mutants[one.mutant].function}")
            print(difference(source_of(one.mutant.module), one.mutant))
            print("\n".join(f"  {outcome.label} {case_id}: {one.reasons[case_id]}" for case_id, outcome in red.items()), flush=True)
    print(f"\n{wrong} of them failed an operator's comparison")
    return 1 if wrong else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.differential", description=__doc__)
    parser.add_argument("operators", nargs="*", metavar="OPERATOR", help="operators of torch's database (some of each family)")
    parser.add_argument("--record", type=Path, metavar="FILE", help="survivors of a record, and not those of survivors.json")
    parser.add_argument("--classified", action="append", choices=KINDS_OF_SURVIVORS, help="survivors of this class; may repeat")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cases at once (2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
