"""Texts to look for that are so general that they are found anywhere: they say nothing of the text in which they are found."""

import re
import string
from collections.abc import Sequence

from runner.model.matching.filecheck import CheckFile, passes
from runner.model.matching.patterns import is_unspecific, search
from runner.model.matching.time_limit import PatternTooSlow

_CHARACTERS = [character for character in string.printable if not character.isspace()]

ANYTHING = (" ".join(_CHARACTERS), "\n".join(_CHARACTERS))
"""Every printable character, none beside another: what matches here describes a character, and every long text has that."""

_SPECIFIC = re.compile(r"\w\w|[^\x00-\x7f]|.\S.{3}", re.DOTALL)


def is_general(part: str) -> bool:
    """Whether a part of a text is short, and has no two letters or digits beside each other."""
    return _SPECIFIC.search(part.strip()) is None


def is_general_pattern(pattern: str) -> bool:
    """Whether a regular expression matches a character alone, or texts without a common character."""
    return finds(pattern, ANYTHING) or is_unspecific(pattern)


def are_general(checks: CheckFile, texts: Sequence[str] = ANYTHING) -> bool:
    """Whether FileCheck directives pass on one of some texts that have nothing to do with them."""
    try:
        return any(passes(checks, text) for text in texts)
    except PatternTooSlow:
        return False


def finds(pattern: str, texts: Sequence[str]) -> bool:
    """Whether a regular expression matches one of some texts. One that exceeds its time limit does not."""
    try:
        return any(search(pattern, text, seconds=1.0) is not None for text in texts)
    except PatternTooSlow:
        return False
