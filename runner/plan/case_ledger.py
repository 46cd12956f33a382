"""The coverage ledger: the committed list of all case ids of a folder of specs, and the reason for each id that was removed.

Nothing here decides what runs. ``list --against`` and ``run`` compare the cases of the specs with it, so that no case vanishes unnoticed.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path

from runner.core.case import Case
from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, UsageError, shown_path
from runner.core.folded_ids import fold, unfold
from runner.plan.operator_script import is_of_operator
from runner.system.data_dirs import folder

NAME = "ledger.txt"
"""The file's name in a folder of specs."""

_HEAD = """\
# All cases of the specs in this folder. 'torch-conformance list --against FILE' fails when a case is gone and no line below 'removed:'
# gives the reason. 'torch-conformance list --update FILE' adds new cases; with '--because REASON' it also moves cases that are gone
# below 'removed:'.
"""
_REMOVED = "removed:"
_LINE_OF_REMOVED = re.compile(r"([0-9]{4}-[0-9]{2}-[0-9]{2})  (\S+)  (\S.*)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Removal:
    """A line below ``removed:``."""

    day: str
    """ISO 8601."""
    ids: str
    """Folded."""
    reason: str
    line: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class CaseLedger:
    """The content of a ledger."""

    path: Path
    ids: Mapping[str, int] = field(default_factory=dict)
    """The line of each id."""
    removed: tuple[Removal, ...] = ()

    @property
    def excused(self) -> frozenset[str]:
        """The ids whose removal has a reason."""
        return frozenset(case_id for removal in self.removed for case_id in unfold(removal.ids))

    def text(self) -> str:
        """Return the file's text."""
        removed = [f"{one.day}  {one.ids}  {one.reason}" for one in self.removed]
        return _HEAD + "\n".join(["", *fold(self.ids), "", _REMOVED, *removed]) + "\n"


def read_ledger(path: Path) -> CaseLedger:
    """Read a ledger; raise ``UsageError`` for a file that cannot be read, ``InvalidSpecs`` for one with malformed lines."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the ledger {shown_path(path)}: {error}") from error
    ids: dict[str, int] = {}
    removed: list[Removal] = []
    problems: list[Diagnostic] = []
    is_below = False
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        if line == _REMOVED:
            is_below = True
            continue
        try:
            if is_below:
                removed.append(_removal(line, number))
            else:
                ids.update(dict.fromkeys(unfold(line), number))
        except ValueError as error:
            problems.append(Diagnostic(position=Position(file=shown_path(path), line=number), message=str(error)))
    if problems:
        raise InvalidSpecs(problems)
    return CaseLedger(path=path, ids=ids, removed=tuple(removed))


def _removal(line: str, number: int) -> Removal:
    match = _LINE_OF_REMOVED.fullmatch(line)
    if match is None:
        raise ValueError(f"'{line}' is no removal: write 'YYYY-MM-DD  ID  REASON', with two spaces between")
    removal = Removal(day=date.fromisoformat(match[1]).isoformat(), ids=match[2], reason=match[3].strip(), line=number)
    list(unfold(removal.ids))
    return removal


def ledgers_of(paths: Sequence[Path]) -> list[Path]:
    """Return the ledgers beside the given specs: in each folder, beside each file, and that of the shipped specs for paths within them."""
    return [root / NAME for root in roots_of(paths) if (root / NAME).is_file()]


def roots_of(paths: Sequence[Path]) -> list[Path]:
    """Return the folders where tables of the given specs lie: the folders, those of the files, the shipped specs for paths within them."""
    shipped = folder("specs").resolve()
    return list(dict.fromkeys([_root(path.resolve(), shipped) for path in paths] or [shipped]))


def _root(path: Path, shipped: Path) -> Path:
    if path.is_relative_to(shipped):
        return shipped
    return path if path.is_dir() else path.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A ledger beside the cases that were loaded."""

    gone: tuple[str, ...]
    """Ids of the ledger that no spec has any more."""
    lost: tuple[str, ...]
    """Those of them without a line of reason."""
    outside: tuple[str, ...]
    """Ids of specs that were not loaded, because the given paths do not lead to them."""
    new: tuple[str, ...]
    """Ids of cases that are not in the ledger."""
    returned: tuple[str, ...]
    """Ids of cases that a line below ``removed:`` names: the line would excuse their next loss."""


def compare(ledger: CaseLedger, cases: Iterable[Case]) -> Comparison:
    """Compare a ledger with loaded cases. A spec that was not loaded, and whose file exists in the ledger's folder, is outside.

    Cases of a source are left out: a committed table for each torch version names them, and a test compares it with torch.
    """
    here = {case.id: f"{case.area}/{case.name}".lstrip("/") for case in cases if not is_of_operator(case)}
    loaded = set(here.values())
    absent = {case_id: case_id.rpartition("[")[0] or case_id for case_id in ledger.ids if case_id not in here}
    is_outside = {spec: spec not in loaded and _exists(ledger.path.parent, spec) for spec in set(absent.values())}
    gone = tuple(case_id for case_id, spec in absent.items() if not is_outside[spec])
    excused = ledger.excused
    return Comparison(
        gone=gone,
        lost=tuple(case_id for case_id in gone if case_id not in excused),
        outside=tuple(case_id for case_id, spec in absent.items() if is_outside[spec]),
        new=tuple(case_id for case_id in here if case_id not in ledger.ids),
        returned=tuple(case_id for case_id in here if case_id in excused),
    )


def _exists(root: Path, spec: str) -> bool:
    return any((root / f"{spec}{suffix}").is_file() for suffix in (".yaml", ".yml"))


def problems(ledger: CaseLedger, found: Comparison) -> Iterator[Diagnostic]:
    """Yield a problem for each line with lost cases, and for each line below ``removed:`` with cases that exist."""
    by_line: dict[int, list[str]] = {}
    for case_id in found.lost:
        by_line.setdefault(ledger.ids[case_id], []).append(case_id)
    for line, ids in by_line.items():
        yield Diagnostic(
            position=Position(file=shown_path(ledger.path), line=line),
            message=f"{_cases(len(ids))} gone without a reason: {' '.join(fold(ids))}",
            hint=f"bring them back, or write a line below '{_REMOVED}': YYYY-MM-DD  ID  REASON",
        )
    for removal in ledger.removed:
        if ids := sorted(set(unfold(removal.ids)) & set(found.returned)):
            yield Diagnostic(
                position=Position(file=shown_path(ledger.path), line=removal.line),
                message=f"{_cases(len(ids))} listed as removed and still there: {' '.join(fold(ids))}",
                hint="remove the line",
            )


def _cases(count: int) -> str:
    return "1 case is" if count == 1 else f"{count} cases are"


def updated(ledger: CaseLedger, found: Comparison, *, because: str, today: date) -> CaseLedger:
    """Return the ledger with the new cases, and without those that are gone. Lost ids get a line with the reason ``because``."""
    gone, returned = set(found.gone), set(found.returned)
    kept = dict.fromkeys([*(case_id for case_id in ledger.ids if case_id not in gone), *found.new], 0)
    removed = [replace(one, ids=ids) for one in ledger.removed for ids in fold(i for i in unfold(one.ids) if i not in returned)]
    removed += [Removal(day=today.isoformat(), ids=ids, reason=because) for ids in fold(found.lost)]
    return replace(ledger, ids=kept, removed=tuple(removed))
