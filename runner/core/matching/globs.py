"""Globs over ids: only ``*`` and ``?`` are special, so that an id matches itself."""

import functools
import re


@functools.lru_cache(maxsize=4096)
def glob(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob over ids."""
    pieces = [{"*": ".*", "?": "."}.get(character) or re.escape(character) for character in pattern]
    return re.compile("".join(pieces), re.DOTALL)
