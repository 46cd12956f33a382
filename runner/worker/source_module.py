"""Python of a spec as real Python: compiled so that tracebacks, Dynamo and Triton name the YAML file and its lines."""

import hashlib
import linecache
import sys
import types
from collections.abc import Mapping
from typing import Any

Block = Mapping[str, Any]


class SpecModule:
    """The module in which a spec's preludes and functions live. Its name is stable, so that what it defines can be pickled."""

    def __init__(self, key: str, given: Mapping[str, Any]) -> None:
        name = "conformance_spec_" + hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:16]
        self.module = types.ModuleType(name)
        vars(self.module).update(given)
        sys.modules[name] = self.module
        self._lines: dict[str, dict[int, str]] = {}

    @property
    def namespace(self) -> dict[str, Any]:
        """The names that the spec's Python defined, and those that it was given."""
        return vars(self.module)

    def execute(self, block: Block) -> None:
        """Execute a block in the module."""
        exec(self._compile(block), self.namespace)

    def function(self, block: Block, entry: str) -> Any:
        """Execute the block of a function in a namespace of its own that sees the module's, and return the entry.

        Two functions of a spec may have the same name, and each may have helpers.
        """
        names = dict(self.namespace)
        exec(self._compile(block), names)
        return names[entry]

    def _compile(self, block: Block) -> types.CodeType:
        file = self._place(block)
        # a class is looked for in its module's file; without one inspect takes it for a builtin, and Dynamo does not trace it
        self.module.__file__ = file
        padded = "\n" * (block["line"] - 1) + block["text"]
        return compile(padded, file, "exec", dont_inherit=True)

    def _place(self, block: Block) -> str:
        """Give ``linecache`` the block's lines at their numbers, alone: ``inspect.getsource`` must not run into YAML."""
        file = str(block["file"])
        text = block["text"].splitlines()
        wanted = range(block["line"], block["line"] + len(text))
        taken = self._lines.setdefault(file, {})
        if any(number in taken for number in wanted):  # two blocks on one line of flow style
            file = f"{file}#{block['name']}"
            taken = self._lines.setdefault(file, {})
        taken.update(zip(wanted, text, strict=True))
        lines = [taken.get(number, "") + "\n" for number in range(1, max(taken) + 1)]
        linecache.cache[file] = (sum(map(len, lines)), None, lines, file)
        return file
