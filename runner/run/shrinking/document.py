"""A case as the document of a spec that has this one case: what the matrix, the defaults and the spec decided is written out. Pure."""

import copy
import re
from collections.abc import Mapping
from typing import Any

from runner.core.case import Case, OwnProcess, Step, WrittenFunction
from runner.core.conditions import Surroundings, choose, holds, without_code
from runner.core.diagnostics import UsageError
from runner.core.protocol import Json
from runner.language.flow import block
from runner.language.read.substitution import as_text
from runner.plan.worker_plan import python_of, seed_of
from runner.vocabulary.steps import SAMPLES, TRITON, traits_of

Document = dict[str, Any]

_PLAIN = (str, int, float, bool)


def document_of(case: Case, here: Surroundings) -> Document:
    """Return the document; raise ``UsageError`` for a case that is not one of a function and steps.

    Conditions are decided for ``here``: a spec may not name a device that none of its backends has.
    """
    if case.target or any(step.kind in (SAMPLES, TRITON) for step in case.steps):
        raise UsageError("shrink works on cases of a function or of steps, not on operators of torch's database or on offline targets")
    body = case.body
    used = _used_params(case)
    found: Document = {
        "summary": case.summary,
        "backends": [case.backend],
        "matrix": {name: [_point(value)] for name, value in case.params.items() if name in used},
        **_settings(case),
        "prelude": "\n".join(prelude.text.rstrip("\n") + "\n" for prelude in body.preludes),
        **{name: _plain(getattr(body, name)) for name in ("let", "spies", "handlers")},
        **_functions(case),
        "inputs": _plain(list(body.inputs)),
        "context": _plain(list(body.context)),
        "services": list(body.services),
        "isolation": "" if body.isolation is OwnProcess.CASE else body.isolation.value,
    }
    steps = [_step(step, here) for step in case.steps if step.runs(here)]
    return without_idle_spies({**{name: value for name, value in found.items() if value}, "steps": steps})


def without_idle_spies(document: Document) -> Document:
    """Return a document without the spies that only observe and of which nothing is expected: a spec may not have them."""
    claimed = {one["calls"]["of"] for step in document["steps"] for one in step.get("expect", []) if "calls" in one}
    spies = document.get("spies", {})
    kept = {name: spy for name, spy in spies.items() if name in claimed or {"result", "instead", "around"} & set(spy)}
    rest = {name: value for name, value in document.items() if name != "spies"}
    return {**rest, "spies": kept} if kept else rest


def _functions(case: Case) -> Document:
    functions = {name: _function(one) for name, one in case.body.functions.items()}
    if list(functions) != ["function"]:
        return {"functions": functions}
    only = case.body.functions["function"]
    if isinstance(only, WrittenFunction) and len(re.findall(r"^def ", only.block.text, re.MULTILINE)) > 1:
        return {"function": functions["function"], "entry": only.entry}
    return {"function": functions["function"]}


def text_of(document: Mapping[str, Any]) -> str:
    """Return the document as YAML."""
    lines = [line for name, value in document.items() if name != "steps" for line in block(name, value)]
    for step in document.get("steps", []):
        lines += ["steps:"] if "steps:" not in lines else []
        lines += _lines_of(step)
    return "\n".join(lines) + "\n"


def _lines_of(step: Mapping[str, Any]) -> list[str]:
    lines: list[str] = []
    for name, value in step.items():
        first = "  - " if not lines else "    "
        if name == "expect":
            lines.append(f"{first}expect:")
            for one in value:
                kind, body = next(iter(one.items()))
                inner = list(block(kind, body))
                lines += [f"      {'- ' if number == 0 else '  '}{line}" for number, line in enumerate(inner)]
        else:
            inner = list(block(name, value))
            lines += [f"{first if number == 0 else '    '}{line}" for number, line in enumerate(inner)]
    return lines


def _used_params(case: Case) -> set[str]:
    """Return the values of the matrix that Python reads; those in other places are written out."""
    scripts = [written["text"] for step in case.steps if (written := python_of(step)) is not None]
    texts = [*(one.text for one in case.body.blocks), *scripts]
    return {name for name in case.params if any(re.search(rf"\bparams\s*\.\s*{re.escape(name)}\b", text) for text in texts)}


def _point(value: Json) -> Json:
    if value is None or isinstance(value, _PLAIN):
        return value
    return {"id": "only", "value": _plain(value)}


def _plain(value: Any) -> Any:
    return copy.deepcopy(as_text(value))


def _settings(case: Case) -> Document:
    """Return the options that the backend does not set itself, and the seed: it must not depend on the name of the file."""
    found: Document = {}
    for section, options in case.body.settings.by_section.items():
        own = {name: value for name, value in options.items() if not case.options[section][name].layer.startswith("backend")}
        if own:
            found[section] = _plain(own)
    found["torch"] = {**found.get("torch", {}), "seed": seed_of(case)}
    return found


def _function(one: Any) -> Any:
    return one.block.text if isinstance(one, WrittenFunction) else _plain(one.value)


def _step(step: Step, here: Surroundings) -> Document:
    arguments: Any = _plain({name: value for name, value in step.arguments.items() if name != "entry"})
    written = python_of(step)
    if written is not None:
        arguments[traits_of(step).python] = written["text"]
    if step.kind == "reset":
        arguments = arguments["items"]
    found: Document = {step.kind: arguments}
    if step.repeat != 1:
        found["repeat"] = step.repeat
    bodies = [(one.kind, _decided(_plain(one.body), here)) for one in step.expectations if _holds(one.body, here)]
    kept = [{kind: body} for kind, body in bodies if body != {} or kind == "runs"]
    if kept:
        found["expect"] = kept
    return found


def _holds(body: Json, here: Surroundings) -> bool:
    when = body.get("when") if isinstance(body, Mapping) else None
    return holds(without_code(when), here)


def _decided(body: Json, here: Surroundings) -> Json:
    """Return the arguments of an expectation without conditions on the machine: those on generated code stay."""
    applies, body = choose(body, here)
    if not applies or not isinstance(body, Mapping):
        return body if applies else {}
    found = {}
    for name, value in body.items():
        if name == "when":
            kept = {word: wanted for word, wanted in value.items() if word not in without_code(value)}
            found.update({name: kept} if kept else {})
        elif choose(value, here)[0]:
            found[name] = _decided(value, here)
    return found
