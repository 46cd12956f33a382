"""Checks what names mean at each moment of a case, and steps: every value is defined before it is
used, every expectation can be judged.

A place belongs to a moment in the life of a case: while ``let`` makes a value, when the options are
set, in a step, after a step. All places may use the names that are available at their moment.
"""

import ast
import contextlib
import functools
import itertools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from torch_conformance.language.backends import Backends
from torch_conformance.language.check.functions import (
    arity_problems,
    misplaced_keys,
    prelude_names,
    required_packages,
)
from torch_conformance.language.read import python_source, templates
from torch_conformance.language.read.anatomy import Anatomy, RawExpectation, RawStep
from torch_conformance.language.read.document import walk
from torch_conformance.language.torch_names import CONFIG_FILES
from torch_conformance.model import conditions
from torch_conformance.model.diagnostics import Diagnostic, Severity, one_of, unknown_word
from torch_conformance.model.document import DataPath, Document
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.expectation_base import (
    EAGER,
    OUTPUT,
    BadExpectation,
    Counts,
    allows_zero,
    check_count,
    is_reference,
)
from torch_conformance.vocabulary.steps import SAMPLES, STEPS
from torch_conformance.vocabulary.steps.step_base import COMPILED, StepContext

Moment = tuple[int, int]
"""A phase of a case, and a number in it; moments are ordered."""

INPUTS = "inputs"

PRELUDE: Moment = (0, 0)
FUNCTIONS: Moment = (1, 0)
LET = 2
"""The phase in which the values of ``let`` are made, in order."""
AFTER_LET: Moment = (3, 0)
READY: Moment = (4, 0)
"""Functions, values and inputs exist, and options with references are set; no step has run."""
STEPPING = 5
"""The phase in which steps run: with the index of a step, when its arguments are resolved; with the
next, when it is measured.
"""


class Scope:
    """The names of one spec, each with the moment from which it is available, and the problem of
    earlier uses.
    """

    def __init__(self, anatomy: Anatomy) -> None:
        self._document = document = anatomy.document
        self._prelude = prelude_names(anatomy)
        self._required = required_packages(anatomy)
        self._params = [*anatomy.data.get("matrix", {}), "backend", "device"]
        bindings: list[tuple[str, Moment, str, int]] = [
            (name, PRELUDE, "", 0) for name in ("torch", "params", *sorted(self._prelude))
        ]
        bindings += [(name, FUNCTIONS, "before-functions", 0) for name in anatomy.functions]
        for index, name in enumerate(anatomy.data.get("let", {})):
            bindings.append(
                (
                    name,
                    (LET, index + 1),
                    "before-let",
                    document.position(("let", name), key=True).line,
                )
            )
        if anatomy.functions:
            bindings.append((COMPILED, READY, "before-compiled", 0))
        bindings.append((INPUTS, READY, "before-inputs", 0))
        parsed = [step.parsed for step in anatomy.steps]
        for index, step in enumerate(anatomy.steps):
            line, since = document.position(step.path, key=True).line, (STEPPING, index + 1)
            if (result := parsed[index].bound) is not None:
                bindings.append((result, since, "before-its-step", line))
            if step.traits.has_result:
                bindings.append((OUTPUT, since, "before-any-result", line))
            if parsed[index].why_no_reference(parsed[:index]) is None:
                bindings.append((EAGER, since, "before-any-reference", line))
        self._bindings: dict[str, tuple[Moment, str, int]] = {}
        for name, since, code, line in sorted(bindings, key=lambda binding: binding[1]):
            self._bindings.setdefault(name, (since, code, line))

    def problem(
        self, name: str, moment: Moment, *, without: Iterable[str] = ()
    ) -> Diagnostic | None:
        """Return the problem of a name or a dotted path that is not available at a moment; None if
        only the worker can decide.
        """
        first, _, rest = name.partition(".")
        since, code, line = self._bindings.get(first, (None, "", 0))
        if first in without:
            return Diagnostic.of("name-of-what-is-made", name=first)
        if first == "params" and rest and since == PRELUDE:
            key = rest.split(".")[0]
            return None if key in self._params else unknown_word("matrix-key", key, self._params)
        is_available = since is not None and since <= moment
        if is_available and not (first == "torch" and rest):
            return None
        if not is_available and "*" in self._prelude:
            return None
        if not is_available and since is not None:
            return Diagnostic.of(code, name=first, line=line)
        if is_available or (rest and python_source.is_installed(first)):
            return None if first in self._required else python_source.find_name(name, self._prelude)
        names = [
            name
            for name, (since, *_) in self._bindings.items()
            if since <= moment and name not in without
        ]
        return unknown_word("name", first, names)

    def reference_problems(
        self,
        value: object,
        path: DataPath,
        moment: Moment,
        *,
        without: Iterable[str] = (),
        document: Document | None = None,
    ) -> Iterator[Diagnostic]:
        """Yield a problem for each ``{ref: NAME}`` below ``path``, of the spec or of its defaults,
        whose name is not there at a moment.
        """
        for place, text in references(value, path):
            problem = (
                None
                if conditions.is_template(text)
                else self.problem(str(text), moment, without=without)
            )
            if problem is not None:
                yield (document or self._document).diagnostic(place, problem)


@functools.lru_cache(maxsize=4)
def scope_of(anatomy: Anatomy) -> Scope:
    """Return the names of a spec."""
    return Scope(anatomy)


def references(value: object, path: DataPath) -> Iterator[tuple[DataPath, str]]:
    """Yield the path and name of every ``{ref: NAME}``; what is below ``value`` is data."""
    for place, item in walk(value, path):
        if isinstance(item, dict) and set(item) == {"ref"} and "value" not in place[len(path) :]:
            yield (*place, "ref"), item["ref"]


SPY_KEYS: Mapping[str, tuple[str, ...]] = {
    "function": ("record", "result", "instead", "around"),
    "method": ("record", "result", "instead", "around"),
    "class": ("record", "instead"),
    "lowering": ("record", "result", "instead", "around"),
    "graph": ("record",),
}
"""The keys that each kind of spy allows."""


def value_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield names of let that are taken, and references to values that are not defined when a part
    of the case is made.
    """
    scope, data = scope_of(anatomy), anatomy.data
    for index, (name, entry) in enumerate(data.get("let", {}).items()):
        if name in (
            OUTPUT,
            EAGER,
            INPUTS,
            *anatomy.functions,
            *([COMPILED] if anatomy.functions else []),
        ):
            yield anatomy.document.diagnostic(("let", name), "name-of-a-part", key=True, name=name)
        yield from scope.reference_problems(entry, ("let", name), (LET, index))
    for name, entry in data.get("handlers", {}).items():
        yield from scope.reference_problems(entry, ("handlers", name), AFTER_LET)
    yield from scope.reference_problems(data.get("inputs"), ("inputs",), AFTER_LET)
    for function in anatomy.functions.values():
        if isinstance(function.value, Mapping) and "module" in function.value:
            for key in ("args", "kwargs"):
                yield from scope.reference_problems(
                    function.value.get(key), (*function.path, key), PRELUDE
                )
    for above, settings in (((), data), (("control",), data.get("control", {}))):
        yield from scope.reference_problems(
            settings.get("compile"), (*above, "compile"), READY, without=[COMPILED]
        )
        for section in CONFIG_FILES:
            yield from scope.reference_problems(settings.get(section), (*above, section), READY)
    for layer in anatomy.defaults:
        for section in CONFIG_FILES:
            yield from scope.reference_problems(
                layer.data.get(section), (section,), READY, document=layer
            )
    for name, spy in data.get("spies", {}).items():
        yield from scope.reference_problems(spy.get("instead"), ("spies", name, "instead"), READY)


def spy_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield hooks that the prelude lacks, targets that cannot be resolved, and spies without a
    ``calls`` expectation.
    """
    document, prelude = anatomy.document, prelude_names(anatomy)
    expected = {
        expectation.body["of"]
        for expectation in anatomy.expectations
        if expectation.kind == "calls"
    }
    for name, spy in anatomy.data.get("spies", {}).items():
        path: DataPath = ("spies", name)
        kind = next(word for word in SPY_KEYS if word in spy)
        yield from misplaced_keys(document, path, spy, SPY_KEYS)
        for key in ("result", "instead"):
            if "around" in spy and key in spy:
                yield document.diagnostic((*path, key), "key-with-around", key=True, word=key)
        for word in ("record", "result", "instead", "around"):
            hook = spy.get(word)
            if isinstance(hook, str) and prelude.isdisjoint((hook, "*")):
                problem = unknown_word(
                    "function", hook, prelude - {"torch", "params"}, place="the prelude"
                )
                yield document.diagnostic((*path, word), problem)
        target, place = spy[kind], (*path, kind)
        if isinstance(target, list):
            if (
                not isinstance(target[0], dict)
                or set(target[0]) != {"ref"}
                or not isinstance(target[1], str)
            ):
                yield document.diagnostic(place, "no-method-of-an-object")
            else:
                yield from scope_of(anatomy).reference_problems(target, place, AFTER_LET)
        elif (
            kind in ("function", "method", "class")
            and isinstance(target, str)
            and not conditions.is_template(target)
        ):
            if "." not in target:
                yield document.diagnostic(place, "no-dotted-path", name=target)
            elif (
                python_source.is_installed(target.split(".")[0])
                and (missing := python_source.find_name(target, prelude)) is not None
            ):
                yield document.diagnostic(place, missing)
        if name not in expected and "instead" not in spy:
            yield document.diagnostic(path, "spy-without-calls", key=True, name=name)


# -- steps and expectations ------------------------------------------------------------------------


def _context_of(anatomy: Anatomy, backends: Backends, index: int) -> StepContext:
    """Return what the checks of a step's kind may read of the spec."""
    step, script = anatomy.steps[index], anatomy.scripts.get(anatomy.steps[index].path)
    scope = scope_of(anatomy)
    chosen = [
        backends.by_name[name] for name in anatomy.data["backends"] if name in backends.by_name
    ]
    return StepContext(
        path=step.path,
        above=[above.parsed for above in anatomy.steps[:index]],
        expected=[(expectation.kind, expectation.path) for expectation in step.expectations],
        functions=anatomy.functions,
        backends=chosen,
        tree=None if script is None else script.tree,
        problem=functools.partial(anatomy.document.problem, code="step"),
        name_problem=lambda name: (
            None
            if (problem := scope.problem(name, (STEPPING, index))) is None
            else (problem.message, problem.hint)
        ),
        input_problems=functools.partial(arity_problems, anatomy),
    )


def step_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield the problems of each step as written, of their order, and of the arguments of
    expectations without templates.
    """
    document = anatomy.document
    last: str | None = None
    for index, step in enumerate(anatomy.steps):
        if last is not None and not step.traits.is_last:
            yield document.diagnostic(
                step.path, "step-below-the-last", key=True, kind=step.kind, last=last
            )
        last = step.kind if step.traits.is_last else last
        yield from step.parsed.problems(_context_of(anatomy, backends, index))
        if step.traits.why_once and "repeat" in document.value(step.path[:-1]):
            path = (*step.path[:-1], "repeat")
            yield document.diagnostic(
                path, "repeated-step", key=True, kind=step.kind, instead=step.traits.why_once
            )
        for expectation in step.expectations:
            if not is_templated(expectation):
                yield from expectation_problems(document, expectation)
                yield from _cannot_fail(document, expectation)


def _cannot_fail(document: Document, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Yield a warning for each count that the compile of any function has: a run calls its case an
    ERROR.
    """
    check = None
    with contextlib.suppress(BadExpectation):
        check = expectation.parsed
    if isinstance(check, Counts) and not expectation.weak:
        for leaf, required in check.of_every_function():
            problem = document.diagnostic(
                (*expectation.path, *([leaf] if leaf else [])),
                "cannot-fail",
                key=True,
                count=f"{leaf or expectation.kind}: {required}",
            )
            yield replace(problem, severity=Severity.WARNING)


def named_value_problems(anatomy: Anatomy, backends: Backends) -> Iterator[Diagnostic]:
    """Yield named values that are used before they are defined, or defined twice.

    Checked again at each point of the matrix.
    """
    document, scope = anatomy.document, scope_of(anatomy)
    positions = {
        name: document.position(("let", name), key=True) for name in anatomy.data.get("let", {})
    }
    for index, step in enumerate(anatomy.steps):
        yield from scope.reference_problems(step.arguments, step.path, (STEPPING, index))
        if step.traits.enters_context and "context" not in step.arguments:
            # then it enters the spec's context, or that of the defaults
            layers = (
                layer
                for layer in (document, *reversed(anatomy.defaults))
                if "context" in layer.data
            )
            if (layer := next(layers, None)) is not None:
                yield from scope.reference_problems(
                    layer.data["context"], ("context",), (STEPPING, index), document=layer
                )
        if (name := step.parsed.bound) is not None:
            path = (*step.path, "as")
            if name in (OUTPUT, EAGER):
                yield document.diagnostic(path, "name-of-a-result", name=name)
            elif name in positions:
                yield document.diagnostic(
                    path, "repeated-name", name=name, line=positions[name].line
                )
            positions[name] = document.position(path)
        yield from step.parsed.name_problems(_context_of(anatomy, backends, index))
        for expectation in step.expectations:
            if not is_templated(expectation):
                yield from _result_problems(anatomy, index, expectation)
            yield from _event_problems(anatomy, step, expectation)


def _event_problems(
    anatomy: Anatomy, step: RawStep, expectation: RawExpectation
) -> Iterator[Diagnostic]:
    """Yield expectations of a spy, a child or an object that does not exist, and references within
    plain data, which are not resolved.
    """
    document, path, body = anatomy.document, expectation.path, expectation.body
    plain: list[tuple[DataPath, Any]] = []
    code = "reference-within-a-value"
    kind = EXPECTATIONS[expectation.kind]
    if kind.judges_exit and not step.traits.has_exit:
        yield document.diagnostic(
            path, "step-without-child", key=True, kind=step.kind, kinds=_kinds_with("has_exit")
        )
    if kind.calls_again and not step.traits.can_be_called_again and step.traits.has_result:
        kinds = _kinds_with("can_be_called_again")
        yield document.diagnostic(
            path,
            "step-called-once",
            key=True,
            kind=step.kind,
            expectation=expectation.kind,
            kinds=kinds,
        )
    if kind.judges_exit:
        for name in _uncalled(anatomy, step):
            yield document.diagnostic(step.path, "child-without-work", key=True, name=name)
    if (
        expectation.kind == "kernels"
        and allows_zero(body.get("user", 1))
        and "triton" not in "".join(block.text for *_, block, _ in anatomy.python)
    ):
        yield document.diagnostic((*path, "user"), "no-kernel-of-the-user", key=True)
    if kind.names_objects:
        for index, name in enumerate(body):
            first = name.partition(".")[0]
            if (missing := scope_of(anatomy).problem(name, READY)) is not None:
                yield document.diagnostic((*path, index), missing)
            elif first in anatomy.data.get("let", {}) and not _is_given(anatomy, first):
                yield document.diagnostic((*path, index), "dead-of-its-own", name=first)
    if expectation.kind == "calls":
        if body["of"] not in (spies := anatomy.data.get("spies", {})):
            yield document.diagnostic((*path, "of"), unknown_word("spy", body["of"], spies))
        plain, code = [((*path, "where"), body.get("where"))], "reference-of-a-spy"
    if expectation.kind in ("equals", "differs"):
        plain = [((*path, name), other) for name, other in body.items() if not is_reference(other)]
    for place, value in plain:
        for place_of_reference, text in references(value, place):
            yield document.diagnostic(place_of_reference, code, name=text)


def _is_given(anatomy: Anatomy, name: str) -> bool:
    """Whether a value of ``let`` is given to more than expectations and calls of the prelude."""
    scripts = [step.parsed for step in anatomy.steps if step.traits.python]
    places = [place for place, text in references(anatomy.data, ()) if text.split(".")[0] == name]
    return any(name in script.names for script in scripts) or any(
        place[2:3] != ("expect",)
        and not (
            place[2:3] == ("api",)
            and anatomy.document.value(place[:3])["call"] in prelude_names(anatomy)
        )
        for place in places
    )


def _uncalled(anatomy: Anatomy, step: RawStep) -> Iterator[str]:
    """Yield what cannot end a child: functions that nothing names, asserts that an option of Python
    leaves out, and code whose failure is lost.
    """
    argv = [*map(str, step.arguments.get("argv", [])), "-c", ""]
    at = argv.index("-c")
    text = argv[at + 1]
    if "O" in "".join(argv[:at]) and re.search(r"\bassert\b", text):
        yield "assert (because of -O)"
    for tree in anatomy.prelude_trees.values():
        called = str(step.arguments.get("call"))
        function = python_source.top_level_functions(tree).get(called)
        text += "".join(f"{ast.unparse(line)}\n" for line in function.body) if function else ""
    trees = [*anatomy.prelude_trees.values()]
    with contextlib.suppress(SyntaxError):  # the child will report it
        trees.append(ast.parse(text))
        yield from _lost_failures(trees[-1], trees)
    for decorator, name in re.findall(r"(@.*\n *)?\bdef (\w+)\((?!self|cls)", text):
        if not decorator and len(re.findall(rf"\b{name}\b", text)) == 1:
            yield name


def _lost_failures(tree: ast.Module, trees: Sequence[ast.Module]) -> Iterator[str]:
    """Yield what a Python program runs and cannot fail by: calls of generators and coroutines whose
    body never runs, asserts of a tuple, what an except clause swallows, what a thread raises, what
    follows an exit.
    """
    functions = {
        node.name: node
        for node in itertools.chain.from_iterable(map(ast.walk, trees))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }

    def has(nodes: Iterable[ast.AST], *kinds: type[ast.AST]) -> bool:
        return any(isinstance(node, kinds) for part in nodes for node in ast.walk(part))

    for node in ast.walk(tree):
        match node:
            case ast.Expr(value=ast.Call(func=ast.Name(id=name))) if (
                function := functions.get(name)
            ) and (isinstance(function, ast.AsyncFunctionDef) or has([function], ast.Yield)):
                yield f"{name} (a call of it runs nothing)"
            case ast.Assert(test=ast.Tuple(elts=[_, *_])):
                yield "assert (a tuple is always true)"
            case ast.Try(body=body, handlers=handlers) if has(body, ast.Assert) and any(
                (handler.type is None or ast.unparse(handler.type) in _SWALLOWS)
                and not has(handler.body, ast.Call, ast.Raise)
                for handler in handlers
            ):
                yield "assert (an except clause swallows it)"
            case ast.Call(
                func=ast.Name(id="Thread") | ast.Attribute(attr="Thread"), keywords=keywords
            ):
                for keyword in keywords:
                    target = functions.get(ast.unparse(keyword.value))
                    if keyword.arg == "target" and target and has([target], ast.Assert, ast.Raise):
                        yield f"{target.name} in a thread"
        lines = getattr(node, "body", None)
        if isinstance(lines, list):
            exits = [
                index
                for index, line in enumerate(lines)
                if isinstance(line, ast.Raise | ast.Return)
                or (isinstance(line, ast.Expr) and _EXITS.match(ast.unparse(line)))
            ]
            if exits and has(lines[exits[0] + 1 :], ast.Assert, ast.Raise):
                yield "what follows the exit"


_SWALLOWS = ("AssertionError", "Exception", "BaseException")
_EXITS = re.compile(r"(?:sys\.exit|os\._exit|exit|quit)\(")


def _kinds_with(trait: str) -> str:
    return one_of(
        [word for word, kind in STEPS.items() if getattr(kind.traits, trait) and word != SAMPLES]
    )


def _result_problems(
    anatomy: Anatomy, index: int, expectation: RawExpectation
) -> Iterator[Diagnostic]:
    """Yield values that an expectation names and that are not defined after its step."""
    document, step = anatomy.document, anatomy.steps[index]
    try:
        names = list(dict.fromkeys(expectation.parsed.names))
    except BadExpectation:
        return
    firsts = [name.split(".")[0] for name in names]
    if OUTPUT in firsts and not step.traits.has_result:
        yield document.diagnostic(
            expectation.path,
            "step-without-result",
            key=True,
            kind=step.kind,
            kinds=_kinds_with("has_result"),
        )
    elif (
        EAGER in firsts
        and (
            misplaced := step.parsed.why_no_reference(
                [above.parsed for above in anatomy.steps[:index]]
            )
        )
        is not None
    ):
        yield document.problem(
            expectation.path, *misplaced, key=True, code="step-without-reference"
        )
    for name, first in zip(names, firsts, strict=True):
        missing = (
            None
            if first in (OUTPUT, EAGER)
            else scope_of(anatomy).problem(name, (STEPPING, index + 1))
        )
        if missing is None:
            continue
        # the name is a key of the expectation, or a value of it
        body = expectation.body if isinstance(expectation.body, dict) else {}
        path, is_key = ((*expectation.path, name), True) if body else (expectation.path, False)
        for key, value in reversed(body.items()):
            if str(value) == name and key in ("of", "to", "change"):
                path, is_key = (*expectation.path, key), False
            elif isinstance(value, dict) and str(value.get("ref", "")) == name:
                path, is_key = (*expectation.path, key, "ref"), False
        yield document.diagnostic(path, missing, key=is_key)


def is_templated(expectation: RawExpectation) -> bool:
    """Whether an expectation has templates, so that it is known only at a point of the matrix."""
    return next(templates.templates_below(expectation.body, expectation.path), None) is not None


def expectation_problems(document: Document, expectation: RawExpectation) -> Iterator[Diagnostic]:
    """Yield the problems of the arguments of an expectation."""
    kind, errors = EXPECTATIONS[expectation.kind], list[BadExpectation]()
    for path, count in kind.counts_of(expectation.body):
        try:
            check_count(count, *path)
        except BadExpectation as error:
            errors.append(error)
        # the first value whose condition applies is used: nothing below an unconditional one is
        entries = count[:-1] if isinstance(count, list) else []
        for index, entry in enumerate(entries):
            if "when" not in entry:
                yield document.diagnostic((*expectation.path, *path, index + 1), "never-reached")
                break
    try:
        _ = errors or expectation.parsed
    except BadExpectation as error:
        errors.append(error)
    for wrong in errors:
        place = (*expectation.path, *wrong.path)
        position = document.position(place)
        if wrong.line and place in document.marks:
            block = python_source.block_at(document, place, expectation.kind)
            column = max(wrong.column, 1)
            position = python_source.place(document, place, block, wrong.line, column)
        yield Diagnostic.of("expectation", message=str(wrong), hint=wrong.hint).at(position)
