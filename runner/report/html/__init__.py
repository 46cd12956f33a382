"""The HTML report: one page, with an index and chunks of cases beside it. It works from a file, without a network.

Everything from a run is hostile text. It travels as JSON within script files, and the page's own script puts it into the document as text
only, never as markup. The template has the few words that are there without a script; Jinja2 escapes them.

| module     | makes                                                                                              |
|------------|----------------------------------------------------------------------------------------------------|
| ``writing``  | the files, in a new folder that then replaces the former one; the listener                         |
| ``cases``    | chunks with what the page of a case shows, also of a case's own files, and the text of the specs   |
| ``overview`` | the index, by which the page filters; the page of the run; the timeline                            |

A page from a file may not fetch files, but it may load scripts; each calls ``conformance(NAME, TEXT)`` with JSON.
"""

import functools
import json

from runner.core.escaping import plain

_ESCAPES = str.maketrans({"\\": "\\\\", "'": "\\x27", "<": "\\x3c", ">": "\\x3e", "&": "\\x26", "\x7f": "\\x7f"})
"""Of ASCII text within a JavaScript string in single quotes."""


def script(name: str, value: object) -> bytes:
    """Return a script that hands a value to the page: ASCII, one line, with nothing that could end a script or begin markup."""
    text = json.dumps(value, ensure_ascii=True, allow_nan=False, separators=(",", ":"))
    return f"conformance('{name}','{text.translate(_ESCAPES)}');\n".encode("ascii")


@functools.lru_cache(maxsize=1 << 16)
def shown(text: str) -> str:
    """Return hostile text with visible escapes for what hides or reorders characters."""
    return plain(text)


def clipped(text: str, limit: int) -> str:
    """Return a text, at most ``limit`` characters of it: its beginning, and how much is left out."""
    return text if len(text) <= limit else f"{text[:limit]}\n... {len(text) - limit} more characters are left out ..."


def clipped_end(text: str, limit: int) -> str:
    """Return the last ``limit`` characters of a text, and how much is left out before them."""
    return text if len(text) <= limit else f"... {len(text) - limit} characters before this are left out ...\n{text[-limit:]}"


class Strings:
    """A table of the different strings of a chunk, the empty one first. Cases of one spec share most of their words."""

    def __init__(self) -> None:
        self._numbers = {"": 0}

    def of(self, text: str) -> int:
        """Return the number of a string; the page sees it with visible escapes."""
        return self._numbers.setdefault(text, len(self._numbers))

    def table(self) -> list[str]:
        """Return the strings by number."""
        return [shown(text) for text in self._numbers]
