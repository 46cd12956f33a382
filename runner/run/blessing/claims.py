"""What a line of a spec would have to say for what runs observed: a count or strides, for several cases and machines; directives. Pure.

Numbers (``close``, ``equals``), exceptions, exits, texts and proofs have no entry in ``COUNTED``: they are never blessed.
"""

import contextlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from filecheck.ops import Literal

from runner.core.case import Case, Expected
from runner.core.conditions import Surroundings, holds
from runner.core.expectation import Judgement, StepFacts
from runner.core.matching.filecheck import CheckFile, CheckOutcome, ChecksError, Directive, EmptyText, Kind, parse, run
from runner.core.matching.generality import are_general, is_general
from runner.core.matching.time_limit import PatternTooSlow
from runner.core.protocol import Json
from runner.judge.evidence import ANOTHER_FORM, CarriedOut, judge_expectation
from runner.judge.verdicts import facts_of, with_code
from runner.language.read.document import DataPath
from runner.language.read.templates import MAX_EXPRESSION
from runner.run.waiver_proposals import KEYS, Separate, smallest_condition
from runner.vocabulary.expectations.base import BadExpectation, parse_count
from runner.vocabulary.expectations.values import Strides

COUNTED: Mapping[str, tuple[str, ...] | None] = {
    "counter": None,
    "metric": None,
    "kernels": None,
    "generated_files": (),
    "calls": ("count",),
    "graph_breaks": ("count",),
    "recompiles": ("count",),
}
"""Where the count of a kind stands below its body: below the leaf of its judgement for None."""

STRIDES = "strides"
FILECHECK = "filecheck"
KINDS = (*COUNTED, STRIDES, FILECHECK)
"""The kinds of expectations that can be blessed."""


@dataclass(frozen=True, slots=True, order=True)
class Leaf:
    """A leaf of an expectation, the same in all cases of a spec: the numbers of step and expectation, and its name."""

    step: int
    index: int
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A leaf in one case on one machine."""

    leaf: Leaf
    expected: Expected
    judgement: Judgement
    facts: StepFacts
    here: Surroundings


def observed(steps: Sequence[CarriedOut], here: Surroundings) -> Iterator[Observed]:
    """Yield what the expectations of carried-out steps observed, those of kinds that can be blessed."""
    for number, known in enumerate(steps):
        for index, expected in enumerate(known.step.expectations if known.step.runs(here) else ()):
            if expected.kind not in KINDS:
                continue
            try:
                facts = facts_of(index, known)
            except ANOTHER_FORM:
                continue
            known_here = with_code(expected, facts, here)
            if isinstance(known_here, Judgement):
                continue
            for judgement in judge_expectation(expected, facts, known_here):
                leaf = Leaf(number, index, judgement.leaf)
                yield Observed(leaf=leaf, expected=expected, judgement=judgement, facts=facts, here=known_here)


def body_path(kind: str, leaf: Leaf) -> DataPath | None:
    """Return where the value of a leaf stands below the body of its expectation; None where it cannot be changed."""
    if kind == STRIDES:
        return ("equals",)
    if kind not in COUNTED:
        return None
    below = COUNTED[kind]
    return (leaf.name,) if below is None else below


def value_at(body: object, path: DataPath) -> Any:
    """Return the value below a body; None where there is none."""
    for key in path:
        if not isinstance(body, Mapping) or key not in body:
            return None
        body = body[key]
    return body


def applies(case: Case, leaf: Leaf, here: Surroundings) -> Expected | None:
    """Return the expectation of a leaf where its conditions may hold for a case; None elsewhere."""
    if leaf.step >= len(case.steps) or leaf.index >= len(case.steps[leaf.step].expectations):
        return None
    expected = case.steps[leaf.step].expectations[leaf.index]
    when = expected.body.get("when") if isinstance(expected.body, Mapping) else None
    return expected if case.steps[leaf.step].runs(here) and holds(when if isinstance(when, Mapping) else None, here) else None


class NotBlessed(Exception):
    """Why a leaf cannot be blessed: in one case, or in all."""

    def __init__(self, why: str, case_id: str = "") -> None:
        super().__init__(why)
        self.case_id = case_id


def number_of(one: Observed) -> int:
    """Return the observed count; raise ``NotBlessed`` for anything else."""
    try:
        return int(one.judgement.observed)
    except ValueError as error:
        raise NotBlessed("what it observed is no whole number") from error


def counted(numbers: Sequence[int], old: object) -> Any:
    """Return the count to write for what one machine observed in all runs; raise ``NotBlessed`` where it would say less than before."""
    least, most = min(numbers), max(numbers)
    allows_zero = False
    with contextlib.suppress(BadExpectation, TypeError, AttributeError):
        allows_zero = parse_count(old).holds(0)
    if least == 0 and not allows_zero:
        raise NotBlessed("0 was observed: the claim would become that it never happens (change the claim by hand)")
    if least == most:
        return least
    if least == 0:
        raise NotBlessed(f"unstable: 0 to {most} in runs of one machine: the range would hold where nothing happens")
    return {"min": least, "max": most}


def strides_of(one: Observed) -> list[int]:
    """Return the observed strides of the tensors that the expectation names; raise ``NotBlessed`` where they differ or none are claimed."""
    check = one.expected.check
    if not isinstance(check, Strides) or check.equals is None:
        raise NotBlessed("it claims a memory format, and no strides (change the claim by hand)")
    if check.contiguous is not None:
        raise NotBlessed("it claims strides and a memory format (write two expectations)")
    try:
        tensors = one.facts.measured["tensors"]
        chosen = range(len(tensors)) if check.output is None else [check.output] if isinstance(check.output, int) else check.output
        found = {tuple(int(stride) for stride in tensors[index]["strides"]) for index in chosen}
    except ANOTHER_FORM as error:
        raise NotBlessed("the recorded strides make no sense") from error
    if len(found) != 1:
        raise NotBlessed("its tensors have different strides (name one: output: 0)")
    if len(strides := list(found.pop())) > 64 or any(stride < 0 for stride in strides):
        raise NotBlessed("the recorded strides make no sense")
    return strides


# -- one line for several cases and machines --------------------------------------------------------------------------

# A column has the values that all cases of one backend need on one machine. Within a column only the matrix can tell cases apart; between
# columns only ``when`` can. The cases that no run recorded keep the value that they had.


@dataclass(frozen=True, slots=True)
class Cell:
    """What one case needs: its values of the matrix, and the value to write."""

    params: Mapping[str, Json]
    value: Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """The cases of one backend on one machine."""

    here: Surroundings
    cells: tuple[Cell, ...]
    is_recorded: bool
    """Whether a run has a case of this backend."""


def expression(columns: Sequence[Column]) -> Any:
    """Return the value that gives each case what it needs; raise ``NotBlessed`` where none does."""
    groups: dict[str, tuple[Any, list[Column]]] = {}
    for column in columns:
        value = _of_column(column.cells)
        groups.setdefault(json.dumps(value, sort_keys=True), (value, []))[1].append(column)
    if len(groups) == 1:
        return next(iter(groups.values()))[0]
    ordered = sorted(groups.values(), key=lambda group: (any(not column.is_recorded for column in group[1]), len(group[1])))
    if any(isinstance(value, list) for value, _ in ordered):
        raise NotBlessed("machines or backends need different strides: give each an expectation with 'when'")
    entries = []
    for index, (value, own) in enumerate(ordered[:-1]):
        others = [column.here for _, group in ordered[index + 1 :] for column in group]
        when = smallest_condition([column.here for column in own], others, SEPARATING)
        if when is None:
            raise NotBlessed("machines differ, and no condition of the language tells them apart")
        entries.append({"when": when, "value": value})
    return [*entries, {"value": ordered[-1][0]}]


def _of_column(cells: Sequence[Cell]) -> Any:
    values = {json.dumps(cell.value, sort_keys=True): cell.value for cell in cells}
    if len(values) == 1:
        return next(iter(values.values()))
    if not all(type(value) is int for value in values.values()):
        raise NotBlessed("cases of one matrix need different ranges or strides, which no matrix value can say")
    keys = [key for key in cells[0].params if len({json.dumps(cell.params[key]) for cell in cells}) > 1]
    for size in (1, 2):
        for chosen in itertools.combinations(keys, size):
            if (template := _template(cells, chosen)) is not None:
                return template
    raise NotBlessed("cases of one matrix need different values, and no one or two of its keys decide which")


def _template(cells: Sequence[Cell], keys: Sequence[str]) -> str | None:
    """Return the template in which some keys decide the value; None where they do not, or where it would be too long."""
    by_point: dict[str, tuple[tuple[Json, ...], int]] = {}
    for cell in cells:
        point = tuple(cell.params[key] for key in keys)
        if by_point.setdefault(json.dumps(point), (point, cell.value))[1] != cell.value:
            return None
    numbers = [value for _, value in by_point.values()]
    usual = [number for number in dict.fromkeys(numbers) if numbers.count(number) == max(map(numbers.count, numbers))]
    texts = [text for number in usual if (text := _chain(list(by_point.values()), keys, number)) is not None]
    best = min(texts, key=len, default=None)
    return best if best is not None and len(best) <= MAX_EXPRESSION else None


def _chain(points: Sequence[tuple[tuple[Json, ...], int]], keys: Sequence[str], usual: int) -> str | None:
    """Return the template that names each point without the usual value; None where one cannot be named."""
    pieces = []
    for point, value in points:
        tests = [_test(key, wanted) for key, wanted in zip(keys, point, strict=True)]
        if None in tests:
            return None
        if value != usual:
            pieces.append(f"{value} if {' and '.join(str(test) for test in tests)} else ")
    return f"{{{{ {''.join(pieces)}{usual} }}}}"


_WORD = re.compile(r"[A-Za-z0-9_.+ -]{1,60}")


def _test(key: str, value: object) -> str | None:
    if isinstance(value, bool):
        return key if value else f"not {key}"
    if isinstance(value, int):
        return f"{key} == {value}"
    return f"{key} == '{value}'" if isinstance(value, str) and _WORD.fullmatch(value) else None


def _device(wanted: Sequence[Surroundings], others: Sequence[Surroundings]) -> Json:
    names = sorted({here.device.partition(":")[0] for here in wanted})
    return names[0] if len(names) == 1 else names


def _backend(wanted: Sequence[Surroundings], others: Sequence[Surroundings]) -> Json:
    foreign = frozenset[str]().union(*(here.backends for here in others))
    common = frozenset.intersection(*(here.backends for here in wanted)) - foreign
    names = sorted(common)[:1] or sorted({name for here in wanted for name in here.backends - foreign})
    return (names[0] if len(names) == 1 else names) if names else None


SEPARATING: Separate = {"device": _device, "backend": _backend, **KEYS}
"""The keys of the conditions that are proposed, the preferred one first."""


# -- FileCheck directives ---------------------------------------------------------------------------------------------

# Only what a directive requires is changed: its literal text to the most similar text of the code, a count to the observed one, CHECK-NEXT
# and CHECK-SAME to CHECK where the match stands elsewhere. No directive is removed, and CHECK-NOT is never changed.

_SIMILAR = 0.6
"""The least similarity of a text that may take the place of a pattern."""

_TRIED = 10
"""The maximum number of texts that are tried for one directive."""

_LONGEST, _MOST_LINES = 200, 20_000


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the directives that is changed: its number from 1, and its text without the blanks around it."""

    number: int
    old: str
    new: str


def changed_lines(checks: str, texts: Sequence[str]) -> list[Line]:
    """Return the lines to change so that every text passes; raise ``NotBlessed`` where there is no such change."""
    found: dict[int, Line] = {}
    while (failed := _first_failure(checks, texts)) is not None:
        text, outcome, directive = failed
        if directive.line in found:
            raise NotBlessed(f"the recorded code differs between cases or runs at '{directive}'")
        new = _mended(checks, text, outcome, directive)
        old = checks.split("\n")[directive.line - 1]
        found[directive.line] = Line(directive.line, old.strip(), new.strip())
        checks = _with_line(checks, directive.line, new)
    return list(found.values())


def with_lines(checks: str, lines: Sequence[Line]) -> str:
    """Return directives with changed lines."""
    for line in lines:
        old = checks.split("\n")[line.number - 1]
        checks = _with_line(checks, line.number, old.replace(line.old, line.new))
    return checks


def _with_line(checks: str, number: int, new: str) -> str:
    rows = checks.split("\n")
    return "\n".join([*rows[: number - 1], new, *rows[number:]])


def _first_failure(checks: str, texts: Sequence[str]) -> tuple[str, CheckOutcome, Directive] | None:
    parsed = parse(checks)
    for text in texts:
        outcome = _run(parsed, text)
        if not outcome.passed:
            return text, outcome, next(one for one in parsed if one.line == outcome.line)
    return None


def _run(parsed: CheckFile, text: str) -> CheckOutcome:
    try:
        return run(parsed, text)
    except (PatternTooSlow, EmptyText) as error:
        raise NotBlessed("the directives could not be matched against the recorded code") from error


def _mended(checks: str, text: str, outcome: CheckOutcome, directive: Directive) -> str:
    """Return the line of a failed directive, changed so that it matches."""
    if directive.kind is Kind.NOT:
        raise NotBlessed(f"the code has what '{directive}' forbids")
    row = checks.split("\n")[directive.line - 1]
    for new in _candidates(row, text, outcome, directive):
        try:
            parsed = parse(_with_line(checks, directive.line, new))
        except ChecksError:
            continue
        # the changed directives can fail, and pass at least to the next directive
        if [each.line for each in parsed].count(directive.line) == 1 and not are_general(parsed):
            again = _run(parsed, text)
            if again.passed or (again.line or 0) > directive.line:
                return new
    raise NotBlessed(f"no small change of '{directive}' matches the recorded code")


def _candidates(row: str, text: str, outcome: CheckOutcome, directive: Directive) -> Iterator[str]:
    """Yield changed lines of a directive, the smallest change first."""
    if directive.kind is Kind.COUNT and (found := re.match(r"matched ([0-9]+) of", outcome.reason)):
        yield row.replace(f"CHECK-COUNT-{directive.count}", f"CHECK-COUNT-{found[1]}", 1)
    if directive.kind in (Kind.NEXT, Kind.SAME) and outcome.reason != "no match":
        yield row.replace(directive.kind.value, Kind.CHECK.value, 1)
    if outcome.reason == "no match" and all(isinstance(part, Literal) for part in directive.parts):
        head = row[: directive.column - 1]
        for similar in _similar(directive.pattern, text):
            yield head + similar


_TOKEN = re.compile(r"[^\W_]+|_+|[ \t]+|[^\w\s]")
"""A word of a name, blanks, or a sign: names of kernels differ in one of their words."""


def _similar(pattern: str, text: str) -> list[str]:
    """Return the texts within lines that are most similar to a pattern, the most similar first."""
    wanted = _TOKEN.findall(pattern)
    words = {token for token in wanted if len(token) > 2}
    found: dict[str, float] = {}
    for line in text.split("\n")[:_MOST_LINES]:
        if len(line) > 10 * _LONGEST or not any(word in line for word in words):
            continue
        tokens = _TOKEN.findall(line)
        block = SequenceMatcher(None, tokens, wanted, autojunk=False).find_longest_match()
        start = max(0, block.a - block.b)
        part = "".join(tokens[start : start + len(wanted)]).strip()
        # FileCheck reads the text as itself, and it says something
        is_plain = part.isprintable() and not any(mark in part for mark in ("{{", "}}", "[[", "]]", "CHECK"))
        if is_plain and 0 < len(part) <= _LONGEST and not is_general(part) and part != pattern:
            found[part] = SequenceMatcher(None, part, pattern, autojunk=False).ratio()
    near = sorted((part for part in found if found[part] >= _SIMILAR), key=lambda part: -found[part])
    return near[:_TRIED]
