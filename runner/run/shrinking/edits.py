"""Proposes edits that make a document of a spec smaller. Pure, without torch: every edit is tried by somebody else.

An edit is one or several changes of parts of the document, by path. Edits of one pass are independent: any subset of them can be applied.
"""

import contextlib
import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.plan.case_document import Document, without_idle_spies
from runner.run.shrinking.code_edits import Segment, expressions, inlined, parameters, statements, without_passes
from runner.vocabulary.inputs import INPUTS, kind_of

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Removed:
    """Stands for a part that is removed."""


@dataclass(frozen=True, slots=True)
class Change:
    """One change: the part at a path gets a value, is removed, or, a text, gets another segment."""

    path: Path
    value: Any


@dataclass(frozen=True, slots=True)
class Edit:
    """Changes that are made together."""

    words: str
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Pass:
    """One kind of edits. ``together``: several may be tried at once, as delta debugging does."""

    name: str
    propose: Callable[[Document], Sequence[Edit]]
    together: bool


def applied(document: Document, edits: Sequence[Edit]) -> Document:
    """Return a copy of a document with edits; a change of a part that is gone does nothing."""
    made = copy.deepcopy(document)
    changes = [change for edit in edits for change in edit.changes]
    for change in sorted(changes, key=_order, reverse=True):
        _apply(made, change)
    for path in {change.path for change in changes if isinstance(change.value, Segment)}:
        with contextlib.suppress(KeyError, IndexError, TypeError):  # another edit removed the text
            *above, last = path
            owner = _owner(made, above)
            owner[last] = without_passes(owner[last])
    return _tidied(made)


def _owner(document: Any, above: Sequence[str | int]) -> Any:
    """Return the part at a path; raise ``KeyError``, ``IndexError`` or ``TypeError`` where it is gone."""
    for part in above:
        document = document[part]
    return document


def _order(change: Change) -> tuple[Any, ...]:
    """Sort later parts of lists and later segments of a text behind earlier ones."""
    place = tuple((0, part, "") if isinstance(part, int) else (1, 0, part) for part in change.path)
    return (place, change.value.start if isinstance(change.value, Segment) else -1)


def _apply(document: Document, change: Change) -> None:
    *above, last = change.path
    try:
        owner = _owner(document, above)
        now = owner[last]
    except (KeyError, IndexError, TypeError):
        return
    if isinstance(change.value, Removed):
        del owner[last]
    elif isinstance(change.value, Segment):
        owner[last] = change.value.within(now)
    else:
        owner[last] = copy.deepcopy(change.value)


def _tidied(document: Document) -> Document:
    """Remove sections and lists that became empty and that a spec may leave out."""
    optional = (
        "config",
        "dynamo_config",
        "functorch_config",
        "env",
        "compile",
        "let",
        "spies",
        "handlers",
        "context",
        "services",
        "matrix",
    )
    found = {name: value for name, value in document.items() if value or name not in optional}
    found["steps"] = [{name: value for name, value in step.items() if name != "expect" or value} for step in document.get("steps", [])]
    if not str(found.get("prelude", "")).strip():
        found.pop("prelude", None)
    return without_idle_spies(found)


# -- what is removed ---------------------------------------------------------------------------------------------------


def _removal(words: str, *path: str | int) -> Edit:
    return Edit(f"without {words}", (Change(path, Removed()),))


def _steps(document: Document) -> list[Edit]:
    return [_removal(f"step {index + 1}", "steps", index) for index in range(len(document["steps"]))]


def _expectations(document: Document) -> list[Edit]:
    found = []
    for index, step in enumerate(document["steps"]):
        for number, one in enumerate(step.get("expect", [])):
            kind, body = next(iter(one.items()))
            found.append(_removal(f"{kind} of step {index + 1}", "steps", index, "expect", number))
            if kind in ("counter", "metric", "equals", "differs") and isinstance(body, Mapping) and len(body) > 1:
                found += [_removal(f"{kind} {name}", "steps", index, "expect", number, kind, name) for name in body]
    return found


_SECTIONS = ("config", "dynamo_config", "functorch_config", "env", "compile", "let", "spies", "handlers", "matrix", "torch")


def _options(document: Document) -> list[Edit]:
    found = [_removal(f"{section} {name}", section, name) for section in _SECTIONS for name in document.get(section, {}) if name != "seed"]
    found += [_removal(f"context {index + 1}", "context", index) for index in range(len(document.get("context", [])))]
    found += [_removal(word, word) for word in ("isolation", "services") if word in document]
    for index, step in enumerate(document["steps"]):
        kind = next(iter(step))
        arguments = step[kind]
        found += [_removal(f"{word} of step {index + 1}", "steps", index, word) for word in ("repeat", "when") if word in step]
        if isinstance(arguments, Mapping):
            words = [word for word in ("context", "as", "side_effects", "strict", "loss") if word in arguments]
            found += [_removal(f"{word} of step {index + 1}", "steps", index, kind, word) for word in words]
    return found


# -- code --------------------------------------------------------------------------------------------------------------


def texts(document: Document) -> Iterator[tuple[Path, str]]:
    """Yield the path and the text of each block of Python."""
    if isinstance(document.get("prelude"), str):
        yield ("prelude",), document["prelude"]
    if isinstance(document.get("function"), str):
        yield ("function",), document["function"]
    for name, function in document.get("functions", {}).items():
        if isinstance(function, str):
            yield ("functions", name), function
    for index, step in enumerate(document["steps"]):
        kind = next(iter(step))
        if isinstance(step[kind], Mapping) and kind == "script":
            yield ("steps", index, kind, "code"), step[kind]["code"]


def _code(document: Document, segments: Callable[[str], Sequence[Segment]]) -> list[Edit]:
    return [
        Edit(f"{'.'.join(map(str, path))}: {segment.words}", (Change(path, segment),))
        for path, text in texts(document)
        for segment in segments(text)
    ]


def _statements(document: Document) -> list[Edit]:
    return _code(document, statements)


def _expressions(document: Document) -> list[Edit]:
    """Propose smaller expressions, but none for what options and contexts name: another fault there could fail alike."""
    named = {str(name).partition(".")[0] for key in _OPTIONS for name in _references(document.get(key))}
    return _code(document, functools.partial(expressions, without=named))


def _inlines(document: Document) -> list[Edit]:
    return _code(document, inlined)


_OPTIONS = ("config", "dynamo_config", "functorch_config", "compile", "context")


def _references(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from [value["ref"]] if set(value) == {"ref"} else [one for inner in value.values() for one in _references(inner)]
    elif isinstance(value, list):
        yield from (one for inner in value for one in _references(inner))


def _inputs(document: Document) -> list[Edit]:
    """Propose to drop an input together with the parameter that takes it."""
    found = []
    text = document.get("function")
    for index in range(len(document.get("inputs", []))):
        changes = [Change(("inputs", index), Removed())]
        named = parameters(text, document.get("entry")) if isinstance(text, str) else []
        if index < len(named):
            changes.append(Change(("function",), named[index]))
        found.append(Edit(f"without input {index + 1}", tuple(changes)))
    return found


# -- inputs and shapes -------------------------------------------------------------------------------------------------

_SHAPES = ("rand", "randn", "zeros", "ones", "full", "randint", "strides")


def _described(document: Document) -> Iterator[tuple[Path, Mapping[str, Any]]]:
    """Yield the path and the map of each input, wherever it stands."""

    def walk(value: Any, path: Path) -> Iterator[tuple[Path, Mapping[str, Any]]]:
        if isinstance(value, Mapping):
            if kind_of(value) is not None:
                yield path, value
            for key, item in value.items():
                yield from walk(item, (*path, key))
        elif isinstance(value, list):
            for index, item in enumerate(value):
                yield from walk(item, (*path, index))

    for section in ("inputs", "let"):
        yield from walk(document.get(section), (section,))
    for index, step in enumerate(document["steps"]):
        kind = next(iter(step))
        if isinstance(step[kind], Mapping):
            for word in ("inputs", "args", "kwargs"):
                yield from walk(step[kind].get(word), ("steps", index, kind, word))


def _keys(document: Document) -> list[Edit]:
    """Propose to drop a key of an input: its strides, its dtype."""
    found = []
    for path, entry in _described(document):
        kind = kind_of(entry)
        optional = [key for key in entry if key != kind and key in ("strides", "memory_format", "requires_grad", "mark_dynamic", "dtype")]
        found += [_removal(f"{key} of {'.'.join(map(str, path))}", *path, key) for key in optional if kind in INPUTS]
    return found


def _sizes(document: Document) -> dict[int, list[Path]]:
    """Return where each size above 1 stands: in shapes, and among the arguments of modules, which must fit them."""
    found: dict[int, list[Path]] = {}

    def note(value: Any, path: Path) -> None:
        if isinstance(value, int) and not isinstance(value, bool) and value > 1:
            found.setdefault(value, []).append(path)
        elif isinstance(value, list):
            for index, item in enumerate(value):
                note(item, (*path, index))

    for path, entry in _described(document):
        for word in _SHAPES:
            if word in entry:
                note(entry[word], (*path, word))
        note(entry.get("jagged"), (*path, "jagged"))
    functions: dict[Path, Any] = {("function",): document.get("function")}
    functions.update({("functions", name): function for name, function in document.get("functions", {}).items()})
    for place, function in functions.items():
        if isinstance(function, Mapping):
            note(function.get("args"), (*place, "args"))
            for name, value in (function.get("kwargs") or {}).items():
                note(value, (*place, "kwargs", name))
    return found


def _smaller(size: int) -> list[int]:
    return sorted({number for number in (1, 2, 3, 4, 8, size // 8, size // 4, size // 2, size - 1) if 0 < number < size})


def _shapes(document: Document) -> list[Edit]:
    """Propose a smaller number for a size wherever it stands, the smallest first; then at each place alone."""
    found = []
    for size, places in sorted(_sizes(document).items(), reverse=True):
        for number in _smaller(size):
            found.append(Edit(f"{number} for each {size}", tuple(Change(path, number) for path in places)))
    for size, places in sorted(_sizes(document).items(), reverse=True):
        if len(places) > 1:
            found += [Edit(f"{number} for {size}", (Change(path, number),)) for path in places for number in _smaller(size)[:2]]
    return found


def _dimensions(document: Document) -> list[Edit]:
    """Propose to drop the first or the last dimension of every shape of one rank."""
    ranks: dict[int, list[Path]] = {}
    for path, entry in _described(document):
        for word in _SHAPES[:-1]:
            if isinstance(entry.get(word), list) and len(entry[word]) > 1 and "strides" not in entry:
                ranks.setdefault(len(entry[word]), []).append((*path, word))
    return [
        Edit(f"without the {end} of {rank} dimensions", tuple(Change((*path, index), Removed()) for path in places))
        for rank, places in sorted(ranks.items(), reverse=True)
        for end, index in (("first", 0), ("last", rank - 1))
    ]


PASSES: tuple[Pass, ...] = (
    Pass("steps", _steps, together=True),
    Pass("expectations", _expectations, together=True),
    Pass("options", _options, together=True),
    Pass("statements", _statements, together=True),
    Pass("expressions", _expressions, together=False),
    Pass("names", _inlines, together=False),
    Pass("inputs", _inputs, together=False),
    Pass("keys of inputs", _keys, together=True),
    Pass("dimensions", _dimensions, together=False),
    Pass("shapes", _shapes, together=False),
)
"""The passes in their order: what takes most with it comes first."""
