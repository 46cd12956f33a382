"""``new``: writes a spec from a template, or a copy of a shipped spec with its parts explained."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from torch_conformance.language.read import yaml_source
from torch_conformance.language.read.spec_files import (
    DEFAULTS,
    SpecPath,
    discover,
    files_of_defaults,
)
from torch_conformance.machine import output, schemas
from torch_conformance.matching.patterns import glob
from torch_conformance.model.diagnostics import (
    UsageError,
    did_you_mean,
    one_line,
    one_of,
    shown_path,
)
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import argument, option


@frozen
class NewOptions:
    """The options of ``new``."""

    area: Path = argument(
        "AREA", "the folder of the new spec; it is made if it does not exist", Path
    )
    name: str = argument("NAME", "the name of the file, in field words: conv-bn-folds", nargs="?")
    like: str = option(
        "SPEC",
        "copy a shipped spec (its file, its name or glob, or the id of a case), with a comment "
        "above each of its parts; without NAME, the copy has the name of SPEC",
        "",
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


def main(options: NewOptions) -> ExitCode:
    """Write the spec, and for a copy the defaults that it inherits."""
    if options.area.exists() and not options.area.is_dir():
        raise UsageError(f"AREA {one_line(str(options.area))} is a file: name a folder")
    example = _shipped(options.like) if options.like else None
    name = options.name or (example.path.stem if example else "")
    if not name:
        raise UsageError(
            "NAME is missing: torch-conformance new AREA NAME (for example: new first "
            "conv-bn-folds)"
        )
    _must_be_name(name)
    path = options.area / f"{name}.yaml"
    texts = {path: explained(yaml_source.read(example.path), example.area) if example else TEMPLATE}
    if example:
        texts |= _defaults(example, options.area)
    _write(texts)
    for written in texts:
        output.line(f"written: {shown_path(written)}")
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


# -- a copy of a shipped spec ----------------------------------------------------------------------

_PARTS = {
    "steps": ("steps", "step"),
    "expect": ("expectations", "expectation"),
    "inputs": ("inputs", "input"),
}
"""The definition of an entry of each of these lists: its schema and its name."""


def _shipped(pattern: str) -> SpecPath:
    """Return the one shipped spec that a file, a name, a glob or the id of a case names."""
    specs = {f"{spec.area}/{spec.path.stem}": spec for spec in discover([], [])}
    if (file := Path(pattern)).is_file():
        matches = [name for name, spec in specs.items() if spec.path == file.resolve()]
    else:
        name = pattern.partition("[")[0].removeprefix("specs/").removesuffix(".yaml")
        matches = [*filter(glob(name).fullmatch, specs)]
    if len(matches) == 1:
        return specs[matches[0]]
    if matches:
        raise UsageError(
            f"{len(matches)} shipped specs match '{one_line(pattern)}': name one of them "
            f"({one_of(matches)})"
        )
    hint = did_you_mean(pattern, specs) or "'torch-conformance list specs' prints the ids"
    raise UsageError(f"no shipped spec matches '{one_line(pattern)}' ({hint})")


def explained(document: Document, area: str) -> str:
    """Return the text of a spec with the meaning of each part above the line where it is first.

    What only the shipped spec may say goes: the upstream tests that it restates, and the schema's
    relative path.
    """
    lines, explained = _text(document).splitlines(), set[tuple[str, ...]]()
    comments: dict[int, list[str]] = {}
    for path, mark in document.key_marks.items():
        part, meaning = _meaning(path)
        if meaning and part not in explained:
            explained.add(part)
            comments.setdefault(mark.line, []).append(f"# {path[-1]}: {meaning}")
    marks = {path[0]: mark.line for path, mark in document.key_marks.items() if len(path) == 1}
    first = marks.get("covers", 0)
    last = min((line for line in marks.values() if line > first), default=len(lines) + 1)
    copied = [f"# made from {area}/{document.path.stem}: change the claim, then what it is about"]
    for number, line in enumerate(lines, 1):
        is_covers = first > 0 and first <= number < last
        if is_covers or line.startswith("# yaml-language-server:"):
            continue
        indent = line[: len(line) - len(line.lstrip())]
        copied += [f"{indent}{comment}" for comment in comments.get(number, [])]
        copied.append(line)
    return "".join(f"{line}\n" for line in copied)


def _text(document: Document) -> str:
    return document.content.decode("utf-8-sig")


def _meaning(path: DataPath) -> tuple[tuple[str, ...], str]:
    """Return what a key is, and the first sentence of its description in the schemas."""
    if len(path) == 1:
        part, node = ("spec", str(path[0])), schemas.resolved("spec")
    elif len(path) > 2 and path[-3] in _PARTS:
        file, member = _PARTS[str(path[-3])]
        part, node = (file, str(path[-1])), schemas.resolved(file, f"/$defs/{member}")
    else:
        return (), ""
    described: Mapping[str, Any] = node.get("properties", {}).get(path[-1], {})
    sentence = re.match(r".*?[.:](?= |$)|.*", described.get("description", ""))
    return part, sentence[0].rstrip(".:") if sentence else ""


def _defaults(spec: SpecPath, area: Path) -> dict[Path, str]:
    """Return the defaults that a shipped spec inherits, for the folder of its copy."""
    files = [file for file in files_of_defaults(spec) if file.exists()]
    if not files:
        return {}
    target, text = area / DEFAULTS, _text(yaml_source.read(files[0]))
    text = re.sub(r"\A# yaml-language-server:.*\n", "", text)
    if not target.exists():
        return {target: text}
    if target.read_bytes() != text.encode():
        raise UsageError(
            f"{shown_path(target)} is there, and {spec.path.stem} has the defaults of "
            f"{spec.area}: choose another AREA"
        )
    return {}


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
