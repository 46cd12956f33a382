"""The two lists of torch-xpu-ops: a Python file with ``skip_dict = {"file.py": ("test_name", ...)}``, and an issue with ``Cases:``.

The Python file is parsed and never run: anything but literals is refused.
"""

import ast
import io
import tokenize
from collections.abc import Iterator
from pathlib import Path

from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position, shown_path
from runner.language.importers.base import MOST_ENTRIES, Imported
from runner.language.read.source import read_bytes

_FORM = 'write skip_dict = {"test_file.py": ("test_name", ...)}'
_CASES = "write a line 'Cases:' and below it lines 'category,class,name'"


def read(path: Path) -> list[Imported]:
    """Return the names of a skip list; raise ``InvalidSpecs`` with every problem of the file."""
    text = _text(path, "a skip list")
    try:
        tree = ast.parse(text, filename=str(path))
    except (SyntaxError, ValueError) as error:
        line, column = (error.lineno or 1, error.offset or 1) if isinstance(error, SyntaxError) else (1, 1)
        raise InvalidSpecs([_problem(path, line, column, f"is not Python: {error.args[0]}")]) from error
    except (RecursionError, MemoryError) as error:
        raise InvalidSpecs([_problem(path, 1, 1, "is nested too deeply")]) from error
    problems: list[Diagnostic] = []
    found = list(_entries(path, tree, _comments(text), problems))
    if not found and not problems:
        problems.append(_problem(path, 1, 1, "has no dict of tests"))
    if len(found) > MOST_ENTRIES:
        problems.append(_problem(path, 1, 1, f"has more than {MOST_ENTRIES} tests"))
    if problems:
        raise InvalidSpecs(problems)
    return found


def _entries(path: Path, tree: ast.Module, comments: dict[int, str], problems: list[Diagnostic]) -> Iterator[Imported]:
    for node in tree.body:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
        if not isinstance(value, ast.Dict):
            problems.append(_at(path, node, "a skip list has assignments of dicts alone"))
            continue
        for key, tests in zip(value.keys, value.values, strict=True):
            if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
                problems.append(_at(path, key or tests, "a key is the text of a file's name"))
                continue
            if isinstance(tests, ast.Constant) and tests.value is None:  # nothing of the file is skipped
                continue
            yield from _tests(path, key.value, tests, comments, problems)


def _tests(path: Path, file: str, tests: ast.expr, comments: dict[int, str], problems: list[Diagnostic]) -> Iterator[Imported]:
    if not isinstance(tests, ast.Tuple | ast.List):
        problems.append(_at(path, tests, f"the tests of '{file}' are a tuple of names, or None"))
        return
    comment = comments.get(tests.lineno) or comments.get(tests.lineno - 1, "")
    last = tests.lineno
    for test in tests.elts:
        if not isinstance(test, ast.Constant) or not isinstance(test.value, str):
            problems.append(_at(path, test, "a test is the text of its name"))
            continue
        # a comment between names is about the names below it
        new = " ".join(comments[line] for line in range(last + 1, test.lineno) if line in comments)
        comment, last = new or comment, test.end_lineno or test.lineno
        own = " ".join(filter(None, [comments.get(test.lineno, ""), comment]))
        position = Position(file=shown_path(path), line=test.lineno, column=test.col_offset + 1)
        yield Imported(fields={"file": file, "test": test.value}, position=position, tests=(f"{file}::{test.value}",), comment=own)


def _comments(text: str) -> dict[int, str]:
    """Return the comments by line; those that tokenize cannot read are left out."""
    found: dict[int, str] = {}
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.COMMENT:
                found[token.start[0]] = token.string.lstrip("#").strip()
    except (tokenize.TokenError, SyntaxError):
        return found
    return found


def read_issue(path: Path) -> list[Imported]:
    """Return the cases of an issue's text; raise ``InvalidSpecs`` with every problem of the file."""
    lines = _text(path, "the text of an issue").splitlines()
    start = next((number for number, line in enumerate(lines) if line.strip() == "Cases:"), None)
    if start is None:
        raise InvalidSpecs([_problem(path, 1, 1, "has no line 'Cases:'", _CASES)])
    comment = " ".join(line.strip() for line in lines[:start])[:500]
    found: list[Imported] = []
    problems: list[Diagnostic] = []
    for number, line in enumerate(lines[start + 1 :], start=start + 2):
        words = [word.strip() for word in line.split(",", 2)]  # the name of a parametrized test can have commas of its own
        if not line.strip() or line.strip().startswith("```"):
            if found and not line.strip():
                break  # the list ends at the first empty line below it
            continue
        if len(words) != 3 or not all(words) or not all(word.isprintable() for word in words):
            problems.append(_problem(path, number, 1, "is no case: three words with commas between them", _CASES))
            continue
        position = Position(file=shown_path(path), line=number)
        fields = dict(zip(("category", "class", "test"), words, strict=True))
        found.append(Imported(fields=fields, position=position, tests=(f"{words[1]}::{words[2]}",), comment=comment))
    if not found and not problems:
        problems.append(_problem(path, start + 1, 1, "has no case below 'Cases:'", _CASES))
    if problems or len(found) > MOST_ENTRIES:
        raise InvalidSpecs(problems or [_problem(path, 1, 1, f"has more than {MOST_ENTRIES} cases", _CASES)])
    return found


def _text(path: Path, article: str) -> str:
    data = read_bytes(path, article=article)
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise InvalidSpecs([_problem(path, line, 1, "is not UTF-8")]) from error


def _at(path: Path, node: ast.AST, message: str) -> Diagnostic:
    return _problem(path, getattr(node, "lineno", 1), getattr(node, "col_offset", 0) + 1, message)


def _problem(path: Path, line: int, column: int, message: str, hint: str = _FORM) -> Diagnostic:
    return Diagnostic(position=Position(file=shown_path(path), line=line, column=column), message=message, hint=hint)
