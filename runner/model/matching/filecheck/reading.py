"""Directives, and the parser of ``checks``. Lines that LLVM would ignore and probable typing errors are errors with a position."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NoReturn
from unicodedata import category

from filecheck.compiler import compile_uops
from filecheck.error import CheckError
from filecheck.ops import RE, Capture, CheckOp, Literal, Subst, UOp
from filecheck.options import Options

from runner.model.diagnostics import did_you_mean
from runner.model.matching.posix import BadPattern, from_posix

_OPTIONS = Options(match_filename="", strict_whitespace=True)
"""Options for the library. Blanks are normalised here, before the library gets the text."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
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
    parts: tuple[UOp, ...]
    ambiguous: bool
    spans_lines: bool

    def __str__(self) -> str:
        count = f"-{self.count}" if self.kind is Kind.COUNT else ""
        return f"{self.kind.value}{count}{'{LITERAL}' if self.literal else ''}: {self.pattern}".rstrip()


CheckFile = tuple[Directive, ...]
"""Parsed ``checks``, in line order."""

ADJACENT = (Kind.NEXT, Kind.SAME, Kind.EMPTY)
FLOATING = (Kind.DAG, Kind.NOT)
"""Directives that do not move the start of the next search. LLVM does not count them as a previous match."""


def canonical(text: str) -> str:
    """Replace each run of blanks by one space, as FileCheck does in checks and text."""
    return _RUN_OF_BLANKS.sub(" ", text)


def compile_pattern(directive: Directive, variables: Mapping[str, str]) -> re.Pattern[str]:
    """Compile a directive, with its variables replaced by text or by named groups.

    The library is given no variables: it finds its captures by counting parentheses, and counts wrong.
    """
    if directive.kind is Kind.EMPTY:
        return _EMPTY_LINE
    parts = list(without_variables(directive.parts, variables))
    return compile_uops(CheckOp("CHECK", "CHECK", directive.pattern, directive.line, parts), {}, _OPTIONS)[0]


def without_variables(parts: Iterable[UOp], variables: Mapping[str, str]) -> Iterator[UOp]:
    """Yield the parts with each variable as its text, or as a named group where it is defined."""
    names: set[str] = set()
    for part in parts:
        match part:
            case Capture(name=name, pattern=pattern):
                names.add(name)
                yield RE(f"(?P<{group_name(name)}>{pattern})")
            case Subst(variable=name) if name in names:
                yield RE(f"(?P={group_name(name)})")
            case Subst(variable=name):
                yield Literal(variables[name])
            case _:
                yield part


def group_name(variable: str) -> str:
    """Return the name of the group of a variable. A variable may begin with a dollar sign."""
    return f"global_{variable[1:]}" if variable.startswith("$") else f"local_{variable}"


_BLANKS = " \t\r"
_LEADER = r"[ \t]*(?:(?:#|//|;)[ \t]*)?"
"""A directive may be in a comment, as in LLVM's own tests."""
_SUFFIXES = "|".join(kind.value.removeprefix("CHECK-") for kind in Kind if kind not in (Kind.CHECK, Kind.COUNT))
_DIRECTIVE = rf"(?P<word>CHECK(?:-(?:{_SUFFIXES}|COUNT-(?P<count>[0-9]{{1,6}})))?)(?P<literal>\{{LITERAL\}})?:"
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
        raise ChecksError(1, 1, "no directives: nothing would be checked", f"write one of {' '.join(_FORMS)}")
    required = [directive for directive in directives if directive.kind is not Kind.NOT]
    if not required:
        message = "only CHECK-NOT: any text without these lines passes, even a wrong one"
        raise ChecksError(directives[0].line, 1, message, "add a CHECK: for a required line")
    before_first = next((index for index, directive in enumerate(directives) if directive.kind not in FLOATING), len(directives))
    if before_first < len(directives) and directives[before_first].kind in ADJACENT:
        message = f"{directives[before_first].kind.value} without a CHECK: before it"
        raise ChecksError(directives[before_first].line, 1, message, "begin with CHECK: or CHECK-LABEL:")
    _require_definitions(directives)
    # such as {{.*}}; a variable stands for some text
    if all(directive.kind is not Kind.EMPTY and _matches_nothing(directive) for directive in required):
        raise ChecksError(required[0].line, required[0].column, "every pattern matches the empty text: nothing is checked")
    return directives


def _directive(text: str, line: int) -> Directive:
    for column, character in enumerate(text, start=1):
        # invisible, or similar to a blank: a CHECK-NOT with it would never match
        if character not in _BLANKS and category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp"):
            raise ChecksError(line, column, f"invisible character U+{ord(character):04X}", "use a plain space")
    head = _LED_DIRECTIVE.match(text)
    if head is None:
        raise ChecksError(line, len(text) - len(text.lstrip(_BLANKS)) + 1, *_not_a_directive(text.strip(_BLANKS)))
    count = int(head["count"] or 1)
    if not count:
        raise ChecksError(line, head.start("count") + 1, "a count of 0 requires nothing", "to forbid a text write CHECK-NOT:")
    kind = Kind.COUNT if head["count"] else Kind(head["word"])
    rest, colon = text[head.end() :], head.end()
    pattern = rest.strip(_BLANKS)
    if pattern and kind is Kind.EMPTY:
        raise ChecksError(line, colon + 1, "CHECK-EMPTY takes no pattern", "write the pattern of the next line as CHECK-NEXT:")
    if not pattern and kind is not Kind.EMPTY:
        raise ChecksError(line, colon, f"{kind.value} without a pattern", "for an empty line write CHECK-EMPTY:")
    if rest.startswith(":"):
        raise ChecksError(line, colon + 1, "two colons", "if the pattern begins with a colon, put a space before it")
    column = colon + len(rest) - len(rest.lstrip(_BLANKS)) + 1
    is_literal = head["literal"] is not None
    parts, ambiguous, spans_lines = (
        _parts(pattern, line, column, head["word"]) if not is_literal else ([Literal(canonical(pattern))], False, False)
    )
    if kind is Kind.LABEL and any(isinstance(part, Capture | Subst) for part in parts):
        raise ChecksError(line, column, "CHECK-LABEL takes no variable", "labels are matched before variables are defined")
    return Directive(
        kind=kind,
        pattern=pattern,
        line=line,
        column=column,
        literal=is_literal,
        count=count,
        parts=tuple(parts),
        ambiguous=ambiguous,
        spans_lines=spans_lines,
    )


def _not_a_directive(text: str) -> tuple[str, str]:
    """Return message and hint for a line without a directive. The supposed directive ends at a colon, or else at a blank."""
    before_colon, *rest = _COLON.split(text, maxsplit=1)
    word = before_colon.strip() if rest else text.split()[0]
    if word in ("COM", "RUN"):
        return f"not a directive: '{word}:'", "write comments in the YAML, after a #"
    if _COMBINATION.fullmatch(word):
        return f"not a directive: '{word}:'", "kinds cannot be combined: write one line for each"
    guess = did_you_mean(f"{word.upper().replace('_', '-')}:", [*_FORMS, "CHECK{LITERAL}:"])
    return f"not a directive: '{text[:60]}'", guess or f"a line is blank or begins with one of {' '.join(_FORMS)}"


def _parts(text: str, line: int, column: int, word: str) -> tuple[list[UOp], bool, bool]:
    """Split a pattern into text, ``{{expressions}}`` and ``[[VARIABLES]]``; return also whether it is ambiguous, and spans lines."""
    parts: list[UOp] = []
    ambiguous = spans_lines = False
    verbatim = f"to match this text literally, write {word}{{LITERAL}}:"

    def fail(offset: int, message: str, hint: str = "") -> NoReturn:
        raise ChecksError(line, column + offset, message, hint)

    def translated(start: int, end: int) -> str:
        """Return the POSIX expression between two offsets as a Python expression."""
        nonlocal ambiguous, spans_lines
        try:
            posix = from_posix(canonical(text[start:end]))
        except BadPattern as problem:
            fail(start + problem.offset, problem.message, problem.hint)
        ambiguous |= posix.ambiguous
        spans_lines |= posix.spans_lines
        return posix.python

    if within := _DIRECTIVE_WITHIN.search(text):
        fail(within.start(), "a second directive on one line", f"put it on a line of its own; {verbatim}")
    at = 0
    while at < len(text):
        if text.startswith("{{", at):
            end = text.find("}}", at + 2)
            if end < 0:
                fail(at, "{{ without its }}", f"close it; {verbatim}")
            parts.append(RE(translated(at + 2, end)))
            at = end + 2
        elif text.startswith("[[", at):
            end = _end_of_variable(text, at + 2)
            if end < 0:
                fail(at, "[[ without its ]]", f"close it; {verbatim}")
            inner = text[at + 2 : end]
            if inner.startswith(("#", "@")):
                fail(at, "numeric substitution [[#...]] is not supported", "capture text: [[NAME:[0-9]+]]")
            variable = _VARIABLE.fullmatch(inner)
            if variable is None:
                fail(at, f"not a variable: '[[{inner}]]'", verbatim)
            name = variable["name"]
            if variable["expression"] is None:
                parts.append(Subst(name))
            else:
                if any(isinstance(part, Capture) and part.name == name for part in parts):
                    fail(at, f"{name} is defined twice on one line")
                start = at + 2 + variable.start("expression")
                expression = translated(start, end)
                if re.search(expression, "", re.MULTILINE):
                    # LLVM never matches a reference to empty text: a CHECK-NOT with it could not fail.
                    fail(start, f"{name} may be empty", "let it match at least one character: + instead of *")
                parts.append(Capture(name, expression, str))
            at = end + 2
        else:
            end = min((place for place in (text.find("{{", at), text.find("[[", at)) if place >= 0), default=len(text))
            if meant := _EXPRESSION_OUTSIDE.search(text[at:end]):
                message = f"'{meant[0]}' is plain text outside {{{{ }}}}"
                fail(at + meant.start(), message, f"put it between {{{{ and }}}}; {verbatim}")
            parts.append(Literal(canonical(text[at:end])))
            at = end
    plain = "".join(part.content for part in parts if isinstance(part, Literal))
    for opening, closing in ("{}", "[]"):
        # foo}} and {foo}}: probably the opening braces are mistyped, and as text they would never match
        if closing * 2 in plain and plain.count(opening) < plain.count(closing):
            fail(text.rfind(closing * 2), f"{closing * 2} without its {opening * 2}", f"open it; {verbatim}")
    return parts, ambiguous, spans_lines


def _end_of_variable(text: str, at: int) -> int:
    """Return the offset of the closing ``]]``, -1 where there is none. Brackets in the expression are paired or escaped by a backslash."""
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
    known: set[str] = set()
    for directive in directives:
        defined: set[str] = set()
        for part in directive.parts:
            if isinstance(part, Subst) and part.variable not in known | defined:
                column = directive.column + directive.pattern.find(f"[[{part.variable}]]")
                hint = did_you_mean(part.variable, known) or f"define it on an earlier line: [[{part.variable}:...]]"
                raise ChecksError(directive.line, column, f"[[{part.variable}]] is not defined", hint)
            if isinstance(part, Capture):
                defined.add(part.name)
        # A variable of a CHECK-NOT is never defined.
        known |= set() if directive.kind is Kind.NOT else defined


def _matches_nothing(directive: Directive) -> bool:
    """Return whether the pattern matches the empty text, with each variable replaced by some text."""
    known = {part.variable: "x" for part in directive.parts if isinstance(part, Subst)}
    try:
        return compile_pattern(directive, known).search("") is not None
    except CheckError as problem:
        raise ChecksError(directive.line, directive.column, problem.message) from problem
