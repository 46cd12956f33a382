"""Directives of FileCheck, and their parser.

Lines that LLVM would ignore and probable typing errors are errors.

A pattern is text, ``{{expressions}}`` (POSIX extended ones in the dialect of LLVM, which Python
matches) and ``[[VARIABLES]]``.
"""

import re
import string
from collections.abc import Mapping, Sequence
from enum import Enum
from typing import NamedTuple
from unicodedata import category

from torch_conformance.model.diagnostics import did_you_mean
from torch_conformance.model.values import frozen

# -- POSIX expressions -----------------------------------------------------------------------------

_NESTING = 50
"""The maximum depth of groups, so that no pattern exhausts the stack of ``re``'s parser."""

_REPETITIONS = 255
"""The maximum of POSIX for ``{n}``."""


class BadPattern(ValueError):
    """An invalid POSIX expression; ``offset`` counts from 0."""

    def __init__(self, message: str, offset: int, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.offset = offset
        self.hint = hint


class PosixPattern(NamedTuple):
    """A POSIX extended expression as a Python expression, for ``re.MULTILINE``."""

    python: str
    ambiguous: bool
    """Whether matches with one start may have several ends: POSIX takes the longest, Python may
    not.
    """
    spans_lines: bool
    """Whether a match may contain a newline."""


_CLASSES = {
    "alnum": "a-zA-Z0-9",
    "alpha": "a-zA-Z",
    "blank": r" \t",
    "cntrl": r"\x00-\x1f\x7f",
    "digit": "0-9",
    "graph": r"\x21-\x7e",
    "lower": "a-z",
    "print": r"\x20-\x7e",
    "punct": re.escape(string.punctuation),
    "space": r" \t\n\r\f\v",
    "upper": "A-Z",
    "xdigit": "0-9a-fA-F",
}

_INSTEAD = {
    "d": "write [0-9]",
    "D": "write [^0-9]",
    "w": "write [[:alnum:]_]",
    "W": "write [^[:alnum:]_]",
    "s": "write [[:space:]]",
    "S": "write [^[:space:]]",
    "n": "a newline is in [[:space:]]",
    "t": "a tab is in [[:blank:]]",
}
"""Hints for escapes of Python's expressions."""

_BOUNDS = re.compile(r"\{(\d+)(,(\d*))?\}")

_CLASS = re.compile(r"\[:([^]:]*):\]")


def from_posix(source: str) -> PosixPattern:
    """Translate a POSIX extended expression in the dialect of LLVM's FileCheck; raise
    ``BadPattern``.

    Differences from Python: there is no ``\\d`` and no lazy repetition, a backslash within brackets
    is literal, and ``.`` and ``[^...]`` never match a newline. Syntax with another meaning in
    Python is rejected.
    """
    parts: list[str] = []
    groups: list[int] = []  # the offsets of the open groups
    previous = "nothing"  # the kind of the element before, which decides what may follow
    ambiguous = spans_lines = False
    at = 0
    while at < len(source):
        character, end = source[at], at + 1
        python, kind = _ELEMENTS.get(character, (re.escape(character), "atom"))
        if character in ")|" and previous == "nothing" and (groups or character == "|"):
            raise BadPattern("empty expression", at)
        match character:
            case "(":
                if len(groups) == _NESTING:
                    raise BadPattern("groups nested too deep", at)
                groups.append(at)
            case ")":
                if not groups:
                    hint = "to match the character write \\)"
                    raise BadPattern("parenthesis without its beginning", at, hint)
                groups.pop()
            case "{" if source[end : end + 1].isdecimal():
                python, kind, end = *_bounds(source, at), source.index("}", at) + 1
            case "[":
                python, end = _bracket(source, at)
                spans_lines |= re.match(python, "\n") is not None
            case "\\":
                python, end = _escaped(source[end : end + 1], at), at + 2
        ambiguous |= character == "|" or (kind == "repetition" and previous == "group")
        if kind == "repetition" and previous not in ("atom", "group"):
            hint = f"to match the character write \\{character}"
            if previous == "repetition":
                hint = "there is no lazy or doubled repetition"
            elif source[max(at - 1, 0) : at + 1] == "(?":
                hint = "there are no (?...) groups"
            raise BadPattern(f"'{character}' has nothing to repeat", at, hint)
        parts.append(python)
        previous, at = kind, end
    if groups:
        raise BadPattern("parenthesis without its end", groups[-1])
    if previous == "nothing":
        raise BadPattern("empty expression", at)
    return PosixPattern("".join(parts), ambiguous, spans_lines)


_ELEMENTS = {
    "(": ("(?:", "nothing"),
    ")": (")", "group"),
    "|": ("|", "nothing"),
    ".": (".", "atom"),
    **{character: (character, "anchor") for character in "^$"},
    **{character: (character, "repetition") for character in "*+?"},
}
"""Characters with a meaning: their Python, and the kind of element: after ``nothing`` an expression
begins.
"""


def _bounds(source: str, at: int) -> tuple[str, str]:
    """Return the counts in braces at an offset, and their kind."""
    if (bounds := _BOUNDS.match(source, at)) is None:
        hint = "a count before }} needs parentheses: {{(a{2})}}"
        raise BadPattern("brace without its end", at, hint)
    low = int(bounds[1])
    if not low <= (int(bounds[3]) if bounds[3] else low) <= _REPETITIONS:
        raise BadPattern(f"counts go from 0 to {_REPETITIONS}, the smaller one first", at)
    return bounds[0], "repetition"


def _escaped(character: str, at: int) -> str:
    """Return the Python of a character after a backslash, which is at an offset."""
    if not character:
        raise BadPattern("backslash at the end", at)
    if character.isdecimal():
        hint = "name it: [[NAME:...]], then [[NAME]]"
        raise BadPattern(f"no numbered reference \\{character}", at, hint)
    if character.isalnum():
        hint = _INSTEAD.get(character, f"to match the letter write {character}")
        raise BadPattern(f"\\{character} means the letter {character} here", at, hint)
    return re.escape(character)


def _bracket(source: str, begin: int) -> tuple[str, int]:
    """Translate the ``[...]`` at an offset; return it and the offset after it.

    A ``]`` at the beginning and a ``-`` at either end are literal. A backslash is literal too,
    and rejected before a letter as a probable mistake.
    """
    at = begin + 1
    inverse = r"^\n" if source.startswith("^", at) else ""
    at += bool(inverse)
    members = [f"\\{source[at]}"] if source.startswith(("]", "-"), at) else []
    at += len(members)
    while not source.startswith(("]", "-]"), at):
        if source.startswith("[:", at):
            match = _CLASS.match(source, at)
            if match is None or match[1] not in _CLASSES:
                raise BadPattern("unknown character class", at, f"known: {', '.join(_CLASSES)}")
            members.append(_CLASSES[match[1]])
            at = match.end()
            continue
        if source.startswith("-", at):
            raise BadPattern("a range without its beginning", at, "put - first or last")
        is_range = source.startswith("-", at + 1) and not source.startswith("-]", at + 1)
        for place in (at, at + 2) if is_range else (at,):
            character, following = source[place : place + 1], source[place + 1 : place + 2]
            if not character:
                raise BadPattern("bracket without its end", begin)
            if character == "[" and following in (".", "="):
                raise BadPattern(f"[{following} {following}] is not supported", place)
            if character == "\\" and following.isalnum():
                raise BadPattern(
                    "within brackets a backslash is literal", place, _INSTEAD.get(following, "")
                )
        if is_range and source[at + 2] < source[at]:
            raise BadPattern(f"the range {source[at]}-{source[at + 2]} is reversed", at + 3)
        members.append(
            f"{re.escape(source[at])}-{re.escape(source[at + 2])}"
            if is_range
            else re.escape(source[at])
        )
        at += 3 if is_range else 1
    if source.startswith("-", at):
        members.append("\\-")
        at += 1
    return f"[{inverse}{''.join(members)}]", at + 1


# -- directives ------------------------------------------------------------------------------------

_EMPTY_LINE = re.compile(r"\n$", re.MULTILINE)
_RUN_OF_BLANKS = re.compile(r"[ \t]{2,}|\t")


class ChecksError(Exception):
    """An invalid line of ``checks``; line and column count from 1."""

    def __init__(self, line: int, column: int, message: str, hint: str = "") -> None:
        super().__init__(f"{line}:{column}: {message}" + (f" ({hint})" if hint else ""))
        self.line = line
        self.column = column
        self.message = message
        self.hint = hint


class Kind(Enum):
    """The kinds of directives, by the word in the text."""

    CHECK = "CHECK"
    NEXT = "CHECK-NEXT"
    SAME = "CHECK-SAME"
    NOT = "CHECK-NOT"
    DAG = "CHECK-DAG"
    LABEL = "CHECK-LABEL"
    EMPTY = "CHECK-EMPTY"
    COUNT = "CHECK-COUNT"


class Part(NamedTuple):
    """A part of a pattern: text, an expression, or a variable, which is defined where it has an
    expression.
    """

    text: str = ""
    expression: PosixPattern | None = None
    variable: str = ""

    @property
    def group(self) -> str:
        """The name of the group of the variable, which may begin with a dollar sign."""
        return (
            f"global_{self.variable[1:]}"
            if self.variable.startswith("$")
            else f"local_{self.variable}"
        )


@frozen
class Directive:
    """One line of ``checks``."""

    kind: Kind
    pattern: str
    """As written, without the blanks around it."""
    line: int
    column: int
    """The start of the pattern; line and column count from 1."""
    literal: bool
    count: int
    """The required number of matches; 1 except for CHECK-COUNT."""
    parts: tuple[Part, ...]

    @property
    def ambiguous(self) -> bool:
        """Whether matches with one start may have several ends: POSIX takes the longest, Python may
        not.
        """
        return any(part.expression.ambiguous for part in self.parts if part.expression)

    @property
    def spans_lines(self) -> bool:
        """Whether a match may contain a newline."""
        return any(part.expression.spans_lines for part in self.parts if part.expression)

    def compiled(self, variables: Mapping[str, str]) -> re.Pattern[str]:
        """Return the pattern as a regular expression, with the text of each variable, and a named
        group for each that it defines.
        """
        if self.kind is Kind.EMPTY:
            return _EMPTY_LINE
        defined_here: set[str] = set()
        pieces: list[str] = []
        for part in self.parts:
            if part.expression:
                defined_here.add(part.variable)
                pieces.append(
                    f"({f'?P<{part.group}>' if part.variable else '?:'}{part.expression.python})"
                )
            elif part.variable and part.variable in defined_here:
                pieces.append(f"(?P={part.group})")
            else:
                pieces.append(re.escape(variables[part.variable] if part.variable else part.text))
        return re.compile("".join(pieces), re.MULTILINE)

    def __str__(self) -> str:
        count = f"-{self.count}" if self.kind is Kind.COUNT else ""
        return f"{self.kind.value}{count}{'{LITERAL}' if self.literal else ''}: {self.pattern}".rstrip()  # noqa: E501 - Python 3.11 breaks no line within a field


CheckFile = tuple[Directive, ...]
"""Parsed ``checks``, in line order."""

ADJACENT = (Kind.NEXT, Kind.SAME, Kind.EMPTY)
FLOATING = (Kind.DAG, Kind.NOT)
"""Directives that do not move the start of the next search.

LLVM does not count them as a previous match.
"""


def canonical(text: str) -> str:
    """Replace each run of blanks by one space, as FileCheck does in checks and text."""
    return _RUN_OF_BLANKS.sub(" ", text)


_BLANKS = " \t\r"
_LEADER = r"[ \t]*(?:(?:#|//|;)[ \t]*)?"
"""A directive may be in a comment, as in LLVM's own tests."""
_SUFFIXES = "|".join(
    kind.value.removeprefix("CHECK-") for kind in Kind if kind not in (Kind.CHECK, Kind.COUNT)
)
_DIRECTIVE = rf"(?P<word>CHECK(?:-(?:{_SUFFIXES}|COUNT-(?P<count>[0-9]{{1,6}})))?)(?P<literal>\{{LITERAL\}})?:"  # noqa: E501 - a pattern, whole
_LED_DIRECTIVE = re.compile(_LEADER + _DIRECTIVE)
_DIRECTIVE_WITHIN = re.compile(r"(?<![\w-])" + _DIRECTIVE)
_COLON = re.compile("[:\uff1a]")
"""The second one is the colon of Chinese input methods."""
_COMBINATION = re.compile(rf"CHECK(?:-(?:{_SUFFIXES}|COUNT-[0-9]+)){{2,}}")
_VARIABLE = re.compile(r"(?P<name>\$?[A-Za-z_][A-Za-z0-9_]*)(?::(?P<expression>.*))?")
_EXPRESSION_OUTSIDE = re.compile(r"\.[*+]|\\[][.(){}*+?|^$dDwWsSb]")
_FORMS = tuple(f"{kind.value}{'-<n>' if kind is Kind.COUNT else ''}:" for kind in Kind)


def parse(checks: str) -> CheckFile:
    """Parse directives, one a line; raise ``ChecksError`` for the first invalid one."""
    lines = enumerate(checks.replace("\r\n", "\n").split("\n"), start=1)
    directives = tuple(_directive(text, number) for number, text in lines if text.strip(_BLANKS))
    if not directives:
        raise ChecksError(
            1, 1, "no directives: nothing would be checked", f"write one of {' '.join(_FORMS)}"
        )
    required = [directive for directive in directives if directive.kind is not Kind.NOT]
    if not required:
        message = "only CHECK-NOT: any text without these lines passes, even a wrong one"
        raise ChecksError(directives[0].line, 1, message, "add a CHECK: for a required line")
    before_first = next(
        (index for index, directive in enumerate(directives) if directive.kind not in FLOATING),
        len(directives),
    )
    if before_first < len(directives) and directives[before_first].kind in ADJACENT:
        message = f"{directives[before_first].kind.value} without a CHECK: before it"
        raise ChecksError(
            directives[before_first].line, 1, message, "begin with CHECK: or CHECK-LABEL:"
        )
    _require_definitions(directives)
    # such as {{.*}}; a variable is some text
    if all(
        directive.kind is not Kind.EMPTY and _matches_nothing(directive) for directive in required
    ):
        raise ChecksError(
            required[0].line,
            required[0].column,
            "every pattern matches the empty text: nothing is checked",
        )
    return directives


def _directive(text: str, line: int) -> Directive:
    for column, character in enumerate(text, start=1):
        # invisible, or similar to a blank: a CHECK-NOT with it would never match
        if character not in _BLANKS and category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp"):
            raise ChecksError(
                line, column, f"invisible character U+{ord(character):04X}", "use a plain space"
            )
    if (head := _LED_DIRECTIVE.match(text)) is None:
        raise ChecksError(
            line, len(text) - len(text.lstrip(_BLANKS)) + 1, *_not_a_directive(text.strip(_BLANKS))
        )
    count = int(head["count"] or 1)
    if not count:
        raise ChecksError(
            line,
            head.start("count") + 1,
            "a count of 0 requires nothing",
            "to forbid a text write CHECK-NOT:",
        )
    kind = Kind.COUNT if head["count"] else Kind(head["word"])
    rest, colon = text[head.end() :], head.end()
    pattern = rest.strip(_BLANKS)
    if pattern and kind is Kind.EMPTY:
        raise ChecksError(
            line,
            colon + 1,
            "CHECK-EMPTY takes no pattern",
            "write the pattern of the next line as CHECK-NEXT:",
        )
    if not pattern and kind is not Kind.EMPTY:
        raise ChecksError(
            line, colon, f"{kind.value} without a pattern", "for an empty line write CHECK-EMPTY:"
        )
    if rest.startswith(":"):
        raise ChecksError(
            line,
            colon + 1,
            "two colons",
            "if the pattern begins with a colon, put a space before it",
        )
    column = colon + len(rest) - len(rest.lstrip(_BLANKS)) + 1
    is_literal = head["literal"] is not None
    try:
        parts = [Part(text=canonical(pattern))] if is_literal else _parts(pattern, head["word"])
    except BadPattern as problem:
        raise ChecksError(line, column + problem.offset, problem.message, problem.hint) from problem
    if kind is Kind.LABEL and any(part.variable for part in parts):
        raise ChecksError(
            line,
            column,
            "CHECK-LABEL takes no variable",
            "labels are matched before variables are defined",
        )
    return Directive(
        kind=kind,
        pattern=pattern,
        line=line,
        column=column,
        literal=is_literal,
        count=count,
        parts=tuple(parts),
    )


def _not_a_directive(text: str) -> tuple[str, str]:
    """Return message and hint for a line without a directive.

    The supposed directive ends at a colon, or else at a blank.
    """
    before_colon, *rest = _COLON.split(text, maxsplit=1)
    word = before_colon.strip() if rest else text.split()[0]
    if word in ("COM", "RUN"):
        return f"not a directive: '{word}:'", "write comments in the YAML, after a #"
    if _COMBINATION.fullmatch(word):
        return f"not a directive: '{word}:'", "kinds cannot be combined: write one line for each"
    guess = did_you_mean(f"{word.upper().replace('_', '-')}:", [*_FORMS, "CHECK{LITERAL}:"])
    return (
        f"not a directive: '{text[:60]}'",
        guess or f"a line is blank or begins with one of {' '.join(_FORMS)}",
    )


def _parts(text: str, word: str) -> list[Part]:
    """Return the text, ``{{expressions}}`` and ``[[VARIABLES]]`` of a pattern; raise
    ``BadPattern``.
    """
    parts: list[Part] = []
    verbatim = f"to match this text literally, write {word}{{LITERAL}}:"
    if within := _DIRECTIVE_WITHIN.search(text):
        hint = f"put it on a line of its own; {verbatim}"
        raise BadPattern("a second directive on one line", within.start(), hint)
    at = 0
    while at < len(text):
        if text.startswith("{{", at):
            end = text.find("}}", at + 2)
            if end < 0:
                raise BadPattern("{{ without its }}", at, f"close it; {verbatim}")
            parts.append(Part(expression=_translated(text, at + 2, end)))
            at = end + 2
        elif text.startswith("[[", at):
            end = _end_of_variable(text, at + 2)
            if end < 0:
                raise BadPattern("[[ without its ]]", at, f"close it; {verbatim}")
            parts.append(_variable(text, at, end, parts, verbatim))
            at = end + 2
        else:
            end = min(
                (place for place in (text.find("{{", at), text.find("[[", at)) if place >= 0),
                default=len(text),
            )
            if meant := _EXPRESSION_OUTSIDE.search(text[at:end]):
                message = f"'{meant[0]}' is plain text outside {{{{ }}}}"
                hint = f"put it between {{{{ and }}}}; {verbatim}"
                raise BadPattern(message, at + meant.start(), hint)
            parts.append(Part(text=canonical(text[at:end])))
            at = end
    plain = "".join(part.text for part in parts)
    for opening, closing in ("{}", "[]"):
        # foo}} and {foo}}: probably the opening braces are mistyped, and as text they would never
        # match
        if closing * 2 in plain and plain.count(opening) < plain.count(closing):
            message = f"{closing * 2} without its {opening * 2}"
            raise BadPattern(message, text.rfind(closing * 2), f"open it; {verbatim}")
    return parts


def _translated(text: str, start: int, end: int) -> PosixPattern:
    """Return the expression between two offsets of a pattern."""
    try:
        return from_posix(canonical(text[start:end]))
    except BadPattern as problem:
        problem.offset += start
        raise


def _variable(text: str, at: int, end: int, parts: Sequence[Part], verbatim: str) -> Part:
    """Return the variable whose brackets are at two offsets; ``parts`` are those before it."""
    inner = text[at + 2 : end]
    if inner.startswith(("#", "@")):
        hint = "capture text: [[NAME:[0-9]+]]"
        raise BadPattern("numeric substitution [[#...]] is not supported", at, hint)
    if (variable := _VARIABLE.fullmatch(inner)) is None:
        raise BadPattern(f"not a variable: '[[{inner}]]'", at, verbatim)
    name = variable["name"]
    if variable["expression"] is None:
        return Part(variable=name)
    if any(part.variable == name and part.expression for part in parts):
        raise BadPattern(f"{name} is defined twice on one line", at)
    start = at + 2 + variable.start("expression")
    expression = _translated(text, start, end)
    if re.search(expression.python, "", re.MULTILINE):
        # LLVM never matches a reference to empty text: a CHECK-NOT with it could not fail
        hint = "let it match at least one character: + instead of *"
        raise BadPattern(f"{name} may be empty", start, hint)
    return Part(expression=expression, variable=name)


def _end_of_variable(text: str, at: int) -> int:
    """Return the offset of the closing ``]]``, -1 where there is none.

    Brackets in the expression are paired or escaped by a backslash.
    """
    depth = 0
    while at < len(text):
        if depth == 0 and text.startswith("]]", at):
            return at
        depth += (text[at] == "[") - (text[at] == "]")
        if depth < 0:
            return -1
        at += 2 if text[at] == "\\" else 1
    return -1


def _require_definitions(directives: Sequence[Directive]) -> None:
    defined: set[str] = set()
    for directive in directives:
        of_directive: set[str] = set()
        for part in directive.parts:
            name = part.variable
            if name and part.expression:
                of_directive.add(name)
            elif name and name not in defined | of_directive:
                column = directive.column + directive.pattern.find(f"[[{name}]]")
                hint = (
                    did_you_mean(name, defined) or f"define it on an earlier line: [[{name}:...]]"
                )
                raise ChecksError(directive.line, column, f"[[{name}]] is not defined", hint)
        # A variable of a CHECK-NOT is never defined.
        defined |= set() if directive.kind is Kind.NOT else of_directive


def _matches_nothing(directive: Directive) -> bool:
    """Return whether the pattern matches the empty text, with each variable replaced by some
    text.
    """
    try:
        return (
            directive.compiled({part.variable: "x" for part in directive.parts}).search("")
            is not None
        )
    except re.error as problem:
        raise ChecksError(
            directive.line, directive.column, f"no regular expression: {problem}"
        ) from problem
