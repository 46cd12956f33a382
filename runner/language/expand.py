"""From checked specs to cases: one for each backend and each point of the matrix. The only code that makes a ``Case``."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from runner.backends import Backend, Backends, read_requirements
from runner.conditions import Surroundings
from runner.diagnostics import Diagnostic, InvalidSpecs
from runner.expectations import EXPECTATIONS
from runner.language import matrix, options, substitution, templates
from runner.language.anatomy import Anatomy, RawExpectation, RawStep
from runner.language.check import OPTION_KINDS, entry_of, used_names
from runner.language.names import NameKind, NameTables
from runner.model import Case, CaseId, Expected, Step


def surroundings(backend: Backend, known: Surroundings) -> Surroundings:
    """Return what a condition may ask about for one backend; ``known`` brings torch, python, vendor and arch."""
    vendor = known.vendor if backend.device.split(":")[0] == "cuda" else None
    return Surroundings(
        backends=backend.names,
        device=backend.device,
        torch=known.torch,
        python=known.python,
        vendor=vendor,
        arch=known.arch if vendor else None,
    )


def expand(anatomy: Anatomy, backends: Backends, names: NameTables, known: Surroundings) -> list[Case]:
    """Return the cases of a checked spec; raise ``InvalidSpecs`` for options on which spec and backend disagree."""
    return list(_Expansion(anatomy, names, known).cases(backends))


class _Expansion:
    """Expands one spec. What does not depend on the point is made once."""

    def __init__(self, anatomy: Anatomy, names: NameTables, known: Surroundings) -> None:
        self.anatomy = anatomy
        self.document = anatomy.document
        self.names = names
        self.known = known
        self.templates = {path: templates.parse(text) for path, text in substitution.occurrences(anatomy.data)}
        self.axes, _ = matrix.axes(anatomy.document)
        self.requires = read_requirements(self.document, ("requires",), anatomy.data.get("requires", []), [])
        self.tags = self._merged_tags()
        self.expected: dict[str, Expected] = {}

    def cases(self, backends: Backends) -> Iterator[Case]:
        problems: list[Diagnostic] = []
        for point in matrix.points(self.document, self.axes, backends.of(self.anatomy.data["backends"])):
            yield self._case(point, problems)
        if problems:
            raise InvalidSpecs(problems)

    def _case(self, point: matrix.Point, problems: list[Diagnostic]) -> Case:
        data = self._filled(point)
        here = surroundings(point.backend, self.known)
        merged = {}
        for section in options.SECTIONS:
            merged[section], conflicts = options.merge(self.anatomy, data, point.backend, here, section)
            problems.extend(conflicts)
        body = self._body(data, point, merged)
        steps = tuple(self._step(step, data) for step in self.anatomy.steps)
        spec = self.anatomy.spec
        prefix = f"{spec.area}/{spec.name}" if spec.area else spec.name
        return Case(
            id=CaseId(prefix + point.bracket),
            spec=self.document.file,
            area=spec.area,
            name=spec.name,
            position=self.document.position((), key=False),
            summary=str(data["summary"]),
            covers=tuple(data.get("covers", [])),
            tags=self.tags,
            backend=point.backend.name,
            device=point.backend.device,
            params=dict(point.values),
            requires=(*point.backend.requires, *self.requires),
            body=body,
            steps=steps,
            digest=_digest(body, steps, point),
            missing_names=self._missing(merged),
            origins=_origins(merged),
        )

    def _filled(self, point: matrix.Point) -> Any:
        data = self.anatomy.data
        names = point.names
        for path, template in self.templates.items():
            value = substitution.Deferred(template, names) if template.is_deferred else template.evaluate(names)
            data = substitution.replaced(data, path, value)
        return data

    def _body(self, data: Any, point: matrix.Point, merged: Mapping[str, Mapping[str, options.Option]]) -> dict[str, Any]:
        anatomy = self.anatomy
        functions = {}
        for name, raw in anatomy.functions.items():
            if raw.block is not None:
                functions[name] = {"block": _block(raw.block), "entry": entry_of(anatomy, raw)}
            else:
                functions[name] = data["function"] if raw.path == ("function",) else data["functions"][name]
        body: dict[str, Any] = {section: options.values(merged[section]) for section in options.SECTIONS}
        body.update(
            preludes=[_block(block) for block in anatomy.preludes],
            functions=functions,
            inputs=data.get("inputs", []),
            context=self._inherited("context", data, []),
            timeout=data.get("timeout"),
            compiles=point.backend.compiles,
            seed_key=f"{anatomy.spec.area}/{anatomy.spec.name}" + json.dumps(substitution.as_text(dict(point.labels)), sort_keys=True),
        )
        # facts in the backend's own options are filled in on the machine that runs the case
        return _deferring(body, point.names)

    def _inherited(self, key: str, data: Any, default: Any) -> Any:
        if key in data:
            return data[key]
        return next((document.data[key] for document in reversed(self.anatomy.spec.defaults) if key in document.data), default)

    def _merged_tags(self) -> tuple[str, ...]:
        documents = (*self.anatomy.spec.defaults, self.document)
        return tuple(dict.fromkeys(tag for document in documents for tag in document.data.get("tags", [])))

    def _step(self, step: RawStep, data: Any) -> Step:
        arguments = _at(data, step.path) if step.path != ("expect",) else {}
        return Step(
            kind=step.kind,
            arguments=arguments if isinstance(arguments, dict) else {"items": arguments},
            expectations=tuple(self._expectation(raw, data) for raw in step.expectations),
            position=self.document.position(step.path, key=True),
        )

    def _expectation(self, raw: RawExpectation, data: Any) -> Expected:
        body = _at(data, raw.path)
        # most expectations are the same at every point; parsing FileCheck once a spec is worth the key
        key = f"{raw.path}{json.dumps(substitution.as_text(body), sort_keys=True)}"
        if key not in self.expected:
            leaves = {}
            if isinstance(body, dict):
                leaves = {name: self.document.position((*raw.path, name), key=True) for name in body}
            check = EXPECTATIONS[raw.kind].parse(body)
            position = self.document.position(raw.path, key=True)
            self.expected[key] = Expected(kind=raw.kind, check=check, position=position, leaves=leaves)
        return self.expected[key]

    def _missing(self, merged: Mapping[str, Mapping[str, options.Option]]) -> tuple[str, ...]:
        used: list[tuple[NameKind, str]] = []
        for section, kind in OPTION_KINDS.items():
            used.extend((kind, name) for name in merged[section])
        used.extend((kind, name) for _, _, kind, name, unlisted in used_names(self.anatomy) if kind in _JUDGED and not unlisted)
        return tuple(dict.fromkeys(reason for kind, name in used if (reason := self._absence(kind, name))))

    def _absence(self, kind: NameKind, name: str) -> str:
        found = self.names.lookup(kind, name)
        return "" if found.here or not found.known else self.names.absence(kind, name)


_JUDGED = (NameKind.COUNTER, NameKind.METRIC)


def _at(data: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def _block(block: Any) -> dict[str, Any]:
    return {"name": block.name, "file": block.file, "line": block.line, "text": block.text, "exact": block.exact}


def _deferring(body: dict[str, Any], names: Mapping[str, Any]) -> dict[str, Any]:
    """Return ``body`` with templates in the options, which a backend's file may hold, deferred or evaluated."""
    return {key: _defer(value, names) if key in options.SECTIONS else value for key, value in body.items()}


def _defer(value: Any, names: Mapping[str, Any]) -> Any:
    if templates.is_template(value):
        template = templates.parse(value)
        return substitution.Deferred(template, names) if template.is_deferred else template.evaluate(names)
    return {key: _defer(item, names) for key, item in value.items()} if isinstance(value, dict) else value


def _origins(merged: Mapping[str, Mapping[str, options.Option]]) -> dict[str, str]:
    return {
        f"{section}.{name}": f"{option.layer}, {option.position}" for section, found in merged.items() for name, option in found.items()
    }


def _digest(body: Mapping[str, Any], steps: tuple[Step, ...], point: matrix.Point) -> str:
    """Return the sha256 of what is run and judged; where the file lies does not count."""
    plain = {key: value for key, value in substitution.as_text(dict(body)).items() if key not in ("preludes", "functions")}
    code = [block["text"] for block in body["preludes"]]
    functions = {name: value["block"]["text"] if "block" in value else value for name, value in body["functions"].items()}
    judged = [
        [step.kind, substitution.as_text(dict(step.arguments)), [(e.kind, repr(e.check)) for e in step.expectations]] for step in steps
    ]
    text = json.dumps([plain, code, functions, judged, dict(point.labels), point.backend.name], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def duplicate_ids(cases: list[Case]) -> list[Diagnostic]:
    """Return a problem for each id that two files share."""
    problems: list[Diagnostic] = []
    first: dict[str, Case] = {}
    for case in cases:
        other = first.setdefault(case.id, case)
        if other.spec != case.spec:
            message = f"the case id '{case.id}' stands in {other.spec} too"
            problems.append(Diagnostic(position=case.position, message=message, hint="rename one of the files"))
    return problems
