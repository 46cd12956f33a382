"""Expands a checked spec to its cases: a case for each backend and each point of the matrix."""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any, NamedTuple

from runner.core.case import (
    Case,
    CaseBody,
    CaseId,
    Control,
    Expected,
    Option,
    Requirement,
    Settings,
    Step,
    WrittenFunction,
    WrittenReason,
)
from runner.core.conditions import Surroundings
from runner.core.devices import is_accelerator
from runner.core.diagnostics import Diagnostic, InvalidSpecs, Position
from runner.core.protocol import Json
from runner.core.targets import AXIS, DEVICE, OFFLINE_BACKENDS, SIMULATED, TARGETS
from runner.language.backends import Backend, Backends, read_requirements
from runner.language.check.functions import entry_of
from runner.language.check.names import GUARD_FILTER, filter_problem, judged_names, value_problem
from runner.language.check.values import isolation_of
from runner.language.expand import options
from runner.language.expand.options import fill
from runner.language.names.name_table import CONFIG_FILES
from runner.language.names.tables import NameTables
from runner.language.read import matrix, substitution, templates
from runner.language.read.anatomy import SOURCE, Anatomy, RawExpectation, RawFunction, RawStep, with_data
from runner.vocabulary.expectations import EXPECTATIONS
from runner.vocabulary.steps import TRITON


class StepMaker:
    """Makes the steps of one spec at each point of its matrix; ``templated`` has the names of sections with templates."""

    def __init__(self, templated: Container[str | int]) -> None:
        self._is_templated = any(name in templated for name in ("steps", "expect", TRITON))
        self._steps: tuple[Step, ...] | None = None
        self._expected: dict[str, Expected] = {}

    def steps_of(self, filled: Anatomy) -> tuple[Step, ...]:
        """Return the steps at a point."""
        if self._steps is None or self._is_templated:
            self._steps = tuple(self._step(step, filled) for step in filled.steps)
        return self._steps

    def _step(self, step: RawStep, filled: Anatomy) -> Step:
        arguments = filled.document.value(step.path) if step.path != ("expect",) else {}
        if step.path in filled.scripts:
            script = filled.scripts[step.path]
            assert script.block is not None, "a script is Python"
            if step.kind == TRITON:
                from runner.vocabulary.steps.triton import kernels

                entry = next(iter(kernels(script.tree) if script.tree else {}), None)
            else:
                entry = entry_of(filled, script)
            arguments = {**arguments, step.traits.python: asdict(script.block), "entry": entry}
        beside: Any = filled.document.value(step.path[:-1]) if step.path != ("expect",) else {}
        return Step(
            kind=step.kind,
            arguments=arguments if isinstance(arguments, dict) else {"items": arguments},
            expectations=tuple(self._expectation(raw, filled) for raw in step.expectations),
            position=filled.document.position(step.path, key=True),
            repeat=beside.get("repeat", 1),
            when=beside.get("when"),
        )

    def _expectation(self, raw: RawExpectation, filled: Anatomy) -> Expected:
        body = filled.document.value(raw.path)
        key = f"{raw.path}{json.dumps(substitution.as_text(body), sort_keys=True)}"
        if key not in self._expected:
            document = filled.document
            leaves = {name: document.position((*raw.path, name), key=True) for name in body} if isinstance(body, dict) else {}
            check = EXPECTATIONS[raw.kind].parse(body)
            position = document.position(raw.path, key=True)
            self._expected[key] = Expected(kind=raw.kind, check=check, position=position, leaves=leaves, body=body)
        return self._expected[key]


# -- cases ------------------------------------------------------------------------------------------------------------


def surroundings(backend: Backend, known: Surroundings, target: str = "") -> Surroundings:
    """Return the surroundings of conditions for one backend; ``known`` has torch, python, vendor and arch.

    Those of a case that is compiled for a ``target`` have the target's vendor and arch, whatever the machine has.
    """
    if target:
        gpu = TARGETS[target]
        return replace(known, backends=backend.names, device=DEVICE, vendor=gpu.vendor, arch=gpu.arch)
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
    """Return the cases of a checked spec; raise ``InvalidSpecs`` for conflicting options of spec and backend."""
    cases = list(_Expansion(anatomy, names, known).cases(backends))
    if SOURCE not in anatomy.data:
        return cases
    from runner.language.expand.operators import with_operators

    return with_operators(anatomy, cases, known)


class _Expansion:
    """Expands one spec. Parts that are equal at every point, or at every point of a backend, are made once."""

    def __init__(self, anatomy: Anatomy, names: NameTables, known: Surroundings) -> None:
        self.anatomy = anatomy
        self.document = anatomy.document
        self.names = names
        self.known = known
        self.templates = {path: templates.parse(text) for path, text in substitution.occurrences(anatomy.data)}
        self.templated = frozenset(path[0] for path in self.templates)
        self.axes, _ = matrix.axes(anatomy.document)
        self.requires = (
            () if "requires" in self.templated else read_requirements(self.document, ("requires",), anatomy.data.get("requires", []), [])
        )
        self.services = [
            Requirement(name=name, argument=None, position=self.document.position(("services", index)))
            for index, name in enumerate(anatomy.data.get("services", []))
        ]
        self.tags = anatomy.tags
        self.survivors = self._survivors()
        spec = anatomy.spec
        self.prefix = f"{spec.area}/{spec.name}" if spec.area else spec.name
        self.isolation = isolation_of(anatomy)
        self.judges_templates = any(
            path[0] in ("steps", "expect", TRITON) and template.is_single for path, template in self.templates.items()
        )
        self.judged_names = [] if self.judges_templates else list(judged_names(anatomy))
        self._merged: dict[tuple[str, str], _Section] = {}
        self._shared: dict[str, Mapping[str, _Options]] = {}
        self._steps = StepMaker(self.templated)

    def cases(self, backends: Backends) -> Iterator[Case]:
        problems: list[Diagnostic] = []
        for point in matrix.points(self.document, self.axes, backends.of(self.anatomy.data["backends"], self.anatomy.tags)):
            yield self._case(point, problems)
        if problems:
            raise InvalidSpecs(problems)

    def _case(self, point: matrix.Point, problems: list[Diagnostic]) -> Case:
        filled = fill(self.anatomy, self.templates, point)
        sections = self._sections(filled, point)
        problems.extend(problem for section in sections.values() for problem in section.problems)
        problems.extend(problem for problem in self._wrong_values(sections, point) if problem not in problems)
        merged = self._options(sections, point)
        requires = (
            read_requirements(self.document, ("requires",), tuple(filled.data.get("requires", ())), [])
            if "requires" in self.templated
            else self.requires
        )
        return Case(
            id=CaseId(self.prefix + point.bracket),
            spec=self.document.file,
            area=self.anatomy.spec.area,
            name=self.anatomy.spec.name,
            position=self.document.position(()),
            summary=str(filled.data["summary"]),
            covers=tuple(filled.data.get("covers", ())),
            tags=self.tags,
            backend=point.backend.name,
            device=point.backend.device,
            module=point.backend.module,
            params=point.values,
            requires=(*point.backend.requires, *_compiler_of(point, self.document.position(("targets",))), *requires, *self.services),
            body=self._body(filled, point, sections),
            steps=self._steps.steps_of(filled),
            seed_key=self.prefix + json.dumps(point.labels, sort_keys=True),
            missing_names=self._missing(merged, filled),
            options=merged,
            control=self._control(filled, point, merged, problems),
            survivors=self.survivors,
            exclusive=filled.data.get("exclusive") is True,
            on_request=filled.data.get("on_request") is True,
            target=target_of(point),
        )

    def _wrong_values(self, sections: Mapping[str, "_Section"], point: matrix.Point) -> Iterator[Diagnostic]:
        """Yield the invalid values of options that come from templates; literal values are checked before."""
        for name, section in sections.items():
            if name not in self.templated:
                continue
            options_of = section.options.items() if name in CONFIG_FILES else ()
            for key, option in options_of:
                found = value_problem(self.names, name, key, option.value)
                if found is not None:
                    yield _at_point(option.position, found, point)
        compile_ = sections["compile"].options if "compile" in self.templated else {}
        for key, value in (compile_["options"].value if "options" in compile_ else {}).items():
            is_filter = key == GUARD_FILTER and not isinstance(value, substitution.Deferred)
            found = filter_problem(value) if is_filter else value_problem(self.names, "config", key, value)
            if found is not None:
                yield _at_point(compile_["options"].position, found, point)
        mode = compile_.get("mode")
        if mode is not None and (found := self.names.mode_problem(mode.value)) is not None:
            yield _at_point(mode.position, found, point)

    def _control(
        self, filled: Anatomy, point: matrix.Point, merged: Mapping[str, "_Options"], problems: list[Diagnostic]
    ) -> Control | None:
        """Return the case's control; None if its conditions set nothing. A control that changes nothing is a problem."""
        if "control" not in filled.data:
            return None
        found = options.patch(filled, surroundings(point.backend, self.known, target_of(point)))
        kernel = self._kernel_of_control(filled, problems)
        for section, patch in found.items():
            for name, option in patch.items():
                now = merged[section].get(name)
                if now is not None and now.value == option.value:
                    value = json.dumps(option.value, default=str)
                    message = f"the control sets {section} {name} to {value}, as the case does ({now.origin})"
                    problem = Diagnostic(
                        position=option.position,
                        message=message,
                        hint="a control is a patch under which the case fails",
                        code="changes-nothing",
                    )
                    problems.extend([problem] if problem not in problems else [])
        if not found and not kernel:
            return None
        patch_of = {section: options.values(patch) for section, patch in found.items()} | ({TRITON: kernel} if kernel else {})
        position = self.document.position(("control",), key=True)
        return Control(patch=patch_of, fails=tuple(filled.data.get("control", {}).get("fails", [])), position=position)

    def _kernel_of_control(self, filled: Anatomy, problems: list[Diagnostic]) -> Mapping[str, Any]:
        """Return what a control changes of the kernel; what it does not change is a problem."""
        from runner.vocabulary.steps.triton import patched

        kernel: Mapping[str, Any] = filled.data.get("control", {}).get(TRITON, {})
        given: Any = filled.data.get(TRITON) or {}
        for key, value in kernel.items():
            unchanged = patched(given, {key: value}) == given
            message = f"the control sets {TRITON} {key} as the case does"
            hint = "a control is a patch under which the case fails"
            problem = Diagnostic(
                position=self.document.position(("control", TRITON, key), key=True), message=message, hint=hint, code="changes-nothing"
            )
            problems.extend([problem] if unchanged and problem not in problems else [])
        return kernel

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

    def _sections(self, filled: Anatomy, point: matrix.Point) -> dict[str, "_Section"]:
        """Merge each section; a section without templates is merged once for each backend."""
        found: dict[str, _Section] = {}
        for name in options.SECTIONS:
            key = (name, point.backend.name + target_of(point))
            section = self._merged.get(key)
            if section is None:
                merged, problems = options.merge(filled, point.backend, surroundings(point.backend, self.known, target_of(point)), name)
                section = _Section(merged, options.values(merged), problems)
                if name not in self.templated:
                    self._merged[key] = section
            found[name] = section
        return found

    def _options(self, sections: Mapping[str, "_Section"], point: matrix.Point) -> Mapping[str, "_Options"]:
        """Return the options by section; cases share the objects of equal sections, to save memory."""
        if not self.templated.isdisjoint(options.SECTIONS):
            return {name: section.options for name, section in sections.items()}
        if point.backend.name not in self._shared:
            self._shared[point.backend.name] = {name: section.options for name, section in sections.items()}
        return self._shared[point.backend.name]

    def _body(self, filled: Anatomy, point: matrix.Point, sections: Mapping[str, "_Section"]) -> CaseBody:
        steps = self.anatomy.steps
        return CaseBody(
            settings=Settings(**{name: section.values for name, section in sections.items()}),
            preludes=self.anatomy.preludes,
            functions={name: self._function(raw, filled) for name, raw in self.anatomy.functions.items()},
            let=filled.data.get("let", {}),
            spies=filled.data.get("spies", {}),
            handlers=filled.data.get("handlers", {}),
            dead=tuple(sorted({name for step in steps for one in step.expectations if one.kind == "dead" for name in one.body})),
            inputs=tuple(filled.data.get("inputs", ())),
            context=self._context(filled, point.backend),
            services=tuple(filled.data.get("services", ())),
            timeout=filled.data.get("timeout"),
            isolation=self.isolation,
            compiles=point.backend.compiles,
        )

    def _function(self, raw: RawFunction, filled: Anatomy) -> WrittenFunction | Json:
        if raw.block is not None:
            return WrittenFunction(block=raw.block, entry=entry_of(self.anatomy, raw))
        return filled.document.value(raw.path)

    def _context(self, filled: Anatomy, backend: Backend) -> tuple[Any, ...]:
        if "context" in filled.data:
            return tuple(filled.data.get("context", ()))
        inherited = (document.data["context"] for document in reversed(self.anatomy.spec.defaults) if "context" in document.data)
        return tuple(substitution.filled(next(inherited, []), options.layer_names(backend)))

    def _missing(self, merged: Mapping[str, "_Options"], filled: Anatomy) -> tuple[str, ...]:
        judged = list(judged_names(with_data(self.anatomy, filled.data))) if self.judges_templates else self.judged_names
        used = [(section, name) for section in CONFIG_FILES for name in merged[section]]
        reasons = (self.names.absence(kind, name) for kind, name in [*used, *((kind, name) for kind, name, _ in judged)])
        return tuple(dict.fromkeys(reason for reason in reasons if reason))


_Options = Mapping[str, Option]


class _Section(NamedTuple):
    """A section of options merged for one backend; shared between cases, so it must not be changed."""

    options: _Options
    values: Mapping[str, Any]
    problems: Sequence[Diagnostic]


def _at_point(position: Position, found: tuple[str, str], point: matrix.Point) -> Diagnostic:
    return Diagnostic(position=position, message=f"{found[0]} (at {point.bracket[:200]})", hint=found[1], code="option-value")


def _compiler_of(point: matrix.Point, position: Position) -> list[Requirement]:
    """Return the requirement of a case that is compiled for a target: that the compiler for it works, or the simulation of it."""
    target = target_of(point)
    name = SIMULATED if point.backend.name == SIMULATED else AXIS
    return [Requirement(name=name, argument=target, position=position)] if target else []


def target_of(point: matrix.Point) -> str:
    """Return the target of a point; empty for one that is executed."""
    return str(point.values.get(AXIS, "")) if point.backend.name in OFFLINE_BACKENDS else ""
