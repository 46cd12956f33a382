"""The spec of a driven test: its Python as a prelude, one step that runs it, and an expectation for each assertion."""

import ast
import re
import sys
from typing import Any

from runner.language.authoring.drafting import DRIVEN, backends_left, backends_of, header, summary
from runner.language.authoring.driven.reached import Reached
from runner.language.authoring.driven.recorder import KEEP, KEEP_PAIR, NAMES, SEEN, recorder
from runner.language.authoring.driven.rewriting import Rewriter, Site
from runner.language.authoring.hoisting import Prelude
from runner.language.authoring.reading import Reading
from runner.language.authoring.values import Function, NotCarried, Value
from runner.language.authoring.whole_test import read_surroundings
from runner.language.authoring.yaml_text import document

_CLASS = "DrivenTest"
_DRIVE = "drive"
_RESULT = "seen"


def driven(reading: Reading) -> str:
    """Return the text of a spec whose one step runs the test's Python; raise ``NotCarried``."""
    decorators = read_surroundings(reading)
    if reading.lost:
        raise NotCarried(reading.lost[0].reason)
    reached = Reached(reading.file, reading.test)
    reached.collect()
    if NAMES & {*reading.file.definitions, *reading.file.imports, *reached.functions}:
        raise NotCarried("names that the spec's own functions have")
    rewriter = reached.rewrite(reading)
    sites = rewriter.sites
    prelude = Prelude(reading, keeps_decorators=True)
    _define(reached, decorators, prelude, reading, _optional(rewriter))
    _imports(prelude, reading)
    spec = _assembled(sites, prelude, reached, reading)
    reading.note(reading.test.function.lineno, DRIVEN)
    return header(reading) + document(spec)


def _optional(rewriter: Rewriter) -> str:
    """Return the place of assertions under open conditions where others stand under none: then a run may reach none of them."""
    return rewriter.shared if any(site.place != rewriter.shared for site in rewriter.sites) else ""


def _define(reached: Reached, decorators: list[ast.expr], prelude: Prelude, reading: Reading, optional: str) -> None:
    """Put the Python of the test into the prelude."""
    scope: dict[str, Value] = recorder()
    scope.update({name: Function(name, node, scope) for name, node in reached.functions.items()})
    own = {**reading.scope, **scope}
    name = reading.test.function.name
    if reading.test.owner is None:
        lines = [f"{name}()"]
        own[name] = Function(name, reached.functions[name], own)
        reached.functions[name].decorator_list = decorators
    else:
        reached.methods[name].decorator_list = decorators
        lines = [f"test = {_CLASS}()", *(f"test.{set_up}()" for set_up in reached.set_ups), f"test.{name}()"]
        prelude.add(_CLASS, prelude.rewritten(reached.own_class(_CLASS), own, own=frozenset([_CLASS])))
    begun = [f"{KEEP_PAIR}({optional!r}, 'begun', 'begun', again=True)"] if optional else []
    body = "".join(f"    {line}\n" for line in [*begun, *lines, f"return {SEEN}"])
    drive = ast.parse(f"def {_DRIVE}():\n{body}").body[0]
    prelude.add(_DRIVE, prelude.rewritten(drive, own, own=frozenset([_DRIVE, _CLASS])))


def _imports(prelude: Prelude, reading: Reading) -> None:
    """Add the imports of parts of torch that the test names by their whole path."""
    text = prelude.text
    for statement in ast.walk(reading.file.tree):
        if isinstance(statement, ast.Import):
            for name in statement.names:
                if "." in name.name and not name.asname and re.search(rf"\b{re.escape(name.name)}\b", text):
                    prelude.add(f"import {name.name}", f"import {name.name}")


def _assembled(sites: list[Site], prelude: Prelude, reached: Reached, reading: Reading) -> dict[str, Any]:
    text = prelude.text + "\n"
    _require(text, reading)
    _devices(text, reached, reading)
    expects = [site.claim.expectation(f"{_RESULT}.{site.place}", site.when) for site in first_of_each(sites)]
    config = {
        section: {
            name: {"ref": prelude.need(value.name, {**value.scope, value.name: value})} if isinstance(value, Function) else value
            for name, value in options.items()
        }
        for section, options in reading.config.items()
    }
    parts: dict[str, Any] = {
        "matrix": {name: values for name, values in reading.matrix.items() if not name.startswith(" ")},
        "requires": reading.requires,
        **{section: config.get(section) for section in ("config", "dynamo_config", "functorch_config", "env")},
        "torch": reading.torch_settings,
        "prelude": prelude.text + "\n",
    }
    spec: dict[str, Any] = {"summary": summary(reading), "backends": _backends(text, reading)}
    spec.update({key: value for key, value in parts.items() if value})
    return {**spec, "steps": [{"api": {"call": _DRIVE, "as": _RESULT}, "expect": expects or [{"runs": {}}]}]}


def first_of_each(sites: list[Site]) -> list[Site]:
    """Return the sites with a place of their own, and the first of those that share one."""
    return list({site.place: site for site in reversed(sites)}.values())[::-1]


_COMPILES = re.compile(
    r"torch\.compile\b|\bcompile_fx\w*\(|_dynamo\.optimize|dynamo\.optimize|\boptimize\(|_inductor\.compile\b|compile_fx_inner"
)
_COMPILED = re.compile(r"torch\.compile\b|optimize\(")
_NAMED = re.compile(r"""(?:torch\.compile|optimize)\([^\n]*?(?:backend=|optimize\()(?:['"](\w+)['"]|(\w+)\b)""")
_COUNTING = re.compile(r"(\w+) = (?:[\w.]+\.)?(\w+)\(\)")
_COUNTERS = {"CompileCounter": "eager", "EagerAndRecordGraphs": "eager", "AotEagerAndRecordGraphs": "aot_eager"}
"""Backends of torch's tests that only look at graphs, and what they run them by."""
_OTHERS = re.compile(r"aot_compile|aoti?_|export\(|_compile_|AOTI|Minifier|minif")


def _backends(text: str, reading: Reading) -> list[str]:
    """Return the backends of a test by what its Python compiles and where."""
    left = backends_left(reading)
    if not _COMPILES.search(text):
        if f"{KEEP_PAIR}(" not in text and f"{KEEP}(" not in text:
            raise NotCarried("a test that asserts nothing and compiles nothing")
        if _OTHERS.search(text):
            raise NotCarried("a compiler other than torch.compile")
        return _hosts(left)
    found = _dynamo_backends(text)
    if "inductor" in found:
        return left
    return backends_of({"backend": max(found) if found <= {"eager", "aot_eager"} else " or ".join(sorted(found))}, left)


def _dynamo_backends(text: str) -> set[str]:
    """Return the dynamo backends that the calls of torch.compile name; inductor where that cannot be seen."""
    counting = dict(_COUNTING.findall(text))
    found = {name or _COUNTERS.get(counting.get(word, word), "inductor") for name, word in _NAMED.findall(text)}
    return found if found and len(_COMPILED.findall(text)) == len(_NAMED.findall(text)) else {"inductor"}


def _hosts(left: list[str]) -> list[str]:
    if "cpu" in left:
        return ["host"]
    if "cuda" in left:
        return ["host-cuda"]
    raise NotCarried("a test that compiles nothing, on a device without a backend for it")


def _devices(text: str, reached: Reached, reading: Reading) -> None:
    """Find out where the test runs by the devices that its Python names."""
    if reached.has_device:
        reading.devices.add("backend")
    compared = {id(part) for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Compare) for part in ast.walk(node)}
    for part in ast.walk(ast.parse(text)):
        is_literal = isinstance(part, ast.Constant) and isinstance(part.value, str) and id(part) not in compared
        literal = str(part.value) if is_literal and isinstance(part, ast.Constant) else ""
        if re.fullmatch(r"cuda(:\d)?", literal) or (isinstance(part, ast.Call) and ast.unparse(part.func).endswith(".cuda")):
            reading.devices.add("gpu")
            reading.vendors -= {"cpu"}
        if re.fullmatch(r"cuda:[1-9]", literal) and {"gpus": ">=2"} not in reading.requires:
            reading.requires.append({"gpus": ">=2"})


_WITH_TORCH = frozenset(["torch", "sympy", "jinja2", "networkx", "filelock", "fsspec", "typing_extensions", "mpmath"])


def _require(text: str, reading: Reading) -> None:
    """Require the packages that the test imports and torch does not bring."""
    for node in ast.walk(ast.parse(text)):
        names = (
            [part.name for part in node.names]
            if isinstance(node, ast.Import)
            else [node.module or ""]
            if isinstance(node, ast.ImportFrom)
            else []
        )
        for name in names:
            head = name.partition(".")[0]
            wanted: Any = None
            if name.startswith(("torch.testing._internal", "torch._inductor.test_case", "torch._dynamo.test_case")):
                wanted = {"module": "expecttest"}
            elif head == "triton":
                wanted = "triton"
            elif head not in _WITH_TORCH and head not in sys.stdlib_module_names:
                wanted = {"module": head}
            if wanted is not None and wanted not in reading.requires:
                reading.requires.append(wanted)
