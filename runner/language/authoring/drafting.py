"""From what was read of a test to the text of a spec."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from runner.language.authoring.comparisons import named
from runner.language.authoring.compiling import COUNTED
from runner.language.authoring.hoisting import Prelude
from runner.language.authoring.inputs import Inputs, results_in
from runner.language.authoring.reading import Lost, Reading
from runner.language.authoring.values import Dotted, Entered, Expression, Function, Module, NotCarried, Step, Value
from runner.language.authoring.yaml_text import document


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """The spec that was made of a test, or one for each value of a parameter; none when nothing of the test could be carried."""

    test: str
    specs: tuple[tuple[str, str], ...]
    """The name and the text of each."""
    lost: tuple[Lost, ...]
    notes: tuple[Lost, ...]

    @property
    def state(self) -> str:
        """``whole``, ``part`` or ``none``."""
        if not self.specs:
            return "none"
        return "part" if self.lost else "whole"

    @property
    def is_driven(self) -> bool:
        """Whether it is whole as steps that run the Python of the test."""
        return self.state == "whole" and any(note.reason == DRIVEN for note in self.notes)

    @property
    def text(self) -> str:
        """The text of the first."""
        return self.specs[0][1] if self.specs else ""


DRIVEN = "one step runs the Python of the test, and each of its assertions is an expectation of what it saw"
"""The note of a spec of a driven test."""


def spec_name(test: str) -> str:
    """Return the name of a spec's file for a test."""
    words = re.sub(r"^test_?", "", test.rpartition("::")[2])
    return re.sub(r"[^a-z0-9]+", "-", words.lower()).strip("-") or "test"


class Drafting:
    """Makes the sections of one spec."""

    def __init__(self, reading: Reading, *, may_halve: bool = True) -> None:
        self._reading = reading
        self._may_halve = may_halve
        self._prelude = Prelude(reading)
        self._inputs = Inputs(reading, self._prelude)
        self._targets: dict[object, tuple[str, Any]] = {}
        self._contexts: dict[str, str] = {}

    def spec(self) -> dict[str, Any]:
        """Return the spec; raise ``NotCarried`` when there is nothing to say."""
        reading = self._reading
        calls = [step for step in reading.steps if step.kind == "call"]
        self._prelude.define(reading.definitions)
        if not calls and any(step.of_host for step in reading.steps):
            return self._host()
        if not calls:
            raise NotCarried("no call of a compiled function was understood")
        self._inputs.halves = self._halves()
        first = calls[0].values
        others = [step.values for step in calls[1:] if not _same(step.values, first)]
        self._inputs.share([first, *others, *self._expected()])
        for step in calls:
            self._target(step)
        _name_results(reading, self._expected())
        steps = [self._step(step, calls[0]) for step in reading.steps]
        if not any("expect" in step for step in steps):
            steps[-1]["expect"] = [{"runs": {}}]
        inputs = [self._inputs.entry(value) for value in calls[0].values]
        return self._assembled(steps, inputs, calls)

    def _host(self) -> dict[str, Any]:
        """Return the spec of a test that compiles nothing: library calls, and what they return."""
        reading = self._reading
        if reading.devices & {"gpu", "backend"} and reading.default_device == "default":
            raise NotCarried("a test that compiles nothing, on a device")
        made = [value for step in reading.steps for value in step.values]
        options = {value.options for value in made if isinstance(value, Expression)}
        if len(options) > 1:
            raise NotCarried("values that are made under different options")
        self._inputs.share([[value] for value in made])
        steps = []
        for step in reading.steps:
            expects = [found.body for found in step.expects]
            call = {**self._inputs.called(step.values[0]), "as": step.name} if step.of_host else step.arguments
            steps.append({step.kind: call, **({"expect": expects} if expects else {})})
        config = {section: {**reading.config.get(section, {})} for section in ("config", "dynamo_config", "functorch_config")}
        for section, given in (reading.block_configs[0] if reading.block_configs else {}).items():
            config[section].update(given)
        parts: dict[str, Any] = {
            "requires": reading.requires,
            **config,
            "torch": reading.torch_settings,
            "prelude": self._prelude.text + "\n" if self._prelude.text else None,
            "let": self._inputs.named,
        }
        spec: dict[str, Any] = {
            "summary": summary(self._reading),
            "backends": ["host"],
            **{key: value for key, value in parts.items() if value},
        }
        return {**spec, "steps": steps}

    def _expected(self) -> list[list[Value]]:
        return (
            [
                [found.body["close"]["to"]]
                for step in self._reading.steps
                for found in step.expects
                if isinstance(found.body.get("close", {}).get("to"), Value)
            ]
            + [[step.arguments["gradient"]] for step in self._reading.steps if "gradient" in step.arguments]
            + [list(step.values) for step in self._reading.steps if step.kind == "api" and step.values]
        )

    def _halves(self) -> bool:
        lowp = self._reading.matrix.get(" lowp", [])
        if not self._may_halve or not self._reading.is_common or True not in lowp or "cuda" not in backends_left(self._reading):
            return False
        if False in lowp:
            raise NotCarried("checks of which only some repeat in half precision on a GPU")
        return True

    def _target(self, step: Step) -> str:
        """Return the name of a step's function."""
        target = step.target
        key: object = id(target.node) if isinstance(target, Function) else getattr(target, "token", getattr(target, "path", None))
        if key not in self._targets:
            wanted = target.name if isinstance(target, Function) else "module" if isinstance(target, Module) else "function"
            taken = {name for name, _ in self._targets.values()}
            name = wanted if wanted not in taken else f"{wanted}_{len(taken) + 1}"
            self._targets[key] = (name, self._function(name, target))
        return self._targets[key][0]

    def _function(self, name: str, target: Function | Module | Dotted | None) -> Any:
        if isinstance(target, Function):
            return self._prelude.source(name, target) + "\n"
        if isinstance(target, Module):
            return self._module(target)
        if isinstance(target, Dotted):
            return {"api": target.path}
        raise NotCarried("a function that is not understood")

    def _module(self, target: Module) -> Any:
        made = self._inputs.entry(target)
        if "ref" in made:
            raise NotCarried("a module that is compiled and also an input")
        return made

    def _step(self, step: Step, first: Step) -> dict[str, Any]:
        arguments = dict(step.arguments)
        if step.kind == "api" and step.values:
            arguments = self._inputs.called(step.values[0])
        if step.kind == "call":
            if len({self._target(call) for call in self._reading.steps if call.kind == "call"}) > 1:
                arguments["function"] = self._target(step)
            if not _same(step.values, first.values):
                arguments["inputs"] = [self._inputs.entry(value) for value in step.values]
            if step.contexts != first.contexts:
                arguments["context"] = [self._context(word) for word in step.contexts]
        if isinstance(arguments.get("gradient"), Value):
            arguments["gradient"] = self._inputs.named_value(arguments["gradient"], "gradient")
        if step.name:
            arguments["as"] = step.name
        made: dict[str, Any] = {step.kind: arguments["what"] if step.kind == "reset" else arguments}
        expects = [self._expectation(found.body) for found in step.expects]
        unique = merged([body for index, body in enumerate(expects) if body not in expects[:index]])
        return {**made, "expect": unique} if unique else made

    def _option(self, value: Any) -> Any:
        """Return the value of an option: a function of the test is a name of the prelude."""
        if not isinstance(value, Function):
            return value
        return {"ref": self._prelude.need(value.name, {**value.scope, value.name: value})}

    def _context(self, word: Any) -> Any:
        """Return a context in the words of the language; others are functions of the prelude."""
        if not isinstance(word, Entered):
            return word
        text = self._prelude.made(word.made)
        if text not in self._contexts:
            self._contexts[text] = f"context_{len(self._contexts) + 1}"
            self._prelude.add(self._contexts[text], f"def {self._contexts[text]}():\n    return {text}")
        return {"ref": self._contexts[text]}

    def _expectation(self, body: dict[str, Any]) -> dict[str, Any]:
        close = body.get("close")
        if close is None:
            return body
        if isinstance(close["to"], Value):
            return {"close": {**close, "to": self._inputs.named_value(close["to"], "expected")}}
        if self._inputs.halves and isinstance(close.get("rtol"), float | int) and close["rtol"] < _HALF_RTOL:
            return {"close": {**close, "rtol": f"{{{{ {_HALF_RTOL} if half else {close['rtol']} }}}}"}}
        return body

    def _assembled(self, steps: list[dict[str, Any]], inputs: list[Any], calls: list[Step]) -> dict[str, Any]:
        reading = self._reading
        config = _config_of(reading)
        config = {section: {name: self._option(value) for name, value in options.items()} for section, options in config.items()}
        matrix = {name: values for name, values in reading.matrix.items() if not name.startswith(" ")}
        compile_options = {name: value for name, value in (reading.matrix.get(" compile") or [{}])[0].items() if name != COUNTED}
        spec: dict[str, Any] = {"summary": summary(reading), "backends": backends_of(compile_options, backends_left(self._reading))}
        if self._inputs.halves:
            matrix["half"] = [False, True]
            if "cpu" in spec["backends"]:
                spec["exclude"] = [{"backend": "cpu", "half": True, "reason": "the test repeats in half precision on a GPU alone"}]
        functions = dict(self._targets.values())
        several = len(functions) > 1
        parts: dict[str, Any] = {
            "matrix": matrix,
            "exclude": spec.pop("exclude", None),
            "requires": reading.requires,
            **{section: config.get(section) for section in ("config", "dynamo_config", "functorch_config", "env")},
            "torch": reading.torch_settings,
            "context": [self._context(word) for word in calls[0].contexts],
            "prelude": self._prelude.text + "\n" if self._prelude.text else None,
            "functions" if several else "function": functions if several else next(iter(functions.values())),
            "let": self._inputs.named,
            "inputs": inputs,
            "compile": compile_options,
        }
        spec.update({key: value for key, value in parts.items() if value})
        if len(steps) == 1 and list(steps[0]) == ["call", "expect"] and not steps[0]["call"]:
            return {**spec, "expect": steps[0]["expect"]}
        return {**spec, "steps": steps}


def _config_of(reading: Reading) -> dict[str, dict[str, Any]]:
    """Return the options of the test, and those of its first block with options of its own."""
    config: dict[str, dict[str, Any]] = {section: dict(options) for section, options in reading.config.items()}
    for section, options in (reading.block_configs[0] if reading.block_configs else {}).items():
        config.setdefault(section, {}).update(options)
    return config


def summary(reading: Reading) -> str:
    """Return a sentence that names the test; the claim is for its author to write."""
    words = spec_name(reading.test.name).replace("-", " ")
    part = ", in part" if reading.lost else ""
    axes, pinned = reading.axes, reading.pinned
    part += "".join(f", {name} {axes[name][index]}" for name, index in pinned.items() if name in axes)
    return re.sub(r"[^ -~]", "?", f"{words[:1].upper()}{words[1:]}, as {reading.test.name} of {reading.file.name} claims{part}")


def backends_left(reading: Reading) -> list[str]:
    """Return the backends where a test runs, by the devices that it names and the skips that it has."""
    devices, vendors = reading.devices, reading.vendors
    if "backend" in devices:
        kinds = {"cpu", "cuda", "rocm"}
    elif "gpu" in devices:
        kinds = {"cuda", "rocm"}
    else:
        kinds = {"cpu"}
    found: list[str] = [name for name in ("cpu", "cuda", "rocm") if name in kinds & vendors]
    if not found:
        raise NotCarried("no backend of the runner is left after the test's skips")
    return found


def backends_of(options: dict[str, Any], backends: list[str]) -> list[str]:
    """Return the backends of a spec; a case of another dynamo backend than inductor would fall back on any other."""
    backend = options.get("backend")
    if backend is None:
        return backends
    if "cpu" not in backends or backend not in ("eager", "aot_eager"):
        raise NotCarried(f"the dynamo backend {backend!r}")
    if backend == "eager":
        del options["backend"]
    return ["eager" if backend == "eager" else "dynamo"]


def _name_results(reading: Reading, expected: Sequence[Sequence[Value]]) -> None:
    """Give names to the results that later steps compute with."""
    values = [*(given for step in reading.steps for given in step.values), *(value for values in expected for value in values)]
    for value in values:
        for result in results_in(value):
            named(result.step, reading)


def merged(expects: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Join counts that follow each other."""
    found: list[dict[str, Any]] = []
    for body in expects:
        ((kind, value),) = body.items()
        last = found[-1].get(kind) if found and kind in ("counter", "metric") else None
        if isinstance(last, dict) and not last.keys() & value.keys():
            last.update(value)
        else:
            found.append({kind: dict(value)} if kind in ("counter", "metric") else body)
    return found


_HALF_RTOL = 2e-3
"""The relative tolerance that torch's check allows in half precision at least."""


def _same(values: Sequence[Value], others: Sequence[Value]) -> bool:
    return len(values) == len(others) and all(_key(one) == _key(other) for one, other in zip(values, others, strict=True))


def _key(value: Value) -> object:
    found = getattr(value, "value", None)
    token = getattr(value, "token", None)
    return token if token is not None else repr(found) if found is not None else id(value)


def header(reading: Reading) -> str:
    """Return the comments above a spec: where it comes from, what it does not have, what differs."""
    function = reading.test.function
    lines = [f"# made from {reading.file.name}::{reading.test.name}, lines {function.lineno} to {function.end_lineno}"]
    lines += [f"# not carried: line {lost.line}: {lost.reason}" for lost in sorted(reading.lost)]
    lines += [f"# note: line {note.line}: {note.reason}" for note in sorted(reading.notes)]
    return "".join(re.sub(r"[^ -~]", "?", line) + "\n" for line in lines)


def written(reading: Reading) -> str:
    """Return the text of the spec of a test, with its comments."""
    spec = Drafting(reading).spec()
    parts = {key: value for key, value in spec.items() if key not in ("matrix", "exclude", "summary")}
    if "half" in spec.get("matrix", {}) and not re.search(r"\bhalf\b(?!\()", repr(parts)):
        spec = Drafting(reading, may_halve=False).spec()  # no input and no module that half precision would change
    if any(_judged_by_eager(step.expects) for step in reading.steps):
        reading.note(
            reading.test.function.lineno,
            "a comparison without tolerances is judged by eager's own error, not by torch's tolerances of the dtype",
        )
    return header(reading) + document(spec)


def _judged_by_eager(expects: Sequence[Any]) -> bool:
    bodies = [found.body["close"] for found in expects if "close" in found.body]
    return any(set(close) <= {"to", "of"} and str(close["to"]).startswith("eager") for close in bodies)
