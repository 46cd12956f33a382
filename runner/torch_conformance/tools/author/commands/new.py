"""``new``: writes a spec from a template, or specs from the tests of a Python file."""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from torch_conformance.machine import output
from torch_conformance.model.diagnostics import (
    UsageError,
    did_you_mean,
    one_line,
    one_of,
    shown_path,
)
from torch_conformance.model.options import argument, flag, option
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.tools.author.from_python import draft, spec_name
from torch_conformance.tools.author.python_tests import PythonFile, Test


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOptions:
    """The options of ``new``."""

    area: Path = argument(
        "AREA", "the folder of the new spec; it is made if it does not exist", Path
    )
    name: str = argument("NAME", "the name of the file, in field words: conv-bn-folds", nargs="?")
    from_python: str = option(
        "FILE[::CLASS][::TEST]",
        "make specs from the tests of a Python file: one test, those of a class, or all",
        "",
    )
    allow_partial: bool = flag(
        "exit 0 also when a part of a test was not carried; the specs still say so"
    )


TEMPLATE = """\
# Write one claim as one sentence. 'torch-conformance validate' gives the position of every problem.
summary: A product through relu equals eager and is captured as one graph
backends: [cpu, cuda, rocm]
function: |
  def fn(x, y):
      return (x * y).relu()
inputs:
  - {randn: [64, 64]}
  - {randn: [64, 64]}
expect:
  - close: {to: eager}
  - counter: {stats.unique_graphs: 1}    # no graph break, no recompilation
"""
"""A new spec, which runs as it is."""

_NAME = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*")
_LARGEST = 16 * 2**20
"""The greatest size of a Python file, in bytes."""


def main(options: NewOptions) -> ExitCode:
    """Write the specs; exit 1 when a part of a test was not carried."""
    if options.area.exists() and not options.area.is_dir():
        raise UsageError(f"AREA {one_line(str(options.area))} is a file: name a folder")
    if options.from_python:
        return _from_python(options)
    if not options.name:
        raise UsageError(
            "NAME is missing: torch-conformance new AREA NAME (for example: new first "
            "conv-bn-folds)"
        )
    _must_be_name(options.name)
    path = options.area / f"{options.name}.yaml"
    _write({path: TEMPLATE})
    output.line(f"written: {shown_path(path)}")
    output.line(f"next: torch-conformance run {shown_path(path)}")
    return ExitCode.OK


def _must_be_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        near = re.sub(r"[^a-z0-9]+", "-", name.lower().removesuffix(".yaml")).strip("-")
        hint = f"for example '{near}'" if near else "for example 'conv-bn-folds'"
        raise UsageError(
            f"NAME '{one_line(name)}': allowed are lower-case letters, digits and single "
            f"hyphens between them ({hint})"
        )


def _from_python(options: NewOptions) -> ExitCode:
    place, _, test_name = options.from_python.partition("::")
    file = _parsed(Path(place))
    tests = _wanted(file, test_name, place)
    if options.name and len(tests) != 1:
        raise UsageError(
            f"NAME goes with one test, and {one_line(options.from_python)} has {len(tests)}"
        )
    if options.name:
        _must_be_name(options.name)
    drafts = [draft(file, test) for test in tests]
    paths: list[Path] = []
    taken: Counter[str] = Counter()  # tests of one name in two classes get a number
    for drafted in drafts:
        name = options.name or spec_name(drafted.test)
        taken[name] += 1
        paths.append(options.area / f"{name if taken[name] == 1 else f'{name}-{taken[name]}'}.yaml")
    _write(
        {path: drafted.text for path, drafted in zip(paths, drafts, strict=True) if drafted.text}
    )
    for path, drafted in zip(paths, drafts, strict=True):
        is_carried = "whole" if drafted.state == "whole" else "in part"
        output.line(
            f"written: {shown_path(path)}: {drafted.test} {is_carried}"
            if drafted.text
            else f"not carried: {drafted.test}"
        )
        output.lines([f"  line {remark.line}: {remark.text}" for remark in drafted.lost])
    counts = Counter(drafted.state for drafted in drafts)
    total = "1 test" if len(drafts) == 1 else f"{len(drafts)} tests"
    output.line(
        f"{total}: {counts['whole']} whole, {counts['part']} in part, {counts['none']} not at all"
    )
    if counts["whole"] == len(drafts) or (options.allow_partial and counts["none"] < len(drafts)):
        return ExitCode.OK
    return ExitCode.FAILED


def _parsed(path: Path) -> PythonFile:
    try:
        if path.stat().st_size > _LARGEST:
            raise UsageError(f"{one_line(str(path))} is larger than {_LARGEST // 2**20} MiB")
        text = path.read_text(encoding="utf-8")
        return PythonFile.parse(path.name, text)
    except UnicodeDecodeError as error:
        raise UsageError(f"{one_line(str(path))} is not UTF-8: {error.reason}") from error
    except OSError as error:
        raise UsageError(f"cannot read {one_line(str(path))}: {error.strerror}") from error
    except SyntaxError as error:
        raise UsageError(
            f"{one_line(str(path))}:{error.lineno or 1}:{error.offset or 1}: no Python: "
            f"{one_line(str(error.msg))}"
        ) from error
    except (ValueError, RecursionError, MemoryError) as error:
        raise UsageError(
            f"{one_line(str(path))}: no Python that can be read: "
            f"{one_line(str(error)) or type(error).__name__}"
        ) from error


def _wanted(file: PythonFile, asked: str, place: str) -> list[Test]:
    tests = file.tests()
    if not tests:
        raise UsageError(
            f"{one_line(place)} has no test: a function whose name begins with 'test', or "
            "such a method of a class"
        )
    if not asked:
        return tests
    matching = [
        test
        for test in tests
        if asked in (test.name, test.function.name) or test.name.startswith(f"{asked}::")
    ]
    if matching:
        return matching
    names = [test.name for test in tests]
    raise UsageError(
        f"{one_line(place)} has no test '{one_line(asked)}' "
        f"({did_you_mean(asked, names) or f'its tests: {one_of(names)}'})"
    )


def _write(texts: dict[Path, str]) -> None:
    """Write new files; none when one of them exists."""
    for path in texts:
        if path.exists() or path.is_symlink():
            raise UsageError(
                f"{one_line(str(path))} exists: choose another NAME or AREA, or remove it"
            )
    for path, text in texts.items():
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except OSError as error:
            raise UsageError(f"cannot write {one_line(str(path))}: {error.strerror}") from error
