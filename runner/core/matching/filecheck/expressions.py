"""Compiles a directive to a regular expression, with the parts and the compiler of the ``filecheck`` package."""

import re
from collections.abc import Iterable, Iterator, Mapping

from filecheck.compiler import compile_uops
from filecheck.ops import RE, Capture, CheckOp, Literal, Subst, UOp
from filecheck.options import Options

from runner.core.matching.filecheck.directives import Directive, Kind

_OPTIONS = Options(match_filename="", strict_whitespace=True)
"""Options for the library. Blanks are normalised here, before the library gets the text."""
_EMPTY_LINE = re.compile(r"\n$", re.MULTILINE)
_RUN_OF_BLANKS = re.compile(r"[ \t]{2,}|\t")


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
    pattern, _ = compile_uops(CheckOp("CHECK", "CHECK", directive.pattern, directive.line, parts), {}, _OPTIONS)
    return pattern


def without_variables(parts: Iterable[UOp], variables: Mapping[str, str]) -> Iterator[UOp]:
    """Yield the parts with each variable as its text, or as a named group where it is defined."""
    here: set[str] = set()
    for part in parts:
        match part:
            case Capture(name=name, pattern=pattern):
                here.add(name)
                yield RE(f"(?P<{group_name(name)}>{pattern})")
            case Subst(variable=name) if name in here:
                yield RE(f"(?P={group_name(name)})")
            case Subst(variable=name):
                yield Literal(variables[name])
            case _:
                yield part


def group_name(variable: str) -> str:
    """Return the name of the group of a variable. A variable may begin with a dollar sign."""
    return f"global_{variable[1:]}" if variable.startswith("$") else f"local_{variable}"
