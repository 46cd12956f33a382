"""What a script does before the first step: spies, functions, values, arguments, options that name a value."""

from collections.abc import Mapping
from typing import Any

from runner.plan.script.parts import MODULES, Parts, names_something, option
from runner.plan.script.python_blocks import PythonBlocks
from runner.plan.script.values import Values, literal, resolved


class Preparation:
    """Writes the preparation of one plan."""

    def __init__(self, plan: Mapping[str, Any], parts: Parts, blocks: PythonBlocks, values: Values) -> None:
        self._plan = plan
        self._body = plan["body"]
        self._parts = parts
        self._blocks = blocks
        self._values = values

    def write(self) -> None:
        """Add the lines to the body."""
        add = self._parts.body.append
        spies = self._body["spies"]
        for name, spec in spies.items():
            if not isinstance(spec.get("method"), list):
                add(self._spy(name, spec))
        for name, function in self._body["functions"].items():
            add(f"repro_now.targets[{literal(name)}] = {self._target(function)}")
        add("repro_now.parts.update({name: functools.partial(repro_now.targets.get, name) for name in repro_now.targets})")
        self._let()
        for name, spec in spies.items():
            if isinstance(spec.get("method"), list):
                add(self._spy(name, spec))
        add(f"torch.manual_seed({self._plan['seed']})")
        dead = f", {literal(tuple(self._body['dead']))}" if self._body["dead"] else ""
        add(f"repro_prepare({self._values.list_of(self._body['inputs'])}, {self._plan['needs_eager']}{dead})")
        add(f"torch.manual_seed({self._plan['seed']})")
        for section, module in MODULES.items():
            for name, value in self._body[section].items():
                if names_something(value):
                    add(f"{option(module, name)} = {resolved(value)}")

    def _target(self, function: Mapping[str, Any]) -> str:
        if "block" in function:
            return self._blocks.function(function["block"], function["entry"])
        if "module" in function:
            return self._values.module(function)
        return f"repro_find({literal(function.get('ref') or function['api'])})"

    def _let(self) -> None:
        handlers, let = self._body["handlers"], self._body["let"]
        waiting = {handler: str(wanted["ref"]) for handler, wanted in handlers.items()}
        self._handlers({handler: name for handler, name in waiting.items() if name.split(".")[0] not in let})
        for name, entry in let.items():
            self._parts.body.append(f"repro_now.values[{literal(name)}] = {self._values.value(entry)}")
            self._handlers({handler: wanted for handler, wanted in waiting.items() if wanted.split(".")[0] == name})

    def _handlers(self, handlers: Mapping[str, str]) -> None:
        for handler, name in handlers.items():
            setter = f"getattr(importlib.import_module('torch._inductor.virtualized').V, {literal(f'set_{handler}_handler')})"
            self._parts.body.append(f"repro_now.closing.enter_context({setter}(repro_named({literal(name)})))")

    def _spy(self, name: str, spec: Mapping[str, Any]) -> str:
        self._parts.used.add("spies")
        kind = next(word for word in ("function", "method", "class", "lowering", "graph") if word in spec)
        target = spec[kind]
        where = f"(repro_named({literal(target[0]['ref'])}), {literal(target[1])})" if isinstance(target, list) else literal(target)
        words = {word: f"repro_find({literal(spec[word])})" for word in ("record", "result", "around") if word in spec}
        instead = spec.get("instead")
        if isinstance(instead, Mapping):
            words["instead"] = f"lambda *args, **kwargs: {resolved(instead['returns'])}"
        elif instead is not None:
            words["instead"] = f"repro_find({literal(instead)})"
        return f"repro_spy({literal(name)}, {literal(kind)}, {where}{''.join(f', {word}={value}' for word, value in words.items())})"
