"""The texts of all problems of specs and other files of the user: what was read, and what to type
instead.

``problem_texts.txt`` has them by their codes, and is read where there is a problem. A code
``unknown-WHAT`` without an entry is that of a word that is in no table.
"""

import functools
import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Template

_UNKNOWN = (
    "unknown $what '$word'<? in $place?>",
    "did you mean '$near'?<? $odd?>",
    "allowed: $allowed",
    "no $what is defined here",
)


@functools.cache
def texts() -> Mapping[str, Sequence[str]]:
    """Return the message and the hints of each code."""
    by_code: dict[str, list[str]] = {}
    entry: list[str] = []
    for line in Path(__file__).with_suffix(".txt").read_text("utf-8").splitlines():
        if line.startswith("  "):
            entry.append(line[2:])
        elif line and not line.startswith("#"):
            entry = []
            by_code |= dict.fromkeys(line.split(), entry)
    return by_code


def text_of(code: str, arguments: Mapping[str, str | int]) -> tuple[str, str]:
    """Return the message and the hint of a problem; the hint may be empty."""
    message, *hints = texts().get(code, _UNKNOWN)
    if code not in texts():
        arguments = {"what": code.removeprefix("unknown-").replace("-", " "), **arguments}

    def filled(text: str) -> str:
        required_text = _OPTIONAL.sub(
            lambda part: part[1] if _has(part[1], arguments) else "", text
        )
        return Template(required_text).substitute(arguments)

    hint = next((hint for hint in hints if _has(_OPTIONAL.sub("", hint), arguments)), "")
    point = f" (at {arguments['point']})" if "point" in arguments else ""
    return filled(message) + point, filled(hint)


_OPTIONAL = re.compile(r"<\?(.*?)\?>")


@functools.cache
def _names(text: str) -> tuple[str, ...]:
    return tuple(Template(text).get_identifiers())


def _has(text: str, arguments: Mapping[str, str | int]) -> bool:
    return all(arguments.get(name) for name in _names(text))


# -- words for values ------------------------------------------------------------------------------

UNITS: Mapping[str, str] = {
    "minLength": "characters",
    "minItems": "entries",
    "minProperties": "keys",
}
"""What a length counts, by its keyword of JSON Schema."""

_TYPES = {
    **dict.fromkeys(["object", "map"], "a map"),
    **dict.fromkeys(["array", "list"], "a list"),
    "string": "text",
    "str": "a text",
    **dict.fromkeys(["integer", "int"], "a whole number"),
    **dict.fromkeys(["number", "float"], "a number"),
    **dict.fromkeys(["boolean", "bool"], "true or false"),
}


def shown_types(types: Sequence[str]) -> str:
    """Return types of JSON or of options, and literals, as text."""
    return " or ".join(_TYPES.get(name, name) for name in types)


def shown(value: object) -> str:
    """Return a value of a file in words."""
    match value:
        case None:
            return "nothing"
        case bool():
            return json.dumps(value)
        case str():
            return f"the text '{value[:60]}'"
        case dict():
            return "a map"
        case list():
            return "a list"
    return f"the number {value!s:.40}"


def span(least: int, most: int | None) -> str:
    """Return a number of arguments as text; None for any number."""
    if most is None:
        return f"at least {span(least, least)}"
    count = "1 argument" if most == 1 else f"{most} arguments"
    return count if least == most else f"{least} to {count}"


TEMPLATE_PARTS: Mapping[str, str] = {
    "Call": "a call",
    "BitOr": "a filter",
    "Is": "a test ('is')",
    "IsNot": "a test ('is')",
    "Pow": "the operator '**'",
    "Subscript": "an index",
    "List": "a list",
    "Tuple": "a tuple",
    "Dict": "a map",
}
"""What templates do not allow, by the node of Python's syntax."""

KINDS: Mapping[str, tuple[str, str]] = {
    "spec": (
        "a spec",
        "a spec is a map with the keys summary, backends, function, inputs and expect",
    ),
    "defaults": (
        "a file of defaults",
        "defaults are a map with keys such as config, tags, context and prelude",
    ),
    "backends": (
        "a file of backends",
        "backends are a map by name: NAME: {summary: TEXT, device: cuda, proof: {graphs: "
        "{min: 1}}}",
    ),
    "claims": (
        "a file of claims",
        'claims are a map of types to operators: float32: [add, "nn.functional.*"]',
    ),
    "expected": (
        "a file of known gaps",
        "known gaps are a map of types to cells: float32: {by-aten: [sort], wrong: {erf: ISSUE}}",
    ),
    "rows": (
        "a file of rows",
        "rows are a list of values or of maps: [{m: 64, n: 8}, {m: 64, n: 16}]",
    ),
    "waivers": (
        "a waiver file",
        "write waivers: [{cases: GLOB, failure: {type: counter, match: TEXT}, reason: TEXT, "
        "issue: LINK or ID, until: 2027-03-01}]",
    ),
    "profile": (
        "a profile",
        "a profile is a map with the keys profile, version, summary, torch and levels: {P0: "
        "{required: [{cases: GLOB, backend: NAME}]}}",
    ),
    "conformance": (
        "a file of settings",
        "settings are a map with the keys paths, backends, waivers and profile: {paths: "
        "[specs], waivers: [waivers.yaml]}",
    ),
    "lab": (
        "the file of a lab",
        "a lab is a map with the keys lab and nodes: {NAME: {count: 1, vendor: nvidia, torch: "
        "2.13.0+cu130}}",
    ),
}
"""The kinds of files by their schemas: the kind with its article, and how such a file looks."""
