"""The code part of a generated file: everything except comments, docstrings and the boilerplate
that all generated files have.

Covers Python, C++ and kernel sources in strings of a Python wrapper. One pass of a regular
expression finds strings and comments, so a ``#`` in a string is not a comment, and a word in a
comment is not code. Invalid programs, such as mutants of ``audit``, can be read as well.
"""

import functools
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch_conformance.matching.time_limit import time_limit

Range = tuple[int, int]


@dataclass(frozen=True, slots=True)
class Code:
    """A text without comments and boilerplate. Lines that would be empty are removed."""

    text: str
    numbers: tuple[int, ...]
    """For each line of ``text`` its line number in the generated file, from 1."""
    length: int
    """The number of lines of that file."""


@functools.lru_cache(maxsize=4)
def code_of(text: str, *, strings: bool = True) -> Code:
    """Return the code of a generated file.

    With ``strings=False`` the contents of strings are removed too, except kernel sources.

    Raise ``PatternTooSlow`` after the time limit. Only hostile text reaches it: 16 MiB of
    inductor's code take two seconds.
    """
    with time_limit(_SECONDS):
        text = text.replace("\r\n", "\n").replace(_MARK, " ")
        ranges = _python(text, strings) if _is_python(text) else _cpp(text, strings)
        return _without(text, ranges)


def whole(text: str) -> Code:
    """Return a text with nothing removed."""
    text = text.replace("\r\n", "\n")
    length = text.count("\n") + 1
    return Code(text, tuple(range(1, length + 1)), length)


def commented_out(text: str) -> str:
    """Return a generated file with every line commented out."""
    mark = "# " if _is_python(text) else "// "
    return "".join(mark + line for line in text.splitlines(keepends=True))


def joined(pieces: Sequence[Code]) -> Code:
    """Return several pieces as one, with the line numbers of the concatenated files."""
    numbers: list[int] = []
    before = 0
    for piece in pieces:
        numbers += [before + number for number in piece.numbers]
        before += piece.length
    return Code("\n".join(piece.text for piece in pieces if piece.numbers), tuple(numbers), before)


_SECONDS = 10.0
_MARK, _FILL = "\0", "\1"


def _without(text: str, ranges: Sequence[Range]) -> Code:
    """Remove ranges from a text, and lines that are empty afterwards."""
    parts, at = [], 0
    for start, end in sorted(ranges):
        if end > at:
            start = max(start, at)
            parts += [text[at:start], _MARK, ("\n" + _MARK) * text.count("\n", start, end)]
            at = end
    parts.append(text[at:])
    lines, numbers = [], []
    for number, line in enumerate("".join(parts).split("\n"), start=1):
        code = line.replace(_MARK, "").rstrip() if _MARK in line else line
        if code or code is line:
            lines.append(code)
            numbers.append(number)
    return Code("\n".join(lines), tuple(numbers), text.count("\n") + 1)


# -- which language --------------------------------------------------------------------------------

_FIRST_LINE = re.compile(
    r"""^[ \t]*+(?:
        (?P<python>\#(?![ \t]*(?:include|pragma|define|undef|ifn?def|if|endif)\b)|(?:import|from|def|class|async_compile)\b|@
                  |\w+[ ]=[ ][^\n]*[^\n;]$)
        |(?P<cpp>\#|//|/\*|(?:namespace|extern|using|template|struct|static|void|auto|typedef)\b|[^\n]*[;{][ \t]*$)
    )""",  # noqa: E501 - a table
    re.MULTILINE | re.VERBOSE,
)


def _is_python(text: str) -> bool:
    """Decide by the first line that is possible in only one of the languages."""
    first = _FIRST_LINE.search(text)
    return first is None or first["python"] is not None


# -- C++ -------------------------------------------------------------------------------------------

_CPP_TOKEN = re.compile(
    r"(?P<comment>//(?:\\\n|[^\n])*|/\*.*?(?:\*/|\Z))"
    r"|(?P<directive>^[ \t]*\#[ \t]*include\b[^\n]*)"
    r'|R"(?P<mark>[^()\\\s"]{0,16})\((?P<raw>.*?)(?:\)(?P=mark)"|\Z)'
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')",
    re.DOTALL | re.MULTILINE,
)
_TRAILING_COMMENT = re.compile(r"//[^\n]*|/\*[^\n]*")


def _cpp(text: str, strings: bool, start: int = 0, end: int | None = None) -> list[Range]:
    ranges: list[Range] = []
    for token in _CPP_TOKEN.finditer(text, start, len(text) if end is None else end):
        match token.lastgroup:
            case "comment":
                ranges.append(token.span())
            case "directive":
                ranges += [
                    (comment.start(), token.end())
                    for comment in _TRAILING_COMMENT.finditer(text, *token.span())
                ]
            case "raw" | "mark":
                # a kernel compiled at its first call: Triton in a C++ wrapper
                source = token.span("raw")
                ranges += (
                    _python(text, strings, *source)
                    if token["mark"] == "TRITON"
                    else []
                    if strings
                    else [source]
                )
            case _ if not strings:
                ranges.append((token.start() + 1, token.end() - 1))
    return ranges


# -- Python ----------------------------------------------------------------------------------------

_PYTHON_TOKEN = re.compile(
    r"(?P<comment>\#[^\n]*)"
    r"|(?P<triple>'''(?P<one>[^'\\]*(?:(?:\\.|'(?!''))[^'\\]*)*)(?:'''|\Z)|\"\"\"(?P<two>[^\"\\]*(?:(?:\\.|\"(?!\"\"))[^\"\\]*)*)(?:\"\"\"|\Z))"
    # in a kernel source the quotes of triple-quoted strings are escaped
    r"|(?P<escaped>(?:\\'){3}.*?(?:(?:\\'){3}|\Z))"
    r"|(?P<string>\"(?:[^\"\\\n]|\\.)*\"|'(?:[^'\\\n]|\\.)*')",
    re.DOTALL,
)
_SOURCE = re.compile(r"\w+ = async_compile\.(?P<kind>\w+)\([^\n]*\Z")
_WRAPPER_SOURCE = re.compile(r"^\w+_src = \(\s*r\Z", re.MULTILINE)
_IN_PYTHON = frozenset(["triton", "pallas", "cutedsl", "nv_universal_gemm"])
"""Methods of AsyncCompile with Python source; the source of the others is C++ or similar."""

_REACH, _NEAR = 10_000, 200
"""How many characters before a string its assignment may begin: a list of argument types may be
long, the name of a source is short.
"""


def _python(text: str, strings: bool, start: int = 0, end: int | None = None) -> list[Range]:
    end = len(text) if end is None else end
    ranges: list[Range] = []
    skeleton: list[str] = []
    on_own_lines: list[Range] = []
    contents: list[Range] = []
    at = start
    for token in _PYTHON_TOKEN.finditer(text, start, end):
        first, last = token.span()
        skeleton += [text[at:first], (" " if token["comment"] else _FILL) * (last - first)]
        line = text.rfind("\n", at, first) + 1 or (start if at == start else None)
        at = last
        if token["comment"]:
            ranges.append(token.span())
        elif token["triple"] and (parser := _source(text, token)) is not None:
            ranges += parser(
                text, strings, *token.span("one" if token["one"] is not None else "two")
            )
        else:
            quotes = 3 if token["triple"] else 6 if token["escaped"] else 1
            contents.append((first + quotes, max(last - quotes, first + quotes)))
            # alone on its lines, except for a prefix such as r
            if line is not None and text[line:first].strip() in _PREFIXES:
                after = text.find("\n", last, end)
                if not text[last : end if after < 0 else after].partition("#")[0].strip():
                    on_own_lines.append((first, last))
    code = "".join([*skeleton, text[at:end]])
    # docstrings are strings that are statements: outside of brackets and not after a continued line
    depth = before = 0
    for first, last in on_own_lines:
        part = code[before : first - start]
        depth = max(0, depth + sum(map(part.count, "([{")) - sum(map(part.count, ")]}")))
        before = last - start
        if not depth and not part.rstrip(" \trRuUbBfF").endswith("\\\n"):
            ranges.append((first, last))
    ranges += [
        (start + match.start(), start + match.end()) for match in _BOILERPLATE.finditer(code)
    ]
    return ranges if strings else ranges + contents


def _source(text: str, token: re.Match[str]) -> Callable[[str, bool, int, int], list[Range]] | None:
    """Return the parser for a triple-quoted string with a kernel's source; None for any other
    string.
    """
    at = token.start()
    if assignment := _SOURCE.match(text, text.rfind("\n", max(0, at - _REACH), at) + 1, at):
        return _python if assignment["kind"] in _IN_PYTHON else _cpp
    return _cpp if _WRAPPER_SOURCE.search(text, max(0, at - _NEAR), at) else None


_PREFIXES = frozenset(["", *"rRuUbBfF", "rb", "br", "Rb", "rf", "fr"])
_BOILERPLATE = re.compile(
    r"""^[ \t]*+(?:from[ ]+[\w.]+[ ]+import[ ]*\([^)]*\)|(?:import|from)[ ][^\n]*)$   # imports
    |^\w+[ ]=[ ](?:torch|runner)(?:\.\w+)+[ \t]*$                                   # other names for parts of torch
    |^async_compile[ ]=[ ]AsyncCompile\(\)[ \t]*$|^async_compile\.wait\(globals\(\)\)[ \t]*$|^del[ ]async_compile[ \t]*$
    |^runner[ ]=[ ]Runner\(partitions=\[\]\)[ \t]*$
    |^class[ ]Runner:[ \t]*$
    |^[ ]+def[ ](?:__init__\(self,[ ]partitions\)|recursively_apply_fns\(self,[ ]fns\)):[ \t]*\n
        (?:(?:[ ]{2,}[^\n]*|[ \t]*)(?:\n|\Z)(?![ ]+def[ ]))*
    |^triton_helpers\.set_driver_to_gpu\(\)[ \t]*$
    |^(?:def[ ](?:get_args|benchmark_compiled_module)\(|if[ ]__name__[ ]==[ ])[^\n]*(?:\n[ \t][^\n]*|\n(?=[ \t]*(?:\n[ \t]|\Z)))*
    """,  # noqa: E501 - a table
    re.MULTILINE | re.VERBOSE,
)
"""The boilerplate of every generated Python file: imports, aliases, the frame of its class, and the
benchmark at its end.
"""
