"""A case as the text of a spec that a person would write for it alone, with the origin of each value as a comment. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from runner.core.case import Case, Option, OwnProcess, Requirement, Step, WrittenReason
from runner.core.devices import is_accelerator
from runner.core.targets import ALL_STAGES, AXIS, OFFLINE_BACKENDS, SIMULATED, STAGES, TARGETS
from runner.language.backends import Backends
from runner.language.expand.cases import surroundings
from runner.language.flow import block, flow
from runner.language.load import surroundings_of
from runner.language.read.substitution import Deferred, as_text
from runner.plan.case_document import (
    Decision,
    Document,
    commented,
    expectation_lines,
    expectations_of,
    functions_of,
    plain,
    point_of,
    prelude_of,
    step_lines,
    step_of,
    used_params,
    without_idle_spies,
)
from runner.plan.origins import Origins
from runner.plan.selection import is_optional
from runner.plan.worker_plan import seed_of
from runner.vocabulary.steps import SAMPLES, TRITON

Lines = Iterable[str]


def spec_lines(case: Case, backends: Backends, origins: Origins) -> Iterator[str]:
    """Yield the lines of the spec, its keys in the order of the schema.

    Conditions on the backend and its device are decided, since a spec may not name a device that none of its backends has. The other
    conditions stay: the same text is true for another version of torch.
    """
    words = {"backend", "device"} | (set() if is_accelerator(case.device) and not case.target else {"vendor", "arch"})
    stages = STAGES[TARGETS[case.target].backend] if case.target else ALL_STAGES
    here = surroundings(backends.by_name[case.backend], surroundings_of(None, None), case.target)
    decision = Decision(here, frozenset(words), frozenset(ALL_STAGES).difference(stages))
    steps = [(step, step_of(step, decision)) for step in case.steps if decision.left_of(step.when) is not None]
    yield from _head(case, backends, origins)
    for section in ("config", "dynamo_config", "functorch_config", "env", "torch"):
        yield from _section(case, section, origins)
    yield from _python(case, origins, [document for _, document in steps])
    yield from _section(case, "compile", origins)
    yield from _steps(steps, decision, origins)
    yield from _control(case, origins)
    yield from _tail(case, origins)


def _head(case: Case, backends: Backends, origins: Origins) -> Iterator[str]:
    yield from _entry("summary", case.summary, origins.of("summary"))
    yield from _entries("covers", ((test, origins.of("covers", index)) for index, test in enumerate(case.covers)))
    yield from _entry("tags", list(case.tags), origins.tags())
    if case.backend not in OFFLINE_BACKENDS:
        yield f"backends: {flow([case.backend])}"
    used = used_params(case)
    yield from _entry("matrix", {name: [point_of(value)] for name, value in case.params.items() if name in used and name != AXIS})
    others = [one.name for one in backends.of([case.backend], case.tags) if one.name != case.backend]
    if others and case.backend not in OFFLINE_BACKENDS:
        reason = f"they join {case.backend}, and this is one case"
        yield from _entry("exclude", [{"backend": others, "reason": reason}])
    yield from _entries("requires", _requirements(case, origins))


def _requirements(case: Case, origins: Origins) -> Iterator[tuple[object, str]]:
    """Yield the requirements of the spec and of its backend; services and targets bring their own."""
    implied = {*case.body.services, *((AXIS, SIMULATED) if case.target else ())}
    own: dict[str, Requirement] = {str(one): one for one in case.requires if one.name not in implied}
    for one in own.values():
        value: object = one.name if one.argument is None else {one.name: one.argument}
        yield value, origins.at(one.position) if one.position.file == case.spec else f"backend {case.backend}"


def _section(case: Case, section: str, origins: Origins) -> Iterator[str]:
    """Yield the options of a section, one a line."""
    options = case.options.get(section, {})
    rows = {name: (option, origins.option(option)) for name, option in options.items()}
    if section == "torch" and "seed" not in rows and not any(step.kind == TRITON for step in case.steps):
        rows["seed"] = (Option(seed_of(case), case.position, "id"), "from the case's id")
    if not rows:
        return
    yield f"{section}:"
    if not any(option.override for option, _ in rows.values()):
        yield from _indented(_options(rows), "  ")
        return
    usual = {name: row for name, row in rows.items() if not row[0].override}
    if usual:
        yield from _indented(_options(usual), "    ", "  - ")
    yield "  - set:"
    yield from _indented(_options({name: row for name, row in rows.items() if row[0].override}), "      ")
    yield "    override: true"


def _options(rows: Mapping[str, tuple[Option, str]]) -> Iterator[str]:
    for name, (option, origin) in rows.items():
        lines = commented(block(name, as_text(option.value)), origin)
        if isinstance(option.value, Deferred) and option.layer.startswith("backend"):
            # a spec that says it too would conflict with the backend: facts are compared where they are known
            yield from (f"# {text}" for text in lines)
        else:
            yield from lines


def _python(case: Case, origins: Origins, steps: list[Document]) -> Iterator[str]:
    """Yield what calls need: contexts, Python, values, inputs."""
    body = case.body
    yield from _entry("context", plain(list(body.context)), origins.inherited("context"))
    yield from _entry("prelude", prelude_of(case), origins.prelude())
    if any(SAMPLES in step or TRITON in step for step in steps):
        return
    functions = functions_of(case)
    if "entry" in functions:
        yield from _entry("entry", functions["entry"])
    if body.functions and "function" in functions:
        yield from _entry("function", functions["function"], origins.of("function"))
    if body.functions and "functions" in functions:
        yield from _named("functions", functions["functions"], origins)
    yield from _named("let", plain(body.let), origins)
    yield from _named("spies", without_idle_spies({"spies": plain(body.spies), "steps": steps}).get("spies", {}), origins)
    yield from _named("handlers", plain(body.handlers), origins)
    yield from _entries("inputs", ((plain(value), origins.of("inputs", index)) for index, value in enumerate(body.inputs)))


def _steps(steps: list[tuple[Step, Document]], decision: Decision, origins: Origins) -> Iterator[str]:
    if len(steps) == 1 and set(steps[0][1]) <= {"call", "expect"} and steps[0][1].get("call") == {}:
        yield from _expect(*steps[0], decision, origins)
    elif any(step.kind in (SAMPLES, TRITON) for step, _ in steps):
        for step, document in steps:
            yield from _expect(step, document, decision, origins)
    elif steps:
        yield "steps:"
        for step, document in steps:
            words = [origins.at(step.position), "with run --bench only" if is_optional(step) else ""]
            yield from step_lines(document, ", ".join(filter(None, words)), _origins(step, decision, origins))


def _expect(step: Step, document: Document, decision: Decision, origins: Origins) -> Iterator[str]:
    if "expect" in document:
        yield "expect:"
        yield from expectation_lines(document["expect"], "  ", _origins(step, decision, origins))


def _origins(step: Step, decision: Decision, origins: Origins) -> list[str]:
    return [origins.at(expected.position) for expected, _ in expectations_of(step, decision)]


def _control(case: Case, origins: Origins) -> Iterator[str]:
    control = case.control
    if control is not None:
        fails = {"fails": list(control.fails)} if control.fails else {}
        yield from _entry("control", {**plain(dict(control.patch)), **fails}, origins.of("control"))
    yield from _entries("audit", (({name: word for name, word in _survivor(reason).items() if word}, "") for reason in case.survivors))


def _survivor(reason: WrittenReason) -> Document:
    return {name: getattr(reason, name) for name in ("expectation", "mutant", "leaf", "reason")}


def _tail(case: Case, origins: Origins) -> Iterator[str]:
    body = case.body
    yield from _entry("services", list(body.services))
    if body.isolation is not OwnProcess.CASE:
        yield from _entry("isolation", body.isolation.value, origins.inherited("isolation"))
    yield from _entry("timeout", body.timeout, origins.of("timeout"))
    yield from _entry("on_request", case.on_request)
    for step in case.steps:
        if step.kind == SAMPLES:
            yield from _source(case, step)
    yield from _entry("exclusive", case.exclusive)
    yield from _entry("targets", [case.target] if case.target else [])
    for step in case.steps:
        if step.kind == TRITON:
            yield from _entry(TRITON, step_of(step, Decision(surroundings_of(None, None), frozenset()))[TRITON], origins.of(TRITON))


def _source(case: Case, step: Step) -> Iterator[str]:
    """Yield the source of a case of torch's database: with it, the text is a spec of all operators of this dtype and call."""
    given = step.arguments
    opinfo = {"dtypes": [given["dtype"]], "calls": [given["call"]], "samples": given["samples"], "gradients": given["gradients"]}
    yield from _entry("source", {"opinfo": opinfo}, f"a case for each operator; this one is op={case.params['op']}")


def _entry(name: str, value: object, origin: str = "") -> Iterator[str]:
    """Yield a key and its value; nothing for a value that is empty."""
    if value:
        yield from commented(block(name, value), origin)


def _entries(name: str, values: Iterable[tuple[object, str]]) -> Iterator[str]:
    """Yield a list, one value a line."""
    for index, (value, origin) in enumerate(values):
        if index == 0:
            yield f"{name}:"
        yield from commented([f"  - {flow(value)}"], origin)


def _named(section: str, values: Mapping[str, object], origins: Origins) -> Iterator[str]:
    """Yield a map, one name after the other."""
    for index, (name, value) in enumerate(values.items()):
        if index == 0:
            yield f"{section}:"
        yield from _indented(commented(block(name, value), origins.of(section, name)), "  ")


def _indented(lines: Lines, indent: str, first: str = "") -> Iterator[str]:
    for number, text in enumerate(lines):
        yield f"{first if number == 0 and first else indent}{text}"
