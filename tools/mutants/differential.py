"""``python -m tools.mutants.differential [OPERATOR...]``: looks for wrong answers that survivors
give.

A survivor is a mutant that its shipped cases did not detect. Each is tried under samples of those
operators that execute its line: the answer is compared with that of eager, which the mutant does
not change.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.faults.running import SPECS
from tools.mutants.named import KINDS_OF_SURVIVORS, Named, source_of, survivors, torch_version
from tools.mutants.operators import Mutant, difference
from tools.mutants.running import (
    Executed,
    Tried,
    claiming,
    executed,
    reached,
    record_lines,
    recorded,
    tried,
)
from tools.mutants.table import named
from torch_conformance.language.load import load
from torch_conformance.model.outcomes import Outcome

OPERATORS = (
    *(
        "add",
        "addmm",
        "bmm",
        "cat",
        "cumsum",
        "div-no_rounding_mode",
        "flip",
        "gather",
        "index_add",
        "masked_fill",
        "max-reduction_with_dim",
        "mm",
        "prod",
    ),
    *(
        "nn.functional.avg_pool2d",
        "nn.functional.conv2d",
        "nn.functional.interpolate-bilinear",
        "nn.functional.layer_norm",
    ),
    *(
        "nn.functional.max_pool2d",
        "nn.functional.pad-constant",
        "repeat",
        "roll",
        "scatter_add",
        "softmax",
        "sort",
        "std",
        "var_mean",
        "where",
    ),
)
"""What is compiled where no operators are named: matmuls, reductions, scans, indexing, layouts,
convolution and pooling.
"""

SPEC = """summary: Samples of an operator compute what eager computes
backends: [cpu]
source: {{opinfo: {{dtypes: [float32], samples: {samples}}}}}
compile: {{dynamic: "{{{{ dynamic }}}}"}}
matrix: {{dynamic: [false]}}
expect: [{{close: {{to: eager}}}}]
"""


@dataclass(frozen=True)
class Differs:
    """A survivor with the operators whose answer is wrong under it, and those that end loudly; each
    with the reason.
    """

    mutant: Mutant
    wrong: Mapping[str, str]
    loud: Mapping[str, str]


def differing(found: Iterable[Tried]) -> list[Differs]:
    """Return the survivors under which an operator does not pass; all of these operators pass
    without them.
    """
    differ = []
    for one in found:
        red = {
            case_id: outcome
            for case_id, outcome in one.outcomes.items()
            if outcome is not Outcome.PASS
        }
        wrong = {
            case_id: one.reasons[case_id]
            for case_id, outcome in red.items()
            if outcome is Outcome.FAIL and _is_close(one, case_id)
        }
        loud = {
            case_id: f"{outcome.label} {one.reasons[case_id]}"
            for case_id, outcome in red.items()
            if case_id not in wrong
        }
        differ += [Differs(one.mutant, wrong, loud)] if red else []
    return differ


def _is_close(one: Tried, case_id: str) -> bool:
    """Whether the comparison failed: an exception of the compiled function is a FAIL too."""
    return one.reasons[case_id].startswith("close:")


def operator_cases(
    folder: Path, operators: Sequence[str], samples: str = "first"
) -> dict[str, Path]:
    """Write the spec of the samples, and return its cases of these operators; raise ``LookupError``
    for one that is not there.
    """
    folder.mkdir(parents=True)
    spec = folder / "operator-samples.yaml"
    spec.write_text(SPEC.format(samples=samples), "utf-8")
    (folder / "_defaults.yaml").write_bytes(
        (SPECS[0] / "operators" / "_defaults.yaml").read_bytes()
    )
    found = {str(case.params["op"]): case.id for case in load([spec]).cases if case.device == "cpu"}
    if unknown := [name for name in operators if name not in found]:
        raise LookupError(
            f"no operator has samples in float32 on the CPU and is called {', '.join(unknown)}"
        )
    return {found[name]: spec for name in operators}


def wanted(options: argparse.Namespace) -> dict[Mutant, Named]:
    """Return the mutants to search with: the survivors of a record, or the classified ones of some
    classes.
    """
    if options.record is not None:
        found = [
            named(one)
            for one in json.loads(options.record.read_bytes())["mutants"]
            if one["status"] == "survived"
        ]
    else:
        found = [
            one.mutant
            for one in survivors()
            if one.classified in (options.classified or ("unclaimed", "wrong answer"))
        ]
    return {mutant: one for one in found if (mutant := one.find()) is not None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Print each survivor under which an operator's answer is wrong or that ends loudly; 1 where an
    answer is wrong.
    """
    options = _parser().parse_args(arguments)
    mutants = {
        mutant: one
        for mutant, one in wanted(options).items()
        if not options.module or mutant.module in options.module
    }
    with tempfile.TemporaryDirectory(prefix="differential-") as temporary:
        cases = operator_cases(
            Path(temporary) / "operators", options.operators or OPERATORS, options.samples
        )
        lines = _lines(mutants, cases, Path(temporary) / "lines", options)
        if not lines:
            print("no operator passes without a mutant", file=sys.stderr)
            return 2
        pairs = {
            mutant: claiming(mutant, ids, cases, lines, options.cases)
            for mutant, ids in reached(mutants, lines).items()
        }
        found = (
            list(tried(pairs, cases, Path(temporary) / "tried", jobs=options.jobs)) if pairs else []
        )
    ran = [one for one in found if one.outcomes]
    wrong = differing(ran)
    print(
        f"torch {torch_version()}: {len(mutants)} survivors, {len(ran)} of them under "
        f"operators (of {len(lines)}) that execute their line"
    )
    _show(wrong)
    if options.json:
        options.json.write_text(json.dumps(_record(mutants, ran, wrong), indent=1) + "\n", "utf-8")
    answers = sum(bool(one.wrong) for one in wrong)
    print(
        f"\n{answers} give a wrong answer in an operator, {len(wrong) - answers} others end loudly"
    )
    return 1 if answers else 0


def _lines(
    mutants: Iterable[Mutant], cases: Mapping[str, Path], folder: Path, options: argparse.Namespace
) -> Executed:
    """Return the lines that the operators execute; only operators that pass without a mutant are in
    it.
    """
    modules = sorted({mutant.module for mutant in mutants})
    known = recorded(options.lines, modules, torch_version())
    missing = {case_id: file for case_id, file in cases.items() if case_id not in known}
    noted = {
        **known,
        **(executed(modules, missing, folder, jobs=options.jobs) if missing and modules else {}),
    }
    if options.lines and missing:
        record_lines(options.lines, modules, torch_version(), noted)
    return {case_id: alone for case_id, alone in noted.items() if case_id in cases}


def _show(wrong: Iterable[Differs]) -> None:
    for one in wrong:
        print(f"\n{one.mutant.module}, {one.mutant.function}")
        print(difference(source_of(one.mutant.module), one.mutant))
        print("\n".join(f"  wrong {case_id}: {reason}" for case_id, reason in one.wrong.items()))
        print(
            "\n".join(f"  loud {case_id}: {reason}" for case_id, reason in one.loud.items()),
            flush=True,
        )


def _record(
    mutants: Mapping[Mutant, Named], ran: Iterable[Tried], wrong: Iterable[Differs]
) -> object:
    differ = {one.mutant: one for one in wrong}
    return {
        "torch": torch_version(),
        "not executed": sorted(
            mutants[one].text for one in mutants.keys() - {one.mutant for one in ran}
        ),
        "tried": [
            {
                "mutant": mutants[one.mutant].text,
                "operators": sorted(one.outcomes),
                "wrong": dict(differ[one.mutant].wrong) if one.mutant in differ else {},
                "loud": dict(differ[one.mutant].loud) if one.mutant in differ else {},
            }
            for one in ran
        ],
    }


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tools.mutants.differential", description=__doc__
    )
    parser.add_argument(
        "operators",
        nargs="*",
        metavar="OPERATOR",
        help="operators of torch's database (some of each family)",
    )
    parser.add_argument(
        "--record",
        type=Path,
        metavar="FILE",
        help="survivors of a record, and not those of survivors.json",
    )
    parser.add_argument(
        "--classified",
        action="append",
        choices=KINDS_OF_SURVIVORS,
        help="survivors of this class; may repeat",
    )
    parser.add_argument(
        "--module",
        action="append",
        default=[],
        metavar="NAME",
        help="survivors of this module of torch; may repeat",
    )
    parser.add_argument(
        "--cases",
        type=int,
        default=4,
        metavar="N",
        help="operators under each survivor at most (4)",
    )
    parser.add_argument(
        "--samples",
        default="first",
        help="first, all or a number of samples of each operator (first)",
    )
    parser.add_argument(
        "--lines",
        type=Path,
        metavar="FILE",
        help="read the lines that operators execute from FILE; add those of the others",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the record")
    parser.add_argument("--jobs", type=int, default=2, metavar="N", help="cases at once (2)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
