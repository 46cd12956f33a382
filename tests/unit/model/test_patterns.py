"""A pattern that does not end is interrupted, wherever it runs; POSIX expressions mean in Python
what they mean in POSIX.
"""

import random
import re
import signal
import string
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from torch_conformance.matching.filecheck import parse
from torch_conformance.matching.filecheck.directives import BadPattern, from_posix
from torch_conformance.matching.patterns import (
    are_general,
    check_pattern,
    is_general_pattern,
    search,
)
from torch_conformance.matching.time_limit import PatternTooSlow, time_limit
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.expectation_base import BadExpectation

CATASTROPHES = [
    (r"(a+)+$", "a" * 40 + "b"),
    (r"(a|a)*b", "a" * 60),
    (r"(.*)*x", "a" * 60),
    (r"(x+x+)+y", "x" * 60),
    (r"(a*?)*?b", "a" * 60),
    (r".*.*.*.*.*=", "a" * 3000),
    (r"[ab]*[ab]*[ab]*[ab]*c", "ab" * 2000),
    (r"(?s).*?.*?.*?.*?zz", "q" * 3000),
    (r"(?<=(a)|b)(?:a*)*c", "a" * 60),
]
"""Each takes hours: nested, alternative, lazy and merely many repetitions."""


@pytest.fixture(autouse=True)
def no_alarm_is_left() -> Iterator[None]:
    """Whatever a test does, handler and timer are afterwards what they were before."""
    handler = signal.getsignal(signal.SIGALRM)
    yield
    assert signal.getsignal(signal.SIGALRM) is handler
    assert signal.getitimer(signal.ITIMER_REAL) == (0.0, 0.0)


def in_a_thread(work: Callable[[], object]) -> object:
    """Return what ``work`` returns or raises in a thread that is not the main one."""
    answers: list[object] = []

    def body() -> None:
        try:
            answers.append(work())
        except (PatternTooSlow, RuntimeError, re.error) as problem:
            answers.append(problem)

    thread = threading.Thread(target=body)
    thread.start()
    thread.join(timeout=60)
    return answers[0]


def burn(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


def hang() -> None:
    re.search(*CATASTROPHES[0])


# search


def test_search_finds_and_does_not_find() -> None:
    found = search(r"b(\d)", "ab1")
    assert found is not None
    assert (found.span(), found[1]) == ((1, 3), "1")
    assert search("x", "ab1") is None


@pytest.mark.parametrize(("pattern", "text"), CATASTROPHES)
def test_slow_search_is_interrupted(pattern: str, text: str) -> None:
    start = time.monotonic()
    with pytest.raises(
        PatternTooSlow, match=r"^pattern too slow: no answer within 0\.1 s$"
    ) as caught:
        search(pattern, text, seconds=0.1)
    assert caught.value.seconds == 0.1
    assert time.monotonic() - start < 60


# time_limit


def test_a_limit_in_another_thread_is_refused() -> None:
    def limited() -> None:
        with time_limit(1):
            pass

    problem = in_a_thread(limited)
    assert isinstance(problem, RuntimeError)
    assert str(problem) == "a time limit can be set only in the main thread"


def test_inner_limit_fires_first_and_outer_continues() -> None:
    ended: list[float] = []

    def hang_twice() -> None:
        try:
            search(*CATASTROPHES[0], seconds=0.1)
        except PatternTooSlow as problem:
            ended.append(problem.seconds)
        hang()

    with pytest.raises(PatternTooSlow, match=r"0\.4 s"), time_limit(0.4):
        hang_twice()
    assert ended == [0.1]


def test_the_outer_limit_ends_first() -> None:
    start = time.monotonic()
    with pytest.raises(PatternTooSlow, match=r"0\.1 s"), time_limit(0.1), time_limit(600):
        hang()
    assert time.monotonic() - start < 60


@pytest.fixture
def rings() -> Iterator[list[float]]:
    """A handler and timer of someone else; what it heard, and when."""
    heard: list[float] = []

    def handler(signum: int, frame: FrameType | None) -> None:
        heard.append(time.monotonic())

    former = signal.signal(signal.SIGALRM, handler)
    yield heard
    signal.setitimer(signal.ITIMER_REAL, 0)
    signal.signal(signal.SIGALRM, former)


def test_replaced_timer_is_restored_with_remaining_time(rings: list[float]) -> None:
    begun = time.monotonic()
    signal.setitimer(signal.ITIMER_REAL, 1000, 7)
    with time_limit(500):
        burn(0.2)
    left, interval = signal.getitimer(signal.ITIMER_REAL)
    assert 1000 - (time.monotonic() - begun) - 0.05 < left < 999.85
    assert interval == 7
    assert rings == []


# check_pattern


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a(b", "missing ), unterminated subpattern at offset 1"),
        ("a)", "unbalanced parenthesis at offset 1"),
        ("ab*+*", "multiple repeat at offset 4"),
        ("*", "nothing to repeat at offset 0"),
        ("[z-a]", "bad character range z-a at offset 1"),
        ("a\\", "bad escape (end of pattern) at offset 1"),
        ("(?P<x>a)(?P<x>b)", "redefinition of group name 'x' as group 2; was group 1 at offset 12"),
        ("(?<=a+)b", "look-behind requires fixed-width pattern"),
        ("a\n(b", "missing ), unterminated subpattern at offset 2"),
        ("x[[a]", "possible nested set at offset 2: escape it with a backslash"),
        ("(" * 5000 + ")" * 5000, "nested too deep at offset 0"),
        ("a{99999999999999999999}", "the repetition number is too large at offset 0"),
    ],
)
def test_bad_pattern(pattern: str, reason: str) -> None:
    assert check_pattern(pattern) == reason
    assert check_pattern(pattern) == reason


# from_posix


def matches(expression: str, text: str) -> bool:
    return re.fullmatch(from_posix(expression).python, text, re.MULTILINE) is not None


@pytest.mark.parametrize(
    ("expression", "yes", "no"),
    [
        ("a.c", ["abc", "a.c"], ["ac", "a\nc"]),
        (r"a\.c", ["a.c"], ["abc"]),
        ("ab|cd", ["ab", "cd"], ["abd", "ad"]),
        ("a(b|c)+d", ["abd", "abcbd"], ["ad"]),
        ("ab*c?d+", ["ad", "abbcdd"], ["abc"]),
        ("a{2}b{1,}c{0,2}", ["aab", "aabbcc"], ["ab", "aaccc"]),
        ("a{,2}", ["a{,2}"], ["a", "aa"]),
        ("a{b}", ["a{b}"], ["ab"]),
        ("{", ["{"], [""]),
        ("a}]", ["a}]"], ["a"]),
        ("[abc]+", ["cab"], ["d", ""]),
        ("[^abc]", ["d", "^"], ["a", "\n"]),
        ("[a^]", ["a", "^"], ["b"]),
        ("[]a]+", ["]a"], ["\\"]),
        ("[^]a]", ["b", "["], ["]", "a"]),
        ("[-a]+", ["-a"], ["b"]),
        ("[a-]+", ["-a"], ["b"]),
        ("[a-c-]+", ["b-"], ["d"]),
        (r"[\]", ["\\"], ["]"]),
        (r"[\.]+", ["\\."], ["a"]),
        ("[a[]+", ["[a"], ["]"]),
        ("[[:digit:]a-c_]+", ["1b_"], ["d", "[:"]),
        ("[^[:alpha:]]", ["1", " "], ["a", "\n"]),
        ("[[:space:]]", [" ", "\n", "\t", "\r", "\f", "\v"], ["a", "\u00a0"]),
        ("[+--]+", ["+,-"], ["."]),
        ("[a&&~~||--b]".replace("--", ""), ["&", "~", "|"], ["-"]),
        ("a b#", ["a b#"], ["ab"]),
        ("^a$", ["a"], ["ab"]),
        (r"\^\$\(\)\[\]\{\}\*\+\?\|\\", ["^$()[]{}*+?|\\"], [""]),
        ("é", ["é"], ["e"]),
    ],
)
def test_posix_expression(expression: str, yes: list[str], no: list[str]) -> None:
    assert [text for text in yes if not matches(expression, text)] == []
    assert [text for text in no if matches(expression, text)] == []


@pytest.mark.parametrize(
    ("expression", "offset", "message", "hint"),
    [
        ("", 0, "empty expression", ""),
        ("a|", 2, "empty expression", ""),
        ("|a", 0, "empty expression", ""),
        ("a||b", 2, "empty expression", ""),
        ("a()", 2, "empty expression", ""),
        ("a(b", 1, "parenthesis without its end", ""),
        ("a)b", 1, "parenthesis without its beginning", r"to match the character write \)"),
        ("*a", 0, "'*' has nothing to repeat", r"to match the character write \*"),
        ("a|+b", 2, "'+' has nothing to repeat", r"to match the character write \+"),
        ("^*", 1, "'*' has nothing to repeat", r"to match the character write \*"),
        ("a*?", 2, "'?' has nothing to repeat", "there is no lazy or doubled repetition"),
        ("a++", 2, "'+' has nothing to repeat", "there is no lazy or doubled repetition"),
        ("a{2}{3}", 4, "'{' has nothing to repeat", "there is no lazy or doubled repetition"),
        ("(?:a)", 1, "'?' has nothing to repeat", "there are no (?...) groups"),
        ("a{2", 1, "brace without its end", "a count before }} needs parentheses: {{(a{2})}}"),
        ("a{2,b}", 1, "brace without its end", "a count before }} needs parentheses: {{(a{2})}}"),
        ("a{3,2}", 1, "counts go from 0 to 255, the smaller one first", ""),
        ("a{256}", 1, "counts go from 0 to 255, the smaller one first", ""),
        ("a{1,256}", 1, "counts go from 0 to 255, the smaller one first", ""),
        ("a\\", 1, "backslash at the end", ""),
        (r"\d", 0, r"\d means the letter d here", "write [0-9]"),
        (r"a\s", 1, r"\s means the letter s here", "write [[:space:]]"),
        (r"\w", 0, r"\w means the letter w here", "write [[:alnum:]_]"),
        (r"\n", 0, r"\n means the letter n here", "a newline is in [[:space:]]"),
        (r"\bx", 0, r"\b means the letter b here", "to match the letter write b"),
        (r"(a)\1", 3, r"no numbered reference \1", "name it: [[NAME:...]], then [[NAME]]"),
        ("a[b", 1, "bracket without its end", ""),
        ("[]", 0, "bracket without its end", ""),
        ("[a-", 0, "bracket without its end", ""),
        ("[z-a]", 4, "the range z-a is reversed", ""),
        ("[a-c-e]", 4, "a range without its beginning", "put - first or last"),
        ("[[:foo:]]", 1, "unknown character class", "known: alnum, alpha, blank"),
        ("[[:alpha]]", 1, "unknown character class", "known: alnum, alpha, blank"),
        ("[[.a.]]", 1, "[. .] is not supported", ""),
        ("[[=a=]]", 1, "[= =] is not supported", ""),
        (r"[\d]", 1, "within brackets a backslash is literal", "write [0-9]"),
        (r"[^\n]", 2, "within brackets a backslash is literal", "a newline is in [[:space:]]"),
        ("(" * 51 + "a" + ")" * 51, 50, "groups nested too deep", ""),
    ],
)
def test_bad_posix_expression(expression: str, offset: int, message: str, hint: str) -> None:
    with pytest.raises(BadPattern) as caught:
        from_posix(expression)
    assert (caught.value.offset, caught.value.message) == (offset, message)
    assert caught.value.hint.startswith(hint)
    assert bool(hint) == bool(caught.value.hint)


ASCII = [chr(code) for code in range(128)]
GRAPH = set(string.ascii_letters + string.digits + string.punctuation)


@pytest.mark.parametrize(
    ("name", "members"),
    [
        ("alnum", set(string.ascii_letters + string.digits)),
        ("alpha", set(string.ascii_letters)),
        ("blank", set(" \t")),
        (
            "cntrl",
            {character for character in ASCII if ord(character) < 32 or ord(character) == 127},
        ),
        ("digit", set(string.digits)),
        ("graph", GRAPH),
        ("lower", set(string.ascii_lowercase)),
        ("print", GRAPH | {" "}),
        ("punct", set(string.punctuation)),
        ("space", set(" \t\n\r\f\v")),
        ("upper", set(string.ascii_uppercase)),
        ("xdigit", set(string.hexdigits)),
    ],
)
def test_character_class(name: str, members: set[str]) -> None:
    assert {character for character in ASCII if matches(f"[[:{name}:]]", character)} == members
    assert {character for character in ASCII if matches(f"[^[:{name}:]]", character)} == set(
        ASCII
    ) - members - {"\n"}


@pytest.mark.parametrize(
    ("expression", "spans"),
    [
        ("[[:space:]]", True),
        ("[[:cntrl:]]", True),
        ("[\t-z]", True),
        ("[^a]", False),
        ("[^[:space:]]", False),
        (".", False),
        ("[[:blank:]]", False),
    ],
)
def test_whether_a_match_may_hold_a_newline(expression: str, spans: bool) -> None:
    assert from_posix(expression).spans_lines == spans


def test_translated_patterns_compile() -> None:
    draw = random.Random(7)
    translated = 0
    for _ in range(20_000):
        expression = "".join(draw.choices("ab.|()[]^-$*+?{}12,\\:=", k=draw.randint(1, 9)))
        try:
            python = from_posix(expression).python
        except BadPattern:
            continue
        translated += 1
        re.compile(python, re.MULTILINE)
    assert translated > 2000


# -- what is looked for in a text and found in any text is refused ---------------------------------


@pytest.mark.parametrize(
    ("general", "patterns"),
    [
        (True, ["e", ".", ".+", "[a-z]", r"\w+", r"\d+", r"\S", "a|woof", r"\w\w", "[^x]+"]),
        (
            False,
            [
                "woof",
                r"^\d+ kernels$",
                "size=.4.",
                "(size|dtype) mismatch",
                r"at .5.: 0\.0",
                "(a+)+$b",
            ],
        ),
    ],
)
def test_a_pattern_without_a_word_is_general(general: bool, patterns: list[str]) -> None:
    assert {pattern: is_general_pattern(pattern) for pattern in patterns} == dict.fromkeys(
        patterns, general
    )


@pytest.mark.parametrize(
    ("general", "texts"),
    [
        (
            True,
            [
                "CHECK: e",
                "CHECK: {{.*e.*}}",
                "CHECK: a\nCHECK: b",
                "CHECK: (\nCHECK-NOT: woof",
                "CHECK: {{[0-9]}}",
            ],
        ),
        (
            False,
            [
                "CHECK: mm",
                "CHECK: a\nCHECK: relu",
                "CHECK: def {{.*}}(",
                "CHECK: {{add|sub}}",
                "CHECK: buf0 = a",
            ],
        ),
    ],
)
def test_directives_that_name_nothing_are_general(general: bool, texts: list[str]) -> None:
    assert {checks: are_general(parse(checks)) for checks in texts} == dict.fromkeys(texts, general)


@pytest.mark.parametrize(
    ("kind", "body", "path"),
    [
        ("log", {"contains": "e"}, ("contains",)),
        ("log", {"contains": ["woof", "."]}, ("contains", 1)),
        ("log", {"contains": "woof", "matches": "."}, ("matches",)),
        ("exit", {"nonzero": True, "stderr": "e"}, ("stderr",)),
        ("exit", {"code": 1, "stderr": ["woof", ":"]}, ("stderr", 1)),
        ("filecheck", "CHECK: e", ()),
        ("filecheck", {"code": "all", "checks": "CHECK: ="}, ("checks",)),
        ("graph", {"stage": "joint", "checks": "CHECK: e"}, ("checks",)),
        ("graph_breaks", {"reason": {"contains": "a"}}, ("reason", "contains")),
    ],
)
def test_the_expectation_is_refused_at_its_place(kind: str, body: Any, path: Any) -> None:
    with pytest.raises(BadExpectation, match="cannot fail") as caught:
        EXPECTATIONS[kind].parse(body)
    assert caught.value.path == path
    assert caught.value.hint


def test_a_value_may_have_one_character() -> None:
    assert EXPECTATIONS["text"].parse({"of": "found", "contains": "1"})
    assert EXPECTATIONS["exit"].parse({"code": 0, "stdout": "7"})
