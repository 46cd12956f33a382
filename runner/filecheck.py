"""LLVM's FileCheck over a text: what stands in it, in which order, and what may not.

``parse`` turns the lines of ``checks`` into directives and refuses whatever a person may have mistyped; ``run`` judges
a text by them. Both are pure: nothing is printed, and no file is read or written.

The ``filecheck`` package gives the parts of a pattern (``ops``) and makes an expression of them (``compiler``). Its parser
and its matcher are not used. The parser skips what it does not know. The matcher prints, ends the region of a
CHECK-NOT after the next match instead of before it, never looks at the last character, and lets CHECK-NEXT pass over a
match on the same line; each is woven into the whole.

Verdicts are LLVM's. What LLVM takes but a person hardly means is an error here: CHECK-NOTs alone, patterns that any text
satisfies, variables that may be empty or are used before they are defined, numeric substitution, ``\\d`` and its like,
``.*`` outside of ``{{ }}``, a ``}}`` without its ``{{``, two directives on one line, a line that is no directive.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from enum import Enum
from typing import NamedTuple, NoReturn
from unicodedata import category

from filecheck.compiler import compile_uops
from filecheck.error import CheckError
from filecheck.ops import RE, Capture, CheckOp, Literal, Subst, UOp
from filecheck.options import Options

from runner.diagnostics import did_you_mean
from runner.patterns import BadPattern, PatternTooSlow, from_posix, time_limit


class ChecksError(Exception):
    """A line of ``checks`` that is wrong; line and column count from 1."""

    def __init__(self, line: int, column: int, message: str, hint: str = "") -> None:
        super().__init__(f"{line}:{column}: {message}" + (f" ({hint})" if hint else ""))
        self.line = line
        self.column = column
        self.message = message
        self.hint = hint


class EmptyText(Exception):
    """The text holds nothing but blanks: a verdict about it would be vacuous."""


class Kind(Enum):
    """The directives, by the word that a person writes."""

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
    """Where the pattern begins; line and column count from 1."""
    literal: bool
    count: int
    """How often it must match: 1 but for CHECK-COUNT."""
    parts: tuple[UOp, ...]
    ambiguous: bool
    spans_lines: bool

    @property
    def positive(self) -> bool:
        """Whether it asks for something, rather than forbidding it."""
        return self.kind is not Kind.NOT

    def __str__(self) -> str:
        count = f"-{self.count}" if self.kind is Kind.COUNT else ""
        return f"{self.kind.value}{count}{'{LITERAL}' if self.literal else ''}: {self.pattern}".rstrip()


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckFile:
    """Parsed ``checks``."""

    directives: tuple[Directive, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckOutcome:
    """Whether a text holds what the directives say; all but ``held`` speak of the first directive that failed."""

    held: bool
    line: int | None = None
    directive: str = ""
    reason: str = ""
    excerpt: str = ""
    """The lines of the text around the place where the directive stood."""
    possible: str = ""
    """The line that was perhaps meant."""


def parse(checks: str) -> CheckFile:
    """Read directives, one a line; raise ``ChecksError`` for the first that is wrong."""
    lines = enumerate(checks.replace("\r\n", "\n").split("\n"), start=1)
    found = tuple(_directive(text, number) for number, text in lines if text.strip(_BLANKS))
    _require_a_claim(found)
    _require_something_before(found)
    _require_definitions(found)
    _require_substance(found)
    return CheckFile(directives=found)


def directives(checkfile: CheckFile) -> tuple[Directive, ...]:
    """Return the directives in the order of their lines."""
    return checkfile.directives


def run(checkfile: CheckFile, text: str, *, seconds: float = 5.0) -> CheckOutcome:
    """Judge a text; raise ``EmptyText`` for one without content and ``PatternTooSlow`` when time runs out.

    Like every time limit it works in the main thread only.
    """
    if not text.strip():
        raise EmptyText("there is no text to look at")
    original = text.replace("\r\n", "\n")
    matcher = _Matcher(text=_canonical(original))
    try:
        with time_limit(seconds):
            matcher.run(checkfile.directives)
    except _Mismatch as mismatch:
        return _describe(mismatch, matcher, original.expandtabs(_TAB).rstrip("\n").split("\n"))
    return CheckOutcome(held=True)


# Reading

_BLANKS = " \t\r"
_RUN_OF_BLANKS = re.compile(r"[ \t]{2,}|\t")
_LEADER = r"[ \t]*(?:(?:#|//|;)[ \t]*)?"
"""A directive may stand in a comment, as it does in LLVM's own tests."""
_SUFFIXES = "|".join(kind.value.removeprefix("CHECK-") for kind in Kind if kind not in (Kind.CHECK, Kind.COUNT))
_DIRECTIVE = rf"(?P<word>CHECK(?:-(?:{_SUFFIXES}|COUNT-(?P<count>[0-9]{{1,6}})))?)(?P<literal>\{{LITERAL\}})?:"
_LED_DIRECTIVE = re.compile(_LEADER + _DIRECTIVE)
_DIRECTIVE_WITHIN = re.compile(r"(?<![\w-])" + _DIRECTIVE)
_COLON = re.compile("[:\uff1a]")
"""The second is what an input method for Chinese writes."""
_COMBINATION = re.compile(rf"CHECK(?:-(?:{_SUFFIXES}|COUNT-[0-9]+)){{2,}}")
_PLAIN = re.compile(r".+?(?=\{\{|\[\[|$)")
_VARIABLE = re.compile(r"(?P<name>\$?[A-Za-z_][A-Za-z0-9_]*)(?::(?P<expression>.*))?")
_EXPRESSION_OUTSIDE = re.compile(r"\.[*+]|\\[][.(){}*+?|^$dDwWsSb]")
_FORMS = tuple(f"{kind.value}{'-<n>' if kind is Kind.COUNT else ''}:" for kind in Kind)
_ADJACENT = (Kind.NEXT, Kind.SAME, Kind.EMPTY)
_FLOATING = (Kind.DAG, Kind.NOT)
"""Directives that do not move the place from which the next one looks; LLVM does not count them as a previous match."""
_OPTIONS = Options(match_filename="", strict_whitespace=True)
"""For the library: blanks are made equal here, before it sees them."""
_EMPTY_LINE = re.compile(r"\n$", re.MULTILINE)


def _canonical(text: str) -> str:
    """Make any run of blanks one space, as FileCheck does to checks and text alike."""
    return _RUN_OF_BLANKS.sub(" ", text)


def _directive(text: str, line: int) -> Directive:
    _refuse_invisible(text, line)
    found = _LED_DIRECTIVE.match(text)
    if found is None:
        raise ChecksError(line, len(text) - len(text.lstrip(_BLANKS)) + 1, *_not_a_directive(text.strip(_BLANKS)))
    kind = _kind(found, line)
    rest = text[found.end() :]
    _check_presence(kind, rest, line, found.end())
    column = found.end() + len(rest) - len(rest.lstrip(_BLANKS)) + 1
    reader = _PatternReader(text=rest.strip(_BLANKS), line=line, column=column, word=found["word"])
    reader.read(literal=found["literal"] is not None)
    if kind is Kind.LABEL and any(isinstance(part, Capture | Subst) for part in reader.parts):
        raise ChecksError(line, column, "CHECK-LABEL takes no variable", "labels are found before any variable is known")
    return Directive(
        kind=kind,
        pattern=reader.text,
        line=line,
        column=column,
        literal=found["literal"] is not None,
        count=int(found["count"] or 1),
        parts=tuple(reader.parts),
        ambiguous=reader.ambiguous,
        spans_lines=reader.spans_lines,
    )


def _kind(found: re.Match[str], line: int) -> Kind:
    if found["count"] is None:
        return Kind(found["word"])
    if not int(found["count"]):
        raise ChecksError(line, found.start("count") + 1, "a count of 0 asks for nothing", "to forbid a text write CHECK-NOT:")
    return Kind.COUNT


def _refuse_invisible(text: str, line: int) -> None:
    """Refuse characters that look like a blank or like nothing: with one of them a CHECK-NOT would never match."""
    for column, character in enumerate(text, start=1):
        if character not in _BLANKS and category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp"):
            raise ChecksError(line, column, f"invisible character U+{ord(character):04X}", "use a plain space")


def _not_a_directive(text: str) -> tuple[str, str]:
    """Return message and hint for a line; the word that was to be a directive ends at a colon, or else at a blank."""
    before_colon, *rest = _COLON.split(text, maxsplit=1)
    word = before_colon.strip() if rest else text.split()[0]
    if word in ("COM", "RUN"):
        return f"no directive: '{word}:'", "comments go into the YAML, behind a #"
    if _COMBINATION.fullmatch(word):
        return f"no directive: '{word}:'", "kinds cannot be combined: write one line for each"
    guess = did_you_mean(f"{word.upper().replace('_', '-')}:", [*_FORMS, "CHECK{LITERAL}:"])
    return f"no directive: '{text[:60]}'", guess or f"a line is blank or begins with one of {' '.join(_FORMS)}"


def _check_presence(kind: Kind, rest: str, line: int, end: int) -> None:
    """``rest`` is what follows the colon, which stands in column ``end``."""
    present = bool(rest.strip(_BLANKS))
    if present and kind is Kind.EMPTY:
        raise ChecksError(line, end + 1, "CHECK-EMPTY takes no pattern", "the pattern of the line after it: CHECK-NEXT:")
    if not present and kind is not Kind.EMPTY:
        raise ChecksError(line, end, f"{kind.value} without a pattern", "for an empty line write CHECK-EMPTY:")
    if rest.startswith(":"):
        raise ChecksError(line, end + 1, "two colons", "where the pattern begins with a colon, put a space before it")


@dataclass(slots=True, kw_only=True)
class _PatternReader:
    """Splits a pattern into text, ``{{expressions}}`` and ``[[VARIABLES]]``."""

    text: str
    line: int
    column: int
    word: str
    at: int = 0
    parts: list[UOp] = field(default_factory=list)
    ambiguous: bool = False
    spans_lines: bool = False

    def read(self, *, literal: bool) -> None:
        if literal:
            self.parts.append(Literal(_canonical(self.text)))
            return
        if within := _DIRECTIVE_WITHIN.search(self.text):
            self.fail(within.start(), "a second directive on one line", f"give it a line of its own; {self.verbatim()}")
        while self.at < len(self.text):
            if self.text.startswith("{{", self.at):
                self.read_expression()
            elif self.text.startswith("[[", self.at):
                self.read_variable()
            else:
                self.read_plain()
        self.refuse_unopened("{", "}")
        self.refuse_unopened("[", "]")

    def fail(self, offset: int, message: str, hint: str = "") -> NoReturn:
        raise ChecksError(self.line, self.column + offset, message, hint)

    def verbatim(self) -> str:
        return f"for this very text write {self.word}{{LITERAL}}:"

    def read_plain(self) -> None:
        found = _PLAIN.match(self.text, self.at)
        plain = found[0] if found else ""
        if meant := _EXPRESSION_OUTSIDE.search(plain):
            message = f"'{meant[0]}' is plain text outside {{{{ }}}}"
            self.fail(self.at + meant.start(), message, f"put {{{{ }}}} around it; {self.verbatim()}")
        self.parts.append(Literal(_canonical(plain)))
        self.at += len(plain)

    def read_expression(self) -> None:
        end = self.text.find("}}", self.at + 2)
        if end < 0:
            self.fail(self.at, "{{ without its }}", f"close it; {self.verbatim()}")
        self.parts.append(RE(self.translated(self.at + 2, end)))
        self.at = end + 2

    def translated(self, start: int, end: int) -> str:
        """Return the POSIX expression between two offsets in Python's words."""
        try:
            posix = from_posix(_canonical(self.text[start:end]))
        except BadPattern as problem:
            self.fail(start + problem.offset, problem.message, problem.hint)
        self.ambiguous |= posix.ambiguous
        self.spans_lines |= posix.spans_lines
        return posix.python

    def read_variable(self) -> None:
        end = self.end_of_variable()
        inner = self.text[self.at + 2 : end]
        if inner.startswith(("#", "@")):
            self.fail(self.at, "numeric substitution [[#...]] is not supported", "capture text: [[NAME:[0-9]+]]")
        found = _VARIABLE.fullmatch(inner)
        if found is None:
            self.fail(self.at, f"no variable: '[[{inner}]]'", self.verbatim())
        if found["expression"] is None:
            self.parts.append(Subst(found["name"]))
        else:
            self.define(found["name"], self.at + 2 + found.start("expression"), end)
        self.at = end + 2

    def define(self, name: str, start: int, end: int) -> None:
        if any(isinstance(part, Capture) and part.name == name for part in self.parts):
            self.fail(self.at, f"{name} is defined twice on one line")
        expression = self.translated(start, end)
        if re.search(expression, "", re.MULTILINE):
            # LLVM never matches a reference to empty text: a CHECK-NOT with it could not fail.
            self.fail(start, f"{name} may be empty", "let it match one character at least: + instead of *")
        self.parts.append(Capture(name, expression, str))

    def end_of_variable(self) -> int:
        """Return where the closing ``]]`` stands; brackets within the expression come in pairs or behind a backslash."""
        at, depth = self.at + 2, 0
        while at < len(self.text):
            if depth == 0 and self.text.startswith("]]", at):
                return at
            character = self.text[at]
            depth += (character == "[") - (character == "]")
            if depth < 0:
                break
            at += 2 if character == "\\" else 1
        self.fail(self.at, "[[ without its ]]", f"close it; {self.verbatim()}")

    def refuse_unopened(self, opening: str, closing: str) -> None:
        """Refuse ``foo}}`` and ``{foo}}``: likely a block whose beginning was mistyped, and as text it would never match."""
        plain = "".join(part.content for part in self.parts if isinstance(part, Literal))
        if closing * 2 in plain and plain.count(opening) < plain.count(closing):
            self.fail(self.text.rfind(closing * 2), f"{closing * 2} without its {opening * 2}", f"open it; {self.verbatim()}")


def _require_a_claim(found: Sequence[Directive]) -> None:
    if not found:
        raise ChecksError(1, 1, "no directive: nothing would be checked", f"write one of {' '.join(_FORMS)}")
    if not any(directive.positive for directive in found):
        message = "only CHECK-NOT: holds for any text that lacks it, even the wrong one"
        raise ChecksError(found[0].line, 1, message, "add a CHECK: for a line that must be there")


def _require_something_before(found: Iterable[Directive]) -> None:
    anchored = False
    for directive in found:
        if directive.kind in _ADJACENT and not anchored:
            message = f"{directive.kind.value} without a line before it to be next to"
            raise ChecksError(directive.line, 1, message, "begin with CHECK: or CHECK-LABEL:")
        anchored |= directive.kind not in _FLOATING


def _require_definitions(found: Iterable[Directive]) -> None:
    known: set[str] = set()
    for directive in found:
        here: set[str] = set()
        for part in directive.parts:
            if isinstance(part, Subst) and part.variable not in known | here:
                column = directive.column + directive.pattern.find(f"[[{part.variable}]]")
                hint = did_you_mean(part.variable, known) or f"define it on a line before: [[{part.variable}:...]]"
                raise ChecksError(directive.line, column, f"[[{part.variable}]] is not defined", hint)
            if isinstance(part, Capture):
                here.add(part.name)
        # What a CHECK-NOT defines is never found.
        known |= here if directive.positive else set()


def _require_substance(found: Iterable[Directive]) -> None:
    """Refuse checks whose every pattern is satisfied by no text at all, such as ``{{.*}}``."""
    positive = [directive for directive in found if directive.positive]
    if all(directive.kind is not Kind.EMPTY and _matches_nothing(directive) for directive in positive):
        raise ChecksError(positive[0].line, positive[0].column, "every pattern matches the empty text: nothing is checked")


def _matches_nothing(directive: Directive) -> bool:
    """Return whether the pattern matches the empty text, a variable standing for some text."""
    known = {part.variable: "x" for part in directive.parts if isinstance(part, Subst)}
    try:
        return _compile(directive, known).search("") is not None
    except CheckError as problem:
        raise ChecksError(directive.line, directive.column, problem.message) from problem


def _compile(directive: Directive, variables: Mapping[str, str]) -> re.Pattern[str]:
    """Let the library make an expression of text and expressions alone.

    Variables are put in here, as text or as named groups, because the library finds its captures by counting
    parentheses, and miscounts.
    """
    if directive.kind is Kind.EMPTY:
        return _EMPTY_LINE
    parts = list(_without_variables(directive.parts, variables))
    pattern, _ = compile_uops(CheckOp("CHECK", "CHECK", directive.pattern, directive.line, parts), {}, _OPTIONS)
    return pattern


def _without_variables(parts: Iterable[UOp], variables: Mapping[str, str]) -> Iterator[UOp]:
    here: set[str] = set()
    for part in parts:
        match part:
            case Capture(name=name, pattern=pattern):
                here.add(name)
                yield RE(f"(?P<{_group(name)}>{pattern})")
            case Subst(variable=name) if name in here:
                yield RE(f"(?P={_group(name)})")
            case Subst(variable=name):
                yield Literal(variables[name])
            case _:
                yield part


def _group(variable: str) -> str:
    """Return the name of a group for a variable, which may begin with a dollar sign."""
    return f"global_{variable[1:]}" if variable.startswith("$") else f"local_{variable}"


# Matching


class _Span(NamedTuple):
    start: int
    end: int


class _Step(NamedTuple):
    """A directive that moves on, and the CHECK-DAGs and CHECK-NOTs before it; without one it stands for the text's end."""

    before: tuple[Directive, ...]
    main: Directive | None


class _Mismatch(Exception):
    """A directive that does not hold: where it looked, and what it found there although, or where, it must not."""

    def __init__(self, directive: Directive, reason: str, *, region: _Span, found: _Span | None = None) -> None:
        super().__init__(reason)
        self.directive = directive
        self.reason = reason
        self.region = region
        self.found = found


_REACH = 1000
"""How many characters beyond Python's match a longer one is looked for."""


def _blocks(found: Iterable[Directive]) -> Iterator[list[_Step]]:
    """Yield the steps up to each CHECK-LABEL, and those from the last one to the end of the text."""
    block: list[_Step] = []
    before: list[Directive] = []
    for directive in found:
        if directive.kind in _FLOATING:
            before.append(directive)
            continue
        block.append(_Step(tuple(before), directive))
        before = []
        if directive.kind is Kind.LABEL:
            yield block
            block = []
    yield [*block, _Step(tuple(before), None)]


@dataclass(slots=True, kw_only=True)
class _Matcher:
    """Walks the directives over a text. All offsets are those of ``text``."""

    text: str
    variables: dict[str, str] = field(default_factory=dict)

    def run(self, found: Iterable[Directive]) -> None:
        at = 0
        for block in _blocks(found):
            end = self.end_of_block(block[-1].main, at)
            for step in block:
                at = self.take(step, _Span(at, end))
            at = end

    def end_of_block(self, label: Directive | None, at: int) -> int:
        """Find a label before anything else, so that nothing can match beyond it."""
        return len(self.text) if label is None else self.expect(label, _Span(at, len(self.text))).end

    def take(self, step: _Step, region: _Span) -> int:
        """Match one step and return where the next one looks from."""
        at, forbidden = self.unordered(step.before, region)
        region = _Span(at, region.end)
        if step.main is None:
            self.refuse(forbidden, region)
            return region.end
        span = self.expect_all(step.main, region)
        self.require_adjacent(step.main, region, span)
        self.refuse(forbidden, _Span(at, span.start))
        return span.end

    def find(self, directive: Directive, region: _Span) -> _Span | None:
        """Return the leftmost and then longest match, and remember its variables."""
        # A copy, because ^ and $ hold at the ends of what is left, as they do in LLVM.
        text = self.text[region.start : region.end]
        pattern = _compile(directive, self.variables)
        match = pattern.search(text)
        if match is None:
            return None
        match = _longest(directive, pattern, match)
        for part in directive.parts:
            if isinstance(part, Capture):
                self.variables[part.name] = match[_group(part.name)]
        # The newline that CHECK-EMPTY consumes belongs to the line before.
        start = match.start() + (directive.kind is Kind.EMPTY)
        return _Span(region.start + start, region.start + match.end())

    def expect(self, directive: Directive, region: _Span, reason: str = "no match") -> _Span:
        span = self.find(directive, region)
        if span is None:
            raise _Mismatch(directive, reason, region=region)
        return span

    def expect_all(self, directive: Directive, region: _Span) -> _Span:
        """Match as often as CHECK-COUNT asks for, one after the other."""
        first = span = self.expect(directive, region)
        for already in range(1, directive.count):
            reason = f"matched {already} of {directive.count} times"
            span = self.expect(directive, _Span(span.end, region.end), reason)
        return _Span(first.start, span.end)

    def require_adjacent(self, directive: Directive, region: _Span, span: _Span) -> None:
        newlines = self.text.count("\n", region.start, span.start)
        match directive.kind:
            case Kind.NEXT | Kind.EMPTY if newlines == 0:
                reason = "matched on the same line as the previous match"
            case Kind.NEXT | Kind.EMPTY if newlines > 1:
                reason = "matched, but not on the line after the previous match"
            case Kind.SAME if newlines:
                reason = "matched, but not on the same line as the previous match"
            case _:
                return
        raise _Mismatch(directive, reason, region=region, found=span)

    def refuse(self, forbidden: Iterable[Directive], region: _Span) -> None:
        for directive in forbidden:
            span = self.find(directive, region)
            if span is not None:
                raise _Mismatch(directive, "matched a forbidden line", region=region, found=span)

    def unordered(self, before: Sequence[Directive], region: _Span) -> tuple[int, list[Directive]]:
        """Match the groups of CHECK-DAGs; return where the last one ends and the CHECK-NOTs that follow it.

        CHECK-NOTs divide the groups, and hold from the end of one group to the first match of the next.
        """
        at = region.start
        forbidden: list[Directive] = []
        group: list[_Span] = []
        for index, directive in enumerate(before, start=1):
            if directive.kind is Kind.NOT:
                forbidden.append(directive)
                continue
            group.append(self.find_free(directive, group, _Span(at, region.end)))
            if index == len(before) or before[index].kind is Kind.NOT:
                self.refuse(forbidden, _Span(at, min(group).start))
                at = max(span.end for span in group)
                forbidden, group = [], []
        return at, forbidden

    def find_free(self, directive: Directive, taken: Sequence[_Span], region: _Span) -> _Span:
        """Find the first match that overlaps none of those taken."""
        at = region.start
        while True:
            span = self.expect(directive, _Span(at, region.end))
            clash = next((old for old in sorted(taken) if old.start < span.end and span.start < old.end), None)
            if clash is None:
                return span
            at = clash.end


def _longest(directive: Directive, pattern: re.Pattern[str], match: re.Match[str]) -> re.Match[str]:
    """Return the longest match with the same start: POSIX takes it, Python the first alternative that fits."""
    if not directive.ambiguous:
        return match
    text = match.string
    line_end = text.find("\n", match.end())
    limit = len(text) if directive.spans_lines or line_end < 0 else line_end
    for end in range(min(limit, match.end() + _REACH), match.end(), -1):
        # Python lets $ match wherever a search is told to end.
        if "$" in pattern.pattern and end != len(text) and text[end] != "\n":
            continue
        if longer := pattern.fullmatch(text, match.start(), end):
            return longer
    return match


# Explaining

_BEFORE, _AFTER, _WIDTH, _TAB = 2, 4, 140, 4
"""Lines of an excerpt before and after the one pointed to, characters of a line, and those of a tab."""
_PATIENCE = 1.0
"""Seconds for the search of a possible match."""
_SHARED, _SIMILAR, _NEAR = 0.5, 0.75, 40
"""What makes a line a possible match: the share of the pattern's pieces that it holds, or else, for this many lines, how alike
its best place is."""


def _describe(mismatch: _Mismatch, matcher: _Matcher, lines: Sequence[str]) -> CheckOutcome:
    directive = mismatch.directive
    found = mismatch.found
    start = mismatch.region.start
    return CheckOutcome(
        held=False,
        line=directive.line,
        directive=str(directive),
        reason=mismatch.reason,
        excerpt=_excerpt(matcher.text, lines, found or _Span(start, start), "matched here" if found else "searched from here"),
        possible="" if found else _possible_in_time(mismatch, matcher, lines),
    )


def _possible_in_time(mismatch: _Mismatch, matcher: _Matcher, lines: Sequence[str]) -> str:
    """The verdict stands already: a slow pattern may cost the hint, not the verdict."""
    try:
        with time_limit(_PATIENCE):
            return _possible(mismatch, matcher, lines)
    except PatternTooSlow:
        return ""


def _excerpt(text: str, lines: Sequence[str], span: _Span, note: str) -> str:
    number = text.count("\n", 0, span.start) + 1
    offset = span.start - (text.rfind("\n", 0, span.start) + 1)
    width = min(span.end, _end_of_line(text, span.start)) - span.start
    begin, end = (_column(_line(lines, number), count) for count in (offset, offset + width))
    shift = max(0, begin - _WIDTH // 2)
    rows = []
    for at in range(max(1, number - _BEFORE), min(max(len(lines), number), number + _AFTER) + 1):
        rows.append(f"{'>' if at == number else ' '}{at:5} | {_line(lines, at)[shift : shift + _WIDTH]}".rstrip())
        if at == number:
            marks = "^" * max(1, min(end - begin, _WIDTH // 2))
            rows.append(f"{' ' * 6} | {' ' * (begin - shift)}{marks} {note}")
    return "\n".join(rows)


def _line(lines: Sequence[str], number: int) -> str:
    """Return a line of the text; a newline at the very end has an empty one behind it."""
    return lines[number - 1] if number <= len(lines) else ""


def _end_of_line(text: str, at: int) -> int:
    end = text.find("\n", at)
    return len(text) if end < 0 else end


def _column(line: str, offset: int) -> int:
    """Return the place in a line of which ``offset`` counts with runs of blanks made one."""
    tokens = re.finditer(r"[ \t]+|[^ \t]", line)
    return next((token.start() for index, token in enumerate(tokens) if index == offset), len(line))


def _possible(mismatch: _Mismatch, matcher: _Matcher, lines: Sequence[str]) -> str:
    """Name the line that was perhaps meant: one that matches elsewhere, or else one that looks alike."""
    text, region, directive = matcher.text, mismatch.region, mismatch.directive
    elsewhere = matcher.find(directive, _Span(0, len(text))) if directive.count == 1 else None
    if elsewhere is not None:
        where = "before" if elsewhere.start < region.start else "after"
        return f"{_named(lines, text.count(chr(10), 0, elsewhere.start) + 1)} ({where} the lines searched)"
    first = text.count("\n", 0, region.start) + 1
    last = min(text.count("\n", 0, region.end) + 1, len(lines))
    example = _example(directive, matcher.variables)
    if not example:
        return ""
    number = _sharing_most(example, lines, first, last) or _looking_alike(example, lines, first, min(last, first + _NEAR))
    return "" if number is None else _named(lines, number)


def _named(lines: Sequence[str], number: int) -> str:
    return f"line {number}: {_line(lines, number).strip()[:_WIDTH]}"


def _example(directive: Directive, variables: Mapping[str, str]) -> str:
    """Return the text of a pattern without its expressions."""
    parts = _without_variables(directive.parts, variables)
    return "".join(part.content for part in parts if isinstance(part, Literal)).strip()


def _sharing_most(example: str, lines: Sequence[str], first: int, last: int) -> int | None:
    """Return the number of the line that shares most three-letter pieces with the example, if enough."""
    pieces = {example[at : at + 3] for at in range(len(example) - 2)}
    scores = ((sum(piece in lines[at - 1] for piece in pieces), -at) for at in range(first, last + 1))
    score, number = max(scores, default=(0, 0))
    return -number if score and score >= _SHARED * len(pieces) else None


def _looking_alike(example: str, lines: Sequence[str], first: int, last: int) -> int | None:
    """Return the number of the line with the place most like the example, if it is like it: for typing errors in short words."""
    likeness = SequenceMatcher(b=example, autojunk=False)
    best, number = _SIMILAR, None
    for at in range(first, last + 1):
        likeness.set_seq1(lines[at - 1][:_WIDTH])
        common = likeness.find_longest_match()
        start = max(0, common.a - common.b)
        likeness.set_seq1(lines[at - 1][start : start + len(example)])
        if likeness.ratio() > best:
            best, number = likeness.ratio(), at
    return number
