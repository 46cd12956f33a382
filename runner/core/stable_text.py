"""Recorded texts without the words that differ from run to run: of generated code and graphs. Pure."""

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
