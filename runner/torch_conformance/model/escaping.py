"""Escapes text of specs, workers, file names and the environment for terminals, CI logs and JUnit.

Pure.

Such text may contain terminal sequences, characters that hide or reorder others, and commands that
a CI system executes from a log. ``plain`` keeps line ends; ``line`` and ``one_line`` return one
line. Escapes are visible. Escaping an escaped text changes nothing.
"""

import itertools
import re
import unicodedata
from collections.abc import Iterable

MESSAGE_LIMIT = 500
"""The maximum length of a one-line message, in characters."""

# Patterns are compiled when they are first used: ``--help`` needs one of them.
_SEQUENCES = (
    r"\x1b\[[0-?]*[ -/]*[@-~]"  # colours, cursor moves
    r"|\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)"  # titles, links
    r"|\x1b[PX^_][^\x1b]*\x1b\\"  # device strings
    r"|\x1b[#%()*+./-][0-~]"  # character sets
    r"|\x1b[78=>cDEHMNOZ]"  # reset, save, index
)

# Printable for Python but without a glyph: joiners, Hangul fillers, variation selectors except text
# and emoji style.
_INVISIBLE = "[\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufe00-\ufe0d\U000e0100-\U000e01ef]"

_COMMAND_ANYWHERE = (
    r"(?i)#(?=#(?:vso|teamcity)?\[)"  # Azure Pipelines, GitHub's first form, TeamCity
    r"|\[(?=\[ATTACHMENT\|)"  # Jenkins and GitLab, in the output of a JUnit report
    r"|s(?=ection_(?:start|end):)"  # GitLab
    r"|t(?=ravis_(?:fold|time):)"
)
_PIECES = ("##", "[[", "_start:", "_end:", "_fold:", "_time:")
_ANY_PIECES = ("##", "[[", "_")
"""The same for other text than ASCII, whose letters may match those of a command."""
_COMMAND_AT_START = (
    r"(?m)^(?P<before>[^\S\n]*):(?=:)"  # GitHub: blanks may precede it
    r"|^(?P<first>[-+~^])(?=(?P=first){2}(?:\s|$))"  # Buildkite
)
_OWN = r"(\x1b\[[0-9;]*[mK]|\r)"


def plain(text: str) -> str:
    r"""Return ``text`` without terminal sequences.

    Other control characters become ``\x00`` or ``\ud800``, and CI commands are broken.
    """
    if "\x1b" in text:
        text = re.sub(_SEQUENCES, "", text)
    if "\r" in text:
        text = text.replace("\r\n", "\n").replace("\r", "\n")
    return without_commands("\n".join(map(_visible, text.split("\n"))))


def line(text: str) -> str:
    r"""Return ``text`` as one line of visible characters.

    All others are escaped, line ends as ``\n``.
    """
    return lines((text,))


def lines(texts: Iterable[str]) -> str:
    """Return ``line`` of each text, with a line end between them; for thousands of lines this is
    faster than one by one.
    """
    escaped = "\n".join(
        text
        if text.isprintable()
        else "".join(char if char.isprintable() else _escape(char) for char in text)
        for text in texts
    )
    return without_commands(_without_invisible(escaped))


def one_line(text: str, limit: int = MESSAGE_LIMIT) -> str:
    """Return ``text`` as plain text on one line, cut to ``limit`` characters."""
    text = without_commands(" ".join(plain(text).split()))  # joining lines may have made a command
    return text if len(text) <= limit else text[: max(limit - 3, 0)] + "..."


def visible_name(text: str) -> str:
    """Return a name as visible text; different names stay different."""
    return line(text.replace("\\", "\\x5c"))


def painted(text: str) -> str:
    """Return text with this program's own colours and carriage returns.

    Everything else is made plain.
    """
    parts = re.split(_OWN, text)
    parts[::2] = ["\n".join(map(_visible, part.split("\n"))) for part in parts[::2]]
    return without_commands("".join(parts))


def without_commands(text: str) -> str:
    """Return text without commands to CI systems."""
    # each command has one of a few pieces: ids and paths have an underscore, and the whole search
    # takes long
    lower = text.lower()
    if any(piece in lower for piece in (_PIECES if text.isascii() else _ANY_PIECES)):
        text = re.sub(_COMMAND_ANYWHERE, lambda match: _hex(match.group()), text)
    return re.sub(
        _COMMAND_AT_START,
        lambda match: _hex(match["first"]) if match["first"] else f"{match['before']}{_hex(':')}",
        text,
    )


def json_text(value: object) -> str:
    """Return a value as JSON that can be shown: ASCII, and no CI command within its strings.

    It reads back as the same value.
    """
    import json  # ``--help`` needs none

    text = json.dumps(value, indent=2, allow_nan=False, ensure_ascii=True).replace(
        "\x7f", "\\u007f"
    )
    return re.sub(_COMMAND_ANYWHERE, lambda match: f"\\u{ord(match.group()):04x}", text)


def _visible(text: str) -> str:
    if not text.isprintable():
        text = "".join(
            char
            if char.isprintable() or char == "\t" or unicodedata.category(char) == "Zs"
            else _escape(char)
            for char in text
        )
    return _without_invisible(text)


def _without_invisible(text: str) -> str:
    if text.isascii():
        return text
    return re.sub(_INVISIBLE, lambda match: _escape(match.group()), text)


def _escape(char: str) -> str:
    short = {"\n": "\\n", "\t": "\\t", "\r": "\\r"}.get(char)
    if short:
        return short
    code = ord(char)
    return (
        f"\\x{code:02x}"
        if code < 0x100
        else f"\\u{code:04x}"
        if code < 0x10000
        else f"\\U{code:08x}"
    )


def _hex(char: str) -> str:
    return f"\\x{ord(char):02x}"


def headline(text: str) -> str:
    """Return the first line of a message; after lines that only announce another, such as
    "backend='inductor' raised:", also that one.
    """
    lines = [line.split() for line in text.splitlines() if line.strip()]
    announcing = itertools.takewhile(lambda words: words[-1].endswith(":"), lines)
    return " ".join(word for words in lines[: len(list(announcing)) + 1] for word in words)[:500]


def counted(number: int, noun: str) -> str:
    """Return a number with what it counts: ``2 cases``."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
