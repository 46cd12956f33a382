"""Keys of the matrix that change nothing of a case: the cases that they multiply would claim the same thing several times."""

from collections.abc import Iterator

from runner.core.diagnostics import Diagnostic
from runner.language.backends import Backends
from runner.language.check.python import PARAMS, keys_read
from runner.language.check.scope import references
from runner.language.read import substitution, templates
from runner.language.read.anatomy import Anatomy
from runner.language.read.matrix import REPEAT

_ONLY_TEXT = ("summary", "covers")
"""Sections that change nothing of what is run or judged."""


def unused_key_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Return the keys that no template, no Python and no reference reads."""
    keys = [key for key in anatomy.data.get("matrix", {}) if key != REPEAT]
    if not keys:
        return
    read = keys_read(anatomy)
    try:
        in_texts, in_templates = (set(_named_in_templates(anatomy.data, skip=skip)) for skip in ((), _ONLY_TEXT))
    except templates.TemplateError:
        return  # what cannot be read may name every key
    if read is None:
        return
    used = read | in_templates | {name.split(".")[1] for name in _references(anatomy) if name.startswith(f"{PARAMS}.")}
    if PARAMS in _references(anatomy):
        return
    for key in keys:
        if key not in used:
            where = "only its summary and covers name it" if key in in_texts else "nothing names it"
            message = f"the matrix key '{key}' changes nothing of its cases but their seed: {where}"
            place = f'write "{{{{ {key} }}}}" where its value belongs, or params.{key} in Python'
            hint = f"{place}; a key that only repeats its cases is called {REPEAT}"
            yield anatomy.document.problem(("matrix", key), message, hint, key=True)


def _named_in_templates(data: object, *, skip: tuple[str, ...]) -> Iterator[str]:
    for path, text in substitution.occurrences(data):
        if path[0] not in skip:
            yield from templates.parse(text).names


def _references(anatomy: Anatomy) -> set[str]:
    return {str(name) for _, name in references(anatomy.data, ())}
