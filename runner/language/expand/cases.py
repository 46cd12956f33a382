"""From checked specs to cases: one for each backend and each point of the matrix. The only code that makes a ``Case``."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from runner.core.conditions import Surroundings
from runner.core.devices import is_accelerator
from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position
from runner.core.model import Case, CaseId, Control, Expected, Requirement, Step, WrittenReason
from runner.language.backends import Backend, Backends, read_requirements
from runner.language.check.functions import entry_of
from runner.language.check.names import OPTION_KINDS, used_names, value_problem
from runner.language.expand import options
from runner.language.names.once_per_process import isolation_of
from runner.language.names.torch_names import NameKind, NameTables
from runner.language.read import matrix, substitution, templates
from runner.language.read.anatomy import Anatomy, RawExpectation, RawFunction, RawStep
from runner.vocabulary.expectations import EXPECTATIONS


def surroundings(backend: Backend, known: Surroundings) -> Surroundings:
    """Return what a condition may ask about for one backend; ``known`` brings torch, python, vendor and arch."""
    vendor = known.vendor if is_accelerator(backend.device) else None
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
    """Expands one spec. What is the same at every point, or for every point of a backend, is made once."""

    def __init__(self, anatomy: Anatomy, names: NameTables, known: Surroundings) -> None:
        self.anatomy = anatomy
        self.document = anatomy.document
        self.names = names
        self.known = known
        self.templates = {path: templates.parse(text) for path, text in substitution.occurrences(anatomy.data)}
        self.templated = frozenset(path[0] for path in self.templates)
        self.axes, _ = matrix.axes(anatomy.document)
        self.requires = read_requirements(self.document, ("requires",), anatomy.data.get("requires", []), [])
        self.services = [
            Requirement(name=name, argument=None, position=self.document.position(("services", index)))
            for index, name in enumerate(anatomy.data.get("services", []))
        ]
        self.tags = anatomy.tags
        self.survivors = self._survivors()
        spec = anatomy.spec
        self.prefix = f"{spec.area}/{spec.name}" if spec.area else spec.name
        self.preludes = [_block(block) for block in anatomy.preludes]
        self.judged_names = [(kind, name) for _, _, kind, name, unlisted in used_names(anatomy) if kind in _JUDGED and not unlisted]
        self._merged: dict[tuple[str, str], _Section] = {}
        self._shared: dict[str, Mapping[str, _Options]] = {}
        self._expected: dict[str, Expected] = {}
        self._steps: tuple[Step, ...] | None = None

    def cases(self, backends: Backends) -> Iterator[Case]:
        problems: list[Diagnostic] = []
        for point in matrix.points(self.document, self.axes, backends.of(self.anatomy.data["backends"], self.anatomy.tags)):
            yield self._case(point, problems)
        if problems:
            raise InvalidSpecs(problems)

    def _case(self, point: matrix.Point, problems: list[Diagnostic]) -> Case:
        data = self._filled(point)
        sections = self._sections(data, point)
        problems.extend(problem for section in sections.values() for problem in section.problems)
        problems.extend(problem for problem in self._wrong_values(sections, point) if problem not in problems)
        merged = self._options(sections, point)
        return Case(
            id=CaseId(self.prefix + point.bracket),
            spec=self.document.file,
            area=self.anatomy.spec.area,
            name=self.anatomy.spec.name,
            position=self.document.position(()),
            summary=str(data["summary"]),
            covers=tuple(data.get("covers", [])),
            tags=self.tags,
            backend=point.backend.name,
            device=point.backend.device,
            params=point.values,
            requires=(*point.backend.requires, *self.requires, *self.services),
            body=self._body(data, point, sections),
            steps=self._all_steps(data),
            missing_names=self._missing(merged),
            options=merged,
            control=self._control(data, point, merged, problems),
            survivors=self.survivors,
            exclusive=data.get("exclusive", False),
        )

    def _wrong_values(self, sections: Mapping[str, "_Section"], point: matrix.Point) -> Iterator[Diagnostic]:
        """Yield the values that templates gave to options which do not take them; what is written was judged before."""
        for name, section in sections.items():
            if name not in self.templated:
                continue
            options_of = section.options.items() if name in OPTION_KINDS else ()
            for key, option in options_of:
                found = value_problem(self.names, OPTION_KINDS[name], key, option.value)
                if found is not None:
                    yield _at_point(option.position, found, point)
        compile_ = sections["compile"].options if "compile" in self.templated else {}
        for key, value in (compile_["options"].value if "options" in compile_ else {}).items():
            if (found := value_problem(self.names, NameKind.INDUCTOR_CONFIG, key, value)) is not None:
                yield _at_point(compile_["options"].position, found, point)
        mode = compile_.get("mode")
        if mode is not None and (found := self.names.mode_problem(mode.value)) is not None:
            yield _at_point(mode.position, found, point)

    def _control(self, data: Any, point: matrix.Point, merged: Mapping[str, "_Options"], problems: list[Diagnostic]) -> Control | None:
        """Return the case's control, None where its conditions set nothing; one that changes nothing is a problem."""
        if "control" not in data:
            return None
        found = options.patch(self.anatomy, data, surroundings(point.backend, self.known))
        for section, patch in found.items():
            for name, option in patch.items():
                now = merged[section].get(name)
                if now is not None and now.value == option.value:
                    value = json.dumps(option.value, default=str)
                    message = f"the control sets {section} {name} to {value}, as the case does ({now.origin})"
                    problem = Diagnostic(position=option.position, message=message, hint="a control is a patch under which the case fails")
                    problems.extend([problem] if problem not in problems else [])
        if not found:
            return None
        patch_of = {section: options.values(patch) for section, patch in found.items()}
        position = self.document.position(("control",), key=True)
        return Control(patch=patch_of, fails=tuple(data["control"].get("fails", [])), position=position)

    def _survivors(self) -> tuple[WrittenReason, ...]:
        entries = enumerate(self.anatomy.data.get("audit", []))
        return tuple(
            WrittenReason(
                expectation=entry["expectation"],
                mutant=entry["mutant"],
                leaf=entry.get("leaf"),
                reason=entry["reason"],
                position=self.document.position(("audit", index)),
            )
            for index, entry in entries
        )

    def _filled(self, point: matrix.Point) -> Any:
        """Return the spec with its templates evaluated at a point."""
        data = self.anatomy.data
        names = point.names
        for path, template in self.templates.items():
            value = substitution.Deferred(template, names) if template.is_deferred else template.evaluate(names)
            data = substitution.replaced(data, path, value)
        return data

    def _sections(self, data: Any, point: matrix.Point) -> dict[str, "_Section"]:
        """Merge each section; one without templates is the same at every point of a backend."""
        found: dict[str, _Section] = {}
        for name in options.SECTIONS:
            key = (name, point.backend.name)
            section = self._merged.get(key)
            if section is None:
                merged, problems = options.merge(self.anatomy, data, point.backend, surroundings(point.backend, self.known), name)
                section = _Section(merged, options.values(merged), problems)
                if name not in self.templated:
                    self._merged[key] = section
            found[name] = section
        return found

    def _options(self, sections: Mapping[str, "_Section"], point: matrix.Point) -> Mapping[str, "_Options"]:
        """Return the options by section; a hundred thousand cases share them as far as they are the same."""
        if not self.templated.isdisjoint(options.SECTIONS):
            return {name: section.options for name, section in sections.items()}
        if point.backend.name not in self._shared:
            self._shared[point.backend.name] = {name: section.options for name, section in sections.items()}
        return self._shared[point.backend.name]

    def _body(self, data: Any, point: matrix.Point, sections: Mapping[str, "_Section"]) -> dict[str, Any]:
        body: dict[str, Any] = {name: section.values for name, section in sections.items()}
        body.update(
            preludes=self.preludes,
            functions={name: self._function(raw, data) for name, raw in self.anatomy.functions.items()},
            let=data.get("let", {}),
            spies=data.get("spies", {}),
            handlers=data.get("handlers", {}),
            dead=sorted({name for step in self.anatomy.steps for one in step.expectations if one.kind == "dead" for name in one.body}),
            inputs=data.get("inputs", []),
            context=self._context(data, point.backend),
            services=data.get("services", []),
            timeout=data.get("timeout"),
            isolation=self._isolation(),
            compiles=point.backend.compiles,
            seed_key=self.prefix + json.dumps(point.labels, sort_keys=True),
        )
        return body

    def _function(self, raw: RawFunction, data: Any) -> Any:
        if raw.block is not None:
            return {"block": _block(raw.block), "entry": entry_of(self.anatomy, raw)}
        return _at(data, raw.path)

    def _context(self, data: Any, backend: Backend) -> Any:
        if "context" in data:
            return data["context"]
        inherited = (document.data["context"] for document in reversed(self.anatomy.spec.defaults) if "context" in document.data)
        return substitution.filled(next(inherited, []), options.layer_names(backend))

    def _isolation(self) -> str:
        return isolation_of(self.anatomy)

    def _all_steps(self, data: Any) -> tuple[Step, ...]:
        if self._steps is None or not self.templated.isdisjoint(("steps", "expect")):
            self._steps = tuple(self._step(step, data) for step in self.anatomy.steps)
        return self._steps

    def _step(self, step: RawStep, data: Any) -> Step:
        arguments = _at(data, step.path) if step.path != ("expect",) else {}
        if step.path in self.anatomy.scripts:
            script = self.anatomy.scripts[step.path]
            arguments = {**arguments, step.traits.python: _block(script.block), "entry": entry_of(self.anatomy, script)}
        return Step(
            kind=step.kind,
            arguments=arguments if isinstance(arguments, dict) else {"items": arguments},
            expectations=tuple(self._expectation(raw, data) for raw in step.expectations),
            position=self.document.position(step.path, key=True),
        )

    def _expectation(self, raw: RawExpectation, data: Any) -> Expected:
        body = _at(data, raw.path)
        key = f"{raw.path}{json.dumps(substitution.as_text(body), sort_keys=True)}"
        if key not in self._expected:
            leaves = {name: self.document.position((*raw.path, name), key=True) for name in body} if isinstance(body, dict) else {}
            check = EXPECTATIONS[raw.kind].parse(body)
            position = self.document.position(raw.path, key=True)
            self._expected[key] = Expected(kind=raw.kind, check=check, position=position, leaves=leaves, body=body)
        return self._expected[key]

    def _missing(self, merged: Mapping[str, "_Options"]) -> tuple[str, ...]:
        used = [(kind, name) for section, kind in OPTION_KINDS.items() for name in merged[section]]
        reasons = (self._absence(kind, name) for kind, name in [*used, *self.judged_names])
        return tuple(dict.fromkeys(reason for reason in reasons if reason))

    def _absence(self, kind: NameKind, name: str) -> str:
        found = self.names.lookup(kind, name)
        return "" if found.here or not found.known else self.names.absence(kind, name)


_Options = Mapping[str, options.Option]


class _Section(NamedTuple):
    """A section of options merged for one backend; shared, so nothing of it is changed."""

    options: _Options
    values: Mapping[str, Any]
    problems: Sequence[Diagnostic]


_JUDGED = (NameKind.COUNTER, NameKind.METRIC)


def _at(data: Any, path: tuple[str | int, ...]) -> Any:
    for key in path:
        data = data[key]
    return data


def _at_point(position: Position, found: tuple[str, str], point: matrix.Point) -> Diagnostic:
    return Diagnostic(position=position, message=f"{found[0]} (at {point.bracket[:200]})", hint=found[1])


def _block(block: Any) -> dict[str, Any]:
    return {"name": block.name, "file": block.file, "line": block.line, "text": block.text, "exact": block.exact}


def duplicate_ids(cases: list[Case]) -> list[Diagnostic]:
    """Return a problem for each two files that share an id."""
    problems: list[Diagnostic] = []
    first: dict[str, Case] = {}
    told: set[tuple[str, str]] = set()
    for case in cases:
        other = first.setdefault(case.id, case)
        if other.spec != case.spec and (other.spec, case.spec) not in told:
            told.add((other.spec, case.spec))
            message = f"the case id '{case.id}' stands in {other.spec} too"
            problems.append(Diagnostic(position=case.position, message=message, hint="rename one of the files"))
    return problems
