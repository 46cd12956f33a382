"""Generates pages of the reference: ``python -m runner.language.reference > docs/reference/language.md``.

The prose of a page is ``docs/reference/PAGE.in.md``. Directives are HTML comments on lines of their own. The generator replaces them by the
contents of the schemas and of the tables in the code. ``python -m runner.language.reference PAGE`` generates another page than the
language.
"""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import runner
from runner.language.backends import load_backends
from runner.language.read import schema, schema_words
from runner.system.capabilities import CAPABILITIES

_DIRECTIVE = re.compile(r"<!-- (table|kinds|inputs|capabilities|backends)((?: [\w./$]+)*) -->")


def folder() -> Path:
    """Return ``docs/reference`` of the checkout."""
    return Path(runner.__file__).resolve().parent.parent / "docs" / "reference"


def reference(page: str = "language") -> str:
    """Return a page of the reference as Markdown."""
    source = (folder() / f"{page}.in.md").read_text(encoding="utf-8")
    return "\n".join(_lines(source)).rstrip() + "\n"


def _lines(source: str) -> Iterator[str]:
    for line in source.splitlines():
        found = _DIRECTIVE.fullmatch(line)
        if found is None:
            yield line
        else:
            yield from _DIRECTIVES[found[1]](*found[2].split())


def _table(path: str) -> Iterator[str]:
    """``table FILE/KEY/KEY``: the keys of the object at a path of a schema."""
    node = _node(path)
    needed = set(node.get("required", []))
    if needed == set(node["properties"]):
        needed = set()  # if all keys are required, the mark is omitted
    yield "| key | type | meaning |"
    yield "|---|---|---|"
    for key, value in node["properties"].items():
        star = " (required)" if key in needed else ""
        yield f"| `{key}`{star} | {_type(value)} | {_cell(value.get('description', ''))} |"


def _node(path: str) -> Any:
    file, *keys = path.split("/")
    node = schema.resolve_definition(file, keys[1]) if keys[:1] == ["$defs"] else schema.resolved(file)
    for key in keys[2:] if keys[:1] == ["$defs"] else keys:
        node = node[key]
    return node


def _type(node: Any) -> str:
    words_of_it = node.get("enum") or [word for branch in node.get("anyOf", []) for word in branch.get("enum", [])]
    if 0 < len(words_of_it) <= _MOST_WORDS or "enum" in node:
        return "one of " + ", ".join(f"`{word}`" for word in words_of_it)
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    kinds = node.get("type", "any")
    words = [kinds] if isinstance(kinds, str) else list(kinds)
    if node.get("pattern") == schema_words.TEMPLATE_PATTERN and len(words) > 1:
        words.remove("string")  # the string is a template, whose value may have any type
    return " or ".join(words)


_MOST_WORDS = 6
"""The most words that a cell lists where a template may stand in their place."""


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _kinds(file: str, member: str) -> Iterator[str]:
    """``kinds FILE MEMBER``: a section for each kind of step or expectation."""
    raw = schema.load(file)["$defs"]
    for name in raw[member]["properties"]:
        if name in raw:
            yield from _kind(file, name, raw[name])


def _kind(file: str, name: str, raw: Any) -> Iterator[str]:
    node = schema.resolve_definition(file, name)
    yield f"### `{name}`"
    yield ""
    yield node["description"]
    yield ""
    inner = f"{file}/$defs/{name}" + ("" if "properties" in node else "/then")
    if node.get("properties") or node.get("then", {}).get("properties"):
        yield from _table(inner)
        yield ""
    yield from _examples(file, name, [{name: example} for example in raw.get("examples", [])])
    yield ""


def _inputs() -> Iterator[str]:
    """``inputs``: the keys of an input, and examples."""
    yield from _table("inputs/$defs/input")
    yield ""
    yield from _examples("inputs", "input", schema.load("inputs")["$defs"]["input"]["examples"])


def _examples(file: str, name: str, entries: list[Any]) -> Iterator[str]:
    yield f"<!-- examples: {file}/{name} -->"
    yield "```yaml"
    for entry in entries:
        ((key, value),) = entry.items() if isinstance(entry, dict) and len(entry) == 1 and file != "inputs" else (("", entry),)
        text = json.dumps(value, ensure_ascii=False)
        yield f"- {key}: {text}" if key else f"- {text}"
    yield "```"


def _capabilities() -> Iterator[str]:
    yield "| capability | argument | the machine has it when |"
    yield "|---|---|---|"
    for name, capability in CAPABILITIES.items():
        yield f"| `{name}` | {'`' + capability.takes + '`' if capability.takes else ''} | {capability.summary} |"


def _backends() -> Iterator[str]:
    yield "| backend | device | joins | what it is |"
    yield "|---|---|---|---|"
    for backend in load_backends().by_name.values():
        joins = ", ".join(sorted(backend.names - {backend.name}))
        if backend.only_tags:
            joins += f", for specs tagged {' or '.join(sorted(backend.only_tags))}"
        yield f"| `{backend.name}` | {backend.device} | {joins} | {backend.summary} |"


_DIRECTIVES: Mapping[str, Callable[..., Iterator[str]]] = {
    "table": _table,
    "kinds": _kinds,
    "inputs": _inputs,
    "capabilities": _capabilities,
    "backends": _backends,
}


if __name__ == "__main__":
    sys.stdout.write(reference(*sys.argv[1:2]))
