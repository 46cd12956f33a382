"""Recorded texts without the words that differ from run to run: of generated code, graphs and messages. Pure."""

import re

_VOLATILE = re.compile(
    r"0x[0-9a-fA-F]{4,}"  # addresses
    r"|\b(?:7[ef]|5[56](?=[0-9]*[a-f]))[0-9a-f]{10}\b"  # addresses as Inductor writes those of constants
    r"|(?:\.\.\.|(?<![\w.]))/(?:[\w.+@-]+/)+[\w.+@-]*"  # paths: of caches, scratch folders, packages
    r"|\bc[a-z2-7]{51}\b"  # Inductor's names of cached files
    r"|\b[0-9a-f]{40,64}\b|\b[0-9A-F]{64}\b|\b[A-Z2-7]{52}\b"  # digests
)


def stable_lines(text: str) -> list[str]:
    """Return the lines of a text with one word in the place of whatever differs from run to run."""
    return [_VOLATILE.sub("<run>", line) for line in text.splitlines()]


LONGEST_PATTERN = 240
"""Characters of a message that a pattern, or a reason, keeps; both end with a whole word."""

_MEASURED = re.compile(r"(0x[0-9a-fA-F]+)|((?:/[\w.+-]+){2,})|([-+]?\d+\.\d)(\d+)|(\d{5,})")
"""What differs in a message: addresses, paths, the last digits of measured numbers, process ids."""


def pattern_of(message: str) -> str:
    """Return a regular expression for a message: its first line, with what differs from run to run left open."""
    line = next(iter(message.splitlines()), "")
    pattern, end = "", 0
    for match in _MEASURED.finditer(line):
        if match.end() > LONGEST_PATTERN:
            break
        pattern += re.escape(line[end : match.start()])
        address, path, number, _, _ = match.groups()
        pattern += "0x[0-9a-f]+" if address else r"\S+" if path else f"{re.escape(number)}[0-9]*" if number else "[0-9]+"
        end = match.end()
    rest = line[end:] if len(line) <= LONGEST_PATTERN else line[end : max(line.rfind(" ", 0, LONGEST_PATTERN), end)]
    return (pattern + re.escape(rest)).replace("\\ ", " ")
