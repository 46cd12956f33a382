"""Filters problems that may only be consequences of parts that were cut out of a document."""

import difflib
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from runner.core.diagnostics import Diagnostic, Position
from runner.language.read.document import DataPath, Document

_REPEAT = "repeat"
"""The key that says how many inputs a description stands for."""

_NAMED = ("let", "functions", "spies", "matrix")
"""Sections whose keys define names for other parts of a spec."""

MEANT = re.compile(r"did you mean '([^']*)'\?")

NEAR = 0.8


def gaps_of(cuts: Iterable[DataPath], data: Any = None) -> frozenset[str]:
    """Return what is missing in a spec or in defaults, as keys of ``_FOLLOW_UPS``. ``data`` is the parsed file."""
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
        # an incomplete input still counts as an input, unless it is not known how often it is repeated
        yield section if len(path) == 2 or path[-1] == _REPEAT else f"part of {section}"
    else:
        yield section


def _gaps_of_step(path: DataPath, data: Any) -> Iterator[str]:
    if path[-1] == _REPEAT and len(path) > 3:
        yield "inputs"
    if "expect" in path:
        yield "expect"
    elif path[3:4] in (("inputs",), ("functions",)):
        yield "inputs" if len(path) <= (5 if path[3] == "inputs" else 6) else "part of inputs"
    elif path[3:4] == ("function",):
        yield "functions"
    else:
        yield "entry of steps"
        names = [*_given_names(_below(data, path[:2]))]
        # a broken step without a readable name may define any name, unless the broken part defines none
        yield from (f"name {name}" for name in names) if names or path[3:4] in _NAMELESS else ("steps",)
        # an unknown key may be any misspelt key
        yield from () if path[3:4] in _NAMELESS else ("functions", "inputs")


_NAMELESS = (("context",), ("eager",), ("args",), ("kwargs",), ("call",))
"""Parts of steps that define no names."""


def _below(data: Any, path: DataPath) -> Any:
    for key in path:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return None
    return data


def _given_names(value: Any) -> Iterator[str]:
    """Yield the names that a step defines at any depth."""
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
        (r".* without '?targets", ["targets", "part of targets"]),
        (r"unknown backend", ["files of backends"]),
        (r"'entry' without Python|unknown entry", ["function", "part of function"]),
        (r"spec needs the key 'function'", ["function", "functions", "source"]),
        (r"which of the functions|nothing to time", ["function", "functions"]),
        (r".* takes .* given|.* by keyword", ["inputs", "function", "functions"]),
        (r"the spec expects n|unknown leaf|nothing is expected of", ["expect", "steps", "entry of steps", "part of spies"]),
        (r"this value is never reached", ["expect"]),
        (r"'remote_cache' without a service", ["services"]),
        (r"backward before any call|an optimizer before any backward", ["steps", "entry of steps"]),
        (r"the control sets", ["config", "dynamo_config", "functorch_config", "env", "torch", "compile", "control"]),
    )
]
"""Problems that a missing part may cause, by the beginning of their messages, with the missing parts that may be the cause."""


_WORD = re.compile(r"'([^']*)'")


Region = tuple[tuple[int, int], tuple[int, int]]
"""A region of a file: start and end as (line, column); the end is excluded."""


_WITH_A_KIND = ("inputs", "let")
"""Sections with maps that have the kind of a value: without the key that names the kind, another key may look like one."""


_COUNTED = ("counter", "metric")
"""Expectations with independent entries."""


def uncertain_regions(document: Document, cuts: Iterable[DataPath]) -> Iterator[Region]:
    """Yield the regions of expectations and inputs with a cut part: problems there may be consequences of the cut."""
    for path in cuts:
        if path[0] in _WITH_A_KIND and len(path) > 2 and isinstance(path[-1], str):
            yield _region(document, path[:-1])
        for depth in range(len(path) - 3):
            if path[depth] == "expect" and path[depth + 2] not in _COUNTED:
                yield _region(document, path[: depth + 2])


def _region(document: Document, path: DataPath) -> Region:
    start = document.position(path)
    begin = (start.line, start.column)
    others = ((mark.line, mark.column) for place, mark in document.key_marks.items() if place[: len(path)] != path)
    items = ((mark.line, mark.column) for place, mark in document.marks.items() if place[: len(path)] != path)
    return begin, min((place for place in (*others, *items) if place > begin), default=(1 << 60, 0))


_INDEPENDENT = re.compile(r"unknown |undefined |no name |no package |the pattern ")
"""The beginnings of problems that a missing part of an expectation cannot cause."""


def without_follow_ups(problems: Iterable[Diagnostic], gaps: frozenset[str], uncertain: Sequence[Region] = ()) -> list[Diagnostic]:
    """Return the problems that do not depend on the missing parts."""
    is_whole = not gaps and not uncertain
    return [
        problem
        for problem in problems
        if not _may_follow(problem, gaps)
        and not _is_uncertain(problem, uncertain)
        and (is_whole or not _OF_THE_WHOLE.match(problem.message))
    ]


_OF_THE_WHOLE = re.compile(r"the matrix key '.*' changes nothing")
"""The beginnings of problems that any missing part of the spec may cause."""


def _is_uncertain(problem: Diagnostic, uncertain: Sequence[Region]) -> bool:
    place = (problem.position.line, problem.position.column)
    return any(begin <= place < end for begin, end in uncertain) and not _INDEPENDENT.match(problem.message)


def _may_follow(problem: Diagnostic, gaps: frozenset[str]) -> bool:
    word = _WORD.search(problem.message)
    if word and problem.message.startswith(("unknown ", "undefined ")) and f"name {word[1]}" in gaps:
        return True
    causes = next((causes for pattern, causes in _FOLLOW_UPS if pattern.match(problem.message)), frozenset())
    return bool(causes & gaps) and not _is_misspelt(problem, causes)


def _is_misspelt(problem: Diagnostic, causes: frozenset[str]) -> bool:
    """Whether a name is probably a misspelt known name: a backend similar to a known one, or a part of every case."""
    word, meant = _WORD.search(problem.message), MEANT.search(problem.hint)
    if word is None or meant is None:
        return False
    return "files of backends" in causes or (meant[1] in _ALWAYS and similarity(word[1], meant[1]) >= NEAR)


def similarity(word: str, other: str) -> float:
    """Return the similarity of two words, from 0 to 1."""
    return difflib.SequenceMatcher(None, word, other).ratio()


_ALWAYS = ("eager", "output", "inputs", "function", "compiled")
"""Names that are defined in every spec."""


def sections_with(document: Document, problems: Iterable[Diagnostic]) -> frozenset[str]:
    """Return the top-level keys of a document with problems below them."""
    starts = sorted((mark.line, mark.column, str(path[0])) for path, mark in document.key_marks.items() if len(path) == 1)
    found = (_section_at(starts, problem.position) for problem in problems if problem.position.file == document.file)
    return frozenset(section for section in found if section)


def _section_at(starts: Sequence[tuple[int, int, str]], position: Position) -> str:
    before = [name for line, column, name in starts if (line, column) <= (position.line, position.column)]
    return before[-1] if before else ""
