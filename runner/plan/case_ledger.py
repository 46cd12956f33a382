"""The coverage ledger: the committed list of all case ids of a folder of specs.

Nothing here decides what runs. ``list --against`` compares the cases of the specs with it, so that no case vanishes unnoticed: who takes
one out writes the ledger again, and a review sees it there.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from runner.model.case import Case
from runner.model.diagnostics import Diagnostic, InvalidSpecs, Position, UsageError, shown_path
from runner.model.folded_ids import fold, unfold
from runner.plan.selection import is_of_operator

NAME = "ledger.txt"
"""The file's name in a folder of specs."""

_HEAD = """\
# All cases of the specs in this folder. 'torch-conformance list --against FILE' fails when a case is gone; 'torch-conformance list
# --update FILE' writes the list again.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLedger:
    """The content of a ledger."""

    path: Path
    ids: Mapping[str, int] = field(default_factory=dict)
    """The line of each id."""


def text_of(ids: Iterable[str]) -> str:
    """Return the text of a ledger with these ids."""
    return _HEAD + "\n".join(["", *fold(ids)]) + "\n"


def read_ledger(path: Path) -> CaseLedger:
    """Read a ledger; raise ``UsageError`` for a file that cannot be read, ``InvalidSpecs`` for one with malformed lines."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the ledger {shown_path(path)}: {error}") from error
    ids: dict[str, int] = {}
    problems: list[Diagnostic] = []
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        try:
            ids.update(dict.fromkeys(unfold(line), number))
        except ValueError as error:
            problems.append(Diagnostic.of("meaning", message=str(error)).at(Position(file=shown_path(path), line=number)))
    if problems:
        raise InvalidSpecs(problems)
    return CaseLedger(path=path, ids=ids)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A ledger beside the cases that were loaded."""

    gone: tuple[str, ...]
    """Ids of the ledger that no spec has any more."""
    outside: tuple[str, ...]
    """Ids of specs that were not loaded, because the given paths do not lead to them."""
    new: tuple[str, ...]
    """Ids of cases that are not in the ledger."""


def compare(ledger: CaseLedger, cases: Iterable[Case]) -> Comparison:
    """Compare a ledger with loaded cases. A spec that was not loaded, and whose file exists in the ledger's folder, is outside.

    Cases of a source are left out: a committed table for each torch version names them, and a test compares it with torch.
    """
    paths = {case.id: f"{case.area}/{case.name}".lstrip("/") for case in cases if not is_of_operator(case)}
    loaded = set(paths.values())
    absent = {case_id: case_id.rpartition("[")[0] or case_id for case_id in ledger.ids if case_id not in paths}
    is_outside = {spec: spec not in loaded and _exists(ledger.path.parent, spec) for spec in set(absent.values())}
    gone = tuple(case_id for case_id, spec in absent.items() if not is_outside[spec])
    return Comparison(
        gone=gone,
        outside=tuple(case_id for case_id, spec in absent.items() if is_outside[spec]),
        new=tuple(case_id for case_id in paths if case_id not in ledger.ids),
    )


def _exists(root: Path, spec: str) -> bool:
    return any((root / f"{spec}{suffix}").is_file() for suffix in (".yaml", ".yml"))


def problems(ledger: CaseLedger, comparison: Comparison) -> Iterator[Diagnostic]:
    """Yield a problem for each line with cases that are gone."""
    by_line: dict[int, list[str]] = {}
    for case_id in comparison.gone:
        by_line.setdefault(ledger.ids[case_id], []).append(case_id)
    for line, ids in by_line.items():
        gone = Diagnostic.of("gone-case" if len(ids) == 1 else "gone-cases", count=len(ids), cases=" ".join(fold(ids)))
        yield gone.at(Position(file=shown_path(ledger.path), line=line))
