"""The script of a case, which imports only torch: it compiles, compares results and side effects
with eager's, and counts.

Pure.

``script_of`` collects statements from the plan of a case, and ``templates/repro.py.j2`` joins them.
Claims that only the runner judges are printed at the end of the script, which then exits with 3.
What a run shows (numbers that are not equal, a call without a compiled graph) adds such claims.
"""

import ast
import functools
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from torch_conformance.language.read.templates import as_text
from torch_conformance.machine import cache_dirs
from torch_conformance.machine.redaction import KNOWN, is_secret_name, redacted
from torch_conformance.model.case import Case, Expected, Step
from torch_conformance.model.conditions import (
    Surroundings,
    asks_for_code,
    choose,
    holds,
    without_code,
)
from torch_conformance.model.devices import CPU, kind_of
from torch_conformance.model.escaping import line
from torch_conformance.model.expectation import Expectation
from torch_conformance.model.flow import flow
from torch_conformance.model.protocol import Json, decode
from torch_conformance.model.values import frozen
from torch_conformance.plan.selection import is_of_operator
from torch_conformance.plan.worker_plan import make_plan
from torch_conformance.vocabulary import inputs
from torch_conformance.vocabulary.expectations.close import Judge
from torch_conformance.vocabulary.expectations.expectation_base import (
    Counts,
    is_reference,
    parse_count,
)
from torch_conformance.vocabulary.picture import INSIDE_TORCH, OF_TORCH

if TYPE_CHECKING:
    from jinja2 import Template

MODULES = {
    "config": "torch._inductor.config",
    "dynamo_config": "torch._dynamo.config",
    "functorch_config": "torch._functorch.config",
}
"""The module of torch for each section of options."""

_TORCH = {
    "float32_matmul_precision": "torch.set_float32_matmul_precision({})",
    "deterministic": "torch.use_deterministic_algorithms({})",
    "default_dtype": "torch.set_default_dtype(getattr(torch, {}))",
    "allow_tf32": "torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = {}",
    "allow_fp16_reduced_precision_reduction": "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction "  # noqa: E501 - a word without a break
    "= torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction = {}",
}
"""The statement of each word of the section ``torch``."""

_RESETS = {
    "dynamo": "torch._dynamo.reset()",
    "inductor": "torch._inductor.utils.clear_caches()",
    "aot_autograd": "pkgutil.resolve_name('torch._functorch._aot_autograd.autograd_cache.AOTAutogradCache').clear()",  # noqa: E501 - a word without a break
    "fx_graph": "pkgutil.resolve_name('torch._inductor.codecache.FxGraphCache').clear()",
    "code": "pkgutil.resolve_name('torch._inductor.codecache.PyCodeCache').cache_clear(purge=True)",
}
_CLEARED = {
    "counters": "torch._dynamo.utils.counters.clear()",
    "metrics": "pkgutil.resolve_name('torch._inductor.metrics').reset()",
}
_RESERVED = frozenset(
    "copy inf nan os pkgutil random re sys tempfile torch types pytree params check follow "
    "gradients tensor main values unchecked note finish Picture PLAIN OF_TORCH INSIDE_TORCH "
    "same_bits compare plain equal generators shared doubled attempt Call runs graph run_graph "
    "watched compiled_ran check_raised ahead keywords eager_keywords".split()
)
"""Names that the script itself uses."""


class NothingChecked(Exception):
    """A case of which a script that imports only torch can show nothing; the text is the reason."""


@frozen
class Script:
    """A script, and the claims and steps of the case that it does not check."""

    text: str
    unchecked: tuple[str, ...]


def script_of(
    case: Case, surroundings: Surroundings, facts: Mapping[str, object], torch: str
) -> Script:
    """Return the script of a case; raise ``NothingChecked``, or ``TemplateError`` for a fact that
    this machine does not have.

    ``torch`` is the version that the conditions of the case were decided for.
    """
    if case.target:
        raise NothingChecked(f"the case is compiled for {case.target} and not executed")
    if is_of_operator(case):
        raise NothingChecked("samples of an operator have a script each: repro CASE --sample N")
    return _Composer(case, surroundings, decode(make_plan(case, surroundings, facts))).script(torch)


def _of_torch(name: str, owner: str = "torch") -> str:
    if not all(part.isascii() and part.isidentifier() for part in name.split(".")):
        raise NothingChecked(f"{owner} has no {name}")
    return f"{owner}.{name}"


def _within(opening: str, lines: Iterable[str]) -> list[str]:
    return [opening, *(f"    {text}" for text in lines)]


def _expressions(check: Expectation) -> dict[str, str]:
    """Return the Python of each number that a script can count; empty where it counts none."""
    if not isinstance(check, Counts):
        return {}
    return {leaf: text for leaf in check.by_leaf if (text := check.expression(leaf))}


@functools.cache
def _template(name: str) -> "Template":
    """Return a template, which a run with many failures compiles once."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    # the result is Python, not markup: every text is a literal or an escaped comment
    environment = Environment(  # noqa: S701
        loader=FileSystemLoader(cache_dirs.folder("templates")),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template(name)


def rendered(
    header: Iterable[str],
    env: Mapping[str, Any],
    unchecked: list[str],
    *,
    device: str,
    template: str = "repro.py.j2",
    **words: object,
) -> Script:
    """Return the script of these statements; variables that may hold a secret are left to the
    reader.
    """
    unchecked += [
        f"the variable {name}, whose value may be a secret: set it before"
        for name in env
        if is_secret_name(name)
    ]
    variables = [
        f"os.environ.pop({name!a}, None)"
        if value is None
        else f"os.environ[{name!a}] = {str(value)!a}"
        for name, value in env.items()
        if not is_secret_name(name)
    ]
    text = _template(template).render(
        header=[line(redacted(text)) for text in header],
        of_torch=ascii(OF_TORCH),
        inside_torch=ascii(INSIDE_TORCH),
        environment=variables,
        device=kind_of(device) if kind_of(device) != CPU else "",
        unchecked=[ascii(redacted(text)) for text in unchecked],
        **words,
    )
    text = KNOWN.masked(text) + "\n"
    ast.parse(
        text
    )  # a script that is not Python is a defect of this module: it must not be handed out
    return Script(text=text, unchecked=tuple(unchecked))


class _Composer:
    """Collects the statements of one case."""

    def __init__(self, case: Case, surroundings: Surroundings, plan: Mapping[str, Any]) -> None:
        self._case, self._here, self._plan = case, surroundings, plan
        self._body = plan["body"]
        self._device = plan["device"]
        self._helpers: set[str] = set()
        self._blocks: list[str] = []
        self._bound: set[str] = set()
        self._values: set[str] = set()
        """The names of ``let``, and of results."""
        self._main: list[str] = []
        self._unchecked: list[str] = []
        self._has_step = False
        self._shows_code = False
        self._functions: dict[str, str] = {}
        """The suffix of each function's variables: empty where there is one function."""
        self._has_call = self._has_keywords = False
        """Whether the side effects of the last call are compared."""

    def script(self, torch: str) -> Script:
        """Return the script."""
        for word in ("spies", "handlers", "services", "dead"):
            if self._body[word]:
                raise NothingChecked(f"'{word}' of a case: only the runner has them")
        for block in self._body["preludes"]:
            self._take(block)
        self._prepare()
        for planned, step in zip(self._plan["steps"], self._case.steps, strict=True):
            if planned.get("skipped") or step.kind == "bench":
                continue
            try:
                self._step(planned, step)
            except NothingChecked as error:
                self._unchecked.append(
                    f"{step.position}: this {step.kind} and the steps after it: {error}"
                )
                break
        if not self._has_step:
            raise NothingChecked("; ".join(self._unchecked) or "the case expects nothing here")
        body = "\n".join([*self._main, *self._blocks])
        params = {**self._plan["params"], "backend": self._plan["backend"], "device": self._device}
        return rendered(
            (
                f"{self._case.id}: {self._case.summary}",
                f"{self._case.position}, for torch {torch}, {self._device}",
            ),
            self._body["env"],
            self._unchecked,
            device=self._device,
            options=[
                _TORCH[name].format(ascii(value))
                for name, value in self._body["torch"].items()
                if name != "seed"
            ],
            seed=self._plan["seed"],
            module=ascii(self._plan["module"]) if self._plan.get("module") else "",
            params=ascii(params) if "params" in body else "",
            names=ascii(sorted(self._bound)) if self._sees_globals() else "[]",
            blocks=self._blocks,
            helpers=self._helpers,
            needs_values=bool(self._values),
            main=self._main,
            shows_code=self._shows_code,
        )

    # -- the Python of the spec --------------------------------------------------------------------

    def _take(self, block: Mapping[str, Any]) -> None:
        """Take a block of Python over as it is; raise ``NothingChecked`` where its names are those
        of another text.

        An import of a module by its own name binds none. Characters that hide or reorder others
        would deceive a reader.
        """
        names: set[str] = set()
        is_strange = not all(char.isprintable() or char in "\n\t" for char in block["text"])
        for node in ast.parse(block["text"]).body:
            match node:
                case (
                    ast.FunctionDef(name=name)
                    | ast.AsyncFunctionDef(name=name)
                    | ast.ClassDef(name=name)
                ):
                    names.add(name)
                case ast.Import(names=aliases):
                    names.update(
                        alias.asname for alias in aliases if alias.asname not in (None, alias.name)
                    )
                case (
                    ast.ImportFrom(module="__future__")
                    | ast.ImportFrom(names=[ast.alias(name="*")])
                ):
                    is_strange = True
                case ast.ImportFrom(names=aliases):
                    names.update(alias.asname or alias.name for alias in aliases)
                case _:
                    names.update(
                        part.id
                        for part in ast.walk(node)
                        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Store)
                    )
        if re.search(r"^\s*(?:from|import)\s+torch_conformance\b", block["text"], re.MULTILINE):
            raise NothingChecked("the Python of the spec imports the runner")
        if is_strange or names & (_RESERVED | self._bound):
            raise NothingChecked(
                "Python of the spec has names of the script or of other Python of it, or "
                "imports that must come first"
            )
        self._bound |= names
        self._blocks.append(block["text"].rstrip("\n"))

    def _function(self, function: Mapping[str, Any]) -> str:
        if "block" not in function:
            return (
                self._module(function)
                if "module" in function
                else self._callable(function.get("ref") or function["api"])
            )
        self._take(function["block"])
        return str(function["entry"])

    def _prepare(self) -> None:
        """Write functions, values, arguments and copies for eager."""
        add, seed = self._main.append, f"torch.manual_seed({self._plan['seed']})"
        for number, (name, function) in enumerate(self._body["functions"].items()):
            self._functions[name] = f"_{number}" if len(self._body["functions"]) > 1 else ""
            add(f"function{self._functions[name]} = {self._function(function)}")
        for name, entry in self._body["let"].items():
            add(f"values[{name!a}] = {self._value(entry)}")
            self._values.add(name)
        add(seed)
        add(f"inputs = {self._value(self._body['inputs'])}")
        if self._plan["needs_eager"]:
            ours, eager = (
                ", ".join(
                    [f"{word}inputs", *(f"{word}function{s}" for s in self._functions.values())]
                )
                for word in ("", "eager_")
            )
            add(f"{eager} = copy.deepcopy(({ours}))")
        self._main.append(seed)
        for section, module in MODULES.items():
            self._main += [
                f"{_of_torch(name, module)} = {self._value(value)}"
                for name, value in self._body[section].items()
            ]
        options = {name: self._value(value) for name, value in self._body["compile"].items()}
        if self._body["compile"].get("backend", "inductor") != "inductor":
            options["backend"] = f"watched({options['backend']})"
        words = "".join(f", {_of_torch(name, '')[1:]}={value}" for name, value in options.items())
        self._main += [
            f"compiled{suffix} = torch.compile(function{suffix}{words})"
            for suffix in self._functions.values()
        ]
        if self._functions:
            self._helpers.add("runs")
        if any(
            _expressions(expected.check)
            for step in self._case.steps
            for expected in step.expectations
        ):
            self._main += _CLEARED.values()

    # -- values ------------------------------------------------------------------------------------

    def _value(self, entry: object) -> str:
        """Return the expression of a value with inputs and ``{ref: NAME}`` at any depth; other maps
        are data.
        """
        if isinstance(entry, list):
            return f"[{', '.join(map(self._item, entry))}]"
        if not isinstance(entry, Mapping):
            return ascii(entry)
        kind = inputs.kind_of(entry)
        match kind:
            case None:
                return f"{{{', '.join(f'{key!a}: {self._value(item)}' for key, item in entry.items())}}}"  # noqa: E501 - Python 3.11 breaks no line within a field
            case "ref":
                return self._named(str(entry["ref"]))
            case "value":
                return ascii(entry["value"])
            case "module":
                return self._module(entry)
            case "call" if "close" not in entry:
                return f"{self._callable(entry['call'])}({self._called(entry)})"
        return self._tensor(kind, entry)

    def _item(self, entry: object) -> str:
        times = inputs.times(entry)
        return (
            self._value(entry) if times == 1 else f"*({self._value(entry)} for _ in range({times}))"
        )

    def _tensor(self, kind: str, entry: Mapping[str, Any]) -> str:
        if entry.get("storage_offset"):
            raise NothingChecked("an input with storage_offset")
        device = ascii(entry.get("device", self._device))
        options = f", dtype={_of_torch(entry['dtype'])}" if "dtype" in entry else ""
        options += f", device={device}" if entry.get("on_device") else ""
        first = entry[kind]
        match kind:
            case "rand" | "randn" | "zeros" | "ones":
                tensor = f"torch.{kind}({tuple(first)!a}{options})"
                if {"low", "high"} & entry.keys():
                    low, high = entry.get("low", 0), entry.get("high", 1)
                    tensor += f".mul_({high - low!a}).add_({low!a})"
            case "full":
                tensor = f"torch.full({tuple(first)!a}, {entry['value']!a}{options})"
            case "randint":
                tensor = (
                    f"torch.randint({entry.get('low', 0)!a}, {entry['high']!a}, "
                    f"{tuple(first)!a}{options})"
                )
            case "arange":
                tensor = f"torch.arange({', '.join(map(ascii, first if isinstance(first, list) else [first]))}{options})"  # noqa: E501 - Python 3.11 breaks no line within a field
            case "values":
                tensor = f"torch.tensor({first!a}{options})"
            case _:
                raise NothingChecked(f"an input '{kind}'")
        words = {
            word: ascii(entry[word])
            for word in ("strides", "requires_grad", "mark_dynamic")
            if entry.get(word)
        }
        if "memory_format" in entry:
            words["memory_format"] = _of_torch(entry["memory_format"])
        if device == ascii(CPU) and not words:
            return tensor
        self._helpers.add("tensor")
        return (
            f"tensor({tensor}, "
            f"{device}{''.join(f', {word}={value}' for word, value in words.items())})"
        )

    def _module(self, entry: Mapping[str, Any]) -> str:
        module = f"{self._callable(entry['module'])}({self._called(entry)})"
        module += f".to({_of_torch(entry['dtype'])})" if "dtype" in entry else ""
        device = entry.get("device", self._device)
        return f"{module}{'' if device == CPU else f'.to({device!a})'}{'.eval()' if entry.get('eval') else ''}"  # noqa: E501 - Python 3.11 breaks no line within a field

    def _called(self, entry: Mapping[str, Any]) -> str:
        words = [*map(self._item, entry.get("args") or [])]
        return ", ".join(
            [*words, f"**{self._value(entry['kwargs'])}"] if entry.get("kwargs") else words
        )

    def _callable(self, entry: object) -> str:
        return self._named(str(entry["ref"] if isinstance(entry, Mapping) else entry))

    def _named(self, name: str) -> str:
        """Return the expression of a name of the case or of its Python, or of a dotted path."""
        first, _, rest = name.replace(":", ".").partition(".")
        if first in self._values:
            expression = f"values[{first!a}]"
        elif first in ("output", "eager", "inputs"):
            expression = {"eager": "expected"}.get(first, first)
        elif first in self._functions or (first == "compiled" and len(self._functions) == 1):
            expression = (
                f"compiled{''.join(self._functions.values())}"
                if first == "compiled"
                else f"function{self._functions[first]}"
            )
        elif first in self._bound:
            return _of_torch(rest, first) if rest else first
        elif rest:
            return f"pkgutil.resolve_name({name!a})"
        else:
            raise NothingChecked(f"the name {name}")
        if rest:
            self._helpers.add("follow")
            return f"follow({expression}, {rest!a})"
        return expression

    # -- steps -------------------------------------------------------------------------------------

    def _step(self, planned: Mapping[str, Any], step: Step) -> None:
        arguments = planned["arguments"]
        match step.kind:
            case "call" | "aot" if not {"process", "processes"} & {*arguments}:
                lines = self._call(planned, arguments, is_package=step.kind == "aot")
            case "backward":
                lines = self._backward(planned, arguments)
            case "api":
                lines = [f"output = {self._callable(arguments['call'])}({self._called(arguments)})"]
            case "reset":
                words = arguments["items"] if isinstance(arguments, Mapping) else arguments
                lines = [
                    {**_RESETS, "rng": f"torch.manual_seed({self._plan['seed']})"}[word]
                    for word in words
                ]
            case "clear_counters":
                lines = [
                    text for word, text in _CLEARED.items() if arguments.get("only") in (None, word)
                ]
            case _:
                raise NothingChecked("only the runner has such a step")
        if planned["expects_raise"]:
            raised = _within("except Exception as error:", ["raised = error"])
            lines = ["raised = None", *_within("try:", lines), *raised]
        if step.repeat != 1:
            lines = _within(f"for _ in range({step.repeat}):", lines)
        if isinstance(arguments, Mapping) and (name := arguments.get("as")) is not None:
            self._values.add(name)
            # a later call may write into what this one returned
            copied = "pytree.tree_map_only(torch.Tensor, lambda t: t.detach().clone(), output)"
            lines.append(
                f"values[{name!a}] = {copied if name in self._plan['compared'] else 'output'}"
            )
        checks = [text for expected in step.expectations for text in self._expectation(expected)]
        self._main += ["", f"# {line(str(step.position))}: {step.kind}", *lines, *checks]
        self._has_step = True

    def _call(
        self, planned: Mapping[str, Any], arguments: Mapping[str, Any], *, is_package: bool
    ) -> list[str]:
        suffix = self._functions[arguments.get("function") or next(iter(self._functions))]
        self._has_keywords = bool(arguments.get("kwargs"))
        if self._has_keywords and is_package:
            raise NothingChecked("only the runner calls a package with arguments by keyword")
        inputs, is_eager = arguments.get("inputs"), bool(arguments.get("eager"))
        compares = self._plan["needs_eager"] and not is_eager
        lines = []
        if inputs is not None:
            lines.append(f"inputs = {self._value(inputs)}")
            lines += ["eager_inputs = copy.deepcopy(inputs)"] if compares else []
        if self._has_keywords:
            lines.append(f"keywords = {self._value(arguments['kwargs'])}")
            lines += ["eager_keywords = copy.deepcopy(keywords)"] if compares else []
        ours, theirs = (", keywords", ", eager_keywords") if self._has_keywords else ("", "")
        own_context = arguments.get("context")
        contexts = [
            self._context(entry)
            for entry in (self._body["context"] if own_context is None else own_context)
        ]
        if compares:
            self._helpers.add("effects")
            eager = ", ".join(
                ['torch.compiler.set_stance("force_eager")', "torch.random.fork_rng()", *contexts]
            )
            first = ["expected = call.eager()"]
            if planned["expects_raise"]:
                caught = _within("except Exception as error:", ["eager_raised = error"])
                first = ["eager_raised = None", *_within("try:", first), *caught]
            lines += [
                f"call = Call((function{suffix}, inputs{ours}), "
                f"(eager_function{suffix}, eager_inputs{theirs}))",
                *_within(f"with {eager}:", first),
                *_within(f"with {eager}:", ["reference = call.reference()"]),
                "call.compiled_is_next()",
            ]
        called = "function" if is_eager else "compiled"
        words = ", **keywords" if self._has_keywords else ""
        call = [f"output = {called}{suffix}(*inputs{words})"]
        if is_package:
            self._helpers.add("ahead")
            if arguments.get("package") or arguments.get("dynamic_shapes"):
                raise NothingChecked("only the runner builds a package for several sizes")
            strict = arguments.get("strict")
            arguments_of_export = "" if strict is None else f", strict={strict!a}"
            call = [
                f"package = ahead(function{suffix}, inputs{arguments_of_export})",
                "output = package(*inputs)",
            ]
        is_seen = "runs" in self._helpers and not is_eager and not is_package
        lines += ["runs.clear()"] if is_seen else []
        lines += _within(f"with {', '.join(contexts)}:", call) if contexts else call
        lines += ["compiled_ran()"] if is_seen and not planned["expects_raise"] else []
        self._has_call = compares
        if compares and not planned["expects_raise"]:
            is_frozen = is_package or self._body["config"].get("freezing")
            lines += self._effects(planned, "output, expected", memory=not is_frozen)
        return lines

    def _effects(self, planned: Mapping[str, Any], results: str, *, memory: bool) -> list[str]:
        """Return the comparison of what a step leaves apart from its result."""
        effects = planned["effects"]
        if effects is None:
            return []
        keywords = [] if memory else ["memory=False"]
        keywords += [
            f"{word}={effects[word]!a}" for word in ("rtol", "atol") if effects[word] is not None
        ]
        keywords += [] if effects["equal_nan"] else ["equal_nan=False"]
        return [f"call.compare({', '.join([results, *keywords])})"]

    def _context(self, entry: Json) -> str:
        if isinstance(entry, str):
            return f"{_of_torch(entry)}()"
        if "autocast" in entry:
            options = entry["autocast"] or {}
            dtype = f", dtype={_of_torch(options['dtype'])}" if "dtype" in options else ""
            return f"torch.autocast({kind_of(self._device)!a}{dtype})"
        raise NothingChecked("a context of the spec's own")

    def _backward(self, planned: Mapping[str, Any], arguments: Mapping[str, Any]) -> list[str]:
        if (
            arguments.get("of") is not None
            or arguments.get("gradient") is not None
            or len(self._functions) != 1
        ):
            raise NothingChecked(
                "backward of a named value, with a gradient, or of one of several functions"
            )
        if self._has_keywords:
            raise NothingChecked("backward of a call with arguments by keyword")
        self._helpers.add("gradients")
        loss = arguments.get("loss", "sum")
        loss_code = ascii(loss) if loss in ("sum", "mean") else self._named(loss)
        (suffix,) = self._functions.values()
        if not self._plan["needs_eager"]:
            return [f"output = gradients(output, {loss_code}, function{suffix}, *inputs)"]
        eager = f"gradients(expected, {loss_code}, eager_function{suffix}, *eager_inputs)"
        exact = f"attempt(lambda: gradients(reference, {loss_code}, call.exact[0], *call.exact[1]))"
        lines = _within(
            'with torch.compiler.set_stance("force_eager"):',
            [f"expected = {eager}", *([f"reference = {exact}"] if self._has_call else [])],
        )
        lines.append(f"output = gradients(output, {loss_code}, function{suffix}, *inputs)")
        if not self._has_call:
            return ["reference = None", *lines]
        return [*lines, *self._effects(planned, "None, None", memory=True)]

    # -- expectations ------------------------------------------------------------------------------

    def _expectation(self, expected: Expected) -> list[str]:
        """Return the statements that check an expectation; note one that only the runner judges."""
        check: Any = expected.check
        place = f"{expected.position}: {expected.kind}"
        when = getattr(check, "when", None)
        if not holds(without_code(when), self._here):
            return []
        lines: list[str] = []
        if when and without_code(when) != when:
            self._note(f"{place}: its condition asks for the generated code")
        elif expected.kind == "close":
            self._helpers.add("check")
            arguments = [self._named(check.of), self._named(check.to)]
            if check.judge_kind is Judge.CALIBRATED:
                part = check.to.partition(".")[2]
                reference = f"attempt(follow, reference, {part!a})" if part else "reference"
                arguments += [f"reference={reference}", "calibrated=True"]
            arguments += ["exact=True"] if check.exact else []
            if check.exact == "bits":
                self._note(f"{place}: the bits of NaN")
            arguments += ["strides=False"] if check.strides or not check.compares_with_eager else []
            arguments += ["equal_nan=False"] if not check.equal_nan else []
            if check.rtol is not None:
                arguments.append(f"rtol={check.rtol!a}, atol={check.atol!a}")
            lines = [f"check({', '.join(arguments)})"]
        elif expected.kind == "equals":
            self._helpers |= {"check", "equal"}
            for name, other in check.pairs.items():
                is_named = is_reference(other)
                expected_value = (
                    self._named(str(other["ref"])) if is_named else ascii(as_text(other))
                )
                lines.append(f"equal({name!a}, {self._named(name)}, {expected_value})")
        elif expected.kind == "raises":
            lines = self._raises(check, place)
        elif expressions := {} if asks_for_code(expected.body) else _expressions(check):
            for leaf, expression in expressions.items():
                lines += self._counted(expression, check.by_leaf[leaf])
        elif expected.kind != "runs":
            self._shows_code |= check.judges_code
            self._note(f"{place}: {flow(as_text(expected.body))[:200]}")
        return lines

    def _raises(self, check: Any, place: str) -> list[str]:
        """Return the statement that checks an exception."""
        self._helpers.add("raised")
        if check.before:
            self._note(f"{place}: that it comes before the backend")
        cause = check.cause
        arguments = [f"match={check.match!a}"] if check.match is not None else []
        arguments += [f"kind={check.type!a}"] if not check.as_eager else ["eager=eager_raised"]
        if not (check.before or check.as_eager or "backend" in self._body["compile"]):
            arguments.append("entered=runs")
        arguments += [f"causes=[({cause.type!a}, {cause.match or ''!a})]"] if cause else []
        return [f"check_raised({', '.join(['raised', *arguments])})"]

    def _sees_globals(self) -> bool:
        """Whether what the spec's Python holds is compared: what its own backend, passes and hooks
        keep there changes in the compiled call only.
        """
        sections = ("compile", "context", *MODULES)
        words = set(re.findall(r"\w+", ascii([self._body[section] for section in sections])))
        backend = str(self._body["compile"].get("backend", "inductor"))
        is_own = words & self._bound or any(backend in block for block in self._blocks)
        if is_own and "effects" in self._helpers:
            self._note("globals of the spec's Python: its own backend, passes or contexts use them")
        return not is_own

    def _note(self, text: str) -> None:
        if text not in self._unchecked:
            self._unchecked.append(text)

    def _counted(self, expression: str, count: object) -> list[str]:
        applies, value = choose(count, self._here)
        if not applies:
            return []
        bounds = parse_count(value)
        if bounds.among:
            return [f"assert {expression} in {bounds.among!a}, {expression}"]
        if bounds.least == bounds.most:
            return [f"assert {expression} == {bounds.least!a}, {expression}"]
        parts = [f"{bounds.least!a} <= "] * (bounds.least is not None) + [expression]
        return [
            f"assert {''.join(parts)}{'' if bounds.most is None else f' <= {bounds.most!a}'}, "
            f"{expression}"
        ]
