"""A Python file with tests, as a syntax tree: its imports, its definitions, its tests."""

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass, field

Definition = ast.FunctionDef | ast.ClassDef | ast.Assign | ast.AnnAssign | ast.Import | ast.ImportFrom


@dataclass(frozen=True, slots=True)
class Test:
    """A test: its function and its class, if it has one."""

    function: ast.FunctionDef
    owner: ast.ClassDef | None

    @property
    def name(self) -> str:
        """``Class::test``, or ``test``."""
        return f"{self.owner.name}::{self.function.name}" if self.owner else self.function.name


@dataclass(frozen=True, slots=True)
class PythonFile:
    """The parts of a file that tests refer to."""

    name: str
    tree: ast.Module
    definitions: dict[str, Definition] = field(default_factory=dict)
    """What each name of the file's top level is, the last definition of it."""
    imports: dict[str, str] = field(default_factory=dict)
    """The dotted path of each imported name."""
    calls: list[ast.Call] = field(default_factory=list)
    """The calls of the file that concern all of its tests."""
    wildcards: list[str] = field(default_factory=list)
    """The modules of which the file imports every name."""
    ambiguous: set[str] = field(default_factory=set)
    """Names of the top level that stand for different values under different conditions."""
    lineages: dict[str, list[ast.ClassDef]] = field(default_factory=dict)

    @classmethod
    def parse(cls, name: str, text: str) -> "PythonFile":
        """Parse; raises ``SyntaxError``, ``ValueError``, ``RecursionError`` or ``MemoryError`` for what is no Python."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about the escapes in strings of a file that is not ours
            tree = ast.parse(text)
        made = cls(name=name, tree=tree)
        for statement in _top_level(tree.body):
            for word in _names_of(statement):
                before = made.definitions.get(word)
                if (
                    isinstance(before, ast.Assign)
                    and isinstance(statement, ast.Assign)
                    and ast.dump(before.value) != ast.dump(statement.value)
                ):
                    made.ambiguous.add(word)
                made.definitions[word] = statement
            if isinstance(statement, ast.ImportFrom) and any(name.name == "*" for name in statement.names):
                made.wildcards.append(statement.module or "")
            if isinstance(statement, ast.Import | ast.ImportFrom):
                made.imports.update(imported(statement))
        words = ("copy_tests", "set_default_device")
        made.calls.extend(node for node in ast.walk(tree) if isinstance(node, ast.Call) and _last_word(node.func) in words)
        return made

    @property
    def has_default_device(self) -> bool:
        """Whether the file sets torch's default device."""
        return any(_last_word(call.func) == "set_default_device" for call in self.calls)

    def tests(self) -> list[Test]:
        """Return the tests, in the order of the file."""
        found = []
        for statement in _bodies(self.tree.body):
            if isinstance(statement, ast.FunctionDef) and statement.name.startswith("test"):
                found.append(Test(statement, None))
            if isinstance(statement, ast.ClassDef):
                methods = [part for part in statement.body if isinstance(part, ast.FunctionDef)]
                found += [Test(method, statement) for method in methods if method.name.startswith("test")]
        return found

    def class_named(self, name: str) -> ast.ClassDef | None:
        """Return a class of the file."""
        found = self.definitions.get(name)
        return found if isinstance(found, ast.ClassDef) else None

    def lineage(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        """Return a class and its bases within the file, the nearest first; also of classes that copy its tests."""
        if owner.name in self.lineages:
            return self.lineages[owner.name]
        found = self.lineages.setdefault(owner.name, [])
        waiting = [owner, *self._copies(owner)]
        while waiting:
            current = waiting.pop(0)
            if current in found:
                continue
            found.append(current)
            bases = (self.class_named(base.id) for base in current.bases if isinstance(base, ast.Name))
            waiting += [base for base in bases if base is not None]
        return found

    def _copies(self, owner: ast.ClassDef) -> list[ast.ClassDef]:
        """Return the classes that ``copy_tests`` copies the tests of a class to."""
        copied = []
        for call in self.calls:
            if _last_word(call.func) == "copy_tests" and len(call.args) > 1:
                source, target = call.args[:2]
                if isinstance(source, ast.Name) and source.id == owner.name and isinstance(target, ast.Name):
                    made = self.class_named(target.id)
                    copied += [made] if made is not None else []
        return copied


def imported(statement: ast.Import | ast.ImportFrom) -> dict[str, str]:
    """Return the dotted path of each name that a statement binds."""
    if isinstance(statement, ast.ImportFrom):
        return {name.asname or name.name: f"{statement.module or ''}.{name.name}" for name in statement.names}
    return {
        name.asname or name.name.partition(".")[0]: name.name if name.asname else name.name.partition(".")[0] for name in statement.names
    }


def _bodies(statements: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield statements, and those within conditions and attempts of the top level."""
    for statement in statements:
        yield statement
        if isinstance(statement, ast.If | ast.Try | ast.With) and not _is_main(statement):
            for part in ("body", "orelse", "finalbody"):
                yield from _bodies(getattr(statement, part, []))


def _last_word(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def _is_main(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.If) and "__main__" in ast.dump(statement.test)


def _top_level(statements: list[ast.stmt]) -> Iterator[Definition]:
    for statement in _bodies(statements):
        if isinstance(statement, Definition):
            yield statement


def _names_of(statement: Definition) -> list[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        return [statement.name]
    if isinstance(statement, ast.Import | ast.ImportFrom):
        return list(imported(statement))
    targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
    return [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
