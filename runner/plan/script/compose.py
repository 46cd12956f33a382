"""Composes the script of a case from its plan: options, Python, values, steps, expectations, and a list of what it cannot say."""

import ast
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from runner.core.case import Case, Step
from runner.core.conditions import Surroundings, asks_for_code
from runner.core.protocol import decode
from runner.plan.script import expected, steps
from runner.plan.script.parts import Parts
from runner.plan.script.preparation import Preparation
from runner.plan.script.python_blocks import PythonBlocks
from runner.plan.script.rendering import Rendering
from runner.plan.script.values import Values, literal
from runner.plan.worker_plan import make_plan
from runner.system.redaction import KNOWN
from runner.vocabulary.steps import traits_of

_RECORDS: Mapping[str, Set[str]] = {
    "code": {"filecheck", "generated_files"},
    "frames": {"recompiles", "graph_breaks", "guards", "graph"},
    "graphs": {"graph"},
}
"""What a script records from the first step on, and the kinds of expectations that need it."""


class NothingChecked(Exception):
    """A case of which a script of torch alone can judge nothing; the text is the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Script:
    """A script, and what of the case it does not say."""

    text: str
    left_out: tuple[str, ...]


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
        self._parts = Parts()
        self._blocks = PythonBlocks()
        self._values = Values(plan["device"], self._parts.used.add)

    def script(self, torch: str) -> Script:
        """Return the script; raise ``NothingChecked``."""
        self._blocks.texts.append(f"params = types.SimpleNamespace(**{literal(self._params())})")
        for block in self._body["preludes"]:
            self._blocks.prelude(block)
        Preparation(self._plan, self._parts, self._blocks, self._values).write()
        for index, step in enumerate(self._case.steps):
            self._step(index, step)
        self._general()
        if not self._parts.checks:
            raise NothingChecked("; ".join(self._parts.left_out) or "the case expects nothing here")
        if self._blocks.executes:
            self._parts.used.add("functions")
        text = KNOWN.masked(Rendering(self._case, self._plan, self._parts, self._blocks).text(torch))
        ast.parse(text)  # a script that is no Python is a defect of this module: it must not be handed out
        if any(map(_imports_runner, self._blocks.sources)):
            raise NothingChecked("the Python of the spec imports the runner")
        return Script(text=text, left_out=tuple(self._parts.left_out))

    def _params(self) -> dict[str, Any]:
        return {**self._plan["params"], "backend": self._plan["backend"], "device": self._plan["device"]}

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
            yield from ("repro_clear_counters()", *(f"repro_record_{what}()" for what, kinds in _RECORDS.items() if self._expects(kinds)))
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

    def _expects(self, kinds: Set[str]) -> bool:
        return any(one.kind in kinds for step in self._case.steps for one in step.expectations)

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


def _imports_runner(text: str) -> bool:
    """Whether Python of a spec imports the package of this program."""
    if "runner" not in text:
        return False
    nodes = list(ast.walk(ast.parse(text)))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)]
    return any(name.partition(".")[0] == "runner" for name in names)
