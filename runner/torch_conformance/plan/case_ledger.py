"""The coverage ledger: the committed list of all case ids of a folder of specs.

Nothing here decides what runs. ``list --against`` compares the cases of the specs with it, so that
no case vanishes unnoticed: who takes one out writes the ledger again, and a review sees it there.

Ids are folded, one line for many ids of a spec: ``a/b[backend=cpu|cuda,dtype=float32|bfloat16]``
is four ids. A value of an id has no ``|``: characters outside ``A-Za-z0-9_.+-`` are
percent-encoded there.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from torch_conformance.model.case import Case
from torch_conformance.model.diagnostics import (
    Diagnostic,
    InvalidSpecs,
    Position,
    UsageError,
    one_line,
    shown_path,
)
from torch_conformance.model.folded_ids import fold, unfold
from torch_conformance.model.values import frozen
from torch_conformance.plan.selection import is_of_operator

NAME = "ledger.txt"
"""The file's name in a folder of specs."""

_HEAD = """\
# All cases of the specs in this folder. 'torch-conformance list --against FILE' fails when a case is gone; 'torch-conformance list
# --update FILE' writes the list again.
"""  # noqa: E501 - text that is read by its lines


def text_of(ids: Iterable[str], cases: Sequence[Case] = ()) -> str:
    """Return the text of a ledger with these ids, and in comments why cases are on request."""
    reasons: dict[str, list[str]] = {}
    default = {case.spec for case in cases if not case.because}
    for case in cases:
        case_name = (
            case.id
            if case.spec in default and not is_of_operator(case)
            else case.id.partition("[")[0]
        )
        reasons.setdefault(one_line(case.because), []).append(case_name)
    why = [
        f"# on request: {line}: {reason}"
        for reason, of_reason in sorted(reasons.items())
        if reason
        for line in fold(of_reason)
    ]
    return _HEAD + "\n".join(["", *fold(ids), *([""] if why else []), *why]) + "\n"


def read_ledger(path: Path) -> dict[str, int]:
    """Return the line of each id; raise ``UsageError`` for a file that cannot be read,
    ``InvalidSpecs`` for one with malformed lines.
    """
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
            problems.append(
                Diagnostic.of("meaning", message=str(error)).at(
                    Position(file=shown_path(path), line=number)
                )
            )
    if problems:
        raise InvalidSpecs(problems)
    return ids


@frozen
class Comparison:
    """A ledger compared with the cases that were loaded."""

    gone: tuple[str, ...]
    """Ids of the ledger that no spec has any more."""
    outside: tuple[str, ...]
    """Ids of specs that were not loaded, because the given paths do not lead to them."""
    new: tuple[str, ...]
    """Ids of cases that are not in the ledger."""


def compare(ids: Mapping[str, int], root: Path, cases: Iterable[Case]) -> Comparison:
    """Compare a ledger with loaded cases.

    A spec that was not loaded, and whose file exists in ``root``, the ledger's folder, is outside.

    Cases of a source are left out: the committed list of names has them for each torch minor, and a
    test compares it with torch.
    """
    paths = {
        case.id: f"{case.area}/{case.name}".lstrip("/")
        for case in cases
        if not is_of_operator(case)
    }
    absent = {
        case_id: case_id.rpartition("[")[0] or case_id for case_id in ids if case_id not in paths
    }
    unread = set(absent.values()) - set(paths.values())
    is_outside = {
        spec
        for spec in unread
        if any((root / f"{spec}{suffix}").is_file() for suffix in (".yaml", ".yml"))
    }
    return Comparison(
        gone=tuple(case_id for case_id, spec in absent.items() if spec not in is_outside),
        outside=tuple(case_id for case_id, spec in absent.items() if spec in is_outside),
        new=tuple(case_id for case_id in paths if case_id not in ids),
    )


def problems(path: Path, ids: Mapping[str, int], missing: Iterable[str]) -> Iterator[Diagnostic]:
    """Yield a problem for each line with cases that are gone."""
    by_line: dict[int, list[str]] = {}
    for case_id in missing:
        by_line.setdefault(ids[case_id], []).append(case_id)
    for line, lost in by_line.items():
        diagnostic = Diagnostic.of(
            "gone-case" if len(lost) == 1 else "gone-cases",
            count=len(lost),
            cases=" ".join(fold(lost)),
        )
        yield diagnostic.at(Position(file=shown_path(path), line=line))
