"""``triton``: compiles one kernel of Triton for the target of the case, and runs nothing.

``tools/offline/worker`` carries it out.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from typing import Any

from torch_conformance.model import conditions
from torch_conformance.model.conditions import Surroundings, holds
from torch_conformance.model.diagnostics import Diagnostic, one_of, unknown
from torch_conformance.model.expectation import About
from torch_conformance.model.protocol import Json
from torch_conformance.model.values import frozen
from torch_conformance.vocabulary.steps.step_base import DataPath, StepContext, StepKind, Traits

CONDITIONAL = ("constexprs", "options")
"""The keys whose value may be a list with conditions, as ``config`` may."""

_INTEGERS = ("i1", "i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64")
_FLOATS = ("fp8e4nv", "fp8e5", "fp8e4b8", "fp8e5b16", "fp8e4b15", "fp16", "bf16", "fp32", "fp64")
TYPES = (*_INTEGERS, *_FLOATS)
"""The types of a signature; a pointer to one is written with ``*`` before it."""

_TYPE = re.compile(rf"\*{{0,2}}k?(?:{'|'.join(TYPES)})")


@frozen
class Triton(StepKind):
    """``triton: {source: PYTHON, signature: {x: "*fp32"}, constexprs: {BLOCK: 64}}``.

    In a case ``source`` is a block.
    """

    about = About.INDUCTOR
    traits = Traits(
        claims=True, python="source", why_once="one compile shows all that there is", is_proof=False
    )
    source: Json
    signature: Mapping[str, str]
    kernel: str | None = None
    constexprs: Json = None
    aligned: list[str] | None = None
    attributes: Mapping[str, Mapping[str, Any]] | None = None
    options: Json = None
    entry: str | None = None

    @property
    def kernel_name(self) -> str:
        """The name of the kernel in a case."""
        return self.kernel or self.entry or ""

    def problems(self, context: StepContext) -> Iterator[Diagnostic]:
        """Yield a kernel that is not there, and arguments that are not those of the kernel."""
        if context.tree is None:
            return
        defs = kernels(context.tree)
        if self.kernel is not None and self.kernel not in defs:
            yield context.problem((*context.path, "kernel"), *unknown("kernel", self.kernel, defs))
        elif self.kernel is None and len(defs) != 1:
            hint = f"add kernel: {one_of(defs)}" if defs else "write @triton.jit above a def"
            yield context.problem(
                (*context.path, "source"),
                f"{len(defs)} kernels with @triton.jit in the source",
                hint,
            )
        else:
            yield from self._argument_problems(context, defs[self.kernel or next(iter(defs))])

    def _argument_problems(
        self, context: StepContext, node: ast.FunctionDef
    ) -> Iterator[Diagnostic]:
        """Yield names that are not parameters of the kernel, parameters with a type and a value or
        with neither, and unknown types.
        """
        parameters = node.args
        names = [
            parameter.arg
            for parameter in (*parameters.posonlyargs, *parameters.args, *parameters.kwonlyargs)
        ]
        constants = list(self._constants())
        written: list[tuple[str, DataPath]] = [
            *((name, ("signature", name)) for name in self.signature),
            *((name, ("aligned", index)) for index, name in enumerate(self.aligned or [])),
            *((name, ("attributes", name)) for name in self.attributes or {}),
            *constants,
        ]
        for name, below in written:
            if name not in names:
                problem = unknown(f"argument of {node.name}", name, names)
                is_key = below[0] != "aligned"
                yield context.problem((*context.path, *below), *problem, key=is_key)
        for name, below in constants:
            if name in names and name in self.signature:
                message = f"'{name}' has a type and a value"
                hint = "a constexpr has no entry in signature"
                yield context.problem((*context.path, *below), message, hint, key=True)
        missing = [name for name in names if name not in {*self.signature, *dict(constants)}]
        if missing:
            hint = "give each argument a type in signature, or a value in constexprs"
            yield context.problem(
                (*context.path, "signature"),
                f"{node.name} has no type or value for {one_of(missing)}",
                hint,
                key=True,
            )
        for name, text in self.signature.items():
            if not conditions.is_template(text) and not _TYPE.fullmatch(text):
                message, hint = unknown("type", text, [*TYPES, *(f"*{name}" for name in TYPES)])
                yield context.problem((*context.path, "signature", name), message, hint)

    def _constants(self) -> Iterator[tuple[str, DataPath]]:
        """Yield every name of ``constexprs`` with its path below the step, whatever its
        condition.
        """
        if isinstance(self.constexprs, Mapping):
            yield from ((name, ("constexprs", name)) for name in self.constexprs)
        for index, entry in enumerate(self.constexprs if isinstance(self.constexprs, list) else []):
            inner = entry.get("set") if "set" in entry else entry
            below: DataPath = (
                ("constexprs", index, "set") if "set" in entry else ("constexprs", index)
            )
            yield from ((name, (*below, name)) for name in inner)

    @classmethod
    def planned(
        cls, arguments: Mapping[str, Json], surroundings: Surroundings
    ) -> Mapping[str, Json]:
        """Return the arguments with the conditions of options and values decided."""
        decided: dict[str, dict[str, Json]] = {}
        for key in CONDITIONAL:
            if isinstance(arguments.get(key), list):
                decided[key] = {}
                for entry in arguments[key]:
                    if "set" not in entry:
                        decided[key].update(entry)
                    elif holds(entry.get("when"), surroundings):
                        decided[key].update(entry["set"])
        return {**arguments, **decided, "kernel": cls.parse(arguments).kernel_name}


def patched(arguments: Mapping[str, Json], patch: Mapping[str, Json]) -> dict[str, Json]:
    """Return arguments with those of a control: another source, and other types, values and options
    by name.
    """
    changed = dict(arguments)
    for key, value in patch.items():
        value_before = changed.get(key) or {}
        if key == "source":
            changed[key] = (
                {**value_before, "text": value}
                if isinstance(value_before, Mapping) and value_before
                else value
            )
        elif isinstance(value_before, list):
            changed[key] = [*value_before, {"set": value}]
        else:
            changed[key] = {**value_before, **value}
    return changed


def kernels(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    """Return the defs of a source that Triton compiles: those with a decorator whose last word is
    ``jit``.
    """
    defs = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    return {
        node.name: node
        for node in defs
        if any(_is_jit(decorator) for decorator in node.decorator_list)
    }


def _is_jit(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = (
        called.attr
        if isinstance(called, ast.Attribute)
        else called.id
        if isinstance(called, ast.Name)
        else ""
    )
    return name == "jit"
