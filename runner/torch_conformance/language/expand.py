"""Expands a checked spec to its cases: a case for each backend and each point of the matrix."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

from torch_conformance.language.backends import Backends, read_requirements
from torch_conformance.language.check.functions import entry_of
from torch_conformance.language.check.names import (
    GUARD_FILTER,
    filter_problem,
    judged_names,
    value_problem,
)
from torch_conformance.language.read import matrix, python_source, templates
from torch_conformance.language.read.anatomy import (
    SOURCE,
    Anatomy,
    RawExpectation,
    RawFunction,
    RawStep,
    with_data,
)
from torch_conformance.language.torch_names import CONFIG_FILES, NameTables
from torch_conformance.model.case import (
    Case,
    CaseBody,
    CaseId,
    Control,
    Expected,
    Group,
    Option,
    Requirement,
    Settings,
    Step,
    WrittenFunction,
)
from torch_conformance.model.conditions import Surroundings, holds
from torch_conformance.model.devices import is_accelerator
from torch_conformance.model.diagnostics import Diagnostic, InvalidSpecs, unknown_word
from torch_conformance.model.document import DataPath, Document
from torch_conformance.model.protocol import Json
from torch_conformance.model.targets import AXIS, DEVICE, OFFLINE_BACKENDS, SIMULATED, TARGETS
from torch_conformance.vocabulary.backend import INDUCTOR, Backend, Claims
from torch_conformance.vocabulary.expectations import EXPECTATIONS
from torch_conformance.vocabulary.expectations.filecheck import FileCheck
from torch_conformance.vocabulary.steps import TRITON


def surroundings_for(backend: Backend, of_machine: Surroundings, target: str = "") -> Surroundings:
    """Return the surroundings of conditions for one backend; ``of_machine`` has torch, python,
    vendor and arch.

    Those of a case that is compiled for a ``target`` have the target's vendor and arch, whatever
    the machine has.
    """
    if target:
        gpu = TARGETS[target]
        return replace(
            of_machine, backends=backend.names, device=DEVICE, vendor=gpu.vendor, arch=gpu.arch
        )
    vendor = of_machine.vendor if is_accelerator(backend.device) else None
    return Surroundings(
        backends=backend.names,
        device=backend.device,
        torch=of_machine.torch,
        python=of_machine.python,
        vendor=vendor,
        arch=of_machine.arch if vendor else None,
    )


def expand(
    anatomy: Anatomy, backends: Backends, names: NameTables, of_machine: Surroundings
) -> list[Case]:
    """Return the cases of a checked spec; raise ``InvalidSpecs`` for conflicting options of spec
    and backend.

    Parts that are equal at every point, or at every point of a backend, are made once, and shared
    by the cases.
    """
    document = anatomy.document
    parsed = {path: templates.parse(text) for path, text in templates.occurrences(document)}
    decided = matrix.decided_conditions(document)
    templated = frozenset(path[0] for path in (*parsed, *decided))
    has_templated_steps = not templated.isdisjoint(("steps", "expect", TRITON))
    judges_templates = any(
        path[0] in ("steps", "expect", TRITON) and template.is_single
        for path, template in parsed.items()
    )
    requires = read_requirements(
        document,
        ("requires",),
        () if "requires" in templated else anatomy.data.get("requires", []),
        [],
    )
    services = [
        Requirement(name=name, argument=None, position=document.position(("services", index)))
        for index, name in enumerate(anatomy.data.get("services", []))
    ]
    inherited_contexts = [
        layer.data["context"] for layer in reversed(anatomy.defaults) if "context" in layer.data
    ]
    preludes = anatomy.preludes
    objects = {
        name
        for raw in anatomy.expectations
        if EXPECTATIONS[raw.kind].names_objects
        for name in raw.body
    }
    layers = (document, *reversed(anatomy.defaults))
    isolation = next(
        (str(layer.data["isolation"]) for layer in layers if "isolation" in layer.data), "case"
    )
    groups = {
        name: Group(name=name, file=layer.file, most=most)
        for layer in anatomy.defaults
        for name, most in layer.data.get("groups", {}).items()
    }
    prefix = f"{anatomy.area}/{anatomy.name}" if anatomy.area else anatomy.name
    merged: dict[
        tuple[str, str, str], tuple[Mapping[str, Option], Mapping[str, Any], list[Diagnostic]]
    ] = {}
    """By section, backend and target: its options, their values, and conflicts."""
    shared: dict[tuple[str, str], Mapping[str, Mapping[str, Option]]] = {}
    expected: dict[str, Expected] = {}
    steps: tuple[Step, ...] | None = None
    judged_paths: list[tuple[str, str, DataPath]] | None = None
    problems: list[Diagnostic] = []
    cases: list[Case] = []
    for point in matrix.points(
        document, matrix.axes(document)[0], backends.of(anatomy.data["backends"], anatomy.tags)
    ):
        filled, backend = _filled(anatomy, parsed, decided, point), point.backend
        clashes: list[str] = []
        target = (
            str(point.values.get(AXIS, "")) if backend.name in OFFLINE_BACKENDS else ""
        )  # empty for a case that is executed
        data, surroundings = filled.data, surroundings_for(backend, of_machine, target)
        for section in SECTIONS:
            key = (section, backend.name, target)
            if key not in merged or section in templated:
                section_options, conflicts = merge(filled, backend, surroundings, section)
                merged[key] = (
                    section_options,
                    {name: option.value for name, option in section_options.items()},
                    conflicts,
                )
            if (
                merged[key][2]
                and backend.compiler != INDUCTOR
                and backend.name not in anatomy.data["backends"]
            ):
                # a joined spec
                clashes += [
                    f"{section} of {problem.position} is its own" for problem in merged[key][2]
                ]
            else:
                problems.extend(merged[key][2])
        options: Mapping[str, Mapping[str, Option]] = {
            section: merged[section, backend.name, target][0] for section in SECTIONS
        }
        if templated.isdisjoint(SECTIONS):
            options = shared.setdefault((backend.name, target), options)
        problems.extend(
            _wrong_values(
                names,
                {section: options[section] for section in options if section in templated},
                point,
            )
        )
        if steps is None or has_templated_steps:
            steps = tuple(
                of_rank
                for step in filled.steps
                for of_rank in _of_ranks(_step(step, filled, expected))
            )
        group = data.get("group", "")
        if group and group not in groups:
            unknown = unknown_word("group", group, groups)
            problems.append(document.diagnostic(("group",), unknown))
        if judged_paths is None or judges_templates:
            judged_paths = list(
                judged_names(with_data(anatomy, data) if judges_templates else anatomy)
            )
        used = [
            *((section, name) for section in CONFIG_FILES for name in options[section]),
            *((kind, name) for kind, name, _ in judged_paths),
        ]
        absent = [names.absent_argument(name) for name in options["compile"] if name in NEWER]
        if "requires" in templated:
            requires = read_requirements(
                document, ("requires",), tuple(data.get("requires", ())), [], filled=True
            )
        position = document.position(("targets",))
        compiler = Requirement(
            name=SIMULATED if backend.name == SIMULATED else AXIS,
            argument=target,
            position=position,
        )
        # those of the defaults have no points, and no names but these
        context = (
            data["context"]
            if "context" in data
            else templates.filled(next(iter(inherited_contexts), []), names_of(backend))
        )
        cases.append(
            Case(
                id=CaseId(prefix + point.bracket),
                spec=document.file,
                area=anatomy.area,
                name=anatomy.name,
                position=document.position(()),
                summary=str(data["summary"]),
                covers=tuple(data.get("covers", ())),
                tags=anatomy.tags,
                backend=backend.name,
                device=backend.device,
                module=backend.module,
                params=point.values,
                requires=(*backend.requires, *([compiler] if target else []), *requires, *services),
                body=CaseBody(
                    settings=Settings(
                        **{
                            section: merged[section, backend.name, target][1]
                            for section in SECTIONS
                        }
                    ),
                    preludes=preludes,
                    functions={
                        name: WrittenFunction(block=raw.block, entry=entry_of(anatomy, raw))
                        if raw.block is not None
                        else filled.document.value(raw.path)
                        for name, raw in anatomy.functions.items()
                    },
                    let=data.get("let", {}),
                    spies=data.get("spies", {}),
                    handlers=data.get("handlers", {}),
                    dead=tuple(sorted(objects)),
                    inputs=tuple(data.get("inputs", ())),
                    context=tuple(context),
                    services=tuple(data.get("services", ())),
                    timeout=data.get("timeout"),
                    isolation=isolation if backend.forks else "process",
                    compiles=backend.compiles,
                ),
                steps=steps,
                seed_key=prefix + json.dumps(point.labels, sort_keys=True),
                missing_names=tuple(
                    dict.fromkeys(
                        filter(
                            None,
                            [
                                *(names.absence(kind, name) for kind, name in used),
                                *absent,
                                *clashes,
                            ],
                        )
                    )
                ),
                options=options,
                control=_control(filled, surroundings, options, problems)
                if "control" in data
                else None,
                exclusive=data.get("exclusive") is True,
                group=groups.get(group),
                retries=data.get("retries"),
                on_request=bool(data.get("on_request")),
                because="" if data.get("on_request") in (None, True) else str(data["on_request"]),
                target=target,
            )
        )
    if problems:
        raise InvalidSpecs(list(dict.fromkeys(problems)))
    if SOURCE in anatomy.data:
        from torch_conformance.language.operators import with_operators

        cases = with_operators(anatomy, cases, of_machine, names)
    of_cases = {case.backend: backends.by_name[case.backend] for case in cases}
    others = {
        name: backend
        for name, backend in of_cases.items()
        if backend.compiler != INDUCTOR or backend.claims != Claims()
    }
    if not others:
        return cases
    from torch_conformance.language.compilers import with_unclaimed

    listed = anatomy.data["backends"]
    return [
        with_unclaimed(case, others[case.backend], is_joined=case.backend not in listed)
        if case.backend in others
        else case
        for case in cases
    ]


def _filled(
    anatomy: Anatomy,
    parsed: Mapping[DataPath, templates.Template],
    decided: Mapping[DataPath, Mapping[str, Any]],
    point: matrix.Point,
) -> Anatomy:
    """Return a spec with its templates and its conditions on the matrix evaluated at a point;
    templates over facts are not evaluated yet (``templates.Deferred``).
    """
    if not parsed and not decided:
        return anatomy
    data, names = anatomy.data, point.names
    for path, template in parsed.items():
        value = (
            templates.Deferred(template, names)
            if template.is_deferred
            else template.evaluate(names)
        )
        data = templates.replaced(data, path, value)
    for path, selection in decided.items():
        is_here = matrix.fulfils(anatomy.document, selection, point.values)
        data = templates.replaced(data, path, is_here)
    return replace(anatomy, document=replace(anatomy.document, data=data))


def _kernel_of(script: RawFunction) -> str | None:
    from torch_conformance.vocabulary.steps.triton import kernels

    return next(iter(kernels(script.tree) if script.tree else {}), None)


def _expected(raw: RawExpectation, body: Json, document: Document) -> Expected:
    """Return an expectation whose body has no templates any more, with the position of each leaf:
    its keys, and the lines of its directives.
    """
    check = raw.parsed if body is raw.body else EXPECTATIONS[raw.kind].parse(body)
    keys = body if isinstance(body, dict) else ()
    leaves = {key: document.position((*raw.path, key), key=True) for key in keys}
    path = raw.path if isinstance(body, str) else (*raw.path, "checks")
    if isinstance(check, FileCheck) and path in document.marks:
        block = python_source.block_at(document, path, raw.kind)
        for line in {directive.line for directive in check.checks}:
            leaves[f"line {line}"] = python_source.place(document, path, block, line, 1)
    return Expected(
        kind=raw.kind,
        check=check,
        position=document.position(raw.path, key=True),
        leaves=leaves,
        body=body,
        weak=raw.weak,
        is_varied=body is not raw.body,
    )


def _step(step: RawStep, filled: Anatomy, expected: dict[str, Expected]) -> Step:
    """Return a step of a case; ``expected`` has the expectations of the cases before, which are
    shared.
    """
    document, is_short = filled.document, step.path == ("expect",)  # a call without arguments
    arguments = {} if is_short else document.value(step.path)
    if (script := filled.scripts.get(step.path)) is not None:
        assert script.block is not None, "a script is Python"
        entry = _kernel_of(script) if step.kind == TRITON else entry_of(filled, script)
        arguments = {**arguments, step.traits.python: asdict(script.block), "entry": entry}
    expectations: list[Expected] = []
    for raw in step.expectations:
        body = document.value(raw.path)
        key = f"{raw.path}{json.dumps(templates.as_text(body), sort_keys=True)}"
        if key not in expected:
            expected[key] = _expected(raw, body, document)
        expectations.append(expected[key])
    entry_of_step: Any = {} if is_short else document.value(step.path[:-1])
    return Step(
        kind=step.kind,
        arguments=arguments if isinstance(arguments, dict) else {"items": arguments},
        expectations=tuple(expectations),
        position=document.position(step.path, key=True),
        repeat=entry_of_step.get("repeat", 1),
        when=entry_of_step.get("when"),
    )


def _of_ranks(step: Step) -> Iterator[Step]:
    """Yield the steps of the ranks that a step asks for; else the step itself."""
    count = step.arguments.get("processes")
    for rank in range(count or 1):
        yield replace(step, rank=rank) if count else step


def _wrong_values(
    names: NameTables, sections: Mapping[str, Mapping[str, Option]], point: matrix.Point
) -> Iterator[Diagnostic]:
    """Yield the invalid values of options that come from templates; literal values are checked
    before.
    """
    wrong = [
        (option.position, value_problem(names, section, key, option.value))
        for section in CONFIG_FILES
        for key, option in sections.get(section, {}).items()
    ]
    compile_ = sections.get("compile", {})
    for key, value in (compile_["options"].value if "options" in compile_ else {}).items():
        is_filter = key == GUARD_FILTER and not isinstance(value, templates.Deferred)
        problem = filter_problem(value) if is_filter else value_problem(names, "config", key, value)
        wrong.append((compile_["options"].position, problem))
    if "mode" in compile_:
        wrong.append((compile_["mode"].position, names.mode_problem(compile_["mode"].value)))
    for position, problem in wrong:
        if problem is not None:
            yield replace(
                problem,
                position=position,
                arguments=(*problem.arguments, ("point", point.bracket[:200])),
            )


def _control(
    filled: Anatomy,
    surroundings: Surroundings,
    options: Mapping[str, Mapping[str, Option]],
    problems: list[Diagnostic],
) -> Control | None:
    """Return the case's control, and add a problem for each part that changes nothing; None if its
    conditions set nothing.
    """
    from torch_conformance.vocabulary.steps.triton import patched

    document, control = filled.document, filled.data["control"]
    patch: dict[str, Mapping[str, Any]] = {}
    for section in SECTIONS:
        set_otherwise = layer_options(
            document, control.get(section), ("control", section), "control", surroundings
        )
        if set_otherwise:
            patch[section] = {name: option.value for name, option in set_otherwise.items()}
        for name, option in set_otherwise.items():
            current = options[section].get(name)
            if current is not None and current.value == option.value:
                value = json.dumps(option.value, default=str)
                unchanged = Diagnostic.of(
                    "unchanged-option",
                    section=section,
                    name=name,
                    value=value,
                    origin=current.origin,
                )
                problems.append(unchanged.at(option.position))
    if kernel := control.get(TRITON, {}):
        patch[TRITON] = kernel
        arguments: Any = filled.data.get(TRITON) or {}
        for key, value in kernel.items():
            if patched(arguments, {key: value}) == arguments:
                problems.append(
                    document.diagnostic(
                        ("control", TRITON, key),
                        "unchanged-kernel",
                        key=True,
                        name=f"{TRITON} {key}",
                    )
                )
    if not patch:
        return None
    return Control(
        patch=patch,
        fails=tuple(control.get("fails", [])),
        position=document.position(("control",), key=True),
    )


SECTIONS = ("config", "dynamo_config", "functorch_config", "env", "torch", "compile")
"""The sections that are merged."""

NEWER = ("name", "recompile_limit", "isolate_recompiles")
"""The arguments of ``torch.compile`` that the oldest torch with a table lacks."""

OVERRIDABLE = ("config", "dynamo_config", "functorch_config")
"""The sections that may be a list whose entries may have ``override: true``."""


def merge(
    filled: Anatomy, backend: Backend, surroundings: Surroundings, section: str
) -> tuple[dict[str, Option], list[Diagnostic]]:
    """Return the options of a section for one case (defaults < spec < backend), and its conflicts,
    which name both positions.
    """
    if not any(
        section in layer
        for layer in (
            filled.data,
            backend.settings,
            *(document.data for document in filled.defaults),
        )
    ):
        return {}, []
    names, origin = names_of(backend), f"backend {backend.name}"
    inherited: dict[str, Option] = {}
    for document in filled.defaults:
        inherited |= layer_options(
            document, document.data.get(section), (section,), "defaults", surroundings
        )
    spec = layer_options(
        filled.document, filled.data.get(section), (section,), "spec", surroundings
    )
    of_backend = layer_options(
        backend.document,
        backend.settings.get(section),
        (backend.name, section),
        origin,
        surroundings,
    )
    inherited, of_backend = (
        {
            name: replace(option, value=templates.filled(option.value, names))
            for name, option in layer.items()
        }
        for layer in (inherited, of_backend)
    )
    conflicts: list[Diagnostic] = []
    for name, option in of_backend.items():
        mine = spec.get(name)
        if mine is None or mine.override or mine.value == option.value:
            continue
        value, other = (json.dumps(value, default=str) for value in (mine.value, option.value))
        conflict = Diagnostic.of(
            "conflicting-options",
            section=section,
            name=name,
            value=value,
            other=other,
            origin=origin,
            place=str(option.position),
            backend=backend.name,
            override=section if section in OVERRIDABLE else "",
        )
        conflicts.append(conflict.at(mine.position))
    overridden = {name: option for name, option in spec.items() if option.override}
    return {**inherited, **spec, **of_backend, **overridden}, conflicts


def names_of(backend: Backend) -> dict[str, str]:
    """Return the names for templates outside a spec, except for facts: such files have no
    matrix.
    """
    return {"backend": backend.name, "device": backend.device}


def layer_options(
    document: Document, value: object, path: DataPath, layer: str, surroundings: Surroundings
) -> dict[str, Option]:
    """Return the options of a section of one file whose conditions hold."""
    options: dict[str, Option] = {}
    if isinstance(value, dict):
        for name, setting in value.items():
            options[name] = Option(setting, document.position((*path, name), key=True), layer)
    for index, entry in enumerate(value if isinstance(value, list) else []):
        if "set" not in entry:
            options |= layer_options(document, entry, (*path, index), layer, surroundings)
        elif holds(entry.get("when"), surroundings):
            inner = layer_options(
                document, entry["set"], (*path, index, "set"), layer, surroundings
            )
            override = entry.get("override") is True
            options |= {name: replace(option, override=override) for name, option in inner.items()}
    return options
