"""The names of a case and the moment from which each is available, for all places of a spec that use names.

A place belongs to a moment in the life of a case: while ``let`` makes a value, when the options are set, in a step, after a step. All
places may use the names that are available at their moment.
"""

import functools
from collections.abc import Iterable, Iterator, Mapping

from runner.language.check.functions import prelude_names, required_packages
from runner.language.names.scan import CONFIG_FILES
from runner.language.read import python_source
from runner.language.read.anatomy import Anatomy
from runner.language.read.document import DataPath, Document
from runner.model import conditions
from runner.model.diagnostics import Diagnostic, one_of, unknown
from runner.vocabulary.expectations.expectation_base import EAGER, OUTPUT
from runner.vocabulary.steps.step_base import COMPILED

Moment = tuple[int, int]
"""A phase of a case, and a number in it; moments are ordered."""

INPUTS = "inputs"

PRELUDE: Moment = (0, 0)
FUNCTIONS: Moment = (1, 0)
LET = 2
"""The phase in which the values of let are made, one after the other."""
AFTER_LET: Moment = (3, 0)
READY: Moment = (4, 0)
"""Functions, values and inputs exist, and options with references are set; no step has run."""
STEPPING = 5
"""The phase in which steps run: with the index of a step, when its arguments are resolved; with the next, when it is measured."""


class Scope:
    """The names of one spec, each with the moment from which it is available, and the hint for earlier uses."""

    def __init__(self, anatomy: Anatomy) -> None:
        self._document = document = anatomy.document
        self._prelude = prelude_names(anatomy)
        self._required = required_packages(anatomy)
        self._params = [*anatomy.data.get("matrix", {}), "backend", "device"]
        bindings: list[tuple[str, Moment, str]] = [(name, PRELUDE, "") for name in ("torch", "params", *sorted(self._prelude))]
        bindings += [(name, FUNCTIONS, "functions are made after the prelude") for name in anatomy.functions]
        for index, name in enumerate(anatomy.data.get("let", {})):
            line = document.position(("let", name), key=True).line
            bindings.append((name, (LET, index + 1), f"let makes it at line {line}, and it can be used only after that"))
        if anatomy.functions:
            bindings.append((COMPILED, READY, "the compiled function is made after let and the inputs"))
        bindings.append((INPUTS, READY, "the inputs are made after let"))
        parsed = [step.parsed for step in anatomy.steps]
        for index, step in enumerate(anatomy.steps):
            line = document.position(step.path, key=True).line
            since = (STEPPING, index + 1)
            if (result := parsed[index].bound) is not None:
                bindings.append((result, since, f"it is the result of the step at line {line}, and it can be used only after that"))
            if step.traits.has_result:
                bindings.append((OUTPUT, since, f"the first step with a result stands at line {line}"))
            if parsed[index].why_no_reference(parsed[:index]) is None:
                bindings.append((EAGER, since, f"the first step with an eager reference stands at line {line}"))
        self._bindings: dict[str, tuple[Moment, str]] = {}
        for name, since, origin in sorted(bindings, key=lambda binding: binding[1]):
            self._bindings.setdefault(name, (since, origin))

    def problem(self, name: str, moment: Moment, *, without: Iterable[str] = ()) -> tuple[str, str] | None:
        """Return (message, hint) for a name or a dotted path that is not available at a moment; None if only the worker can decide."""
        first, _, rest = name.partition(".")
        since, origin = self._bindings.get(first, (None, ""))
        if first in without:
            return f"'{first}' cannot be named here", "these options are needed to make it; use a function of the prelude or a value of let"
        if first == "params" and rest and since == PRELUDE:
            key = rest.split(".")[0]
            return None if key in self._params else unknown("matrix key", key, self._params)
        is_available = since is not None and since <= moment
        if is_available and not (first == "torch" and rest):
            return None
        if not is_available and "*" in self._prelude:
            return None
        if not is_available and since is not None:
            return f"the name '{first}' is not available yet", origin
        if is_available or (rest and python_source.is_installed(first)):
            return None if first in self._required else python_source.find_name(name, self._prelude)
        return unknown("name", first, [name for name, (since, _) in self._bindings.items() if since <= moment and name not in without])

    def reference_problems(
        self, value: object, path: DataPath, moment: Moment, *, without: Iterable[str] = (), document: Document | None = None
    ) -> Iterator[Diagnostic]:
        """Yield a problem for each ``{ref: NAME}`` below ``path``, of the spec or of its defaults, whose name is not there at a moment."""
        for place, text in references(value, path):
            problem = None if conditions.is_template(text) else self.problem(str(text), moment, without=without)
            if problem is not None:
                yield (document or self._document).problem(place, *problem, code="unknown-name")


@functools.lru_cache(maxsize=4)
def scope_of(anatomy: Anatomy) -> Scope:
    """Return the names of a spec."""
    return Scope(anatomy)


def references(value: object, path: DataPath) -> Iterator[tuple[DataPath, str]]:
    """Yield the path and name of every ``{ref: NAME}``; what stands below ``value`` is data."""
    if isinstance(value, Mapping):
        if set(value) == {"ref"}:
            yield (*path, "ref"), value["ref"]
            return
        for key, item in value.items():
            if key != "value":
                yield from references(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from references(item, (*path, index))


SPY_KEYS: Mapping[str, tuple[str, ...]] = {
    "function": ("record", "result", "instead", "around"),
    "method": ("record", "result", "instead", "around"),
    "class": ("record", "instead"),
    "lowering": ("record", "result", "instead", "around"),
    "graph": ("record",),
}
"""The keys that each kind of spy allows."""


def value_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield names of let that are taken, and references to values that are not defined when a part of the case is made."""
    scope, data = scope_of(anatomy), anatomy.data
    for index, (name, entry) in enumerate(data.get("let", {}).items()):
        if name in (OUTPUT, EAGER, INPUTS, *anatomy.functions, *([COMPILED] if anatomy.functions else [])):
            hint = "it is a part of the case; choose another"
            yield anatomy.document.problem(("let", name), f"the name '{name}' is taken", hint, key=True, code="reserved-name")
        yield from scope.reference_problems(entry, ("let", name), (LET, index))
    for name, entry in data.get("handlers", {}).items():
        yield from scope.reference_problems(entry, ("handlers", name), AFTER_LET)
    yield from scope.reference_problems(data.get("inputs"), ("inputs",), AFTER_LET)
    for function in anatomy.functions.values():
        if isinstance(function.value, Mapping) and "module" in function.value:
            for key in ("args", "kwargs"):
                yield from scope.reference_problems(function.value.get(key), (*function.path, key), PRELUDE)
    for above, settings in (((), data), (("control",), data.get("control", {}))):
        yield from scope.reference_problems(settings.get("compile"), (*above, "compile"), READY, without=[COMPILED])
        for section in CONFIG_FILES:
            yield from scope.reference_problems(settings.get(section), (*above, section), READY)
    for layer in anatomy.defaults:
        for section in CONFIG_FILES:
            yield from scope.reference_problems(layer.data.get(section), (section,), READY, document=layer)
    for name, spy in data.get("spies", {}).items():
        yield from scope.reference_problems(spy.get("instead"), ("spies", name, "instead"), READY)


def spy_problems(anatomy: Anatomy) -> Iterator[Diagnostic]:
    """Yield hooks that the prelude lacks, targets that cannot be resolved, and spies without a ``calls`` expectation."""
    document, prelude = anatomy.document, prelude_names(anatomy)
    expected = {expectation.body["of"] for step in anatomy.steps for expectation in step.expectations if expectation.kind == "calls"}
    for name, spy in anatomy.data.get("spies", {}).items():
        path: DataPath = ("spies", name)
        kind = next(word for word in SPY_KEYS if word in spy)
        for key in spy.keys() - {kind, *SPY_KEYS[kind]}:
            hint = f"it goes with {one_of([word for word, keys in SPY_KEYS.items() if key in keys])}"
            yield document.problem((*path, key), f"'{key}' does not go with '{kind}'", hint, key=True, code="misplaced-key")
        for key in ("result", "instead"):
            if "around" in spy and key in spy:
                hint = "the hook of around calls the original itself, and returns what the caller gets"
                yield document.problem((*path, key), f"'{key}' does not go with 'around'", hint, key=True, code="misplaced-key")
        for word in ("record", "result", "instead", "around"):
            hook = spy.get(word)
            if isinstance(hook, str) and prelude.isdisjoint((hook, "*")):
                message, hint = unknown("function", hook, prelude - {"torch", "params"})
                yield document.problem((*path, word), f"{message} in the prelude", hint, code="unknown-name")
        target, place = spy[kind], (*path, kind)
        if isinstance(target, list):
            if not isinstance(target[0], dict) or set(target[0]) != {"ref"} or not isinstance(target[1], str):
                yield document.problem(place, "not an object and a method", "write [{ref: NAME}, METHOD]", code="bad-target")
            else:
                yield from scope_of(anatomy).reference_problems(target, place, AFTER_LET)
        elif kind in ("function", "method", "class") and isinstance(target, str) and not conditions.is_template(target):
            if "." not in target:
                hint = "name it where its callers look it up: package.module.name"
                yield document.problem(place, f"'{target}' is no dotted path", hint, code="bad-target")
            elif python_source.is_installed(target.split(".")[0]) and (missing := python_source.find_name(target, prelude)) is not None:
                yield document.problem(place, *missing, code="unknown-name")
        if name not in expected and "instead" not in spy:
            hint = f"add an expectation calls: {{of: {name}}}"
            yield document.problem(path, f"nothing is expected of the spy '{name}'", hint, key=True, code="expects-nothing")


def isolation_of(anatomy: Anatomy) -> str:
    """Return the isolation of a spec, from the spec itself or the nearest defaults."""
    layers = (anatomy.document, *reversed(anatomy.defaults))
    return next((str(document.data["isolation"]) for document in layers if "isolation" in document.data), "case")
