"""A case as the document of a spec that has this one case: what the matrix, the defaults and the spec decided is written out. Pure."""

import copy
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from runner.core.case import Case, DescribedFunction, Expected, OwnProcess, Step, WrittenFunction
from runner.core.conditions import CODE, CONDITIONS, Surroundings, holds, is_conditional
from runner.core.diagnostics import UsageError, one_line
from runner.language.flow import block
from runner.language.read.substitution import as_text
from runner.plan.worker_plan import python_of, seed_of
from runner.vocabulary.steps import SAMPLES, TRITON, traits_of

Document = dict[str, Any]

_PLAIN = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class Decision:
    """Conditions that are decided for one case: those on ``words``, by what is ``here``. Conditions on other words stay."""

    here: Surroundings
    words: frozenset[str] = frozenset(CONDITIONS) - {CODE}
    lacking: frozenset[str] = frozenset()
    """The stages that the target of the case does not have: expectations of them are not for it."""

    def left_of(self, when: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return what stays of a condition; None where it does not hold."""
        when = when or {}
        decided = {word: wanted for word, wanted in when.items() if word in self.words}
        return {word: wanted for word, wanted in when.items() if word not in self.words} if holds(decided, self.here) else None


def document_of(case: Case, here: Surroundings) -> Document:
    """Return the document; raise ``UsageError`` for a case that is not one of a function and steps.

    Conditions are decided for ``here``: a spec may not name a device that none of its backends has.
    """
    if case.target or any(step.kind in (SAMPLES, TRITON) for step in case.steps):
        raise UsageError("shrink works on cases of a function or of steps, not on operators of torch's database or on offline targets")
    body = case.body
    used = used_params(case)
    found: Document = {
        "summary": case.summary,
        "backends": [case.backend],
        "matrix": {name: [point_of(value)] for name, value in case.params.items() if name in used},
        **_settings(case),
        "prelude": prelude_of(case),
        **{name: plain(getattr(body, name)) for name in ("let", "spies", "handlers")},
        **functions_of(case),
        "inputs": plain(list(body.inputs)),
        "context": plain(list(body.context)),
        "services": list(body.services),
        "isolation": "" if body.isolation is OwnProcess.CASE else body.isolation.value,
    }
    decision = Decision(here)
    steps = [step_of(step, decision) for step in case.steps if decision.left_of(step.when) is not None]
    return without_idle_spies({**{name: value for name, value in found.items() if value}, "steps": steps})


def without_idle_spies(document: Document) -> Document:
    """Return a document without the spies that only observe and of which nothing is expected: a spec may not have them."""
    claimed = {one["calls"]["of"] for step in document["steps"] for one in step.get("expect", []) if "calls" in one}
    spies = document.get("spies", {})
    kept = {name: spy for name, spy in spies.items() if name in claimed or {"result", "instead", "around"} & set(spy)}
    rest = {name: value for name, value in document.items() if name != "spies"}
    return {**rest, "spies": kept} if kept else rest


def prelude_of(case: Case) -> str:
    """Return the preludes of the defaults and of the spec as one."""
    return "\n".join(prelude.text.rstrip("\n") + "\n" for prelude in case.body.preludes)


def functions_of(case: Case) -> Document:
    """Return the keys that say the functions of a case."""
    functions = {name: _function(one) for name, one in case.body.functions.items()}
    if list(functions) != ["function"]:
        return {"functions": functions}
    only = case.body.functions["function"]
    if isinstance(only, WrittenFunction) and len(re.findall(r"^def ", only.block.text, re.MULTILINE)) > 1:
        return {"function": functions["function"], "entry": only.entry}
    return {"function": functions["function"]}


def text_of(document: Document) -> str:
    """Return the document as YAML."""
    lines = [line for name, value in document.items() if name != "steps" for line in block(name, value)]
    for step in document.get("steps", []):
        lines += ["steps:"] if "steps:" not in lines else []
        lines += step_lines(step)
    return "\n".join(lines) + "\n"


def step_lines(step: Document, origin: str = "", origins: Sequence[str] = ()) -> Iterator[str]:
    """Yield a step as an entry of ``steps``. ``origin`` is a comment on the step, ``origins`` are those on its expectations."""
    before = "  - "
    for name, value in step.items():
        if name == "expect":
            yield f"{before}expect:"
            yield from expectation_lines(value, "      ", origins)
        else:
            for text in commented(block(name, value), "" if before.isspace() else origin):
                yield f"{before}{text}"
                before = "    "
        before = "    "


def expectation_lines(expected: Sequence[Document], indent: str, origins: Sequence[str] = ()) -> Iterator[str]:
    """Yield expectations as the entries of ``expect``."""
    for index, one in enumerate(expected):
        kind, body = next(iter(one.items()))
        inner = commented(block(kind, body), origins[index] if origins else "")
        yield from (f"{indent}{'- ' if number == 0 else '  '}{text}" for number, text in enumerate(inner))


def commented(lines: Iterable[str], comment: str) -> Iterator[str]:
    """Yield lines with a comment at the end of the first."""
    for number, text in enumerate(lines):
        yield f"{text}  # {one_line(comment)}" if comment and number == 0 else text


def used_params(case: Case) -> set[str]:
    """Return the values of the matrix that Python reads; those in other places are written out."""
    scripts = [written["text"] for step in case.steps if (written := python_of(step)) is not None]
    texts = [*(one.text for one in case.body.blocks), *scripts]
    return {name for name in case.params if any(re.search(rf"\bparams\s*\.\s*{re.escape(name)}\b", text) for text in texts)}


def point_of(value: object) -> Any:
    """Return a value as the matrix has it."""
    if value is None or isinstance(value, _PLAIN):
        return value
    return {"id": "only", "value": plain(value)}


def plain(value: object) -> Any:
    """Return a copy of a value, with templates over facts as text."""
    return copy.deepcopy(as_text(value))


def _settings(case: Case) -> Document:
    """Return the options that the backend does not set itself, and the seed: it must not depend on the name of the file."""
    found: Document = {}
    for section, options in case.body.settings.by_section.items():
        own = {name: value for name, value in options.items() if not case.options[section][name].layer.startswith("backend")}
        if own:
            found[section] = plain(own)
    found["torch"] = {**found.get("torch", {}), "seed": seed_of(case)}
    return found


def _function(one: WrittenFunction | DescribedFunction) -> Any:
    return one.block.text if isinstance(one, WrittenFunction) else plain(one.value)


def step_of(step: Step, decision: Decision) -> Document:
    """Return a step with the conditions that the decision leaves."""
    arguments: Any = plain({name: value for name, value in step.arguments.items() if name != "entry"})
    written = python_of(step)
    if written is not None:
        arguments[traits_of(step).python] = written["text"]
    if step.kind == "reset":
        arguments = arguments["items"]
    found: Document = {step.kind: arguments}
    if when := decision.left_of(step.when):
        found["when"] = plain(when)
    if step.repeat != 1:
        found["repeat"] = step.repeat
    kept = [expectation for _, expectation in expectations_of(step, decision)]
    if kept:
        found["expect"] = kept
    return found


def expectations_of(step: Step, decision: Decision) -> Iterator[tuple[Expected, Document]]:
    """Yield each expectation of a step that may apply, and the same as a spec has it."""
    for one in step.expectations:
        given = one.body if isinstance(one.body, Mapping) else {"": one.body}
        if decision.left_of(given.get("when")) is None or given.get("stage") in decision.lacking:
            continue
        body = _decided(plain(one.body), decision)
        if body is not _NOTHING and (body != {} or not set(given) - {"when"}):
            yield one, {one.kind: body}


_NOTHING = object()
"""A conditional value of which no entry can apply."""


def _decided(body: object, decision: Decision) -> Any:
    """Return the arguments of an expectation with the conditions that the decision leaves."""
    if isinstance(body, list) and is_conditional(body):
        return _chosen(body, decision)
    if not isinstance(body, Mapping):
        return body
    found: Document = {}
    for name, value in body.items():
        kept = decision.left_of(value) if name == "when" else _decided(value, decision)
        if kept is not _NOTHING and not (name == "when" and not kept):
            found[name] = kept
    return found


def _chosen(entries: Sequence[Document], decision: Decision) -> Any:
    """Return the entries of a conditional value that may apply; the value alone where nothing is left to decide."""
    found: list[Document] = []
    for entry in entries:
        left = decision.left_of(entry.get("when"))
        if left is None:
            continue
        value = _decided(entry["value"], decision)
        if not left:
            return [*found, {"value": value}] if found else value
        found.append({"when": left, "value": value})
    return found or _NOTHING
