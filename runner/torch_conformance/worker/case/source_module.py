"""Compiles the Python of a spec so that tracebacks, Dynamo and Triton report the YAML file and its
lines.
"""

import ast
import contextlib
import hashlib
import json
import linecache
import os
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch_conformance.vocabulary.picture import PREFIX
from torch_conformance.worker.torch_compat import imports

Block = Mapping[str, Any]


class SpecModule:
    """The module of a spec's preludes and functions.

    Its name depends only on the key, so that its objects can be pickled.
    """

    def __init__(self, key: str, namespace: Mapping[str, Any]) -> None:
        name = PREFIX + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self.module = types.ModuleType(name)
        vars(self.module).update(namespace)
        sys.modules[name] = self.module
        self._of_functions: list[types.ModuleType] = []
        self._lines: dict[str, dict[int, str]] = {}

    @property
    def namespace(self) -> dict[str, Any]:
        """The names of the module: those that were given, and those that the spec's Python
        defined.
        """
        return vars(self.module)

    def let_children_import(
        self, folder: str, blocks: Sequence[Block], params: Mapping[str, Any]
    ) -> None:
        """Write the module of these blocks to a folder, and add it to ``sys.path`` and to
        ``PYTHONPATH`` of children.
        """
        os.makedirs(folder, exist_ok=True)
        sources = [{key: block[key] for key in ("file", "line", "text")} for block in blocks]
        text = _CHILD.format(
            blocks=json.dumps(sources), params=json.dumps(dict(params), default=repr)
        )
        with open(
            os.path.join(folder, f"{self.module.__name__}.py"), "w", encoding="utf-8"
        ) as stream:
            stream.write(text)
        sys.path.append(folder)
        os.environ["PYTHONPATH"] = os.pathsep.join(
            part for part in (os.environ.get("PYTHONPATH"), folder) if part
        )

    def execute(self, block: Block) -> None:
        """Execute a block in the module."""
        exec(self._compile(block), self.namespace)

    def function(self, block: Block, entry: str) -> Callable[..., Any]:
        """Execute the block of a function in a copy of the module's namespace, and return the
        object ``entry``.

        Two functions of a spec may have the same name, and each may have helpers.
        """
        copied = types.ModuleType(self.module.__name__)
        names = vars(copied)
        names.update(self.namespace)
        exec(self._compile(block), names)
        self._of_functions.append(copied)
        return names[entry]

    def globals(self) -> list[types.ModuleType]:
        """Return the modules whose names are the globals of the spec's functions."""
        return [self.module, *self._of_functions]

    def _compile(self, block: Block) -> types.CodeType:
        """Compile a block at its lines of the YAML file, and register these in ``linecache`` under
        the name of the file.

        All other lines are empty there, so that ``inspect.getsource`` does not read YAML.
        """
        file, text = str(block["file"]), block["text"].splitlines()
        numbers = range(block["line"], block["line"] + len(text))
        text_of_line = self._lines.setdefault(file, {})
        if any(
            number in text_of_line for number in numbers
        ):  # two blocks on one line of flow style
            file = f"{file}#{block['name']}"
            text_of_line = self._lines.setdefault(file, {})
        text_of_line.update(zip(numbers, text, strict=True))
        lines = [
            text_of_line.get(number, "") + "\n"
            for number in range(1, max(text_of_line, default=0) + 1)
        ]
        names: dict[int, str] = {}
        with contextlib.suppress(SyntaxError):
            # two blocks on one line; the names are only used in messages
            _name_functions(ast.parse("".join(lines)), "", names)
        imports.name_lines(file, names)
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
        # inspect reads the source of a class from its module's file; without a file Dynamo treats
        # the class as a builtin
        self.module.__file__ = file
        return compile("\n" * (block["line"] - 1) + block["text"], file, "exec", dont_inherit=True)


def _name_functions(node: ast.AST, within: str, names: dict[int, str]) -> None:
    """Add the qualified name of the innermost function or class by line number."""
    for child in ast.iter_child_nodes(node):
        name = within
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = f"{within}.{child.name}" if within else child.name
            names.update(
                dict.fromkeys(range(child.lineno, (child.end_lineno or child.lineno) + 1), name)
            )
        _name_functions(child, name, names)


_CHILD = '''"""The Python of a spec, for children of the process that runs its case."""

import json
import types

import torch

params = types.SimpleNamespace(**json.loads({params!r}))
for _block in json.loads({blocks!r}):
    exec(compile("\\n" * (_block["line"] - 1) + _block["text"], _block["file"], "exec", dont_inherit=True), globals())
'''  # noqa: E501 - text that is read by its lines
"""The source of the module that children import under the name of the spec's module."""
