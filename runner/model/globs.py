"""Globs over the ids of cases: only ``*`` and ``?`` are special, so that an id matches itself."""

import re


def glob(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob over ids."""
    pieces = [{"*": ".*", "?": "."}.get(character) or re.escape(character) for character in pattern]
    return re.compile("".join(pieces), re.DOTALL)
