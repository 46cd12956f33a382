"""From a directive to a regular expression, with the help of the ``filecheck`` package's parts and compiler."""

import re
from collections.abc import Iterable, Iterator, Mapping

from filecheck.compiler import compile_uops
from filecheck.ops import RE, Capture, CheckOp, Literal, Subst, UOp
from filecheck.options import Options

from runner.core.matching.filecheck.directives import Directive, Kind

_OPTIONS = Options(match_filename="", strict_whitespace=True)
"""For the library: blanks are made equal here, before it sees them."""
_EMPTY_LINE = re.compile(r"\n$", re.MULTILINE)
_RUN_OF_BLANKS = re.compile(r"[ \t]{2,}|\t")


def canonical(text: str) -> str:
    """Make any run of blanks one space, as FileCheck does to checks and text alike."""
    return _RUN_OF_BLANKS.sub(" ", text)


def compile_pattern(directive: Directive, variables: Mapping[str, str]) -> re.Pattern[str]:
    """Let the library make an expression of text and expressions alone.

    Variables are put in here, as text or as named groups, because the library finds its captures by counting
    parentheses, and miscounts.
    """
    if directive.kind is Kind.EMPTY:
        return _EMPTY_LINE
    parts = list(without_variables(directive.parts, variables))
    pattern, _ = compile_uops(CheckOp("CHECK", "CHECK", directive.pattern, directive.line, parts), {}, _OPTIONS)
    return pattern


def without_variables(parts: Iterable[UOp], variables: Mapping[str, str]) -> Iterator[UOp]:
    """Yield the parts with variables as the text that they stand for, or as named groups where they are defined."""
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
    """Return the name of a group for a variable, which may begin with a dollar sign."""
    return f"global_{variable[1:]}" if variable.startswith("$") else f"local_{variable}"
