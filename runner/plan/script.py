"""The script of a case, which imports torch alone: options, Python, inputs, calls, and what of the claims it can check. Pure.

``script_of`` collects statements from the plan of a case, and ``templates/repro.py.j2`` joins them. What a script has no statement for is
named in it, and such a script never exits with 0.
"""

import ast
import math
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from filecheck.ops import RE, Literal

from runner.core.case import Case, Step
from runner.core.conditions import Surroundings, asks_for_code, choose, holds, without_code
from runner.core.devices import CPU, kind_of
from runner.core.escaping import line
from runner.core.matching.filecheck.directives import Directive, Kind
from runner.core.protocol import decode
from runner.language.flow import flow
from runner.language.read.substitution import as_text
from runner.plan.worker_plan import make_plan
from runner.system import data_dirs
from runner.system.redaction import KNOWN, is_secret_name, redacted
from runner.vocabulary import inputs
from runner.vocabulary.expectations.base import is_reference, parse_count
from runner.vocabulary.expectations.close import Close
from runner.vocabulary.expectations.filecheck import FileCheck
from runner.vocabulary.steps import SAMPLES, traits_of

MODULES = {"config": "torch._inductor.config", "dynamo_config": "torch._dynamo.config", "functorch_config": "torch._functorch.config"}
"""The module of torch for each section of options."""

_TORCH = {
    "float32_matmul_precision": "torch.set_float32_matmul_precision({})",
    "deterministic": "torch.use_deterministic_algorithms({})",
    "default_dtype": "torch.set_default_dtype(getattr(torch, {}))",
    "allow_tf32": "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = {}",
    "allow_fp16_reduced_precision_reduction": "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction = "
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = {}",
}
"""The statement of each word of the section ``torch``."""

_RESETS = {
    "dynamo": "torch._dynamo.reset()",
    "inductor": "torch._inductor.utils.clear_caches()",
    "aot_autograd": "pkgutil.resolve_name('torch._functorch._aot_autograd.autograd_cache.AOTAutogradCache').clear()",
    "fx_graph": "pkgutil.resolve_name('torch._inductor.codecache.FxGraphCache').clear()",
    "code": "pkgutil.resolve_name('torch._inductor.codecache.PyCodeCache').cache_clear(purge=True)",
}
_CLEARED = {"counters": "torch._dynamo.utils.counters.clear()", "metrics": "pkgutil.resolve_name('torch._inductor.metrics').reset()"}
_DIRECTIVES = (Kind.CHECK, Kind.NEXT, Kind.SAME, Kind.NOT, Kind.COUNT)
_IMPORTED = {"copy", "os", "pkgutil", "re", "sys", "tempfile", "torch", "types", "pytree", "random", "numpy"}
_OWN = {"params", "check", "filecheck", "follow", "frozen", "gradients", "same", "tensor", "tensors", "main", "codes"}


class NothingChecked(Exception):
    """A case of which a script of torch alone can judge nothing; the text is the reason."""


class NotSaid(Exception):
    """A part of a case that a script cannot say; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script, and the parts of the case that it does not show."""

    text: str
    left_out: tuple[str, ...]


def script_of(case: Case, here: Surroundings, facts: Mapping[str, object], torch: str) -> Script:
    """Return the script of a case; raise ``NothingChecked``, or ``TemplateError`` for a fact that this machine does not have.

    ``torch`` is the version that the conditions of the case were decided for.
    """
    if case.target:
        raise NothingChecked(f"the case is compiled for {case.target} and not executed")
    if any(step.kind == SAMPLES for step in case.steps):
        raise NothingChecked("samples of an operator have a script each: repro CASE --sample N")
    try:
        return _Composer(case, here, decode(make_plan(case, here, facts))).script(torch)
    except NotSaid as error:
        raise NothingChecked(str(error)) from error


def literal(value: Any) -> str:
    """Return a Python expression of plain data, in ASCII on one line, so that no text ends it; raise ``TypeError`` for any other value."""
    match value:
        case bool() | None | int() | str() | bytes():
            return ascii(value)
        case float():
            return repr(value) if math.isfinite(value) else f'float("{value!r}")'
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case tuple():
            return f"({', '.join(map(literal, value))}{',' if len(value) == 1 else ''})"
        case Mapping():
            return f"{{{', '.join(f'{literal(key)}: {literal(item)}' for key, item in value.items())}}}"
    raise TypeError(f"a {type(value).__name__} has no literal")


def _of_torch(name: str, owner: str = "torch") -> str:
    if not all(part.isascii() and part.isidentifier() for part in name.split(".")):
        raise NotSaid(f"{owner} has no {name}")
    return f"{owner}.{name}"


def _within(opening: str, lines: Iterable[str]) -> list[str]:
    return [opening, *(f"    {one}" for one in lines)]


class _Composer:
    """Collects the statements of one case."""

    def __init__(self, case: Case, here: Surroundings, plan: Mapping[str, Any]) -> None:
        self._case, self._here, self._plan = case, here, plan
        self._body = plan["body"]
        self._device = plan["device"]
        self._helpers: set[str] = set()
        self._blocks: list[str] = []
        self._bound: set[str] = set()
        self._values: set[str] = set()
        self._main: list[str] = []
        self._left_out: list[str] = []
        self._checks = 0
        self._functions: dict[str, str] = {}
        self._writers: Mapping[str, Callable[[Any], list[str]]] = {
            "close": self._close,
            "counter": self._counters,
            "metric": self._metrics,
            "filecheck": self._filecheck,
            "generated_files": lambda check: self._counted("len(codes)", check.count),
            "equals": lambda check: self._pairs(check, equal=True),
            "differs": lambda check: self._pairs(check, equal=False),
            "strides": self._strides,
            "raises": self._raises,
            "runs": lambda check: [],
        }
        self._kinds = {one.kind for step in case.steps for one in step.expectations}

    def script(self, torch: str) -> Script:
        """Return the script."""
        for word in ("spies", "handlers", "services", "dead"):
            if self._body[word]:
                raise NotSaid(f"'{word}' of a case: only the runner has them")
        for block in self._body["preludes"]:
            self._prelude(block["text"])
        self._prepare()
        for index, step in enumerate(self._case.steps):
            place = f"{step.position}: {step.kind}"
            if self._plan["steps"][index].get("skipped") or step.kind == "bench":
                continue
            try:
                self._step(self._plan["steps"][index], step)
            except NotSaid as error:
                self._left_out.append(f"{place}: {error}; nothing after it is shown")
                break
        if not self._checks:
            raise NotSaid("; ".join(self._left_out) or "the case expects nothing here")
        text = KNOWN.masked(self._text(torch)) + "\n"
        tree = ast.parse(text)  # a script that is no Python is a defect of this module: it must not be handed out
        imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
        imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
        if any(name.partition(".")[0] == "runner" for name in imported) or "import runner" in text or "from runner" in text:
            raise NotSaid("the Python of the spec imports the runner")
        return Script(text=text, left_out=tuple(self._left_out))

    def _text(self, torch: str) -> str:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined

        environment = Environment(  # noqa: S701 - the result is Python, not markup: every text is a literal or an escaped comment
            loader=FileSystemLoader(data_dirs.folder("templates")), undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True
        )
        header = (
            f"{self._case.id}: {self._case.summary}",
            f"{self._case.position}, for torch {torch}, Python {sys.version.split()[0]}, {self._device}",
        )
        env = list(self._environment())
        body = "\n".join([*self._main, *self._blocks])
        return environment.get_template("repro.py.j2").render(
            header=[line(redacted(text)) for text in header],
            environment=env,
            module=literal(self._plan["module"]) if self._plan.get("module") else "",
            device=kind_of(self._device) if kind_of(self._device) != CPU else "",
            options=list(self._options()),
            seed=self._plan["seed"],
            params=literal({**self._plan["params"], "backend": self._plan["backend"], "device": self._device}) if "params" in body else "",
            blocks=self._blocks,
            helpers=self._helpers,
            needs_values=bool(self._values),
            main=self._main,
            unchecked=[ascii(one) for one in self._unchecked()],
            left_out=[ascii(redacted(one)) for one in self._left_out],
        )

    def _environment(self) -> Iterator[str]:
        for name, value in self._body["env"].items():
            if is_secret_name(name):
                self._left_out.append(f"the variable {name}, whose value may be a secret: set it before")
            elif value is None:
                yield f"os.environ.pop({literal(name)}, None)"
            else:
                yield f"os.environ[{literal(name)}] = {literal(str(value))}"

    def _options(self, *, named: bool = False) -> Iterator[str]:
        """Yield the statements of options: of those that name a value of the case, or of the others."""
        if not named:
            yield from (_TORCH[name].format(literal(value)) for name, value in self._body["torch"].items() if name != "seed")
        for section, module in MODULES.items():
            for name, value in self._body[section].items():
                if _names_something(value) is named:
                    yield f"{_of_torch(name, module)} = {self._value(value)}"

    def _unchecked(self) -> Iterator[str]:
        if self._body["compiles"]:
            yield "that the backend compiled the function, and no fallback ran in its place"
        if any(isinstance(one.check, Close) and one.check.rtol is None for step in self._case.steps for one in step.expectations):
            yield "close by eager's own error against float64: here the default tolerance of the dtype decides"
        if "filecheck" in self._kinds:
            yield "comments at the end of a line of generated code, and docstrings: here they count as code"
        if any(step.get("effects") is not None for step in self._plan["steps"]):
            yield "generators of random numbers, attributes and aliases after a call: here tensors of arguments and modules are compared"
        yield from (f"that the machine has what the case requires: {line(str(one))}" for one in self._case.requires)

    # -- the Python of the spec -------------------------------------------------------------------------------------

    def _prelude(self, text: str) -> None:
        names = _names_of(text)
        if names is None or names & (_IMPORTED | _OWN):
            raise NotSaid("the prelude takes names of the script, or begins with a __future__ import")
        self._bound |= names
        self._blocks.append(text.rstrip("\n"))

    def _function(self, name: str, function: Mapping[str, Any]) -> str:
        if "block" not in function:
            return self._module(function) if "module" in function else self._callable(function.get("ref") or function["api"])
        text, entry = function["block"]["text"], function["entry"]
        names = _names_of(text)
        if names is not None and entry in names and not names & (_IMPORTED | _OWN | self._bound):
            self._bound |= names
            self._blocks.append(text.rstrip("\n"))
            return str(entry)
        own = f"names_{len(self._blocks)}"  # another block has such names: each function has a namespace of its own
        self._blocks.append(f"{own} = dict(globals())\nexec({literal(text)}, {own})")
        return f"{own}[{literal(entry)}]"

    def _prepare(self) -> None:
        """Write functions, values, arguments and copies for eager."""
        add, seed = self._main.append, f"torch.manual_seed({self._plan['seed']})"
        for number, (name, function) in enumerate(self._body["functions"].items()):
            self._functions[name] = f"_{number}" if len(self._body["functions"]) > 1 else ""
            add(f"function{self._functions[name]} = {self._function(name, function)}")
        for name, entry in self._body["let"].items():
            add(f"values[{literal(name)}] = {self._value(entry)}")
            self._values.add(name)
        add(seed)
        add(f"inputs = {self._value(self._body['inputs'])}")
        suffixes = list(self._functions.values())
        if self._plan["needs_eager"]:
            left, right = (", ".join([f"{word}inputs", *(f"{word}function{one}" for one in suffixes)]) for word in ("eager_", ""))
            add(f"{left} = copy.deepcopy(({right}))" if suffixes else "eager_inputs = copy.deepcopy(inputs)")
        self._main += [seed, *self._options(named=True)]
        words = "".join(f", {_of_torch(name, '')[1:]}={self._value(value)}" for name, value in self._body["compile"].items())
        self._main += [f"compiled{one} = torch.compile(function{one}{words})" for one in suffixes]
        if {"counter", "metric"} & self._kinds:
            self._main += _CLEARED.values()
        if {"filecheck", "generated_files"} & self._kinds:
            self._helpers.add("codes")

    # -- values -----------------------------------------------------------------------------------------------------

    def _value(self, entry: Any) -> str:
        """Return the expression of a value with inputs and ``{ref: NAME}`` at any depth; other maps are data."""
        if isinstance(entry, list):
            return f"[{', '.join(map(self._item, entry))}]"
        if not isinstance(entry, Mapping):
            return literal(entry)
        kind = inputs.kind_of(entry)
        if kind is None:
            return f"{{{', '.join(f'{literal(key)}: {self._value(item)}' for key, item in entry.items())}}}"
        match kind:
            case "ref":
                return self._named(str(entry["ref"]))
            case "value":
                return literal(entry["value"])
            case "module":
                return self._module(entry)
            case "call" if "close" not in entry:
                return f"{self._callable(entry['call'])}({self._called(entry)})"
        return self._tensor(kind, entry)

    def _item(self, entry: Any) -> str:
        times = inputs.times(entry)
        return self._value(entry) if times == 1 else f"*({self._value(entry)} for _ in range({times}))"

    def _tensor(self, kind: str, entry: Mapping[str, Any]) -> str:
        device = literal(entry.get("device", self._device))
        options = f", dtype={_of_torch(entry['dtype'])}" if "dtype" in entry else ""
        options += f", device={device}" if entry.get("on_device") else ""
        first = entry[kind]
        match kind:
            case "rand" | "randn" | "zeros" | "ones":
                made = f"torch.{kind}({literal(tuple(first))}{options})"
            case "full":
                made = f"torch.full({literal(tuple(first))}, {literal(entry['value'])}{options})"
            case "randint":
                made = f"torch.randint({literal(entry.get('low', 0))}, {literal(entry['high'])}, {literal(tuple(first))}{options})"
            case "arange":
                made = f"torch.arange({', '.join(map(literal, first if isinstance(first, list) else [first]))}{options})"
            case "values":
                made = f"torch.tensor({literal(first)}{options})"
            case "jagged":
                parts = ", ".join(f"torch.rand({literal(tuple(shape))}{options})" for shape in first)
                made = f"torch.nested.nested_tensor([{parts}], layout=torch.jagged)"
            case _:
                raise NotSaid(f"an input '{kind}'")
        if inputs.INPUTS[kind].is_finished:
            return made
        words = {word: literal(entry[word]) for word in ("strides", "requires_grad", "mark_dynamic") if entry.get(word)}
        if "memory_format" in entry:
            words["memory_format"] = _of_torch(entry["memory_format"])
        if device == literal(CPU) and not words:
            return made
        self._helpers.add("tensor")
        return f"tensor({made}, {device}{''.join(f', {word}={value}' for word, value in words.items())})"

    def _module(self, entry: Mapping[str, Any]) -> str:
        made = f"{self._callable(entry['module'])}({self._called(entry)})"
        made += f".to({_of_torch(entry['dtype'])})" if "dtype" in entry else ""
        device = entry.get("device", self._device)
        return f"{made}{'' if device == CPU else f'.to({literal(device)})'}{'.eval()' if entry.get('eval') else ''}"

    def _called(self, entry: Mapping[str, Any]) -> str:
        words = [*map(self._item, entry.get("args") or [])]
        return ", ".join([*words, f"**{self._value(entry['kwargs'])}"] if entry.get("kwargs") else words)

    def _callable(self, entry: Any) -> str:
        return self._named(str(entry["ref"] if isinstance(entry, Mapping) else entry))

    def _named(self, name: str) -> str:
        """Return the expression of a name of the case or of its Python, or of a dotted path."""
        first, _, rest = name.replace(":", ".").partition(".")
        if first in self._values:
            found = f"values[{literal(first)}]"
        elif first in ("output", "eager", "inputs"):
            found = {"eager": "expected"}.get(first, first)
        elif first in self._functions or (first == "compiled" and len(self._functions) == 1):
            found = f"compiled{''.join(self._functions.values())}" if first == "compiled" else f"function{self._functions[first]}"
        elif first in self._bound:
            return _of_torch(rest, first) if rest else first
        elif rest:
            return f"pkgutil.resolve_name({literal(name)})"
        else:
            raise NotSaid(f"the name {name}")
        if rest:
            self._helpers.add("follow")
            return f"follow({found}, {literal(rest)})"
        return found

    # -- steps ------------------------------------------------------------------------------------------------------

    def _step(self, planned: Mapping[str, Any], step: Step) -> None:
        arguments = planned["arguments"]
        match step.kind:
            case "call":
                lines = self._call(planned, arguments)
            case "backward":
                lines = self._backward(arguments)
            case "api":
                lines = [f"output = {self._callable(arguments['call'])}({self._called(arguments)})"]
            case "reset":
                words = arguments["items"] if isinstance(arguments, Mapping) else arguments
                lines = [{**_RESETS, "rng": f"torch.manual_seed({self._plan['seed']})"}[word] for word in words]
            case "clear_counters":
                lines = [text for word, text in _CLEARED.items() if arguments.get("only") in (None, word)]
            case "fresh_cache":
                lines = [_RESETS["inductor"], 'os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(prefix="repro-")']
                lines.append('os.environ.pop("TRITON_CACHE_DIR", None)')
            case _:
                raise NotSaid("the template has no statement for such a step")
        if step.repeat != 1:
            lines = _within(f"for _ in range({step.repeat}):", lines)
        if planned["expects_raise"]:
            lines = ["raised = None", *_within("try:", lines), *_within("except Exception as error:", ["raised = error"])]
        name = arguments.get("as") if isinstance(arguments, Mapping) else None
        if name is not None:
            self._values.add(name)
            self._helpers.update({"frozen"} if name in self._plan["compared"] else ())
            lines.append(f"values[{literal(name)}] = {'frozen(output)' if name in self._plan['compared'] else 'output'}")
        checks = [text for one in step.expectations for text in self._expectation(one)]
        if "codes" in self._helpers and traits_of(step).claims:
            lines = ["codes.clear()", *lines]
        self._main += ["", f"# {line(str(step.position))}: {step.kind}", *lines, *checks]

    def _call(self, planned: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
        suffix = self._functions[arguments.get("function") or next(iter(self._functions))]
        own, compares = arguments.get("inputs"), self._plan["needs_eager"] and not arguments.get("eager") and not planned["expects_raise"]
        lines = [] if own is None else [f"inputs = {self._value(own)}", *(["eager_inputs = copy.deepcopy(inputs)"] if compares else [])]
        contexts = list(map(self._context, arguments["context"] if arguments.get("context") is not None else self._body["context"]))
        if compares:
            eager = ", ".join(['torch.compiler.set_stance("force_eager")', "torch.random.fork_rng()", *contexts])
            lines += [f"with {eager}:", f"    expected = eager_function{suffix}(*eager_inputs)"]
        call = f"output = {'function' if arguments.get('eager') else 'compiled'}{suffix}(*inputs)"
        lines += _within(f"with {', '.join(contexts)}:", [call]) if contexts else [call]
        if compares and (effects := planned["effects"]) is not None:
            self._helpers.update(("check", "tensors"))
            sides = (f"tensors({word}function{suffix}, *{word}inputs)" for word in ("", "eager_"))
            lines.append(f"check({', '.join(sides)}{_bound(effects['rtol'], effects['atol'])})  # side effects")
        return lines

    def _context(self, entry: Any) -> str:
        if isinstance(entry, str):
            return f"{_of_torch(entry)}()"
        if "autocast" in entry:
            options = entry["autocast"] or {}
            dtype = f", dtype={_of_torch(options['dtype'])}" if "dtype" in options else ""
            return f"torch.autocast({literal(kind_of(self._device))}{dtype})"
        self._helpers.add("entered")
        return f"entered({self._value(entry)})"

    def _backward(self, arguments: Mapping[str, Any]) -> list[str]:
        if arguments.get("of") is not None or arguments.get("gradient") is not None or len(self._functions) != 1:
            raise NotSaid("backward of a named value, with a gradient, or of one of several functions")
        self._helpers.update(("gradients", "tensors"))
        loss = arguments.get("loss", "sum")
        how = literal(loss) if loss in ("sum", "mean") else self._named(loss)
        (suffix,) = self._functions.values()
        lines = []
        if self._plan["needs_eager"]:
            lines = ['with torch.compiler.set_stance("force_eager"):']
            lines.append(f"    expected = gradients(expected, {how}, eager_function{suffix}, *eager_inputs)")
        return [*lines, f"output = gradients(output, {how}, function{suffix}, *inputs)"]

    # -- expectations -----------------------------------------------------------------------------------------------

    def _expectation(self, one: Any) -> list[str]:
        """Return the statements that check an expectation, or note why there are none."""
        place = f"{one.position}: {one.kind}"
        if not holds(without_code(getattr(one.check, "when", None)), self._here):
            return []
        if asks_for_code(one.body) or one.kind not in self._writers:
            self._leave_out(f"{place}: only the runner judges it: {flow(as_text(one.body))[:200]}")
            return []
        try:
            lines = self._writers[one.kind](one.check)
        except NotSaid as error:
            self._leave_out(f"{place}: {error}")
            return []
        self._checks += 1
        return lines

    def _leave_out(self, text: str) -> None:
        if text not in self._left_out:
            self._left_out.append(text)

    def _close(self, check: Close) -> list[str]:
        self._helpers.add("check")
        rtol, atol = (0.0, 0.0) if check.exact else (check.rtol, check.atol)
        nan = "" if check.equal_nan else ", equal_nan=False"
        return [f"check({self._named(check.of)}, {self._named(check.to)}{_bound(rtol, atol)}{nan})"]

    def _counted(self, expression: str, count: Any) -> list[str]:
        applies, value = choose(count, self._here)
        if not applies:
            return []
        bounds = parse_count(value)
        if bounds.among:
            return [f"assert {expression} in {literal(bounds.among)}, {expression}"]
        if bounds.least == bounds.most:
            return [f"assert {expression} == {literal(bounds.least)}, {expression}"]
        parts = [f"{literal(bounds.least)} <= "] * (bounds.least is not None) + [expression]
        return [f"assert {''.join(parts)}{'' if bounds.most is None else f' <= {literal(bounds.most)}'}, {expression}"]

    def _counters(self, check: Any) -> list[str]:
        names = [(name.partition("."), count) for name, count in check.counts.items()]
        parts = [(f"torch._dynamo.utils.counters[{literal(space)}][{literal(name)}]", count) for (space, _, name), count in names]
        return [text for expression, count in parts for text in self._counted(expression, count)]

    def _metrics(self, check: Any) -> list[str]:
        pairs = [(_of_torch(name, "pkgutil.resolve_name('torch._inductor.metrics')"), count) for name, count in check.counts.items()]
        return [text for expression, count in pairs for text in self._counted(expression, count)]

    def _filecheck(self, check: FileCheck) -> list[str]:
        if check.stage is not None:
            raise NotSaid("filecheck of a stage: the text of a target's compiler")
        directives = [(one.kind.value, _pattern(one), one.count) for one in check.checks.directives]
        self._helpers.add("filecheck")
        chosen = "codes" if check.code == "all" else f"[codes[{check.code}]]" if isinstance(check.code, int) else "codes"
        alone = ["assert len(codes) == 1, len(codes)"] if check.code is None else []
        return [*alone, *_within(f"filecheck({chosen}, {check.text == 'whole'}, [", (f"{literal(one)}," for one in directives)), "])"]

    def _pairs(self, check: Any, *, equal: bool) -> list[str]:
        self._helpers.add("same")
        lines = []
        for name, other in check.pairs.items():
            value = self._named(other["ref"]) if is_reference(other) else literal(other)
            lines.append(f"assert {'' if equal else 'not '}same({self._named(name)}, {value}), {self._named(name)}")
        return lines

    def _strides(self, check: Any) -> list[str]:
        if check.contiguous is not None:
            raise NotSaid("memory formats")
        self._helpers.add("tensors")
        every = f"tensors({self._named(check.of)})"
        chosen = [check.output] if isinstance(check.output, int) else check.output
        leaves = every if chosen is None else f"[{every}[i] for i in {literal(chosen)}]"
        return [f"assert all(list(one.stride()) == {literal(list(check.equals))} for one in {leaves}), [one.stride() for one in {every}]"]

    def _raises(self, check: Any) -> list[str]:
        if check.cause is not None:
            raise NotSaid("the cause of an exception")
        wanted = check.type if "." in check.type else f"builtins.{check.type}"
        lines = [f"assert {literal(wanted)} in [f'{{one.__module__}}.{{one.__qualname__}}' for one in type(raised).__mro__], repr(raised)"]
        return lines if check.match is None else [*lines, f"assert re.search({literal(check.match)}, str(raised)), str(raised)"]


def _bound(rtol: float | None, atol: float | None) -> str:
    return "" if rtol is None or atol is None else f", rtol={literal(rtol)}, atol={literal(atol)}"


def _pattern(directive: Directive) -> str:
    """Return a directive as a regular expression of Python."""
    parts = [part for part in directive.parts if isinstance(part, Literal | RE)]
    if directive.kind not in _DIRECTIVES or directive.ambiguous or len(parts) != len(directive.parts):
        raise NotSaid(f"'{directive}': only literals and plain patterns of {', '.join(kind.value for kind in _DIRECTIVES)}")
    return "".join(re.escape(part.content) if isinstance(part, Literal) else f"(?:{part.content})" for part in parts)


def _names_something(value: Any) -> bool:
    """Whether a value holds a ``{ref: NAME}``."""
    if isinstance(value, Mapping):
        return set(value) == {"ref"} or any(map(_names_something, value.values()))
    return isinstance(value, list) and any(map(_names_something, value))


def _names_of(text: str) -> set[str] | None:
    """Return the names that a block binds at its top; None for one that cannot stand in a script as it is.

    An import of a module by its own name binds none. Characters that hide or reorder others would deceive a reader.
    """
    names: set[str] = set()
    if not all(char.isprintable() or char in "\n\t" for char in text):
        return None
    for node in ast.parse(text).body:
        match node:
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                names.add(name)
            case ast.Import(names=aliases):
                names.update(one.asname for one in aliases if one.asname not in (None, one.name))
                names.update(f"import {one.name}" for one in aliases if one.asname is None)
            case ast.ImportFrom(module="__future__") | ast.ImportFrom(names=[ast.alias(name="*")]):
                return None
            case ast.ImportFrom(names=aliases):
                names.update(one.asname or one.name for one in aliases)
            case _:
                names.update(one.id for one in ast.walk(node) if isinstance(one, ast.Name) and isinstance(one.ctx, ast.Store))
    return {name for name in names if not name.startswith("import ")}
