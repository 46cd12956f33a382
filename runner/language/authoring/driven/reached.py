"""The functions, methods and attributes of its file that a driven test reaches."""

import ast
import copy
from dataclasses import dataclass, field

from runner.language.authoring.driven.rewriting import Rewriter, claims_within, is_assertion
from runner.language.authoring.python_file import PythonFile, Test
from runner.language.authoring.reading import Reading
from runner.language.authoring.values import NotCarried

DEVICES = ("device", "device_type")


@dataclass(eq=False)
class Reached:
    """What a test reaches, each as a copy that may be changed."""

    file: PythonFile
    test: Test
    methods: dict[str, ast.FunctionDef] = field(default_factory=dict)
    functions: dict[str, ast.FunctionDef] = field(default_factory=dict)
    attributes: dict[str, ast.Assign] = field(default_factory=dict)
    set_ups: list[str] = field(default_factory=list)
    uses: dict[str, int] = field(default_factory=dict)
    """How often each is named; more than once where a loop or a function within a function names it."""
    has_device: bool = False

    @property
    def lineage(self) -> list[ast.ClassDef]:
        """The class of the test and its bases."""
        return self.file.lineage(self.test.owner) if self.test.owner is not None else []

    def collect(self) -> None:
        """Find everything, beginning with the test."""
        name = self.test.function.name
        function = copy.deepcopy(self.test.function)
        function.decorator_list = []
        (self.methods if self.test.owner is not None else self.functions)[name] = function
        function.args = ast.arguments([], function.args.args[:1] if self.test.owner is not None else [], None, [], [], None, [])
        self.uses[name] = 1
        for number, owner in enumerate(reversed(self.lineage), start=1):
            for part in owner.body:
                if isinstance(part, ast.FunctionDef) and part.name == "setUp":
                    self._add_set_up(part, number)
        waiting = [*self.methods.values(), *self.functions.values()]
        while waiting:
            waiting += self._names_of(waiting.pop())

    def _add_set_up(self, node: ast.FunctionDef, number: int) -> None:
        made = copy.deepcopy(node)
        made.name = f"set_up_{number}"
        self.methods[made.name] = made
        self.set_ups.append(made.name)
        self.uses[made.name] = 1

    def _names_of(self, function: ast.FunctionDef) -> list[ast.FunctionDef]:
        """Remember what a function names; return the functions that are new."""
        found: list[ast.FunctionDef] = []
        stored = {
            part.attr
            for part in ast.walk(function)
            if isinstance(part, ast.Attribute) and isinstance(part.ctx, ast.Store) and _is_self(part.value)
        }
        self.attributes.update({name: _NOTHING for name in stored if name not in self.attributes})
        for node, weight in _weighted(function):
            if isinstance(node, ast.Attribute) and _is_self(node.value):
                self.uses[node.attr] = self.uses.get(node.attr, 0) + weight
                found += self._member(node.attr)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                self.uses[node.id] = self.uses.get(node.id, 0) + weight
                found += self._global(node.id)
        return found

    def _member(self, name: str) -> list[ast.FunctionDef]:
        if name in self.methods or name in self.attributes or name.startswith("assert") or name in _OF_UNITTEST:
            return []
        if name in DEVICES:
            self.has_device = True
            return []
        for owner in self.lineage:
            for part in owner.body:
                if isinstance(part, ast.FunctionDef) and part.name == name:
                    self.methods[name] = copy.deepcopy(part)
                    return [self.methods[name]]
                if isinstance(part, ast.Assign) and any(isinstance(to, ast.Name) and to.id == name for to in part.targets):
                    return self._attribute(name, part)
        # an attribute that another method sets is found later
        self.attributes.setdefault(name, _MISSING)
        return []

    def _attribute(self, name: str, part: ast.Assign) -> list[ast.FunctionDef]:
        """Take over an attribute of the class; a function of the file is a method by it."""
        found = self.file.definitions.get(part.value.id) if isinstance(part.value, ast.Name) else None
        if isinstance(found, ast.FunctionDef):
            self.methods[name] = copy.deepcopy(found)
            self.methods[name].name = name
            return [self.methods[name]]
        self.attributes[name] = part
        return [made for inner in ast.walk(part.value) if isinstance(inner, ast.Name) for made in self._global(inner.id)]

    def _global(self, name: str) -> list[ast.FunctionDef]:
        found = self.file.definitions.get(name)
        if isinstance(found, ast.ClassDef) and claims_within(found):
            raise NotCarried(f"the class '{name}' asserts something")
        if not isinstance(found, ast.FunctionDef) or name in self.functions:
            return []
        self.functions[name] = copy.deepcopy(found)
        return [self.functions[name]]

    def rewrite(self, reading: Reading) -> Rewriter:
        """Rewrite the assertions of all functions; return what did it."""
        rewriter = Rewriter(reading)
        for name, node in (*self.methods.items(), *self.functions.items()):
            if any(isinstance(part, ast.Await | ast.AsyncFunctionDef) for part in ast.walk(node)):
                raise NotCarried("a function that waits")
            rewriter.function(node, once=self.uses.get(name, 0) == 1)
        missing = [name for name, part in self.attributes.items() if part is _MISSING]
        if missing:
            raise NotCarried(f"'self.{min(missing)}' is not defined in the file")
        for node in (*self.methods.values(), *self.functions.values()):
            _check_rest(node, self.file)
        return rewriter

    def own_class(self, name: str) -> ast.ClassDef:
        """Return a class with the methods and attributes of the test."""
        body: list[ast.stmt] = [copy.deepcopy(part) for part in self.attributes.values() if part.targets]
        if self.has_device:
            device = ast.Attribute(ast.Name("params", ast.Load()), "device", ast.Load())
            body += [ast.Assign([ast.Name(word, ast.Store())], copy.deepcopy(device)) for word in DEVICES]
        made = ast.parse(f"class {name}:\n    pass").body[0]
        assert isinstance(made, ast.ClassDef)
        made.body = [*body, *self.methods.values()]
        return ast.fix_missing_locations(made)


_NOTHING = ast.Assign([], ast.Constant(None))
"""In place of an attribute that a method sets."""
_MISSING = ast.Assign([], ast.Constant(None))
_OF_UNITTEST = frozenset(["fail", "skipTest", "subTest"])


def _check_rest(node: ast.FunctionDef, file: PythonFile) -> None:
    """Raise ``NotCarried`` for what is left of unittest in a rewritten function."""
    for part in ast.walk(node):
        if is_assertion(part) or (isinstance(part, ast.Attribute) and _is_self(part.value) and part.attr in _OF_UNITTEST):
            raise NotCarried(f"'{ast.unparse(part)}' at a place where nothing can be kept")
        if (
            isinstance(part, ast.Call)
            and isinstance(part.func, ast.Name)
            and part.func.id in file.imports
            and any(map(_is_self, part.args))
        ):
            raise NotCarried(f"'{part.func.id}' of another file, which may assert something")
        if isinstance(part, ast.Call) and ast.unparse(part) == "super()" and not _within_class(node, part):
            raise NotCarried("a method of a base class that is not in the file")
        if isinstance(part, ast.Attribute) and part.attr == "SkipTest":
            raise NotCarried("a skip under a condition that is not known here")


def _within_class(function: ast.FunctionDef, call: ast.Call) -> bool:
    """Whether a call stands in a class that a function defines."""
    classes = [part for part in ast.walk(function) if isinstance(part, ast.ClassDef)]
    return any(call is inner for part in classes for inner in ast.walk(part))


def _is_self(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id in ("self", "cls")


_SEVERAL = (ast.For, ast.While, ast.ListComp, ast.GeneratorExp, ast.SetComp, ast.DictComp, ast.Lambda, ast.FunctionDef, ast.ClassDef)


def _weighted(function: ast.FunctionDef) -> list[tuple[ast.AST, int]]:
    """Return the parts of a function's body; those that may run several times count twice. Classes have a ``self`` of their own."""
    found: list[tuple[ast.AST, int]] = []
    waiting: list[tuple[ast.AST, int]] = [(part, 1) for part in (*function.body, *function.decorator_list, *function.args.defaults)]
    while waiting:
        node, weight = waiting.pop()
        found.append((node, weight))
        inner = 2 if isinstance(node, _SEVERAL) else weight
        skips_self = isinstance(node, ast.ClassDef)
        for child in ast.iter_child_nodes(node):
            if skips_self and isinstance(child, ast.FunctionDef):
                waiting += [(part, 2) for part in ast.walk(child) if isinstance(part, ast.Name) and part.id != "self"]
            else:
                waiting.append((child, inner))
    return found
