"""Composes the script of a case from its plan: options, Python, values, steps, expectations, and a list of what it cannot say."""

import ast
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from runner.core.case import Case, Step
from runner.core.conditions import Surroundings, asks_for_code
from runner.core.devices import CPU, kind_of
from runner.core.escaping import line
from runner.core.protocol import decode
from runner.language.flow import flow
from runner.language.read.substitution import as_text
from runner.plan.script import expected, steps
from runner.plan.script.python_blocks import PythonBlocks
from runner.plan.script.values import Values, attribute, literal, resolved
from runner.plan.worker_plan import make_plan
from runner.system import data_dirs
from runner.system.known_secrets import KNOWN
from runner.system.redaction import redacted
from runner.system.secret_names import is_secret_name
from runner.vocabulary.steps import traits_of

MODULES = {"config": "torch._inductor.config", "dynamo_config": "torch._dynamo.config", "functorch_config": "torch._functorch.config"}
"""The module of torch for each section of options."""

FRAGMENTS = (
    *("core", "code", "inputs", "modules", "closing", "functions", "prepare", "resets", "call", "backward", "optimizer", "aot"),
    *("scripts", "spawn", "spies", "counts", "raises", "values", "deterministic", "close", "filecheck"),
)
"""The helpers of a script in their order, each a file of ``templates/repro``."""

_NEEDS: Mapping[str, tuple[str, ...]] = {
    "backward": ("call",),
    "aot": ("call",),
    "close": ("call", "values"),
    "deterministic": ("call", "values"),
    "optimizer": ("call",),
}
"""The helpers that a helper calls."""


class NothingChecked(Exception):
    """A case of which a script of torch alone can judge nothing; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script, and what of the case it does not say."""

    text: str
    left_out: tuple[str, ...]


@dataclass(slots=True)
class _Parts:
    """What is collected while the case is read."""

    used: set[str] = field(default_factory=lambda: {"core", "prepare", "resets"})
    left_out: list[str] = field(default_factory=list)
    body: list[str] = field(default_factory=list)
    checks: int = 0

    def leave_out(self, text: str) -> None:
        if text not in self.left_out:
            self.left_out.append(text)

    def fragments(self) -> list[str]:
        for word in [*self.used]:
            self.used.update(_NEEDS.get(word, ()))
        return [word for word in FRAGMENTS if word in self.used]


def script_of(case: Case, here: Surroundings, facts: Mapping[str, object], torch: str) -> Script:
    """Return the script of a case; raise ``NothingChecked``, or ``TemplateError`` for a fact that this machine does not have.

    ``torch`` is the version that the conditions of the case were decided for.
    """
    if case.target:
        raise NothingChecked(f"the case is compiled for {case.target} and not executed")
    composer = _Composer(case, here, decode(make_plan(case, here, facts)))
    return composer.script(torch)


class _Composer:
    """Writes one case."""

    def __init__(self, case: Case, here: Surroundings, plan: Mapping[str, Any]) -> None:
        self._case = case
        self._here = here
        self._plan = plan
        self._body = plan["body"]
        self._parts = _Parts()
        self._blocks = PythonBlocks()
        self._values = Values(plan["device"], self._parts.used.add)

    def script(self, torch: str) -> Script:
        """Return the script; raise ``NothingChecked``."""
        self._blocks.texts.append(f"params = types.SimpleNamespace(**{literal(self._params())})")
        for block in self._body["preludes"]:
            self._blocks.prelude(block)
        self._prepare()
        for index, step in enumerate(self._case.steps):
            self._step(index, step)
        self._general()
        if not self._parts.checks:
            raise NothingChecked("; ".join(self._parts.left_out) or "the case expects nothing here")
        if self._blocks.executes:
            self._parts.used.add("functions")
        text = KNOWN.masked(self._rendered(torch))
        tree = ast.parse(text)
        if any(name.partition(".")[0] == "runner" for name in _imported(tree)):
            raise NothingChecked("the Python of the spec imports the runner")
        return Script(text=text, left_out=tuple(self._parts.left_out))

    def _params(self) -> dict[str, Any]:
        return {**self._plan["params"], "backend": self._plan["backend"], "device": self._plan["device"]}

    # -- preparation ------------------------------------------------------------------------------------------------

    def _prepare(self) -> None:
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
                if _names_something(value):
                    add(f"{_option(module, name)} = {resolved(value)}")

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

    # -- steps ------------------------------------------------------------------------------------------------------

    def _step(self, index: int, step: Step) -> None:
        planned = self._plan["steps"][index]
        place = f"{step.position}: {step.kind}"
        if planned.get("skipped"):
            self._parts.body.append(f"# step {index + 1}, {step.kind}, is not carried out here: its condition does not hold")
            return
        context = steps.StepContext(
            values=self._values,
            uses=self._parts.used.add,
            device=self._plan["device"],
            seed=self._plan["seed"],
            context=tuple(self._body["context"]),
            targets=tuple(self._body["functions"]),
            place=place,
            expects_raise=planned["expects_raise"],
            effects=planned["effects"],
            block=self._blocks.function,
        )
        try:
            statement = steps.WRITERS[step.kind](context, planned["arguments"])
        except steps.NotSaid as error:
            if not traits_of(step).is_optional:
                raise NothingChecked(f"{place}: {error}") from error
            self._parts.leave_out(f"{place}: {error}")
            return
        self._parts.body += ["", *self._carried_out(index, step, place, statement)]
        for one in step.expectations:
            self._expectation(one)

    def _carried_out(self, index: int, step: Step, place: str, statement: str) -> Iterator[str]:
        planned = self._plan["steps"][index]
        if index == 0:
            yield from ("repro_clear_counters()", *(["repro_record_code()"] if self._has_code() else []))
        yield f"with repro_step({literal(place)}, {traits_of(step).claims}, {planned['expects_raise']}):"
        indent = "    "
        if step.kind == "spawn" or any(one.kind in ("log", "exit") for one in step.expectations):
            self._parts.used.add("spawn")
            yield f"{indent}with repro_logged():"
            indent += "    "
        if step.repeat != 1:
            self._parts.leave_out(f"{place}: what is compared of each repetition: the last is judged")
            yield f"{indent}for _ in range({step.repeat}):"
            indent += "    "
        yield f"{indent}{statement}"
        name = planned["arguments"].get("as") if isinstance(planned["arguments"], Mapping) else None
        if name is not None:
            yield f"{indent}repro_bind({literal(name)}, {name in self._plan['compared']})"

    def _has_code(self) -> bool:
        kinds = {one.kind for step in self._case.steps for one in step.expectations}
        return bool(kinds & {"filecheck", "generated_files"})

    def _expectation(self, one: Any) -> None:
        place = f"{one.position}: {one.kind}"
        if not expected.is_claimed_without_code(one.check, self._here):
            return
        if asks_for_code(one.body):
            self._parts.leave_out(f"{place}: its condition is one on generated code")
            return
        judging = expected.Judging(
            here=self._here,
            place=place,
            uses=self._parts.used.add,
            leave_out=lambda text: self._parts.leave_out(f"{place}: {text}"),
        )
        try:
            lines = list(expected.WRITERS[one.kind](one.check, judging))
        except steps.NotSaid as error:
            self._parts.leave_out(f"{place}: {error}")
            return
        self._parts.checks += len(lines)
        self._parts.body += lines

    # -- the whole --------------------------------------------------------------------------------------------------

    def _general(self) -> None:
        """Name what no script says."""
        if self._body["compiles"]:
            self._parts.leave_out("the proof that the backend ran, and not eager in its place (FELL_BACK)")
        if not self._body["compiles"] and any("class " in block["text"] for block in self._body["preludes"]):
            self._parts.leave_out("classes of the prelude in processes that torch starts itself: they cannot import this script")
        if any(step.get("effects") is not None for step in self._plan["steps"]):
            self._parts.leave_out("side effects on generators, attributes and aliases: arguments, parameters and buffers are compared")
        for service in self._body["services"]:
            self._parts.leave_out(f"the server of the service {service}: TORCHINDUCTOR_REDIS_URL names one, and must be set")
        for requirement in self._case.requires:
            self._parts.leave_out(f"whether this machine has what the case requires: {requirement}")

    def _rendered(self, torch: str) -> str:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        environment = Environment(  # noqa: S701 - the result is Python, not markup: every text comes in as a literal or an escaped comment
            loader=FileSystemLoader(data_dirs.folder("templates")),
            undefined=StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            keep_trailing_newline=False,
        )
        self._blocks.texts.append(f"def repro_compile_options():\n    return {resolved(self._body['compile'])}")
        return (
            environment.get_template("repro.py.j2").render(
                docstring="Shows one case of torch.compile with torch alone.",
                header=[line(redacted(text)) for text in self._header(torch)],
                environment=list(self._environment()),
                conditions=list(self._conditions()),
                fragments=self._parts.fragments(),
                options=list(self._options()),
                seed=self._plan["seed"],
                blocks=self._blocks.texts,
                body=self._parts.body,
            )
            + "\n"
        )

    def _header(self, torch: str) -> Iterator[str]:
        python = ".".join(map(str, sys.version_info[:3]))
        yield f"case: {self._case.id}"
        yield f"claim: {self._case.summary}"
        yield f"spec: {self._case.position}"
        yield f"written for torch {torch}, Python {python}, device {self._plan['device']}; run it with: python FILE"
        yield "exit code: 0 every expectation below held, 1 one failed, 2 this machine cannot run it"
        yield "expected:"
        for step in self._case.steps:
            for one in step.expectations:
                yield f"  {one.position}: {one.kind}: {flow(as_text(one.body))}"[:500]
        yield from ["not said by this script:", *(f"  {text}" for text in self._parts.left_out)] if self._parts.left_out else []

    def _environment(self) -> Iterator[str]:
        for name, value in self._body["env"].items():
            if is_secret_name(name):
                self._parts.leave_out(f"the variable {name}, whose value may be a secret: set it before")
            elif value is None:
                yield f"os.environ.pop({literal(name)}, None)"
            else:
                yield f"os.environ[{literal(name)}] = {literal(str(value))}"

    def _conditions(self) -> Iterator[str]:
        kind = kind_of(self._plan["device"])
        if self._plan.get("module"):
            yield f"importlib.import_module({literal(self._plan['module'])})"
        if kind != CPU:
            yield f"if not (hasattr(torch, {literal(kind)}) and getattr(torch, {literal(kind)}).is_available()):"
            yield from (f"    print({literal(f'cannot run here: no device {kind}')})", "    sys.exit(2)")
        if self._body["services"]:
            yield 'if not os.environ.get("TORCHINDUCTOR_REDIS_URL"):'
            yield from ('    print("cannot run here: set TORCHINDUCTOR_REDIS_URL to a Redis server")', "    sys.exit(2)")

    def _options(self) -> Iterator[str]:
        yield from _torch_state(self._body["torch"])
        yield "torch._inductor.config.compile_threads = 1"
        for section, module in MODULES.items():
            for name, value in self._body[section].items():
                if not _names_something(value):
                    yield f"{_option(module, name)} = {literal(value)}"


def _option(module: str, name: str) -> str:
    found = module
    for part in name.split("."):
        found = attribute(found, part)
    if not found.startswith("getattr"):
        return found
    raise NothingChecked(f"the option {name} has no name in Python")


def _torch_state(state: Mapping[str, Any]) -> Iterator[str]:
    calls = {
        "float32_matmul_precision": "torch.set_float32_matmul_precision({})",
        "deterministic": "torch.use_deterministic_algorithms({})",
        "allow_tf32": "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = {}",
        "allow_fp16_reduced_precision_reduction": "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = "
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = {}",
    }
    for name, value in state.items():
        if name == "default_dtype":
            yield f"torch.set_default_dtype({attribute('torch', value)})"
        elif name != "seed":
            yield calls[name].format(literal(value))


def _names_something(value: Any) -> bool:
    if isinstance(value, Mapping):
        return set(value) == {"ref"} or any(map(_names_something, value.values()))
    return isinstance(value, list) and any(map(_names_something, value))


def _imported(tree: ast.Module) -> Sequence[str]:
    found = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return [*found, *(node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))]
