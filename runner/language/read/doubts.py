"""Which problems may follow only from what was cut out of a document, and are left out."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from runner.core.diagnostics import Diagnostic, Position
from runner.language.read.document import DataPath, Document

_NAMED = ("let", "functions", "spies", "matrix")
"""Sections whose keys are names that other parts of a spec use."""

MEANT = re.compile(r"did you mean '([^']*)'\?")

NEAR = 0.8


def gaps_of(cuts: Iterable[DataPath], data: Any = None) -> frozenset[str]:
    """Return what is missing in a spec or in defaults, in the words of ``_FOLLOW_UPS``. ``data`` is the file as it was read."""
    return frozenset(gap for path in cuts for gap in _gaps(path, data))


def _gaps(path: DataPath, data: Any) -> Iterator[str]:
    section = str(path[0])
    if len(path) == 1:
        yield section
    elif section == "steps":
        yield from _gaps_of_step(path, data)
    elif section in _NAMED:
        yield f"name {path[1]}" if len(path) == 2 else f"part of {section}"
    elif section in ("inputs", "function"):
        # an input of which a part is missing still counts
        yield section if len(path) == 2 else f"part of {section}"
    else:
        yield section


def _gaps_of_step(path: DataPath, data: Any) -> Iterator[str]:
    if "expect" in path:
        yield "expect"
    elif path[3:4] in (("inputs",), ("functions",)):
        yield "inputs" if len(path) <= (5 if path[3] == "inputs" else 6) else "part of inputs"
    elif path[3:4] == ("function",):
        yield "functions"
    else:
        yield "entry of steps"
        names = [*_given_names(_below(data, path[:2]))]
        # a step that gives no name that can be read may give any, unless what is wrong with it is elsewhere
        yield from (f"name {name}" for name in names) if names or path[3:4] in _NAMELESS else ("steps",)
        # an unknown key may have been meant as any
        yield from () if path[3:4] in _NAMELESS else ("functions", "inputs")


_NAMELESS = (("context",), ("eager",), ("args",), ("kwargs",), ("call",))
"""Parts of steps that give no names."""


def _below(data: Any, path: DataPath) -> Any:
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _given_names(value: Any) -> Iterator[str]:
    """Yield the names that a step gives, wherever below it they stand."""
    if isinstance(value, dict):
        yield from (item for key, item in value.items() if key == "as" and isinstance(item, str) and item.isidentifier())
        yield from (name for item in value.values() for name in _given_names(item))


_FOLLOW_UPS: Sequence[tuple[re.Pattern[str], frozenset[str]]] = [
    (re.compile(pattern), frozenset(gaps))
    for pattern, gaps in (
        (r"unknown name '.*' in a template|unknown matrix key", ["matrix"]),
        (r"unknown spy", ["spies"]),
        (r"unknown name |unknown function |undefined name", ["let", "function", "functions", "steps", "prelude"]),
        (r"no name '.*' in the prelude", ["prelude"]),
        (r"'.*' is never .*: this excludes nothing", ["matrix", "part of matrix", "backends", "tags"]),
        (r"every point of the matrix is excluded", ["matrix", "part of matrix", "backends", "tags", "exclude"]),
        (r"this condition never holds", ["backends", "tags"]),
        (r"unknown backend", ["files of backends"]),
        (r"'entry' without Python|unknown entry", ["function", "part of function"]),
        (r"spec needs the key 'function'|which of the functions|nothing to time", ["function", "functions"]),
        (r".* takes .* given|.* by keyword", ["inputs", "function", "functions"]),
        (r"the spec expects n|unknown leaf|nothing is expected of", ["expect", "steps", "entry of steps", "part of spies"]),
        (r"this value is never reached", ["expect"]),
        (r"'remote_cache' without a service", ["services"]),
        (r"backward before any call|an optimizer before any backward", ["steps", "entry of steps"]),
        (r"the control sets", ["config", "dynamo_config", "functorch_config", "env", "torch", "compile", "control"]),
    )
]
"""Problems that something's absence makes, by how their messages begin, and the gaps that may be the cause."""


_WORD = re.compile(r"'([^']*)'")


Region = tuple[tuple[int, int], tuple[int, int]]
"""Two places of a file, by line and column: from the first, to before the second."""


_COUNTED = ("counter", "metric")
"""Expectations each of whose entries has its meaning alone."""


def doubts_of(document: Document, cuts: Iterable[DataPath]) -> Iterator[Region]:
    """Yield where the expectations stand of which a part was cut: what seems to be wrong with the rest may follow from that."""
    for path in cuts:
        for depth in range(len(path) - 3):
            if path[depth] == "expect" and path[depth + 2] not in _COUNTED:
                yield _region(document, path[: depth + 2])


def _region(document: Document, path: DataPath) -> Region:
    start = document.position(path)
    begin = (start.line, start.column)
    others = ((mark.line, mark.column) for place, mark in document.key_marks.items() if place[: len(path)] != path)
    items = ((mark.line, mark.column) for place, mark in document.marks.items() if place[: len(path)] != path)
    return begin, min((place for place in (*others, *items) if place > begin), default=(1 << 60, 0))


_SURE = re.compile(r"unknown |undefined |no name |no package |the pattern ")
"""How problems begin that no missing part of an expectation makes."""


def believed(problems: Iterable[Diagnostic], gaps: frozenset[str], doubts: Sequence[Region] = ()) -> list[Diagnostic]:
    """Return the problems that would be there without the gaps too."""
    is_whole = not gaps and not doubts
    return [
        problem
        for problem in problems
        if not _may_follow(problem, gaps) and not _is_doubtful(problem, doubts) and (is_whole or not _OF_THE_WHOLE.match(problem.message))
    ]


_OF_THE_WHOLE = re.compile(r"the matrix key '.*' changes nothing")
"""How problems begin that any missing part of the spec may make."""


def _is_doubtful(problem: Diagnostic, doubts: Sequence[Region]) -> bool:
    place = (problem.position.line, problem.position.column)
    return any(begin <= place < end for begin, end in doubts) and not _SURE.match(problem.message)


def _may_follow(problem: Diagnostic, gaps: frozenset[str]) -> bool:
    word = _WORD.search(problem.message)
    if word and problem.message.startswith(("unknown ", "undefined ")) and f"name {word[1]}" in gaps:
        return True
    causes = next((causes for pattern, causes in _FOLLOW_UPS if pattern.match(problem.message)), frozenset())
    return bool(causes & gaps) and not _is_meant(problem, causes)


def _is_meant(problem: Diagnostic, causes: frozenset[str]) -> bool:
    """Whether a name was most likely meant to be one that is known: a backend that is nearly one, or a part of every case."""
    word, meant = _WORD.search(problem.message), MEANT.search(problem.hint)
    if word is None or meant is None:
        return False
    return "files of backends" in causes or (meant[1] in _ALWAYS and likeness(word[1], meant[1]) >= NEAR)


def likeness(word: str, other: str) -> float:
    """Return how similar two words are, from 0 to 1."""
    return difflib.SequenceMatcher(None, word, other).ratio()


_ALWAYS = ("eager", "output", "inputs", "function", "compiled")
"""Names that every spec may use."""


def sections_with(document: Document, problems: Iterable[Diagnostic]) -> frozenset[str]:
    """Return the keys at the top of a document below which problems stand."""
    starts = sorted((mark.line, mark.column, str(path[0])) for path, mark in document.key_marks.items() if len(path) == 1)
    found = (_section_at(starts, problem.position) for problem in problems if problem.position.file == document.file)
    return frozenset(section for section in found if section)


def _section_at(starts: Sequence[tuple[int, int, str]], position: Position) -> str:
    before = [name for line, column, name in starts if (line, column) <= (position.line, position.column)]
    return before[-1] if before else ""
