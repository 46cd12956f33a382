"""The options of a torch with type, default and comment, read from its source. Torch is not imported."""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from runner.language.names._name_table import CONFIG_FILES

_LONGEST_DEFAULT = 200


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """One option."""

    name: str
    annotation: str
    default: str
    """The expression of the default, as it stands in the source."""
    text: str
    """The comment above it."""
    line: int


@cache
def described(root: Path, section: str) -> Mapping[str, Option]:
    """Return the options of a section (``config``, ``dynamo_config``, ``functorch_config``), by their dotted names."""
    try:
        source = (root / CONFIG_FILES[section]).read_text("utf-8")
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):
        return {}
    lines = source.split("\n")
    found: dict[str, Option] = {}
    for prefix, node in _assignments(tree.body, ""):
        target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
        if isinstance(target, ast.Name) and node.value is not None:
            annotation = ast.unparse(node.annotation) if isinstance(node, ast.AnnAssign) else ""
            default = " ".join(ast.unparse(node.value).split())
            shown = default if len(default) <= _LONGEST_DEFAULT else f"{default[:_LONGEST_DEFAULT]}..."
            name = f"{prefix}{target.id}"
            found[name] = Option(name=name, annotation=annotation, default=shown, text=_comment(lines, node.lineno), line=node.lineno)
    return found


def _assignments(body: list[ast.stmt], prefix: str) -> Iterator[tuple[str, ast.Assign | ast.AnnAssign]]:
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign):
            yield prefix, node
        elif isinstance(node, ast.ClassDef):
            yield from _assignments(node.body, f"{prefix}{node.name}.")
        elif isinstance(node, ast.If):
            yield from _assignments(node.body, prefix)


def _comment(lines: list[str], line: int) -> str:
    """Return the comment that stands directly above a line."""
    found: list[str] = []
    for text in reversed(lines[: line - 1]):
        stripped = text.strip()
        if not stripped.startswith("#"):
            break
        found.append(stripped.lstrip("#").strip())
    return "\n".join(reversed(found))
