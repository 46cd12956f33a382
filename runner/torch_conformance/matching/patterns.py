"""Regular expressions from specs: checked before use, and searched with a time limit.

Two faults of a pattern are reported badly by ``re``: it does not compile, or it backtracks
for hours. All judging by patterns uses this module. Recorded texts are made comparable here too:
what differs from run to run is left out of lines, and open in patterns of them.
"""

import difflib
import functools
import re
import string
import warnings
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

from torch_conformance.matching.filecheck import CheckFile, parse_tree, passes
from torch_conformance.matching.time_limit import PatternTooSlow, time_limit

_ALL_SEARCHES = 5.0
"""In seconds: the limit of all searches that find out whether a pattern is unspecific."""

_LENGTHS = (0, 1, 9, 40, 120, 350, 2500)

_UNRELATED = (
    "kqxzj",
    "wvyhb",
    "KQXZJ",
    "WVYHB",
    "80",
    "97",
    "~^`",
    "@#&",
    "\u03b6\u03be\u03c8",
    "\u0416\u0429\u042d",
    "m P 3 %\n",
    "f\tR\t5\t!",
)
"""Texts without common characters."""


def check_pattern(pattern: str) -> str | None:
    """Return None if Python's ``re`` compiles the pattern, otherwise the reason on one line."""
    try:
        with warnings.catch_warnings():
            # Python warns of syntax that will change its meaning (a set within a set): it is
            # rejected.
            warnings.simplefilter("error")
            re.compile(pattern)
    except re.error as problem:
        return f"{problem.msg} at offset {problem.pos}" if problem.pos is not None else problem.msg
    except Warning as problem:
        return (
            f"{str(problem).replace(' at position ', ' at offset ').lower()}: escape it with a "
            "backslash"
        )
    except RecursionError:
        return "nested too deep at offset 0"
    except OverflowError as problem:
        return f"{problem} at offset 0"
    return None


@functools.cache
def _filled(frames: tuple[str, ...]) -> list[list[str]]:
    """Return each frame with unrelated texts of one length in its variable parts, for each
    length.
    """
    fillings = [
        [(characters * length)[:length] for characters in _UNRELATED] for length in _LENGTHS
    ]
    return [
        [frame.replace("{0}", text).replace("{1}", text) for text in group]
        for frame in frames
        for group in fillings
    ]


@functools.cache
def _literal(pattern: re.Pattern[str]) -> str:
    """Return the longest text that every match contains, as the pattern shows it outside of all
    groups.
    """
    parts: list[str] = [""]
    for kind, value in parse_tree(pattern.pattern) if not pattern.flags & re.IGNORECASE else ():
        parts[-1:] = [parts[-1] + chr(value)] if str(kind) == "LITERAL" else [parts[-1], ""]
    return max(parts, key=len)


@functools.cache
def is_unspecific(pattern: str, frames: Iterable[str] = ("{0}",)) -> bool:
    """Whether a pattern matches two texts of one frame and length without a common character, so
    that it describes no particular text.

    Each of ``frames``, a tuple, is a text with ``{0}`` and ``{1}`` in place of the two variable
    parts. A pattern that matches only the fixed text of a frame is unspecific too. A pattern that
    exceeds its time limit counts as specific.
    """
    compiled = re.compile(pattern)
    literal = _literal(
        compiled
    )  # most patterns have one that no text has: that is found out faster than by a search
    try:
        # one time limit covers all searches: to set and restore a timer costs more than such a
        # search
        with time_limit(_ALL_SEARCHES):
            return any(
                sum(literal in text and compiled.search(text) is not None for text in texts) > 1
                for texts in _filled(tuple(frames))
            )
    except PatternTooSlow:
        return False


def search(pattern: str, text: str, *, seconds: float = 5.0) -> re.Match[str] | None:
    """Search like ``re.search``, in the main thread; raise ``PatternTooSlow`` after ``seconds``."""
    with time_limit(seconds):
        return re.search(pattern, text)


def glob(pattern: str) -> re.Pattern[str]:
    """Return the regular expression of a glob over ids.

    Only ``*`` and ``?`` are special, so that an id matches itself.
    """
    return re.compile(re.escape(pattern).replace(r"\*", ".*").replace(r"\?", "."), re.DOTALL)


_WORD = re.compile(r"\w+")
_WHOLE_WORD = re.compile(r"(?<![\w*?])\w+(?![\w*?])")
"""A word of a glob that every id has which the glob matches."""


class Ids:
    """Ids that many globs are matched with.

    An index of their words leaves a glob few candidates: there are tens of thousands of ids.
    """

    def __init__(self, ids: Iterable[str]) -> None:
        self.ids = tuple(ids)

    @functools.cached_property
    def _by_word(self) -> Mapping[str, Sequence[str]]:
        by_word = defaultdict(list)
        for case_id in self.ids:
            for word in set(_WORD.findall(case_id)):
                by_word[word].append(case_id)
        return dict(by_word)

    def matching(self, pattern: str) -> list[str]:
        """Return the ids that a glob matches."""
        words = _WHOLE_WORD.findall(pattern)
        candidates = (
            min((self._by_word.get(word, ()) for word in words), key=len) if words else self.ids
        )
        matches = glob(pattern).fullmatch
        return [case_id for case_id in candidates if matches(case_id)]

    def nearest(self, pattern: str) -> str:
        """Return an id with many words of a glob, or words like them; words that ids have count
        first, and of these rare ones.
        """
        by_word, words = self._by_word, []
        for word in _WORD.findall(pattern):
            near = [word] if word in by_word else difflib.get_close_matches(word, by_word, n=1)
            words += [(word not in by_word, len(by_word[other]), other) for other in near]
        nearest: Sequence[str] = self.ids
        for number, (_, _, word) in enumerate(sorted(words)):
            nearest = (
                [case_id for case_id in nearest if word in case_id] or nearest
                if number
                else by_word[word]
            )
        return nearest[0]


_CHARACTERS = [character for character in string.printable if not character.isspace()]

ANYTHING = (" ".join(_CHARACTERS), "\n".join(_CHARACTERS))
"""Every printable character, none next to another: what matches here describes a character, and
every long text has that.
"""

_SPECIFIC = re.compile(r"\w\w|[^\x00-\x7f]|.\S.{3}", re.DOTALL)


def is_general(part: str) -> bool:
    """Whether a part of a text is short, and has no two letters or digits next to each other."""
    return _SPECIFIC.search(part.strip()) is None


def is_general_pattern(pattern: str) -> bool:
    """Whether a regular expression matches a single character, or texts without a common
    character.
    """
    return finds(pattern, ANYTHING) or is_unspecific(pattern)


def are_general(checks: CheckFile, texts: Sequence[str] = ANYTHING) -> bool:
    """Whether FileCheck directives pass on one of some texts that have nothing to do with them."""
    try:
        return any(passes(checks, text) for text in texts)
    except PatternTooSlow:
        return False


def finds(pattern: str, texts: Sequence[str]) -> bool:
    """Whether a regular expression matches one of some texts.

    One that exceeds its time limit does not.
    """
    try:
        return any(search(pattern, text, seconds=1.0) is not None for text in texts)
    except PatternTooSlow:
        return False


# -- texts that differ from run to run -------------------------------------------------------------

_VOLATILE = re.compile(
    r"0x[0-9a-fA-F]{4,}"  # addresses
    # addresses as Inductor writes those of constants
    r"|\b(?:7[ef]|5[56](?=[0-9]*[a-f]))[0-9a-f]{10}\b"
    # paths: of caches, scratch folders, packages
    r"|(?:\.\.\.|(?<![\w.]))/(?:[\w.+@-]+/)+[\w.+@-]*"
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
    """Return a regular expression for a message: its first line, with what differs from run to run
    left open.
    """
    line = next(iter(message.splitlines()), "")
    pattern, end = "", 0
    for match in _MEASURED.finditer(line):
        if match.end() > LONGEST_PATTERN:
            break
        pattern += re.escape(line[end : match.start()])
        address, path, number, _, _ = match.groups()
        pattern += (
            "0x[0-9a-f]+"
            if address
            else r"\S+"
            if path
            else f"{re.escape(number)}[0-9]*"
            if number
            else "[0-9]+"
        )
        end = match.end()
    rest = (
        line[end:]
        if len(line) <= LONGEST_PATTERN
        else line[end : max(line.rfind(" ", 0, LONGEST_PATTERN), end)]
    )
    return (pattern + re.escape(rest)).replace("\\ ", " ")
