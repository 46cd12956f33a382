"""``explain``: one case as a standalone spec, with where each value came from; above it, what a
spec does not say.

``document_of`` makes the spec that a person would write for one case: what the matrix, the defaults
and the spec decided is written out. ``text_of`` writes it as YAML, with the origin of each
value as a comment. ``repro --shrink`` edits such a document.
"""

import copy
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import PurePath
from typing import Any

from torch_conformance.judge.waiving import Waivers
from torch_conformance.language.backends import Backends
from torch_conformance.language.expand import surroundings_for
from torch_conformance.language.load import Suite, load, surroundings_of
from torch_conformance.language.read import templates
from torch_conformance.language.read.spec_files import DEFAULTS
from torch_conformance.language.read.templates import as_text
from torch_conformance.language.waivers import load_waivers
from torch_conformance.machine import capabilities, output
from torch_conformance.machine.capabilities import CaseAvailability
from torch_conformance.machine.installed_torch import installed_torch
from torch_conformance.matching.patterns import Ids
from torch_conformance.model.case import (
    Availability,
    Case,
    Expected,
    Requirement,
    Step,
    WrittenFunction,
)
from torch_conformance.model.conditions import (
    CODE,
    CONDITIONS,
    MATRIX,
    Surroundings,
    holds,
    is_conditional,
)
from torch_conformance.model.devices import is_accelerator
from torch_conformance.model.diagnostics import Position, UsageError, one_line
from torch_conformance.model.document import Document as SpecFile
from torch_conformance.model.flow import block, flow
from torch_conformance.model.outcomes import ExitCode
from torch_conformance.model.protocol import Json
from torch_conformance.model.targets import (
    ALL_STAGES,
    AXIS,
    OFFLINE_BACKENDS,
    SIMULATED,
    STAGES,
    TARGETS,
)
from torch_conformance.model.values import frozen
from torch_conformance.optional.options import (
    Selection,
    SpecFiles,
    argument,
    profile_option,
)
from torch_conformance.plan.profile import profiles
from torch_conformance.plan.schedule import is_exclusive
from torch_conformance.plan.selection import is_optional, no_case, select, without_benches
from torch_conformance.plan.worker_plan import digest_of, seed_of
from torch_conformance.vocabulary.steps import SAMPLES, TRITON, python_of, traits_of

Document = dict[str, Any]
Origin = Callable[..., str]
"""Returns where the value at a path of the document comes from; empty for what the spec says
itself.
"""

SECTIONS = ("config", "dynamo_config", "functorch_config", "env", "torch")
_NAMED = (*SECTIONS, "compile", "functions", "let", "spies", "handlers")
_LISTS = ("covers", "requires", "inputs")
_ORDER = (
    "summary covers tags backends matrix exclude requires config dynamo_config "
    "functorch_config env torch context prelude "
    "entry function functions let spies handlers inputs compile expect steps control services "
    "isolation timeout "
    "on_request source exclusive retries targets triton"
).split()
_PLAIN = (str, int, float, bool)


@dataclass(frozen=True, slots=True)
class Decision:
    """Conditions that are decided for one case: those on ``words``, by ``surroundings``.

    Conditions on other words stay.
    """

    surroundings: Surroundings
    words: frozenset[str] = frozenset(CONDITIONS) - {CODE}
    lacking: frozenset[str] = frozenset()
    """The stages that the target of the case does not have: expectations of them are not for it."""

    def left_of(self, when: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
        """Return what stays of a condition; None where it does not hold."""
        undecided = dict(when or {})
        decided = {word: undecided.pop(word) for word in self.words & undecided.keys()}
        return undecided if holds(decided, self.surroundings) else None

    def steps_of(self, case: Case) -> list[Step]:
        """Return the steps that may apply."""
        return [step for step in case.steps if self.left_of(step.when) is not None]


def decision_of(case: Case, backends: Backends) -> Decision:
    """Return the conditions that a spec of only this case decides: those on the backend and its
    device.

    A spec may not name a device that none of its backends has. The other conditions stay: the text
    is true for another torch too.
    """
    words = {"backend", "device", MATRIX}
    if case.target or not is_accelerator(case.device):
        words |= {"vendor", "arch"}
    stages = STAGES[TARGETS[case.target].backend] if case.target else ALL_STAGES
    surroundings = surroundings_in(case, backends, surroundings_of(None, None))
    return Decision(surroundings, frozenset(words), frozenset(ALL_STAGES).difference(stages))


def surroundings_in(case: Case, backends: Backends, surroundings: Surroundings) -> Surroundings:
    """Return what the conditions of a case ask for, on the machine of ``surroundings``."""
    return surroundings_for(backends.by_name[case.backend], surroundings, case.target)


def reduced_document_of(case: Case, surroundings: Surroundings) -> Document:
    """Return the document without what a failure cannot depend on; raise ``UsageError`` for a case
    that is not one of a function and steps.

    All conditions on the machine are decided for ``surroundings``.
    """
    if case.target or any(step.kind in (SAMPLES, TRITON) for step in case.steps):
        raise UsageError(
            "shrink works on cases of a function or of steps, not on operators of torch's "
            "database or on offline targets"
        )
    document = _document(case, Decision(surroundings))
    for section, options in case.body.settings.by_section.items():
        layers = case.options.get(section, {})
        # options of the backend come with it
        document[section] = {
            name: plain(value)
            for name, value in options.items()
            if not layers[name].layer.startswith("backend")
        }
    document["torch"] = {**document["torch"], "seed": seed_of(case)}
    idle = "covers tags requires control timeout on_request exclusive retries".split()
    remaining = {name: value for name, value in document.items() if value and name not in idle}
    return without_idle_spies(remaining)


def document_of(case: Case, backends: Backends) -> Document:
    """Return the whole document, its keys in the order of the schema."""
    document = _document(case, decision_of(case, backends))
    if case.backend in OFFLINE_BACKENDS:
        document["backends"] = None
    else:
        joining = [backend.name for backend in backends.of([case.backend], case.tags)]
        if others := [name for name in joining if name != case.backend]:
            reason = f"they join {case.backend}, and this is one case"
            document["exclude"] = [{"backend": others, "reason": reason}]
    steps = document["steps"]
    first: Document = steps[0] if steps else {}
    document = without_idle_spies(document)
    left_out = {"steps"}
    if SAMPLES in first or TRITON in first:
        left_out |= {*"function functions entry let spies handlers inputs".split()}
        if words := first.get(SAMPLES):
            keys = [name for name in ("samples", "gradients", "forms") if name in words]
            opinfo = {"dtypes": [words["dtype"]], "calls": [words["call"]]}
            document["source"] = {"opinfo": opinfo | {name: words[name] for name in keys}}
        document |= {TRITON: first.get(TRITON), "expect": first.get("expect")}
    elif len(steps) == 1 and first.keys() <= {"call", "expect"} and first.get("call") == {}:
        document["expect"] = first.get("expect")
    else:
        left_out.clear()
    return {name: document[name] for name in _ORDER if document.get(name) and name not in left_out}


def _document(case: Case, decision: Decision) -> Document:
    """Return all keys of the document, also the empty ones."""
    body = case.body
    scripts = [written["text"] for step in case.steps if (written := python_of(step)) is not None]
    texts = [*(part.text for part in body.blocks), *scripts]
    # what Python reads of the matrix; values in other places are written out
    used = {
        name: value
        if value is None or isinstance(value, _PLAIN)
        else {"id": "only", "value": plain(value)}
        for name, value in case.params.items()
        if name != AXIS
        and any(re.search(rf"\bparams\s*\.\s*{re.escape(name)}\b", text) for text in texts)
    }
    functions = {
        name: function.block.text if isinstance(function, WrittenFunction) else plain(function)
        for name, function in body.functions.items()
    }
    only = body.functions.get("function") if list(functions) == ["function"] else None
    entry = None
    if isinstance(only, WrittenFunction) and len(re.findall(r"(?m)^def ", only.block.text)) > 1:
        entry = only.entry
    return {
        "summary": case.summary,
        "covers": list(case.covers),
        "tags": list(case.tags),
        "backends": [case.backend],
        "matrix": {name: [point] for name, point in used.items()},
        "requires": [
            need.name if need.argument is None else {need.name: need.argument}
            for need in _required(case)
        ],
        **{section: _options(case, section) for section in (*SECTIONS, "compile")},
        "context": plain(list(body.context)),
        "prelude": "\n".join(prelude.text.rstrip("\n") + "\n" for prelude in body.preludes),
        "entry": entry,
        **({"functions": functions} if only is None else {"function": functions["function"]}),
        **{name: plain(getattr(body, name)) for name in ("let", "spies", "handlers")},
        "inputs": plain(list(body.inputs)),
        "steps": [step_of(step, decision) for step in decision.steps_of(case)],
        "control": case.control
        and {
            **plain(dict(case.control.patch)),
            **({"fails": list(case.control.fails)} if case.control.fails else {}),
        },
        "services": list(body.services),
        "isolation": "" if body.isolation == "case" else body.isolation,
        "timeout": body.timeout,
        "on_request": case.on_request,
        "exclusive": case.exclusive,
        "retries": case.retries,
        "targets": [case.target] if case.target else [],
    }


def _required(case: Case) -> list[Requirement]:
    """Return what a spec of the case requires: without what its services and targets imply."""
    implied = {*case.body.services, *((AXIS, SIMULATED) if case.target else ())}
    needs = {str(need): need for need in case.requires if need.name not in implied}
    return list(needs.values())


def _options(case: Case, section: str) -> Json:
    """Return the options of a section; those that override what another layer set are the last
    entry of a list.
    """
    options = case.options.get(section, {})
    usual, overriding = (
        {
            name: as_text(option.value)
            for name, option in options.items()
            if option.override is overrides
        }
        for overrides in (False, True)
    )
    is_seeded = not any(step.kind == TRITON for step in case.steps)
    if section == "torch" and is_seeded and "seed" not in options:
        usual["seed"] = seed_of(case)
    if not overriding:
        return usual
    return [*filter(None, (usual,)), {"set": overriding, "override": True}]


def without_idle_spies(document: Document) -> Document:
    """Return a document without the spies that only observe and of which nothing is expected: a
    spec may not have them.
    """
    claimed = {
        claim["calls"]["of"]
        for step in document["steps"]
        for claim in step.get("expect", [])
        if "calls" in claim
    }
    spies = {
        name: spy
        for name, spy in (document.get("spies") or {}).items()
        if name in claimed or {"result", "instead", "around"} & set(spy)
    }
    changed = {**document, "spies": spies}
    if not spies:
        del changed["spies"]
    return changed


def text_of(document: Document, origin: Origin = lambda *path: "") -> str:
    """Return the document as YAML, with the origin of each value as a comment."""
    return "\n".join(_lines(document, origin)) + "\n"


def _lines(document: Document, origin: Origin) -> Iterator[str]:
    for name, value in document.items():
        if name in _NAMED and isinstance(value, Mapping):
            yield f"{name}:"
            for key, part in value.items():
                comment = origin(name, key)
                # what the backend sets and only its machine knows cannot be set again: it is shown
                indent = "  # " if comment.startswith("backend") and "{{" in str(part) else "  "
                yield from (f"{indent}{text}" for text in _commented(block(key, part), comment))
        elif name in _LISTS:
            yield f"{name}:"
            for index, part in enumerate(value):
                yield from _commented([f"  - {flow(part)}"], origin(name, index))
        elif name == "expect":
            yield from _listed(value, origin, "steps", 0, name)
        elif name == "steps":
            yield from _listed(value, origin, name)
        else:
            yield from _commented(block(name, value), origin(name))


def _listed(items: Sequence[Document], origin: Origin, *path: str | int) -> Iterator[str]:
    """Yield the list of steps or expectations that is at a path."""
    yield f"{path[-1]}:"
    for index, item in enumerate(items):
        place = (*path, index)
        lines = (
            line
            for word, body in item.items()
            for line in (
                _listed(body, origin, *place, word) if word == "expect" else block(word, body)
            )
        )
        for number, text in enumerate(_commented(lines, origin(*place))):
            yield f"  {'  ' if number else '- '}{text}"


def _commented(lines: Iterable[str], comment: str) -> Iterator[str]:
    """Yield lines with a comment at the end of the first."""
    for number, text in enumerate(lines):
        yield f"{text}  # {one_line(comment)}" if comment and number == 0 else text


def plain(value: object) -> Json:
    """Return a copy of a value, with templates over facts as text."""
    return copy.deepcopy(as_text(value))


def step_of(step: Step, decision: Decision) -> Document:
    """Return a step with the conditions that the decision leaves."""
    arguments: Any = plain(
        {name: value for name, value in step.arguments.items() if name != "entry"}
    )
    written = python_of(step)
    if written is not None:
        arguments[traits_of(step).python] = written["text"]
    if step.kind == "reset":
        arguments = arguments["items"]
    document: Document = {step.kind: arguments}
    if when := decision.left_of(step.when):
        document["when"] = plain(when)
    if step.repeat != 1:
        document["repeat"] = step.repeat
    expectations = [expectation for _, expectation in expectations_of(step, decision)]
    if expectations:
        document["expect"] = expectations
    return document


def expectations_of(step: Step, decision: Decision) -> Iterator[tuple[Expected, Document]]:
    """Yield each expectation of a step that may apply, and the same as a spec has it."""
    for expected in step.expectations:
        words = expected.body if isinstance(expected.body, Mapping) else {"": expected.body}
        if decision.left_of(words.get("when")) is None or words.get("stage") in decision.lacking:
            continue
        body = _decided(plain(expected.body), decision)
        if body is not _NOTHING and (body != {} or not set(words) - {"when"}):
            yield (
                expected,
                {expected.kind: body, **({"weak": expected.weak} if expected.weak else {})},
            )


_NOTHING = object()
"""A conditional value of which no entry can apply."""


def _decided(body: object, decision: Decision) -> Json:
    """Return the arguments of an expectation with the conditions that the decision leaves."""
    if isinstance(body, list) and is_conditional(body):
        entries: list[Document] = []
        for entry in body:
            condition = decision.left_of(entry.get("when"))
            if condition is None:
                continue
            value = _decided(entry["value"], decision)
            if not condition:
                return [*entries, {"value": value}] if entries else value
            entries.append({"when": condition, "value": value})
        return entries or _NOTHING
    if not isinstance(body, Mapping):
        return body
    parts = {
        name: (decision.left_of(value) or _NOTHING) if name == "when" else _decided(value, decision)
        for name, value in body.items()
    }
    return {name: part for name, part in parts.items() if part is not _NOTHING}


# -- the command -----------------------------------------------------------------------------------


@frozen
class ExplainOptions(SpecFiles):
    """The options of ``explain``."""

    case: str = argument("CASE", "a case's id, or a glob that selects cases")
    profile: str | None = profile_option("look among the cases of this profile")


def cases_named(text: str, suite: Suite) -> list[Case]:
    """Return the cases that an id or a glob selects; raise ``UsageError`` where there is none."""
    cases = select(suite.cases, suite.backends, Selection(select=(text,)))
    if not cases:
        raise UsageError(no_case(text, Ids(case.id for case in suite.cases)))
    return cases


def main(options: ExplainOptions) -> ExitCode:
    """Print every case that the id or glob selects."""
    if options.profile:
        profile = profiles().load_profile(options.profile, options.paths, options.backends, None)
        suite, waiver_files = profile.suite, profile.profile.waivers
    else:
        suite, waiver_files = load(options.paths, options.backends), ()
    cases = cases_named(options.case, suite)
    machine = capabilities.inspect_files(installed_torch())
    verdicts = [(case, capabilities.availability_of(case, machine)) for case in cases]
    files = load_waivers(waiver_files, suite.backends)
    waivers = Waivers(files, today=datetime.now(UTC).date())
    machine_surroundings = surroundings_of(machine.torch, machine)
    for number, (case, verdict) in enumerate(verdicts):
        output.raw("---\n" if number else "")
        surroundings = surroundings_in(case, suite.backends, machine_surroundings)
        output.lines(_text(case, verdict, suite, waivers, surroundings))
    return ExitCode.OK


def _text(
    case: Case,
    verdict: CaseAvailability,
    suite: Suite,
    waivers: Waivers,
    surroundings: Surroundings,
) -> Iterator[str]:
    """Yield what a spec does not say as comments, then the case as a spec."""
    backend, timeout = suite.backends.by_name[case.backend], case.body.timeout
    runs = {Availability.YES: "yes", Availability.NO: "no", Availability.UNKNOWN: "perhaps"}[
        verdict.availability
    ]
    facts = [
        ("file", str(case.position)),
        ("backend", f"{case.backend} on {case.device}: {backend.summary}"),
        ("proof", flow(backend.document.data[backend.name].get("proof", {}))),
        ("runs here", f"{runs}{f': {verdict.reason}' if verdict.reason else ''}"),
        ("process", "a new Python" if case.body.isolation == "process" else "a fork"),
    ]
    if (group := case.group) is not None:
        facts.append(("group", f"{group.name}: {group.most} at a time, by {group.file}"))
    if is_exclusive(case):
        bench = "" if is_exclusive(without_benches(case)) else " under --bench"
        facts.append(("exclusive", f"no other case runs at the same time{bench}"))
    facts += [
        ("timeout", f"{timeout:g} seconds" if timeout else "that of run --timeout"),
        ("digest", digest_of(case)),
    ]
    for waiver in waivers.of(case.id, surroundings):
        ended = ", flaky" * waiver.flaky + " (ended)" * waivers.is_expired(waiver)
        until = f"{waiver.position}, until {waiver.until}{ended}"
        facts.append(("waiver", f"{until}: {waiver.reason}, {waiver.issue}"))
    yield f"# {one_line(case.id)}"
    yield from (f"#   {word:<10} {one_line(text)}" for word, text in facts)
    origins = Origins(case, suite.documents, decision_of(case, suite.backends))
    yield from text_of(document_of(case, suite.backends), origins).splitlines()


class Origins:
    """The origins of one case's values, by their path in ``document_of``; each is empty for what
    the spec says itself.
    """

    def __init__(self, case: Case, documents: Sequence[SpecFile], decision: Decision) -> None:
        """``documents`` are those of the suite: the defaults of each spec precede it, the
        outermost first.
        """
        at = next(index for index, document in enumerate(documents) if document.file == case.spec)
        self._case, self._decision = case, decision
        self._spec = documents[at]
        self._defaults = list(
            takewhile(
                lambda document: PurePath(document.file).name == DEFAULTS, reversed(documents[:at])
            )
        )
        self._labels = dict(
            pair.partition("=")[::2] for pair in case.id.rpartition("[")[2].rstrip("]").split(",")
        )
        self._names: dict[Position, set[str]] = {}
        for path, text in templates.occurrences(self._spec):
            names = templates.parse(text).names
            for end in range(1, len(path) + 1):
                for key in (True, False):
                    place = self._spec.position(path[:end], key=key)
                    self._names.setdefault(place, set()).update(names)

    def __call__(self, *path: str | int) -> str:
        """Return the origin of the value at a path."""
        match path:
            case ("steps", int(number), *rest):
                step = self._decision.steps_of(self._case)[number]
                if rest:
                    expected, _ = list(expectations_of(step, self._decision))[int(rest[1])]
                    return self._at(expected.position)
                bench = "with run --bench only" * is_optional(step)
                return ", ".join(filter(None, (self._at(step.position), bench)))
            case ("torch", "seed") if "seed" not in self._case.options.get("torch", {}):
                return "from the case's id"
            case (section, str(name)) if section in (*SECTIONS, "compile"):
                option = self._case.options[str(section)][name]
                if option.layer == "spec":
                    return self._at(option.position)
                return (
                    f"from {option.position.file}" if option.layer == "defaults" else option.layer
                )
            case ("requires", int(number)):
                position = _required(self._case)[number].position
                is_of_spec = position.file == self._case.spec
                return self._at(position) if is_of_spec else f"backend {self._case.backend}"
            case ("tags",):
                tags_of_spec = self._spec.data.get("tags", [])
                inherited = {
                    part.file: [tag for tag in part.data.get("tags", []) if tag not in tags_of_spec]
                    for part in self._defaults
                }
                return ", ".join(
                    f"{' '.join(tags)} from {file}" for file, tags in inherited.items() if tags
                )
            case ("prelude" | "context" | "isolation" as key,) if (
                key == "prelude" or key not in self._spec.data
            ):
                files = [document.file for document in self._defaults if key in document.data]
                if key == "prelude":  # all of them, the outermost first
                    files = files[::-1] + ["the spec"] * bool(files and key in self._spec.data)
                else:
                    del files[1:]
                return f"from {', '.join(files)}" if files else ""
            case ("source",):
                return f"a case for each operator; this one is op={self._case.params['op']}"
            case (str(name), *_) if name not in templates.SECTIONS - {"on_request"}:
                return ""
        return self._at(self._spec.position(path, key=True))

    def _at(self, position: Position) -> str:
        """Return the origin of what is at a position of the spec: the templates in it."""
        names = self._names.get(position, set())
        points = [
            f"{name}={self._labels.get(name, '')}" for name in self._case.params if name in names
        ]
        words = {
            f"matrix: {', '.join(points)}": points,
            f"backend {self._case.backend}": names & {"backend", "device"},
            "known on the machine that runs it": templates.DEFERRED_NAME in names,
        }
        return ", ".join(text for text, holds in words.items() if holds)
