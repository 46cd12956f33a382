"""Rules of conditions, expectations and waivers that no case fulfils. What only a machine knows counts as possible."""

import re
from collections.abc import Iterator, Mapping
from functools import cache
from itertools import product
from typing import Any

from runner.core import devices
from runner.core.case import Case
from runner.core.conditions import CONDITIONS, BadRange, VersionRange, as_list, is_conditional
from runner.core.globs import glob
from runner.core.targets import STAGES_OF_VENDOR, TARGETS, WRAPPER
from runner.language.backends import Backends
from runner.language.lint.base import Finding, Rule, Scene, Spec
from runner.language.names.tables import NameTables
from runner.language.read.anatomy import SOURCE, RawExpectation, RawStep
from runner.language.read.document import DataPath
from runner.language.waivers import OUTSIDE_OF_EXPECTATIONS
from runner.vocabulary.steps import traits_of

_OF_COMPILES = ("kernels", "graph", "guards", "recompiles", "graph_breaks")
"""Kinds that are never judged of a backend that compiles nothing."""

_ARCHS = {"nvidia": ("sm_",), "amd": ("gfx",)}
"""How the architectures of a vendor begin."""


def may_hold(when: Mapping[str, Any] | None, case: Case, backends: Backends) -> bool:
    """Whether a condition may hold for a case on some machine with a torch that the runner knows."""
    backend = backends.by_name[case.backend]
    vendors = _vendors(case)
    for word, wanted in (when or {}).items():
        given = as_list(wanted)
        match word:
            case "device":
                ok = devices.kind_of(case.device) in given
            case "backend":
                ok = bool(backend.names & set(given))
            case "vendor":
                ok = vendors is None or not vendors.isdisjoint(given)
            case "arch":
                ok = _may_have_arch(case, given, vendors)
            case "torch":
                ok = _may_have_torch(case, str(wanted))
            case _:
                ok = True
        if not ok:
            return False
    return True


def _vendors(case: Case) -> frozenset[str] | None:
    """Return the vendors of which a case's device can be; None where they are not known."""
    if case.target:
        return frozenset({TARGETS[case.target].vendor})
    if not devices.is_accelerator(case.device):
        return frozenset()
    named = {one.name for one in case.requires}
    own = {build.vendor for build in devices.builds() if build.capability in named}
    return frozenset(own) or None


def _may_have_arch(case: Case, archs: list[Any], vendors: frozenset[str] | None) -> bool:
    if case.target:
        return any(TARGETS[case.target].arch.startswith(str(arch)) for arch in archs)
    if vendors is None:
        return True
    begins = tuple(begin for vendor in vendors for begin in _ARCHS.get(vendor, ("",)))
    return bool(begins) and any(str(arch).startswith(begins) for arch in archs)


@cache
def _releases() -> tuple[tuple[int, ...], ...]:
    """Return the releases of the minors of torch that have a table of names."""
    minors = [tuple(int(number) for number in version.split(".")[:2]) for version in NameTables.load(None).minors]
    return tuple((*minor, patch) for minor, patch in product(minors, range(10)))


def _may_have_torch(case: Case, text: str) -> bool:
    return any(_in_range(release, text) for release in _releases_of(case))


def _releases_of(case: Case) -> list[tuple[int, ...]]:
    """Return the releases that a case's requirements leave."""
    ranges = [str(one.argument) for one in case.requires if one.name == "torch" and one.argument]
    return [release for release in _releases() if all(_in_range(release, text) for text in ranges)]


def _in_range(release: tuple[int, ...], text: str) -> bool:
    try:
        return VersionRange.parse(text).holds(release)
    except BadRange:
        return True


def unjudged_expectation(scene: Scene) -> Iterator[Finding]:
    """Yield expectations that no case judges, values under conditions that no case chooses, and cases without an expectation."""
    for spec in scene.specs:
        if SOURCE in spec.anatomy.data or not spec.cases:
            continue
        judged: set[str] = set()
        for step in spec.anatomy.steps:
            own = [case for case in spec.cases if may_hold(step.when, case, scene.backends)]
            for raw in step.expectations:
                judging = [case for case in own if _judges(raw, case, scene.backends)]
                judged |= {str(case.id) for case in judging}
                if not judging:
                    yield _unjudged(spec, step, raw)
                yield from _unchosen(spec, raw, judging, scene.backends)
        silent = [case for case in spec.cases if str(case.id) not in judged]
        if silent and judged:
            message = f"no expectation applies to {silent[0].id}" + (f" and {len(silent) - 1} more" if len(silent) > 1 else "")
            hint = "such a case is an ERROR when it is run: add an expectation, or exclude it"
            yield Finding(rule="unjudged-expectation", position=spec.document.position(()), message=message, hint=hint)


def _judges(raw: RawExpectation, case: Case, backends: Backends) -> bool:
    body = raw.body if isinstance(raw.body, dict) else {}
    when = body.get("when")
    if not may_hold(when if isinstance(when, dict) else None, case, backends):
        return False
    if raw.kind in _OF_COMPILES and not backends.by_name[case.backend].compiles and not case.target:
        return False
    stage = body.get("stage")
    stages = {one for vendor in (_vendors(case) or ()) for one in STAGES_OF_VENDOR.get(vendor, ())}
    return not isinstance(stage, str) or not case.target or stage == WRAPPER or stage in stages


def _unjudged(spec: Spec, step: RawStep, raw: RawExpectation) -> Finding:
    names = ", ".join(dict.fromkeys(case.backend for case in spec.cases))
    message = f"no case judges this {raw.kind}: it never applies to {names}"
    place = spec.document.position(raw.path, key=True)
    return Finding(rule="unjudged-expectation", position=place, message=message, hint="correct its condition, or remove it")


def _unchosen(spec: Spec, raw: RawExpectation, cases: list[Case], backends: Backends) -> Iterator[Finding]:
    """Yield the values under conditions that no case can choose."""
    for path, entries in _conditional(raw.body, raw.path):
        for index, entry in enumerate(entries):
            chosen = [case for case in cases if may_hold(entry.get("when"), case, backends)]
            if cases and not chosen:
                message, hint = "no case of the spec fulfils the condition of this value", "correct the condition, or remove the value"
                place = spec.document.position((*path, index))
                yield Finding(rule="unjudged-expectation", position=place, message=message, hint=hint)


def _conditional(value: object, path: DataPath) -> Iterator[tuple[DataPath, list[Any]]]:
    if isinstance(value, list) and is_conditional(value):
        yield path, value
    elif isinstance(value, dict):
        for key, item in value.items():
            yield from _conditional(item, (*path, key))


def dead_condition(scene: Scene) -> Iterator[Finding]:
    """Yield the conditions of specs that no case can fulfil."""
    for spec in scene.specs:
        if SOURCE in spec.anatomy.data or not spec.cases:
            continue
        steps = {step.path[:2]: step for step in spec.anatomy.steps if step.when}
        for path, when in _conditions(spec.document.data, ()):
            around = steps.get(path[:2]) if len(path) > 2 else None
            cases = [case for case in spec.cases if around is None or may_hold(around.when, case, scene.backends)]
            if not cases:
                continue  # the condition of the step is the finding
            place = spec.document.position((*path, "when"), key=True)
            # of expectations and their values, unjudged-expectation says this
            if "expect" in path or any(may_hold(when, case, scene.backends) for case in cases):
                continue
            message, hint = "no case of the spec fulfils this condition", "correct the condition, or remove what it is for"
            yield Finding(rule="dead-condition", position=place, message=message, hint=hint)


def _conditions(value: object, path: DataPath) -> Iterator[tuple[DataPath, Mapping[str, Any]]]:
    """Yield each condition with the path of what it is for."""
    if isinstance(value, dict):
        when = value.get("when")
        if isinstance(when, dict) and when.keys() <= CONDITIONS.keys():
            yield path, when
        for key, item in value.items():
            yield from _conditions(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _conditions(item, (*path, index))


def dead_waiver(scene: Scene) -> Iterator[Finding]:
    """Yield waivers that are for no case: by their glob, by their condition, or by the types of their failures."""
    cases = [case for spec in scene.specs for case in spec.cases]
    files = {document.file for document in scene.waivers.documents if scene.whole or document.file in scene.waivers.given}
    for waiver in scene.waivers.waivers:
        if waiver.position.file not in files:
            continue
        matches, begin = glob(waiver.cases).fullmatch, re.split(r"[*?]", waiver.cases)[0]
        own = [case for case in cases if case.id.startswith(begin) and matches(case.id)]
        if not own:
            message = f"the waiver is for none of the {len(cases)} cases"
        elif not any(may_hold(waiver.when, case, scene.backends) for case in own):
            message = f"the condition of the waiver holds for none of its {len(own)} cases"
        elif not any(one.type in OUTSIDE_OF_EXPECTATIONS or one.type in _kinds(own) for one in waiver.failures):
            types = ", ".join(one.type for one in waiver.failures)
            message = f"none of its {len(own)} cases expects anything of the type {types}"
        else:
            continue
        yield Finding(rule="dead-waiver", position=waiver.position, message=message, hint="correct it, or remove it")


def _kinds(cases: list[Case]) -> frozenset[str]:
    """Return the kinds of verdicts of cases; each step of samples of operators is judged by ``close`` too."""
    kinds = {one.kind for case in cases for step in case.steps for one in step.expectations}
    return frozenset(kinds | {"close" for case in cases for step in case.steps if traits_of(step).python == "" and step.kind == "samples"})


RULES = (
    Rule(
        id="unjudged-expectation",
        summary="An expectation, or a value under a condition, that no backend, target or torch of the spec can judge",
        why="It reads as a claim and is never judged. A case without any expectation that applies is an ERROR. Only what no machine can "
        "change counts: backends, devices, vendors and architectures of backends, targets, torch versions that the runner knows.",
        bad="backends: [cpu]\nexpect:\n  - close: {to: eager}\n  - filecheck: {when: {vendor: amd}, checks: 'CHECK: mfma'}",
        good="backends: [cpu, rocm]\nexpect:\n  - close: {to: eager}\n  - filecheck: {when: {vendor: amd}, checks: 'CHECK: mfma'}",
        check=unjudged_expectation,
    ),
    Rule(
        id="dead-condition",
        summary="A `when` that no case of the spec can fulfil",
        why="It reads as if it chose some cases, and it chooses none: often a backend, a device or a version was meant that "
        "the spec does not have. Only what no machine can change counts, as for `unjudged-expectation`, which finds the conditions of "
        "expectations that no case fulfils.",
        bad="backends: [cuda]\nconfig: [{max_autotune: true}, {when: {vendor: amd}, set: {max_autotune: false}}]",
        good="backends: [cuda, rocm]\nconfig: [{max_autotune: true}, {when: {vendor: amd}, set: {max_autotune: false}}]",
        check=dead_condition,
    ),
    Rule(
        id="dead-waiver",
        summary="A waiver is for no case: its glob, its condition or its type of failure fits none",
        why="It looks like a known defect, and excuses nothing; the next case with a fitting name inherits it. Shipped ones are compared "
        "only where all shipped specs are linted.",
        bad="# a file of waivers\nwaivers:\n  - {cases: 'codecache/fx-cach-hit*', failure: {type: counter, match: observed 0}}",
        good="# a file of waivers\nwaivers:\n  - {cases: 'codecache/fx-cache-hit*', failure: {type: counter, match: observed 0}}",
        check=dead_waiver,
    ),
)
