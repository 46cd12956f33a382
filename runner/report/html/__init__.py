"""The HTML report: one page, with an index and chunks of cases beside it. It works from a file, without a network.

Everything from a run is hostile text. It travels as JSON within script files, and the page's own script puts it into the document as text
only, never as markup. The template has the few words that are there without a script; Jinja2 escapes them.

``page_data`` has what the page shows (the index, the run, chunks of cases); ``writing`` writes the files, in a new folder that replaces the
former one.

A page from a file may not fetch files, but it may load scripts; each calls ``conformance(NAME, TEXT)`` with JSON.
"""

import functools
import json

from runner.model.escaping import plain

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
