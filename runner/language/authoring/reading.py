"""The state of reading one test: what its names stand for, and what the spec has so far."""

import ast
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from runner.language.authoring.python_file import PythonFile, Test
from runner.language.authoring.values import Expectation, NotCarried, Step, Value


@dataclass(frozen=True, slots=True, order=True)
class Lost:
    """A part of the test that the spec does not have."""

    line: int
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The functions of the reader that are called from below: an expression may hold a call, and a call may read statements."""

    evaluate: Callable[[ast.expr, "Reading"], Value]
    """The value of an expression."""
    call: Callable[[ast.Call, "Reading"], Value | None]
    """The value of a call; None for a call without one."""
    call_of: Callable[[Value, ast.Call, "Reading"], Value | None]
    """The same for a call of this value, whatever the call names."""
    read_body: Callable[[list[ast.stmt], "Reading"], None]
    """The statements of a function."""


@dataclass(eq=False)
class Reading:
    """What is known of a test after some of its statements."""

    file: PythonFile
    test: Test
    rules: Rules
    scope: dict[str, Value] = field(default_factory=dict)
    steps: list[Step] = field(default_factory=list)
    config: dict[str, dict[str, Any]] = field(default_factory=dict)
    """The options by section: those that hold for the whole test."""
    inner: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    """The options of the blocks around the current statement."""
    block_configs: list[dict[str, dict[str, Any]]] = field(default_factory=list)
    """The options of the blocks in which compiled calls were made."""
    contexts: list[Any] = field(default_factory=list)
    torch_settings: dict[str, Any] = field(default_factory=dict)
    when: list[dict[str, Any]] = field(default_factory=list)
    matrix: dict[str, list[Any]] = field(default_factory=dict)
    devices: set[str] = field(default_factory=set)
    """The devices that the test names: backend, gpu, cpu."""
    vendors: set[str] = field(default_factory=lambda: {"cpu", "cuda", "rocm"})
    """The backends that no skip removes."""
    requires: list[Any] = field(default_factory=list)
    notes: list[Lost] = field(default_factory=list)
    """What differs without claiming less."""
    lost: list[Lost] = field(default_factory=list)
    returned: list[Value | None] = field(default_factory=list)
    depth: int = 0
    default_device: str = "default"
    work: int = 0
    is_common: bool = False
    """Whether the test calls torch's check_model, which repeats it in half precision on a GPU."""
    eager_backwards: list[str] = field(default_factory=list)
    definitions: list[Value] = field(default_factory=list)
    """Functions and calls that define operators: the prelude has them, in this order."""
    eager_calls: list[tuple[int, Value]] = field(default_factory=list)
    """Calls in eager mode whose results the test does not use: what they change of their arguments counts."""
    axes: dict[str, list[str]] = field(default_factory=dict)
    """What a test repeats itself over, by name: parameters and loops, with a word for each value."""
    pinned: Mapping[str, int] = field(default_factory=dict)
    """The axes of which this reading takes one value alone, and which."""
    blocks: list["Block"] = field(default_factory=list)
    """The blocks of ``with`` statements whose context manager is a function that is being read."""

    def lose(self, line: int, reason: str) -> None:
        """Remember that a part is not carried."""
        found = Lost(line, reason)
        if found not in self.lost:
            self.lost.append(found)

    def note(self, line: int, text: str) -> None:
        """Remember a difference that claims no less."""
        found = Lost(line, text)
        if found not in self.notes:
            self.notes.append(found)

    def add(self, step: Step) -> Step:
        """Add a step; compiled calls remember the options of their block."""
        if self.when:
            raise NotCarried("a step under a condition on the device")
        if step.kind == "call" or step.of_host:
            if any(other.of_host != step.of_host for other in self.steps if other.of_host or other.kind == "call"):
                raise NotCarried("library calls beside compiled calls")
            self._hold_options()
            step.contexts = tuple(self.contexts)
        self.steps.append(step)
        return step

    def _hold_options(self) -> None:
        merged: dict[str, dict[str, Any]] = {}
        for block in self.inner:
            for section, options in block.items():
                merged.setdefault(section, {}).update(options)
        if self.block_configs and self.block_configs[0] != merged:
            raise NotCarried("compiled calls under different options")
        self.block_configs.append(merged)

    def expect(self, line: int, body: Mapping[str, Any], step: Step | None = None) -> None:
        """Add an expectation to a step, the last one by default."""
        if step is None:
            if not self.steps:
                self.steps.append(Step("clear_counters", line))
            step = self.steps[-1]
        made = dict(body)
        if self.when:
            ((kind, value),) = made.items()
            made = {kind: conditional(kind, value, self.when[-1])}
        step.expects.append(Expectation(line, made))

    @contextmanager
    def condition(self, when: Mapping[str, Any]) -> Iterator[None]:
        """Expectations made within hold under a condition."""
        if self.when:
            raise NotCarried("a condition within a condition")
        self.when.append(dict(when))
        try:
            yield
        finally:
            self.when.pop()

    def spend(self) -> None:
        """Count an operation, so that a hostile file cannot take forever."""
        self.work += 1
        if self.work > _MOST_WORK:
            raise TooLarge


@dataclass(eq=False)
class Block:
    """The block of a ``with`` statement, which stands where the function of its context manager yields."""

    body: list[ast.stmt]
    target: ast.expr | None
    scope: dict[str, Value]
    is_read: bool = False


class TooLarge(Exception):
    """The test needs more operations than a reader of it would."""


_MOST_WORK = 200_000


def conditional(kind: str, value: Any, when: Mapping[str, Any]) -> Any:
    """Return the value of an expectation that applies under a condition."""
    if kind in ("counter", "metric"):
        return {name: [{"when": dict(when), "value": count}] for name, count in value.items()}
    if kind == "generated_files":
        raise NotCarried("a number of files under a condition on the device")
    if kind in ("equals", "differs"):
        raise NotCarried("equality under a condition on the device")
    return {"when": dict(when), **value}


def line_of(node: ast.AST) -> int:
    """Return the line of a node."""
    return getattr(node, "lineno", 0)
