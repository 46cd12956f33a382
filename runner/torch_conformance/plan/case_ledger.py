"""The coverage ledger: the committed list of all case ids of a folder of specs.

Nothing here decides what runs. ``list --against`` compares the cases of the specs with it, so that
no case vanishes unnoticed: who takes one out writes the ledger again, and a review sees it there.

Ids are folded, one line for many ids of a spec: ``a/b[backend=cpu|cuda,dtype=float32|bfloat16]``
stands for four. A value of an id has no ``|``: characters outside ``A-Za-z0-9_.+-`` are
percent-encoded there.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
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
        named = (
            case.id
            if case.spec in default and not is_of_operator(case)
            else case.id.partition("[")[0]
        )
        reasons.setdefault(one_line(case.because), []).append(named)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A ledger beside the cases that were loaded."""

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


def problems(path: Path, ids: Mapping[str, int], gone: Iterable[str]) -> Iterator[Diagnostic]:
    """Yield a problem for each line with cases that are gone."""
    by_line: dict[int, list[str]] = {}
    for case_id in gone:
        by_line.setdefault(ids[case_id], []).append(case_id)
    for line, lost in by_line.items():
        diagnostic = Diagnostic.of(
            "gone-case" if len(lost) == 1 else "gone-cases",
            count=len(lost),
            cases=" ".join(fold(lost)),
        )
        yield diagnostic.at(Position(file=shown_path(path), line=line))


# -- folded ids ------------------------------------------------------------------------------------

LONGEST_LIST = 12
"""A key with more values gets a line for each value, so that a new value is a new line in a review.
"""

_Point = tuple[tuple[str, str], ...]
"""The keys and values of an id, in their order."""


def fold(ids: Iterable[str]) -> list[str]:
    """Return the folded lines of ids, sorted. They stand for these ids and no others."""
    specs: dict[str, dict[_Point, None]] = {}
    for case_id in ids:
        spec, bracket, rest = case_id.rpartition("[")
        if bracket:
            pairs = [part.partition("=") for part in rest.removesuffix("]").split(",")]
            specs.setdefault(spec, {})[tuple((key, value) for key, _, value in pairs)] = None
        else:
            specs.setdefault(case_id, {})[()] = None
    rows = [(spec, row) for spec in sorted(specs) for row in _rows(list(specs[spec]))]
    return [
        spec + (f"[{','.join(f'{key}={values}' for key, values in row)}]" if row else "")
        for spec, row in rows
    ]


def unfold(line: str) -> Iterator[str]:
    """Yield the ids that a folded line stands for; raise ``ValueError`` for a line that is no
    folded id.
    """
    spec, bracket, rest = line.rpartition("[")
    if not bracket:
        if "]" in line:
            raise ValueError(f"'{line}' has no '['")
        yield line
        return
    if not spec or not rest.endswith("]"):
        raise ValueError(f"'{line}' does not end with ']'")
    pairs = [part.partition("=") for part in rest[:-1].split(",")]
    if not all(key and sign and all(values.split("|")) for key, sign, values in pairs):
        raise ValueError(f"'{line}' has a part that is not key=value")
    for values in product(*(listed.split("|") for _, _, listed in pairs)):
        yield f"{spec}[{','.join(f'{key}={value}' for (key, _, _), value in zip(pairs, values, strict=True))}]"  # noqa: E501 - Python 3.11 breaks no line within a field


def _rows(points: Sequence[_Point]) -> list[_Point]:
    """Fold points: values of the first key share the rows that they have in common."""
    if points == [()]:
        return [()]
    by_first: dict[tuple[str, str], list[_Point]] = {}
    for point in points:
        if point:
            by_first.setdefault(point[0], []).append(point[1:])
    of_key = Counter(key for key, _ in by_first)
    shared: dict[tuple[str, str, _Point], list[str]] = {}
    for (key, value), rests in by_first.items():
        alone = value if of_key[key] > LONGEST_LIST else ""
        for row in _rows(rests):
            shared.setdefault((key, alone, row), []).append(value)
    rows = [((key, "|".join(values)), *row) for (key, _, row), values in shared.items()]
    return [*([()] if () in points else []), *rows]
