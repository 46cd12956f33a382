"""Parses ``checks``. Lines that LLVM would ignore and probable typing errors are errors with a position."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import NoReturn
from unicodedata import category

from filecheck.error import CheckError
from filecheck.ops import RE, Capture, Literal, Subst, UOp

from runner.core.diagnostics import did_you_mean
from runner.core.matching.filecheck.directives import ADJACENT, FLOATING, CheckFile, ChecksError, Directive, Kind
from runner.core.matching.filecheck.expressions import canonical, compile_pattern
from runner.core.matching.posix import BadPattern, from_posix

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
_PLAIN = re.compile(r".+?(?=\{\{|\[\[|$)")
_VARIABLE = re.compile(r"(?P<name>\$?[A-Za-z_][A-Za-z0-9_]*)(?::(?P<expression>.*))?")
_EXPRESSION_OUTSIDE = re.compile(r"\.[*+]|\\[][.(){}*+?|^$dDwWsSb]")
_FORMS = tuple(f"{kind.value}{'-<n>' if kind is Kind.COUNT else ''}:" for kind in Kind)


def parse(checks: str) -> CheckFile:
    """Parse directives, one a line; raise ``ChecksError`` for the first invalid one."""
    lines = enumerate(checks.replace("\r\n", "\n").split("\n"), start=1)
    found = tuple(_directive(text, number) for number, text in lines if text.strip(_BLANKS))
    _require_a_claim(found)
    _require_something_before(found)
    _require_definitions(found)
    _require_substance(found)
    return CheckFile(directives=found)


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
        raise ChecksError(line, column, "CHECK-LABEL takes no variable", "labels are matched before variables are defined")
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
        raise ChecksError(line, found.start("count") + 1, "a count of 0 requires nothing", "to forbid a text write CHECK-NOT:")
    return Kind.COUNT


def _refuse_invisible(text: str, line: int) -> None:
    """Reject characters that are invisible or similar to a blank: a CHECK-NOT with one of them would never match."""
    for column, character in enumerate(text, start=1):
        if character not in _BLANKS and category(character) in ("Cc", "Cf", "Zs", "Zl", "Zp"):
            raise ChecksError(line, column, f"invisible character U+{ord(character):04X}", "use a plain space")


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


def _check_presence(kind: Kind, rest: str, line: int, end: int) -> None:
    """Check that a pattern is there if the kind needs one. ``rest`` is the text after the colon, which is in column ``end``."""
    present = bool(rest.strip(_BLANKS))
    if present and kind is Kind.EMPTY:
        raise ChecksError(line, end + 1, "CHECK-EMPTY takes no pattern", "write the pattern of the next line as CHECK-NEXT:")
    if not present and kind is not Kind.EMPTY:
        raise ChecksError(line, end, f"{kind.value} without a pattern", "for an empty line write CHECK-EMPTY:")
    if rest.startswith(":"):
        raise ChecksError(line, end + 1, "two colons", "if the pattern begins with a colon, put a space before it")


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
            self.parts.append(Literal(canonical(self.text)))
            return
        if within := _DIRECTIVE_WITHIN.search(self.text):
            self.fail(within.start(), "a second directive on one line", f"put it on a line of its own; {self.verbatim()}")
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
        return f"to match this text literally, write {self.word}{{LITERAL}}:"

    def read_plain(self) -> None:
        found = _PLAIN.match(self.text, self.at)
        plain = found[0] if found else ""
        if meant := _EXPRESSION_OUTSIDE.search(plain):
            message = f"'{meant[0]}' is plain text outside {{{{ }}}}"
            self.fail(self.at + meant.start(), message, f"put it between {{{{ and }}}}; {self.verbatim()}")
        self.parts.append(Literal(canonical(plain)))
        self.at += len(plain)

    def read_expression(self) -> None:
        end = self.text.find("}}", self.at + 2)
        if end < 0:
            self.fail(self.at, "{{ without its }}", f"close it; {self.verbatim()}")
        self.parts.append(RE(self.translated(self.at + 2, end)))
        self.at = end + 2

    def translated(self, start: int, end: int) -> str:
        """Return the POSIX expression between two offsets as a Python expression."""
        try:
            posix = from_posix(canonical(self.text[start:end]))
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
            self.fail(self.at, f"not a variable: '[[{inner}]]'", self.verbatim())
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
            self.fail(start, f"{name} may be empty", "let it match at least one character: + instead of *")
        self.parts.append(Capture(name, expression, str))

    def end_of_variable(self) -> int:
        """Return the offset of the closing ``]]``. Brackets in the expression are paired or escaped by a backslash."""
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
        """Reject ``foo}}`` and ``{foo}}``: probably the opening braces are mistyped, and as text they would never match."""
        plain = "".join(part.content for part in self.parts if isinstance(part, Literal))
        if closing * 2 in plain and plain.count(opening) < plain.count(closing):
            self.fail(self.text.rfind(closing * 2), f"{closing * 2} without its {opening * 2}", f"open it; {self.verbatim()}")


def _require_a_claim(found: Sequence[Directive]) -> None:
    if not found:
        raise ChecksError(1, 1, "no directives: nothing would be checked", f"write one of {' '.join(_FORMS)}")
    if not any(directive.positive for directive in found):
        message = "only CHECK-NOT: any text without these lines passes, even a wrong one"
        raise ChecksError(found[0].line, 1, message, "add a CHECK: for a required line")


def _require_something_before(found: Iterable[Directive]) -> None:
    anchored = False
    for directive in found:
        if directive.kind in ADJACENT and not anchored:
            message = f"{directive.kind.value} without a CHECK: before it"
            raise ChecksError(directive.line, 1, message, "begin with CHECK: or CHECK-LABEL:")
        anchored |= directive.kind not in FLOATING


def _require_definitions(found: Iterable[Directive]) -> None:
    known: set[str] = set()
    for directive in found:
        here: set[str] = set()
        for part in directive.parts:
            if isinstance(part, Subst) and part.variable not in known | here:
                column = directive.column + directive.pattern.find(f"[[{part.variable}]]")
                hint = did_you_mean(part.variable, known) or f"define it on an earlier line: [[{part.variable}:...]]"
                raise ChecksError(directive.line, column, f"[[{part.variable}]] is not defined", hint)
            if isinstance(part, Capture):
                here.add(part.name)
        # A variable of a CHECK-NOT is never defined.
        known |= here if directive.positive else set()


def _require_substance(found: Iterable[Directive]) -> None:
    """Reject checks if all their patterns match the empty text, such as ``{{.*}}``."""
    positive = [directive for directive in found if directive.positive]
    if all(directive.kind is not Kind.EMPTY and _matches_nothing(directive) for directive in positive):
        raise ChecksError(positive[0].line, positive[0].column, "every pattern matches the empty text: nothing is checked")


def _matches_nothing(directive: Directive) -> bool:
    """Return whether the pattern matches the empty text, with each variable replaced by some text."""
    known = {part.variable: "x" for part in directive.parts if isinstance(part, Subst)}
    try:
        return compile_pattern(directive, known).search("") is not None
    except CheckError as problem:
        raise ChecksError(directive.line, directive.column, problem.message) from problem
