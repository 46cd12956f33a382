"""What the names of a test stand for while it is read: constants, tensors, modules, functions, results of compiled calls."""

import ast
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


class NotCarried(Exception):
    """A part of a test that a spec cannot say, or that is not understood; the text says why."""


class Token:
    """The identity of a value: a copy of a tensor has the token of the original."""

    def __deepcopy__(self, memo: object) -> "Token":
        return self


@dataclass(frozen=True, eq=False, slots=True)
class Value:
    """What an expression of a test stands for. Copies of syntax trees that refer to it share it: its identity counts."""

    def __deepcopy__(self, memo: object) -> "Value":
        return self


@dataclass(frozen=True, eq=False, slots=True)
class Known(Value):
    """A constant."""

    value: Any


FALSE = Known(value=False)


@dataclass(frozen=True, eq=False, slots=True)
class Parameter(Value):
    """A parameter of the test: a key of the matrix."""

    name: str
    is_dtype: bool = False

    @property
    def template(self) -> str:
        """How YAML names it."""
        return "{{ " + self.name + " }}"


@dataclass(frozen=True, eq=False, slots=True)
class Device(Value):
    """A device: ``backend`` (that of the case), ``gpu`` or ``cpu``."""

    where: str


@dataclass(frozen=True, eq=False, slots=True)
class Dotted(Value):
    """Something that was imported."""

    path: str


@dataclass(frozen=True, eq=False, slots=True)
class Tensor(Value):
    """An input that the language can describe."""

    entry: Mapping[str, Any]
    device: str
    """``default`` where the test names none."""
    token: Token = field(default_factory=Token)
    marks: tuple[int, ...] = ()


@dataclass(frozen=True, eq=False, slots=True)
class Module(Value):
    """A module that a class or a function makes."""

    node: ast.Call
    scope: Mapping[str, Value]
    entry: Mapping[str, Any]
    device: str = "default"
    token: Token = field(default_factory=Token)


@dataclass(frozen=True, eq=False, slots=True)
class Function(Value):
    """A function of the test or of its file."""

    name: str
    node: ast.FunctionDef | ast.Lambda
    scope: Mapping[str, Value]

    @property
    def parameters(self) -> list[str]:
        """The names of its positional parameters."""
        return [argument.arg for argument in (*self.node.args.posonlyargs, *self.node.args.args)]


@dataclass(frozen=True, eq=False, slots=True)
class Class(Value):
    """A class of the test or of its file."""

    node: ast.ClassDef
    scope: Mapping[str, Value]


@dataclass(frozen=True, eq=False, slots=True)
class Compiled(Value):
    """What ``torch.compile`` returned."""

    target: Function | Module | Dotted
    options: Mapping[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class Counting(Value):
    """A backend of torch's tests that counts the graphs which it gives to another one."""

    backend: str


@dataclass(frozen=True, eq=False, slots=True)
class Compiler(Value):
    """``torch.compile(...)`` that waits for its function."""

    options: Mapping[str, Any]


@dataclass(frozen=True, eq=False, slots=True)
class Result(Value):
    """The result of a compiled call, or a part of it; with a loss that was made of it."""

    step: "Step"
    path: tuple[int | str, ...] = ()
    loss: str = ""


@dataclass(frozen=True, eq=False, slots=True)
class Codes(Value):
    """The code that steps generated: all pieces, or one of them."""

    step: "Step"
    index: int | None = None
    is_list: bool = True


@dataclass(frozen=True, eq=False, slots=True)
class Gradient(Value):
    """The gradient of a value."""

    of: Value


@dataclass(frozen=True, eq=False, slots=True)
class Expression(Value):
    """Any other value: the expression that makes it, with what its names stood for."""

    node: ast.expr
    scope: Mapping[str, Value]
    token: Token = field(default_factory=Token)
    options: str = ""
    """The options of the blocks around it."""


@dataclass(frozen=True, eq=False, slots=True)
class Entered(Value):
    """A context manager that calls of the spec enter."""

    made: Expression


@dataclass(frozen=True, eq=False, slots=True)
class Items(Value):
    """A list or a tuple of values."""

    items: tuple[Value, ...]
    kind: str = ""
    """``list`` or ``tuple``, where it is known."""


@dataclass(frozen=True, eq=False, slots=True)
class Raised(Value):
    """The exception of an ``assertRaises`` block."""

    step_holder: list["Step"]


@dataclass(frozen=True, eq=False, slots=True)
class Unknown(Value):
    """A value that was not understood; the reason stands with the line that made it."""

    line: int


@dataclass(eq=False)
class Expectation:
    """One expectation of a step, with the line of the test that it comes from."""

    line: int
    body: dict[str, Any]


@dataclass(eq=False)
class Step:
    """A step of the spec."""

    kind: str
    line: int
    arguments: dict[str, Any] = field(default_factory=dict)
    target: Function | Module | Dotted | None = None
    values: tuple[Value, ...] = ()
    expects: list[Expectation] = field(default_factory=list)
    name: str = ""
    contexts: tuple[Any, ...] = ()
    of: "Step | None" = None
    """The call that a backward belongs to."""
    of_host: bool = False
    """Whether it is a library call of a test that compiles nothing."""
    is_expected_to_raise: bool = False
