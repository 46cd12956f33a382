"""Checks for unused matrix keys: the cases of such a key would test the same thing several times."""

import contextlib
import re
from collections.abc import Iterator

from runner.core.diagnostics import Diagnostic
from runner.language.backends import Backends
from runner.language.check.python import PARAMS, keys_read
from runner.language.check.scope import references
from runner.language.expand.operators import KEYS
from runner.language.read import substitution, templates
from runner.language.read.anatomy import SOURCE, Anatomy
from runner.language.read.matrix import REPEAT

_ONLY_TEXT = ("summary", "covers")
"""Sections with no influence on the run and its judgement."""


def unused_key_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of keys that no template, Python or reference uses."""
    # source_problems refuses a key of the source, and a template in the source
    others = {REPEAT, *(KEYS if SOURCE in anatomy.data else ())}
    keys = [key for key in anatomy.data.get("matrix", {}) if key not in others]
    if not keys:
        return
    read = keys_read(anatomy)
    try:
        in_texts, in_templates = (set(_named_in_templates(anatomy.data, skip=skip)) for skip in ((), _ONLY_TEXT))
    except templates.TemplateError:
        return  # an invalid template may use every key
    if read is None:
        return
    of_source = {name for _, text in substitution.templates_below(anatomy.data.get(SOURCE), (SOURCE,)) for name in _names(text)}
    used = read | in_templates | of_source | {name.split(".")[1] for name in _references(anatomy) if name.startswith(f"{PARAMS}.")}
    if PARAMS in _references(anatomy):
        return
    for key in keys:
        if key not in used:
            where = "only summary and covers use it" if key in in_texts else "nothing uses it"
            if key in set(_named_in_patterns(anatomy.data)):
                where += ", because a regular expression or a FileCheck directive takes no template"
            message = f"the matrix key '{key}' changes nothing but the seed of its cases: {where}"
            place = f'write "{{{{ {key} }}}}" in place of its value, or params.{key} in Python'
            hint = f"{place}; to only repeat cases, name the key {REPEAT}"
            yield anatomy.document.problem(("matrix", key), message, hint, key=True)


def _named_in_templates(data: object, *, skip: tuple[str, ...]) -> Iterator[str]:
    for path, text in substitution.occurrences(data):
        if path[0] not in skip:
            yield from templates.parse(text).names


def _named_in_patterns(data: object) -> Iterator[str]:
    for text in substitution.patterns(data):
        for found in _TEMPLATE.findall(text):
            yield from _names(f"{{{{{found}}}}}")


_TEMPLATE = re.compile(r"\{\{(.+?)\}\}")


def _names(text: str) -> Iterator[str]:
    with contextlib.suppress(templates.TemplateError):
        yield from templates.parse(text).names


def _references(anatomy: Anatomy) -> set[str]:
    return {str(name) for _, name in references(anatomy.data, ())}
