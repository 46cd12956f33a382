"""The language reference, made from the schemas: ``python -m runner.language.reference > docs/language.md``."""

import json
import sys
from collections.abc import Iterator
from typing import Any

from runner.language.backends import load_backends
from runner.language.read import schema, schema_words
from runner.system.capabilities import CAPABILITIES


def reference() -> str:
    """Return the reference as Markdown."""
    return "\n".join(_lines()).rstrip() + "\n"


def _lines() -> Iterator[str]:
    yield "# The language"
    yield ""
    yield "Made from the schemas by `python -m runner.language.reference`; do not edit. A value that is exactly one `{{ expression }}` over"
    yield "matrix keys, `backend`, `device` and `facts` takes the expression's value and type."
    yield ""
    yield from _section("A spec", schema.resolved("spec"), required=True)
    yield from _family("Inputs", "inputs", "input", kinds=True)
    yield from _family("Steps", "steps", "step")
    yield from _family("Expectations", "expectations", "expectation")
    yield from _section("Conditions: `when`", _definition("common", "when"))
    yield from _capabilities()
    yield from _section("Directory defaults: `_defaults.yaml`", schema.resolved("defaults"))
    yield from _section("A backend", schema.resolved("backends")["additionalProperties"], required=True)
    yield from _section("Its proof", schema.resolved("backends")["additionalProperties"]["properties"]["proof"])
    yield from _backends()
    yield ""
    yield from _section("A waiver: `specs/waivers.yaml`, and files of `--waivers`", _definition("waivers", "waiver"), required=True)
    yield from _section("Its failures", _definition("waivers", "signature"), required=True)


def _definition(file: str, name: str) -> Any:
    return schema.resolve_definition(file, name)


def _section(title: str, node: Any, *, required: bool = False) -> Iterator[str]:
    yield f"## {title}"
    yield ""
    yield node["description"]
    yield ""
    yield from _table(node, required=required)


def _table(node: Any, *, required: bool = False) -> Iterator[str]:
    needed = set(node.get("required", [])) if required else set()
    yield "| key | type | meaning |"
    yield "|---|---|---|"
    for key, value in node["properties"].items():
        star = " (needed)" if key in needed else ""
        yield f"| `{key}`{star} | {_type(value)} | {_cell(value.get('description', ''))} |"
    yield ""


def _type(node: Any) -> str:
    if "enum" in node:
        return "one of " + ", ".join(f"`{word}`" for word in node["enum"])
    if "const" in node:
        return f"`{json.dumps(node['const'])}`"
    kinds = node.get("type", "any")
    words = [kinds] if isinstance(kinds, str) else list(kinds)
    if node.get("pattern") == schema_words.TEMPLATE_PATTERN and len(words) > 1:
        words.remove("string")  # it stands for a template, which may stand for anything
    return " or ".join(words)


def _cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _family(title: str, file: str, member: str, *, kinds: bool = False) -> Iterator[str]:
    raw = schema.load(file)
    yield f"## {title}"
    yield ""
    yield raw["description"]
    yield ""
    if kinds:
        yield from _table(_definition(file, member))
        yield from _examples(raw["$defs"][member])
        return
    for name in raw["$defs"][member]["properties"]:
        if name in raw["$defs"]:
            yield from _kind(name, _definition(file, name), raw["$defs"][name])


def _kind(name: str, node: Any, raw: Any) -> Iterator[str]:
    yield f"### `{name}`"
    yield ""
    yield node["description"]
    yield ""
    inner = node if "properties" in node else node.get("then", {})
    if inner.get("properties"):
        yield from _table(inner)
    yield from _examples(raw, name)


def _examples(raw: Any, name: str = "") -> Iterator[str]:
    yield "```yaml"
    for example in raw.get("examples", []):
        text = json.dumps(example, ensure_ascii=False)
        yield f"- {name}: {text}" if name else f"- {text}"
    yield "```"
    yield ""


def _capabilities() -> Iterator[str]:
    yield "## Capabilities: `requires`"
    yield ""
    yield "| capability | argument | means |"
    yield "|---|---|---|"
    for name, capability in CAPABILITIES.items():
        yield f"| `{name}` | {'`' + capability.takes + '`' if capability.takes else ''} | {capability.summary} |"
    yield ""


def _backends() -> Iterator[str]:
    yield "## The shipped backends"
    yield ""
    yield "| backend | device | joins | is |"
    yield "|---|---|---|---|"
    for backend in load_backends().by_name.values():
        joins = ", ".join(sorted(backend.names - {backend.name}))
        if backend.only_tags:
            joins += f", for specs tagged {' or '.join(sorted(backend.only_tags))}"
        yield f"| `{backend.name}` | {backend.device} | {joins} | {backend.summary} |"


if __name__ == "__main__":
    sys.stdout.write(reference())
