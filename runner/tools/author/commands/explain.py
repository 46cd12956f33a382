"""``explain``: one case as the spec of it alone, with where each value came from; above it, what a spec does not say."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import takewhile
from pathlib import Path, PurePath
from typing import Any

from runner.cli.list import as_json
from runner.judge.waiving import Waivers
from runner.language.expand import surroundings_for
from runner.language.load import Suite, load, surroundings_of
from runner.language.read import templates
from runner.language.read.document import Document
from runner.language.read.spec_files import DEFAULTS
from runner.language.read.templates import as_text
from runner.language.waivers import load_waivers
from runner.machine import capabilities, output
from runner.machine.capabilities import Verdict
from runner.machine.installed_torch import installed_torch
from runner.model.case import Availability, Case
from runner.model.conditions import Surroundings
from runner.model.diagnostics import Position, UsageError, one_line
from runner.model.flow import flow
from runner.model.optional import hooks
from runner.model.options import argument, backend_files, flag, paths, profile_option
from runner.model.outcomes import ExitCode
from runner.model.protocol import encode
from runner.plan.schedule import is_exclusive
from runner.plan.selection import is_optional, select, unmatched, without_benches
from runner.plan.worker_plan import body_as_json, digest_of, seed_of
from runner.tools.author.case_document import SECTIONS, Decision, decision_of, document_of, expectations_of, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainOptions:
    """The options of ``explain``."""

    case: str = argument("CASE", "a case's id, or a glob that selects cases")
    paths: tuple[Path, ...] = paths()
    backends: tuple[Path, ...] = backend_files()
    profile: str | None = profile_option("look among the cases of this profile")
    json: bool = flag("print an array of objects")


def main(options: ExplainOptions) -> ExitCode:
    """Print every case that the id or glob selects."""
    profile = hooks("vendor").load_profile(options.profile, options.paths, options.backends) if options.profile else None
    suite = load(options.paths, options.backends) if profile is None else profile.suite
    cases = select(suite.cases, suite.backends, globs=[options.case])
    if not cases:
        raise UsageError(unmatched([options.case], suite.cases)[0])
    machine = capabilities.inspect_files(installed_torch())
    verdicts = [(case, capabilities.availability_of(case, machine)) for case in cases]
    if options.json:
        output.document(encode([{**as_json(case, verdict), **_details(case)} for case, verdict in verdicts]))
    else:
        files = load_waivers(() if profile is None else profile.profile.waivers, suite.backends)
        waivers, known = Waivers(files, today=datetime.now(UTC).date()), surroundings_of(machine.torch, machine)
        for number, (case, verdict) in enumerate(verdicts):
            output.raw("---\n" if number else "")
            surroundings = surroundings_for(suite.backends.by_name[case.backend], known, case.target)
            output.lines(_text(case, verdict, suite, waivers, surroundings))
    return ExitCode.OK


def _details(case: Case) -> dict[str, Any]:
    control = None if case.control is None else {"patch": case.control.patch, "fails": list(case.control.fails)}
    steps: list[dict[str, Any]] = []
    for step in case.steps:
        beside = {**({"repeat": step.repeat} if step.repeat != 1 else {}), **({} if step.when is None else {"when": dict(step.when)})}
        kinds = [expected.kind for expected in step.expectations]
        steps.append({"kind": step.kind, "arguments": as_text(dict(step.arguments)), "expect": kinds, **beside})
    return {
        "device": case.device,
        "seed": seed_of(case),
        "digest": digest_of(case),
        "body": as_text(body_as_json(case)),
        "steps": steps,
        "control": control,
        "origins": {f"{section}.{name}": option.origin for section, options in case.options.items() for name, option in options.items()},
    }


def _text(case: Case, verdict: Verdict, suite: Suite, waivers: Waivers, surroundings: Surroundings) -> Iterator[str]:
    """Yield what a spec does not say as comments, then the case as a spec."""
    backend, timeout = suite.backends.by_name[case.backend], case.body.timeout
    runs = {Availability.YES: "yes", Availability.NO: "no", Availability.UNKNOWN: "perhaps"}[verdict.availability]
    facts = [
        ("file", str(case.position)),
        ("backend", f"{case.backend} on {case.device}: {backend.summary}"),
        ("proof", flow(backend.document.data[backend.name].get("proof", {}))),
        ("runs here", f"{runs}{f': {verdict.reason}' if verdict.reason else ''}"),
        ("process", "a new Python" if case.body.isolation == "process" else "a fork"),
        *([("alone", f"nothing runs beside it{'' if is_exclusive(without_benches(case)) else ' under --bench'}")] * is_exclusive(case)),
        ("timeout", f"{timeout:g} seconds" if timeout else "that of run --timeout"),
        ("digest", digest_of(case)),
    ]
    for waiver in waivers.of(case.id, surroundings):
        ended = " (ended)" if waivers.is_expired(waiver) else ""
        facts.append(("waiver", f"{waiver.position}, until {waiver.until}{ended}: {waiver.reason}, {waiver.issue}"))
    yield f"# {one_line(case.id)}"
    yield from (f"#   {word:<10} {one_line(text)}" for word, text in facts)
    origins = Origins(case, suite.documents, decision_of(case, suite.backends))
    yield from text_of(document_of(case, suite.backends), origins).rstrip("\n").split("\n")


class Origins:
    """The origins of one case's values, by their path in ``document_of``; each is empty for what the spec says itself."""

    def __init__(self, case: Case, documents: Sequence[Document], decision: Decision) -> None:
        """``documents`` are those of the suite: the defaults of each spec stand before it, outermost first."""
        at = next(index for index, document in enumerate(documents) if document.file == case.spec)
        self._case, self._decision = case, decision
        self._spec = documents[at]
        self._defaults = list(takewhile(lambda document: PurePath(document.file).name == DEFAULTS, reversed(documents[:at])))
        self._labels = dict(pair.partition("=")[::2] for pair in case.id.rpartition("[")[2].rstrip("]").split(","))
        self._names: dict[Position, set[str]] = {}
        for path, text in templates.occurrences(self._spec.data):
            names = templates.parse(text).names
            for end in range(1, len(path) + 1):
                for key in (True, False):
                    self._names.setdefault(self._spec.position(path[:end], key=key), set()).update(names)

    def __call__(self, *path: str | int) -> str:
        """Return the origin of the value at a path."""
        match path:
            case ("steps", int(number), *rest):
                step = self._decision.steps_of(self._case)[number]
                if rest:
                    return self._at([expected for expected, _ in expectations_of(step, self._decision)][int(rest[1])].position)
                return ", ".join(filter(None, (self._at(step.position), "with run --bench only" if is_optional(step) else "")))
            case ("torch", "seed") if "seed" not in self._case.options.get("torch", {}):
                return "from the case's id"
            case (section, str(name)) if section in (*SECTIONS, "compile"):
                option = self._case.options[str(section)][name]
                if option.layer == "spec":
                    return self._at(option.position)
                return f"from {option.position.file}" if option.layer == "defaults" else option.layer
            case ("requires", int(number)):
                position = list({str(need): need for need in self._case.requires}.values())[number].position
                return self._at(position) if position.file == self._case.spec else f"backend {self._case.backend}"
            case ("tags",):
                own = set(self._spec.data.get("tags", []))
                inherited = [(part.file, [tag for tag in part.data.get("tags", []) if tag not in own]) for part in self._defaults]
                return ", ".join(f"{' '.join(tags)} from {file}" for file, tags in inherited if tags)
            case ("prelude",):
                files = [document.file for document in reversed(self._defaults) if "prelude" in document.data]
                return f"from {', '.join([*files, *(['the spec'] if 'prelude' in self._spec.data else [])])}" if files else ""
            case ("context" | "isolation" as key,) if key not in self._spec.data:
                return next((f"from {document.file}" for document in self._defaults if key in document.data), "")
            case ("source",):
                return f"a case for each operator; this one is op={self._case.params['op']}"
            case ("backends" | "exclude" | "matrix" | "targets" | "entry" | "services" | "exclusive" | "on_request", *_):
                return ""
        return self._at(self._spec.position(path, key=True))

    def _at(self, position: Position) -> str:
        """Return the origin of what stands at a position of the spec: the templates in it."""
        names = self._names.get(position, set())
        points = [f"{name}={self._labels.get(name, '')}" for name in self._case.params if name in names]
        words = [f"matrix: {', '.join(points)}"] if points else []
        words += [f"backend {self._case.backend}"] if names & {"backend", "device"} else []
        return ", ".join([*words, *(["known on the machine that runs it"] if templates.DEFERRED_NAME in names else [])])
