"""What commands read where the command line names no specs: ``conformance.yaml`` of the working folder, or the specs that stand there.

| the command line names                | conformance.yaml | specs that are taken                                              |
|---------------------------------------|------------------|-------------------------------------------------------------------|
| paths, or a profile                   | any              | those; backends and waivers of the file where it names none       |
| none                                  | there is one     | those of its profile where the command has one, else of its paths |
| none                                  | none             | ``./specs``, or the spec files of the working folder              |
| none, and the folder has no specs     | none             | the shipped ones                                                  |
"""

import os
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from runner.language.backends import read_named
from runner.language.read.document import SETTINGS, SPEC, DataPath
from runner.language.read.spec_files import discover, is_spec_file
from runner.language.read.yaml_source import read_bytes
from runner.machine.cache_dirs import folder
from runner.model.conditions import as_list
from runner.model.diagnostics import Diagnostic, InvalidSpecs, shown_path
from runner.model.options import REFUSED

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

_FILES = ("paths", "backends", "waivers")

Options = TypeVar("Options", bound="DataclassInstance")


def with_settings(options: Options) -> Options:
    """Return options with what the command line leaves open; raise ``InvalidSpecs`` with the problems of the file. Executes nothing."""
    names = {field.name for field in fields(options)}
    path = Path(SETTINGS.file_name)
    words = _read(path) if os.path.lexists(path) else {}
    values = {name: getattr(options, name) for name in names}
    from_file = [word for word in ("backends", "waivers") if word in names and word in words and not values[word]]
    changes: dict[str, Any] = {word: tuple(map(Path, as_list(words[word]))) for word in from_file}
    if "paths" in names and not (values["paths"] or values.get("profile") or values.get("resume")):
        # a selection, as --select, is made among the paths: it does not go with a profile
        is_whole = all(values.get(name, default) == default for name, (default, _) in REFUSED.items())
        if "profile" in names & words.keys() and is_whole:
            changes["profile"] = words["profile"]
        elif "paths" in words:
            changes["paths"] = tuple(map(Path, as_list(words["paths"])))
        elif not words:
            changes["paths"] = _own_specs()
    if values.get("profile") or "profile" in changes:
        changes.pop("waivers", None)  # a profile permits waivers of its own
    return replace(options, **changes)


def _read(path: Path) -> dict[str, Any]:
    problems: list[Diagnostic] = []
    document = read_named(path, SETTINGS, problems)
    if document is None:
        raise InvalidSpecs(problems)
    for word in _FILES:
        value = document.data.get(word, [])
        for index, name in enumerate(as_list(value)):
            if not os.path.lexists(name):
                place: DataPath = (word,) if value is name else (word, index)
                problems.append(document.problem(place, f"no such file or folder: {name}", "paths are relative to this file"))
    if problems:
        raise InvalidSpecs(problems)
    return dict(document.data)


def _own_specs() -> tuple[Path, ...]:
    """Return ``specs`` of the working folder, or the spec files in it; nothing for the folder of the shipped specs, or without any."""
    own = Path("specs")
    if own.is_dir():
        return () if own.resolve() == folder("specs").resolve() or not discover([own], []) else (own,)
    paths = sorted(path for path in Path().glob("*.y*ml") if path.is_file() and is_spec_file(path, Path()))
    return tuple(path for path in paths if SPEC.recognises(read_bytes(path).decode("utf-8-sig", "replace")))


def taken(paths: Sequence[Path], count: int) -> str:
    """Return which specs a command takes, on one line."""
    if not paths:
        return f"specs: the {count:,} shipped cases; name a path, or write {SETTINGS.file_name}, for your own"
    shown = [shown_path(path) if path.is_absolute() or path.parts[:1] in ((), ("..",)) else f"./{path}" for path in paths]
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return f"specs: {count:,} case{'' if count == 1 else 's'} of {', '.join(shown[:3])}{more}"
