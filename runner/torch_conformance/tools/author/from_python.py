"""From a Python test to a spec. What is not carried stands above the spec as a comment."""

import ast
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch_conformance.model.diagnostics import Diagnostic, errors
from torch_conformance.model.flow import block, flow
from torch_conformance.tools.author.python_tests import (
    DTYPES,
    NotCarried,
    PythonFile,
    Test,
    bound_names,
    free_names,
)
from torch_conformance.tools.author.translation import Remark, Result, Translation


@dataclass(frozen=True, slots=True)
class Draft:
    """The spec of a test. Without a text, nothing could be carried."""

    test: str
    text: str
    lost: tuple[Remark, ...]

    @property
    def state(self) -> str:
        """``whole``, ``part`` or ``none``."""
        return "none" if not self.text else "part" if self.lost else "whole"


def draft(file: PythonFile, test: Test) -> Draft:
    """Return the spec of a test, with a comment for each line that it does not have."""
    translation, text = Translation(file, test), ""
    try:
        translation.read_test()
        text = _text(translation)
        if problems := problems_of(text, spec_name(test.name)):
            line = test.function.lineno
            translation.lost |= {
                Remark(line, f"validate refuses the spec: {problem.message}")
                for problem in problems
            }
            text = _text(translation)
    except NotCarried as error:
        translation.lost.add(Remark(test.function.lineno, str(error)))
    except RecursionError:
        translation.lost.add(Remark(test.function.lineno, "the test is nested too deeply"))
    return Draft(test.name, text, tuple(sorted(translation.lost)))


def spec_name(test: str) -> str:
    """Return the name of a spec's file, in field words."""
    words = re.sub(r"[^a-z0-9]+", "-", test.rpartition("::")[2].lower().removeprefix("test")).strip(
        "-"
    )
    return words or "test"


def problems_of(text: str, name: str) -> list[Diagnostic]:
    """Return the errors of a spec, in order."""
    from torch_conformance.language.load import inspect

    with tempfile.TemporaryDirectory(prefix="torch-conformance-new-") as folder:
        path = Path(folder) / f"{name}.yaml"
        path.write_text(text, encoding="utf-8")
        return sorted(errors(inspect([path]).problems))


def _text(translation: Translation) -> str:
    """Return the spec with the comments above it, with each expectation on lines of its own."""
    test, functions = translation.test, translation.functions
    first_contexts = next(step.contexts for step in translation.steps if step.kind == "call")
    arguments_of_steps: list[Any] = []
    for step in translation.steps:
        value = step.value
        if step.kind == "call":
            value = {} if len(functions) == 1 else {"function": step.function}
            if step.arguments:
                value["inputs"] = [_input(translation, argument) for argument in step.arguments]
            if step.contexts != first_contexts:
                value["context"] = list(step.contexts)
            value |= step.value
        arguments_of_steps.append(value)
    remarks = [("not carried", remark) for remark in sorted(translation.lost)] + [
        ("note", remark) for remark in sorted(translation.notes)
    ]
    lines = [
        f"# made from {translation.file.name}::{test.name}, lines {test.function.lineno} to "
        f"{test.function.end_lineno}"
    ]
    lines += [f"# {word}: line {remark.line}: {remark.text}" for word, remark in remarks]
    devices = translation.devices
    kinds = (
        {"cpu", "cuda", "rocm"}
        if "any" in devices
        else {"cuda", "rocm"}
        if "gpu" in devices
        else {"cpu"}
    )
    backends: list[str] = [
        name for name in ("cpu", "cuda", "rocm") if name in kinds - translation.dropped
    ]
    if not backends:
        raise NotCarried("no backend of the runner is left after the test's skips")
    options = {section: dict(values) for section, values in translation.options.items()}
    for section, values in (translation.call_options or {}).items():
        options.setdefault(section, {}).update(values)
    makers = [
        ast.parse(f"def make_{key}():\n    return {key}").body[0]
        for key, function in functions.items()
        if function is None
    ]
    prelude = [ast.unparse(statement) for statement in [*translation.prelude(), *makers]]
    words = spec_name(test.name).replace("-", " ")
    texts = {
        key: {"module": f"make_{key}"} if function is None else f"{ast.unparse(function)}\n"
        for key, function in functions.items()
    }
    spec = {
        "summary": f"{words.capitalize()}, as {test.name} of {translation.file.name} "
        f"claims{', in part' if translation.lost else ''}",
        "backends": backends,
        "matrix": translation.matrix,
        "requires": translation.requires,
        **{
            section: options.get(section)
            for section in ("config", "dynamo_config", "functorch_config")
        },
        "torch": translation.torch_settings,
        "context": list(first_contexts),
        "prelude": "".join(
            f"{text}\n\n" if "\n" in text else f"{text}\n" for text in prelude
        ).rstrip("\n")
        + "\n" * bool(prelude),
        "function" if len(texts) == 1 else "functions": next(iter(texts.values()))
        if len(texts) == 1
        else texts,
        "compile": translation.compile_options,
    }
    lines += [line for name, value in spec.items() if value for line in block(name, value)]
    lines.append("steps:")
    for step, value in zip(translation.steps, arguments_of_steps, strict=True):
        lines.append(f"  - {step.kind}: {flow(value)}")
        lines += ["    expect:"] if step.expects else []
        for expectation in step.expects:
            ((kind, claim),) = expectation.items()
            first, *rest = block(kind, claim)
            lines += [f"      - {first}", *(f"        {line}" for line in rest)]
    return "".join(re.sub(r"[^ -~]", "?", line) + "\n" for line in lines)


def _input(translation: Translation, node: ast.expr | Result) -> Any:
    """Return an argument of a call: a constant, a tensor as the language writes it, or the name of
    a value.
    """
    if isinstance(node, Result):
        return {"ref": f"{translation.named(node.step)}.{node.path}".strip(".")}
    if isinstance(node, ast.Constant):
        if node.value is not None and not isinstance(node.value, str | int | float):
            raise NotCarried("an argument that YAML does not have")
        return {"value": None} if node.value is None else node.value
    assert isinstance(node, ast.Name)
    value, position = translation.values.get(node.id, (None, 0))
    # unless other Python of the prelude, a second call or a statement behind it uses it, or changes
    # it
    nodes = [*translation.prelude(), *filter(None, translation.functions.values())]
    used = [
        part.id
        for step in translation.steps
        for part in step.arguments
        if isinstance(part, ast.Name)
    ]
    is_shared = any(node.id in free_names(other) for other in nodes) or used.count(node.id) > 1
    is_changed = any(
        not bound_names(statement) and node.id in free_names(statement)
        for statement in translation.setup[position:]
    )
    if (
        isinstance(value, ast.expr)
        and not is_shared
        and not is_changed
        and (described := _described(translation, value)) is not None
    ):
        return described
    translation.needed.add(node.id)
    return {"ref": node.id}


def _described(translation: Translation, node: ast.expr) -> dict[str, Any] | None:
    """Return a tensor as the language writes it; None for what it cannot write."""
    words: dict[str, Any] = {}
    kind = (
        translation.file.dotted(node.func).removeprefix("torch.")
        if isinstance(node, ast.Call)
        else ""
    )
    if not isinstance(node, ast.Call) or kind not in ("rand", "randn", "zeros", "ones"):
        return None
    try:
        shape = [translation.yaml(argument) for argument in node.args]
        shape = shape[0] if len(shape) == 1 and isinstance(shape[0], list) else shape
        for word in node.keywords:
            name, path = getattr(word.value, "id", ""), translation.file.dotted(word.value)
            if word.arg == "dtype" and name in translation.templates:
                words["dtype"] = f"{{{{ {translation.templates[name]} }}}}"
            elif (
                word.arg == "dtype"
                and path.startswith("torch.")
                and path.removeprefix("torch.") in DTYPES
            ):
                words["dtype"] = DTYPES[path.removeprefix("torch.")]
            elif word.arg == "requires_grad":
                words["requires_grad"] = bool(translation.literal(word.value))
            elif word.arg != "device" or (
                translation.templates.get(name) != "device"
                and ast.unparse(word.value) not in ("params.device", "'cpu'")
            ):
                return None
    except NotCarried:
        return None
    return {kind: shape, **words} if all(isinstance(size, int | str) for size in shape) else None
